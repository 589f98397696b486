"""Blocks: the layers all attentive families are stacked from.

B batch, H heads, T tokens, S source tokens.
"""

from __future__ import annotations

from torch import Tensor, nn

from regard.attention import Memory, MultiHead, rotary
from regard.attention.multihead import Turn
from regard.config import ModelConfig
from regard.models.cache import Now, Past, extend
from regard.models.contract import Record, note
from regard.models.layers import FeedForward, make_norm


class Block(nn.Module):
    """Self-attention, cross-attention where there is a source, feed-forward; each with Add & Norm."""

    def __init__(self, config: ModelConfig, *, cross: bool) -> None:
        super().__init__()
        self.pre = config.norm_placement == "pre"
        self.attention = _attention(config)
        self.attention_norm = make_norm(config)
        self.cross = _attention(config) if cross else None
        self.cross_norm = make_norm(config) if cross else None
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = make_norm(config)
        self.dropout = nn.Dropout(config.dropout)

    def read(self, x: Tensor, mask: Tensor | None, turn: Turn | None, record: Record | None, name: str) -> Tensor:
        """A layer of an encoder: every token sees every real token."""
        asked = self.attention_norm(x) if self.pre else x
        query, memory = self.attention.both(asked, turn)
        found, weights = self.attention(query, memory, mask=mask, weights=record is not None)
        note(record, f"{name}.self", weights)
        return self._widen(self._add(x, found, self.attention_norm), record, name)

    def write(
        self,
        x: Tensor,
        layer: int,
        before: Past,
        now: Now,
        source: Memory | None,
        source_mask: Tensor | None,
        turn: Turn | None,
        record: Record | None,
        name: str,
    ) -> tuple[Tensor, Memory]:
        """A layer of a decoder: every token sees those before it, and the source; its cache comes back grown."""
        asked = self.attention_norm(x) if self.pre else x
        query, new = self.attention.both(asked, turn)
        cache, memory = extend(before, layer, new, now)
        found, weights = self.attention(query, memory, mask=now.mask, causal=now.causal, weights=record is not None)
        note(record, f"{name}.self", weights)
        x = self._add(x, found, self.attention_norm)
        if self.cross is not None and self.cross_norm is not None and source is not None:
            asked = self.cross_norm(x) if self.pre else x
            found, weights = look(self.cross, asked, source, source_mask, record is not None)
            note(record, f"{name}.cross", weights)
            x = self._add(x, found, self.cross_norm)
        return self._widen(x, record, name), cache

    def _widen(self, x: Tensor, record: Record | None, name: str) -> Tensor:
        widened = self.feed_forward(self.feed_forward_norm(x) if self.pre else x)
        x = self._add(x, widened, self.feed_forward_norm)
        note(record, f"{name}.hidden", x)
        return x

    def _add(self, x: Tensor, found: Tensor, norm: nn.Module) -> Tensor:
        """Add & Norm, the norm here only where it comes after."""
        x = x + self.dropout(found)
        return x if self.pre else norm(x)


def look(
    cross: MultiHead, x: Tensor, source: Memory, mask: Tensor | None, weights: bool
) -> tuple[Tensor, Tensor | None]:
    """Cross-attention of (B·n, T, size) on the memory of B sentences: n hypotheses of a sentence ask side by side."""
    rows, width = x.shape[:2]
    sentences = source.key.shape[0]
    query = cross.ask(x.reshape(sentences, rows // max(sentences, 1) * width, x.shape[-1]))  # -> (B, H, n·T, D)
    found, given = cross(query, source, mask=mask, weights=weights)
    if given is not None and rows != sentences:
        given = (
            given.unflatten(2, (rows // sentences, width)).transpose(1, 2).flatten(0, 1)
        )  # (B, H, n·T, S) -> (B·n, H, T, S)
    return found.reshape(rows, width, found.shape[-1]), given


class Stack(nn.Module):
    """Blocks one after the other, and where norms come first one more at the end."""

    def __init__(self, config: ModelConfig, layers: int, *, cross: bool, name: str) -> None:
        super().__init__()
        self.name = name
        self.turning = (config.head_size, config.rotary_base) if config.positions == "rotary" else None
        self.blocks = nn.ModuleList(Block(config, cross=cross) for _ in range(layers))
        self.norm = make_norm(config) if config.norm_placement == "pre" else None

    def read(self, x: Tensor, positions: Tensor, mask: Tensor | None, record: Record | None) -> Tensor:
        """(B, S, size) embeddings -> (B, S, size)."""
        turn = self._turn(positions)
        note(record, f"{self.name}.embedding", x)
        for layer, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            x = block.read(x, mask, turn, record, f"{self.name}.{layer}")
        return self._finish(x, record)

    def write(
        self,
        x: Tensor,
        before: Past,
        now: Now,
        record: Record | None,
        sources: tuple[Memory, ...] = (),
        source_mask: Tensor | None = None,
    ) -> tuple[Tensor, tuple[Memory, ...]]:
        """(B, T, size) embeddings -> (B, T, size), and the caches grown by T."""
        turn = self._turn(now.positions)
        note(record, f"{self.name}.embedding", x)
        caches = []
        for layer, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            source = sources[layer] if sources else None
            x, cache = block.write(x, layer, before, now, source, source_mask, turn, record, f"{self.name}.{layer}")
            caches.append(cache)
        return self._finish(x, record), tuple(caches)

    def remember(self, encoded: Tensor) -> tuple[Memory, ...]:
        """What each layer's cross-attention will look at."""
        return tuple(block.cross.remember(encoded) for block in self.blocks)  # type: ignore[operator, union-attr]

    def _turn(self, positions: Tensor) -> Turn | None:
        return None if self.turning is None else rotary(positions, *self.turning)

    def _finish(self, x: Tensor, record: Record | None) -> Tensor:
        if self.norm is not None:
            x = self.norm(x)
        note(record, f"{self.name}.output", x)
        return x


def _attention(config: ModelConfig) -> MultiHead:
    return MultiHead(
        config.size,
        config.heads,
        key_value_heads=config.memory_heads,
        bias=config.bias,
        score=config.score_name,
        dropout=config.attention_dropout,
    )
