"""The live view of a run: loss, score, speed and time left on a terminal; plain lines elsewhere."""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TextIO, cast

from rich.console import Console, ConsoleRenderable, RenderHook
from rich.control import Control
from rich.file_proxy import FileProxy
from rich.segment import ControlType, Segment, Segments
from rich.text import Text

from regard.training.planning import lasting

if TYPE_CHECKING:
    from regard.training.planning import Pace

RECENT = 50  # updates the speed and the loss shown are averaged over
REFRESH = 0.5  # seconds from one drawing to the next
PLAIN_EVERY = 60.0  # seconds without a line, after which one is written where there is no terminal
WIDEST = 100  # columns: longer lines are hard to read, and a terminal made a little narrower leaves these whole
HISTORY = 512  # losses kept for the curve; beyond it neighbours are joined
BARS = " ▁▂▃▄▅▆▇█"
TROUBLES = {
    "skipped": "{} updates left out: loss or gradient was no number",
    "fell_back": "{} times back to the last checkpoint, or the start, with half the rate",
    "split": "batches are taken in {} parts to fit into memory",
}
NAMES = {"bleu": "BLEU", "chrf": "chrF", "valid_loss": "valid loss"}


class Curve:
    """A number's whole history in a few hundred means."""

    def __init__(self) -> None:
        self._means: list[float] = []
        self._each, self._sum, self._count = 1, 0.0, 0

    def add(self, value: float) -> None:
        self._sum, self._count = self._sum + value, self._count + 1
        if self._count == self._each:
            self._means.append(self._sum / self._count)
            self._sum, self._count = 0.0, 0
        if len(self._means) == HISTORY:
            pairs = zip(self._means[::2], self._means[1::2], strict=True)
            self._means, self._each = [(one + other) / 2 for one, other in pairs], 2 * self._each

    def points(self, number: int) -> list[float]:
        """At most so many means, in order."""
        means = self._means
        number = min(number, len(means))
        bounds = [i * len(means) // number for i in range(number + 1)] if number else []
        return [sum(means[a:b]) / (b - a) for a, b in pairwise(bounds)]


def spark(points: Sequence[float], rows: int) -> list[str]:
    """Numbers as a skyline of so many rows, the top one first; the lowest has a bar, the highest tenth are alike."""
    if not points:
        return []
    low, high = min(points), sorted(points)[len(points) * 9 // 10]  # the first fall is known: see what came after it
    full = 8 * rows
    shares = [min((point - low) / (high - low), 1.0) if high > low else 0.0 for point in points]
    heights = [1 + round((full - 1) * share) for share in shares]
    return ["".join(BARS[min(max(height - 8 * row, 0), 8)] for height in heights) for row in range(rows - 1, -1, -1)]


class View:
    """Told of what happens, and showing it."""

    def __init__(self, console: Console, *, live: bool) -> None:
        self._console = console
        self._screen = Screen(console, self.draw) if live else None
        self._begun: dict[str, Any] = {"name": "", "updates": 0, "validate_every": 0, "metric": "bleu"}
        self._update: dict[str, Any] = {}
        self._recent: deque[tuple[float, int, float]] = deque(maxlen=RECENT)
        self._losses = Curve()
        self._validations: list[dict[str, Any]] = []
        self._troubles: dict[str, int] = {}
        self._since = self._written = time.monotonic()
        self._cpu = (self._since, _cpu_seconds())
        self._busy = 0.0
        self.pace: Pace | None = None

    def say(self, line: str) -> None:
        """One line that stays."""
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def watch(self, kind: str, facts: dict[str, Any]) -> None:
        """What has happened: the run was begun; an update, a validation or a save was made; something went wrong."""
        now = time.monotonic()
        took, self._since = facts.get("seconds", now - self._since), now
        if kind == "begun":
            self._begun = facts
            self.pace = facts.get("pace")
            if self._screen is not None:
                self._screen.start()
        elif kind == "update":
            self._updated(facts, took)
        elif kind == "validation":
            self._validations.append(facts)
            if self.pace is not None:
                self.pace.validation(took, facts["update"], best=facts["best"])
            self._write_plain(facts)
        elif kind == "saved":
            if self.pace is not None:
                self.pace.saved(took)
        else:
            self._troubles[kind] = facts.get("parts", self._troubles.get(kind, 0) + 1)

    def stop(self) -> None:
        """The last drawing stays."""
        if self._screen is not None:
            self._screen.stop()

    def _updated(self, facts: dict[str, Any], took: float) -> None:
        if self.pace is not None:
            self.pace.update(took)
        self._update = facts
        self._recent.append((took, facts["tokens"], facts["loss"]))
        self._losses.add(facts["loss"])
        if self._since - self._written > PLAIN_EVERY:
            self._write_plain(None)

    # Plain lines

    def _write_plain(self, validation: dict[str, Any] | None) -> None:
        if self._screen is not None:
            return
        self._written = self._since
        parts = [f"update {self._update.get('update', 0):>7,}", f"loss {self._loss():.3f}"]
        parts += [f"{self._speed():,.0f} tokens/s", *(f"{name} {text}" for name, text in _scores(validation or {}))]
        if left := self._left():
            parts.append(f"{lasting(left)} left")
        if validation and validation.get("best"):
            parts.append("(best)")
        self.say("  ".join(parts))
        for name, text in (validation or {}).get("sample", {}).items():
            self.say(f"    {name:<11} {' '.join(text.split())}")

    # Numbers

    def _loss(self) -> float:
        return sum(loss for _, _, loss in self._recent) / len(self._recent) if self._recent else math.nan

    def _speed(self) -> float:
        """Target tokens a second of training; validations and saves are not counted."""
        return sum(tokens for _, tokens, _ in self._recent) / (sum(took for took, _, _ in self._recent) or 1.0)

    def _left(self) -> float | None:
        return self.pace.left(self._update.get("update", 0)) if self.pace is not None else None

    def _used(self) -> tuple[str, str]:
        """How much of the machine works for the run: of its peak where that is known, else of its processors."""
        if self._begun.get("peak"):
            return "of peak", f"{self._speed() * self._begun['operations'] / self._begun['peak']:.0%}"
        then, spent = self._cpu
        if self._since - then > 2.0:
            now = _cpu_seconds()
            self._busy = (now - spent) / (self._since - then) / self._begun.get("cores", 1)
            self._cpu = (self._since, now)
        return f"of {self._begun.get('cores', 1)} cores", f"{min(self._busy, 1.0):.0%}"

    def _tiles(self) -> list[tuple[str, str]]:
        found = [("loss", f"{self._loss():.3f}")]
        if self._validations:
            found += _scores(self._validations[-1])[:1]
        found += [("tokens/s", f"{self._speed():,.0f}"), self._used()]
        if memory := self._begun.get("memory", lambda: None)():
            used, there = memory
            found.append(("memory", f"{used / 1e9:.3g} of {there / 1e9:.3g} GB"))
        return [*found, ("rate", f"{self._update.get('learning_rate', 0.0):.2e}"), ("left", lasting(self._left()))]

    # The drawing

    def draw(self, width: int, height: int) -> list[Text]:
        """What is seen, top to bottom, in a terminal of this size; what does not fit is left out, the least first."""
        width = max(min(width, WIDEST), 1)
        head = [  # in the order they are seen, with the order they are kept in
            (0, [self._title(), self._bar(width)]),
            (1, _tiled(self._tiles(), width)),
            (4, [Text(line, "cyan") for line in spark(self._losses.points(width - 2), 2)]),
            (2, self._trouble_lines()),
        ]
        for shown, most in ((4, 2), (4, 1), (2, 1)):
            table = _validation_lines(self._validations[-shown:])
            sections = [*head, (3, table), (5, self._sample_lines(width, most))]
            sections = [(rank, lines) for rank, lines in sections if lines]
            if _height(sections) <= height:
                break
        while len(sections) > 1 and _height(sections) > height:
            sections.remove(max(sections, key=lambda section: section[0]))
        found = [line for _, lines in sections for line in [Text(), *lines]]
        for line in found:
            line.truncate(width, overflow="ellipsis")
        return found[-max(height, 1) :]

    def _title(self) -> Text:
        begun = self._begun
        return Text.assemble((begun["name"], "bold"), (f"  {begun['what']}" if begun.get("what") else "", "dim"))

    def _bar(self, width: int) -> Text:
        done, total = self._update.get("update", self._begun.get("update", 0)), max(self._begun["updates"], 1)
        share = min(done / total, 1.0)
        said = f"update {done:,} of {total:,}"
        every = self._begun["validate_every"]
        validated = self._validations[-1]["update"] if self._validations else 0
        waiting = bool(done) and (done % every == 0 or done == total) and validated != done
        end = "  validating" if waiting else f"  {share:4.0%}"
        room = width - len(said) - 2 - len("  validating")
        if room < 8:
            return Text.assemble((said, "bold"), end)
        full = round(2 * room * share)
        bar = "━" * (full // 2) + "╸" * (full % 2)
        return Text.assemble((said, "bold"), "  ", (bar, "green"), ("━" * (room - len(bar)), "bright_black"), end)

    def _trouble_lines(self) -> list[Text]:
        words = [TROUBLES.get(kind, kind + ": {}").format(number) for kind, number in self._troubles.items()]
        return [Text(" · ".join(words), "magenta")] if words else []

    def _sample_lines(self, width: int, most: int) -> list[Text]:
        """A sentence, what it should become and what it became, each in so many lines at most."""
        sample = self._validations[-1].get("sample", {}) if self._validations else {}
        lines, room = [], max(width - 11, 8)
        for name, text in sample.items():
            label = f"{name:<11}"
            wrapped = Text(" ".join(text.split())).wrap(self._console, room)
            for number, part in enumerate(wrapped[:most], 1):
                part.rstrip()
                if number == most < len(wrapped):
                    part.truncate(room - 2)
                    part.append(" …")
                part.stylize("bold" if name == "model" else "")
                lines.append(Text.assemble((label if number == 1 else " " * len(label), "dim"), part))
        return lines


def _height(sections: list[tuple[int, list[Text]]]) -> int:
    return sum(len(lines) + 1 for _, lines in sections)


def _cpu_seconds() -> float:
    """What all threads of this process have computed."""
    spent = os.times()
    return spent.user + spent.system


def _scores(validation: dict[str, Any]) -> list[tuple[str, str]]:
    """The metric, then the loss, as they are read out."""
    forms = {"bleu": "{:.2f}", "chrf": "{:.2f}", "valid_loss": "{:.3f}"}
    return [(NAMES[key], form.format(validation[key])) for key, form in forms.items() if key in validation]


def _tiled(tiles: list[tuple[str, str]], width: int) -> list[Text]:
    """Numbers with their names above them, in as many rows as they need."""
    rows: list[tuple[Text, Text]] = []
    for name, value in tiles:
        size = max(len(name), len(value))
        if not rows or len(rows[-1][0]) + size > width:
            rows.append((Text(), Text()))
        names, values = rows[-1]
        names.append(f"{name:<{size}}   ", "dim")
        values.append(f"{value:<{size}}   ", "bold")
    return [line for row in rows for line in row]


def _validation_lines(validations: list[dict[str, Any]]) -> list[Text]:
    """The last validations, the newest first."""
    if not validations:
        return []
    names = [name for name, _ in _scores(validations[-1])]
    lines = [Text("".join([f"{'update':>9}", *(f"{name:>12}" for name in names)]), "dim")]
    best = max((facts["update"] for facts in validations if facts.get("best")), default=None)
    for number, facts in enumerate(reversed(validations)):
        line = Text("".join([f"{facts['update']:>9,}", *(f"{text:>12}" for _, text in _scores(facts))]))
        line.stylize("" if number == 0 else "dim")
        lines.append(line.append("  best", "green") if facts["update"] == best else line)
    return lines


class Screen:
    """The part of a terminal that is drawn again and again, below the lines that stay.

    rich's own Live does not know that a terminal made narrower breaks lines, and leaves pieces of them behind.
    """

    def __init__(self, console: Console, draw: Callable[[int, int], list[Text]]) -> None:
        self._console, self._draw = console, draw
        self._widths: list[int] = []
        self._lock, self._ended = threading.RLock(), threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Draw from now on."""
        if self._thread is None:
            self._console.push_render_hook(cast(RenderHook, self))
            self._console.show_cursor(False)
            self._thread = threading.Thread(target=self._keep_drawing, name="view", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Draw once more and leave that."""
        if self._thread is not None:
            self._ended.set()
            self._thread.join()
            self._thread = None
            self._console.print(Control())
            self._console.pop_render_hook()
            self._console.show_cursor(True)
            self._console.print("\n")

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """What rich prints, with the drawing taken away before it and put back after it, in one piece."""
        with self._lock:
            width, height = self._console.size
            rows = sum(max(1, math.ceil(size / width)) for size in self._widths)  # a narrower terminal breaks lines
            drawn = self._draw(width, height - 1)
            self._widths = [line.cell_len for line in drawn]
            up = f"\x1b[{rows - 1}A" if rows > 1 else ""
            before = _control(f"{BEGIN}\r{up}\x1b[J" if rows else BEGIN)
            lines = Text("\n").join(drawn)
            lines.end, lines.no_wrap = "", True
            return [before, *renderables, lines, _control(END)]

    def _keep_drawing(self) -> None:
        while not self._ended.wait(REFRESH):
            self._console.print(Control())


BEGIN, END = "\x1b[?2026h", "\x1b[?2026l"  # between them a terminal that knows these shows nothing half drawn


def _control(text: str) -> Segments:
    return Segments([Segment(text, None, [(ControlType.CARRIAGE_RETURN,)])])


@contextmanager
def viewing(*, quiet: bool) -> Iterator[View]:
    """A view on standard error: a drawing where that is a terminal, lines elsewhere."""
    console = Console(stderr=True, quiet=quiet)
    live = console.is_terminal and not (quiet or console.is_dumb_terminal or console.legacy_windows)
    view = View(console, live=live)
    with redirect_stderr(cast(TextIO, FileProxy(console, sys.stderr))) if live else nullcontext():
        try:
            yield view
        finally:
            view.stop()
