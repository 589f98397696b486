"""Pages: an evaluation or a comparison as HTML, with charts and example sentences that open their traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from regard.evaluation.metrics import METRICS, MIN_DIFFERING
from regard.inspection import charts, inspector, pages
from regard.inspection.attribution import attention, default_layer
from regard.inspection.pages import card, fold, table
from regard.inspection.quality import QualityWarning
from regard.inspection.trace import Trace
from regard.results import counted

SORTING = {  # what sentences can be sorted by, and its name; a minus sign puts the highest first
    "-difference": "difference, largest first",
    "chrf": "chrF, lowest first",
    "-chrf": "chrF, highest first",
    "-length": "length, longest first",
    "length": "length, shortest first",
    "confidence": "confidence, lowest first",
    "line": "line",
}
MAX_ROWS = 1000  # sentences of a page
MAX_TRACES = 50  # sentences of a page that show their attention
MAX_WEIGHTS = 15_000  # of one trace; a larger one shows one layer
MARKED = (
    "Words marked red are not in the reference; dotted words of the reference are missing from the translation. Another"
    " wording may be as good."
)


class Sentence(NamedTuple):
    """One line of the test set."""

    line: int  # from 1
    source: str  # empty if only translations were given
    references: Sequence[str]
    text: str
    scores: dict[str, float]
    warnings: Sequence[QualityWarning] = ()
    confidence: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return {**self._asdict(), "warnings": [warning._asdict() for warning in self.warnings]}


class Row(NamedTuple):
    """A sentence of a page with one or two translations: the name, the sentence and the trace of each."""

    kind: str  # warned, better or worse (than the baseline), or empty
    outputs: Sequence[tuple[str, Sentence, Trace | None]]


def page(
    title: str, about: str, parts: Sequence[str], rows: Sequence[Row], kind: str, languages: tuple[str, str] = ("", "")
) -> str:
    """One HTML file of these parts, and of sentences that open their traces; `languages` are codes or empty."""
    if not rows:
        return pages.page(title, parts, kind=kind, about=about)
    known = _sorting_values(rows[0])
    options = "".join(
        f'<option value="{key}">{name}</option>' for key, name in SORTING.items() if key.strip("-") in known
    )
    sentences = (
        '<section class="lines" aria-labelledby="examples"><h2 id="examples">Sentences</h2>'
        f"<p>{MARKED}</p>"
        '<form class="find"><label class="aside" for="search">search the sentences</label>'
        '<input type="search" id="search" name="search" placeholder="search">'
        f'<label>sort by <select name="sort">{options}</select></label>'
        '<p role="status"></p></form>'
        f'<ol class="rows">{"".join(_row(row, languages) for row in rows)}</ol>'
        '<button type="button" class="ten" hidden>ten more</button></section>'
    )
    return pages.page(title, [*parts, sentences], kind=kind, about=about)


def comparison_headline(result: Mapping[str, Any]) -> str:
    """Which is better, the first system or the best of the others, by how much, and whether that can be chance."""
    baseline, *others = result["systems"]
    best = max(others, key=lambda system: system["bleu"]["score"])
    names = f"{baseline['name']} and {best['name']}"
    differing = next(x["differing"] for x in result["against"] if x["system"] == best["name"])
    p, gap = best["bleu"].get("p_randomisation"), best["bleu"]["score"] - baseline["bleu"]["score"]
    if not differing:
        return f"All translations of {names} are identical"
    if p is None:
        return f"{names} translate {counted(differing, 'sentence')} differently, too few for a test"
    if p >= 0.05:
        return f"{names} do not differ significantly: {abs(gap):.1f} BLEU, p\u00a0=\u00a0{p:.2f}"
    chance = "p\u00a0<\u00a00.001" if p < 0.001 else f"p\u00a0=\u00a0{p:.3f}"
    winner, loser = (best, baseline) if gap > 0 else (baseline, best)
    return f"{winner['name']} beats {loser['name']} by {abs(gap):.1f} BLEU ({chance})"


# Scores.


def evaluation_parts(result: Mapping[str, Any]) -> list[str]:
    """The scores, charts and counts of one system, from the dict of an Evaluation."""
    groups = []
    for x in result["by_frequency"]:
        if x["words"]:
            f1 = 100 * x["f1"], 100 * x["low"], 100 * x["high"]
            groups.append(charts.Group(x["from"], x["to"], x["words"], x["words"] < charts.FEW_WORDS, [f1]))
    axis = f"frequency of a word in {Path(result['frequencies_from']).name}; below, the number of words"
    few = f"fewer than {charts.FEW_WORDS} words"
    frequencies = charts.interval_chart(groups, ["F1"], "F1 in percent", axis, few=few)
    scores = []
    for metric, name in METRICS.items():
        score = result[metric]
        scores.append((name, f"{score['score']:.1f}", f"{score['low']:z.1f} to {score['high']:.1f}"))
    signatures = "".join(pages.signature(f"{name} {result[metric]['signature']}") for metric, name in METRICS.items())
    parts = [
        pages.score_cards(scores, "With 95 % bootstrap intervals. Higher is better, but for TER lower."),
        fold("sacreBLEU signatures", signatures),
        by_length(result["by_length"]),
        card("Rare and frequent words", "F1 of the words of the reference, by their frequency.", frequencies),
    ]
    sentences, warnings, terms = result["sentences"], result.get("warnings"), result.get("terms")
    if warnings is not None:
        rows = [[escape(kind), f"{number:,}", f"{number / sentences:.1%}"] for kind, number in warnings.items()]
        note = f"Of {counted(sentences, 'sentence')}, those with a warning." if rows else "None."
        parts.append(card("Warnings", note, table(["warning", "sentences", "share"], rows) if rows else ""))
    if terms:
        where = f"{counted(terms['terms'], 'term')} in {counted(terms['sentences'], 'sentence')}"
        parts.append(card("Terms", f"{terms['accuracy']:.1%} of {where} are translated as the glossary requires."))
    return parts


def comparison_parts(result: Mapping[str, Any]) -> list[str]:
    """The scores and charts of several systems, from the dict of a Comparison."""
    first, rows = result["systems"][0], []
    for number, system in enumerate(result["systems"]):
        cells = [charts.series_key(number) + escape(system["name"])]
        for metric in METRICS:
            score, p = system[metric], system[metric].get("p_randomisation")
            interval = f"{score['low']:z.1f}–{score['high']:.1f}"
            cells.append(f'{score["score"]:.1f}<br><span class="soft">{interval}</span>')
            cells.append("–" * (number > 0) if p is None else f"<b>{p:.4f}</b>" if p < 0.05 else f"{p:.4f}")
        rows.append(cells)
    heads = ["system", *(head for name in METRICS.values() for head in (name, "p-value"))]
    note = (
        f"With 95 % bootstrap intervals. The p-value, by approximate randomisation, is the probability of such a "
        f"difference from {first['name']} by chance; bold below 0.05. –: fewer than {MIN_DIFFERING} sentences differ, "
        "too few for a test."
    )
    contrasts = [f'<p class="soft">{escape(contrast["summary"])}.</p>' for contrast in result["against"]]
    signatures = "".join(
        pages.signature(f"{METRICS[metric]} {text}")
        for metric, tests in result["signatures"].items()
        for text in tests.values()
    )
    return [
        card("Scores", note, table(heads, rows), *contrasts, fold("sacreBLEU signatures", signatures)),
        by_length(result["by_length"], [system["name"] for system in result["systems"]]),
    ]


def by_length(buckets: Sequence[Mapping[str, Any]], names: Sequence[str] = (), *, note: str = "") -> str:
    """BLEU by reference length, of one system or of those named."""
    groups = []
    for bucket in buckets:
        scores = [(x["bleu"], x["low"], x["high"]) for x in (bucket["systems"] if names else [bucket])]
        groups.append(charts.Group(bucket["from"], bucket["to"], bucket["sentences"], bucket["small"], scores))
    axis = "reference length in words; below, the number of sentences"
    chart = charts.interval_chart(groups, names or ["BLEU"], "BLEU", axis, few="fewer than 30 sentences")
    return card("BLEU by sentence length", note, chart)


# Sentences.


def _sorting_values(row: Row) -> dict[str, float]:
    """What a sentence can be sorted by."""
    (_, first, _), *others = row.outputs
    values = {"line": first.line, "length": len(first.references[0].split()), "chrf": first.scores["chrf"]}
    if first.confidence is not None:
        values["confidence"] = first.confidence
    if others:
        values["difference"] = abs(first.scores["chrf"] - others[0][1].scores["chrf"])
    return {name: round(value, 3) for name, value in values.items()}


def _row(row: Row, languages: tuple[str, str]) -> str:
    (name, first, _), *others = row.outputs
    texts = pages.text("p", f'<b lang="en">source</b>{escape(first.source)}', languages[0]) if first.source else ""
    for number, reference in enumerate(first.references):
        marked = escape(reference) if number else marked_words(reference, first.text, "missed")
        texts += pages.text("p", f'<b lang="en">reference</b>{marked}', languages[1])
    badge = ""
    if row.kind:
        label = f"{name} {row.kind} than {others[0][0]}" if others else row.kind
        badge = f'<span class="badge {row.kind}">{escape(label)}</span> '
    values = "".join(f' data-{name}="{value:g}"' for name, value in _sorting_values(row).items())
    outputs = "".join(_output(*output, languages) for output in row.outputs)
    return f'<li class="row"{values}><p class="where">{badge}line {first.line:,}</p>{texts}{outputs}</li>'


def _output(name: str, sentence: Sentence, trace: Trace | None, languages: tuple[str, str]) -> str:
    scores = [f"{METRICS[metric]} {value:.0f}" for metric, value in sentence.scores.items()]
    if sentence.confidence is not None:
        scores.append(f"confidence {sentence.confidence:.0%}")
    text = marked_words(sentence.text, sentence.references[0], "odd") or "<i>nothing</i>"
    shown = f'<span class="scores" lang="en">{" · ".join(scores)}</span>'
    html = pages.text("p", f'<b lang="en">{escape(name)}</b>{text}&ensp;{shown}', languages[1])
    html += "".join(f'<p class="warned">{escape(f"{x.kind}: {x.message}")}</p>' for x in sentence.warnings)
    if trace is not None:
        maps = []
        if "cross" in trace.attention:
            cross = attention(trace, "cross")
            if cross.values.numel() > MAX_WEIGHTS:  # the mean of the heads of one layer
                layer = cross.joined[[default_layer(len(cross.joined))]]
                cross = cross._replace(values=layer.unsqueeze(1), joined=layer)
            maps = [cross]
        inside = inspector.embed(trace, maps, warned=sentence.warnings, languages=languages)
        hidden = f'<span class="aside"> in line {sentence.line:,}</span>'
        html += f'<details class="trace"><summary>attention{hidden}</summary>{inside}</details>'
    return html


def marked_words(text: str, other: str, kind: str) -> str:
    """A text with marks on the words that the other text does not have there."""
    words = text.split()
    blocks = SequenceMatcher(None, words, other.split(), autojunk=False).get_matching_blocks()
    same = {index for block in blocks for index in range(block.a, block.a + block.size)}
    return " ".join(
        escape(word) if index in same else f'<mark class="{kind}">{escape(word)}</mark>'
        for index, word in enumerate(words)
    )
