"""Cleaning: every rule leaves out what it names, counts it and shows examples."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.config import CLEANING, TextConfig
from regard.text.cleaning import (
    KEPT,
    RULE_NUMBERS,
    Chunk,
    Cleaning,
    CleaningReport,
    DigestSet,
    chunks,
    find_duplicates,
    judge_lengths,
    judge_texts,
    usual_scripts,
)

GOOD = [
    ("the first house", "la première maison"),
    ("a second house", "une deuxième maison"),
    ("a third house", "une troisième maison"),
    ("a last house", "une dernière maison"),
]


def rules(*names: str, max_length: int = 256, max_length_ratio: float = 4.0) -> Cleaning:
    return Cleaning(rules=names or CLEANING, max_length=max_length, max_length_ratio=max_length_ratio)


def clean(examples: list[tuple[str, ...]], cleaning: Cleaning) -> CleaningReport:
    """The report of the rules that need no tokens."""
    report, seen = CleaningReport(cleaning), DigestSet()
    for columns in chunks(examples, len(examples[0])):
        chunk = Chunk.of(columns, usual_scripts(columns))
        reasons = find_duplicates(judge_texts(chunk, cleaning), chunk.digests, cleaning, seen)
        report.add(reasons, columns)
    return report


@pytest.mark.parametrize(
    ("rule", "pair"),
    [
        ("empty", ("", "quelque chose")),
        ("empty", ("something", " \u00a0\t")),
        ("long", ("a b c d e f", "trop long")),
        ("long", ("x" * 200, "sans blancs")),
        ("control", ("a\x00b", "un octet nul")),
        ("control", ("half a character \ud83d", "la moitié")),
        ("copy", ("Not translated", "not  translated")),
        ("script", ("привет мир", "bonjour le monde")),
        ("script", ("hello world", "привет мир")),
        ("duplicate", GOOD[0]),
        ("duplicate", ("The  first house ", "La première maison")),
    ],
)
def test_a_pair_is_left_out_by_its_rule(rule: str, pair: tuple[str, str]) -> None:
    assert clean([*GOOD, pair], rules(max_length=5)).left_out == {rule: 1}


@pytest.mark.parametrize(
    "pair",
    [("1984", "1984"), ("the same house", "la première maison"), ("the first house", "la même maison"), ("…", "...")],
)
def test_a_good_pair_is_kept(pair: tuple[str, str]) -> None:
    assert clean([*GOOD, pair], rules(max_length=5)).left_out == {}


@pytest.mark.parametrize("rule", ["empty", "long", "control", "copy", "script", "duplicate"])
def test_a_rule_that_is_switched_off_leaves_nothing_out(rule: str) -> None:
    bad = {"empty": ("", "x"), "long": ("a b c d e f", "y"), "control": ("a\x01", "z"), "copy": ("same", "same")}
    pair = (bad | {"script": ("привет", "salut"), "duplicate": GOOD[0]})[rule]
    others = rules(*(name for name in CLEANING if name != rule), max_length=5)
    assert rule not in clean([*GOOD, pair], others).left_out


def test_kana_and_han_are_both_japanese() -> None:
    examples = [("a house", f"これは家{number}です") for number in range(8)] + [("Tokyo", "東京")]
    assert "script" not in clean(examples, rules()).left_out


def test_a_column_of_many_scripts_has_no_usual_one() -> None:
    assert usual_scripts([["привет", "hello", "да", "yes"]]) == ((),)


def two_scripts(count: int) -> list[tuple[str, ...]]:
    """100 pairs in Latin and Cyrillic letters, and some in Latin letters alone."""
    main = [(f"house {n}", f"кућа {n}") for n in range(100)]
    return main + [(f"tree {n}", f"drvo {n}") for n in range(count)]


def test_a_second_script_that_is_common_is_kept() -> None:
    assert clean(two_scripts(20), rules()).left_out == {}


def test_a_second_script_that_is_rare_is_left_out() -> None:
    assert clean(two_scripts(5), rules()).left_out == {"script": 5}


def test_swapped_pairs_are_left_out_where_both_sides_have_both_scripts() -> None:
    swapped = [(f"птица {n}", f"bird {n}") for n in range(30)]
    assert clean(two_scripts(30) + swapped, rules()).left_out == {"script": 30}


@pytest.mark.parametrize(("lengths", "reason"), [((5, 5), KEPT), ((6, 5), RULE_NUMBERS["long"]), ((1, 5), KEPT)])
def test_long_counts_tokens(lengths: tuple[int, int], reason: int) -> None:
    limits = rules(max_length=5, max_length_ratio=3.0)
    assert judge_lengths([np.array([length]) for length in lengths], limits).tolist() == [reason]


@pytest.mark.parametrize(("lengths", "wrong"), [((1, 9), False), ((1, 10), True), ((30, 10), False), ((10, 37), True)])
def test_the_length_ratio_is_lenient_with_short_pairs(lengths: tuple[int, int], wrong: bool) -> None:
    reasons = judge_lengths([np.array([length]) for length in lengths], rules(max_length_ratio=3.0))
    assert (reasons[0] == RULE_NUMBERS["ratio"]) == wrong


def test_the_report_is_one_line() -> None:
    report = CleaningReport(rules(), read=1_000_000, left_out=Counter(empty=18, long=312))
    assert str(report) == "read 1,000,000 pairs; left out 312 longer than 256 and 18 empty"


def test_three_counts_are_joined_by_commas() -> None:
    report = CleaningReport(rules(), read=9, left_out=Counter(empty=3, copy=2, duplicate=1))
    assert str(report) == "read 9 pairs; left out 3 empty, 2 copied from the source and 1 repeated"


def test_the_report_of_a_clean_corpus_says_none() -> None:
    assert str(CleaningReport(rules(), read=3)) == "read 3 pairs; left out none"


def test_the_report_shows_a_few_examples_of_each_rule() -> None:
    report = clean([("", f"line {number}") for number in range(9)], rules())
    assert json.loads(json.dumps(report.to_dict()))["examples"]["empty"] == [
        ["", f"line {number}"] for number in range(3)
    ]


def test_the_report_counts_what_is_kept() -> None:
    assert clean([*GOOD, *GOOD, ("", "x")], rules()).kept == len(GOOD)


def test_single_texts_are_cleaned_too() -> None:
    assert clean([("one",), ("",), ("one",)], rules()).left_out == {"empty": 1, "duplicate": 1}


def test_rules_follow_the_config_in_their_order() -> None:
    config = TextConfig(cleaning="duplicate empty", max_length=9)
    assert Cleaning.from_config(config) == rules("empty", "duplicate", max_length=9)


def test_a_single_text_keeps_its_long_repeated_and_foreign_lines() -> None:
    assert Cleaning.from_config(TextConfig(), single=True).rules == ("empty", "control")


def test_a_single_text_is_cleaned_by_the_rules_that_are_set() -> None:
    assert Cleaning.from_config(TextConfig(cleaning="duplicate"), single=True).rules == ("duplicate",)


def test_continuous_text_is_not_cleaned() -> None:
    assert Cleaning.from_config(TextConfig(continuous=True)).rules == ()


@given(st.lists(st.lists(st.integers(0, 30), max_size=20), max_size=12))
def test_a_digest_is_new_once(chunks: list[list[int]]) -> None:
    seen = DigestSet()
    new = [seen.add(np.array(chunk, np.uint64)).tolist() for chunk in chunks]
    known: set[int] = set()
    expected = []
    for chunk in chunks:
        expected.append([not (value in known or known.add(value)) for value in chunk])  # type: ignore[func-returns-value]
    assert new == expected


def test_digests_take_eight_bytes_each() -> None:
    seen = DigestSet()
    for start in range(0, 100_000, 1000):
        seen.add(np.arange(start, start + 1000, dtype=np.uint64))
    assert sum(array.nbytes for array in seen._arrays) == 8 * 100_000
