"""Words: by frequency and by n-gram as compare-mt has them."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from regard.evaluation import words
from regard.evaluation.words import by_frequency, matching_ngrams, ngram_differences
from tests.evaluation.systems import lines, worse

REFERENCE = [line.split() for line in lines()]
HYPOTHESIS = [line.split() for line in worse(lines(), 0.3, 2)]
OTHER = [line.split() for line in worse(lines(), 0.3, 5)]


def test_the_f_measure_by_frequency_is_compare_mts(monkeypatch: pytest.MonkeyPatch) -> None:
    bucketers = pytest.importorskip("compare_mt.bucketers")
    seen = Counter(itertools.chain(*REFERENCE[:3]))
    bucketer = bucketers.FreqWordBucketer(freq_counts=seen, bucket_cutoffs=[1, 2, 4])
    told, *_ = bucketer.calc_statistics(REFERENCE, [HYPOTHESIS])
    monkeypatch.setattr(words, "FREQUENCIES", (1, 2, 4))
    found = by_frequency(HYPOTHESIS, REFERENCE, seen)
    assert [(each.words, each.recall, each.precision, each.f1) for each in found] == [
        (wanted, *map(pytest.approx, rest)) for _, wanted, _, *rest in told[0]
    ]


def test_the_interval_of_an_f_measure_holds_it() -> None:
    for each in by_frequency(HYPOTHESIS, REFERENCE, Counter(itertools.chain(*REFERENCE))):
        assert each.low <= each.f1 <= each.high


def test_frequencies_no_word_has_are_left_out() -> None:
    found = by_frequency([["a"]], [["a"]], Counter({"a": 7}))
    assert [(each.first, each.last, each.f1) for each in found] == [(5, 9, 1.0)]


def test_matched_n_grams_and_their_salience_are_compare_mts() -> None:
    ngram_utils, stat_utils = (
        pytest.importorskip("compare_mt.ngram_utils"),
        pytest.importorskip("compare_mt.stat_utils"),
    )
    told = [ngram_utils.compare_ngrams(REFERENCE, system)[1] for system in (HYPOTHESIS, OTHER)]
    found = [matching_ngrams(system, REFERENCE) for system in (HYPOTHESIS, OTHER)]
    assert found == told
    shares = stat_utils.extract_salient_features(*told)
    for each in ngram_differences(*found):
        assert each.share == pytest.approx(shares[tuple(each.words.split())])


def test_an_n_gram_is_right_as_often_as_one_of_several_references_has_it() -> None:
    found = matching_ngrams([["a", "a", "b", "c"]], [["a", "b"]], [["a", "a", "d"]])
    assert found == Counter({("a",): 2, ("b",): 1, ("a", "a"): 1, ("a", "b"): 1})


def test_n_grams_that_only_one_has_come_first_and_shared_ones_not_at_all() -> None:
    here, there = Counter({("a",): 5, ("b",): 3, ("c",): 2}), Counter({("a",): 5, ("b",): 1})
    assert [each.words for each in ngram_differences(here, there)] == ["c", "b"]
