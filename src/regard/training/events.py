"""Events of a training run, which the loop passes to its observers (live view, TensorBoard, film)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

    from regard.training.progress import TimeLeft


@dataclass(frozen=True)
class StartEvent:
    """Training starts, or resumes after `update`."""

    folder: Path
    description: str
    """Model and hardware, for the title of a view."""
    update: int
    updates: int
    validate_every: int
    cores: int
    flops_per_token: float
    """FLOPs of training on one target token."""
    peak_flops: float
    """FLOPs per second of all processes, from the data sheet; 0 if unknown."""
    gpu_memory: Callable[[], tuple[int, int] | None]
    """Reads the reserved and the total bytes of the GPU."""
    time_left: TimeLeft


@dataclass(frozen=True)
class UpdateEvent:
    """The optimizer has made an update."""

    update: int
    loss: float
    """Negative log-likelihood per target token."""
    grad_norm: float
    """The gradient norm before clipping."""
    learning_rate: float
    tokens: int
    """Target tokens, of all processes."""
    epoch: int
    seconds: float = 0.0


@dataclass(frozen=True)
class SkipEvent:
    """The loss or gradient of an update was not finite (NaN or inf); the update was skipped."""

    update: int


@dataclass(frozen=True)
class RollbackEvent:
    """The loss was not finite many times in a row; training was rolled back to the checkpoint of `update`."""

    update: int
    in_a_row: int
    lr_scale: float
    """The factor of the learning rate from now on."""
    skipped: int
    """Updates skipped since the start."""
    remarks: tuple[str, ...]
    """Damaged checkpoints that were skipped."""


@dataclass(frozen=True)
class SplitEvent:
    """GPU memory was short; batches are processed in `parts` parts from now on."""

    update: int
    parts: int


@dataclass(frozen=True)
class ValidationEvent:
    """The model was validated."""

    update: int
    scores: dict[str, Any]
    """valid_loss and, for translators, bleu or chrf with its signature and the number of sentences."""
    sample: dict[str, str]
    """source, reference and model output of one sentence; empty for language models."""
    best: bool
    seconds: float
    model: nn.Module
    """With the weights that were validated (their moving average if train.ema_decay is set)."""


@dataclass(frozen=True)
class SaveEvent:
    """A checkpoint is being written in the background; training stopped for `seconds`."""

    update: int
    seconds: float


Event = StartEvent | UpdateEvent | SkipEvent | RollbackEvent | SplitEvent | ValidationEvent | SaveEvent
Observer = Callable[[Event], None]
"""Called with an event after every update, validation, save or error."""
