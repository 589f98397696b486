"""Training on a GPU: the whole loop, real sentence lengths, against `transformers` Marian, eager and compiled."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from benchmarks.measure import matrix_flops, report
from benchmarks.training import SHAPES, Marian, configured, no_validation, synthetic, update_flops
from regard.config import Config
from regard.devices import find_device
from regard.models import build
from regard.text.batching import Batch
from regard.training.data import Data
from regard.training.distributed import Runtime
from regard.training.events import Event, UpdateEvent
from regard.training.loop import Training

WANTED = 600_000
MOST = 60.0  # seconds of a window: enough of a slow machine


def main(
    shape: str = "base", device: str = "cuda", budget: int = 65536, theirs: int = 50000, pairs: int = 1_000_000,
    updates: int = 300, warm: int = 400, compiled: bool = True, **train: Any,
) -> bool:  # fmt: skip
    """Target tokens a second of `updates` updates after `warm` ones; `theirs` is Marian's budget, of source and target
    together as ours is; other options are fields of the section train."""
    if device == "cuda" and not torch.cuda.is_available():
        print("gpu-training needs a GPU: left out", file=sys.stderr)
        return True
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    train = {"compile": "yes", "batch_shapes": 48} | train  # as `regard train` chooses for a long run of this size
    config = configured(SHAPES[shape], updates=100_000, batch_tokens=budget, precision="bf16", **train)
    data = synthetic(config, pairs)
    ours = regard(config, data, device, warm=warm, updates=updates)
    reached = update_flops(data) / (ours["milliseconds"] / 1000) / matrix_flops(device, torch.bfloat16, size=8192)
    wanted = 1.0 if device == "cuda" else None
    ratio = ours["tokens_per_second"] / WANTED
    facts = {"shape": shape, "budget": budget, "train": train, "regard": ours}
    good = [
        report(
            f"training on a GPU against {WANTED:,} target tokens/s",
            ratio,
            at_least=wanted,
            ceiling=reached,
            device=device,
            **facts,
        )
    ]
    config = configured(SHAPES[shape], batch_tokens=theirs)
    data = synthetic(config, pairs)
    for kind in ("eager", "compiled") if compiled else ("eager",):
        found = marian(config, data, device, updates=min(updates, 100), compiled=kind == "compiled")
        ratio = ours["tokens_per_second"] / found["tokens_per_second"]
        name = f"training on a GPU against transformers Marian, {kind}"
        good.append(report(name, ratio, at_least=wanted and 2.0, device=device, **facts, marian=found))
    return all(good)


def regard(config: Config, data: Data, device: str, *, warm: int, updates: int) -> dict[str, float]:
    """The run as `regard train` makes it: feed, journal, optimizer and all; it is stopped when the window is over."""
    marks: list[tuple[float, int, int]] = []
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, suppress(EnoughError):
        training = Training(
            Path(folder), lambda config: build(config.model), config, data, Runtime(find_device(device), 0, 1)
        )

        def observe(event: Event) -> None:
            number = training.progress.update
            if not isinstance(event, UpdateEvent) or 1 < number < warm:
                return
            over = number == warm + updates or (number > warm and time.perf_counter() - marks[-1][0] > MOST)
            if number in (1, warm) or over:
                marks.append((clock(device), training.progress.tokens, number))
            if over:
                raise EnoughError

        training.run(no_validation, observe)
    (one, _, _), (start, before, first), (end, after, last) = marks
    return {
        "tokens_per_second": round((after - before) / (end - start)),
        "milliseconds": round(1000 * (end - start) / (last - first), 2),
        "first_update_seconds": round(one - begun, 1),
        "warm_up_seconds": round(start - begun, 1),
        "tokens_per_update": round((after - before) / (last - first)),
        "updates": last - first,
        "gigabytes": memory(device),
    }


class EnoughError(Exception):
    """The window is over."""


def marian(config: Config, data: Data, device: str, *, updates: int, compiled: bool) -> dict[str, float]:
    """Batches that lie on the device before it begins: only the updates are timed."""
    epoch = data.epoch(0, rank=0, world_size=1)
    numbers = range(min(updates, len(epoch.plan)))
    batches = [epoch.make(number).map_tensors(lambda tensor: tensor.to(device)) for number in numbers]
    model = Marian(config, bf16=True, device=device, compiled=compiled)
    begun = clock(device)
    for batch in batches[:: max(1, len(batches) // 20)]:
        model.update(batch)
    warmed = clock(device)
    tokens, seconds = timed(model.update, batches, device)
    return {
        "tokens_per_second": round(tokens / seconds),
        "milliseconds": round(1000 * seconds / len(batches), 2),
        "warm_up_seconds": round(warmed - begun, 1),
        "tokens_per_update": round(tokens / len(batches)),
        "updates": len(batches),
        "gigabytes": memory(device),
    }


def timed(update: Callable[[Batch], Any], batches: list[Batch], device: str) -> tuple[int, float]:
    begun, tokens = clock(device), 0
    for batch in batches:
        update(batch)
        tokens += batch.target_tokens
    return tokens, clock(device) - begun


def clock(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def memory(device: str) -> float:
    """The most the device held since the last question, in GiB."""
    if device != "cuda":
        return 0.0
    peak = round(torch.cuda.max_memory_allocated() / 2**30, 1)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return peak
