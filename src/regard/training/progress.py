"""The time left of a run, estimated from its events."""

from __future__ import annotations

import math
from collections import deque
from statistics import median

from regard.config import TrainConfig
from regard.training.events import Event, SaveEvent, UpdateEvent, ValidationEvent

RECENT_UPDATES = 200  # averaged for the time of an update
MIN_UPDATES = 4  # before the first estimate: the first updates are slow


class TimeLeft:
    """Observes updates, validations and saves, and estimates the seconds until the model is finished."""

    def __init__(self, settings: TrainConfig, *, validation_updates: float, final_validations: float) -> None:
        """Before the first validation is timed, it is assumed to take as long as `validation_updates` updates. Scoring
        the finished model takes as long as `final_validations` validations."""
        self._settings = settings
        self._validation_updates, self._final_validations = validation_updates, final_validations
        self._updates: deque[float] = deque(maxlen=RECENT_UPDATES)
        self._validation = self._save = 0.0

    def observe(self, event: Event) -> None:
        """Record the seconds of an update, a validation or a save."""
        if isinstance(event, UpdateEvent):
            self._updates.append(event.seconds)
        elif isinstance(event, SaveEvent):
            self._save = event.seconds
        elif isinstance(event, ValidationEvent):
            self._validation = (
                event.seconds
            )  # only the last one: decoding gets faster as the model learns to end sentences

    def seconds(self, update: int) -> float | None:
        """The seconds from this update to the finished model; None during the first updates."""
        if len(self._updates) < MIN_UPDATES:
            return None
        return self.total(mean_seconds(list(self._updates)), update)

    def total(self, update_seconds: float, update: int = 0) -> float:
        """The seconds after this update if each update takes `update_seconds`."""
        settings = self._settings
        validation = self._validation or self._validation_updates * update_seconds
        validations = _remaining(update, settings.updates, settings.validate_every)
        saves = _remaining(update, settings.updates, settings.save_every) + 1
        updates = settings.updates - update
        return updates * update_seconds + (validations + self._final_validations) * validation + saves * self._save


def mean_seconds(seconds: list[float]) -> float:
    """The mean without values above 5 times the median, such as compilation or a suspended machine."""
    usual = median(seconds)
    kept = [value for value in seconds if value <= 5 * usual]
    return sum(kept) / len(kept)


def _remaining(update: int, updates: int, every: int) -> int:
    """The number of remaining events that happen after every `every` updates and after the last one."""
    return 0 if update >= updates else max(0, math.ceil(updates / every) - update // every)


def format_duration(seconds: float | None) -> str:
    """`45 s`, `12 min`, `3 h 20 min`, `2 d 4 h`; `…` for None."""
    if seconds is None:
        return "…"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"
