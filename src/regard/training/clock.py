"""The clock of a run: its position in the schedule, by updates or by --minutes, and the time left."""

from __future__ import annotations

import math
import time
from collections import deque
from statistics import median

from regard.config import TrainConfig
from regard.training.events import Event, UpdateEvent, ValidationEvent

RECENT_UPDATES = 50  # the time of an update is the median over so many
MIN_UPDATES = 4  # before the first estimate of the time left: the first updates are slow
RESERVE_SHARE = 0.04  # of --minutes, so that a run ends a little early rather than late
VALIDATION_SHARE = 0.1  # of --minutes, at most, for one validation: to end in time, it translates fewer sentences
FINAL_SHARE = 0.2  # of --minutes, at most, for the last validation and the final scores
END_SECONDS = 2.5  # CPU time of metrics, curves, card, weights and exit, measured


class Clock:
    """Measures how far a run is.

    The position of a run is its number of updates. With `train.minutes` it is the share of the time used, times
    `train.updates`: warm-up, decay, validations and checkpoints then follow the time.
    """

    def __init__(self, settings: TrainConfig, *, start: float | None = None, final_validations: float = 1.0) -> None:
        """The last validation and the final scores are expected to take as long as `final_validations` validations."""
        self.settings, self.final_validations = settings, final_validations
        self.spent = 0.0  # seconds of earlier starts of the run
        self.prepared = 0.0  # seconds before the first update
        self._start = time.perf_counter() if start is None else start
        self._wall_start, self._cpu_start = time.perf_counter(), time.thread_time()
        self._updates: deque[float] = deque(maxlen=RECENT_UPDATES)
        self._validation = 0.0  # seconds of the last one: decoding gets faster as the model learns to end sentences

    def elapsed(self) -> float:
        """Seconds of all starts of the run."""
        return self.spent + time.perf_counter() - self._start

    def observe(self, event: Event) -> None:
        """Store the seconds of an update or a validation."""
        if isinstance(event, UpdateEvent):
            self._updates.append(event.seconds)
        elif isinstance(event, ValidationEvent):
            self._validation = event.seconds

    def position(self) -> float:
        """The position after the next update: the share of the time used by then, times `train.updates`."""
        final = min(self.final_validations * self._validation, FINAL_SHARE * 60 * self.settings.minutes)
        end = self._end_of_scoring() - final
        next_update = median(self._updates) if self._updates else 0.0
        used = self.elapsed() + next_update - self.prepared
        return self.settings.updates * min(1.0, used / max(end - self.prepared, 1e-9))

    def _end_of_scoring(self) -> float:
        """The seconds after which only the folder is written, which takes longer if other programs use the CPU too."""
        wall, cpu = time.perf_counter() - self._wall_start, time.thread_time() - self._cpu_start
        slowdown = max(1.0, wall / max(cpu, 1e-3)) if wall > 1 else 1.0
        return 60 * self.settings.minutes * (1 - RESERVE_SHARE) - END_SECONDS * slowdown

    def scoring_seconds(self) -> float:
        """The seconds that are left for scoring; infinite without --minutes."""
        return max(1.0, self._end_of_scoring() - self.elapsed()) if self.settings.minutes else math.inf

    def validation_seconds(self) -> float:
        """The seconds that a validation may take; infinite without --minutes."""
        return min(self.scoring_seconds(), VALIDATION_SHARE * 60 * (self.settings.minutes or math.inf))

    def left(self, update: int) -> float | None:
        """The estimated seconds from `update` until the run is finished; None during the first updates."""
        settings = self.settings
        if settings.minutes:
            return max(0.0, 60 * settings.minutes - self.elapsed())
        if len(self._updates) < MIN_UPDATES:
            return None
        every = settings.validate_every
        validations = max(0, math.ceil(settings.updates / every) - 1 - update // every) + self.final_validations
        return max(0, settings.updates - update) * median(self._updates) + validations * self._validation
