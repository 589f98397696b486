"""Words: F1 of the words of a translation by their frequency in a text.

N sentences, K frequency buckets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from regard.evaluation.metrics import RESAMPLES, bucket_dict

FREQUENCIES = (1, 2, 3, 4, 5, 10, 100, 1000)  # lower limits of the frequency buckets; one more holds unseen words
SEED = 12345  # of the bootstrap, sacreBLEU's default


class FrequencyBucket(NamedTuple):
    """Precision, recall and F1 of words that occur `first` to `last` times in a text."""

    first: int
    last: int | None
    words: int  # in the reference
    precision: float
    recall: float
    f1: float
    low: float  # the 95 % bootstrap interval of f1
    high: float

    def to_dict(self) -> dict[str, Any]:
        return bucket_dict(self._asdict())


def by_frequency(
    hypotheses: Sequence[Sequence[str]], references: Sequence[Sequence[str]], frequencies: Counter[str]
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
    _, translated_words, reference_words = totals.astype(int).tolist()
    limits = zip((0, *FREQUENCIES), (*(limit - 1 for limit in FREQUENCIES), None), strict=True)
    return [
        FrequencyBucket(first, last, reference_words[bucket], *measures[bucket])
        for bucket, (first, last) in enumerate(limits)
        if translated_words[bucket] or reference_words[bucket]
    ]


def _f1(counts: Any) -> Any:
    correct, translated, expected = counts
    return 2 * correct / np.maximum(translated + expected, 1)
