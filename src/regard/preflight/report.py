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

from regard import results
from regard.folders import write_file
from regard.preflight.findings import Example, Finding

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
BARS = 40  # of a histogram
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
                lines.append(_indented(f"{example.where}  {example.source}  |  {example.target}"))
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
            charts="\n".join(_charts_html(self)),
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
    examples = "\n".join(map(_example_html, finding.examples))
    listed = f'<ol class="examples" aria-label="Examples">{examples}</ol>' if examples else ""
    meter = "" if finding.kind == "too-few" else _meter_html(finding)
    return f"""<article class="finding {finding.severity}">
<h3><span class="badge">{escape(finding.severity)}</span> {escape(finding.title)}</h3>
{meter}<p>{_prose_html(finding.explanation)}</p>
{listed}
<p class="fix"><strong>Fix.</strong> {_prose_html(finding.fix)}</p>
</article>"""


def _meter_html(finding: Finding) -> str:
    """The share of the split that has the problem, as a bar."""
    share = min(finding.share, 1.0)
    label = f"{percent(share)} of {finding.split}"
    return (
        f'<div class="meter" role="img" aria-label="{escape(label)}"><i style="width:{max(share * 100, 0.6):.1f}%"></i>'
        f"<span>{escape(label)}</span></div>\n"
    )


def _example_html(example: Example) -> str:
    """A pair; the browser chooses the direction of each text."""
    note = f'<p class="note" dir="auto">{escape(example.note)}</p>' if example.note else ""
    return (
        f'<li><p class="where">{escape(example.where)}</p><div class="pair"><p dir="auto">{escape(example.source)}</p>'
        f'<p dir="auto">{escape(example.target)}</p></div>{note}</li>'
    )


def _prose_html(text: str) -> str:
    """Escaped text with `code` set as code."""
    return CODE.sub(r"<code>\1</code>", escape(text, quote=False))


def _charts_html(report: Report) -> list[str]:
    """For every split the lengths of both sides, the length ratio and the scripts."""
    blocks = []
    splits = report.statistics
    for split, numbers in splits.items():
        charts, scripts = [], []
        for side, name in zip(("source", "target"), report.names, strict=True):
            lengths = numbers[side]["lengths"]
            longest = max(8, *(int(other[side]["lengths"]["most"]) * 2 for other in splits.values()))
            label = f"Length of {name} in {split}: median {lengths['median']} {lengths['unit']}"
            title = f"{name}: {lengths['unit']} per line"
            step = next(step for step in (1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1000) if longest / step <= 6)
            ticks = [(length / longest, str(length)) for length in range(0, longest + 1, step)]
            charts.append(_chart_svg(_bars(lengths["histogram"], longest), ticks, label=label, title=title, kind=side))
            total = max(sum(numbers[side]["scripts"].values()), 1)
            shares = [f"{script} {percent(count / total)}" for script, count in numbers[side]["scripts"].items()]
            scripts.append(f'<p class="scripts">Scripts of {escape(name)}: {escape(", ".join(shares[:6]))}</p>')
        charts.append(_ratio_chart(numbers["ratio"], split))
        blocks.append(
            f'<article class="split"><h3>{escape(split)}</h3><div class="charts">{"".join(charts)}</div>'
            f'<div class="pairs">{"".join(scripts)}</div></article>'
        )
    return blocks


def _bars(histogram: list[int], longest: int) -> list[int]:
    """A histogram of lengths with `BARS` bars at most; the last holds everything beyond `longest`."""
    width = max(-(-(longest + 1) // BARS), 1)
    bars = [0] * (-(-(longest + 1) // width))
    for length, count in enumerate(histogram):
        bars[min(length // width, len(bars) - 1)] += count
    return bars


def _ratio_chart(ratio: dict[str, Any], split: str) -> str:
    """Target length over source length from 1/5 to 5, with the usual range shaded."""
    counts, edges = ratio["histogram"], ratio["edges"]
    inside = [i for i in range(len(counts)) if 0.2 <= edges[i] <= 5]
    bars = [counts[i] for i in inside]
    bars[0] += sum(counts[: inside[0]])
    bars[-1] += sum(counts[inside[-1] + 1 :])
    low, high = edges[inside[0]], edges[inside[-1] + 1]

    def position(value: float) -> float:
        return min(max(log(value / low) / log(high / low), 0.0), 1.0)

    ticks = [(position(value), name) for value, name in ((0.25, "¼"), (0.5, "½"), (1, "1"), (2, "2"), (4, "4"))]
    label = f"Length ratio of target to source in {split}: median {ratio['median']}"
    usual = (position(ratio["low"]), position(ratio["high"]))
    return _chart_svg(bars, ticks, label=label, title="target length / source length", kind="ratio", usual=usual)


def _chart_svg(
    bars: list[int],
    ticks: list[tuple[float, str]],
    *,
    label: str,
    title: str,
    kind: str,
    usual: tuple[float, float] | None = None,
) -> str:
    """A histogram as SVG; `label` is its text alternative."""
    largest, width, floor = max([*bars, 1]), WIDTH / max(len(bars), 1), HEIGHT - 18

    def rectangle(x: float, y: float, width: float, height: float, attributes: str = "") -> str:
        return f'<rect{attributes} x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"/>'

    shapes = []
    if usual:
        shapes.append(rectangle(usual[0] * WIDTH, 0, (usual[1] - usual[0]) * WIDTH, floor, ' class="band"'))
    for i, count in enumerate(bars):
        if count:
            height = max(count / largest * (floor - 6), 0.8)
            shapes.append(rectangle(i * width + 0.4, floor - height, max(width - 0.8, 0.6), height))
    shapes.append(f'<line x1="0" x2="{WIDTH}" y1="{floor}" y2="{floor}"/>')
    for x, name in ticks:
        shapes.append(f'<text x="{min(max(x * WIDTH, 4), WIDTH - 8):.1f}" y="{HEIGHT - 4}">{escape(name)}</text>')
    return (
        f'<figure><figcaption>{escape(title)}</figcaption><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'class="{kind}" aria-label="{escape(label)}">{"".join(shapes)}</svg></figure>'
    )
