"""The translator: text in, text out; the one place where words meet weights.

B sentences, S source tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple, cast

import torch
from torch import nn

from regard.checkpoint import load_model
from regard.config import Config
from regard.decoding import Hypothesis, beam, greedy, limits, make_rules, sample
from regard.errors import ConfigError, FolderError
from regard.models import Generator
from regard.text.tokenizer import END, MASK, PAD, START, UNKNOWN, Sides, check_fingerprint

POSITIONS = {"cpu": 1024, "mps": 4096, "cuda": 16384}  # source positions, padded, searched at once
AHEAD = 2048  # lines read before their translations are written


class Result(NamedTuple):
    """A translation."""

    text: str
    score: float
    """What hypotheses are ranked by."""
    log_probability: float


class Translator:
    """A model, its tokenizers and how it searches."""

    def __init__(self, model: nn.Module, sides: Sides, config: Config) -> None:
        self.model, self.sides, self.config = model, sides, config

    @classmethod
    def load(cls, folder: str | Path, device: torch.device | str = "cpu", values: Sequence[str] = ()) -> Translator:
        """The translator in a model folder, with `decode.field=value` laid over its config."""
        for value in values:
            if not value.startswith("decode."):
                raise ConfigError(
                    f"{value} cannot be changed any more: only decode.FIELD=VALUE can, once a model is trained"
                )
        model, config = load_model(Path(folder), device)
        if config.model.family not in ("rnn", "transformer"):
            raise FolderError(f"{folder} holds a {config.model.family}, which does not translate")
        sides = Sides.load(Path(folder))
        if config.text.fingerprint:
            check_fingerprint(sides.fingerprint, config.text.fingerprint, folder)
        return cls(model, sides, config.with_values(values))

    def translate(
        self, texts: Sequence[str], *, beams: int | None = None, drawn_with: int | None = None
    ) -> list[Result]:
        """One result a text, in their order; empty ones stay empty. `drawn_with` is a seed: sample, do not search."""
        found: dict[str, Result] = {text: Result(text, 0.0, 0.0) for text in texts if not text.strip()}
        wanted = list(dict.fromkeys(text for text in texts if text not in found))
        encoded = [[*ids, END] for ids in self.sides.source.encode_each(wanted)]
        device = next(self.model.parameters()).device.type
        for places in batches(encoded, wanted, POSITIONS[device]):
            hypotheses = self.search([encoded[place] for place in places], beams=beams, seed=drawn_with)
            for place, hypothesis in zip(places, hypotheses, strict=True):
                text = self.sides.target.decode(hypothesis.tokens)
                found[wanted[place]] = Result(text, hypothesis.score, hypothesis.log_probability)
        return [found[text] for text in texts]

    def stream(self, texts: Iterable[str], *, beams: int | None = None, drawn_with: int | None = None) -> Iterator[str]:
        """Translations of a text without end, a few hundred lines at a time, in order."""
        waiting = iter(texts)
        while ahead := list(islice(waiting, AHEAD)):
            yield from (result.text for result in self.translate(ahead, beams=beams, drawn_with=drawn_with))

    def search(
        self, sources: Sequence[Sequence[int]], *, beams: int | None = None, seed: int | None = None
    ) -> list[Hypothesis]:
        """The best hypothesis for each source of ids, or one drawn with a seed, searched together."""
        settings = self.config.decode
        beams = beams or settings.beams
        device = next(self.model.parameters()).device
        width = max(map(len, sources))
        source = torch.tensor([[*ids, *[PAD] * (width - len(ids))] for ids in sources], device=device)
        mask = source != PAD if any(len(ids) != width for ids in sources) else None
        first = torch.full((len(sources),), START, device=device)
        rules = make_rules(
            end=END,
            longest=limits([len(ids) for ids in sources], ratio=settings.ratio, extra=settings.extra),
            shortest=settings.shortest,
            no_repeat=settings.no_repeat,
            forbidden=[PAD, START, UNKNOWN, MASK],
        )
        model = cast(Generator, self.model)
        if seed is not None:
            drawn = sample(
                model,
                source,
                first,
                mask,
                rules=rules,
                samples=1,
                seed=seed,
                temperature=settings.temperature,
                top_k=settings.top_k,
                top_p=settings.top_p,
                min_p=settings.min_p,
                length_penalty=settings.length_penalty,
            )
            return [hypotheses[0] for hypotheses in drawn]
        if beams == 1:
            return greedy(model, source, first, mask, rules=rules, length_penalty=settings.length_penalty)
        found = beam(
            model,
            source,
            first,
            mask,
            rules=rules,
            beams=beams,
            results=1,
            length_penalty=settings.length_penalty,
            coverage_penalty=settings.coverage_penalty,
            diversity=0.0,
        )
        return [hypotheses[0] for hypotheses in found]


def batches(encoded: Sequence[Sequence[int]], texts: Sequence[str], most: int) -> Iterator[list[int]]:
    """Which sentences are searched together: neighbours by (length, text), so that the order given does not matter."""
    places = sorted(range(len(encoded)), key=lambda place: (len(encoded[place]), texts[place]))
    batch: list[int] = []
    for place in places:
        if batch and (len(batch) + 1) * len(encoded[place]) > most:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch
