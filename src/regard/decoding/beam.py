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
from regard.decoding.search import (
    Encoded,
    FinishedHypotheses,
    History,
    Hypothesis,
    Models,
    append,
    keep_sentences,
    prepare,
    remaining,
    reorder_rows,
    start,
    step,
    topk,
)
from regard.errors import InputError
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
    _check(beams, results, coverage_penalty, diversity_penalty)
    if not len(source):
        return []
    models, hypotheses, recorder = prepare(models), FinishedHypotheses(constraints), TreeRecorder(trees, len(source))
    groups, width = (beams, 1) if diversity_penalty else (1, beams)
    state = start(models, source, first, mask, constraints, encoded, coverage=coverage_penalty > 0)
    state = reorder_rows(state, [row for row in range(len(source)) for _ in range(groups)])
    beam_state = _start_beam(source, mask, constraints, (groups, width), results)
    sentences, done, tokens = list(range(len(source))), [False] * len(source), first.repeat_interleave(groups)
    for length in range(1, 2 + max(constraints.max_length(sentence) for sentence in sentences)):
        scores, state = step(models, tokens[:, None], state, constraints, sentences)
        spare = width if recorder.enabled else 0
        candidates = _choose(scores, beam_state, constraints.end, width, diversity_penalty, spare=spare)
        recorder.add(candidates, sentences, done)
        count = candidates.tokens.shape[-1]
        candidates, order = _place(candidates, beam_state.totals.shape[-1], width)
        recorder.reorder(order, sentences, count)

        ends = _score(candidates, state.past, beam_state, length, length_penalty, coverage_penalty)
        best = torch.cat([beam_state.best, ends.flatten(1)], 1).topk(results).values
        beam_state = beam_state._replace(places=beam_state.places - candidates.ended.sum(-1), best=best)
        is_over = ~candidates.active.flatten(1).any(1)
        if groups == 1:  # groups may find duplicates, which are counted only at the end
            is_over |= _cannot_improve(candidates, beam_state, length, length_penalty)
        rows = _parent_rows(candidates, beam_state.totals.shape[-1])
        beam_state = beam_state._replace(
            totals=candidates.totals.masked_fill(~candidates.active | is_over[:, None, None], NEVER)
        )

        # One device-to-host copy for all that Python needs of this step.
        host = torch.cat([rows.flatten(1), candidates.ended.flatten(1), is_over[:, None]], 1).tolist()
        _add_ended(hypotheses, host, candidates, ends, state.past, sentences)
        done = [was_done or bool(row[-1]) for was_done, row in zip(done, host, strict=True)]
        if all(done):
            break
        stay = remaining(done)
        from_rows = [row for sentence in stay for row in host[sentence][: rows[0].numel()]]
        if len(stay) < len(done):
            state, kept = keep_sentences(state, stay, from_rows), torch.tensor(stay, device=rows.device)
            beam_state, candidates = tree_map(lambda x, kept=kept: x.index_select(0, kept), (beam_state, candidates))  # type: ignore[misc]
            sentences, done = [sentences[row] for row in stay], [done[row] for row in stay]
        else:
            state = reorder_rows(state, from_rows)
        tokens = candidates.tokens.flatten()
        state = state._replace(past=append(state.past, tokens, candidates.log_probabilities.flatten()))
    return [_distinct(finished)[:results] for finished in hypotheses.collect(len(source))]


def _distinct(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    """Remove duplicates; best first."""
    distinct: dict[tuple[int, ...], Hypothesis] = {}
    for hypothesis in sorted(hypotheses, key=lambda hypothesis: -hypothesis.score):
        distinct.setdefault(tuple(hypothesis.tokens), hypothesis)
    return list(distinct.values())


def _check(beams: int, results: int, coverage_penalty: float, diversity_penalty: float) -> None:
    if not 1 <= results <= beams:
        raise InputError(f"{results} results were requested from {beams} beams; it must be 1 to {beams}")
    if not coverage_penalty >= 0:
        raise InputError(f"the coverage penalty ({coverage_penalty}) must be at least 0")
    if not diversity_penalty >= 0:
        raise InputError(f"the diversity penalty ({diversity_penalty}) must be at least 0")


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
        logs, tokens = (x.view(sentences, 1, slots, -1) for x in topk(scores, width + spare))
        options = logs.shape[-1]
        totals, where = (beam_state.totals[..., None] + logs).flatten(2).topk(min(width + spare, slots * options))
        parents, logs, tokens = where // options, logs.flatten(2).gather(2, where), tokens.flatten(2).gather(2, where)
    rank = torch.arange(totals.shape[-1], device=totals.device)
    kept = (rank < beam_state.places[..., None]) & (totals > NEVER)
    ended = kept & (tokens == end)
    return Candidates(totals, logs, parents, tokens, ended, kept & ~ended)


def _choose_diverse(scores: Tensor, diversity_penalty: float, *, spare: int) -> tuple[Tensor, Tensor]:
    """(B, G, c) log-probabilities and tokens: the best of each group, penalised for tokens of earlier groups."""
    times = torch.zeros_like(scores[:, 0])
    logs, tokens = [], []
    for group in scores.unbind(1):
        _, ids = topk(group - diversity_penalty * times, 1 + spare)
        logs.append(group.gather(1, ids))
        tokens.append(ids)
        times.scatter_add_(1, ids[:, :1], torch.ones_like(times[:, :1]))
    return torch.stack(logs, 1), torch.stack(tokens, 1)


def _place(candidates: Candidates, slots: int, width: int) -> tuple[Candidates, Tensor]:
    """Order the candidates so that as many as possible are in the row of their parent; return them and the order.

    A candidate in the row of its parent needs no copy of the KV cache.
    """
    candidates = Candidates(*(x[..., :width] for x in candidates))
    parents, active = candidates.parents, candidates.active
    places = parents.shape[-1]
    if slots != places or places == 1:
        return candidates, torch.arange(places, device=parents.device).expand_as(parents)
    earlier = torch.ones(places, places, dtype=torch.bool, device=parents.device).tril(-1)
    siblings = (parents[..., :, None] == parents[..., None, :]) & active[..., None, :] & earlier
    stays = active & ~siblings.any(-1)
    taken = torch.zeros_like(parents).scatter_add_(-1, parents, stays.long())
    free = taken.argsort(stable=True)  # free places first
    rank = (~stays).cumsum(-1) - 1
    order = torch.where(stays, parents, free.gather(-1, rank.clamp(min=0))).argsort(-1)
    return Candidates(*(x.gather(-1, order) for x in candidates)), order


def _parent_rows(candidates: Candidates, slots: int) -> Tensor:
    """(B, G, c): the row of each candidate's parent; for a free place, the row itself."""
    sentences, groups, places = candidates.parents.shape
    device = candidates.parents.device
    base = torch.arange(sentences * groups, device=device).view(sentences, groups, 1) * slots
    same = torch.arange(places, device=device).clamp(max=slots - 1)
    return base + torch.where(candidates.ended | candidates.active, candidates.parents, same)


# Ending.


def _score(
    candidates: Candidates,
    history: History,
    beam_state: Beam,
    length: int,
    length_penalty: float,
    coverage_penalty: float,
) -> Tensor:
    """(B, G, c): the scores of candidates that end, -inf for all others."""
    scores: Tensor = candidates.totals / length**length_penalty
    if coverage_penalty:
        assert history.coverage is not None
        coverage = history.coverage.view(*beam_state.totals.shape, -1)  # (R, S) -> (B, G, n, S)
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


def _add_ended(
    hypotheses: FinishedHypotheses,
    host: list[list[int]],
    candidates: Candidates,
    ends: Tensor,
    history: History,
    sentences: list[int],
) -> None:
    """Add the hypotheses that ended in this step."""
    places = len(host[0]) // 2
    ended = [(row, place) for row, values in enumerate(host) for place in range(places) if values[places + place]]
    if not ended:
        return
    device = ends.device
    index = torch.tensor([row * places + place for row, place in ended], device=device)
    parent = torch.tensor([host[row][place] for row, place in ended], device=device)
    last = candidates.log_probabilities.flatten()[index, None]
    logs = torch.cat([history.log_probabilities[parent], last], 1)
    hypotheses.add([sentences[row] for row, _ in ended], history.tokens[parent], logs, ends.flatten()[index])


class TreeRecorder:
    """Records the trees of a search, if requested."""

    def __init__(self, trees: list[Tree] | None, sentences: int) -> None:
        self.enabled = trees is not None
        self._trees: list[Tree] = [[] for _ in range(sentences)]
        self._branches: list[list[int]] = [[] for _ in range(sentences)]  # the branch in each place of the beam
        if trees is not None:
            trees.extend(self._trees)

    def add(self, candidates: Candidates, sentences: list[int], done: list[bool]) -> None:
        """Add the branches of one step for every sentence that is not done."""
        if not self.enabled:
            return
        kept = candidates.ended | candidates.active
        tensors = (candidates.parents, candidates.tokens, candidates.totals, kept)
        rows = zip(*(x.tolist() for x in tensors), strict=True)
        for sentence, is_done, groups in zip(sentences, done, rows, strict=True):
            if is_done:
                continue
            before, step_branches = self._branches[sentence], []
            width = len(before) // len(groups[0])
            for group, values in enumerate(zip(*groups, strict=True)):
                for parent, token, total, is_kept in zip(*values, strict=True):
                    branch = before[group * width + parent] if before else -1
                    step_branches.append(Branch(branch, token, total, is_kept))
            self._trees[sentence].append(step_branches)

    def reorder(self, order: Tensor, sentences: list[int], count: int) -> None:
        """Record the new places of the branches of this step; each group had `count` of them."""
        if not self.enabled:
            return
        for sentence, groups in zip(sentences, order.tolist(), strict=True):
            self._branches[sentence] = [group * count + i for group, places in enumerate(groups) for i in places]
