"""Words: how well rare and frequent ones are translated, and which n-grams one system has and another lacks.

N sentences, K buckets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from regard.evaluation.metrics import RESAMPLES

FREQUENCIES = (1, 2, 3, 4, 5, 10, 100, 1000)  # where buckets of word frequency begin, after the one of unseen words
SEED = 12345  # of a bootstrap, as sacreBLEU has it
LONGEST = 4  # words of an n-gram
SMOOTHING = 1.0  # added to the counts of n-grams, so that one occurrence more is not all

Line = Sequence[str]


class Frequency(NamedTuple):
    """The words that were seen from `first` to `last` times: how many, and how well they are translated."""

    first: int
    last: int | None
    words: int
    """In the reference."""
    precision: float
    recall: float
    f1: float
    low: float
    high: float
    """Of f1, in 95 of 100 resampled corpora."""

    def as_dict(self) -> dict[str, Any]:
        first, last, *rest = self
        return {"from": first, "to": last, **dict(zip(self._fields[2:], rest, strict=True))}


def count_words(lines: Iterable[Line]) -> Counter[str]:
    """How often each word occurs."""
    found: Counter[str] = Counter()
    for words in lines:
        found.update(words)
    return found


def by_frequency(
    hypotheses: Sequence[Line], references: Sequence[Line], seen: Counter[str], *, starts: Sequence[int] = FREQUENCIES
) -> list[Frequency]:
    """The F-measure of words by how often they were seen, after compare-mt (Neubig et al., 2019).

    A word of a translation is right as often as the reference of the same line has it.
    """
    counts = np.zeros((len(hypotheses), 3, len(starts) + 1))  # right, written, wanted

    def bucket(word: str) -> int:
        return int(np.searchsorted(starts, seen[word], side="right"))

    for row, (written, wanted) in enumerate(zip(hypotheses, references, strict=True)):
        here, there = Counter(written), Counter(wanted)
        for kind, words in enumerate((here & there, here, there)):
            for word, number in words.items():
                counts[row, kind, bucket(word)] += number
    right, written_in_all, wanted_in_all = counts.sum(0)
    f1 = _f1(right, written_in_all, wanted_in_all)
    low, high = np.quantile(_resampled(counts), [0.025, 0.975], axis=0)
    found = []
    for place, words in enumerate(wanted_in_all):
        if not words and not written_in_all[place]:
            continue
        first = starts[place - 1] if place else 0
        last = starts[place] - 1 if place < len(starts) else None
        shares = (right[place] / max(total[place], 1) for total in (written_in_all, wanted_in_all))
        values = [float(value) for value in (*shares, f1[place], low[place], high[place])]
        found.append(Frequency(first, last, int(words), *values))
    return found


def _f1(right: Any, written: Any, wanted: Any) -> Any:
    """Twice the right ones over all: the harmonic mean of precision and recall."""
    return 2 * right / np.maximum(written + wanted, 1)


def _resampled(counts: Any) -> Any:
    """(RESAMPLES, K) the F-measures of corpora drawn from the sentences of this one."""
    random, size = np.random.default_rng(SEED), len(counts)
    drawn = []
    for _ in range(RESAMPLES):
        weights = np.bincount(random.integers(size, size=size), minlength=size)
        drawn.append(_f1(*np.tensordot(weights, counts, 1)))
    return np.stack(drawn)


# n-grams


class Salient(NamedTuple):
    """An n-gram, and how often each of two systems has it right."""

    words: str
    here: int
    there: int
    share: float
    """Of its right uses that are ours, smoothed: near 1, the other system lacks it."""


def ngrams(words: Line) -> Iterator[tuple[str, ...]]:
    """All n-grams of one to LONGEST words."""
    for size in range(1, LONGEST + 1):
        for place in range(len(words) - size + 1):
            yield tuple(words[place : place + size])


def matches(hypotheses: Sequence[Line], *references: Sequence[Line]) -> Counter[tuple[str, ...]]:
    """How often each n-gram is right: no more often than one of the references of the same line has it."""
    found: Counter[tuple[str, ...]] = Counter()
    for written, *wanted in zip(hypotheses, *references, strict=True):
        allowed: Counter[tuple[str, ...]] = Counter()
        for words in wanted:
            allowed |= Counter(ngrams(words))
        found.update(Counter(ngrams(written)) & allowed)
    return found


def salient(here: Counter[tuple[str, ...]], there: Counter[tuple[str, ...]], most: int) -> list[Salient]:
    """The n-grams that one system has right and the other lacks, the most telling first, after compare-mt."""
    found = [
        Salient(" ".join(words), number, there[words], (number + SMOOTHING) / (number + there[words] + 2 * SMOOTHING))
        for words, number in here.items()
        if number > there[words]
    ]
    return sorted(found, key=lambda each: (-each.share, -each.here, each.words))[:most]
