"""Cross-entropy over a vocabulary that reads the logits once forward, and reads and writes them once backward.

Torch forms all log-probabilities in fp32, a tensor of gigabytes that is written once and read twice. Here one program
computes the loss of one token.

N tokens, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

IGNORED = -1  # the label of padding
BLOCK = 4096  # logits in one tile


def token_losses(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """The label-smoothed loss of each token from (N, V) logits, and its loss without smoothing, which has no gradient.
    Both are zero where the label is padding."""
    loss, plain, _ = _losses(logits, labels, smoothing)
    return loss, plain.detach()


@torch.library.custom_op("regard::token_losses", mutates_args=())
def _losses(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
    logits = logits.contiguous()
    tokens, vocabulary = logits.shape
    loss, plain, log_sum = (logits.new_empty(tokens, dtype=torch.float32) for _ in range(3))
    if tokens:
        with torch.cuda.device_of(logits):  # Triton uses the current device, not that of its arguments
            _forward[(tokens,)](
                logits, labels.contiguous(), loss, plain, log_sum, vocabulary, smoothing, IGNORED=IGNORED, BLOCK=BLOCK,
                num_warps=8,
            )  # fmt: skip
    return loss, plain, log_sum


@_losses.register_fake
def _(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
    loss, plain, log_sum = (logits.new_empty(logits.shape[0], dtype=torch.float32) for _ in range(3))
    return loss, plain, log_sum


@torch.library.custom_op("regard::token_losses_backward", mutates_args=())
def _losses_backward(grad: Tensor, logits: Tensor, labels: Tensor, log_sum: Tensor, smoothing: float) -> Tensor:
    logits = logits.contiguous()
    tokens, vocabulary = logits.shape
    gradient = torch.empty_like(logits)
    if tokens:
        with torch.cuda.device_of(logits):
            _backward[(tokens, triton.cdiv(vocabulary, BLOCK))](
                grad.contiguous(), logits, labels.contiguous(), log_sum, gradient, vocabulary, smoothing,
                IGNORED=IGNORED, BLOCK=BLOCK, num_warps=8,
            )  # fmt: skip
    return gradient


@_losses_backward.register_fake
def _(grad: Tensor, logits: Tensor, labels: Tensor, log_sum: Tensor, smoothing: float) -> Tensor:
    return logits.new_empty(logits.shape)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    logits, labels, ctx.smoothing = inputs
    ctx.save_for_backward(logits, labels, output[2])


def _backward_pass(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor, None, None]:
    return _losses_backward(grad, *ctx.saved_tensors, ctx.smoothing), None, None


_losses.register_autograd(_backward_pass, setup_context=_setup_context)


# The kernels


@triton.jit
def _forward(
    logits, labels, loss, plain, log_sum, vocabulary, smoothing, IGNORED: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    label = tl.load(labels + token)
    row, columns = logits + token * vocabulary, tl.arange(0, BLOCK)
    if label == IGNORED:
        tl.store(loss + token, 0.0)
        tl.store(plain + token, 0.0)
        tl.store(log_sum + token, 0.0)
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
        tl.store(log_sum + token, every)


@triton.jit
def _backward(
    grad, logits, labels, log_sum, gradient, vocabulary, smoothing, IGNORED: tl.constexpr, BLOCK: tl.constexpr
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
        moved = tl.exp(x - tl.load(log_sum + token)) - smoothing / vocabulary
        moved = tl.where(columns == label, moved - (1 - smoothing), moved) * tl.load(grad + token)
        tl.store(gradient + places, moved.to(gradient.dtype.element_ty), mask=there)
