"""Inspection: traces of what a model did, attribution, alignment, quality signals, charts and pages."""
