"""The terminal: messages, results, output files and progress bars; `rich` is imported only when it is needed.

All commands print through this module, so that no text of a file can control the terminal.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from regard.folders import atomic_file

CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters other than tab and newline, and those that change the direction of text."""


def escape(text: object) -> str:
    """Replace control characters by escapes such as \\u001b."""
    return CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", str(text))


def say(message: object) -> None:
    """Print a message on standard error."""
    print(escape(message), file=sys.stderr, flush=True)


def write(data: object, end: str = "\n") -> None:
    """Print data on standard output; on a terminal, its control characters are escaped."""
    print(escape(data) if sys.stdout.isatty() else data, end=end, flush=True)


def answer(values: Mapping[str, Any], text: object = None, *, as_json: bool) -> None:
    """Print the values as one JSON object, or the text if there is one."""
    if as_json:
        write(json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False))
    elif text is not None:
        write(text)


def show(report: Any, *, as_json: bool, page: Path | None = None, force: bool = False, **options: Any) -> None:
    """Write the page of a Report if it has one, and print it as text or JSON; `options` are those of its `to_dict`."""
    for message in report.messages:
        say(message)
    if page is not None:
        report.save(page, force=force)
        say(f"report: {page}")
    write(report.to_json(**options) if as_json else escape(report))


@contextmanager
def working(description: str) -> Iterator[None]:
    """A spinner during long work, on a terminal only."""
    from rich.console import Console

    with Console(stderr=True).status(description):
        yield


@contextmanager
def progress_bars(*, downloads: bool = False, shown: bool = True) -> Iterator[Callable[[str, int, int | None], None]]:
    """Yield a function `update(name, done, total)` that shows a progress bar for every name, on a terminal only.

    A bar shows the rate and the time left; a `total` of None is unknown.
    """
    from rich import progress
    from rich.console import Console

    console, start = Console(stderr=True), perf_counter()
    columns: list[progress.ProgressColumn] = [progress.DownloadColumn(), progress.TransferSpeedColumn()]
    if not downloads:
        columns = [progress.MofNCompleteColumn(), progress.TextColumn("{task.fields[rate]}")]
    columns = [progress.TextColumn("{task.description}", markup=False), progress.BarColumn(), *columns]
    shown = shown and console.is_terminal
    settings: dict[str, Any] = {"console": console, "disable": not shown, "transient": True, "redirect_stdout": False}
    with progress.Progress(*columns, progress.TimeRemainingColumn(), **settings) as bars:
        tasks: dict[str, Any] = {}

        def update(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(escape(name), total=total, rate="")
            rate = f"{done / max(perf_counter() - start, 1e-3):,.0f} per second"
            bars.update(tasks[name], completed=done, total=total, rate=rate)

        yield update


@contextmanager
def counting_bar(description: str, *, shown: bool = True) -> Iterator[Callable[[int, int | None], None]]:
    """Yield a function `update(done, total)` for one progress bar; a `total` of None is unknown."""
    with progress_bars(shown=shown) as update:
        update(description, 0, None)  # there is a bar before anything is done
        yield partial(update, description)


@contextmanager
def output_lines(
    out: Path | None, description: str, *, force: bool
) -> Iterator[tuple[Callable[[str], object], Callable[[int, int | None], None]]]:
    """Yield a function that writes lines to a file or to standard output, and one that updates a progress bar.

    The file appears when it is complete. There is no bar where it would mix with the lines on the terminal.
    """
    with counting_bar(description, shown=out is not None or not sys.stdout.isatty()) as progress:
        if out is None:
            yield write, progress
        else:
            with atomic_file(out, force=force) as file:
                yield (lambda line: file.write(line.encode() + b"\n")), progress
