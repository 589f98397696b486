"""Curves: the loss, metric, learning rate and speed of a training run, drawn from its journal."""

from __future__ import annotations

import io
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Line = dict[str, Any]
Points = tuple[list[int], list[float]]

# Okabe and Ito's colours, which colour-blind readers can tell apart.
BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#AA4499", "#777777"
METRICS = {"bleu": "BLEU", "chrf": "chrF"}
SMOOTH_POINTS = 100  # of a smoothed curve, about
MIN_LOG_RATIO = 20  # of the highest to the lowest loss, for a logarithmic scale
STYLE = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#999999",
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.5,
    "lines.solid_capstyle": "round",
    "svg.fonttype": "none",
    "svg.hashsalt": "regard",  # makes the file reproducible
}


def draw(journal: Sequence[Line], *, best: int, title: str) -> dict[str, bytes]:
    """`training.png` and `training.svg`; `best` is the update whose weights were kept."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with rc_context(STYLE):  # type: ignore[arg-type]
        figure = Figure(figsize=(9, 5.6), layout="constrained")
        FigureCanvasAgg(figure)  # no window, no display
        _panels(figure, journal, best)
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold", parse_math=False)
        return {f"training.{kind}": _file(figure, kind) for kind in ("png", "svg")}


def series(journal: Iterable[Line], kind: str, name: str) -> Points:
    """The updates and values of a field of the journal, without NaN and infinity."""
    values = {line["update"]: line[name] for line in journal if line.get("kind") == kind and name in line}
    kept = {update: value for update, value in sorted(values.items()) if math.isfinite(value)}
    return list(kept), list(kept.values())


def smooth(points: Points) -> Points:
    """Medians of neighbouring points."""
    updates, values = points
    size = max(1, len(values) // SMOOTH_POINTS)
    starts = range(0, len(values), size)
    middle = [updates[min(start + size // 2, len(updates) - 1)] for start in starts]
    return middle, [statistics.median(values[start : start + size]) for start in starts]


def _panels(figure: Figure, journal: Sequence[Line], best: int) -> None:
    metric = next((name for name in METRICS if series(journal, "validation", name)[0]), None)
    grid = figure.add_gridspec(2, 2, height_ratios=(1.5, 1))
    losses = figure.add_subplot(grid[0, 0] if metric else grid[0, :])
    _losses(losses, journal, best)
    if metric:
        _metric(figure.add_subplot(grid[0, 1], sharex=losses), journal, metric, best)
    rate = figure.add_subplot(grid[1, 0], sharex=losses)
    updates, rates = series(journal, "update", "learning_rate")
    power = math.floor(math.log10(max(rates, default=0.0) or 1.0))
    rate.plot(updates, [value / 10.0**power for value in rates], color=PURPLE)
    rate.set(title=f"learning rate, $10^{{{power}}}$", xlabel="update", ylim=(0, None))
    speed = figure.add_subplot(grid[1, 1], sharex=losses)
    raw = _speeds(journal)
    speed.plot(*raw, color=GREY, alpha=0.3, linewidth=0.7)
    speed.plot(*smooth(raw), color=GREY)
    highest = sorted(raw[1])[len(raw[1]) * 98 // 100] if raw[1] else 1.0
    speed.set(title="target tokens per second", xlabel="update", ylim=(0, 1.25 * highest))
    for axes in figure.axes:
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.locator_params(axis="x", integer=True, nbins=6)
    speed.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    last = max((line.get("update", 0) for line in journal), default=1)
    losses.set_xlim(0, max(last, 1) * 1.02)


def _losses(axes: Axes, journal: Sequence[Line], best: int) -> None:
    training, valid = series(journal, "update", "loss"), series(journal, "validation", "valid_loss")
    axes.plot(*training, color=BLUE, alpha=0.25, linewidth=0.7)
    axes.plot(*smooth(training), color=BLUE, label="training")
    if valid[0]:
        axes.plot(*valid, color=ORANGE, marker="o", markersize=4, label="validation")
    _mark(axes, valid, best)
    axes.set(title="loss, nats per token", xlabel="update")
    ordered = sorted(value for value in (*training[1], *valid[1]) if value > 0)
    if not ordered:
        return
    low, high = ordered[0], ordered[-1]
    if high > MIN_LOG_RATIO * low:
        _logarithmic(axes, low, high)
    else:  # the first updates are far above the rest and would flatten it
        high = ordered[len(ordered) * 97 // 100]
        axes.set_ylim(max(low - 0.08 * (high - low or 1), 0), high + 0.08 * (high - low or 1))
    axes.legend(loc="upper right")


def _logarithmic(axes: Axes, low: float, high: float) -> None:
    """Set a logarithmic scale with round numbers."""
    from matplotlib.ticker import LogLocator, NullLocator

    axes.set(yscale="log", ylim=(low / 1.25, high * 1.25))
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")


def _metric(axes: Axes, journal: Sequence[Line], metric: str, best: int) -> None:
    points = series(journal, "validation", metric)
    axes.plot(*points, color=GREEN, marker="o", markersize=4)
    _mark(axes, points, best)
    axes.set(title=f"{METRICS[metric]} on the validation set", xlabel="update", ylim=(0, 1.15 * max(points[1]) or 1.0))


def _mark(axes: Axes, points: Points, best: int) -> None:
    """Mark the kept update with a ring, and write its value above the panel."""
    value = dict(zip(*points, strict=True)).get(best)
    if value is not None:
        ring = {"marker": "o", "markersize": 10.0, "markerfacecolor": "none", "markeredgecolor": "black"}
        axes.plot([best], [value], clip_on=False, zorder=5, **ring)  # type: ignore[arg-type]
        text = f"{value:.2f}" if value >= 1 else f"{value:.3g}"
        axes.set_title(f"kept: {text} at {best:,}", loc="right", fontsize=8)


def _speeds(journal: Sequence[Line]) -> Points:
    """Tokens per second of every recorded update."""
    tokens, seconds = (dict(zip(*series(journal, "update", name), strict=True)) for name in ("tokens", "seconds"))
    speeds = {update: tokens[update] / seconds[update] for update in tokens if seconds.get(update)}
    return list(speeds), list(speeds.values())


def _file(figure: Figure, kind: str) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=200, metadata={"Date": None} if kind == "svg" else {"Software": None})
    return buffer.getvalue()
