"""Test sets, and their translations by the systems to score: models, or files of translations."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch

from regard.config import split_folders
from regard.errors import ConfigError
from regard.evaluation.metrics import check_lines, check_seed, choose_tokenizer, make_metric
from regard.inspection.trace import Trace
from regard.preflight.languages import reads_like_source
from regard.text.files import language_of, read_lines, written_line
from regard.translation.translator import Result, Translator

Progress = Callable[[int, int], None]  # called with the number of finished sentences and their total
Paths = str | Path | Sequence[str | Path]
System = str | Path | Translator  # a model folder, several joined by `+`, a file of translations, or a loaded model


@dataclass(frozen=True)
class EvaluationSet:
    """A test set: references and optional sources, line by line, and the options of the metrics."""

    references: Sequence[Sequence[str]]
    sources: Sequence[str] | None = None
    source_name: str = ""
    reference_names: str = ""
    languages: tuple[str, str] = ("", "")  # the language codes of source and reference; empty if unknown
    options: Mapping[str, Any] = field(default_factory=dict)  # of the metrics: lowercase and tokenize
    messages: list[str] = field(default_factory=list)  # about the test set and its translations

    @classmethod
    def read(
        cls, source: str | Path | None, reference: Paths | None, *, lowercase: bool, tokenize: str | None
    ) -> EvaluationSet:
        """Read a test set and check the options of scoring, before anything is translated."""
        paths = [reference] if isinstance(reference, str | Path) else list(reference or [])
        if not paths:
            raise ConfigError("give the reference translations with --reference FILE")
        check_seed()
        make_metric("bleu", tokenize=tokenize)
        references = {str(path): read_test(path) for path in paths}
        sources = read_test(source) if source else None
        check_lines(references if sources is None else {str(source): sources, **references})
        messages = [
            f"--reference ({path}) is the same text as --source ({source})"
            for path, lines in references.items()
            if lines == sources
        ]
        texts, names = list(references.values()), list(references)
        languages = language_of(str(source)) if source else "", language_of(names[-1])
        options = {"lowercase": lowercase, "tokenize": tokenize or choose_tokenizer(texts[0], messages.append)}
        return cls(texts, sources, str(source or ""), ", ".join(names), languages, options, messages)


class Translations(NamedTuple):
    """The translations of a test set by one system."""

    results: Sequence[Result]
    path: str = "model"  # the file or folder of the system; "model" for a loaded one
    translator: Translator | None = None  # None for a file
    beams: int | None = None

    @property
    def texts(self) -> list[str]:
        return [result.text for result in self.results]

    def traces(self, sources: Mapping[int, str]) -> dict[int, Trace]:
        """The model's traces of some lines; a line that is translated in several parts has none."""
        if self.translator is None:
            return {}
        results = self.translator.translate(sources.values(), beams=self.beams, trace=True)
        traces = {line: result.trace for line, result in zip(sources, results, strict=True)}
        return {line: trace.split_punctuation() for line, trace in traces.items() if trace is not None}


def read_test(path: str | Path) -> list[str]:
    """Read the lines of a file without trailing spaces, as sacreBLEU's command line does."""
    return [line.rstrip() for line, _ in read_lines(path)]


def is_model(system: System) -> bool:
    """Whether a system is a loaded model, a model folder or several joined by `+`; otherwise it is a file."""
    return isinstance(system, Translator) or any(map(os.path.isdir, split_folders(system)))


def path_of(system: object) -> str:
    """The file or folder of a system, or "model" for a loaded one."""
    return str(system) if isinstance(system, str | Path) else "model"


def translate(
    system: System,
    test: EvaluationSet,
    *,
    device: torch.device | str,
    beams: int | None,
    config: Iterable[str] | Mapping[str, Any] | None,
    progress: Progress | None,
) -> Translations:
    """The translations of a test set, made by a model or read from a file."""
    path, results, translator = path_of(system), list[Result](), None
    if not is_model(system):
        results += map(Result, read_test(path))
        check_lines({test.reference_names: test.references[0], path: results})
    elif test.sources is None:
        raise ConfigError(f"{path} is a model: give the text to translate with --source FILE")
    else:
        translator = system if isinstance(system, Translator) else Translator.load(system, device, config or {})
        for result in translator.stream(test.sources, beams=beams):
            results.append(result._replace(text=written_line(result.text).rstrip()))
            if progress is not None:
                progress(len(results), len(test.sources))
    translations = Translations(results, path, translator, beams)
    if test.sources is not None and reads_like_source(translations.texts, test.sources, test.references[0]):
        files = f"--source and not like --reference ({test.reference_names})"
        test.messages.append(
            f"the translations of {path} read like {files}: are the files swapped, or of another model?"
        )
    return translations
