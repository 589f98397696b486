"""The kernels of a decoding step: they give what torch gives, on a GPU or interpreted."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="there is no Triton on this system")

from regard.attention import multihead
from regard.attention.core import attend
from regard.attention.multihead import Slots
from regard.decoding import device
from regard.kernels import decoding
from regard.models import tree_map
from tests.decoding.small import Batch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def made_slots(rows: int, groups: int, position: int, capacity: int, size: int) -> Slots:
    """Slots of the hypotheses of one sentence, all at one position."""
    key, value = (torch.randn(rows, groups, capacity, size, device=DEVICE) for _ in range(2))
    table = torch.randint(rows, (rows, capacity), device=DEVICE, dtype=torch.int32)
    positions = torch.full((rows,), position, device=DEVICE)
    own = torch.arange(rows, device=DEVICE)
    table[own, positions] = own.int()
    new = (torch.randn(rows, groups, 1, size, device=DEVICE) for _ in range(2))
    return Slots(key, value, table, positions, *new)


@pytest.mark.parametrize(("heads", "groups"), [(2, 2), (4, 2)])
@pytest.mark.parametrize(("position", "capacity"), [(0, 1), (8, 9), (50, 70)])
def test_attention_through_the_table_is_that_of_gathered_keys(
    heads: int, groups: int, position: int, capacity: int
) -> None:
    rows, size = 6, 16
    made = made_slots(rows, groups, position, capacity, size)
    query = torch.randn(rows, heads, 1, size, device=DEVICE)
    copied = Slots(*(x.clone() for x in made))
    ours = decoding.attend_to_slots(query, made, scale=0.25)
    key, value, mask = multihead.gather(copied)
    key, value = (x.repeat_interleave(heads // groups, 1) for x in (key, value))
    expected, _ = attend(query, key, value, "scaled_dot", mask)
    assert torch.allclose(ours, expected, atol=1e-5)
    assert torch.equal(made.key, copied.key)
    assert torch.equal(made.value, copied.value)


def chosen(
    logits: Tensor, allowed: Tensor, start: device.SearchState, settings: device.SearchSettings, *, kernels: bool
) -> tuple[Tensor, ...]:
    """Parents and tokens, the beam and the history after a step."""
    state = tree_map(torch.clone, start)
    if kernels:
        best = decoding.best_tokens(logits, allowed, state.inputs.forced, state.step, beams=settings.beams)
        divisors = state.inputs.divisors, state.inputs.final_divisors
        rows = decoding.choose(best, *divisors, state.step, state.beam, state.history, end=settings.end)
        return *rows, *state.beam, *state.history
    parents, tokens, beam = device.choose(logits, allowed, state, settings)
    return parents, tokens, *beam, *state.history


@pytest.mark.parametrize("vocabulary", [7, 1500])
@pytest.mark.parametrize(("beams", "results"), [(1, 1), (2, 1), (4, 3)])
def test_a_step_chooses_what_torch_chooses(beams: int, results: int, vocabulary: int) -> None:
    sentences, end = 5, 2
    settings = device.SearchSettings(beams, results, end, 0, 0.7)
    batch = Batch("transformer", vocabulary=vocabulary, lengths=(4,) * sentences)
    constraints = batch.constraints(max_length=3, forbidden=(0, 1, 5), prefixes=[[], [5], [4, 6], [], []])
    inputs = device.prepare([batch.model.float()], *batch.data, constraints, settings, 4)
    state = tree_map(lambda x: x.to(DEVICE), device.begin([batch.model], inputs, settings))
    for step in range(4):
        logits = 3 * torch.randn(sentences * beams, vocabulary, device=DEVICE)
        logits[:, end] += step
        ours, theirs = (
            chosen(logits, state.inputs.allowed, state, settings, kernels=kernels) for kernels in (True, False)
        )
        active = theirs[2] > float("-inf")  # the others hold no hypothesis
        assert torch.equal(active, ours[2] > float("-inf"))
        for one, other in zip(ours[:2], theirs[:2], strict=True):
            assert torch.equal(one[active.flatten()], other[active.flatten()])
        for one, other in zip(ours[2:4], theirs[2:4], strict=True):
            assert torch.allclose(one, other, atol=1e-5)
        assert torch.allclose(ours[4].sort().values, theirs[4].sort().values, atol=1e-5)
        ended = theirs[8][:, step] > float("-inf")
        assert torch.allclose(ours[8], theirs[8], atol=1e-5)
        for one, other in zip(ours[5:8], theirs[5:8], strict=True):
            kept = active | ended
            assert torch.allclose(one[:, step][kept], other[:, step][kept], atol=1e-5)
        beam, history = device.Beam(*theirs[2:5]), device.History(*theirs[5:])
        state = state._replace(step=state.step + 1, beam=beam, history=history)
    assert (state.history.scores > float("-inf")).any()


def test_logits_that_are_not_finite_are_never_chosen() -> None:
    logits = torch.randn(2, 10, device=DEVICE)
    logits[0, 3] = float("nan")
    settings = device.SearchSettings(1, 1, 2, 0, 1.0)
    batch = Batch("transformer", vocabulary=10, lengths=(4, 4))
    inputs = device.prepare([batch.model.float()], *batch.data, batch.constraints(), settings, 7)
    state = tree_map(lambda x: x.to(DEVICE), device.begin([batch.model], inputs, settings))
    totals = chosen(logits, state.inputs.allowed, state, settings, kernels=True)[2]
    assert (totals > float("-inf")).tolist() == [[False], [True]]
