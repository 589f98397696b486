"""Looking: a model folder and a sentence in, the trace of what the model made of it out, with the model itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, cast

import torch
from torch import nn

from regard.config import ModelConfig
from regard.decoding import Hypothesis, Tree, greedy
from regard.errors import ConfigError, InputError
from regard.inspection.quality import Warned, warnings
from regard.inspection.trace import Trace, read, trace
from regard.models import Generator
from regard.text.sentences import unreadable
from regard.text.tokenizer import END, Sides
from regard.translation.loading import load
from regard.translation.reader import GAP, Reader
from regard.translation.translator import Asked, Translator
from regard.translation.writer import Writer

WRITTEN = 24  # tokens that a gpt goes on for where nothing else is said
TOP = 5  # alternatives of every step


class Looked(NamedTuple):
    """What a model made of a sentence."""

    model: nn.Module
    """The one that the trace is of: of several that wrote together, the first."""
    trace: Trace
    warnings: list[Warned]


def look(
    folder: str | Path, text: str, *, target: str = "", beams: int = 0, device: torch.device | str = "cpu"
) -> Looked:
    """How the model of a folder translates a text, goes on from it or reads it; or how it would write the target."""
    if problem := unreadable(text) or unreadable(target):
        raise InputError(f"the sentence cannot be read: {problem}")
    if not text.strip():
        raise InputError("there is no sentence to explain: it is empty")
    model = load(folder, device)
    if isinstance(model, Reader):
        if target:
            raise ConfigError(f"{folder} holds a bert, which writes nothing: leave out --target")
        return _read(model, text)
    return _written(model, text, target) if isinstance(model, Writer) else _translated(model, text, target, beams)


def _translated(translator: Translator, text: str, target: str, beams: int) -> Looked:
    sides, trees = translator.sides, list[Tree]()
    source = [*sides.source.encode(text), END]
    if len(source) - 1 > translator.longest:
        raise InputError(
            f"the sentence has {len(source) - 1} tokens and this model reads {translator.longest}: explain a part of it"
        )
    if target:
        hypothesis = _given(sides.target.encode(target))
        _check_room(translator.models[:1], len(hypothesis.tokens) + 1)
    else:
        asked = Asked(beams or translator.config.decode.beams, 1, None, None)
        hypothesis = translator.search([source], asked, trees=trees)[0][0]
    writer = cast(Generator, translator.model)
    found = trace(writer, [source], [hypothesis], sides, texts=[text], trees=trees or None, hidden=True, top=TOP)[0]
    usual = translator.calibration.usual if translator.calibration else None
    warned = warnings(text, found.target.text, found, usual=usual)
    return Looked(translator.model, _scored(found) if target else found, warned)


def _written(writer: Writer, prompt: str, target: str) -> Looked:
    before, tokenizer = writer.begin(prompt), writer.tokenizer
    model = writer.models[0]
    if target:
        whole = writer.begin(f"{prompt} {target}")
        same = whole[: len(before)] == before  # else the prompt's last letters would belong to the target's first token
        hypothesis = _given(whole[len(before) :] if same else tokenizer.encode(target))
        _check_room([model], len(before) + len(hypothesis.tokens))
    else:
        _check_room([model], len(before) + 1)
        shape = cast(ModelConfig, model.config)
        room = shape.max_positions - len(before) if shape.has_table else WRITTEN
        source, first = torch.tensor([before[:-1]], dtype=torch.int64), torch.tensor([before[-1]])
        hypothesis = greedy(
            cast(list[Generator], writer.models),
            source.to(writer.device),
            first.to(writer.device),
            rules=writer.rules(min(WRITTEN, room)),
            length_penalty=writer.config.decode.length_penalty,
        )[0]
    sides = Sides(tokenizer, tokenizer)
    found = trace(cast(Generator, model), [before], [hypothesis], sides, texts=[prompt], hidden=True, top=TOP)[0]
    return Looked(model, _scored(found) if target else found, [])


def _read(reader: Reader, text: str) -> Looked:
    ids = reader.gapped(GAP.split(text))
    reader.check_length(ids)
    found = read(reader.model, [ids], reader.tokenizer, texts=[text], hidden=True, top=TOP)[0]
    return Looked(reader.model, found, [])


def _given(tokens: list[int]) -> Hypothesis:
    """What was not searched for; its probabilities are the trace's to find."""
    return Hypothesis(tokens, 0.0, 0.0, True, [])


def _scored(found: Trace) -> Trace:
    """The mean log-probability of a token as the score of what was given."""
    return dataclasses.replace(found, score=float(found.log_probabilities.mean()))


def _check_room(models: Sequence[nn.Module], tokens: int) -> None:
    for model in models:
        shape = cast(ModelConfig, model.config)
        if shape.has_table and tokens > shape.max_positions:
            raise InputError(
                f"the text has {tokens} tokens and this {shape.family} has places for {shape.max_positions}"
            )
