"""The clock of a run: its position in the schedule, by updates or by --minutes, and the time left."""

from __future__ import annotations

import math
import time
from collections import deque
from statistics import median

from regard.config import Config, TrainConfig
from regard.evaluation.calibration import MAX_SENTENCES
from regard.training.data import Data
from regard.training.events import Event, UpdateEvent, ValidationEvent

RECENT_UPDATES = 50  # the time of an update is the median over so many
MIN_UPDATES = 4  # before the first estimate of the time left: the first updates are slow
RESERVE_SHARE = 0.04  # of --minutes, so that a run ends a little early rather than late
VALIDATION_SHARE = 0.1  # of --minutes, at most, for one validation: to end in time, it translates fewer sentences
FINAL_SHARE = 0.2  # of --minutes, at most, for the last validation and the final scores
END_SECONDS = 2.5  # CPU time of metrics, curves, card, weights and exit, measured
DECODING_COST = {"cpu": 1.5, "mps": 5.0, "cuda": 20.0}  # time per FLOP in beam search relative to training


class Clock:
    """Measures how far a run is.

    The position of a run is its number of updates. With `train.minutes` it is the share of the time used, times
    `train.updates`: warm-up, decay, validations and checkpoints then follow the time.
    """

    def __init__(
        self,
        settings: TrainConfig,
        *,
        start: float | None = None,
        validation_updates: float = 0.0,
        final_validations: float = 1.0,
    ) -> None:
        """`validation_updates` is the expected time of the first validation, in updates. The last validation and the
        final scores are expected to take as long as `final_validations` validations."""
        self.settings, self.validation_updates = settings, validation_updates
        self._final_validations = final_validations
        self.spent = 0.0  # seconds of earlier starts of the run
        self.prepared = 0.0  # seconds before the first update
        self.timed_update = 0.0  # seconds of an update, timed before training; 0 if none was timed
        self._start = time.perf_counter() if start is None else start
        self._wall_start, self._cpu_start = time.perf_counter(), time.thread_time()
        self._updates: deque[float] = deque(maxlen=RECENT_UPDATES)
        self._validation = 0.0

    def elapsed(self) -> float:
        """Seconds of all starts of the run."""
        return self.spent + time.perf_counter() - self._start

    def observe(self, event: Event) -> None:
        """Store the seconds of an update or a validation."""
        if isinstance(event, UpdateEvent):
            self._updates.append(event.seconds)
        elif isinstance(event, ValidationEvent):
            self._validation = event.seconds  # decoding gets faster as the model learns to end sentences

    @property
    def update_seconds(self) -> float:
        return median(self._updates) if self._updates else self.timed_update

    def position(self) -> float:
        """The position after the next update: the share of the time used by then, times `train.updates`."""
        end = 60 * self.settings.minutes * (1 - RESERVE_SHARE) - self.end_seconds()
        used = self.elapsed() + self.update_seconds - self.prepared
        return self.settings.updates * min(1.0, used / max(end - self.prepared, 1e-9))

    def end_seconds(self) -> float:
        """The seconds from the last update to the finished folder."""
        validation = self._validation or self.validation_updates * (self.timed_update or self.update_seconds)
        limit = FINAL_SHARE * 60 * self.settings.minutes
        return self._writing_seconds() + min(self._final_validations * validation, limit)

    def _writing_seconds(self) -> float:
        """The seconds to draw the curves and to write the folder: longer if other programs use the CPU too."""
        wall, cpu = time.perf_counter() - self._wall_start, time.thread_time() - self._cpu_start
        return END_SECONDS * (max(1.0, wall / max(cpu, 1e-3)) if wall > 1 else 1.0)

    def scoring_seconds(self) -> float:
        """The seconds that are left for scoring; infinite without --minutes."""
        if not self.settings.minutes:
            return math.inf
        return max(1.0, 60 * self.settings.minutes * (1 - RESERVE_SHARE) - self.elapsed() - self._writing_seconds())

    def validation_seconds(self) -> float:
        """The seconds that a validation may take; infinite without --minutes."""
        return min(self.scoring_seconds(), VALIDATION_SHARE * 60 * (self.settings.minutes or math.inf))

    def left(self, update: int) -> float | None:
        """The estimated seconds until the run is finished; None during the first updates."""
        if self.settings.minutes:
            return max(0.0, 60 * self.settings.minutes - self.elapsed())
        if len(self._updates) < MIN_UPDATES:
            return None
        return self.estimate(self.update_seconds, update)

    def estimate(self, update_seconds: float, update: int = 0) -> float:
        """The estimated seconds from `update` to the end of the run, if each update takes `update_seconds`."""
        settings = self.settings
        validation = self._validation or self.validation_updates * update_seconds
        # without the last one, which is one of the final ones
        every = settings.validate_every
        validations = max(0, math.ceil(settings.updates / every) - 1 - update // every) + self._final_validations
        return max(0, settings.updates - update) * update_seconds + validations * validation


def make_clock(config: Config, data: Data, device: str, *, start: float | None = None) -> Clock:
    """The clock of a run; the time of a validation is estimated from the FLOPs of decoding."""
    is_pairs, size, store = config.model.is_translator, len(data.valid), data.train[0]
    lengths = (store.source.lengths + store.target.lengths) if is_pairs else store.text.lengths
    passes = (2 if config.train.r_drop else 1) * config.train.gradient_accumulation
    sentence = float(lengths.mean()) / config.train.batch_tokens / 3 / passes  # its forward pass, in updates
    decoding = DECODING_COST[device] * config.decode.beams if is_pairs else 0.0  # in forward passes
    if is_pairs and config.train.metric != "loss":  # every validation translates, and the end what is left
        validation, final = size + min(size, MAX_SENTENCES) * decoding, max(1.0, size / MAX_SENTENCES)
    else:
        validation, final = float(size), 2.0 + decoding
    return Clock(config.train, start=start, validation_updates=validation * sentence, final_validations=final)
