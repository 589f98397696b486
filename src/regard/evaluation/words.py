"""Words: F1 by word frequency, and n-grams that one of two systems has right more often.

N sentences, K frequency buckets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from regard.evaluation.metrics import RESAMPLES, bucket_dict

FREQUENCIES = (1, 2, 3, 4, 5, 10, 100, 1000)  # lower limits of the frequency buckets; one more holds unseen words
SEED = 12345  # of the bootstrap, sacreBLEU's default
MAX_ORDER = 4  # words in an n-gram
MAX_NGRAMS = 12

Words = Sequence[str]
Ngrams = Counter[tuple[str, ...]]


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
        return bucket_dict(self._asdict())


def by_frequency(
    hypotheses: Sequence[Words], references: Sequence[Words], frequencies: Counter[str]
) -> list[FrequencyBucket]:
    """The F1 of words by their frequency in a text, after compare-mt (Neubig et al., 2019).

    A word counts as correct at most as often as it occurs in the reference of the same line (clipped counts).
    """
    counts = np.zeros((len(hypotheses), 3, len(FREQUENCIES) + 1))  # (N, 3, K): correct, translated, expected
    for row, (hypothesis, reference) in enumerate(zip(hypotheses, references, strict=True)):
        translated, expected = Counter(hypothesis), Counter(reference)
        for kind, words in enumerate((translated & expected, translated, expected)):
            for word, number in words.items():
                counts[row, kind, np.searchsorted(FREQUENCIES, frequencies[word], side="right")] += number
    random, size = np.random.default_rng(SEED), len(counts)
    samples = [np.bincount(random.integers(size, size=size), minlength=size) for _ in range(RESAMPLES)]
    low, high = np.quantile([_f1(np.tensordot(sample, counts, 1)) for sample in samples], [0.025, 0.975], axis=0)
    totals = counts.sum(0)
    precision, recall = totals[0] / np.maximum(totals[1:], 1)
    measures = np.stack([precision, recall, _f1(totals), low, high], axis=1).tolist()
    firsts, lasts = (0, *FREQUENCIES), (*(limit - 1 for limit in FREQUENCIES), None)
    _, translated_words, reference_words = totals
    return [
        FrequencyBucket(first, last, int(words), *values)
        for first, last, words, others, values in zip(
            firsts, lasts, reference_words, translated_words, measures, strict=True
        )
        if words or others
    ]


def _f1(counts: Any) -> Any:
    correct, translated, expected = counts
    return 2 * correct / np.maximum(translated + expected, 1)


@dataclass(frozen=True)
class NgramDifference:
    """An n-gram, and how often each of two systems has it right."""

    words: str
    here: int
    there: int
    share: float
    """The share of correct occurrences that are in the first system, with add-one smoothing."""


def matching_ngrams(hypotheses: Sequence[Words], *references: Sequence[Words]) -> Ngrams:
    """Count correct n-grams, each at most as often as it occurs in a reference of the same line (clipped counts)."""
    matches: Ngrams = Counter()
    for hypothesis, *expected in zip(hypotheses, *references, strict=True):
        allowed: Ngrams = Counter()
        for words in expected:
            allowed |= _ngrams(words)
        matches.update(_ngrams(hypothesis) & allowed)
    return matches


def _ngrams(words: Words) -> Ngrams:
    return Counter(
        tuple(words[start : start + size]) for size in range(1, MAX_ORDER + 1) for start in range(len(words) - size + 1)
    )


def ngram_differences(here: Ngrams, there: Ngrams) -> list[NgramDifference]:
    """The n-grams that one system has right more often than another, largest share first, after compare-mt."""
    differences = [
        NgramDifference(" ".join(words), number, there[words], (number + 1.0) / (number + there[words] + 2.0))
        for words, number in here.items()
        if number > there[words]
    ]
    return sorted(differences, key=lambda ngram: (-ngram.share, -ngram.here, ngram.words))[:MAX_NGRAMS]
