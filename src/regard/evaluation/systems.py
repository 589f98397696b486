"""Systems to score: a model that translates the test set, or a file of translations."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from regard.config import split_folders
from regard.errors import ConfigError
from regard.evaluation.metrics import check_lines, check_seed, choose_tokenizer, make_metric
from regard.inspection.quality import QualityWarning
from regard.inspection.trace import Trace
from regard.preflight.languages import reads_like_source
from regard.text.files import language_of, one_line, read_lines
from regard.translation.translator import Result, Translator

Progress = Callable[[int, int], None]  # called with the number of finished sentences and their total
Paths = str | Path | Sequence[str | Path]
System = str | Path | Translator  # a model folder, several joined by `+`, a file of translations, or a loaded model


class EvaluationSet(NamedTuple):
    """The sources and references of a test set, with one line for each sentence."""

    sources: list[str] | None
    references: list[list[str]]
    reference_names: str
    languages: tuple[str, str]  # the language codes of source and reference, from the file names; empty if unknown
    tokenize: str | None  # the tokenizer of BLEU


class Sentence(NamedTuple):
    """One line of the test set."""

    line: int  # from 1
    source: str  # empty if only translations were given
    references: Sequence[str]
    text: str
    scores: dict[str, float]
    warnings: Sequence[QualityWarning]
    confidence: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return {**self._asdict(), "warnings": [warning._asdict() for warning in self.warnings]}


def read_test_set(
    source: str | Path | None,
    reference: Paths | None,
    *,
    tokenize: str | None,
    say: Callable[[str], None],
) -> EvaluationSet:
    """Read a test set and check the options of scoring, before anything is translated."""
    paths = [reference] if isinstance(reference, str | Path) else list(reference or [])
    if not paths:
        raise ConfigError("give the reference translations with --reference FILE")
    check_seed()
    make_metric("bleu", tokenize=tokenize)
    references = {str(path): read_test(path) for path in paths}
    sources = read_test(source) if source else None
    check_lines({**({str(source): sources} if sources is not None else {}), **references})
    for path, lines in references.items():
        if lines == sources:
            say(f"--reference ({path}) is the same text as --source ({source})")
    *_, last = references
    languages = language_of(str(source)) if source else "", language_of(last)
    texts = list(references.values())
    return EvaluationSet(sources, texts, ", ".join(references), languages, tokenize or choose_tokenizer(texts[0], say))


def read_test(path: str | Path) -> list[str]:
    """Read the lines of a file without trailing spaces, as sacreBLEU's command line does."""
    return [line.rstrip() for line, _ in read_lines(path)]


def is_model(system: System) -> bool:
    """Whether a system is a loaded model, a model folder or several joined by `+`; otherwise it is a file."""
    return isinstance(system, Translator) or any(map(os.path.isdir, split_folders(system)))


def name_of(system: object) -> str:
    """The name of a system in a report: its path, or "model" for a loaded one."""
    return str(system) if isinstance(system, str | Path) else "model"


def translate_test(
    system: System,
    test: EvaluationSet,
    *,
    device: torch.device | str,
    beams: int | None,
    config: Iterable[str] | Mapping[str, Any] | None,
    progress: Progress | None,
    say: Callable[[str], None],
) -> tuple[list[Result], Translator | None]:
    """The translations of a system, read from its file or made by its model, and the model."""
    translator, name = None, name_of(system)
    if not is_model(system):
        results = [Result(line) for line in read_test(name)]
        check_lines({test.reference_names: test.references[0], name: [result.text for result in results]})
    elif test.sources is None:
        raise ConfigError(f"{name} is a model: give the text to translate with --source FILE")
    else:
        translator = system if isinstance(system, Translator) else Translator.load(system, device, config or {})
        results = []
        for result in translator.stream(test.sources, beams=beams):
            results.append(result._replace(text=one_line(result.text).rstrip()))
            if progress is not None:
                progress(len(results), len(test.sources))
    texts = [result.text for result in results]
    if test.sources is not None and reads_like_source(texts, test.sources, test.references[0]):
        files = f"--source and not like --reference ({test.reference_names})"
        say(f"the translations of {name} read like {files}: are the files swapped, or of another model?")
    return results, translator


def trace_lines(translator: Translator, sources: Mapping[int, str], *, beams: int | None) -> dict[int, Trace]:
    """The traces of some lines; a line that is translated in several parts has none."""
    results = translator.translate(sources.values(), beams=beams, trace=True)
    traces = {line: result.trace for line, result in zip(sources, results, strict=True)}
    return {line: trace.split_punctuation() for line, trace in traces.items() if trace is not None}
