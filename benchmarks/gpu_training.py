"""Training on a GPU: the whole loop with real sentence lengths, its parts, and `transformers` Marian beside it."""

from __future__ import annotations

import gc
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from statistics import mean
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import numpy as np
import torch

from benchmarks.measure import matrix_flops, report
from benchmarks.training import SHAPES, Marian, configured, no_validation, synthetic
from regard.config import Config
from regard.counting import count, count_flops
from regard.devices import find_device
from regard.models import build
from regard.text.batching import Batch
from regard.text.dataset import Column, Dataset
from regard.text.tokenizer import OWN_SPECIAL_IDS, SPECIALS, Tokenizers
from regard.training import gradients
from regard.training.data import Data
from regard.training.distributed import Runtime
from regard.training.events import Event, UpdateEvent
from regard.training.loop import Training

WANTED_TOKENS = 750_000  # target tokens/s of base
WANTED_FLOPS = 400e12  # of big
WANTED_CEILING = 0.45  # share of the fastest matrix product, of gpt
MAX_WINDOW = 60.0  # seconds
PADDED = {"packed": False, "batch_shapes": 48}  # what `regard train` chooses where it does not pack
PARTS: dict[str, dict[str, Any]] = {
    "all": {},
    "padded batches": PADDED,
    "without graphs": {"graphs": False},
    "without torch.compile": {"compile": "no"},
}


def main(
    shapes: str = "base,big,gpt",
    device: str = "cuda",
    batch_tokens: int = 65536,
    theirs: int = 50000,
    pairs: int = 1_000_000,
    updates: int = 200,
    marian: bool = True,
    parts: str = "",
    **train: Any,
) -> bool:
    """The speed of some shapes as `regard train` runs them; base also against Marian with batches of `theirs` tokens.

    `parts` are names of PARTS, separated by commas, or "every": the first shape with and without them instead. Other
    options are fields of the section train.
    """
    if device == "cuda" and not torch.cuda.is_available():
        print("gpu-training needs a GPU: left out", file=sys.stderr)
        return True
    torch.set_float32_matmul_precision("high")
    run = partial(regard, device=device, pairs=pairs, updates=updates, batch_tokens=batch_tokens)
    if parts:
        shape, names = shapes.split(",")[0], list(PARTS) if parts == "every" else ["all", *parts.split(",")]
        found = {name: run(shape, **train, **PARTS[name]) for name in names}
        first = found["all"]["tokens_per_second"]
        for name, result in found.items():
            report(f"training {shape} on a GPU, {name}", result["tokens_per_second"] / first, device=device, **result)
        return True
    good = []
    peak = matrix_flops(device, torch.bfloat16, size=8192 if device == "cuda" else 1024)
    for shape in shapes.split(","):
        ours = run(shape, **train)
        speeds = {"base": ours["tokens_per_second"] / WANTED_TOKENS, "big": ours["flops"] / WANTED_FLOPS}
        speed = speeds.get(shape, ours["flops"] / peak / WANTED_CEILING)
        name = f"training {shape} on a GPU against the speed asked for"
        good.append(report(name, speed, at_least=1.0, ceiling=ours["flops"] / peak, device=device, **ours))
        model = SHAPES[shape]
        predicted = count(model, source=28, target=28 if model.is_translator else 1024, hardware="h200").time
        assert predicted is not None
        name = f"time of {shape} against the one that regard count predicts for an H200"
        ratio = predicted.tokens_per_second / ours["tokens_per_second"]
        good.append(report(name, ratio, at_least=0.85, at_most=1.15, device=device))
        if marian and shape == "base":
            config = configured(model, batch_tokens=theirs)
            data = synthetic(config, pairs)
            for kind in ("eager", "compiled"):
                result = their_training(config, data, device, updates=min(updates, 100), compiled=kind == "compiled")
                ratio = ours["tokens_per_second"] / result["tokens_per_second"]
                name = f"training on a GPU against transformers Marian, {kind}"
                good.append(report(name, ratio, at_least=2.0, device=device, marian=result))
    return all(good)


def texts(config: Config, tokens: int = 20_000_000, length: int = 500) -> Data:
    """Texts of random ids for a language model, rare ones as rare as words."""
    random, first, number = np.random.default_rng(0), len(SPECIALS), tokens // length
    ids = (first + np.exp(random.random(number * length) * np.log(config.model.vocabulary - first))).astype(np.uint16)
    ids[length - 1 :: length] = OWN_SPECIAL_IDS.end
    columns = {"text": Column.of(ids, np.full(number, length))}
    store = Dataset(columns, np.zeros((number, 1), np.uint64), {"report": {"text": ""}, "tokenizer": ""})
    side = SimpleNamespace(special=OWN_SPECIAL_IDS)
    tokenizers = cast(Tokenizers, SimpleNamespace(source=side, target=side))
    return Data(config, tokenizers, [store], store.take(np.arange(100)), [(number, 1.0)], [""])


def regard(
    shape: str,
    *,
    device: str,
    pairs: int,
    updates: int,
    graphs: bool = True,
    **train: Any,
) -> dict[str, float]:
    """The speed of a shape in the loop of `regard train`."""
    torch.manual_seed(0)
    train = {"updates": 100_000, "precision": "bf16", "packed": shape != "gpt", **train}
    config = configured(SHAPES[shape], **train).over({"text": {"context_length": 1024}})
    data = texts(config) if shape == "gpt" else synthetic(config, pairs)
    warm = 400 if train.get("batch_shapes", 0) > 1 else 30
    with _without_graphs(not graphs):
        return timed_run(config, data, device, warm=warm, updates=updates)


def timed_run(config: Config, data: Data, device: str, *, warm: int, updates: int) -> dict[str, float]:
    """The loop as `regard train` runs it, batches, journal and optimizer included; stopped after the timed updates."""
    marks: list[tuple[float, int, int]] = []
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, suppress(EnoughError):
        training = Training(Path(folder), build(config.model), config, data, Runtime(find_device(device), 0, 1))

        def observe(event: Event) -> None:
            number = training.progress.update
            if not isinstance(event, UpdateEvent) or 1 < number < warm:
                return
            over = number == warm + updates or (number > warm and time.perf_counter() - marks[-1][0] > MAX_WINDOW)
            if number in (1, warm) or over:
                marks.append((clock(device), training.progress.tokens, number))
            if over:
                raise EnoughError

        training.run(no_validation, observe)
    (one, _, _), (start, before, first), (end, after, last) = marks
    rate = (after - before) / (end - start)
    return {
        "tokens_per_second": round(rate),
        "flops": rate * flops_per_token(data),
        "milliseconds": round(1000 * (end - start) / (last - first), 2),
        "first_update_seconds": round(one - started, 1),
        "tokens_per_update": round((after - before) / (last - first)),
        "updates": last - first,
        "gigabytes": memory(device),
    }


def _without_graphs(without: bool) -> Any:
    """A context in which no CUDA graphs are captured."""
    return mock.patch.object(gradients, "MAX_GRAPHS", 0) if without else nullcontext()


def flops_per_token(data: Data) -> float:
    """FLOPs of the model per target token, without padding."""
    model = data.config.model
    if model.family == "gpt":
        return count_flops(model, 0, 1024).training / 1024
    source, target = (side.lengths[:2000].tolist() for side in (data.train[0].source, data.train[0].target))
    flops = [count_flops(model, *lengths).training for lengths in zip(source, target, strict=True)]
    return mean(flops) / mean(target)


class EnoughError(Exception):
    """Enough updates were timed."""


def their_training(config: Config, data: Data, device: str, *, updates: int, compiled: bool) -> dict[str, float]:
    """Marian's updates of batches that are on the device already."""
    gc.collect()
    epoch = data.epoch(0, rank=0, world_size=1)
    numbers = range(min(updates, len(epoch.plan)))
    batches = [epoch.make(number).map_tensors(lambda tensor: tensor.to(device)) for number in numbers]
    model = Marian(config, bf16=True, device=device, compiled=compiled)
    started = clock(device)
    for batch in batches[:: max(1, len(batches) // 20)]:
        model.update(batch)
    warmed = clock(device)
    tokens, seconds = timed(model.update, batches, device)
    return {
        "tokens_per_second": round(tokens / seconds),
        "milliseconds": round(1000 * seconds / len(batches), 2),
        "warm_up_seconds": round(warmed - started, 1),
        "tokens_per_update": round(tokens / len(batches)),
        "updates": len(batches),
        "gigabytes": memory(device),
    }


def timed(update: Callable[[Batch], Any], batches: list[Batch], device: str) -> tuple[int, float]:
    started, tokens = clock(device), 0
    for batch in batches:
        update(batch)
        tokens += batch.target_tokens
    return tokens, clock(device) - started


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
