"""Measure: counts, length histograms, scripts and length ratios of a corpus, in constant memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.text.cleaning import DigestSet, digests
from regard.text.scripts import UNSPACED_SCRIPTS

Integers = NDArray[np.int64]

MAX_LENGTH = 1023  # longer lines share the last bin of a histogram

RATIO_STEP = 0.05  # of a bin, in the natural logarithm of target length / source length
RATIO_BINS = 121  # from 1:20 to 20:1
RATIO_SMOOTHING = 3  # characters added to both lengths: "Yes." and "Oui, bien sûr." differ by chance
# A ratio is unusual if it is more robust deviations from the median than MAX_DEVIATIONS and also off by MIN_FACTOR. The
# first rule alone would report pairs of very literal corpora, the second alone pairs of free translations.
MAX_DEVIATIONS = 5.0
MIN_FACTOR = 2.2


class Side:
    """Counts of one side of a split."""

    def __init__(self) -> None:
        self.words = self.characters = self.longest = 0
        self.word_lengths = np.zeros(MAX_LENGTH + 1, np.int64)
        self.character_lengths = np.zeros(MAX_LENGTH + 1, np.int64)
        self.alphabet: set[str] = set()
        self.scripts: Counter[str] = Counter()
        self.vocabulary, self.known_words = 0, DigestSet()

    def add(self, lines: Sequence[str], normalized: Sequence[str]) -> Integers:
        """Count a chunk of lines, as written and normalized; return their lengths in characters."""
        words = np.array([line.count(" ") + 1 if line else 0 for line in normalized], np.int64)
        characters = np.array([len(line) for line in normalized], np.int64)
        self.words += int(words.sum())
        self.characters += int(characters.sum())
        self.longest = max(self.longest, int(words.max(initial=0)))
        self.word_lengths += np.bincount(np.minimum(words, MAX_LENGTH), minlength=MAX_LENGTH + 1)
        self.character_lengths += np.bincount(np.minimum(characters, MAX_LENGTH), minlength=MAX_LENGTH + 1)
        self.alphabet.update("".join(lines))
        self.vocabulary += int(self.known_words.add(digests(list(set(" ".join(normalized).split())))).sum())
        return characters

    @property
    def unspaced(self) -> bool:
        """Whether the script has no spaces between words, so that lengths are counted in characters."""
        name = max(self.scripts, key=lambda name: (bool(name), self.scripts[name], name), default="")
        return name in UNSPACED_SCRIPTS and self.words < self.characters / 8

    @property
    def lengths(self) -> Integers:
        """The histogram of lengths, in words or, in an unspaced script, in characters."""
        return self.character_lengths if self.unspaced else self.word_lengths

    def quantile(self, share: float) -> int:
        """The smallest length that `share` of the lines do not exceed."""
        return int(np.searchsorted(np.cumsum(self.lengths), share * self.lengths.sum())) if self.lengths.any() else 0

    def to_dict(self) -> dict[str, Any]:
        """The counts as normalized values."""
        used = np.flatnonzero(self.lengths)
        return {
            "words": self.words,
            "characters": self.characters,
            "vocabulary": self.vocabulary,
            "alphabet": len(self.alphabet),
            "scripts": {name or "no letters": count for name, count in self.scripts.most_common()},
            "lengths": {
                "unit": "characters" if self.unspaced else "words",
                "median": self.quantile(0.5),
                "most": self.quantile(0.95),
                "longest": self.longest,
                "histogram": self.lengths[: used[-1] + 1].tolist() if len(used) else [],
            },
        }


class Ratios:
    """The histogram of target length / source length, and which ratios are unusual in it."""

    def __init__(self) -> None:
        self.counts = np.zeros(RATIO_BINS, np.int64)

    def add(self, source: Integers, target: Integers) -> Integers:
        """Count the ratios of a chunk; returns the bin of each pair, -1 where a side is empty."""
        ratio = np.log((target + RATIO_SMOOTHING) / (source + RATIO_SMOOTHING))
        bins = np.clip(np.rint(ratio / RATIO_STEP).astype(np.int64) + RATIO_BINS // 2, 0, RATIO_BINS - 1)
        counted = (source > 0) & (target > 0)
        self.counts += np.bincount(bins[counted], minlength=RATIO_BINS)
        return np.where(counted, bins, -1)

    def usual(self) -> tuple[int, int, int]:
        """The bins of the lowest usual ratio, the median and the highest usual ratio."""
        if not self.counts.any():
            return 0, RATIO_BINS // 2, RATIO_BINS - 1
        half = self.counts.sum() / 2
        median = int(np.searchsorted(np.cumsum(self.counts), half))
        distance = np.abs(np.arange(RATIO_BINS) - median)
        order = np.argsort(distance, kind="stable")
        absolute_deviation = int(distance[order[np.searchsorted(np.cumsum(self.counts[order]), half)]])
        reach = round(max(MAX_DEVIATIONS * 1.4826 * max(absolute_deviation, 1), np.log(MIN_FACTOR) / RATIO_STEP))
        return max(median - reach, 0), median, min(median + reach, RATIO_BINS - 1)

    def to_dict(self) -> dict[str, Any]:
        """The median, the usual range and the histogram as normalized values."""
        low, median, high = (round(_ratio_at(bin_index), 3) for bin_index in self.usual())
        edges = [round(_ratio_at(bin_index - 0.5), 4) for bin_index in range(RATIO_BINS + 1)]
        return {"median": median, "low": low, "high": high, "edges": edges, "histogram": self.counts.tolist()}


def _ratio_at(bin_index: float) -> float:
    """The ratio at the middle of a bin."""
    return float(np.exp((bin_index - RATIO_BINS // 2) * RATIO_STEP))
