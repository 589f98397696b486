"""Measurements: one JSON line each, always a ratio of two things measured in the same run."""
