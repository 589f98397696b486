"""Report: the result of `regard.check` as text, as plain values and as one self-contained HTML page."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from math import log
from pathlib import Path
from string import Template
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from regard import results
from regard.folders import write_file
from regard.preflight.findings import Finding
from regard.preflight.measure import RATIO_STEP

VERDICTS = {
    "fit": ("Fit to train on", "It has no more problems than ordinary, well-kept text."),
    "care": ("Fit with care", "You can train on it; the findings will cost quality or make scores too high."),
    "unfit": ("Not fit to train on", "The findings make scores meaningless, or the model learns to imitate them."),
}
STATISTICS = {  # of a side, and their names in the table
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
WIDTH, HEIGHT = 320, 120  # of a chart, in its own units
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
            parts.append("\n".join([*lines, _indented("Fix: " + CODE.sub(r"\1", finding.fix))]))
        return "\n\n".join([*parts, str(self.tables()[1])])

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the report as an HTML page."""
        write_file(Path(path), self.to_html(), force=force)

    def to_html(self) -> str:
        """The report as one HTML page, with its styles and charts inside."""
        template = Template((files("regard.preflight") / "page" / "report.html").read_text(encoding="utf-8"))
        title, meaning = VERDICTS[self.verdict]
        pairs = ", ".join(f"{numbers['pairs']:,} pairs in {split}" for split, numbers in self.statistics.items())
        return template.substitute(
            verdict=self.verdict,
            title=escape(title),
            meaning=escape(meaning),
            corpus=escape(f"{self.names[0]} – {self.names[1]}: {pairs}"),
            findings="\n".join(map(_finding_html, self.findings))
            or '<p class="calm">No findings. Leakage, duplicates, lengths, scripts, encodings, languages and alignment '
            "were checked.</p>",
            charts="\n".join(_split_html(self, split) for split in self.statistics),
            table=self.tables()[1].to_html(),
        )


def percent(share: float) -> str:
    """A share in percent."""
    return f"{share:.0%}" if share >= 0.1 else f"{share:.1%}" if share >= 0.001 else "under 0.1%"


def _indented(text: str, columns: int = 7) -> str:
    indent = " " * columns
    options: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.fill(text, 80, initial_indent=indent, subsequent_indent=indent, **options)


# The HTML page


def _finding_html(finding: Finding) -> str:
    """A finding with its share of the split as a bar; the browser chooses the direction of each text."""
    examples = "".join(
        f'<li><p class="where">{escape(example.where)}</p><div class="pair"><p dir="auto">{escape(example.source)}</p>'
        f'<p dir="auto">{escape(example.target)}</p></div>'
        + (f'<p class="note" dir="auto">{escape(example.note)}</p>' if example.note else "")
        + "</li>"
        for example in finding.examples
    )
    share = min(finding.share, 1.0)
    label = escape(f"{percent(share)} of {finding.split}")
    meter = (
        f'<div class="meter" role="img" aria-label="{label}"><i style="width:{max(share * 100, 0.6):.1f}%"></i>'
        f"<span>{label}</span></div>"
    )
    return f"""<article class="finding {finding.severity}">
<h3><span class="badge">{escape(finding.severity)}</span> {escape(finding.title)}</h3>
{"" if finding.kind == "too-few" else meter}<p>{_prose_html(finding.explanation)}</p>
{f'<ol class="examples" aria-label="Examples">{examples}</ol>' if examples else ""}
<p class="fix"><strong>Fix.</strong> {_prose_html(finding.fix)}</p>
</article>"""


def _prose_html(text: str) -> str:
    """Escaped text with `code` set as code."""
    return CODE.sub(r"<code>\1</code>", escape(text, quote=False))


def _split_html(report: Report, split: str) -> str:
    """The lengths of both sides of a split, the length ratio and the scripts."""
    numbers = report.statistics[split]
    charts, scripts = [], []
    for side, name in zip(("source", "target"), report.names, strict=True):
        lengths, counts = numbers[side]["lengths"], numbers[side]["scripts"]
        longest = max(8, *(int(other[side]["lengths"]["most"]) * 2 for other in report.statistics.values()))
        width = -(-longest // MAX_BARS)
        step = next(step for step in (1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1000) if longest / step <= 6)
        charts.append(
            _chart_svg(
                np.arange(len(lengths["histogram"])),
                lengths["histogram"],
                (0, -(-longest // width) * width, -(-longest // width)),
                {length: str(length) for length in range(0, longest + 1, step)},
                label=f"Length of {name} in {split}: median {lengths['median']} {lengths['unit']}",
                title=f"{name}: {lengths['unit']} per line",
                kind=side,
            )
        )
        shares = [f"{script} {percent(count / max(sum(counts.values()), 1))}" for script, count in counts.items()]
        scripts.append(f'<p class="scripts">Scripts of {escape(name)}: {escape(", ".join(shares[:6]))}</p>')
    ratio = numbers["ratio"]
    edges = np.log(ratio["edges"])
    charts.append(
        _chart_svg(
            (edges[:-1] + edges[1:]) / 2,
            ratio["histogram"],
            (-32.5 * RATIO_STEP, 32.5 * RATIO_STEP, 65),  # from 1/5 to 5
            {log(value): name for value, name in ((0.25, "¼"), (0.5, "½"), (1, "1"), (2, "2"), (4, "4"))},
            label=f"Length ratio of target to source in {split}: median {ratio['median']}",
            title="target length / source length",
            kind="ratio",
            usual=(log(ratio["low"]), log(ratio["high"])),
        )
    )
    return (
        f'<article class="split"><h3>{escape(split)}</h3><div class="charts">{"".join(charts)}</div>'
        f'<div class="pairs">{"".join(scripts)}</div></article>'
    )


def _chart_svg(
    values: NDArray[Any],
    counts: list[int],
    axis: tuple[float, float, int],
    ticks: dict[float, str],
    *,
    label: str,
    title: str,
    kind: str,
    usual: tuple[float, float] | None = None,
) -> str:
    """A histogram as SVG on an axis (first, last, bars); values beyond it fall into the outer bars.

    `usual` is the shaded range; `label` is the text alternative.
    """
    first, last, number = axis
    bars, _ = np.histogram(np.clip(values, first, last), number, (first, last), weights=counts)
    width, floor = WIDTH / number, HEIGHT - 18

    def x(value: float) -> float:
        return min(max((value - first) / (last - first), 0.0), 1.0) * WIDTH

    shapes = []
    if usual:
        band = x(usual[1]) - x(usual[0])
        shapes.append(f'<rect class="band" x="{x(usual[0]):.1f}" y="0" width="{band:.1f}" height="{floor}"/>')
    for i in np.flatnonzero(bars).tolist():
        height = max(bars[i] / bars.max() * (floor - 6), 0.8)
        x_and_width = f'x="{i * width + 0.4:.1f}" width="{width - 0.8:.1f}"'
        shapes.append(f'<rect {x_and_width} y="{floor - height:.1f}" height="{height:.1f}"/>')
    shapes.append(f'<line x1="0" x2="{WIDTH}" y1="{floor}" y2="{floor}"/>')
    for value, name in ticks.items():
        shapes.append(f'<text x="{min(max(x(value), 4), WIDTH - 8):.1f}" y="{HEIGHT - 4}">{escape(name)}</text>')
    return (
        f'<figure><figcaption>{escape(title)}</figcaption><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'class="{kind}" aria-label="{escape(label)}">{"".join(shapes)}</svg></figure>'
    )
