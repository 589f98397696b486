"""The Transformer: attention reads, attention writes, attention between (Vaswani et al., 2017).

B batch, S source tokens, T target tokens, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention import Memory
from regard.attention.masks import over_queries
from regard.attention.tiled import Tiled
from regard.config import ModelConfig
from regard.models.blocks import Stack
from regard.models.cache import advance, begin
from regard.models.contract import Record, State, check_not_empty, check_room, check_rows, check_tokens, checked_mask
from regard.models.layers import Embedding

if TYPE_CHECKING:
    from regard.text.batching import Batch


class Source(NamedTuple):
    """What the encoder left: keys and values for every decoder layer, and which of them are real."""

    memories: tuple[Memory, ...]
    mask: Tensor | None


class Transformer(nn.Module):
    """Encoder and decoder stacks; with the defaults of the config, the paper's model."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.source = Embedding(config, config.vocabulary)
        self.target = self.source if config.tie_embeddings == "all" else Embedding(config, config.target_tokens)
        self.encoder = Stack(config, config.encoder_layers, cross=False, name="encoder")
        self.decoder = Stack(config, config.decoder_layers, cross=True, name="decoder")
        self.output = (
            None if config.tie_embeddings != "none" else nn.Linear(config.size, config.target_tokens, bias=False)
        )
        self.output_bias = nn.Parameter(torch.zeros(config.target_tokens)) if config.output_bias else None

    def start(self, source: Tensor, mask: Tensor | None = None, record: Record | None = None, room: int = 0) -> State:
        """Read the source (B, S); with `room`, caches for that many target tokens are allocated now."""
        check_tokens(source, self.config.vocabulary, "source")
        mask = checked_mask(mask, source, "source")
        check_room(room)
        check_not_empty(source)
        self.source.check(source.shape[1], "source")
        positions = torch.arange(source.shape[1], device=source.device)
        seen = None if mask is None else over_queries(mask)
        encoded = self.encoder.read(self.source(source, positions), positions, seen, record)
        memory = Source(self.decoder.remember(encoded), seen)
        return State(memory, begin(len(source), source.device, room))

    def forward(self, batch: Batch, record: Record | None = None) -> Tensor:
        """For training: the logits of the whole target, teacher-forced; what the decoder did goes into a record."""
        assert batch.source is not None
        assert batch.target_in is not None
        return self.step(batch.target_in, self.start(batch.source, batch.mask), record)[0]

    def step(self, tokens: Tensor, state: State, record: Record | None = None) -> tuple[Tensor, State]:
        """Write on: (B, T) -> (B, T, V)."""
        check_tokens(tokens, self.config.target_tokens, "target")
        memory, before = state
        check_rows(tokens, len(before.position), len(memory.memories[0].key))
        self.target.check(before.length + tokens.shape[1], "target")
        after, now = advance(before, tokens)
        x = self.target(tokens, now.positions)
        x, caches = self.decoder.write(x, before, now, record, memory.memories, memory.mask)
        return self._logits(x), State(memory, after._replace(caches=caches))

    @property
    def output_matrix(self) -> Tensor:
        """(V, size): what a state is compared with to say a token."""
        return self.target.token.weight if self.output is None else self.output.weight

    def _logits(self, x: Tensor) -> Tensor:
        return self.output(x) if isinstance(self.output, Tiled) else F.linear(x, self.output_matrix, self.output_bias)
