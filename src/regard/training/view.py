"""The live view of a run: loss, score, speed and time left on a terminal; plain lines elsewhere."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from regard.config import Config

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

RECENT = 50  # updates the speed and the loss shown are averaged over


class View:
    """Told of what happens, and showing it."""

    def __init__(self, config: Config, console: Console, bar: Progress | None) -> None:
        self._config, self._console, self._bar = config, console, bar
        self._recent: deque[tuple[float, int, float]] = deque(maxlen=RECENT)
        self._score = ""
        self._task: TaskID | None = None

    def say(self, line: str) -> None:
        """One line that stays."""
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def watch(self, kind: str, facts: dict[str, Any]) -> None:
        """An update, a validation or a save."""
        if kind == "update":
            self._recent.append((time.monotonic(), facts["tokens"], facts["loss"]))
            self._show(facts)
        elif kind == "validation":
            self._score = self._validated(facts)
            best = "  (best)" if facts.get("best") else ""
            self.say(f"update {facts['update']:>7,}  {self._line()}  {self._score}{best}")

    def _validated(self, facts: dict[str, Any]) -> str:
        metric = self._config.train.metric
        parts = [f"{metric} {facts[metric]:.2f}"] if metric in facts else []
        return "  ".join([*parts, f"valid loss {facts.get('valid_loss', float('nan')):.3f}"])

    def _line(self) -> str:
        if len(self._recent) < 2:
            return ""
        times, tokens, losses = zip(*self._recent, strict=True)
        rate = sum(tokens[1:]) / max(times[-1] - times[0], 1e-9)
        return f"loss {sum(losses) / len(losses):.3f}  {rate:,.0f} tokens/s"

    def _show(self, facts: dict[str, Any]) -> None:
        if self._bar is None:
            return
        if self._task is None:
            total = self._config.train.updates
            self._task = self._bar.add_task("", total=total, completed=facts["update"])
        self._bar.update(self._task, completed=facts["update"], description=f"{self._line()}  {self._score}")


@contextmanager
def viewing(config: Config, *, quiet: bool) -> Iterator[View]:
    """A view on standard error; a bar with time left where that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, quiet=quiet)
    if quiet or not console.is_terminal:
        yield View(config, console, None)
        return
    columns = BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn()
    with Progress(*columns, console=console) as bar:
        yield View(config, console, bar)
