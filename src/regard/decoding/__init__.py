"""Search: how a model's probabilities become sentences; a model is known by its two verbs alone."""

from __future__ import annotations

from regard.decoding.beam import Branch, Tree, beam
from regard.decoding.constraints import (
    Edges,
    Forbidden,
    Form,
    NoRepeat,
    Rule,
    Rules,
    Shortest,
    Terms,
    Want,
    Written,
    limits,
    make_rules,
)
from regard.decoding.greedy import alternatives, greedy
from regard.decoding.sampling import sample
from regard.decoding.search import Begun, Hypothesis, Models

__all__ = [
    "Begun",
    "Branch",
    "Edges",
    "Forbidden",
    "Form",
    "Hypothesis",
    "Models",
    "NoRepeat",
    "Rule",
    "Rules",
    "Shortest",
    "Terms",
    "Tree",
    "Want",
    "Written",
    "alternatives",
    "beam",
    "greedy",
    "limits",
    "make_rules",
    "sample",
]
