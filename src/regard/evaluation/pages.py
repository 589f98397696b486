"""Pages: an evaluation or a comparison as HTML, with the sentences that tell most and their traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.evaluation.evaluate import TELLING, Evaluation, telling
from regard.evaluation.systems import Written, traces
from regard.inspection import report
from regard.inspection.report import Output, Row
from regard.inspection.trace import Trace


def evaluation_page(
    found: Evaluation, written: Written, *, system: str, beams: int, about: str, tokenize: str | None = None
) -> str:
    """One system, and up to fifty of its sentences."""
    chosen = telling(found, tokenize=tokenize)
    seen = {}
    if written.translator is not None:
        seen = traces(written.translator, {each.line: each.source for _, each in chosen}, beams=beams)
    rows = [
        Row(each.line, why, each.source, each.references, [
            Output("translation", each.text, each.scores, each.warnings, each.confidence, seen.get(each.line))
        ])
        for why, each in chosen
    ]  # fmt: skip
    return report.evaluation_page(_title(system), found.as_dict(), rows, about)


def comparison_page(
    found: Mapping[str, Any],
    systems: Mapping[str, Written],
    *,
    sources: Sequence[str] | None,
    references: Sequence[Sequence[str]],
    beams: int,
    about: str,
) -> str:
    """Several systems, and up to fifty sentences in which one is far from the first."""
    share = max(TELLING // len(found["against"]) // 2, 1)
    chosen = []
    for against in found["against"]:
        for why, sign in (("better", 1), ("worse", -1)):
            apart = [each for each in against["different"] if each["gap"] * sign > 0]
            chosen += [(why, against["system"], against["baseline"], each) for each in apart[:share]]
    seen: dict[tuple[str, int], Trace] = {}
    for name, written in systems.items():
        if written.translator is not None and sources is not None:
            lines = [each["line"] for _, one, other, each in chosen if name in (one, other)]
            own = traces(written.translator, {line: sources[line - 1] for line in lines}, beams=beams)
            seen |= {(name, line): trace for line, trace in own.items()}
    rows = [
        Row(
            each["line"],
            why,
            sources[each["line"] - 1] if sources is not None else "",
            [lines[each["line"] - 1] for lines in references],
            [
                Output(name, each[text], {"chrf": each[score]}, trace=seen.get((name, each["line"])))
                for name, text, score in ((one, "text", "chrf"), (other, "baseline_text", "baseline_chrf"))
            ],
        )
        for why, one, other, each in chosen
    ]
    return report.comparison_page(", ".join(_title(name) for name in systems), found, rows, about)


def _title(system: str) -> str:
    return Path(system).name or system
