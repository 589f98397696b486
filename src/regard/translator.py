"""The translator: text in, text out; the one place where words meet weights.

B sentences, S source tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, cast

import torch
from torch import nn

from regard.checkpoint import load_model
from regard.config import Config
from regard.decoding import Begun, Hypothesis, Rule, beam, greedy, limits, make_rules, sample
from regard.errors import ConfigError, FolderError, InputError
from regard.explain.alignment import links
from regard.explain.signals import Calibration, Warned, confidence, warnings
from regard.models import Generator
from regard.text.sentences import Part, apart, joined, sentences, unreadable
from regard.text.tokenizer import END, MASK, PAD, START, UNKNOWN, Sides, check_fingerprint
from regard.trace import Trace, trace

POSITIONS = {"cpu": 1024, "mps": 4096, "cuda": 16384}  # source positions, padded, searched at once
AHEAD = 2048  # lines read before their translations are written,
CHARACTERS = 1 << 20  # and about how many characters they may have


class Result(NamedTuple):
    """A translation."""

    text: str
    score: float = 0.0
    """What hypotheses are ranked by; of a text in several parts, the mean of theirs by length."""
    log_probability: float = 0.0
    confidence: float | None = None
    """The probability that it is good, where the folder has a calibration.json; of several parts, the least."""
    warnings: Sequence[Warned] = ()
    """What a reader should know. `input`: it could not be translated; `split`: a sentence was too long for the model."""
    alignment: list[tuple[int, int]] | None = None
    """(source word, target word), counted from 0, when asked for and the model looks at its source."""
    trace: Trace | None = None
    """When asked for; a text in several parts has one in each of them."""
    alternatives: Sequence[Result] = ()
    """The next best ones, when asked for."""
    parts: Sequence[Result] = ()
    """The sentences of a text that was too long to be translated at once."""

    def draw(self, path: str | Path, *, force: bool = False) -> None:
        """What was looked at, as .html, .png or .svg; translate with trace=True first."""
        if self.parts:
            raise InputError(f"this text was translated in {len(self.parts)} parts: draw each of result.parts")
        if self.trace is None:
            raise InputError("there is no trace to draw: translate with trace=True")
        raise InputError(f"{path} cannot be drawn yet: save the trace with result.trace.save('X.safetensors')")


class Asked(NamedTuple):
    """How a batch of sentences is searched."""

    beams: int
    results: int
    """Hypotheses wanted of each sentence, best first."""
    seed: int | None
    """Draw with it instead of searching."""
    prefixes: Sequence[Sequence[int]] | None
    """Target ids each sentence has to begin with."""
    rules: Sequence[Rule] = ()
    """More of what may come next."""


Search = Callable[[Sequence[Sequence[int]], Asked, list[Begun] | None], list[list[Hypothesis]]]
"""`Translator.search`, or another engine that gives the same: ids in, hypotheses out.

A list given as the third argument gets what the torch models read, so that a trace need not read it again; an engine
that has nothing of the kind leaves it empty."""


class Draft(NamedTuple):
    """A hypothesis in words."""

    hypothesis: Hypothesis
    text: str
    warnings: Sequence[Warned] = ()


class Terms(Protocol):
    """What a glossary makes of a search: it may search with rules of its own, or change what was written."""

    def drafts(
        self,
        translator: Translator,
        texts: Sequence[str],
        sources: Sequence[Sequence[int]],
        asked: Asked,
        begun: list[Begun] | None,
    ) -> list[list[Draft]]:
        """As `Translator.drafts`: for each sentence, `asked.results` drafts or fewer, best first."""


class Translator:
    """A model or several, their tokenizers and how they search."""

    def __init__(
        self,
        models: nn.Module | Sequence[nn.Module],
        sides: Sides,
        config: Config,
        *,
        calibration: Calibration | None = None,
    ) -> None:
        self.models = [models] if isinstance(models, nn.Module) else list(models)
        self.sides, self.config, self.calibration = sides, config, calibration
        self.engine: Search = self.search

    @classmethod
    def load(cls, folder: str | Path, device: torch.device | str = "cpu", values: Sequence[str] = ()) -> Translator:
        """The translator in a model folder, or in several joined by `+`, with `decode.field=value` laid over."""
        for value in values:
            if not value.startswith("decode."):
                raise ConfigError(
                    f"{value} cannot be changed any more: only decode.FIELD=VALUE can, once a model is trained"
                )
        paths = folders_in(folder)
        models, sides, config = load_all(paths, device, ("rnn", "transformer"), "does not translate")
        return cls(models, sides, config.with_values(values), calibration=Calibration.load(paths[0]))

    @property
    def model(self) -> nn.Module:
        """The first of the models: traces are of it."""
        return self.models[0]

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def longest(self) -> int:
        """Source tokens the models can read at once and were trained on, the end not counted."""
        tables = [shape.length - 1 for shape in self._shapes if shape.has_table]
        return max(min([self.config.text.longest, *tables]), 1)

    # Texts.

    def translate(
        self, texts: Sequence[str], *, beams: int | None = None, drawn_with: int | None = None, alternatives: int = 0,
        prefix: str = "", tag: str = "", terms: Terms | None = None, trace: bool = False, align: bool = False,
        warn: bool = True,
    ) -> list[Result]:  # fmt: skip
        """One result a text, in their order; empty ones stay empty, and what cannot be read has a warning.

        `drawn_with` is a seed: sample, do not search. The `prefix` is what every translation has to begin with. The
        `tag`, such as <2fr>, is put before every sentence. `trace` and `align` cost a pass over each translation.
        """
        raise NotImplementedError
