"""The step: what a micro-batch costs and its gradients; as it is, compiled, or recorded once and played again.

A small model on a GPU waits for Python, which tells it of thousands of kernels an update. Recorded as a CUDA graph, all
of them are one word. A recording holds for one shape of batch, so `train.batch_shapes` makes few of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from regard import kernels
from regard.config import Config, TrainConfig
from regard.text.batching import Batch
from regard.training.compiled import compile_parts, compiled_price
from regard.training.distributed import Runtime
from regard.training.losses import Price, objective

WORTH_COMPILING = 5e10  # updates times budget times model.size; below, a compiler takes longer than it saves
RECORDED = 64  # graphs kept: each holds its own copy of the kernels' arguments
SPARE = 64 << 20  # bytes left free for a recording beyond what its pass takes
NOBODY = np.zeros(0, np.int64)

Shape = tuple[tuple[int, ...] | None, ...]


class Recording(NamedTuple):
    """A forward and backward pass over batches of one shape."""

    graph: torch.cuda.CUDAGraph
    batch: Batch
    """Where the graph reads."""


class Step:
    """Adds a micro-batch's gradients to those of the parameters, and its plain loss to `plain`."""

    def __init__(self, wrapped: nn.Module, config: Config, runtime: Runtime) -> None:
        self._wrapped, self._config, self._runtime = wrapped, config.train, runtime
        self._parameters = [parameter for parameter in wrapped.parameters() if parameter.requires_grad]
        self._price: Price | None = None
        if compiles(config, runtime.device):
            compile_parts(wrapped)
            self._price = compiled_price()
        # a bert's loss is on as many tokens as were hidden, which only the device knows: nothing to record
        self._records = (
            bool(config.train.batch_shapes)
            and runtime.device.type == "cuda"
            and runtime.world_size == 1
            and config.model.family != "bert"
        )
        self._recordings: dict[Shape, Recording] = {}
        self._aside = torch.cuda.Stream(runtime.device) if self._records else None  # a new one has memory of its own
        self._scale = torch.zeros((), device=runtime.device)
        self.plain = torch.zeros((), device=runtime.device)

    @property
    def records(self) -> bool:
        """Whether a shape is recorded when it is met first."""
        return self._records

    @property
    def recorded(self) -> int:
        """Shapes that were."""
        return len(self._recordings)

    def begin(self) -> None:
        """No gradients, no loss."""
        self.plain.zero_()
        if self._records and self._parameters[0].grad is not None:  # recordings add to these very tensors
            torch._foreach_zero_([parameter.grad for parameter in self._parameters if parameter.grad is not None])
        else:
            for parameter in self._parameters:
                parameter.grad = None

    def forget(self) -> None:
        """Let go of all recordings, and of the memory they hold."""
        self._recordings.clear()

    def __call__(self, batch: Batch, scale: float, *, last: bool) -> None:
        """The gradients of `scale` times the batch's loss; of several processes they are joined after the `last`."""
        batch = batch._replace(source_tokens=0, target_tokens=0, examples=NOBODY)  # what a compiler need not know
        if not self._records:
            self._run(batch, scale, last=last)
            return
        shape = _shape(batch)
        if shape not in self._recordings and len(self._recordings) < RECORDED:
            self._recordings[shape] = self._record(batch)
        if shape not in self._recordings:
            self._run(batch, scale, last=last)
            return
        graph, place = self._recordings[shape]
        for ours, new in zip(_tensors(place), _tensors(batch), strict=True):
            ours.copy_(new, non_blocking=True)
        self._scale.fill_(scale)
        graph.replay()

    def _run(self, batch: Batch, scale: float | Tensor, *, last: bool) -> None:
        with self._runtime.no_sync(self._wrapped, enabled=not last), precision(self._config, self._runtime.device):
            cost = objective(self._wrapped, batch, self._config, self._price)
        (cost.loss * scale).backward()
        self.plain += cost.plain

    def _record(self, batch: Batch) -> Recording:
        place = batch.each(Tensor.clone)
        with self._undone():
            self._warm(place)
            graph = torch.cuda.CUDAGraph()
            pool = next(iter(self._recordings.values())).graph.pool() if self._recordings else None
            # the thread that feeds batches asks for memory meanwhile: only this thread's mistakes count
            with torch.cuda.graph(graph, pool=pool, stream=self._aside, capture_error_mode="thread_local"):
                self._run(place, self._scale, last=True)
        return Recording(graph, place)

    def _warm(self, batch: Batch) -> None:
        """Libraries choose their kernels and take their memory before a recording.

        One that finds no memory halfway leaves torch's memory locked: what it will take is seen here, and asked for
        before it begins.
        """
        device = self._runtime.device
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved(device)
        aside, now = self._aside, torch.cuda.current_stream()
        assert aside is not None
        aside.wait_stream(now)
        try:
            with torch.cuda.stream(aside):
                for _ in range(1 if self._recordings else 2):  # the first of all takes what later ones find
                    self._run(batch, self._scale, last=True)
        finally:
            now.wait_stream(aside)
        taken = torch.cuda.memory_reserved(device) - before
        torch.cuda.empty_cache()
        if torch.cuda.mem_get_info(device)[0] < taken + SPARE:
            raise torch.cuda.OutOfMemoryError(f"a recording of {taken:,} bytes finds no room")

    @contextmanager
    def _undone(self) -> Iterator[None]:
        """What happens inside leaves gradients, loss, randomness and the stream as they were."""
        for parameter in self._parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        before = [*(gradient.clone() for gradient in gradients), self.plain.clone()]
        random, stream = torch.cuda.get_rng_state(self._runtime.device), torch.cuda.current_stream()
        try:
            yield
        finally:
            torch.cuda.set_stream(stream)  # a recording that found no memory stays on its own
            torch.cuda.set_rng_state(random, self._runtime.device)
            torch._foreach_copy_([*gradients, self.plain], before)


def compiles(config: Config, device: torch.device) -> bool:
    """Whether torch.compile is used: where it pays, which is on a GPU, in a long run, without a loop over time."""
    asked, settings = config.train.compile, config.train
    if asked != "auto":
        return asked == "yes"
    if settings.sharded:
        return False  # the two together are untried
    able = device.type == "cuda" and kernels.able()
    long = settings.updates * settings.batch_tokens * config.model.size >= WORTH_COMPILING
    return able and long and config.model.family != "rnn"


def precision(config: TrainConfig, device: torch.device) -> torch.autocast:
    """Inside, products are in bf16 where the config or the device says so; the weights stay as they are."""
    there = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    bf16 = config.precision == "bf16" or (config.precision == "auto" and there)
    return torch.autocast(device.type, torch.bfloat16, enabled=bf16)


def _tensors(batch: Batch) -> list[Tensor]:
    return [value for value in batch if isinstance(value, Tensor)]


def _shape(batch: Batch) -> Shape:
    """What has to be the same for a recording to be played again."""
    return tuple(tuple(value.shape) if isinstance(value, Tensor) else None for value in batch)
