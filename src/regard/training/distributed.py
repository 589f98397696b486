"""The runtime of a process: its device, its rank, and collective operations that do nothing when it is the only one."""

from __future__ import annotations

import os
import secrets
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
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

TIMEOUT = timedelta(minutes=10)  # of a collective operation
POLL_SECONDS = 0.2  # between two reads of the store


class Runtime:
    """The device of this process, its rank and the number of processes."""

    def __init__(self, device: torch.device, rank: int, world_size: int, store: Store | None = None) -> None:
        self.device, self.rank, self.world_size = device, rank, world_size
        self._store, self._barriers = store, 0

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def place(self, model: nn.Module, *, sharded: bool) -> nn.Module:
        """Move the model to the device; with `sharded`, each process keeps a shard of every weight (FSDP2)."""
        if not sharded or self.world_size == 1:
            return model.to(self.device)
        return _shard(model, self.device, self.world_size)

    def wrap(self, model: nn.Module) -> nn.Module:
        """Wrap the model in DistributedDataParallel if there are several processes and its weights are not sharded."""
        if self.world_size == 1 or _sharded_modules(model):  # FSDP2 reduces gradients by itself
            return model
        return nn.parallel.DistributedDataParallel(
            model,
            device_ids=[self.device] if self.device.type == "cuda" else None,
            gradient_as_bucket_view=True,
            find_unused_parameters=getattr(model, "pooler", None) is not None,  # no loss uses BERT's pooler
        )

    @contextmanager
    def unsharded(self, model: nn.Module) -> Iterator[None]:
        """Gather all weights in every process for the duration of the context; they must not be changed there."""
        modules = _sharded_modules(model)
        for module in modules:
            module.set_reshard_after_forward(False, recurse=False)
            module.unshard()
        try:
            yield
        finally:
            for module in modules:
                module.reshard()
                module.set_reshard_after_forward(module is not model, recurse=False)

    def all_reduce(self, *numbers: float) -> list[float]:
        """Sum each number over all processes."""
        if self.world_size == 1:
            return list(numbers)
        device = self.device if self.device.type == "cuda" else torch.device("cpu")
        sums: list[float] = self.all_reduce_tensor(torch.tensor(numbers, dtype=torch.float64, device=device)).tolist()
        return sums

    def all_reduce_tensor(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all processes without waiting for the device."""
        if self.world_size > 1:
            tensor = tensor.double()
            dist.all_reduce(tensor)
        return tensor

    def broadcast(self, number: float) -> float:
        """The main process's number, in all processes."""
        return self.all_reduce(number if self.is_main else 0.0)[0]

    def barrier(self) -> None:
        """Wait for all processes, without a timeout: the main process may train tokenizers or score for hours."""
        if self._store is None:
            return
        self._barriers += 1
        name = f"barrier/{self._barriers}"
        self._store.add(name, 1)
        while self._store.add(name, 0) < self.world_size:
            time.sleep(POLL_SECONDS)


# Sharded weights (FSDP2). Its modules are slow to import.


def _shard(model: nn.Module, device: torch.device, world_size: int) -> nn.Module:
    """Shard the weights: those of a block are gathered when it runs, all others once per forward pass."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    scalars = [name for name, parameter in model.named_parameters() if not parameter.dim()]
    if scalars:
        raise ConfigError(f"train.sharded cannot shard a scalar weight, and this model has {scalars[0]}: leave it out")
    # FSDP2 warns that some methods return views, which must not be changed in place; nothing here does.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module")
    mesh = init_device_mesh(device.type, (world_size,))
    for block in [module for module in model.modules() if isinstance(module, Block)]:
        if block.cross is not None:  # computes the keys of the source before the block runs
            fully_shard(block.cross, mesh=mesh)
            for method in ("queries", "remember"):
                register_fsdp_forward_method(block.cross, method)
        fully_shard(block, mesh=mesh)
        for method in ("encode", "decode"):
            register_fsdp_forward_method(block, method)
    fully_shard(model, mesh=mesh, reshard_after_forward=False)
    return model


def _sharded_modules(model: nn.Module) -> list[Any]:
    """The modules whose weights FSDP2 gathers together; empty if the model is not sharded."""
    return [module for module in model.modules() if hasattr(module, "unshard")]


def to_local(tensor: Tensor) -> Tensor:
    """The shard of this process if the tensor is sharded, otherwise the tensor itself."""
    return cast(Tensor, tensor.to_local()) if hasattr(tensor, "to_local") else tensor


def shard_like(weight: Any, tensor: Tensor) -> Tensor:
    """The shard of this process if the weight is sharded and has the shape of the tensor, otherwise the tensor."""
    if not hasattr(weight, "device_mesh") or weight.shape != tensor.shape:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor, weight.device_mesh, weight.placements, src_data_rank=None)


def full_tensor(tensor: Tensor) -> Tensor:
    """Gather a sharded tensor (all processes must call it); other tensors are returned unchanged."""
    return cast(Tensor, tensor.full_tensor()) if hasattr(tensor, "full_tensor") else tensor


# Processes


@contextmanager
def init_runtime(device: str) -> Iterator[Runtime]:
    """Make the runtime of this process; if torchrun started it, join the process group."""
    place = find_device(device)
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield Runtime(place, 0, 1)
        return
    if place.type == "cuda":
        place = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(place)
    try:
        store, rank, world_size = next(rendezvous("env://", timeout=TIMEOUT))
        store = _store_of_this_start(store, rank, world_size)
        backend = "nccl" if place.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=TIMEOUT)
    except (RuntimeError, ValueError) as error:
        raise RunError(f"the processes of this run could not find each other: {error}") from error
    try:
        yield Runtime(place, rank, world_size, store)
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and "gloo" not in str(error):  # gloo raises a plain RuntimeError
            raise
        raise RunError(
            f"process {rank} of {world_size} lost the connection to another one and stops: see that process's last "
            "message; the same command resumes from the last checkpoint"
        ) from error
    dist.destroy_process_group()  # not after an error: it would wait for the lost process


def _store_of_this_start(store: Store, rank: int, world_size: int) -> Store:
    """The store with a unique prefix for this start of the processes.

    torchrun keeps one store over all restarts, so keys of an earlier start are still in it. Each process announces
    itself with a random name, and the main process answers under that name with the prefix until all have counted
    themselves.
    """
    name = secrets.token_hex(8)
    if rank:
        store.set(f"regard/hello/{rank}", name)
        prefix: str = store.get(name).decode()  # waits for it
        store.add(prefix, 1)
        return PrefixStore(prefix, store)
    deadline = time.monotonic() + TIMEOUT.total_seconds()
    while (started := store.add(name, 0) + 1) < world_size:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{world_size - started} of {world_size} did not start within {TIMEOUT}")
        for key in (f"regard/hello/{other}" for other in range(1, world_size)):
            if store.check([key]):
                store.set(store.get(key).decode(), name)
        time.sleep(POLL_SECONDS / 4)
    return PrefixStore(name, store)
