"""Observers of a run: plain lines, TensorBoard and the film during training; curves and the film's page at its end."""

from __future__ import annotations

import importlib.util
import math
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from regard import folders
from regard.counting import count
from regard.inspection import drawing, film
from regard.results import format_duration
from regard.training import journal
from regard.training.card import describe_machine
from regard.training.events import (
    ActivityEvent,
    Event,
    Observer,
    ProblemEvent,
    Say,
    StartEvent,
    UpdateEvent,
    ValidationEvent,
)
from regard.training.loop import Training

BOARD = "tensorboard"  # the folder of TensorBoard files in a run's folder
FILES = ("training.png", "training.svg", "film.html", film.FILM, BOARD)  # written in a run's folder
RECENT_UPDATES = 50  # updates over which the displayed loss and speed are averaged
LINE_EVERY = 60.0  # seconds between two plain lines without a validation
SCORE_FORMATS = {"bleu": ("BLEU", ".2f"), "chrf": ("chrF", ".2f"), "valid_loss": ("valid loss", ".3f")}


@contextmanager
def observing(training: Training, observe: Observer, say: Say) -> Iterator[Observer]:
    """Yield an observer that passes events to `observe`, TensorBoard and the film, and reports problems with `say`."""
    config, runtime, update = training.config, training.runtime, training.progress.update
    valid, tokenizers, sentences = training.data.valid, training.data.tokenizers, config.train.film
    root = training.folder if runtime.is_main else None
    if root is not None:
        film.delete_later_frames(root, update)
    has_board = runtime.is_main and importlib.util.find_spec("tensorboard") is not None
    with Board(training.folder, update) if has_board else nullcontext() as board:

        def pass_on(event: Event) -> None:
            observe(event)
            if isinstance(event, ProblemEvent) and event.message:
                say(event.message)
            elif isinstance(event, ValidationEvent) and sentences:  # all processes: weights may be sharded
                film.record_frame(root, event.update, event.model, valid, tokenizers, sentences=sentences)
            if board is not None:
                board.observe(event)

        description = f"{config.model.family}, {count(config).total:,} parameters, {describe_machine(runtime)}"
        pass_on(StartEvent(training.folder, description, update, training.clock))
        yield pass_on


class Board:
    """Writes events as TensorBoard files; a resumed run removes points after the update it resumes from."""

    def __init__(self, folder: Path, update: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._folder = folder / BOARD
        with folders.clear_os_errors(self._folder):  # a new run has nothing to remove
            self._writer = SummaryWriter(self._folder, purge_step=update + 1 if update else None)

    def observe(self, event: Event) -> None:
        """Write the numbers of an update that has an entry in the journal, or of a validation."""
        values: dict[str, float] = {}
        if isinstance(event, UpdateEvent) and journal.has_entry(event):
            values = {f"training/{name}": getattr(event, name) for name in ("loss", "learning_rate", "grad_norm")}
            values["training/tokens per second"] = event.tokens / (event.seconds or math.inf)
        elif isinstance(event, ValidationEvent):
            values = {f"validation/{name}": event.scores[name] for name in SCORE_FORMATS if name in event.scores}
        with folders.clear_os_errors(self._folder):
            for name, value in values.items():
                self._writer.add_scalar(name, value, event.update)
            if isinstance(event, ValidationEvent):
                self._writer.flush()

    def __enter__(self) -> Board:
        hook = self._excepthook = threading.excepthook  # an OSError in TensorBoard's thread is raised by the next call
        threading.excepthook = lambda error: None if issubclass(error.exc_type, OSError) else hook(error)
        return self

    def __exit__(self, *_: object) -> None:
        with folders.clear_os_errors(self._folder):
            self._writer.close()
        threading.excepthook = self._excepthook


class Statistics:
    """Observes a run and keeps the numbers that views show; those of earlier starts are read from the journal."""

    def __init__(self) -> None:
        self.start: StartEvent | None = None
        self.update: UpdateEvent | None = None
        self.activity = "preparing"
        self.losses: dict[int, float] = {}  # by update, as in the journal
        self.validations: dict[int, dict[str, Any]] = {}  # by update, as in the journal
        self._recent: deque[UpdateEvent] = deque(maxlen=RECENT_UPDATES)

    def observe(self, event: Event) -> None:
        if isinstance(event, ActivityEvent):
            self.activity = event.activity
        elif isinstance(event, StartEvent):
            self.start, self.activity = event, "training"
            entries = [e for e in journal.read(event.folder / journal.FILE) if e["update"] <= event.update]
            self.losses = {e["update"]: e["loss"] for e in entries if e["kind"] == "update"}
            self.validations = {e["update"]: e for e in entries if e["kind"] == "validation"}
        elif isinstance(event, UpdateEvent):
            self.update, self.activity = event, "training"
            self._recent.append(event)
            if journal.has_entry(event):
                self.losses[event.update] = event.loss
        elif isinstance(event, ValidationEvent):
            self.validations[event.update] = {**event.scores, "sample": event.sample}
        elif isinstance(event, ProblemEvent) and event.kind == "rollback":
            for numbers in (self.losses, self.validations):
                for update in [update for update in numbers if update > event.update]:
                    del numbers[update]

    @property
    def loss(self) -> float:
        """The mean loss of the last 50 updates."""
        return sum(event.loss for event in self._recent) / len(self._recent) if self._recent else math.nan

    @property
    def tokens_per_second(self) -> float:
        """Target tokens per second of training, without validations and saves."""
        seconds = sum(event.seconds for event in self._recent)
        return sum(event.tokens for event in self._recent) / (seconds or 1.0)

    @property
    def seconds_left(self) -> float | None:
        """The estimated seconds until the run is finished; None while they are unknown."""
        return self.start.clock.left(self.update.update if self.update else 0) if self.start else None


class PlainLines:
    """Writes a line for every validation, and one per minute between them."""

    def __init__(self, say: Say) -> None:
        self._say, self._statistics, self._last = say, Statistics(), time.monotonic()

    def observe(self, event: Event) -> None:
        self._statistics.observe(event)
        validation = event if isinstance(event, ValidationEvent) else None
        if not validation and not (isinstance(event, UpdateEvent) and time.monotonic() - self._last > LINE_EVERY):
            return
        self._last, statistics = time.monotonic(), self._statistics
        update = statistics.update.update if statistics.update else 0
        parts = [f"update {update:>7,}", f"loss {statistics.loss:.3f}", f"{statistics.tokens_per_second:,.0f} tokens/s"]
        if validation:
            parts += format_scores(validation.scores)
        if seconds := statistics.seconds_left:
            parts.append(f"{format_duration(seconds)} left")
        if validation and validation.best:
            parts.append("(best)")
        self._say("  ".join(parts))
        for name, text in (validation.sample if validation else {}).items():
            self._say(f"    {name:<11} {' '.join(text.split())}")


def format_scores(scores: Mapping[str, Any]) -> list[str]:
    """The scores of a validation with their names, the metric first."""
    return [f"{name} {scores[key]:{digits}}" for key, (name, digits) in SCORE_FORMATS.items() if key in scores]


def draw(training: Training, languages: tuple[str, str] = ("", "")) -> None:
    """Draw the training curves and, if a film was recorded, write its page."""
    folder, config = training.folder, training.config
    entries = journal.read(folder / journal.FILE)
    title = f"{folder.resolve().name}: {config.model.family}, {count(config).total:,} parameters"
    for name, data in drawing.draw_training(entries, title=title).items():
        folders.write_file(folder / name, data, force=True)
    if film.frames(folder):
        captions = {entry["update"]: format_scores(entry)[0] for entry in entries if entry["kind"] == "validation"}
        page = film.page(folder, captions, title=title, languages=languages)
        folders.write_file(folder / "film.html", page, force=True)
