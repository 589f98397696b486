"""Datasets: the memory-mapped token ids of a prepared corpus, and selections of its examples.

A prepared corpus is a folder of plain arrays:

source.ids.bin      the ids of all examples one after the other; every text ends with </s>
source.offsets.bin  where each example begins among them, and where the last one ends
target.ids.bin      ... and so on for every column; source.1.ids.bin is the first variant that BPE dropout made
digests.bin         (examples, sides) hashes of the texts, ignoring spaces and case
corpus.json         columns, types and sizes, the report of the cleaning

N examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import FolderError
from regard.folders import clear_os_errors, read_json
from regard.text.cleaning import Digests, pair_digests
from regard.text.ordering import Indices, splitmix64
from regard.text.tokenizer import spans

FORMAT = 4  # part of the folder's name: raise it when the files change, so that corpora are prepared again
RECORD_FILE = "corpus.json"
DIGESTS_FILE = "digests.bin"
MAX_HELD_OUT_GROUP = 8  # examples that share sentences and are held out together

Ids = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Column:
    """One side of a corpus: the ids of every example."""

    arrays: tuple[Ids, ...]  # the ids of each prepared corpus
    starts: Indices  # (N,) where it begins in the concatenation of these arrays
    lengths: NDArray[np.int32]  # (N,) in tokens, </s> included

    @classmethod
    def of(cls, ids: Ids, lengths: NDArray[Any]) -> Column:
        """A column of examples that lie one after the other in one array."""
        return cls((ids,), np.cumsum(lengths, dtype=np.int64) - lengths, lengths.astype(np.int32))

    def ids(self, example: int) -> Ids:
        """The ids of an example."""
        return self.gather(np.array([example]))

    def take(self, examples: Indices) -> Column:
        """A selection of examples, in the given order; no ids are read."""
        return Column(self.arrays, self.starts[examples], self.lengths[examples])

    def gather(self, examples: Indices) -> Ids:
        """The ids of these examples one after the other."""
        return self._at(spans(self.starts[examples], self.lengths[examples]))

    def tokens(self, examples: Indices, offsets: Indices) -> Ids:
        """The id at an offset of each of these examples."""
        return self._at(self.starts[examples] + offsets)

    def _at(self, indices: Indices) -> Ids:
        """The ids at these indices into the concatenation of all arrays."""
        if len(self.arrays) == 1:
            return self.arrays[0][indices]
        ids, begin = np.zeros(indices.shape, np.uint32), 0
        for array in self.arrays:
            is_inside = (begin <= indices) & (indices < begin + len(array))
            ids[is_inside] = array[indices[is_inside] - begin]
            begin += len(array)
        return ids


@dataclass(frozen=True)
class Dataset:
    """A prepared corpus: pairs, or single texts for language models."""

    columns: dict[str, Column]
    digests: Digests  # (N, sides) of the texts, ignoring spaces and case
    record: dict[str, Any]  # the content of `corpus.json`

    @classmethod
    def open(cls, folder: Path, *, variant: int = 0) -> Dataset:
        """A prepared corpus; variants 1, 2 ... were made by BPE dropout."""
        record = read_json(folder / RECORD_FILE)
        examples, sides = record["examples"], record["sides"]
        columns = {}
        for name, kind in record["columns"].items():
            ids_file, offsets_file = (folder / file for file in column_files(name, variant))
            offsets = _map(offsets_file, "int64", examples + 1)
            ids = _map(ids_file, kind, int(offsets[-1]))
            lengths = np.diff(offsets).astype(np.int32)
            columns[name] = Column((ids,), offsets[:-1], lengths)
        return cls(columns, _map(folder / DIGESTS_FILE, "uint64", examples * sides).reshape(-1, sides), record)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())).lengths)

    @property
    def source(self) -> Column:
        return self.columns["source"]

    @property
    def target(self) -> Column:
        return self.columns["target"]

    @property
    def text(self) -> Column:
        """The only column of a corpus for language models."""
        return self.columns["text"]

    def pair(self, example: int) -> tuple[Ids, Ids]:
        """Source and target ids of an example, each with </s>."""
        return self.source.ids(example), self.target.ids(example)

    def take(self, examples: Indices) -> Dataset:
        """A selection of examples, in the given order; no ids are read."""
        columns = {name: column.take(examples) for name, column in self.columns.items()}
        return Dataset(columns, self.digests[examples], self.record)


def column_files(name: str, variant: int) -> tuple[str, str]:
    """The names of the files that hold the ids and the offsets of a column."""
    stem = f"{name}.{variant}" if variant else name
    return f"{stem}.ids.bin", f"{stem}.offsets.bin"


def _map(path: Path, kind: str, size: int) -> NDArray[Any]:
    """A file as a memory-mapped array of this size."""
    dtype = np.dtype(kind).newbyteorder("<")
    with clear_os_errors(path, "read"):
        actual = path.stat().st_size
        if actual != size * dtype.itemsize:
            raise FolderError(f"{path} is damaged: it has {actual:,} bytes instead of {size * dtype.itemsize:,}")
        return np.asarray(np.memmap(path, dtype, "r")) if size else np.zeros(0, dtype)  # no empty file can be mapped


def join(datasets: Sequence[Dataset]) -> Dataset:
    """Several corpora one after the other."""
    columns = {}
    for name in datasets[0].columns:
        parts = [dataset.columns[name] for dataset in datasets]
        sizes = [sum(map(len, part.arrays)) for part in parts]
        firsts = np.cumsum([0, *sizes[:-1]])
        columns[name] = Column(
            tuple(array for part in parts for array in part.arrays),
            np.concatenate([part.starts + first for part, first in zip(parts, firsts, strict=True)]),
            np.concatenate([part.lengths for part in parts]),
        )
    return Dataset(columns, np.concatenate([dataset.digests for dataset in datasets]), datasets[0].record)


# Held-out examples


def split(dataset: Dataset, size: int) -> tuple[Indices, Indices]:
    """The indices of the training examples and of the validation examples; at most `size` and 2 % are held out.

    Examples that share a text on either side, ignoring spaces and case, stay together. Which ones are held out depends
    on their text, not on their order.
    """
    limit = min(size, len(dataset) // 50)
    labels, member, sizes = np.unique(group_by_text(dataset.digests), return_inverse=True, return_counts=True)
    values = splitmix64(reduce(pair_digests, dataset.digests.T))
    priority = np.full(len(labels), np.iinfo(np.uint64).max, np.uint64)
    np.minimum.at(priority, member, values)
    order = np.argsort(priority, kind="stable")
    order = order[sizes[order] <= MAX_HELD_OUT_GROUP]
    chosen = np.zeros(len(labels), np.bool_)
    chosen[order[np.cumsum(sizes[order]) <= limit]] = True
    held_out = chosen[member]
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def group_by_text(digests: Digests) -> Indices:
    """(N,) the same number for examples that share a digest in a column, directly or through other examples."""
    keys = [np.unique(column, return_inverse=True)[1] for column in digests.T]
    label = np.arange(len(digests))
    while True:
        before = label
        for key in keys:
            smallest = np.full(len(digests), len(digests))
            np.minimum.at(smallest, key, label)
            label = smallest[key]
        label = label[label]  # a label is an example, whose own label is at least as small
        if np.array_equal(label, before):
            return label
