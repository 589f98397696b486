"""Corpora: a catalog of public ones and the built-in English-French corpus."""
