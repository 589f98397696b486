"""Beam search: keep the most probable hypotheses side by side.

B sentences in the batch, G groups, n hypotheses of a group, R = B·G·n rows, c candidates, N results, S source tokens,
V vocabulary.

An ended hypothesis keeps its place in the beam: with W beams, W - 1 hypotheses are active after the first one has
ended, and the search is over after the W-th. Ended and active hypotheses compete for the same places, so a beam of one
is greedy search.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from regard.decoding.constraints import NEVER, Constraints
from regard.decoding.search import Encoded, Hypothesis, Models, Search, remaining
from regard.models.contract import tree_map


class Branch(NamedTuple):
    """One candidate of one step, for a drawing of the search."""

    parent: int
    """The index of its parent in the previous step; -1 in the first step."""
    token: int
    log_probability: float
    """The sum over all tokens so far."""
    kept: bool
    """Whether it stayed in the beam or became a finished hypothesis."""


Tree = list[list[Branch]]
"""All branches of a sentence, step by step."""


class Beam(NamedTuple):
    """The state of the beam, one row per sentence."""

    totals: Tensor
    """(B, G, n) log-probabilities of the active hypotheses; -inf in a free place."""
    places: Tensor
    """(B, G) places not taken by ended hypotheses."""
    best: Tensor
    """(B, N) scores of the best ended hypotheses, best first."""
    max_length: Tensor
    """(B,) maximum tokens of a hypothesis, including the end token."""
    source_mask: Tensor
    """(B, S): True for source tokens that are not padding."""


class Candidates(NamedTuple):
    """The best continuations of a step: (B, G, c) each."""

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
    diversity_penalty: float,
    trees: list[Tree] | None = None,
    encoded: list[Encoded] | None = None,
) -> list[list[Hypothesis]]:
    """The `results` best hypotheses for each sentence of (B, S), best first; `first` and `encoded` are as in `greedy`.

    The score is log-probability / length ** length_penalty, with the end token counted, plus coverage_penalty times the
    sum of the logarithms of the attention on each source token, at most 1 (Wu et al., 2016). With a diversity_penalty
    (diverse beam search, Vijayakumar et al., 2018) every hypothesis is its own group, and a token is penalised once for
    every earlier group that chose it in the same step; duplicates are returned once. A list passed as `trees`
    receives the tree of every sentence.
    """
    if not len(source):
        return []
    groups, width = (beams, 1) if diversity_penalty else (1, beams)
    search = Search(models, source, first, mask, constraints, encoded, copies=groups, coverage=coverage_penalty > 0)
    beam_state = _start_beam(source, mask, constraints, (groups, width), results)
    batch_trees: list[Tree] = [[] for _ in search.sentences]
    branches = 0  # per group in the step before
    for length in range(1, 1 + search.max_steps):
        spare = 0 if trees is None else width
        candidates = _choose(search.step(), beam_state, constraints.end, width, diversity_penalty, spare=spare)
        if trees is not None:
            _record(batch_trees, candidates, search.sentences, branches)
            branches = candidates.tokens.shape[-1]
        candidates = Candidates(*(x[..., :width] for x in candidates))
        if trees is None:  # a tree shows the candidates in the order of their probabilities
            candidates = _place(candidates, beam_state.totals.shape[-1])

        ends = _score(candidates, search.coverage, beam_state, length, length_penalty, coverage_penalty)
        best = torch.cat([beam_state.best, ends.flatten(1)], 1).topk(results).values
        beam_state = beam_state._replace(places=beam_state.places - candidates.ended.sum(-1), best=best)
        is_over = ~candidates.active.flatten(1).any(1)
        if groups == 1:  # groups may find duplicates, which are counted only at the end
            is_over |= _cannot_improve(candidates, beam_state, length, length_penalty)

        # One device-to-host copy for all that Python needs of this step.
        first_rows = torch.arange(is_over.numel() * groups, device=source.device).view(-1, groups, 1)
        slots = beam_state.totals.shape[-1]
        same = torch.arange(candidates.parents.shape[-1], device=source.device).clamp(max=slots - 1)
        from_places = torch.where(candidates.ended | candidates.active, candidates.parents, same)
        parents = first_rows * slots + from_places  # rows of the parents
        host = torch.cat([parents.flatten(1), candidates.ended.flatten(1), is_over[:, None]], 1).tolist()
        places = groups * candidates.tokens.shape[-1]
        ended = [(row, place) for row, values in enumerate(host) for place in range(places) if values[places + place]]
        if ended:
            index = torch.tensor([row * places + place for row, place in ended], device=source.device)
            logs = candidates.log_probabilities.flatten()[index]
            search.finish([host[row][place] for row, place in ended], logs, ends.flatten()[index])
        done = [bool(values[-1]) for values in host]
        if all(done):
            break
        stay = remaining(done)
        search.keep(stay, [parent for row in stay for parent in host[row][:places]])
        inactive = ~candidates.active | is_over[:, None, None]
        beam_state = beam_state._replace(totals=candidates.totals.masked_fill(inactive, NEVER))
        if len(stay) < len(host):
            kept = torch.tensor(stay, device=source.device)
            beam_state, candidates = tree_map(lambda x, kept=kept: x.index_select(0, kept), (beam_state, candidates))  # type: ignore[misc]
        search.append(candidates.tokens.flatten(), candidates.log_probabilities.flatten())
    if trees is not None:
        trees.extend(batch_trees)
    by_sentence = [[hypothesis for _, hypothesis in pairs] for pairs in search.results(len(source))]
    return [_distinct(hypotheses)[:results] for hypotheses in by_sentence]


def _record(trees: list[Tree], candidates: Candidates, sentences: list[int], branches: int) -> None:
    """Add the branches of a step; every group had this many `branches` in the step before, 0 in the first."""
    kept = candidates.ended | candidates.active
    rows = zip(*(x.tolist() for x in (candidates.parents, candidates.tokens, candidates.totals, kept)), strict=True)
    for sentence, groups in zip(sentences, rows, strict=True):
        trees[sentence].append(
            [
                Branch(group * branches + parent if branches else -1, token, total, is_kept)
                for group, values in enumerate(zip(*groups, strict=True))
                for parent, token, total, is_kept in zip(*values, strict=True)
            ]
        )


def _distinct(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    """Remove duplicates; best first."""
    distinct: dict[tuple[int, ...], Hypothesis] = {}
    for hypothesis in sorted(hypotheses, key=lambda hypothesis: -hypothesis.score):
        distinct.setdefault(tuple(hypothesis.tokens), hypothesis)
    return list(distinct.values())


def _start_beam(
    source: Tensor, mask: Tensor | None, constraints: Constraints, places: tuple[int, int], results: int
) -> Beam:
    (groups, width), rows, device = places, len(source), source.device
    return Beam(
        totals=torch.zeros(rows, groups, 1, device=device),
        places=torch.full((rows, groups), width, device=device),
        best=torch.full((rows, results), NEVER, device=device),
        max_length=torch.tensor([1.0 + constraints.max_length(row) for row in range(rows)], device=device),
        source_mask=torch.ones_like(source, dtype=torch.bool) if mask is None else mask,
    )


# Choosing candidates.


def _choose(
    scores: Tensor, beam_state: Beam, end: int, width: int, diversity_penalty: float, *, spare: int
) -> Candidates:
    """The best `width` continuations of each group, best first, and `spare` more for the tree."""
    sentences, groups, slots = beam_state.totals.shape
    if diversity_penalty:
        logs, tokens = _choose_diverse(scores.view(sentences, groups, -1), diversity_penalty, spare=spare)
        totals, parents = beam_state.totals + logs, torch.zeros_like(tokens)
    else:
        # The best candidates are among the best of each row, so the sums are not computed for all V.
        logs, tokens = (x.view(sentences, 1, slots, -1) for x in _topk(scores, width + spare))
        options = logs.shape[-1]
        totals, where = (beam_state.totals[..., None] + logs).flatten(2).topk(min(width + spare, slots * options))
        parents, logs, tokens = where // options, logs.flatten(2).gather(2, where), tokens.flatten(2).gather(2, where)
    rank = torch.arange(totals.shape[-1], device=totals.device)
    kept = (rank < beam_state.places[..., None]) & (totals > NEVER)
    ended = kept & (tokens == end)
    return Candidates(totals, logs, parents, tokens, ended, kept & ~ended)


def _topk(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    values, columns = scores.topk(min(count, scores.shape[1]))
    return values, columns


def _choose_diverse(scores: Tensor, diversity_penalty: float, *, spare: int) -> tuple[Tensor, Tensor]:
    """(B, G, c) log-probabilities and tokens: the best of each group, penalised for tokens of earlier groups."""
    times = torch.zeros_like(scores[:, 0])
    logs, tokens = [], []
    for group in scores.unbind(1):
        _, ids = _topk(group - diversity_penalty * times, 1 + spare)
        logs.append(group.gather(1, ids))
        tokens.append(ids)
        times.scatter_add_(1, ids[:, :1], torch.ones_like(times[:, :1]))
    return torch.stack(logs, 1), torch.stack(tokens, 1)


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


# Ending.


def _score(
    candidates: Candidates,
    coverage: Tensor | None,
    beam_state: Beam,
    length: int,
    length_penalty: float,
    coverage_penalty: float,
) -> Tensor:
    """(B, G, c): the scores of candidates that end, -inf for all others."""
    scores: Tensor = candidates.totals / length**length_penalty
    if coverage is not None:
        coverage = coverage.view(*beam_state.totals.shape, -1)  # (R, S) -> (B, G, n, S)
        coverage = coverage.gather(2, candidates.parents[..., None].expand(-1, -1, -1, coverage.shape[-1]))
        tiny = torch.finfo(coverage.dtype).tiny
        logs = coverage.clamp(tiny, 1.0).log().masked_fill(~beam_state.source_mask[:, None, None], 0.0)
        scores = scores + coverage_penalty * logs.sum(-1)
    return scores.masked_fill(~candidates.ended, NEVER)


def _cannot_improve(candidates: Candidates, beam_state: Beam, length: int, length_penalty: float) -> Tensor:
    """(B,): whether no active hypothesis can still beat the N-th best ended one.

    A log-probability s < 0 only falls with every further token, and the coverage penalty only subtracts. So an active
    hypothesis with s ends with at most s / l ** length_penalty for some length l from the next to the maximum; that is
    largest at the maximum length if the penalty favours length (above 0), and at the next length if it does not.
    """
    active = candidates.totals.masked_fill(~candidates.active, NEVER).flatten(1).amax(1)
    lengths = beam_state.max_length if length_penalty > 0 else torch.full_like(beam_state.max_length, length + 1)
    bound: Tensor = active / lengths.pow(length_penalty)
    return beam_state.best[:, -1] >= bound
