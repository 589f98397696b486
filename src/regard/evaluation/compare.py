"""Compare: score several systems side by side, test each against the first one, and show where they differ."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from regard.config import split_folders
from regard.errors import ConfigError, refuse_options
from regard.evaluation import metrics
from regard.evaluation.metrics import METRICS, Score
from regard.evaluation.pages import MAX_TRACES, Row, Sentence, comparison_headline, comparison_parts, page
from regard.evaluation.systems import EvaluationSet, Paths, Progress, System, Translations, is_model, translate
from regard.inspection.charts import format_range
from regard.inspection.trace import Trace
from regard.results import Page, Table, counted
from regard.translation.translator import Translator

MAX_DIFFERENT = 50  # sentences of a pair of systems
SHOWN_DIFFERENT = 4  # of them in the printed tables


@dataclass(frozen=True, kw_only=True)
class Comparison(Page):
    """Several systems on one test set."""

    scores: dict[str, dict[str, Score]]  # by system and metric
    signatures: dict[str, dict[str, str]]  # sacreBLEU signatures by metric and test
    by_length: list[dict[str, Any]]  # ranges of reference lengths, each with the BLEU of all systems
    against: list[dict[str, Any]]  # each other system against the first: counts of sentences, and the largest gaps
    test: EvaluationSet
    translations: Mapping[str, Translations]
    messages: Sequence[str] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "paths": {name: outputs.path for name, outputs in self.translations.items()},
            "sentences": len(self.test.references[0]),
            "systems": [
                {"name": name, **{metric: score.to_dict() for metric, score in scores.items()}}
                for name, scores in self.scores.items()
            ],
            "signatures": self.signatures,
            "by_length": self.by_length,
            "against": self.against,
        }

    def tables(self) -> list[Table]:
        first, *_ = self.scores
        rows = []
        for metric, title in METRICS.items():
            for name, scores in self.scores.items():
                score = scores[metric]
                p_values = [
                    "" if name == first else "–  " if p is None else f"{p:.4f}" + (" *" if p < 0.05 else "  ")
                    for p in (score.p_randomisation, score.p_bootstrap)
                ]
                cells = f"{score.score:z.2f}", f"{score.low:z.1f} to {score.high:z.1f}", *p_values
                rows.append([title if name == first else "", name, *cells])
        lengths = []
        for row in self.by_length:
            bleu = [
                f"{x['bleu']:z.1f} ({x['low']:z.1f}–{x['high']:z.1f})" + " few" * row["small"] for x in row["systems"]
            ]
            lengths.append([format_range(row["from"], row["to"]), f"{row['sentences']:,}", *bleu])
        notes = [[f"p: probability of such a difference from {first} by chance (sacreBLEU); * below 0.05"]]
        if any("–" in cell for row in rows for cell in row[-2:]):
            notes.append([f"–: fewer than {metrics.MIN_DIFFERING} sentences differ, too few for a test"])
        different = []
        for contrast in self.against:
            shown = []
            for x in contrast["different"][:SHOWN_DIFFERENT]:
                shown.append([f"line {x['line']:,}, chrF {x['gap']:+.0f}"])
                shown += [[f"  + {x['text']}"], [f"  - {x['baseline_text']}"]]
            different.append(Table([""], shown, contrast["summary"]))
        return [
            Table(["", "system", "score", "95 % interval", "p rand.", "p boot."], rows),
            Table([""], notes),
            Table(["words", "sentences", *self.scores], lengths, "BLEU by reference length"),
            *different,
        ]

    def to_html(self) -> str:
        """A page with the scores, charts and the sentences that differ most."""
        limit = max(MAX_TRACES // len(self.against), 1)
        examples = [(contrast, x) for contrast in self.against for x in contrast["different"][:limit]]
        sources = self.test.sources or [""] * len(self.test.references[0])
        traces: dict[str, dict[int, Trace]] = {}
        for name, outputs in self.translations.items():
            lines = [x["line"] for contrast, x in examples if name in (contrast["system"], contrast["baseline"])]
            traces[name] = outputs.traces({line: sources[line - 1] for line in lines})
        rows = []
        for contrast, x in examples:
            line, shown = x["line"], []
            references = [lines[line - 1] for lines in self.test.references]
            for side, prefix in (("system", ""), ("baseline", "baseline_")):
                text, scores = x[f"{prefix}text"], {"chrf": x[f"{prefix}chrf"]}
                sentence = Sentence(line, sources[line - 1], references, text, scores)
                shown.append((contrast[side], sentence, traces[contrast[side]].get(line)))
            rows.append(Row("better" if x["gap"] > 0 else "worse", shown))
        result = self.to_dict()
        about = f"{counted(result['sentences'], 'sentence')} against {self.test.reference_names}"
        parts, languages = comparison_parts(result), self.test.languages
        return page(comparison_headline(result), about, parts, rows, "comparison", languages)


def compare(
    systems: Sequence[System],
    *,
    reference: Paths,
    source: str | Path | None = None,
    lowercase: bool = False,
    tokenize: str | None = None,
    beams: int | None = None,
    config: Iterable[str] | Mapping[str, Any] | None = None,
    device: torch.device | str = "auto",
    progress: Progress | None = None,
) -> Comparison:
    """Score model folders, files of translations or loaded models side by side, and test each against the first.

    The p-values are those of sacreBLEU's paired bootstrap and approximate randomisation tests.
    """
    if len(systems) < 2:
        raise ConfigError("one system cannot be compared: give two or more")
    named = system_names(systems)
    models = sum(map(is_model, systems))
    if not models:
        refuse_options({"--beams": beams, "--set": config}, "is for decoding, and these files are already translated")
    test = EvaluationSet.read(source, reference, lowercase=lowercase, tokenize=tokenize)
    translations: dict[str, Translations] = {}

    def count(finished: int, total: int) -> None:
        if progress is not None:
            done = sum(outputs.translator is not None for outputs in translations.values())
            progress(done * total + finished, models * total)

    # Files first, so that their errors are found before anything is translated.
    for name, system in sorted(named.items(), key=lambda item: is_model(item[1])):
        outputs = translate(system, test, device=device, beams=beams, config=config, progress=count)
        translations[name] = outputs._replace(path=name) if isinstance(system, Translator) else outputs
    return compare_translations({name: translations[name] for name in named}, test)


def system_names(systems: Sequence[System]) -> dict[str, System]:
    """Name the systems: by file or folder name, by path if two names are equal, or "model 1" for a loaded model."""
    paths = [str(system) for system in systems if isinstance(system, str | Path)]
    if len(set(paths)) < len(paths):
        raise ConfigError(f"{' '.join(paths)}: a system is named twice")
    short = {path: "+".join(folder.name or str(folder) for folder in split_folders(path)) for path in paths}
    if len(set(short.values())) < len(paths):
        short = {path: path for path in paths}
    return {
        f"model {number}" if isinstance(system, Translator) else short[str(system)]: system
        for number, system in enumerate(systems, 1)
    }


def compare_translations(translations: Mapping[str, Translations], test: EvaluationSet) -> Comparison:
    """Compare the translations of named systems; the first one is the baseline."""
    systems = {name: outputs.texts for name, outputs in translations.items()}
    chrf: dict[str, list[float]] = {}
    for name, lines in systems.items():
        sentences = metrics.sentence_scores(lines, *test.references, metrics=["chrf"], **test.options)
        chrf[name] = [scores["chrf"] for scores in sentences]
    scores: dict[str, dict[str, Score]] = {name: {} for name in systems}
    signatures = {}
    for metric in METRICS:
        tested = metrics.paired_tests(metric, list(systems.values()), test.references, **test.options)
        metric_scores, signatures[metric] = tested
        for name, score in zip(systems, metric_scores, strict=True):
            scores[name][metric] = score
    buckets = [metrics.by_length(lines, *test.references, **test.options) for lines in systems.values()]
    by_length = []
    for row in zip(*buckets, strict=True):
        shared = {key: row[0][key] for key in ("from", "to", "sentences", "small")}
        bleu = [
            {"name": name, **{key: bucket[key] for key in ("bleu", "low", "high")}}
            for name, bucket in zip(systems, row, strict=True)
        ]
        by_length.append({**shared, "systems": bleu})
    first, *others = systems
    return Comparison(
        scores=scores,
        signatures=signatures,
        by_length=by_length,
        against=[_contrast(name, first, systems, chrf) for name in others],
        test=test,
        translations=translations,
        messages=test.messages,
    )


def _contrast(
    name: str, baseline: str, systems: Mapping[str, Sequence[str]], chrf: Mapping[str, Sequence[float]]
) -> dict[str, Any]:
    """A system against the baseline: how many sentences are better or worse, and those whose chrF differs most."""
    columns = chrf[name], chrf[baseline], systems[name], systems[baseline]
    pairs: list[dict[str, Any]] = [
        {"line": line, "gap": x - y, "chrf": x, "baseline_chrf": y, "text": text, "baseline_text": baseline_text}
        for line, (x, y, text, baseline_text) in enumerate(zip(*columns, strict=True), 1)
    ]
    ranked = sorted((pair for pair in pairs if pair["gap"]), key=lambda pair: -abs(pair["gap"]))
    better = sum(pair["gap"] > 0 for pair in pairs)
    equal, worse = len(pairs) - len(ranked), len(ranked) - better
    differing = sum(map(operator.ne, systems[name], systems[baseline]))
    summary = f"chrF higher in {counted(better, 'sentence')}, equal in {equal:,}, lower in {worse:,}"
    return {
        "system": name,
        "baseline": baseline,
        "differing": differing,
        "better": better,
        "equal": equal,
        "worse": worse,
        "summary": f"{name} against {baseline}: {summary if differing else 'all translations are identical'}",
        "different": ranked[:MAX_DIFFERENT],
    }
