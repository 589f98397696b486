"""The live view of a run: loss, score, speed and time left on a terminal; plain lines elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from regard.training.clock import format_duration
from regard.training.events import Event, ProblemEvent, ValidationEvent
from regard.training.observers import PlainLines, Statistics, format_scores

MAX_WIDTH = 100  # columns: longer lines are hard to read
REFRESH_PER_SECOND = 2
BARS = " ▁▂▃▄▅▆▇█"


class View:
    """Shows the events of a run; on a terminal as a live view below the messages."""

    def __init__(self, console: Console, *, live: bool) -> None:
        self._console = console
        self._statistics, self._lines = Statistics(), PlainLines(self.say)
        self._problems: Counter[str] = Counter()
        self._live = (
            Live(self, console=console, refresh_per_second=REFRESH_PER_SECOND, vertical_overflow="crop")
            if live
            else None
        )

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
        self._live.start()

    def stop(self) -> None:
        """End the live view; its last state stays on the terminal."""
        if self._live is not None:
            self._live.stop()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.draw(options.max_width, options.size.height - 1)

    # Numbers

    def _numbers(self) -> list[tuple[str, str]]:
        statistics = self._statistics
        numbers = [("loss", f"{statistics.loss:.3f}")]
        if statistics.validations:
            numbers += format_scores(statistics.validations[-1])[:1]
        numbers.append(("tokens/s", f"{statistics.tokens_per_second:,.0f}"))
        if statistics.update is not None:
            numbers.append(("learning rate", f"{statistics.update.learning_rate:.2e}"))
        return [*numbers, ("left", format_duration(statistics.seconds_left))]

    # The drawing

    def draw(self, width: int, height: int) -> list[Text]:
        """The lines of the view for a terminal of this size; the least important parts are left out first."""
        if self._statistics.start is None:
            return []
        width = max(min(width, MAX_WIDTH), 1)
        validations = self._statistics.validations
        sections = [  # in their order on the screen, with their importance
            (0, [self._title(), self._bar(width)]),
            (1, _columns(self._numbers(), width)),
            (4, [Text(line, "cyan") for line in sparkline(_means(self._statistics.losses, width - 2), 2)]),
            (2, self._problem_lines()),
            (3, _validation_table(validations[-4:])),
            (5, _sample_lines(validations[-1].sample) if validations else []),
        ]
        sections = [(importance, lines) for importance, lines in sections if lines]
        while len(sections) > 1 and sum(len(lines) + 1 for _, lines in sections) > height:
            sections.remove(max(sections, key=lambda section: section[0]))
        drawn = [line for _, lines in sections for line in [Text(), *lines]]
        for line in drawn:
            line.truncate(width, overflow="ellipsis")
        return drawn[-max(height, 1) :]

    def _title(self) -> Text:
        start = self._statistics.start
        assert start is not None
        return Text.assemble((str(start.folder), "bold"), (f"  {start.description}", "dim"))

    def _problem_lines(self) -> list[Text]:
        words = {
            "skipped": "updates skipped: loss or gradient was NaN",
            "rollback": "times rolled back, learning rate halved",
            "split": "times batches were split to fit into memory",
        }
        problems = [f"{number} {words[kind]}" for kind, number in self._problems.items()]
        return [Text(" · ".join(problems), "magenta")] if problems else []

    def _bar(self, width: int) -> Text:
        start, update = self._statistics.start, self._statistics.update
        assert start is not None
        settings, done = start.clock.settings, update.update if update else start.update
        share = start.clock.elapsed() / (60 * settings.minutes) if settings.minutes else done / settings.updates
        share = min(share, 1.0)
        label = f"update {done:,}" + ("" if settings.minutes else f" of {settings.updates:,}")
        end = f"  {share:4.0%}"
        bar_width = width - len(label) - 2 - len(end)
        if bar_width < 8:
            return Text.assemble((label, "bold"), end)
        bar = "━" * round(bar_width * share)
        rest = "━" * (bar_width - len(bar))
        return Text.assemble((label, "bold"), "  ", (bar, "green"), (rest, "bright_black"), end)


def _means(values: Sequence[float], number: int) -> list[float]:
    """Downsample values to at most `number` means of neighbouring values."""
    number = max(0, min(number, len(values)))
    bounds = [i * len(values) // number for i in range(number + 1)] if number else []
    return [sum(values[start:end]) / (end - start) for start, end in pairwise(bounds)]


def sparkline(points: Sequence[float], rows: int) -> list[str]:
    """A sparkline of `rows` lines; values above the 90th percentile are clipped: the first losses are much higher."""
    if not points:
        return []
    low, high = min(points), sorted(points)[len(points) * 9 // 10]
    shares = [min((point - low) / (high - low), 1.0) if high > low else 0.0 for point in points]
    heights = [1 + round((8 * rows - 1) * share) for share in shares]
    return ["".join(BARS[min(max(height - 8 * row, 0), 8)] for height in heights) for row in range(rows - 1, -1, -1)]


def _columns(numbers: list[tuple[str, str]], width: int) -> list[Text]:
    """Lay out numbers below their names, in as many rows as needed."""
    rows: list[tuple[Text, Text]] = []
    for name, value in numbers:
        size = max(len(name), len(value))
        if not rows or len(rows[-1][0]) + size > width:
            rows.append((Text(), Text()))
        rows[-1][0].append(f"{name:<{size}}   ", "dim")
        rows[-1][1].append(f"{value:<{size}}   ", "bold")
    return [line for row in rows for line in row]


def _validation_table(validations: Sequence[ValidationEvent]) -> list[Text]:
    """The last validations, the newest first."""
    if not validations:
        return []
    names = [name for name, _ in format_scores(validations[-1])]
    lines = [Text("".join([f"{'update':>9}", *(f"{name:>12}" for name in names)]), "dim")]
    best = max((event.update for event in validations if event.best), default=None)
    for number, event in enumerate(reversed(validations)):
        cells = [f"{event.update:>9,}", *(f"{text:>12}" for _, text in format_scores(event))]
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
