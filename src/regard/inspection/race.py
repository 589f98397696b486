"""The page of the race: what is claimed and whether it holds, BLEU against length, loss against time, looks, sizes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from regard.inspection import report
from regard.inspection.attribution import Map

MINUTES = 180  # seconds from which time is told in minutes
MARKS = 6  # numbers along an axis, at most


def page(found: Mapping[str, Any], looks: Mapping[str, Map | str]) -> str:
    """One HTML file with all in it."""
    racers = found["racers"]
    names = [racer["name"] for racer in racers]
    blind = {name for name, look in looks.items() if isinstance(look, str)}
    seeds = racers[0]["seeds"]
    places = [
        report.bucket(buckets[0], buckets) for buckets in zip(*(racer["by_length"] for racer in racers), strict=True)
    ]
    bars = "the seeds' lowest and highest" if seeds > 1 else "where 95 of 100 resampled corpora lie"
    few = f" {report.FEWER}" if any(place.small for place in places) else ""
    parts = [
        _claims(found["verdicts"], names, blind),
        report.figure(
            "BLEU against sentence length",
            f"The bars are {bars}.{few}",
            report.chart(places, names, "BLEU", report.LENGTHS),
        ),
        report.figure(
            "Loss against time",
            "Cross-entropy on the validation set, on a logarithmic scale; every mark is a validation.",
            _curves(racers),
        ),
        report.heats(
            "The same sentence, looked at by each",
            "Rows: what is written; columns: the source; the more weight, the stronger the colour.",
            looks,
        ),
        _parameters(racers, names),
    ]
    often = "one seed" if seeds == 1 else f"{seeds} seeds"
    about = (
        f"{len(racers)} models of about the same size learn the same sentences of 2 to 80 words in {found['updates']:,}"
        f" updates each, and then translate {found['sentences']:,} new ones, one word after the other (no beam)."
        f" {often.capitalize()}, on a {'CPU' if found['device'] == 'cpu' else 'GPU'}."
    )
    return report.page(
        "What attention does for long sentences", about, parts, [], kind="The lineage of attention, raced"
    )


# What is claimed


def _claims(verdicts: Sequence[Mapping[str, Any]], names: Sequence[str], blind: set[str]) -> str:
    """The two claims of the papers, each with the models it is about."""
    if not verdicts:
        return ""
    without = [each for each in verdicts if each["name"] in blind]
    looking = [each for each in verdicts if each["name"] not in blind]
    return (
        '<section class="card"><h2>What the papers claim, measured</h2>'
        '<div class="scroll" tabindex="0" role="region" aria-label="claims"><table class="data claims"><thead><tr>'
        '<th scope="col">model</th><th scope="col">the claim</th><th scope="col">BLEU</th><th scope="col">change</th>'
        "</tr></thead>"
        + _claim("Without attention, one vector has to hold the whole sentence, however long:", without, names)
        + _claim("With attention, each word is looked up where it stands:", looking, names)
        + '</table></div><p class="note">BLEU of the shortest and of the longest sentences, as in the chart below. A'
        " fall counts only in a model that translates short sentences: one that never learned has nothing to lose.</p>"
        "</section>"
    )


def _claim(why: str, verdicts: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    if not verdicts:
        return ""
    claim = f"{why} BLEU {escape(verdicts[0]['claim'])}."
    rows = "".join(_verdict(each, names) for each in verdicts)
    return f'<tbody><tr><th class="claim" colspan="4"><span>{claim}</span></th></tr>{rows}</tbody>'


def _verdict(each: Mapping[str, Any], names: Sequence[str]) -> str:
    kind, text = ("yes", "✓ holds") if each["holds"] else ("no", "✗ fails")
    change = f"{-each['lost']:+.0%}".replace("-", "−") if each["lost"] is not None else ""
    return (
        f'<tr><th scope="row">{report.key(names.index(each["name"]))}{escape(each["name"])}</th>'
        f'<td><span class="verdict {kind}">{text}</span></td>'
        f"<td>{each['first']:.1f} → {each['last']:.1f}</td><td>{change}</td></tr>"
    )


# How they learned


def _curves(racers: Sequence[Mapping[str, Any]]) -> str:
    points = [point for racer in racers for point in racer["curve"]]
    if not points:
        return "<p>No validation was made.</p>"
    ends = "; ".join(
        f"{racer['name']} {racer['curve'][-1][1]:.3f} after {racer['curve'][-1][0]:.0f} s"
        for racer in racers
        if racer["curve"]
    )
    names = [racer["name"] for racer in racers]
    unit, named = (60, "minutes") if max(seconds for seconds, _ in points) >= MINUTES else (1, "seconds")
    across = f"{named} of training"
    return report.drawing(
        names, f"loss at the end: {ends}", across, lambda size: _lines(size, racers, points, unit=unit)
    )


def _lines(
    size: report.Size, racers: Sequence[Mapping[str, Any]], points: Sequence[Sequence[float]], *, unit: int
) -> str:
    """Curves over the time of training, the loss on a logarithmic scale."""
    most = max(seconds for seconds, _ in points) / unit or 1.0
    low, high = min(loss for _, loss in points) * 0.9, max(loss for _, loss in points) * 1.1

    def up(loss: float) -> float:
        return math.log(loss / low) / math.log(high / low)

    marks = [(up(value), f"{value:g}") for value in _decades(low, high)]
    drawn = [report.frame(size, "loss, nats a token", marks)]
    for value in _round(0.0, most):
        drawn.append(f'<text x="{size.across(value / most):.1f}" y="{size.up(0) + 17:.1f}">{value:g}</text>')
    ends: list[tuple[float, float] | None] = []
    for number, racer in enumerate(racers):
        places = [(size.across(seconds / unit / most), size.up(up(loss))) for seconds, loss in racer["curve"]]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        shape = report.SHAPES[number % 6]
        dots = "".join(f'<path d="{shape}" transform="translate({x:.1f} {y:.1f}) scale(.7)"/>' for x, y in places)
        drawn.append(
            f'<g class="point s{number % 6}"><title>{escape(racer["name"])}</title>'
            f'<polyline class="path" points="{path}"/>{dots}</g>'
        )
        ends.append(places[-1] if places else None)
    return "".join(drawn) + report.labels(size, [racer["name"] for racer in racers], ends)


def _decades(low: float, high: float) -> list[float]:
    """1, 2 and 5 of every power of ten between two numbers; where there are not two of these, round numbers."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found = [value for power in powers for digit in (1, 2, 5) if low <= (value := digit * 10.0**power) <= high]
    return found if len(found) > 1 else list(_round(low, high))


def _round(low: float, high: float) -> Iterator[float]:
    """Round numbers between two, a few."""
    span = high - low
    power = 10.0 ** math.floor(math.log10(span))
    step = next(step for share in (0.1, 0.2, 0.5, 1, 2) if span / (step := share * power) < MARKS)
    yield from (step * number for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1))


# What they are made of


def _parameters(racers: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    counted = [racer["parameters"] for racer in racers]
    largest = max((each["parts"] for each in counted), key=len)
    parts = list(dict.fromkeys([*largest, *(part for each in counted for part in each["parts"])]))
    head = "".join(f'<th scope="col">{report.key(place)}{escape(name)}</th>' for place, name in enumerate(names))
    rows = "".join(_row(part, [each["parts"].get(part, 0) for each in counted]) for part in parts)
    totals = [each["total"] for each in counted]
    scores = "".join(f"<td>{racer['bleu']:.1f}</td>" for racer in racers)
    return (
        '<section class="card"><h2>Parameters by part</h2>'
        f"<p>The largest has {max(totals) / min(totals) - 1:.0%} more than the smallest.</p>"
        '<div class="scroll" tabindex="0" role="region" aria-label="parameters"><table class="data"><thead><tr>'
        f"<th></th>{head}</tr></thead><tbody>{rows}</tbody><tfoot>{_row('all', totals)}"
        f'<tr><th scope="row">BLEU, all lengths</th>{scores}</tr>'
        f'</tfoot></table></div><p class="signature">{report.breakable(racers[0]["signature"])}</p></section>'
    )


def _row(name: str, numbers: Sequence[int]) -> str:
    cells = "".join(f"<td>{number:,}</td>" if number else '<td class="soft">–</td>' for number in numbers)
    return f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>'
