"""GPT: a decoder whose tokens attend to the tokens before them (Radford et al., 2019).

B batch, T tokens, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from regard.attention.masks import causal, packed
from regard.config import ModelConfig
from regard.models.blocks import Stack
from regard.models.cache import Cache, SearchCache, advance, empty_cache
from regard.models.contract import Record, State, check_tokens
from regard.models.layers import Embedding, init_normal, logits

if TYPE_CHECKING:
    from regard.text.batching import Batch


class GPT(nn.Module):
    """GPT-2 with its preset; Llama with rotary positions, RMSNorm, SwiGLU and grouped keys."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.target = Embedding(config, config.vocabulary)
        self.decoder = Stack(config, config.decoder_layers, cross=False, name="decoder")
        self.output = None if config.tie_embeddings != "none" else nn.Linear(config.size, config.vocabulary, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(config.vocabulary)) if config.output_bias else None
        init_normal(self, config.decoder_layers)

    def start(
        self, source: Tensor, mask: Tensor | None = None, record: Record | None = None, capacity: int = 0
    ) -> State:
        """Read the prompt (B, S) before the first token of `step`; S may be 0 and `mask` is False for padding."""
        check_tokens(source, self.config.vocabulary, "source", mask)
        cache: Cache | SearchCache = empty_cache(len(source), source.device, capacity and source.shape[1] + capacity)
        if source.shape[1]:
            _, cache = self._decode(source, cache, mask, record)
        return State((), cache)

    def forward(self, batch: Batch) -> Tensor:
        """For training: the teacher-forced logits of the whole text."""
        assert batch.target_in is not None
        check_tokens(batch.target_in, self.config.vocabulary, "target")
        cache = empty_cache(len(batch.target_in), batch.target_in.device)
        x, _ = self._decode(batch.target_in, cache, None, None, batch.segments)
        return logits(x, self.output, self.target.token, self.output_bias)

    def step(self, tokens: Tensor, state: State, record: Record | None = None) -> tuple[Tensor, State]:
        """Decode: (B, T) -> (B, T, V)."""
        check_tokens(tokens, self.config.vocabulary, "target")
        x, cache = self._decode(tokens, state.past, None, record)
        return logits(x, self.output, self.target.token, self.output_bias), State(state.memory, cache)

    def _decode(
        self,
        tokens: Tensor,
        cache: Cache | SearchCache,
        real: Tensor | None,
        record: Record | None,
        segments: Tensor | None = None,
    ) -> tuple[Tensor, Cache | SearchCache]:
        self.target.check_length(cache.length + tokens.shape[1], "text")
        advanced, new = advance(cache, tokens, real)
        if segments is not None:  # packed texts do not attend to each other
            new = new._replace(mask=packed(segments) & causal(tokens.shape[1], device=tokens.device), causal=False)
        x, layers = self.decoder.decode(self.target(tokens, new.positions), cache, new, record)
        return x, advanced._replace(layers=layers)
