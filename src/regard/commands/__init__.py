"""Commands that are too long for `cli.py`, and the options that several commands share."""
