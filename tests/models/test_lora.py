"""LoRA: adding it changes no output, and merging it gives a plain model with the same output."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from regard.config import ModelConfig
from regard.models import build
from regard.models.folder import copy_weights, named_tensors
from regard.models.lora import add_lora, merge_lora
from regard.text.batching import Batch
from tests.models.families import ALL

KINDS = ["transformer", "transformer-rotary", "transformer-grouped", "gpt-llama", "bert", "rnn-additive-input-gru"]


def make_batch(config: ModelConfig) -> Batch:
    torch.manual_seed(1)
    source, target = torch.randint(5, 40, (3, 6)), torch.randint(5, 40, (3, 6))
    return Batch(target, 18, np.arange(3), source=source, target_in=target)


def with_lora(kind: str) -> tuple[nn.Module, torch.Tensor, Batch]:
    """A model with LoRA, and its output before LoRA was added."""
    torch.manual_seed(0)
    model, batch = build(ALL[kind]).eval(), make_batch(ALL[kind])
    before = model(batch).detach()
    add_lora(model, 3, ())
    return model, before, batch


@pytest.mark.parametrize("kind", KINDS)
def test_adding_lora_does_not_change_the_output(kind: str) -> None:
    model, before, batch = with_lora(kind)
    torch.testing.assert_close(model(batch), before, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_the_merged_model_gives_the_same_output(kind: str) -> None:
    model, before, batch = with_lora(kind)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.3 * torch.randn_like(parameter))
    plain = build(ALL[kind]).eval()
    copy_weights(plain, merge_lora(named_tensors(model)), "here")
    torch.testing.assert_close(plain(batch), model(batch), rtol=0, atol=1e-5)
    assert (plain(batch) - before).abs().max() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_only_lora_parameters_are_trained(kind: str) -> None:
    model, _, batch = with_lora(kind)
    model(batch).square().sum().backward()
    trained = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert trained == {name for name, _ in model.named_parameters() if name.endswith((".lora_A", ".lora_B"))}


def test_a_model_without_lora_merges_to_itself() -> None:
    model = build(ALL["transformer"])
    assert merge_lora(named_tensors(model)).keys() == named_tensors(model).keys()
