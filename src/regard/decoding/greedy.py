"""Greedy search: take the most probable token at every step.

R rows (hypotheses), V vocabulary.
"""

from __future__ import annotations

from torch import Tensor

from regard.decoding.constraints import Constraints
from regard.decoding.search import Encoded, Hypothesis, Models, decode


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
    """One hypothesis for each sentence of (B, S); `first` (B,) are the input tokens of the first step.

    For a translator they are the begin-of-sentence token. For a gpt they are the last tokens of the prompts, and the
    source holds the tokens before. A list passed as `encoded` receives the encoded sources of every model.
    """
    decoded = decode(
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
    return [hypotheses[0] for hypotheses in decoded]


def most_probable(scores: Tensor, length: int, sentences: list[int]) -> tuple[Tensor, Tensor]:
    logs, tokens = scores.max(1)
    return logs, tokens
