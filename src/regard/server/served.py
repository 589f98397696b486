"""Served models: model folders with their names, languages and threads, and a detector of these languages."""

from __future__ import annotations

import copy
import logging
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import nn

from regard.attention.multihead import MultiHead
from regard.config import load_config, split_folders
from regard.decoding.glossary import Glossary
from regard.documents.formats import read_pairs
from regard.documents.languages import same_language
from regard.errors import ConfigError, FolderError, InputError, RegardError
from regard.evaluation.precision import use_engine
from regard.interop.ctranslate2 import CTranslate2Engine
from regard.models.folder import VALIDATION, read_languages
from regard.server.batching import SerialExecutor, Worker
from regard.translation.loading import load
from regard.translation.reader import Reader
from regard.translation.translator import Result, Translator
from regard.translation.writer import Writer

LOG = logging.getLogger("regard.server")
NAMED = re.compile(r"([\w.-]+)=(.+)", re.DOTALL)
PAIR = re.compile(r"([A-Za-z]{2,3}(?:_\w+)?)-([A-Za-z]{2,3}(?:_\w+)?)")
MAX_WAITING = 512  # texts that wait for one translator or bert
MAX_WAITING_PROMPTS = 16  # that wait for one gpt
MAX_SECONDS = 60.0  # for the texts of a request to be answered
CACHE_SIZE = 4096  # results kept for each model
DETECTOR_LINES = 2000  # from which the detector learns each language

Model = TypeVar("Model", Translator, Writer, Reader)


class TranslateOptions(NamedTuple):
    """Options of a translation."""

    alternatives: int = 0
    align: bool = False
    glossary: tuple[tuple[str, str], ...] = ()
    trace: bool = False
    prefix: str = ""
    without: tuple[tuple[str, int, int], ...] = ()
    """Attention heads to switch off: (kind, layer, head)."""
    scores: bool = False
    """Whether confidence and warnings are asked for, which costs CTranslate2 a second pass."""


@dataclass(frozen=True)
class Served:
    """A loaded model with its name and its thread."""

    name: str
    model: Translator | Writer | Reader
    languages: tuple[str, str] = ("", "")
    """The language pair of a translator."""
    worker: Worker[Any] | None = None
    """The thread of a translator or a bert."""
    executor: SerialExecutor | None = None
    """The thread of a gpt."""
    pairs: Sequence[tuple[str, str]] = ()
    """Validation pairs of the folder, which the detector learns from."""

    @property
    def family(self) -> str:
        return self.model.config.model.family

    def close(self) -> None:
        """Finish waiting requests and end the threads."""
        for thread in (self.worker, self.executor):
            if thread is not None:
                thread.close()


def load_served(argument: str, device: str, engine: str, precision: str) -> Served:
    """Load a folder, given as FOLDER or as NAME=FOLDER; a name such as en-fr is also the language pair.

    `engine` and `precision` are for translators (`Translator.use`).
    """
    name, folder = split_argument(argument)
    first = split_folders(folder)[0]
    model = load(folder, device)
    if isinstance(model, Writer):
        return Served(name, model, executor=SerialExecutor(max_waiting=MAX_WAITING_PROMPTS, max_seconds=MAX_SECONDS))
    if isinstance(model, Reader):
        return Served(name, model, worker=_worker(reading(model)))
    pair = PAIR.fullmatch(name)
    languages = (pair[1], pair[2]) if pair else read_languages(first)
    if languages is None:
        raise ConfigError(f"{folder} does not say which languages it translates: write en-fr={folder}")
    use_engine(model, engine, precision, folder, token_scores=True, say=LOG.warning)
    return Served(name, model, languages, _worker(translating(model)), pairs=_validation_pairs(first))


def split_argument(argument: str) -> tuple[str, str]:
    """The name and the folder of an argument of `regard serve`: FOLDER or NAME=FOLDER."""
    if not Path(argument).exists() and (match := NAMED.fullmatch(argument)):
        return match[1], match[2]
    return split_folders(argument)[0].resolve().name, argument


def check_arguments(arguments: Sequence[str]) -> None:
    """Raise a ConfigError unless every model has its own name and at least one is a model folder."""
    if not arguments:
        raise ConfigError("give at least one model folder: regard serve runs/en-fr")
    names = Counter(split_argument(argument)[0] for argument in arguments)
    for name, number in names.items():
        if number > 1:
            raise ConfigError(f"{number} models are named {name}: give each its own name, NAME=FOLDER")
    problems = []
    for argument in arguments:
        try:
            for folder in split_folders(split_argument(argument)[1]):
                load_config(folder)
        except FolderError as error:
            problems.append(str(error))
    if len(problems) == len(arguments):
        raise ConfigError("no model could be loaded: " + "; ".join(problems))


def _worker(compute: Callable[[Sequence[str], Any], Sequence[Any]]) -> Worker[Any]:
    return Worker(compute, max_waiting=MAX_WAITING, max_seconds=MAX_SECONDS, cache_size=CACHE_SIZE)


def translating(translator: Translator) -> Callable[[Sequence[str], TranslateOptions], Sequence[Result]]:
    """The function that a translator's worker runs."""
    without_heads = copy.copy(translator)
    without_heads.engine = translator.torch_engine  # CTranslate2 has its own copy of the weights
    without_scores = copy.copy(translator)
    if isinstance(translator.engine, CTranslate2Engine):
        without_scores.engine = translator.engine.without_token_scores()

    def translate(texts: Sequence[str], options: TranslateOptions) -> Sequence[Result]:
        glossary = Glossary.make((term, [form]) for term, form in options.glossary) if options.glossary else None
        searching = without_heads if options.without else translator if options.scores else without_scores
        with switched_off(translator.model, options.without):
            return searching.translate(
                texts,
                alternatives=options.alternatives,
                align=options.align,
                glossary=glossary,
                trace=options.trace,
                prefix=options.prefix,
            )

    return translate


def reading(reader: Reader) -> Callable[[Sequence[str], int], Sequence[Any]]:
    """The function that a bert's worker runs: fill masks with the `top` best guesses, or embed if `top` is 0."""

    def read(texts: Sequence[str], top: int) -> Sequence[Any]:
        return [reader.fill(text, top=top) for text in texts] if top else list(reader.embed(texts))

    return read


@contextmanager
def switched_off(model: nn.Module, heads: Sequence[tuple[str, int, int]]) -> Iterator[None]:
    """Switch off attention heads, given as (kind, layer, head), inside a with block: their part of W_O is zero."""
    saved: list[tuple[torch.Tensor, torch.Tensor]] = []
    try:
        with torch.no_grad():
            for kind, layer, head in heads:
                attention = _find_attention(model, kind, layer)
                if not 0 <= head < attention.heads:
                    raise InputError(f"there is no head {head}: layer {layer} has {attention.heads} heads, from 0")
                part = attention.out_proj.weight[:, head * attention.head : (head + 1) * attention.head]
                saved.append((part, part.clone()))
                part.zero_()
        yield
    finally:
        with torch.no_grad():
            for part, values in reversed(saved):
                part.copy_(values)


def _find_attention(model: nn.Module, kind: str, layer: int) -> MultiHead:
    stack = getattr(model, "encoder" if kind == "encoder" else "decoder", None)
    blocks = getattr(stack, "blocks", ())  # an rnn has none
    if not 0 <= layer < len(blocks):
        raise InputError(f"this model has no {kind} attention in layer {layer} whose heads can be switched off")
    attention = blocks[layer].cross if kind == "cross" else blocks[layer].attention
    return cast(MultiHead, attention)


def _validation_pairs(folder: Path) -> list[tuple[str, str]]:
    path = folder / VALIDATION
    pairs = islice(read_pairs(path), DETECTOR_LINES) if path.is_file() else ()
    return [(pair.source, pair.target) for pair in pairs]


class Models:
    """All served models by name, and a detector of their languages."""

    def __init__(self, served: Sequence[Served], failed: dict[str, str]) -> None:
        self.served, self.failed = served, failed
        texts: dict[str, list[str]] = {}
        for model in self.translators:
            for side, language in enumerate(model.languages):
                texts.setdefault(language, []).extend(pair[side] for pair in model.pairs)
        self.trigrams = {language: _count_trigrams(lines) for language, lines in texts.items()}

    @classmethod
    def load(cls, arguments: Sequence[str], device: str, engine: str, precision: str) -> Models:
        """Load folders; the ones that fail are recorded in `failed`, and it is an error if all fail."""
        check_arguments(arguments)
        served, failed = [], {}
        for argument in arguments:
            try:
                served.append(load_served(argument, device, engine, precision))
            except RegardError as error:
                failed[argument] = str(error)
        if not served:
            raise ConfigError("no model could be loaded: " + "; ".join(failed.values()))
        return cls(served, failed)

    @property
    def translators(self) -> list[Served]:
        return [model for model in self.served if isinstance(model.model, Translator)]

    def find_translator(self, source: str, target: str, name: str = "") -> Served:
        """The translator with a name or, without a name, of a language pair."""
        if name:
            return self.find(name, Translator)
        for model in self.translators:
            if same_language(model.languages[0], source) and same_language(model.languages[1], target):
                return model
        pairs = ", ".join("-".join(model.languages) for model in self.translators) or "none"
        raise InputError(f"no model translates from {source[:20]!r} to {target[:20]!r}; available: {pairs}")

    def find(self, name: str, kind: type | tuple[type, ...] = object) -> Served:
        """The model with a name, of a type."""
        fitting = [model for model in self.served if isinstance(model.model, kind)]
        for model in fitting:
            if model.name == name:
                return model
        names = ", ".join(model.name for model in fitting) or "none"
        raise InputError(f"there is no model {name[:100]!r} for this request; available: {names}")

    def detect(self, text: str) -> list[dict[str, Any]]:
        """The served languages of a text, the most probable first, by character trigrams; confidences in percent."""
        counted = _count_trigrams([text])
        scores = {}
        for language, known in self.trigrams.items():
            size = sum(known.values()) + len(known) + 1
            scores[language] = sum(number * math.log((known[x] + 1) / size) for x, number in counted.items())
        best = max(scores.values(), default=0.0)
        shares = {language: math.exp(score - best) for language, score in scores.items()}
        total = sum(shares.values())
        languages = [{"language": x, "confidence": round(100 * share / total, 1)} for x, share in shares.items()]
        return sorted(languages, key=lambda one: -cast(float, one["confidence"]))

    def close(self) -> None:
        """Finish waiting requests and end the threads."""
        for model in self.served:
            model.close()


def _count_trigrams(lines: Iterable[str]) -> Counter[str]:
    return Counter(
        text[i : i + 3] for line in lines for text in [f"  {line.casefold()}  "] for i in range(len(text) - 2)
    )
