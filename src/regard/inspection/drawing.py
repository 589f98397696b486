"""Drawings of a trace: words along both axes, one square for each two, as PNG or SVG for a paper, or as a page."""

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
SQUARE, SMALLEST = 0.32, 0.155  # inches a side: of a few words, and of very many
ROOMY, FULL = 14, 60  # words along an axis at which squares begin to shrink, and are smallest
LONGEST = 30  # letters of a word that are drawn
UNWRITABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # what XML 1.0 cannot hold
SLANTED = 40  # words above which slanted labels would run into each other: they stand upright
INK, SOFT = "#23262b", "#6b7078"
# even in lightness from paper to ink, so that a print without colours says the same
ABOVE = ("#ffffff", "#cfe1f2", "#7fb2d9", "#2f77b4", "#0b3c75", "#041d3d")
BELOW = ("#ffffff", "#f8d6cd", "#ec9a86", "#c9503f", "#8a1f17", "#4d0b08")
FONT = "DejaVu Sans"  # comes with matplotlib
# What an SVG asks its reader's machine for; the reader also joins and turns the letters of Arabic and Hebrew.
ELSEWHERE = ["Noto Sans", "Segoe UI", "Helvetica Neue", "Arial Unicode MS", "Arial", "sans-serif"]
STYLE = {
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": "#b9b9b9",
    "axes.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "svg.fonttype": "none",  # text stays text
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
    """Write one picture, of the first map, or a page with all of them; without maps, attention.

    Scripts that no font here covers are warned of, and drawn as boxes.
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
    """A file is written as its name ends."""
    if path.suffix not in (*SUFFIXES, *also):
        *others, last = (*SUFFIXES, *also)
        raise ConfigError(f"{path} must end in {', '.join(others)} or {last}")


def picture(shown: Map, kind: str, *, layer: int | None = None, head: int | None = None, title: str) -> bytes:
    """A map as the bytes of a "png" or "svg" file."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    where, values = shown.picture(layer, head)
    if not values.numel():
        raise InputError("there are no words to draw")
    said = [title, shown.method, *([shown.kind] if shown.kind != "cross" else []), *([where] if where else [])]
    letters = [*shown.rows.words, *shown.columns.words, title]
    # An SVG is read where other fonts are: what is missing here is no loss there.
    fonts, missing = covering(letters) if kind == "png" else ([FONT, *ELSEWHERE], [])
    for script in missing:
        warnings.warn(
            f"no font here covers {script}: install fonts-noto (Debian, Ubuntu) or Noto Sans, or write an .svg",
            stacklevel=3,
        )
    with rc_context({**STYLE, "font.family": fonts}), _quiet():  # type: ignore[dict-item]
        figure = Figure(figsize=(4, 4), layout=ConstrainedLayoutEngine(h_pad=0.1))
        FigureCanvasAgg(figure)  # no window, no display
        axes = figure.add_subplot()
        _squares(figure, axes, shown, values)
        _head(figure, axes, _writable(" · ".join(said)), MEANINGS[shown.method])
        return _file(figure, kind)


# The drawing.


def _squares(figure: Figure, axes: Axes, shown: Map, values: Tensor) -> None:
    rows, columns = values.shape
    side = _side(max(rows, columns))
    size = min(9.0, side * 72 * 0.72)  # points: a label is no higher than its row
    high = float(values.abs().max()) or 1.0
    colours = _colours(BELOW[::-1] + ABOVE[1:] if shown.signed else ABOVE)
    # squares and no image: an SVG stays sharp at any size
    mesh = axes.pcolormesh(values.numpy(), cmap=colours, vmin=-high if shown.signed else 0.0, vmax=high)
    axes.set(xlim=(0, columns), ylim=(rows, 0), aspect="equal")
    axes.set_xticks([place + 0.5 for place in range(columns)])
    axes.set_yticks([place + 0.5 for place in range(rows)])
    axes.xaxis.tick_top()
    upright = columns > SLANTED
    axes.set_xticklabels(
        _short(shown.columns.words), rotation=90 if upright else 45, rotation_mode="anchor", fontsize=size
    )
    axes.set_yticklabels(_short(shown.rows.words), fontsize=size)
    for label, special in _labels(axes, shown):
        label.set_parse_math(False)  # a price in dollars is no formula
        label.set_color(SOFT if special else INK)
    for label in axes.get_xticklabels():
        label.set(ha="left", va="center" if upright else "baseline")
    axes.tick_params(length=0, pad=4)
    axes.set_xticks(range(1, columns), minor=True)
    axes.set_yticks(range(1, rows), minor=True)
    axes.tick_params(which="minor", length=0)
    axes.set_axisbelow(False)  # the grid hides the seams between squares
    axes.grid(which="minor", color="#ffffff", linewidth=0.5)
    bar = figure.colorbar(mesh, ax=axes, shrink=min(1.0, 2.2 / (rows * side)), aspect=14, pad=0.02, anchor=(0, 1))
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=7.5, length=2, color=SOFT, labelcolor=SOFT)
    bar.set_label(UNITS[shown.method], fontsize=7.5, color=SOFT)
    words = [max(map(len, _short(side.words))) for side in (shown.rows, shown.columns)]
    letter = size / 72 * 0.62  # inches, about
    figure.set_size_inches(side * columns + words[0] * letter + 1.35, side * rows + words[1] * letter + 0.95)


def _short(words: Sequence[str]) -> list[str]:
    return [_writable(word if len(word) <= LONGEST else word[: LONGEST - 1] + "…") for word in words]


def _writable(text: str) -> str:
    """A text that an SVG can hold."""
    return UNWRITABLE.sub("\ufffd", text)


def _side(words: int) -> float:
    share = min(max((words - ROOMY) / (FULL - ROOMY), 0.0), 1.0)
    return SQUARE + share * (SMALLEST - SQUARE)


def _colours(names: Sequence[str]) -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("looks", list(names))


def _labels(axes: Axes, shown: Map) -> Iterator[tuple[Any, bool]]:
    yield from zip(axes.get_xticklabels(), shown.columns.special, strict=True)
    yield from zip(axes.get_yticklabels(), shown.rows.special, strict=True)


def _head(figure: Figure, axes: Axes, title: str, meaning: str) -> None:
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


def _file(figure: Figure, kind: str) -> bytes:
    written = io.BytesIO()
    metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
    figure.savefig(written, format=kind, dpi=200, metadata=metadata, bbox_inches="tight", pad_inches=0.08)
    return written.getvalue()


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the library's own words on every missing letter and font: ours name the script."""
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


def covering(texts: Iterable[str]) -> tuple[list[str], list[str]]:
    """Fonts of this machine that together have the letters of these texts, and the scripts that none has."""
    from matplotlib import font_manager

    wanted = {letter for text in texts for letter in text if not letter.isspace() and letter.isprintable()}
    own = font_manager.findfont(FONT)
    fonts, left = [FONT], wanted - _letters(own)
    if left:
        entries = {entry.fname: entry for entry in font_manager.fontManager.ttflist if _upright(entry)}
        for file, entry in sorted(entries.items(), key=lambda item: ("Sans" not in item[1].name, item)):
            if found := left & _letters(file):
                fonts.append(entry.name)
                left -= found
            if not left:
                break
    scripts = {script_of(letter) for letter in left} - {""}
    return fonts, sorted(scripts or {f"U+{ord(letter):04X}" for letter in left})


def _upright(entry: Any) -> bool:
    if entry.name.startswith("Last Resort"):  # has a box for everything
        return False
    return bool(entry.style == "normal" and entry.weight in (400, "normal", "regular", "book"))


@functools.cache
def _letters(file: str) -> frozenset[str]:
    from matplotlib.ft2font import FT2Font

    try:
        return frozenset(map(chr, FT2Font(file).get_charmap()))
    except (RuntimeError, OSError):  # a font that cannot be read covers nothing
        return frozenset()
