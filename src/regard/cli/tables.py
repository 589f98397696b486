"""The terminal: results as tables, and progress bars; `rich` is imported only when it is needed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any

from regard.results import Report

if TYPE_CHECKING:
    from rich.progress import TaskID
    from rich.table import Table

NARROW_TERMINAL = 64  # columns; narrower terminals get less padding in tables


def corpora_table(rows: Sequence[Mapping[str, str]]) -> Table:
    """A table of the named corpora."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("name", style="bold", no_wrap=True)
    table.add_column("languages", no_wrap=True)
    table.add_column("where", no_wrap=True)
    table.add_column("size")
    table.add_column("licence", style="dim")
    for row in rows:
        unverified = " (not verified)" if row["checksum"] == "not verified" else ""
        table.add_row(row["name"], row["languages"], row["where"], row["size"] + unverified, row["licence"])
    return table


def show(report: Report, values: Mapping[str, Any] | None = None, *, as_json: bool) -> None:
    """Print a result as JSON (`values`, by default `to_dict()`) or as tables that fit the terminal."""
    if as_json:
        return print(json.dumps(values or report.to_dict(), indent=2, ensure_ascii=False, allow_nan=False))
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    for number, plain in enumerate(report.tables()):
        if number:
            console.print()
        if plain.title:
            console.print(Text(plain.title, "bold"))
        table = Table(
            box=None,
            pad_edge=False,
            collapse_padding=console.width < NARROW_TERMINAL,
            show_header=any(plain.columns),
        )
        for place, name in enumerate(plain.columns):
            table.add_column(Text(name, "dim"), justify="right" if place else "left", overflow="fold")
        for row in plain.rows:
            table.add_row(*map(Text, row))
        console.print(table)
    return None


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
def counting_bar(description: str) -> Iterator[Callable[[int, int | None], None]]:
    """A progress bar with rate and time left, on a terminal only; the total may be unknown."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    rate = TextColumn("{task.fields[rate]}")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), rate, TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(description, total=None, rate="")
        start = perf_counter()

        def update(done: int, total: int | None) -> None:
            speed = f"{done / max(perf_counter() - start, 1e-3):,.0f} per second"
            bar.update(task, completed=done, total=total, rate=speed)

        yield update


@contextmanager
def racing() -> Iterator[Callable[[Sequence[tuple[str, str, int]], int], None]]:
    """A progress bar for each of several runs; without a terminal, a line for every change of state."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description:>16}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[state]}"),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        tasks: dict[str, TaskID] = {}
        known: dict[str, str] = {}

        def update(runs: Sequence[tuple[str, str, int]], updates: int) -> None:
            for name, state, done in runs:
                if not console.is_terminal and known.get(name, "waiting") != state:
                    print(f"{name}: {state}", file=sys.stderr, flush=True)
                known[name] = state
                if name not in tasks:
                    tasks[name] = bar.add_task(name, total=updates, state=state)
                completed = updates if state == "finished" else done
                bar.update(tasks[name], completed=completed, state=state)

        yield update


@contextmanager
def download_bar() -> Iterator[Callable[[str, int, int | None], None]]:
    """A progress bar for each downloaded file, on a terminal only."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        tasks: dict[str, TaskID] = {}

        def update(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=total)
            bar.update(tasks[name], completed=done, total=total)

        yield update


def scores_line(scores: Mapping[str, Any]) -> str:
    """`BLEU 41.2, chrF 63.0, loss 1.43`"""
    from regard.training.card import SCORE_NAMES

    values = {name: score["score"] if isinstance(score, Mapping) else score for name, score in scores.items()}
    return ", ".join(f"{SCORE_NAMES.get(name, name)} {value:.4g}" for name, value in reversed(values.items()))
