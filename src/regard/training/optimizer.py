"""The optimizer, AdamW, and its learning-rate schedules as pure functions of the update."""

from __future__ import annotations

import math

import torch
from torch import nn

from regard.config import TrainConfig


def learning_rate(update: float, config: TrainConfig, size: int) -> float:
    """The learning rate of an update, counted from 1, by the schedule of the config; `size` is model.size.

    With --minutes, `update` is the position by time, in a schedule of `train.updates`.
    """
    peak, warmup = config.learning_rate, max(config.warmup, 1)
    if config.schedule == "noam":  # Vaswani et al. (2017): size^-0.5 min(u^-0.5, u w^-1.5)
        return peak / math.sqrt(size) * min(1 / math.sqrt(update), update / math.sqrt(warmup) ** 3)
    if config.schedule == "inverse_sqrt":  # noam with a given peak
        return peak * min(update / warmup, math.sqrt(warmup / update))
    if config.warmup:
        peak *= min(1.0, update / config.warmup)
    if config.schedule == "constant":
        return peak
    end = config.updates + (config.schedule == "linear")  # linear: zero would come after the last update
    decayed = min(1.0, max(0, update - warmup) / max(1, end - warmup))
    if config.schedule == "linear":
        return peak * (1 - decayed)
    return peak * (0.1 + 0.9 * (0.5 * (1 + math.cos(math.pi * decayed))))  # cosine, to a tenth of the peak


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """Fused AdamW with weight decay on matrices only: not on biases, norms or embeddings."""
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    decayed: list[nn.Parameter] = []
    not_decayed: list[nn.Parameter] = []
    for parameter in model.parameters():
        if parameter.requires_grad:
            is_matrix = parameter.dim() == 2 and id(parameter) not in embeddings
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
