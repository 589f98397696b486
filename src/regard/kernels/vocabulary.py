"""Cross-entropy over a vocabulary in one reading of the logits forward, and one reading and writing back.

Torch forms the logarithms of all probabilities in single precision: a tensor of gigabytes that is written, read and
read again. Here one program takes one token.

N tokens, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

IGNORED = 0  # the label of padding
BLOCK = 4096  # numbers of a row that are looked at together


def token_losses(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Each token's loss from (N, V) logits, (1 - e) of its label's own and e spread evenly over all words; and what
    it is without smoothing, which nothing learns from. Both are zero where the label is padding."""
    loss, plain, _ = _losses(logits, labels, smoothing)
    return loss, plain.detach()


@torch.library.custom_op("regard::token_losses", mutates_args=())
def _losses(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
    logits = logits.contiguous()
    tokens, vocabulary = logits.shape
    loss, plain, whole = (logits.new_empty(tokens, dtype=torch.float32) for _ in range(3))
    if tokens:
        with torch.cuda.device_of(logits):  # Triton knows the device at hand, not that of its arguments
            _forward[(tokens,)](
                logits, labels.contiguous(), loss, plain, whole, vocabulary, smoothing, IGNORED=IGNORED, BLOCK=BLOCK,
                num_warps=8,
            )  # fmt: skip
    return loss, plain, whole


@_losses.register_fake
def _(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
    loss, plain, whole = (logits.new_empty(logits.shape[0], dtype=torch.float32) for _ in range(3))
    return loss, plain, whole


@torch.library.custom_op("regard::token_losses_backward", mutates_args=())
def _losses_backward(given: Tensor, logits: Tensor, labels: Tensor, whole: Tensor, smoothing: float) -> Tensor:
    logits = logits.contiguous()
    tokens, vocabulary = logits.shape
    gradient = torch.empty_like(logits)
    if tokens:
        with torch.cuda.device_of(logits):
            _backward[(tokens, triton.cdiv(vocabulary, BLOCK))](
                given.contiguous(), logits, labels.contiguous(), whole, gradient, vocabulary, smoothing,
                IGNORED=IGNORED, BLOCK=BLOCK, num_warps=8,
            )  # fmt: skip
    return gradient


@_losses_backward.register_fake
def _(given: Tensor, logits: Tensor, labels: Tensor, whole: Tensor, smoothing: float) -> Tensor:
    return logits.new_empty(logits.shape)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    logits, labels, ctx.smoothing = inputs
    ctx.save_for_backward(logits, labels, output[2])


def _back(ctx: Any, given: Tensor, *_: Tensor) -> tuple[Tensor, None, None]:
    return _losses_backward(given, *ctx.saved_tensors, ctx.smoothing), None, None


_losses.register_autograd(_back, setup_context=_remember)


# The kernels


@triton.jit
def _forward(
    logits, labels, loss, plain, whole, vocabulary, smoothing, IGNORED: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    label = tl.load(labels + token)
    row, columns = logits + token * vocabulary, tl.arange(0, BLOCK)
    if label == IGNORED:
        tl.store(loss + token, 0.0)
        tl.store(plain + token, 0.0)
        tl.store(whole + token, 0.0)
    else:
        highest = tl.full((BLOCK,), -1e30, tl.float32)  # one running softmax for each column of the block
        powers = tl.zeros((BLOCK,), tl.float32)
        total = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, vocabulary, BLOCK):
            there = start + columns < vocabulary
            x = tl.load(row + start + columns, mask=there, other=0.0).to(tl.float32)
            total += x
            x = tl.where(there, x, -1e30)
            higher = tl.maximum(highest, x)
            powers = powers * tl.exp(highest - higher) + tl.where(there, tl.exp(x - higher), 0.0)
            highest = higher
        top = tl.max(highest, 0)
        every = top + tl.log(tl.sum(powers * tl.exp(highest - top), 0))
        own = every - tl.load(row + label).to(tl.float32)
        evenly = every - tl.sum(total, 0) / vocabulary
        tl.store(loss + token, (1 - smoothing) * own + smoothing * evenly)
        tl.store(plain + token, own)
        tl.store(whole + token, every)


@triton.jit
def _backward(
    given, logits, labels, whole, gradient, vocabulary, smoothing, IGNORED: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = columns < vocabulary
    label = tl.load(labels + token)
    places = token * vocabulary + columns
    if label == IGNORED:
        tl.store(gradient + places, tl.zeros((BLOCK,), tl.float32).to(gradient.dtype.element_ty), mask=there)
    else:
        x = tl.load(logits + places, mask=there, other=0.0).to(tl.float32)
        moved = tl.exp(x - tl.load(whole + token)) - smoothing / vocabulary
        moved = tl.where(columns == label, moved - (1 - smoothing), moved) * tl.load(given + token)
        tl.store(gradient + places, moved.to(gradient.dtype.element_ty), mask=there)
