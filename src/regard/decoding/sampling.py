"""Sampling: draw tokens from the model's distribution, with temperature, top-k and top-p (nucleus).

R rows (hypotheses), V vocabulary.
"""

from __future__ import annotations

import random

import torch
from torch import Tensor

from regard.decoding.constraints import NEVER, Constraints
from regard.decoding.greedy import most_probable
from regard.decoding.search import Encoded, Hypothesis, Models, decode


def sample(
    models: Models,
    source: Tensor,
    first: Tensor,
    mask: Tensor | None = None,
    *,
    constraints: Constraints,
    samples: int,
    seed: int,
    temperature: float,
    top_k: int,
    top_p: float,
    length_penalty: float,
    encoded: list[Encoded] | None = None,
) -> list[list[Hypothesis]]:
    """Draw `samples` hypotheses for each sentence; `first` and `encoded` are as in `greedy`.

    A sample depends only on the seed, the sentence and the number of the sample, not on the rest of the batch.
    Log-probabilities are those of the model without temperature.
    """
    lengths = 1 + max((constraints.max_length(sentence) for sentence in range(len(source))), default=0)
    uniform = _uniform(source, first, mask, constraints, samples, seed, lengths)  # (B, samples, lengths)

    def choose(scores: Tensor, length: int, sentences: list[int]) -> tuple[Tensor, Tensor]:
        if temperature == 0:
            return most_probable(scores, length, sentences)
        allowed = restrict(scores / temperature, top_k=top_k, top_p=top_p)
        tokens = draw(allowed, uniform[sentences, :, length].flatten().to(scores.device))
        return scores.gather(1, tokens[:, None])[:, 0], tokens

    return decode(
        models, source, first, mask, constraints, choose, copies=samples, length_penalty=length_penalty, encoded=encoded
    )


def restrict(scores: Tensor, *, top_k: int, top_p: float) -> Tensor:
    """Set the scores (R, V) of tokens that may not be drawn to -inf, first by top_k, then by top_p.

    top_k keeps the k most probable tokens (0: all). top_p keeps the smallest set of most probable tokens whose
    probabilities sum to at least top_p.
    """
    if 0 < top_k < scores.shape[-1]:
        least = scores.topk(top_k).values[:, -1:]
        scores = scores.masked_fill(scores < least, NEVER)
    if top_p < 1:
        ordered, places = scores.sort(stable=True, descending=True)
        probabilities = ordered.softmax(-1)
        excess = probabilities.cumsum(-1) - probabilities >= top_p  # the tokens before it already reach top_p
        excess[:, 0] = False
        scores = torch.full_like(scores, NEVER).scatter_(1, places, ordered.masked_fill(excess, NEVER))
    return scores


def draw(scores: Tensor, uniform: Tensor) -> Tensor:
    """(R,) tokens drawn by inverting the cumulative distribution at the uniform numbers (R,) from [0, 1)."""
    cumulative = scores.double().softmax(-1).cumsum(-1)
    total = cumulative[:, -1:]
    sought = torch.minimum(uniform[:, None].double() * total, torch.nextafter(total, torch.zeros_like(total)))
    tokens = torch.searchsorted(cumulative, sought, right=True)[:, 0]
    return tokens.clamp(max=scores.shape[1] - 1)  # scores that are NaN have no token: the search reports them


def _uniform(
    source: Tensor, first: Tensor, mask: Tensor | None, constraints: Constraints, samples: int, seed: int, lengths: int
) -> Tensor:
    """(B, samples, lengths) uniform random numbers that depend on the sentence and not on its place in the batch."""
    rows = source.tolist() if mask is None else [row[real].tolist() for row, real in zip(source, mask, strict=True)]
    numbers = torch.empty(len(rows), samples, lengths, dtype=torch.float64)
    for sentence, (ids, begin) in enumerate(zip(rows, first.tolist(), strict=True)):
        for copy in range(samples):
            # Seeded by text: Python hashes it the same way on every machine.
            generator = random.Random(f"{seed} {copy} {ids} {begin} {list(constraints.prefix(sentence))}")
            numbers[sentence, copy] = torch.tensor([generator.random() for _ in range(lengths)], dtype=torch.float64)
    return numbers
