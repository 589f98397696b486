"""Systems: what is scored, a model folder that translates the test set or a file that holds its translations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from regard.errors import ConfigError, DataError
from regard.evaluation.evaluate import read_test
from regard.evaluation.metrics import corpus_scores
from regard.inspection.quality import QualityWarning
from regard.inspection.trace import Trace
from regard.text.files import one_line
from regard.translation.glossary import Glossary, Terminology, present, report
from regard.translation.translator import Translator


class Written(NamedTuple):
    """What a system made of a test set."""

    texts: list[str]
    warned: list[Sequence[QualityWarning]] | None = None
    confidences: list[float | None] | None = None
    translator: Translator | None = None
    """Where it was translated here."""


def is_model(system: str) -> bool:
    """A model folder, or several joined by `+`; else it is a file."""
    return any(Path(part).is_dir() for part in (system, *system.split("+")))


def written(
    system: str,
    sources: Sequence[str] | None,
    *,
    device: torch.device,
    beams: int,
    values: Sequence[str],
    progress: Callable[[int, int], None],
) -> Written:
    """The translations of a system, made now or read; `progress` is told how many of how many there are."""
    if not is_model(system):
        texts = read_test(system)
        if sources is not None and len(texts) != len(sources):
            raise DataError(f"{system} has {len(texts):,} lines and the source {len(sources):,}: line for line")
        return Written(texts)
    if sources is None:
        raise ConfigError(f"{system} has to translate: give --source FILE")
    translator = Translator.load(system, device, values)
    results = []
    # aligned: a source that is not looked at is warned of too
    for result in translator.stream(sources, beams=beams or None, align=True):
        results.append(result)
        progress(len(results), len(sources))
    return Written(
        [one_line(result.text).rstrip() for result in results],
        [result.warnings for result in results],
        [result.confidence for result in results],
        translator,
    )


def traces(translator: Translator, sources: Mapping[int, str], *, beams: int) -> dict[int, Trace]:
    """What a translator looked at in some lines; those it translates in several parts are left out."""
    results = translator.translate(list(sources.values()), beams=beams or None, trace=True)
    return {line: result.trace for line, result in zip(sources, results, strict=True) if result.trace is not None}


def terms(
    known: Glossary,
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    system: Written,
    *,
    beams: int,
    **how: Any,
) -> dict[str, Any]:
    """How many terms of a glossary stand in the translations, and where a model is there, what using it would bring.

    `how` is what BLEU depends on.
    """
    matches = [known.find(source) for source in sources]
    asked = sum(map(len, matches))
    if not asked:
        raise DataError("no sentence of the source has a term of the glossary: there is nothing to report")
    found = [present(text, own) for text, own in zip(system.texts, matches, strict=True)]
    right = sum(span is not None for spans in found for span in spans)
    answer: dict[str, Any] = {"sentences": sum(map(bool, matches)), "terms": asked, "accuracy": right / asked}
    if system.translator is not None:
        told = report(
            system.translator,
            sources,
            list(zip(*references, strict=True)),
            Terminology(known, "soft"),
            lambda texts, wanted: (
                corpus_scores(texts, *zip(*wanted, strict=True), metrics=["bleu"], **how)["bleu"].score
            ),
            beams=beams or None,
        )
        answer["with_glossary"] = told.as_dict()
    return answer
