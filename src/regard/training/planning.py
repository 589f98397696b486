"""Planning: choose batches that fit into GPU memory, and a number of updates that fits into `--minutes`.

For `--minutes`, a few updates are timed once, before update 1. The result is saved in `config.json`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from regard import counting
from regard.config import Config, TrainConfig
from regard.memory import free_memory
from regard.training import hardware
from regard.training.data import Data
from regard.training.distributed import Runtime
from regard.training.loop import Training
from regard.training.progress import TimeLeft, format_duration, mean_seconds
from regard.training.sizing import (
    CHOSEN_FIELDS,
    PLANNED_FIELDS,
    Facts,
    choose,
    describe,
    estimated_seconds,
    tokens_per_update,
    with_batch_tokens,
    with_updates,
)
from regard.training.validation import MAX_SENTENCES, ValidationSet, validate

MIN_UPDATES = 10  # of any run with --minutes
MAX_PROBED_UPDATES = 60
SLOW_UPDATES = 4  # warm-up updates that are not timed: they choose kernels and allocate memory
PROBE_SHARE = 0.06  # of --minutes, for the probe
VALIDATION_SHARE = 0.1  # of --minutes, for validations
START_AND_END_SECONDS = 4.0  # starting Python, drawing the curves, exit
RESERVE_SHARE = 0.04  # of --minutes, for what the probe does not measure
MAX_MEMORY_SHARE = 0.8  # of the GPU's memory for a batch; the rest is for fragmentation and longer batches
DISK_BYTES_PER_SECOND = 200e6  # assumed speed of writing the model
UPDATES_TO_END_SENTENCES = 400  # before, a model rarely predicts the end token and decodes up to the maximum length
DECODING_COST = {"cpu": 1.5, "mps": 5.0, "cuda": 20.0}  # time per FLOP in beam search relative to training

Say = Callable[[str], None]
MakeModel = Callable[[Config], nn.Module]


def complete_config(
    config: Config,
    unset: frozenset[str],
    valid_set: ValidationSet,
    runtime: Runtime,
    *,
    minutes: float | None,
    start: float,
    make_model: MakeModel,
    say: Say,
) -> Config:
    """Choose the `unset` fields of a config from data, hardware and `minutes`, which are counted from `start`."""
    data = valid_set.data
    facts = gather_facts(data, runtime, minutes)
    chooses_size = bool(unset & CHOSEN_FIELDS - PLANNED_FIELDS)
    if not chooses_size and not minutes:
        return config
    if chooses_size:
        config = choose(config, unset, facts)
        if runtime.device.type == "cuda" and "train.batch_tokens" in unset:
            config = fit_memory(config, unset, runtime, facts)
    if minutes:
        probe = run_probe(config, valid_set, runtime, minutes, make_model)
        config = plan(config, unset, probe, facts, start)
        total = time.perf_counter() - start + probe.total(config.train)
        if total > 60 * minutes:
            updates = config.train.updates
            say(f"--minutes {minutes:g} is too short: {updates} updates and scoring take {format_duration(total)}")
    if chooses_size:
        update_seconds = estimated_seconds(config, facts) / config.train.updates
        say(describe(config, facts, format_duration(time_left(config, data, runtime).total(update_seconds))))
    else:
        tokens = tokens_per_update(config.train)
        say(f"{config.train.updates:,} updates of {tokens:,} tokens in {minutes:g} minutes")
    return config


def gather_facts(data: Data, runtime: Runtime, minutes: float | None) -> Facts:
    """Collect the facts about data and hardware from which a size is chosen."""
    store, is_pairs = data.train[0], data.config.model.family in ("rnn", "transformer")
    if is_pairs:
        source, target = float(store.source_lengths.mean()), float(store.target_lengths.mean())
        longest = max(int((variant.source_lengths + variant.target_lengths).max()) for variant in data.train)
    else:
        source, target, longest = 0.0, float(store.text.lengths.mean()), data.config.text.context_length
    return Facts(
        examples=len(store),
        source_length=source,
        target_length=target,
        max_length=longest,
        device=runtime.device.type,
        gpu_memory=hardware.available_gpu_memory(runtime),
        cores=min(hardware.cores(), torch.get_num_threads()),
        minutes=minutes,
    )


# The probe


class Probe(NamedTuple):
    """Measured seconds of the parts of a run."""

    update: float
    warm_up: float
    """Extra seconds of the first updates: compilation, CUDA graphs, memory."""
    validation: float
    final: float
    """Scoring and writing the finished model."""
    untrained_factor: float = 1.0
    """How many times longer a validation takes while the model does not predict the end token yet."""

    def total(self, settings: TrainConfig) -> float:
        """The seconds of a whole run."""
        return self.warm_up + settings.updates * self.update + self.scoring(settings.updates, settings.validate_every)

    def scoring(self, updates: int, every: int) -> float:
        """The seconds of all validations and of the final scoring."""
        early = range(every, min(updates, UPDATES_TO_END_SENTENCES), every)
        later = (updates - 1) // every - len(early)
        validations = sum(map(self._factor, early)) + later + self._factor(updates)
        return validations * self.validation + self._factor(updates) * self.final

    def _factor(self, update: int) -> float:
        return 1 + (self.untrained_factor - 1) * max(0.0, 1 - update / UPDATES_TO_END_SENTENCES)


def run_probe(
    config: Config, valid_set: ValidationSet, runtime: Runtime, minutes: float, make_model: MakeModel
) -> Probe:
    """Time a few updates and a small validation; the model is discarded."""
    alone = Runtime(runtime.device, 0, 1)
    limit = PROBE_SHARE * 60 * minutes
    update, warm_up, model = time_updates(config, valid_set.data, runtime, limit, make_model)
    probe = _time_validation(model, valid_set, config, alone, limit)
    writing = 16 * counting.count(config).total / DISK_BYTES_PER_SECOND
    del model
    free_memory()
    return probe._replace(update=update, warm_up=warm_up, final=probe.final + writing)


def time_updates(
    config: Config, data: Data, runtime: Runtime, limit: float, make_model: MakeModel
) -> tuple[float, float, nn.Module]:
    """Time updates for about `limit` seconds: seconds of an update, extra seconds of the first ones, and the model."""
    batch_tokens = max(config.train.batch_tokens // runtime.world_size, gather_facts(data, runtime, None).max_length, 1)
    config = replace(config, train=replace(config.train, batch_tokens=batch_tokens))
    training = Training(Path(), make_model(config), config, with_config(data, config), Runtime(runtime.device, 0, 1))
    uses_graphs = training.gradients.uses_graphs
    if uses_graphs:  # capturing a shape takes as long as many updates: repeated batches show the time of each
        training.batches = cycle(islice(training.batches, SLOW_UPDATES * config.train.gradient_accumulation))
    seconds: list[float] = []
    graphs: list[int] = []
    min_updates = SLOW_UPDATES + 3 if uses_graphs else 3
    while len(seconds) < min_updates or (sum(seconds) < limit and len(seconds) < MAX_PROBED_UPDATES):
        start = time.perf_counter()
        training.step()
        seconds.append(time.perf_counter() - start)
        graphs.append(training.gradients.graphs)
    update = mean_seconds(seconds[SLOW_UPDATES if uses_graphs else min(SLOW_UPDATES, len(seconds) // 3) :])
    return update, _warm_up_seconds(seconds, update, graphs, shapes=config.train.batch_shapes), training.model


def _warm_up_seconds(seconds: list[float], update: float, graphs: list[int], *, shapes: int) -> float:
    """Extra seconds of the first updates of a run, from the timed updates and the number of CUDA graphs after each."""
    extra = max(0.0, sum(seconds) - update * len(seconds))
    captured = graphs[-1] - graphs[0]
    if captured <= 0:
        return extra
    capture = max(0.0, (sum(seconds[1:]) - update * len(seconds[1:])) / captured)
    return extra + capture * max(0, shapes - graphs[-1])


def _time_validation(
    model: nn.Module, valid_set: ValidationSet, config: Config, runtime: Runtime, limit: float
) -> Probe:
    """The seconds of a validation and of the final scoring, from a few sentences.

    An untrained model never predicts the end token. It is timed with the length of good translations, then with the
    maximum length.
    """
    good_length = replace(config, decode=replace(config.decode, max_length_ratio=1.0, max_length_extra=5))
    size = len(valid_set.data.valid)

    def seconds_per_sentence(config: Config, sentences: int) -> float:
        few = valid_set.sample(sentences, config)
        start = time.perf_counter()
        validate(model, few, runtime)
        return (time.perf_counter() - start) / len(few.data.valid)

    seconds_per_sentence(good_length, 8)
    seconds = seconds_per_sentence(good_length, 8)
    if 6 * seconds * 8 <= limit:
        seconds = seconds_per_sentence(good_length, 48)
    translates = valid_set.is_translation and config.train.metric != "loss"
    validation, final, untrained_factor = seconds * (min(size, MAX_SENTENCES) if translates else size), seconds, 1.0
    if valid_set.is_translation:  # the final scoring translates everything, even if train.metric is the loss
        short, full = (replace(config, train=replace(config.train, metric="bleu")) for config in (good_length, config))
        translation, untrained = seconds_per_sentence(short, 8), seconds_per_sentence(full, 8)
        final = seconds if translates else translation
        # in large batches, longer outputs cost about half as much as in small ones
        untrained_factor = max(1.0, (1 + untrained / translation) / 2)
    return Probe(0.0, 0.0, validation, final * size, untrained_factor)


def plan(config: Config, unset: frozenset[str], probe: Probe, facts: Facts, start: float) -> Config:
    """Choose as many updates as fit into the minutes together with validations and the final scoring.

    The clock is not read again, since a run that depended on it could not be repeated or resumed exactly. So the plan
    leaves a reserve. MIN_UPDATES are made even if they do not fit.
    """
    assert facts.minutes is not None
    elapsed = time.perf_counter() - start
    usable = facts.minutes * 60 * (1 - RESERVE_SHARE) - START_AND_END_SECONDS - elapsed - probe.warm_up
    validations = max(1, min(10, int(VALIDATION_SHARE * (usable - probe.final) / max(probe.validation, 1e-9))))
    updates = max(usable / probe.update, MIN_UPDATES)
    while True:
        every = config.train.validate_every
        if "train.validate_every" in unset:
            every = math.ceil(updates / validations)
        if updates <= MIN_UPDATES or int(updates) * probe.update + probe.scoring(int(updates), every) <= usable:
            break
        updates = max(0.99 * updates, MIN_UPDATES)  # in small steps: with fewer updates, scoring may take longer
    return with_updates(config, unset | {"train.updates"}, int(updates), facts, every=every)


# Memory


def fit_memory(config: Config, unset: frozenset[str], runtime: Runtime, facts: Facts) -> Config:
    """Halve `train.batch_tokens` until the estimated memory of the longest examples fits into the GPU.

    If a batch still does not fit, the training loop splits it.
    """
    parameters = counting.count(config).total
    precision = "fp32" if config.train.precision == "fp32" else "bf16"
    passes, half = 2 if config.train.r_drop else 1, max(1, facts.max_length // 2)
    batch_tokens = config.train.batch_tokens

    def needed(batch_tokens: int) -> int:
        rows = passes * math.ceil(batch_tokens / runtime.world_size / (2 * half))
        return counting.estimate_memory(config.model, parameters, rows, half, half, precision).training

    while batch_tokens > facts.max_length and needed(batch_tokens) > MAX_MEMORY_SHARE * facts.gpu_memory:
        batch_tokens //= 2
    config = replace(config, train=replace(config.train, batch_tokens=batch_tokens))
    return with_batch_tokens(config, unset - {"train.batch_tokens"}, facts)


def with_config(data: Data, config: Config) -> Data:
    """The same data, batched by another config."""
    return replace(data, config=config)


# The time left


def time_left(config: Config, data: Data, runtime: Runtime) -> TimeLeft:
    """An estimate of the time left; before the first validation, its time is estimated from the FLOPs of decoding."""
    facts, size = gather_facts(data, runtime, None), len(data.valid)
    length = facts.source_length + facts.target_length
    updates = size * length / 3 / config.train.batch_tokens  # the loss: no backward pass
    if facts.is_pairs and config.train.metric != "loss":
        slower = DECODING_COST[runtime.device.type] * config.decode.beams / 3
        updates += slower * min(size, MAX_SENTENCES) * length / config.train.batch_tokens
    updates /= (2 if config.train.r_drop else 1) * config.train.gradient_accumulation
    return TimeLeft(
        config.train,
        validation_updates=updates,
        final_validations=max(1.0, size / MAX_SENTENCES) if facts.is_pairs else 1.0,
    )
