"""Cleaning: every rule leaves out what it says, counts it and shows it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.config import CLEANING, TextConfig
from regard.text.cleaning import KEPT, VERDICT, Report, Rules, Seen, clean, judge_lengths, usual_scripts

GOOD = [
    ("the first house", "la première maison"),
    ("a second house", "une deuxième maison"),
    ("a third house", "une troisième maison"),
    ("a last house", "une dernière maison"),
]


def rules(*names: str, longest: int = 256, ratio: float = 4.0) -> Rules:
    return Rules(names=names or CLEANING, longest=longest, ratio=ratio)


def left_out(pair: tuple[str, str], limits: Rules) -> dict[str, int]:
    report = Report(limits)
    list(clean([*GOOD, pair], limits, report))
    return report.left_out


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
    assert left_out(pair, rules(longest=5)) == {rule: 1}


@pytest.mark.parametrize(
    "pair",
    [("1984", "1984"), ("the same house", "la première maison"), ("the first house", "la même maison"), ("…", "...")],
)
def test_an_honest_pair_stays(pair: tuple[str, str]) -> None:
    assert left_out(pair, rules(longest=5)) == {}


@pytest.mark.parametrize("rule", ["empty", "long", "control", "copy", "script", "duplicate"])
def test_a_rule_that_is_not_asked_for_leaves_nothing_out(rule: str) -> None:
    bad = {"empty": ("", "x"), "long": ("a b c d e f", "y"), "control": ("a\x01", "z"), "copy": ("same", "same")}
    pair = (bad | {"script": ("привет", "salut"), "duplicate": GOOD[0]})[rule]
    assert rule not in left_out(pair, rules(*(name for name in CLEANING if name != rule), longest=5))


def test_kana_and_han_are_both_japanese() -> None:
    examples = [("a house", f"これは家{number}です") for number in range(8)] + [("Tokyo", "東京")]
    report = Report(rules())
    list(clean(examples, rules(), report))
    assert "script" not in report.left_out


def test_a_side_of_many_scripts_has_no_usual_one() -> None:
    assert usual_scripts([["привет", "hello", "да", "yes"]]) == ("",)


@pytest.mark.parametrize(("lengths", "verdict"), [((5, 5), KEPT), ((6, 5), VERDICT["long"]), ((1, 5), KEPT)])
def test_long_counts_tokens(lengths: tuple[int, int], verdict: int) -> None:
    verdicts = np.zeros(1, np.uint8)
    judge_lengths(verdicts, [np.array([length]) for length in lengths], rules(longest=5, ratio=3.0))
    assert verdicts[0] == verdict


@pytest.mark.parametrize(("lengths", "wrong"), [((1, 9), False), ((1, 10), True), ((30, 10), False), ((10, 37), True)])
def test_ratio_forgives_short_pairs(lengths: tuple[int, int], wrong: bool) -> None:
    verdicts = np.zeros(1, np.uint8)
    judge_lengths(verdicts, [np.array([length]) for length in lengths], rules(ratio=3.0))
    assert (verdicts[0] == VERDICT["ratio"]) == wrong


def test_the_report_is_one_line() -> None:
    report = Report(rules(), read=1_000_000, left_out={"empty": 18, "long": 312})
    assert str(report) == "read 1,000,000 pairs; left out 312 longer than 256 and 18 empty"


def test_three_counts_are_joined_by_commas() -> None:
    report = Report(rules(), read=9, left_out={"empty": 3, "copy": 2, "duplicate": 1})
    assert str(report) == "read 9 pairs; left out 3 empty, 2 copied from the source and 1 repeated"


def test_a_clean_corpus_says_so() -> None:
    assert str(Report(rules(), read=3)) == "read 3 pairs; left out none"


def test_the_record_shows_a_few_examples_of_each_rule() -> None:
    report = Report(rules())
    list(clean([("", f"line {number}") for number in range(9)], rules(), report))
    assert json.loads(json.dumps(report.record()))["examples"]["empty"] == [
        ["", f"line {number}"] for number in range(3)
    ]


def test_kept_is_what_comes_out() -> None:
    report = Report(rules())
    kept = list(clean([*GOOD, *GOOD, ("", "x")], rules(), report))
    assert report.kept == len(kept) == len(GOOD)


def test_single_texts_are_cleaned_too() -> None:
    report = Report(rules(), noun="texts")
    assert list(clean([("one",), ("",), ("one",)], rules(), report, sides=1)) == [("one",)]


def test_rules_follow_the_config_in_their_order() -> None:
    assert Rules.of(TextConfig(cleaning="duplicate empty", max_length=9)) == rules("empty", "duplicate", longest=9)


def test_running_text_keeps_its_long_and_repeated_lines() -> None:
    assert Rules.of(TextConfig(), sides=1).names == ("empty", "control", "script")


@given(st.lists(st.lists(st.integers(0, 30), max_size=20), max_size=12))
def test_a_digest_is_new_once(chunks: list[list[int]]) -> None:
    seen = Seen()
    found = [seen.add(np.array(chunk, np.uint64)).tolist() for chunk in chunks]
    known: set[int] = set()
    expected = []
    for chunk in chunks:
        expected.append([not (value in known or known.add(value)) for value in chunk])  # type: ignore[func-returns-value]
    assert found == expected


def test_digests_take_eight_bytes_each() -> None:
    seen = Seen()
    for start in range(0, 100_000, 1000):
        seen.add(np.arange(start, start + 1000, dtype=np.uint64))
    assert sum(run.nbytes for run in seen._runs) == 8 * 100_000
