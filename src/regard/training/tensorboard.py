"""TensorBoard: write the losses, learning rates and scores of a run as TensorBoard files, if it is installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from regard.folders import clear_os_errors
from regard.training.events import Event, RollbackEvent, UpdateEvent, ValidationEvent

BOARD = "tensorboard"  # the folder in a run's folder
UPDATES_PER_POINT = 10  # as in the journal


def installed() -> bool:
    """Whether TensorBoard is installed."""
    return importlib.util.find_spec("tensorboard") is not None


class Board:
    """Writes events as TensorBoard files; a resumed run removes points after the update it resumes from."""

    def __init__(self, folder: Path, update: int) -> None:
        self._folder = folder / BOARD
        self._open(update + 1 if update else None)  # a new run has nothing to remove
        self._tokens, self._seconds = 0, 0.0

    def _open(self, purge_step: int | None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        with clear_os_errors(self._folder):
            self._writer = SummaryWriter(self._folder, purge_step=purge_step)

    def observe(self, event: Event) -> None:
        """Write the numbers of an update or a validation."""
        if isinstance(event, UpdateEvent):
            self._write_update(event)
        elif isinstance(event, ValidationEvent):
            scores = {name: event.scores[name] for name in ("valid_loss", "bleu", "chrf") if name in event.scores}
            self._add({f"validation/{name}": value for name, value in scores.items()}, event.update)
            if event.sample:
                lines = [f"**{name}** {' '.join(text.split())}" for name, text in event.sample.items()]
                self._writer.add_text("sample", "\n\n".join(lines), event.update)
            self._writer.flush()
        elif isinstance(event, RollbackEvent):
            self._writer.close()
            self._open(event.update + 1)

    def _write_update(self, event: UpdateEvent) -> None:
        self._tokens += event.tokens
        self._seconds += event.seconds
        if event.update % UPDATES_PER_POINT and event.update != 1:
            return
        values = {f"training/{name}": getattr(event, name) for name in ("loss", "learning_rate", "grad_norm")}
        if self._seconds:
            values["training/tokens per second"] = self._tokens / self._seconds
        self._add(values, event.update)
        self._tokens, self._seconds = 0, 0.0

    def _add(self, values: dict[str, float], update: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, update)

    def __enter__(self) -> Board:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()
