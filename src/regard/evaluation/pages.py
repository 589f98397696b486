"""Pages: an evaluation or a comparison as HTML, with example sentences and their traces."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from regard.evaluation.systems import trace_lines
from regard.inspection import report
from regard.inspection.report import Output, Row
from regard.inspection.trace import Trace

if TYPE_CHECKING:
    from regard.evaluation.compare import Comparison
    from regard.evaluation.evaluate import Evaluation, Sentence

MAX_DIFFERENT = 50  # sentences of a comparison


def evaluation_page(evaluation: Evaluation, examples: list[tuple[str, Sentence]]) -> str:
    """The page of one system with these sentences."""
    traces: dict[int, Trace] = {}
    if evaluation.translator is not None:
        sources = {sentence.line: sentence.source for _, sentence in examples}
        traces = trace_lines(evaluation.translator, sources, beams=evaluation.beams)
    rows = []
    for kind, (line, source, references, text, scores, warnings, confidence) in examples:
        output = Output("translation", text, scores, warnings, confidence, traces.get(line))
        rows.append(Row(line, kind, source, references, [output]))
    title = Path(evaluation.system).name or evaluation.system
    return report.evaluation_page(title, evaluation.to_dict(), rows, evaluation.about)


def comparison_page(comparison: Comparison) -> str:
    """The page of several systems with the sentences that differ most from the first one's."""
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
        line_traces = trace_lines(
            translator, {line: sources[line - 1] for line in lines if sources}, beams=comparison.beams
        )
        traces |= {(name, line): trace for line, trace in line_traces.items()}
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
    title = ", ".join(Path(name).name or name for name in comparison.scores)
    return report.comparison_page(title, comparison.to_dict(), rows, comparison.about)
