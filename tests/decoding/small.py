"""Small batches to search, and slow reference implementations of the searches."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import torch
from torch import Tensor, nn

from regard.decoding import Constraints, Hypothesis, beam, greedy
from regard.models import build
from tests.models.families import GENERATORS

PAD, BEGIN, END = 0, 1, 2
LENGTHS = (5, 3, 1, 4)
NAMES = ["transformer", "transformer-rotary", "rnn-additive-input-lstm", "rnn-dot-output-gru", "rnn-none-input-gru",
         "gpt", "gpt-llama"]  # fmt: skip
FREE: dict[str, Any] = {"end": END, "min_length": 0, "no_repeat_ngram": 0, "forbidden": (PAD, BEGIN)}
PLAIN: dict[str, Any] = {"length_penalty": 1.0, "coverage_penalty": 0.0}


class Batch:
    """Four sentences of different lengths and a model in double precision, away from where much is zero."""

    def __init__(
        self, name: str, *, vocabulary: int = 12, shake: float = 0.5, lengths: tuple[int, ...] = LENGTHS
    ) -> None:
        config = dataclasses.replace(GENERATORS[name], vocabulary=vocabulary, target_vocabulary=0)
        self.model = shaken(build(config), shake)
        self.source = torch.randint(3, vocabulary, (len(lengths), max(lengths)))
        self.mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
        self.first = (
            torch.randint(3, vocabulary, (len(lengths),)) if "gpt" in name else torch.full((len(lengths),), BEGIN)
        )
        self.vocabulary = vocabulary

    @property
    def data(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.source, self.first, self.mask

    def rows(self, *rows: int) -> tuple[Tensor, Tensor, Tensor]:
        """These sentences alone, with no more padding than they need."""
        mask = self.mask[list(rows)]
        width = int(mask.sum(1).max())
        return self.source[list(rows), :width], self.first[list(rows)], mask[:, :width]

    def constraints(self, max_length: int = 6, **values: Any) -> Constraints:
        return Constraints(max_lengths=[max_length] * len(self.source), **{**FREE, **values})

    def log_probability(self, row: int, tokens: list[int], *models: nn.Module) -> float:
        """Of the tokens and the end, teacher-forced, the sentence alone."""
        source, first, _ = self.rows(row)
        target = torch.cat([first, torch.tensor(tokens, dtype=torch.int64)])[None]
        logs = [model.step(target, model.start(source))[0].softmax(-1) for model in models or (self.model,)]
        return float(torch.stack(logs).mean(0).log()[0].gather(1, torch.tensor([*tokens, END])[:, None]).sum())


def shaken(model: nn.Module, amount: float = 0.5) -> Any:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(amount * torch.randn_like(parameter))
    return model.double().eval().requires_grad_(False)


def exhaustive(batch: Batch, row: int, max_length: int) -> list[tuple[float, list[int]]]:
    """Every sentence there is, with its log-probability."""
    words = range(3, batch.vocabulary)
    lengths = range(max_length + 1)
    sentences = [list(tokens) for length in lengths for tokens in itertools.product(words, repeat=length)]
    return [(batch.log_probability(row, tokens), tokens) for tokens in sentences]


def best(found: list[list[Hypothesis]]) -> list[list[int]]:
    return [hypotheses[0].tokens for hypotheses in found]


def search(batch: Batch, data: tuple[Tensor, Tensor, Tensor], constraints: Constraints, beams: int) -> list[Hypothesis]:
    """Greedy or, with more than one beam, beam search; the best hypotheses."""
    if beams == 1:
        return greedy(batch.model, *data, constraints=constraints, length_penalty=1.0)
    return [h[0] for h in beam(batch.model, *data, constraints=constraints, beams=beams, results=1, **PLAIN)]


def slow_beam(
    batch: Batch, row: int, max_length: int, beams: int, length_penalty: float, early_stopping: str = "shrink"
) -> list[list[int]]:
    """Beam search with lists: candidates sorted, the best take the free places, what ends keeps its own or not."""
    source, first, _ = batch.rows(row)
    living: list[tuple[float, list[int]]] = [(0.0, [])]
    ended: list[tuple[float, list[int]]] = []
    for length in range(max_length + 1):
        candidates = []
        for total, tokens in living:
            target = torch.cat([first, torch.tensor(tokens, dtype=torch.int64)])[None]
            logs = batch.model.step(target, batch.model.start(source))[0][0, -1].log_softmax(-1).tolist()
            words = [END] if length == max_length else range(2, batch.vocabulary)
            candidates += [(total + logs[word], tokens, word) for word in words]
        living, places = [], beams - len(ended) if early_stopping == "shrink" else beams
        for rank, (total, tokens, word) in enumerate(sorted(candidates, reverse=True)):
            if word == END and rank < places:
                ended.append((total / (length + 1) ** length_penalty, tokens))
            elif word != END and (rank < places if early_stopping == "shrink" else len(living) < beams):
                living.append((total, [*tokens, word]))
        ended = sorted(ended, reverse=True)[:beams]
        hopes = [total / (length + 1) ** length_penalty for total, _ in living]
        worst = ended[-1][0] if ended else 0.0
        is_full = len(ended) == beams
        if is_full and (early_stopping == "yes" or (early_stopping == "no" and worst >= max(hopes, default=worst))):
            break
    return [tokens for _, tokens in ended]
