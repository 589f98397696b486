"""Cross-entropy with label smoothing, summed over the tokens that count.

N tokens, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard import kernels

IGNORED = 0  # the padding: nothing to guess here
vocabulary = kernels.find("vocabulary")


def cross_entropy(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """The summed loss of (..., V) logits, (1 - e) of each label's own and e spread evenly over the vocabulary; and what
    it is without smoothing, for the journal, which nothing learns from."""
    logits, labels = logits.flatten(0, -2), labels.flatten()
    if logits.device.type == "cpu" and torch.is_grad_enabled() and not torch.compiler.is_compiling():
        lean: tuple[Tensor, Tensor] = _Lean.apply(logits, labels, smoothing)  # type: ignore[no-untyped-call]
        return lean
    if logits.device.type == "cuda" and vocabulary is not None:
        loss, plain = vocabulary.token_losses(logits, labels, smoothing)
        return loss.sum(), plain.sum()
    log_p = logits.float().log_softmax(-1)
    plain = F.nll_loss(log_p, labels, reduction="sum", ignore_index=IGNORED)
    if not smoothing:
        return plain, plain.detach()
    evenly = -log_p.mean(-1).where(labels != IGNORED, 0.0).sum()
    return (1 - smoothing) * plain + smoothing * evenly, plain.detach()


class _Lean(torch.autograd.Function):
    """The same on a CPU, where fresh memory is slow: the log-probabilities become the gradient in place."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        log_p = logits.float().log_softmax(-1)
        counts = labels != IGNORED
        ctx.ignored, ctx.labels, ctx.smoothing = (~counts).nonzero()[:, 0], labels[:, None], smoothing
        ctx.log_p, ctx.dtype = log_p, logits.dtype
        own = -log_p.gather(1, ctx.labels)[:, 0].where(counts, 0.0).sum()
        loss = (1 - smoothing) * own
        if smoothing:
            loss = loss - smoothing * log_p.mean(-1).where(counts, 0.0).sum()
        plain = own.clone()
        ctx.mark_non_differentiable(plain)
        return loss, plain

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        given = gradients[0]
        gradient, ctx.log_p = ctx.log_p.exp_(), None
        if ctx.smoothing:
            gradient.sub_(ctx.smoothing / gradient.shape[-1])
        gradient.scatter_add_(1, ctx.labels, gradient.new_full(ctx.labels.shape, ctx.smoothing - 1))
        gradient.index_fill_(0, ctx.ignored, 0.0)
        if given != 1:
            gradient.mul_(given)
        return gradient.to(ctx.dtype), None, None
