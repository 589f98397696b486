"""Low-rank adapters: nothing changes when they are put on, and their sum with what they adapt is a plain model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from regard.config import ModelConfig
from regard.errors import ConfigError
from regard.models import build
from regard.models.folder import fill, parameters
from regard.models.lora import adapt, merged
from regard.text.batching import Batch
from tests.models.families import ALL

KINDS = ["transformer", "transformer-rotary", "transformer-grouped", "gpt-llama", "bert", "rnn-additive-input-gru"]


def make_batch(config: ModelConfig) -> Batch:
    torch.manual_seed(1)
    source, target = torch.randint(5, 40, (3, 6)), torch.randint(5, 40, (3, 6))
    return Batch(source, None, target, target, None, 18, 18, np.arange(3))


def adapted(kind: str) -> tuple[nn.Module, torch.Tensor, Batch]:
    """A model with adapters that have learned something, and what it said without them."""
    torch.manual_seed(0)
    model, batch = build(ALL[kind]).eval(), make_batch(ALL[kind])
    before = model(batch).detach()
    adapt(model, 3, {})
    return model, before, batch


@pytest.mark.parametrize("kind", KINDS)
def test_at_first_an_adapted_model_is_the_model_it_was(kind: str) -> None:
    model, before, batch = adapted(kind)
    torch.testing.assert_close(model(batch), before, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_merged_it_is_a_plain_model_that_says_the_same(kind: str) -> None:
    model, before, batch = adapted(kind)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.3 * torch.randn_like(parameter))
    plain = build(ALL[kind]).eval()
    fill(plain, merged(parameters(model)), "here")
    torch.testing.assert_close(plain(batch), model(batch), rtol=0, atol=1e-5)
    assert (plain(batch) - before).abs().max() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_only_adapters_are_trained_and_all_of_them(kind: str) -> None:
    model, _, batch = adapted(kind)
    model(batch).square().sum().backward()
    trained = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert trained == {name for name, _ in model.named_parameters() if name.endswith((".up", ".down"))}


def test_a_model_without_adapters_merges_to_itself() -> None:
    model = build(ALL["transformer"])
    assert merged(parameters(model)).keys() == parameters(model).keys()


def test_a_rank_that_is_not_low_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"train.lora_rank \(17\) is no low rank for a matrix of"):
        adapt(build(ALL["transformer"]), 17, {})


@pytest.mark.slow
def test_a_compiler_sees_through_them() -> None:
    model, _, batch = adapted("transformer")
    compiled = torch.compile(model, backend="aot_eager")
    torch.testing.assert_close(compiled(batch), model(batch))
