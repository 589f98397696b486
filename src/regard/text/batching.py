"""Batching: examples as padded tensors, collated by a background thread while the device computes.

B rows, S source length, T target length.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice, pairwise
from operator import itemgetter
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.config import Config
from regard.text.alignments import MAX_TOKENS
from regard.text.dataset import Column, Dataset
from regard.text.ordering import BatchPlan, Indices, Shape, fractions, key, plan_windows, repeat_numbers, splitmix64
from regard.text.tokenizer import OWN_SPECIAL_IDS, SpecialIds

MASKED, REPLACED = 0.8, 0.1  # shares of predicted tokens that become <mask> or a random token (Devlin et al., 2019)
PREFETCH = 8  # batches prepared ahead
IGNORE_INDEX = -1  # the label of positions without a loss

Ids = NDArray[np.int64]


class Batch(NamedTuple):
    """A training batch of any model family.

    Pairs have a source and a target. A gpt has no source; a bert has a source, partly masked, and no target_in.
    Packed pairs are a single row of sources and one of targets (B = 1; 2 with R-Drop), one sentence after the other.
    """

    target_out: Tensor  # (B, T) the ids to predict, ended by </s>, or IGNORE_INDEX; (B, S) for a bert
    target_tokens: int  # number of tokens to predict
    examples: Indices  # the indices of the examples; for windows of text, their starts in the stream
    source: Tensor | None = None  # (B, S) ids, each sentence ended by </s>
    mask: Tensor | None = None  # (B, S) True for real tokens; None if there is no padding, and for packed pairs
    target_in: Tensor | None = None  # (B, T) ids, each sentence beginning with <s>
    segments: Tensor | None = None  # each token's text, by its number in the row from 1; None: all attend to each other
    alignment: Tensor | None = None  # (B, T, S) target attention from word alignments; each row sums to 1 or 0
    # (B, N + 1) int32, of N packed pairs: where each sentence begins, and where the last one ends
    source_starts: Tensor | None = None
    target_starts: Tensor | None = None

    @classmethod
    def of(cls, target_out: Ids, examples: Indices, **arrays: NDArray[Any] | None) -> Batch:
        """A batch from numpy arrays, which are not copied; `arrays` are the other fields by name."""
        tensors: dict[str, Any] = {name: torch.from_numpy(array) for name, array in arrays.items() if array is not None}
        count = int((target_out != IGNORE_INDEX).sum())
        return cls(torch.from_numpy(target_out), count, examples, **tensors)

    def map_tensors(self, function: Callable[[Tensor], Tensor]) -> Batch:
        """The batch with a function applied to its tensors."""
        changed: dict[str, Any] = {
            name: function(value) for name, value in self._asdict().items() if isinstance(value, Tensor)
        }
        return self._replace(**changed)


MakeBatch = Callable[[int], Batch]  # takes the number of a batch; returns this process's shard of it


class Epoch(NamedTuple):
    """The batches of one epoch."""

    plan: BatchPlan
    make: MakeBatch


def pad(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor | None]:
    """(B, longest) ids, and their mask; None if there is no padding."""
    width = max(map(len, rows))
    ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], device=device)
    lengths = torch.tensor([[len(row)] for row in rows], device=device)
    return ids, None if all(len(row) == width for row in rows) else torch.arange(width, device=device) < lengths


def row_count(batch: Batch) -> int:
    """The number of rows or packed pairs, which is the largest number of parts of a batch."""
    return len(batch.target_out) if batch.source_starts is None else max(len(batch.examples), 1)


def split_batch(batch: Batch, parts: int) -> list[Batch]:
    """Split a batch into at most `parts` batches of about the same size, to fit in the memory of a device."""
    if parts == 1:
        return [batch]
    if batch.source_starts is None:
        size = -(-len(batch.target_out) // parts)
        rows = [slice(first, first + size) for first in range(0, len(batch.target_out), size)]
        split = [batch.map_tensors(itemgetter(part))._replace(examples=batch.examples[part]) for part in rows]
    else:
        split = _split_packed(batch, parts)
    return [part._replace(target_tokens=int((part.target_out != IGNORE_INDEX).sum())) for part in split]


def _split_packed(batch: Batch, parts: int) -> list[Batch]:
    """Packed pairs as parts of about the same number of tokens."""
    source, target_in = cast(Tensor, batch.source), cast(Tensor, batch.target_in)
    source_starts, target_starts = cast(Tensor, batch.source_starts), cast(Tensor, batch.target_starts)
    ends = (source_starts[0] + target_starts[0])[1:].tolist()
    bounds = [0, *sorted({1 + bisect_left(ends, ends[-1] * part / parts) for part in range(1, parts + 1)})]
    split = []
    for first, last in pairwise(bounds):
        in_source = slice(*source_starts[0, [first, last]].tolist())
        in_target = slice(*target_starts[0, [first, last]].tolist())
        part = batch._replace(
            source=source[:, in_source],
            target_in=target_in[:, in_target],
            target_out=batch.target_out[:, in_target],
            source_starts=source_starts[:, first : last + 1] - in_source.start,
            target_starts=target_starts[:, first : last + 1] - in_target.start,
            examples=batch.examples[first:last],
        )
        split.append(part)
    return split


# Pairs

Sides = tuple[SpecialIds, SpecialIds]
OWN_SIDES = (OWN_SPECIAL_IDS, OWN_SPECIAL_IDS)


def pairs(dataset: Dataset, plan: BatchPlan, *, rank: int, world_size: int, special: Sides = OWN_SIDES) -> MakeBatch:
    """The batches of a plan over pairs, or this process's shard of each; `special` are those of both vocabularies."""

    def make(number: int) -> Batch:
        examples = plan.shard(number, rank=rank, world_size=world_size)
        rows, *lengths = plan.shape(number)
        shape = Shape(-(-rows // world_size), *lengths) if plan.fixed else None
        if plan.slots:  # of several processes, each has as many tokens as its sentences
            shape = shape if world_size == 1 else None
            return collate_packed(dataset, examples, shape=shape, slots=plan.slots, special=special)
        return collate(dataset, examples, shape=shape, special=special)

    return make


def collate(dataset: Dataset, examples: Indices, *, shape: Shape | None, special: Sides = OWN_SIDES) -> Batch:
    """Pairs as one batch, padded to the longest, or to a given shape with empty rows at the end."""
    source, mask = _pad(dataset.source, examples, shape and (shape.rows, shape.source))
    target_out, real = _pad(dataset.target, examples, shape and (shape.rows, shape.target))
    target_in = np.empty_like(target_out)
    target_in[:, :1] = special[1].start
    target_in[:, 1:] = target_out[:, :-1]
    source[~mask], target_in[~real], target_out[~real] = special[0].pad, special[1].pad, IGNORE_INDEX
    alignment = None
    if column := dataset.columns.get("alignment"):  # each target token has equal weights on its source tokens
        alignment = np.zeros((*target_out.shape, source.shape[1]), np.float32)
        links = column.gather(examples).astype(np.int64)
        rows = np.repeat(np.arange(len(examples)), column.lengths[examples])
        alignment[rows, links // MAX_TOKENS, links % MAX_TOKENS] = 1
        alignment /= np.maximum(alignment.sum(-1, keepdims=True), 1)
    arrays = {"source": source, "mask": None if mask.all() else mask, "target_in": target_in, "alignment": alignment}
    return Batch.of(target_out, examples, **arrays)


def collate_packed(
    dataset: Dataset, examples: Indices, *, shape: Shape | None, slots: int, special: Sides = OWN_SIDES
) -> Batch:
    """Pairs as one row, without padding between them; with a shape, padding at its end fills it up.

    Padding is divided into the unused `slots`, as if it were sentences.
    """
    source, source_starts, _ = _pack(dataset.source, examples, special[0].pad, shape and shape.source, slots)
    target_out, target_starts, length = _pack(dataset.target, examples, special[1].pad, shape and shape.target, slots)
    target_in = np.roll(target_out, 1)
    target_in[target_starts[target_starts < length]] = special[1].start
    target_in[length:], target_out[length:] = special[1].pad, IGNORE_INDEX
    starts = {"source_starts": source_starts[None], "target_starts": target_starts[None]}
    return Batch.of(target_out[None], examples, source=source[None], target_in=target_in[None], **starts)


def _pack(
    column: Column, examples: Indices, padding: int, size: int | None, slots: int
) -> tuple[Ids, NDArray[np.int32], int]:
    """The ids of these examples one after the other, their starts and the end of the last, and their number of tokens.

    A process without examples gets one token of padding, so that it takes part in the update.
    """
    lengths = column.lengths[examples]
    length = int(lengths.sum())
    size, empty = (size, slots - len(examples)) if size else (max(length, 1), int(not length))
    ids = np.full(size, padding, np.int64)
    ids[:length] = column.gather(examples)
    bounds = np.concatenate([[0], np.cumsum(lengths), np.linspace(length, size, empty + 1)[1:]])
    return ids, bounds.astype(np.int32), length


def _pad(column: Column, examples: Indices, size: tuple[int, int] | None) -> tuple[Ids, NDArray[np.bool_]]:
    """(B, S) the ids of these examples with padding on the right, and where they are not padding.

    A process without examples gets one row of padding, so that it takes part in the update. The row has two
    columns: with one step an rnn would not use its cell, and all processes must have gradients for the same weights.
    """
    lengths = column.lengths[examples]
    rows, width = size or ((len(examples), int(lengths.max())) if len(examples) else (1, 2))
    padded, real = np.zeros((rows, width), np.int64), np.zeros((rows, width), np.bool_)
    real[: len(examples)] = np.arange(width) < lengths[:, None]
    padded[real] = column.gather(examples)
    return padded, real


# Packed rows, for gpt and bert


def packed_epoch(
    column: Column,
    order: Indices,
    config: Config,
    special: SpecialIds,
    *,
    batch_tokens: int,
    seed: int,
    epoch: int,
    rank: int,
    world_size: int,
    cover_all: bool = False,
) -> Epoch:
    """Rows without padding, cut out of the texts one after the other; with `cover_all` they cover every token.

    A gpt predicts every token from those before it; a bert some tokens, which are masked. Their choice is a function of
    (seed, epoch), the text and the position in it; every row has at least one. A process without examples gets one row,
    in which nothing is predicted.
    """
    text, is_bert = config.text, config.model.family == "bert"
    lengths = column.lengths[order] - int(text.continuous)  # the parts of a continuous text have no </s> between them
    ends = np.cumsum(lengths, dtype=np.int64)
    begins = ends - lengths
    numbers = order + len(column.lengths) * repeat_numbers(order)  # a text that is read twice has two numbers
    size = int(ends[-1]) if len(ends) else 0
    length = min(text.context_length, config.model.max_positions, size)
    windows: dict[str, Any] = {"length": length, "batch_tokens": batch_tokens, "cover_all": cover_all}
    plan = plan_windows(size, **windows, seed=seed, epoch=epoch)

    def make(number: int) -> Batch:
        starts = plan.shard(number, rank=rank, world_size=world_size)
        rows = starts if len(starts) else np.zeros(1, np.int64)
        # (B, 1 + T): from the token before each row
        positions = rows[:, None] + np.arange(-1, plan.shape(number).source)
        index = np.searchsorted(ends, positions, side="right")
        offset = positions - begins[index]
        tokens = column.tokens(order[index], offset).astype(np.int64)
        ids, index, offset = tokens[:, 1:], index[:, 1:], offset[:, 1:]
        predicted = np.full(ids.shape, bool(len(starts)))
        if is_bert:
            by_text = splitmix64(numbers[index].astype(np.uint64) + key(seed, epoch))
            random = splitmix64(by_text + offset.astype(np.uint64))
            predicted &= _choose(ids, random, text.mask_probability, special)
            # the input for a token to predict is <mask>, a random token or the token itself
            share = fractions(splitmix64(random))
            ordinary = np.setdiff1d(np.arange(config.model.vocabulary), special)
            other = ordinary[(splitmix64(random + np.uint64(1)) % np.uint64(len(ordinary))).astype(np.int64)]
            inputs = np.where(predicted & (share < MASKED + REPLACED), other, ids)
            inputs = np.where(predicted & (share < MASKED), special.mask, inputs)
        else:
            begins_text = positions[:, 1:] == 0 if text.continuous else offset == 0
            inputs = np.where(begins_text, special.start, tokens[:, :-1])
        segments = index - index[:, :1] + 1 if text.isolate_texts else None
        side = "source" if is_bert else "target_in"
        return Batch.of(np.where(predicted, ids, IGNORE_INDEX), starts, segments=segments, **{side: inputs})

    return Epoch(plan, make)


def _choose(ids: Ids, random: NDArray[np.uint64], probability: float, special: SpecialIds) -> NDArray[np.bool_]:
    """Choose the tokens to predict: in each row, the ordinary tokens with the smallest random numbers."""
    ordinary = ~np.isin(ids, special)
    order = np.argsort(np.where(ordinary, random, np.iinfo(np.uint64).max), axis=1, kind="stable")
    count = np.maximum(np.rint(probability * ordinary.sum(axis=1)), 1)
    chosen = np.zeros(ids.shape, np.bool_)
    np.put_along_axis(chosen, order, np.arange(ids.shape[1]) < count[:, None], axis=1)
    return chosen & ordinary


# Prefetching


def prefetch(make: MakeBatch, numbers: Iterable[int], *, device: torch.device | str) -> Iterator[Batch]:
    """Batches on the device, collated ahead by a thread that ends with the iterator.

    To resume an epoch at batch n, pass `range(n, len(plan))`.
    """
    device = torch.device(device)

    def collated(number: int) -> Batch:
        batch = make(number)
        return batch.map_tensors(Tensor.pin_memory) if device.type == "cuda" else batch  # copied asynchronously

    thread, remaining = ThreadPoolExecutor(1, "regard-prefetch"), iter(numbers)
    try:
        pending = deque(thread.submit(collated, number) for number in islice(remaining, PREFETCH))
        while pending:
            batch = pending.popleft().result()
            pending.extend(thread.submit(collated, number) for number in islice(remaining, 1))
            yield batch.map_tensors(lambda tensor: tensor.to(device, non_blocking=True))
    finally:
        thread.shutdown(cancel_futures=True)
