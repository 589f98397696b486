"""Evaluation: how good translations are, where, and which of several systems is better."""
