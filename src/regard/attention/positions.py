"""Positions: sinusoidal and rotary position encodings; learned ones are an embedding.

B batch, T tokens, D size.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def sinusoidal(positions: Tensor, size: int, *, halves: bool = False) -> Tensor:
    """(...,) positions -> (..., D): PE(p, 2i) = sin(p / 10000^(2i/D)), PE(p, 2i+1) = cos of the same.

    With `halves` all sines come first and then all cosines, as in Tensor2Tensor and Marian. They are not
    stored in a table, so there is no maximum length.
    """
    even = torch.arange(0, size, 2, device=positions.device, dtype=torch.float32)
    angle = positions[..., None] * torch.pow(10000.0, -even / size)  # (..., D/2), rounded up
    sine, cosine = angle.sin(), angle.cos()
    if halves:
        return torch.cat([sine, cosine], dim=-1)[..., :size]
    return torch.stack([sine, cosine], dim=-1).flatten(-2)[..., :size]


def sinusoidal_fairseq(positions: Tensor, size: int) -> Tensor:
    """(...,) positions -> (..., D): the sinusoids of fairseq and M2M100, all sines and then all cosines.

    Their frequencies fall to 1/10000 itself, and the first position is 2, after the id of the padding.
    """
    half = size // 2
    steps = torch.arange(half, device=positions.device, dtype=torch.float32)
    angle = (positions + 2)[..., None] * torch.pow(10000.0, -steps / max(half - 1, 1))
    return nn.functional.pad(torch.cat([angle.sin(), angle.cos()], dim=-1), (0, size % 2))


def rotary(positions: Tensor, size: int, base: float) -> tuple[Tensor, Tensor]:
    """(B, T) positions -> the cosines and sines, (B, 1, T, D/2), for `rotate`."""
    even = torch.arange(0, size, 2, device=positions.device, dtype=torch.float32)
    angle = (positions[..., None] * torch.pow(base, -even / size)).unsqueeze(-3)
    return angle.cos(), angle.sin()


def rotate(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Apply rotary positions to (B, H, T, D): element i of the first half is rotated with element i of the second half
    (Su et al., 2021)."""
    first, second = x.chunk(2, dim=-1)
    cosine, sine = rotation[0].to(x.dtype), rotation[1].to(x.dtype)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)
