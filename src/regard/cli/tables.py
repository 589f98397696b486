"""The terminal: results as tables a person reads; `rich` is imported only when one is drawn."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any

from regard.counting import HARDWARE, Bytes, Count, Duration, Part, Scale, Work
from regard.results import Report

if TYPE_CHECKING:
    from rich.progress import TaskID
    from rich.table import Table

NARROW_TERMINAL = 64  # columns; below, the columns of tables stand closer together


def count_table(counted: Count, built: dict[str, int] | None = None) -> Table:
    """Parameters by part with the formula beside each number; beside those, what the built model has."""
    from rich.table import Table
    from rich.text import Text

    title = Text(f"{counted.name}: {counted.total:,} parameters")  # a name may hold brackets
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("part")
    table.add_column("formula", style="dim")
    table.add_column("parameters", justify="right")
    if built is not None:
        table.add_column("built", justify="right")
    for part in counted.tree:
        _add(table, part, 0, built)
    row = ["total", "", f"{counted.total:,}"] + ([f"{sum(built.values()):,}"] if built is not None else [])
    table.add_section()
    table.add_row(*row, style="bold")
    return table


def _add(table: Table, part: Part, depth: int, built: dict[str, int] | None) -> None:
    formula = part.formula
    if part.times > 1:
        formula = f"{part.times} × ({formula})" if formula else f"{part.times} × {part.each:,}"
    row = ["  " * depth + part.name, formula, f"{part.total:,}"]
    if built is not None:
        row.append(f"{built[part.name]:,}" if depth == 0 else "")
    table.add_row(*row, style="bold" if depth == 0 else None)
    for inner in part.parts:
        _add(table, inner, depth + 1, built)


def cost_table(done: Work, needed: Bytes, took: Duration | None, *, batch: int, precision: str) -> Table:
    """What training costs: operations, memory, time."""
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column(style="dim")
    pair = f"{done.source} source and {done.target} target tokens" if done.source else f"{done.target} tokens"
    table.add_row("operations a token", flops(done.forward / done.target), f"forward, in a sentence of {pair}")
    table.add_row("", flops(done.training / done.target), "training: forward and twice that back")
    table.add_row("weights", size(needed.weights), precision if precision == "fp32" else "fp32 masters and bf16 copies")
    table.add_row("gradients", size(needed.gradients), "fp32")
    table.add_row("optimizer", size(needed.optimizer), "Adam's two averages, fp32")
    table.add_row("activations", size(needed.activations), f"about, for a batch of {batch} sentences of {pair}")
    table.add_row("training in all", size(needed.training), "")
    if needed.cache_per_token:
        table.add_row("cache a token", size(needed.cache_per_token), "keys and values of each hypothesis in decoding")
    if needed.cache_per_source_token:
        table.add_row("memory a source token", size(needed.cache_per_source_token), "kept once a sentence in decoding")
    if took is not None:
        share = f"{took.utilisation:.0%} of the peak of {took.devices} × {took.hardware}"
        note = f"{took.tokens:,.0f} target tokens at {share}"
        table.add_row("time", time(took.seconds), note)
        table.add_row("", f"{took.tokens_per_second:,.0f}", "target tokens a second")
        card = HARDWARE[took.hardware]
        fits = "fits into" if needed.training <= card.memory * 1e9 else "does not fit into"
        table.add_row("", f"{card.memory:g} GB", f"of memory each; this batch {fits} one ({card.source})")
        if took.price:
            table.add_row("cost", f"{took.device_hours * took.price:,.2f}", f"at {took.price:g} an hour a device")
    return table


def scale_table(scales: Sequence[Scale], *, hardware: str, batch: int, link: float) -> Table:
    """An update on more and more devices."""
    from rich.table import Table

    title = f"one update of {batch:,} sentences; each {hardware} sends {link:g} GB/s"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in ("GPUs", "weights", "an update", "computing", "tokens a second", "memory each", ""):
        table.add_column(name, justify="left" if name in ("weights", "") else "right", no_wrap=True)
    for each in scales:
        fits = "" if each.memory <= HARDWARE[hardware].memory * 1e9 else "too much"
        milliseconds = 1000 * each.seconds
        table.add_row(
            "" if each.sharded else f"{each.devices:,}",
            "divided" if each.sharded else "on each",
            f"{milliseconds:,.1f} ms" if milliseconds < 100 else f"{milliseconds:,.0f} ms",
            f"{each.compute / each.seconds:.0%}",
            f"{each.tokens / each.seconds:,.0f}",
            size(each.memory),
            fits,
        )
    return table


def corpora_table(rows: Sequence[Mapping[str, str]]) -> Table:
    """Named corpora: what they are and where they would come from."""
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
    """Print a result as JSON, by default that of `to_dict()`, or as tables that fit the terminal."""
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
def working(what: str) -> Iterator[None]:
    """A sign of life while something takes long, on a terminal only."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(what):
        yield


@contextmanager
def counting_bar(what: str) -> Iterator[Callable[[int, int | None], None]]:
    """A bar with rate and time left for so many of so many, if that is known, on a terminal only."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    rate = TextColumn("{task.fields[rate]}")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), rate, TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(what, total=None, rate="")
        begun = perf_counter()

        def tell(done: int, total: int | None) -> None:
            speed = f"{done / max(perf_counter() - begun, 1e-3):,.0f} a second"
            bar.update(task, completed=done, total=total, rate=speed)

        yield tell


@contextmanager
def racing() -> Iterator[Callable[[Sequence[tuple[str, str, int]], int], None]]:
    """A bar for each of several runs side by side, by name, where it stands and its update; elsewhere lines."""
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

        def tell(runs: Sequence[tuple[str, str, int]], updates: int) -> None:
            for name, state, update in runs:
                if not console.is_terminal and known.get(name, "waiting") != state:
                    print(f"{name}: {state}", file=sys.stderr, flush=True)
                known[name] = state
                if name not in tasks:
                    tasks[name] = bar.add_task(name, total=updates, state=state)
                done = updates if state == "finished" else update
                bar.update(tasks[name], completed=done, state=state)

        yield tell


@contextmanager
def download_bar() -> Iterator[Callable[[str, int, int | None], None]]:
    """A bar with rate and time left for each file that is fetched, on a terminal only."""
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

        def tell(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=total)
            bar.update(tasks[name], completed=done, total=total)

        yield tell


def scores_line(scores: Mapping[str, Any]) -> str:
    """`BLEU 41.2, chrF 63.0, loss 1.43`"""
    names = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER", "calibration": "calibration error"}
    values = {name: score["score"] if isinstance(score, Mapping) else score for name, score in scores.items()}
    return ", ".join(f"{names.get(name, name)} {value:.4g}" for name, value in reversed(values.items()))


def flops(number: float) -> str:
    for unit in ("", "k", "M", "G", "T", "P"):
        if number < 1000:
            return f"{number:.3g} {unit}FLOP"
        number /= 1000
    return f"{number:.3g} EFLOP"


def size(number: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} PB"


def time(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} seconds"
