"""Overlap: equal and nearly equal lines of a corpus or of two splits, found by 64-bit digests of normalized text."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Digests = NDArray[np.uint64]

# Long enough that ordinary phrases do not match, short enough to survive one changed word in a sentence of ten.
SHINGLE = 16
NEAR = 0.7  # similarity of both sides from which pairs are nearly equal: one word in ten changed, or a comma
MIN_SHARED_SHINGLES = 0.2  # share of a line's shingles that must be known before the line is compared
MAX_COMPARISONS = 200_000  # so that formulaic text does not make the work quadratic
INDEX_BITS = 22  # of the hash that indexes the table of known shingles


def normalized(text: str) -> str:
    """The text in lower case with single spaces, as it is compared."""
    return " ".join(text.casefold().split())


def digests(lines: Sequence[str]) -> Digests:
    """A 64-bit hash of every line, the same on every machine."""
    joined = b"".join(hashlib.blake2b(line.encode("utf-8", "surrogatepass"), digest_size=8).digest() for line in lines)
    return np.frombuffer(joined, dtype="<u8").astype(np.uint64)


def pair_digests(source: Digests, target: Digests) -> Digests:
    """The digests of pairs from those of their sides."""
    return (source * np.uint64(0x9E3779B97F4A7C15)) ^ (target + (source >> np.uint64(29)))


class HeldOut:
    """An index of the validation and test pairs, to look up training pairs in."""

    def __init__(self, sources: list[str], targets: list[str]) -> None:
        self.sources, self.targets = sources, targets
        source, target = digests(sources), digests(targets)
        self.known = {
            "pair": by_digest(pair_digests(source, target)),
            "source": by_digest(source),
            "target": by_digest(target),
        }
        self.owner, self.table = index_shingles(sources)
        self.compared = 0

    def exact(self, kind: str, values: Digests) -> Iterator[tuple[int, list[int]]]:
        """Training lines that are also held out: their index in the chunk, and their indices in the held-out set."""
        known = self.known[kind]
        for index, value in enumerate(values.tolist()):
            held = known.get(value)
            if held is not None:
                yield index, held

    def near(self, sources: list[str], targets: list[str]) -> Iterator[tuple[int, int]]:
        """The training pairs that are nearly but not exactly equal to a held-out pair."""
        if not self.owner:
            return
        hashes, starts = shingles(sources)
        hits = self.table[(hashes >> np.uint64(64 - INDEX_BITS)).astype(np.int64)]
        share = np.add.reduceat(hits.astype(np.float32), starts) / np.maximum(
            np.diff(starts, append=len(hashes)) - SHINGLE, 1
        )
        for index in np.flatnonzero(share >= MIN_SHARED_SHINGLES).tolist():
            begin = int(starts[index])
            end = int(starts[index + 1]) if index + 1 < len(starts) else len(hashes)
            held = self.best(hashes[begin:end][hits[begin:end]])
            if held is None or self.compared >= MAX_COMPARISONS:
                continue
            self.compared += 1
            if sources[index] == self.sources[held] and targets[index] == self.targets[held]:
                continue
            pairs = (sources[index], self.sources[held]), (targets[index], self.targets[held])
            if all(similarity(*texts) >= NEAR for texts in pairs):
                yield index, held

    def best(self, hashes: Digests) -> int | None:
        """The held-out line that most of these shingles come from."""
        votes: dict[int, int] = defaultdict(int)
        for value in hashes.tolist():
            owner = self.owner.get(value)
            if owner is not None:
                votes[owner] += 1
        return max(votes, key=lambda held: votes[held]) if votes else None


def by_digest(values: Digests) -> dict[int, list[int]]:
    """The indices of each digest."""
    indices: dict[int, list[int]] = defaultdict(list)
    for index, value in enumerate(values.tolist()):
        indices[value].append(index)
    return dict(indices)


def index_shingles(lines: list[str]) -> tuple[dict[int, int], NDArray[np.bool_]]:
    """The line that each shingle occurs in, and a bit table for a fast check whether a shingle is known."""
    table = np.zeros(1 << INDEX_BITS, dtype=np.bool_)
    if not lines:
        return {}, table
    hashes, starts = shingles(lines)
    lengths = np.diff(starts, append=len(hashes))
    owners = np.repeat(np.arange(len(lines)), lengths)
    inside = np.arange(len(hashes)) - np.repeat(starts, lengths) < np.repeat(lengths - SHINGLE, lengths)
    owner: dict[int, int] = {}
    for value, line in zip(hashes[inside].tolist(), owners[inside].tolist(), strict=True):
        # a phrase that occurs in different lines points to none of them
        if owner.setdefault(value, line) != line and lines[owner[value]] != lines[line]:
            owner[value] = -1
    owner = {value: line for value, line in owner.items() if line >= 0}
    known = np.fromiter(owner, dtype=np.uint64, count=len(owner))
    table[(known >> np.uint64(64 - INDEX_BITS)).astype(np.int64)] = True
    return owner, table


def shingles(lines: Sequence[str]) -> tuple[Digests, NDArray[np.int64]]:
    """A hash of the `SHINGLE` characters from every position of the joined lines, and where each line starts."""
    codes, starts = characters(lines)
    hashes = codes.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    width = 1
    while width < SHINGLE:
        later = np.zeros_like(hashes)
        later[:-width] = hashes[width:]
        hashes = (hashes ^ (hashes >> np.uint64(31))) * np.uint64(0xD6E8FEB86659FD93) + later
        width *= 2
    return hashes * np.uint64(0x9E3779B97F4A7C15), starts


def characters(lines: Sequence[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """The code points of all lines, each with a line end after it, and where each line starts."""
    joined = "\n".join(lines) + "\n"
    codes = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), dtype="<u4").astype(np.uint32)
    lengths = np.fromiter((len(line) + 1 for line in lines), dtype=np.int64, count=len(lines))
    return codes, np.cumsum(lengths) - lengths


def similarity(left: str, right: str) -> float:
    """The Jaccard similarity of the character 4-grams of two texts."""
    first, second = ({text[i : i + 4] for i in range(max(len(text) - 3, 1))} for text in (left, right))
    return len(first & second) / len(first | second)
