"""Outcome: the entries of a document, and counts of those that were translated, kept and skipped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from regard.documents.inline import Piece
from regard.text.files import Origin

MAX_PROBLEMS = 20  # listed one by one; more are only counted


class Gap(NamedTuple):
    """A place in a document without a translation: its segments, and a function that writes their translations."""

    segments: list[list[Piece]]
    write: Callable[[list[list[Piece]]], str]


class Entry(NamedTuple):
    """A translation unit or message of a document."""

    raw: str
    origin: Origin
    pairs: Sequence[tuple[str, str]]  # sources and translations, "" where there is none; one pair for each plural form
    not_read: str  # why it holds no pairs; "" if it does
    not_filled: str  # why it is not translated; "" if it can be
    gap: Callable[[bool], Gap]  # returns the gap for missing translations, or for all of them


@dataclass
class Problems:
    """The number of problems, and the first of them with their line or text."""

    count: int = 0
    first: list[tuple[int | str, str]] = field(default_factory=list)

    def add(self, where: int | str, problem: str) -> None:
        """Count a problem."""
        self.count += 1
        if len(self.first) < MAX_PROBLEMS:
            self.first.append((where, problem))

    def merge(self, other: Problems) -> None:
        """Add the problems of a later part."""
        self.count += other.count
        self.first = [*self.first, *other.first][:MAX_PROBLEMS]


@dataclass
class Outcome:
    """Counts of the entries of a document, or lines of a text, by what happened to them."""

    translated: int = 0
    kept: int = 0  # entries that already had a translation
    skipped: Counter[str] = field(default_factory=Counter)
    unaligned: int = 0  # texts whose tags were placed in proportion to the length: the model has no alignment
    failed: Problems = field(default_factory=Problems)
    """Invalid text, by its line; in a document it is left as it was and counts as skipped."""
    split: int = 0  # texts with a sentence too long for the model
    terms: Counter[str] = field(default_factory=Counter)  # glossary terms by status
    missing: Problems = field(default_factory=Problems)
    """Glossary terms that could not be placed, by their line or, in a document, their text."""

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Outcome:
        """An outcome that was written as JSON."""
        made = cls(**values)
        made.skipped, made.terms = Counter(made.skipped), Counter(made.terms)
        made.failed, made.missing = Problems(**values["failed"]), Problems(**values["missing"])
        return made

    def merge(self, other: Outcome) -> None:
        """Add the counts of a later part."""
        for name, value in vars(other).items():
            if isinstance(value, Problems):
                getattr(self, name).merge(value)
            elif isinstance(value, Counter):
                getattr(self, name).update(value)
            else:
                setattr(self, name, getattr(self, name) + value)
