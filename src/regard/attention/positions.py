"""Positions: sinusoidal, learned and rotary position encodings.

B batch, T tokens, D size.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

FAIRSEQ_OFFSET = 2  # its first position, after the id of the padding


def sinusoidal(positions: Tensor, size: int, *, halves: bool = False, fairseq: bool = False) -> Tensor:
    """(...,) positions -> (..., D): PE(p, 2i) = sin(p / 10000^(2i/D)), PE(p, 2i+1) = cos of the same.

    With `halves` all sines come first and then all cosines, as in Marian. With `fairseq` too, and the frequencies
    fall to 1/10000 itself, as in Tensor2Tensor, fairseq and M2M100. They are not stored in a table, so there is no
    maximum length.
    """
    even = torch.arange(0, size, 2, device=positions.device, dtype=torch.float32)
    if fairseq:
        positions, size_of_steps = positions + FAIRSEQ_OFFSET, max(size - 2, 1)
    else:
        size_of_steps = size
    angle = positions[..., None] * torch.pow(10000.0, -even / size_of_steps)  # (..., D/2), rounded up
    sine, cosine = angle.sin(), angle.cos()
    if halves or fairseq:
        return torch.cat([sine, cosine], dim=-1)[..., :size]
    return torch.stack([sine, cosine], dim=-1).flatten(-2)[..., :size]


class Learned(nn.Module):
    """A table of `length` positions, learned like the embeddings."""

    def __init__(self, length: int, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(length, size))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, positions: Tensor) -> Tensor:
        return nn.functional.embedding(positions, self.weight)


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
