"""Languages: what each side's letters look like, learned from the corpus itself, and lines that fit the other side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.text.overlap import characters

Floats = NDArray[np.float32]

BUCKETS = 1 << 16  # for hashed runs of three letters
CUT = 100  # characters of a line are enough to know its language
ROUNDS = 3  # of learning again without the lines that fit the other side better
SMOOTHING = 2.0  # a run of letters that only one line has must not speak for a language
STRONGEST = 3.0  # nats that one run of letters may contribute
FEWEST_RUNS = 12  # a line of fewer letters may be a name or a number
SURE = 6.0  # nats a line must give to the other side in all
# A line is on the wrong side when it lies this far towards the other side's middle (0 its own, 1 the other's).
BEYOND = 0.75
# Below this distance between the middles, or this share of lines on their own half, both sides are one language.
APART = 0.4
ON_OWN_HALF = 0.8
FOREIGN = 6.0  # robust deviations that a line must fit its own side worse than its fellows
FOREIGN_RUNS = 20
OWN_SMOOTHING = 0.5
# Lines of a third language are not odd any more when there are many: then the side falls in two by itself.
BEGINNINGS = (0.03, 0.1, 0.3)  # shares of lines, the least usual ones, from which a second group may grow
GROWTH = 10  # rounds
FEWEST_THIRD = 20  # lines that make a group
BETWEEN = 0.03  # of the lines may lie between two groups that are two languages: of two kinds of text more do


@dataclass(frozen=True)
class Lines:
    """Hashed runs of three letters of many lines: where each line starts, and how many it has."""

    runs: NDArray[np.int64]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]

    def total(self, table: Floats) -> Floats:
        """What a table of numbers per run gives each line in all."""
        return np.add.reduceat(table[self.runs], self.starts).astype(np.float32)

    def count(self, which: NDArray[np.bool_]) -> Floats:
        """How often each run occurs in the chosen lines."""
        chosen = self.runs[np.repeat(which, self.lengths)]
        return np.bincount(chosen, minlength=BUCKETS).astype(np.float32)


def read_lines(lines: Sequence[str]) -> Lines:
    """The runs of three letters of each line (its beginning, when it is long)."""
    codes, starts = characters([line[:CUT] for line in lines])
    codes = codes.astype(np.uint32)
    padded = np.concatenate([codes, np.full(2, 10, np.uint32)])
    mixed = (
        padded[:-2] * np.uint32(0x9E3779B1) ^ padded[1:-1] * np.uint32(0x85EBCA6B) ^ padded[2:] * np.uint32(0xC2B2AE35)
    )
    runs = ((mixed * np.uint32(0x27D4EB2F)) >> np.uint32(16)).astype(np.int64)
    return Lines(runs, starts, np.diff(starts, append=len(codes)))


@dataclass(frozen=True)
class Tokenizers:
    """How the letters of the two sides differ: nats in favour of the source for every run of three letters."""

    table: Floats
    source: float  # the middle of the source lines, in nats a run
    target: float
    separable: bool

    def judge(self, source: Lines, target: Lines) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
        """Which source lines read like the target side, which target lines like the source, which pairs do both."""
        if not self.separable:
            none = np.zeros(len(source.starts), np.bool_)
            return none, none.copy(), none.copy()
        middle = (self.source + self.target) / 2
        apart = self.source - self.target
        reach = (BEYOND - 0.5) * apart
        left, right = source.total(self.table), target.total(self.table)
        strange_source = (left / source.lengths < middle - reach) & (left < -SURE) & (source.lengths >= FEWEST_RUNS)
        strange_target = (right / target.lengths > middle + reach) & (right > SURE) & (target.lengths >= FEWEST_RUNS)
        lean = left / source.lengths - right / target.lengths
        other_way = (left / source.lengths < middle) & (right / target.lengths > middle)
        swapped = other_way & (lean < -apart / 2) & (left - right < -2 * SURE)
        return strange_source, strange_target, swapped


@dataclass(frozen=True)
class Own:
    """What the letters of one side usually are: nats for every run, the middle of its lines, and their spread."""

    table: Floats
    middle: float
    spread: float

    def foreign(self, lines: Lines) -> NDArray[np.bool_]:
        """Which lines read like neither side."""
        fit = lines.total(self.table) / lines.lengths
        return (fit < self.middle - FOREIGN * self.spread) & (lines.lengths >= FOREIGN_RUNS)


def learn_own(lines: Lines) -> Own:
    """What the letters of these lines usually are."""
    counts = lines.count(np.ones(len(lines.starts), np.bool_))
    table = np.log((counts + OWN_SMOOTHING) / (counts.sum() + OWN_SMOOTHING * BUCKETS)).astype(np.float32)
    fit = lines.total(table) / lines.lengths
    middle = float(np.median(fit))
    return Own(table, middle, 1.4826 * float(np.median(np.abs(fit - middle))))


def third_language(lines: Lines) -> NDArray[np.bool_]:
    """Which lines are in a language of their own, where a side clearly falls into two groups of letters."""
    long = lines.lengths >= FOREIGN_RUNS
    best, fewest = np.zeros(len(long), np.bool_), BETWEEN
    if long.sum() < 2 * FEWEST_THIRD:
        return best
    own = learn_own(lines)
    fit = lines.total(own.table) / lines.lengths
    learned = np.arange(len(long)) % 2 == 0  # the other half shows whether the groups are real
    for share in BEGINNINGS:
        second = fit < np.quantile(fit[long], share)
        for _ in range(GROWTH):
            lean = lines.total(log_odds(lines.count(learned & long & ~second), lines.count(learned & long & second)))
            lean /= lines.lengths
            before, second = second, lean < 0
            if (before == second).all():
                break
        one, other = long & ~learned & ~second, long & ~learned & second
        if other.sum() < FEWEST_THIRD / 2 or other.sum() > one.sum():
            continue
        middle, apart = (
            (np.median(lean[one]) + np.median(lean[other])) / 2,
            np.median(lean[one]) - np.median(lean[other]),
        )
        between = float(np.mean(np.abs(lean[one | other] - middle) < apart / 4))
        if between < fewest:
            best, fewest = long & (lean < middle), between
    return best


def learn_sides(source: Lines, target: Lines) -> Tokenizers:
    """What tells the sides apart, learned again without the pairs that turn out to be the other way round."""
    straight = np.ones(len(source.starts), np.bool_)
    for _ in range(ROUNDS):
        table = log_odds(
            source.count(straight) + target.count(~straight), target.count(straight) + source.count(~straight)
        )
        lean = source.total(table) / source.lengths - target.total(table) / target.lengths
        straight = lean >= 0
    left, right = source.total(table) / source.lengths, target.total(table) / target.lengths
    one, other = float(np.median(np.where(straight, left, right))), float(np.median(np.where(straight, right, left)))
    middle = (one + other) / 2
    own = float(
        np.mean(np.concatenate([np.where(straight, left, right) > middle, np.where(straight, right, left) < middle]))
    )
    if straight.mean() < 0.5:  # most pairs are "the other way round": then that is the right way
        table, one, other = -table, -other, -one
    return Tokenizers(table, one, other, one - other > APART and own >= ON_OWN_HALF)


def log_odds(source: Floats, target: Floats) -> Floats:
    """Nats in favour of the source side for every run, from how often each side has it."""
    odds: Floats = np.log((source + SMOOTHING) / (source.sum() + SMOOTHING * BUCKETS)) - np.log(
        (target + SMOOTHING) / (target.sum() + SMOOTHING * BUCKETS)
    )
    clipped: Floats = np.clip(odds, -STRONGEST, STRONGEST).astype(np.float32)
    return clipped
