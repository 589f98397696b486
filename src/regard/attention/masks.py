"""Masks: which keys a query may attend to. True means visible, everywhere.

B batch, Q queries, K keys.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Packed(NamedTuple):
    """Sentences that lie one after the other in a row: sentence n of the queries attends to sentence n of the keys."""

    queries: Tensor  # (B, N + 1) int32: where each sentence begins, and where the last one ends
    keys: Tensor  # (B, N + 1) int32: the same of the keys


def positions_in_sentences(starts: Tensor, length: int) -> Tensor:
    """(B, N + 1) starts of packed sentences -> (B, T) the position of each token in its sentence."""
    tokens = torch.arange(length, device=starts.device, dtype=starts.dtype).repeat(len(starts), 1)
    return tokens - starts.gather(1, torch.searchsorted(starts, tokens, right=True) - 1)


def over_queries(visible: Tensor) -> Tensor:
    """(B, K) -> (B, 1, 1, K): the same keys for every head and query."""
    return visible[:, None, None, :]


def causal(queries: int, keys: int | None = None, *, device: torch.device | str | None = None) -> Tensor:
    """(Q, K): each query sees the keys up to its own position; the last query has the position of the last key."""
    keys = queries if keys is None else keys
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)


def packed(segments: Tensor) -> Tensor:
    """(B, K) segment numbers, 0 for padding -> (B, 1, K, K): each token sees only its own segment."""
    same = segments[:, :, None] == segments[:, None, :]
    return (same & (segments != 0)[:, None, :])[:, None]
