"""Engines: search hypotheses for source token ids with the decode settings of a config.

B sentences, S source tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import nn

from regard.config import DecodeConfig
from regard.decoding.beam import Tree, beam
from regard.decoding.constraints import Constraints
from regard.decoding.device import device_beam
from regard.decoding.graphs import Graphs
from regard.decoding.sampling import greedy, sample
from regard.decoding.search import Encoded, Hypothesis, max_positions
from regard.models import Generator
from regard.text.batching import pad
from regard.text.tokenizer import OWN_SPECIAL_IDS, SpecialIds

Ids = Sequence[Sequence[int]]


class SearchOptions(NamedTuple):
    """Options of a search over a batch of sentences."""

    beams: int
    results: int = 1  # number of hypotheses per sentence
    seed: int | None = None  # sample with this seed instead of searching
    prefixes: Ids | None = None  # forced first tokens of each hypothesis


class Engine(Protocol):
    """A search backend: PyTorch or CTranslate2."""

    def search(
        self, sources: Ids, options: SearchOptions, encoded: list[Encoded] | None = None
    ) -> list[list[Hypothesis]]:
        """The best hypotheses for each source; ids include the end token.

        A list passed as `encoded` receives the encoded sources of every model, if the engine has them.
        """


class TorchEngine:
    """Searches with PyTorch: one model, or an ensemble."""

    def __init__(
        self, models: Sequence[nn.Module], settings: DecodeConfig, special: SpecialIds = OWN_SPECIAL_IDS
    ) -> None:
        """`special` are the special tokens of the target vocabulary."""
        self.models, self.settings, self.special = list(models), settings, special
        self._graphs: Graphs | None = None

    @property
    def max_positions(self) -> int | None:
        """Maximum tokens of a sentence by the position tables of all models, without the begin or end token."""
        positions = max_positions(self.models)
        return None if positions is None else positions - 1

    def max_lengths(self, sources: Ids) -> list[int]:
        """Maximum output tokens for each source, without the end token."""
        settings, positions = self.settings, self.max_positions
        lengths = [int(settings.max_length_ratio * len(ids)) + settings.max_length_extra for ids in sources]
        return lengths if positions is None else [min(length, positions) for length in lengths]

    def search(
        self,
        sources: Ids,
        options: SearchOptions,
        encoded: list[Encoded] | None = None,
        trees: list[Tree] | None = None,
    ) -> list[list[Hypothesis]]:
        """The best hypotheses for each source, or samples; sentences are searched together.

        A list passed as `encoded` receives the encoded sources of every model, unless the encoder is part of a CUDA
        graph. A list passed as `trees` receives all branches of the beam search of each source.
        """
        settings, device = self.settings, next(self.models[0].parameters()).device
        # other searches decide on the host, and FSDP gathers its weights itself
        stays_on_device = (
            device.type == "cuda"
            and options.seed is None
            and trees is None
            and settings.coverage_penalty == 0
            and settings.no_repeat_ngram == 0
            and (options.beams == 1 or settings.early_stopping == "shrink")
            and not any(hasattr(module, "unshard") for model in self.models for module in model.modules())
        )
        place = torch.device("cpu") if stays_on_device else device  # the captured search copies what it is given
        source, mask = pad(sources, place)
        first = torch.full((len(sources),), self.special.start, device=place)
        inputs = cast(list[Generator], self.models), source, first, mask
        constraints = Constraints(
            end=self.special.end,
            max_lengths=self.max_lengths(sources),
            prefixes=options.prefixes,
            min_length=settings.min_length,
            no_repeat_ngram=settings.no_repeat_ngram,
            forbidden=self.special.never_generated,
        )
        common: dict[str, Any] = {"constraints": constraints, "length_penalty": settings.length_penalty}
        beams, results = options.beams, options.results
        if stays_on_device:
            self._graphs = self._graphs or Graphs(self.models)
            return device_beam(*inputs, beams=beams, results=results, graphs=self._graphs, **common)
        common["encoded"] = encoded
        if options.seed is not None:
            common |= {"temperature": settings.temperature, "top_k": settings.top_k, "top_p": settings.top_p}
            return sample(*inputs, samples=results, seed=options.seed, **common)
        if beams == 1:
            return [[hypothesis] for hypothesis in greedy(*inputs, **common)]
        common |= {"coverage_penalty": settings.coverage_penalty, "early_stopping": settings.early_stopping}
        return beam(*inputs, beams=beams, results=results, trees=trees, **common)
