"""Report: the result of `regard.check` as text, as plain values and as one self-contained HTML page."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Literal

from regard import results
from regard.inspection import pages
from regard.preflight.findings import Example, Finding, percent
from regard.results import counted

VERDICTS = {
    "fit": ("Fit to train on", "It has no more problems than ordinary, well-kept text."),
    "care": ("Fit with care", "You can train on it, but the findings lower the quality or make scores too high."),
    "unfit": ("Not fit to train on", "The findings make scores meaningless, or the model learns to imitate them."),
}
STATISTICS = {  # keys of a side's statistics, and their labels in the table
    "pairs": "pairs",
    "words": "words",
    "characters": "characters",
    "vocabulary": "distinct words",
    "median": "median length",
    "most": "95 % within",
    "longest": "longest",
}
CODE = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class Report(results.Page):
    """The verdict on a corpus, the findings behind it, and its statistics."""

    verdict: Literal["fit", "care", "unfit"]
    findings: Sequence[Finding]
    statistics: dict[str, dict[str, Any]]
    names: tuple[str, str]  # of the two sides: their languages if they are known
    skipped: Counter[str] = field(default_factory=Counter)  # entries of the files that were left out, by reason

    def tables(self) -> list[results.Table]:
        """The findings, and the statistics of each side of each split."""
        findings = [(finding.title, finding.severity, percent(finding.share)) for finding in self.findings]
        title = ". ".join(VERDICTS[self.verdict])
        sides = {
            f"{split} {name}": {**numbers, **numbers[side], **numbers[side]["lengths"]}
            for split, numbers in self.statistics.items()
            for side, name in zip(("source", "target"), self.names, strict=True)
        }
        rows = [(label, *(f"{side[key]:,}" for side in sides.values())) for key, label in STATISTICS.items()]
        return [
            results.Table(("finding", "severity", "share") if findings else ("",), findings, title),
            results.Table(("", *sides), rows),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        findings = [
            {**vars(finding), "examples": [example._asdict() for example in finding.examples]}
            for finding in self.findings
        ]
        return {
            "verdict": self.verdict,
            "reasons": [finding.title for finding in self.findings],
            "findings": findings,
            "names": list(self.names),
            "statistics": self.statistics,
            "skipped": dict(self.skipped),
        }

    def __str__(self) -> str:
        parts = [". ".join(VERDICTS[self.verdict])]
        for finding in self.findings:
            explanation, fix = (CODE.sub(r"\1", text) for text in (finding.explanation, finding.fix))
            lines = [f"{finding.severity:>5}  {finding.title}", _indented(explanation)]
            for example in finding.examples[:3]:
                texts = f"  {example.source}  |  {example.target}" if example.source or example.target else ""
                lines.append(_indented(example.where + texts))
                lines += [_indented(example.note, 11)] if example.note else []
            lines.append(_indented(f"Fix: {fix}"))
            parts.append("\n".join([*lines, *(f"         {command}" for command in finding.commands)]))
        return "\n\n".join([*parts, str(self.tables()[1])])

    def to_html(self) -> str:
        """The report as one HTML page, with its styles inside."""
        severities = Counter(finding.severity for finding in self.findings)
        numbers = [(severities["unfit"], "blocking problem"), (severities["care"], "warning")]
        title = ", ".join(counted(number, noun) for number, noun in numbers if number) or "No problems found"
        verdict, meaning = VERDICTS[self.verdict]
        pairs = ", ".join(f"{counted(values['pairs'], 'pair')} in {split}" for split, values in self.statistics.items())
        about = f"{verdict}. {meaning} {' – '.join(self.names)}: {pairs}."
        index = "".join(
            f'<li>{_badge(finding)} <a href="#{finding.kind}-{finding.split}">{escape(finding.title)}</a></li>'
            for finding in self.findings
        )
        checked = "Leakage, duplicates, lengths, scripts, encodings, languages and alignment were checked."
        statistics = self.tables()[1]
        rows = [list(map(escape, row)) for row in statistics.rows]
        parts = [
            pages.card("Findings", "" if index else checked, f'<ul class="index">{index}</ul>' * bool(index)),
            *map(self._finding_html, self.findings),
            pages.card("Statistics", "", pages.table(list(map(escape, statistics.columns)), rows)),
        ]
        return pages.page(title, parts, kind="data check", about=about)

    def _finding_html(self, finding: Finding) -> str:
        """A finding with its share of the split as a bar, examples, and commands to fix it."""
        share = escape(f"{percent(finding.share)} of {finding.split}")
        bar = f'<i style="--share:{min(max(finding.share * 100, 0.6), 100):.1f}%"></i>'
        explanation, fix = (
            CODE.sub(r"<code>\1</code>", escape(text, quote=False)) for text in (finding.explanation, finding.fix)
        )
        examples = "".join(map(self._example_html, finding.examples))
        return "".join(
            [
                f'<section class="card finding {finding.severity}" id="{finding.kind}-{finding.split}">',
                f"<h2>{_badge(finding)}{escape(finding.title)}</h2>",
                f'<div class="meter">{bar}{share}</div>' * (finding.kind != "too-few"),
                f"<p>{explanation}</p>",
                f'<ol class="examples" aria-label="Examples">{examples}</ol>' * bool(examples),
                f"<p><strong>Fix.</strong> {fix}</p>",
                *map(pages.command, finding.commands),
                "</section>",
            ]
        )

    def _example_html(self, example: Example) -> str:
        languages = ("", "") if self.names == ("source", "target") else self.names
        texts = zip((example.source, example.target), languages, strict=True)
        sides = "".join(pages.text("p", escape(text), escape(language)) for text, language in texts)
        note = f'<p class="note" dir="auto">{escape(example.note)}</p>' * bool(example.note)
        return f'<li><p class="place">{escape(example.where)}</p><div class="sides">{sides}</div>{note}</li>'


def _badge(finding: Finding) -> str:
    return f'<span class="badge {finding.severity}">{"blocking" if finding.severity == "unfit" else "warning"}</span>'


def _indented(text: str, columns: int = 7) -> str:
    indent = " " * columns
    options: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.fill(text, 80, initial_indent=indent, subsequent_indent=indent, **options)
