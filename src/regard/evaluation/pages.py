"""Pages: an evaluation or a comparison as HTML, with charts and example sentences that open their traces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from regard.evaluation.metrics import METRICS, MIN_DIFFERING
from regard.evaluation.systems import short_name, trace_lines
from regard.inspection import charts, inspector, pages
from regard.inspection.attribution import Map, attention, default_layer
from regard.inspection.pages import card, table
from regard.inspection.quality import QualityWarning
from regard.inspection.trace import Trace

if TYPE_CHECKING:
    from regard.evaluation.compare import Comparison
    from regard.evaluation.evaluate import Evaluation, Sentence

KINDS = {
    "warned": "Translations with a warning.",
    "worst": "The lowest chrF against the reference.",
    "best": "The highest chrF against the reference.",
    "middle": "Typical translations.",
    "better": "Much closer to the reference than the baseline.",
    "worse": "Much further from the reference than the baseline.",
    "shown": "Its attention, word by word.",
}
MAX_DIFFERENT = 50  # sentences on the page of a comparison
MAX_WEIGHTS = 15_000  # of one trace; a larger one shows the mean of its heads and, if still larger, one layer
ERROR_BARS = "Error bars: 95 % bootstrap interval."
MARKED = (
    "Words marked red are not in the reference; dotted words of the reference are missing from the translation. Another"
    " wording may be as good."
)


class Output(NamedTuple):
    """The translation of a sentence by one system."""

    name: str
    text: str
    scores: Mapping[str, float]
    warnings: Sequence[QualityWarning] = ()
    confidence: float | None = None
    trace: Trace | None = None


class Row(NamedTuple):
    """A sentence of a page."""

    line: int
    kind: str
    """One of KINDS."""
    source: str
    references: Sequence[str]
    outputs: Sequence[Output]


def evaluation_page(evaluation: Evaluation, examples: list[tuple[str, Sentence]]) -> str:
    """The page of one system with these example sentences."""
    traces: dict[int, Trace] = {}
    if evaluation.translator is not None:
        sources = {sentence.line: sentence.source for _, sentence in examples}
        traces = trace_lines(evaluation.translator, sources, beams=evaluation.beams)
    rows = []
    for kind, sentence in examples:
        signals = sentence.warnings, sentence.confidence, traces.get(sentence.line)
        output = Output("translation", sentence.text, sentence.scores, *signals)
        rows.append(Row(sentence.line, kind, sentence.source, sentence.references, [output]))
    title = short_name(evaluation.system)
    return page(title, evaluation.about, evaluation_parts(evaluation.to_dict()), rows, kind="evaluation")


def comparison_page(comparison: Comparison) -> str:
    """The page of several systems, with the sentences whose chrF differs most from that of the first system."""
    limit = max(MAX_DIFFERENT // len(comparison.against) // 2, 1)
    examples = []
    for contrast in comparison.against:
        for kind, sign in (("better", 1), ("worse", -1)):
            different = [sentence for sentence in contrast.different if sentence.gap * sign > 0]
            examples += [(kind, contrast, sentence) for sentence in different[:limit]]
    sources = comparison.sources
    traces: dict[tuple[str, int], Trace] = {}
    for name, translator in (comparison.translators or {}).items():
        lines = [x.line for _, contrast, x in examples if name in (contrast.system, contrast.baseline)]
        texts = {line: sources[line - 1] for line in lines if sources}
        for line, trace in trace_lines(translator, texts, beams=comparison.beams).items():
            traces[name, line] = trace
    rows = []
    for kind, contrast, sentence in examples:
        line = sentence.line
        outputs = [
            Output(name, translation, {"chrf": score}, trace=traces.get((name, line)))
            for name, translation, score in (
                (contrast.system, sentence.text, sentence.chrf),
                (contrast.baseline, sentence.baseline_text, sentence.baseline_chrf),
            )
        ]
        source = sources[line - 1] if sources is not None else ""
        rows.append(Row(line, kind, source, [lines[line - 1] for lines in comparison.references], outputs))
    return page(
        ", ".join(comparison.scores), comparison.about, comparison_parts(comparison.to_dict()), rows, kind="comparison"
    )


def page(title: str, about: str, parts: Iterable[str], rows: Sequence[Row], *, kind: str) -> str:
    """One HTML file of these parts, and of sentences that open their traces."""
    traced = any(output.trace is not None for row in rows for output in row.outputs)
    scripts = inspector.SCRIPTS if traced else pages.SCRIPTS
    return pages.page(title, [*parts, _sentences(rows)], kind=kind, about=about, scripts=scripts)


# Scores.


def evaluation_parts(result: Mapping[str, Any]) -> list[str]:
    """The scores, charts and counts of one system, from the dict of an Evaluation."""
    frequencies = charts.interval_chart(
        [charts.frequency_group(bucket) for bucket in result["by_frequency"] if bucket["words"]],
        ["F1"],
        "F1",
        f"frequency of a word in {Path(result['frequencies_from']).name}; below, the number of words",
        joined=False,
    )
    scores = []
    for metric, name in METRICS.items():
        score, better = result[metric], "lower" if metric == "ter" else "higher"
        interval = f"{score['low']:z.1f} to {score['high']:.1f} · {better} is better"
        scores.append((name, f"{score['score']:.1f}", interval, score["signature"]))
    parts = [
        pages.score_cards(scores),
        by_length(result["by_length"]),
        card("Words by frequency", f"F1 of rare and frequent words, in percent. {ERROR_BARS}", frequencies),
    ]
    sentences, warnings, terms = result["sentences"], result.get("warnings"), result.get("terms")
    if warnings is not None:
        rows = [[escape(kind), f"{number:,}", f"{number / sentences:.1%}"] for kind, number in warnings.items()]
        note = f"Of {sentences:,} sentences, those with a warning." if rows else "None."
        parts.append(card("Warnings", note, table(["warning", "sentences", "share"], rows) if rows else ""))
    if terms:
        text = f"{terms['accuracy']:.1%} of {terms['terms']:,} terms in {terms['sentences']:,} sentences are translated"
        helped = terms.get("with_glossary")
        parts.append(card("Terms", text + (f"; {helped['accuracy']:.1%} with the glossary." if helped else ".")))
    return parts


def comparison_parts(result: Mapping[str, Any]) -> list[str]:
    """The scores and charts of several systems, from the dict of a Comparison."""
    first, rows = result["systems"][0], []
    for number, system in enumerate(result["systems"]):
        cells = [charts.series_key(number) + escape(system["name"])]
        for metric in METRICS:
            score, p = system[metric], system[metric].get("p_randomisation")
            untested = "–" if number else ""
            interval = f'<span class="soft">{score["low"]:z.1f}–{score["high"]:.1f}</span>'
            cells += [
                f"{score['score']:.1f} {interval}",
                untested if p is None else f"<b>{p:.4f}</b>" if p < 0.05 else f"{p:.4f}",
            ]
        rows.append(cells)
    p_head = '<abbr title="by approximate randomisation">p</abbr>'
    note = (
        f"With 95 % bootstrap intervals, and p: the probability of such a difference from {first['name']} by chance, "
        f"bold below 0.05. –: fewer than {MIN_DIFFERING} sentences differ, too few for a test."
    )
    signatures = "".join(
        pages.signature(f"{METRICS[metric]} {text}")
        for metric, tests in result["signatures"].items()
        for text in tests.values()
    )
    return [
        card(
            "Scores",
            note,
            table(["system", *(head for name in METRICS.values() for head in (name, p_head))], rows),
            f'<details class="more"><summary>signatures</summary>{signatures}</details>',
        ),
        by_length(result["by_length"], [system["name"] for system in result["systems"]]),
        *map(_contrast, result["against"]),
    ]


def by_length(buckets: Sequence[Mapping[str, Any]], names: Sequence[str] = (), bars: str = ERROR_BARS) -> str:
    """BLEU by reference length, of one system or of those named."""
    groups = [charts.length_group(bucket, bucket["systems"] if names else [bucket]) for bucket in buckets]
    few = " Hollow points have fewer than 30 sentences." if any(group.small for group in groups) else ""
    axis = "words in the reference; below, the number of sentences"
    return card("BLEU by length", bars + few, charts.interval_chart(groups, names or ["BLEU"], "BLEU", axis))


def _contrast(contrast: Mapping[str, Any]) -> str:
    system, baseline = contrast["system"], contrast["baseline"]
    title = f"{system} against {baseline}"
    if not contrast["differing"]:
        return card(title, "All translations are identical.")
    note = (
        f"Its chrF is higher than that of {baseline} in {contrast['better']:,} sentences, equal in "
        f"{contrast['equal']:,} and lower in {contrast['worse']:,}. Below, n-grams that are right more often in one of "
        "them, and how often in each."
    )
    tables = [
        table(
            [escape(f"{here} has, {there} lacks"), ""],
            [
                [f'<span dir="auto">{escape(ngram["words"])}</span>', f"{ngram['here']:,} : {ngram['there']:,}"]
                for ngram in contrast[name]
                if ngram["here"] > 1  # once may be chance
            ]
            or [["nothing more than once"]],
        )
        for here, there, name in ((system, baseline, "ngrams"), (baseline, system, "baseline_ngrams"))
    ]
    return card(title, note, f'<div class="two">{"".join(tables)}</div>')


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
        + f'<ol class="rows">{"".join(map(_row, rows))}</ol></section>'
    )


def _row(row: Row) -> str:
    lines = [("source", escape(row.source))] if row.source else []
    for number, reference in enumerate(row.references):
        compared = escape(reference) if number else _compared(reference, row.outputs[0].text, "missed")
        lines.append(("reference", compared))
    texts = "".join(f'<p dir="auto"><b>{name}</b>{text}</p>' for name, text in lines)
    badge = row.kind
    if row.kind in ("better", "worse") and len(row.outputs) > 1:
        badge = f"{row.outputs[0].name} {row.kind} than {row.outputs[1].name}"
    return (
        f'<li class="row" data-kind="{row.kind}"><p class="where"><span class="badge {row.kind}"'
        f' title="{KINDS[row.kind]}">{escape(badge)}</span> line {row.line:,}</p>{texts}'
        f"{''.join(_output(row, output) for output in row.outputs)}</li>"
    )


def _output(row: Row, output: Output) -> str:
    scores = [f"{METRICS[name]} {value:.0f}" for name, value in output.scores.items() if name in METRICS]
    if output.confidence is not None:
        scores.append(f"confidence {output.confidence:.0%}")
    warnings = "".join(f'<p class="warned">{escape(f"{x.kind}: {x.message}")}</p>' for x in output.warnings)
    text = _compared(output.text, row.references[0], "odd") if row.references else escape(output.text)
    trace = ""
    if output.trace is not None:
        inside = inspector.embed(output.trace, _maps(output.trace), warned=output.warnings)
        hidden = f'<span class="aside"> in line {row.line:,}</span>'
        trace = f'<details class="trace"><summary>attention{hidden}</summary>{inside}</details>'
    return (
        f'<p dir="auto"><b>{escape(output.name)}</b>{text or "<i>nothing</i>"}'
        f' <span class="scores">{" · ".join(scores)}</span></p>{warnings}{trace}'
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


def _maps(trace: Trace) -> list[Map]:
    """The cross-attention by word; if it is large, only the mean of the heads, or of one layer."""
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
