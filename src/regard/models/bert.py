"""BERT: an encoder whose tokens all attend to each other (Devlin et al., 2019).

B batch, S tokens, V vocabulary.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention.masks import over_queries, packed
from regard.config import ModelConfig
from regard.errors import ConfigError
from regard.models.blocks import Stack
from regard.models.contract import Record, check_tokens
from regard.models.layers import ACTIVATIONS, Embedding, init_normal, make_norm

if TYPE_CHECKING:
    from regard.text.batching import Batch


class BERT(nn.Module):
    """Token, type and position embeddings, an encoder stack, a pooler and a masked-token head."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        embedding = dataclasses.replace(config, positions="learned", embedding_norm=True, scale_embeddings=False)
        self.source = Embedding(embedding, config.vocabulary, types=config.token_types)
        self.encoder = Stack(config, config.encoder_layers, cross=False, name="encoder")
        # Part of published models, which predict the next sentence from tanh(pooler(first token)); not used here.
        self.pooler = nn.Linear(config.size, config.size) if config.pooler else None
        self.head = MaskedHead(config) if config.mlm_head else None
        init_normal(self)

    def encode(
        self,
        tokens: Tensor,
        types: Tensor | None = None,
        mask: Tensor | None = None,
        record: Record | None = None,
        segments: Tensor | None = None,
    ) -> Tensor:
        """(B, S) tokens -> (B, S, size); `mask` is True for real tokens, None where there is no padding.

        `segments` (B, S) numbers the texts of packed rows, which then do not attend to each other.
        """
        check_tokens(tokens, self.config.vocabulary, "source", mask)
        self.source.check_length(tokens.shape[1], "source")
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        visible = None if mask is None else over_queries(mask)
        if segments is not None:
            visible = packed(segments) if visible is None else packed(segments) & visible
        return self.encoder.encode(self.source(tokens, positions, types), positions, visible, record)

    def forward(self, batch: Batch) -> Tensor:
        """For training: (N, V), the logits of the N masked tokens, row after row."""
        assert batch.source is not None
        return self.logits(self.encode(batch.source, mask=batch.mask, segments=batch.segments)[batch.target_out >= 0])

    def logits(self, encoded: Tensor) -> Tensor:
        """(..., size) -> (..., V): the logits of masked tokens."""
        if self.head is None:
            raise ConfigError("this bert has no masked-token head: build it with model.mlm_head=true")
        return F.linear(self.head(encoded), self.source.token.weight, self.head.bias)


class MaskedHead(nn.Module):
    """A dense layer and a norm before the output matrix, which is the embeddings."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.size, config.size)
        self.activation = ACTIVATIONS[config.activation]
        self.norm = make_norm(config)
        self.bias = nn.Parameter(torch.zeros(config.vocabulary))

    def forward(self, x: Tensor) -> Tensor:
        transformed: Tensor = self.norm(self.activation(self.dense(x)))
        return transformed
