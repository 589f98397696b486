"""Beam search: the most probable hypotheses side by side.

B sentences still searched, G groups, n hypotheses of a group, R = B·G·n rows, c candidates, N results, S source tokens,
V vocabulary.

A hypothesis that ends keeps its place in the beam: a search for W hypotheses has W - 1 living ones after the first end,
and is over after the W-th. Ends and continuations compete for the places alike, so a beam of one is greedy search.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from regard.decoding.constraints import NEVER, Rules
from regard.decoding.search import (
    Begun,
    Harvest,
    Hypothesis,
    Models,
    Past,
    as_list,
    begin,
    leave,
    move,
    staying,
    step,
    top,
    write,
)
from regard.errors import InputError
from regard.models.contract import tree_map


class Branch(NamedTuple):
    """One candidate of one step, as a drawing of the search needs it."""

    parent: int
    """Which branch of the step before it continues; -1 in the first step."""
    token: int
    log_probability: float
    """Of all tokens up to here."""
    kept: bool
    """It went on, or ended and is among the hypotheses."""


Tree = list[list[Branch]]
"""All branches of a sentence, step by step."""


class Beam(NamedTuple):
    """What the search knows of its sentences, one row each."""

    totals: Tensor
    """(B, G, n) log-probabilities of the living; -inf in a free place."""
    places: Tensor
    """(B, G) places not taken by ended hypotheses."""
    best: Tensor
    """(B, N) scores of the best ended ones, best first."""
    longest: Tensor
    """(B,) tokens a hypothesis can have, the end counted."""
    real: Tensor
    """(B, S) source tokens that are no padding."""


class Candidates(NamedTuple):
    """The best continuations of a step: (B, G, c) each."""

    totals: Tensor
    steps: Tensor
    parents: Tensor
    tokens: Tensor
    ended: Tensor
    alive: Tensor


@torch.inference_mode()
def beam(
    models: Models, source: Tensor, first: Tensor, mask: Tensor | None = None, *, rules: Rules, beams: int,
    results: int, length_penalty: float, coverage_penalty: float, diversity: float, trees: list[Tree] | None = None,
    begun: list[Begun] | None = None,
) -> list[list[Hypothesis]]:  # fmt: skip
    """The `results` best hypotheses found for each sentence of (B, S), best first; `first` is as for `greedy`.

    The score is log-probability / length ** length_penalty, the end counted, plus coverage_penalty times the sum of the
    logarithms of how much attention each source token got, at most 1 (Wu et al., 2016). With `diversity` every
    hypothesis is a group of its own, and a token costs it that much for every group before it that took the same in the
    same step (Vijayakumar et al., 2018); hypotheses found twice are given once. A list passed as `trees` gets the tree
    of every sentence.
    """
    _check(beams, results, coverage_penalty, diversity)
    if not len(source):
        return []
    models, harvest, drawing = as_list(models), Harvest(rules), Drawing(trees, len(source))
    groups, width = (beams, 1) if diversity else (1, beams)
    state = begin(models, source, first, mask, rules, begun, watch=rules.watches or coverage_penalty > 0)
    state = move(state, [row for row in range(len(source)) for _ in range(groups)])
    now = _begin(source, mask, rules, (groups, width), results)
    sentences, done, tokens = list(range(len(source))), [False] * len(source), first.repeat_interleave(groups)
    for place in range(1 + max(rules.limit(sentence) for sentence in sentences)):
        scores, state = step(models, tokens[:, None], state, rules, sentences)
        found = _choose(scores, now, rules.end, width, diversity, spare=width if drawing.wanted else 0)
        drawing.branch(found, sentences, done)
        offered = found.tokens.shape[-1]
        found, seats = _seat(found, now.totals.shape[-1], width)
        drawing.seat(seats, sentences, offered)

        ends = _score(found, state.past, now, place + 1, length_penalty, coverage_penalty)
        best = torch.cat([now.best, ends.flatten(1)], 1).topk(results).values
        now = now._replace(places=now.places - found.ended.sum(-1), best=best)
        over = ~found.alive.flatten(1).any(1)
        if groups == 1:  # several groups may have found the same: how many different ones is known at the end
            over |= _settled(found, now, place + 1, length_penalty)
        rows = _rows(found, now.totals.shape[-1])
        now = now._replace(totals=found.totals.masked_fill(~found.alive | over[:, None, None], NEVER))

        # All that the host needs to know of this step, in one transfer.
        told = torch.cat([rows.flatten(1), found.ended.flatten(1), over[:, None]], 1).tolist()
        _gather(harvest, told, found, ends, state.past, sentences)
        done = [was or bool(row[-1]) for was, row in zip(done, told, strict=True)]
        if all(done):
            break
        stay = staying(done)
        from_rows = [row for sentence in stay for row in told[sentence][: rows[0].numel()]]
        if len(stay) < len(done):
            state, kept = leave(state, stay, from_rows), torch.tensor(stay, device=rows.device)
            now, found = tree_map(lambda x, kept=kept: x.index_select(0, kept), (now, found))  # type: ignore[misc]
            sentences, done = [sentences[row] for row in stay], [done[row] for row in stay]
        else:
            state = move(state, from_rows)
        tokens = found.tokens.flatten()
        state = state._replace(past=write(state.past, tokens, found.steps.flatten()))
    return [_different(hypotheses)[:results] for hypotheses in harvest.collect(len(source))]


def _different(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    """Each once, best first."""
    found: dict[tuple[int, ...], Hypothesis] = {}
    for hypothesis in sorted(hypotheses, key=lambda hypothesis: -hypothesis.score):
        found.setdefault(tuple(hypothesis.tokens), hypothesis)
    return list(found.values())


def _check(beams: int, results: int, coverage_penalty: float, diversity: float) -> None:
    if not 1 <= results <= beams:
        raise InputError(f"{results} results were asked of {beams} beams; it must be 1 to {beams}")
    if not coverage_penalty >= 0:
        raise InputError(f"the coverage penalty ({coverage_penalty}) must be at least 0")
    if not diversity >= 0:
        raise InputError(f"the diversity ({diversity}) must be at least 0")


def _begin(source: Tensor, mask: Tensor | None, rules: Rules, places: tuple[int, int], results: int) -> Beam:
    (groups, width), rows, device = places, len(source), source.device
    return Beam(
        totals=torch.zeros(rows, groups, 1, device=device),
        places=torch.full((rows, groups), width, device=device),
        best=torch.full((rows, results), NEVER, device=device),
        longest=torch.tensor([1.0 + rules.limit(row) for row in range(rows)], device=device),
        real=torch.ones_like(source, dtype=torch.bool) if mask is None else mask,
    )


# Choosing.


def _choose(scores: Tensor, now: Beam, end: int, width: int, diversity: float, *, spare: int) -> Candidates:
    """The best `width` continuations of each group, best first, and `spare` more to look at."""
    sentences, groups, slots = now.totals.shape
    if diversity:
        steps, tokens = _apart(scores.view(sentences, groups, -1), diversity, spare=spare)
        totals, parents = now.totals + steps, torch.zeros_like(tokens)
    else:
        # The best of all are among the best of each: nothing is added to, or sorted out of, all V.
        steps, tokens = (x.view(sentences, 1, slots, -1) for x in top(scores, width + spare))
        options = steps.shape[-1]
        totals, where = (now.totals[..., None] + steps).flatten(2).topk(min(width + spare, slots * options))
        parents, steps, tokens = where // options, steps.flatten(2).gather(2, where), tokens.flatten(2).gather(2, where)
    rank = torch.arange(totals.shape[-1], device=totals.device)
    kept = (rank < now.places[..., None]) & (totals > NEVER)
    ended = kept & (tokens == end)
    return Candidates(totals, steps, parents, tokens, ended, kept & ~ended)


def _apart(scores: Tensor, diversity: float, *, spare: int) -> tuple[Tensor, Tensor]:
    """The best tokens of groups of one hypothesis, each dearer the more groups before took it: (B, G, c) twice."""
    taken = torch.zeros_like(scores[:, 0])
    steps, tokens = [], []
    for group in scores.unbind(1):
        _, ids = top(group - diversity * taken, 1 + spare)
        steps.append(group.gather(1, ids))
        tokens.append(ids)
        taken.scatter_add_(1, ids[:, :1], torch.ones_like(taken[:, :1]))
    return torch.stack(steps, 1), torch.stack(tokens, 1)


def _seat(found: Candidates, slots: int, width: int) -> tuple[Candidates, Tensor]:
    """The candidates in an order in which as many as can be stand where their parents stood, and that order.

    What stands where its parent stood needs no copy of the past, and most do.
    """
    found = Candidates(*(x[..., :width] for x in found))
    parents, alive = found.parents, found.alive
    places = parents.shape[-1]
    if slots != places or places == 1:
        return found, torch.arange(places, device=parents.device).expand_as(parents)
    earlier = torch.ones(places, places, dtype=torch.bool, device=parents.device).tril(-1)
    twins = (parents[..., :, None] == parents[..., None, :]) & alive[..., None, :] & earlier
    heir = alive & ~twins.any(-1)
    taken = torch.zeros_like(parents).scatter_add_(-1, parents, heir.long())
    free = taken.argsort(stable=True)  # free places first
    rank = (~heir).cumsum(-1) - 1
    order = torch.where(heir, parents, free.gather(-1, rank.clamp(min=0))).argsort(-1)
    return Candidates(*(x.gather(-1, order) for x in found)), order


def _rows(found: Candidates, slots: int) -> Tensor:
    """(B, G, c): the row whose past each candidate continues; where there is none, the row it stands in."""
    sentences, groups, places = found.parents.shape
    device = found.parents.device
    base = torch.arange(sentences * groups, device=device).view(sentences, groups, 1) * slots
    own = torch.arange(places, device=device).clamp(max=slots - 1)
    return base + torch.where(found.ended | found.alive, found.parents, own)


# Ending.


def _score(
    found: Candidates, past: Past, now: Beam, length: int, length_penalty: float, coverage_penalty: float
) -> Tensor:
    """(B, G, c): the scores of those that end, -inf for all others."""
    scores: Tensor = found.totals / length**length_penalty
    if coverage_penalty:
        assert past.coverage is not None
        covered = past.coverage.view(*now.totals.shape, -1)  # (R, S) -> (B, G, n, S)
        covered = covered.gather(2, found.parents[..., None].expand(-1, -1, -1, covered.shape[-1]))
        least = torch.finfo(covered.dtype).tiny
        logs = covered.clamp(least, 1.0).log().masked_fill(~now.real[:, None, None], 0.0)
        scores = scores + coverage_penalty * logs.sum(-1)
    return scores.masked_fill(~found.ended, NEVER)


def _settled(found: Candidates, now: Beam, length: int, length_penalty: float) -> Tensor:
    """(B,): no living hypothesis can still beat the N-th best ended one, whatever follows.

    A log-probability s < 0 only falls with every further token, and coverage only takes away. So a living hypothesis
    with s ends with at most s / l ** length_penalty for some length l from the next to the longest; that is largest at
    the longest where the penalty favours length (above 0), and at the next length where it does not.
    """
    living = found.totals.masked_fill(~found.alive, NEVER).flatten(1).amax(1)
    lengths = now.longest if length_penalty > 0 else torch.full_like(now.longest, length + 1)
    bound: Tensor = living / lengths.pow(length_penalty)
    return now.best[:, -1] >= bound


def _gather(
    harvest: Harvest, told: list[list[int]], found: Candidates, ends: Tensor, past: Past, sentences: list[int]
) -> None:
    """Bring in what ended in this step."""
    places = len(told[0]) // 2
    ended = [(row, i) for row, values in enumerate(told) for i in range(places) if values[places + i]]
    if not ended:
        return
    device = ends.device
    here = torch.tensor([row * places + i for row, i in ended], device=device)
    parent = torch.tensor([told[row][i] for row, i in ended], device=device)
    steps = torch.cat([past.steps[parent], found.steps.flatten()[here, None]], 1)
    harvest.add([sentences[row] for row, _ in ended], past.tokens[parent], steps, ends.flatten()[here])


class Drawing:
    """The trees of a search, kept only where they are wanted."""

    def __init__(self, trees: list[Tree] | None, sentences: int) -> None:
        self.wanted = trees is not None
        self._trees: list[Tree] = [[] for _ in range(sentences)]
        self._names: list[list[int]] = [[] for _ in range(sentences)]  # which branch stands in which place
        if trees is not None:
            trees.extend(self._trees)

    def branch(self, found: Candidates, sentences: list[int], done: list[bool]) -> None:
        """One step more for every sentence still searched."""
        if not self.wanted:
            return
        kept = found.ended | found.alive
        rows = zip(*(x.tolist() for x in (found.parents, found.tokens, found.totals, kept)), strict=True)
        for sentence, is_done, groups in zip(sentences, done, rows, strict=True):
            if is_done:
                continue
            names, branches = self._names[sentence], []
            before = len(names) // len(groups[0])
            for group, candidates in enumerate(zip(*groups, strict=True)):
                for parent, token, total, is_kept in zip(*candidates, strict=True):
                    name = names[group * before + parent] if names else -1
                    branches.append(Branch(name, token, total, is_kept))
            self._trees[sentence].append(branches)

    def seat(self, order: Tensor, sentences: list[int], offered: int) -> None:
        """Where the branches of this step stand now."""
        if not self.wanted:
            return
        for sentence, groups in zip(sentences, order.tolist(), strict=True):
            self._names[sentence] = [group * offered + i for group, seats in enumerate(groups) for i in seats]
