"""Weights: read them from safetensors and PyTorch files tensor by tensor, convert them, and write safetensors files.

No more than one tensor is in memory at a time; files are memory-mapped.
"""

from __future__ import annotations

import functools
import json
import math
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from regard.config import ModelConfig
from regard.errors import FolderError
from regard.folders import clear_os_errors, read_json
from regard.interop.names import POSITION_OFFSET, Row

DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
}
"""The types that weights may have, and their names in safetensors files."""
OLD_NAMES = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}  # of the first bert files


# Reading


def read_weights(folder: Path) -> dict[str, Tensor]:
    """The tensors of a Hugging Face folder, memory-mapped."""
    for name in ("model.safetensors", "pytorch_model.bin"):
        index = folder / f"{name}.index.json"
        if index.is_file():
            shards = _shards(index)
            tensors: dict[str, Tensor] = {}
            for shard in shards:
                tensors |= _read_file(folder / shard)
            return tensors
        if (folder / name).is_file():
            return _read_file(folder / name)
    raise FolderError(f"{folder} has no weights: no model.safetensors and no pytorch_model.bin")


def _shards(index: Path) -> list[str]:
    """The files that an index names; an error if one is not in its folder."""
    values = read_json(index)
    table = values.get("weight_map") if isinstance(values, dict) else None
    if not isinstance(table, dict) or not all(isinstance(name, str) for name in table.values()):
        raise FolderError(f"{index} is damaged: it has no weight_map")
    shards = sorted(set(table.values()))
    for shard in shards:
        if Path(shard).name != shard:
            raise FolderError(f"{index} names {shard!r}, which is not a file of its folder")
        with clear_os_errors(index, "read"):
            if not (index.parent / shard).is_file():
                raise FolderError(f"{index} names {shard!r}, which is missing")
    return shards


def _read_file(path: Path) -> dict[str, Tensor]:
    with clear_os_errors(path, "read"):
        if path.suffix == ".bin":
            return _read_bin(path)
        try:
            with safe_open(path, framework="pt") as file:
                return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except SafetensorError as error:
            raise FolderError(f"{path} is damaged or truncated: {error}") from error


def _read_bin(path: Path) -> dict[str, Tensor]:
    """The tensors of a file written by torch.save; nothing but tensors is unpickled."""
    with open(path, "rb") as file:
        is_zip = file.read(2) == b"PK"  # files of old versions of torch cannot be memory-mapped
    try:
        values = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
    except Exception as error:  # of several unrelated classes
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise FolderError(f"{path} is damaged, or holds more than weights: {reason}") from error
    if not isinstance(values, dict) or not all(isinstance(value, Tensor) for value in values.values()):
        raise FolderError(f"{path} holds something other than a dict of tensors")
    return values


# Converting


class Converted(NamedTuple):
    """A tensor that is made only when it is written."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    make: Callable[[], Tensor]


class Source:
    """The tensors of a Hugging Face folder, found by the names in `names.py` even if the file uses older names."""

    def __init__(self, tensors: Mapping[str, Tensor], prefix: str, where: Path) -> None:
        self.tensors, self.prefix, self.where = tensors, prefix, where
        self.used: set[str] = set()

    def find(self, name: str) -> Tensor | None:
        """The tensor with a name, or None."""
        for candidate in (name, name.removeprefix(self.prefix)):
            for new, old in ((candidate, candidate), *OLD_NAMES.items()):
                known = candidate.replace(new, old)
                if known in self.tensors:
                    self.used.add(known)
                    return self.tensors[known]
        return None

    def parts(self, row: Row) -> list[Tensor]:
        """The tensors that a row names in transformers; copies of a tied tensor must be equal to it."""
        parts = [self.find(name) for name in row.theirs]
        copies = {name: tensor for name in row.copies if (tensor := self.find(name)) is not None}
        if parts == [None] and copies:
            parts = [next(iter(copies.values()))]
        missing = [name for name, part in zip(row.theirs, parts, strict=True) if part is None]
        if missing:
            raise FolderError(f"{self.where} has no tensor {missing[0]}, which its config.json implies")
        found = [part for part in parts if part is not None]
        for name, copy in copies.items():
            if copy.shape != found[0].shape or not torch.equal(copy, found[0]):
                raise FolderError(f"{self.where}: {row.theirs[0]} and {name} differ, and config.json ties them")
        return found


def to_ours(
    rows: Iterable[Row], source: Source, shapes: Mapping[str, tuple[int, ...]], config: ModelConfig
) -> dict[str, Converted]:
    """Convert tensors of transformers to ours, all in the widest of their types; `shapes` are the shapes of ours."""
    found: dict[str, tuple[Row, list[Tensor]]] = {}
    for row in rows:
        found[row.ours] = row, (parts := source.parts(row))
        expected = _their_shapes(row, shapes[row.ours], config)
        for name, part, shape in zip(row.theirs, parts, expected, strict=True):
            if part.dtype not in DTYPES:
                raise FolderError(f"{source.where}: {name} holds {_name(part.dtype)}, and weights are floating-point")
            if part.shape != shape:
                raise FolderError(
                    f"{source.where}: {name} has the shape {tuple(part.shape)}, and config.json implies {shape}"
                )
    dtypes = {part.dtype for _, parts in found.values() for part in parts}
    dtype = functools.reduce(torch.promote_types, dtypes)
    return {
        name: Converted(dtype, shapes[name], lambda row=row, parts=parts: _join(row, parts))  # type: ignore[misc]
        for name, (row, parts) in found.items()
    }


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _their_shapes(row: Row, shape: tuple[int, ...], config: ModelConfig) -> list[tuple[int, ...]]:
    """The shapes of the tensors in transformers, from the shape of ours."""
    if row.form == "row":
        return [(1, *shape)]
    if row.form == "transposed":
        return [shape[::-1]]
    if row.form == "offset":
        return [(shape[0] + POSITION_OFFSET, *shape[1:])]
    return [(size, *shape[1:]) for size in _sizes(row, shape[0], config)]


def _join(row: Row, parts: list[Tensor]) -> Tensor:
    if row.form == "row":
        return parts[0][0]
    if row.form == "transposed":
        return parts[0].T
    if row.form == "offset":
        return parts[0][POSITION_OFFSET:]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def to_theirs(rows: Iterable[Row], tensors: Mapping[str, Tensor], config: ModelConfig) -> Iterator[tuple[str, Tensor]]:
    """Convert our tensors to those of transformers; a tied tensor gets only its first name."""
    for row in rows:
        tensor = tensors[row.ours]
        if row.form == "row":
            yield row.theirs[0], tensor[None]
        elif row.form == "transposed":
            yield row.theirs[0], tensor.T
        elif row.form == "offset":
            yield row.theirs[0], torch.cat([tensor.new_zeros(POSITION_OFFSET, *tensor.shape[1:]), tensor])
        else:
            yield from zip(row.theirs, tensor.split(_sizes(row, len(tensor), config)), strict=True)


def _sizes(row: Row, length: int, config: ModelConfig) -> list[int]:
    """How many rows of our tensor belong to each tensor of transformers."""
    if len(row.theirs) == 3:  # queries, keys and values
        return [width * config.head_size for width in (config.heads, config.kv_heads, config.kv_heads)]
    return [length // len(row.theirs)] * len(row.theirs)


# Writing


def write_safetensors(path: Path, tensors: Mapping[str, Converted]) -> None:
    """Write tensors one by one; each is made just before it is written."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}  # transformers requires it
    place = 0
    for name, tensor in tensors.items():
        size = math.prod(tensor.shape) * tensor.dtype.itemsize
        header[name] = {
            "dtype": DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [place, place + size],
        }
        place += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)))
        file.write(text)
        for converted in tensors.values():
            made = converted.make().to(converted.dtype).contiguous()
            file.write(made.reshape(-1).view(torch.uint8).numpy().data)
