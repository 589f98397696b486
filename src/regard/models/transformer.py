"""The Transformer: an encoder and a decoder made of attention (Vaswani et al., 2017).

B batch, S source tokens, T target tokens, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from regard.attention.masks import Packed, over_queries, positions_in_sentences
from regard.attention.multihead import Memory
from regard.config import ModelConfig
from regard.models.blocks import Stack
from regard.models.cache import NewTokens, advance, empty_cache
from regard.models.contract import Record, State, check_tokens
from regard.models.layers import Embedding, logits

if TYPE_CHECKING:
    from regard.text.batching import Batch


class Source(NamedTuple):
    """The encoded source: keys and values for every decoder layer, and the mask of its real tokens."""

    memories: tuple[Memory, ...]
    mask: Tensor | None


class Transformer(nn.Module):
    """Encoder and decoder stacks; with the defaults of the config, the paper's model."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.source = Embedding(config, config.vocabulary)
        self.target = self.source
        if config.tie_embeddings != "all":
            self.target = Embedding(config, config.target_vocabulary_size)
        elif config.has_position_table or config.embedding_norm:  # these are not shared
            self.target = Embedding(config, config.vocabulary)
            self.target.token = self.source.token
        self.encoder = Stack(config, config.encoder_layers, cross=False, name="encoder")
        self.decoder = Stack(config, config.decoder_layers, cross=True, name="decoder")
        vocabulary = config.target_vocabulary_size
        self.output = None if config.tie_embeddings != "none" else nn.Linear(config.size, vocabulary, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(vocabulary)) if config.output_bias else None

    def start(
        self, source: Tensor, mask: Tensor | None = None, record: Record | None = None, capacity: int = 0
    ) -> State:
        """Encode the source (B, S); with `capacity`, caches for that many target tokens are allocated now."""
        check_tokens(source, self.config.vocabulary, "source", mask)
        self.source.check_length(source.shape[1], "source")
        positions = torch.arange(source.shape[1], device=source.device)
        visible = None if mask is None else over_queries(mask)
        encoded = self.encoder.encode(self.source(source, positions), positions, visible, record)
        memory = Source(self.decoder.remember(encoded), visible)
        return State(memory, empty_cache(len(source), source.device, capacity))

    def forward(self, batch: Batch, record: Record | None = None) -> Tensor:
        """For training: the teacher-forced logits of the whole target; the decoder fills the record."""
        assert batch.source is not None
        assert batch.target_in is not None
        source, target = batch.source, batch.target_in
        source_starts, target_starts = batch.source_starts, batch.target_starts
        if source_starts is None or target_starts is None:
            return self.step(target, self.start(source, batch.mask), record)[0]
        assert record is None  # attention over packed sentences has no weights
        positions = positions_in_sentences(source_starts, source.shape[1])
        x = self.encoder.encode(self.source(source, positions), positions, Packed(source_starts, source_starts), None)
        memories = self.decoder.remember(x)
        positions = positions_in_sentences(target_starts, target.shape[1])
        new = NewTokens(positions, Packed(target_starts, target_starts), causal=True)
        cache, cross = empty_cache(len(target), target.device), Packed(target_starts, source_starts)
        x, _ = self.decoder.decode(self.target(target, positions), cache, new, None, memories, cross)
        return logits(x, self.output, self.target.token, self.output_bias)

    def step(self, tokens: Tensor, state: State, record: Record | None = None) -> tuple[Tensor, State]:
        """Decode: (B, T) -> (B, T, V)."""
        check_tokens(tokens, self.config.target_vocabulary_size, "target")
        source, cache = state
        self.target.check_length(cache.length + tokens.shape[1], "target")
        advanced, new = advance(cache, tokens)
        x = self.target(tokens, new.positions)
        x, layers = self.decoder.decode(x, cache, new, record, source.memories, source.mask)
        state = State(source, advanced._replace(layers=layers))
        return logits(x, self.output, self.target.token, self.output_bias), state
