"""Cleaning: which lines of a corpus are left out, counted and shown by rule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.config import CLEANING, TextConfig
from regard.text.overlap import both, digests, plain
from regard.text.scripts import has_control, script

Verdicts = NDArray[np.uint8]
Digests = NDArray[np.uint64]
Example = Sequence[str]
"""The texts of one example: a source and a target, or one text."""
Columns = tuple[list[str], ...]
"""The texts of many examples, side by side."""

KEPT = 0
VERDICT = {rule: number for number, rule in enumerate(CLEANING, start=1)}

OF_PAIRS = ("long", "ratio", "copy", "duplicate")

CHUNK = 4096  # examples judged together
EXAMPLES = 3  # shown of each rule
SHOWN = 200  # characters of an example
CHARACTERS = 32  # a line of more characters than this times its longest number of tokens is no sentence
SLACK = 3  # tokens added to both sides before they are compared: "Yes." may become "Yes, of course."
USUAL = 0.8  # of the lines must be in one script for the others to be strange
ALSO = {"Kana": ("Han",), "Hangul": ("Han",)}  # scripts that belong to a language beside its usual one

PHRASES = {
    "empty": "{count:,} empty",
    "long": "{count:,} longer than {longest}",
    "ratio": "{count:,} of unequal length",
    "control": "{count:,} with control characters",
    "copy": "{count:,} copied from the source",
    "script": "{count:,} in another script",
    "duplicate": "{count:,} repeated",
}


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What is left out, and the limits."""

    names: tuple[str, ...]
    longest: int
    """In tokens, and in words before there are tokens."""
    ratio: float
    """Of the longer side to the shorter, in tokens."""

    @classmethod
    def of(cls, config: TextConfig, *, sides: int = 2) -> Rules:
        """The rules of a run; of a single text long and repeated lines are no faults, and of a running one none are."""
        names = (
            []
            if config.continuous
            else [rule for rule in config.cleaning.split() if sides == 2 or rule not in OF_PAIRS]
        )
        return cls(
            names=tuple(rule for rule in CLEANING if rule in names),
            longest=config.max_length,
            ratio=config.max_length_ratio,
        )


@dataclass
class Report:
    """How many examples were read, and how many each rule left out."""

    rules: Rules
    noun: str = "pairs"
    read: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)

    @property
    def kept(self) -> int:
        return self.read - sum(self.left_out.values())

    def add(self, verdicts: Verdicts, columns: Sequence[Sequence[str]]) -> None:
        """Count a chunk, and remember the first examples of each rule."""
        self.read += len(verdicts)
        counts = np.bincount(verdicts, minlength=len(CLEANING) + 1)
        for rule, number in VERDICT.items():
            if not counts[number]:
                continue
            self.left_out[rule] = self.left_out.get(rule, 0) + int(counts[number])
            shown = self.examples.setdefault(rule, [])
            for place in np.flatnonzero(verdicts == number)[: EXAMPLES - len(shown)].tolist():
                shown.append(tuple(_shorten(column[place]) for column in columns))

    def __str__(self) -> str:
        """One line: `read 1,000,000 pairs; left out 312 longer than 256 and 18 empty`."""
        phrases = [
            PHRASES[rule].format(count=count, longest=self.rules.longest)
            for rule, count in sorted(self.left_out.items(), key=lambda item: -item[1])
        ]
        listed = " and ".join([", ".join(phrases[:-1]), phrases[-1]] if len(phrases) > 1 else phrases)
        return f"read {self.read:,} {self.noun}; left out {listed or 'none'}"

    def record(self) -> dict[str, Any]:
        """The same for JSON, with examples."""
        rules = [rule for rule in CLEANING if rule in self.left_out]
        return {
            "read": self.read,
            "kept": self.kept,
            "left_out": {rule: self.left_out[rule] for rule in rules},
            "examples": {rule: [list(example) for example in self.examples[rule]] for rule in rules},
            "text": str(self),
        }


class Judged(NamedTuple):
    """What the texts alone say of a chunk."""

    verdicts: Verdicts
    digests: tuple[Digests, ...]
    """Of each side, blanks and case aside."""


def clean(examples: Iterable[Example], rules: Rules, report: Report, *, sides: int = 2) -> Iterator[tuple[str, ...]]:
    """The examples that no rule on text leaves out, as they stream by; `ratio` and `long` in tokens need tokens."""
    seen = Seen()
    scripts: tuple[str, ...] | None = None
    for columns in chunks(examples, sides):
        scripts = scripts or usual_scripts(columns)
        judged = judge(columns, rules, scripts)
        verdicts = judge_duplicates(judged, rules, seen)
        report.add(verdicts, columns)
        for place in np.flatnonzero(verdicts == KEPT).tolist():
            yield tuple(column[place] for column in columns)


def chunks(examples: Iterable[Example], sides: int) -> Iterator[Columns]:
    """The columns of `CHUNK` examples at a time; what follows the `sides` of an example is about it, not of it."""
    stream = iter(examples)
    while chunk := list(islice(stream, CHUNK)):
        yield tuple([example[side] for example in chunk] for side in range(sides))


def usual_scripts(columns: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """The script that most lines of each side are written in; "" where there is no such script."""
    return tuple(_usual([script(line) for line in column]) for column in columns)


def _usual(scripts: list[str]) -> str:
    named = [name for name in scripts if name]
    return next((name for name in sorted(set(named)) if named.count(name) >= USUAL * len(named)), "")


def judge(columns: Sequence[Sequence[str]], rules: Rules, scripts: Sequence[str]) -> Judged:
    """The rules that need no tokens and no memory: empty, long (in words), control, copy, script."""
    verdicts = np.zeros(len(columns[0]), np.uint8)
    found = tuple(digests([plain(line) for line in column]) for column in columns)
    for column in columns:
        _mark(verdicts, rules, "empty", [not line or line.isspace() for line in column])
    for column in columns:
        _mark(verdicts, rules, "long", [_is_long(line, rules.longest) for line in column])
    for column in columns:
        if "control" in rules.names and has_control("".join(column)):
            _mark(verdicts, rules, "control", [has_control(line) for line in column])
    if len(columns) == 2:
        same = found[0] == found[1]
        for place in np.flatnonzero(same).tolist():  # numbers and signs are the same in both languages
            same[place] = script(columns[0][place]) != ""
        _mark(verdicts, rules, "copy", same)
    for column, usual in zip(columns, scripts, strict=True):
        if usual and "script" in rules.names:
            fine = ("", usual, *ALSO.get(usual, ()))
            _mark(verdicts, rules, "script", [script(line) not in fine for line in column])
    return Judged(verdicts, found)


def judge_lengths(verdicts: Verdicts, lengths: Sequence[NDArray[np.int64]], rules: Rules) -> None:
    """The rules that need tokens: long and ratio; `lengths` are tokens without </s>."""
    for length in lengths:
        _mark(verdicts, rules, "long", length > rules.longest)
    if len(lengths) == 2:
        longer, shorter = np.maximum(*lengths), np.minimum(*lengths)
        _mark(verdicts, rules, "ratio", longer + SLACK > rules.ratio * (shorter + SLACK))


def judge_duplicates(judged: Judged, rules: Rules, seen: Seen) -> Verdicts:
    """The rule that needs a memory: the first of several same examples stays."""
    verdicts = judged.verdicts.copy()
    if "duplicate" in rules.names:
        alive = np.flatnonzero(verdicts == KEPT)
        found = judged.digests[0] if len(judged.digests) == 1 else both(*judged.digests)
        verdicts[alive[~seen.add(found[alive])]] = VERDICT["duplicate"]
    return verdicts


def _mark(verdicts: Verdicts, rules: Rules, rule: str, wrong: Any) -> None:
    if rule in rules.names:
        verdicts[np.asarray(wrong, np.bool_) & (verdicts == KEPT)] = VERDICT[rule]


def _is_long(line: str, longest: int) -> bool:
    """More words than there may be tokens, or far too many characters."""
    return len(line) >= 2 * longest and (len(line) > CHARACTERS * longest or len(line.split()) > longest)


def _shorten(line: str) -> str:
    return line if len(line) <= SHOWN else line[: SHOWN - 1] + "…"


class Seen:
    """The digests met so far, eight bytes each: a few sorted runs, each at least twice as long as the next."""

    def __init__(self) -> None:
        self._runs: list[Digests] = []

    def __len__(self) -> int:
        return sum(len(run) for run in self._runs)

    def add(self, values: Digests) -> NDArray[np.bool_]:
        """Remember these digests; True for those that were not met before, here or earlier."""
        fresh, first = np.unique(values, return_index=True)
        new = np.ones(len(fresh), np.bool_)
        for run in self._runs:
            place = np.searchsorted(run, fresh)
            new &= run[np.minimum(place, len(run) - 1)] != fresh
        answer = np.zeros(len(values), np.bool_)
        answer[first[new]] = True
        if new.any():
            self._runs.append(fresh[new])
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            merged = np.concatenate([self._runs.pop(), self._runs.pop()])
            merged.sort()
            self._runs.append(merged)
        return answer
