"""Multi-head attention: several attentions side by side, each on its own projection, and one output projection.

B batch, H heads, G key-value heads, Q queries, K keys, D head size; R rows (hypotheses of a search), L slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard import kernels
from regard.attention.core import attend_unchecked
from regard.attention.masks import Packed
from regard.attention.positions import rotate
from regard.attention.prepacked import PrepackedLinear
from regard.attention.scores import Score, as_product, make_score
from regard.errors import ConfigError

decoding = kernels.find("decoding")
Rotation = tuple[Tensor, Tensor]  # cosines and sines of rotary positions


class Memory(NamedTuple):
    """Keys and values that are projected once and attended to many times: (B, G, K, D) each."""

    key: Tensor
    value: Tensor


class Slots(NamedTuple):
    """Keys and values of the hypotheses of a search, and those of the token that is written now.

    They are written in place and never moved. When a beam search reorders its hypotheses, only a table changes: it says
    in which row each token of a hypothesis was written, and attention follows it.
    """

    key: Tensor  # (R, G, L, D)
    value: Tensor  # (R, G, L, D)
    table: Tensor  # (R, L) row in which each token of a hypothesis was written
    positions: Tensor  # (R,) slot of the new token; the slots after it are empty
    new_key: Tensor  # (R, G, 1, D)
    new_value: Tensor  # (R, G, 1, D)


def initialise(layer: nn.Linear, blocks: Sequence[int] | None = None) -> None:
    """Xavier for the weights, separately for each block of rows, as if it were a layer; zeros for the bias."""
    with torch.no_grad():
        for block in layer.weight.split(blocks or [layer.out_features]):
            nn.init.xavier_uniform_(block)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


class MultiHead(nn.Module):
    """Project, attend per head, concatenate, project.

    The projections to queries, keys and values are one matrix: self-attention needs one product
    (`queries_and_memory`), cross-attention uses some of its rows (`queries`, `remember`).
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
        self.in_proj = nn.Linear(size, sum(self.widths), bias=bias)
        self.out_proj = nn.Linear(heads * head, size, bias=bias)
        self.score = make_score(score, head, head)
        initialise(self.in_proj, self.widths)
        initialise(self.out_proj)

    def queries_and_memory(self, x: Tensor, rotation: Rotation | None = None) -> tuple[Tensor, Memory]:
        """Queries, keys and values of the same tokens: (B, T, size) -> (B, H, T, D), (B, G, T, D)."""
        query, key, value = self.in_proj(x).split(self.widths, dim=-1)
        return self._split_heads(query, rotation), Memory(self._split_heads(key, rotation), self._split_heads(value))

    def queries(self, x: Tensor) -> Tensor:
        """Queries alone: (B, Q, size) -> (B, H, Q, D)."""
        return self._split_heads(self._project_rows(x, slice(0, self.widths[0])))

    def remember(self, x: Tensor) -> Memory:
        """Keys and values alone: (B, K, size) -> (B, G, K, D) each."""
        key, value = self._project_rows(x, slice(self.widths[0], None)).chunk(2, dim=-1)
        return Memory(self._split_heads(key), self._split_heads(value))

    def forward(
        self,
        query: Tensor,
        memory: Memory | Slots,
        *,
        mask: Tensor | Packed | None = None,
        causal: bool = False,
        weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from queries (B, H, Q, D) to a memory: (B, Q, size), and the attention weights if requested."""
        if isinstance(memory, Slots):
            if not weights and (fused := attend_in_kernel(query, memory, self.score)) is not None:
                return self.out_proj(fused.transpose(1, 2).flatten(2)), None
            key, value, mask = gather(memory)
        else:
            key, value = memory
        groups = self.heads // self.key_value_heads
        single = query.shape[2] == 1 and not isinstance(mask, Packed)
        if groups > 1 and single:  # one token: the heads of a group become queries of one head, and nothing is copied
            query = query.reshape(len(query), self.key_value_heads, groups, self.head)
            causal = False  # the last position sees all keys
            if isinstance(mask, Tensor) and mask.dim() > 2 and mask.shape[-3] > 1:  # one mask for each head
                mask = mask.unflatten(-3, (self.key_value_heads, groups)).squeeze(-2)
        elif groups > 1:
            key, value = (x.repeat_interleave(groups, dim=1) for x in (key, value))
        dropout = self.dropout if self.training else 0.0
        context, attention = attend_unchecked(
            query, key, value, self.score, mask, weights, causal=causal, dropout=dropout
        )
        if groups > 1 and single:
            context = context.reshape(len(query), self.heads, 1, self.head)
            attention = None if attention is None else attention.reshape(len(query), self.heads, 1, -1)
        return self.out_proj(context.transpose(1, 2).flatten(2)), attention  # (B, H, Q, D) -> (B, Q, H·D)

    def _split_heads(self, x: Tensor, rotation: Rotation | None = None) -> Tensor:
        x = x.unflatten(-1, (-1, self.head)).transpose(1, 2)  # (B, T, H·D) -> (B, H, T, D)
        return x if rotation is None else rotate(x, rotation)

    def _project_rows(self, x: Tensor, rows: slice) -> Tensor:
        """The product with some rows of the input projection."""
        if isinstance(self.in_proj, PrepackedLinear):
            return self.in_proj(x, rows)
        bias = None if self.in_proj.bias is None else self.in_proj.bias[rows]
        return F.linear(x, self.in_proj.weight[rows], bias)


# Slots.


def attend_in_kernel(query: Tensor, slots: Slots, score: Score) -> Tensor | None:
    """Write the new token and attend to all tokens so far: (R, H, 1, D); None if the kernel does not apply."""
    if decoding is None or not decoding.applies(query, slots.key):
        return None
    product = as_product(score, query, slots.new_key)
    if product is None or product[1] is not slots.new_key:  # the keys in the slots would have to change too
        return None
    query, _, scale = product
    context: Tensor = decoding.attend_to_slots(query, slots, scale=scale)
    return context


def gather(slots: Slots) -> tuple[Tensor, Tensor, Tensor]:
    """Write the new token; return keys and values of each hypothesis, (R, G, L, D), and a mask of those written."""
    rows, places = (torch.arange(size, device=slots.table.device) for size in slots.table.shape)
    slots.key[rows, :, slots.positions] = slots.new_key[:, :, 0]
    slots.value[rows, :, slots.positions] = slots.new_value[:, :, 0]
    key, value = (x.transpose(1, 2)[slots.table.long(), places].transpose(1, 2) for x in (slots.key, slots.value))
    return key, value, (places <= slots.positions[:, None])[:, None, None]
