"""Shared parts of all searches: hypotheses, a step of all models, and removing finished sentences from the batch.

B sentences in the batch, n hypotheses of each, R = B·n rows, t tokens so far, S source tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isnan, log
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attention.prepacked import prepack
from regard.decoding.constraints import Constraints
from regard.errors import InputError, RunError
from regard.models.contract import Generator, Record, State, reorder, tree_map

Models = Generator | Sequence[Generator]
"""One model, or an ensemble with one vocabulary whose probabilities are averaged."""

TOPK_GROUP = 128  # columns in a group; `topk` first compares the maxima of groups
COPY_COST = 8  # copying the state takes about as long as one step of an eighth of the batch


class Hypothesis(NamedTuple):
    """One output for a sentence."""

    tokens: list[int]
    """Without the begin and end tokens."""
    score: float
    """The log-probability with length and coverage penalties; hypotheses are ranked by it."""
    log_probability: float
    """The sum over all tokens, including the end token."""
    finished: bool
    """False if it was cut off at the maximum length."""
    log_probabilities: list[float]
    """Log-probabilities of all tokens, including the end token."""


class Encoded(NamedTuple):
    """The result of a model's `start` for a batch of sources, reused by traces."""

    state: State
    record: Record

    def select(self, rows: Tensor) -> Encoded:
        """Select sentences by row; a row may occur several times."""
        memory = tree_map(lambda x: x.index_select(0, rows), self.state.memory)
        record = {name: x.index_select(0, rows) for name, x in self.record.items()}
        return Encoded(reorder(self.state._replace(memory=memory), rows), record)


class History(NamedTuple):
    """The state of the hypotheses, one row each."""

    caches: tuple[Any, ...]
    """The `State.past` of every model: its KV cache or RNN state."""
    tokens: Tensor
    """(R, t)"""
    log_probabilities: Tensor
    """(R, t)"""
    coverage: Tensor | None
    """(R, S) accumulated attention on each source token, for the coverage penalty."""


# The State of a search has the models' memories as its memory and a History as its past, so that one call reorders all.


def prepare(models: Models) -> list[Generator]:
    """The models as a list, with their weights laid out for fast decoding."""
    ensemble = list(models) if isinstance(models, Sequence) else [models]
    if not ensemble:
        raise InputError("there is no model to search with")
    return [prepack(model) for model in ensemble]


def start(
    models: list[Generator],
    source: Tensor,
    first: Tensor,
    mask: Tensor | None,
    constraints: Constraints,
    encoded: list[Encoded] | None,
    *,
    coverage: bool,
) -> State:
    """Encode the sources (B, S); `first` (B,) are the tokens of the first step."""
    rows = len(source)
    constraints.check(rows)
    if first.shape != (rows,):
        raise InputError(f"first has shape {tuple(first.shape)}; it must hold one token for each of {rows} sentences")
    if mask is not None and bool(mask.all()):
        mask = None  # without one the kernels are faster
    steps = 1 + max(constraints.max_length(sentence) for sentence in range(rows))
    records: list[Record | None] = [None if encoded is None else {} for _ in models]
    states = [model.start(source, mask, record, capacity=steps) for model, record in zip(models, records, strict=True)]
    if encoded is not None:
        encoded.extend(Encoded(state, record or {}) for state, record in zip(states, records, strict=True))
    history = History(
        caches=tuple(state.past for state in states),
        tokens=first.new_empty(rows, 0),
        log_probabilities=torch.empty(rows, 0, device=source.device),
        coverage=torch.zeros(source.shape, device=source.device) if coverage else None,
    )
    return State(tuple(state.memory for state in states), history)


def step(
    models: list[Generator], tokens: Tensor, state: State, constraints: Constraints, sentences: list[int]
) -> tuple[Tensor, State]:
    """The log-probabilities (R, V) of the next tokens after the tokens (R, 1), and the new state."""
    history: History = state.past
    logs, caches, attention = [], [], []
    for model, memory, cache in zip(models, state.memory, history.caches, strict=True):
        record: Record | None = None if history.coverage is None else {}
        logits, after = model.step(tokens, State(memory, cache), record)
        half = logits.dtype in (torch.float16, torch.bfloat16)
        logs.append(torch.log_softmax(logits[:, -1], -1, dtype=torch.float32 if half else None))
        caches.append(after.past)
        if record is not None:
            attention.append(mean_cross_attention(record))
    if history.coverage is not None:
        history = history._replace(coverage=history.coverage + torch.stack(attention).mean(0))
    scores = logs[0] if len(logs) == 1 else mean_probability(logs)
    constraints.apply(scores, history.tokens, sentences)
    return scores, state._replace(past=history._replace(caches=tuple(caches)))


def mean_probability(logs: list[Tensor]) -> Tensor:
    """The log of the mean probability of several models, from their log-probabilities."""
    if any(scores.shape != logs[0].shape for scores in logs):
        sizes = ", ".join(str(scores.shape[-1]) for scores in logs)
        raise InputError(f"models of {sizes} tokens cannot be averaged: they must have one vocabulary")
    return torch.stack(logs).logsumexp(0) - log(len(logs))


def mean_cross_attention(record: Record) -> Tensor:
    """(R, S): the cross-attention of the last token, averaged over layers and heads."""
    layers = [weights[:, :, -1].mean(1) for name, weights in record.items() if name.endswith(".cross")]
    if not layers:
        raise InputError("the coverage penalty needs cross-attention, and this model has none")
    return torch.stack(layers).mean(0).float()


def append(history: History, tokens: Tensor, log_probabilities: Tensor) -> History:
    """The history with one more token (R,) in every row."""
    return history._replace(
        tokens=torch.cat([history.tokens, tokens[:, None]], 1),
        log_probabilities=torch.cat([history.log_probabilities, log_probabilities[:, None]], 1),
    )


# The batch: reorder rows and remove finished sentences.


def reorder_rows(state: State, rows: list[int]) -> State:
    """Make row i the old row `rows[i]`; only rows that change are copied, in place."""
    if len(rows) != len(state.past.tokens):
        return reorder(state, torch.tensor(rows, device=state.past.tokens.device))
    moved = [row for row, old in enumerate(rows) if row != old]
    if moved:
        to_rows, from_rows = torch.tensor([moved, [rows[row] for row in moved]], device=state.past.tokens.device)
        filled = tuple(cache.filled() if hasattr(cache, "filled") else cache for cache in state.past.caches)
        tree_map(lambda x: x.index_copy_(0, to_rows, x.index_select(0, from_rows)), state.past._replace(caches=filled))
    return state


def keep_sentences(state: State, sentences: list[int], rows: list[int]) -> State:
    """The state with only these sentences of the batch, and these rows of hypotheses."""
    kept = torch.tensor(sentences, device=state.past.tokens.device)
    memory = tree_map(lambda x: x.index_select(0, kept), state.memory)
    return reorder(state._replace(memory=memory), torch.tensor(rows, device=kept.device))


def remaining(finished: list[bool]) -> list[int]:
    """The sentences to keep in the batch: all, until enough are finished that copying the others saves time."""
    worthwhile = sum(finished) * COPY_COST >= len(finished)
    return [row for row, is_finished in enumerate(finished) if not (worthwhile and is_finished)]


def topk(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest values of each row and their columns, largest first: (R, V) -> (R, count) each."""
    columns = scores.shape[1]
    count = min(count, columns)
    if columns < 4 * TOPK_GROUP * (count + 1):
        return scores.topk(count)
    # The largest values are in the groups with the largest maxima, and amax is much faster than topk.
    whole = columns - columns % TOPK_GROUP
    groups = scores[:, :whole].unflatten(1, (-1, TOPK_GROUP))
    chosen = groups.amax(-1).topk(count).indices
    candidates = groups.gather(1, chosen[:, :, None].expand(-1, -1, TOPK_GROUP)).flatten(1)
    values, places = torch.cat([candidates, scores[:, whole:]], 1).topk(count)
    group = chosen.gather(1, (places // TOPK_GROUP).clamp(max=count - 1))
    inside = count * TOPK_GROUP
    return values, torch.where(places < inside, group * TOPK_GROUP + places % TOPK_GROUP, places - inside + whole)


class FinishedHypotheses:
    """Collects finished hypotheses, on the device until the search is over."""

    def __init__(self, constraints: Constraints) -> None:
        self.constraints = constraints
        self.batches: list[tuple[list[int], Tensor, Tensor, Tensor]] = []

    def add(self, sentences: list[int], tokens: Tensor, log_probabilities: Tensor, scores: Tensor) -> None:
        """Add k hypotheses of these sentences: (k, t) tokens, (k, t + 1) log-probabilities, (k,) scores."""
        self.batches.append((sentences, tokens, log_probabilities, scores))

    def collect(self, count: int) -> list[list[Hypothesis]]:
        """All hypotheses of each of `count` sentences, shorter ones first."""
        by_sentence: list[list[Hypothesis]] = [[] for _ in range(count)]
        for sentences, tokens, log_probabilities, scores in self.batches:
            length = tokens.shape[1]
            rows = zip(sentences, tokens.tolist(), scores.tolist(), log_probabilities.tolist(), strict=True)
            for sentence, ids, score, logs in rows:
                finished = length < self.constraints.max_length(sentence)
                by_sentence[sentence].append(Hypothesis(ids, score, sum(logs), finished, logs))
        for sentence, hypotheses in enumerate(by_sentence):
            if not hypotheses or any(isnan(hypothesis.score) for hypothesis in hypotheses):
                raise RunError(f"the model gives no probabilities for sentence {sentence}: its logits are not finite")
        return by_sentence


Choose = Callable[[Tensor, int, list[int]], tuple[Tensor, Tensor]]
"""From (R, V) log-probabilities, the number of tokens so far and the sentences: (R,) tokens and log-probabilities."""


@torch.inference_mode()
def decode(
    models: Models,
    source: Tensor,
    first: Tensor,
    mask: Tensor | None,
    constraints: Constraints,
    choose: Choose,
    *,
    copies: int,
    length_penalty: float,
    encoded: list[Encoded] | None = None,
) -> list[list[Hypothesis]]:
    """Decode `copies` independent hypotheses of each sentence; `choose` selects every token."""
    if not len(source):
        return []
    models, hypotheses = prepare(models), FinishedHypotheses(constraints)
    state = start(models, source, first, mask, constraints, encoded, coverage=False)
    state = reorder_rows(state, [row for row in range(len(source)) for _ in range(copies)])
    sentences, tokens = list(range(len(source))), first.repeat_interleave(copies)
    active = [list(range(copies)) for _ in sentences]  # the unfinished copies of each sentence
    order: list[list[int]] = [[] for _ in sentences]  # the copies of each sentence as they finished
    for length in range(1 + max(constraints.max_length(sentence) for sentence in sentences)):
        scores, state = step(models, tokens[:, None], state, constraints, sentences)
        tokens, logs = choose(scores, length, sentences)
        is_end = (tokens == constraints.end).tolist()
        ended = [(row, copy) for row, left in enumerate(active) for copy in left if is_end[row * copies + copy]]
        if ended:
            index = torch.tensor([row * copies + copy for row, copy in ended], device=tokens.device)
            log_probabilities = torch.cat([state.past.log_probabilities[index], logs[index, None]], 1)
            score = log_probabilities.sum(1) / (length + 1) ** length_penalty
            numbers = [sentences[row] for row, _ in ended]
            hypotheses.add(numbers, state.past.tokens[index], log_probabilities, score)
            for row, copy in ended:
                active[row].remove(copy)
                order[sentences[row]].append(copy)
        stay = remaining([not left for left in active])
        if not stay:
            break
        state = state._replace(past=append(state.past, tokens, logs))
        if len(stay) < len(active):
            rows = [row * copies + copy for row in stay for copy in range(copies)]
            state, tokens = keep_sentences(state, stay, rows), tokens[torch.tensor(rows, device=tokens.device)]
            sentences, active = [sentences[row] for row in stay], [active[row] for row in stay]
    return [
        [by_end[ends.index(copy)] for copy in range(copies)]
        for by_end, ends in zip(hypotheses.collect(len(source)), order, strict=True)
    ]
