"""Systems to score: a model that translates the test set, or a file of translations."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from regard.decoding.glossary import Glossary, count_statuses, find_forms
from regard.devices import find_device
from regard.errors import ConfigError, DataError
from regard.evaluation.metrics import bootstrap_seed, check_lengths, corpus_scores, make_metric
from regard.inspection.quality import QualityWarning
from regard.inspection.trace import Trace
from regard.text.files import one_line, read_lines
from regard.translation.translator import Result, Translator

Progress = Callable[[int, int], None]
"""Called with the number of finished sentences and their total."""
Paths = str | Path | Sequence[str | Path]


class Translations(NamedTuple):
    """The translations of a test set by one system."""

    texts: list[str]
    warnings: list[Sequence[QualityWarning]] | None = None
    confidences: list[float | None] | None = None
    translator: Translator | None = None
    """The model; None for a file."""


class EvaluationSet(NamedTuple):
    """The lines of a test set, with equal numbers of lines."""

    sources: list[str] | None
    references: list[list[str]]
    names: list[str]
    """The reference files."""

    def check(self, system: str, texts: Sequence[str]) -> None:
        """Raise a DataError if the number of translations differs from that of a reference."""
        for name, lines in zip(self.names, self.references, strict=True):
            if len(lines) != len(texts):
                raise DataError(
                    f"{name} has {len(lines):,} lines and {system} {len(texts):,}: the numbers must be equal"
                )


def read_test_set(
    source: str | Path | None, reference: Paths | None, *, tokenize: str | None, lengths: Sequence[int]
) -> EvaluationSet:
    """Read a test set and check all options, before hours of translating."""
    paths = [reference] if isinstance(reference, str | Path) else list(reference or [])
    if not paths:
        raise ConfigError("give the reference translations with --reference FILE")
    check_lengths(lengths)
    bootstrap_seed()
    make_metric("bleu", tokenize=tokenize)
    sources = read_test(source) if source else None
    test = EvaluationSet(sources, [read_test(path) for path in paths], list(map(str, paths)))
    if sources is not None:
        test.check(str(source), sources)
    return test


def read_test(path: str | Path) -> list[str]:
    """Read the lines of a file without trailing spaces, as sacreBLEU's command line does."""
    return [line.rstrip() for line, _ in read_lines(path)]


def is_model(system: str | Path) -> bool:
    """Whether a system is a model folder or several joined by `+`; otherwise it is a file."""
    return any(Path(part).is_dir() for part in (system, *str(system).split("+")))


def translate_test(
    system: str | Path | Translator,
    sources: Sequence[str] | None,
    *,
    device: torch.device | str,
    beams: int | None,
    config: Mapping[str, Any] | None,
    progress: Progress | None,
) -> Translations:
    """The translations of a system: read from its file, or made by its model."""
    if not isinstance(system, Translator) and not is_model(system):
        texts = read_test(system)
        if sources is not None and len(texts) != len(sources):
            raise DataError(
                f"{system} has {len(texts):,} lines and the source {len(sources):,}: the numbers must be equal"
            )
        return Translations(texts)
    if sources is None:
        raise ConfigError(f"{name_of(system)} is a model: give the text to translate with --source FILE")
    if isinstance(system, Translator):
        translator = system
    else:
        place = find_device(device) if isinstance(device, str) else device
        translator = Translator.load(system, place, [f"{field}={value}" for field, value in (config or {}).items()])
    results = []
    # align: sources with little attention give a warning too
    for result in translator.stream(sources, beams=beams, align=True):
        results.append(result)
        if progress is not None:
            progress(len(results), len(sources))
    return Translations(
        [one_line(result.text).rstrip() for result in results],
        [result.warnings for result in results],
        [result.confidence for result in results],
        translator,
    )


def name_of(system: object) -> str:
    """The name of a system in a report: its path, or "model" for a loaded one."""
    return str(system) if isinstance(system, str | Path) else "model"


def trace_lines(translator: Translator, sources: Mapping[int, str], *, beams: int | None) -> dict[int, Trace]:
    """The traces of some lines; a line that is translated in several parts has none."""
    results = translator.translate(list(sources.values()), beams=beams, trace=True)
    return {line: result.trace for line, result in zip(sources, results, strict=True) if result.trace is not None}


def term_accuracy(
    glossary: Glossary,
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    translations: Translations,
    *,
    beams: int | None,
    **options: Any,
) -> dict[str, Any]:
    """The share of glossary terms in the translations, and for a model also with the glossary in use.

    `options` are those of BLEU.
    """
    matches = [glossary.find(source) for source in sources]
    terms = sum(map(len, matches))
    if not terms:
        raise DataError("no sentence of the source has a term of the glossary: there is nothing to report")
    spans = [find_forms(text, terms_of_text) for text, terms_of_text in zip(translations.texts, matches, strict=True)]
    right = sum(span is not None for spans_of_text in spans for span in spans_of_text)
    accuracy: dict[str, Any] = {"sentences": sum(map(bool, matches)), "terms": terms, "accuracy": right / terms}
    if translations.translator is not None:
        rows = [row for row, terms_of_text in enumerate(matches) if terms_of_text]
        chosen = [sources[row] for row in rows], [[column[row] for row in rows] for column in references]
        accuracy["with_glossary"] = _with_glossary(translations.translator, glossary, *chosen, beams=beams, **options)
    return accuracy


def _with_glossary(
    translator: Translator,
    glossary: Glossary,
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    beams: int | None,
    **options: Any,
) -> dict[str, Any]:
    """Translate sentences with and without a glossary; return term accuracy, BLEU and milliseconds per sentence."""
    started = time.perf_counter()
    without = translator.translate(sources, beams=beams)
    between = time.perf_counter()
    results = translator.translate(sources, beams=beams, glossary=glossary)
    ended = time.perf_counter()
    terms = [term for result in results for term in result.terms]
    counts = count_statuses(terms)

    def bleu(results: Sequence[Result]) -> float:
        texts = [result.text for result in results]
        return corpus_scores(texts, *references, metrics=["bleu"], **options)["bleu"].score

    return {
        "sentences": len(sources),
        "terms": len(terms),
        "how": counts,
        "accuracy": 1 - counts["missing"] / max(len(terms), 1),
        "bleu": bleu(results),
        "bleu_without": bleu(without),
        "milliseconds": 1000 * (ended - between) / len(sources),
        "milliseconds_without": 1000 * (between - started) / len(sources),
    }
