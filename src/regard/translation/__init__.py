"""Translation: a model folder and text in, text out."""
