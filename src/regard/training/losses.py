"""Losses: cross-entropy with label smoothing, R-Drop and guided alignment, for translation, next-token prediction and
masked language modelling.

All losses are sums over tokens; the training loop divides by the number of tokens in all processes.
B rows, H heads, T target tokens, S source tokens, N tokens of a batch, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.config import TrainConfig
from regard.models import Record
from regard.text.batching import IGNORE_INDEX, Batch

LogitsLoss = Callable[[Tensor, Tensor, float, float], tuple[Tensor, Tensor]]


def batch_loss(
    model: nn.Module, batch: Batch, config: TrainConfig, logits_loss_function: LogitsLoss | None = None
) -> tuple[Tensor, Tensor]:
    """The training loss of a batch, with label smoothing and penalties, and its negative log-likelihood without them.

    Both are sums over its tokens; exp(negative log-likelihood / tokens) is the perplexity. With R-Drop the batch passes
    through the model twice, with different dropout. `logits_loss_function` is a compiled version of `logits_loss`.
    """
    if config.r_drop:
        batch = batch.map_tensors(lambda tensor: torch.cat([tensor, tensor]))
    record: Record | None = {} if config.guided_alignment else None
    logits = model(batch) if record is None else model(batch, record)
    labels = batch.target_out
    if logits.dim() == 2:  # masked language modelling: the logits of the masked tokens only
        labels = labels[labels != IGNORE_INDEX]
    loss, nll = (logits_loss_function or logits_loss)(logits, labels, config.label_smoothing, config.r_drop)
    if record is not None:
        layers = [name for name in record if name.endswith(".cross")]
        weights = record[layers[max(len(layers) - 2, 0)]]
        assert batch.alignment is not None
        passes = 2 if config.r_drop else 1
        loss = loss + config.guided_alignment * guided_alignment_loss(weights, batch.alignment) / passes
    return loss, nll


def logits_loss(logits: Tensor, labels: Tensor, label_smoothing: float, r_drop: float) -> tuple[Tensor, Tensor]:
    """Cross-entropy and, if `r_drop` is above 0, the R-Drop penalty; the batch then holds every row twice.

    R-Drop (Liang et al., 2021): the KL divergence between the predictions of the two passes, in both directions.
    """
    loss, nll = cross_entropy(logits, labels, label_smoothing)
    if not r_drop:
        return loss, nll
    first, second = (half.float().log_softmax(-1) for half in logits.flatten(0, -2).chunk(2))
    not_padding = labels.flatten().chunk(2)[0] != IGNORE_INDEX
    forward = F.kl_div(first, second, reduction="none", log_target=True).sum(-1)
    backward = F.kl_div(second, first, reduction="none", log_target=True).sum(-1)
    divergence = (forward + backward).where(not_padding, 0.0).sum()
    return loss / 2 + r_drop * divergence / 4, nll / 2


# Cross-entropy


def cross_entropy(logits: Tensor, labels: Tensor, label_smoothing: float) -> tuple[Tensor, Tensor]:
    """The cross-entropy of (..., V) logits with label smoothing, and the negative log-likelihood without it.

    Label smoothing e gives the label a probability of 1 - e and spreads e evenly over the vocabulary. Both are sums
    over tokens; the second has no gradient.
    """
    logits, labels = logits.flatten(0, -2), labels.flatten()
    if logits.device.type == "cpu" and torch.is_grad_enabled() and not torch.compiler.is_compiling():
        losses: tuple[Tensor, Tensor] = _InPlaceCrossEntropy.apply(  # type: ignore[no-untyped-call]
            logits, labels, label_smoothing
        )
        return losses
    log_p = logits.float().log_softmax(-1)
    nll = F.nll_loss(log_p, labels, reduction="sum", ignore_index=IGNORE_INDEX)
    if not label_smoothing:
        return nll, nll.detach()
    uniform = -log_p.mean(-1).where(labels != IGNORE_INDEX, 0.0).sum()
    return (1 - label_smoothing) * nll + label_smoothing * uniform, nll.detach()


class _InPlaceCrossEntropy(torch.autograd.Function):
    """Cross-entropy for a CPU, where allocation is slow: the log-probabilities (N, V) become the gradient in place."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, label_smoothing: float) -> tuple[Tensor, Tensor]:
        log_p = logits.float().log_softmax(-1)
        not_padding = labels != IGNORE_INDEX
        ctx.ignored, ctx.label_smoothing = (~not_padding).nonzero()[:, 0], label_smoothing
        ctx.labels = labels.clamp_min(0)[:, None]  # an index even where there is no label
        ctx.log_p, ctx.dtype = log_p, logits.dtype
        nll = -log_p.gather(1, ctx.labels)[:, 0].where(not_padding, 0.0).sum()
        loss = (1 - label_smoothing) * nll
        if label_smoothing:
            loss = loss - label_smoothing * log_p.mean(-1).where(not_padding, 0.0).sum()
        nll = nll.clone()
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        upstream = gradients[0]
        gradient, ctx.log_p = ctx.log_p.exp_(), None
        if ctx.label_smoothing:
            gradient.sub_(ctx.label_smoothing / gradient.shape[-1])
        gradient.scatter_add_(1, ctx.labels, gradient.new_full(ctx.labels.shape, ctx.label_smoothing - 1))
        gradient.index_fill_(0, ctx.ignored, 0.0)
        if upstream != 1:
            gradient.mul_(upstream)
        return gradient.to(ctx.dtype), None, None


# Guided alignment


def guided_alignment_loss(weights: Tensor, alignment: Tensor) -> Tensor:
    """The cross-entropy between the first head's attention (B, H, T, S) and an alignment (B, T, S).

    Follows Garg et al. (2019): it is applied to the second-to-last decoder layer, whose attention is most like an
    alignment (an rnn or a decoder of one layer has only one). Target tokens without an alignment have no loss.
    """
    probabilities = weights[:, 0].float().clamp_min(1e-9)  # padding has weight 0 and no alignment: avoid 0 * -inf
    return -(alignment * probabilities.log()).sum()
