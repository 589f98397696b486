"""Beam search that stays on a GPU: a step is one function over tensors of fixed shape, replayed as a CUDA graph.

B sentences, n hypotheses of each, R = B·n rows, S source tokens, T steps, N results, V vocabulary.

The results are those of `beam`, in which the host decides after every step. Here the host only checks every few steps
whether all sentences are done.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard import kernels
from regard.config import ModelConfig
from regard.decoding.beam import Beam, find_candidates, next_beam
from regard.decoding.constraints import NEVER, Constraints
from regard.decoding.graphs import CapturedSteps, Graphs, copy_into
from regard.decoding.search import (
    History,
    Hypothesis,
    NotFiniteError,
    collect,
    empty_history,
    log_softmax,
    max_positions,
    mean_probability,
)
from regard.models.cache import for_search, reorder
from regard.models.contract import Generator, State, tree_map

CHECK_EVERY = 2  # steps between two checks whether all sentences are done
SOURCE_BUCKET, CAPACITY_BUCKET = 8, 32  # source tokens and steps of a graph are multiples of these

decoding = kernels.find("decoding")


class Inputs(NamedTuple):
    """The inputs of a search."""

    source: Tensor  # (B, S)
    mask: Tensor | None  # (B, S)
    first: Tensor  # (B,) input of the first step
    allowed: Tensor  # (V,) True for tokens that may come next
    forced: Tensor  # (B, T) the token forced at each step (of a prefix, or the end token at the maximum length), or -1
    divisors: Tensor  # (T,) length ** length_penalty of a hypothesis that ends at each step
    final_divisors: Tensor  # (B,) the divisor at the maximum length


class SearchState(NamedTuple):
    """All tensors of a search."""

    inputs: Inputs
    memories: tuple[Any, ...]  # the encoded source of each model, one row per sentence
    pasts: tuple[Any, ...]  # the decoder state of each model, one row per hypothesis
    step: Tensor  # (1,) number of steps so far
    next_tokens: Tensor  # (R,) input of the next step
    beam: Beam
    history: History


class SearchSettings(NamedTuple):
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
    graphs: Graphs,
) -> list[list[Hypothesis]]:
    """Beam search with the results of `beam`, without its coverage penalty, n-gram blocking, trees and early stopping.

    The batch, on the host, is padded to one of a few shapes, and the steps for each are captured as CUDA graphs.
    """
    if not len(source):
        return []
    device = next(cast(nn.Module, models[0]).parameters()).device
    settings = SearchSettings(beams, results, constraints.end, constraints.min_length, length_penalty)
    steps = 1 + max(map(constraints.max_length, range(len(source))))
    capacity = round_up(steps, CAPACITY_BUCKET)
    padded = pad_batch(source, first, mask, limit=max_positions(models) or sys.maxsize)
    inputs = prepare(models, *padded, constraints, settings, capacity)
    with graphs.lock, torch.cuda.device(device):
        captured = graphs.find(
            (padded[0].shape, capacity, settings),
            [lambda state: begin(models, state.inputs, settings), lambda state: advance(models, state, settings)],
            lambda: begin(models, tree_map(lambda x: x.to(device), inputs), settings),
            watch=is_active,
        )
        copy_into(captured.state.inputs, inputs)
        replay(captured, steps)
        try:
            return results_of(captured.state, constraints, steps)
        except NotFiniteError:
            graphs.free()  # its caches now contain NaN
            raise


# A search on the device


def prepare(
    models: Sequence[Generator],
    source: Tensor,
    first: Tensor,
    mask: Tensor | None,
    constraints: Constraints,
    settings: SearchSettings,
    capacity: int,
) -> Inputs:
    """Prepare the inputs of a search of at most `capacity` steps; rows beyond the sentences end at once."""
    count, rows = len(constraints.max_lengths), len(source)
    model = cast(nn.Module, models[0])
    dtype = torch.promote_types(next(model.parameters()).dtype, torch.float32)
    allowed = torch.ones(cast(ModelConfig, model.config).target_vocabulary_size, dtype=torch.bool)
    allowed[list(constraints.forbidden)] = False
    longest = torch.tensor([*map(constraints.max_length, range(count)), *[0] * (rows - count)])
    steps = torch.arange(capacity)
    forced = torch.full((rows, capacity), -1).masked_fill(steps >= longest[:, None], constraints.end)
    for sentence, prefix in enumerate(constraints.prefixes or ()):
        forced[sentence, : len(prefix)] = torch.tensor(prefix, dtype=torch.int64)
    penalties = (steps.double() + 1) ** settings.length_penalty
    return Inputs(
        source=source,
        mask=mask,
        first=first,
        allowed=allowed,
        forced=forced,
        divisors=penalties.to(dtype),
        final_divisors=penalties[longest].to(dtype),
    )


def begin(models: Sequence[Generator], inputs: Inputs, settings: SearchSettings) -> SearchState:
    """Encode the sources, and return the state before the first step."""
    states = [model.start(inputs.source, inputs.mask) for model in models]
    rows, capacity = inputs.forced.shape
    places = torch.arange(settings.beams, device=inputs.final_divisors.device)
    history = empty_history((rows, capacity, settings.beams), like=inputs.final_divisors)
    return SearchState(
        inputs=inputs,
        memories=tuple(state.memory for state in states),
        pasts=tuple(for_search(state.past, settings.beams, capacity) for state in states),
        step=inputs.forced.new_zeros(1),
        next_tokens=inputs.first.repeat_interleave(settings.beams),
        beam=Beam(
            totals=torch.where(places == 0, 0.0, history.scores[:, 0]),
            places=inputs.forced.new_full((rows,), settings.beams),
            best=inputs.final_divisors.new_full((rows, settings.results), NEVER),
        ),
        history=history,
    )


def advance(models: Sequence[Generator], state: SearchState, settings: SearchSettings) -> SearchState:
    """Take one step. The history and the caches are updated in place; with Triton kernels, so is the beam."""
    pasts, logits = [], []
    for model, memory, past in zip(models, state.memories, state.pasts, strict=True):
        scores, after = model.step(state.next_tokens[:, None], State(memory, past))
        logits.append(scores[:, -1])
        pasts.append(after.past)
    scores = logits[0] if len(logits) == 1 else mean_probability([log_softmax(scores) for scores in logits])
    allowed = state.inputs.allowed
    if settings.min_length:
        is_end = torch.arange(len(allowed), device=allowed.device) == settings.end
        allowed = allowed & ~(is_end & (state.step < settings.min_length))
    if decoding is not None and decoding.can_choose(scores, settings.beams, settings.results):
        best = decoding.best_tokens(scores, allowed, state.inputs.forced, state.step, beams=settings.beams)
        divisors = state.inputs.divisors, state.inputs.final_divisors
        parents, tokens = decoding.choose(best, *divisors, state.step, state.beam, state.history, end=settings.end)
        beam = state.beam
    else:
        parents, tokens, beam = choose(scores, allowed, state, settings)
    if settings.beams > 1:
        pasts = [reorder(past, parents) for past in pasts]
    return state._replace(pasts=tuple(pasts), step=state.step + 1, next_tokens=tokens, beam=beam)


def choose(
    scores: Tensor, allowed: Tensor, state: SearchState, settings: SearchSettings
) -> tuple[Tensor, Tensor, Beam]:
    """Choose the next hypotheses of each sentence: (R,) rows of their parents, (R,) tokens, and the beam.

    `scores` are (R, V) logits or log-probabilities. Only `allowed` (V,) tokens or a forced one are chosen.
    """
    inputs, (sentences, beams) = state.inputs, state.beam.totals.shape
    forced = inputs.forced.index_select(1, state.step).repeat_interleave(beams, 0)  # (R, 1)
    is_forced = torch.arange(len(allowed), device=allowed.device) == forced
    logs = log_softmax(scores).masked_fill(~torch.where(forced < 0, allowed, is_forced), NEVER)
    candidates = find_candidates(logs, state.beam, settings.end, beams)
    divisor = inputs.divisors[state.step]
    ends = (candidates.totals / divisor).masked_fill(~candidates.ended, NEVER)
    beam = next_beam(state.beam, candidates, ends, divisor, inputs.final_divisors)
    columns = candidates.tokens, candidates.parents, candidates.log_probabilities, ends
    for table, column in zip(state.history, columns, strict=True):
        table.index_copy_(1, state.step, column[:, None])
    rows = torch.arange(sentences, device=allowed.device)[:, None] * beams + candidates.parents
    return rows.flatten(), candidates.tokens.flatten(), beam


def is_active(state: SearchState) -> Tensor:
    """Whether any hypothesis is active."""
    return (state.beam.totals > NEVER).any()


# On the host


def pad_batch(source: Tensor, first: Tensor, mask: Tensor | None, limit: int) -> tuple[Tensor, Tensor, Tensor]:
    """Pad a batch to one of a few shapes; the added rows repeat the first sentence."""
    rows, width = source.shape
    columns = max(min(round_up(width, SOURCE_BUCKET), limit), width)
    mask = torch.ones_like(source, dtype=torch.bool) if mask is None else mask
    source, mask = (F.pad(x, (0, columns - width)) for x in (source, mask))
    filled = torch.arange(round_up_rows(rows))
    filled = filled.where(filled < rows, 0)
    return source[filled], first[filled], mask[filled]


def round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def round_up_rows(rows: int) -> int:
    """Round a number of rows up to 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, ..."""
    power = 1 << (rows - 1).bit_length()
    return power * 3 // 4 if rows <= power * 3 // 4 else power


def replay(captured: CapturedSteps[SearchState], steps: int) -> None:
    """Replay the encoder and at most `steps` steps; the GPU runs ahead while the host waits for a check."""
    events = torch.cuda.Event(), torch.cuda.Event()
    captured.replay(0)
    for step in range(steps):
        captured.replay(1)
        if step % CHECK_EVERY == 0:
            checks = step // CHECK_EVERY
            events[checks % 2].record()
            if checks:
                events[(checks - 1) % 2].synchronize()
                if not captured.watched:
                    break


def results_of(state: SearchState, constraints: Constraints, steps: int) -> list[list[Hypothesis]]:
    """The best ended hypotheses of each sentence, best first."""
    history = History(*(table[: len(constraints.max_lengths), :steps] for table in state.history))
    return collect(history, constraints, state.beam.best.shape[1])
