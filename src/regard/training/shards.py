"""Shards: a checkpoint to which each process adds a file with its part of the tensors; any number of them read it.

shard-00000.safetensors  shard-00001.safetensors  shards.json

torch's distributed checkpoint plans who writes and who reads what. Its own files are pickled; these are safetensors and
a table of what lies where. A checkpoint of whole files (model.safetensors, ...) is read in the same way.
"""

from __future__ import annotations

import dataclasses
import json
import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.futures import Future

from regard.errors import FolderError, RegardError, RunError
from regard.folders import SHARDS, clear_os_errors, fsync

Write = Callable[[Path, Mapping[str, Tensor]], None]
"""Tensors into a file."""


def save(
    folder: Path | None, tensors: Mapping[str, Mapping[str, Tensor]], *, group: dist.ProcessGroup, write: Write
) -> None:
    """Add each process's part to `folder`, which the first of the group has and tells the others; all must call this.

    When it comes back at the first process, all have written. What failed in any of them is raised in all.
    """
    try:
        # The plans travel between the processes as pickles; none is ever written.
        state_dict_saver.save(_flat(tensors), storage_writer=Writer(folder, write), process_group=group)
    except CheckpointException as error:
        raise _explained(error) from error


def copied(
    tensors: Mapping[str, Mapping[str, Tensor]], copies: Mapping[tuple[str, str], Tensor], group: dist.ProcessGroup
) -> dict[str, dict[str, Tensor]]:
    """Copies of this process's parts of tensors, as those parts of the whole."""
    mesh = DeviceMesh.from_group(group, "cpu")

    def copied(tensor: Tensor, copy: Tensor) -> Tensor:
        if not isinstance(tensor, DTensor):
            return copy
        shape, stride = tensor.shape, tensor.stride()
        return DTensor.from_local(copy, mesh, tensor.placements, run_check=False, shape=shape, stride=stride)

    return {
        group: {name: copied(tensor, copies[group, name]) for name, tensor in named.items()}
        for group, named in tensors.items()
    }


def describe(folder: Path) -> dict[str, dict[str, Tensor]]:
    """Shapes and types of the tensors of a checkpoint, none of them read."""
    groups: dict[str, dict[str, Tensor]] = {}
    for flat, found in _index(folder).items():
        group, _, name = flat.partition("/")
        groups.setdefault(group, {})[name] = torch.empty(found["shape"], dtype=_dtype(found, folder), device="meta")
    return groups


def load(folder: Path, tensors: Mapping[str, Mapping[str, Tensor]]) -> None:
    """Fill these tensors, or this process's part of them, from a checkpoint; each process reads what it needs."""
    try:
        with warnings.catch_warnings(action="ignore"):  # that no process is asked what another one reads is meant
            state_dict_loader.load(_flat(tensors), storage_reader=Reader(folder), no_dist=True)
    except CheckpointException as error:
        raise _explained(error) from error
    except SafetensorError as error:
        raise FolderError(f"{folder} is damaged or cut short: {error}") from error


def _flat(tensors: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Any]:
    return {f"{group}/{name}": tensor for group, named in tensors.items() for name, tensor in named.items()}


def _explained(failure: CheckpointException) -> RegardError | OSError:
    """What the first of the processes has to say that failed; an OSError is for who knows what was being written."""
    rank, (error, _) = min(failure.failures.items())
    if isinstance(error, SafetensorError):
        return FolderError(f"a checkpoint is damaged or cut short: {error}")
    if isinstance(error, RegardError | OSError):
        return error
    return RunError(f"a checkpoint failed at process {rank}: {error}")


class Writer(StorageWriter):
    """One file of each process, and a table that the first one writes when all have written."""

    def __init__(self, folder: Path | None, write: Write) -> None:
        self._folder, self._write = folder, write

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        pass

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        assert is_coordinator == (self._folder is not None)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        paths = [f"{self._folder}/shard-{rank:05d}.safetensors" for rank in range(len(plans))]
        return [dataclasses.replace(plan, storage_data=path) for plan, path in zip(plans, paths, strict=True)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        path = Path(plan.storage_data)
        tensors = {item.index.fqn: planner.resolve_data(item) for item in plan.items}
        assert len(tensors) == len(plan.items)  # a process has one part of each tensor
        self._write(path, tensors)  # type: ignore[arg-type]
        fsync(path)
        done: Future[list[WriteResult]] = Future()
        done.set_result([WriteResult(item.index, 0, path.name) for item in plan.items])
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        assert self._folder is not None
        files = {result.index: result.storage_data for written in results for result in written}
        table = {
            name: {
                "dtype": str(stored.properties.dtype).removeprefix("torch."),
                "shape": list(stored.size),
                "parts": [
                    {
                        "file": files[MetadataIndex(name, part.offsets)],
                        "at": list(part.offsets),
                        "shape": list(part.sizes),
                    }
                    for part in stored.chunks
                ],
            }
            for name, stored in sorted(metadata.state_dict_metadata.items())
            if isinstance(stored, TensorStorageMetadata)
        }
        (self._folder / SHARDS).write_text(json.dumps(table) + "\n", encoding="utf-8")

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return False


class Reader(StorageReader):
    """What lies where in a folder of shards or of whole files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._places: dict[MetadataIndex, tuple[str, str]] = {}

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        pass

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        stored: dict[str, Any] = {}
        for name, found in _index(self._folder).items():
            chunks = []
            for part in found["parts"]:
                offsets = torch.Size(part["at"])
                chunks.append(ChunkStorageMetadata(offsets, torch.Size(part["shape"])))
                self._places[MetadataIndex(name, offsets)] = (part["file"], part.get("key", name))
            properties = TensorProperties(dtype=_dtype(found, self._folder))
            stored[name] = TensorStorageMetadata(properties, torch.Size(found["shape"]), chunks)
        return Metadata(stored)

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        pass

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        files: dict[str, list[Any]] = {}
        for item in plan.items:
            files.setdefault(self._places[item.storage_index][0], []).append(item)
        for name, items in files.items():
            with clear_os_errors(self._folder / name, "read"), safe_open(self._folder / name, framework="pt") as file:
                for item in items:
                    key = self._places[item.storage_index][1]
                    region = tuple(
                        slice(at, at + size) for at, size in zip(item.storage_offsets, item.lengths, strict=True)
                    )
                    place = planner.resolve_tensor(item).detach()
                    place.copy_(file.get_slice(key)[region] if region else file.get_tensor(key))
                    planner.commit_tensor(item, place)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return False


# What lies where


def _index(folder: Path) -> dict[str, Any]:
    """Of every tensor its type, its shape and in which files its parts are."""
    path = folder / SHARDS
    if not path.exists():
        return _whole_files(folder)
    with clear_os_errors(path, "read"):
        text = path.read_bytes()
    try:
        table = json.loads(text)
        sound = all(
            Path(part["file"]).name == part["file"] and len(part["at"]) == len(part["shape"]) == len(found["shape"])
            for found in table.values()
            for part in found["parts"]
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        sound = False
    if not sound:
        raise FolderError(f"{path} is damaged: it is not a table of tensors")
    return dict(table)


def _whole_files(folder: Path) -> dict[str, Any]:
    table = {}
    with clear_os_errors(folder, "read"):
        paths = sorted(folder.glob("*.safetensors"))
    for path in paths:
        try:
            with clear_os_errors(path, "read"), safe_open(path, framework="pt") as file:
                for key in file.keys():  # noqa: SIM118 - it is no dictionary
                    shape = list(file.get_slice(key).get_shape())
                    part = {"file": path.name, "key": key, "at": [0] * len(shape), "shape": shape}
                    dtype = DTYPES.get(file.get_slice(key).get_dtype(), "")
                    table[f"{path.stem}/{key}"] = {"dtype": dtype, "shape": shape, "parts": [part]}
        except SafetensorError as error:
            raise FolderError(f"{path} is damaged or cut short: {error}") from error
    return table


DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32"}


def _dtype(found: Mapping[str, Any], folder: Path) -> torch.dtype:
    if found["dtype"] not in DTYPES.values():
        raise FolderError(f"{folder} is damaged: a checkpoint has no tensors of {found['dtype'] or 'such a type'}")
    dtype: torch.dtype = getattr(torch, found["dtype"])
    return dtype
