"""Compare: score several systems side by side, test each against the first one, and show where they differ."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from regard.config import split_folders
from regard.errors import ConfigError, refuse_options
from regard.evaluation import metrics
from regard.evaluation.evaluate import format_interval
from regard.evaluation.metrics import METRICS, Bucket, Score
from regard.evaluation.systems import Paths, Progress, System, is_model, read_test_set, translate_test
from regard.folders import write_file
from regard.inspection.charts import format_range
from regard.results import Report, Table, counted
from regard.translation.translator import Translator

MAX_DIFFERENT = 50  # sentences of a pair of systems
SHOWN_DIFFERENT = 4  # of them in the printed tables


@dataclass(frozen=True, kw_only=True)
class Comparison(Report):
    """Several systems on one test set."""

    scores: dict[str, dict[str, Score]]  # by system and metric
    signatures: dict[str, dict[str, str]]  # sacreBLEU signatures by metric and test
    by_length: dict[str, list[Bucket]]  # by system
    against: list[dict[str, Any]]  # each other system against the first: counts of sentences, and the largest gaps
    references: Sequence[Sequence[str]]
    sources: Sequence[str] | None = None
    paths: Mapping[str, str] | None = None  # the file or folder of every system
    about: str = ""  # a description of the test set
    languages: tuple[str, str] = ("", "")  # the language codes of source and reference; empty if unknown
    translators: Mapping[str, Translator] | None = None  # the models that translated; a page shows their attention
    beams: int | None = None
    messages: Sequence[str] = ()

    def to_dict(self) -> dict[str, Any]:
        buckets = []
        for row in zip(*self.by_length.values(), strict=True):
            systems = [
                {"name": name, "bleu": bucket.bleu, "low": bucket.low, "high": bucket.high}
                for name, bucket in zip(self.by_length, row, strict=True)
            ]
            shared = {name: value for name, value in row[0].to_dict().items() if name not in systems[0]}
            buckets.append({**shared, "systems": systems})
        return {
            **({"paths": dict(self.paths)} if self.paths is not None else {}),
            "sentences": len(self.references[0]),
            "systems": [
                {"name": name, **{metric: score.to_dict() for metric, score in scores.items()}}
                for name, scores in self.scores.items()
            ],
            "signatures": self.signatures,
            "by_length": buckets,
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
                cells = f"{score.score:z.2f}", format_interval(score), *p_values
                rows.append([title if name == first else "", name, *cells])
        lengths = []
        for row in zip(*self.by_length.values(), strict=True):
            bleu = [f"{x.bleu:z.1f} ({format_interval(x).replace(' to ', '–')})" + " few" * x.small for x in row]
            lengths.append([format_range(row[0].first, row[0].last), f"{row[0].sentences:,}", *bleu])
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

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write a page with the scores, charts and the sentences that differ most."""
        from regard.evaluation.pages import comparison_page

        write_file(Path(path), comparison_page(self), force=force)


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
    messages: list[str] = []
    test = read_test_set(source, reference, tokenize=tokenize, say=messages.append)
    texts: dict[str, list[str]] = {}
    translators: dict[str, Translator] = {}

    def count(finished: int, total: int) -> None:
        if progress is not None:
            progress(len(translators) * total + finished, models * total)

    # Files first, so that their errors are found before anything is translated.
    for name, system in sorted(named.items(), key=lambda item: is_model(item[1])):
        results, translator = translate_test(
            system, test, device=device, beams=beams, config=config, progress=count, say=messages.append
        )
        texts[name] = [result.text for result in results]
        if translator is not None:
            translators[name] = translator
    translations = {name: texts[name] for name in named}
    return replace(
        compare_translations(translations, *test.references, lowercase=lowercase, tokenize=test.tokenize),
        sources=test.sources,
        paths={name: str(system) if isinstance(system, str | Path) else name for name, system in named.items()},
        about=f"{counted(len(test.references[0]), 'sentence')} against {test.reference_names}",
        languages=test.languages,
        translators=translators,
        beams=beams,
        messages=messages,
    )


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


def compare_translations(
    systems: Mapping[str, Sequence[str]], *references: Sequence[str], **options: Any
) -> Comparison:
    """Compare the translations of named systems; the first one is the baseline. `options` are those of the metrics."""
    chrf: dict[str, list[float]] = {}
    for name, lines in systems.items():
        sentences = metrics.sentence_scores(lines, *references, metrics=["chrf"], **options)
        chrf[name] = [scores["chrf"] for scores in sentences]
    scores: dict[str, dict[str, Score]] = {name: {} for name in systems}
    signatures = {}
    for metric in METRICS:
        metric_scores, signatures[metric] = metrics.paired_tests(metric, list(systems.values()), references, **options)
        for name, score in zip(systems, metric_scores, strict=True):
            scores[name][metric] = score
    first, *others = systems
    against = []
    for name in others:
        columns = chrf[name], chrf[first], systems[name], systems[first]
        pairs: list[dict[str, Any]] = [
            {"line": line, "gap": x - y, "chrf": x, "baseline_chrf": y, "text": text, "baseline_text": baseline_text}
            for line, (x, y, text, baseline_text) in enumerate(zip(*columns, strict=True), 1)
        ]
        gaps = [pair["gap"] for pair in pairs]
        ranked = sorted((pair for pair in pairs if pair["gap"]), key=lambda pair: -abs(pair["gap"]))
        differing = sum(map(operator.ne, systems[name], systems[first]))
        better, equal, worse = sum(gap > 0 for gap in gaps), gaps.count(0), sum(gap < 0 for gap in gaps)
        summary = f"chrF higher in {counted(better, 'sentence')}, equal in {equal:,}, lower in {worse:,}"
        against.append(
            {
                "system": name,
                "baseline": first,
                "differing": differing,
                "better": better,
                "equal": equal,
                "worse": worse,
                "summary": f"{name} against {first}: {summary if differing else 'all translations are identical'}",
                "different": ranked[:MAX_DIFFERENT],
            }
        )
    return Comparison(
        scores=scores,
        signatures=signatures,
        by_length={name: metrics.by_length(lines, *references, **options) for name, lines in systems.items()},
        against=against,
        references=references,
    )
