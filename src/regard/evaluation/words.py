"""Words: F1 by word frequency, and n-grams that one of two systems has right more often.

N sentences, K frequency buckets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from regard.evaluation.metrics import RESAMPLES

FREQUENCIES = (1, 2, 3, 4, 5, 10, 100, 1000)  # lower limits of the frequency buckets; one more holds unseen words
SEED = 12345  # of the bootstrap, sacreBLEU's default
MAX_ORDER = 4  # words in an n-gram

Words = Sequence[str]


class FrequencyBucket(NamedTuple):
    """Precision, recall and F1 of words that occur `first` to `last` times in a text."""

    first: int
    last: int | None
    words: int
    """Number of words in the reference."""
    precision: float
    recall: float
    f1: float
    low: float
    high: float
    """The 95 % bootstrap interval of f1."""

    def to_dict(self) -> dict[str, Any]:
        first, last, *rest = self
        return {"from": first, "to": last, **dict(zip(self._fields[2:], rest, strict=True))}


def by_frequency(
    hypotheses: Sequence[Words], references: Sequence[Words], frequencies: Counter[str]
) -> list[FrequencyBucket]:
    """The F1 of words by their frequency in a text, after compare-mt (Neubig et al., 2019).

    A word is counted as right at most as often as it occurs in the reference of the same line (clipped counts).
    """
    counts = np.zeros((len(hypotheses), 3, len(FREQUENCIES) + 1))  # right, in the translation, in the reference
    for row, (hypothesis, reference) in enumerate(zip(hypotheses, references, strict=True)):
        translated, expected = Counter(hypothesis), Counter(reference)
        for kind, words in enumerate((translated & expected, translated, expected)):
            for word, number in words.items():
                counts[row, kind, np.searchsorted(FREQUENCIES, frequencies[word], side="right")] += number
    right, translated_words, reference_words = counts.sum(0)
    f1 = _f1(right, translated_words, reference_words)
    low, high = np.quantile(_bootstrap(counts), [0.025, 0.975], axis=0)
    buckets = []
    for number, words in enumerate(reference_words):
        if not words and not translated_words[number]:
            continue
        first = FREQUENCIES[number - 1] if number else 0
        last = FREQUENCIES[number] - 1 if number < len(FREQUENCIES) else None
        precision, recall = (right[number] / max(total[number], 1) for total in (translated_words, reference_words))
        values = map(float, (precision, recall, f1[number], low[number], high[number]))
        buckets.append(FrequencyBucket(first, last, int(words), *values))
    return buckets


def _f1(right: Any, translated: Any, expected: Any) -> Any:
    return 2 * right / np.maximum(translated + expected, 1)


def _bootstrap(counts: Any) -> Any:
    """(RESAMPLES, K) F1 of bootstrap samples of the sentences."""
    random, size = np.random.default_rng(SEED), len(counts)
    samples = []
    for _ in range(RESAMPLES):
        weights = np.bincount(random.integers(size, size=size), minlength=size)
        samples.append(_f1(*np.tensordot(weights, counts, 1)))
    return np.stack(samples)


class NgramDifference(NamedTuple):
    """An n-gram, and how often each of two systems has it right."""

    words: str
    here: int
    there: int
    share: float
    """The share of correct occurrences that are in the first system, with add-one smoothing."""


def matching_ngrams(hypotheses: Sequence[Words], *references: Sequence[Words]) -> Counter[tuple[str, ...]]:
    """Count correct n-grams, each at most as often as it occurs in a reference of the same line (clipped counts)."""
    matches: Counter[tuple[str, ...]] = Counter()
    for hypothesis, *expected in zip(hypotheses, *references, strict=True):
        allowed: Counter[tuple[str, ...]] = Counter()
        for words in expected:
            allowed |= Counter(_ngrams(words))
        matches.update(Counter(_ngrams(hypothesis)) & allowed)
    return matches


def _ngrams(words: Words) -> Iterator[tuple[str, ...]]:
    for size in range(1, MAX_ORDER + 1):
        for start in range(len(words) - size + 1):
            yield tuple(words[start : start + size])


def ngram_differences(
    here: Counter[tuple[str, ...]], there: Counter[tuple[str, ...]], count: int
) -> list[NgramDifference]:
    """The n-grams that one system has right more often than another, largest share first, after compare-mt."""
    differences = [
        NgramDifference(" ".join(words), number, there[words], (number + 1.0) / (number + there[words] + 2.0))
        for words, number in here.items()
        if number > there[words]
    ]
    return sorted(differences, key=lambda ngram: (-ngram.share, -ngram.here, ngram.words))[:count]


def count_words(lines: Iterable[Words]) -> Counter[str]:
    """Count the words of all lines."""
    return Counter(word for words in lines for word in words)
