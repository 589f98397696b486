"""Outcome: counts of translated, kept and skipped segments, and the gaps of a document that translations fill."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from regard.documents.inline import Piece

MAX_PROBLEMS = 20  # that are named one by one


@dataclass
class Problems:
    """How many problems there are, and the first of them with their line or text."""

    count: int = 0
    first: list[tuple[int | str, str]] = field(default_factory=list)

    def add(self, where: int | str, problem: str) -> None:
        """Count a problem."""
        self.count += 1
        if len(self.first) < MAX_PROBLEMS:
            self.first.append((where, problem))


@dataclass
class Outcome:
    """Counts of the segments of a document, or lines of a text, by what happened to them."""

    translated: int = 0
    """Segments; in a PO file, messages."""
    kept: int = 0
    """Segments that already had a translation."""
    skipped: Counter[str] = field(default_factory=Counter)
    unaligned: int = 0
    """Texts whose tags were placed in proportion to the length, because the model has no alignment."""
    failed: Problems = field(default_factory=Problems)
    """Invalid text, by its line; in a document it stays as it was and counts as skipped."""
    split: int = 0
    """Texts with a sentence too long for the model."""
    terms: Counter[str] = field(default_factory=Counter)
    """Glossary terms by status."""
    missing: Problems = field(default_factory=Problems)
    """Glossary terms that found no place, by their line or, in a document, their text."""


class Gap(NamedTuple):
    """A place in a document without a translation: segments to translate, and a function that writes them."""

    segments: list[list[Piece]]
    write: Callable[[list[list[Piece]]], str]
