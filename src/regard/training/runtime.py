"""The runtime: one process or many; nothing else in the loop knows how many there are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
import torch.distributed as dist
from torch import nn

from regard.errors import ConfigError, RunError


class Runtime:
    """Where this process runs and which of the processes it is."""

    def __init__(self, device: torch.device, rank: int, world: int) -> None:
        self.device, self.rank, self.world = device, rank, world

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model as it is trained: with more than one process, gradients are averaged over them."""
        if self.world == 1:
            return model
        devices = [self.device] if self.device.type == "cuda" else None
        return nn.parallel.DistributedDataParallel(model, device_ids=devices, gradient_as_bucket_view=True)

    def gathering(self, wrapped: nn.Module, last: bool) -> AbstractContextManager[None]:
        """Inside, gradients stay here until the last micro-batch of an update."""
        if isinstance(wrapped, nn.parallel.DistributedDataParallel) and not last:
            return wrapped.no_sync()
        return nullcontext()

    def total(self, *numbers: float) -> list[float]:
        """The sums over all processes."""
        if self.world == 1:
            return list(numbers)
        device = self.device if self.device.type == "cuda" else torch.device("cpu")
        summed = torch.tensor(numbers, dtype=torch.float64, device=device)
        dist.all_reduce(summed)
        return [float(number) for number in summed.tolist()]

    def any(self, here: bool) -> bool:
        """Whether it is so anywhere."""
        return self.total(float(here))[0] > 0

    def barrier(self) -> None:
        if self.world > 1:
            dist.barrier()


def find_device(name: str) -> torch.device:
    """auto, cpu, cuda or mps."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name not in there:
        raise ConfigError(f"--device ({name}) must be one of auto, cpu, cuda, mps")
    if not there[name]:
        raise ConfigError(f"--device {name} is not on this machine; use --device auto or cpu")
    return torch.device(name)


def use_threads(number: int) -> None:
    """So many CPU threads; 0: as torch has it."""
    if number:
        torch.set_num_threads(number)


@contextmanager
def running(device: str) -> Iterator[Runtime]:
    """The runtime of this process: as torchrun started it, or alone."""
    place = find_device(device)
    if "WORLD_SIZE" not in os.environ or int(os.environ["WORLD_SIZE"]) == 1:
        yield Runtime(place, 0, 1)
        return
    if place.type == "cuda":
        place = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(place)
    try:
        dist.init_process_group("nccl" if place.type == "cuda" else "gloo")
    except (RuntimeError, ValueError) as error:
        raise RunError(f"the processes of this run could not find each other: {error}") from error
    try:
        yield Runtime(place, dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()
