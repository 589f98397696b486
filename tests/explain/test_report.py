"""The report: one page that needs nothing else, with no point that has no interval."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest
import torch

from regard.evaluation.compare import compare
from regard.evaluation.evaluate import evaluate
from regard.explain.report import Output, Row, comparison_page, evaluation_page
from regard.explain.signals import Warned
from tests.evaluation.systems import lines, worse
from tests.explain.traces import made

REFERENCE = lines(60, longest=24)
HYPOTHESIS = worse(REFERENCE, 0.3, 2)
WEIGHTS = torch.eye(4).tolist()


def row(source: str = "the green house", text: str = "la maison verte", **more: object) -> Row:
    trace = made(source, text, WEIGHTS)
    return Row(
        7, "worst", source, ["la <verte> maison"], [Output("translation", text, {"chrf": 50.0}, trace=trace, **more)]
    )


@pytest.fixture(scope="module")
def facts() -> dict:
    return evaluate(HYPOTHESIS, [REFERENCE], sources=REFERENCE).as_dict()


class Tags(HTMLParser):
    """Whether every element is closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in ("meta", "br", "wbr", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_loads_nothing(facts: dict) -> None:
    page = evaluation_page("a & b", facts, [row()], "so many")
    parser = Tags()
    parser.feed(page)
    assert parser.open == []
    assert not re.search(r"""(?:src|href)=|url\(|@import|https?://(?!www\.w3\.org)""", page)
    assert "<h1>a &amp; b</h1>" in page


def test_what_is_in_the_texts_stays_text(facts: dict) -> None:
    page = evaluation_page("x", facts, [row("the <script> </script>", "la </script> verte")], "y")
    assert "la </script> verte" not in page
    assert "&lt;verte&gt;" in page


def test_every_point_of_a_chart_has_its_interval(facts: dict) -> None:
    page = evaluation_page("x", facts, [], "y")
    points = re.findall(r"<g class=.*?</g>", page)
    assert len(points) == len(facts["by_length"]) + len(facts["by_frequency"])
    assert all("<path" in point and "<circle" in point for point in points)


def test_a_bucket_so_small_that_it_has_no_interval_is_not_drawn(facts: dict) -> None:
    one = {"from": 61, "to": None, "sentences": 1, "bleu": 40.0, "low": 40.0, "high": 40.0, "small": True}
    page = evaluation_page("x", {**facts, "by_length": [one]}, [], "y")
    assert ">too few</text>" in page
    assert 'aria-label="61+, 1 sentence: too few to say"' in page


def test_a_small_bucket_is_grey(facts: dict) -> None:
    few = {"from": 1, "to": 9, "sentences": 4, "bleu": 40.0, "low": 30.0, "high": 50.0, "small": True}
    page = evaluation_page("x", {**facts, "by_length": [few], "by_frequency": []}, [], "y")
    assert re.findall(r'<g class="([^"]*)"', page) == ["few"]


def test_a_sentence_opens_its_trace(facts: dict) -> None:
    page = evaluation_page("x", facts, [row(warnings=[Warned("length", "too short", [])])], "y")
    (data,) = re.findall(r'<details class="trace">.*?<script type="application/json">(.*?)</script>', page, re.S)
    trace = json.loads(data)
    assert trace["source"]["text"] == "the green house"
    assert trace["maps"][0]["kind"] == "cross"
    assert "length: too short" in page


def test_without_traces_the_page_has_no_inspector(facts: dict) -> None:
    plain = row()._replace(outputs=[Output("translation", "la maison", {"chrf": 1.0})])
    assert "regardInspect =" not in evaluation_page("x", facts, [plain], "y")
    assert "function regardInspect" not in evaluation_page("x", facts, [plain], "y")


def test_words_that_are_not_in_the_reference_are_marked(facts: dict) -> None:
    page = evaluation_page("x", facts, [row()], "y")
    assert '<mark class="odd">verte</mark>' in page
    assert '<mark class="missed">&lt;verte&gt;</mark>' in page


def test_fifty_long_traces_stay_below_three_megabytes(facts: dict) -> None:
    words = " ".join(["word"] * 99)
    trace = made(words, words, *torch.rand(6, 100, 100).softmax(-1).tolist())
    rows = [row()._replace(outputs=[Output("translation", words, {"chrf": 1.0}, trace=trace)])] * 50
    assert len(evaluation_page("x", facts, rows, "y").encode()) < 3_000_000


@pytest.mark.slow
def test_a_comparison_has_a_series_and_a_list_of_n_grams_for_each_system() -> None:
    found = compare({"one": HYPOTHESIS, "two": worse(REFERENCE, 0.1, 4)}, REFERENCE, ends=[12])
    page = comparison_page("x", found, [row()._replace(why="better")], "y")
    assert len(re.findall(r"<g class=", page)) == 2 * len(found["by_length"])
    assert "two has, one lacks" in page
    assert "one has, two lacks" in page
