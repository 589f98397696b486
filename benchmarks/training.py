"""Training on a CPU: the whole loop against `transformers` Marian and the bare update, its memory and its saves."""

from __future__ import annotations

import dataclasses
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.measure import matrix_flops, report
from benchmarks.models import marian
from regard.cli.live import viewing
from regard.config import Config, ModelConfig
from regard.counting import count_flops
from regard.devices import use_threads
from regard.models import build
from regard.models.folder import named_tensors
from regard.text.batching import IGNORE_INDEX, Batch
from regard.text.dataset import Column, Dataset
from regard.text.tokenizer import OWN_SPECIAL_IDS, SPECIALS, Tokenizers
from regard.training import loop
from regard.training.checkpoint import CheckpointWriter
from regard.training.data import Data
from regard.training.distributed import Runtime
from regard.training.events import Event, UpdateEvent
from regard.training.loop import Training
from regard.training.losses import cross_entropy
from regard.training.optimizer import make_optimizer
from regard.training.validation import Validation

SHAPES = {
    "tiny": ModelConfig(size=32, heads=2, feed_forward_size=64, encoder_layers=1, decoder_layers=1, vocabulary=512),
    "small": ModelConfig(
        size=256, heads=4, feed_forward_size=1024, encoder_layers=3, decoder_layers=3, vocabulary=16384
    ),
    "base": ModelConfig(vocabulary=32768),
    "big": ModelConfig(vocabulary=32768, size=1024, heads=16, feed_forward_size=4096, dropout=0.3),
    "gpt": ModelConfig(
        family="gpt", vocabulary=50304, size=768, heads=12, feed_forward_size=3072, decoder_layers=12,
        max_positions=1024, positions="learned", activation="gelu_tanh", norm_placement="pre", scale_embeddings=False,
    ),
}  # fmt: skip
BUDGET = 1536  # positions of source and target in an update
WARM = 2  # updates before anything is timed
NEVER = 1_000_000_000


def main(shape: str = "small", updates: int = 24, threads: int = 0) -> bool:
    """Everything, on one shape: tiny, small or base."""
    torch.manual_seed(0)
    use_threads(threads)
    return all(
        [
            against_marian(shape, updates),
            against_marian_in_bf16(shape, updates),
            memory(shape, "fp32"),
            memory(shape, "bf16"),
            overhead(shape, updates),
            saving(shape),
        ]
    )


# What is trained: ids without meaning, of the lengths sentences have


def synthetic(config: Config, pairs: int, seed: int = 0) -> Data:
    """Pairs of random ids, rare ones as rare as words; log-normal lengths of 28 target tokens in the mean."""
    random = np.random.default_rng(seed)
    target = np.clip(np.rint(random.lognormal(np.log(28) - 0.18, 0.6, pairs)), 4, 100)
    source = np.clip(np.rint(target * random.lognormal(0, 0.15, pairs)), 4, 100)
    columns = {}
    for name, lengths in (("source", source.astype(np.int32)), ("target", target.astype(np.int32))):
        first, ends = len(SPECIALS), np.cumsum(lengths, dtype=np.int64)
        words = config.model.vocabulary - first
        ids = (first + np.exp(random.random(ends[-1]) * np.log(words))).astype(np.uint16)
        ids[ends - 1] = 2  # </s>
        columns[name] = Column.of(ids, lengths)
    store = Dataset(columns, np.zeros((pairs, 2), np.uint64), {"report": {"text": ""}, "tokenizer": ""})
    few = store.take(np.arange(min(pairs, 100)))
    side = SimpleNamespace(special=OWN_SPECIAL_IDS)
    tokenizers = cast(Tokenizers, SimpleNamespace(source=side, target=side))
    return Data(config, tokenizers, [store], few, [(pairs, 1.0)], [""])


def configured(model: ModelConfig, **train: Any) -> Config:
    """A run of this shape that neither validates nor saves before its end."""
    train = {"warmup": 100, "validate_every": NEVER, "save_every": NEVER, "metric": "loss", **train}
    return Config.read({"model": dataclasses.asdict(model), "train": train})


def update_flops(data: Data) -> float:
    """Mean FLOPs of an update's forward and backward pass, padding included."""
    plan = data.epoch(0, rank=0, world_size=1).plan
    shapes = [plan.shape(number) for number in range(len(plan))]
    model = data.config.model
    flops = [shape.rows * count_flops(model, shape.source, shape.target).training for shape in shapes]
    return statistics.mean(flops)


def no_validation(model: nn.Module) -> Validation:
    return Validation(0.0, 0.0)


class Marian:
    """`transformers`' Marian with the same optimizer, clipping and label smoothing, as its users write it."""

    def __init__(self, config: Config, *, bf16: bool, device: str = "cpu", compiled: bool = False) -> None:
        self.model = marian(config.model).train().to(device)
        self.forward = torch.compile(self.model, dynamic=True) if compiled else self.model
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=config.train.learning_rate,
            betas=(0.9, config.train.beta2),
            eps=1e-9,
            fused=True,
        )
        self.settings, self.bf16, self.device = config.train, bf16, device

    def update(self, batch: Batch) -> torch.Tensor:
        """Forward, backward, clip, step; the summed loss."""
        self.optimizer.zero_grad(set_to_none=True)
        assert batch.source is not None
        mask = torch.ones_like(batch.source) if batch.mask is None else batch.mask.long()
        with torch.autocast(self.device, torch.bfloat16, enabled=self.bf16):
            logits = self.forward(batch.source, attention_mask=mask, decoder_input_ids=batch.target_in).logits
            loss = F.cross_entropy(
                logits.flatten(0, 1),
                batch.target_out.flatten(),
                ignore_index=IGNORE_INDEX,
                label_smoothing=self.settings.label_smoothing,
                reduction="sum",
            )
        (loss / batch.target_tokens).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.max_grad_norm)
        self.optimizer.step()
        return loss.detach()


class Bare:
    """The update and nothing around it."""

    def __init__(self, config: Config) -> None:
        self.model, self.settings = build(config.model).train(), config.train
        self.optimizer = make_optimizer(self.model, config.train)

    def update(self, batch: Batch) -> None:
        """Forward, backward, clip, step."""
        self.optimizer.zero_grad(set_to_none=True)
        loss, _ = cross_entropy(self.model(batch), batch.target_out, self.settings.label_smoothing)
        (loss / batch.target_tokens).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.max_grad_norm)
        self.optimizer.step()


# Speed


class Rotation(NamedTuple):
    """One update: by the clock, and by the work of all threads."""

    wall: float
    work: float

    @classmethod
    def now(cls) -> Rotation:
        return cls(time.perf_counter(), time.process_time())

    def since(self, begun: Rotation) -> Rotation:
        return Rotation(self.wall - begun.wall, self.work - begun.work)


def in_the_loop(config: Config, others: dict[str, Callable[[Batch], Any]]) -> dict[str, list[Rotation]]:
    """The time of each update of a run, its loop included, and of others on the same batch between its updates."""
    data = synthetic(config, pairs=config.train.updates * config.train.batch_tokens // 40)
    epoch = data.epoch(0, rank=0, world_size=1)
    assert len(epoch.plan) >= config.train.updates
    turns: dict[str, list[Rotation]] = {name: [] for name in ("regard", *others)}
    with tempfile.TemporaryDirectory() as folder, viewing(quiet=True) as view:
        training = Training(Path(folder), build(config.model), config, data, Runtime(torch.device("cpu"), 0, 1))
        begun = Rotation.now()

        def observe(event: Event) -> None:
            nonlocal begun
            view.observe(event)
            if not isinstance(event, UpdateEvent):
                return
            turns["regard"].append(Rotation.now().since(begun))
            batch = epoch.make(training.progress.update - 1)
            for name, update in others.items():
                begun = Rotation.now()
                update(batch)
                turns[name].append(Rotation.now().since(begun))
            begun = Rotation.now()

        training.run(no_validation, observe)
    return {name: found[WARM:] for name, found in turns.items()}


def times(slower: list[Rotation], faster: list[Rotation]) -> dict[str, float]:
    """How many times as long one takes as the other: the median over the same batches."""
    return {
        kind: statistics.median(
            getattr(one, kind) / getattr(other, kind) for one, other in zip(slower, faster, strict=True)
        )
        for kind in Rotation._fields
    }


def told(turns: dict[str, list[Rotation]]) -> dict[str, float]:
    return {name: round(statistics.median(turn.wall for turn in found), 4) for name, found in turns.items()}


def against_marian(shape: str, updates: int) -> bool:
    """fp32 against fp32."""
    config = configured(SHAPES[shape], updates=WARM + updates, batch_tokens=BUDGET, precision="fp32")
    turns = in_the_loop(config, {"marian": Marian(config, bf16=False).update})
    found = times(turns["marian"], turns["regard"])
    flops = update_flops(synthetic(config, pairs=config.train.updates * BUDGET // 40))
    reached = flops / statistics.mean(turn.wall for turn in turns["regard"])
    return report(
        f"training in fp32 against transformers Marian in fp32, {shape}",
        found["wall"],
        at_least=1.0,
        ceiling=reached / matrix_flops("cpu", torch.float32),
        by_work=found["work"],
        seconds=told(turns),
    )


def against_marian_in_bf16(shape: str, updates: int) -> bool:
    """bf16 against what people run on a CPU, and against autocast."""
    config = configured(SHAPES[shape], updates=WARM + updates, batch_tokens=BUDGET, precision="bf16")
    others = {"fp32": Marian(config, bf16=False).update, "bf16": Marian(config, bf16=True).update}
    turns = in_the_loop(config, others)
    good = []
    for name, bar in (("fp32", 1.4), ("bf16", 1.0)):
        found = times(turns[name], turns["regard"])
        good.append(
            report(
                f"training in bf16 against transformers Marian in {name}, {shape}",
                found["wall"],
                at_least=bar,
                by_work=found["work"],
                seconds=told(turns),
            )
        )
    return all(good)


def overhead(shape: str, updates: int) -> bool:
    """Journal, feed, view and checks against the bare update on the same batches."""
    config = configured(SHAPES[shape], updates=WARM + 2 * updates, batch_tokens=BUDGET, precision="fp32")
    turns = in_the_loop(config, {"bare": Bare(config).update})
    found = times(turns["regard"], turns["bare"])
    return report(
        f"the loop against the bare update, {shape}",
        found["wall"],
        at_most=1.05,
        by_work=found["work"],
        seconds=told(turns),
    )


# Saves


def saving(shape: str, rounds: int = 15, device: str = "cpu") -> bool:
    """How long training stops for a save and then for its copy, against a copy of the weights between the updates."""
    every = 4
    config = configured(SHAPES[shape], updates=every * rounds, batch_tokens=BUDGET, save_every=every)
    data = synthetic(config, pairs=config.train.updates * BUDGET // 40)
    stops: list[float] = []
    copies: list[float] = []
    updates: list[float] = []
    savers: list[CheckpointWriter] = []

    def done() -> None:
        if device != "cpu":
            torch.cuda.current_stream().synchronize()

    class Timed(CheckpointWriter):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            savers.append(self)

        def save(self, update: int, *args: Any, **kwargs: Any) -> None:
            begun = time.perf_counter()
            super().save(update, *args, **kwargs)
            if update:  # the first checkpoint has no optimizer state
                stops.append(time.perf_counter() - begun)
            done()

        def wait_for_copy(self) -> None:
            begun = time.perf_counter()
            super().wait_for_copy()
            if stops:
                stops[-1] += time.perf_counter() - begun

    def observe(event: Event) -> None:
        if isinstance(event, UpdateEvent):
            updates.append(event.seconds)
            done()
            if event.update % every == every - 1:
                copies.append(copying())
            if event.update % every == 0:
                savers[0].wait()

    def copying() -> float:
        begun = time.perf_counter()
        torch._foreach_copy_(places, weights, non_blocking=device != "cpu")
        done()
        return time.perf_counter() - begun

    runtime = Runtime(torch.device(device), 0, 1)
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(loop, "CheckpointWriter", Timed):
        training = Training(Path(folder), build(config.model), config, data, runtime)
        weights = list(named_tensors(training.model).values())
        places = [torch.empty(weight.shape, pin_memory=weight.is_cuda) for weight in weights]
        training.run(no_validation, observe)
    size = sum(tensor.nbytes for named in training.state().values() for tensor in named.values())
    before, beside = updates[every - 1 :: every], updates[every::every]
    return report(
        f"the stop for a save against a copy of the weights, {shape}",
        min(stops) / min(copies),
        at_most=1.0,
        device=device,
        megabytes=size // 2**20,
        stop=milliseconds(first=stops[0], least=min(stops), median=statistics.median(stops), most=max(stops[1:])),
        copy=milliseconds(least=min(copies), median=statistics.median(copies), most=max(copies)),
        update=milliseconds(before_a_save=statistics.median(before), beside_it=statistics.median(beside)),
    )


def milliseconds(**seconds: float) -> dict[str, float]:
    return {name: round(1000 * value, 2) for name, value in seconds.items()}


# Memory


def memory(shape: str, precision: str) -> bool:
    """The peak of resident memory, each in a process of its own."""
    ours, theirs = (child(name, shape, precision) for name in ("regard", "marian"))
    return report(
        f"resident memory in {precision} against transformers Marian, {shape}",
        ours["peak"] / theirs["peak"],
        at_most=1.0,
        megabytes={"regard": ours["peak"], "marian": theirs["peak"]},
        before_training={"regard": ours["before"], "marian": theirs["before"]},
    )


def child(name: str, shape: str, precision: str) -> dict[str, int]:
    command = [sys.executable, "-m", "benchmarks.training", name, shape, precision]
    return dict(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def resident(name: str, shape: str, precision: str, updates: int = 6) -> dict[str, int]:
    """A few updates, and of ours the save at the end; MB at the beginning and at the most."""
    config = configured(SHAPES[shape], updates=updates, batch_tokens=BUDGET, precision=precision)
    data = synthetic(config, pairs=1000)
    if name == "marian":
        model = Marian(config, bf16=precision == "bf16")
        before = megabytes("VmRSS")
        epoch = data.epoch(0, rank=0, world_size=1)
        for number in range(updates):
            model.update(epoch.make(number))
        return {"before": before, "peak": megabytes("VmHWM")}
    with tempfile.TemporaryDirectory() as folder:
        training = Training(Path(folder), build(config.model), config, data, Runtime(torch.device("cpu"), 0, 1))
        before = megabytes("VmRSS")
        training.run(no_validation, lambda event: None)
    return {"before": before, "peak": megabytes("VmHWM")}


def megabytes(kind: str) -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    return int(status.partition(f"{kind}:")[2].split()[0]) // 1024


if __name__ == "__main__":
    print(json.dumps(resident(*sys.argv[1:])))
