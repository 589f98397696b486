"""Report: the verdict on a corpus as lines for the terminal and as one HTML page that needs nothing else."""

from __future__ import annotations

import re
from html import escape
from importlib.resources import files
from math import log
from string import Template
from typing import TYPE_CHECKING, Any

from regard.preflight.check import Example, Finding, Report, percent

if TYPE_CHECKING:
    from rich.console import Group

VERDICTS = {
    "fit": ("Fit to train on", "Nothing was found that ordinary, well-kept text would not have."),
    "care": ("Fit with care", "It can be trained on; what was found will cost quality or make scores too good."),
    "unfit": ("Not fit to train on", "What was found makes scores meaningless or the model learn the fault itself."),
}
COLOURS = {"fit": "green", "care": "yellow", "unfit": "red"}
BARS = 40  # of a histogram
WIDTH, HEIGHT = 320, 120  # of a chart, in its own units
CODE = re.compile(r"`([^`]+)`")


def render_terminal(report: Report) -> Group:
    """The report for `rich` to print: the verdict, the findings with evidence and fix, the numbers."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    colour = COLOURS[report.verdict]
    title, meaning = VERDICTS[report.verdict]
    parts: list[Any] = [Text.assemble((title, f"bold {colour}"), ". ", meaning)]
    for finding in report.findings:
        heading = Text.assemble(
            (f"{finding.severity:>5}  ", f"bold {COLOURS[finding.severity]}"), (finding.title, "bold")
        )
        body = [Text(finding.explanation)]
        for example in finding.examples[:3]:
            body.append(Text.assemble((f"{example.where}  ", "cyan"), f"{example.source}  |  {example.target}"))
            if example.note:
                body.append(Text(f"    {example.note}", "dim"))
        body.append(Text.assemble(("Fix: ", "bold"), CODE.sub(r"\1", finding.fix)))
        parts += ["", heading, Padding(Group(*body), (0, 0, 0, 7))]
    table = Table(title=None, box=None, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("", no_wrap=True)
    sides = rows(report)
    for name, _ in sides:  # a column for each side: numbers of a million stay whole in 80 columns
        table.add_column(name.replace(", ", "\n"), justify="right", no_wrap=True)
    for number, column in enumerate(COLUMNS):
        table.add_row(column, *(cells[number] for _, cells in sides))
    return Group(*parts, "", table)


COLUMNS = (
    "pairs",
    "words",
    "characters",
    "distinct words",
    "letters and signs",
    "middle length",
    "95 % within",
    "longest",
)


def rows(report: Report) -> list[tuple[str, list[str]]]:
    """The table of statistics: a line for each side of each split."""
    table = []
    for split, numbers in report.statistics.items():
        for side, name in zip(("source", "target"), report.names, strict=True):
            counted: Any = numbers[side]
            lengths = counted["lengths"]
            values = [numbers["pairs"], counted["words"], counted["characters"], counted["vocabulary"]]
            values += [counted["alphabet"], lengths["median"], lengths["most"], lengths["longest"]]
            table.append((f"{split}, {name}", [f"{value:,}" for value in values]))
    return table


def render_page(report: Report) -> str:
    """The report as one HTML page, with its styles and drawings inside."""
    template = Template((files("regard.preflight") / "page" / "report.html").read_text(encoding="utf-8"))
    title, meaning = VERDICTS[report.verdict]
    pairs = ", ".join(f"{numbers['pairs']:,} pairs in {split}" for split, numbers in report.statistics.items())
    return template.substitute(
        verdict=report.verdict,
        title=escape(title),
        meaning=escape(meaning),
        corpus=escape(f"{report.names[0]} – {report.names[1]}: {pairs}"),
        findings="\n".join(finding_block(finding) for finding in report.findings)
        or '<p class="calm">No findings. Leaks, duplicates, lengths, scripts, encodings, languages and alignment were '
        "looked at, and nothing stands out.</p>",
        charts="\n".join(charts(report)),
        table=table_block(report),
    )


def finding_block(finding: Finding) -> str:
    """One finding: what, how much, examples, fix."""
    examples = "\n".join(example_block(example) for example in finding.examples)
    shown = f'<ol class="examples" aria-label="Examples">{examples}</ol>' if examples else ""
    meter = "" if finding.kind == "too-few" else meter_block(finding)
    return f"""<article class="finding {finding.severity}">
<h3><span class="badge">{escape(finding.severity)}</span> {escape(finding.title)}</h3>
{meter}<p>{prose(finding.explanation)}</p>
{shown}
<p class="fix"><strong>Fix.</strong> {prose(finding.fix)}</p>
</article>"""


def meter_block(finding: Finding) -> str:
    """How much of the split a finding touches, as a bar."""
    share = min(finding.share, 1.0)
    label = f"{percent(share)} of {finding.split}"
    return (
        f'<div class="meter" role="img" aria-label="{escape(label)}"><i style="width:{max(share * 100, 0.6):.1f}%"></i>'
        f"<span>{escape(label)}</span></div>\n"
    )


def example_block(example: Example) -> str:
    """A pair, each side in its own direction of writing."""
    note = f'<p class="note" dir="auto">{escape(example.note)}</p>' if example.note else ""
    return (
        f'<li><p class="where">{escape(example.where)}</p><div class="pair"><p dir="auto">{escape(example.source)}</p>'
        f'<p dir="auto">{escape(example.target)}</p></div>{note}</li>'
    )


def prose(text: str) -> str:
    """Escaped text with `code` set as code."""
    return CODE.sub(r"<code>\1</code>", escape(text, quote=False))


def charts(report: Report) -> list[str]:
    """The drawings: lengths of both sides and the ratio for every split, then the scripts."""
    drawn = []
    reach = {side: shared_reach(report, side) for side in ("source", "target")}
    for split, numbers in report.statistics.items():
        cells = []
        for side, name in zip(("source", "target"), report.names, strict=True):
            counted: Any = numbers[side]
            lengths = counted["lengths"]
            label = f"Length of {name} in {split}: half have at most {lengths['median']} {lengths['unit']}"
            ticks = [(position / reach[side], str(position)) for position in tick_places(reach[side])]
            bars = gathered(lengths["histogram"], reach[side])
            cells.append(chart(bars, ticks, label=label, title=f"{name}, {lengths['unit']} a line", side=side))
        ratio: Any = numbers["ratio"]
        cells.append(ratio_chart(ratio, split))
        drawn.append(
            f'<section class="split"><h3>{escape(split)}</h3><div class="charts">{"".join(cells)}</div>'
            f"{scripts_block(report, split)}</section>"
        )
    return drawn


def shared_reach(report: Report, side: str) -> int:
    """One scale for all splits: where nearly all lines of the longest have ended."""
    splits: list[Any] = list(report.statistics.values())
    return max(8, *(int(numbers[side]["lengths"]["most"]) * 2 for numbers in splits))


def tick_places(reach: int) -> list[int]:
    """A few round numbers up to `reach`."""
    step = next(step for step in (1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1000) if reach / step <= 6)
    return list(range(0, reach + 1, step))


def gathered(counts: list[int], reach: int) -> list[int]:
    """Counts by length put into bars; what lies beyond `reach` goes into the last."""
    width = max(-(-(reach + 1) // BARS), 1)
    bars = [0] * (-(-(reach + 1) // width))
    for length, count in enumerate(counts):
        bars[min(length // width, len(bars) - 1)] += count
    return bars


def ratio_chart(ratio: Any, split: str) -> str:
    """Target length over source length, around its middle, with the band that is in order."""
    counts, edges = ratio["histogram"], ratio["edges"]
    inside = [place for place in range(len(counts)) if 0.2 <= edges[place] <= 5]
    bars = [counts[place] for place in inside]
    bars[0] += sum(counts[: inside[0]])
    bars[-1] += sum(counts[inside[-1] + 1 :])
    low, high = edges[inside[0]], edges[inside[-1] + 1]

    def across(value: float) -> float:
        return min(max(log(value / low) / log(high / low), 0.0), 1.0)

    ticks = [(across(value), name) for value, name in ((0.25, "¼"), (0.5, "½"), (1, "1"), (2, "2"), (4, "4"))]
    label = f"Length of target over source in {split}: {ratio['median']} in the middle"
    band = (across(ratio["low"]), across(ratio["high"]))
    return chart(bars, ticks, label=label, title="target length / source length", side="ratio", band=band)


def chart(
    bars: list[int],
    ticks: list[tuple[float, str]],
    *,
    label: str,
    title: str,
    side: str,
    band: tuple[float, float] | None = None,
) -> str:
    """A histogram as SVG; the label says what it shows to those who do not see it."""
    most, wide, floor = max([*bars, 1]), WIDTH / max(len(bars), 1), HEIGHT - 18
    shade = bar("band", band[0] * WIDTH, 0, (band[1] - band[0]) * WIDTH, floor) if band else ""
    drawn = "".join(
        bar("", place * wide + 0.4, floor - tall, max(wide - 0.8, 0.6), tall)
        for place, count in enumerate(bars)
        if (tall := max(count / most * (floor - 6), 0.8 if count else 0))
    )
    named = "".join(
        f'<text x="{min(max(place * WIDTH, 4), WIDTH - 8):.1f}" y="{HEIGHT - 4}">{escape(name)}</text>'
        for place, name in ticks
    )
    return (
        f'<figure><figcaption>{escape(title)}</figcaption><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'class="{side}" aria-label="{escape(label)}">{shade}{drawn}'
        f'<line x1="0" x2="{WIDTH}" y1="{floor}" y2="{floor}"/>{named}</svg></figure>'
    )


def bar(kind: str, x: float, y: float, width: float, height: float) -> str:
    """A rectangle of a drawing."""
    named = f' class="{kind}"' if kind else ""
    return f'<rect{named} x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"/>'


def scripts_block(report: Report, split: str) -> str:
    """Which scripts a split is written in, as bars of shares."""
    parts = []
    for side, name in zip(("source", "target"), report.names, strict=True):
        numbers: Any = report.statistics[split][side]
        scripts = dict(list(numbers["scripts"].items())[:6])
        total = max(sum(numbers["scripts"].values()), 1)
        told = ", ".join(f"{script} {percent(count / total)}" for script, count in scripts.items())
        x, bars = 0.0, []
        for place, count in enumerate(scripts.values()):
            bars.append(bar(f"s{place}", x, 0, count / total * WIDTH, 6))
            x += count / total * WIDTH
        parts.append(
            f'<div class="scripts"><svg viewBox="0 0 {WIDTH} 6" preserveAspectRatio="none" role="img" '
            f'aria-label="{escape(f"Scripts of {name}: {told}")}">{"".join(bars)}</svg>'
            f"<p>{escape(name)}: {escape(told)}</p></div>"
        )
    return f'<div class="pairs">{"".join(parts)}</div>'


def table_block(report: Report) -> str:
    """The statistics as a table."""
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in COLUMNS)
    body = "\n".join(
        f'<tr><th scope="row">{escape(name)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in cells)}</tr>'
        for name, cells in rows(report)
    )
    return f'<table><thead><tr><th scope="col">split, side</th>{head}</tr></thead><tbody>{body}</tbody></table>'
