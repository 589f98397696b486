"""Greedy search and sampling: hypotheses that do not depend on each other.

Sampling draws tokens from the model's distribution, with temperature, top-k and top-p (nucleus).

B sentences in the batch, S source tokens, R rows (hypotheses), V vocabulary.
"""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import Tensor

from regard.decoding.constraints import NEVER, Constraints
from regard.decoding.search import Encoded, Hypothesis, Models, Search, collect


@torch.inference_mode()
def sample(
    models: Models,
    source: Tensor,
    first: Tensor,
    mask: Tensor | None = None,
    *,
    constraints: Constraints,
    samples: int,
    seed: int = 0,
    temperature: float,
    top_k: int = 0,
    top_p: float = 1.0,
    length_penalty: float,
    encoded: list[Encoded] | None = None,
) -> list[list[Hypothesis]]:
    """Draw `samples` hypotheses for each sentence of (B, S); `first` (B,) are the input tokens of the first step.

    For a translator they are the begin-of-sentence token. For a gpt they are the last tokens of the prompts, and the
    source holds the tokens before. A list passed as `encoded` receives the encoded sources of every model.

    A temperature of 0 takes the most probable token at every step. A sample depends only on the seed, the sentence and
    the number of the sample, not on the rest of the batch. Log-probabilities do not depend on the temperature.
    """
    if not len(source):
        return []
    search = Search(models, source, first, mask, constraints, encoded, copies=samples)
    if temperature:
        uniform = _uniform(source, first, mask, constraints, samples, seed, search.max_steps)
    active = torch.ones(len(source), samples, dtype=torch.bool, device=source.device)  # hypotheses that have not ended
    state = active, torch.empty(len(source), samples, 0, device=source.device)  # and log-probabilities of their tokens
    for length in range(1, 1 + search.max_steps):
        active, log_probabilities = state
        scores = search.step()
        if temperature:
            allowed = restrict(scores / temperature, top_k=top_k, top_p=top_p)
            tokens = draw(allowed, uniform[search.sentences, :, length - 1].flatten().to(scores.device))
            logs = scores.gather(1, tokens[:, None])
        else:
            logs, tokens = scores.max(1)
        logs, tokens = logs.view_as(active), tokens.view_as(active)
        log_probabilities = torch.cat([log_probabilities, logs[..., None]], 2)
        ended = active & (tokens == constraints.end)
        ends = (log_probabilities.sum(2) / length**length_penalty).masked_fill(~ended, NEVER)
        parents = torch.arange(samples, device=source.device).expand_as(active)
        search.record(tokens, parents, logs, ends)
        active = active & ~ended
        state = search.advance(tokens, parents, active, (active, log_probabilities))
        if state is None:
            break
    return collect(search.history(), constraints)


def greedy(*inputs: Any, **options: Any) -> list[Hypothesis]:
    """One hypothesis for each sentence: the most probable token at every step. The arguments are those of `sample`."""
    return [best for (best,) in sample(*inputs, samples=1, temperature=0.0, **options)]


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
