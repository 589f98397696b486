"""Cross-entropy with label smoothing, summed over the tokens that count.

N tokens, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

IGNORED = 0  # the padding: nothing to guess here


def cross_entropy(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """The summed loss of (..., V) logits: (1 - e) of each label's own, e spread evenly over the vocabulary."""
    logits, labels = logits.flatten(0, -2), labels.flatten()
    if logits.device.type == "cpu" and torch.is_grad_enabled():
        summed: Tensor = _Lean.apply(logits, labels, smoothing)  # type: ignore[no-untyped-call]
        return summed
    return F.cross_entropy(logits.float(), labels, reduction="sum", label_smoothing=smoothing, ignore_index=IGNORED)


class _Lean(torch.autograd.Function):
    """The same on a CPU, where fresh memory is slow: the log-probabilities become the gradient in place."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
        log_p = logits.float().log_softmax(-1)
        counts = labels != IGNORED
        ctx.rows, ctx.labels, ctx.smoothing = counts, labels.where(counts, 0)[:, None], smoothing
        ctx.log_p, ctx.dtype = log_p, logits.dtype
        own = log_p.gather(1, ctx.labels)[:, 0]
        loss = -(1 - smoothing) * own
        if smoothing:
            loss = loss - smoothing * log_p.mean(-1)
        return loss.where(counts, 0.0).sum()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (given,) = gradients
        gradient, ctx.log_p = ctx.log_p.exp_(), None
        if ctx.smoothing:
            gradient.sub_(ctx.smoothing / gradient.shape[-1])
        gradient.scatter_add_(1, ctx.labels, gradient.new_full(ctx.labels.shape, ctx.smoothing - 1))
        if not ctx.rows.all():
            gradient[~ctx.rows] = 0.0
        if given != 1:
            gradient.mul_(given)
        return gradient.to(ctx.dtype), None, None
