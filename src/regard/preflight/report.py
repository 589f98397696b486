"""Report: the result of `regard.check` as text, as plain values and as one self-contained HTML page."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from math import log
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from regard import results
from regard.folders import write_file
from regard.inspection import charts, pages
from regard.preflight.findings import Example, Finding
from regard.preflight.measure import RATIO_STEP
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
    "alphabet": "distinct characters",
    "median": "median length",
    "most": "95 % within",
    "longest": "longest",
}
MAX_BARS = 40  # of a histogram of lengths
RATIO_REACH = 32.5  # steps of the length ratio from the middle of its axis to an end: from 1/5 to 5
CODE = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class Report(results.Report):
    """The verdict on a corpus, the findings behind it, and its statistics."""

    verdict: Literal["fit", "care", "unfit"]
    findings: Sequence[Finding]
    statistics: dict[str, dict[str, Any]]
    names: tuple[str, str]
    skipped: Counter[str] = field(default_factory=Counter)
    """Skipped entries of the files by reason."""
    languages: tuple[str, str] = ("", "")
    """The language codes of the two sides; empty if unknown."""

    @property
    def sides(self) -> tuple[str, str]:
        """The names of the two sides: their languages, if both are known."""
        return self.languages if all(self.languages) else self.names

    def tables(self) -> list[results.Table]:
        """The findings, and the statistics of each side of each split."""
        findings = [(finding.title, finding.severity, percent(finding.share)) for finding in self.findings]
        title = ". ".join(VERDICTS[self.verdict])
        sides = {
            f"{split} {name}": {**numbers, **numbers[side], **numbers[side]["lengths"]}
            for split, numbers in self.statistics.items()
            for side, name in zip(("source", "target"), self.sides, strict=True)
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
            lines = [f"{finding.severity:>5}  {finding.title}", _indented(finding.explanation)]
            for example in finding.examples[:3]:
                lines.append(
                    _indented(
                        f"{example.where}  {example.source}  |  {example.target}"
                        if example.source or example.target
                        else example.where
                    )
                )
                lines += [_indented(example.note, 11)] if example.note else []
            lines.append(_indented("Fix: " + CODE.sub(r"\1", finding.fix)))
            parts.append("\n".join([*lines, *(f"         {command}" for command in finding.commands)]))
        return "\n\n".join([*parts, str(self.tables()[1])])

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the report as an HTML page."""
        write_file(Path(path), self.to_html(), force=force)

    def to_html(self) -> str:
        """The report as one HTML page, with its styles and charts inside."""
        pairs = ", ".join(
            f"{counted(numbers['pairs'], 'pair')} in {split}" for split, numbers in self.statistics.items()
        )
        about = " ".join(
            [*(f"{part.rstrip('.')}." for part in VERDICTS[self.verdict]), f"{' – '.join(self.sides)}: {pairs}."]
        )
        index = "".join(
            f'<li>{_badge(finding)} <a href="#{_anchor(finding)}">{escape(finding.title)}</a></li>'
            for finding in self.findings
        )
        checked = "Leakage, duplicates, lengths, scripts, encodings, languages and alignment were checked."
        statistics = self.tables()[1]
        scripts = [
            ", ".join(
                f"{script} {percent(number / max(sum(counts.values()), 1))}"
                for script, number in list(counts.items())[:3]
            )
            for numbers in self.statistics.values()
            for counts in (numbers["source"]["scripts"], numbers["target"]["scripts"])
        ]
        parts = [
            pages.card("Findings", "" if index else checked, f'<ul class="index">{index}</ul>' * bool(index)),
            *(_finding_html(finding, self.languages) for finding in self.findings),
            _lengths(self),
            pages.card(
                "Statistics",
                "",
                pages.table(
                    list(map(escape, statistics.columns)),
                    [list(map(escape, row)) for row in (*statistics.rows, ["scripts", *scripts])],
                ),
            ),
        ]
        return pages.page(headline(self.findings), parts, kind="data check", about=about)


def headline(findings: Sequence[Finding]) -> str:
    """The number of blocking problems and of warnings."""
    severities = Counter(finding.severity for finding in findings)
    numbers = [(severities["unfit"], "blocking problem"), (severities["care"], "warning")]
    return ", ".join(counted(number, noun) for number, noun in numbers if number) or "No problems found"


def percent(share: float) -> str:
    """A share in percent."""
    return f"{share:.0%}" if share >= 0.1 else f"{share:.1%}" if share >= 0.001 else "under 0.1%"


def _indented(text: str, columns: int = 7) -> str:
    indent = " " * columns
    options: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.fill(text, 80, initial_indent=indent, subsequent_indent=indent, **options)


# The HTML page


def _badge(finding: Finding) -> str:
    return f'<span class="badge {finding.severity}">{"blocking" if finding.severity == "unfit" else "warning"}</span>'


def _anchor(finding: Finding) -> str:
    return f"{finding.kind}-{finding.split}"


def _finding_html(finding: Finding, languages: tuple[str, str]) -> str:
    """A finding with its share of the split as a bar, examples, and commands to fix it."""
    share = min(finding.share, 1.0)
    bar = f'<i style="--share:{max(share * 100, 0.6):.1f}%"></i>'
    meter = f'<div class="meter">{bar}{escape(f"{percent(share)} of {finding.split}")}</div>'
    examples = "".join(_example_html(example, languages) for example in finding.examples)
    return "".join(
        [
            f'<section class="card finding {finding.severity}" id="{_anchor(finding)}">',
            f"<h2>{_badge(finding)}{escape(finding.title)}</h2>",
            "" if finding.kind == "too-few" else meter,
            f"<p>{_prose_html(finding.explanation)}</p>",
            f'<ol class="examples" aria-label="Examples">{examples}</ol>' if examples else "",
            f"<p><strong>Fix.</strong> {_prose_html(finding.fix)}</p>",
            *map(pages.command, finding.commands),
            "</section>",
        ]
    )


def _example_html(example: Example, languages: tuple[str, str]) -> str:
    texts = zip((example.source, example.target), languages, strict=True)
    sides = "".join(pages.text("p", escape(text), language) for text, language in texts)
    note = f'<p class="note" dir="auto">{escape(example.note)}</p>' if example.note else ""
    return f'<li><p class="place">{escape(example.where)}</p><div class="sides">{sides}</div>{note}</li>'


def _prose_html(text: str) -> str:
    """Escaped text with `code` set as code."""
    return CODE.sub(r"<code>\1</code>", escape(text, quote=False))


def _lengths(report: Report) -> str:
    """The lengths of both sides of every split and their ratio; all splits share one scale."""
    longest = Counter[str]()  # by unit
    for numbers in report.statistics.values():
        for lengths in (numbers["source"]["lengths"], numbers["target"]["lengths"]):
            longest[lengths["unit"]] = max(longest[lengths["unit"]], 8, 2 * int(lengths["most"]))
    sides, ratios = [], []
    for numbers in report.statistics.values():
        for series, (side, name) in enumerate(zip(("source", "target"), report.sides, strict=True)):
            lengths = numbers[side]["lengths"]
            unit, last = lengths["unit"], longest[lengths["unit"]]
            bars = -(-last // -(-last // MAX_BARS))
            end = bars * -(-last // MAX_BARS)
            shares = _shares(np.arange(len(lengths["histogram"])), lengths["histogram"], (0, end, bars))
            places = {value / end: f"{value:g}" for value in charts.round_ticks(0, last)}
            axis = f"length in {unit}; median length {lengths['median']}"
            sides.append(charts.Histogram(name, axis, shares, places, series))
        ratio = numbers["ratio"]
        edges = np.log(ratio["edges"])
        reach = RATIO_REACH * RATIO_STEP
        shares = _shares((edges[:-1] + edges[1:]) / 2, ratio["histogram"], (-reach, reach, int(2 * RATIO_REACH)))
        places = {_ratio_place(value): f"{value:g}" for value in (0.25, 0.5, 1, 2, 4)}
        axis = f"length ratio; median {ratio['median']}; shaded: the usual range"
        band = _ratio_place(ratio["low"]), _ratio_place(ratio["high"])
        ratios.append(charts.Histogram(" / ".join(report.sides[::-1]), axis, shares, places, 2, band))
    drawn, drawn_ratios = charts.draw_histograms(sides), charts.draw_histograms(ratios)
    content = "".join(
        f'<h3>{escape(split)}</h3><div class="charts">{"".join(drawn[2 * place : 2 * place + 2])}{ratio}</div>'
        for place, (split, ratio) in enumerate(zip(report.statistics, drawn_ratios, strict=True))
    )
    return pages.card("Lengths", "All splits share one scale; the last bar holds everything longer.", content)


def _shares(values: NDArray[Any], counts: list[int], axis: tuple[float, float, int]) -> list[float]:
    """The share of each bar on an axis (first, last, bars); values beyond it fall into the outer bars."""
    first, last, number = axis
    bars, _ = np.histogram(np.clip(values, first, last), number, (first, last), weights=counts)
    return list((bars / max(bars.sum(), 1)).tolist())


def _ratio_place(ratio: float) -> float:
    """The place of a length ratio on its axis, which is logarithmic, as a share of it."""
    return float(min(max(log(ratio) / (2 * RATIO_REACH * RATIO_STEP) + 0.5, 0.0), 1.0))
