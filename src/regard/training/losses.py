"""Objectives: what a batch costs, summed over its tokens; the loop divides by the tokens of all processes.

B rows, H heads, T target tokens, S source tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.config import Config, TrainConfig
from regard.errors import ConfigError
from regard.models import Record
from regard.text.batching import Batch
from regard.training.cross_entropy import IGNORED, cross_entropy

AGREED = 0.3  # of its layer's attention, which a model's own alignment must have; a flat beginning teaches nothing


class Cost(NamedTuple):
    """Summed over tokens."""

    loss: Tensor
    """What is minimised."""
    plain: Tensor
    """Cross-entropy without smoothing or penalties: its mean is the logarithm of the perplexity."""


Price = Callable[[Tensor, Tensor, float, float], Cost]


def objective(model: nn.Module, batch: Batch, config: TrainConfig, price: Price | None = None) -> Cost:
    """Of a translation, a next token or a masked token: whatever the family's batch asks for.

    With R-Drop the batch passes twice, under different dropout. `price` stands for `priced` where it is compiled.
    """
    if config.r_drop:
        batch = batch.each(lambda tensor: torch.cat([tensor, tensor]))
    logits, extra = _run(model, batch, config)
    cost = (price or priced)(logits, wanted(logits, batch), config.label_smoothing, config.r_drop)
    return cost._replace(loss=cost.loss + extra / (2 if config.r_drop else 1))


def priced(logits: Tensor, labels: Tensor, smoothing: float, rdrop: float) -> Cost:
    """What these logits cost."""
    loss, plain = cross_entropy(logits, labels, smoothing)
    return Cost(loss / 2 + rdrop * apart(logits, labels) / 4, plain / 2) if rdrop else Cost(loss, plain)


def apart(logits: Tensor, labels: Tensor) -> Tensor:
    """R-Drop (Liang et al., 2021): how far the predictions of two passes lie apart, both ways."""
    one, other = (part.float().log_softmax(-1) for part in logits.flatten(0, -2).chunk(2))
    counts = labels.flatten().chunk(2)[0] != IGNORED
    there = F.kl_div(one, other, reduction="none", log_target=True).sum(-1)
    back = F.kl_div(other, one, reduction="none", log_target=True).sum(-1)
    return (there + back).where(counts, 0.0).sum()


def _run(model: nn.Module, batch: Batch, config: TrainConfig) -> tuple[Tensor, Tensor | float]:
    """The logits, and what guided alignment costs."""
    if not config.guided_alignment:
        return model(batch), 0.0
    record: Record = {}
    logits = model(batch, record)
    crosses = [name for name in record if name.endswith(".cross")]
    weights = record[crosses[max(len(crosses) - 2, 0)]]
    links = own_links(weights, batch) if batch.alignment is None else batch.alignment
    return logits, config.guided_alignment * guided_loss(weights, links)


def guided_loss(weights: Tensor, links: Tensor) -> Tensor:
    """Cross-entropy of the first head's weights (B, H, T, S) with links (B, T, S), over target tokens that have any.

    After Garg et al. (2019): the layer is the last but one, where attention is most like an alignment; of an rnn and of
    a decoder with one layer, its only one.
    """
    given = weights[:, 0].float().clamp_min(1e-9)  # a source token that is no word has no link, and its zero no weight
    return -(links * given.log()).sum()


@torch.no_grad()
def own_links(weights: Tensor, batch: Batch) -> Tensor:
    """The alignment that a layer's heads together show: (B, T, S), one where both tokens look at each other most."""
    assert batch.source is not None
    mean = weights.detach().float().mean(1)
    real = (batch.target_out != IGNORED)[:, :, None] & (batch.source != IGNORED)[:, None, :]
    mean = mean.where(real, 0.0)
    best = (mean == mean.amax(-1, keepdim=True)) & (mean == mean.amax(-2, keepdim=True))
    return (best & (mean >= AGREED)).float()


def check_guided(config: Config, links: bool) -> None:
    """Guided alignment is for what looks at a source, and alignments are for it."""
    if links and not config.train.guided_alignment:
        raise ConfigError(
            "--alignments are for guided alignment: give its weight, such as --set train.guided_alignment=0.05"
        )
    if not config.train.guided_alignment:
        return
    if config.model.family in ("gpt", "bert"):
        raise ConfigError(f"train.guided_alignment draws attention to a source, and a {config.model.family} has none")
    if config.model.score == "none":
        raise ConfigError("train.guided_alignment draws attention to a source, and model.score = none has no attention")
    if links and config.text.bpe_dropout:
        raise ConfigError("--alignments link words cut in one way: set text.bpe_dropout=0, or leave --alignments out")


def wanted(logits: Tensor, batch: Batch) -> Tensor:
    """The labels of these logits: all of the target, or of a bert only what is to be guessed."""
    return batch.target_out if logits.dim() == 3 else batch.target_out[batch.target_out != IGNORED]
