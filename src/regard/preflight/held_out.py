"""Held-out pairs: validation and test pairs that are also in the training data, or nearly, found by hashes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from regard.preflight.measure import code_points
from regard.text.cleaning import Digests, digests, pair_digests

# Long enough that ordinary phrases do not match, short enough to survive one changed word in a sentence of ten.
SHINGLE = 16
NEAR = 0.7  # similarity of both sides from which pairs are nearly equal: one word in ten changed, or a comma
MIN_SHARED_SHINGLES = 0.2  # share of a line's shingles that must be known before the line is compared
MAX_COMPARISONS = 200_000  # so that formulaic text does not make the work quadratic
INDEX_BITS = 22  # of the hash that indexes the table of known shingles


class HeldOut:
    """An index of the validation and test pairs, to look up training pairs in."""

    def __init__(self, sources: list[str], targets: list[str]) -> None:
        self.sources, self.targets = sources, targets
        source, target = digests(sources), digests(targets)
        self.known: dict[str, dict[int, list[int]]] = {}
        for kind, values in (("pair", pair_digests(source, target)), ("source", source), ("target", target)):
            indices = self.known[kind] = defaultdict(list)
            for index, value in enumerate(values.tolist()):
                indices[value].append(index)
        self.owner: dict[int, int] = {}  # the line that each shingle occurs in; -1 for a phrase of different lines
        self.table = np.zeros(1 << INDEX_BITS, np.bool_)  # for a fast check whether a shingle is known
        self.compared = 0
        hashes, starts = shingles(sources)
        lengths = np.diff(starts, append=len(hashes))
        inside = np.arange(len(hashes)) - np.repeat(starts, lengths) < np.repeat(lengths - SHINGLE, lengths)
        lines = np.repeat(np.arange(len(sources)), lengths)[inside]
        for value, line in zip(hashes[inside].tolist(), lines.tolist(), strict=True):
            if self.owner.setdefault(value, line) != line and sources[self.owner[value]] != sources[line]:
                self.owner[value] = -1
        self.owner = {value: line for value, line in self.owner.items() if line >= 0}
        known = np.fromiter(self.owner, np.uint64, len(self.owner))
        self.table[(known >> np.uint64(64 - INDEX_BITS)).astype(np.int64)] = True

    def exact(self, kind: str, values: Digests) -> Iterator[tuple[int, list[int]]]:
        """Training lines that are also held out: their index in the chunk, and their indices in the held-out set."""
        known = self.known[kind]
        return ((index, known[value]) for index, value in enumerate(values.tolist()) if value in known)

    def near(self, sources: list[str], targets: list[str]) -> Iterator[tuple[int, int]]:
        """The training pairs that are nearly but not exactly equal to a held-out pair."""
        hashes, starts = shingles(sources)
        ends = np.append(starts[1:], len(hashes))
        hits = self.table[(hashes >> np.uint64(64 - INDEX_BITS)).astype(np.int64)]
        share = np.add.reduceat(hits.astype(np.float32), starts) / np.maximum(ends - starts - SHINGLE, 1)
        for index in np.flatnonzero(share >= MIN_SHARED_SHINGLES).tolist():
            line = slice(starts[index], ends[index])
            owners = map(self.owner.get, hashes[line][hits[line]].tolist())
            votes = Counter(owner for owner in owners if owner is not None)
            if not votes or self.compared >= MAX_COMPARISONS:
                continue
            self.compared += 1
            held = votes.most_common(1)[0][0]
            pairs = (sources[index], self.sources[held]), (targets[index], self.targets[held])
            if any(one != other for one, other in pairs) and all(similarity(*texts) >= NEAR for texts in pairs):
                yield index, held


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
    codes = code_points("\n".join(lines) + "\n")
    lengths = np.fromiter((len(line) + 1 for line in lines), dtype=np.int64, count=len(lines))
    return codes, np.cumsum(lengths) - lengths


def similarity(left: str, right: str) -> float:
    """The Jaccard similarity of the character 4-grams of two texts."""
    first, second = ({text[i : i + 4] for i in range(max(len(text) - 3, 1))} for text in (left, right))
    return len(first & second) / len(first | second)
