"""Misalignment: spans of a corpus where line N of the source does not belong to line N of the target.

The corpus itself shows which lines belong together. A pair has four features: how strongly its words are associated,
its length ratio, its numbers and its final punctuation. The log-odds of a feature compare how often its value occurs in
aligned pairs and in pairs of distant lines.

N pairs, W words per line.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

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

WINDOW = 32  # lines judged together
SHIFTS = (-3, -2, -1, 1, 2, 3)  # always tried; larger ones where both sides correlate
DISTANT = (41, 83)  # lines this far apart do not belong together
NEARBY = (-7, -6, -5, 5, 6, 7)  # lines this near share a topic without belonging together
MIN_LOG_ODDS = 0.5  # of a typical window; below it the features say too little about this corpus
LOW = 0.7  # of the typical log-odds: windows below it are tried at other shifts
CLEAR_GAIN = 0.4  # of the typical log-odds that another shift must add
OTHER_DOMAIN = 0.4  # of the typical log-odds is what text of another domain may have
MIN_Z_SCORE = 5.0  # standard errors of a mean above zero that are taken as proof
MIN_UNRELATED = 1000  # lines of a chunk that may be called unrelated as a whole
MIN_CORRELATION = 0.3  # of both sides; chance reaches 0.14 among a thousand lines
MAX_GAP = 256  # lines between two spans of the same shift that count as one

PUNCTUATION_AROUND = re.compile(r"^[\W_]+|[\W_]+$")
DIGITS = re.compile(r"\d+")
END_MARKS = {mark: kind for kind, marks in enumerate(["?？؟;", "!！", ":：", ".。…।", ",،"], start=1) for mark in marks}


@dataclass(frozen=True)
class Features:
    """Features of each line of one side that are compared with the other side."""

    words: Integers  # (N, W), BUCKETS where a line has fewer
    length: Floats  # (N,) logarithm of the number of characters
    numbers: Integers  # (N,) hash of the numbers in the line, 0 without any
    mark: Integers  # (N,) kind of the final punctuation

    def at(self, rows: Integers) -> Features:
        """The features of the given lines; rows outside the chunk become its first or last."""
        rows = np.clip(rows, 0, len(self.length) - 1)
        return Features(self.words[rows], self.length[rows], self.numbers[rows], self.mark[rows])


@dataclass(frozen=True)
class Span:
    """Pairs first..last of a chunk whose target is `shift` lines later; shift 0: no shift fits.

    `unrelated` marks a whole chunk whose sides show no relation at any shift.
    """

    first: int
    last: int
    shift: int
    unrelated: bool = False


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
    buckets: list[int] = []
    for word in words:
        bucket = _bucket(word)
        if bucket not in buckets:
            buckets.append(bucket)
            if len(buckets) == WORDS_PER_LINE:
                return buckets
    return buckets + [BUCKETS] * (WORDS_PER_LINE - len(buckets))


@lru_cache(maxsize=1 << 20)
def _bucket(word: str) -> int:
    prefix = (PUNCTUATION_AROUND.sub("", word) or word)[:PREFIX_LENGTH]
    return zlib.crc32(prefix.encode("utf-8", "surrogatepass")) % BUCKETS


class AlignmentModel:
    """Learns which lines belong together chunk by chunk, and finds the spans that do not."""

    def __init__(self) -> None:
        self.cooccurrences = np.zeros((BUCKETS + 1) ** 2, np.float32)  # the last row and column mean "no word"
        self.source_counts = np.zeros(BUCKETS + 1, np.float32)
        self.target_counts = np.zeros(BUCKETS + 1, np.float32)
        self.pairs = 0
        self.aligned = np.ones((FEATURES, BINS))  # histograms, with one added to every bin
        self.distant = np.ones((FEATURES, BINS))
        self.median_log_ratio = 0.0
        self.typical = 0.0  # log-odds of a typical window
        self.shifts: tuple[int, ...] = SHIFTS
        self.unrelated = False  # whether the last long chunk was

    def find(self, source: Features, target: Features, *, continued: bool) -> list[Span]:
        """Learn from a chunk of pairs, which may continue the last one, and return its misaligned spans."""
        count = len(source.length)
        if count < 2 * WINDOW:
            return []
        shift = _correlated_shift(source, target)
        self.shifts = SHIFTS if shift is None or shift in (0, *SHIFTS) else (*SHIFTS, shift)
        if count >= MIN_UNRELATED:
            self.unrelated = shift is None and not _words_are_related(source, target)
        if self.unrelated and (count >= MIN_UNRELATED or continued):
            return [Span(0, count - 1, 0, unrelated=True)]
        starts = np.unique(np.append(np.arange(0, count - WINDOW + 1, WINDOW // 2), count - WINDOW))
        if self.pairs == 0:
            self._initialise(source, target, starts)
        else:
            self._count_words(source, target)
        scores = self._log_odds(source, target, np.arange(count), 0)
        means = _window_means(scores, starts)
        median = float(np.median(means))
        typical = min(self.typical, median) if median >= OTHER_DOMAIN * self.typical else self.typical
        low = means < LOW * typical
        spans = self._misaligned(source, target, scores, starts[low], typical)
        sound = _lines_of(starts[~low], count)
        self._count_features(self.aligned, source.at(sound), target.at(sound))
        self._count_distant(source, target)
        return spans

    def _initialise(self, source: Features, target: Features, starts: Integers) -> None:
        """Learn from the first chunk without knowing its shifts: count all of them, then the best of each window."""
        lines = np.arange(len(source.length))
        shifts = np.zeros(len(lines), np.int64)
        candidates = (0, *self.shifts)
        self.median_log_ratio = float(np.median(target.length - source.length))
        for shift in candidates:
            self._count_words(source, target.at(lines + shift))
        for first_round in (True, False):
            self.aligned[:], self.distant[:] = 1, 1
            for shift in candidates if first_round else (0,):
                self._count_features(self.aligned, source, target.at(lines + shifts + shift))
            self._count_distant(source, target)
            means = np.stack(
                [_window_means(self._log_odds(source, target, lines, shift), starts) for shift in candidates]
            )
            means[0] += MIN_LOG_ODDS  # no shift is the most likely one
            for start, best in zip(starts.tolist(), means.argmax(0).tolist(), strict=True):
                shifts[start : start + WINDOW] = candidates[best]
            self._reset_word_counts()
            self._count_words(source, target.at(lines + shifts))
        self.typical = float(np.median(means.max(0)))

    def _misaligned(
        self, source: Features, target: Features, scores: Floats, starts: Integers, typical: float
    ) -> list[Span]:
        """The misaligned spans among windows of low log-odds."""
        if typical < MIN_LOG_ODDS or not len(starts):
            return []
        lines = _lines_of(starts, len(scores), margin=WINDOW)
        gains = {0: -scores}  # by shift: what it adds to the log-odds of each line; 0 for "no shift fits"
        for shift in self.shifts:
            gains[shift] = np.zeros(len(scores), np.float32)
            gains[shift][lines] = self._log_odds(source, target, lines, shift) - scores[lines]
        means = {shift: _window_means(gain, starts) for shift, gain in gains.items()}
        candidates: list[tuple[int, int, int]] = []
        for i, start in enumerate(starts.tolist()):
            shift = max(self.shifts, key=lambda shift: float(means[shift][i]))
            if means[shift][i] <= CLEAR_GAIN * typical:
                if means[0][i] <= 0:
                    continue
                shift = 0
            if candidates and candidates[-1][2] == shift and start <= candidates[-1][1] + 2 * WINDOW:
                start = candidates.pop()[0]
            candidates.append((start, int(starts[i]) + WINDOW, shift))
        spans = []
        for start, end, shift in candidates:
            low = max(start - WINDOW, 0)
            begin, stop = _best_run(gains[shift][low : end + WINDOW])
            gain = gains[shift][low + begin : low + stop]
            if len(gain) >= (WINDOW // 2 if shift else 2 * WINDOW) and _is_significant(gain):
                spans.append(Span(low + begin, low + stop - 1, shift))
        return spans

    def _log_odds(self, source: Features, target: Features, lines: Integers, shift: int) -> Floats:
        """(lines,): log-odds that each source line belongs to the target line `shift` later."""
        aligned = np.log(self.aligned / self.aligned.sum(1, keepdims=True))
        distant = np.log(self.distant / self.distant.sum(1, keepdims=True))
        bins = self._bins(source.at(lines), target.at(lines + shift))
        total: Floats = np.take_along_axis(aligned - distant, bins, axis=1).sum(0).astype(np.float32)
        return total

    def _bins(self, source: Features, target: Features) -> Integers:
        """(FEATURES, N): the histogram bin of each feature of each pair."""
        association = self.association(source, target, counted=1)
        surprise = np.abs(target.length - source.length - self.median_log_ratio)
        left, right = source.numbers > 0, target.numbers > 0
        same = source.numbers == target.numbers
        numbers = np.where(left & right, np.where(same, 1, 3), np.where(left | right, 2, 0))
        marks = source.mark * 6 + target.mark
        bins = [np.minimum(association * 6, BINS - 1), np.minimum(surprise * 10, BINS - 1), numbers, marks]
        return np.stack(bins).astype(np.int64)

    def association(self, source: Features, target: Features, *, counted: int) -> Floats:
        """(N,): mean log association of the words of each pair.

        `counted` is 1 if the pairs themselves are in the counts, else 0: a pair is no evidence for itself.
        """
        together = self.cooccurrences[source.words[:, :, None] * (BUCKETS + 1) + target.words[:, None, :]]
        together -= counted
        together[together < MIN_COOCCURRENCES] = 0
        together *= (max(self.pairs, 1) / np.maximum(self.target_counts, 1))[target.words][:, None, :]
        best = together.max(axis=2) / np.maximum(self.source_counts, 1)[source.words]  # (N, W)
        total = np.log(np.clip(best, 1, MAX_ASSOCIATION)).sum(1)
        mean: Floats = total / np.maximum((source.words < BUCKETS).sum(1), 1)
        return mean

    def _count_words(self, source: Features, target: Features) -> None:
        cells = (source.words[:, :, None] * (BUCKETS + 1) + target.words[:, None, :]).ravel()
        np.add.at(self.cooccurrences, cells, np.float32(1))
        self.source_counts += np.bincount(source.words.ravel(), minlength=BUCKETS + 1)
        self.target_counts += np.bincount(target.words.ravel(), minlength=BUCKETS + 1)
        self.cooccurrences.reshape(BUCKETS + 1, -1)[-1] = 0
        self.cooccurrences.reshape(BUCKETS + 1, -1)[:, -1] = 0
        self.pairs += len(source.words)

    def _reset_word_counts(self) -> None:
        self.cooccurrences[:], self.source_counts[:], self.target_counts[:], self.pairs = 0, 0, 0, 0

    def _count_features(self, histograms: NDArray[np.float64], source: Features, target: Features) -> None:
        for histogram, bins in zip(histograms, self._bins(source, target), strict=True):
            histogram += np.bincount(bins, minlength=BINS)

    def _count_distant(self, source: Features, target: Features) -> None:
        lines = np.arange(len(source.length))
        for distance in DISTANT:
            rows = lines[:2048]
            self._count_features(self.distant, source.at(rows), target.at((rows + distance) % len(lines)))


def _correlated_shift(source: Features, target: Features) -> int | None:
    """The shift of the target, in lines, with the highest cross-correlation of both sides; None if there is no peak."""
    size = 1 << (2 * len(source.length) - 1).bit_length()
    spectra = [np.fft.rfft(_signal(side), size) for side in (source, target)]
    correlation = np.fft.irfft(np.conj(spectra[0]) * spectra[1], size) / len(source.length)
    peak = int(correlation.argmax())
    if correlation[peak] < MIN_CORRELATION:
        return None
    return peak if peak < size // 2 else peak - size


def _signal(side: Features) -> NDArray[np.float64]:
    """Lengths, and one more for questions, relative to the eight lines before and after; clipped and standardised.

    Where sentences are sorted by length (Tatoeba), only the question marks correlate.
    """
    values = side.length + (side.mark == END_MARKS["?"])
    kernel = np.ones(17)
    values = values - np.convolve(values, kernel, "same") / np.convolve(np.ones(len(values)), kernel, "same")
    values = np.clip(values, -3 * values.std(), 3 * values.std())
    return np.asarray((values - values.mean()) / max(values.std(), 1e-6), np.float64)


def _words_are_related(source: Features, target: Features) -> bool:
    """Whether associations learned from half of the lines hold in the other half, at some shift, more than for nearby
    lines."""
    lines = np.arange(max(NEARBY), len(source.length) - max(NEARBY))
    even = lines // 64 % 2 == 0
    train, held_out = lines[even], lines[~even]
    model = AlignmentModel()

    def association(shift: int) -> Floats:
        return model.association(source.at(held_out), target.at(held_out + shift), counted=0)

    for shift in (0, *SHIFTS):
        model._reset_word_counts()
        model._count_words(source.at(train), target.at(train + shift))
        if _is_significant(association(shift) - np.mean([association(near) for near in NEARBY], axis=0)):
            return True
    return False


def _is_significant(values: Floats) -> bool:
    """Whether the mean lies clearly above zero."""
    return bool(values.mean() * np.sqrt(len(values)) > MIN_Z_SCORE * values.std())


def _lines_of(starts: Integers, count: int, *, margin: int = 0) -> Integers:
    """The lines of these windows, and `margin` lines around them."""
    mask = np.zeros(count, np.bool_)
    for start in starts.tolist():
        mask[max(start - margin, 0) : start + WINDOW + margin] = True
    return np.flatnonzero(mask)


def _window_means(scores: Floats, starts: Integers) -> Floats:
    total = np.concatenate([[0], np.cumsum(scores, dtype=np.float64)])
    means: Floats = ((total[starts + WINDOW] - total[starts]) / WINDOW).astype(np.float32)
    return means


def _best_run(gain: Floats) -> tuple[int, int]:
    """Start and end of the run with the greatest sum."""
    total = np.concatenate([[0], np.cumsum(gain, dtype=np.float64)])
    stop = int((total - np.minimum.accumulate(total)).argmax())
    return int(total[: stop + 1].argmin()), stop


def join_spans(spans: list[Span]) -> list[Span]:
    """Join spans of one shift across short gaps; of spans that overlap the longest stays."""
    joined: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.unrelated, span.shift, span.first)):
        same = joined and (joined[-1].unrelated, joined[-1].shift) == (span.unrelated, span.shift)
        if same and span.first <= joined[-1].last + MAX_GAP:
            joined[-1] = replace(joined[-1], last=max(joined[-1].last, span.last))
        else:
            joined.append(span)
    kept: list[Span] = []
    for span in sorted(joined, key=lambda span: span.first - span.last):
        if all(span.last < other.first or span.first > other.last for other in kept):
            kept.append(span)
    return sorted(kept, key=lambda span: span.first)
