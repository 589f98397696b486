"""The built-in corpus: an English-French grammar with gold word alignments."""
