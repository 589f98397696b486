"""LoRA, low-rank adapters (Hu et al., 2022): train a small product B A beside each frozen matrix W.

W + B A, with A (rank, in) random and B (out, rank) zero, so that training starts from the unchanged model. LoRA is a
parametrization of a built model; `merge_lora` adds B A to W, so that a saved model has the shapes of its config.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

# The linear layers that get LoRA, by the last part of their name: four of transformer blocks, four of an rnn.
TARGETS = ("in_proj", "out_proj", "up_proj", "down_proj", "query_proj", "key_proj", "bridge", "deep_output")
PARAMETRIZED = "parametrizations.weight."  # torch puts this into the names of parametrized weights


class LoRA(nn.Module):
    """W -> W + B A."""

    def __init__(self, weight: Tensor, rank: int) -> None:
        super().__init__()
        rows, columns = weight.shape
        self.lora_A = nn.Parameter(torch.empty(rank, columns, device=weight.device, dtype=weight.dtype))
        self.lora_B = nn.Parameter(torch.zeros(rows, rank, device=weight.device, dtype=weight.dtype))
        nn.init.uniform_(self.lora_A, -(columns**-0.5), columns**-0.5)

    def forward(self, weight: Tensor) -> Tensor:
        with torch.autocast(weight.device.type, enabled=False):  # the same sum in training as in merge_lora
            return weight + self.lora_B @ self.lora_A


def add_lora(model: nn.Module, rank: int, new: Collection[str]) -> None:
    """Freeze all but the new parameters, and add LoRA to the linear layers that are not new."""
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in new)
    for name, module in list(model.named_modules()):
        is_new = f"{name}.weight" in new
        if name.rpartition(".")[2] in TARGETS and isinstance(module, nn.Linear) and not is_new:
            # unsafe: torch does not run it once to check, which would fail on the meta device
            parametrize.register_parametrization(module, "weight", LoRA(module.weight, rank), unsafe=True)


def merge_lora(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The parameters of a model with LoRA added to the weights, under the names and in the shapes of its config."""
    merged = {name: tensor for name, tensor in tensors.items() if f".{PARAMETRIZED}" not in name}
    for name in tensors:
        layer, parametrized, part = name.partition(f".{PARAMETRIZED}")
        if parametrized and part == "original":
            a, b = (tensors[f"{layer}.{PARAMETRIZED}0.{matrix}"] for matrix in ("lora_A", "lora_B"))
            merged[f"{layer}.weight"] = tensors[name] + b @ a
    return merged
