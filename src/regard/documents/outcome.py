"""Outcome: the entries of a document, and counts of those that were translated, kept and skipped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from regard.documents.inline import Piece
from regard.text.files import Origin

MAX_LISTED = 20  # failures and missing terms listed one by one; more are only counted


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
class Outcome:
    """Counts of the entries of a document, or lines of a text, by what happened to them."""

    translated: int = 0
    kept: int = 0  # entries that already had a translation
    skipped: Counter[str] = field(default_factory=Counter)
    unaligned: int = 0  # texts whose tags were placed in proportion to the length: the model has no alignment
    split: int = 0  # texts with a sentence too long for the model
    failures: int = 0  # invalid texts; in a document they are left as they were and also count as skipped
    failed: list[tuple[int, str]] = field(default_factory=list)  # the first failures: line and problem
    terms: Counter[str] = field(default_factory=Counter)  # glossary terms by status
    missing: list[tuple[int | str, str]] = field(default_factory=list)
    """The first glossary terms that could not be placed, with their line or, in a document, their text."""

    def fail(self, line: int, problem: str) -> None:
        """Count an invalid text."""
        self.add({"failures": 1, "failed": [(line, problem)]})

    def count_terms(self, where: int | str, terms: Sequence[Any]) -> None:
        """Count the glossary terms of a line or a text by their status."""
        for term in terms:
            self.terms[term.status] += 1
            if term.status == "missing" and len(self.missing) < MAX_LISTED:
                self.missing.append((where, term.source))

    def add(self, counts: Mapping[str, Any]) -> None:
        """Add the counts of a later part of the text, given as the fields of its outcome."""
        for name, value in counts.items():
            total = getattr(self, name) + (Counter(value) if isinstance(value, dict) else value)
            setattr(self, name, total[:MAX_LISTED] if isinstance(total, list) else total)
