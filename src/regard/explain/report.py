"""The report: how good translations are, as one page with drawings, whose most telling sentences open their traces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from html import escape
from importlib.resources import files
from string import Template
from typing import Any, NamedTuple

from regard.explain import inspector
from regard.explain.methods import Map, attention, usual_layer
from regard.explain.signals import Warned
from regard.trace import Trace

NAMES = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER"}
BETTER = {"bleu": "higher is better", "chrf": "higher is better", "ter": "lower is better"}
WHY = {
    "warned": "A reader should be warned of these.",
    "worst": "Furthest from their references, by chrF.",
    "best": "Nearest to their references; of equal ones the longest.",
    "middle": "Of the middle: what to expect of most.",
    "better": "Much nearer to the reference than the baseline.",
    "worse": "Much further from the reference than the baseline.",
    "shown": "What it looked at, word by word.",
}
FEW = 30  # words below which their F-measure says little
BLIND = "<p>It looks at nothing: one vector is all it has.</p>"
CELLS = 20_000  # weights of one trace: above it heads are averaged, and then but one layer shown
WIDTH, HEIGHT = 640, 220  # of a chart, in its own units
LEFT, BOTTOM, TOP = 40, 46, 14  # its margins


class Output(NamedTuple):
    """What a system wrote for a sentence."""

    name: str
    text: str
    scores: Mapping[str, float]
    warnings: Sequence[Warned] = ()
    confidence: float | None = None
    trace: Trace | None = None


class Row(NamedTuple):
    """A sentence worth a look."""

    line: int
    why: str
    """One of WHY."""
    source: str
    references: Sequence[str]
    outputs: Sequence[Output]


class Point(NamedTuple):
    """A value with its interval, in percent."""

    value: float
    low: float
    high: float


class Place(NamedTuple):
    """A bucket of a chart: what stands under it, and a point of each series, or none where it would say nothing."""

    label: str
    size: str
    small: bool
    points: Sequence[Point | None]


def evaluation_page(title: str, found: Mapping[str, Any], rows: Sequence[Row], about: str) -> str:
    """The page of one system, from what `regard evaluate --json` gives."""
    parts = [
        _cards(found),
        by_length(found["by_length"]),
        figure(
            "Words by frequency",
            f"F-measure of words in percent, by how often they are in {found['frequencies_from']}.",
            chart([_frequency(each) for each in found["by_frequency"]], ["F-measure"], "F-measure", joined=False),
        ),
        _warnings(found),
        _terms(found),
    ]
    return page(title, about, parts, rows)


def comparison_page(title: str, found: Mapping[str, Any], rows: Sequence[Row], about: str) -> str:
    """The page of several systems, from what `regard compare --json` gives."""
    names = [system["name"] for system in found["systems"]]
    parts = [
        _systems(found),
        by_length(found["by_length"], names),
        *(_against(each) for each in found["against"]),
    ]
    return page(title, about, parts, rows)


def by_length(buckets: Sequence[Mapping[str, Any]], names: Sequence[str] = ()) -> str:
    """BLEU over buckets of length, of one system or of those named."""
    places = [_bucket(each, each["systems"] if names else [each]) for each in buckets]
    return figure(
        "BLEU by length, side by side" if names else "BLEU by length",
        "Words of the reference; the bars are where 95 of 100 resampled corpora lie."
        " Pale: fewer than 30 sentences, which says little.",
        chart(places, names or ["BLEU"], "BLEU"),
    )


def page(title: str, about: str, parts: Iterable[str], rows: Sequence[Row]) -> str:
    """One HTML file of these parts, and of sentences that open their traces."""
    template = Template((files("regard.explain") / "page" / "report.html").read_text(encoding="utf-8"))
    traced = any(output.trace is not None for row in rows for output in row.outputs)
    return template.substitute(
        title=escape(title),
        about=escape(about),
        parts="\n".join(filter(None, parts)),
        filters=_filters(rows),
        rows="\n".join(_row(row) for row in rows),
        style=inspector.style() if traced else "",
        script=inspector.script() if traced else "",
    )


# Scores.


def _cards(found: Mapping[str, Any]) -> str:
    cards = []
    for name in filter(found.__contains__, NAMES):
        score = found[name]
        cards.append(
            f'<div class="card score"><h2>{NAMES[name]}</h2><p class="big">{score["score"]:.1f}</p>'
            f'<p class="interval">{score["low"]:z.1f} to {score["high"]:.1f} · {BETTER[name]}</p>'
            f'<p class="signature">{_breakable(score["signature"])}</p></div>'
        )
    return f'<div class="cards">{"".join(cards)}</div>'


def _breakable(signature: str) -> str:
    """A signature that may go over several lines between its parts."""
    return "|<wbr>".join(escape(part) for part in signature.split("|"))


def _systems(found: Mapping[str, Any]) -> str:
    heads = "".join(
        f'<th scope="col">{name}</th><th scope="col"><abbr title="by approximate randomisation">p</abbr></th>'
        for name in NAMES.values()
    )
    lines = []
    for place, system in enumerate(found["systems"]):
        cells = "".join(_cell(system[name]) for name in NAMES)
        lines.append(f'<tr><th scope="row"><i class="dot s{place % 6}"></i>{escape(system["name"])}</th>{cells}</tr>')
    signatures = "<br>".join(
        f"{NAMES[name]} {_breakable(signed)}"
        for name, tests in found["signatures"].items()
        for signed in tests.values()
    )
    first = escape(found["systems"][0]["name"])
    return (
        f'<section class="card wide"><h2>Scores</h2><p>Each with where 95 of 100 resampled corpora lie, and how likely '
        f"chance alone sets it so far apart from {first}: below 0.05 it is marked.</p>"
        '<div class="scroll" tabindex="0" role="region" aria-label="Scores"><table><thead><tr>'
        f'<th scope="col">system</th>{heads}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'
        f'<details class="signatures"><summary>signatures</summary><p class="signature">{signatures}</p></details>'
        "</section>"
    )


def _cell(score: Mapping[str, float]) -> str:
    interval = f' <span class="soft">{score["low"]:z.1f}–{score["high"]:.1f}</span>' if "low" in score else ""
    chance = score.get("p_randomisation")
    told = "" if chance is None else f"{chance:.4f}"
    sure = ' class="sure"' if chance is not None and chance < 0.05 else ' class="soft"'
    return f"<td>{score['score']:.1f}{interval}</td><td{sure}>{told}</td>"


def _against(each: Mapping[str, Any]) -> str:
    lists = "".join(
        f'<div><h3>{escape(has)} has, {escape(lacks)} lacks</h3><ol class="ngrams">'
        + "".join(
            f"<li><span dir='auto'>{escape(found['words'])}</span> <b>{found['here']} : {found['there']}</b></li>"
            for found in each[kind]
        )
        + ("" if each[kind] else "<li>nothing</li>")
        + "</ol></div>"
        for has, lacks, kind in (
            (each["system"], each["baseline"], "ngrams"),
            (each["baseline"], each["system"], "baseline_ngrams"),
        )
    )
    counted = (
        f"nearer to the reference than {escape(each['baseline'])} in {each['better']:,} sentences, as near in "
        f"{each['equal']:,}, further in {each['worse']:,}"
    )
    return (
        f'<section class="card"><h2>{escape(each["system"])} against {escape(each["baseline"])}</h2><p>It is {counted}.'
        " Below, n-grams that are right in one and not in the other, and how often in each.</p>"
        f'<div class="two">{lists}</div></section>'
    )


def _warnings(found: Mapping[str, Any]) -> str:
    counted = found.get("warnings")
    if counted is None:
        return ""
    if not counted:
        return (
            '<section class="card"><h2>Warnings</h2><p>None: no translation looks odd beside its source.</p></section>'
        )
    lines = "".join(
        f"<tr><th scope='row'>{escape(kind)}</th><td>{number:,}</td><td class='meter'><i style='width:"
        f"{max(100 * number / found['sentences'], 0.6):.1f}%'></i></td></tr>"
        for kind, number in counted.items()
    )
    return (
        f'<section class="card"><h2>Warnings</h2><p>Of {found["sentences"]:,} sentences, those to warn a reader '
        f'of.</p><table class="bars"><tbody>{lines}</tbody></table></section>'
    )


def _terms(found: Mapping[str, Any]) -> str:
    terms = found.get("terms")
    if not terms:
        return ""
    where = f"{terms['terms']:,} terms in {terms['sentences']:,} sentences"
    told = f"{terms['accuracy']:.1%} of {where} stand in the translation"
    helped = terms.get("with_glossary")
    if helped:
        told += f"; {helped['accuracy']:.1%} when translated with the glossary"
    return f'<section class="card"><h2>Terms</h2><p>{told}.</p></section>'


# Charts.


def _bucket(bucket: Mapping[str, Any], series: Sequence[Mapping[str, float]]) -> Place:
    sentences = bucket["sentences"]
    points = [_point(each["bleu"], each["low"], each["high"], few=bucket["small"]) for each in series]
    return Place(_span(bucket), f"{sentences:,} sentence{'s' * (sentences != 1)}", bucket["small"], points)


def _frequency(bucket: Mapping[str, Any]) -> Place:
    words, few = bucket["words"], bucket["words"] < FEW
    point = _point(*(100 * bucket[name] for name in ("f1", "low", "high")), few=few)
    return Place(_span(bucket), f"{words:,} word{'s' * (words != 1)}", few, [point])


def _point(value: float, low: float, high: float, *, few: bool) -> Point | None:
    """None where so few are so alike that resampling gives no interval: the point would look sure."""
    return None if few and high - low < 0.05 else Point(value, low, high)


def _span(bucket: Mapping[str, Any]) -> str:
    first, last = bucket["from"], bucket["to"]
    return f"{first}+" if last is None else f"{first}" if first == last else f"{first}–{last}"


def figure(title: str, note: str, drawn: str) -> str:
    return (
        f'<figure class="card"><figcaption><h2>{escape(title)}</h2><p>{escape(note)}</p></figcaption>{drawn}</figure>'
    )


def chart(places: Sequence[Place], names: Sequence[str], unit: str, *, joined: bool = True) -> str:
    """Points with their intervals over buckets, as SVG; never a point without its interval."""
    bounds = [end for place in places for point in place.points if point for end in (point.low, point.high)]
    low, high = _range(bounds)
    step = (WIDTH - LEFT) / max(len(places), 1)

    def up(value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - (min(max(value, low), high) - low) / (high - low))

    marks = range(low, high + 1, 10 if high - low > 30 else 5)
    drawn = [
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH}" y1="{up(mark):.1f}" y2="{up(mark):.1f}"/>'
        f'<text class="mark" x="{LEFT - 6}" y="{up(mark) + 3.5:.1f}">{mark}</text>'
        for mark in marks
    ]
    for number in range(len(names)):
        spread = (number - (len(names) - 1) / 2) * min(16, step * 0.7 / len(names))
        drawn.append(_series(places, number, [LEFT + step * (place + 0.5) + spread for place in range(len(places))],
                             up, joined=joined))  # fmt: skip
    for number, place in enumerate(places):
        x = LEFT + step * (number + 0.5)
        few = "" if any(place.points) else f'<text class="size" x="{x:.1f}" y="{HEIGHT - BOTTOM - 8}">too few</text>'
        drawn.append(
            f'<text x="{x:.1f}" y="{HEIGHT - 26}">{place.label}</text>'
            f'<text class="size" x="{x:.1f}" y="{HEIGHT - 11}">{place.size}</text>{few}'
        )
    legend = "".join(
        f'<li><i class="dot s{number % 6}"></i>{escape(name)}</li>'
        for number, name in enumerate(names)
        if len(names) > 1
    )
    told = "; ".join(_told(place, names, unit) for place in places)
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(told)}">{"".join(drawn)}</svg>'
        + f'<ul class="legend">{legend}</ul>' * bool(legend)
    )


def _told(place: Place, names: Sequence[str], unit: str) -> str:
    values = ", ".join(
        f"{name if len(names) > 1 else unit} {point.value:.1f} from {point.low:z.1f} to {point.high:.1f}"
        for name, point in zip(names, place.points, strict=True)
        if point
    )
    return f"{place.label}, {place.size}: {values or 'too few to say'}"


def _series(places: Sequence[Place], number: int, xs: Sequence[float], up: Any, *, joined: bool) -> str:
    colour, drawn, before = f"s{number % 6}", [], None
    for place, x in zip(places, xs, strict=True):
        point = place.points[number]
        if point is None:
            before = None
            continue
        kind = colour if not place.small else "few" if len(place.points) == 1 else f"{colour} few"
        y, low, high = up(point.value), up(point.low), up(point.high)
        if joined and before is not None:
            drawn.insert(
                0, f'<line class="path {kind}" x1="{before[0]:.1f}" y1="{before[1]:.1f}" x2="{x:.1f}" y2="{y:.1f}"/>'
            )
        hint = f"{place.label}: {point.value:.1f} ({point.low:z.1f} to {point.high:.1f}), {place.size}"
        drawn.append(
            f'<g class="{kind}"><title>{escape(hint)}</title>'
            f'<path d="M{x:.1f} {low:.1f}V{high:.1f}M{x - 4:.1f} {low:.1f}h8M{x - 4:.1f} {high:.1f}h8"/>'
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4"/></g>'
        )
        before = x, y
    return "".join(drawn)


def _range(bounds: Sequence[float]) -> tuple[int, int]:
    """Round numbers around all of it, at least twenty apart."""
    low = int(min(bounds, default=0.0) // 10 * 10)
    high = min(int(-(-max(bounds, default=100.0) // 10) * 10), 100)  # half an interval may lie beyond
    low = max(min(low, high - 20), 0)
    return low, max(high, low + 20)


def heats(title: str, note: str, looks: Mapping[str, Map | None]) -> str:
    """Small pictures of what was looked at, side by side, each under its name; None: there was nothing to look with."""
    drawn = "".join(
        f'<div><h3 dir="auto">{escape(name)}</h3>{_heat(shown) if shown else BLIND}</div>'
        for name, shown in looks.items()
    )
    return (
        f'<section class="card"><h2>{escape(title)}</h2><p>{escape(note)}</p><div class="heats">{drawn}</div></section>'
    )


def _heat(shown: Map) -> str:
    head = "".join(f'<th scope="col"><span>{escape(word)}</span></th>' for word in shown.columns.words)
    rows = "".join(
        f'<tr><th scope="row">{escape(word)}</th>'
        + "".join(f'<td style="--w:{100 * weight:.0f}" title="{weight:.2f}"></td>' for weight in weights)
        + "</tr>"
        for word, weights in zip(shown.rows.words, shown.picture()[1].tolist(), strict=True)
    )
    table = f'<table class="heat"><thead><tr><th></th>{head}</tr></thead><tbody>{rows}</tbody></table>'
    return f'<div class="scroll">{table}</div>'


# Sentences.


def _filters(rows: Sequence[Row]) -> str:
    kinds = list(dict.fromkeys(row.why for row in rows))
    if not kinds:
        return ""
    choices = [("all", f"all {len(rows)}"), *((kind, kind) for kind in kinds)]
    return "".join(
        f'<label><input type="radio" name="why" value="{value}"{" checked" * (value == "all")}> {text}</label>'
        for value, text in choices
    )


def _row(row: Row) -> str:
    source = f'<p class="source" dir="auto"><b>source</b>{escape(row.source)}</p>' if row.source else ""
    outputs = "".join(_output(row, output) for output in row.outputs)
    missing = "".join(
        f'<p class="ref" dir="auto"><b>reference</b>{_compared(line, row.outputs[0].text, "missed")}</p>'
        for line in row.references[:1]
    )
    others = "".join(f'<p class="ref" dir="auto"><b>reference</b>{escape(line)}</p>' for line in row.references[1:])
    return (
        f'<li class="row" data-why="{row.why}"><p class="where"><span class="badge {row.why}" title="{WHY[row.why]}">'
        f"{row.why}</span> line {row.line:,}</p>{source}"
        f"{missing}{others}{outputs}</li>"
    )


def _output(row: Row, output: Output) -> str:
    scores = " · ".join(f"{NAMES[name]} {value:.0f}" for name, value in output.scores.items() if name in NAMES)
    if output.confidence is not None:
        scores += f" · confidence {output.confidence:.0%}"
    warned = "".join(f'<p class="warned">{escape(f"{each.kind}: {each.message}")}</p>' for each in output.warnings)
    text = _compared(output.text, row.references[0], "odd") if row.references else escape(output.text)
    text = text or "<i>nothing</i>"
    return (
        f'<p class="text" dir="auto"><b>{escape(output.name)}</b>{text} <span class="scores">{scores}</span></p>'
        f"{warned}{_opened(row, output)}"
    )


def _compared(text: str, other: str, kind: str) -> str:
    """A text whose words are marked where the other one has not the same."""
    here, there = text.split(), other.split()
    same = {
        place
        for block in SequenceMatcher(None, here, there, autojunk=False).get_matching_blocks()
        for place in range(block.a, block.a + block.size)
    }
    return " ".join(
        escape(word) if place in same else f'<mark class="{kind}">{escape(word)}</mark>'
        for place, word in enumerate(here)
    )


def _opened(row: Row, output: Output) -> str:
    """What opens to the trace of a translation: its data waits as JSON and is drawn when asked for."""
    if output.trace is None:
        return ""
    title = f"line {row.line:,}, {output.name}"
    data = inspector.embed(output.trace, _maps(output.trace), title=title, warned=output.warnings)
    return (
        f'<details class="trace"><summary>what it looked at<span class="aside"> in line {row.line:,}</span></summary>'
        f'<div></div><script type="application/json">{data}</script></details>'
    )


def _maps(trace: Trace) -> list[Map]:
    """Cross-attention by word, no larger than a page of many can hold."""
    if "cross" not in trace.attention:
        return []
    found = attention(trace, "cross")
    if found.values.numel() > CELLS:
        found = found._replace(values=found.joined.unsqueeze(1))
    if found.values.numel() > CELLS:
        layer = usual_layer(len(found.joined))
        one = found.joined[layer : layer + 1]
        found = found._replace(values=one.unsqueeze(1), joined=one)
    return [found]
