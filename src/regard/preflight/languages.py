"""Languages: find lines in the wrong language with character trigrams that are learned from the corpus.

Languages are not identified by name. Log-odds of trigrams tell the two sides apart; lines of one side that form a
separate cluster are in a third language.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from regard.text.cleaning import normalized

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]

BUCKETS = 1 << 16  # of hashed trigrams
MAX_CHARACTERS = 100  # read of each line
SMOOTHING = 2.0  # added to each count: a trigram of one line must not decide
MAX_LOG_ODDS = 3.0  # of one trigram
MIN_TRIGRAMS = 12  # a shorter line may be a name or a number
MIN_TOTAL = 6.0  # log-odds of a whole line towards the other side
POSITION = 0.75  # of the way from the median of a line's own side to that of the other; beyond it is the wrong language
MIN_DISTANCE = 0.4  # between the medians; if they are closer, both sides are in one language
CLUSTER_SHARE = 0.2  # of the lines: the least likely ones are the first cluster of a third language
CLUSTER_ROUNDS = 10
MIN_CLUSTER = 20  # lines
MIN_CLUSTER_TRIGRAMS = 20  # of a line
MAX_DEVIATIONS = 6.0  # a line whose likelihood is more robust deviations below the median is an outlier
MAX_BETWEEN = 0.03  # share of lines between two clusters if they are languages; two domains overlap more

NUMBER = re.compile(r"\d[\d.,]*")


@dataclass(frozen=True)
class Trigrams:
    """Hashed character trigrams of many lines, and the number of trigrams of each line."""

    ids: NDArray[np.int64]
    lengths: NDArray[np.int64]

    def means(self, table: Floats) -> Floats:
        """The mean over each line of a value per trigram."""
        totals = np.add.reduceat(table[self.ids], np.cumsum(self.lengths) - self.lengths)
        return (totals / self.lengths).astype(np.float32)

    def counts(self, lines: Mask) -> Floats:
        """How often each trigram occurs in the chosen lines."""
        ids = self.ids[np.repeat(lines, self.lengths)]
        return np.bincount(ids, minlength=BUCKETS).astype(np.float32)


def read_trigrams(texts: Sequence[str]) -> Trigrams:
    """Hash the trigrams of each text, without its numbers, which belong to no language."""
    lines = [NUMBER.sub("", normalized(normalize("NFC", text)))[:MAX_CHARACTERS] for text in texts]
    codes = np.frombuffer("\n".join([*lines, "\n\n"]).encode("utf-32-le", "surrogatepass"), dtype="<u4")
    lengths = np.fromiter((len(line) + 1 for line in lines), np.int64, len(lines))
    mixed = codes[:-2] * np.uint32(0x9E3779B1) ^ codes[1:-1] * np.uint32(0x85EBCA6B) ^ codes[2:] * np.uint32(0xC2B2AE35)
    ids = ((mixed * np.uint32(0x27D4EB2F)) >> np.uint32(16)).astype(np.int64)
    return Trigrams(ids, lengths)


@dataclass(frozen=True)
class SideModel:
    """Log-odds of each trigram in favour of the source side, and the median line of each side by its mean log-odds."""

    table: Floats
    source_median: float
    target_median: float

    def judge(self, source: Trigrams, target: Trigrams) -> tuple[Mask, Mask, Mask]:
        """Which source lines read like the target side, which target lines like the source, which pairs are swapped."""
        distance = self.source_median - self.target_median
        if distance <= MIN_DISTANCE:
            return (np.zeros(len(source.lengths), np.bool_),) * 3
        middle = (self.source_median + self.target_median) / 2
        margin = (POSITION - 0.5) * distance
        left, right = source.means(self.table), target.means(self.table)
        left_total, right_total = left * source.lengths, right * target.lengths
        wrong_source = (left < middle - margin) & (left_total < -MIN_TOTAL) & (source.lengths >= MIN_TRIGRAMS)
        wrong_target = (right > middle + margin) & (right_total > MIN_TOTAL) & (target.lengths >= MIN_TRIGRAMS)
        swapped = (left < middle) & (right > middle) & (left - right < -distance / 2)
        return wrong_source, wrong_target, swapped & (left_total - right_total < -2 * MIN_TOTAL)


def learn_sides(source: Trigrams, target: Trigrams) -> SideModel:
    """Learn to tell the sides apart; the second and third rounds count swapped pairs the right way round."""
    straight = np.ones(len(source.lengths), np.bool_)
    for _ in range(3):
        table = log_odds(
            source.counts(straight) + target.counts(~straight), target.counts(straight) + source.counts(~straight)
        )
        left, right = source.means(table), target.means(table)
        straight = left >= right
    source_median = float(np.median(np.where(straight, left, right)))
    target_median = float(np.median(np.where(straight, right, left)))
    return SideModel(table, source_median, target_median)


def third_language(lines: Trigrams) -> Mask:
    """Which lines are in a third language.

    A few lines in several languages are outliers; many lines in one language form a clearly separated minority cluster.
    """
    long = lines.lengths >= MIN_CLUSTER_TRIGRAMS
    counts = lines.counts(np.ones(len(long), np.bool_)) + 0.5
    likelihood = lines.means(np.log(counts / counts.sum()))
    median = np.median(likelihood)
    deviation = 1.4826 * np.median(np.abs(likelihood - median))
    outliers: Mask = long & (likelihood < median - MAX_DEVIATIONS * deviation)
    if long.sum() < 10 * MIN_CLUSTER:
        return outliers
    minority = likelihood < np.quantile(likelihood[long], CLUSTER_SHARE)
    for _ in range(CLUSTER_ROUNDS):
        score = lines.means(log_odds(lines.counts(long & ~minority), lines.counts(long & minority)))
        minority = score < 0
    few, most = score[long & minority], score[long & ~minority]
    if not MIN_CLUSTER <= len(few) <= len(most):
        return outliers
    middle, distance = (np.median(most) + np.median(few)) / 2, np.median(most) - np.median(few)
    between = np.mean(np.abs(score[long] - middle) < distance / 4)
    return outliers | (long & (score < middle)) if between < MAX_BETWEEN else outliers


def log_odds(one: Floats, other: Floats) -> Floats:
    """Log-odds of each trigram in favour of the first of two counts, smoothed and clipped."""
    first, second = one + SMOOTHING, other + SMOOTHING
    odds: Floats = np.log(first / first.sum()) - np.log(second / second.sum())
    return odds.clip(-MAX_LOG_ODDS, MAX_LOG_ODDS)


def reads_like_source(texts: Sequence[str], sources: Sequence[str], targets: Sequence[str]) -> bool:
    """Whether most of the texts are in the language of the sources and not in that of the targets."""
    pairs = [pair for pair in zip(sources, targets, strict=True) if all(map(str.strip, pair))]
    lines = [text for text in texts if text.strip()]
    if not pairs or not lines:
        return False
    trigrams = read_trigrams(lines)
    _, wrong, _ = learn_sides(*map(read_trigrams, zip(*pairs, strict=True))).judge(trigrams, trigrams)
    return bool(wrong.sum() > (trigrams.lengths >= MIN_TRIGRAMS).sum() / 2)
