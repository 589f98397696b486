"""What the tests of the attention kernels share: their device and precisions, and how far apart two results are."""

from __future__ import annotations

import torch
from torch import Tensor

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HALVES = [torch.float16, torch.bfloat16] if DEVICE == "cuda" else [torch.float16]  # no interpreter knows bfloat16


def heads_of(x: Tensor, size: int) -> Tensor:
    return x.unflatten(-1, (-1, size)).transpose(1, 2)


def apart(one: Tensor, other: Tensor) -> float:
    """The norm of the difference, relative to the second."""
    return float((one.double() - other.double()).norm() / other.double().norm().clamp_min(1e-9))
