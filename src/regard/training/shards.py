"""Sharded checkpoints: each process writes a file with its rows of every tensor; any number of processes can read them.

FSDP2 shards tensors along their first dimension: the first rows are in shard-00000.safetensors, the next rows in
shard-00001.safetensors, and so on. A tensor that is not sharded is only in the first file. Names are GROUP/TENSOR.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from safetensors import SafetensorError, safe_open
from torch import Tensor

from regard.errors import FolderError, RunError
from regard.folders import clear_os_errors, fsync
from regard.models.folder import to_local, write_tensors

MAX_PATH_BYTES = 4096

Groups = Mapping[str, Mapping[str, Tensor]]
"""Tensors by name, in groups: model, optimizer, average."""

Allocate = Callable[[str, Tensor], Tensor]
"""Allocates the tensor to read into, given the name of the saved tensor and a meta tensor of its shape."""


def local_tensors(tensors: Groups, *, main: bool) -> dict[str, dict[str, Tensor]]:
    """The tensors that a process writes: its shards and, in the main process, tensors that are not sharded."""
    return {
        group: {name: to_local(tensor) for name, tensor in named.items() if main or hasattr(tensor, "to_local")}
        for group, named in tensors.items()
    }


def write_shard(folder: Path | None, tensors: Groups, group: dist.ProcessGroup) -> None:
    """Write the tensors of this process into the folder of the main process.

    All processes must call it. If one fails, all raise an error.
    """
    rank = dist.get_rank(group)
    path = Path(_broadcast(str(folder), group)) / f"shard-{rank:05d}.safetensors"
    failure: Exception | None = None
    try:
        named = [(f"{kind}/{name}", tensor) for kind, named in tensors.items() for name, tensor in named.items()]
        write_tensors(path, dict(named))
        fsync(path)
    except Exception as error:
        failure = error
    codes = torch.zeros(dist.get_world_size(group), dtype=torch.int64)
    codes[rank] = 0 if failure is None else getattr(failure, "errno", None) or -1
    dist.all_reduce(codes, group=group)
    if failure is not None:
        raise failure
    for number, code in enumerate(codes.tolist()):
        if code:
            raise (
                OSError(code, os.strerror(code)) if code > 0 else RunError(f"process {number} could not save its shard")
            )


def _broadcast(text: str, group: dist.ProcessGroup) -> str:
    """The main process's text, in all processes."""
    data = torch.zeros(MAX_PATH_BYTES, dtype=torch.uint8)
    encoded = text.encode()[:MAX_PATH_BYTES]
    data[: len(encoded)] = torch.tensor(list(encoded), dtype=torch.uint8)
    dist.broadcast(data, group=group, group_src=0)
    return bytes(data.tolist()).rstrip(b"\0").decode()


def read_shards(folder: Path, allocate: Allocate, only: Collection[str] = ()) -> dict[str, dict[str, Tensor]]:
    """Read a checkpoint, sharded or not, into tensors from `allocate`; `only` selects groups."""
    pieces = _pieces(folder)
    tensors: dict[str, dict[str, Tensor]] = {}
    for full_name, (first, *others) in pieces.items():
        group, _, name = full_name.partition("/")
        if not only or group in only:
            shape = (sum(piece.rows for piece in (first, *others)), *first.shape[1:]) if first.shape else ()
            saved = torch.empty(shape, dtype=first.dtype, device="meta")
            tensors.setdefault(group, {})[name] = allocate(name, saved)
    for path in sorted({piece.path for parts in pieces.values() for piece in parts}):
        with _opened(path) as file:
            for group, named in tensors.items():
                for name, tensor in named.items():
                    _read(file, path, pieces[f"{group}/{name}"], tensor)
    return tensors


class Piece(NamedTuple):
    """Some rows of a tensor in a file."""

    path: Path
    key: str
    shape: list[int]
    dtype: torch.dtype

    @property
    def rows(self) -> int:
        return self.shape[0] if self.shape else 1


def _pieces(folder: Path) -> dict[str, list[Piece]]:
    """The pieces of every tensor of a checkpoint, in row order."""
    pieces: dict[str, list[Piece]] = {}
    with clear_os_errors(folder, "read"):
        paths = sorted(folder.glob("*.safetensors"))
    for path in paths:
        prefix = "" if path.name.startswith("shard-") else f"{path.stem}/"
        with _opened(path) as file:
            for key in file.keys():  # noqa: SIM118 - it is not a dictionary
                shape = list(file.get_slice(key).get_shape())
                dtype = (file.get_slice(key)[:0] if shape else file.get_tensor(key)).dtype
                pieces.setdefault(prefix + key, []).append(Piece(path, key, shape, dtype))
    return pieces


def _read(file: Any, path: Path, pieces: list[Piece], tensor: Tensor) -> None:
    """Copy the rows that this process needs from a file into its tensor."""
    local = to_local(tensor).detach()
    first = _first_row(tensor)
    start = 0
    for piece in pieces:
        if piece.path == path and not piece.shape:
            local.copy_(file.get_tensor(piece.key))
        elif piece.path == path:
            begin, end = max(first, start), min(first + len(local), start + piece.rows)
            if begin < end:
                local[begin - first : end - first].copy_(file.get_slice(piece.key)[begin - start : end - start])
        start += piece.rows


def _first_row(tensor: Tensor) -> int:
    """The first row of this process's shard: FSDP2 gives all processes equally many rows, except the last ones."""
    mesh = getattr(tensor, "device_mesh", None)
    if mesh is None:
        return 0
    rows: int = -(-tensor.shape[0] // mesh.size())
    return min(int(mesh.get_local_rank()) * rows, tensor.shape[0])


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with clear_os_errors(path, "read"), safe_open(path, framework="pt") as file:
            yield file
    except SafetensorError as error:
        raise FolderError(f"{path} is damaged or truncated: {error}") from error
