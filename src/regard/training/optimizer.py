"""The optimizer: AdamW, and the schedules of its rate as pure functions of the update."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

from regard.attention.positions import Learned
from regard.config import TrainConfig
from regard.models.lora import has_frozen_rows

Schedule = Callable[[int, TrainConfig, int], float]


def _warm(update: int, warmup: int) -> float:
    return min(1.0, update / warmup) if warmup else 1.0


def noam(update: int, config: TrainConfig, size: int) -> float:
    """size^-0.5 min(u^-0.5, u w^-1.5): the paper's, times `rate`."""
    warmup = max(config.warmup, 1)
    return config.learning_rate / math.sqrt(size) * min(1 / math.sqrt(update), update / math.sqrt(warmup) ** 3)


def inverse_sqrt(update: int, config: TrainConfig, size: int) -> float:
    """The same curve, with its peak given."""
    warmup = max(config.warmup, 1)
    return config.learning_rate * min(update / warmup, math.sqrt(warmup / update))


def cosine(update: int, config: TrainConfig, size: int) -> float:
    """Half a cosine, down to a tenth."""
    fall = 0.5 * (1 + math.cos(math.pi * _done(update, config, end=config.updates)))
    return config.learning_rate * _warm(update, config.warmup) * (0.1 + 0.9 * fall)


def linear(update: int, config: TrainConfig, size: int) -> float:
    """A straight line that would be at zero after the last update."""
    return config.learning_rate * _warm(update, config.warmup) * (1 - _done(update, config, end=config.updates + 1))


def constant(update: int, config: TrainConfig, size: int) -> float:
    """No fall at all."""
    return config.learning_rate * _warm(update, config.warmup)


def _done(update: int, config: TrainConfig, *, end: int) -> float:
    """The share of the way from the end of the warm-up, or the first update, to the end."""
    begin = max(config.warmup, 1)
    return min(1.0, max(0, update - begin) / max(1, end - begin))


SCHEDULES: dict[str, Schedule] = {
    "noam": noam,
    "inverse_sqrt": inverse_sqrt,
    "cosine": cosine,
    "linear": linear,
    "constant": constant,
}


def rate(update: int, config: TrainConfig, size: int) -> float:
    """The learning rate of update 1, 2, ..."""
    return SCHEDULES[config.schedule](update, config, size)


def reserve(optimizer: torch.optim.Optimizer) -> None:
    """Take the memory of its averages before batches do: these can be halved where too little is left.

    It is a step on which something was no number: nothing else comes of it.
    """
    given = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for parameter in given:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.found_inf = torch.ones((), device=given[0].device)  # type: ignore[attr-defined]
    optimizer.step()
    optimizer.zero_grad()


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """AdamW, fused where torch can; weight decay on whole matrices only, biases, norms and embeddings left alone."""
    decayed: list[nn.Parameter] = []
    spared: list[nn.Parameter] = []
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding | Learned)}
    for parameter in model.parameters():
        if parameter.requires_grad:
            matrix = parameter.dim() == 2 and id(parameter) not in tables and not has_frozen_rows(parameter)
            (decayed if matrix else spared).append(parameter)
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": spared, "weight_decay": 0.0}]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=config.learning_rate,
        betas=(0.9, config.beta2),
        eps=1e-9,
        fused=True,
    )
