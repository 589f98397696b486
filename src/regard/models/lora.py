"""Low-rank adapters: a small product beside every matrix of attention and feed-forward; else only what is new learns.

After Hu et al. (2022): W + B A, with A (rank, in) at random and B (out, rank) zero, so that it begins as the model was.
They are put on from outside; what is saved in the end is the sum, in the shapes the config knows.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from regard.errors import ConfigError

MAPS = ("project", "join", "widen", "narrow", "ask", "remember", "bridge", "deep")
"""The last part of the names of what is adapted: of attentive layers the first four, of an rnn the others."""
ADAPTED = "parametrizations.weight."  # what torch puts into the names of the parts of an adapted matrix


class LowRank(nn.Module):
    """W -> W + B A."""

    def __init__(self, weight: Tensor, rank: int) -> None:
        super().__init__()
        rows, columns = weight.shape
        self.down = nn.Parameter(torch.empty(rank, columns, device=weight.device, dtype=weight.dtype))
        self.up = nn.Parameter(torch.zeros(rows, rank, device=weight.device, dtype=weight.dtype))
        nn.init.uniform_(self.down, -(columns**-0.5), columns**-0.5)

    def forward(self, weight: Tensor) -> Tensor:
        with torch.autocast(weight.device.type, enabled=False):  # the sum is what is saved: the same in training
            return weight + self.up @ self.down


class OnlyRows:
    """A gradient of some rows: the others stay as they are."""

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows

    def __call__(self, gradient: Tensor) -> Tensor:
        self.rows = self.rows.to(gradient.device)  # there from the first pass on
        return gradient * self.rows.reshape(-1, *(1,) * (gradient.dim() - 1))


def is_partly_trained(parameter: nn.Parameter) -> bool:
    """Whether some of its rows stay as they are."""
    return any(isinstance(hook, OnlyRows) for hook in (parameter._backward_hooks or {}).values())


New = Mapping[str, Tensor | None]
"""Parameters that began at random, or (True) which of their rows."""


def adapt(model: nn.Module, rank: int, new: New) -> int:
    """Freeze all of a model but what is new, and put adapters beside its maps; how many numbers are trained."""
    named = dict(model.named_parameters())
    fresh = {id(named[name]) for name, rows in new.items() if rows is None}
    found = [module for name, module in model.named_modules() if name.rpartition(".")[2] in MAPS]
    maps = [module for module in found if isinstance(module, nn.Linear) and id(module.weight) not in fresh]
    for module in maps:
        if rank > min(module.weight.shape):
            shape = " × ".join(map(str, module.weight.shape))
            raise ConfigError(f"train.lora_rank ({rank}) is no low rank for a matrix of {shape}")
    for name, parameter in named.items():
        parameter.requires_grad_(name in new)
    for module in maps:
        adapter = LowRank(module.weight, rank)
        parametrize.register_parametrization(module, "weight", adapter, unsafe=True)  # not tried out: it may be on meta
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    for name, rows in new.items():
        if rows is not None:
            named[name].register_hook(OnlyRows(rows))
            trained -= int((~rows).sum()) * named[name][0].numel()
    return trained


def merged(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The parameters of a model under the names and in the shapes of its config, with adapters added in."""
    plain = {name: tensor for name, tensor in tensors.items() if f".{ADAPTED}" not in name}
    for name in tensors:
        owner, adapted, rest = name.partition(f".{ADAPTED}")
        if adapted and rest == "original":
            up, down = (tensors[f"{owner}.{ADAPTED}0.{part}"] for part in ("up", "down"))
            plain[f"{owner}.weight"] = tensors[name] + up @ down
    return plain
