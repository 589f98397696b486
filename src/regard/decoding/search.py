"""Shared parts of all searches: hypotheses, a step of all models, and removing finished sentences from the batch.

B sentences in the batch, n hypotheses of each, R = B·n rows, t tokens so far, S source tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan, log
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attention.prepacked import prepack
from regard.decoding.constraints import Constraints
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
        self.next_tokens = first  # (R,) input of the next step
        self.tokens = first.new_empty(len(source), 0)  # (R, t)
        self.log_probabilities = torch.empty(len(source), 0, device=source.device)  # (R, t)
        # (R, S) accumulated attention on each source token, for the coverage penalty
        self.coverage = torch.zeros(source.shape, device=source.device) if coverage else None
        self._finished: list[tuple[list[int], list[int], Tensor, Tensor, Tensor]] = []
        self.keep(self.sentences, [row for row in self.sentences for _ in range(copies)])

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

    def append(self, tokens: Tensor, log_probabilities: Tensor) -> None:
        """Add one token (R,) to every hypothesis."""
        self.next_tokens = tokens
        self.tokens = torch.cat([self.tokens, tokens[:, None]], 1)
        self.log_probabilities = torch.cat([self.log_probabilities, log_probabilities[:, None]], 1)

    def keep(self, sentences: list[int], rows: list[int]) -> None:
        """Keep these sentences of the batch, and make row i the old row `rows[i]`."""
        device = self.tokens.device
        if len(sentences) < len(self.sentences):
            index = torch.tensor(sentences, device=device)
            self.memories = tree_map(lambda x: x.index_select(0, index), self.memories)
            self.sentences = [self.sentences[sentence] for sentence in sentences]
        past = (self.caches, self.next_tokens, self.tokens, self.log_probabilities, self.coverage)
        if len(rows) != len(self.tokens):
            index = torch.tensor(rows, device=device)
            past = tree_map(lambda x: x.index_select(0, index), past)
            self.caches, self.next_tokens, self.tokens, self.log_probabilities, self.coverage = past
        elif moved := [row for row, old in enumerate(rows) if row != old]:  # only these are copied, in place
            to_rows, from_rows = torch.tensor([moved, [rows[row] for row in moved]], device=device)
            filled = tuple(cache.filled() if isinstance(cache, Cache) else cache for cache in self.caches)
            tree_map(lambda x: x.index_copy_(0, to_rows, x.index_select(0, from_rows)), (filled, *past[1:]))

    def finish(self, rows: list[int], log_probabilities: Tensor, scores: Tensor) -> None:
        """Add hypotheses that end after the tokens of these rows: (k,) log-probabilities of the end, (k,) scores."""
        copies = len(self.tokens) // len(self.sentences)
        sentences, places = [self.sentences[row // copies] for row in rows], [row % copies for row in rows]
        index = torch.tensor(rows, device=self.tokens.device)
        logs = torch.cat([self.log_probabilities[index], log_probabilities[:, None]], 1)
        self._finished.append((sentences, places, self.tokens[index], logs, scores))  # on the device until the end

    def results(self, count: int) -> list[list[tuple[int, Hypothesis]]]:
        """All finished hypotheses of each of `count` sentences, shorter ones first, with their places in the batch."""
        by_sentence: list[list[tuple[int, Hypothesis]]] = [[] for _ in range(count)]
        for sentences, places, *tensors in self._finished:
            for sentence, place, ids, logs, score in zip(
                sentences, places, *(x.tolist() for x in tensors), strict=True
            ):
                is_finished = len(ids) < self.constraints.max_length(sentence)
                by_sentence[sentence].append((place, Hypothesis(ids, score, sum(logs), is_finished, logs)))
        for sentence, hypotheses in enumerate(by_sentence):
            if not hypotheses or any(isnan(hypothesis.score) for _, hypothesis in hypotheses):
                raise NotFiniteError(sentence)
        return by_sentence


def remaining(done: list[bool]) -> list[int]:
    """The sentences to keep in the batch: all, until enough of them are done."""
    worthwhile = sum(done) >= REMOVED_SHARE * len(done)
    return [row for row, is_done in enumerate(done) if not (worthwhile and is_done)]


def max_positions(models: Sequence[Any]) -> int | None:
    """The most tokens that the position tables of all models allow."""
    return min((m.config.max_positions for m in models if m.config.has_position_table), default=None)


def log_softmax(logits: Tensor) -> Tensor:
    """Log-probabilities in at least fp32."""
    return torch.log_softmax(logits, -1, dtype=torch.promote_types(logits.dtype, torch.float32))


def mean_probability(logs: list[Tensor]) -> Tensor:
    """The log of the mean probability of several models, from their log-probabilities."""
    return torch.stack(logs).logsumexp(0) - log(len(logs))
