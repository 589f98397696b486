"""Attention scores: how well each key matches each query.

B batch, H heads, Q queries, K keys, D size of a query and of a key.

A score is any function (B, H, Q, D), (B, H, K, D) -> (B, H, Q, K). The caller does the projections, so Bahdanau's
v . tanh(W_s s + W_h h + b) is `Additive` on projected inputs. All scores but `Additive` are the product of a function
of the query and a function of the key, which `product` returns for a fused kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from regard.errors import ConfigError, did_you_mean

Score = Callable[[Tensor, Tensor], Tensor]
Product = tuple[Tensor, Tensor, float]
"""The query, the key and the scale of a score that is a scaled dot product."""

TEMPERATURE = 0.1  # cosines are between -1 and 1: without a temperature their softmax would be almost flat
MAX_ADDITIVE_NUMBERS = 2**24  # in the (B, H, Q, K, D) tensor of an additive score; larger ones are computed in parts


def dot(query: Tensor, key: Tensor) -> Tensor:
    """q . k"""
    return query @ key.mT


def scaled_dot(query: Tensor, key: Tensor) -> Tensor:
    """q . k / sqrt(D)"""
    return (query * _scale(query)) @ key.mT  # scaled first: in float16 the product might not fit


def cosine(query: Tensor, key: Tensor) -> Tensor:
    """cos(q, k) / 0.1"""
    return dot(unit(query) / TEMPERATURE, unit(key))


class Additive(nn.Module):
    """v . tanh(q + k + b), on a query and a key that the caller has projected to `size` (Bahdanau et al., 2015)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.v = nn.Parameter(torch.empty(size))
        self.b = nn.Parameter(torch.zeros(size))
        nn.init.uniform_(self.v, -(size**-0.5), size**-0.5)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        rows = math.prod(torch.broadcast_shapes(query.shape[:-2], key.shape[:-2]))
        per_query = max(rows * key.shape[-2] * query.shape[-1], 1)
        if per_query * query.shape[-2] <= MAX_ADDITIVE_NUMBERS:
            return self._scores(query, key)
        # In parts, with the tanh computed again in the backward pass: it is never held for all queries.
        queries = max(1, MAX_ADDITIVE_NUMBERS // per_query)
        parts = [checkpoint(self._scores, part, key, use_reentrant=False) for part in query.split(queries, dim=-2)]
        return torch.cat(parts, dim=-2)

    def _scores(self, query: Tensor, key: Tensor) -> Tensor:
        summed = (query + self.b).unsqueeze(-2) + key.unsqueeze(-3)  # (B, H, Q, K, D)
        return torch.tanh(summed) @ self.v


class General(nn.Module):
    """q W k, where query and key may differ in size (Luong et al., 2015)."""

    def __init__(self, size: int, key_size: int | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size, key_size or size))
        nn.init.xavier_uniform_(self.weight)

    def product(self, query: Tensor, key: Tensor) -> Product:
        return query @ self.weight, key, 1.0

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        query, key, _ = self.product(query, key)
        return dot(query, key)


class Cosine(nn.Module):
    """cos(q, k) / temperature, with a learned temperature that its logarithm keeps positive.

    With `unit_keys` the caller has normalised the keys already, once for many queries.
    """

    def __init__(self, *, unit_keys: bool = False) -> None:
        super().__init__()
        self.unit_keys = unit_keys
        self.log_temperature = nn.Parameter(torch.tensor(math.log(TEMPERATURE)))

    def product(self, query: Tensor, key: Tensor) -> Product:
        return unit(query) * torch.exp(-self.log_temperature), key if self.unit_keys else unit(key), 1.0

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        query, key, _ = self.product(query, key)
        return dot(query, key)


SCORES: dict[str, Score] = {"dot": dot, "scaled_dot": scaled_dot, "cosine": cosine}  # without parameters
LEARNED: dict[str, Callable[[int, int], Score]] = {
    "additive": lambda size, key_size: Additive(size),
    "general": General,
    "cosine": lambda size, key_size: Cosine(),
}


def find_score(score: str | Score) -> Score:
    """A score by its name, or the score itself."""
    if not isinstance(score, str):
        return score
    if score in ("additive", "general"):
        raise ConfigError(f"score = {score} has parameters: pass regard.{score.title()}(size) instead of its name")
    if score not in SCORES:
        raise ConfigError(f"There is no score {score}.{did_you_mean(score, {*SCORES, *LEARNED})}")
    return SCORES[score]


def make_score(name: str, size: int, key_size: int) -> Score:
    """The score of a model: with learned parameters where the score has any."""
    return LEARNED[name](size, key_size) if name in LEARNED else find_score(name)


def as_product(score: Score, query: Tensor, key: Tensor) -> Product | None:
    """The product that a fused kernel computes instead of `score(query, key)`, or None if the score is no product."""
    if score is scaled_dot:
        return query, key, _scale(query)
    if score is dot:
        return query, key, 1.0
    if score is cosine:
        return unit(query), unit(key), 1 / TEMPERATURE
    if isinstance(score, General | Cosine):
        return score.product(query, key)
    return None


def unit(x: Tensor) -> Tensor:
    """Normalised to length one; zero stays zero, in every precision."""
    return F.normalize(x, dim=-1, eps=max(1e-12, torch.finfo(x.dtype).tiny))


def _scale(query: Tensor) -> float:
    return math.sqrt(1 / query.shape[-1])
