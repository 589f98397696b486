"""Planning: choose size and schedule of a run from its data, its machine and `--minutes`.

With `--minutes` a few updates are timed, and the size is chosen by their speed. The clock ends the run, so the
number of updates is an estimate. Without it, an update of a long run is timed only to announce how long it takes.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from statistics import median

import torch

from regard import kernels
from regard.config import Config
from regard.devices import supports_bf16
from regard.memory import free_memory
from regard.results import format_duration
from regard.training.clock import RESERVE_SHARE, make_clock
from regard.training.data import Data
from regard.training.distributed import Runtime
from regard.training.events import Say
from regard.training.loop import MakeModel, Training
from regard.training.sizing import Facts, choose, describe, epoch_seconds, tokens_per_update, update_seconds

TIMED_SECONDS = 1.5  # of updates with each number of threads
MAX_TIMED_UPDATES = 60
WARM_UPDATES = 4  # on a GPU not timed: they choose kernels, allocate memory and capture graphs
MIN_SECONDS_TO_SAY = 60.0  # shorter estimates are far off: they ignore start-up and other programs
MIN_SECONDS_TO_TIME = 1800.0  # an update is timed if the FLOPs of a run with --updates suggest that it takes longer
LONG_SECONDS = 3 * 3600.0  # a run that takes longer is announced with its time
CPU_TIMED_TOKENS = 1024  # of an update that is timed on a CPU: enough to see its speed


def complete_config(
    config: Config,
    unset: frozenset[str],
    data: Data,
    runtime: Runtime,
    *,
    start: float,
    choose_threads: bool,
    make_model: MakeModel,
    say: Say,
) -> tuple[Config, float]:
    """Choose the `unset` fields of a config from data, hardware and `train.minutes`, which are counted from `start`.

    Returns the config and the seconds of an update, 0 if none was timed.
    """
    facts, minutes = gather_facts(data, runtime), config.train.minutes
    if not minutes:
        config = choose(config, unset, facts) if unset else config
        clock = make_clock(config, data, runtime.device.type)
        seconds = clock.estimate(update_seconds(config, facts))
        if unset:
            say(describe(config, facts, format_duration(seconds) if seconds >= MIN_SECONDS_TO_SAY else ""))
        if seconds > MIN_SECONDS_TO_TIME:  # the config does not depend on what is measured
            seconds = clock.estimate(time_update(config, data, runtime, make_model))
        if seconds > LONG_SECONDS:
            about = f"about {format_duration(seconds)} on this machine"
            say(f"{config.train.updates:,} updates take {about}; --minutes 60 ends in an hour")
        return config, 0.0
    facts = replace(facts, seconds=60 * minutes)
    first_choice = choose(config, unset, facts)
    seconds = time_update(first_choice, data, runtime, make_model, say if choose_threads else None)
    facts = replace(facts, measured_flops=facts.flops * update_seconds(first_choice, facts) / seconds)
    config = choose(config, unset, facts)
    clock = make_clock(config, data, runtime.device.type, start=start)
    clock.timed_update = update_seconds(config, facts)
    usable = 60 * minutes * (1 - RESERVE_SHARE) - clock.elapsed() - clock.end_seconds()
    validation = clock.validation_updates * clock.timed_update
    facts = replace(facts, seconds=max(usable, 1.0), validation_seconds=validation, cores=torch.get_num_threads())
    config = choose(config, unset, facts)
    if unset:
        say(describe(config, facts))
    epoch = epoch_seconds(config, facts)
    if usable < epoch:
        reason = (
            f"only {usable / epoch:.0%} of an epoch fits into --minutes {minutes:g}"
            if usable > 0
            else f"--minutes {minutes:g} is too short: preparation and scoring alone take longer"
        )
        say(f"{reason}; --minutes {math.ceil((60 * minutes - usable + epoch) / 60)} would be enough")
    return config, update_seconds(config, facts)


def gather_facts(data: Data, runtime: Runtime) -> Facts:
    """Collect the facts about data and hardware from which a size is chosen."""
    store, is_pairs = data.train[0], data.config.model.is_translator
    if is_pairs:
        source, target = float(store.source.lengths.mean()), float(store.target.lengths.mean())
    else:
        source, target = 0.0, float(store.text.lengths.mean())
    return Facts(
        examples=len(store),
        source_length=source,
        target_length=target,
        device=runtime.device.type,
        cores=torch.get_num_threads(),
        has_packed_kernels=kernels.is_available() and supports_bf16(runtime.device.type),
    )


def time_update(
    config: Config,
    data: Data,
    runtime: Runtime,
    make_model: MakeModel,
    say: Say | None = None,
    *,
    cpu_tokens: int = CPU_TIMED_TOKENS,
) -> float:
    """Estimate the seconds of an update on this machine from a few updates, which are discarded.

    On a CPU they have at most `cpu_tokens`. With `say`, one CPU thread is compared with all threads, and the faster is
    used from now on: on a busy machine, threads wait for each other.
    """
    update_tokens, batch_tokens = tokens_per_update(config.train), config.train.batch_tokens // runtime.world_size
    if runtime.device.type == "cpu":
        batch_tokens = min(batch_tokens, cpu_tokens)
    timed = replace(config.train, batch_tokens=batch_tokens, gradient_accumulation=1, compile="no")
    config, single_process = replace(config, train=timed), Runtime(runtime.device, 0, 1)
    training = Training(Path(), make_model, config, replace(data, config=config), single_process)
    training.batches = cycle(list(islice(training.batches, WARM_UPDATES)))  # so that each CUDA graph is captured once
    threads, one_thread = torch.get_num_threads(), math.inf
    if say and threads > 1 and runtime.device.type == "cpu":
        torch.set_num_threads(1)
        one_thread = _time(training)
        torch.set_num_threads(threads)
    all_threads = _time(training)
    if say and one_thread < all_threads:
        torch.set_num_threads(1)
        factor = all_threads / one_thread
        say(f"using one CPU thread: at the moment it is {factor:.1f} times as fast as {threads} threads")
    del training
    free_memory()
    return min(one_thread, all_threads) * update_tokens / batch_tokens / runtime.world_size


def _time(training: Training) -> float:
    """The median seconds of an update."""
    seconds: list[float] = []
    warm = WARM_UPDATES if training.runtime.device.type == "cuda" else 1
    while len(seconds) <= warm or (sum(seconds) < TIMED_SECONDS and len(seconds) < MAX_TIMED_UPDATES):
        start = time.perf_counter()
        training.step()
        seconds.append(time.perf_counter() - start)
        if warm == 1 and seconds[0] > TIMED_SECONDS:  # too slow to repeat
            return seconds[0]
    return median(seconds[warm:])
