"""The page of a trace holds all of it in one file, works without a network, and by keyboard as by mouse."""

from __future__ import annotations

import base64
import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.decoding import Hypothesis
from regard.inspection import attribution, inspector, pages
from regard.inspection.trace import Alternative, Branch, Trace, trace
from regard.models import build
from regard.text.tokenizer import END, START, Tokenizers, train
from tests.decoding.small import shaken
from tests.inspection.browsing import Opened
from tests.inspection.traces import made
from tests.models.families import BERTS, GENERATORS

WICKED = '</script><img src="http://elsewhere.example/x.png" onerror="document.title=1">'


def full(words: int = 4, layers: int = 2, heads: int = 3, source: str = "") -> Trace:
    """A trace with everything a page can show."""
    source = source or " ".join(f"read{number}" for number in range(words))
    found = made(source, " ".join(f"wrote{number}" for number in range(words)))
    read_, wrote = len(found.source.ids), len(found.target.ids)
    sizes = {"encoder": (read_, read_), "decoder": (wrote, wrote), "cross": (wrote, read_)}
    tree = [[Branch(min(step, 1) - 1, number, f" wrote{step}", -0.1, True),
             Branch(min(step, 1) - 1, 3, " other", -2.0, step == 1),
             Branch(min(step, 1) - 1, 4, " lost", -9.0, False)]
            for step, number in enumerate(found.target.ids)]  # fmt: skip
    return dataclasses.replace(
        found,
        attention={kind: torch.randn(layers, heads, *size).softmax(-1) for kind, size in sizes.items()},
        alternatives=[[Alternative(9, " wrote", -0.2), Alternative(8, " else", -2.0)] for _ in found.target.ids],
        tree=tree,
    )


def data(shown: Trace, **how: Any) -> dict[str, Any]:
    return json.loads(json.dumps(inspector.contents(shown, **how), allow_nan=False))


def weights(shown: dict[str, Any]) -> torch.Tensor:
    """The values of a map, heads and their combination, with weights from 0 to 1."""
    return torch.from_numpy(np.frombuffer(base64.b64decode(shown["values"]), "<u2").astype(np.float32)) / 65535


# What is in the file.


def test_weights_are_exact_to_sixteen_bits() -> None:
    shown = full()
    found = next(each for each in data(shown)["maps"] if each["method"] == "attention" and each["kind"] == "cross")
    back = weights(found).reshape(2, 4, 5, 5)
    torch.testing.assert_close(back[:, :3], shown.by_word("cross"), atol=1e-5, rtol=0)
    torch.testing.assert_close(back[:, 3], shown.by_word("cross").mean(1), atol=1e-5, rtol=0)


def test_a_page_of_thirty_words_of_a_base_model_is_under_a_megabyte() -> None:
    shown = full(words=30, layers=6, heads=8)
    maps = attribution.explain_all(shown)
    values = [each._replace(method="value") for each in maps if each.method == "attention"]
    one = {"values": maps[0].joined[:1, None], "joined": maps[0].joined[:1]}
    signed = [maps[0]._replace(method=method, **one) for method in attribution.SIGNED]
    assert len(inspector.page(shown, [*maps, *values, *signed], title="base").encode()) < 1_000_000


def test_no_word_can_end_the_script_element() -> None:
    assert inspector.embed(full(source=WICKED)).count("<") == 4
    assert WICKED not in inspector.page(full(source=WICKED), title=WICKED)


def test_a_page_loads_nothing_from_elsewhere() -> None:
    page = inspector.page(full(), title="x")
    assert "default-src 'none'" in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")


def test_the_chosen_branches_of_the_beam_are_marked() -> None:
    assert data(full())["chosen"] == [0, 0, 0, 0, 0]


def test_warnings_are_shown() -> None:
    shown = made("one two", "non non non non", [[0.5, 0.5, 0.0]] * 5)
    assert any("repeated" in message for message in data(shown)["warnings"])


def test_every_word_carries_its_language() -> None:
    found = {
        each["kind"]: each for each in data(full(), languages=("en", "fr"))["maps"] if each["method"] == "attention"
    }
    codes = {kind: (each["rows"]["language"], each["columns"]["language"]) for kind, each in found.items()}
    assert codes == {"cross": ("fr", "en"), "encoder": ("en", "en"), "decoder": ("fr", "fr")}


def doubtful(word: str, other: str, share: float) -> Trace:
    """A translation of one word beside another one that it could have been."""
    found = made("it", word, [[1.0, 0.0], [0.0, 1.0]], logs=[math.log(share), -0.01])
    options = [Alternative(10, word, math.log(share)), Alternative(11, other, math.log(1 - share))]
    return dataclasses.replace(found, alternatives=[options, []])


def test_the_summary_names_the_least_certain_word_and_its_alternative() -> None:
    assert (
        inspector.summary(doubtful("signé", "signée", 0.6))
        == "It hesitated between “signé”\u00a060\u00a0% and “signée”\u00a040\u00a0%."
    )


def test_the_summary_of_a_sure_model_says_so() -> None:
    assert inspector.summary(doubtful("signé", "signée", 0.96)).startswith("It was sure of every word")


def test_the_summary_names_no_alternative_that_is_much_less_probable() -> None:
    assert inspector.summary(doubtful("verte", "vertes", 0.89)).startswith("It hesitated")
    found = dataclasses.replace(
        doubtful("verte", "vertes", 0.86), alternatives=[[Alternative(11, "vertes", math.log(0.01))], []]
    )
    assert inspector.summary(found) == "The least probable word is “verte” with 86\u00a0%."


def test_an_alternative_to_a_part_of_a_word_is_shown_as_a_whole_word() -> None:
    found = made("it", "signée", [[1.0, 0.0]] * 3, pieces=2, logs=[-0.01, math.log(0.4), -0.01])
    found = dataclasses.replace(found, target=found.target._replace(subwords=["sign", "ée", "</s>"]),
                                alternatives=[[], [Alternative(99, "é", math.log(0.6))], []])  # fmt: skip
    assert inspector.summary(found) == "It hesitated between “signée”\u00a040\u00a0% and “signé”\u00a060\u00a0%."


def test_a_source_word_without_attention_is_uncovered() -> None:
    found = made("a b c", "x y z", [[0.9, 0.1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    assert inspector.uncovered_words(found) == [1]


# In a browser.


def open_full(browser: Any, path: Path, **how: Any) -> Opened:
    return Opened(browser, path / "x.html", inspector.page(full(), title="en-fr"), **how)


def data_of(opened: Opened) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(opened.page.locator(".inspector > script").text_content())
    return found


def family(name: str) -> tuple[Any, Trace]:
    tokenizer = train(["the old cat sat on the mat"] * 3, kind="words", vocabulary=50)
    config = dataclasses.replace((GENERATORS | BERTS)[name], vocabulary=tokenizer.size, target_vocabulary=0)
    model = shaken(build(config), 0.1).float()
    ids = tokenizer.encode("the old cat sat")
    if config.family == "bert":
        return model, trace(model, [[*ids, END]], [], Tokenizers(tokenizer, tokenizer), hidden=True)[0]
    told = Hypothesis(tokenizer.encode("cat sat"), 0.0, 0.0, True, [])
    source = [START, *ids] if config.family == "gpt" else [*ids, END]
    return model, trace(model, [source], [told], Tokenizers(tokenizer, tokenizer), hidden=True)[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["transformer", "rnn-additive-input-gru", "rnn-none-input-gru", "gpt", "bert", "bert-bare"]
)
def test_every_family_has_the_same_page(name: str, browser: Any, tmp_path: Path) -> None:
    model, shown = family(name)
    maps = attribution.explain_all(shown, model)
    with Opened(browser, tmp_path / "x.html", inspector.page(shown, maps, title=name)) as opened:
        assert opened.count("table.map tbody tr") == len(maps[0].rows.words)
        for place in range(opened.count("[data-control=method] option")):
            opened.page.locator("[data-control=method]").select_option(index=place)
            opened.page.locator(".sentence button").first.hover()
            opened.page.locator("table.map tbody td").first.click()


@pytest.mark.slow
def test_the_page_has_all_sections(browser: Any, tmp_path: Path) -> None:
    with open_full(browser, tmp_path) as opened:
        for name in ("sentence", "attention", "beam"):
            assert opened.page.get_by_role("region", name=name, exact=True).is_visible()
        assert opened.count(".heads canvas") == 6


@pytest.mark.slow
@pytest.mark.parametrize("side", ["row", "column"])
def test_a_word_under_the_pointer_shades_the_other_side_by_weight(side: str, browser: Any, tmp_path: Path) -> None:
    with open_full(browser, tmp_path) as opened:
        opened.page.locator(f".sentence [data-{side}='1']").hover()
        other = "column" if side == "row" else "row"
        shades = [float(value) for value in opened.page.locator(f".sentence [data-{other}]").evaluate_all(
            "all => all.map(one => one.style.getPropertyValue('--v'))")]  # fmt: skip
        found = data_of(opened)
        cells = weights(found["maps"][0]).reshape(2, 4, 5, 5)[found["layer"], 3]
        expected = cells[1] if side == "row" else cells[:, 1]
        assert shades == pytest.approx(expected.tolist(), abs=0.001)
        assert opened.count(".links path") == sum(value >= 0.05 for value in shades)
        assert opened.page.get_by_role("tooltip").is_visible()


@pytest.mark.slow
def test_a_selection_survives_another_head_and_a_reload(browser: Any, tmp_path: Path) -> None:
    with open_full(browser, tmp_path) as opened:
        opened.page.locator("[data-row='2']").click()
        opened.page.get_by_role("button", name="layer 0, head 1", exact=True).click()
        for _ in range(2):
            assert opened.page.locator("[data-row='2']").get_attribute("aria-pressed") == "true"
            pressed = opened.page.locator(".heads [aria-pressed=true]")
            assert pressed.get_attribute("aria-label") == "layer 0, head 1"
            assert opened.page.locator("[data-control=head]").input_value() == "1"
            opened.page.reload()


@pytest.mark.slow
def test_playing_shows_the_words_written_so_far(browser: Any, tmp_path: Path) -> None:
    with open_full(browser, tmp_path) as opened:
        steps = opened.page.get_by_role("slider", name="step")
        steps.focus()
        opened.page.keyboard.press("Home")
        opened.page.keyboard.press("ArrowRight")
        assert opened.count("[data-row].unwritten") == 3
        assert opened.page.locator(".sheet h2").inner_text() == "wrote1"


@pytest.mark.slow
def test_a_cell_that_is_chosen_while_the_steps_play_stays_chosen(browser: Any, tmp_path: Path) -> None:
    with open_full(browser, tmp_path) as opened:
        opened.page.get_by_role("button", name="play step").click()
        opened.page.locator("[data-control=method]").select_option("rollout")
        opened.page.get_by_role("button", name="play step").click()
        opened.page.get_by_role("gridcell").nth(1).click()
        opened.page.wait_for_timeout(1500)
        assert opened.page.url.endswith("row=0&column=1")
        assert opened.page.get_by_role("button", name="play step").is_visible()


@pytest.mark.slow
def test_arrows_move_through_the_words(browser: Any, tmp_path: Path) -> None:
    with open_full(browser, tmp_path) as opened:
        opened.page.locator(".sentence").last.locator("[tabindex='0']").focus()
        opened.page.keyboard.press("Home")
        opened.page.keyboard.press("ArrowRight")
        opened.page.keyboard.press("ArrowUp")
        assert opened.page.locator(":focus").get_attribute("data-column") == "0"
        assert opened.page.locator("[aria-live]").inner_text().startswith("read0: ")


@pytest.mark.slow
def test_the_beam_shows_whole_words(browser: Any, tmp_path: Path) -> None:
    tree = [[Branch(-1, 1, " sign", -0.1, True)], [Branch(0, 2, "é", -0.5, True), Branch(0, 3, "ée", -1.0, True)],
            [Branch(0, END, "</s>", -0.6, True), Branch(1, END, "</s>", -1.1, True)]]  # fmt: skip
    page = inspector.page(dataclasses.replace(full(), tree=tree), title="x")
    with Opened(browser, tmp_path / "x.html", page) as opened:
        shown = opened.page.locator("[aria-label='beam search'] text").evaluate_all(
            "all => all.map(one => one.firstChild.data)"
        )
        assert sorted(shown) == ["end", "end", "signé", "signée"]


@pytest.mark.slow
def test_tokens_of_other_words_are_one_alternative(browser: Any, tmp_path: Path) -> None:
    found = made("it", "signée", [[1.0, 0.0]] * 3, pieces=2, logs=[-0.01, math.log(0.4), -0.01])
    others = [("é", 0.2), (" en", 0.15), (" le", 0.1), ("</s>", 0.05)]
    options = [Alternative(90 + number, piece, math.log(share)) for number, (piece, share) in enumerate(others)]
    target = found.target._replace(subwords=["sign", "ée", "</s>"])
    page = inspector.page(dataclasses.replace(found, target=target, alternatives=[[], options, []]), title="x")
    with Opened(browser, tmp_path / "x.html", page) as opened:
        shown = opened.page.locator(".sheet h3:text('instead') + ul > li").all_inner_texts()
        assert [line.split() for line in shown] == [["sign", "30", "%"], ["signé", "20", "%"]]


@pytest.mark.slow
def test_a_beam_word_that_may_end_or_go_on_is_drawn_once_for_each(browser: Any, tmp_path: Path) -> None:
    tree = [[Branch(-1, 1, " sign", -0.1, True)], [Branch(0, 2, "é", -0.5, True), Branch(0, 3, " en", -1.0, True)],
            [Branch(0, END, "</s>", -0.6, True), Branch(1, END, "</s>", -1.1, True)]]  # fmt: skip
    page = inspector.page(dataclasses.replace(full(), tree=tree), title="x")
    with Opened(browser, tmp_path / "x.html", page) as opened:
        shown = opened.page.locator("[aria-label='beam search'] text").evaluate_all(
            "all => all.map(one => one.firstChild.data)"
        )
        assert sorted(shown) == ["en", "end", "end", "sign", "signé"]


@pytest.mark.slow
def test_the_map_of_a_long_sentence_fits_a_printed_page(browser: Any, tmp_path: Path) -> None:
    with Opened(browser, tmp_path / "x.html", inspector.page(full(words=60), title="en-fr")) as opened:
        opened.page.set_viewport_size({"width": 794, "height": 1123})
        opened.page.emulate_media(media="print")
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= 794


@pytest.mark.slow
def test_the_selection_and_the_heads_are_told_to_a_screen_reader(browser: Any, tmp_path: Path) -> None:
    with open_full(browser, tmp_path) as opened:
        opened.page.locator("[data-row='1']").click()
        opened.page.get_by_role("button", name="layer 0, head 1").click()
        snapshot = opened.page.locator(".rg").aria_snapshot()
        assert '- button "wrote1" [pressed]' in snapshot
        assert '- button "layer 0, head 1" [pressed]' in snapshot
        assert '- button "layer 0, head 0"\n' in snapshot
        assert '- grid "heat map"' in snapshot


@pytest.mark.slow
def test_every_cell_of_the_heatmap_can_be_read_as_a_table(browser: Any, tmp_path: Path) -> None:
    with open_full(browser, tmp_path) as opened:
        told = opened.page.get_by_role("gridcell").all_text_contents()
        found = data_of(opened)
        cells = weights(found["maps"][0]).reshape(2, 4, -1)[found["layer"], 3].tolist()
        assert [float(value) for value in told] == pytest.approx(cells, abs=0.011)


@pytest.mark.slow
def test_colours_follow_the_system_and_the_button(browser: Any, tmp_path: Path) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    with open_full(browser, tmp_path, color_scheme="dark") as opened:
        dark = opened.page.evaluate(paper)
        opened.page.locator("[data-control=theme]").click()
        assert opened.page.evaluate(paper) == dark
        opened.page.locator("[data-control=theme]").click()
        light = opened.page.evaluate(paper)
    with open_full(browser, tmp_path, color_scheme="light") as opened:
        assert opened.page.evaluate(paper) == light != dark


@pytest.mark.slow
def test_the_map_of_a_long_sentence_scrolls_to_the_selected_word(browser: Any, tmp_path: Path) -> None:
    with Opened(browser, tmp_path / "x.html", inspector.page(full(words=60), title="en-fr")) as opened:
        opened.page.locator("[data-row='50']").click()
        header = opened.page.locator("table.map tbody th").nth(50)
        box, shown = opened.page.locator(".slide").first.bounding_box(), header.bounding_box()
        assert box is not None
        assert shown is not None
        assert box["y"] < shown["y"] < box["y"] + box["height"]


@pytest.mark.slow
def test_the_page_fits_a_phone(browser: Any, tmp_path: Path) -> None:
    with open_full(browser, tmp_path, viewport={"width": 360, "height": 740}) as opened:
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.mark.slow
def test_markup_in_a_sentence_is_shown_as_text(browser: Any, tmp_path: Path) -> None:
    page = inspector.page(full(source=WICKED), title=WICKED)
    with Opened(browser, tmp_path / "x.html", page) as opened:
        assert opened.count("img") == 0
        assert WICKED.split()[1] in opened.page.locator(".sentence").first.inner_text()
        assert WICKED in opened.page.locator("header").inner_text()


@pytest.mark.slow
def test_a_page_can_have_two_traces(browser: Any, tmp_path: Path) -> None:
    page = pages.page("two", [inspector.embed(full())] * 2, kind="attention")
    with Opened(browser, tmp_path / "x.html", page) as opened:
        assert opened.count("table.map") == 2
        assert (
            opened.page.evaluate(
                "(all => all.length - new Set(all).size)([...document.querySelectorAll('[id]')].map(e => e.id))"
            )
            == 0
        )
