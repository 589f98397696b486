"""The terminal: messages, results as tables or JSON, and progress bars; `rich` is imported only when it is needed.

All commands print through this module, so that no text of a file can control the terminal.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

from regard.results import Report, Table

if TYPE_CHECKING:
    from rich.progress import TaskID

NARROW_TERMINAL = 64  # columns; narrower terminals get less padding in tables

MAX_LINE = 2000  # characters of a line of a message or a table
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters other than tab and newline, and those that change the direction of text."""


def escape(text: str) -> str:
    """Replace control characters by escapes such as \\u001b."""
    return CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def printable(text: object) -> str:
    """Escape the control characters of a message, and shorten long lines in the middle."""
    lines = str(text).split("\n")
    tail = MAX_LINE // 4
    return escape("\n".join(x if len(x) <= MAX_LINE else f"{x[: MAX_LINE - tail]} ... {x[-tail:]}" for x in lines))


def say(message: object) -> None:
    """Print a message on standard error."""
    print(printable(message), file=sys.stderr, flush=True)


def write(data: object, end: str = "\n") -> None:
    """Print data on standard output; on a terminal, its control characters are escaped."""
    print(escape(str(data)) if sys.stdout.isatty() else data, end=end, flush=True)


def print_json(values: Mapping[str, Any]) -> None:
    """Print one JSON object."""
    write(json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False))


def show(report: Report, values: Mapping[str, Any] | None = None, *, as_json: bool) -> None:
    """Print a result as JSON (`values`, by default `to_dict()`) or as tables; its messages go to standard error."""
    for message in report.messages:
        say(message)
    return print_json(values or report.to_dict()) if as_json else print_tables(report.tables())


def print_tables(tables: Sequence[Table], justify: Literal["left", "right"] = "right") -> None:
    """Print tables that fit the terminal; `justify` is for every column but the first.

    With left-justified columns, the names in the first column are not wrapped.
    """
    from rich import table as rich_table
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for number, plain in enumerate(tables):
        if number:
            console.print()
        if plain.title:
            console.print(Text(printable(plain.title), "bold"))
        narrow = console.width < NARROW_TERMINAL
        table = rich_table.Table(box=None, pad_edge=False, collapse_padding=narrow, show_header=any(plain.columns))
        for column, name in enumerate(plain.columns):
            side: Literal["left", "right"] = justify if column else "left"
            whole = column == 0 and justify == "left"
            table.add_column(Text(printable(name), "dim"), justify=side, overflow="fold", no_wrap=whole)
        for row in plain.rows:
            table.add_row(*(Text(printable(cell)) for cell in row))
        console.print(table)


@contextmanager
def working(description: str) -> Iterator[None]:
    """A spinner during long work, on a terminal only."""
    from rich.console import Console

    with Console(stderr=True).status(description):
        yield


@contextmanager
def progress_bars(*, downloads: bool = False) -> Iterator[Callable[..., None]]:
    """Yield a function `update(name, done, total, note)` that shows a progress bar for every name, on a terminal only.

    A bar shows the note or, without one, the rate, and the time left; a `total` of None is unknown.
    """
    from rich import progress
    from rich.console import Console

    console = Console(stderr=True)
    counts = [progress.DownloadColumn()] if downloads else [progress.MofNCompleteColumn()]
    notes = (
        [progress.TransferSpeedColumn()] if downloads else [progress.TextColumn("{task.fields[note]}", markup=False)]
    )
    columns = progress.TextColumn("{task.description}", markup=False), progress.BarColumn(), *counts, *notes
    start = perf_counter()
    with progress.Progress(
        *columns, progress.TimeRemainingColumn(), console=console, disable=not console.is_terminal, transient=True
    ) as bars:
        tasks: dict[str, TaskID] = {}

        def update(name: str, done: int, total: int | None, note: str = "") -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(printable(name), total=total, note="")
            rate = f"{done / max(perf_counter() - start, 1e-3):,.0f} per second"
            bars.update(tasks[name], completed=done, total=total, note=note or rate)

        yield update


@contextmanager
def counting_bar(description: str) -> Iterator[Callable[[int, int | None], None]]:
    """Yield a function `update(done, total)` for one progress bar; a `total` of None is unknown."""
    with progress_bars() as update:
        yield partial(update, description)


def scores_line(scores: Mapping[str, Any]) -> str:
    """`BLEU 41.2, chrF 63.0, loss 1.43`"""
    from regard.evaluation.metrics import METRICS

    values = {name: score["score"] if isinstance(score, Mapping) else score for name, score in scores.items()}
    return ", ".join(f"{METRICS.get(name, name)} {value:.4g}" for name, value in reversed(values.items()))
