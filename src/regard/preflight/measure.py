"""Measure: words, lengths and scripts of one side of a corpus, and the usual length ratios of both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.text.cleaning import DigestSet, digests, frequent_scripts
from regard.text.scripts import UNSPACED_SCRIPTS

Integers = NDArray[np.int64]

MAX_LENGTH = 1023  # longer lines share the last bin of the histogram
RATIO_SMOOTHING = 3  # characters added to both lengths: "Yes." and "Oui, bien sûr." differ by chance
# A ratio is unusual if it is more robust deviations from the median than MAX_DEVIATIONS and also off by MIN_FACTOR. The
# first rule alone would report pairs of very literal corpora, the second alone pairs of free translations.
MAX_DEVIATIONS = 5.0
MIN_DEVIATION = 0.05  # of the natural logarithm of a ratio
MIN_FACTOR = 2.2
MIN_PAIRS = 1000  # a chunk with fewer pairs is judged by the range of the chunk before it


class Side:
    """Counts of one side of a split."""

    def __init__(self) -> None:
        self.words = self.characters = self.longest = self.vocabulary = 0
        self.known_words = DigestSet()
        self.lengths = np.zeros(MAX_LENGTH + 1, np.int64)
        self.scripts: Counter[str] = Counter()
        self.unspaced = False  # no spaces between words, so that lengths are counted in characters

    def add(self, lines: Sequence[str], scripts: Sequence[str]) -> Integers:
        """Count a chunk of normalized lines; return their lengths in characters."""
        words = np.array([line.count(" ") + 1 if line else 0 for line in lines], np.int64)
        characters = np.array([len(line) for line in lines], np.int64)
        if not self.characters:
            main = frequent_scripts(Counter(scripts))[:1]
            self.unspaced = bool({*main} & {*UNSPACED_SCRIPTS}) and words.sum() < characters.sum() / 8
        lengths = characters if self.unspaced else words
        self.scripts.update(scripts)
        self.words += int(words.sum())
        self.characters += int(characters.sum())
        self.longest = max(self.longest, int(lengths.max(initial=0)))
        self.lengths += np.bincount(np.minimum(lengths, MAX_LENGTH), minlength=MAX_LENGTH + 1)
        self.vocabulary += int(self.known_words.add(digests(list(set(" ".join(lines).split())))).sum())
        return characters

    def to_dict(self) -> dict[str, Any]:
        """The counts as plain values."""
        total = np.cumsum(self.lengths)
        return {
            "words": self.words,
            "characters": self.characters,
            "vocabulary": self.vocabulary,
            "scripts": {name or "no letters": count for name, count in self.scripts.most_common()},
            "lengths": {
                "unit": "characters" if self.unspaced else "words",
                "median": int(np.searchsorted(total, 0.5 * total[-1])),
                "most": int(np.searchsorted(total, 0.95 * total[-1])),
                "longest": self.longest,
            },
        }


class Ratios:
    """The usual range of target length / source length, on a logarithmic scale."""

    def __init__(self) -> None:
        self.median, self.reach = 0.0, float(np.log(MIN_FACTOR))

    def unusual(self, source: Integers, target: Integers) -> NDArray[np.bool_]:
        """Which pairs of a chunk have an unusual ratio; pairs with an empty side have none."""
        full = (source > 0) & (target > 0)
        ratios = np.log((target + RATIO_SMOOTHING) / (source + RATIO_SMOOTHING))
        if full.any() and (full.sum() >= MIN_PAIRS or not self.median):
            self.median = float(np.median(ratios[full]))
            deviation = max(1.4826 * float(np.median(np.abs(ratios[full] - self.median))), MIN_DEVIATION)
            self.reach = max(MAX_DEVIATIONS * deviation, float(np.log(MIN_FACTOR)))
        return full & (np.abs(ratios - self.median) > self.reach)

    def to_dict(self) -> dict[str, float]:
        """The median and the usual range."""
        logs = {"median": self.median, "low": self.median - self.reach, "high": self.median + self.reach}
        return {name: round(float(np.exp(value)), 3) for name, value in logs.items()}
