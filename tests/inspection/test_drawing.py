"""A drawing has the words of a trace along its axes, says what it shows, and is the same file every time."""

from __future__ import annotations

import io
import re
from itertools import pairwise
from pathlib import Path
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
    return drawing.picture(shown, "svg", title="en-fr", **how).decode()  # type: ignore[arg-type]


def texts(written: str) -> list[str]:
    return [
        "".join(text.itertext()) for text in ElementTree.fromstring(written).iter("{http://www.w3.org/2000/svg}text")
    ]


def test_an_svg_has_its_words_as_text() -> None:
    found = texts(svg(drawn("the agreement", "l'accord $5 $6")))
    assert {"the", "agreement", "l'accord", "$5", "$6", "</s>"} <= set(found)


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
    found = texts(drawing.picture(shown, "svg", title="en\x02fr").decode())
    assert {"bird\ufffdsees", "\ufffd", "en\ufffdfr · attention"} <= set(found)


def test_the_title_says_model_method_layer_and_head() -> None:
    trace = made("a", "b", *[[[0.5, 0.5], [0.5, 0.5]]] * 3)
    assert "en-fr · attention · layer 2" in texts(svg(trace, layer=2))


def test_the_method_is_explained_below_the_map() -> None:
    assert any("not why it wrote" in text for text in texts(svg(drawn(" ".join("abcdefghijkl")))))


def test_the_labels_of_sixty_words_do_not_overlap() -> None:
    words = " ".join(f"word{number}" for number in range(59))
    upright = re.findall(r'([\d.]+)px[^>]*transform="([^"]*rotate\(-90[^"]*)"', svg(drawn(words, words)))
    numbers = [[float(number) for number in re.findall(r"-?[\d.]+", turn)] for _, turn in upright]
    places = sorted(across for first, second, *_ in numbers for across in [second if first == -90 else first])[:60]
    assert len(places) == 60
    assert min(after - before for before, after in pairwise(places)) > max(float(size) for size, _ in upright)


def test_a_png_is_large_enough_to_read_sixty_words() -> None:
    words = " ".join(f"word{number}" for number in range(59))
    data = drawing.picture(attribution.explain(drawn(words, words), "attention"), "png", title="en-fr")
    height, width = imread(io.BytesIO(data)).shape[:2]
    assert min(height, width) >= 60 * 28  # pixels a row, at 200 to the inch


def test_a_script_without_a_font_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib import font_manager

    monkeypatch.setattr(font_manager.fontManager, "ttflist", [])
    monkeypatch.setattr(font_manager, "findfont", lambda *_, **__: str(Path(font_manager.__file__).parent
                        / "mpl-data/fonts/ttf/DejaVuSans.ttf"))  # fmt: skip
    assert drawing.covering_fonts([f"{DEVANAGARI} x"]) == (["DejaVu Sans"], ["Devanagari"])


def test_a_missing_font_gives_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "covering_fonts", lambda _: (["DejaVu Sans"], ["Devanagari"]))
    with pytest.warns(UserWarning, match="no installed font covers Devanagari: install fonts-noto"):
        drawing.draw(drawn(DEVANAGARI), tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def test_no_other_font_is_needed_for_letters_of_the_first() -> None:
    assert drawing.covering_fonts(["été", ARABIC]) == (["DejaVu Sans"], [])


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
    with pytest.raises(FolderError, match="already exists"):
        drawing.draw(drawn("the"), tmp_path / "x.svg")
    drawing.draw(drawn("the"), tmp_path / "x.svg", force=True)


def test_a_trace_without_attention_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no attention to show"):
        drawing.draw(made("a", "b"), tmp_path / "x.png")
    assert not (tmp_path / "x.png").exists()
