"""Ordering: bucketing by length, and the order of batches; pure functions of lengths, batch_tokens, seed and epoch.

N examples, B batches, S source length, T target length.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Lengths = NDArray[np.int64] | NDArray[np.int32]
Indices = NDArray[np.int64]

LENGTH_JITTER = 1.5  # at most so many tokens are added to target lengths at random, so that buckets differ by epoch
SHUFFLE, MIX, ORDER, SHIFT, JITTER = range(5)  # purposes of random numbers, so that none is used twice

READ_AHEAD_TEXTS = 2048  # maximum texts read before their results are written
READ_AHEAD_CHARACTERS = 1 << 20  # about the maximum of their characters


class Shape(NamedTuple):
    """The shape of a padded batch."""

    rows: int
    source: int
    target: int

    @property
    def tokens(self) -> int:
        """Padded tokens of source and target together."""
        return self.rows * (self.source + self.target)


class BatchPlan(NamedTuple):
    """The batches of an epoch in order. All processes have the same plan, and each takes its shard of every batch."""

    examples: Indices  # (N,) batch after batch; the longest of a batch first
    bounds: Indices  # (B + 1,) where each batch begins in `examples`
    shapes: Indices  # (B, 3) rows, source and target length of each batch, padding included
    fixed: bool = False  # whether batches have a few fixed shapes, filled up with padding
    slots: int = 0  # sentences that a packed row has room for, padding included; 0: batches are not packed

    def __len__(self) -> int:
        return len(self.shapes)

    def batch(self, number: int) -> Indices:
        """The examples of a batch over all processes."""
        return self.examples[self.bounds[number] : self.bounds[number + 1]]

    def shape(self, number: int) -> Shape:
        """The padded shape of a batch over all processes."""
        return Shape(*self.shapes[number].tolist())

    def shard(self, number: int, *, rank: int, world_size: int) -> Indices:
        """The examples of a batch for one process; about as many tokens as for the others, and possibly none.

        Examples are dealt back and forth (0, 1, 2, 2, 1, 0 ...), because the longest come first.
        """
        turn = np.arange(len(self.batch(number))) % (2 * world_size)
        shard: Indices = self.batch(number)[(turn == rank) | (turn == 2 * world_size - 1 - rank)]
        return shard


# Random numbers that are the same on every machine and with every version of numpy


def noise(count: int, *key_parts: int) -> NDArray[np.uint64]:
    """`count` random 64-bit numbers, a function of `key_parts`."""
    return splitmix64(np.arange(count, dtype=np.uint64) + key(*key_parts))


def key(*parts: int) -> np.uint64:
    """One random 64-bit number, a function of `parts` and their order."""
    value = np.zeros(1, np.uint64)
    for part in parts:
        value = splitmix64(value ^ np.array([part % 2**64], np.uint64))
    return np.uint64(value[0])


def splitmix64(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The splitmix64 hash: a pseudo-random number for each number."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def fractions(values: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Random numbers as fractions from 0 to below 1."""
    return (values >> np.uint64(11)).astype(np.float64) * 2.0**-53


def shuffled(count: int, *key_parts: int) -> Indices:
    """The numbers below `count` in a random order, a function of `key_parts`."""
    return np.argsort(noise(count, *key_parts), kind="stable")


# Several corpora


def mix_corpora(sizes: Sequence[int], weights: Sequence[float], *, seed: int, epoch: int) -> Indices:
    """The examples of an epoch over several corpora, numbered through all of them.

    A corpus of weight 3 is read three times per epoch. Of a corpus of weight 0.25, each epoch reads the next quarter.
    """
    examples = [np.zeros(0, np.int64)]
    first = 0
    for number, (size, weight) in enumerate(zip(sizes, weights, strict=True)):
        begin, end = round(epoch * weight * size), round((epoch + 1) * weight * size)
        for reading in range(begin // size, -(-end // size)) if end > begin else ():
            order = shuffled(size, MIX, seed, number, reading)
            examples.append(first + order[max(begin - reading * size, 0) : end - reading * size])
        first += size
    return np.concatenate(examples)


def in_passes(examples: Indices) -> Indices:
    """Examples in ascending order, in passes: a repeated example comes again only in the next pass."""
    order = np.sort(examples)
    return order[np.lexsort((order, repeat_numbers(order)))]


def repeat_numbers(examples: Indices) -> Indices:
    """How many times each example occurs earlier in the list."""
    order = np.argsort(examples, kind="stable")
    _, first, counts = np.unique(examples[order], return_index=True, return_counts=True)
    numbers = np.empty(len(examples), np.int64)
    numbers[order] = np.arange(len(examples)) - np.repeat(first, counts)
    return numbers


# Batches of pairs


def plan_batches(
    source: Lengths, target: Lengths, *, batch_tokens: int, seed: int, epoch: int, examples: Indices | None = None
) -> BatchPlan:
    """Bucket pairs of similar length into batches of at most `batch_tokens`; the order is a function of (seed, epoch).

    `batch_tokens` counts the padded tokens of source and target together, over all processes. `examples` are those to
    use (see `mix_corpora`), by default all.
    """
    chosen, source, target = _shuffled_lengths(source, target, examples, seed, epoch)
    # a band of source lengths is so wide that batches vary about as much in source as in target lengths
    cells = np.bincount(source * (target.max() + 1) + target).astype(np.float64)
    same_size = float((cells**2).sum() / len(source))  # pairs of the same lengths, on average
    rows = batch_tokens / float((source + target).mean())
    band = source // max(1, int(np.ceil(np.sqrt(rows / same_size))))
    # targets ascend in one band and descend in the next, so that neighbours are similar where bands meet
    jitter = LENGTH_JITTER * fractions(noise(len(chosen), JITTER, seed, epoch))
    by_length = np.lexsort((np.where(band % 2, -target - jitter, target + jitter), band))
    chosen, source, target = chosen[by_length], source[by_length], target[by_length]
    bounds = [0]
    while (start := bounds[-1]) < len(chosen):
        stop = start + max(1, batch_tokens // int(source[start] + target[start]))
        width = np.maximum.accumulate(source[start:stop]) + np.maximum.accumulate(target[start:stop])
        fitting = int(np.searchsorted(width * np.arange(1, len(width) + 1), batch_tokens, side="right"))
        bounds.append(start + max(fitting, 1))
    widths = [np.maximum.reduceat(lengths, bounds[:-1]) for lengths in (source, target)]
    shapes = np.stack([np.diff(bounds), *widths], axis=1)
    return _in_random_order(BatchPlan(chosen, np.array(bounds), shapes), source + target, seed, epoch)


def _shuffled_lengths(
    source: Lengths, target: Lengths, examples: Indices | None, seed: int, epoch: int
) -> tuple[Indices, Indices, Indices]:
    """The examples, by default all, in random order, and the lengths of their sides."""
    chosen = np.arange(len(source)) if examples is None else examples
    chosen = chosen[shuffled(len(chosen), SHUFFLE, seed, epoch)]
    return chosen, source[chosen].astype(np.int64), target[chosen].astype(np.int64)


def _in_random_order(plan: BatchPlan, lengths: Indices, seed: int, epoch: int) -> BatchPlan:
    """The batches of a plan in random order, each with its longest example first."""
    counts = np.diff(plan.bounds)
    order = shuffled(len(counts), ORDER, seed, epoch)
    examples = plan.examples[np.lexsort((-lengths, np.repeat(np.argsort(order), counts)))]
    bounds = np.append(0, np.cumsum(counts[order]))
    return BatchPlan(examples, bounds, plan.shapes[order], plan.fixed, plan.slots)


# Batches of a few fixed shapes, for CUDA graphs


def choose_shapes(source: Lengths, target: Lengths, *, batch_tokens: int, count: int) -> list[Shape]:
    """At most `count` shapes of about `batch_tokens` that hold these examples with little padding, smallest first.

    One shape for all is split, by source or target length, where that saves most padding; a split must save more than
    the half-empty batch that each shape may leave.
    """
    width = int(target.max()) + 1
    cells = np.bincount(source.astype(np.int64) * width + target)
    present = np.flatnonzero(cells)
    groups = [np.stack([present // width, present % width, cells[present]])]
    splits = [_best_split(groups[0], batch_tokens)]
    while len(groups) < count:
        best = max(range(len(groups)), key=lambda number: splits[number][0])
        saved, parts = splits.pop(best)
        if saved <= 0:
            break
        del groups[best]
        groups += parts
        splits += [_best_split(part, batch_tokens) for part in parts]
    shapes = []
    for size in {(int(group[0].max()), int(group[1].max())) for group in groups}:
        rows = max(batch_tokens // sum(size), 1)
        shapes.append(Shape(rows // 8 * 8 if rows >= 16 else rows, *size))  # for kernels and for several processes
    return sorted(shapes, key=_by_size)


def _by_size(shape: Shape) -> tuple[int, Shape]:
    return shape.source + shape.target, shape


def _best_split(group: Indices, batch_tokens: int) -> tuple[float, list[Indices]]:
    """The best way to split examples in two by source or target length: the tokens that it saves, and the parts.

    A group is (3, cells): source length, target length, number of examples.
    """
    best: tuple[float, list[Indices]] = (0.0, [])
    for axis in (0, 1):
        ordered = group[:, np.argsort(group[axis], kind="stable")]
        length, across, examples = ordered[axis], ordered[1 - axis], np.cumsum(ordered[2])
        last = np.flatnonzero(np.diff(length))  # the last cell of each length but the longest
        if not len(last):
            continue
        below = np.maximum.accumulate(across)[last]
        above = np.maximum.accumulate(across[::-1])[::-1][last + 1]
        tokens = examples[last] * (length[last] + below) + (examples[-1] - examples[last]) * (length[-1] + above)
        saved = examples[-1] * (length[-1] + across.max()) - tokens - batch_tokens / 2
        index = int(saved.argmax())
        if saved[index] > best[0]:
            best = float(saved[index]), [ordered[:, : last[index] + 1], ordered[:, last[index] + 1 :]]
    return best


def plan_shapes(
    source: Lengths, target: Lengths, shapes: Sequence[Shape], *, seed: int, epoch: int, examples: Indices | None = None
) -> BatchPlan:
    """Batches that all have one of these shapes; the order is a function of (seed, epoch).

    Examples that do not fill a batch of the smallest shape that holds them move to a larger shape; the last batches may
    have empty rows.
    """

    def fits(shape: Shape, examples: Indices) -> NDArray[np.bool_]:
        return (source[examples] <= shape.source) & (target[examples] <= shape.target)

    chosen, _, _ = _shuffled_lengths(source, target, examples, seed, epoch)
    batches: list[tuple[Shape, Indices]] = []
    leftover = np.zeros(0, np.int64)
    for shape in sorted(shapes, key=_by_size):
        new, moved = fits(shape, chosen), fits(shape, leftover)
        here = np.concatenate([leftover[moved], chosen[new]])
        full = len(here) // shape.rows * shape.rows
        batches += [(shape, here[start : start + shape.rows]) for start in range(0, full, shape.rows)]
        chosen, leftover = chosen[~new], np.concatenate([leftover[~moved], here[full:]])
    assert not len(chosen), "an example fits none of the shapes: choose them from the same lengths"
    while len(leftover):  # batches with empty rows, each of the shape that wastes least
        rows = [min(int(fits(shape, leftover).sum()), shape.rows) for shape in shapes]
        number = max(range(len(shapes)), key=lambda number: (rows[number] / shapes[number].tokens, -number))
        fitting = np.flatnonzero(fits(shapes[number], leftover))[: rows[number]]
        batches.append((shapes[number], leftover[fitting]))
        leftover = np.delete(leftover, fitting)
    chosen = np.concatenate([batch for _, batch in batches])
    bounds = np.append(0, np.cumsum([len(batch) for _, batch in batches]))
    plan = BatchPlan(chosen, bounds, np.array([shape for shape, _ in batches]), fixed=True)
    return _in_random_order(plan, source[chosen].astype(np.int64) + target[chosen], seed, epoch)


# Packed batches of pairs


def packed_shape(
    source: Lengths, target: Lengths, batch_tokens: int, weights: NDArray[np.float64] | None = None
) -> Shape:
    """The shape of all packed batches of a run; its rows are sentences, padding included.

    It divides `batch_tokens` between source and target as the corpus does; at least the longest sentences fit.
    `weights` say how often an epoch has each example, by default once.
    """
    means = float(np.average(source, weights=weights)), float(np.average(target, weights=weights))
    size = max(round(batch_tokens * means[0] / sum(means) / 64) * 64, 64)  # products of multiples of 64 are faster
    sentences = int(1.25 * batch_tokens / sum(means)) + 8
    return Shape(sentences, max(size, int(source.max())), max(batch_tokens - size, 64, int(target.max())))


def plan_packed(
    source: Lengths, target: Lengths, shape: Shape, *, seed: int, epoch: int, examples: Indices | None = None
) -> BatchPlan:
    """Pairs in random order in batches of one shape, each filled until the next pair does not fit.

    The order is a function of (seed, epoch).
    """
    chosen, source, target = _shuffled_lengths(source, target, examples, seed, epoch)
    sides = [(np.cumsum(lengths), lengths, size) for lengths, size in ((source, shape.source), (target, shape.target))]
    bounds = [0]
    while (start := bounds[-1]) < len(chosen):
        full = [
            int(np.searchsorted(ends, size + ends[start] - lengths[start], side="right"))
            for ends, lengths, size in sides
        ]
        bounds.append(min(*full, start + shape.rows - 1))
    shapes = np.tile([1, shape.source, shape.target], (len(bounds) - 1, 1))
    plan = BatchPlan(chosen, np.array(bounds), shapes, fixed=True, slots=shape.rows)
    return _in_random_order(plan, source + target, seed, epoch)


# Windows of packed text


def plan_windows(
    tokens: int, *, length: int, batch_tokens: int, seed: int, epoch: int, cover_all: bool = False
) -> BatchPlan:
    """Batches of windows into a stream of `tokens`; the examples of the plan are the starts of windows.

    The first window starts at another token in every epoch, and the tokens left over at either end are fewer than a
    window. With `cover_all` no token is left over: the last window may be shorter and has its own batch.
    """
    length = min(length, tokens)
    rows = max(batch_tokens // length, 1)
    if cover_all:
        starts = np.arange(0, tokens, length)
        full = tokens // length
        bounds = np.unique([*range(0, full, rows), full, len(starts)])
    else:
        spare = tokens % length if tokens < 2 * length else length - 1
        shift = int(key(SHIFT, seed, epoch)) % (spare + 1)
        starts = np.arange(shift, tokens - length + 1, length)
        starts = starts[shuffled(len(starts), SHUFFLE, seed, epoch)]
        bounds = np.append(np.arange(0, len(starts), rows), len(starts))
    sizes = np.minimum(length, tokens - starts)
    counts = np.diff(bounds)
    shapes = np.stack([counts, sizes[bounds[:-1]], np.zeros_like(counts)], axis=1)
    return _in_random_order(BatchPlan(starts, bounds, shapes), sizes, seed, epoch)


# Inference


def batch_by_length(lengths: Sequence[int], texts: Sequence[str], max_tokens: int) -> Iterator[list[int]]:
    """Bucket texts into batches of at most `max_tokens` padded tokens; the batches do not depend on their order."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda index: (lengths[index], texts[index])):
        if batch and (len(batch) + 1) * lengths[index] > max_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def read_ahead(texts: Iterable[str], max_texts: int, max_characters: int) -> Iterator[list[str]]:
    """Lists of at most `max_texts`, or fewer where texts are long, so that they fit in memory."""
    window: list[str] = []
    characters = 0
    for text in texts:
        window.append(text)
        characters += len(text)
        if len(window) >= max_texts or characters >= max_characters:
            yield window
            window, characters = [], 0
    if window:
        yield window
