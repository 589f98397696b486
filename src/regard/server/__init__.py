"""Serve: model folders behind an HTTP API, with requests gathered into batches."""
