"""The live view of a run: activity, loss, scores, speed and time left on a terminal; plain lines elsewhere."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import isfinite, nan
from statistics import fmean

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from regard.cli.tables import escape
from regard.results import format_duration
from regard.training.events import Event, StartEvent
from regard.training.observers import SCORE_FORMATS, PlainLines, Statistics

BAR_WIDTH = 30  # columns of the progress bar and of a chart
BLOCKS = "▁▂▃▄▅▆▇█"
NAME_WIDTH = 11  # columns
STOPPING = "stopping: a checkpoint is saved first; Ctrl-C again stops at once. The same command resumes the run"


class View:
    """Shows the events of a run; on a terminal as a live view below the messages."""

    def __init__(self, console: Console, *, live: bool) -> None:
        self._console, self._begin = console, time.monotonic()
        self._statistics, self._lines = Statistics(), PlainLines(self.say)
        self._signals: set[int] = set()
        self._live = Live(self, console=console, refresh_per_second=2, vertical_overflow="crop") if live else None
        if self._live is not None:
            self._live.start()

    def say(self, line: str) -> None:
        """Print a line above the live view; on a terminal it is wrapped between words."""
        self._console.print(Text(escape(line)), soft_wrap=not self._console.is_terminal)

    def observe(self, event: Event) -> None:
        """Update the view with an event."""
        observer = self._lines if self._live is None else self._statistics
        observer.observe(event)

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
        charts = {"loss": list(dict(statistics.losses).values())}
        for key, (name, _) in SCORE_FORMATS.items():
            charts[name] = [entry[key] for entry in validations.values() if isfinite(entry.get(key, nan))]
        sample: dict[str, str] = next(reversed(validations.values()), {}).get("sample", {})
        seconds = statistics.seconds_left if statistics.activity else None
        speed = f"{statistics.tokens_per_second:,.0f} tokens/s"
        left = f"{format_duration(seconds)} left" if seconds is not None else ""
        lines = [
            Text.assemble((escape(start.folder), "bold"), (f"  {start.description}", "dim")),
            self._progress(start, activity),
            Text(", ".join(filter(None, [speed, left]))),
            *(chart(name, values) for name, values in charts.items() if values),
        ]
        for name, text in sample.items():
            lines.append(Text.assemble((name.ljust(NAME_WIDTH), "dim"), escape(" ".join(text.split()))))
        for line in lines:
            line.truncate(options.max_width, overflow="ellipsis")
        yield from lines

    def _progress(self, start: StartEvent, activity: str) -> Text:
        update, settings = self._statistics.update, start.clock.settings
        done = update.update if update else start.update
        share = start.clock.elapsed() / (60 * settings.minutes) if settings.minutes else done / settings.updates
        share = min(share, 1.0)
        total = "" if settings.minutes else f" of {settings.updates:,}"
        label = ", ".join(filter(None, [activity, f"update {done:,}{total}"]))
        bar = "━" * round(BAR_WIDTH * share)
        rest = "━" * (BAR_WIDTH - len(bar))
        return Text.assemble((f"{label}  ", "bold"), (bar, "green"), (rest, "bright_black"), f"  {share:4.0%}")


def chart(name: str, values: Sequence[float]) -> Text:
    """One line: name, first value, bars, last value. A bar is the mean of neighbouring values."""
    columns = min(BAR_WIDTH, len(values))
    bounds = [len(values) * column // columns for column in range(columns + 1)]
    means = [fmean(values[bounds[i] : bounds[i + 1]]) for i in range(columns)]
    low, high = min(means), max(means)
    heights = [round((mean - low) / ((high - low) or 1.0) * (len(BLOCKS) - 1)) for mean in means]
    bars = "".join(BLOCKS[height] for height in heights)
    first, last = f"{values[0]:6.2f}", f"{values[-1]:.2f}"
    return Text.assemble((name.ljust(NAME_WIDTH), "dim"), first, (f" {bars} ", "cyan"), last)


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
