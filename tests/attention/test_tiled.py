"""Tiled matrices give what the matrices give, and leave no trace in the model."""

from __future__ import annotations

import platform

import pytest
import torch

from regard.attention import tiled
from regard.models import build
from tests.models.families import GENERATORS

pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64") or not torch.backends.mkldnn.is_available(),
    reason="matrices are tiled on x86 CPUs alone",
)


@pytest.fixture
def _all_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiled, "WORTH", 1)
    monkeypatch.setattr(tiled, "USES", 0)


@pytest.mark.usefixtures("_all_worth_it")
@pytest.mark.parametrize("name", ["transformer", "transformer-rotary", "transformer-grouped", "gpt", "rnn-one-way"])
@torch.inference_mode()
def test_a_twin_says_the_same_step_by_step(name: str) -> None:
    model = build(GENERATORS[name]).eval()
    source, tokens = torch.randint(3, 40, (2, 5)), torch.randint(3, 40, (2, 4))
    twin = tiled.tiled(model)
    assert twin is not model
    expected, _ = model.step(tokens, model.start(source))
    state = twin.start(source, room=12)
    for place in range(4):
        logits, state = twin.step(tokens[:, place : place + 1], state)
        torch.testing.assert_close(logits[:, 0], expected[:, place], atol=1e-5, rtol=1e-5)


@pytest.mark.usefixtures("_all_worth_it")
@torch.inference_mode()
def test_a_matrix_is_really_tiled() -> None:
    matrix = tiled.Tiled(torch.randn(8, 8), None)
    matrix(torch.randn(1, 8))
    assert matrix._parts[None, None].tiles.is_mkldnn


@torch.inference_mode()
def test_what_is_used_once_is_not_tiled() -> None:
    matrix = tiled.Tiled(torch.randn(512, 512), None)
    matrix(torch.randn(1, 512))
    assert matrix._parts[None, None].tiles is None


@torch.inference_mode()
def test_the_model_stays_as_it_was() -> None:
    model = build(GENERATORS["transformer"])
    names, kinds = list(model.state_dict()), [type(module) for module in model.modules()]
    tiled.tiled(model)
    assert list(model.state_dict()) == names
    assert [type(module) for module in model.modules()] == kinds


def test_where_gradients_may_be_asked_for_nothing_is_tiled() -> None:
    model = build(GENERATORS["transformer"])
    assert tiled.tiled(model) is model
