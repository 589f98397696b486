"""Text: from characters to batches."""
