"""Measure: how many, how long and of what kind the lines of a corpus are, in memory that does not grow with it."""

from __future__ import annotations

import sys
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from regard.preflight.drift import UNSPACED
from regard.text.scripts import script

Integers = NDArray[np.int64]

LONGEST = 1023  # longer lines share the last place of a histogram
KEPT_WORDS = 1 << 17  # distinct words held; beyond them a sample tells how many there are
RATIO_STEP = 0.05  # in the natural logarithm of target length / source length
RATIO_BINS = 121  # from 1:20 to 20:1
LENGTH_BANDS = 12  # short lines vary more, so each doubling of the length has its own ratio band
# A ratio is out of band when it is this many robust deviations off and off by this factor as well: the first alone
# would blame literal translations, the second alone short ones.
DEVIATIONS = 5.0
FACTOR = 2.2
ENOUGH = 200  # pairs before a length band can speak for itself
FEWEST_CHARACTERS = 8  # "Yes." and "Oui, bien sûr." differ by chance


class Vocabulary:
    """How many distinct words there are: exact while they are few, else told by a sample that the words choose."""

    def __init__(self) -> None:
        self.words: set[str] = set()
        self.shift = 0

    def add(self, words: set[str]) -> None:
        """Count these words too."""
        self.words |= {word for word in words if self.chosen(word)} if self.shift else words
        while len(self.words) > KEPT_WORDS:
            self.shift += 1
            self.words = {word for word in self.words if self.chosen(word)}

    def chosen(self, word: str) -> bool:
        """Whether a word belongs to the sample."""
        return zlib.crc32(word.encode("utf-8", "surrogatepass")) & ((1 << self.shift) - 1) == 0

    def size(self) -> int:
        """About how many distinct words there are."""
        return len(self.words) << self.shift


@dataclass
class Side:
    """What was counted on one side of a split."""

    words: int = 0
    characters: int = 0
    word_lengths: Integers = field(default_factory=lambda: np.zeros(LONGEST + 1, np.int64))
    character_lengths: Integers = field(default_factory=lambda: np.zeros(LONGEST + 1, np.int64))
    longest: int = 0
    alphabet: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(sys.maxunicode + 1, np.bool_))
    scripts: Counter[str] = field(default_factory=Counter)
    vocabulary: Vocabulary = field(default_factory=Vocabulary)

    def add(self, lines: Sequence[str], plain: Sequence[str]) -> list[str]:
        """Count a chunk of lines; the script of each comes back."""
        words = np.fromiter((line.count(" ") + 1 if line else 0 for line in plain), dtype=np.int64, count=len(plain))
        characters = lengths(plain)
        self.words += int(words.sum())
        self.characters += int(characters.sum())
        self.word_lengths += np.bincount(np.minimum(words, LONGEST), minlength=LONGEST + 1)
        self.character_lengths += np.bincount(np.minimum(characters, LONGEST), minlength=LONGEST + 1)
        self.longest = max(self.longest, int(words.max(initial=0)))
        self.alphabet[codes(lines)] = True
        self.vocabulary.add(set(" ".join(plain).split()))
        scripts = [script(line) for line in lines]
        self.scripts.update(scripts)
        return scripts

    @property
    def main_script(self) -> str:
        """The script of most lines."""
        lettered = {name: count for name, count in self.scripts.items() if name}
        return max(lettered, key=lambda name: (lettered[name], name)) if lettered else ""

    @property
    def unspaced(self) -> bool:
        """Whether lengths are better told in characters than in words."""
        return self.main_script in UNSPACED and self.words < self.characters / 8

    def typical(self, quantile: float) -> int:
        """The length that this part of the lines does not exceed; in characters where words are not spaced."""
        counts = self.character_lengths if self.unspaced else self.word_lengths
        return int(np.searchsorted(np.cumsum(counts), quantile * counts.sum())) if counts.any() else 0

    def as_dict(self) -> dict[str, object]:
        """The counts as plain data."""
        return {
            "words": self.words,
            "characters": self.characters,
            "vocabulary": self.vocabulary.size(),
            "alphabet": int(self.alphabet.sum()),
            "scripts": {name or "no letters": count for name, count in self.scripts.most_common()},
            "lengths": {
                "unit": "characters" if self.unspaced else "words",
                "median": self.typical(0.5),
                "most": self.typical(0.95),
                "longest": self.longest,
                "histogram": trimmed(self.character_lengths if self.unspaced else self.word_lengths),
            },
        }


def codes(lines: Sequence[str]) -> NDArray[np.uint32]:
    """The code points of all lines."""
    return np.frombuffer("".join(lines).encode("utf-32-le", "surrogatepass"), dtype="<u4")


def lengths(lines: Sequence[str]) -> Integers:
    """How many characters each line has."""
    return np.fromiter(map(len, lines), dtype=np.int64, count=len(lines))


def trimmed(counts: Integers) -> list[int]:
    """The counts up to the last that is not zero."""
    used = np.flatnonzero(counts)
    return [int(count) for count in counts[: used[-1] + 1]] if len(used) else []


class Ratios:
    """How long targets are for their sources, by length, and which pairs fall out of the band.

    Both sides have their bands: among sources of its length a pair with a target cut off or padded stands out, among
    targets of its length one with such a source. By the longer side alone, all padded pairs would be among themselves.
    """

    def __init__(self) -> None:
        self.counts = np.zeros((LENGTH_BANDS, LENGTH_BANDS, RATIO_BINS), np.int64)  # source, target, ratio

    def add(self, source: Integers, target: Integers) -> tuple[Integers, Integers, Integers]:
        """Count a chunk; the bands of both sides and the ratio bin of each pair come back.

        The bin is -1 where a pair is too short to judge.
        """
        ratio = np.log((target + 2) / (source + 2))
        place = np.clip(np.rint(ratio / RATIO_STEP).astype(np.int64) + RATIO_BINS // 2, 0, RATIO_BINS - 1)
        judged = (source > 0) & (target > 0) & (np.maximum(source, target) >= FEWEST_CHARACTERS)
        one, other = length_band(source), length_band(target)
        np.add.at(self.counts, (one[judged], other[judged], place[judged]), 1)
        return one, other, np.where(judged, place, -1)

    def outside(self, *, slack: int) -> NDArray[np.bool_]:
        """(source band, target band, bin): whether a pair there is out of band, or within `slack` bins of it."""
        usual = band_of(self.counts.sum((0, 1)))
        bins = np.arange(RATIO_BINS)
        sides = []
        for side in (1, 0):
            rows = self.counts.sum(side)
            bands = np.array([union(band_of(row), usual) if row.sum() >= ENOUGH else usual for row in rows])
            sides.append((bins < bands[:, :1] + slack) | (bins > bands[:, 1:] - slack))
        outside: NDArray[np.bool_] = sides[0][:, None, :] | sides[1][None, :, :]
        return outside

    def as_dict(self) -> dict[str, object]:
        """The middle ratio, the band of all lengths together, and the histogram."""
        total = self.counts.sum((0, 1))
        low, high = band_of(total)
        return {
            "median": round(float(np.exp(ratio_at(middle_of(total)))), 3),
            "low": round(float(np.exp(ratio_at(low))), 3),
            "high": round(float(np.exp(ratio_at(high))), 3),
            "edges": [round(float(np.exp(ratio_at(place - 0.5))), 4) for place in range(RATIO_BINS + 1)],
            "histogram": [int(count) for count in total],
        }


def length_band(length: Integers) -> Integers:
    """Which doubling of the length each line belongs to."""
    return np.clip(np.log2(np.maximum(length, 1)).astype(np.int64), 0, LENGTH_BANDS - 1)


def union(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """The band that holds both."""
    return min(one[0], other[0]), max(one[1], other[1])


def ratio_at(place: float) -> float:
    """The logarithm of the ratio that a bin stands for."""
    return (place - RATIO_BINS // 2) * RATIO_STEP


def middle_of(counts: Integers) -> int:
    """The bin of the median."""
    return int(np.searchsorted(np.cumsum(counts), counts.sum() / 2)) if counts.any() else RATIO_BINS // 2


def band_of(counts: Integers) -> tuple[int, int]:
    """The first and last bin in order, from the median and the median distance to it."""
    middle = middle_of(counts)
    distance = np.abs(np.arange(RATIO_BINS) - middle)
    order = np.argsort(distance, kind="stable")
    half = int(np.searchsorted(np.cumsum(counts[order]), counts.sum() / 2)) if counts.any() else 0
    deviation = 1.4826 * max(int(distance[order[half]]), 1)
    reach = round(max(DEVIATIONS * deviation, np.log(FACTOR) / RATIO_STEP))
    return max(middle - reach, 0), min(middle + reach, RATIO_BINS - 1)
