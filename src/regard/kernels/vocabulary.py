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
    loss, nll, _ = _losses(logits, labels, smoothing)
    return loss, nll.detach()


@torch.library.custom_op("regard::token_losses", mutates_args=())
def _losses(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
    logits = logits.contiguous()
    tokens, vocabulary = logits.shape
    loss, nll, log_sum_exp = (logits.new_empty(tokens, dtype=torch.float32) for _ in range(3))
    if tokens:
        with torch.cuda.device_of(logits):  # Triton uses the current device, not that of its arguments
            _forward[(tokens,)](
                logits, labels.contiguous(), loss, nll, log_sum_exp, vocabulary, smoothing,
                IGNORED=IGNORED, BLOCK=BLOCK, num_warps=8,
            )  # fmt: skip
    return loss, nll, log_sum_exp


@_losses.register_fake
def _(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
    loss, nll, log_sum_exp = (logits.new_empty(logits.shape[0], dtype=torch.float32) for _ in range(3))
    return loss, nll, log_sum_exp


@torch.library.custom_op("regard::token_losses_backward", mutates_args=())
def _losses_backward(grad: Tensor, logits: Tensor, labels: Tensor, log_sum_exp: Tensor, smoothing: float) -> Tensor:
    logits = logits.contiguous()
    tokens, vocabulary = logits.shape
    gradient = torch.empty_like(logits)
    if tokens:
        with torch.cuda.device_of(logits):
            _backward[(tokens, triton.cdiv(vocabulary, BLOCK))](
                grad.contiguous(), logits, labels.contiguous(), log_sum_exp, gradient, vocabulary, smoothing,
                IGNORED=IGNORED, BLOCK=BLOCK, num_warps=8,
            )  # fmt: skip
    return gradient


@_losses_backward.register_fake
def _(grad: Tensor, logits: Tensor, labels: Tensor, log_sum_exp: Tensor, smoothing: float) -> Tensor:
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
    logits, labels, loss, nll, log_sum_exp_out, vocabulary, smoothing, IGNORED: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    label = tl.load(labels + token)
    row, columns = logits + token * vocabulary, tl.arange(0, BLOCK)
    if label == IGNORED:
        tl.store(loss + token, 0.0)
        tl.store(nll + token, 0.0)
        tl.store(log_sum_exp_out + token, 0.0)
    else:
        maximum, total, logit_sum = -1e30, 0.0, 0.0  # an online softmax
        for start in range(0, vocabulary, BLOCK):
            in_vocabulary = start + columns < vocabulary
            x = tl.load(row + start + columns, mask=in_vocabulary, other=0.0).to(tl.float32)
            logit_sum += tl.sum(x, 0)
            x = tl.where(in_vocabulary, x, -1e30)
            new_maximum = tl.maximum(maximum, tl.max(x, 0))
            total = total * tl.exp(maximum - new_maximum) + tl.sum(tl.exp(x - new_maximum), 0)
            maximum = new_maximum
        log_sum_exp = maximum + tl.log(total)
        token_nll = log_sum_exp - tl.load(row + label).to(tl.float32)
        uniform_loss = log_sum_exp - logit_sum / vocabulary
        tl.store(loss + token, (1 - smoothing) * token_nll + smoothing * uniform_loss)
        tl.store(nll + token, token_nll)
        tl.store(log_sum_exp_out + token, log_sum_exp)


@triton.jit
def _backward(
    grad, logits, labels, log_sum_exp, gradient, vocabulary, smoothing, IGNORED: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    in_vocabulary = columns < vocabulary
    label = tl.load(labels + token)
    offsets = token * vocabulary + columns
    if label == IGNORED:
        tl.store(gradient + offsets, tl.zeros((BLOCK,), tl.float32).to(gradient.dtype.element_ty), mask=in_vocabulary)
    else:
        x = tl.load(logits + offsets, mask=in_vocabulary, other=0.0).to(tl.float32)
        grads = tl.exp(x - tl.load(log_sum_exp + token)) - smoothing / vocabulary
        grads = tl.where(columns == label, grads - (1 - smoothing), grads) * tl.load(grad + token)
        tl.store(gradient + offsets, grads.to(gradient.dtype.element_ty), mask=in_vocabulary)
