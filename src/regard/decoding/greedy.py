"""Greedy search: take the most probable token at every step.

R rows (hypotheses), V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.decoding.constraints import NEVER, Constraints
from regard.decoding.search import Encoded, Hypothesis, Models, decode, topk


def greedy(
    models: Models,
    source: Tensor,
    first: Tensor,
    mask: Tensor | None = None,
    *,
    constraints: Constraints,
    length_penalty: float,
    encoded: list[Encoded] | None = None,
) -> list[Hypothesis]:
    """One hypothesis for each sentence of (B, S); `first` (B,) are the tokens of the first step.

    For a translator that is the begin-of-sentence token; for a gpt it is the last token of the prompt, and the source
    holds the tokens before it. A list passed as `encoded` gets what every model encoded.
    """
    found = decode(
        models,
        source,
        first,
        mask,
        constraints,
        most_probable,
        copies=1,
        length_penalty=length_penalty,
        encoded=encoded,
    )
    return [hypotheses[0] for hypotheses in found]


def most_probable(scores: Tensor, length: int, sentences: list[int]) -> tuple[Tensor, Tensor]:
    logs, tokens = topk(scores, 1)
    return tokens[:, 0], logs[:, 0]


def alternatives(
    models: Models,
    source: Tensor,
    first: Tensor,
    mask: Tensor | None = None,
    *,
    constraints: Constraints,
    count: int,
    length_penalty: float,
) -> list[list[Hypothesis]]:
    """The `count` most probable tokens after the prefix, each continued greedily; the most probable comes first."""

    def choose(scores: Tensor, length: int, sentences: list[int]) -> tuple[Tensor, Tensor]:
        tokens, logs = most_probable(scores, length, sentences)
        rows = [row for row, sentence in enumerate(sentences) if length == len(constraints.prefix(sentence))]
        if rows:
            here = torch.tensor(rows, device=scores.device)
            logs, tokens = logs.unflatten(0, (-1, count)), tokens.unflatten(0, (-1, count))
            best, ids = topk(scores.unflatten(0, (-1, count))[here, 0], count)  # all copies are alike so far
            width = best.shape[1]
            logs[here] = NEVER  # the vocabulary may have fewer tokens than requested
            logs[here, :width], tokens[here, :width] = best, ids
            logs, tokens = logs.flatten(), tokens.flatten()
        return tokens, logs

    found = decode(models, source, first, mask, constraints, choose, copies=count, length_penalty=length_penalty)
    return [[hypothesis for hypothesis in hypotheses if hypothesis.score > NEVER] for hypotheses in found]
