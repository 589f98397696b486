"""Beam search: keep the most probable hypotheses side by side.

B sentences in the batch, n hypotheses of a sentence, R = B·n rows, c candidates, N results, S source tokens, V
vocabulary.

An ended hypothesis keeps its place in the beam: with W beams, W - 1 hypotheses are active after the first one has
ended, and the search is over after the W-th. Ended and active hypotheses compete for the same places, so a beam of one
is greedy search. That is `early_stopping` = shrink; with its other values the beam always has W active hypotheses, and
the search finds what `generate` of transformers finds.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from regard.config import EarlyStopping
from regard.decoding.constraints import NEVER, Constraints
from regard.decoding.search import Encoded, Hypothesis, Models, Search, collect


class Branch(NamedTuple):
    """One candidate of one step, for a drawing of the search."""

    parent: int  # the index of its parent in the previous step; -1 in the first step
    token: int
    log_probability: float  # the sum over all tokens so far
    kept: bool  # whether it stayed in the beam or became a finished hypothesis


Tree = list[list[Branch]]
"""All branches of a sentence, step by step."""


class Beam(NamedTuple):
    """The state of the beam, one row per sentence."""

    totals: Tensor  # (B, n) log-probabilities of the active hypotheses; -inf in a free place
    places: Tensor  # (B,) places not taken by ended hypotheses
    best: Tensor  # (B, N) scores of the best ended hypotheses, best first; (B, W) if early_stopping = no


class Candidates(NamedTuple):
    """The best continuations of a step: (B, c) each."""

    totals: Tensor
    log_probabilities: Tensor
    parents: Tensor
    tokens: Tensor
    ended: Tensor
    active: Tensor


@torch.inference_mode()
def beam(
    models: Models,
    source: Tensor,
    first: Tensor,
    mask: Tensor | None = None,
    *,
    constraints: Constraints,
    beams: int,
    results: int,
    length_penalty: float,
    coverage_penalty: float,
    early_stopping: EarlyStopping = "shrink",
    trees: list[Tree] | None = None,
    encoded: list[Encoded] | None = None,
) -> list[list[Hypothesis]]:
    """The `results` best hypotheses for each sentence of (B, S), best first; `first` and `encoded` are as in `sample`.

    The score is log-probability / length ** length_penalty, with the end token counted, plus coverage_penalty times the
    sum of the logarithms of the attention on each source token, at most 1 (Wu et al., 2016). A list passed as `trees`
    receives the tree of every sentence.
    """
    if not len(source):
        return []
    search = Search(models, source, first, mask, constraints, encoded, copies=1, coverage=coverage_penalty > 0)
    device, refill = source.device, early_stopping != "shrink"
    state = Beam(
        totals=torch.zeros(len(source), 1, device=device),
        places=torch.full((len(source),), beams, device=device),
        best=torch.full((len(source), beams if early_stopping == "no" else results), NEVER, device=device),
    )
    lengths = torch.tensor([1.0 + constraints.max_length(row) for row in search.sentences], device=device)
    final_divisors = lengths.pow(length_penalty)  # (B,) at the maximum length, with the end token
    source_mask = torch.ones_like(source, dtype=torch.bool) if mask is None else mask
    batch_trees: list[Tree] = [[] for _ in search.sentences]
    for length in range(1, 1 + search.max_steps):
        count = beams if trees is None and not refill else 2 * beams
        candidates = find_candidates(search.step(), state, constraints.end, count)
        if refill:
            candidates = _refill(candidates, constraints.end, beams)
        if trees is not None:
            _record(batch_trees, candidates, search.sentences, is_first=length == 1)

        divisor = length**length_penalty
        ends = candidates.totals / divisor
        if search.coverage is not None:
            real = source_mask[search.sentences]
            ends = ends + coverage_penalty * _log_coverage(search.coverage, candidates.parents, real)
        ends = ends.masked_fill(~candidates.ended, NEVER)
        search.record(candidates.tokens, candidates.parents, candidates.log_probabilities, ends)
        candidates = Candidates(*(x[:, :beams] for x in candidates))
        state = next_beam(state, candidates, ends, divisor, final_divisors[search.sentences], early_stopping)
        state = search.advance(candidates.tokens, candidates.parents, state.totals > NEVER, state)
        if state is None:
            break
    if trees is not None:
        trees.extend(batch_trees)
    return collect(search.history(), constraints, results)


def _record(trees: list[Tree], candidates: Candidates, sentences: list[int], *, is_first: bool) -> None:
    """Add the branches of a step."""
    kept = candidates.ended | candidates.active
    rows = zip(*(x.tolist() for x in (candidates.parents, candidates.tokens, candidates.totals, kept)), strict=True)
    for sentence, values in zip(sentences, rows, strict=True):
        branches = zip(*values, strict=True)
        trees[sentence].append([Branch(-1 if is_first else parent, *branch) for parent, *branch in branches])


def find_candidates(scores: Tensor, state: Beam, end: int, count: int) -> Candidates:
    """The best `count` continuations of each sentence, best first, from (R, V) log-probabilities."""
    sentences, slots = state.totals.shape
    # The best candidates are among the best of each row, so the sums are not computed for all V.
    logs, tokens = (x.view(sentences, slots, -1) for x in scores.topk(min(count, scores.shape[1])))
    options = logs.shape[2]
    totals, order = (state.totals[:, :, None] + logs).flatten(1).topk(min(count, slots * options))
    parents, logs, tokens = order // options, logs.flatten(1).gather(1, order), tokens.flatten(1).gather(1, order)
    is_kept = (torch.arange(totals.shape[1], device=totals.device) < state.places[:, None]) & (totals > NEVER)
    ended = is_kept & (tokens == end)
    return Candidates(totals, logs, parents, tokens, ended, is_kept & ~ended)


def next_beam(
    state: Beam,
    candidates: Candidates,
    ends: Tensor,
    divisor: float | Tensor,
    final_divisors: Tensor,
    early_stopping: EarlyStopping = "shrink",
) -> Beam:
    """The beam of the active candidates, after a step in which others ended with the scores `ends`.

    `divisor` is the length penalty of this step, and `final_divisors` (B,) are those at the maximum length.
    """
    best = torch.cat([state.best, ends], 1).topk(state.best.shape[1]).values
    totals = candidates.totals.masked_fill(~candidates.active, NEVER)
    state = Beam(totals, state.places - (ends > NEVER).sum(1), best)
    is_over = _cannot_improve(state, divisor, final_divisors, early_stopping)
    return state._replace(totals=totals.masked_fill(is_over[:, None], NEVER))


def _cannot_improve(
    state: Beam, divisor: float | Tensor, final_divisors: Tensor, early_stopping: EarlyStopping
) -> Tensor:
    """(B,): whether no active hypothesis can still beat the N-th best ended one.

    A log-probability s < 0 only falls with every further token, and the coverage penalty only subtracts. So an active
    hypothesis with s ends with at most s / l ** length_penalty for the maximum length l.

    With early_stopping = yes the search is over after W have ended, and with no when the active ones are not better
    at their present length than the W-th best.
    """
    active, worst = state.totals.amax(1), state.best[:, -1]
    if early_stopping == "no":
        return worst >= active / divisor
    is_over = worst >= active / final_divisors
    return is_over | (state.places <= 0) if early_stopping == "yes" else is_over


def _refill(candidates: Candidates, end: int, beams: int) -> Candidates:
    """The `beams` best of 2·W candidates that do not end come first and are active; of the W best, some end."""
    is_end, possible = candidates.tokens == end, candidates.totals > NEVER
    active = possible & ~is_end & ((~is_end).cumsum(1) <= beams)
    ended = possible & is_end & (torch.arange(is_end.shape[1], device=is_end.device) < beams)
    order = (~active).long().argsort(dim=1, stable=True)
    return Candidates(*(x.gather(1, order) for x in candidates._replace(ended=ended, active=active)))


def _log_coverage(coverage: Tensor, parents: Tensor, source_mask: Tensor) -> Tensor:
    """(B, c): log(min(attention, 1)) of each source token, summed over the source (B, S)."""
    coverage = coverage.view(len(source_mask), -1, coverage.shape[1])  # (R, S) -> (B, n, S)
    coverage = coverage.gather(1, parents[:, :, None].expand(-1, -1, coverage.shape[2]))
    logs = coverage.clamp(torch.finfo(coverage.dtype).tiny, 1.0).log()
    return logs.masked_fill(~source_mask[:, None], 0.0).sum(-1)
