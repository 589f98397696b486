"""The page of the race: BLEU against length, loss against time, one sentence's attention from each, and their sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from regard.explain import report
from regard.explain.methods import Map

WIDTH, HEIGHT = 640, 250  # of a chart, in its own units
LEFT, BOTTOM, TOP = 40, 36, 14


def page(found: Mapping[str, Any], looks: Mapping[str, Map | None]) -> str:
    """One HTML file with all in it."""
    racers = found["racers"]
    names = [racer["name"] for racer in racers]
    seeds = racers[0]["seeds"]
    bars = "bars: the seeds' lowest and highest" if seeds > 1 else "bars: where 95 of 100 resampled corpora lie"
    parts = [
        _verdicts(found["verdicts"]),
        report.figure(
            "BLEU against sentence length",
            f"Words of the reference; {bars}. Grey: fewer than 30 sentences, which says little.",
            report.chart(_places(racers), names, "BLEU"),
        ),
        report.figure(
            "Loss against time",
            "Cross-entropy a token on the validation set, after so many seconds of training.",
            _lines(racers),
        ),
        report.heats(
            "The same sentence, looked at by each",
            "Rows: what is written; columns: the source. A transformer's heads are averaged.",
            looks,
        ),
        _parameters(racers),
    ]
    often = "one seed" if seeds == 1 else f"{seeds} seeds"
    about = (
        f"{len(racers)} models, {found['updates']:,} updates each on the same batches; {found['sentences']:,} test"
        f" sentences of 2 to 80 words, {often}; {found['seconds'] / 60:.1f} minutes in all ({found['device']})."
        f" {racers[0]['signature']}, one word after the other (no beam)."
    )
    return report.page("The lineage of attention, raced", about, parts, [])


def _verdicts(verdicts: Sequence[Mapping[str, Any]]) -> str:
    rows = "".join(
        f'<li class="{"yes" if each["holds"] else "no"}"><b>{"✓" if each["holds"] else "✗"}</b>'
        f"{escape(each['name'])}: {each['first']:.1f} BLEU on the shortest sentences, {each['last']:.1f} on the"
        f" longest; the notes say it {escape(each['claim'])}.</li>"
        for each in verdicts
    )
    return (
        '<section class="card"><h2>What the notes claim, measured</h2><p>Without attention one vector has to hold the'
        " whole sentence; with it, each word is looked up where it stands.</p>"
        f'<ul class="verdicts">{rows}</ul></section>'
    )


def _places(racers: Sequence[Mapping[str, Any]]) -> list[report.Place]:
    places = []
    for buckets in zip(*(racer["by_length"] for racer in racers), strict=True):
        first = buckets[0]
        span = f"{first['from']}+" if first["to"] is None else f"{first['from']}–{first['to']}"
        points = [report.Point(each["bleu"], each["low"], each["high"]) for each in buckets]
        places.append(report.Place(span, f"{first['sentences']:,}", first["small"], points))
    return places


def _lines(racers: Sequence[Mapping[str, Any]]) -> str:
    """Curves over seconds, the loss on a logarithmic scale."""
    points = [point for racer in racers for point in racer["curve"]]
    if not points:
        return "<p>No validation was made.</p>"
    most = max(seconds for seconds, _ in points) or 1.0
    low, high = (math.log(chosen(loss for _, loss in points)) for chosen in (min, max))
    high = high if high > low else low + 1

    def at(seconds: float, loss: float) -> str:
        x = LEFT + (WIDTH - LEFT - 10) * seconds / most
        y = TOP + (HEIGHT - TOP - BOTTOM) * (high - math.log(loss)) / (high - low)
        return f"{x:.1f},{y:.1f}"

    drawn = []
    for step in range(5):
        value = math.exp(low + (high - low) * step / 4)
        y = at(0, value).split(",")[1]
        drawn.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH}" y1="{y}" y2="{y}"/>'
            f'<text class="mark" x="{LEFT - 6}" y="{float(y) + 3.5:.1f}">{value:.2g}</text>'
        )
        seconds = most * step / 4
        x = at(seconds, value).split(",")[0]
        drawn.append(f'<text x="{x}" y="{HEIGHT - 14}">{seconds:.0f} s</text>')
    for number, racer in enumerate(racers):
        path = " ".join(at(*point) for point in racer["curve"])
        drawn.append(
            f'<polyline class="s{number % 6}" points="{path}"><title>{escape(racer["name"])}</title></polyline>'
        )
    legend = "".join(
        f'<li><i class="dot s{number % 6}"></i>{escape(racer["name"])}</li>' for number, racer in enumerate(racers)
    )
    told = "; ".join(f"{racer['name']} ends at {racer['curve'][-1][1]:.3f}" for racer in racers if racer["curve"])
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(told)}">{"".join(drawn)}</svg>'
        f'<ul class="legend">{legend}</ul>'
    )


def _parameters(racers: Sequence[Mapping[str, Any]]) -> str:
    parts = list(dict.fromkeys(part for racer in racers for part in racer["parameters"]["parts"]))
    head = "".join(f"<th>{escape(racer['name'])}</th>" for racer in racers)
    rows = "".join(
        f"<tr><th>{escape(part)}</th>"
        + "".join(f"<td>{racer['parameters']['parts'].get(part, 0):,}</td>" for racer in racers)
        + "</tr>"
        for part in parts
    )
    total = "".join(f"<td><b>{racer['parameters']['total']:,}</b></td>" for racer in racers)
    bleu = "".join(f"<td>{racer['bleu']:.1f}</td>" for racer in racers)
    return (
        '<section class="card"><h2>Parameters by part</h2><p>Within a tenth of each other.</p><div class="scroll">'
        f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{rows}<tr><th>all</th>{total}</tr>"
        f"<tr><th>BLEU, all lengths</th>{bleu}</tr></tbody></table></div></section>"
    )
