"""The report: one page that needs nothing else, with no point that has no interval."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.evaluation.compare import compare_translations
from regard.evaluation.evaluate import score_translations
from regard.evaluation.pages import (
    Row,
    Sentence,
    comparison_headline,
    comparison_parts,
    evaluation_parts,
    page,
)
from regard.evaluation.systems import EvaluationSet
from regard.inspection.quality import QualityWarning
from tests.evaluation.systems import lines, translations, worse
from tests.inspection.browsing import Opened
from tests.inspection.traces import made

REFERENCE = lines(60, longest=24)
HYPOTHESIS = worse(REFERENCE, 0.3, 2)
WEIGHTS = torch.eye(4).tolist()


def row(source: str = "the green house", text: str = "la maison verte", *, trace: bool = True, **more: Any) -> Row:
    sentence = Sentence(7, source, ["la <verte> maison"], text, {"chrf": 50.0}, more.pop("warnings", []), **more)
    return Row("warned", [("translation", sentence, made(source, text, WEIGHTS) if trace else None)])


@pytest.fixture(scope="module")
def facts() -> dict:
    return score_translations(translations(HYPOTHESIS), EvaluationSet([REFERENCE], REFERENCE)).to_dict()


def evaluation_page(title: str, facts: dict, rows: list[Row], about: str) -> str:
    return page(title, about, evaluation_parts(facts), rows, "evaluation", ("en", "fr"))


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


def test_the_page_is_self_contained(facts: dict) -> None:
    html = evaluation_page("a & b", facts, [row()], "so many")
    parser = Tags()
    parser.feed(html)
    assert parser.open == []
    assert not re.search(r"""(?:src|href)=|url\(|@import|https?://(?!www\.w3\.org)""", html)
    assert "a &amp; b</h1>" in html


def test_markup_in_texts_is_escaped(facts: dict) -> None:
    html = evaluation_page("x", facts, [row("the <script> </script>", "la </script> verte")], "y")
    assert "la </script> verte" not in html
    assert "&lt;verte&gt;" in html


def test_every_point_of_a_chart_has_its_interval(facts: dict) -> None:
    html = evaluation_page("x", facts, [], "y")
    points = re.findall(r'<g class="point.*?</g>', html)
    assert not re.search(r'class="interval" d="[^"]*h', html)  # no caps, which would hide the shape of the point
    assert len(points) == len(facts["by_length"]) + sum(each["words"] > 0 for each in facts["by_frequency"])
    assert all('<path class="interval"' in point for point in points)


def test_a_small_bucket_is_hollow(facts: dict) -> None:
    few = {"from": 1, "to": 9, "sentences": 4, "bleu": 40.0, "low": 30.0, "high": 50.0, "small": True}
    many = {**few, "from": 10, "to": 19, "small": False}
    html = evaluation_page("x", {**facts, "by_length": [few, many], "by_frequency": []}, [], "y")
    assert re.findall(r'<g class="([^"]*)"', html) == ["point s0 few", "point s0"]


# Headlines.


def compared(*scores: float, p: float | None = 0.0001, differing: int = 90) -> dict:
    """The dict of a comparison of systems A, B, C."""
    systems = [{"name": name, "bleu": {"score": score}} for name, score in zip("ABC", scores, strict=False)]
    for system in systems[1:] if p is not None else []:
        system["bleu"]["p_randomisation"] = p
    against = [{"system": system["name"], "baseline": "A", "differing": differing} for system in systems[1:]]
    return {"systems": systems, "against": against}


@pytest.mark.parametrize(
    ("result", "headline"),
    [
        (compared(40, 48.6), "B beats A by 8.6 BLEU (p\u00a0<\u00a00.001)"),
        (compared(48.6, 40, p=0.012), "A beats B by 8.6 BLEU (p\u00a0=\u00a00.012)"),
        (compared(40, 40.2, p=0.31), "A and B do not differ significantly: 0.2 BLEU, p\u00a0=\u00a00.31"),
        (compared(40, 41, p=None, differing=1), "A and B translate 1 sentence differently, too few for a test"),
        (compared(40, 40, p=None, differing=0), "All translations of A and B are identical"),
        (compared(40, 41, 44), "C beats A by 4.0 BLEU (p\u00a0<\u00a00.001)"),
    ],
)
def test_the_headline_of_a_comparison_says_who_wins_by_how_much(result: dict, headline: str) -> None:
    assert comparison_headline(result) == headline


# Sentences.


def test_texts_name_their_languages(facts: dict) -> None:
    html = evaluation_page("x", facts, [row()], "y")
    assert '<p dir="auto" lang="en"><b lang="en">source</b>the green house</p>' in html
    assert len(re.findall('<p dir="auto" lang="fr">', html)) == 2


def many(number: int) -> list[Row]:
    """Rows whose chrF falls and whose length grows with the line."""
    sentences = [
        Sentence(line, f"source {line}", ["x " * line], "y", {"chrf": 100.0 - line}, [])
        for line in range(1, number + 1)
    ]
    return [Row("" if each.line % 2 else "warned", [("translation", each, None)]) for each in sentences]


def shown_lines(opened: Opened) -> list[int]:
    texts = opened.page.locator(".row:visible .where").all_inner_texts()
    return [int(text.split()[-1]) for text in texts]


@pytest.mark.slow
def test_sentences_are_sorted_and_searched_ten_at_a_time(facts: dict, browser: Any, tmp_path: Path) -> None:
    with Opened(browser, tmp_path / "x.html", evaluation_page("x", facts, many(25), "y")) as opened:
        assert shown_lines(opened) == list(range(25, 15, -1))
        opened.page.get_by_label("sort by").select_option("line")
        assert shown_lines(opened) == list(range(1, 11))
        opened.page.get_by_role("button", name="ten more").click()
        assert shown_lines(opened) == list(range(1, 21))
        opened.page.get_by_label("sort by").select_option("chrF, lowest first")
        opened.page.get_by_role("searchbox").fill("warned")
        assert shown_lines(opened) == list(range(24, 4, -2))
        opened.page.get_by_role("searchbox").fill("SOURCE 2")
        assert shown_lines(opened) == [25, 24, 23, 22, 21, 20, 2]
        assert opened.page.get_by_role("status").inner_text() == "7 of 7 shown"
        opened.page.reload()
        assert shown_lines(opened) == [25, 24, 23, 22, 21, 20, 2]


# Colours.


@pytest.mark.slow
def test_the_chosen_colours_are_remembered_and_paper_is_always_light(facts: dict, browser: Any, tmp_path: Path) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    with Opened(browser, tmp_path / "x.html", evaluation_page("x", facts, [], "y")) as opened:
        opened.page.get_by_role("button", name="colours: auto").click()
        assert opened.page.evaluate(paper) == "rgb(22, 24, 27)"
        opened.page.reload()
        assert opened.page.evaluate(paper) == "rgb(22, 24, 27)"
        opened.page.emulate_media(media="print")
        assert opened.page.evaluate(paper) == "rgb(255, 255, 255)"


@pytest.mark.slow
def test_a_point_shows_its_value_under_the_pointer(facts: dict, browser: Any, tmp_path: Path) -> None:
    with Opened(browser, tmp_path / "x.html", evaluation_page("x", facts, [], "y")) as opened:
        opened.page.locator(".point").first.hover()
        assert opened.page.locator(".hint-box").inner_text().startswith("BLEU ")


# Charts.


def test_the_axis_of_frequencies_names_the_file(facts: dict) -> None:
    html = evaluation_page("x", {**facts, "frequencies_from": "far/away/<train>.fr"}, [], "y")
    assert '<p class="across">frequency of a word in &lt;train&gt;.fr; below, the number of words</p>' in html


def test_a_sentence_opens_its_trace(facts: dict) -> None:
    html = evaluation_page("x", facts, [row(warnings=[QualityWarning("length", "too short", [])])], "y")
    (data,) = re.findall(r'<details class="trace">.*?<script type="application/json">(.*?)</script>', html, re.S)
    trace = json.loads(data)
    assert trace["source"]["text"] == "the green house"
    assert trace["maps"][0]["kind"] == "cross"
    assert "length: too short" in html


def test_without_traces_the_page_has_no_inspector(facts: dict) -> None:
    plain = row(trace=False)
    assert "regardInspect =" not in evaluation_page("x", facts, [plain], "y")
    assert "function regardInspect" not in evaluation_page("x", facts, [plain], "y")


def test_words_that_are_not_in_the_reference_are_marked(facts: dict) -> None:
    html = evaluation_page("x", facts, [row()], "y")
    assert '<mark class="odd">verte</mark>' in html
    assert '<mark class="missed">&lt;verte&gt;</mark>' in html


def test_fifty_long_traces_stay_below_three_megabytes(facts: dict) -> None:
    words = " ".join(["word"] * 99)
    trace = made(words, words, *torch.rand(6, 100, 100).softmax(-1).tolist())
    rows = [Row("", [("translation", row(words, words).outputs[0][1], trace)])] * 50
    assert len(evaluation_page("x", facts, rows, "y").encode()) < 3_000_000


@pytest.mark.slow
def test_a_comparison_has_a_series_for_each_system_and_counts_better_sentences() -> None:
    found = compare_translations(
        {"one": translations(HYPOTHESIS), "two": translations(worse(REFERENCE, 0.1, 4))}, EvaluationSet([REFERENCE])
    ).to_dict()
    html = page("x", "y", comparison_parts(found), [row()._replace(kind="better")], "comparison")
    assert len(re.findall(r'<g class="point', html)) == 2 * len(found["by_length"])
    assert "two against one: chrF higher in " in html


def test_a_badge_says_who_is_better_than_whom(facts: dict) -> None:
    outputs = [(name, row().outputs[0][1], None) for name in ("new", "<old>")]
    html = evaluation_page("x", facts, [Row("better", outputs)], "y")
    assert "new better than &lt;old&gt;</span>" in html


@pytest.mark.slow
def test_an_opened_trace_keeps_its_style(facts: dict, browser: Any, tmp_path: Path) -> None:
    html = evaluation_page("x", facts, [row()], "y")
    with Opened(browser, tmp_path / "x.html", html, viewport={"width": 1280, "height": 900}) as opened:
        opened.page.locator("details.trace summary").click()
        cell = opened.page.locator("table.map tbody td").first.bounding_box()
        assert cell["width"] == pytest.approx(cell["height"], abs=1)
        assert opened.count(".rg h1") == 0


@pytest.mark.slow
def test_a_phone_is_wide_enough_for_a_report(facts: dict, browser: Any, tmp_path: Path) -> None:
    html = evaluation_page("x", facts, [row()], "y")
    with Opened(browser, tmp_path / "x.html", html, viewport={"width": 360, "height": 740}) as opened:
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.mark.slow
def test_nothing_under_a_chart_is_cut_off_on_a_small_phone(facts: dict, browser: Any, tmp_path: Path) -> None:
    html = evaluation_page("x", {**facts, "frequencies_from": f"{'long' * 30}.fr"}, [], "y")
    with Opened(browser, tmp_path / "x.html", html, viewport={"width": 320, "height": 740}) as opened:
        captions = opened.page.locator(".across").all()
        assert len(captions) == 2
        for below in captions:
            assert below.evaluate("element => element.scrollWidth <= element.clientWidth")
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= 320
