"""Charts: points with intervals, curves and heat maps as SVG and HTML, in the colours of the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from regard.inspection.attribution import Map

WIDTH, HEIGHT = 640, 270
LEFT, RIGHT, TOP, BOTTOM = 34, 8, 26, 36  # margins
MAX_TICKS = 6
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
    """A value with its interval."""

    value: float
    low: float
    high: float


class Group(NamedTuple):
    """A bucket on the horizontal axis with a point of each series, or None if it has no interval."""

    label: str
    size: int
    small: bool
    points: Sequence[Point | None]


def length_group(bucket: Mapping[str, Any], series: Sequence[Mapping[str, float]]) -> Group:
    """A bucket of sentence length with the BLEU of each series."""
    points = [_point(score["bleu"], score["low"], score["high"], few=bucket["small"]) for score in series]
    return Group(_span(bucket), bucket["sentences"], bucket["small"], points)


def frequency_group(bucket: Mapping[str, Any]) -> Group:
    """A bucket of word frequency with its F1 in percent."""
    few = bucket["words"] < FEW_WORDS
    return Group(
        _span(bucket),
        bucket["words"],
        few,
        [_point(*(100 * bucket[name] for name in ("f1", "low", "high")), few=few)],
    )


def _point(value: float, low: float, high: float, *, few: bool) -> Point | None:
    """None if a small bucket has a bootstrap interval of almost zero width, which would look certain."""
    return None if few and high - low < 0.05 else Point(value, low, high)


def _span(bucket: Mapping[str, Any]) -> str:
    first, last = bucket["from"], bucket["to"]
    return f"{first}+" if last is None else f"{first}" if first == last else f"{first}–{last}"


def figure(title: str, note: str, drawing: str) -> str:
    """A card with a title, a note and a drawing."""
    return (
        f'<figure class="card"><figcaption><h2>{escape(title)}</h2><p>{escape(note)}</p></figcaption>{drawing}</figure>'
    )


def series_key(number: int) -> str:
    """The shape and colour of a series, for a legend or a table."""
    shape = SHAPES[number % 6]
    return f'<svg class="key s{number % 6}" viewBox="-6 -6 12 12" aria-hidden="true"><path d="{shape}"/></svg>'


def _chart(names: Sequence[str], description: str, axis: str, drawing: str) -> str:
    """An SVG with the title of its horizontal axis, and a legend if it has several series."""
    keys = "".join(f"<li>{series_key(number)}{escape(name)}</li>" for number, name in enumerate(names))
    return (
        f'<div class="scroll"><svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        f' aria-label="{escape(description)}">{drawing}</svg></div><p class="across">{escape(axis)}</p>'
        + f'<ul class="legend">{keys}</ul>'
        * (len(names) > 1)
    )


def _x(share: float) -> float:
    return LEFT + share * (WIDTH - RIGHT - LEFT)


def _y(share: float) -> float:
    return TOP + (1 - share) * (HEIGHT - TOP - BOTTOM)


def _frame(unit: str, ticks: Iterable[tuple[float, str]]) -> str:
    """Grid lines at these shares of the height with their numbers, and the unit of the vertical axis."""
    lines = "".join(
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{_y(share):.1f}" y2="{_y(share):.1f}"/>'
        f'<text class="mark" x="{LEFT - 6}" y="{_y(share) + 3.5:.1f}">{text}</text>'
        for share, text in ticks
    )
    return f'{lines}<text class="axis" x="2" y="11">{escape(unit)}</text>'


# Points with intervals.


def interval_chart(groups: Sequence[Group], names: Sequence[str], unit: str, axis: str, *, joined: bool = True) -> str:
    """Points with their intervals over buckets, and the same as a table; no point is drawn without its interval."""
    description = f"{unit} by {axis}: " + "; ".join(_describe(group, names, unit) for group in groups)
    bounds = [end for group in groups for point in group.points if point for end in (point.low, point.high)]
    low, high = _range(bounds)

    def y(value: float) -> float:
        return _y((min(max(value, low), high) - low) / (high - low))

    ticks = range(low, high + 1, 20 if high - low > 50 else 10 if high - low > 30 else 5)
    parts = [_frame(unit, [((tick - low) / (high - low), str(tick)) for tick in ticks])]
    step = _x(1 / max(len(groups), 1)) - LEFT
    for number in range(len(names)):
        offset = (number - (len(names) - 1) / 2) * min(14, step * 0.72 / len(names))
        xs = [LEFT + step * (index + 0.5) + offset for index in range(len(groups))]
        parts.append(_series(groups, number, xs, y, joined=joined))
    for index, group in enumerate(groups):
        x, bottom = LEFT + step * (index + 0.5), _y(0.0)
        few = "" if any(group.points) else f'<text class="size" x="{x:.1f}" y="{bottom - 8:.1f}">too few</text>'
        parts.append(
            f'<text x="{x:.1f}" y="{bottom + 17:.1f}">{group.label}</text>'
            f'<text class="size" x="{x:.1f}" y="{bottom + 31:.1f}">{group.size:,}</text>{few}'
        )
    return _chart(names, description, axis, "".join(parts)) + _table(groups, names)


def _describe(group: Group, names: Sequence[str], unit: str) -> str:
    values = ", ".join(
        f"{name if len(names) > 1 else unit} {point.value:.1f} from {point.low:z.1f} to {point.high:.1f}"
        for name, point in zip(names, group.points, strict=True)
        if point
    )
    return f"{group.label}, {group.size:,}: {values or 'too few to say'}"


def _series(
    groups: Sequence[Group], number: int, xs: Sequence[float], y: Callable[[float], float], *, joined: bool
) -> str:
    colour, lines, points, previous = f"s{number % 6}", [], [], None
    for group, x in zip(groups, xs, strict=True):
        point = group.points[number]
        if point is None:
            previous = None
            continue
        middle, low, high = y(point.value), y(point.low), y(point.high)
        if joined and previous is not None:
            few = " few" * (group.small or previous[2])
            lines.append(
                f'<line class="path {colour}{few}" x1="{previous[0]:.1f}" y1="{previous[1]:.1f}"'
                f' x2="{x:.1f}" y2="{middle:.1f}"/>'
            )
        hint = f"{group.label}: {point.value:.1f} ({point.low:z.1f} to {point.high:.1f}), {group.size:,}"
        points.append(
            f'<g class="point {colour}{" few" * group.small}"><title>{escape(hint)}</title>'
            f'<path class="interval" d="M{x:.1f} {low:.1f}V{high:.1f}m-3 0h6M{x - 3:.1f} {low:.1f}h6"/>'
            f'<path d="{SHAPES[number % 6]}" transform="translate({x:.1f} {middle:.1f}) scale(.8)"/></g>'
        )
        previous = x, middle, group.small
    return "".join(lines + points)


def _table(groups: Sequence[Group], names: Sequence[str]) -> str:
    """The values of a chart as a table."""

    def cell(point: Point | None) -> str:
        if point is None:
            return "<td></td>"
        return f'<td>{point.value:.1f}<br><span class="soft">{point.low:z.1f}–{point.high:.1f}</span></td>'

    head = "".join(f'<th scope="col">{group.label}</th>' for group in groups)
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th>{"".join(cell(group.points[number]) for group in groups)}</tr>'
        for number, name in enumerate(names)
    )
    return (
        '<details class="more"><summary>as a table</summary><div class="scroll" tabindex="0" role="region"'
        f' aria-label="as a table"><table class="data"><thead><tr><th></th>{head}</tr></thead><tbody>{rows}</tbody>'
        "</table></div></details>"
    )


def _range(bounds: Sequence[float]) -> tuple[int, int]:
    """Multiples of ten around all values, at least twenty apart and at most 100."""
    low = int(min(bounds, default=0.0) // 10 * 10)
    high = min(int(-(-max(bounds, default=100.0) // 10) * 10), 100)
    low = max(min(low, high - 20), 0)
    return low, max(high, low + 20)


# Curves.


def curve_chart(curves: Mapping[str, Sequence[Sequence[float]]], unit: str, axis: str) -> str:
    """Curves of (x, y) points over an axis from 0, on a logarithmic scale."""
    points = [point for curve in curves.values() for point in curve]
    ends = "; ".join(f"{name} {curve[-1][1]:.3f} after {curve[-1][0]:.0f}" for name, curve in curves.items() if curve)
    width = max(x for x, _ in points) or 1.0
    low, high = min(y for _, y in points) * 0.9, max(y for _, y in points) * 1.1

    def height(value: float) -> float:
        return math.log(value / low) / math.log(high / low)

    parts = [_frame(unit, [(height(value), f"{value:g}") for value in log_ticks(low, high)])]
    for value in round_ticks(0.0, width):
        parts.append(f'<text x="{_x(value / width):.1f}" y="{_y(0) + 17:.1f}">{value:g}</text>')
    for number, (name, curve) in enumerate(curves.items()):
        positions = [(_x(x / width), _y(height(y))) for x, y in curve]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in positions)
        shape = SHAPES[number % 6]
        dots = "".join(f'<path d="{shape}" transform="translate({x:.1f} {y:.1f}) scale(.7)"/>' for x, y in positions)
        parts.append(
            f'<g class="point s{number % 6}"><title>{escape(name)}</title>'
            f'<polyline class="path" points="{path}"/>{dots}</g>'
        )
    return _chart(list(curves), f"{unit} at the end: {ends}", axis, "".join(parts))


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


# Heat maps.


def heatmaps(title: str, note: str, maps: Mapping[str, Map | str]) -> str:
    """Small heat maps side by side, each under its name; a model without attention shows what it writes instead."""
    cells = "".join(f'<div><h3 dir="auto">{escape(name)}</h3>{_heatmap(shown)}</div>' for name, shown in maps.items())
    return (
        f'<section class="card"><h2>{escape(title)}</h2><p>{escape(note)}</p><div class="heats">{cells}</div></section>'
    )


def _heatmap(shown: Map | str) -> str:
    if isinstance(shown, str):
        return f'<p class="soft">It has no attention. It writes:</p><p dir="auto">{escape(shown)}</p>'
    where, values = shown.picture()
    head = "".join(f'<th scope="col"><span>{escape(word)}</span></th>' for word in shown.columns.words)
    rows = "".join(
        f'<tr><th scope="row">{escape(word)}</th>'
        + "".join(f'<td style="--w:{100 * weight:.0f}" title="{weight:.2f}"></td>' for weight in weights)
        + "</tr>"
        for word, weights in zip(shown.rows.words, values.tolist(), strict=True)
    )
    table = f'<table class="heat"><thead><tr><th></th>{head}</tr></thead><tbody>{rows}</tbody></table>'
    return f'<div class="scroll">{table}</div>' + f'<p class="soft">{where}</p>' * bool(where)
