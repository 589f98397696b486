"""The runtime: one process or many; nothing else in the loop knows how many there are."""

from __future__ import annotations

import os
import secrets
import time
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from regard.devices import find_device
from regard.errors import ConfigError, RunError
from regard.models.blocks import Block

PATIENCE = timedelta(minutes=10)  # how long processes wait for one that takes part in no update any more
ASKED_EVERY = 0.2  # seconds, of processes that wait for what only the main one does


class Runtime:
    """Where this process runs and which of the processes it is."""

    def __init__(self, device: torch.device, rank: int, world: int, store: Store | None = None) -> None:
        self.device, self.rank, self.world = device, rank, world
        self._store, self._barriers = store, 0

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    @property
    def first_here(self) -> bool:
        """Whether this is the first of the several processes on its machine."""
        return self.world > 1 and os.environ.get("LOCAL_RANK", "0") == "0"

    def place(self, model: nn.Module, *, sharded: bool) -> nn.Module:
        """The model on its device; `sharded`, each process has its part of every weight."""
        if not sharded or self.world == 1:
            return model.to(self.device)
        return _divided(model, self.device, self.world)

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model as it is trained: with more than one process, gradients are averaged over them."""
        if self.world == 1 or _parts(model):  # weights that are divided bring their gradients together by themselves
            return model
        devices = [self.device] if self.device.type == "cuda" else None
        return nn.parallel.DistributedDataParallel(
            model,
            device_ids=devices,
            gradient_as_bucket_view=True,
            find_unused_parameters=getattr(model, "pooler", None) is not None,  # no objective asks a bert for it
        )

    @contextmanager
    def gathered(self, model: nn.Module) -> Iterator[None]:
        """Inside, every process has all of the weights, so that each can use the model alone; to be read only."""
        parts = _parts(model)
        for part in parts:
            part.set_reshard_after_forward(False, recurse=False)
            part.unshard()
        try:
            yield
        finally:
            for part in parts:
                part.reshard()
                part.set_reshard_after_forward(part is not model, recurse=False)

    def writers(self, *, sharded: bool) -> dist.ProcessGroup | None:
        """The processes that write checkpoints together, apart from those they train with: a thread does it."""
        if not sharded or self.world == 1:
            return None
        return cast(dist.ProcessGroup, dist.new_group(backend="gloo", timeout=PATIENCE))

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

    def summed(self, numbers: Tensor) -> Tensor:
        """The sums over all processes, which the device has and nobody waits for."""
        if self.world > 1:
            numbers = numbers.double()
            dist.all_reduce(numbers)
        return numbers

    def any(self, here: bool) -> bool:
        """Whether it is so anywhere."""
        return self.total(float(here))[0] > 0

    def told(self, number: float) -> float:
        """What the main process says, whatever this one thinks."""
        return self.total(number if self.is_main else 0.0)[0]

    def barrier(self) -> None:
        """Wait for all, however long: what the main process does alone (tokenizers, the last scores) may take hours."""
        if self._store is None:
            return
        self._barriers += 1
        name = f"barrier/{self._barriers}"
        self._store.add(name, 1)
        while self._store.add(name, 0) < self.world:
            time.sleep(ASKED_EVERY)


# Weights that are divided. What is needed for them takes long to import, so only they do.


def _divided(model: nn.Module, device: torch.device, world: int) -> nn.Module:
    """FSDP2: a layer's weights are brought together when it is their turn, the rest of the model's once."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    single = [name for name, parameter in model.named_parameters() if not parameter.dim()]
    if single:
        raise ConfigError(f"train.sharded cannot divide a single number, and this model has {single[0]}: leave it out")
    # Some methods give back views; what it warns of, changing them in place, nothing here does.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module")
    mesh = init_device_mesh(device.type, (world,))
    for block in [module for module in model.modules() if isinstance(module, Block)]:
        if block.cross is not None:  # what it remembers of the source is asked for before the block's turn
            fully_shard(block.cross, mesh=mesh)
            for method in ("ask", "remember"):
                register_fsdp_forward_method(block.cross, method)
        fully_shard(block, mesh=mesh)
        for method in ("read", "write"):
            register_fsdp_forward_method(block, method)
    fully_shard(model, mesh=mesh, reshard_after_forward=False)
    return model


def _parts(model: nn.Module) -> list[Any]:
    """The modules whose weights are brought together one at a time; none where nothing is divided."""
    if not hasattr(model, "unshard"):
        return []
    return [module for module in model.modules() if hasattr(module, "unshard")]


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor that is divided among the processes, which all have to ask for it."""
    gather = getattr(tensor, "full_tensor", None)
    return tensor if gather is None else cast(Tensor, gather())


# Where


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
        store, rank, world = next(rendezvous("env://", timeout=PATIENCE))
        store = _fresh(store, rank, world)
        backend = "nccl" if place.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=PATIENCE)
    except (RuntimeError, ValueError) as error:
        raise RunError(f"the processes of this run could not find each other: {error}") from error
    try:
        yield Runtime(place, rank, world, store)
    except RuntimeError as error:
        if not _is_loss(error):
            raise
        raise RunError(
            f"process {rank} of {world} lost another one and cannot go on alone: look for what that one said last; the "
            "same command goes on from the last checkpoint"
        ) from error
    dist.destroy_process_group()  # not after an error: it would wait for those who are gone


def _fresh(store: Store, rank: int, world: int) -> Store:
    """The store under a name that only this start of the processes has.

    torchrun keeps one store over all restarts, and what those wrote there who are gone must not be taken for news: the
    main process chooses a name and tells it to each other one under a name of its own, until all have heard it.
    """
    name = secrets.token_hex(8)
    if rank:
        store.set(f"regard/hello/{rank}", name)
        given: str = store.get(f"regard/{name}").decode()  # waits for it
        store.set(f"regard/{given}/{rank}", "heard")
        return PrefixStore(given, store)
    others, until = set(range(1, world)), time.monotonic() + PATIENCE.total_seconds()
    while others:
        if time.monotonic() > until:
            raise RuntimeError(f"{len(others)} of {world} did not come within {PATIENCE}")
        for other in [*others]:
            if store.check([f"regard/hello/{other}"]):
                store.set(f"regard/{store.get(f'regard/hello/{other}').decode()}", name)
            if store.check([f"regard/{name}/{other}"]):
                others.remove(other)
        time.sleep(ASKED_EVERY / 4)
    return PrefixStore(name, store)


def _is_loss(error: RuntimeError) -> bool:
    """Whether another process has gone; gloo has no error of its own."""
    return isinstance(error, dist.DistError) or "gloo" in str(error)
