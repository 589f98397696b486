"""Objectives: what a batch costs, summed over its tokens; the loop divides by the tokens of all processes."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.config import TrainConfig
from regard.text.batch import Batch
from regard.training.loss import IGNORED, cross_entropy


class Cost(NamedTuple):
    """Summed over tokens."""

    loss: Tensor
    """What is minimised."""
    plain: Tensor
    """Cross-entropy without smoothing or penalties: its mean is the logarithm of the perplexity."""


def objective(model: nn.Module, batch: Batch, config: TrainConfig) -> Cost:
    """Of a translation, a next token or a masked token: whatever the family's batch asks for."""
    if config.rdrop:
        return _rdrop(model, batch, config)
    logits = model(batch)
    labels = wanted(logits, batch)
    loss = cross_entropy(logits, labels, config.smoothing)
    return Cost(loss, plain_loss(logits, labels, loss, config.smoothing))


def wanted(logits: Tensor, batch: Batch) -> Tensor:
    """The labels of these logits: all of the target, or of a bert only what is to be guessed."""
    return batch.target_out if logits.dim() == 3 else batch.target_out[batch.target_out != IGNORED]


def plain_loss(logits: Tensor, labels: Tensor, loss: Tensor, smoothing: float) -> Tensor:
    """The loss without smoothing, for the journal."""
    if not smoothing:
        return loss.detach()
    with torch.no_grad():
        logits, labels = logits.detach().flatten(0, -2), labels.flatten()
        own = logits.gather(1, labels[:, None])[:, 0].float()
        return (logits.float().logsumexp(-1) - own).where(labels != IGNORED, 0.0).sum()


def _rdrop(model: nn.Module, batch: Batch, config: TrainConfig) -> Cost:
    """R-Drop (Liang et al., 2021): the mean loss of two passes, and how far their predictions lie apart."""
    twice = batch.each(lambda tensor: torch.cat([tensor, tensor]))
    logits = model(twice)
    labels = wanted(logits, twice)
    loss = cross_entropy(logits, labels, config.smoothing)
    plain = plain_loss(logits, labels, loss, config.smoothing)
    one, other = (part.float().log_softmax(-1) for part in logits.flatten(0, -2).chunk(2))
    counts = labels.flatten().chunk(2)[0] != IGNORED
    apart = F.kl_div(one, other, reduction="none", log_target=True).sum(-1)
    apart = apart + F.kl_div(other, one, reduction="none", log_target=True).sum(-1)
    divergence = apart.where(counts, 0.0).sum()
    return Cost(loss / 2 + config.rdrop * divergence / 4, plain / 2)
