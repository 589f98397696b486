"""What all searches share: the hypotheses, one step of all models, and who stays in the batch.

B sentences still searched, n hypotheses of each, R = B·n rows, t tokens written, S source tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isnan, log
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attention.prepacked import prepack
from regard.decoding.constraints import Rules, Written
from regard.errors import InputError, RunError
from regard.models.contract import Generator, Record, State, reorder, tree_map

Models = Generator | Sequence[Generator]
"""One model, or several of one vocabulary whose probabilities are averaged."""

GROUP = 128  # columns of which `top` looks at the largest first
LEAVE = 8  # a copy of the state costs about as much as an eighth of the batch in one step


class Hypothesis(NamedTuple):
    """One way to write a sentence."""

    tokens: list[int]
    """Without the first and the end."""
    score: float
    """What hypotheses are ranked by: the log-probability, normalised as the search was told."""
    log_probability: float
    """Of the tokens and the end."""
    finished: bool
    """It ended by itself; False: it was ended at the longest length allowed."""
    steps: list[float]
    """Log-probability of every token and the end."""


class Past(NamedTuple):
    """What the hypotheses left, one row each: what the models remember, and what the search noted."""

    models: tuple[Any, ...]
    rules: tuple[Any, ...]
    tokens: Tensor
    """(R, t)"""
    steps: Tensor
    """(R, t) their log-probabilities."""
    coverage: Tensor | None
    """(R, S) attention each source token got so far, where it is watched."""


class Begun(NamedTuple):
    """What a model's `start` gave: a list of these, passed to a search, saves whoever traces it a second reading."""

    state: State
    record: Record


# A search's State has the models' memories as its memory, and a Past: so that all of it is reordered as one.


def as_list(models: Models) -> list[Generator]:
    """The models, as a search uses them fastest."""
    found = list(models) if isinstance(models, Sequence) else [models]
    if not found:
        raise InputError("there is no model to search with")
    return [prepack(model) for model in found]


def begin(
    models: list[Generator], source: Tensor, first: Tensor, mask: Tensor | None, rules: Rules,
    begun: list[Begun] | None, *, watch: bool,
) -> State:  # fmt: skip
    """Read the source (B, S); the first tokens (B,) are what the first step will be given."""
    rows = len(source)
    rules.check(rows)
    if first.shape != (rows,):
        raise InputError(f"first has shape {tuple(first.shape)}; it must hold one token for each of {rows} sentences")
    if mask is not None and bool(mask.all()):
        mask = None  # without one the kernels are faster
    steps = 1 + max(rules.limit(sentence) for sentence in range(rows))
    records: list[Record | None] = [None if begun is None else {} for _ in models]
    states = [
        model.start(source, mask, record, capacity=steps + (0 if _remembers(model, source) else source.shape[1]))
        for model, record in zip(models, records, strict=True)
    ]
    if begun is not None:
        begun.extend(Begun(state, record or {}) for state, record in zip(states, records, strict=True))
    coverage = torch.zeros(source.shape, device=source.device) if watch else None
    past = Past(
        models=tuple(state.past for state in states),
        rules=rules.start(rows, source.device),
        tokens=first.new_empty(rows, 0),
        steps=torch.empty(rows, 0, device=source.device),
        coverage=coverage,
    )
    return State(tuple(state.memory for state in states), past)


def _remembers(model: Generator, source: Tensor) -> bool:
    """The source stays in the memory: it takes no room in the past. Asked with no sentences, it costs nothing."""
    found: list[Tensor] = []
    tree_map(lambda x: (found.append(x), x)[1], model.start(source[:0, :1]).memory)  # type: ignore[func-returns-value]
    return bool(found)


def step(
    models: list[Generator], tokens: Tensor, state: State, rules: Rules, sentences: list[int]
) -> tuple[Tensor, State]:
    """The log-probabilities (R, V) of what may follow (R, 1) tokens."""
    past: Past = state.past
    watch = past.coverage is not None
    logs, after, seen = [], [], []
    for model, memory, before in zip(models, state.memory, past.models, strict=True):
        record: Record | None = {} if watch else None
        logits, there = model.step(tokens, State(memory, before), record)
        half = logits.dtype in (torch.float16, torch.bfloat16)
        logs.append(torch.log_softmax(logits[:, -1], -1, dtype=torch.float32 if half else None))
        after.append(there.past)
        if record is not None:
            seen.append(looked_at(record))
    attention = None
    if past.coverage is not None:
        attention = torch.stack(seen).mean(0)
        past = past._replace(coverage=past.coverage + attention)
    scores = logs[0] if len(logs) == 1 else mean(logs)
    ruled = rules.apply(scores, Written(past.tokens, sentences, attention), past.rules)
    return scores, state._replace(past=past._replace(models=tuple(after), rules=ruled))


def mean(logs: list[Tensor]) -> Tensor:
    """The logarithm of the mean of probabilities given as logarithms."""
    if any(log.shape != logs[0].shape for log in logs):
        sizes = ", ".join(str(log.shape[-1]) for log in logs)
        raise InputError(f"models of {sizes} tokens cannot be averaged: they must have one vocabulary")
    return torch.stack(logs).logsumexp(0) - log(len(logs))


def looked_at(record: Record) -> Tensor:
    """(R, S): the cross-attention of the last token, averaged over layers and heads."""
    layers = [weights[:, :, -1].mean(1) for name, weights in record.items() if name.endswith(".cross")]
    if not layers:
        raise InputError("this model does not attend to its source: a coverage penalty or a watching rule needs that")
    return torch.stack(layers).mean(0).float()


def write(past: Past, tokens: Tensor, steps: Tensor) -> Past:
    """One more token (R,) with its log-probability (R,) for every row."""
    return past._replace(
        tokens=torch.cat([past.tokens, tokens[:, None]], 1), steps=torch.cat([past.steps, steps[:, None]], 1)
    )


# Who stays.


def move(state: State, rows: list[int]) -> State:
    """Hypothesis i becomes the old hypothesis `rows[i]`; nothing that stays is copied, older states are overwritten."""
    moved = [row for row, old in enumerate(rows) if row != old]
    if len(rows) != len(state.past.tokens):
        return reorder(state, torch.tensor(rows, device=state.past.tokens.device))
    if moved:
        here, there = torch.tensor([moved, [rows[row] for row in moved]], device=state.past.tokens.device)
        full = tuple(past.filled() if hasattr(past, "filled") else past for past in state.past.models)
        tree_map(lambda x: x.index_copy_(0, here, x.index_select(0, there)), state.past._replace(models=full))
    return state


def leave(state: State, stay: list[int], rows: list[int]) -> State:
    """Only these sentences, and for hypotheses these rows."""
    kept = torch.tensor(stay, device=state.past.tokens.device)
    memory = tree_map(lambda x: x.index_select(0, kept), state.memory)
    return reorder(state._replace(memory=memory), torch.tensor(rows, device=kept.device))


def staying(done: list[bool]) -> list[int]:
    """Which sentences of the batch stay: all of them, until enough are done for a copy to pay."""
    worth = sum(done) * LEAVE >= len(done)
    return [row for row, is_done in enumerate(done) if not (worth and is_done)]


# Choosing.


def top(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row and where they stand, largest first: (R, V) -> (R, count) each."""
    columns = scores.shape[1]
    count = min(count, columns)
    if columns < 4 * GROUP * (count + 1):
        return scores.topk(count)
    # The largest are in the groups with the largest maxima, and a maximum is far cheaper than a selection.
    whole = columns - columns % GROUP
    groups = scores[:, :whole].unflatten(1, (-1, GROUP))
    chosen = groups.amax(-1).topk(count).indices
    near = groups.gather(1, chosen[:, :, None].expand(-1, -1, GROUP)).flatten(1)
    values, places = torch.cat([near, scores[:, whole:]], 1).topk(count)
    group = chosen.gather(1, (places // GROUP).clamp(max=count - 1))
    inside = count * GROUP
    return values, torch.where(places < inside, group * GROUP + places % GROUP, places - inside + whole)


class Harvest:
    """Hypotheses as they end; they stay on the device until all have."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.ended: list[tuple[list[int], Tensor, Tensor, Tensor]] = []

    def add(self, sentences: list[int], tokens: Tensor, steps: Tensor, scores: Tensor) -> None:
        """Sentence numbers, (k, t) tokens, (k, t + 1) log-probabilities, (k,) scores."""
        self.ended.append((sentences, tokens, steps, scores))

    def collect(self, sentences: int) -> list[list[Hypothesis]]:
        """For each sentence in the order asked all its hypotheses, the shorter ones first."""
        found: list[list[Hypothesis]] = [[] for _ in range(sentences)]
        for numbers, tokens, steps, scores in self.ended:
            length = tokens.shape[1]
            rows = zip(numbers, tokens.tolist(), scores.tolist(), steps.tolist(), strict=True)
            for number, ids, score, logs in rows:
                finished = length < self.rules.limit(number)
                found[number].append(Hypothesis(ids, score, sum(logs), finished, logs))
        for number, hypotheses in enumerate(found):
            if not hypotheses or any(isnan(hypothesis.score) for hypothesis in hypotheses):
                raise RunError(f"the model gives no probabilities for sentence {number}: its numbers are not finite")
        return found


Choose = Callable[[Tensor, int, list[int]], tuple[Tensor, Tensor]]
"""From (R, V) log-probabilities, the tokens written and the sentences: (R,) tokens and their log-probabilities."""


@torch.inference_mode()
def walk(
    models: Models, source: Tensor, first: Tensor, mask: Tensor | None, rules: Rules, choose: Choose, *, copies: int,
    length_penalty: float, begun: list[Begun] | None = None,
) -> list[list[Hypothesis]]:  # fmt: skip
    """`copies` hypotheses of each sentence, every one going its own way; they come back in the order of the copies."""
    if not len(source):
        return []
    models, harvest = as_list(models), Harvest(rules)
    state = begin(models, source, first, mask, rules, begun, watch=rules.watches)
    state = move(state, [row for row in range(len(source)) for _ in range(copies)])
    sentences, tokens = list(range(len(source))), first.repeat_interleave(copies)
    going = [list(range(copies)) for _ in sentences]  # the copies of each sentence that have not ended
    order: list[list[int]] = [[] for _ in sentences]  # in which they end
    for place in range(1 + max(rules.limit(sentence) for sentence in sentences)):
        scores, state = step(models, tokens[:, None], state, rules, sentences)
        tokens, logs = choose(scores, place, sentences)
        ends = (tokens == rules.end).tolist()
        gone = [(row, copy) for row, left in enumerate(going) for copy in left if ends[row * copies + copy]]
        if gone:
            index = torch.tensor([row * copies + copy for row, copy in gone], device=tokens.device)
            steps = torch.cat([state.past.steps[index], logs[index, None]], 1)
            score = steps.sum(1) / (place + 1) ** length_penalty
            harvest.add([sentences[row] for row, _ in gone], state.past.tokens[index], steps, score)
            for row, copy in gone:
                going[row].remove(copy)
                order[sentences[row]].append(copy)
        stay = staying([not left for left in going])
        if not stay:
            break
        state = state._replace(past=write(state.past, tokens, logs))
        if len(stay) < len(going):
            rows = [row * copies + copy for row in stay for copy in range(copies)]
            state, tokens = leave(state, stay, rows), tokens[torch.tensor(rows, device=tokens.device)]
            sentences, going = [sentences[row] for row in stay], [going[row] for row in stay]
    found = harvest.collect(len(source))
    return [
        [hypotheses[copies_.index(copy)] for copy in range(copies)]
        for hypotheses, copies_ in zip(found, order, strict=True)
    ]
