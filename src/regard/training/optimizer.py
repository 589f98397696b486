"""The optimizer, AdamW, and its learning-rate schedules as pure functions of the update."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

from regard.attention.positions import Learned
from regard.config import TrainConfig
from regard.models.lora import has_frozen_rows

Schedule = Callable[[float, TrainConfig, int], float]


def _warmup(update: float, warmup: int) -> float:
    return min(1.0, update / warmup) if warmup else 1.0


def noam(update: float, config: TrainConfig, size: int) -> float:
    """The schedule of Vaswani et al. (2017), size^-0.5 min(u^-0.5, u w^-1.5), times `learning_rate`."""
    warmup = max(config.warmup, 1)
    return config.learning_rate / math.sqrt(size) * min(1 / math.sqrt(update), update / math.sqrt(warmup) ** 3)


def inverse_sqrt(update: float, config: TrainConfig, size: int) -> float:
    """Linear warm-up to `learning_rate`, then decay as 1 / sqrt(update); noam with a given peak."""
    warmup = max(config.warmup, 1)
    return config.learning_rate * min(update / warmup, math.sqrt(warmup / update))


def cosine(update: float, config: TrainConfig, size: int) -> float:
    """Linear warm-up, then cosine decay to a tenth of the peak."""
    decay = 0.5 * (1 + math.cos(math.pi * _decay_progress(update, config, end=config.updates)))
    return config.learning_rate * _warmup(update, config.warmup) * (0.1 + 0.9 * decay)


def linear(update: float, config: TrainConfig, size: int) -> float:
    """Linear warm-up, then linear decay that would reach zero after the last update."""
    return (
        config.learning_rate
        * _warmup(update, config.warmup)
        * (1 - _decay_progress(update, config, end=config.updates + 1))
    )


def constant(update: float, config: TrainConfig, size: int) -> float:
    """Linear warm-up, then no decay."""
    return config.learning_rate * _warmup(update, config.warmup)


def _decay_progress(update: float, config: TrainConfig, *, end: int) -> float:
    """Progress of the decay: 0 at the end of the warm-up, 1 at update `end`."""
    start = max(config.warmup, 1)
    return min(1.0, max(0, update - start) / max(1, end - start))


SCHEDULES: dict[str, Schedule] = {
    "noam": noam,
    "inverse_sqrt": inverse_sqrt,
    "cosine": cosine,
    "linear": linear,
    "constant": constant,
}


def learning_rate(update: float, config: TrainConfig, size: int) -> float:
    """The learning rate of an update, counted from 1, by the schedule of the config; `size` is model.size.

    With --minutes, `update` is the position by time, in a schedule of `train.updates`.
    """
    return SCHEDULES[config.schedule](update, config, size)


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """Fused AdamW with weight decay on matrices only: not on biases, norms or embeddings."""
    decayed: list[nn.Parameter] = []
    not_decayed: list[nn.Parameter] = []
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding | Learned)}
    for parameter in model.parameters():
        if parameter.requires_grad:
            is_matrix = parameter.dim() == 2 and id(parameter) not in embeddings and not has_frozen_rows(parameter)
            (decayed if is_matrix else not_decayed).append(parameter)
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": not_decayed, "weight_decay": 0.0}]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=config.learning_rate,
        betas=(0.9, config.beta2),
        eps=1e-9,
        fused=True,
    )


def allocate_state(optimizer: torch.optim.Optimizer) -> None:
    """Allocate AdamW's moments before the first batch: a batch can be split if memory is short, the moments cannot.

    It makes an optimizer step with `found_inf` set, which changes no weight and no moment.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.found_inf = torch.ones((), device=parameters[0].device)  # type: ignore[attr-defined]
    optimizer.step()
    optimizer.zero_grad()
