"""Words by their frequency, as in compare-mt."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from regard.evaluation import metrics
from regard.evaluation.metrics import by_frequency
from tests.evaluation.systems import lines, worse

REFERENCE = [line.split() for line in lines()]
HYPOTHESIS = [line.split() for line in worse(lines(), 0.3, 2)]


def test_the_f_measure_by_frequency_is_compare_mts(monkeypatch: pytest.MonkeyPatch) -> None:
    bucketers = pytest.importorskip("compare_mt.bucketers")
    seen = Counter(itertools.chain(*REFERENCE[:3]))
    bucketer = bucketers.FreqWordBucketer(freq_counts=seen, bucket_cutoffs=[1, 2, 4])
    told, *_ = bucketer.calc_statistics(REFERENCE, [HYPOTHESIS])
    monkeypatch.setattr(metrics, "FREQUENCIES", (0, 1, 3))
    found = by_frequency(HYPOTHESIS, REFERENCE, seen)
    assert [tuple(each[name] for name in ("words", "recall", "precision", "f1")) for each in found] == [
        (wanted, *map(pytest.approx, rest)) for _, wanted, _, *rest in told[0]
    ]


def test_the_interval_of_an_f_measure_holds_it() -> None:
    for each in by_frequency(HYPOTHESIS, REFERENCE, Counter(itertools.chain(*REFERENCE))):
        assert each["low"] <= each["f1"] <= each["high"]


def test_frequencies_no_word_has_are_left_out() -> None:
    found = by_frequency([["a"]], [["a"]], Counter({"a": 7}))
    assert [(each["from"], each["to"], each["f1"]) for each in found] == [(5, 9, 1.0)]
