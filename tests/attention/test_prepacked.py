"""Prepacked weights give the same results as plain ones, and the model stays unchanged."""

from __future__ import annotations

import platform

import pytest
import torch

from regard.attention import prepacked
from regard.models import build
from tests.models.families import GENERATORS

pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64") or not torch.backends.mkldnn.is_available(),
    reason="weights are prepacked on x86 CPUs alone",
)


@pytest.fixture
def _pack_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepacked, "MIN_WEIGHTS", 1)
    monkeypatch.setattr(prepacked, "USES_BEFORE_PACKING", 0)


@pytest.mark.usefixtures("_pack_everything")
@pytest.mark.parametrize("name", ["transformer", "transformer-rotary", "transformer-grouped", "gpt", "rnn-one-way"])
@torch.inference_mode()
def test_a_prepacked_model_gives_the_same_logits_step_by_step(name: str) -> None:
    model = build(GENERATORS[name]).eval()
    source, tokens = torch.randint(3, 40, (2, 5)), torch.randint(3, 40, (2, 4))
    packed = prepacked.prepack(model)
    assert packed is not model
    expected, _ = model.step(tokens, model.start(source))
    state = packed.start(source, capacity=12)
    for place in range(4):
        logits, state = packed.step(tokens[:, place : place + 1], state)
        torch.testing.assert_close(logits[:, 0], expected[:, place], atol=1e-5, rtol=1e-5)


@pytest.mark.usefixtures("_pack_everything")
@torch.inference_mode()
def test_a_matrix_is_really_packed() -> None:
    linear = prepacked.PrepackedLinear(torch.randn(8, 8), None)
    linear(torch.randn(1, 8))
    assert linear.packed[None, None].is_mkldnn


@torch.inference_mode()
def test_a_matrix_that_is_used_once_is_not_packed() -> None:
    linear = prepacked.PrepackedLinear(torch.randn(512, 512), None)
    linear(torch.randn(1, 512))
    assert not linear.packed


@torch.inference_mode()
def test_prepacking_does_not_change_the_model() -> None:
    model = build(GENERATORS["transformer"])
    names, kinds = list(model.state_dict()), [type(module) for module in model.modules()]
    prepacked.prepack(model)
    assert list(model.state_dict()) == names
    assert [type(module) for module in model.modules()] == kinds


def test_nothing_is_packed_where_gradients_are_enabled() -> None:
    model = build(GENERATORS["transformer"])
    assert prepacked.prepack(model) is model
