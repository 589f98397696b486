"""Charts: points with intervals and curves as SVG, in the colours of the page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import NamedTuple

from regard.inspection.pages import fold, table

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 42, 10, 30, 44  # margins; on phones the letters are larger
MAX_TICKS = 6
MAX_MARKED = 12  # points of a curve that are marked with its shape
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


def _x(share: float) -> float:
    return round(LEFT + share * (WIDTH - RIGHT - LEFT), 1)


def _y(share: float) -> float:
    return round(TOP + (1 - share) * (HEIGHT - TOP - BOTTOM), 1)


class Point(NamedTuple):
    """A point of a chart as shares of its width and height."""

    x: float
    y: float
    interval: tuple[float, float] | None = None
    hollow: bool = False
    hint: str = ""


def series_key(number: int) -> str:
    """The shape and colour of a series, for a legend or a table."""
    return _key(f"s{number % 6}", f'<path d="{SHAPES[number % 6]}"/>')


def _key(kind: str, drawing: str) -> str:
    return f'<svg class="key {kind}" viewBox="-6 -6 12 12" aria-hidden="true">{drawing}</svg>'


def _chart(
    series: Mapping[str, Sequence[Point]],
    unit: str,
    axis: str,
    heights: Mapping[float, str],
    places: Sequence[tuple[float, str, str]],
    legend: Sequence[tuple[str, str]] = (),
) -> str:
    """Series under a legend, which may have further keys with their meanings.

    `heights` label the vertical axis, `places` the horizontal one in two lines.
    """
    keys = [*((series_key(number), name) for number, name in enumerate(series)), *legend]
    items = "".join(f"<li>{key}{escape(name)}</li>" for key, name in keys)
    floor, height = _y(0), HEIGHT - 18 * (not any(below for _, _, below in places))
    drawn = []
    for share, label in heights.items():
        drawn.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{_y(share)}" y2="{_y(share)}"/>')
        drawn.append(f'<text class="mark" x="{LEFT - 7}" y="{_y(share) + 4:.1f}">{label}</text>')
    for share, label, below in places:
        drawn.append(f'<text x="{_x(share)}" y="{floor + 18:.1f}">{label}</text>')
        if below:
            drawn.append(f'<text class="size" x="{_x(share)}" y="{floor + 38:.1f}">{below}</text>')
    for number, points in enumerate(series.values()):  # the line of a series, then its points above their intervals
        colour, corners = f"s{number % 6}", " ".join(f"{_x(point.x)},{_y(point.y)}" for point in points)
        drawn.append(f'<polyline class="path {colour}" points="{corners}"/>')
        for point in points[:: math.ceil(len(points) / MAX_MARKED) or 1]:
            low, high = map(_y, point.interval or (point.y, point.y))
            drawn.append(
                f'<g class="point {colour}{" few" * point.hollow}" data-hint="{escape(point.hint)}"'
                f' transform="translate({_x(point.x)} {_y(point.y)})"><path class="interval"'
                f' d="M0 {low - _y(point.y):.1f}V{high - _y(point.y):.1f}"/><path d="{SHAPES[number % 6]}"/></g>'
            )
    return (
        f'<ul class="legend">{items}</ul><svg class="chart" viewBox="0 0 {WIDTH} {height}" role="img"'
        f' aria-label="{escape(unit)} by {escape(axis)}"><text class="axis" x="2" y="14">{escape(unit)}</text>'
        f'{"".join(drawn)}</svg><p class="across">{escape(axis)}</p>'
    )


# Points with intervals.


class Group(NamedTuple):
    """A bucket on the horizontal axis, with the score and interval (value, low, high) of each series."""

    first: int
    last: int | None
    size: int
    small: bool
    scores: Sequence[tuple[float, float, float]]


def format_range(first: int, last: int | None) -> str:
    """`11–20`, `5` or `61+`."""
    return f"{first}+" if last is None else f"{first}" if first == last else f"{first}–{last}"


def interval_chart(groups: Sequence[Group], names: Sequence[str], unit: str, axis: str, *, few: str = "") -> str:
    """Scores with their intervals over buckets, as a chart and as a table.

    `few` is the meaning of hollow points, those of small buckets, in the legend.
    """
    bounds = [bound for group in groups for score in group.scores for bound in score]
    high = min(math.ceil(max(bounds, default=100.0) / 10) * 10, 100)
    low = max(min(math.floor(min(bounds, default=0.0) / 10) * 10, high - 20), 0)
    high = max(high, low + 20)  # multiples of ten around all values, at least twenty apart

    def height(value: float) -> float:
        return (min(max(value, low), high) - low) / (high - low)  # intervals of tiny buckets may pass 0 and 100

    places = [
        ((index + 0.5) / len(groups), format_range(group.first, group.last), f"{group.size:,}")
        for index, group in enumerate(groups)
    ]
    series: dict[str, list[Point]] = {}
    rows = []
    for number, name in enumerate(names):
        offset = (number - (len(names) - 1) / 2) * min(0.023, 0.72 / max(len(groups), 1) / len(names))
        series[name], cells = [], [escape(name)]
        for (middle, label, _), group in zip(places, groups, strict=True):
            value, bottom, top = group.scores[number]
            interval, ends = f"{bottom:z.1f}–{top:.1f}", (height(bottom), height(top))
            hint = f"{name} {value:.1f} ({interval}) at {label}"
            series[name].append(Point(middle + offset, height(value), ends, group.small, hint))
            cells.append(f'{value:.1f}<br><span class="soft">{interval}</span>')
        rows.append(cells)
    legend = [(_key("", '<path class="interval" d="M0-6V6"/>'), "95 % bootstrap interval")]
    if few and any(group.small for group in groups):
        legend.append((_key("few", f'<path d="{SHAPES[0]}"/>'), few))
    heights = {height(value): f"{value:g}" for value in round_ticks(low, high)}
    chart = _chart(series, unit, axis, heights, places, legend)
    return chart + fold("as a table", table(["", *(label for _, label, _ in places)], rows))


# Curves.


def curve_chart(curves: Mapping[str, Sequence[tuple[float, float]]], unit: str, axis: str) -> str:
    """Curves of (x, y) points over an axis from 0, on a logarithmic scale."""
    points = [point for curve in curves.values() for point in curve]
    width = max(x for x, _ in points) or 1.0
    low, high = min(y for _, y in points) * 0.9, max(y for _, y in points) * 1.1

    def height(value: float) -> float:
        return math.log(value / low) / math.log(high / low)

    series = {
        name: [Point(x / width, height(y), hint=f"{name} {y:.3g} at {x:,.0f}") for x, y in curve]
        for name, curve in curves.items()
    }
    heights = {height(value): f"{value:g}" for value in log_ticks(low, high)}
    places = [(value / width, f"{value:,g}", "") for value in round_ticks(0.0, width)]
    return _chart(series, unit, axis, heights, places)


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
