"""Events of a training run, which the loop passes to its observers (journal, live view, TensorBoard, film)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

    from regard.training.clock import Clock


@dataclass(frozen=True)
class StartEvent:
    """Training starts, or resumes after `update`."""

    folder: Path
    description: str  # model and hardware, for the title of a view
    update: int
    clock: Clock


@dataclass(frozen=True)
class UpdateEvent:
    """The optimizer has made an update."""

    update: int
    loss: float  # negative log-likelihood per target token
    grad_norm: float  # before clipping
    learning_rate: float
    tokens: int  # target tokens, of all processes
    epoch: int
    seconds: float = 0.0


@dataclass(frozen=True)
class ProblemEvent:
    """Something went wrong, and training continues.

    skipped: the loss or gradient was NaN or inf. rollback: this happened many times in a row, and training continues
    from an earlier checkpoint. split: GPU memory was short, and batches are processed in parts.
    """

    kind: Literal["skipped", "rollback", "split"]
    update: int
    message: str = ""  # for the user; empty if it is not worth a line
    values: dict[str, Any] = field(default_factory=dict)  # as in the journal


@dataclass(frozen=True)
class ValidationEvent:
    """The model was validated."""

    update: int
    scores: dict[str, Any]  # valid_loss and, for translators, bleu or chrf with signature and number of sentences
    sample: dict[str, str]  # source, reference and model output of one sentence; empty for language models
    best: bool
    seconds: float
    model: nn.Module  # with the weights that were validated (their moving average if train.ema_decay is set)


@dataclass(frozen=True)
class ActivityEvent:
    """After `update`, the run does something that may take long and is no update: validating, saving, scoring."""

    update: int
    activity: str


Event = StartEvent | UpdateEvent | ProblemEvent | ValidationEvent | ActivityEvent
Observer = Callable[[Event], None]
"""Called with an event after every update, validation, save or problem."""
Say = Callable[[str], None]
"""Called with a message for the user."""
