"""Drift: stretches of a corpus where line N of one side no longer belongs to line N of the other.

What belongs together is learned from the corpus itself, by four simple signs: words that keep company, lengths, numbers
and end marks. How much each sign is worth, in nats, comes from comparing true neighbours with lines far apart.

N pairs, W words kept of a line.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Floats = NDArray[np.float32]

WORDS = 6  # the longest words of a line carry most of what it says
STEM = 6  # letters of a word that count: endings differ from sentence to sentence
BUCKETS = 4096
SEEN_TOGETHER = 2.0  # two words must have met this often elsewhere before it means anything
STRONGEST = 150.0  # times more often together than chance
ROUNDS = 2  # of learning from the first chunk
WINDOW = 32  # lines judged together: short enough to place a stretch, long enough that chance does not decide
SHIFTS = (-3, -2, -1, 1, 2, 3)
FAR = (41, 83)  # lines this far apart do not belong together
TELLING = 0.5  # nats a pair must usually have, or the signs say too little about this corpus
DOUBTFUL = 0.7  # of the usual nats: below it a window is tried at other shifts
CLEARLY = 0.4  # of the usual nats must another shift give more
OTHER_TEXT = 0.4  # of the nats of the first chunk are still a matter of the kind of text
PROVEN = 5.0  # standard errors that the gain of a stretch lies above zero
SHORTEST_UNRELATED = 64  # lines: without a better shift the proof must be longer
ENOUGH = 1000  # lines before a whole chunk can be called unrelated
AROUND = 8  # lines to each side that a length is compared with: what goes up and down slowly places nothing
ECHO = 0.3  # correlation that tells where the other side stands; chance alone reaches 0.14 among a thousand lines
FEWEST_SIGNS = 50  # lines that must show a sign before it can place the other side
BLOCK = 64  # lines that are learned from, or looked at, together
BESIDE = (-7, -6, -5, 5, 6, 7)  # lines this near share a topic, but do not belong together
RELATED = 5.0  # standard errors that words must keep better company than beside
SIGNS_AROUND = re.compile(r"^[\W_]+|[\W_]+$")
DIGITS = re.compile(r"\d+")
UNSPACED = {"Han", "Kana", "Thai", "Lao", "Khmer", "Myanmar", "Tibetan"}
END_MARKS = {mark: kind for kind, marks in enumerate(["?？؟;", "!！", ":：", ".。…।", ",،"], start=1) for mark in marks}
SIGNS = ("words", "length", "numbers", "marks")
BINS = 36


@dataclass(frozen=True)
class Features:
    """What is compared of each line of one side."""

    words: Integers  # (N, W), BUCKETS where a line has fewer
    length: Floats  # (N,) logarithm of the characters
    numbers: Integers  # (N,) 0 without digits
    mark: Integers  # (N,)

    def rows(self, which: Integers) -> Features:
        """The chosen lines."""
        return Features(self.words[which], self.length[which], self.numbers[which], self.mark[which])


@dataclass(frozen=True)
class Stretch:
    """Pairs first..last (by place in the split, from 0) whose target stands `shift` lines further; 0: nowhere near.

    `unrelated`: a whole chunk where neither words nor lengths nor numbers show that the sides belong together.
    """

    first: int
    last: int
    shift: int
    unrelated: bool = False


def featured(lines: Sequence[str], *, unspaced: bool) -> Features:
    """What is compared of these lines; they are in small letters."""
    words = [longest(line, unspaced=unspaced) for line in lines]
    mark = np.fromiter((END_MARKS.get(line[-1:], 0) for line in lines), dtype=np.int64, count=len(lines))
    size = np.fromiter(map(len, lines), dtype=np.float32, count=len(lines))
    return Features(np.array(words, np.int64).reshape(-1, WORDS), np.log(size + 3), numbers_of(lines), mark)


def numbers_of(lines: Sequence[str]) -> Integers:
    """A fixed number for the numbers of each line, whatever their order; 0 without any."""
    ends = np.cumsum(np.fromiter((len(line) + 1 for line in lines), dtype=np.int64, count=len(lines)))
    found = [(match.start(), zlib.crc32(match.group().encode()) + 1) for match in DIGITS.finditer("\n".join(lines))]
    places, values = np.array(found, np.int64).reshape(-1, 2).T
    return np.bincount(np.searchsorted(ends, places, side="right"), values, len(lines)).astype(np.int64)


BUCKET_OF: dict[str, int] = {}


def longest(line: str, *, unspaced: bool) -> list[int]:
    """The buckets of the longest words of a line, or of its pairs of letters where words are not spaced."""
    words = line.replace("'", " ").replace("’", " ").split()
    if unspaced:
        words = [word[place : place + 2] for word in words for place in range(max(len(word) - 1, 1))]
        words.sort(key=bucket)
    else:
        words.sort(key=len, reverse=True)
    kept: list[int] = []
    for word in words:
        number = bucket(word)
        if number not in kept:
            kept.append(number)
            if len(kept) == WORDS:
                return kept
    return kept + [BUCKETS] * (WORDS - len(kept))


def bucket(word: str) -> int:
    """A fixed number below `BUCKETS` for what a word begins with, signs around it aside."""
    known = BUCKET_OF.get(word)
    if known is None:
        if len(BUCKET_OF) > 1_000_000:
            BUCKET_OF.clear()
        stem = (SIGNS_AROUND.sub("", word) or word)[:STEM]
        known = BUCKET_OF[word] = zlib.crc32(stem.encode("utf-8", "surrogatepass")) % BUCKETS
    return known


class Agreement:
    """Learns what belongs together as chunks go by, and finds where it does not."""

    def __init__(self) -> None:
        self.together = np.zeros((BUCKETS + 1) ** 2, np.float32)  # the last row and column stand for no word
        self.source = np.zeros(BUCKETS + 1, np.float32)
        self.target = np.zeros(BUCKETS + 1, np.float32)
        self.pairs = 0
        self.true = np.ones((len(SIGNS), BINS))
        self.false = np.ones((len(SIGNS), BINS))
        self.middle = 0.0
        self.usual = 0.0
        self.shifts: tuple[int, ...] = SHIFTS  # tried in this chunk
        self.unrelated = False  # the last chunk of enough lines

    def look(self, source: Features, target: Features, *, first: int) -> list[Stretch]:
        """Learn from a chunk of pairs that starts at `first`, and name its stretches that drifted."""
        count = len(source.length)
        if count < 2 * WINDOW:
            return []
        echoes = echoes_of(source, target)
        self.shifts = (*SHIFTS, *(shift for shift in echoes if abs(shift) > max(SHIFTS)))
        if count >= ENOUGH:
            self.unrelated = not echoes and not related(source, target)
        if self.unrelated and (count >= ENOUGH or first):
            return [Stretch(first, first + count - 1, 0, unrelated=True)]  # nothing to learn from
        begins = np.unique(np.append(np.arange(0, count - WINDOW + 1, WINDOW // 2), count - WINDOW))
        if self.pairs == 0:
            self.begin(source, target, begins)
        else:
            self.learn_words(source, target)
        level = self.level(source, target, 0)
        means = windows(level, begins)
        usual = self.usual_here(means)
        stretches = self.drifted(source, target, level, begins[means < DOUBTFUL * usual], usual=usual)
        sound = covered(begins[means >= DOUBTFUL * usual], count)
        self.learn_signs(self.true, self.bins(source.rows(sound), target.rows(sound)))
        self.learn_apart(source, target)
        return [Stretch(first + begin, first + end, shift) for begin, end, shift in stretches]

    def drifted(
        self, source: Features, target: Features, level: Floats, doubtful: Integers, *, usual: float
    ) -> list[tuple[int, int, int]]:
        """The stretches in doubtful windows that another shift explains, or none."""
        if usual < TELLING or not len(doubtful):
            return []
        lines = covered(doubtful, len(level), margin=WINDOW)
        shifted = {}
        for shift in self.shifts:
            shifted[shift] = np.zeros(len(level), np.float32)
            shifted[shift][lines] = self.level(source, target, shift, lines=lines)
        return merged(level, shifted, doubtful, usual=usual)

    def usual_here(self, means: Floats) -> float:
        """What windows of this chunk usually have: another kind of text has less, most of it drifted hardly any."""
        here = float(np.median(means))
        return min(self.usual, here) if here >= OTHER_TEXT * self.usual else self.usual

    def begin(self, source: Features, target: Features, begins: Integers) -> None:
        """Learn from the first chunk whatever its shift is: all shifts count first, then each window's best."""
        lines = np.arange(len(source.length))
        shifts = np.zeros(len(lines), np.int64)
        self.middle = float(np.median(target.length - source.length))
        for shift in (0, *self.shifts):
            self.learn_words(source, target.rows(moved(lines, shift)))
        for turn in range(ROUNDS):
            self.true[:], self.false[:] = 1, 1
            for shift in (0, *self.shifts) if turn == 0 else (0,):
                near = target.rows(moved(lines, shifts + shift))
                self.learn_signs(self.true, self.bins(source, near))
            self.learn_apart(source, target)
            levels = np.stack([self.level(source, target, shift) for shift in (0, *self.shifts)])
            means = np.stack([windows(level, begins) for level in levels])
            means[0] += TELLING  # in doubt lines are where they should be
            for begin, best in zip(begins.tolist(), means.argmax(0).tolist(), strict=True):
                shifts[begin : begin + WINDOW] = (0, *self.shifts)[best]
            self.forget()
            self.learn_words(source, target.rows(moved(lines, shifts)))
        self.usual = float(np.median(means.max(0)))

    def level(self, source: Features, target: Features, shift: int, *, lines: Integers | None = None) -> Floats:
        """(N,): nats in favour of each source line belonging to the target line `shift` further."""
        lines = np.arange(len(source.length)) if lines is None else lines
        worth = np.log(self.true / self.true.sum(1, keepdims=True)) - np.log(
            self.false / self.false.sum(1, keepdims=True)
        )
        near = target.rows(np.clip(lines + shift, 0, len(target.length) - 1))
        return weigh(worth, self.bins(source.rows(lines), near))

    def forget(self) -> None:
        """Begin the counts of words again."""
        self.together[:], self.source[:], self.target[:], self.pairs = 0, 0, 0, 0

    def learn_words(self, source: Features, target: Features) -> None:
        """Count which words keep company."""
        cells = (source.words[:, :, None] * (BUCKETS + 1) + target.words[:, None, :]).ravel()
        np.add.at(self.together, cells, np.float32(1))
        self.source += np.bincount(source.words.ravel(), minlength=BUCKETS + 1)
        self.target += np.bincount(target.words.ravel(), minlength=BUCKETS + 1)
        self.together.reshape(BUCKETS + 1, -1)[-1] = 0
        self.together.reshape(BUCKETS + 1, -1)[:, -1] = 0
        self.pairs += len(source.words)

    def learn_apart(self, source: Features, target: Features) -> None:
        """Count what lines far apart look like, in a part of the chunk."""
        lines = np.arange(len(source.length))[:2048]
        for far in FAR:
            apart = target.rows((lines + far) % len(target.length))
            self.learn_signs(self.false, self.bins(source.rows(lines), apart))

    def bond(self, source: Features, target: Features, *, own: int) -> Floats:
        """(N,): how well the words of each pair keep company; `own`: times that the pair itself was learned from."""
        met = self.together[source.words[:, :, None] * (BUCKETS + 1) + target.words[:, None, :]]
        met -= own  # what a pair itself has brought proves nothing about it
        met[met < SEEN_TOGETHER] = 0
        met *= (max(self.pairs, 1) / np.maximum(self.target, 1))[target.words][:, None, :]
        best = met.max(axis=2) / np.maximum(self.source, 1)[source.words]  # (N, W): each source word's best companion
        bond: Floats = np.log(np.clip(best, 1, STRONGEST)).sum(1) / np.maximum((source.words < BUCKETS).sum(1), 1)
        return bond

    def bins(self, source: Features, target: Features) -> Integers:
        """(4, N): for each sign, which of its cases every pair is."""
        bond = self.bond(source, target, own=1)
        surprise = np.abs(target.length - source.length - self.middle)
        one, other = source.numbers > 0, target.numbers > 0
        numbers = np.where(one & other, np.where(source.numbers == target.numbers, 1, 3), np.where(one | other, 2, 0))
        marks = source.mark * 6 + target.mark
        cases = [np.minimum(bond * 6, BINS - 1), np.minimum(surprise * 10, BINS - 1), numbers, marks]
        return np.stack(cases).astype(np.int64)

    def learn_signs(self, counts: NDArray[np.float64], bins: Integers) -> None:
        """Add what was seen to the counts of each sign's cases."""
        for sign in range(len(SIGNS)):
            counts[sign] += np.bincount(bins[sign], minlength=BINS)


def echoes_of(source: Features, target: Features) -> list[int]:
    """How many lines further the target stands, by lengths, question marks and numbers; empty where they do not tell.

    All shifts are tried at once: the correlation of two sides over every shift is a product of their spectra.
    """
    size = 1 << (2 * len(source.length) - 1).bit_length()
    found: dict[int, float] = {}
    for one, other in (
        (unlike_around(source.length), unlike_around(target.length)),
        ((source.mark == 1).astype(np.float64), (target.mark == 1).astype(np.float64)),
        (signs_of(source.numbers), signs_of(target.numbers)),
    ):
        if min(np.count_nonzero(one), np.count_nonzero(other)) < FEWEST_SIGNS:
            continue
        spectra = [np.fft.rfft((side - side.mean()) / max(side.std(), 1e-6), size) for side in (one, other)]
        correlation = np.fft.irfft(np.conj(spectra[0]) * spectra[1], size) / len(one)
        place = int(correlation.argmax())
        shift = place if place < size // 2 else place - size
        if correlation[place] >= ECHO:
            found[shift] = max(found.get(shift, 0.0), float(correlation[place]))
    return sorted(found, key=lambda shift: -found[shift])


def unlike_around(length: Floats) -> NDArray[np.float64]:
    """How much longer each line is than those around it, the most unusual ones tamed."""
    near = np.ones(2 * AROUND + 1)
    around = np.convolve(length, near, "same") / np.convolve(np.ones(len(length)), near, "same")
    unlike = length - around
    return np.clip(unlike, -3 * unlike.std(), 3 * unlike.std())


def signs_of(numbers: Integers) -> NDArray[np.float64]:
    """1 or -1 for the numbers of a line, 0 without any, so that other numbers cancel out."""
    return np.where(numbers > 0, (numbers * 2654435761 >> 15 & 1) * 2.0 - 1, 0.0)


def related(source: Features, target: Features) -> bool:
    """Whether words that keep company in one half of the lines do so in the other, and more than a few lines away."""
    lines = np.arange(len(source.length))
    inside = (lines >= max(BESIDE)) & (lines < len(lines) - max(BESIDE))
    learned, tried = lines[inside & (lines // BLOCK % 2 == 0)], lines[inside & (lines // BLOCK % 2 == 1)]
    words = Agreement()
    for shift in (0, *SHIFTS):
        words.forget()
        words.learn_words(source.rows(learned), target.rows(learned + shift))
        bond = words.bond(source.rows(tried), target.rows(tried + shift), own=0)
        beside = [words.bond(source.rows(tried), target.rows(tried + near), own=0) for near in BESIDE]
        gain = bond - np.mean(beside, axis=0)
        if gain.mean() * np.sqrt(len(gain)) > RELATED * gain.std():
            return True
    return False


def moved(lines: Integers, shift: int | Integers) -> Integers:
    """The lines that stand `shift` further, within the chunk."""
    places: Integers = np.clip(lines + shift, 0, len(lines) - 1)
    return places


def covered(begins: Integers, count: int, *, margin: int = 0) -> Integers:
    """The lines of these windows, and `margin` lines around them."""
    which = np.zeros(count, np.bool_)
    for begin in begins.tolist():
        which[max(begin - margin, 0) : begin + WINDOW + margin] = True
    return np.flatnonzero(which)


def weigh(worth: NDArray[np.float64], bins: Integers) -> Floats:
    """(N,): nats in favour of each pair belonging together."""
    return sum((worth[sign][bins[sign]] for sign in range(len(SIGNS))), np.zeros(bins.shape[1])).astype(np.float32)


def windows(level: Floats, begins: Integers) -> Floats:
    """The mean of every window."""
    total = np.concatenate([[0], np.cumsum(level, dtype=np.float64)])
    means: Floats = ((total[begins + WINDOW] - total[begins]) / WINDOW).astype(np.float32)
    return means


def merged(level: Floats, shifted: dict[int, Floats], begins: Integers, *, usual: float) -> list[tuple[int, int, int]]:
    """Doubtful windows that share a cause, joined and cut to the lines it explains best."""
    usual_level = windows(level, begins)
    means = {shift: windows(values, begins) for shift, values in shifted.items()}
    spans: list[list[int]] = []
    for place, begin in enumerate(begins.tolist()):
        best = max(means, key=lambda shift: float(means[shift][place]))
        if means[best][place] - usual_level[place] > CLEARLY * usual:
            shift = best
        elif usual_level[place] < 0:
            shift = 0
        else:
            continue
        if spans and spans[-1][2] == shift and begin <= spans[-1][1] + 2 * WINDOW:
            spans[-1][1] = begin + WINDOW
        else:
            spans.append([begin, begin + WINDOW, shift])
    found = []
    for begin, end, shift in spans:
        low, high = max(begin - WINDOW, 0), min(end + WINDOW, len(level))
        gain = (shifted[shift] - level if shift else -level)[low:high]
        start, stop = best_run(gain)
        if is_proof(gain[start:stop], shifted=shift != 0):
            found.append((low + start, low + stop - 1, shift))
    return found


def is_proof(gain: Floats, *, shifted: bool) -> bool:
    """Whether what a run of lines gains is more than chance would give it."""
    if len(gain) < (WINDOW // 2 if shifted else SHORTEST_UNRELATED):
        return False
    return bool(gain.mean() * np.sqrt(len(gain)) > PROVEN * gain.std())


def best_run(gain: Floats) -> tuple[int, int]:
    """The run of lines with the greatest sum."""
    total = np.concatenate([[0], np.cumsum(gain, dtype=np.float64)])
    lowest = np.minimum.accumulate(total)
    stop = int((total - lowest).argmax())
    return int(total[: stop + 1].argmin()), stop
