"""The report: how good translations are, as one page with drawings, whose most telling sentences open their traces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

from regard.inspection import inspector
from regard.inspection.attribution import Map, attention, usual_layer
from regard.inspection.quality import QualityWarning
from regard.inspection.trace import Trace

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
LENGTHS = "words of the reference; below, how many sentences"
FEW = 30  # words below which their F-measure says little
BLIND = "It looks at nothing: one vector is all it has. It writes:"
CELLS = 20_000  # weights of one trace: above it heads are averaged, and then but one layer shown
MARKED = (
    "Words on red are not in the reference there; dotted ones are missing from the translation. Another way to say it"
    " may be as good."
)
FEWER = "Hollow: fewer than 30 sentences, which says little."
LEFT, TOP, BOTTOM = 34, 26, 36  # margins of a chart
LINE = 12  # what a label in it takes of its height
LABEL = 18  # letters of a name that it shows
# One shape each besides the colour, around its point: for eyes that see no colours, and for paper that has none.
SHAPES = (
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    "M-3.6-3.6h7.2v7.2h-7.2z",
    "M0-4.8L4.6 3.6h-9.2z",
    "M0-5.2L5.2 0L0 5.2L-5.2 0z",
    "M0 4.8L4.6-3.6h-9.2z",
    "M-1.6-4.8h3.2v3.2h3.2v3.2h-3.2v3.2h-3.2v-3.2h-3.2v-3.2h3.2z",
)


class Output(NamedTuple):
    """What a system wrote for a sentence."""

    name: str
    text: str
    scores: Mapping[str, float]
    warnings: Sequence[QualityWarning] = ()
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


class Size(NamedTuple):
    """How large a chart is, in its own units."""

    name: str
    width: int
    height: int
    right: int
    """What is left for the names at the ends of its lines; without room they stand below."""

    def across(self, share: float) -> float:
        """Where a share of the way from left to right lies."""
        return LEFT + share * (self.width - self.right - LEFT)

    def up(self, share: float) -> float:
        """Where a share of the way from the bottom to the top lies."""
        return TOP + (1 - share) * (self.height - TOP - BOTTOM)


class Place(NamedTuple):
    """A bucket of a chart: what stands under it, and a point of each series, or none where it would say nothing."""

    label: str
    size: int
    small: bool
    points: Sequence[Point | None]


def evaluation_page(title: str, found: Mapping[str, Any], rows: Sequence[Row], about: str) -> str:
    """The page of one system, from what `regard evaluate --json` gives."""
    parts = [
        _cards(found),
        by_length(found["by_length"]),
        figure(
            "Words by frequency",
            "F-measure in percent: whether words that are rare come out as well as those that are not.",
            chart(
                [_frequency(each) for each in found["by_frequency"] if each["words"]],
                ["F-measure"],
                "F-measure",
                f"times a word is in {Path(found['frequencies_from']).name}; below, how many words",
                joined=False,
            ),
        ),
        _warnings(found),
        _terms(found),
    ]
    return page(title, about, parts, rows, kind="evaluation")


def comparison_page(title: str, found: Mapping[str, Any], rows: Sequence[Row], about: str) -> str:
    """The page of several systems, from what `regard compare --json` gives."""
    names = [system["name"] for system in found["systems"]]
    parts = [
        _systems(found),
        by_length(found["by_length"], names),
        *(_against(each) for each in found["against"]),
    ]
    return page(title, about, parts, rows, kind="comparison")


def by_length(buckets: Sequence[Mapping[str, Any]], names: Sequence[str] = ()) -> str:
    """BLEU over buckets of length, of one system or of those named."""
    places = [bucket(each, each["systems"] if names else [each]) for each in buckets]
    few = f" {FEWER}" if any(place.small for place in places) else ""
    return figure(
        "BLEU by length, side by side" if names else "BLEU by length",
        f"The bars are where 95 of 100 resampled corpora lie.{few}",
        chart(places, names or ["BLEU"], "BLEU", LENGTHS),
    )


def page(title: str, about: str, parts: Iterable[str], rows: Sequence[Row], *, kind: str = "report") -> str:
    """One HTML file of these parts, and of sentences that open their traces."""
    template = Template((files("regard.inspection") / "page" / "report.html").read_text(encoding="utf-8"))
    traced = any(output.trace is not None for row in rows for output in row.outputs)
    return template.substitute(
        title=escape(title),
        kind=kind,
        about=escape(about),
        parts="\n".join(filter(None, parts)),
        sentences=_sentences(rows),
        style=inspector.style() if traced else inspector.colours(),
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
            f'<p class="signature">{breakable(score["signature"])}</p></div>'
        )
    return f'<div class="cards">{"".join(cards)}</div>'


def breakable(signature: str) -> str:
    """A signature that may go over several lines between its parts."""
    return "|<wbr>".join(escape(part) for part in signature.split("|"))


def _systems(found: Mapping[str, Any]) -> str:
    heads = "".join(
        f'<th scope="col">{name}</th><th scope="col"><abbr title="by approximate randomisation">p</abbr></th>'
        for name in NAMES.values()
    )
    lines = []
    for place, system in enumerate(found["systems"]):
        cells = "".join(_cell(system[name], found["systems"][0][name]) for name in NAMES)
        lines.append(f'<tr><th scope="row">{key(place)}{escape(system["name"])}</th>{cells}</tr>')
    signatures = "<br>".join(
        f"{NAMES[name]} {breakable(signed)}" for name, tests in found["signatures"].items() for signed in tests.values()
    )
    first = escape(found["systems"][0]["name"])
    return (
        '<section class="card"><h2>Scores</h2><p>Each with where 95 of 100 resampled corpora lie, and p, how likely'
        f" chance alone sets it so far apart from {first}: bold below 0.05.</p>"
        '<div class="scroll" tabindex="0" role="region" aria-label="Scores"><table class="data"><thead><tr>'
        f'<th scope="col">system</th>{heads}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'
        f'<details class="more"><summary>signatures</summary><p class="signature">{signatures}</p></details>'
        "</section>"
    )


def _cell(score: Mapping[str, float], first: Mapping[str, float]) -> str:
    interval = f' <span class="soft">{score["low"]:z.1f}–{score["high"]:.1f}</span>' if "low" in score else ""
    chance = score.get("p_randomisation")
    told = "" if chance is None else f"{chance:.4f}"
    apart = score["score"] != first["score"]  # of equals p is small too, and means nothing
    sure = ' class="sure"' if chance is not None and chance < 0.05 and apart else ' class="soft"'
    return f"<td>{score['score']:.1f}{interval}</td><td{sure}>{told}</td>"


def _against(each: Mapping[str, Any]) -> str:
    lists = "".join(
        f'<div><h3>{escape(has)} has, {escape(lacks)} lacks</h3><ol class="ngrams">{_ngrams(each[kind])}</ol></div>'
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
        " Below, n-grams that are right more often in one than in the other, and how often in each.</p>"
        f'<div class="two">{lists}</div></section>'
    )


def _ngrams(found: Sequence[Mapping[str, Any]]) -> str:
    """Those that came more than once: what is right once may be so by chance."""
    lines = "".join(
        f"<li><span dir='auto'>{escape(each['words'])}</span> <b>{each['here']:,} : {each['there']:,}</b></li>"
        for each in found
        if each["here"] > 1
    )
    return lines or "<li>nothing more than once</li>"


def _warnings(found: Mapping[str, Any]) -> str:
    counted = found.get("warnings")
    if counted is None:
        return ""
    if not counted:
        return (
            '<section class="card"><h2>Warnings</h2><p>None: no translation looks odd beside its source.</p></section>'
        )
    lines = "".join(
        f"<tr><th scope='row'>{escape(kind)}</th><td>{number:,}</td><td class='meter'><div><i style='width:"
        f"{max(100 * number / found['sentences'], 0.6):.1f}%'></i></div></td></tr>"
        for kind, number in counted.items()
    )
    return (
        f'<section class="card"><h2>Warnings</h2><p>Of {found["sentences"]:,} sentences, those to warn a reader '
        f'of.</p><table class="data bars"><tbody>{lines}</tbody></table></section>'
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


def bucket(found: Mapping[str, Any], series: Sequence[Mapping[str, float]]) -> Place:
    """A bucket of lengths, with a point of each of these systems."""
    points = [_point(each["bleu"], each["low"], each["high"], few=found["small"]) for each in series]
    return Place(_span(found), found["sentences"], found["small"], points)


def _frequency(found: Mapping[str, Any]) -> Place:
    few = found["words"] < FEW
    point = _point(*(100 * found[name] for name in ("f1", "low", "high")), few=few)
    return Place(_span(found), found["words"], few, [point])


def _point(value: float, low: float, high: float, *, few: bool) -> Point | None:
    """None where so few are so alike that resampling gives no interval: the point would look sure."""
    return None if few and high - low < 0.05 else Point(value, low, high)


def _span(found: Mapping[str, Any]) -> str:
    first, last = found["from"], found["to"]
    return f"{first}+" if last is None else f"{first}" if first == last else f"{first}–{last}"


def figure(title: str, note: str, drawn: str) -> str:
    return (
        f'<figure class="card"><figcaption><h2>{escape(title)}</h2><p>{escape(note)}</p></figcaption>{drawn}</figure>'
    )


def chart(places: Sequence[Place], names: Sequence[str], unit: str, across: str, *, joined: bool = True) -> str:
    """Points with their intervals over buckets, as SVG; never a point without its interval."""
    told = f"{unit} by {across}: " + "; ".join(_told(place, names, unit) for place in places)
    drawn = drawing(names, told, across, lambda size: _buckets(size, places, names, unit, joined=joined))
    return drawn + _figures(places, names)


def drawing(names: Sequence[str], told: str, across: str, draw: Callable[[Size], str]) -> str:
    """A chart as a wide page shows it and as a narrow one does, where the names stand below.

    What goes across stands below as text of the page, which goes over several lines where it must.
    """
    right = 8 if len(names) < 2 else 26 + 6 * max(len(short(name)) for name in names)
    svgs = "".join(
        f'<svg class="chart {size.name}" viewBox="0 0 {size.width} {size.height}" role="img"'
        f' aria-label="{escape(told)}">{draw(size)}</svg>'
        for size in (Size("wide", 640, 270, right), Size("narrow", 330, 230, 4))
    )
    keys = "".join(f"<li>{key(number)}{escape(name)}</li>" for number, name in enumerate(names) if len(names) > 1)
    return f'{svgs}<p class="across">{escape(across)}</p>' + f'<ul class="legend">{keys}</ul>' * bool(keys)


def key(number: int) -> str:
    """The shape and colour of a series, to stand before its name."""
    shape = SHAPES[number % 6]
    return f'<svg class="key s{number % 6}" viewBox="-6 -6 12 12" aria-hidden="true"><path d="{shape}"/></svg>'


def short(name: str) -> str:
    """A name as a chart has room for it."""
    return name if len(name) <= LABEL else name[: LABEL - 1] + "…"


def frame(size: Size, unit: str, marks: Iterable[tuple[float, str]]) -> str:
    """What a chart stands on: lines at these shares of its height with their numbers, and what these are."""
    end = size.width - size.right
    lines = "".join(
        f'<line class="grid" x1="{LEFT}" x2="{end}" y1="{size.up(share):.1f}" y2="{size.up(share):.1f}"/>'
        f'<text class="mark" x="{LEFT - 6}" y="{size.up(share) + 3.5:.1f}">{text}</text>'
        for share, text in marks
    )
    return f'{lines}<text class="axis" x="2" y="11">{escape(unit)}</text>'


def labels(size: Size, names: Sequence[str], ends: Sequence[tuple[float, float] | None]) -> str:
    """Names beside the ends of their lines, none on another; on a narrow page none, as there is no room."""
    if size.right < LINE:
        return ""
    columns: list[list[tuple[int, tuple[float, float]]]] = []
    for number, end in sorted(((number, end) for number, end in enumerate(ends) if end), key=lambda item: item[1]):
        if not columns or end[0] - columns[-1][-1][1][0] > 6 * LABEL:
            columns.append([])
        columns[-1].append((number, end))
    return "".join(_column(size, names, column) for column in columns)


def _column(size: Size, names: Sequence[str], ends: Sequence[tuple[int, tuple[float, float]]]) -> str:
    heights = apart([y for _, (_, y) in ends], LINE, TOP, size.up(0.0))
    return "".join(
        f'<g class="label s{number % 6}"><line x1="{x + 6:.1f}" y1="{y:.1f}" x2="{x + 13:.1f}" y2="{height:.1f}"/>'
        f'<text x="{x + 16:.1f}" y="{height + 3.5:.1f}">{escape(short(names[number]))}</text></g>'
        for (number, (x, y)), height in zip(ends, heights, strict=True)
    )


def apart(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Heights near those wanted, but at least a gap from each other."""
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    found = list(wanted)
    for edge, places, nearer in ((low, order, max), (high, order[::-1], min)):
        for place in places:
            found[place] = nearer(found[place], edge)
            edge = found[place] + (gap if nearer is max else -gap)
    return found


def _buckets(size: Size, places: Sequence[Place], names: Sequence[str], unit: str, *, joined: bool) -> str:
    bounds = [end for place in places for point in place.points if point for end in (point.low, point.high)]
    low, high = _range(bounds)
    step = size.across(1 / max(len(places), 1)) - LEFT

    def up(value: float) -> float:
        return size.up((min(max(value, low), high) - low) / (high - low))

    marks = range(low, high + 1, 20 if high - low > 50 else 10 if high - low > 30 else 5)
    drawn = [frame(size, unit, [((mark - low) / (high - low), str(mark)) for mark in marks])]
    ends: list[tuple[float, float] | None] = []
    for number in range(len(names)):
        spread = (number - (len(names) - 1) / 2) * min(14, step * 0.72 / len(names))
        xs = [LEFT + step * (place + 0.5) + spread for place in range(len(places))]
        drawn.append(_series(places, number, xs, up, joined=joined))
        last = next((place for place in reversed(range(len(places))) if places[place].points[number]), None)
        point = None if last is None else places[last].points[number]
        ends.append(None if last is None or point is None else (size.width - size.right - 2, up(point.value)))
    for number, place in enumerate(places):
        x, bottom = LEFT + step * (number + 0.5), size.up(0.0)
        few = "" if any(place.points) else f'<text class="size" x="{x:.1f}" y="{bottom - 8:.1f}">too few</text>'
        drawn.append(
            f'<text x="{x:.1f}" y="{bottom + 17:.1f}">{place.label}</text>'
            f'<text class="size" x="{x:.1f}" y="{bottom + 31:.1f}">{place.size:,}</text>{few}'
        )
    return "".join(drawn) + (labels(size, names, ends) if len(names) > 1 else "")


def _told(place: Place, names: Sequence[str], unit: str) -> str:
    values = ", ".join(
        f"{name if len(names) > 1 else unit} {point.value:.1f} from {point.low:z.1f} to {point.high:.1f}"
        for name, point in zip(names, place.points, strict=True)
        if point
    )
    return f"{place.label}, {place.size:,}: {values or 'too few to say'}"


def _series(places: Sequence[Place], number: int, xs: Sequence[float], up: Any, *, joined: bool) -> str:
    colour, drawn, before = f"s{number % 6}", [], None
    for place, x in zip(places, xs, strict=True):
        point = place.points[number]
        if point is None:
            before = None
            continue
        y, low, high = up(point.value), up(point.low), up(point.high)
        if joined and before is not None:
            few = " few" * (place.small or before[2])
            drawn.insert(0, f'<line class="path {colour}{few}" x1="{before[0]:.1f}" y1="{before[1]:.1f}"'
                            f' x2="{x:.1f}" y2="{y:.1f}"/>')  # fmt: skip
        hint = f"{place.label}: {point.value:.1f} ({point.low:z.1f} to {point.high:.1f}), {place.size:,}"
        drawn.append(
            f'<g class="point {colour}{" few" * place.small}"><title>{escape(hint)}</title>'
            f'<path class="interval" d="M{x:.1f} {low:.1f}V{high:.1f}m-3 0h6M{x - 3:.1f} {low:.1f}h6"/>'
            f'<path d="{SHAPES[number % 6]}" transform="translate({x:.1f} {y:.1f}) scale(.8)"/></g>'
        )
        before = x, y, place.small
    return "".join(drawn)


def _figures(places: Sequence[Place], names: Sequence[str]) -> str:
    """The same as numbers."""
    head = "".join(f'<th scope="col">{place.label}</th>' for place in places)
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th>'
        + "".join(
            f'<td>{point.value:.1f}<br><span class="soft">{point.low:z.1f}–{point.high:.1f}</span></td>' if point
            else "<td></td>"
            for point in (place.points[number] for place in places)
        )
        + "</tr>"
        for number, name in enumerate(names)
    )  # fmt: skip
    return (
        '<details class="more"><summary>the figures</summary><div class="scroll" tabindex="0" role="region"'
        f' aria-label="the figures"><table class="data"><thead><tr><th></th>{head}</tr></thead><tbody>{rows}</tbody>'
        "</table></div></details>"
    )


def _range(bounds: Sequence[float]) -> tuple[int, int]:
    """Round numbers around all of it, at least twenty apart."""
    low = int(min(bounds, default=0.0) // 10 * 10)
    high = min(int(-(-max(bounds, default=100.0) // 10) * 10), 100)  # half an interval may lie beyond
    low = max(min(low, high - 20), 0)
    return low, max(high, low + 20)


def heats(title: str, note: str, looks: Mapping[str, Map | str]) -> str:
    """Small pictures of what was looked at, side by side, each under its name; without attention, what was written."""
    drawn = "".join(f'<div><h3 dir="auto">{escape(name)}</h3>{_heat(shown)}</div>' for name, shown in looks.items())
    return (
        f'<section class="card"><h2>{escape(title)}</h2><p>{escape(note)}</p><div class="heats">{drawn}</div></section>'
    )


def _heat(shown: Map | str) -> str:
    if isinstance(shown, str):
        return f'<p class="soft">{BLIND}</p><p dir="auto">{escape(shown)}</p>'
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


# Sentences.


def _sentences(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    kinds = Counter(row.why for row in rows)
    filters = "".join(
        f'<label><input type="radio" name="why" value="{kind}"{" checked" * (kind == "all")}> {kind} {number}</label>'
        for kind, number in {"all": len(rows), **kinds}.items()
    )
    which = f'<fieldset class="filters"><legend class="aside">which sentences</legend>{filters}</fieldset>'
    return (
        '<section class="lines" aria-labelledby="telling"><h2 id="telling">Sentences worth a look</h2>'
        + f"<p>{MARKED}</p>" * any(row.references for row in rows)
        + which * (len(kinds) > 1)
        + f'<ol class="rows">{"".join(_row(row) for row in rows)}</ol></section>'
    )


def _row(row: Row) -> str:
    source = f'<p class="source" dir="auto"><b>source</b>{escape(row.source)}</p>' if row.source else ""
    outputs = "".join(_output(row, output) for output in row.outputs)
    missing = "".join(
        f'<p class="ref" dir="auto"><b>reference</b>{_compared(line, row.outputs[0].text, "missed")}</p>'
        for line in row.references[:1]
    )
    others = "".join(f'<p class="ref" dir="auto"><b>reference</b>{escape(line)}</p>' for line in row.references[1:])
    badge = row.why
    if row.why in ("better", "worse") and len(row.outputs) > 1:
        badge = f"{row.outputs[0].name} {row.why} than {row.outputs[1].name}"
    return (
        f'<li class="row" data-why="{row.why}"><p class="where"><span class="badge {row.why}" title="{WHY[row.why]}">'
        f"{escape(badge)}</span> line {row.line:,}</p>{source}"
        f"{missing}{others}{outputs}</li>"
    )


def _output(row: Row, output: Output) -> str:
    scores = [f"{NAMES[name]} {value:.0f}" for name, value in output.scores.items() if name in NAMES]
    if output.confidence is not None:
        scores.append(f"confidence {output.confidence:.0%}")
    warned = "".join(f'<p class="warned">{escape(f"{each.kind}: {each.message}")}</p>' for each in output.warnings)
    text = _compared(output.text, row.references[0], "odd") if row.references else escape(output.text)
    text = text or "<i>nothing</i>"
    told = " · ".join(scores)
    return (
        f'<p class="text" dir="auto"><b>{escape(output.name)}</b>{text} <span class="scores">{told}</span></p>'
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
