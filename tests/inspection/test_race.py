"""The page of the race: what is claimed, in words and drawings, and whether it holds."""

from __future__ import annotations

import re
from typing import Any

import pytest

from regard.inspection import race
from regard.inspection.attribution import attention
from tests.inspection.traces import made

LOOK = attention(made("one two", "un deux", [[1.0, 0.0, 0.0]] * 3), "cross")
LOOKS = {"none": "le chat", "dot": LOOK}


def racer(name: str, parts: dict[str, int], curve: list[tuple[float, float]]) -> dict[str, Any]:
    buckets = [
        {"from": 1, "to": 10, "sentences": 50, "bleu": 40.0, "low": 39.0, "high": 41.0, "small": False},
        {"from": 11, "to": None, "sentences": 50, "bleu": 20.0, "low": 19.0, "high": 21.0, "small": False},
    ]
    parameters = {"total": sum(parts.values()), "parts": parts}
    facts = {"bleu": 30.0, "signature": "nrefs:1|tok:13a", "seeds": 1, "parameters": parameters, "curve": curve}
    return {"name": name, "by_length": buckets, **facts}


def verdict(name: str, *, holds: bool) -> dict[str, Any]:
    return {"name": name, "claim": "moves", "first": 40.0, "last": 20.0, "lost": 0.5, "holds": holds}


def drawn(curve: list[tuple[float, float]] = [(2.0, 5.0), (9.0, 1.0)], **more: Any) -> str:  # noqa: B006
    racers = [racer("none", {"a": 9, "c": 1}, curve), racer("dot", {"a": 9, "b": 1, "c": 1}, curve)]
    verdicts = [verdict("none", holds=True), verdict("dot", holds=False)]
    found = {"racers": racers, "verdicts": verdicts, "updates": 7, "device": "cpu", "sentences": 100, **more}
    return race.page(found, LOOKS)


def test_each_claim_stands_over_the_models_it_is_about() -> None:
    without, looking = re.findall(r"<tbody><tr><th class=.claim.*?</tbody>", drawn())
    assert "Without attention" in without
    assert re.findall(r"none|dot", without) == ["none"]
    assert re.findall(r"none|dot", looking) == ["dot"]


def test_a_verdict_says_whether_it_holds_and_by_how_much() -> None:
    page = drawn()
    assert re.findall(r"✓ holds|✗ fails", page) == ["✓ holds", "✗ fails"]
    assert "40.0 → 20.0</td><td>−50%" in page


def test_without_verdicts_nothing_is_claimed() -> None:
    assert "claim" not in drawn(verdicts=[]).partition("<main")[2]


def test_every_racer_is_named_at_the_end_of_its_line() -> None:
    names = re.findall(r'<g class="label s(\d)">.*?<text[^>]*>(.*?)</text>', drawn())
    assert sorted(names) == [("0", "none")] * 2 + [("1", "dot")] * 2


def test_time_is_told_in_minutes_where_it_takes_some() -> None:
    assert "seconds of training" in drawn()
    assert "minutes of training" in drawn([(100.0, 5.0), (1000.0, 0.1)])


def test_a_race_without_validations_says_so() -> None:
    assert "No validation was made." in drawn([])


def test_parts_stand_in_the_order_of_the_model_that_has_most() -> None:
    page = drawn()
    assert re.findall(r'<tr><th scope="row">([abc])</th>', page) == ["a", "b", "c"]
    assert '<td class="soft">–</td>' in page


@pytest.mark.parametrize(
    ("low", "high", "marks"),
    [
        (0, 9.0, [0, 2, 4, 6, 8]),
        (0, 15.9, [0, 5, 10, 15]),
        (0, 0.4, [0, 0.1, 0.2, 0.3, 0.4]),
        (0.9, 1.1, [0.9, 0.95, 1, 1.05, 1.1]),
    ],
)
def test_an_axis_has_round_numbers(low: float, high: float, marks: list[float]) -> None:
    assert list(race._round(low, high)) == pytest.approx(marks)


def test_a_logarithmic_axis_has_ones_twos_and_fives() -> None:
    assert race._decades(0.04, 2.5) == pytest.approx([0.05, 0.1, 0.2, 0.5, 1, 2])


def test_a_logarithmic_axis_between_them_has_round_numbers() -> None:
    assert race._decades(7.28, 8.77) == pytest.approx([7.5, 8, 8.5])


def test_a_model_that_looks_at_nothing_shows_what_it_writes() -> None:
    assert "le chat" in drawn()
