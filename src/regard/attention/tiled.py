"""Tiled matrices: laid out once as the kernels of a CPU want them, for a search that uses each many times.

The numbers are the same but for rounding. A twin is made for one search and dropped with it: it knows nothing of
weights that change later, and training never sees it.
"""

from __future__ import annotations

import copy
import platform
from typing import Any, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WORTH = 1 << 17  # numbers in a matrix from which on the other kernel is the faster one
USES = 2  # of a matrix before it is tiled: what is used once, as by an encoder, is not worth it

Model = TypeVar("Model")


class Tiled(nn.Module):
    """x W + b, or some of its columns."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight = weight.detach()
        self.bias = None if bias is None else bias.detach()
        self._parts: dict[tuple[int | None, int | None], Part] = {}

    def forward(self, x: Tensor) -> Tensor:
        return self.part(x, slice(None))

    def part(self, x: Tensor, rows: slice) -> Tensor:
        """Only these rows of the matrix."""
        found = self._parts.get((rows.start, rows.stop))
        if found is None:
            bias = None if self.bias is None else self.bias[rows]
            found = self._parts[rows.start, rows.stop] = Part(self.weight[rows], bias)
        return found(x)


class Part:
    """A matrix that is tiled when it is used again."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight, self.bias = weight, bias
        self.left = USES if weight.numel() >= WORTH else -1  # uses before it is tiled; -1: never
        self.tiles: Any = None

    def __call__(self, x: Tensor) -> Tensor:
        if self.tiles is not None:
            found: Tensor = torch.ops.mkldnn._linear_pointwise.default(x, self.tiles, self.bias, "none", [], "")
            return found
        if self.left > 0:
            self.left -= 1
        elif self.left == 0:
            self.tiles = torch.ops.mkldnn._reorder_linear_weight.default(self.weight.contiguous(), None)
        return F.linear(x, self.weight, self.bias)


def tiled(model: Model) -> Model:
    """The model as a search should use it: a twin where tiling helps, else itself."""
    if not isinstance(model, nn.Module) or not _helps(model):
        return model
    return cast(Model, twin(model))


def _helps(model: nn.Module) -> bool:
    """Whether tiling helps: on CPUs of the kind it was measured on, where nothing is learned and nothing divided."""
    weights = [module.weight for module in model.modules() if isinstance(module, nn.Linear)]
    return (
        bool(weights)
        and not torch.is_grad_enabled()
        and not torch.compiler.is_compiling()
        and platform.machine() in ("x86_64", "AMD64")
        and torch.backends.mkldnn.is_available()
        and bool(torch.backends.mkldnn.enabled)
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
        and all(_plain(weight) for weight in weights)
        and not any(hasattr(module, "unshard") for module in model.modules())  # divided ones know who they are
    )


def twin(module: nn.Module) -> Any:
    """The same module with tiled matrices in the place of linear maps; all else is shared."""
    if isinstance(module, nn.Linear):
        return Tiled(module.weight, module.bias)
    same = copy.copy(module)
    same.__dict__["_modules"] = {name: child and twin(child) for name, child in module._modules.items()}
    if hasattr(module, "output_matrix"):  # what says a token may be an embedding, and its bias stands apart
        same.output = Tiled(cast(Any, module).output_matrix, cast(Any, module).output_bias)
    return same


def _plain(weight: Tensor) -> bool:
    whole = type(weight) in (Tensor, nn.Parameter) and weight.device.type == "cpu"
    return whole and (weight.dtype == torch.float32 or (weight.dtype == torch.bfloat16 and _has_bf16()))


def _has_bf16() -> bool:
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
