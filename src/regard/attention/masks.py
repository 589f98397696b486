"""Masks: which keys a query may see. True means "may be seen", everywhere.

B batch, Q queries, K keys.
"""

from __future__ import annotations

import torch
from torch import Tensor


def padding(tokens: Tensor, pad: int) -> Tensor:
    """(B, K) token ids -> (B, K): all but the padding."""
    return tokens != pad


def over_queries(visible: Tensor) -> Tensor:
    """(B, K) -> (B, 1, 1, K): the same keys for every head and query."""
    return visible[:, None, None, :]


def causal(queries: int, keys: int | None = None, *, device: torch.device | str | None = None) -> Tensor:
    """(Q, K): each query sees the keys up to its own; the last query stands at the last key."""
    keys = queries if keys is None else keys
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)


def packed(segments: Tensor) -> Tensor:
    """(B, K) segment numbers, 0 for padding -> (B, 1, K, K): each token sees its own segment only."""
    same = segments[:, :, None] == segments[:, None, :]
    return (same & (segments != 0)[:, None, :])[:, None]
