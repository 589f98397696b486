"""GPT: a decoder alone, each token seeing those before it (Radford et al., 2019).

B batch, T tokens, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention.masks import causal, packed
from regard.attention.tiled import Tiled
from regard.config import ModelConfig
from regard.models.blocks import Stack
from regard.models.cache import Past, advance, begin
from regard.models.contract import Record, State, check_room, check_rows, check_tokens, checked_mask
from regard.models.layers import Embedding, start_normal

if TYPE_CHECKING:
    from regard.text.batching import Batch


class GPT(nn.Module):
    """GPT-2's shape as preset; with rotary positions, RMSNorm, SwiGLU and grouped keys, Llama's."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.target = Embedding(config, config.vocabulary)
        self.decoder = Stack(config, config.decoder_layers, cross=False, name="decoder")
        self.output = None if config.tie_embeddings != "none" else nn.Linear(config.size, config.vocabulary, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(config.vocabulary)) if config.output_bias else None
        start_normal(self, config.decoder_layers)

    def start(self, source: Tensor, mask: Tensor | None = None, record: Record | None = None, room: int = 0) -> State:
        """Read what stands before the first token of `step`: (B, S), S may be 0; `mask` is False for padding."""
        check_tokens(source, self.config.vocabulary, "source")
        mask = checked_mask(mask, source, "source")
        check_room(room)
        past = begin(len(source), source.device, room)
        if source.shape[1]:
            _, past = self._write(source, past, mask, record)
        return State((), past)

    def forward(self, batch: Batch) -> Tensor:
        """For training: the logits of the whole text, teacher-forced."""
        assert batch.target_in is not None
        check_tokens(batch.target_in, self.config.vocabulary, "target")
        begun = begin(len(batch.target_in), batch.target_in.device)
        x, _ = self._write(batch.target_in, begun, None, None, batch.segments)
        return self._logits(x)

    def step(self, tokens: Tensor, state: State, record: Record | None = None) -> tuple[Tensor, State]:
        """Write on: (B, T) -> (B, T, V)."""
        check_tokens(tokens, self.config.vocabulary, "target")
        check_rows(tokens, len(state.past.position))
        x, past = self._write(tokens, state.past, None, record)
        return self._logits(x), State(state.memory, past)

    @property
    def output_matrix(self) -> Tensor:
        """(V, size): what a state is compared with to say a token."""
        return self.target.token.weight if self.output is None else self.output.weight

    def _logits(self, x: Tensor) -> Tensor:
        return self.output(x) if isinstance(self.output, Tiled) else F.linear(x, self.output_matrix, self.output_bias)

    def _write(
        self,
        tokens: Tensor,
        before: Past,
        real: Tensor | None,
        record: Record | None,
        segments: Tensor | None = None,
    ) -> tuple[Tensor, Past]:
        self.target.check(before.length + tokens.shape[1], "text")
        after, now = advance(before, tokens, real)
        if segments is not None:  # packed texts do not see each other
            now = now._replace(mask=packed(segments) & causal(tokens.shape[1], device=tokens.device), causal=False)
        x, caches = self.decoder.write(self.target(tokens, now.positions), before, now, record)
        return x, after._replace(caches=caches)
