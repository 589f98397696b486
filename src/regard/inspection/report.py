"""Report: an evaluation or comparison as one page with charts, whose sentences open their traces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

from regard.inspection import charts, inspector
from regard.inspection.attribution import Map, attention, default_layer
from regard.inspection.quality import QualityWarning
from regard.inspection.trace import Trace

METRICS = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER"}
BETTER = {"bleu": "higher is better", "chrf": "higher is better", "ter": "lower is better"}
KINDS = {
    "warned": "Translations with a warning.",
    "worst": "The lowest chrF against the reference.",
    "best": "The highest chrF against the reference.",
    "middle": "Typical translations.",
    "better": "Much closer to the reference than the baseline.",
    "worse": "Much further from the reference than the baseline.",
    "shown": "Its attention, word by word.",
}
LENGTH_AXIS = "words in the reference; below, the number of sentences"
MAX_WEIGHTS = 20_000  # of one trace: above it heads are averaged, and then only one layer is shown
MARKED = (
    "Words marked red are not in the reference; dotted words of the reference are missing from the translation. Another"
    " wording may be as good."
)
ERROR_BARS = "Error bars: 95 % bootstrap interval."
HOLLOW = "Hollow points have fewer than 30 sentences."


class Output(NamedTuple):
    """The translation of a sentence by one system."""

    name: str
    text: str
    scores: Mapping[str, float]
    warnings: Sequence[QualityWarning] = ()
    confidence: float | None = None
    trace: Trace | None = None


class Row(NamedTuple):
    """A sentence of a report."""

    line: int
    kind: str
    """One of KINDS."""
    source: str
    references: Sequence[str]
    outputs: Sequence[Output]


def evaluation_page(title: str, result: Mapping[str, Any], rows: Sequence[Row], about: str) -> str:
    """The page of one system, from the dict of an Evaluation."""
    counted_in = Path(result["frequencies_from"]).name
    frequencies = charts.interval_chart(
        [charts.frequency_group(bucket) for bucket in result["by_frequency"] if bucket["words"]],
        ["F1"],
        "F1",
        f"frequency of a word in {counted_in}; below, the number of words",
        joined=False,
    )
    parts = [
        _score_cards(result),
        by_length(result["by_length"]),
        charts.figure("Words by frequency", f"F1 of rare and frequent words, in percent. {ERROR_BARS}", frequencies),
        _warnings(result),
        _terms(result),
    ]
    return page(title, about, parts, rows, kind="evaluation")


def comparison_page(title: str, result: Mapping[str, Any], rows: Sequence[Row], about: str) -> str:
    """The page of several systems, from the dict of a Comparison."""
    names = [system["name"] for system in result["systems"]]
    parts = [_systems(result), by_length(result["by_length"], names), *map(_contrast, result["against"])]
    return page(title, about, parts, rows, kind="comparison")


def by_length(buckets: Sequence[Mapping[str, Any]], names: Sequence[str] = ()) -> str:
    """BLEU by reference length, of one system or of those named."""
    groups = [charts.length_group(bucket, bucket["systems"] if names else [bucket]) for bucket in buckets]
    few = f" {HOLLOW}" if any(group.small for group in groups) else ""
    chart = charts.interval_chart(groups, names or ["BLEU"], "BLEU", LENGTH_AXIS)
    return charts.figure("BLEU by length", f"{ERROR_BARS}{few}", chart)


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


def _score_cards(result: Mapping[str, Any]) -> str:
    cards = []
    for name in filter(result.__contains__, METRICS):
        score = result[name]
        cards.append(
            f'<div class="card score"><h2>{METRICS[name]}</h2><p class="big">{score["score"]:.1f}</p>'
            f'<p class="interval">{score["low"]:z.1f} to {score["high"]:.1f} · {BETTER[name]}</p>'
            f'<p class="signature">{breakable(score["signature"])}</p></div>'
        )
    return f'<div class="cards">{"".join(cards)}</div>'


def breakable(signature: str) -> str:
    """A signature that may be wrapped between its parts."""
    return "|<wbr>".join(escape(part) for part in signature.split("|"))


def _systems(result: Mapping[str, Any]) -> str:
    heads = "".join(
        f'<th scope="col">{name}</th><th scope="col"><abbr title="by approximate randomisation">p</abbr></th>'
        for name in METRICS.values()
    )
    first = result["systems"][0]
    rows = []
    for number, system in enumerate(result["systems"]):
        cells = "".join(_system_cell(system[name], first[name]) for name in METRICS)
        rows.append(f'<tr><th scope="row">{charts.series_key(number)}{escape(system["name"])}</th>{cells}</tr>')
    signatures = "<br>".join(
        f"{METRICS[name]} {breakable(signature)}"
        for name, tests in result["signatures"].items()
        for signature in tests.values()
    )
    return (
        '<section class="card"><h2>Scores</h2><p>With 95 % bootstrap intervals, and p: the probability of such a '
        f"difference from {escape(first['name'])} by chance, bold below 0.05.</p>"
        '<div class="scroll" tabindex="0" role="region" aria-label="Scores"><table class="data"><thead><tr>'
        f'<th scope="col">system</th>{heads}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
        f'<details class="more"><summary>signatures</summary><p class="signature">{signatures}</p></details>'
        "</section>"
    )


def _system_cell(score: Mapping[str, float], first: Mapping[str, float]) -> str:
    p = score.get("p_randomisation")
    differs = score["score"] != first["score"]  # two equal scores get a small p-value too, which means nothing
    style = "sure" if p is not None and p < 0.05 and differs else "soft"
    interval = f'<span class="soft">{score["low"]:z.1f}–{score["high"]:.1f}</span>'
    return f'<td>{score["score"]:.1f} {interval}</td><td class="{style}">{"" if p is None else f"{p:.4f}"}</td>'


def _contrast(contrast: Mapping[str, Any]) -> str:
    system, baseline = escape(contrast["system"]), escape(contrast["baseline"])
    lists = "".join(
        f'<div><h3>{here} has, {there} lacks</h3><ol class="ngrams">{_ngrams(contrast[name])}</ol></div>'
        for here, there, name in ((system, baseline, "ngrams"), (baseline, system, "baseline_ngrams"))
    )
    return (
        f'<section class="card"><h2>{system} against {baseline}</h2><p>Its chrF is higher than that of {baseline} in '
        f"{contrast['better']:,} sentences, equal in {contrast['equal']:,} and lower in {contrast['worse']:,}. Below, "
        "n-grams that are right more often in one of them, and how often in each.</p>"
        f'<div class="two">{lists}</div></section>'
    )


def _ngrams(ngrams: Sequence[Mapping[str, Any]]) -> str:
    """N-grams that are right more than once; once may be chance."""
    rows = "".join(
        f"<li><span dir='auto'>{escape(ngram['words'])}</span> <b>{ngram['here']:,} : {ngram['there']:,}</b></li>"
        for ngram in ngrams
        if ngram["here"] > 1
    )
    return rows or "<li>nothing more than once</li>"


def _warnings(result: Mapping[str, Any]) -> str:
    counts = result.get("warnings")
    if counts is None:
        return ""
    if not counts:
        return '<section class="card"><h2>Warnings</h2><p>None.</p></section>'
    rows = "".join(
        f"<tr><th scope='row'>{escape(kind)}</th><td>{number:,}</td><td class='meter'><div><i style='width:"
        f"{max(100 * number / result['sentences'], 0.6):.1f}%'></i></div></td></tr>"
        for kind, number in counts.items()
    )
    return (
        f'<section class="card"><h2>Warnings</h2><p>Of {result["sentences"]:,} sentences, those with a warning.</p>'
        f'<table class="data bars"><tbody>{rows}</tbody></table></section>'
    )


def _terms(result: Mapping[str, Any]) -> str:
    terms = result.get("terms")
    if not terms:
        return ""
    text = f"{terms['accuracy']:.1%} of {terms['terms']:,} terms in {terms['sentences']:,} sentences are translated"
    helped = terms.get("with_glossary")
    if helped:
        text += f"; {helped['accuracy']:.1%} with the glossary"
    return f'<section class="card"><h2>Terms</h2><p>{text}.</p></section>'


# Sentences.


def _sentences(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    kinds = Counter(row.kind for row in rows)
    filters = "".join(
        f'<label><input type="radio" name="kind" value="{kind}"{" checked" * (kind == "all")}> {kind} {number}</label>'
        for kind, number in {"all": len(rows), **kinds}.items()
    )
    choice = f'<fieldset class="filters"><legend class="aside">which sentences</legend>{filters}</fieldset>'
    return (
        '<section class="lines" aria-labelledby="examples"><h2 id="examples">Sentences</h2>'
        + f"<p>{MARKED}</p>" * any(row.references for row in rows)
        + choice * (len(kinds) > 1)
        + f'<ol class="rows">{"".join(_row(row) for row in rows)}</ol></section>'
    )


def _row(row: Row) -> str:
    source = f'<p class="source" dir="auto"><b>source</b>{escape(row.source)}</p>' if row.source else ""
    outputs = "".join(_output(row, output) for output in row.outputs)
    references = "".join(
        f'<p class="ref" dir="auto"><b>reference</b>'
        f"{escape(line) if number else _compared(line, row.outputs[0].text, 'missed')}</p>"
        for number, line in enumerate(row.references)
    )
    badge = row.kind
    if row.kind in ("better", "worse") and len(row.outputs) > 1:
        badge = f"{row.outputs[0].name} {row.kind} than {row.outputs[1].name}"
    return (
        f'<li class="row" data-kind="{row.kind}"><p class="where"><span class="badge {row.kind}"'
        f' title="{KINDS[row.kind]}">{escape(badge)}</span> line {row.line:,}</p>{source}{references}{outputs}</li>'
    )


def _output(row: Row, output: Output) -> str:
    scores = [f"{METRICS[name]} {value:.0f}" for name, value in output.scores.items() if name in METRICS]
    if output.confidence is not None:
        scores.append(f"confidence {output.confidence:.0%}")
    warnings = "".join(
        f'<p class="warned">{escape(f"{warning.kind}: {warning.message}")}</p>' for warning in output.warnings
    )
    text = _compared(output.text, row.references[0], "odd") if row.references else escape(output.text)
    return (
        f'<p class="text" dir="auto"><b>{escape(output.name)}</b>{text or "<i>nothing</i>"}'
        f' <span class="scores">{" · ".join(scores)}</span></p>{warnings}{_trace(row, output)}'
    )


def _compared(text: str, other: str, kind: str) -> str:
    """A text with marks on the words that the other text does not have there."""
    here, there = text.split(), other.split()
    blocks = SequenceMatcher(None, here, there, autojunk=False).get_matching_blocks()
    same = {index for block in blocks for index in range(block.a, block.a + block.size)}
    return " ".join(
        escape(word) if index in same else f'<mark class="{kind}">{escape(word)}</mark>'
        for index, word in enumerate(here)
    )


def _trace(row: Row, output: Output) -> str:
    """Details that open the trace of a translation; it is drawn from JSON when it is opened."""
    if output.trace is None:
        return ""
    title = f"line {row.line:,}, {output.name}"
    data = inspector.embed(output.trace, _maps(output.trace), title=title, warned=output.warnings)
    return (
        f'<details class="trace"><summary>attention<span class="aside"> in line {row.line:,}</span></summary>'
        f'<div></div><script type="application/json">{data}</script></details>'
    )


def _maps(trace: Trace) -> list[Map]:
    """Cross-attention by word, small enough for a page of many."""
    if "cross" not in trace.attention:
        return []
    cross = attention(trace, "cross")
    if cross.values.numel() > MAX_WEIGHTS:
        cross = cross._replace(values=cross.joined.unsqueeze(1))
    if cross.values.numel() > MAX_WEIGHTS:
        layer = default_layer(len(cross.joined))
        one_layer = cross.joined[layer : layer + 1]
        cross = cross._replace(values=one_layer.unsqueeze(1), joined=one_layer)
    return [cross]
