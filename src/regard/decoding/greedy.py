"""Greedy search: the most probable token, every time.

R rows (hypotheses), V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.decoding.constraints import NEVER, Rules
from regard.decoding.search import Begun, Hypothesis, Models, top, walk


def greedy(
    models: Models, source: Tensor, first: Tensor, mask: Tensor | None = None, *, rules: Rules, length_penalty: float,
    begun: list[Begun] | None = None,
) -> list[Hypothesis]:  # fmt: skip
    """One hypothesis for each sentence of (B, S); `first` (B,) is what the first step is given.

    To a translator that is the beginning of a sentence; to a gpt the last token of the prompt, the source being those
    before it.
    """
    found = walk(
        models, source, first, mask, rules, most_probable, copies=1, length_penalty=length_penalty, begun=begun
    )
    return [hypotheses[0] for hypotheses in found]


def most_probable(scores: Tensor, place: int, sentences: list[int]) -> tuple[Tensor, Tensor]:
    logs, tokens = top(scores, 1)
    return tokens[:, 0], logs[:, 0]


def alternatives(
    models: Models, source: Tensor, first: Tensor, mask: Tensor | None = None, *, rules: Rules, count: int,
    length_penalty: float,
) -> list[list[Hypothesis]]:  # fmt: skip
    """What else could have followed the prefix: the `count` most probable next tokens, each continued to the end.

    The most probable comes first. The prefix is that of the rules.
    """

    def choose(scores: Tensor, place: int, sentences: list[int]) -> tuple[Tensor, Tensor]:
        tokens, logs = most_probable(scores, place, sentences)
        turns = [row for row, sentence in enumerate(sentences) if place == len(rules.prefix(sentence))]
        if turns:
            here = torch.tensor(turns, device=scores.device)
            logs, tokens = logs.unflatten(0, (-1, count)), tokens.unflatten(0, (-1, count))
            best, ids = top(scores.unflatten(0, (-1, count))[here, 0], count)  # all copies stand alike
            width = best.shape[1]
            logs[here] = NEVER  # where there are fewer tokens than asked for
            logs[here, :width], tokens[here, :width] = best, ids
            logs, tokens = logs.flatten(), tokens.flatten()
        return tokens, logs

    found = walk(models, source, first, mask, rules, choose, copies=count, length_penalty=length_penalty)
    return [[hypothesis for hypothesis in hypotheses if hypothesis.score > NEVER] for hypotheses in found]
