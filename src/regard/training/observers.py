"""Observers of a run: plain lines, TensorBoard and the film during training; curves and the film's page at its end."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from regard import folders
from regard.counting import count
from regard.inspection import curves, film
from regard.training import hardware, journal
from regard.training.events import (
    Event,
    Observer,
    RollbackEvent,
    SplitEvent,
    StartEvent,
    UpdateEvent,
    ValidationEvent,
)
from regard.training.loop import Training
from regard.training.planning import time_left
from regard.training.progress import TimeLeft, format_duration
from regard.training.tensorboard import BOARD, Board, installed

FILES = ("training.png", "training.svg", "film.html", film.FILM, BOARD)
"""The files and folders that observers write in a run's folder."""
RECENT_UPDATES = 50  # updates over which the displayed loss and speed are averaged
LINE_EVERY = 60.0  # seconds between two plain lines without a validation
SCORE_FORMATS = {"bleu": ("BLEU", "{:.2f}"), "chrf": ("chrF", "{:.2f}"), "valid_loss": ("valid loss", "{:.3f}")}
CAPTIONS = {"bleu": "BLEU {:.1f}", "chrf": "chrF {:.1f}", "valid_loss": "loss {:.2f}"}

Say = Callable[[str], None]


@contextmanager
def observing(training: Training, observe: Observer, say: Say) -> Iterator[Observer]:
    """Yield an observer that passes events to `observe`, TensorBoard and the film, and reports errors with `say`."""
    film_maker = _film(training)
    if training.runtime.is_main and not installed():
        say("no TensorBoard files are written: pip install regard[tensorboard]")
    writes_board = training.runtime.is_main and installed()
    with Board(training.folder, training.progress.update) if writes_board else nullcontext() as board:

        def pass_on(event: Event) -> None:
            observe(event)
            if isinstance(event, SplitEvent):
                say(f"out of GPU memory after update {event.update:,}: batches are split into {event.parts} parts")
            elif isinstance(event, RollbackEvent):
                times = f"loss was NaN {event.in_a_row} times in a row"
                say(f"{times}: rolled back to update {event.update:,}, learning rate halved")
                for remark in event.remarks:
                    say(remark)
            elif isinstance(event, ValidationEvent) and film_maker is not None:
                film_maker.record_frame(event.model, event.update)
            if board is not None:
                board.observe(event)

        pass_on(_start_event(training))
        yield pass_on


def _start_event(training: Training) -> StartEvent:
    config, runtime, settings = training.config, training.runtime, training.config.train
    return StartEvent(
        folder=training.folder,
        description=f"{config.model.family}, {count(config).total:,} parameters, {hardware.describe(runtime)}",
        update=training.progress.update,
        updates=settings.updates,
        validate_every=settings.validate_every,
        cores=hardware.cores(),
        flops_per_token=hardware.flops_per_token(config, training.data),
        peak_flops=hardware.peak_flops(settings, runtime),
        gpu_memory=lambda: hardware.gpu_memory(runtime),
        time_left=time_left(config, training.data, runtime),
    )


def _film(training: Training) -> film.Film | None:
    """The film, if train.film is set. All processes run the model, as weights may be sharded; the main one writes."""
    settings, data = training.config.train, training.data
    if not settings.film:
        return None
    root = training.folder if training.runtime.is_main else None
    return film.Film(root, data.valid, data.tokenizers, sentences=settings.film, update=training.progress.update)


class Statistics:
    """Observes a run and keeps the numbers that views show."""

    def __init__(self) -> None:
        self.start: StartEvent | None = None
        self.update: UpdateEvent | None = None
        self.losses: list[float] = []
        self.validations: list[ValidationEvent] = []
        self._recent: deque[UpdateEvent] = deque(maxlen=RECENT_UPDATES)
        self._time_left: TimeLeft | None = None

    def observe(self, event: Event) -> None:
        if isinstance(event, StartEvent):
            self.start, self._time_left = event, event.time_left
        elif self._time_left is not None:
            self._time_left.observe(event)
        if isinstance(event, UpdateEvent):
            self.update = event
            self.losses.append(event.loss)
            self._recent.append(event)
        elif isinstance(event, ValidationEvent):
            self.validations.append(event)

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
        update = self.update.update if self.update else 0
        return self._time_left.seconds(update) if self._time_left is not None else None


class PlainLines:
    """Writes a line for every validation, and one per minute between them."""

    def __init__(self, say: Say) -> None:
        self._say, self._statistics, self._last = say, Statistics(), time.monotonic()

    def observe(self, event: Event) -> None:
        self._statistics.observe(event)
        is_validation = isinstance(event, ValidationEvent)
        if is_validation or (isinstance(event, UpdateEvent) and time.monotonic() - self._last > LINE_EVERY):
            self._write(event if isinstance(event, ValidationEvent) else None)

    def _write(self, validation: ValidationEvent | None) -> None:
        self._last, statistics = time.monotonic(), self._statistics
        update = statistics.update.update if statistics.update else 0
        parts = [f"update {update:>7,}", f"loss {statistics.loss:.3f}", f"{statistics.tokens_per_second:,.0f} tokens/s"]
        if validation:
            parts += [f"{name} {text}" for name, text in format_scores(validation)]
        if seconds := statistics.seconds_left:
            parts.append(f"{format_duration(seconds)} left")
        if validation and validation.best:
            parts.append("(best)")
        self._say("  ".join(parts))
        for name, text in (validation.sample if validation else {}).items():
            self._say(f"    {name:<11} {' '.join(text.split())}")


def format_scores(validation: ValidationEvent) -> list[tuple[str, str]]:
    """Names and values of a validation's scores, the metric first."""
    scores = validation.scores
    return [(name, form.format(scores[key])) for key, (name, form) in SCORE_FORMATS.items() if key in scores]


def draw(training: Training) -> None:
    """Draw the training curves and, if a film was recorded, write its page."""
    folder, config = training.folder, training.config
    entries = journal.read(folder / journal.FILE)
    title = f"{folder.resolve().name}: {config.model.family}, {count(config).total:,} parameters"
    best = 0 if config.train.average_checkpoints else training.progress.best_update
    for name, data in curves.draw(entries, best=best, title=title).items():
        folders.write_file(folder / name, data, force=True)
    if film.frames(folder):
        captions = {
            entry["update"]: next(text.format(entry[key]) for key, text in CAPTIONS.items() if key in entry)
            for entry in entries
            if entry["kind"] == "validation"
        }
        folders.write_file(folder / "film.html", film.page(folder, captions, title=title), force=True)
