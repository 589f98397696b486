"""Shared parts of all searches: a step of all models, finished sentences leave the batch, choices become hypotheses.

B sentences, n hypotheses of each, R = B·n rows, T steps, t tokens so far, k results, S source tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan, log
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.attention.prepacked import prepack
from regard.decoding.constraints import NEVER, Constraints
from regard.errors import InputError, RunError
from regard.models.cache import Cache
from regard.models.contract import Generator, Record, State, tree_map

REMOVED_SHARE = 1 / 8  # of the sentences are removed from the batch together: copying the others takes time

Models = Generator | Sequence[Generator]
"""One model, or an ensemble with one vocabulary whose probabilities are averaged."""


class Hypothesis(NamedTuple):
    """One output for a sentence."""

    tokens: list[int]  # without the begin and end tokens
    score: float  # the log-probability with length and coverage penalties; hypotheses are ranked by it
    log_probability: float  # the sum over all tokens, including the end token
    finished: bool  # False if it was cut off at the maximum length
    log_probabilities: list[float]  # of all tokens, including the end token


class Encoded(NamedTuple):
    """The result of a model's `start` for a batch of sources, reused by traces."""

    state: State
    record: Record

    def select(self, rows: Tensor) -> Encoded:
        """Select sentences by row; a row may occur several times."""
        state, record = tree_map(lambda x: x.index_select(0, rows), (self.state, tuple(self.record.values())))
        return Encoded(state, dict(zip(self.record, record, strict=True)))


class History(NamedTuple):
    """The choices of a search: (B, T, n) each."""

    tokens: Tensor
    parents: Tensor  # places of the parents among the n hypotheses of the step before
    log_probabilities: Tensor
    scores: Tensor  # scores of the hypotheses that end in this step; -inf for all others


class NotFiniteError(RunError):
    """The logits of a model are NaN or infinite for a sentence of the batch, counted from 0."""

    def __init__(self, sentence: int, text: str = "") -> None:
        name = repr(text) if text else f"sentence {sentence}"
        super().__init__(f"the model gives no probabilities for {name}: its logits are not finite")
        self.sentence = sentence


class Search:
    """A search in progress: the sentences in the batch and the hypotheses of each, one row per hypothesis."""

    def __init__(
        self,
        models: Models,
        source: Tensor,
        first: Tensor,
        mask: Tensor | None,
        constraints: Constraints,
        encoded: list[Encoded] | None,
        *,
        copies: int,
        coverage: bool = False,
    ) -> None:
        """Encode the sources (B, S); `first` (B,) are the tokens of the first step, in `copies` rows of each."""
        self.models = [prepack(model) for model in (models if isinstance(models, Sequence) else [models])]
        self.constraints = constraints
        self.sentences = list(range(len(source)))  # those still in the batch, by their number
        self.choices: list[tuple[list[int], History]] = []  # of each step: the sentences, and (B, n) columns
        self.max_steps = 1 + max(map(constraints.max_length, self.sentences))
        mask = None if mask is None or bool(mask.all()) else mask  # without one the kernels are faster
        records: list[Record | None] = [None if encoded is None else {} for _ in self.models]
        states = [
            model.start(source, mask, record, capacity=self.max_steps)
            for model, record in zip(self.models, records, strict=True)
        ]
        if encoded is not None:
            encoded.extend(Encoded(state, record or {}) for state, record in zip(states, records, strict=True))
        self.memories = tuple(state.memory for state in states)
        self.caches = tuple(state.past for state in states)
        self.next_tokens = first.repeat_interleave(copies)  # (R,) input of the next step
        self.tokens = first.new_empty(len(source), 0)  # (R, t)
        # (R, S) accumulated attention on each source token, for the coverage penalty
        self.coverage = torch.zeros(source.shape, device=source.device) if coverage else None
        self._reorder([row for row in self.sentences for _ in range(copies)])

    def step(self) -> Tensor:
        """(R, V) log-probabilities of the tokens after `next_tokens`."""
        logs, caches, attention = [], [], []
        for model, memory, cache in zip(self.models, self.memories, self.caches, strict=True):
            record: Record | None = None if self.coverage is None else {}
            logits, state = model.step(self.next_tokens[:, None], State(memory, cache), record)
            logs.append(log_softmax(logits[:, -1]))
            caches.append(state.past)
            if record is not None:
                layers = [weights[:, :, -1].mean(1) for name, weights in record.items() if name.endswith(".cross")]
                if not layers:
                    raise InputError("the coverage penalty needs cross-attention, and this model has none")
                attention.append(torch.stack(layers).mean(0).float())  # (R, S) mean over layers and heads
        self.caches = tuple(caches)
        if self.coverage is not None:
            self.coverage = self.coverage + torch.stack(attention).mean(0)
        scores = logs[0] if len(logs) == 1 else mean_probability(logs)
        self.constraints.apply(scores, self.tokens, self.sentences)
        return scores

    def record(self, tokens: Tensor, parents: Tensor, log_probabilities: Tensor, scores: Tensor) -> None:
        """Add the choices of a step to the history: (B, n) each, for the sentences in the batch."""
        self.choices.append((self.sentences, History(tokens, parents, log_probabilities, scores)))

    def advance(self, tokens: Tensor, parents: Tensor, active: Tensor, state: Any) -> Any:
        """Continue with hypotheses (B, n): places of their parents, their new tokens, and which of them are active.

        Sentences without active hypotheses leave the batch. Returns the state, a tuple of tensors with one row for each
        sentence, of those that stay; None if no hypothesis is active.
        """
        slots = len(self.tokens) // len(self.sentences)  # hypotheses of a sentence before this step
        first_rows = slots * torch.arange(len(tokens), device=tokens.device)[:, None]
        same_slot = torch.arange(tokens.shape[1], device=tokens.device).clamp(max=slots - 1)  # of inactive hypotheses
        parent_rows = first_rows + torch.where(active, parents, same_slot)
        # One device-to-host copy for all that Python needs of this step.
        sentences = torch.cat([parent_rows, active.any(1, keepdim=True)], 1).tolist()
        remaining = [number for number, (*_, is_active) in enumerate(sentences) if is_active]
        if not remaining:
            return None
        if len(sentences) - len(remaining) < REMOVED_SHARE * len(sentences):  # too few have ended to be worth a copy
            remaining = list(range(len(sentences)))
        rows = [row for number in remaining for row in sentences[number][:-1]]
        if len(remaining) < len(sentences):
            index = torch.tensor(remaining, device=tokens.device)
            tokens, state, self.memories = tree_map(lambda x: x.index_select(0, index), (tokens, state, self.memories))
            self.sentences = [self.sentences[number] for number in remaining]
        self._reorder(rows)
        self.next_tokens = tokens.flatten()
        self.tokens = torch.cat([self.tokens, self.next_tokens[:, None]], 1)
        return state

    def _reorder(self, rows: list[int]) -> None:
        """Make row i of the hypotheses the old row `rows[i]`."""
        device = self.tokens.device
        if len(rows) != len(self.tokens):
            index = torch.tensor(rows, device=device)
            past = self.caches, self.tokens, self.coverage
            self.caches, self.tokens, self.coverage = tree_map(lambda x: x.index_select(0, index), past)
        elif moved := [row for row, old in enumerate(rows) if row != old]:  # only these are copied, in place
            to_rows, from_rows = torch.tensor([moved, [rows[row] for row in moved]], device=device)
            filled = tuple(cache.filled() if isinstance(cache, Cache) else cache for cache in self.caches)
            past = filled, self.tokens, self.coverage
            tree_map(lambda x: x.index_copy_(0, to_rows, x.index_select(0, from_rows)), past)

    def history(self) -> History:
        """The choices of all steps, for all sentences."""
        widths = [columns.tokens.shape[1] for _, columns in self.choices]
        sentences, first = self.choices[0]
        history = empty_history((len(sentences), len(widths), max(widths)), like=first.scores)
        for step, (sentences, columns) in enumerate(self.choices):
            for table, column in zip(history, columns, strict=True):
                table[sentences, step, : widths[step]] = column
        return history


def empty_history(shape: tuple[int, int, int], like: Tensor) -> History:
    """A history of B sentences, T steps and n hypotheses in which nothing has ended."""
    never = like.new_full(shape, NEVER)
    ids = torch.zeros_like(never, dtype=torch.int64)
    return History(ids, ids.clone(), never, never.clone())


def collect(history: History, constraints: Constraints, results: int | None = None) -> list[list[Hypothesis]]:
    """The `results` best hypotheses of each sentence, best first; None: the one that ends in each place, in order."""
    flat = history.scores.flatten(1)
    if results is None:
        last_steps = history.scores.argmax(1)
        count = last_steps.shape[1]
        ends = last_steps * count + torch.arange(count, device=last_steps.device)
    else:
        ends = flat.sort(dim=1, descending=True, stable=True).indices[:, :results]
    tables = *history[:3], flat.gather(1, ends), ends
    tokens, parents, logs, scores, indices = (table.cpu().numpy() for table in tables)
    lengths, places = np.divmod(indices, tokens.shape[2])

    # Follow the parents of all hypotheses from their ends back to the start.
    rows, steps = np.arange(len(tokens))[:, None], int(lengths.max()) + 1
    all_tokens, all_logs = (np.zeros((steps, *lengths.shape), table.dtype) for table in (tokens, logs))
    for step in reversed(range(steps)):
        all_tokens[step], all_logs[step] = tokens[rows, step, places], logs[rows, step, places]
        places = np.where(step <= lengths, parents[rows, step, places], places)

    hypotheses = []
    columns = scores, lengths, all_tokens.transpose(1, 2, 0), all_logs.transpose(1, 2, 0)
    for sentence, row in enumerate(zip(*(x.tolist() for x in columns), strict=True)):
        longest = constraints.max_length(sentence)
        found = [
            Hypothesis(ids[:length], score, sum(values[: length + 1]), length < longest, values[: length + 1])
            for score, length, ids, values in zip(*row, strict=True)
            if score != NEVER
        ]
        if not found or any(isnan(hypothesis.score) for hypothesis in found):
            raise NotFiniteError(sentence)
        hypotheses.append(found)
    return hypotheses


def max_positions(models: Sequence[Any]) -> int | None:
    """The most tokens that the position tables of all models allow."""
    return min((m.config.max_positions for m in models if m.config.has_position_table), default=None)


def log_softmax(logits: Tensor) -> Tensor:
    """Log-probabilities in at least fp32."""
    return torch.log_softmax(logits, -1, dtype=torch.promote_types(logits.dtype, torch.float32))


def mean_probability(logs: list[Tensor]) -> Tensor:
    """The log of the mean probability of several models, from their log-probabilities."""
    return torch.stack(logs).logsumexp(0) - log(len(logs))
