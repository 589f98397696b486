"""Attention: functions and modules on tensors, independent of models and text."""
