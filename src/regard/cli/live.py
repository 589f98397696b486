"""The live view of a run: loss, score, speed and time left on a terminal; plain lines elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from regard.training.clock import format_duration
from regard.training.events import Event, ProblemEvent, StartEvent, ValidationEvent
from regard.training.observers import PlainLines, Statistics, format_scores

REFRESH_PER_SECOND = 2
BAR_WIDTH = 40  # columns
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
        self._live = (
            Live(self, console=console, refresh_per_second=REFRESH_PER_SECOND, vertical_overflow="crop")
            if live
            else None
        )
        if self._live is not None:
            self._live.start()

    def say(self, line: str) -> None:
        """Print a line above the live view."""
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def observe(self, event: Event) -> None:
        """Update the view with an event."""
        if self._live is None:
            self._lines.observe(event)
            return
        self._statistics.observe(event)
        if isinstance(event, ProblemEvent):
            self._problems[event.kind] += 1

    def stop(self) -> None:
        """End the live view; its last state stays on the terminal."""
        if self._live is not None:
            self._live.transient = self._statistics.start is None
            self._live.stop()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The lines of the view, the most important first; a small terminal cuts the last ones off."""
        start = self._statistics.start
        if start is None:
            yield Text(f"preparing, {format_duration(time.monotonic() - self._begin)}", "dim")
            return
        validations = self._statistics.validations
        for line in (
            Text.assemble((str(start.folder), "bold"), (f"  {start.description}", "dim")),
            self._bar(start),
            *self._numbers(),
            *(Text(f"{number} {PROBLEMS[kind]}", "magenta") for kind, number in self._problems.items()),
            *_validation_table(validations[-4:]),
            *(_sample_lines(validations[-1].sample) if validations else []),
        ):
            line.no_wrap, line.overflow = True, "ellipsis"
            yield line

    def _bar(self, start: StartEvent) -> Text:
        update, settings = self._statistics.update, start.clock.settings
        done = update.update if update else start.update
        share = start.clock.elapsed() / (60 * settings.minutes) if settings.minutes else done / settings.updates
        label = f"update {done:,}  " if settings.minutes else f"update {done:,} of {settings.updates:,}  "
        bar = "━" * round(BAR_WIDTH * min(share, 1.0))
        rest = "━" * (BAR_WIDTH - len(bar))
        return Text.assemble((label, "bold"), (bar, "green"), (rest, "bright_black"), f"  {min(share, 1.0):4.0%}")

    def _numbers(self) -> list[Text]:
        """Two lines: the names of loss, score, speed and time left, and their values."""
        statistics = self._statistics
        numbers = [
            *([("loss", f"{statistics.loss:.3f}")] if statistics.update else []),
            *(format_scores(statistics.validations[-1].scores)[:1] if statistics.validations else []),
            ("tokens/s", f"{statistics.tokens_per_second:,.0f}"),
            ("left", format_duration(statistics.seconds_left)),
        ]
        widths = [max(len(name), len(value)) + 3 for name, value in numbers]
        names, values = (
            "".join(text.ljust(width) for text, width in zip(texts, widths, strict=True))
            for texts in zip(*numbers, strict=True)
        )
        return [Text(names, "dim"), Text(values, "bold")]


def _validation_table(validations: Sequence[ValidationEvent]) -> list[Text]:
    """The last validations, the newest first."""
    if not validations:
        return []
    names = [name for name, _ in format_scores(validations[-1].scores)]
    lines = [Text("".join([f"{'update':>9}", *(f"{name:>12}" for name in names)]), "dim")]
    best = max((event.update for event in validations if event.best), default=None)
    for number, event in enumerate(reversed(validations)):
        cells = [f"{event.update:>9,}", *(f"{text:>12}" for _, text in format_scores(event.scores))]
        line = Text("".join(cells), "" if number == 0 else "dim")
        lines.append(line.append("  best", "green") if event.update == best else line)
    return lines


def _sample_lines(sample: dict[str, str]) -> list[Text]:
    """A source sentence, its reference and the model's output, one line each."""
    return [
        Text.assemble((f"{name:<11}", "dim"), (" ".join(text.split()), "bold" if name == "model" else ""))
        for name, text in sample.items()
    ]


@contextmanager
def viewing(*, quiet: bool) -> Iterator[View]:
    """A view on standard error: live on a terminal, plain lines otherwise."""
    console = Console(stderr=True, quiet=quiet)
    view = View(console, live=console.is_terminal and not (quiet or console.is_dumb_terminal))
    try:
        yield view
    finally:
        view.stop()
