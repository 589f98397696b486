"""Decoding: greedy search, beam search and sampling over any model with `start` and `step`."""

from __future__ import annotations

from regard.decoding.beam import Branch, Tree, beam
from regard.decoding.constraints import Constraints
from regard.decoding.engine import Engine, SearchOptions, TorchEngine
from regard.decoding.sampling import greedy, sample
from regard.decoding.search import Encoded, Hypothesis, Models

__all__ = [
    "Branch",
    "Constraints",
    "Encoded",
    "Engine",
    "Hypothesis",
    "Models",
    "SearchOptions",
    "TorchEngine",
    "Tree",
    "beam",
    "greedy",
    "sample",
]
