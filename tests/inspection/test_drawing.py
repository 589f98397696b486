"""A drawing has the words of a trace along its axes, says what it shows, and is the same file every time."""

from __future__ import annotations

import io
import re
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from matplotlib.image import imread

from regard.errors import ConfigError, FolderError, InputError
from regard.inspection import attribution, drawing
from regard.inspection.trace import Trace
from tests.inspection.traces import made

ARABIC, DEVANAGARI = "اتفاق", "समझौता"


def drawn(source: str, target: str = "a b") -> Trace:
    rows, columns = len(target.split()) + 1, len(source.split()) + 1
    return made(source, target, torch.softmax(torch.randn(rows, columns), -1).tolist())


def svg(trace: Trace, **how: object) -> str:
    shown = attribution.explain(trace, "attention")
    return drawing.heat_map(shown, "svg", title="en-fr", **how).decode()  # type: ignore[arg-type]


def texts(written: str) -> list[str]:
    return [
        "".join(text.itertext()) for text in ElementTree.fromstring(written).iter("{http://www.w3.org/2000/svg}text")
    ]


def test_an_svg_has_its_words_as_text() -> None:
    found = texts(svg(drawn("the agreement", "l'accord $5 $6")))
    assert {"the", "agreement", "l'accord", "$5", "$6", "end"} <= set(found)


def test_an_svg_is_the_same_file_every_time() -> None:
    trace = drawn("the agreement")
    assert svg(trace) == svg(trace)
    assert "date" not in svg(trace).lower()


def test_an_svg_leaves_fonts_and_text_direction_to_its_viewer() -> None:
    written = svg(drawn(f"{ARABIC} {DEVANAGARI}"))
    assert {ARABIC, DEVANAGARI} <= set(texts(written))
    assert "Noto Sans" in written


def test_markup_in_words_is_escaped() -> None:
    assert "<script>alert(1)</script>" in texts(svg(drawn("<script>alert(1)</script>")))


def test_characters_that_xml_does_not_allow_are_replaced() -> None:
    shown = attribution.explain(drawn("bird\x01sees \ufffe"), "attention")
    found = texts(drawing.heat_map(shown, "svg", title="en\x02fr").decode())
    assert {"bird\ufffdsees", "\ufffd", "en\ufffdfr · attention"} <= set(found)


def test_the_title_says_model_method_layer_and_head() -> None:
    trace = made("a", "b", *[[[0.5, 0.5], [0.5, 0.5]]] * 3)
    assert "en-fr · attention · layer 2" in texts(svg(trace, layer=2))


def test_the_method_is_explained_below_the_map() -> None:
    assert any("not why it wrote" in text for text in texts(svg(drawn(" ".join("abcdefghijkl")))))


def test_the_labels_of_sixty_words_do_not_overlap() -> None:
    words = " ".join(f"word{number}" for number in range(59))
    slanted = re.findall(r'([\d.]+)px[^>]*transform="rotate\(-45 ([\d.]+)', svg(drawn(words, words)))
    places = sorted(float(across) for _, across in slanted)
    assert len(places) == 60
    distance = min(after - before for before, after in pairwise(places)) / 2**0.5  # between slanted lines
    assert distance > max(float(size) for size, _ in slanted)


def test_a_png_is_large_enough_to_read_sixty_words() -> None:
    words = " ".join(f"word{number}" for number in range(59))
    data = drawing.heat_map(attribution.explain(drawn(words, words), "attention"), "png", title="en-fr")
    height, width = imread(io.BytesIO(data)).shape[:2]
    assert min(height, width) >= 60 * 28  # pixels a row, at 200 to the inch


def test_letters_without_a_font_give_one_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib import font_manager

    kept = [font for font in font_manager.fontManager.ttflist if font.name == "DejaVu Sans"]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", kept)
    with pytest.warns(UserWarning, match="no installed font has some of the letters: install fonts-noto") as caught:
        drawing.draw(drawn(DEVANAGARI), tmp_path / "x.png")
    assert len(caught) == 1
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("name", "begin"), [("x.png", b"\x89PNG"), ("x.svg", b"<?xml"), ("x.html", b"<!doctype html>")]
)
def test_the_suffix_chooses_the_format(name: str, begin: bytes, tmp_path: Path) -> None:
    drawing.draw(drawn("the agreement"), tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(begin)


def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"must end in \.html, \.png or \.svg"):
        drawing.draw(drawn("the"), tmp_path / "x.pdf")


def test_files_are_not_overwritten_without_force(tmp_path: Path) -> None:
    drawing.draw(drawn("the"), tmp_path / "x.svg")
    with pytest.raises(FolderError, match=r"already exists: .* with --force \(in Python force=True\)"):
        drawing.draw(drawn("the"), tmp_path / "x.svg")
    drawing.draw(drawn("the"), tmp_path / "x.svg", force=True)


def test_a_trace_without_attention_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no attention to show"):
        drawing.draw(made("a", "b"), tmp_path / "x.png")
    assert not (tmp_path / "x.png").exists()


# Training curves.


def journal(updates: int, every: int, metric: str = "bleu") -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    for update in range(1, updates + 1):
        numbers = {"loss": 5 / update, "learning_rate": 1e-4 * update, "grad_norm": 1.0, "tokens": 100, "seconds": 0.1}
        lines.append({"kind": "update", "update": update, **numbers})
        if update % every == 0:
            lines.append({"kind": "validation", "update": update, "valid_loss": 2.0, metric: 30.0})
    return lines


@pytest.mark.slow
@pytest.mark.parametrize(
    "lines",
    [journal(40, 10), journal(10, 10), journal(3, 10, "none"), journal(1, 10), []],
    ids=["several validations", "one validation", "no validation", "one update", "nothing"],
)
def test_every_run_can_be_drawn(lines: list[dict[str, Any]]) -> None:
    files = drawing.draw_training(lines, title="a $run$ of_mine")
    assert int.from_bytes(files["training.png"][16:20], "big") > 1000  # a PNG begins with its width
    assert b"<svg" in files["training.svg"]


@pytest.mark.slow
def test_the_score_has_its_name() -> None:
    svg = drawing.draw_training(journal(40, 10), title="mine")["training.svg"].decode()
    assert "BLEU on the validation set" in svg


def test_a_repeated_update_counts_once_with_its_last_value() -> None:
    lines = [{"kind": "update", "update": number, "loss": loss} for number, loss in ((1, 5.0), (2, 4.0), (2, 3.0))]
    assert drawing.series(lines, "update", "loss") == ([1, 2], [5.0, 3.0])


def test_nan_is_not_drawn() -> None:
    lines = [{"kind": "update", "update": 1, "loss": float("nan")}, {"kind": "update", "update": 2, "loss": 1.0}]
    assert drawing.series(lines, "update", "loss") == ([2], [1.0])


def test_a_short_curve_is_not_smoothed() -> None:
    assert drawing.smooth(([1, 2, 3], [3.0, 1.0, 2.0])) == ([1, 2, 3], [3.0, 1.0, 2.0])
