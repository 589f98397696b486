"""The page of the race: what is claimed, in words and drawings, and whether it holds."""

from __future__ import annotations

import re
from typing import Any

import pytest

from regard.inspection import charts, race
from regard.inspection.attribution import attention
from tests.inspection.traces import made

MAP = attention(made("one two", "un deux", [[1.0, 0.0, 0.0]] * 3), "cross")
MAPS = {"none": "le chat", "dot": MAP}


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
    return race.page(found, MAPS)


def test_each_claim_is_above_its_models() -> None:
    without, looking = re.findall(r"<tbody><tr><th class=.claim.*?</tbody>", drawn())
    assert "Without attention" in without
    assert re.findall(r"none|dot", without) == ["none"]
    assert re.findall(r"none|dot", looking) == ["dot"]


def test_a_verdict_says_whether_it_holds_and_by_how_much() -> None:
    page = drawn()
    assert re.findall(r"✓ holds|✗ fails", page) == ["✓ holds", "✗ fails"]
    assert "40.0 → 20.0</td><td>−50%" in page


def test_without_verdicts_there_are_no_claims() -> None:
    assert "claim" not in drawn(verdicts=[]).partition("<main")[2]


def test_every_racer_is_named_in_the_legends() -> None:
    legends = re.findall(r'<ul class="legend">(.*?)</ul>', drawn())
    assert [re.findall(r"none|dot", legend) for legend in legends] == [["none", "dot"]] * 2


def test_long_times_are_shown_in_minutes() -> None:
    assert "seconds of training" in drawn()
    assert "minutes of training" in drawn([(100.0, 5.0), (1000.0, 0.1)])


def test_a_race_without_validations_says_so() -> None:
    assert "There was no validation." in drawn([])


def test_parts_are_in_the_order_of_the_model_with_the_most_parts() -> None:
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
    assert list(charts.round_ticks(low, high)) == pytest.approx(marks)


def test_a_logarithmic_axis_has_ones_twos_and_fives() -> None:
    assert charts.log_ticks(0.04, 2.5) == pytest.approx([0.05, 0.1, 0.2, 0.5, 1, 2])


def test_a_logarithmic_axis_between_them_has_round_numbers() -> None:
    assert charts.log_ticks(7.28, 8.77) == pytest.approx([7.5, 8, 8.5])


def test_a_model_without_attention_shows_its_translation() -> None:
    assert "le chat" in drawn()
