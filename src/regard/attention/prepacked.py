"""Prepacked weights: matrices reordered once for oneDNN's CPU kernels, which makes decoding on a CPU faster.

The results are the same but for rounding. A prepacked copy of a model belongs to one search: it does not follow later
changes of the weights and is never trained.
"""

from __future__ import annotations

import copy
import platform
from collections import Counter
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
        self.uses: Counter[tuple[int | None, int | None]] = Counter()
        self.packed: dict[tuple[int | None, int | None], Tensor] = {}

    def forward(self, x: Tensor, rows: slice = slice(None)) -> Tensor:
        """The product with the matrix, or with some of its rows."""
        weight, bias = self.weight[rows], None if self.bias is None else self.bias[rows]
        key = rows.start, rows.stop
        if key in self.packed:
            product: Tensor = torch.ops.mkldnn._linear_pointwise.default(x, self.packed[key], bias, "none", [], "")
            return product
        self.uses[key] += 1
        if self.uses[key] > USES_BEFORE_PACKING and weight.numel() >= MIN_WEIGHTS:
            self.packed[key] = torch.ops.mkldnn._reorder_linear_weight.default(weight.contiguous(), None)
        return F.linear(x, weight, bias)


def prepack(model: Model) -> Model:
    """A copy of the model with prepacked linear layers where that is faster, else the model itself."""
    is_x86 = platform.machine() in ("x86_64", "AMD64") and torch.backends.mkldnn.is_available()
    if not isinstance(model, nn.Module) or not is_x86 or torch.is_grad_enabled():
        return model
    weights = [module.weight for module in model.modules() if isinstance(module, nn.Linear)]
    is_sharded = any(hasattr(module, "unshard") for module in model.modules())  # FSDP gathers its weights itself
    dtypes = [torch.float32]
    if torch.ops.mkldnn._is_mkldnn_bf16_supported():
        dtypes.append(torch.bfloat16)
    can_be_packed = all(weight.device.type == "cpu" and weight.dtype in dtypes for weight in weights)
    if is_sharded or not weights or not can_be_packed:
        return model
    return cast(Model, _prepacked_copy(model))


def _prepacked_copy(module: nn.Module) -> Any:
    """The same module with prepacked linear layers; everything else is shared."""
    if isinstance(module, nn.Linear):
        return PrepackedLinear(module.weight, module.bias)
    copied = copy.copy(module)
    copied.__dict__["_modules"] = {name: child and _prepacked_copy(child) for name, child in module._modules.items()}
    if hasattr(module, "output_bias"):  # a model: the output matrix may be the embeddings, and its bias is apart
        parts = cast(Any, module)
        linear = parts.output or getattr(parts.target, "token", parts.target)
        copied.output = PrepackedLinear(linear.weight, parts.output_bias)
    return copied
