"""Beam search that stays on the device: a step is one function over tensors of fixed shape.

B sentences, n hypotheses of each, R = B·n rows, S source tokens, T steps, N results, V vocabulary.

It finds what `beam` finds. There the host decides after every step; here it looks every few steps whether all sentences
are done. So a GPU replays the step as one CUDA graph (`graphs.py`), and on a CPU the same code runs as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard import kernels
from regard.config import ModelConfig
from regard.decoding.constraints import NEVER, Constraints
from regard.decoding.graphs import CapturedSteps, Graphs, copy_into
from regard.decoding.search import Encoded, Hypothesis, NotFiniteError, mean_probability
from regard.models.cache import for_search, reorder
from regard.models.contract import Generator, Record, State, tree_map

LOOK_EVERY = 2  # steps between two looks of the host
SOURCE_BUCKET, CAPACITY_BUCKET = 8, 32  # graphs are captured for multiples of so many source tokens and steps

decoding = kernels.find("decoding")


class Given(NamedTuple):
    """What a search is given."""

    source: Tensor
    """(B, S)"""
    mask: Tensor | None
    """(B, S)"""
    first: Tensor
    """(B,) input of the first step."""
    is_sentence: Tensor
    """(B,) False for rows that only fill the batch."""
    allowed: Tensor
    """(V,) tokens that may come next."""
    forced: Tensor
    """(B, T) the only token that may come at each step: of a prefix, or the end at the maximum length; -1: any."""
    divisors: Tensor
    """(T,) length penalty of the hypotheses that end at each step."""
    limits: Tensor
    """(B,) length penalty at the maximum length."""


class History(NamedTuple):
    """All steps so far, written in place: (B, T, n) each."""

    tokens: Tensor
    parents: Tensor
    """Places of the parents in the beam of the step before."""
    log_probabilities: Tensor
    scores: Tensor
    """Scores of the hypotheses that ended in this step; -inf for all others."""


class Beam(NamedTuple):
    """The hypotheses between two steps."""

    totals: Tensor
    """(B, n) log-probabilities of the active hypotheses; -inf in all other places."""
    places: Tensor
    """(B,) places not taken by ended hypotheses."""
    best: Tensor
    """(B, N) scores of the best ended hypotheses."""


class SearchState(NamedTuple):
    """All tensors of a search."""

    given: Given
    memories: tuple[Any, ...]
    """The encoded source of each model, one row per sentence."""
    pasts: tuple[Any, ...]
    """The decoder state of each model, one row per hypothesis."""
    step: Tensor
    """(1,) number of steps so far."""
    next_tokens: Tensor
    """(R,) input of the next step."""
    beam: Beam
    history: History


class Rules(NamedTuple):
    """The settings of a search."""

    beams: int
    results: int
    end: int
    min_length: int
    length_penalty: float


@torch.inference_mode()
def device_beam(
    models: Sequence[Generator],
    source: Tensor,
    first: Tensor,
    mask: Tensor | None = None,
    *,
    constraints: Constraints,
    beams: int,
    results: int,
    length_penalty: float,
    encoded: list[Encoded] | None = None,
    graphs: Graphs | None = None,
) -> list[list[Hypothesis]]:
    """What `beam` finds, for a search without repeated n-grams, coverage penalty and trees.

    With `graphs` the steps are captured, and the batch is padded to one of few shapes.
    """
    if not len(source):
        return []
    device = next(cast(nn.Module, models[0]).parameters()).device
    if encoded is not None:
        for model in models:
            record: Record = {}
            real = None if mask is None else mask.to(device)
            encoded.append(Encoded(model.start(source.to(device), real, record), record))
    rules = Rules(beams, results, constraints.end, constraints.min_length, length_penalty)
    steps = 1 + max(map(constraints.max_length, range(len(source))))
    if graphs is None:
        state = begin(models, prepare(models, source, first, mask, constraints, rules, steps), rules)
        for step in range(1, 1 + steps):
            state = advance(models, state, rules)
            if step % LOOK_EVERY == 0 and not bool(is_active(state)):
                break
        return collect(state, constraints, steps)

    capacity = -(-steps // CAPACITY_BUCKET) * CAPACITY_BUCKET
    padded = pad_batch(source.cpu(), first.cpu(), None if mask is None else mask.cpu(), source_limit(models))
    given = prepare(models, *padded, constraints, rules, capacity)
    with graphs.lock, torch.cuda.device(device):
        captured = graphs.find(
            (padded[0].shape, capacity, rules),
            [lambda state: begin(models, state.given, rules), lambda state: advance(models, state, rules)],
            lambda: begin(models, tree_map(lambda x: x.to(device), given), rules),
            watch=is_active,
        )
        copy_into(captured.state.given, given)
        replay(captured, steps)
        try:
            return collect(captured.state, constraints, steps)
        except NotFiniteError:
            graphs.free()  # there is NaN in the slots
            raise


# A search on the device


def prepare(
    models: Sequence[Generator],
    source: Tensor,
    first: Tensor,
    mask: Tensor | None,
    constraints: Constraints,
    rules: Rules,
    capacity: int,
) -> Given:
    """What a search of at most `capacity` steps is given; rows beyond the sentences only fill the batch."""
    count, rows, device = len(constraints.max_lengths), len(source), source.device
    model = cast(nn.Module, models[0])
    dtype = torch.promote_types(next(model.parameters()).dtype, torch.float32)
    allowed = torch.ones(cast(ModelConfig, model.config).target_vocabulary_size, dtype=torch.bool)
    allowed[list(constraints.forbidden)] = False
    longest = torch.tensor([*map(constraints.max_length, range(count)), *[0] * (rows - count)])
    steps = torch.arange(capacity)
    forced = torch.full((rows, capacity), -1).masked_fill(steps >= longest[:, None], constraints.end)
    for sentence, prefix in enumerate(constraints.prefixes or ()):
        forced[sentence, : len(prefix)] = torch.tensor(prefix, dtype=torch.int64)
    penalties = (steps.double() + 1) ** rules.length_penalty
    return Given(
        source=source,
        mask=mask,
        first=first,
        is_sentence=(torch.arange(rows) < count).to(device),
        allowed=allowed.to(device),
        forced=forced.to(device),
        divisors=penalties.to(device, dtype),
        limits=penalties[longest].to(device, dtype),
    )


def begin(models: Sequence[Generator], given: Given, rules: Rules) -> SearchState:
    """Encode the sources: the state before the first step."""
    states = [model.start(given.source, given.mask) for model in models]
    rows, capacity = given.forced.shape
    places = torch.arange(rules.beams, device=given.limits.device)
    is_first = given.is_sentence[:, None] & (places == 0)
    never = given.limits.new_full((rows, capacity, rules.beams), NEVER)
    ids = torch.zeros_like(never, dtype=torch.int64)
    return SearchState(
        given=given,
        memories=tuple(state.memory for state in states),
        pasts=tuple(for_search(state.past, rules.beams, capacity) for state in states),
        step=given.forced.new_zeros(1),
        next_tokens=given.first.repeat_interleave(rules.beams),
        beam=Beam(
            totals=torch.where(is_first, 0.0, never[:, 0]),
            places=given.forced.new_full((rows,), rules.beams),
            best=given.limits.new_full((rows, rules.results), NEVER),
        ),
        history=History(ids, ids.clone(), never, never.clone()),
    )


def advance(models: Sequence[Generator], state: SearchState, rules: Rules) -> SearchState:
    """One step. The history and the slots of caches are written in place, by the kernels also the beam."""
    pasts, logits = [], []
    for model, memory, past in zip(models, state.memories, state.pasts, strict=True):
        scores, after = model.step(state.next_tokens[:, None], State(memory, past))
        logits.append(scores[:, -1])
        pasts.append(after.past)
    scores = logits[0] if len(logits) == 1 else mean_probability([_log_softmax(scores) for scores in logits])
    allowed = state.given.allowed
    if rules.min_length:
        is_end = torch.arange(len(allowed), device=allowed.device) == rules.end
        allowed = allowed & ~(is_end & (state.step < rules.min_length))
    if decoding is not None and decoding.can_choose(scores, rules.beams, rules.results):
        best = decoding.best_tokens(scores, allowed, state.given.forced, state.step, beams=rules.beams)
        penalties = state.given.divisors, state.given.limits
        parents, tokens = decoding.choose(best, *penalties, state.step, state.beam, state.history, end=rules.end)
        beam = state.beam
    else:
        parents, tokens, beam = choose(scores, allowed, state, rules)
    if rules.beams > 1:
        pasts = [reorder(past, parents) for past in pasts]
    return state._replace(pasts=tuple(pasts), step=state.step + 1, next_tokens=tokens, beam=beam)


def choose(scores: Tensor, allowed: Tensor, state: SearchState, rules: Rules) -> tuple[Tensor, Tensor, Beam]:
    """Choose the next hypotheses of each sentence: (R,) rows of their parents, (R,) tokens, and the beam.

    Only the tokens of `allowed` (V,) may come after (R, V) logits or log-probabilities, or the one that is forced.
    """
    given, (totals, places, best) = state.given, state.beam
    sentences, beams = totals.shape
    forced = given.forced.index_select(1, state.step).repeat_interleave(beams, 0)  # (R, 1)
    is_forced = torch.arange(len(allowed), device=allowed.device) == forced
    logs = _log_softmax(scores).masked_fill(~torch.where(forced < 0, allowed, is_forced), NEVER)

    # The best continuations of a sentence are among the best of its rows.
    logs, tokens = (x.view(sentences, beams, -1) for x in logs.topk(min(beams, logs.shape[1])))
    options = logs.shape[2]
    totals, order = (totals[:, :, None] + logs).flatten(1).topk(beams)
    parents, logs, tokens = order // options, logs.flatten(1).gather(1, order), tokens.flatten(1).gather(1, order)
    is_kept = (torch.arange(beams, device=order.device) < places[:, None]) & (totals > NEVER)
    is_end = tokens == rules.end
    ends = (totals / given.divisors[state.step]).masked_fill(~(is_kept & is_end), NEVER)
    best = torch.cat([best, ends], 1).topk(rules.results).values
    totals = totals.masked_fill(is_end | ~is_kept, NEVER)

    # As `_cannot_improve` of `beam`: drop the hypotheses of a sentence if none can beat its N-th best ended one.
    cannot_improve = best[:, -1] >= totals.amax(1) / given.limits
    totals = totals.masked_fill(cannot_improve[:, None], NEVER)
    for table, column in zip(state.history, (tokens, parents, logs, ends), strict=True):
        table.index_copy_(1, state.step, column[:, None])
    rows = torch.arange(sentences, device=order.device)[:, None] * beams + parents
    return rows.flatten(), tokens.flatten(), Beam(totals, places - (ends > NEVER).sum(1), best)


def is_active(state: SearchState) -> Tensor:
    """Whether any hypothesis is active."""
    return (state.beam.totals > NEVER).any()


def _log_softmax(logits: Tensor) -> Tensor:
    return torch.log_softmax(logits, -1, dtype=torch.promote_types(logits.dtype, torch.float32))


# The host


def pad_batch(source: Tensor, first: Tensor, mask: Tensor | None, limit: int) -> tuple[Tensor, Tensor, Tensor]:
    """The batch with a usual number of rows and columns; the first sentence fills the rows."""
    rows, width = source.shape
    columns = max(min(-(-width // SOURCE_BUCKET) * SOURCE_BUCKET, limit), width)
    mask = torch.ones_like(source, dtype=torch.bool) if mask is None else mask
    source, mask = (F.pad(x, (0, columns - width)) for x in (source, mask))
    filled = torch.arange(usual_rows(rows))
    filled = filled.where(filled < rows, 0)
    return source[filled], first[filled], mask[filled]


def usual_rows(rows: int) -> int:
    """The next number of rows that batches are padded to: 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, ..."""
    power = 1 << (rows - 1).bit_length()
    return power * 3 // 4 if rows <= power * 3 // 4 else power


def source_limit(models: Sequence[Generator]) -> int:
    """The most source tokens by the position tables of all models."""
    configs = [cast(ModelConfig, cast(nn.Module, model).config) for model in models]
    return min((config.max_positions for config in configs if config.has_position_table), default=sys.maxsize)


def replay(captured: CapturedSteps[SearchState], steps: int) -> None:
    """Encode, and replay at most so many steps; while the host looks, the GPU is a few steps ahead."""
    events = torch.cuda.Event(), torch.cuda.Event()
    captured.replay(0)
    for step in range(steps):
        captured.replay(1)
        if step % LOOK_EVERY == 0:
            looks = step // LOOK_EVERY
            events[looks % 2].record()
            if looks:
                events[(looks - 1) % 2].synchronize()
                if not captured.watched:
                    break


def collect(state: SearchState, constraints: Constraints, steps: int) -> list[list[Hypothesis]]:
    """The best ended hypotheses of each sentence, best first."""
    count, results, beams = len(constraints.max_lengths), state.beam.best.shape[1], state.beam.totals.shape[1]
    history = History(*(table[:count, :steps] for table in state.history))
    ranked = history.scores.flatten(1).sort(dim=1, descending=True, stable=True)
    tokens, parents, logs, scores, ends = (
        x.cpu().numpy() for x in (*history[:3], ranked.values[:, :results], ranked.indices[:, :results])
    )
    lengths, places = np.divmod(ends, beams)

    # From the end of each hypothesis back to its start, all of them together.
    rows, steps = np.arange(count)[:, None], int(lengths.max()) + 1
    all_tokens, all_logs = (
        np.zeros((steps, *lengths.shape), tokens.dtype),
        np.zeros((steps, *lengths.shape), logs.dtype),
    )
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
            if score > NEVER
        ]
        if not found:
            raise NotFiniteError(sentence)
        hypotheses.append(found)
    return hypotheses
