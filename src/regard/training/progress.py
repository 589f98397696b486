"""The state of a run besides its tensors, as in `progress.json` of a checkpoint."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path

from regard.errors import FolderError
from regard.training.checkpoint import PROGRESS, Checkpoint

MAX_COUNT = 2**53  # of the updates, tokens or seconds in a checkpoint: more than any run has


@dataclass
class Progress:
    """The state of a run besides its tensors."""

    update: int = 0
    position: float = 0
    """The update or, with train.minutes, the share of the time used, times train.updates."""
    next_validation: float = 0
    """The position at which the next validation is due."""
    next_save: float = 0
    """The position at which the next checkpoint is due."""
    saved: list[int] = field(default_factory=list)
    """The updates of the last checkpoints by train.save_every, oldest first."""
    epoch: int = 0
    batch: int = 0
    """Global batches of the epoch that were trained on."""
    tokens: int = 0
    """Target tokens trained on."""
    skipped: int = 0
    """Updates skipped because the loss or gradient was NaN or inf."""
    nan_in_a_row: int = 0
    lr_scale: float = 1.0
    """Factor of the learning rate; below 1 after a rollback."""
    split: int = 1
    """Number of parts that a batch is split into because GPU memory is short."""
    best_score: float | None = None
    best_loss: float | None = None
    """Ties go to the lower validation loss."""
    best_update: int = 0
    validations_since_best: int = 0
    seconds: float = 0.0
    """Seconds of updates."""
    prepared: float = 0.0
    """Seconds before the first update, with train.minutes."""
    elapsed: float = 0.0
    """Seconds of the whole run so far, with train.minutes."""
    finished: bool = False


def read_progress(checkpoint: Checkpoint, path: Path) -> Progress:
    """The progress of a checkpoint; its numbers are checked, because the folder may be untrusted."""
    try:
        progress = Progress(**checkpoint.progress)
        values = dataclasses.asdict(progress)
        scores = [values.pop(name) for name in ("best_score", "best_loss")]
        valid = all(0 <= count < MAX_COUNT for count in [*values.pop("saved"), *values.values()])
        valid = valid and all(isinstance(score, int | float | None) for score in scores)
    except TypeError as error:
        raise FolderError(f"{path} was written by another version of Regard: {error}") from error
    if not valid or progress.update != checkpoint.update:
        raise FolderError(f"{path / PROGRESS} is damaged: its numbers are not those of update {checkpoint.update}")
    return progress
