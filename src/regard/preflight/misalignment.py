"""Misalignment: spans of a corpus where line N of the source does not belong to line N of the target.

The corpus itself shows which lines belong together. A pair has four features: how strongly its words are associated,
its length ratio, its numbers and its final punctuation. The log-odds of a feature compare how often its value occurs in
aligned pairs and in pairs of distant lines.

N pairs, W words per line, S shifts.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Floats = NDArray[np.float32]

WORDS_PER_LINE = 6  # the longest words of a line carry most of its meaning
PREFIX_LENGTH = 6  # letters of a word that are compared: inflected endings differ
BUCKETS = 4096  # of hashed words
MIN_COOCCURRENCES = 2  # of two words in other pairs, before they count as associated
MAX_ASSOCIATION = 150.0  # times more often together than by chance
FEATURES = 4
BINS = 36  # of the histogram of a feature

WINDOW = 32  # lines whose mean log-odds are compared with those of other lines
SHIFTS = (0, -3, -2, -1, 1, 2, 3)  # always tried; larger ones where both sides correlate
DISTANT = (41, 83)  # lines this far apart serve as examples of unrelated pairs
RELATED = 1.7  # log-odds of a typical window of related texts: at least 2.3; of shuffled ones at most 1.4
SHIFT_COST, UNRELATED_COST = 10, 40  # of leaving shift 0 for another shift or for none, in log-odds of typical lines
MIN_UNRELATED = 1000  # a chunk with fewer lines is never reported as unrelated
MIN_CORRELATION = 0.3  # of both sides; chance reaches 0.14 among a thousand lines

PUNCTUATION_AROUND = re.compile(r"^[\W_]+|[\W_]+$")
DIGITS = re.compile(r"\d+")
END_MARKS = {mark: kind for kind, marks in enumerate(["?？؟;", "!！", ":：", ".。…।", ",،"], start=1) for mark in marks}


class Features(NamedTuple):
    """Features of each line of one side that are compared with the other side."""

    words: Integers  # (N, W), BUCKETS where a line has fewer
    length: Floats  # (N,) logarithm of the number of characters
    numbers: Integers  # (N,) hash of the numbers in the line, 0 without any
    mark: Integers  # (N,) kind of the final punctuation

    def at(self, rows: Integers) -> Features:
        """The features of the given lines; rows outside the chunk become its first or last."""
        rows = np.clip(rows, 0, len(self.length) - 1)
        return Features(self.words[rows], self.length[rows], self.numbers[rows], self.mark[rows])


class Span(NamedTuple):
    """Pairs first..last of a chunk whose target is elsewhere."""

    first: int
    last: int
    shift: int = 0  # lines from the source to its target; 0: no shift fits
    unrelated: bool = False  # the sides of the whole chunk show no relation


def extract_features(lines: Sequence[str], *, unspaced: bool) -> Features:
    """Extract the features of lower-cased lines; `unspaced` scripts are compared by character bigrams."""
    words = np.array([_longest_words(line, unspaced) for line in lines], np.int64).reshape(-1, WORDS_PER_LINE)
    length = np.log(np.array([len(line) for line in lines], np.float32) + 3)
    numbers = [sum(zlib.crc32(number.encode()) + 1 for number in DIGITS.findall(line)) for line in lines]
    marks = [END_MARKS.get(line[-1:], 0) for line in lines]
    return Features(words, length, np.array(numbers, np.int64), np.array(marks, np.int64))


def _longest_words(line: str, unspaced: bool) -> list[int]:
    words = line.replace("'", " ").replace("’", " ").split()
    if unspaced:
        words = [word[i : i + 2] for word in words for i in range(max(len(word) - 1, 1))]
        words.sort(key=_bucket)
    else:
        words.sort(key=len, reverse=True)
    buckets = list(dict.fromkeys(map(_bucket, words[: 4 * WORDS_PER_LINE])))[:WORDS_PER_LINE]
    return buckets + [BUCKETS] * (WORDS_PER_LINE - len(buckets))


@lru_cache(maxsize=1 << 20)
def _bucket(word: str) -> int:
    prefix = (PUNCTUATION_AROUND.sub("", word) or word)[:PREFIX_LENGTH]
    return zlib.crc32(prefix.encode("utf-8", "surrogatepass")) % BUCKETS


class AlignmentModel:
    """Learns chunk by chunk which lines belong together, and finds the spans of lines that do not."""

    def __init__(self) -> None:
        self.median_log_ratio = 0.0
        self._reset()

    def _reset(self) -> None:
        self.cooccurrences = np.zeros((BUCKETS + 1) ** 2, np.float32)  # the last row and column mean "no word"
        self.source_counts = np.zeros(BUCKETS + 1, np.float32)
        self.target_counts = np.zeros(BUCKETS + 1, np.float32)
        self.pairs = 0
        self.aligned = np.ones((FEATURES, BINS))  # histograms, with one added to every bin
        self.distant = np.ones((FEATURES, BINS))

    def find(self, source: Features, target: Features) -> list[Span]:
        """Learn from a chunk of pairs, and return its misaligned spans."""
        lines = np.arange(len(source.length))
        if len(lines) < 2 * WINDOW:
            return []
        shifts = list(dict.fromkeys([*SHIFTS, _correlated_shift(source, target)]))
        offsets = [*shifts, 0]  # the last: no shift fits
        shifted = [target.at(lines + shift) for shift in shifts]
        is_first = not self.pairs
        if is_first:  # nothing is known yet: learn from all shifts, then only from the best ones
            self.median_log_ratio = float(np.median(target.length - source.length))
            self._learn(source, shifted)
            best, _ = _best_shifts(self._log_odds(source, shifted, counted=1))
            self._reset()
            self._learn(source, [target.at(lines + np.take(offsets, best))])
        best, typical = _best_shifts(self._log_odds(source, shifted, counted=int(is_first)))
        if typical < RELATED:
            if is_first:
                self._reset()
            return [Span(0, len(lines) - 1, unrelated=True)] if len(lines) >= MIN_UNRELATED else []
        if not is_first:
            self._learn(source, [target.at(lines + np.take(offsets, best))])
        edges = [0, *(np.flatnonzero(np.diff(best)) + 1).tolist(), len(lines)]
        return [Span(i, j - 1, offsets[best[i]]) for i, j in pairwise(edges) if best[i]]

    def _log_odds(self, source: Features, shifted: Sequence[Features], *, counted: int) -> Floats:
        """(S, N): log-odds that each source line belongs to the target line at each shift."""
        aligned = np.log(self.aligned / self.aligned.sum(1, keepdims=True))
        distant = np.log(self.distant / self.distant.sum(1, keepdims=True))
        bins = [self._bins(source, target, counted=counted) for target in shifted]
        return np.stack([np.take_along_axis(aligned - distant, x, axis=1).sum(0) for x in bins]).astype(np.float32)

    def _bins(self, source: Features, target: Features, *, counted: int) -> Integers:
        """(FEATURES, N): the histogram bin of each feature of each pair.

        `counted` is 1 if the pairs themselves are in the counts, else 0: a pair is no evidence for itself.
        """
        together = self.cooccurrences[source.words[:, :, None] * (BUCKETS + 1) + target.words[:, None, :]]
        together -= counted
        together[together < MIN_COOCCURRENCES] = 0
        together *= (max(self.pairs, 1) / np.maximum(self.target_counts, 1))[target.words][:, None, :]
        best = together.max(axis=2) / np.maximum(self.source_counts, 1)[source.words]  # (N, W)
        association = np.log(np.clip(best, 1, MAX_ASSOCIATION)).sum(1)
        association /= np.maximum((source.words < BUCKETS).sum(1), 1)
        surprise = np.abs(target.length - source.length - self.median_log_ratio)
        left, right = source.numbers > 0, target.numbers > 0
        same = source.numbers == target.numbers
        numbers = np.where(left & right, np.where(same, 1, 3), np.where(left | right, 2, 0))
        marks = source.mark * 6 + target.mark
        bins = [np.minimum(association * 6, BINS - 1), np.minimum(surprise * 10, BINS - 1), numbers, marks]
        return np.stack(bins).astype(np.int64)

    def _learn(self, source: Features, targets: Sequence[Features]) -> None:
        """Count the words and the features of aligned pairs, and the features of distant lines."""
        for target in targets:
            cells = (source.words[:, :, None] * (BUCKETS + 1) + target.words[:, None, :]).ravel()
            np.add.at(self.cooccurrences, cells, np.float32(1))
            self.source_counts += np.bincount(source.words.ravel(), minlength=BUCKETS + 1)
            self.target_counts += np.bincount(target.words.ravel(), minlength=BUCKETS + 1)
            self.pairs += len(source.words)
        table = self.cooccurrences.reshape(BUCKETS + 1, -1)
        table[-1], table[:, -1] = 0, 0
        lines = np.arange(min(len(source.length), 2048))
        others = [targets[0].at((lines + distance) % len(source.length)) for distance in DISTANT]
        examples = [(self.aligned, source, target) for target in targets]
        examples += [(self.distant, source.at(lines), target) for target in others]
        for histograms, *sides in examples:
            for histogram, bins in zip(histograms, self._bins(*sides, counted=1), strict=True):
                histogram += np.bincount(bins, minlength=BINS)


def _best_shifts(scores: Floats) -> tuple[Integers, float]:
    """The shift of each line by Viterbi's algorithm, as an index into (S, N) log-odds (S: none fits); typical log-odds.

    Leaving the first shift has a cost. The typical log-odds are those of a line in the median window at its best shift.
    """
    sums = np.cumsum(np.pad(scores, ((0, 0), (1, 0))), axis=1, dtype=np.float64)[:, :: WINDOW // 2]
    typical = float(np.median((sums[:, 2:] - sums[:, :-2]).max(0))) / WINDOW
    costs = max(typical, 0) * np.array([0, *[SHIFT_COST] * (len(scores) - 1), UNRELATED_COST])
    total, previous = -costs, []
    for values in np.pad(scores, ((0, 1), (0, 0))).T:
        best = int(total.argmax())
        switched = total[best] - costs  # to each shift from the best one before
        previous.append((total >= switched, best))
        total = np.maximum(total, switched) + values
    path = [int(total.argmax())]
    for stays, best in reversed(previous[1:]):
        path.append(path[-1] if stays[path[-1]] else best)
    return np.array(path[::-1]), typical


def _correlated_shift(source: Features, target: Features) -> int:
    """The shift of the target, in lines, with the highest cross-correlation of both sides; 0 if there is no peak.

    The lengths, plus one for questions, are relative to those of the eight lines before and after. Where sentences are
    sorted by length (Tatoeba), only the question marks correlate.
    """
    size = 1 << (2 * len(source.length) - 1).bit_length()
    kernel = np.ones(17)
    spectra = []
    for side in (source, target):
        values = side.length + (side.mark == END_MARKS["?"])
        values = values - np.convolve(values, kernel, "same") / np.convolve(np.ones(len(values)), kernel, "same")
        values = np.clip(values, -3 * values.std(), 3 * values.std())
        spectra.append(np.fft.rfft((values - values.mean()) / max(values.std(), 1e-6), size))
    correlation = np.fft.irfft(np.conj(spectra[0]) * spectra[1], size) / len(source.length)
    peak = int(correlation.argmax())
    if correlation[peak] < MIN_CORRELATION:
        return 0
    return peak if peak < size // 2 else peak - size
