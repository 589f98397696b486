"""The search that stays on the device finds what the search on the host finds."""

from __future__ import annotations

import dataclasses
from itertools import chain
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.config import DecodeConfig
from regard.decoding import Constraints, Hypothesis, SearchOptions, TorchEngine, beam
from regard.decoding import device as module
from regard.decoding import graphs as graphs_module
from regard.decoding.device import device_beam
from regard.decoding.graphs import Graphs, copy_into, fill_empty
from regard.decoding.search import NotFiniteError
from regard.memory import free_memory
from regard.models import tree_map
from tests.decoding.small import NAMES, Batch, best, shaken
from tests.models.families import GENERATORS

LENGTHS = (6, 3, 8, 5)
PREFIXES = [[3, 4], [], [5], []]
SETTINGS: list[tuple[int, int, float]] = [(1, 1, 1.0), (4, 1, 1.0), (4, 4, 0.0), (3, 2, 0.6), (12, 5, 1.0)]
"""Beams, results and length penalty."""


def eagerly(
    models: list[Any], source: Tensor, first: Tensor, mask: Tensor, *, constraints: Constraints, **options: Any
) -> list[list[Hypothesis]]:
    """The search of `device_beam` with steps that are not captured."""
    settings = module.SearchSettings(end=constraints.end, min_length=constraints.min_length, **options)
    steps = 1 + max(map(constraints.max_length, range(len(source))))
    with torch.inference_mode():
        inputs = module.prepare(models, source, first, mask, constraints, settings, steps)
        state = module.begin(models, inputs, settings)
        for step in range(steps):
            state = module.advance(models, state, settings)
            if step % module.CHECK_EVERY == 1 and not module.is_active(state):
                break
    return module.results_of(state, constraints, steps)


def both(
    batch: Batch, constraints: Constraints, beams: int, results: int, penalty: float
) -> tuple[list[list[Hypothesis]], list[list[Hypothesis]]]:
    options: dict[str, Any] = {
        "constraints": constraints, "beams": beams, "results": results, "length_penalty": penalty,
    }  # fmt: skip
    return eagerly([batch.model], *batch.data, **options), beam(
        batch.model, *batch.data, coverage_penalty=0.0, **options
    )


def check_equal(ours: list[list[Hypothesis]], theirs: list[list[Hypothesis]]) -> None:
    assert [[h.tokens for h in row] for row in ours] == [[h.tokens for h in row] for row in theirs]
    for one, other in zip(chain(*ours), chain(*theirs), strict=True):
        assert one.finished == other.finished
        assert one.score == pytest.approx(other.score)
        assert one.log_probabilities == pytest.approx(other.log_probabilities)


@pytest.mark.parametrize("name", GENERATORS)
def test_every_family_with_every_kind_of_constraint(name: str) -> None:
    batch = Batch(name)
    for number, (beams, results, penalty) in enumerate(SETTINGS):
        values = [{}, {"min_length": 3}, {"prefixes": PREFIXES}][number % 3]
        constraints = dataclasses.replace(batch.constraints(**values), max_lengths=LENGTHS)
        check_equal(*both(batch, constraints, beams, results, penalty))


@pytest.mark.parametrize("seed", range(12))
def test_random_models_and_settings(seed: int) -> None:
    torch.manual_seed(seed)
    numbers = [int(x) for x in torch.randint(1, 7, (5,))]
    name = NAMES[seed % len(NAMES)]
    batch = Batch(name, vocabulary=6 + numbers[0], shake=numbers[1] / 6)
    constraints = batch.constraints(max_length=2 * numbers[2], min_length=numbers[3] - 1, forbidden=(0, 1, 3))
    check_equal(*both(batch, constraints, numbers[4], 1 + numbers[4] // 3, numbers[0] / 4))


def test_an_ensemble() -> None:
    batch = Batch("transformer")
    models = [batch.model, Batch("rnn-dot-output-gru").model]
    options: dict[str, Any] = {
        "constraints": batch.constraints(), "beams": 3, "results": 3, "length_penalty": 1.0,
    }  # fmt: skip
    check_equal(eagerly(models, *batch.data, **options), beam(models, *batch.data, coverage_penalty=0.0, **options))


def test_rows_and_columns_that_fill_the_batch_change_nothing() -> None:
    batch = Batch("transformer", lengths=(5, 3, 1, 4, 2))
    constraints = batch.constraints()
    expected = eagerly([batch.model], *batch.data, constraints=constraints, beams=3, results=2, length_penalty=1.0)
    settings = module.SearchSettings(3, 2, constraints.end, 0, 1.0)
    padded = module.pad_batch(*batch.data, limit=7)
    assert padded[0].shape == (6, 7)
    inputs = module.prepare([batch.model], *padded, constraints, settings, capacity=32)
    state = module.begin([batch.model], inputs, settings)
    for _ in range(7):
        state = module.advance([batch.model], state, settings)
    check_equal(module.results_of(state, constraints, 7), expected)


@pytest.mark.parametrize("name", ["transformer", "rnn-none-input-gru"])
def test_a_search_in_place_can_be_started_again(name: str) -> None:
    batch = Batch(name)
    constraints = batch.constraints()
    settings = module.SearchSettings(3, 1, constraints.end, 0, 1.0)
    first, second = (
        module.prepare([batch.model], source, batch.first, batch.mask, constraints, settings, 7)
        for source in (batch.source.flip(0), batch.source)
    )
    with torch.inference_mode():
        state = module.begin([batch.model], tree_map(torch.clone, first), settings)
        state = fill_empty(state, module.advance([batch.model], state, settings))
        for inputs in (first, second):  # as the graphs do
            copy_into(state.inputs, inputs)
            copy_into(state, module.begin([batch.model], state.inputs, settings))
            for _ in range(7):
                copy_into(state, module.advance([batch.model], state, settings))
    expected = eagerly([batch.model], *batch.data, constraints=constraints, beams=3, results=1, length_penalty=1.0)
    check_equal(module.results_of(state, constraints, 7), expected)


def test_a_search_stops_when_nothing_can_win(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = Batch("rnn-none-input-gru")
    with torch.no_grad():
        batch.model.output_bias[2] = 30.0
    steps = []
    step = batch.model.step
    monkeypatch.setattr(batch.model, "step", lambda *given: (steps.append(1), step(*given))[1])
    eagerly(
        [batch.model], *batch.data, constraints=batch.constraints(max_length=100), beams=4, results=1,
        length_penalty=1.0,
    )  # fmt: skip
    assert len(steps) == module.CHECK_EVERY


def test_logits_that_are_not_finite_name_the_sentence() -> None:
    batch = Batch("transformer", lengths=(3, 3))
    batch.source[1] = 11
    with torch.no_grad():
        batch.model.source.token.weight[11] = float("nan")
    batch.model.target = shaken(Batch("transformer").model).target
    with pytest.raises(NotFiniteError) as raised:
        eagerly(
            [batch.model], *batch.data, constraints=batch.constraints(forbidden=(0, 1, 11)), beams=2, results=1,
            length_penalty=1.0,
        )  # fmt: skip
    assert raised.value.sentence == 1


@pytest.mark.parametrize(("rows", "expected"), [(1, 1), (3, 3), (5, 6), (7, 8), (64, 64), (65, 96), (100, 128)])
def test_batches_are_padded_to_few_numbers_of_rows(rows: int, expected: int) -> None:
    assert module.round_up_rows(rows) == expected


def test_all_beams_of_a_greedy_search_are_one() -> None:
    batch = Batch("transformer")
    ours, theirs = both(batch, batch.constraints(), 1, 1, 1.0)
    assert best(ours) == best(theirs)


# On a GPU the steps are captured.

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


def captured(batch: Batch, graphs: Graphs, constraints: Constraints, beams: int = 3) -> list[list[Hypothesis]]:
    return device_beam(
        [batch.model.cuda()], *batch.data, constraints=constraints, beams=beams, results=beams, length_penalty=1.0,
        graphs=graphs,
    )  # fmt: skip


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", GENERATORS)
def test_captured_steps_find_what_the_host_finds(name: str, dtype: torch.dtype) -> None:
    batch = Batch(name)
    graphs = Graphs([batch.model.to("cuda", dtype)])
    for source in (batch.source, batch.source.flip(0)):  # captured, then replayed
        for beams in (1, 3):
            batch.source = source
            constraints = dataclasses.replace(batch.constraints(prefixes=PREFIXES), max_lengths=LENGTHS)
            ours = captured(batch, graphs, constraints, beams)
            data = (x.cuda() for x in batch.data)
            theirs = beam(
                batch.model, *data, constraints=constraints, beams=beams, results=beams, length_penalty=1.0,
                coverage_penalty=0.0,
            )  # fmt: skip
            assert [[h.tokens for h in row] for row in ours] == [[h.tokens for h in row] for row in theirs]


@needs_gpu
def test_graphs_follow_the_weights() -> None:
    batch = Batch("transformer")
    graphs = Graphs([batch.model.cuda().float()])
    before = captured(batch, graphs, batch.constraints())
    with torch.no_grad():
        for parameter in batch.model.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))  # in place: the graph reads the new values
    after = captured(batch, graphs, batch.constraints())
    assert after != before
    assert after == captured(batch, Graphs([batch.model]), batch.constraints())
    batch.model.double()  # other tensors: captured again
    check_equal(
        captured(batch, graphs, batch.constraints()), captured(batch, Graphs([batch.model]), batch.constraints())
    )


@needs_gpu
def test_graphs_are_freed_when_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = Batch("transformer")
    graphs = Graphs([batch.model.cuda().float()])
    expected = captured(batch, graphs, batch.constraints())
    assert graphs._captured
    free_memory()
    assert not graphs._captured
    assert captured(batch, graphs, batch.constraints()) == expected
    monkeypatch.setattr(graphs_module, "MEMORY_SHARE", 0.0)
    captured(batch, graphs, batch.constraints(), beams=2)
    assert len(graphs._captured) == 1
    monkeypatch.setattr(graphs_module, "SPARE_BYTES", 1 << 50)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        captured(batch, graphs, batch.constraints(), beams=4)


@needs_gpu
def test_samples_are_drawn_on_the_gpu() -> None:
    engine = TorchEngine([Batch("transformer").model.cuda().float()], DecodeConfig())
    assert [len(hypotheses) for hypotheses in engine.search([[4, 5, 2], [6, 2]], SearchOptions(1, 2, seed=1))] == [2, 2]
