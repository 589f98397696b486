"""Masks: which keys a query may attend to. True means visible, everywhere.

B batch, Q queries, K keys.
"""

from __future__ import annotations

import torch
from torch import Tensor


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
