"""Prepacked weights: matrices reordered once for oneDNN's CPU kernels, which makes decoding on a CPU faster.

The results are the same but for rounding. A prepacked copy of a model belongs to one search: it does not follow later
changes of the weights and is never trained.
"""

from __future__ import annotations

import copy
import platform
from typing import Any, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

MIN_WEIGHTS = 1 << 17  # smaller matrices are not faster prepacked
USES_BEFORE_PACKING = 2  # a matrix used once, as in the encoder, is not worth packing

Model = TypeVar("Model")


class PrepackedLinear(nn.Module):
    """A linear layer whose weights, or some rows of them, are packed once they have been used a few times."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight = weight.detach()
        self.bias = None if bias is None else bias.detach()
        self._packed: dict[tuple[int | None, int | None], PackedRows] = {}

    def forward(self, x: Tensor) -> Tensor:
        return self.rows(x, slice(None))

    def rows(self, x: Tensor, rows: slice) -> Tensor:
        """The product with some rows of the matrix."""
        packed = self._packed.get((rows.start, rows.stop))
        if packed is None:
            bias = None if self.bias is None else self.bias[rows]
            packed = self._packed[rows.start, rows.stop] = PackedRows(self.weight[rows], bias)
        return packed(x)


class PackedRows:
    """A matrix that is packed after a few uses."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight, self.bias = weight, bias
        self.uses_left = USES_BEFORE_PACKING if weight.numel() >= MIN_WEIGHTS else -1  # -1: never packed
        self.packed: Any = None

    def __call__(self, x: Tensor) -> Tensor:
        if self.packed is not None:
            product: Tensor = torch.ops.mkldnn._linear_pointwise.default(x, self.packed, self.bias, "none", [], "")
            return product
        if self.uses_left > 0:
            self.uses_left -= 1
        elif self.uses_left == 0:
            self.packed = torch.ops.mkldnn._reorder_linear_weight.default(self.weight.contiguous(), None)
        return F.linear(x, self.weight, self.bias)


def prepack(model: Model) -> Model:
    """A copy of the model with prepacked linear layers where that is faster, else the model itself."""
    if not isinstance(model, nn.Module) or not _is_faster(model):
        return model
    return cast(Model, _prepacked_copy(model))


def _is_faster(model: nn.Module) -> bool:
    """Whether prepacking helps: on x86 CPUs with oneDNN, without gradients, with unsharded weights."""
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
        and all(_can_be_packed(weight) for weight in weights)
        and not any(hasattr(module, "unshard") for module in model.modules())  # FSDP gathers its weights itself
    )


def _can_be_packed(weight: Tensor) -> bool:
    if type(weight) not in (Tensor, nn.Parameter) or weight.device.type != "cpu":
        return False
    bf16 = weight.dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return bool(weight.dtype == torch.float32 or bf16)


def _prepacked_copy(module: nn.Module) -> Any:
    """The same module with prepacked linear layers; everything else is shared."""
    if isinstance(module, nn.Linear):
        return PrepackedLinear(module.weight, module.bias)
    copied = copy.copy(module)
    copied.__dict__["_modules"] = {name: child and _prepacked_copy(child) for name, child in module._modules.items()}
    if hasattr(module, "output_matrix"):  # the output matrix may be the embeddings, and its bias is a parameter apart
        copied.output = PrepackedLinear(cast(Any, module).output_matrix, cast(Any, module).output_bias)
    return copied
