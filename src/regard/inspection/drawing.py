"""Drawing: a heat map of a trace as PNG or SVG for a paper, or as a page."""

from __future__ import annotations

import functools
import io
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import ConfigError, InputError
from regard.folders import write_file
from regard.inspection import inspector
from regard.inspection.attribution import MEANINGS, UNITS, Map, explain
from regard.inspection.quality import QualityWarning
from regard.inspection.trace import Trace
from regard.text.scripts import script_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

SUFFIXES = (".html", ".png", ".svg")
LARGE_CELL, SMALL_CELL = 0.32, 0.155  # inches: of few words, and of many
FEW_WORDS, MANY_WORDS = 14, 60  # along an axis, between which cells shrink
MAX_LABEL = 30  # letters of a word
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # characters that XML 1.0 does not allow
MAX_SLANTED = 40  # with more words, slanted labels would overlap: they are vertical
INK, SOFT = "#23262b", "#6b7078"
# even steps in lightness, so that a black-and-white print shows the same
POSITIVE = ("#ffffff", "#cfe1f2", "#7fb2d9", "#2f77b4", "#0b3c75", "#041d3d")
NEGATIVE = ("#ffffff", "#f8d6cd", "#ec9a86", "#c9503f", "#8a1f17", "#4d0b08")
FONT = "DejaVu Sans"  # comes with matplotlib
# Fonts that an SVG requests from the viewer, which also shapes Arabic and Hebrew.
SVG_FONTS = ["Noto Sans", "Segoe UI", "Helvetica Neue", "Arial Unicode MS", "Arial", "sans-serif"]
STYLE = {
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": "#b9b9b9",
    "axes.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "svg.fonttype": "none",  # keep text as text
    "svg.hashsalt": "regard",  # the same drawing is the same file
}


def draw(
    trace: Trace,
    path: str | Path,
    *,
    maps: Sequence[Map] = (),
    layer: int | None = None,
    head: int | None = None,
    title: str = "",
    warned: Sequence[QualityWarning] | None = None,
    force: bool = False,
) -> None:
    """Write a figure of the first map, or a page with all maps; by default they show attention.

    A script that no installed font covers gives a warning and is drawn as boxes.
    """
    path = Path(path)
    check_suffix(path)
    title = title or trace.family
    if path.suffix == ".html":
        page = inspector.page(trace, maps, title=title, layer=layer, head=head, warned=warned)
        return write_file(path, page, force=force)
    shown = maps[0] if maps else explain(trace, "attention")
    return write_file(path, picture(shown, path.suffix[1:], layer=layer, head=head, title=title), force=force)


def check_suffix(path: Path, also: Sequence[str] = ()) -> None:
    """Refuse names with another ending."""
    if path.suffix not in (*SUFFIXES, *also):
        *others, last = (*SUFFIXES, *also)
        raise ConfigError(f"{path} must end in {', '.join(others)} or {last}")


def picture(shown: Map, kind: str, *, layer: int | None = None, head: int | None = None, title: str) -> bytes:
    """A map as a "png" or "svg" file."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    where, values = shown.picture(layer, head)
    if not values.numel():
        raise InputError("there are no words to draw")
    heading = [title, shown.method, *([shown.kind] if shown.kind != "cross" else []), *([where] if where else [])]
    letters = [*shown.rows.words, *shown.columns.words, title]
    # An SVG is drawn with the fonts of its viewer.
    fonts, missing = covering_fonts(letters) if kind == "png" else ([FONT, *SVG_FONTS], [])
    for script in missing:
        warnings.warn(
            f"no installed font covers {script}: install fonts-noto (Debian, Ubuntu) or Noto Sans, or write an .svg",
            stacklevel=3,
        )
    with rc_context({**STYLE, "font.family": fonts}), _quiet():  # type: ignore[dict-item]
        figure = Figure(figsize=(4, 4), layout=ConstrainedLayoutEngine(h_pad=0.1))
        FigureCanvasAgg(figure)  # no window, no display
        axes = figure.add_subplot()
        _draw_cells(figure, axes, shown, values)
        _add_titles(figure, axes, _writable(" · ".join(heading)), MEANINGS[shown.method])
        return _figure_bytes(figure, kind)


# The drawing.


def _draw_cells(figure: Figure, axes: Axes, shown: Map, values: Tensor) -> None:
    rows, columns = values.shape
    side = _cell_size(max(rows, columns))
    size = min(9.0, side * 72 * 0.72)  # points: a label is no higher than its row
    high = float(values.abs().max()) or 1.0
    colours = _colours(NEGATIVE[::-1] + POSITIVE[1:] if shown.signed else POSITIVE)
    # cells instead of an image: an SVG stays sharp at any size
    mesh = axes.pcolormesh(values.numpy(), cmap=colours, vmin=-high if shown.signed else 0.0, vmax=high)
    axes.set(xlim=(0, columns), ylim=(rows, 0), aspect="equal")
    axes.set_xticks([index + 0.5 for index in range(columns)])
    axes.set_yticks([index + 0.5 for index in range(rows)])
    axes.xaxis.tick_top()
    upright = columns > MAX_SLANTED
    axes.set_xticklabels(
        _short(shown.columns.words), rotation=90 if upright else 45, rotation_mode="anchor", fontsize=size
    )
    axes.set_yticklabels(_short(shown.rows.words), fontsize=size)
    for label, special in _labels(axes, shown):
        label.set_parse_math(False)  # a dollar sign starts no formula
        label.set_color(SOFT if special else INK)
    for label in axes.get_xticklabels():
        label.set(ha="left", va="center" if upright else "baseline")
    axes.tick_params(length=0, pad=4)
    axes.set_xticks(range(1, columns), minor=True)
    axes.set_yticks(range(1, rows), minor=True)
    axes.tick_params(which="minor", length=0)
    axes.set_axisbelow(False)  # the grid hides the seams between cells
    axes.grid(which="minor", color="#ffffff", linewidth=0.5)
    bar = figure.colorbar(mesh, ax=axes, shrink=min(1.0, 2.2 / (rows * side)), aspect=14, pad=0.02, anchor=(0, 1))
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=7.5, length=2, color=SOFT, labelcolor=SOFT)
    bar.set_label(UNITS[shown.method], fontsize=7.5, color=SOFT)
    words = [max(map(len, _short(side.words))) for side in (shown.rows, shown.columns)]
    letter = size / 72 * 0.62  # inches, about
    figure.set_size_inches(side * columns + words[0] * letter + 1.35, side * rows + words[1] * letter + 0.95)


def _short(words: Sequence[str]) -> list[str]:
    return [_writable(word if len(word) <= MAX_LABEL else word[: MAX_LABEL - 1] + "…") for word in words]


def _writable(text: str) -> str:
    """A text without characters that XML does not allow."""
    return NOT_XML.sub("\ufffd", text)


def _cell_size(words: int) -> float:
    share = min(max((words - FEW_WORDS) / (MANY_WORDS - FEW_WORDS), 0.0), 1.0)
    return LARGE_CELL + share * (SMALL_CELL - LARGE_CELL)


def _colours(names: Sequence[str]) -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("attention", list(names))


def _labels(axes: Axes, shown: Map) -> Iterator[tuple[Any, bool]]:
    yield from zip(axes.get_xticklabels(), shown.columns.special, strict=True)
    yield from zip(axes.get_yticklabels(), shown.rows.special, strict=True)


def _add_titles(figure: Figure, axes: Axes, title: str, meaning: str) -> None:
    width = figure.get_size_inches()[0]
    figure.suptitle(_wrapped(title, width, 9.5), x=0.01, ha="left", fontsize=9.5, fontweight="bold", parse_math=False)
    axes.set_xlabel(
        _wrapped(meaning[0].upper() + meaning[1:], width - 1, 7),
        fontsize=7,
        color=SOFT,
        loc="left",
        labelpad=7,
        parse_math=False,
    )


def _wrapped(text: str, inches: float, points: float) -> str:
    import textwrap

    return "\n".join(textwrap.wrap(text, max(24, int(inches * 72 / (points * 0.56))), break_long_words=False))


def _figure_bytes(figure: Figure, kind: str) -> bytes:
    buffer = io.BytesIO()
    metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
    figure.savefig(buffer, format=kind, dpi=200, metadata=metadata, bbox_inches="tight", pad_inches=0.08)
    return buffer.getvalue()


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence matplotlib's warnings about missing glyphs; ours name the script."""
    import logging

    log = logging.getLogger("matplotlib.font_manager")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
            yield
    finally:
        log.setLevel(level)


# Fonts.


def covering_fonts(texts: Iterable[str]) -> tuple[list[str], list[str]]:
    """Installed fonts that together cover these texts, and the scripts that none covers."""
    from matplotlib import font_manager

    needed = {letter for text in texts for letter in text if not letter.isspace() and letter.isprintable()}
    fonts, missing = [FONT], needed - _letters(font_manager.findfont(FONT))
    if missing:
        entries = {entry.fname: entry for entry in font_manager.fontManager.ttflist if _upright(entry)}
        for file, entry in sorted(entries.items(), key=lambda item: ("Sans" not in item[1].name, item)):
            if covered := missing & _letters(file):
                fonts.append(entry.name)
                missing -= covered
            if not missing:
                break
    scripts = {script_of(letter) for letter in missing} - {""}
    return fonts, sorted(scripts or {f"U+{ord(letter):04X}" for letter in missing})


def _upright(entry: Any) -> bool:
    if entry.name.startswith("Last Resort"):  # it has a box for every character
        return False
    return bool(entry.style == "normal" and entry.weight in (400, "normal", "regular", "book"))


@functools.cache
def _letters(file: str) -> frozenset[str]:
    from matplotlib.ft2font import FT2Font

    try:
        return frozenset(map(chr, FT2Font(file).get_charmap()))
    except (RuntimeError, OSError):  # unreadable font files cover nothing
        return frozenset()
