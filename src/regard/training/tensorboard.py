"""The board: what happens in a run as TensorBoard files, where that library is installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from regard.folders import clear_os_errors

BOARD = "tensorboard"  # the folder in a run's folder
EVERY = 10  # updates from one point to the next, as in the journal


def installed() -> bool:
    """Whether there is a TensorBoard."""
    return importlib.util.find_spec("tensorboard") is not None


class Board:
    """Told of what happens, and writing it down; a resumed run takes back what came after the update it resumes at."""

    def __init__(self, folder: Path, update: int) -> None:
        self._folder = folder / BOARD
        self._open(update + 1 if update else None)  # a run that begins anew has nothing to take back
        self._tokens, self._seconds = 0, 0.0

    def _open(self, purged_from: int | None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        with clear_os_errors(self._folder):
            self._writer = SummaryWriter(self._folder, purge_step=purged_from)

    def watch(self, kind: str, facts: dict[str, Any]) -> None:
        """An update or a validation."""
        if kind == "update":
            self._updated(facts)
        elif kind == "validation":
            found = {name: facts[name] for name in ("valid_loss", "bleu", "chrf") if name in facts}
            self._add({f"validation/{name}": value for name, value in found.items()}, facts["update"])
            if "sample" in facts:
                lines = [f"**{name}** {' '.join(text.split())}" for name, text in facts["sample"].items()]
                self._writer.add_text("sample", "\n\n".join(lines), facts["update"])
            self._writer.flush()
        elif kind == "fell_back":
            self._writer.close()
            self._open(facts["update"] + 1)

    def _updated(self, facts: dict[str, Any]) -> None:
        self._tokens += facts["tokens"]
        self._seconds += facts.get("seconds", 0.0)
        if facts["update"] % EVERY and facts["update"] != 1:
            return
        values = {f"training/{name}": facts[name] for name in ("loss", "learning_rate", "grad_norm")}
        if self._seconds:
            values["training/tokens per second"] = self._tokens / self._seconds
        self._add(values, facts["update"])
        self._tokens, self._seconds = 0, 0.0

    def _add(self, values: dict[str, float], update: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, update)

    def __enter__(self) -> Board:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()
