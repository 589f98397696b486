"""Looking into models and runs: curves of a training, films of its attention."""
