"""Plans: how large batches may be, how many updates fit into the time, and how long the rest will take.

Only a run by minutes and a run on a GPU are probed, once, before update 1; `config.json` keeps what was found.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from regard import counting
from regard.config import Config, TrainConfig
from regard.errors import RunError
from regard.memory import free_memory
from regard.training import hardware as machine
from regard.training import sizing as size
from regard.training.data import Data
from regard.training.distributed import Runtime
from regard.training.loop import Training, Validation
from regard.training.sizing import Facts

VALIDATED = 500  # sentences translated at a validation during training: enough to choose by, quick enough to repeat
FEWEST = 10  # updates of a run that was given a time
LEARNED = 400  # updates after which a model ends its sentences, more or less
PROBED = 12  # updates timed at least
COLD = 4  # of them that are not counted: the first ones choose kernels and take memory
SHARE = 0.06  # of the time given that a probe may take
VALIDATING = 0.1  # of the time given that validations may take
AROUND = 4.0  # seconds that a program takes to start, to draw its curves and to end
SLACK = 0.04  # of the time given that is left for what a probe does not see
FULL = 0.8  # of a GPU's memory that a budget may take: the rest is for fragments and longer batches
WRITTEN = 200e6  # bytes a second that a disk is trusted to take
RECENT = 200  # updates whose mean the time left goes by
DECODING = {"cpu": 1.5, "mps": 5.0}  # how many times as long as in training an operation takes in search; a GPU: 20

Say = Callable[[str], None]
Make = Callable[[Config], nn.Module]
Validate = Callable[[nn.Module, Data], Validation]


def settled(
    config: Config,
    left_open: frozenset[str],
    data: Data,
    runtime: Runtime,
    *,
    minutes: float,
    begun: float,
    make: Make,
    validate: Validate,
    say: Say,
) -> Config:
    """The config a run goes by, with what it left open chosen; `begun` is when the time given began to run."""
    known = facts(data, runtime, minutes)
    if left_open & size.CHOSEN - size.PLANNED:
        config = size.choose(config, left_open, known)
        if runtime.device.type == "cuda" and "train.batch_tokens" in left_open:
            config = _affordable(config, left_open, data, runtime, known, make)
        took = pace(config, data, runtime).whole(size.seconds(config, known) / config.train.updates)
        if minutes or runtime.device.type == "cuda":
            found = probe(config, data, runtime, minutes or 1.0, make, validate)
            took = found.whole(config.train)
            if minutes:
                config = planned(config, left_open, found, known, begun)
                _warn(config, found, minutes, begun, say)
        say(size.sentence(config, known, lasting(took)))
    elif minutes:
        found = probe(config, data, runtime, minutes, make, validate)
        config = planned(config, left_open, found, known, begun)
        _warn(config, found, minutes, begun, say)
        positions = size.per_update(config.train)
        say(f"{config.train.updates:,} updates of {positions:,} positions in {minutes:g} minutes")
    return config


def facts(data: Data, runtime: Runtime, minutes: float) -> Facts:
    """What a size is chosen by."""
    store, pairs = data.train[0], data.config.model.family in ("rnn", "transformer")
    both = [each.source_lengths + each.target_lengths for each in data.train] if pairs else []
    sides = [store.source_lengths, store.target_lengths] if pairs else [store.text.lengths]
    return Facts(
        examples=len(store),
        source=float(sides[0].mean()) if pairs else 0.0,
        target=float(sides[-1].mean()),
        longest=max(int(lengths.max()) for lengths in both) if pairs else data.config.text.context_length,
        device=runtime.device.type,
        memory=machine.available(runtime),
        cores=min(machine.cores(), torch.get_num_threads()),
        minutes=minutes,
    )


# The probe


class Found(NamedTuple):
    """What a probe found, in seconds."""

    update: float
    cold: float
    """More than that, that the first updates took."""
    validation: float
    ending: float
    """Scoring and writing the finished model."""
    repeated: float = 0.0
    """Of the ending, what the last validation has done already if it is the best."""
    endless: float = 1.0
    """How many times as long a validation takes where no sentence ends."""

    def whole(self, settings: TrainConfig) -> float:
        """All of a run."""
        return self.cold + settings.updates * self.update + self.scoring(settings.updates, settings.validate_every)

    def scoring(self, updates: int, every: int) -> float:
        """The validations of a run, and its end."""
        early = range(every, min(updates, LEARNED), every)
        validations = sum(map(self._longer, early)) + (updates - 1) // every - len(early) + self._longer(updates)
        ending = self.ending - (self.repeated if every >= updates else 0.0)
        return validations * self.validation + self._longer(updates) * ending

    def _longer(self, update: int) -> float:
        """How many times as long it takes as with a model that has learned to end its sentences."""
        return 1 + (self.endless - 1) * max(0.0, 1 - update / LEARNED)


def probe(config: Config, data: Data, runtime: Runtime, minutes: float, make: Make, validate: Validate) -> Found:
    """A few updates and a small validation of a model that is thrown away, by this process alone."""
    alone = Runtime(runtime.device, 0, 1)
    share = max(1, config.train.batch_tokens // runtime.world_size)
    mine = replace(config, train=replace(config.train, batch_tokens=max(share, facts(data, runtime, 0).longest)))
    training = Training(Path(), make(mine), mine, _with(data, mine), alone)
    batches, step = training._batches(), training._prepared()
    # every shape is recorded once, which takes as long as many updates: a few batches, again and again, tell both apart
    some = cycle(islice(batches, COLD * mine.train.gradient_accumulation)) if step.records else batches
    times: list[float] = []
    recorded: list[int] = []
    begun, limit, fewest = time.perf_counter(), SHARE * 60 * minutes, COLD + 3 if step.records else 3
    while len(times) < PROBED or (len(times) < 5 * PROBED and time.perf_counter() - begun < limit):
        then = time.perf_counter()
        training._update(step, some)
        times.append(time.perf_counter() - then)
        recorded.append(step.recorded)
        if len(times) >= fewest and time.perf_counter() - begun > 2 * limit:
            break
    batches.close()  # type: ignore[attr-defined]
    each = _mean(times[COLD if step.records else min(COLD, len(times) // 3) :])
    cold = _cold(times, each, recorded, shapes=mine.train.batch_shapes)
    scored = _validation(training.model, _with(data, mine), validate, limit)
    numbers = counting.count(config).total
    found = scored._replace(update=each, cold=cold, ending=scored.ending + 16 * numbers / WRITTEN)
    del training, step
    free_memory()
    return found


def _cold(times: list[float], each: float, recorded: list[int], *, shapes: int) -> float:
    """What the updates of a run take beyond `each` of them, given those of a probe and what was recorded after each."""
    found = max(0.0, sum(times) - each * len(times))
    if recorded[-1] <= recorded[0]:
        return found
    recording = (sum(times[1:]) - each * len(times[1:])) / (recorded[-1] - recorded[0])
    return found + max(0.0, recording) * max(0, shapes - recorded[-1])


def _validation(model: nn.Module, data: Data, validate: Validate, limit: float) -> Found:
    """What a validation takes, and scoring the finished model, from a few sentences.

    A model that has learned nothing never ends a sentence: it may write as much as a good one would, and then as much
    as it likes.
    """
    short = replace(data.config, decode=replace(data.config.decode, max_length_ratio=1.0, max_length_extra=5))
    held = len(data.valid)

    def timed(config: Config, some: int) -> tuple[float, bool]:
        places = np.linspace(0, held - 1, min(some, held)).astype(np.int64)
        few = Data(config, data.tokenizers, data.train, data.valid.take(places), data.shares)
        begun = time.perf_counter()
        validated = validate(model, few)
        return (time.perf_counter() - begun) / len(places), "sentences" in validated.facts

    timed(short, 8)
    each, translates = timed(short, 8)
    if 6 * each * 8 <= limit:
        each, _ = timed(short, 48)
    validation, scored, endless = each * (min(held, VALIDATED) if translates else held), each, 1.0
    if data.config.model.family in ("rnn", "transformer"):  # in the end all is translated, whatever chose the best
        bleu = [replace(config, train=replace(config.train, metric="bleu")) for config in (short, data.config)]
        few, endless = (timed(config, 8)[0] for config in bleu)
        scored, endless = each if translates else few, endless / few
    repeated = validation if translates and not data.config.train.average_checkpoints else 0.0
    # in batches of many sentences a step more costs half of what it does in batches of few
    return Found(0.0, 0.0, validation, scored * held, repeated, max(1.0, (1 + endless) / 2))


def planned(config: Config, left_open: frozenset[str], found: Found, known: Facts, begun: float) -> Config:
    """As many updates as fit into the time with all that comes after them.

    Nothing looks at the clock again: a run whose end depended on it could neither be repeated nor go on exactly. So the
    plan leaves some time over. Where even the fewest updates do not fit, they are made all the same.
    """
    usable = known.minutes * 60 * (1 - SLACK) - AROUND - (time.perf_counter() - begun) - found.cold
    validations = max(1, min(10, int(VALIDATING * (usable - found.ending) / max(found.validation, 1e-9))))
    updates = max(usable / found.update, FEWEST)
    while True:
        every = config.train.validate_every
        if "train.validate_every" in left_open:
            every = math.ceil(updates / validations)
        if updates <= FEWEST or int(updates) * found.update + found.scoring(int(updates), every) <= usable:
            break
        updates = max(0.99 * updates, FEWEST)  # what is scored after fewer updates may take longer, so one by one
    return size.with_updates(config, left_open | {"train.updates"}, int(updates), known, every=every)


def _warn(config: Config, found: Found, minutes: float, begun: float, say: Say) -> None:
    whole = time.perf_counter() - begun + found.whole(config.train)
    if whole > 60 * minutes:
        say(f"--minutes {minutes:g} is too short: {config.train.updates} updates and scoring take {lasting(whole)}")


def _affordable(
    config: Config, left_open: frozenset[str], data: Data, runtime: Runtime, known: Facts, make: Make
) -> Config:
    """The config with a budget whose longest batches fit into the GPU's memory: reckoned first, then tried."""
    numbers = counting.count(config).total
    precision = "fp32" if config.train.precision == "fp32" else "bf16"
    passes, half = 2 if config.train.r_drop else 1, max(1, known.longest // 2)
    budget = config.train.batch_tokens

    def needed(budget: int) -> int:
        rows = passes * math.ceil(budget / runtime.world_size / (2 * half))
        return counting.memory(config.model, numbers, rows, half, half, precision).training

    while budget > known.longest and needed(budget) > FULL * known.memory:
        budget //= 2
    while not _fits(replace(config, train=replace(config.train, batch_tokens=budget)), data, runtime, known, make):
        budget //= 2
        if budget < known.longest:
            raise RunError(
                f"a batch of one example of {known.longest} positions does not fit into the GPU's memory: "
                f"lower text.max_length ({config.text.max_length}) or model.size ({config.model.size})"
            )
    config = replace(config, train=replace(config.train, batch_tokens=budget))
    return size.scheduled(config, left_open - {"train.batch_tokens"}, known)


def _fits(config: Config, data: Data, runtime: Runtime, known: Facts, make: Make) -> bool:
    """Whether the batches with the longest examples and with the most targets can be trained on, with room to spare."""
    training = Training(Path(), make(config), config, _with(data, config), Runtime(runtime.device, 0, 1))
    step = training._prepared()
    epoch = training.data.epoch(0, rank=0, world_size=runtime.world_size)
    shapes, lengths = epoch.plan.shapes, epoch.plan.shapes[:, 1:].sum(axis=1)
    training.cursor = (0, 0)
    torch.cuda.reset_peak_memory_stats(runtime.device)
    try:
        numbers = {int(sizes.argmax()) for sizes in (lengths, shapes[:, 0] * lengths)}
        batches = cycle(epoch.make(number).each(lambda tensor: tensor.to(runtime.device)) for number in numbers)
        for _ in numbers:
            training._update(step, batches)
        fits = training.progress.split == 1
    except RunError:  # not even one row
        fits = False
    taken = torch.cuda.max_memory_reserved(runtime.device)
    del training, step
    free_memory()
    return fits and taken <= FULL * known.memory


def _with(data: Data, config: Config) -> Data:
    return Data(config, data.tokenizers, data.train, data.valid, data.shares)


def _mean(times: list[float]) -> float:
    """Without the few that took many times as long as the others: something was compiled, or the machine slept."""
    usual = median(times)
    kept = [each for each in times if each <= 5 * usual]
    return sum(kept) / len(kept)


# The time left


class Pace:
    """Told how long updates, validations and saves take, and saying how long the rest will."""

    def __init__(self, settings: TrainConfig, *, validation: float, ending: float, again: bool = False) -> None:
        """Until a validation was made it is taken for so many updates, and scoring the finished model for `ending`
        validations; one fewer where the last validation is the best and need not be made `again`."""
        self._settings, self._guess, self._ending, self._again = settings, validation, ending, again
        self._last = False
        self._updates: deque[float] = deque(maxlen=RECENT)
        self._validation = self._saved = 0.0

    def update(self, seconds: float) -> None:
        self._updates.append(seconds)

    def validation(self, seconds: float, update: int, *, best: bool) -> None:
        """The last one tells most: a model that has learned to end its sentences is faster."""
        self._validation = seconds
        if update == self._settings.updates:
            self._last, self._ending = True, max(0.0, self._ending - 1) if best and self._again else self._ending

    def saved(self, seconds: float) -> None:
        self._saved = seconds

    def left(self, update: int) -> float | None:
        """Seconds from here to the finished model; None while too little is known."""
        return self._rest(update, _mean(list(self._updates))) if len(self._updates) >= COLD else None

    def whole(self, each: float) -> float:
        """Seconds of a whole run, if an update takes so many."""
        return self._rest(0, each)

    def _rest(self, update: int, each: float) -> float:
        settings, validation = self._settings, self._validation or self._guess * each
        validations, saves = (
            _to_come(update, settings, every) for every in (settings.validate_every, settings.save_every)
        )
        validations = 0 if self._last else validations
        ending = self._ending * validation + self._saved
        return (settings.updates - update) * each + validations * validation + saves * self._saved + ending


def _to_come(update: int, settings: TrainConfig, every: int) -> int:
    """How often something that happens every so many updates, and at the last, still will."""
    return max(0, math.ceil(settings.updates / every) - update // every)


def pace(config: Config, data: Data, runtime: Runtime) -> Pace:
    """The pace of a run, with a guess of what a validation takes: what its search computes, in updates."""
    held, translates = len(data.valid), config.model.family in ("rnn", "transformer")
    known = facts(data, runtime, 0)
    length = known.source + known.target
    guess = held * length / 3 / config.train.batch_tokens  # the loss: no backward pass
    if translates and config.train.metric != "loss":
        slower = DECODING.get(runtime.device.type, 20.0) * config.decode.beams / 3
        guess += slower * min(held, VALIDATED) * length / config.train.batch_tokens
    guess /= (2 if config.train.r_drop else 1) * config.train.gradient_accumulation
    again = translates and config.train.metric != "loss" and not config.train.average_checkpoints
    return Pace(config.train, validation=guess, ending=max(1.0, held / VALIDATED) if translates else 1.0, again=again)


def lasting(seconds: float | None) -> str:
    """`45 s`, `12 min`, `3 h 20 min`, `2 d 4 h`."""
    if seconds is None:
        return "…"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"
