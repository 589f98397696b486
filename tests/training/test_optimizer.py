"""Learning-rate schedules against their formulas, weight decay, and the optimizer's state."""

from __future__ import annotations

import pytest
import torch

from regard.config import TrainConfig
from regard.models import build
from regard.training.optimizer import allocate_state, learning_rate, make_optimizer
from tests.models.families import ALL

FAMILIES = {name: ALL[name] for name in ("transformer", "rnn-additive-input-gru", "gpt", "bert")}


@pytest.mark.parametrize("update", [1, 2, 3999, 4000, 4001, 100_000])
def test_noam_is_the_papers_formula(update: int) -> None:
    config = TrainConfig(learning_rate=2.0, schedule="noam", warmup=4000)
    expected = 2.0 * 512**-0.5 * min(update**-0.5, update * 4000**-1.5)
    assert learning_rate(update, config, 512) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("update", [1, 10, 999])
def test_noam_and_inverse_sqrt_are_one_curve(update: int) -> None:
    config = TrainConfig(learning_rate=1.0, schedule="noam", warmup=10)
    peak = TrainConfig(learning_rate=learning_rate(10, config, 64), schedule="inverse_sqrt", warmup=10)
    assert learning_rate(update, config, 64) == pytest.approx(learning_rate(update, peak, 64), rel=1e-12)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
@pytest.mark.parametrize(("updates", "warmup"), [(1, 0), (1, 1), (5, 0), (5, 4), (5, 5)])
def test_a_learning_rate_decays_from_its_peak_and_stays_above_zero(schedule: str, updates: int, warmup: int) -> None:
    config = TrainConfig(learning_rate=1.0, schedule=schedule, updates=updates, warmup=warmup)  # type: ignore[arg-type]
    rates = [learning_rate(update, config, 64) for update in range(1, updates + 1)]
    assert rates[max(warmup, 1) - 1] == 1.0
    falling = rates[max(warmup, 1) - 1 :]
    assert falling == sorted(set(falling), reverse=True)
    assert min(rates) > 0


@pytest.mark.parametrize("name", FAMILIES)
def test_weight_decay_applies_to_matrices_and_not_to_embeddings_and_vectors(name: str) -> None:
    model = build(FAMILIES[name])
    decayed, not_decayed = make_optimizer(model, TrainConfig(weight_decay=0.5)).param_groups
    tables = ("source.weight", "target.weight", "token.weight", "position.weight", "types.weight")
    matrices = {n: p for n, p in model.named_parameters() if p.dim() > 1 and not n.endswith(tables)}
    assert {id(parameter) for parameter in decayed["params"]} == {id(parameter) for parameter in matrices.values()}
    assert len(decayed["params"]) + len(not_decayed["params"]) == len(list(model.parameters()))
    assert (decayed["weight_decay"], not_decayed["weight_decay"]) == (0.5, 0.0)


def test_allocating_the_state_changes_neither_weights_nor_moments() -> None:
    model = torch.nn.Linear(3, 2)
    before = [parameter.clone() for parameter in model.parameters()]
    optimizer = make_optimizer(model, TrainConfig(weight_decay=0.5))
    allocate_state(optimizer)
    assert all(torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))
    assert [parameter.grad for parameter in model.parameters()] == [None, None]
    assert len(optimizer.state) == 2
    assert not any(value.any() for state in optimizer.state.values() for value in state.values())
