"""The live view of a run: activity, loss, scores, speed and time left on a terminal; plain lines elsewhere."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from math import isfinite, nan
from statistics import fmean

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from regard.cli.tables import printable
from regard.results import format_duration
from regard.training.events import Event, ProblemEvent, StartEvent
from regard.training.observers import SCORE_FORMATS, PlainLines, Statistics

REFRESH_PER_SECOND = 2
BAR_WIDTH = 40  # columns of the progress bar and of a chart
MIN_BARS = 8  # of a chart; if even these do not fit, its right end is cut off
BLOCKS = "▁▂▃▄▅▆▇█"
NAME_WIDTH = 11  # columns
STYLES = {"model": "bold"}  # of a sample: its source, its reference and the output of the model
STOPPING = "stopping: a checkpoint is saved first; Ctrl-C again stops at once. The same command resumes the run"
PROBLEMS = {
    "skipped": "updates skipped: loss or gradient was NaN",
    "rollback": "times rolled back, learning rate halved",
    "split": "times batches were split to fit into memory",
}


class View:
    """Shows the events of a run; on a terminal as a live view below the messages."""

    def __init__(self, console: Console, *, live: bool) -> None:
        self._console, self._begin = console, time.monotonic()
        self._statistics, self._lines = Statistics(), PlainLines(self.say)
        self._problems: Counter[str] = Counter()
        self._signals: set[int] = set()
        self._live = (
            Live(self, console=console, refresh_per_second=REFRESH_PER_SECOND, vertical_overflow="crop")
            if live
            else None
        )
        if self._live is not None:
            self._live.start()

    def say(self, line: str) -> None:
        """Print a line above the live view; on a terminal it is wrapped between words."""
        self._console.print(Text(printable(line)), soft_wrap=not self._console.is_terminal)

    def observe(self, event: Event) -> None:
        """Update the view with an event."""
        if self._live is None:
            self._lines.observe(event)
            return
        self._statistics.observe(event)
        if isinstance(event, ProblemEvent):
            self._problems[event.kind] += 1

    def receive(self, number: int) -> None:
        """Print a message for SIGINT or SIGTERM; if the same signal comes again, end the process.

        That damages no file, because files are written atomically.
        """
        if number not in self._signals:
            self._signals.add(number)
            self.say(STOPPING)
            return
        if self._live is not None:
            os.write(2, b"\x1b[?25h\n")  # the cursor, which the live view hides
        os._exit(128 + number)

    def stop(self) -> None:
        """End the live view; its last state stays on the terminal."""
        if self._live is not None:
            self._statistics.activity = ""
            self._signals.clear()
            self._live.transient = self._statistics.start is None
            self._live.stop()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The lines of the view, the most important first; a small terminal cuts the last ones off."""
        statistics, start = self._statistics, self._statistics.start
        activity = "stopping" if self._signals else statistics.activity
        if start is None:
            yield Text(f"{activity}, {format_duration(time.monotonic() - self._begin)}", "dim")
            return
        validations = dict(statistics.validations)  # copies: this is another thread
        sample: dict[str, str] = next(reversed(validations.values()), {}).get("sample", {})
        charts = {"loss": dict(statistics.losses)} | {
            name: {update: entry[key] for update, entry in validations.items() if isfinite(entry.get(key, nan))}
            for key, (name, _) in SCORE_FORMATS.items()
        }
        for line in (
            Text.assemble((printable(start.folder), "bold"), (f"  {start.description}", "dim")),
            self._bar(start, activity, options.max_width),
            self._speed(),
            *(Text(f"{number} {PROBLEMS[kind]}", "magenta") for kind, number in self._problems.items()),
            *(chart(name, points, options.max_width) for name, points in charts.items() if points),
            *(
                Text.assemble(
                    (name.ljust(NAME_WIDTH), "dim"), (printable(" ".join(text.split())), STYLES.get(name, ""))
                )
                for name, text in sample.items()
            ),
        ):
            line.truncate(options.max_width, overflow="ellipsis")
            yield line

    def _bar(self, start: StartEvent, activity: str, width: int) -> Text:
        update, settings = self._statistics.update, start.clock.settings
        done = update.update if update else start.update
        share = start.clock.elapsed() / (60 * settings.minutes) if settings.minutes else done / settings.updates
        share = min(share, 1.0)
        label = f"update {done:,}  " if settings.minutes else f"update {done:,} of {settings.updates:,}  "
        label = f"{activity}, {label}" if activity else label
        columns = max(0, min(BAR_WIDTH, width - len(label) - 6))
        bar = "━" * round(columns * share)
        rest = "━" * (columns - len(bar))
        return Text.assemble((label, "bold"), (bar, "green"), (rest, "bright_black"), f"  {share:4.0%}")

    def _speed(self) -> Text:
        statistics = self._statistics
        parts = [f"{statistics.tokens_per_second:,.0f} tokens/s"]
        if statistics.activity and statistics.seconds_left is not None:
            parts.append(f"{format_duration(statistics.seconds_left)} left")
        if statistics.best_update:
            parts.append(f"best at update {statistics.best_update:,}")
        return Text(", ".join(parts))


def chart(name: str, points: Mapping[int, float], width: int) -> Text:
    """One line: name, first value, bars, last value, and the ranges of the updates and of the values.

    A bar is the mean of neighbouring points.
    """
    updates = [*points]
    first, last = f"{points[updates[0]]:6.2f}", f"{points[updates[-1]]:.2f}"
    low, high = min(points.values()), max(points.values())
    axes = f"  updates {updates[0]:,} to {updates[-1]:,}, scale {low:.2f} to {high:.2f}"
    room = width - len(axes) - len(first) - len(last) - NAME_WIDTH - 2
    columns = min(BAR_WIDTH, len(points), max(room, MIN_BARS))
    bounds = [len(updates) * column // columns for column in range(columns + 1)]
    means = [fmean(points[update] for update in updates[i:j]) for i, j in pairwise(bounds)]
    heights = [round((mean - low) / ((high - low) or 1.0) * (len(BLOCKS) - 1)) for mean in means]
    bars = "".join(BLOCKS[height] for height in heights)
    return Text.assemble((name.ljust(NAME_WIDTH), "dim"), first, (f" {bars} ", "cyan"), last, (axes, "dim"))


@contextmanager
def viewing(*, quiet: bool) -> Iterator[View]:
    """A view on standard error: live on a terminal, plain lines otherwise. It reports Ctrl-C and SIGTERM at once."""
    console = Console(stderr=True, quiet=quiet)
    view = View(console, live=console.is_terminal and not (quiet or console.is_dumb_terminal))
    try:
        with _watching_signals(view.receive):
            yield view
    finally:
        view.stop()


@contextmanager
def _watching_signals(receive: Callable[[int], None]) -> Iterator[None]:
    """Call `receive` in a thread with every SIGINT and SIGTERM.

    Python runs signal handlers only between bytecode instructions, so native code, such as the training of a tokenizer,
    can delay them for a minute.
    """
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)

    def watch() -> None:
        while number := reader.recv(1):
            if number[0] in (signal.SIGINT, signal.SIGTERM):
                receive(number[0])

    thread = threading.Thread(target=watch, name="signals", daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        writer.close()
        thread.join()
        reader.close()
