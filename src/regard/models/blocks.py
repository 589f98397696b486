"""Transformer blocks: the layers of transformer, bert and gpt.

B batch, H heads, T tokens, S source tokens.
"""

from __future__ import annotations

from torch import Tensor, nn

from regard.attention.masks import Packed
from regard.attention.multihead import Memory, MultiHead, Rotation
from regard.attention.positions import rotary
from regard.config import ModelConfig
from regard.models.cache import Cache, NewTokens, SearchCache, extend
from regard.models.contract import Record, note
from regard.models.layers import FeedForward, make_norm

Mask = Tensor | Packed


class Block(nn.Module):
    """Self-attention, cross-attention if there is a source, feed-forward; each with Add & Norm."""

    def __init__(self, config: ModelConfig, *, cross: bool) -> None:
        super().__init__()
        self.pre_norm = config.norm_placement == "pre"
        self.attention = _attention(config)
        self.attention_norm = make_norm(config)
        self.cross = _attention(config) if cross else None
        self.cross_norm = make_norm(config) if cross else None
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = make_norm(config)
        self.dropout = nn.Dropout(config.dropout)

    def encode(
        self, x: Tensor, mask: Mask | None, rotation: Rotation | None, record: Record | None, name: str
    ) -> Tensor:
        """An encoder layer: every token attends to every token that the mask shows."""
        query, memory = self.attention.queries_and_memory(self._before(x, self.attention_norm), rotation)
        context, weights = self.attention(query, memory, mask=mask, weights=record is not None)
        note(record, f"{name}.self", weights)
        return self._feed_forward(self._add(x, context, self.attention_norm), record, name)

    def decode(
        self,
        x: Tensor,
        layer: int,
        cache: Cache | SearchCache,
        new: NewTokens,
        source: Memory | None,
        source_mask: Mask | None,
        rotation: Rotation | None,
        record: Record | None,
        name: str,
    ) -> tuple[Tensor, Memory]:
        """A decoder layer: every token attends to the tokens before it and to the source; also returns its cache."""
        query, memory = self.attention.queries_and_memory(self._before(x, self.attention_norm), rotation)
        layer_cache, past = extend(cache, layer, memory)
        context, weights = self.attention(query, past, mask=new.mask, causal=new.causal, weights=record is not None)
        note(record, f"{name}.self", weights)
        x = self._add(x, context, self.attention_norm)
        if self.cross is not None and self.cross_norm is not None and source is not None:
            # cross-attention of (B·n, T, size) to B sentences: the n hypotheses of a sentence are queries of one row
            (rows, width, size), sentences = x.shape, source.key.shape[0]
            shape = sentences, rows // max(sentences, 1) * width, size
            query = self.cross.queries(self._before(x, self.cross_norm).reshape(shape))  # -> (B, H, n·T, D)
            context, weights = self.cross(query, source, mask=source_mask, weights=record is not None)
            if weights is not None and rows != sentences:  # (B, H, n·T, S) -> (B·n, H, T, S)
                weights = weights.unflatten(2, (rows // sentences, width)).transpose(1, 2).flatten(0, 1)
            note(record, f"{name}.cross", weights)
            x = self._add(x, context.reshape(rows, width, size), self.cross_norm)
        return self._feed_forward(x, record, name), layer_cache

    def _feed_forward(self, x: Tensor, record: Record | None, name: str) -> Tensor:
        x = self._add(x, self.feed_forward(self._before(x, self.feed_forward_norm)), self.feed_forward_norm)
        note(record, f"{name}.hidden", x)
        return x

    def _before(self, x: Tensor, norm: nn.Module) -> Tensor:
        """The input of a sub-layer: normalised first in a pre-norm model."""
        return norm(x) if self.pre_norm else x

    def _add(self, x: Tensor, residual: Tensor, norm: nn.Module) -> Tensor:
        """Add & Norm: the norm comes here in a post-norm model."""
        x = x + self.dropout(residual)
        return x if self.pre_norm else norm(x)


class Stack(nn.Module):
    """A stack of blocks; a pre-norm stack has one more norm at the end."""

    def __init__(self, config: ModelConfig, layers: int, *, cross: bool, name: str) -> None:
        super().__init__()
        self.name = name
        self.rotary = (config.head_size, config.rotary_base) if config.positions == "rotary" else None
        self.blocks = nn.ModuleList(Block(config, cross=cross) for _ in range(layers))
        self.norm = make_norm(config) if config.norm_placement == "pre" else None

    def encode(self, x: Tensor, positions: Tensor, mask: Mask | None, record: Record | None) -> Tensor:
        """(B, S, size) embeddings -> (B, S, size)."""
        rotation = self._rotation(positions)
        note(record, f"{self.name}.embedding", x)
        for layer, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            x = block.encode(x, mask, rotation, record, f"{self.name}.{layer}")
        return self._finish(x, record)

    def decode(
        self,
        x: Tensor,
        cache: Cache | SearchCache,
        new: NewTokens,
        record: Record | None,
        sources: tuple[Memory, ...] = (),
        source_mask: Mask | None = None,
    ) -> tuple[Tensor, tuple[Memory, ...]]:
        """(B, T, size) embeddings -> (B, T, size), and the caches of all layers, T tokens longer."""
        rotation = self._rotation(new.positions)
        note(record, f"{self.name}.embedding", x)
        layers = []
        for layer, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            source = sources[layer] if sources else None
            x, cached = block.decode(
                x, layer, cache, new, source, source_mask, rotation, record, f"{self.name}.{layer}"
            )
            layers.append(cached)
        return self._finish(x, record), tuple(layers)

    def remember(self, encoded: Tensor) -> tuple[Memory, ...]:
        """Keys and values of the source for the cross-attention of each layer."""
        return tuple(block.cross.remember(encoded) for block in self.blocks)  # type: ignore[operator, union-attr]

    def _rotation(self, positions: Tensor) -> Rotation | None:
        return None if self.rotary is None else rotary(positions, *self.rotary)

    def _finish(self, x: Tensor, record: Record | None) -> Tensor:
        if self.norm is not None:
            x = self.norm(x)
        note(record, f"{self.name}.output", x)
        return x


def _attention(config: ModelConfig) -> MultiHead:
    return MultiHead(
        config.size,
        config.heads,
        key_value_heads=config.kv_heads,
        bias=config.bias,
        score=config.score_name,
        dropout=config.attention_dropout,
    )
