"""Multi-head attention: several attentions side by side, each on its own projection, joined by one more.

B batch, H heads, G heads of keys and values, Q queries, K keys, D head size.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention.core import attend_unchecked
from regard.attention.positions import rotate
from regard.attention.scores import make_score
from regard.attention.tiled import Tiled
from regard.errors import ConfigError

Turn = tuple[Tensor, Tensor]  # the cosines and sines of rotary positions


class Memory(NamedTuple):
    """Keys and values, projected once and asked many times: (B, G, K, D) each."""

    key: Tensor
    value: Tensor


class MultiHead(nn.Module):
    """Project, attend per head, join.

    The projections to queries, keys and values are one matrix: what asks itself (`both`) needs one product, what asks
    another uses the rows it needs (`ask`, `remember`).
    """

    def __init__(
        self,
        size: int,
        heads: int,
        *,
        key_value_heads: int,
        bias: bool,
        score: str = "scaled_dot",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if heads < 1 or size % heads:
            raise ConfigError(f"size ({size}) must be a multiple of heads ({heads})")
        if key_value_heads < 1 or heads % key_value_heads:
            raise ConfigError(f"heads ({heads}) must be a multiple of key_value_heads ({key_value_heads})")
        head = size // heads
        self.heads, self.key_value_heads, self.head, self.dropout = heads, key_value_heads, head, dropout
        self.widths = (heads * head, key_value_heads * head, key_value_heads * head)
        self.project = nn.Linear(size, sum(self.widths), bias=bias)
        self.join = nn.Linear(heads * head, size, bias=bias)
        self.score = make_score(score, head, head)
        with torch.no_grad():
            for block in self.project.weight.split(self.widths):  # each of the three as if it stood alone
                nn.init.xavier_uniform_(block)
        nn.init.xavier_uniform_(self.join.weight)
        if bias:
            nn.init.zeros_(self.project.bias)
            nn.init.zeros_(self.join.bias)

    def both(self, x: Tensor, turn: Turn | None = None) -> tuple[Tensor, Memory]:
        """Queries and memory of the same tokens: (B, T, size) -> (B, H, T, D), (B, G, T, D)."""
        query, key, value = self.project(x).split(self.widths, dim=-1)
        return self._heads(query, turn), Memory(self._heads(key, turn), self._heads(value))

    def ask(self, x: Tensor) -> Tensor:
        """Queries alone: (B, Q, size) -> (B, H, Q, D)."""
        return self._heads(self._part(x, slice(0, self.widths[0])))

    def remember(self, x: Tensor) -> Memory:
        """Keys and values alone: (B, K, size) -> (B, G, K, D) each."""
        key, value = self._part(x, slice(self.widths[0], None)).chunk(2, dim=-1)
        return Memory(self._heads(key), self._heads(value))

    def forward(
        self, query: Tensor, memory: Memory, *, mask: Tensor | None = None, causal: bool = False, weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """What queries (B, H, Q, D) gather from a memory, joined: (B, Q, size), with the weights when asked for."""
        key, value = memory
        groups = self.heads // self.key_value_heads
        alone = query.shape[2] == 1
        if groups > 1 and alone:  # one token: the heads of a group ask side by side, and nothing is copied
            query = query.reshape(len(query), self.key_value_heads, groups, self.head)
        elif groups > 1:
            key, value = (x.repeat_interleave(groups, dim=1) for x in memory)
        context, given = attend_unchecked(
            query,
            key,
            value,
            self.score,
            mask,
            weights,
            causal=causal,
            dropout=self.dropout if self.training else 0.0,
        )
        if groups > 1 and alone:
            context = context.reshape(len(query), self.heads, 1, self.head)
            given = None if given is None else given.reshape(len(query), self.heads, 1, given.shape[-1])
        return self.join(context.transpose(1, 2).flatten(2)), given  # (B, H, Q, D) -> (B, Q, H·D)

    def _heads(self, x: Tensor, turn: Turn | None = None) -> Tensor:
        x = x.unflatten(-1, (-1, self.head)).transpose(1, 2)  # (B, T, H·D) -> (B, H, T, D)
        return x if turn is None else rotate(x, turn)

    def _part(self, x: Tensor, rows: slice) -> Tensor:
        if isinstance(self.project, Tiled):
            return self.project.part(x, rows)
        bias = None if self.project.bias is None else self.project.bias[rows]
        return F.linear(x, self.project.weight[rows], bias)
