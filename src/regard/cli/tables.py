"""The terminal: results as tables or JSON, and progress bars; `rich` is imported only when it is needed."""

from __future__ import annotations

import json
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


def print_json(values: Mapping[str, Any]) -> None:
    """Print one JSON object."""
    print(json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False))


def show(report: Report, values: Mapping[str, Any] | None = None, *, as_json: bool) -> None:
    """Print a result as JSON (`values`, by default `to_dict()`) or as tables; its messages go to standard error."""
    for message in report.messages:
        print(message, file=sys.stderr)
    return print_json(values or report.to_dict()) if as_json else print_tables(report.tables())


def print_tables(tables: Sequence[Table], justify: Literal["left", "right"] = "right") -> None:
    """Print tables that fit the terminal; `justify` is for every column but the first."""
    from rich import table as rich_table
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for number, plain in enumerate(tables):
        if number:
            console.print()
        if plain.title:
            console.print(Text(plain.title, "bold"))
        narrow = console.width < NARROW_TERMINAL
        table = rich_table.Table(box=None, pad_edge=False, collapse_padding=narrow, show_header=any(plain.columns))
        for column, name in enumerate(plain.columns):
            table.add_column(Text(name, "dim"), justify=justify if column else "left", overflow="fold")
        for row in plain.rows:
            table.add_row(*map(Text, row))
        console.print(table)


@contextmanager
def working(description: str) -> Iterator[None]:
    """A spinner during long work, on a terminal only."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(description):
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
    notes = [progress.TransferSpeedColumn()] if downloads else [progress.TextColumn("{task.fields[note]}")]
    columns = progress.TextColumn("{task.description}"), progress.BarColumn(), *counts, *notes
    start = perf_counter()
    with progress.Progress(
        *columns, progress.TimeRemainingColumn(), console=console, disable=not console.is_terminal, transient=True
    ) as bars:
        tasks: dict[str, TaskID] = {}

        def update(name: str, done: int, total: int | None, note: str = "") -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=total, note="")
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
    from regard.training.card import SCORE_NAMES

    values = {name: score["score"] if isinstance(score, Mapping) else score for name, score in scores.items()}
    return ", ".join(f"{SCORE_NAMES.get(name, name)} {value:.4g}" for name, value in reversed(values.items()))
