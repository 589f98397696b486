"""Drawing: heat maps and training curves as PNG and SVG files, for papers, by matplotlib."""

from __future__ import annotations

import io
import logging
import math
import re
import statistics
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import ConfigError, InputError
from regard.folders import write_file
from regard.inspection import inspector, pages
from regard.inspection.attribution import MEANINGS, UNITS, Map, explain
from regard.inspection.charts import log_ticks
from regard.inspection.trace import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".html", ".png", ".svg")
CELL = 0.26  # inches; labels of 9 points at 45 degrees do not overlap
MAX_LABEL = 30  # letters of a word
NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
SOFT = "#6b7078"
NEGATIVE, ZERO, POSITIVE = "#b3372f", "#ffffff", "#0b4a8a"  # as on the pages
# Okabe and Ito's colours, which colour-blind readers can tell apart.
BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"
FONT = "DejaVu Sans"  # comes with matplotlib
# Fonts that an SVG requests from the viewer, which also shapes Arabic and Hebrew.
SVG_FONTS = ["Noto Sans", "Segoe UI", "Helvetica Neue", "Arial Unicode MS", "Arial", "sans-serif"]
STYLE = {
    "font.size": 9,
    "text.parse_math": False,  # a dollar sign starts no formula
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.edgecolor": "#b9b9b9",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#e6e6e6",
    "legend.frameon": False,
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
    force: bool = False,
    **options: Any,
) -> None:
    """Write a figure of the first map, or a page with all maps and further options of `inspector.contents`.

    By default the map is that of the attention.
    """
    path = Path(path)
    check_suffix(path)
    if not maps:
        trace = trace.split_punctuation()
    choice: dict[str, Any] = {"layer": layer, "head": head, "title": title or trace.family}
    if path.suffix.lower() == ".html":
        return write_file(path, inspector.page(trace, maps, **choice, **options), force=force)
    shown = maps[0] if maps else explain(trace, "attention")
    return write_file(path, heat_map(shown, path.suffix[1:].lower(), **choice), force=force)


def check_suffix(path: Path, also: Sequence[str] = ()) -> None:
    """Raise a ConfigError unless the name ends in one of SUFFIXES or `also`."""
    if path.suffix.lower() not in (*SUFFIXES, *also):
        *others, last = (*SUFFIXES, *also)
        raise ConfigError(f"{path} must end in {', '.join(others)} or {last}")


# Files.


@contextmanager
def _figure(size: tuple[float, float], fonts: Sequence[str] = (FONT,), **options: Any) -> Iterator[Figure]:
    """An empty figure in the style of all figures, without a window or display."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with rc_context({**STYLE, "font.family": list(fonts)}):  # type: ignore[dict-item]
        figure = Figure(figsize=size, **options)
        FigureCanvasAgg(figure)
        yield figure


def _file(figure: Figure, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
    figure.savefig(buffer, format=kind, dpi=200, metadata=metadata, **options)
    return buffer.getvalue()


# Heat maps.


def heat_map(shown: Map, kind: str, *, layer: int | None = None, head: int | None = None, title: str) -> bytes:
    """A map as a "png" or "svg" file."""
    from matplotlib import font_manager
    from matplotlib.colors import LinearSegmentedColormap

    where, values = shown.picture(layer, head)
    if not values.numel():
        raise InputError("there are no words to draw")
    rows, columns = values.shape
    heading = " · ".join(filter(None, [title, shown.method, shown.kind if shown.kind != "cross" else "", where]))
    meaning = MEANINGS[shown.method]
    letters = max(56, int(CELL * columns * 16))  # about so many fit into a line above or below the map
    fonts = SVG_FONTS
    if kind == "png":
        fonts = sorted({font.name for font in font_manager.fontManager.ttflist if font.name.startswith("Noto Sans")})
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # fonts of an SVG need not be installed here
    with (
        _figure((CELL * columns, CELL * rows), [FONT, *fonts]) as figure,
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        axes = figure.add_axes((0, 0, 1, 1))  # labels, title and colour bar lie outside; the file has room for them
        colours = [NEGATIVE, ZERO, POSITIVE] if shown.signed else [ZERO, POSITIVE]
        # cells instead of an image: an SVG stays sharp at any size
        mesh = axes.pcolormesh(
            values.numpy(),
            cmap=LinearSegmentedColormap.from_list("attention", colours),
            vmin=-shown.high if shown.signed else 0.0,
            vmax=shown.high,
            edgecolors="white",
            linewidth=0.4,
        )
        axes.set(xlim=(0, columns), ylim=(rows, 0))
        axes.spines[:].set_visible(True)
        axes.xaxis.tick_top()
        axes.tick_params(length=0, pad=4)
        slanted: dict[str, Any] = {"rotation": 45, "rotation_mode": "anchor", "ha": "left"}
        for axis, side, style in ((axes.xaxis, shown.columns, slanted), (axes.yaxis, shown.rows, {})):
            words = (_writable(word) for word in pages.words(side)["words"])
            labels = [word if len(word) <= MAX_LABEL else word[: MAX_LABEL - 1] + "…" for word in words]
            axis.set_ticks([index + 0.5 for index in range(len(labels))], labels, **style)
            for label, special in zip(axis.get_ticklabels(), side.special, strict=True):
                if special:
                    label.set_color(SOFT)
        bar = figure.colorbar(mesh, cax=figure.add_axes((1 + 0.1 / (CELL * columns), 0, 0.1 / (CELL * columns), 1)))
        bar.ax.tick_params(labelsize=7.5, color=SOFT, labelcolor=SOFT)
        bar.set_label(UNITS[shown.method], fontsize=7.5, color=SOFT)
        axes.set_title(textwrap.fill(_writable(heading), letters), fontsize=9.5, fontweight="bold", pad=12)
        meaning = textwrap.fill(meaning[0].upper() + meaning[1:], int(letters * 1.3))
        axes.set_xlabel(meaning, fontsize=7, color=SOFT, loc="left", labelpad=7)
        axes.xaxis.set_label_position("bottom")
        data = _file(figure, kind, bbox_inches="tight", pad_inches=0.1)
    if kind == "png" and any("missing from font" in str(warning.message) for warning in caught):
        message = "no installed font has some of the letters: install fonts-noto (Debian, Ubuntu), or write an .svg"
        warnings.warn(message, stacklevel=3)  # once, instead of one for each letter
    return data


def _writable(text: str) -> str:
    """A text without characters that XML does not allow."""
    return NOT_XML.sub("\ufffd", text)


# Training curves.

Line = dict[str, Any]
Points = tuple[list[int], list[float]]
METRICS = {"bleu": "BLEU", "chrf": "chrF"}


def draw_training(journal: Sequence[Line], *, title: str) -> dict[str, bytes]:
    """`training.png` and `training.svg`: the losses, and the score if there is one."""
    training, valid = series(journal, "update", "loss"), series(journal, "validation", "valid_loss")
    metric = next((name for name in METRICS if series(journal, "validation", name)[0]), "")
    with _figure((9, 3.6), layout="constrained") as figure:
        losses, *score_axes = figure.subplots(1, 2 if metric else 1, squeeze=False)[0]
        losses.plot(*training, color=BLUE, alpha=0.25, linewidth=0.7)
        losses.plot(*smooth(training), color=BLUE, label="training")
        losses.plot(*valid, color=ORANGE, marker="o", markersize=4, label="validation")
        losses.set_title("loss, nats per token")
        if values := [value for value in (*training[1], *valid[1]) if value > 0]:
            low, high = min(values) / 1.1, max(values) * 1.1
            ticks = log_ticks(low, high)
            losses.set(yscale="log", ylim=(low, high))
            losses.set_yticks(ticks, [f"{value:g}" for value in ticks])
            losses.minorticks_off()
            losses.legend(loc="upper right")
        for axes in score_axes:
            updates, scores = series(journal, "validation", metric)
            axes.plot(updates, scores, color=GREEN, marker="o", markersize=4)
            axes.set(title=f"{METRICS[metric]} on the validation set", ylim=(0, 1.15 * max(scores) or 1.0))
        last = max([1, *(line.get("update", 0) for line in journal)])
        for axes in figure.axes:
            axes.set(xlabel="update", axisbelow=True, xlim=(0, last * 1.02))
            axes.grid(visible=True)
            axes.locator_params(axis="x", integer=True, nbins=6)
            axes.xaxis.set_major_formatter("{x:,.0f}")
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
        return {f"training.{kind}": _file(figure, kind) for kind in ("png", "svg")}


def series(journal: Iterable[Line], kind: str, name: str) -> Points:
    """The updates and values of a field of the journal, without NaN and infinity."""
    values = {line["update"]: line[name] for line in journal if line.get("kind") == kind and name in line}
    kept = {update: value for update, value in sorted(values.items()) if math.isfinite(value)}
    return list(kept), list(kept.values())


def smooth(points: Points, count: int = 100) -> Points:
    """Medians of neighbouring points; about `count` are left."""
    updates, values = points
    size = max(1, len(values) // count)
    starts = range(0, len(values), size)
    middle = [updates[min(start + size // 2, len(updates) - 1)] for start in starts]
    return middle, [statistics.median(values[start : start + size]) for start in starts]
