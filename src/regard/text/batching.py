"""Batches: examples as padded tensors, made ahead of the device that needs them.

B rows, S source positions, T target positions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from queue import Empty, Queue
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.text.alignments import PLACES
from regard.text.dataset import Column, Dataset
from regard.text.ordering import Plan, Shape, fractions, key, scatter, turns
from regard.text.tokenizer import MASK, PAD, SPECIALS, START

HIDDEN, REPLACED = 0.8, 0.1  # of the tokens to guess become <mask>, and another token; the rest stays (Devlin et al.)
READ_AHEAD_TEXTS = 8  # batches that wait for the device

Ids = NDArray[np.int64]
Places = NDArray[np.int64]


class Batch(NamedTuple):
    """What a model is trained on at once, whatever its family.

    Pairs have all of source and target. A gpt has no source; a bert has a source, some of it hidden, and no target_in.
    """

    source: Tensor | None
    """(B, S) ids, each row ended by </s>."""
    mask: Tensor | None
    """(B, S) True for real tokens; None where all are."""
    target_in: Tensor | None
    """(B, T) ids that begin with <s>."""
    target_out: Tensor
    """(B, T) the ids to guess, ended by </s>; 0 where there is nothing to guess. (B, S) for a bert."""
    segments: Tensor | None
    """(B, T) or (B, S) from 1: the text of a packed row that a token belongs to; None where it does not matter."""
    source_tokens: int
    target_tokens: int
    """Real tokens of the source, and tokens to guess."""
    examples: Places
    """Which examples these are; where the rows begin in the stream, for packed ones."""
    alignment: Tensor | None = None
    """(B, T, S) how much of each target token each source token should get, by word alignments; rows sum to 1 or 0."""

    def each(self, function: Callable[[Tensor], Tensor]) -> Batch:
        """The batch with a function applied to its tensors."""
        changed: dict[str, Any] = {
            name: function(value) for name, value in self._asdict().items() if isinstance(value, Tensor)
        }
        return self._replace(**changed)


def split_batch(batch: Batch, parts: int) -> list[Batch]:
    """The batch as so many of about as many rows each, or one a row: what is too much for a device at once."""
    rows = len(batch.target_out)
    if parts == 1 or rows < 2:
        return [batch]
    each = -(-rows // parts)
    return [_part(batch, slice(first, first + each)) for first in range(0, rows, each)]


def _part(batch: Batch, some: slice) -> Batch:
    part = batch.each(lambda tensor: tensor[some])
    source = int((part.source != PAD).sum()) if part.source is not None else 0
    return part._replace(
        source_tokens=source,
        target_tokens=int((part.target_out != PAD).sum()),
        examples=batch.examples[some],
    )


MakeBatch = Callable[[int], Batch]
"""The batch of a number: what a process trains on at that place of the epoch."""


# Pairs


def pairs(store: Dataset, plan: Plan, *, rank: int, world_size: int) -> MakeBatch:
    """The batches of a plan over pairs, or this process's share of each."""

    def make(number: int) -> Batch:
        examples = plan.share(number, rank=rank, world_size=world_size)
        return collate(store, examples, room=plan.room(number, world_size=world_size), exact=bool(plan.exact[number]))

    return make


def collate(store: Dataset, examples: Places, *, room: Shape | None, exact: bool) -> Batch:
    """Pairs as one batch: as wide as the longest, or of a given shape with empty rows at the end.

    `exact` where all sources are as long as the batch is wide: it has no mask then. Rows without an example need none.
    """
    source, lengths = _pad(store.source, examples, room and (room.rows, room.source))
    target_out, _ = _pad(store.target, examples, room and (room.rows, room.target))
    real = target_out != PAD
    target_in = np.empty_like(target_out)
    target_in[:, :1] = START
    target_in[:, 1:] = target_out[:, :-1]
    target_in[~real] = PAD
    return Batch(
        source=torch.from_numpy(source),
        mask=None if exact else torch.from_numpy(source != PAD),
        target_in=torch.from_numpy(target_in),
        target_out=torch.from_numpy(target_out),
        segments=None,
        source_tokens=int(lengths.sum()),
        target_tokens=int(real.sum()),
        examples=examples,
        alignment=_spread(store.columns["links"], examples, target_out, source) if "links" in store.columns else None,
    )


def _spread(column: Column, examples: Places, target: Ids, source: Ids) -> Tensor:
    """(B, T, S) the links of these examples, those of a target token evenly."""
    spread = np.zeros((*target.shape, source.shape[1]), np.float32)
    links = column.gather(examples).astype(np.int64)
    spread[np.repeat(np.arange(len(examples)), column.lengths[examples]), links // PLACES, links % PLACES] = 1
    spread /= np.maximum(spread.sum(-1, keepdims=True), 1)
    return torch.from_numpy(spread)


def _pad(column: Column, examples: Places, size: tuple[int, int] | None) -> tuple[Ids, NDArray[np.int32]]:
    """(B, S) the ids of these examples with padding behind, and their lengths.

    Without examples one row of padding: a process that has no share of a batch takes part all the same. It is two wide,
    since one step leaves the cell of an rnn out, and processes must have gradients of the same weights.
    """
    lengths = column.lengths[examples]
    rows, width = size or ((len(examples), int(lengths.max())) if len(examples) else (1, 2))
    padded = np.zeros((rows, width), np.int64)
    padded[: len(examples)][np.arange(width) < lengths[:, None]] = column.gather(examples)
    return padded, lengths


# Masked tokens, for bert


def masked(
    store: Dataset, plan: Plan, *, rank: int, world_size: int, share: float, vocabulary: int, seed: int, epoch: int
) -> MakeBatch:
    """The batches of a plan over single texts, some of their tokens to be guessed.

    Which ones depends on (seed, epoch), the example and the place in it alone, not on who shares its batch.
    """

    def make(number: int) -> Batch:
        examples = plan.share(number, rank=rank, world_size=world_size)
        room = plan.room(number, world_size=world_size)
        ids, _ = _pad(store.text, examples, room and (room.rows, room.source))
        owner = np.zeros(len(ids), np.uint64)
        owner[: len(examples)] = examples
        random = _random(owner[:, None], np.arange(ids.shape[1], dtype=np.uint64), seed, epoch)
        return _guess(ids, random, share, vocabulary, None, None if plan.exact[number] else ids != PAD, examples)

    return make


def _random(example: NDArray[np.uint64], place: NDArray[np.uint64], seed: int, epoch: int) -> NDArray[np.uint64]:
    """A random number for each place of each example."""
    return scatter(scatter(example + key(seed, epoch)) + place)


def _guess(
    ids: Ids,
    random: NDArray[np.uint64],
    share: float,
    vocabulary: int,
    segments: Ids | None,
    mask: NDArray[np.bool_] | None,
    examples: Places,
) -> Batch:
    """A batch whose tokens with the least random numbers are to be guessed: a share of each row, one at least."""
    real = ids >= len(SPECIALS)
    ranked = np.argsort(np.where(real, random, np.iinfo(np.uint64).max), axis=1, kind="stable")
    rank = np.empty_like(ranked)
    np.put_along_axis(rank, ranked, np.arange(ids.shape[1])[None], axis=1)
    wanted = np.maximum(np.rint(share * real.sum(axis=1)), 1)
    chosen = real & (rank < wanted[:, None])
    fate = fractions(scatter(random))
    other = len(SPECIALS) + (scatter(random + np.uint64(1)) % np.uint64(max(vocabulary - len(SPECIALS), 1))).astype(
        np.int64
    )
    shown = np.where(fate < HIDDEN, MASK, np.where(fate < HIDDEN + REPLACED, other, ids))
    return Batch(
        source=torch.from_numpy(np.where(chosen, shown, ids)),
        mask=None if mask is None else torch.from_numpy(mask),
        target_in=None,
        target_out=torch.from_numpy(np.where(chosen, ids, PAD)),
        segments=None if segments is None else torch.from_numpy(segments),
        source_tokens=int((ids != PAD).sum()),
        target_tokens=int(chosen.sum()),
        examples=examples,
    )


# Packed rows, for gpt and bert


class Window(NamedTuple):
    """Rows cut out of a stream of texts."""

    ids: Ids
    """(B, T)"""
    before: Ids
    """(B, T) the token before each, <s> where a text begins."""
    segments: Ids
    """(B, T) the number of the text within its row, from 1."""
    example: Places
    offset: Places
    """(B, T) which text a token is from, one that is read twice having two numbers, and where it stands in it."""


class Stream:
    """Texts one after the other, each ended by </s>, in the order of the store or in another one.

    With `running` they are the pieces of one text, and no token tells where one ends.
    """

    def __init__(self, column: Column, order: Places, *, running: bool) -> None:
        self._column = replace(column, lengths=column.lengths - 1) if running else column
        self._order = order
        self._running = running
        self._ends = np.cumsum(self._column.lengths[order], dtype=np.int64)
        self._names = order + len(column.lengths) * turns(order)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def window(self, starts: Places, length: int) -> Window:
        """The `length` tokens from each of the places."""
        first = np.searchsorted(self._ends, starts, side="right")
        last = np.searchsorted(self._ends, starts + length - 1, side="right")
        counts = last - first + 1  # texts that each row has a part of
        row = np.repeat(np.arange(len(starts)), counts)
        segment = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
        text = first[row] + segment
        example = self._order[text]
        begins = self._ends[text] - self._column.lengths[example]
        left = np.maximum(starts[row], begins)
        right = np.minimum(starts[row] + length, self._ends[text])
        sizes = right - left
        shape = (len(starts), length)
        ids = self._column.gather(example, left - begins, sizes).astype(np.int64).reshape(shape)
        spread = np.arange(ids.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        offset = (np.repeat(left - begins, sizes) + spread).reshape(shape)
        owner = np.repeat(self._names[text], sizes).reshape(shape)
        before = np.empty_like(ids)
        before[:, 1:] = ids[:, :-1]
        before[:, 0] = self._before(starts)
        if not self._running:
            before[offset == 0] = START
        return Window(ids, before, np.repeat(segment + 1, sizes).reshape(shape), owner, offset)

    def _before(self, places: Places) -> Ids:
        """The token before each of the places; <s> before the first."""
        found = np.full(len(places), START)
        inside = places > 0
        text = np.searchsorted(self._ends, places[inside] - 1, side="right")
        example = self._order[text]
        offset = places[inside] - 1 - (self._ends[text] - self._column.lengths[example])
        found[inside] = self._column.gather(example, offset, np.ones(len(text), np.int64))
        return found


def _rows(stream: Stream, starts: Places, length: int) -> Window:
    """The rows that begin there; without any one row of padding, for a process that has no share of a batch."""
    if len(starts):
        return stream.window(starts, length)
    found = stream.window(np.zeros(1, np.int64), length)
    return found._replace(ids=np.full_like(found.ids, PAD))


def packed(stream: Stream, plan: Plan, *, rank: int, world_size: int, segments: bool) -> MakeBatch:
    """Rows without padding in which every token of the stream is guessed from those before it, for a gpt.

    With `segments` a model can keep the texts of a row apart; without, a text sees the one before it too.
    """

    def make(number: int) -> Batch:
        starts = plan.share(number, rank=rank, world_size=world_size)
        found = _rows(stream, starts, plan.shape(number).source)
        return Batch(
            source=None,
            mask=None,
            target_in=torch.from_numpy(found.before),
            target_out=torch.from_numpy(found.ids),
            segments=torch.from_numpy(found.segments) if segments else None,
            source_tokens=0,
            target_tokens=found.ids.size if len(starts) else 0,
            examples=starts,
        )

    return make


def packed_masked(
    stream: Stream,
    plan: Plan,
    *,
    rank: int,
    world_size: int,
    segments: bool,
    share: float,
    vocabulary: int,
    seed: int,
    epoch: int,
) -> MakeBatch:
    """Rows without padding, some of their tokens to be guessed, for a bert."""

    def make(number: int) -> Batch:
        starts = plan.share(number, rank=rank, world_size=world_size)
        found = _rows(stream, starts, plan.shape(number).source)
        random = _random(found.example.astype(np.uint64), found.offset.astype(np.uint64), seed, epoch)
        kept_apart = found.segments if segments else None
        return _guess(found.ids, random, share, vocabulary, kept_apart, None, starts)

    return make


# The feed


class Prefetcher:
    """The batches of some numbers on the device, made by a thread while the device works.

    An epoch goes on at batch n with `range(n, len(plan))`: what came before is not made again. When all is read, or the
    feed is closed or let go of, the thread ends.
    """

    def __init__(
        self, make: MakeBatch, numbers: Iterable[int], *, device: torch.device | str, ahead: int = READ_AHEAD_TEXTS
    ) -> None:
        self._device = torch.device(device)
        self._ready: Queue[Any] = Queue(maxsize=ahead)
        self._stop = threading.Event()
        # the thread knows the queue and not the feed, or nobody could ever let go of the feed
        work = (make, numbers, self._ready, self._stop, self._device.type == "cuda")
        self._thread = threading.Thread(target=_fill, args=work, name="regard-prefetch", daemon=True)
        self._thread.start()

    def __iter__(self) -> Prefetcher:
        return self

    def __next__(self) -> Batch:
        if self._stop.is_set():
            raise StopIteration
        found = self._ready.get()
        if isinstance(found, Batch):
            return found.each(lambda tensor: tensor.to(self._device, non_blocking=True))
        self.close()
        if found is not None:
            raise found
        raise StopIteration

    def close(self) -> None:
        """End the thread; what it has made is dropped."""
        self._stop.set()
        while self._thread.is_alive():  # it may wait for room
            try:
                self._ready.get(timeout=0.01)
            except Empty:
                continue

    def __enter__(self) -> Prefetcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


def _fill(make: MakeBatch, numbers: Iterable[int], ready: Queue[Any], stop: threading.Event, pin: bool) -> None:
    try:
        for number in numbers:
            batch = make(number)
            if stop.is_set():
                return
            ready.put(batch.each(Tensor.pin_memory) if pin else batch)  # pinned memory is copied while the device works
        ready.put(None)
    except BaseException as error:  # whatever it is, the one who waits must hear of it
        ready.put(error)
