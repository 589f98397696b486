"""Order: which examples share a batch, and when; pure functions of lengths, budget, seed, epoch, rank and world_size.

N examples, B batches, S source length, T target length.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.errors import InputError

Lengths = NDArray[np.int64] | NDArray[np.int32]
Places = NDArray[np.int64]

JITTER = 1.5  # tokens by which a target may seem longer: what mixes neighbours in length from epoch to epoch
SHUFFLE, MIX, ORDER, SHIFT, JITTERS = range(5)  # what a random number is for, so that none is used twice


class Shape(NamedTuple):
    """The size of a padded batch."""

    rows: int
    source: int
    target: int

    @property
    def positions(self) -> int:
        return self.rows * (self.source + self.target)


class Plan(NamedTuple):
    """The global batches of an epoch, in order; every process has the same plan and takes its share of each batch."""

    examples: Places
    """(N,) which example, batch after batch; the longest of a batch first."""
    bounds: Places
    """(B + 1,) where each batch begins in `examples`."""
    shapes: Places
    """(B, 3) rows, source and target positions of each padded batch."""
    exact: NDArray[np.bool_]
    """(B,) whether every source of the batch fills its row: no padding, so no mask."""
    fixed: bool = False
    """Whether shapes come from a short list, and rows without an example fill them up."""

    def __len__(self) -> int:
        return len(self.shapes)

    def batch(self, number: int) -> Places:
        """The examples of a global batch."""
        return self.examples[self.bounds[number] : self.bounds[number + 1]]

    def shape(self, number: int) -> Shape:
        """The padded shape of a global batch."""
        return Shape(*self.shapes[number].tolist())

    def share(self, number: int, *, rank: int, world_size: int) -> Places:
        """What one process takes of a global batch: as many tokens as the others, or nearly.

        Empty for some where a batch has fewer examples than there are processes.
        """
        return deal(self.batch(number), rank=rank, world_size=world_size)

    def room(self, number: int, *, world_size: int) -> Shape | None:
        """The shape that every process's share has to have, where shapes are fixed."""
        rows, source, target = self.shape(number)
        return Shape(-(-rows // world_size), source, target) if self.fixed else None


def deal(examples: Places, *, rank: int, world_size: int) -> Places:
    """Every `world_size`-th example, there and back, as cards are dealt fairly when the best lie on top."""
    turn = np.arange(len(examples)) % (2 * world_size)
    mine: Places = examples[(turn == rank) | (turn == 2 * world_size - 1 - rank)]
    return mine


# Randomness: the same on every machine and with every version of numpy


def noise(count: int, *numbers: int) -> NDArray[np.uint64]:
    """`count` random 64-bit numbers that `numbers` decide."""
    return scatter(np.arange(count, dtype=np.uint64) + key(*numbers))


def key(*numbers: int) -> np.uint64:
    """One random 64-bit number that `numbers` decide, their order too."""
    value = np.zeros(1, np.uint64)
    for number in numbers:
        value = scatter(value ^ np.array([number % 2**64], np.uint64))
    return np.uint64(value[0])


def scatter(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A random-looking number for each number: the finish of splitmix64."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def fractions(values: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Numbers from 0 to below 1."""
    return (values >> np.uint64(11)).astype(np.float64) * 2.0**-53


def shuffled(count: int, *numbers: int) -> Places:
    """The numbers below `count` in an order that `numbers` decide."""
    return np.argsort(noise(count, *numbers), kind="stable")


# Which examples


def mix(sizes: Sequence[int], weights: Sequence[float], *, seed: int, epoch: int) -> Places:
    """Which examples of several corpora an epoch takes, numbered through all of them.

    A weight says how often a corpus is read in an epoch: 1 once, 3 three times, 0.25 a quarter, the next quarter in the
    next epoch.
    """
    if len(sizes) != len(weights):
        raise InputError(f"there are {len(sizes)} corpora and {len(weights)} weights; give one weight to each corpus")
    if any(weight < 0 for weight in weights):
        raise InputError(f"the weights of corpora must not be negative: {list(weights)}")
    taken = []
    first = 0
    for number, (size, weight) in enumerate(zip(sizes, weights, strict=True)):
        begin, end = round(epoch * weight * size), round((epoch + 1) * weight * size)
        for lap in range(begin // size, -(-end // size)) if end > begin else ():
            order = shuffled(size, MIX, seed, number, lap)
            taken.append(first + order[max(begin - lap * size, 0) : end - lap * size])
        first += size
    return np.concatenate(taken) if taken else np.zeros(0, np.int64)


def in_laps(examples: Places) -> Places:
    """Examples in the order of their text; what is taken twice comes again only after all others have come."""
    order = np.sort(examples)
    again = turns(order)
    return order[np.lexsort((order, again))] if again.any() else order


def turns(examples: Places) -> Places:
    """How often each of these examples came before."""
    if (np.diff(examples) > 0).all():
        return np.zeros(len(examples), np.int64)
    order = np.argsort(examples, kind="stable")
    _, first, counts = np.unique(examples[order], return_index=True, return_counts=True)
    found = np.empty(len(examples), np.int64)
    found[order] = np.arange(len(examples)) - np.repeat(first, counts)
    return found


# Batches


def plan(
    source: Lengths,
    target: Lengths | None,
    *,
    budget: int,
    seed: int,
    epoch: int,
    examples: Places | None = None,
    exact: bool = False,
) -> Plan:
    """Batches of at most `budget` positions, alike in length, in an order that (seed, epoch) alone decides.

    The budget counts what the device computes: the padded positions of source and target together, of one global batch.
    Without a target (bert, gpt) those of the one text. `exact` keeps sources of one length to a batch. `examples` are
    those that take part (see `mix`); all of them otherwise.
    """
    chosen = np.arange(len(source)) if examples is None else examples
    chosen = chosen[shuffled(len(chosen), SHUFFLE, seed, epoch)]
    lengths = (source[chosen].astype(np.int64), np.zeros(len(chosen), np.int64))
    if target is not None:
        lengths = (lengths[0], target[chosen].astype(np.int64))
    _check_budget(lengths, chosen, budget)
    jitter = JITTER * fractions(noise(len(chosen), JITTERS, seed, epoch))
    if target is None:
        by_length = np.argsort(lengths[0] if exact else lengths[0] + jitter, kind="stable")
    else:
        by_length = _neighbours(*lengths, jitter, 1 if exact else _width(*lengths, budget))
    chosen = chosen[by_length]
    lengths = (lengths[0][by_length], lengths[1][by_length])
    bounds = _cut(*lengths, budget, exact)
    return _assemble(chosen, *lengths, bounds, None, seed, epoch)


def _check_budget(lengths: tuple[Lengths, Lengths], chosen: Places, budget: int) -> None:
    positions = lengths[0] + lengths[1]
    if len(positions) and positions.max() > budget:
        worst = int(positions.argmax())
        raise InputError(
            f"example {chosen[worst]} has {positions[worst]} positions and a batch {budget}: "
            "raise the budget, or leave longer ones out (text.max_length)"
        )


def _neighbours(source: Lengths, target: Lengths, jitter: NDArray[np.float64], width: int) -> Places:
    """An order in which neighbours are alike in both lengths: by windows of source length, in them by target length.

    Up in one window and down in the next, so that the end of one is like the beginning of the other.
    """
    window = source // width
    return np.lexsort((np.where(window % 2, -target - jitter, target + jitter), window))


def _width(source: Lengths, target: Lengths, budget: int) -> int:
    """How many source lengths a window spans, so that a batch is about as wide in source as in target lengths."""
    if not len(source):
        return 1
    cells = np.bincount(source * (target.max() + 1) + target)
    crowd = float((cells.astype(np.float64) ** 2).sum() / len(source))  # like-sized fellows of an example
    rows = budget / float((source + target).mean())
    return max(1, int(np.ceil(np.sqrt(rows / crowd))))


def _cut(source: Lengths, target: Lengths, budget: int, exact: bool) -> Places:
    """Where to cut a row of examples so that each batch is as large as the budget allows."""
    bounds = [0]
    ends = np.append(np.flatnonzero(np.diff(source)) + 1, len(source)) if exact else np.array([len(source)])
    place = 0
    while place < len(source):
        end = int(ends[np.searchsorted(ends, place, side="right")])
        most = min(place + max(1, budget // max(1, int(source[place] + target[place]))), end)
        longest = np.maximum.accumulate(source[place:most]) + np.maximum.accumulate(target[place:most])
        fits = int(np.searchsorted(longest * np.arange(1, len(longest) + 1), budget, side="right"))
        place += max(fits, 1)
        bounds.append(place)
    return np.array(bounds)


def _assemble(
    chosen: Places, source: Lengths, target: Lengths, bounds: Places, shapes: Places | None, seed: int, epoch: int
) -> Plan:
    """The plan of consecutive batches, which are put in random order."""
    counts = np.diff(bounds)
    if not len(counts):
        return Plan(chosen, np.zeros(1, np.int64), np.zeros((0, 3), np.int64), np.zeros(0, np.bool_))
    if shapes is None:
        longest = [np.maximum.reduceat(lengths, bounds[:-1]) for lengths in (source, target)]
        padded = np.stack([counts, *longest], axis=1)
    else:
        padded = shapes
    exact = np.minimum.reduceat(source, bounds[:-1]) == padded[:, 1]
    order = shuffled(len(counts), ORDER, seed, epoch)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    by_batch = np.lexsort((-(source + target), np.repeat(rank, counts)))
    return Plan(
        chosen[by_batch], np.append(0, np.cumsum(counts[order])), padded[order], exact[order], shapes is not None
    )


def filled(plan: Plan, source: Lengths, target: Lengths | None) -> float:
    """The share of positions that hold real tokens."""
    real = sum(int(side[plan.examples].sum()) for side in (source, target) if side is not None)
    padded = (plan.shapes[:, 0] * plan.shapes[:, 1:].sum(axis=1)).sum()
    return real / max(int(padded), 1)


# Few shapes, for compiled kernels


def choose_shapes(source: Lengths, target: Lengths, *, budget: int, most: int, exact: bool = False) -> list[Shape]:
    """At most `most` shapes of about `budget` positions that hold these examples with little padding, smallest first.

    One shape for all is split, in source or in target length, where that saves most; a split must save more than the
    half-empty batch that each shape may leave. With `exact`, source lengths that are common get shapes of their own.
    """
    if not len(source):
        return []
    source, target = source.astype(np.int64), target.astype(np.int64)
    _check_budget((source, target), np.arange(len(source)), budget)
    width = int(target.max()) + 1
    cells = np.bincount(source * width + target)
    present = np.flatnonzero(cells)
    grid = np.stack([present // width, present % width, cells[present]])  # source, target, how many
    groups = _by_source(grid, budget, most) if exact else [grid]
    splits = [_best_split(group, budget, exact) for group in groups]
    while len(groups) < most:
        best = max(range(len(groups)), key=lambda number: splits[number][0])
        if splits[best][0] <= 0:
            break
        _, axis, value = splits.pop(best)
        group = groups.pop(best)
        for half in (group[:, group[axis] <= value], group[:, group[axis] > value]):
            groups.append(half)
            splits.append(_best_split(half, budget, exact))
    sizes = {(int(group[0].max()), int(group[1].max())) for group in groups}
    return sorted((Shape(_rows(budget, *size), *size) for size in sizes), key=lambda shape: (sum(shape[1:]), shape))


def _rows(budget: int, source: int, target: int) -> int:
    """Rows that fit the budget; in eights, as kernels like it and as processes share them."""
    rows = budget // (source + target)
    return rows // 8 * 8 if rows >= 16 else max(rows, 1)


def _by_source(grid: Places, budget: int, most: int) -> list[Places]:
    """Groups of one source length each where there are batches enough, the rest between them together."""
    sizes = np.bincount(grid[0], weights=grid[2] * (grid[0] + grid[1]))
    common = [int(length) for length in np.argsort(-sizes, kind="stable")[: most // 2] if sizes[length] >= 4 * budget]
    rest = grid[:, ~np.isin(grid[0], common)]
    groups = [grid[:, grid[0] == length] for length in common]
    return [*groups, rest] if rest.size else groups


def _best_split(group: Places, budget: int, exact: bool) -> tuple[float, int, int]:
    """What the best split of a group saves, on which axis, after which length."""
    best = (0.0, 0, 0)
    total = group[2].sum() * (group[0].max() + group[1].max())
    for axis in (0, 1):
        ordered = group[:, np.argsort(group[axis], kind="stable")]
        own, other, count = ordered[axis], ordered[1 - axis], np.cumsum(ordered[2])
        last = np.flatnonzero(np.diff(own))  # the last cell of each length but the longest
        if not len(last):
            continue
        below = np.maximum.accumulate(other)[last]
        above = np.maximum.accumulate(other[::-1])[::-1][last + 1]
        cost = count[last] * (own[last] + below) + (count[-1] - count[last]) * (own[-1] + above)
        saved = total - cost - budget / 2
        place = int(saved.argmax())
        if saved[place] > best[0]:
            best = (float(saved[place]), axis, int(own[last[place]]))
    return best


def plan_shapes(
    source: Lengths,
    target: Lengths,
    shapes: Sequence[Shape],
    *,
    seed: int,
    epoch: int,
    examples: Places | None = None,
    exact: bool = False,
) -> Plan:
    """Batches that all have one of these shapes, in an order that (seed, epoch) alone decides.

    What does not fill a batch of the smallest shape that holds it goes to a larger one; in the end a few batches have
    empty rows. With `exact` sources of one length stay among themselves, so that their batches need no mask.
    """
    chosen = np.arange(len(source)) if examples is None else examples
    chosen = chosen[shuffled(len(chosen), SHUFFLE, seed, epoch)]
    batches: list[tuple[int, Places]] = []
    left = np.zeros(0, np.int64)
    ordered = sorted(range(len(shapes)), key=lambda number: (sum(shapes[number][1:]), shapes[number]))
    for number in ordered if exact else ():
        fits = _fits(shapes[number], source, target, chosen) & (source[chosen] == shapes[number].source)
        found, spare = _full(number, shapes[number], chosen[fits])
        batches += found
        chosen = np.concatenate([chosen[~fits], spare])
    for number in ordered:
        fits = _fits(shapes[number], source, target, chosen)
        moved = _fits(shapes[number], source, target, left)
        found, spare = _full(number, shapes[number], np.concatenate([left[moved], chosen[fits]]))
        batches += found
        chosen, left = chosen[~fits], np.concatenate([left[~moved], spare])
    if len(chosen):
        worst = chosen[np.argmax(source[chosen] + target[chosen])]
        raise InputError(
            f"example {worst} ({source[worst]} source and {target[worst]} target tokens) fits none of the shapes; "
            "choose them from the same lengths"
        )
    batches += _partial(shapes, source, target, left)
    if not batches:
        return _assemble(chosen, chosen, chosen, np.zeros(1, np.int64), None, seed, epoch)
    chosen = np.concatenate([batch for _, batch in batches])
    bounds = np.append(0, np.cumsum([len(batch) for _, batch in batches]))
    padded = np.array([shapes[number] for number, _ in batches])
    return _assemble(chosen, source[chosen], target[chosen], bounds, padded, seed, epoch)


def _full(number: int, shape: Shape, examples: Places) -> tuple[list[tuple[int, Places]], Places]:
    """Full batches of these examples, and those that are left."""
    full = len(examples) // shape.rows * shape.rows
    cut = range(0, full, shape.rows)
    return [(number, examples[place : place + shape.rows]) for place in cut], examples[full:]


def _fits(shape: Shape, source: Lengths, target: Lengths, examples: Places) -> NDArray[np.bool_]:
    return (source[examples] <= shape.source) & (target[examples] <= shape.target)


def _partial(shapes: Sequence[Shape], source: Lengths, target: Lengths, left: Places) -> list[tuple[int, Places]]:
    """Batches for what is left, each time the one that takes most of it."""
    batches = []
    while len(left):
        takes = [min(int(_fits(shape, source, target, left).sum()), shape.rows) for shape in shapes]
        number = max(range(len(shapes)), key=lambda number: (takes[number] / shapes[number].positions, -number))
        taken = np.flatnonzero(_fits(shapes[number], source, target, left))[: takes[number]]
        batches.append((number, left[taken]))
        left = np.delete(left, taken)
    return batches


# Streams of text


def windows(tokens: int, *, length: int, budget: int, seed: int, epoch: int, whole: bool = False) -> Plan:
    """Batches of windows into a stream of `tokens`; the plan's examples are the places where windows begin.

    Where the first window begins changes from epoch to epoch, so a token is not always met in the same place; what is
    left over at either end is shorter than a window. With `whole` nothing is left over: the first window begins at the
    beginning, and the last, in a batch of its own, is as short as it has to be.
    """
    length = min(length, tokens)
    rows = max(budget // max(length, 1), 1)
    if whole:
        starts = np.arange(0, tokens, max(length, 1))
        sizes = np.minimum(length, tokens - starts)
        full = int((sizes == length).sum())
        bounds = np.unique([*range(0, full, rows), full, len(starts)])
        return _assemble(starts, sizes, np.zeros_like(sizes), bounds, None, seed, epoch)
    spare = (tokens % length if tokens < 2 * length else length - 1) if tokens else 0
    shift = int(key(SHIFT, seed, epoch)) % (spare + 1)
    starts = np.arange(shift, tokens - length + 1, length) if tokens else np.zeros(0, np.int64)
    starts = starts[shuffled(len(starts), SHUFFLE, seed, epoch)]
    bounds = np.append(np.arange(0, len(starts), rows), len(starts))
    sizes = np.full(len(starts), length)
    return _assemble(starts, sizes, np.zeros_like(sizes), bounds, None, seed, epoch)


# Texts that are read once, without training.

READ_AHEAD_TEXTS = 2048  # texts read before what becomes of them is written,
READ_AHEAD_CHARACTERS = 1 << 20  # and about how many characters they may have


def batch_by_length(lengths: Sequence[int], texts: Sequence[str], most: int) -> Iterator[list[int]]:
    """Which texts share a batch of so many positions, padded: neighbours by (length, text), in whatever order given."""
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda place: (lengths[place], texts[place])):
        if batch and (len(batch) + 1) * lengths[place] > most:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def read_ahead(texts: Iterable[str], most: int, characters: int) -> Iterator[list[str]]:
    """So many texts at a time, or fewer where they are long: what is read ahead has to fit the memory."""
    window: list[str] = []
    left = characters
    for text in texts:
        window.append(text)
        left -= len(text)
        if len(window) >= most or left <= 0:
            yield window
            window, left = [], characters
    if window:
        yield window
