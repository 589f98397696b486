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
from regard.decoding.search import Encoded, Hypothesis, Models, Search, remaining
from regard.models.contract import tree_map


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
    max_length: Tensor  # (B,) maximum tokens of a hypothesis, including the end token
    source_mask: Tensor  # (B, S) True for source tokens that are not padding


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
    """The `results` best hypotheses for each sentence of (B, S), best first; `first` and `encoded` are as in `greedy`.

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
        max_length=torch.tensor([1.0 + constraints.max_length(row) for row in search.sentences], device=device),
        source_mask=torch.ones_like(source, dtype=torch.bool) if mask is None else mask,
    )
    batch_trees: list[Tree] = [[] for _ in search.sentences]
    for length in range(1, 1 + search.max_steps):
        slots = state.totals.shape[1]
        candidates = _choose(
            search.step(), state, constraints.end, beams if trees is None and not refill else 2 * beams
        )
        if refill:
            candidates = _refill(candidates, constraints.end, beams)
        if trees is None:
            candidates = _place(candidates, slots)
        else:  # a tree shows the candidates in the order of their probabilities
            _record(batch_trees, candidates, search.sentences, is_first=length == 1)

        ends = candidates.totals / length**length_penalty
        if search.coverage is not None:
            ends = ends + coverage_penalty * _log_coverage(search.coverage, candidates.parents, state)
        ends = ends.masked_fill(~candidates.ended, NEVER)
        best = torch.cat([state.best, ends], 1).topk(state.best.shape[1]).values
        state = state._replace(places=state.places - candidates.ended.sum(1), best=best)
        cannot_improve = _cannot_improve(candidates, state, length, length_penalty, early_stopping)
        is_over = ~candidates.active.any(1) | cannot_improve

        # One device-to-host copy for all that Python needs of this step.
        places = candidates.tokens.shape[1]
        same = torch.arange(places, device=device).clamp(max=slots - 1)
        from_places = torch.where(candidates.ended | candidates.active, candidates.parents, same)
        parents = torch.arange(len(is_over), device=device)[:, None] * slots + from_places  # rows of the parents
        host = torch.cat([parents, candidates.ended, is_over[:, None]], 1).tolist()
        ended = [(row, place) for row, values in enumerate(host) for place in range(places) if values[places + place]]
        if ended:
            index = torch.tensor([row * places + place for row, place in ended], device=device)
            logs = candidates.log_probabilities.flatten()[index]
            search.finish([host[row][place] for row, place in ended], logs, ends.flatten()[index])
        done = [bool(values[-1]) for values in host]
        if all(done):
            break
        stay = remaining(done)
        candidates = Candidates(*(x[:, :beams] for x in candidates))
        search.keep(stay, [parent for row in stay for parent in host[row][: min(places, beams)]])
        inactive = ~candidates.active | is_over[:, None]
        state = state._replace(totals=candidates.totals.masked_fill(inactive, NEVER))
        if len(stay) < len(host):
            kept = torch.tensor(stay, device=device)
            state, candidates = tree_map(lambda x, kept=kept: x.index_select(0, kept), (state, candidates))  # type: ignore[misc]
        search.append(candidates.tokens.flatten(), candidates.log_probabilities.flatten())
    if trees is not None:
        trees.extend(batch_trees)
    by_sentence = [[hypothesis for _, hypothesis in pairs] for pairs in search.results(len(source))]
    return [sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)[:results] for hypotheses in by_sentence]


def _record(trees: list[Tree], candidates: Candidates, sentences: list[int], *, is_first: bool) -> None:
    """Add the branches of a step."""
    kept = candidates.ended | candidates.active
    rows = zip(*(x.tolist() for x in (candidates.parents, candidates.tokens, candidates.totals, kept)), strict=True)
    for sentence, values in zip(sentences, rows, strict=True):
        branches = zip(*values, strict=True)
        trees[sentence].append([Branch(-1 if is_first else parent, *branch) for parent, *branch in branches])


def _choose(scores: Tensor, state: Beam, end: int, count: int) -> Candidates:
    """The best `count` continuations of each sentence, best first."""
    sentences, slots = state.totals.shape
    # The best candidates are among the best of each row, so the sums are not computed for all V.
    logs, tokens = (x.view(sentences, slots, -1) for x in scores.topk(min(count, scores.shape[1])))
    options = logs.shape[2]
    totals, where = (state.totals[:, :, None] + logs).flatten(1).topk(min(count, slots * options))
    parents, logs, tokens = where // options, logs.flatten(1).gather(1, where), tokens.flatten(1).gather(1, where)
    kept = (torch.arange(totals.shape[1], device=totals.device) < state.places[:, None]) & (totals > NEVER)
    ended = kept & (tokens == end)
    return Candidates(totals, logs, parents, tokens, ended, kept & ~ended)


def _refill(candidates: Candidates, end: int, beams: int) -> Candidates:
    """The `beams` best of 2·W candidates that do not end come first and are active; of the W best, some end."""
    is_end, possible = candidates.tokens == end, candidates.totals > NEVER
    active = possible & ~is_end & ((~is_end).cumsum(1) <= beams)
    ended = possible & is_end & (torch.arange(is_end.shape[1], device=is_end.device) < beams)
    order = (~active).long().argsort(dim=1, stable=True)
    return Candidates(*(x.gather(1, order) for x in candidates._replace(ended=ended, active=active)))


def _place(candidates: Candidates, slots: int) -> Candidates:
    """Order the candidates so that as many as possible are in the row of their parent, and their cache stays there."""
    parents, active = candidates.parents, candidates.active
    places = parents.shape[-1]
    if slots != places or places == 1:
        return candidates
    earlier = torch.ones(places, places, dtype=torch.bool, device=parents.device).tril(-1)
    siblings = (parents[..., :, None] == parents[..., None, :]) & active[..., None, :] & earlier
    stays = active & ~siblings.any(-1)
    occupied = torch.zeros_like(parents).scatter_add_(-1, parents, stays.long())
    free = occupied.argsort(stable=True)  # free places first
    rank = (~stays).cumsum(-1) - 1
    order = torch.where(stays, parents, free.gather(-1, rank.clamp(min=0))).argsort(-1)
    return Candidates(*(x.gather(-1, order) for x in candidates))


def _log_coverage(coverage: Tensor, parents: Tensor, state: Beam) -> Tensor:
    """(B, c): log(min(attention, 1)) of each source token, summed over the source."""
    coverage = coverage.view(*state.totals.shape, -1)  # (R, S) -> (B, n, S)
    coverage = coverage.gather(1, parents[:, :, None].expand(-1, -1, coverage.shape[2]))
    logs = coverage.clamp(torch.finfo(coverage.dtype).tiny, 1.0).log()
    return logs.masked_fill(~state.source_mask[:, None], 0.0).sum(-1)


def _cannot_improve(
    candidates: Candidates, state: Beam, length: int, length_penalty: float, early_stopping: EarlyStopping
) -> Tensor:
    """(B,): whether no active hypothesis can still beat the N-th best ended one.

    A log-probability s < 0 only falls with every further token, and the coverage penalty only subtracts. So an active
    hypothesis with s ends with at most s / l ** length_penalty for some length l from the next to the maximum; that is
    largest at the maximum length if the penalty favours length (above 0), and at the next length if it does not.

    With early_stopping = yes the search is over after W have ended, and with no when the active ones are not better
    at their present length than the W-th best.
    """
    active, worst = candidates.totals.masked_fill(~candidates.active, NEVER).amax(1), state.best[:, -1]
    if early_stopping == "no":
        divisor: float = length**length_penalty
        return worst >= active / divisor
    lengths = state.max_length if length_penalty > 0 else torch.full_like(state.max_length, length + 1)
    is_over = worst >= active / lengths.pow(length_penalty)
    return is_over | (state.places <= 0) if early_stopping == "yes" else is_over
