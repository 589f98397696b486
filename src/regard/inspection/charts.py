"""Charts: points with intervals and curves as SVG, in the colours of the page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Any, NamedTuple

from regard.inspection.pages import table

WIDTH, HEIGHT = 640, 270
LEFT, RIGHT, TOP, BOTTOM = 34, 8, 26, 36  # margins
MAX_TICKS = 6
MAX_MARKED = 30  # points of a curve that are marked with its shape
FEW_WORDS = 30  # F1 of fewer words says little
# A shape for each series beside its colour, for colour-blind readers and black-and-white prints.
SHAPES = (
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    "M-3.6-3.6h7.2v7.2h-7.2z",
    "M0-4.8L4.6 3.6h-9.2z",
    "M0-5.2L5.2 0L0 5.2L-5.2 0z",
    "M0 4.8L4.6-3.6h-9.2z",
    "M-1.6-4.8h3.2v3.2h3.2v3.2h-3.2v3.2h-3.2v-3.2h-3.2v-3.2h3.2z",
)


class Point(NamedTuple):
    """A point of a chart as shares of its width and height."""

    x: float
    y: float
    interval: tuple[float, float] | None = None
    hollow: bool = False
    hint: str = ""


def series_key(number: int) -> str:
    """The shape and colour of a series, for a legend or a table."""
    shape = SHAPES[number % 6]
    return f'<svg class="key s{number % 6}" viewBox="-6 -6 12 12" aria-hidden="true"><path d="{shape}"/></svg>'


def _chart(
    series: Mapping[str, Sequence[Point | None]],
    unit: str,
    axis: str,
    *,
    heights: Mapping[float, str],
    places: Sequence[tuple[float, str, str]],
    joined: bool = True,
) -> str:
    """An SVG of series with a legend; `heights` label the vertical axis, `places` the horizontal one in two lines."""

    def x(share: float) -> str:
        return f"{LEFT + share * (WIDTH - RIGHT - LEFT):.1f}"

    def y(share: float, below: float = 0.0) -> str:
        return f"{TOP + (1 - share) * (HEIGHT - TOP - BOTTOM) + below:.1f}"

    parts = [
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(share)}" y2="{y(share)}"/>'
        f'<text class="mark" x="{LEFT - 6}" y="{y(share, 3.5)}">{text}</text>'
        for share, text in heights.items()
    ]
    parts += [
        f'<text x="{x(share)}" y="{y(0, 17)}">{label}</text>'
        f'<text class="size" x="{x(share)}" y="{y(0, 31)}">{below}</text>'
        for share, label, below in places
    ]
    parts.append(f'<text class="axis" x="2" y="11">{escape(unit)}</text>')
    for number, points in enumerate(series.values()):
        colour = f"s{number % 6}"
        parts += [
            f'<line class="path {colour}{" few" * (one.hollow or two.hollow)}"'
            f' x1="{x(one.x)}" y1="{y(one.y)}" x2="{x(two.x)}" y2="{y(two.y)}"/>'
            for one, two in pairwise(points)
            if joined and one is not None and two is not None
        ]
        for point in points if len(points) <= MAX_MARKED else ():
            if point is None:
                continue
            bars = ""
            if point.interval is not None:
                low, high = map(y, point.interval)
                bars = f'<path class="interval" d="M{x(point.x)} {low}V{high}m-3 0h6M{x(point.x)} {low}m-3 0h6"/>'
            parts.append(
                f'<g class="point {colour}{" few" * point.hollow}"><title>{escape(point.hint)}</title>{bars}'
                f'<path d="{SHAPES[number % 6]}" transform="translate({x(point.x)} {y(point.y)}) scale(.8)"/></g>'
            )
    keys = "".join(f"<li>{series_key(number)}{escape(name)}</li>" for number, name in enumerate(series))
    legend = f'<ul class="legend">{keys}</ul>' if len(series) > 1 else ""
    return (
        f'<div class="scroll"><svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        f' aria-label="{escape(unit)} by {escape(axis)}">{"".join(parts)}</svg></div>'
        f'<p class="across">{escape(axis)}</p>{legend}'
    )


# Points with intervals.


class Score(NamedTuple):
    """A value with its interval."""

    value: float
    low: float
    high: float


class Group(NamedTuple):
    """A bucket on the horizontal axis with a score of each series, or None if it has no interval."""

    label: str
    size: int
    small: bool
    scores: Sequence[Score | None]


def length_group(bucket: Mapping[str, Any], series: Sequence[Mapping[str, float]]) -> Group:
    """A bucket of sentence length with the BLEU of each series."""
    return _group(bucket, "sentences", bucket["small"], [Score(x["bleu"], x["low"], x["high"]) for x in series])


def frequency_group(bucket: Mapping[str, Any]) -> Group:
    """A bucket of word frequency with its F1 in percent."""
    score = Score(100 * bucket["f1"], 100 * bucket["low"], 100 * bucket["high"])
    return _group(bucket, "words", bucket["words"] < FEW_WORDS, [score])


def _group(bucket: Mapping[str, Any], unit: str, small: bool, scores: Sequence[Score]) -> Group:
    """A score is None if a small bucket has a bootstrap interval of almost zero width, which would look certain."""
    first, last = bucket["from"], bucket["to"]
    label = f"{first}+" if last is None else f"{first}" if first == last else f"{first}–{last}"
    shown = [None if small and score.high - score.low < 0.05 else score for score in scores]
    return Group(label, bucket[unit], small, shown)


def interval_chart(groups: Sequence[Group], names: Sequence[str], unit: str, axis: str, *, joined: bool = True) -> str:
    """Scores with their intervals over buckets, as a chart and as a table; a score without an interval is left out."""
    bounds = [bound for group in groups for score in group.scores if score for bound in (score.low, score.high)]
    high = min(math.ceil(max(bounds, default=100.0) / 10) * 10, 100)
    low = max(min(math.floor(min(bounds, default=0.0) / 10) * 10, high - 20), 0)
    high = max(high, low + 20)  # multiples of ten around all values, at least twenty apart

    def height(value: float) -> float:
        return (min(max(value, low), high) - low) / (high - low)

    middles = [(index + 0.5) / len(groups) for index in range(len(groups))]
    series: dict[str, list[Point | None]] = {}
    rows = []
    for number, name in enumerate(names):
        offset = (number - (len(names) - 1) / 2) * min(0.023, 0.72 / len(groups) / len(names)) if groups else 0.0
        series[name], cells = [], [escape(name)]
        for middle, group in zip(middles, groups, strict=True):
            score = group.scores[number]
            if score is None:
                series[name].append(None)
                cells.append("too few")
                continue
            interval = f"{score.low:z.1f}–{score.high:.1f}"
            hint = f"{group.label}: {score.value:.1f} ({interval}), {group.size:,}"
            ends = (height(score.low), height(score.high))
            series[name].append(Point(middle + offset, height(score.value), ends, group.small, hint))
            cells.append(f'{score.value:.1f}<br><span class="soft">{interval}</span>')
        rows.append(cells)
    chart = _chart(
        series,
        unit,
        axis,
        heights={
            height(x): str(x) for x in range(low, high + 1, 20 if high - low > 50 else 10 if high - low > 30 else 5)
        },
        places=[
            (middle, group.label, f"{group.size:,}" + ": too few" * (not any(group.scores)))
            for middle, group in zip(middles, groups, strict=True)
        ],
        joined=joined,
    )
    values = table(["", *(group.label for group in groups)], rows)
    return f'{chart}<details class="more"><summary>as a table</summary>{values}</details>'


# Curves.


def curve_chart(curves: Mapping[str, Sequence[tuple[float, float]]], unit: str, axis: str) -> str:
    """Curves of (x, y) points over an axis from 0, on a logarithmic scale."""
    points = [point for curve in curves.values() for point in curve]
    width = max(x for x, _ in points) or 1.0
    low, high = min(y for _, y in points) * 0.9, max(y for _, y in points) * 1.1

    def height(value: float) -> float:
        return math.log(value / low) / math.log(high / low)

    return _chart(
        {name: [Point(x / width, height(y), hint=name) for x, y in curve] for name, curve in curves.items()},
        unit,
        axis,
        heights={height(value): f"{value:g}" for value in log_ticks(low, high)},
        places=[(value / width, f"{value:,g}", "") for value in round_ticks(0.0, width)],
    )


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 of every power of ten between two numbers; if there are fewer than two of these, round numbers."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [value for power in powers for digit in (1, 2, 5) if low <= (value := digit * 10.0**power) <= high]
    return ticks if len(ticks) > 1 else list(round_ticks(low, high))


def round_ticks(low: float, high: float) -> Iterator[float]:
    """A few round numbers between two numbers."""
    span = high - low
    power = 10.0 ** math.floor(math.log10(span))
    step = next(step for share in (0.1, 0.2, 0.5, 1, 2) if span / (step := share * power) < MAX_TICKS)
    yield from (step * number for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1))
