"""Batching: tokens, padding, masks, packed rows and masked tokens; the prefetcher ends its thread."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from regard.config import Config
from regard.text.batching import (
    IGNORE_INDEX,
    PREFETCH,
    Batch,
    Epoch,
    collate,
    collate_packed,
    packed_epoch,
    pairs,
    prefetch,
    split_batch,
)
from regard.text.dataset import Column, Dataset
from regard.text.ordering import Shape, packed_shape, plan_batches, plan_packed, plan_shapes
from regard.text.tokenizer import END, MASK, OWN_SPECIAL_IDS, PAD, SPECIALS, START

ALL = {"rank": 0, "world_size": 1}
FIRST = {"seed": 1, "epoch": 0, **ALL}
GPT = Config.read({"model": {"family": "gpt"}, "text": {"context_length": 32}})
BERT = Config.read(
    {"model": {"family": "bert", "vocabulary": 100}, "text": {"isolate_texts": True, "context_length": 32}}
)


def column(rows: list[list[int]]) -> Column:
    lengths = np.array([len(row) for row in rows], np.int32)
    flat = np.array([number for row in rows for number in row], np.uint16)
    return Column.of(flat, lengths)


def store(**sides: list[list[int]]) -> Dataset:
    columns = {name: column(rows) for name, rows in sides.items()}
    return Dataset(columns, np.zeros((len(next(iter(sides.values()))), len(sides)), np.uint64), {})


PAIRS = store(source=[[7, 8, END], [9, END], [7, 7, END]], target=[[10, END], [11, 12, 13, END], [14, END]])
TEXTS = store(text=[[10 + n % 50] * (n % 7) + [20 + n % 9, END] for n in range(60)])


def whole(examples: list[int], shape: Shape | None = None) -> Batch:
    return collate(PAIRS, np.array(examples, np.int64), shape=shape)


# Pairs


def test_sources_are_padded_on_the_right() -> None:
    batch = whole([0, 1])
    assert batch.source is not None
    assert batch.source.tolist() == [[7, 8, END], [9, END, PAD]]


def test_the_mask_is_true_for_real_tokens() -> None:
    batch = whole([0, 1])
    assert batch.mask is not None
    assert batch.mask.tolist() == [[True, True, True], [True, True, False]]


def test_sources_of_one_length_need_no_mask() -> None:
    assert whole([0, 2]).mask is None


def test_the_target_input_begins_with_the_start_token() -> None:
    batch = whole([0, 1])
    assert batch.target_in is not None
    assert batch.target_in.tolist() == [[START, 10, PAD, PAD], [START, 11, 12, 13]]


def test_the_target_output_ends_with_the_end_token() -> None:
    assert whole([0, 1]).target_out.tolist() == [[10, END, IGNORE_INDEX, IGNORE_INDEX], [11, 12, 13, END]]


def test_target_tokens_are_counted() -> None:
    assert whole([0, 1]).target_tokens == 6


def test_a_fixed_shape_has_empty_rows() -> None:
    batch = whole([0], shape=Shape(2, 4, 3))
    assert batch.source is not None
    assert batch.target_in is not None
    assert batch.source.tolist() == [[7, 8, END, PAD], [PAD] * 4]
    assert batch.target_in.tolist() == [[START, 10, PAD], [PAD] * 3]


def test_an_empty_shard_is_a_row_of_padding() -> None:
    batch = whole([])
    assert batch.source is not None
    assert batch.source.tolist() == [[PAD, PAD]]
    assert batch.target_out.tolist() == [[IGNORE_INDEX, IGNORE_INDEX]]
    assert batch.target_tokens == 0


@pytest.mark.parametrize(("parts", "rows"), [(1, [3]), (2, [2, 1]), (3, [1, 1, 1]), (8, [1, 1, 1])])
def test_a_batch_is_split_by_rows(parts: int, rows: list[int]) -> None:
    batch = whole([0, 1, 2])
    found = split_batch(batch, parts)
    assert [len(part.target_out) for part in found] == rows
    for name, tensor in batch._asdict().items():
        if isinstance(tensor, torch.Tensor):
            assert torch.equal(torch.cat([getattr(part, name) for part in found]), tensor), name
    assert np.concatenate([part.examples for part in found]).tolist() == [0, 1, 2]


def test_parts_of_a_batch_count_their_tokens() -> None:
    batch = whole([0, 1, 2])
    found = split_batch(batch, 2)
    assert sum(part.target_tokens for part in found) == batch.target_tokens
    assert found[0].target_tokens == int((batch.target_out[:2] != IGNORE_INDEX).sum())


def test_a_batch_without_rows_is_not_split() -> None:
    assert len(split_batch(whole([]), 4)) == 1


# Packed pairs


def packed_pairs(examples: list[int], shape: Shape | None = None, slots: int = 0) -> Batch:
    return collate_packed(PAIRS, np.array(examples, np.int64), shape=shape, slots=slots)


def told(batch: Batch) -> dict[str, list[list[int]]]:
    names = "source", "target_in", "target_out", "source_starts", "target_starts"
    return {name: getattr(batch, name).tolist() for name in names}


def test_packed_pairs_lie_one_after_the_other() -> None:
    assert told(packed_pairs([0, 1])) == {
        "source": [[7, 8, END, 9, END]],
        "target_in": [[START, 10, START, 11, 12, 13]],
        "target_out": [[10, END, 11, 12, 13, END]],
        "source_starts": [[0, 3, 5]],
        "target_starts": [[0, 2, 6]],
    }


def test_the_padding_of_a_packed_row_takes_the_place_of_sentences() -> None:
    assert told(packed_pairs([0], Shape(1, 7, 3), slots=3)) == {
        "source": [[7, 8, END, PAD, PAD, PAD, PAD]],
        "target_in": [[START, 10, PAD]],
        "target_out": [[10, END, IGNORE_INDEX]],
        "source_starts": [[0, 3, 5, 7]],
        "target_starts": [[0, 2, 2, 3]],
    }


def test_an_empty_packed_shard_is_one_token_of_padding() -> None:
    batch = packed_pairs([], slots=5)
    assert batch.target_tokens == 0
    assert told(batch)["source"] == [[PAD]]
    assert told(batch)["target_out"] == [[IGNORE_INDEX]]
    assert told(batch)["source_starts"] == [[0, 1]]


@pytest.mark.parametrize("parts", [2, 3, 8])
def test_a_packed_batch_is_split_by_sentences(parts: int) -> None:
    batch = packed_pairs([0, 1, 2], Shape(1, 12, 9), slots=4)
    found = split_batch(batch, parts)
    assert 1 < len(found) <= parts
    assert sum(part.target_tokens for part in found) == batch.target_tokens
    assert np.concatenate([part.examples for part in found]).tolist() == [0, 1, 2]
    for name in ("source", "target_in", "target_out"):
        assert torch.equal(torch.cat([getattr(part, name) for part in found], 1), getattr(batch, name)), name
    for part in found:
        assert part.source is not None
        assert part.source_starts is not None
        assert part.source_starts[0, [0, -1]].tolist() == [0, part.source.shape[1]]


@pytest.mark.parametrize("world_size", [1, 3])
def test_a_packed_plan_gives_every_pair_once(world_size: int) -> None:
    lengths = PAIRS.source.lengths, PAIRS.target.lengths
    found = plan_packed(*lengths, packed_shape(*lengths, 14), seed=1, epoch=0)
    makes = [pairs(PAIRS, found, rank=rank, world_size=world_size) for rank in range(world_size)]
    examples = [make(number).examples for make in makes for number in range(len(found))]
    assert sorted(np.concatenate(examples).tolist()) == [0, 1, 2]


# Plans


def test_a_plan_gives_every_pair_once() -> None:
    found = plan_batches(PAIRS.source.lengths, PAIRS.target.lengths, batch_tokens=14, seed=1, epoch=0)
    make = pairs(PAIRS, found, **ALL)
    assert sorted(np.concatenate([make(n).examples for n in range(len(found))]).tolist()) == [0, 1, 2]


def test_shards_of_a_fixed_shape_have_the_same_shape() -> None:
    plan = plan_shapes(PAIRS.source.lengths, PAIRS.target.lengths, [Shape(10, 50, 40)], seed=1, epoch=0)
    batches = [pairs(PAIRS, plan, rank=rank, world_size=4)(0) for rank in range(4)]
    assert {(batch.source.shape, batch.target_out.shape) for batch in batches} == {((3, 50), (3, 40))}


# Packed rows


ORDER = np.arange(60)
FLAT = np.concatenate([TEXTS.text.ids(n) for n in range(60)]).tolist()


def epoch_of(
    config: Config, *values: str, texts: Dataset = TEXTS, order: object = ORDER, batch_tokens: int = 96, **other: Any
) -> Epoch:
    config = config.with_values(values)
    options: dict[str, Any] = {"batch_tokens": batch_tokens, **FIRST, **other}
    return packed_epoch(texts.text, np.asarray(order), config, OWN_SPECIAL_IDS, **options)


def rows(epoch: Epoch, name: str) -> dict[int, list[int]]:
    """The rows of all batches by their start in the stream, in order."""
    batches = [epoch.make(number) for number in range(len(epoch.plan))]
    return dict(
        sorted(
            (int(start), row.tolist())
            for batch in batches
            for start, row in zip(batch.examples, getattr(batch, name), strict=True)
        )
    )


def flat(epoch: Epoch, name: str) -> list[int]:
    return [token for row in rows(epoch, name).values() for token in row]


def test_every_token_of_a_window_is_predicted_once() -> None:
    epoch = epoch_of(GPT)
    joined, first = flat(epoch, "target_out"), min(epoch.plan.examples)
    assert len(joined) > len(FLAT) - 64
    assert joined == FLAT[first : first + len(joined)]


def test_the_input_is_the_previous_token_or_the_start_token() -> None:
    for start, row in rows(epoch_of(GPT), "target_in").items():
        expected = [
            START if place == 0 or FLAT[place - 1] == END else FLAT[place - 1] for place in range(start, start + 32)
        ]
        assert row == expected


def test_segments_count_the_texts_of_a_row() -> None:
    batch = epoch_of(GPT, "text.isolate_texts=true").make(0)
    assert batch.segments is not None
    ended = (batch.target_out == END).long().cumsum(dim=1)
    assert torch.equal(batch.segments, 1 + ended - (batch.target_out == END).long())


def test_texts_may_be_read_in_another_order() -> None:
    found = flat(epoch_of(GPT, order=ORDER[::-1], cover_all=True), "target_out")
    assert found == np.concatenate([TEXTS.text.ids(n) for n in ORDER[::-1]]).tolist()


def test_a_continuous_text_has_no_end_tokens() -> None:
    epoch = epoch_of(GPT, "text.continuous=true", cover_all=True)
    expected = [number for number in FLAT if number != END]
    assert flat(epoch, "target_out") == expected
    assert flat(epoch, "target_in") == [START, *expected[:-1]]


def masked(*values: str, **other: Any) -> Batch:
    return epoch_of(BERT, *values, **other).make(0)


def test_tokens_to_predict_are_counted() -> None:
    batch = masked()
    assert batch.mask is None
    assert batch.target_tokens == int((batch.target_out != IGNORE_INDEX).sum()) > 0


def test_tokens_to_predict_are_the_real_ones() -> None:
    batch = masked()
    for row, start in zip(batch.target_out.tolist(), batch.examples.tolist(), strict=True):
        original = FLAT[start : start + 32]
        assert all(token in (IGNORE_INDEX, real) for token, real in zip(row, original, strict=True))


def test_special_tokens_are_never_masked() -> None:
    assert not {START, END, MASK} & set(masked("text.mask_probability=0.99").target_out.flatten().tolist())


def test_every_row_has_something_to_predict() -> None:
    assert (masked("text.mask_probability=0.01").target_out != IGNORE_INDEX).any(dim=1).all()


def test_masked_tokens_do_not_depend_on_the_batch() -> None:
    assert rows(epoch_of(BERT), "source") == rows(epoch_of(BERT, batch_tokens=200), "source")


@pytest.mark.parametrize("other", [{"seed": 2}, {"epoch": 1}])
def test_another_seed_or_epoch_masks_other_tokens(other: dict[str, Any]) -> None:
    first, second = (rows(epoch_of(BERT, cover_all=True, **options), "source") for options in ({}, other))
    assert first.keys() == second.keys()
    assert first != second


def test_of_the_tokens_to_predict_most_are_masked_and_a_tenth_replaced() -> None:
    long = store(text=[[50] * 400 + [END] for _ in range(100)])
    values = ("model.vocabulary=10000", "text.continuous=true", "text.context_length=400", "text.isolate_texts=false")
    batch = epoch_of(BERT, *values, texts=long, order=np.arange(100), batch_tokens=50_000, cover_all=True).make(0)
    assert batch.source is not None
    shown = batch.source[batch.target_out != IGNORE_INDEX]
    shares = [float((shown == MASK).float().mean()), float((shown == 50).float().mean())]
    assert batch.target_tokens == 100 * 60
    assert shares == pytest.approx([0.8, 0.1], abs=0.02)
    assert int(shown[(shown != MASK)].min()) >= len(SPECIALS)


def test_a_text_that_is_read_twice_in_an_epoch_masks_other_tokens() -> None:
    texts = store(text=[[50] * 31 + [END]])
    first, second = rows(epoch_of(BERT, texts=texts, order=[0, 0], cover_all=True), "source").values()
    assert first != second


def test_every_window_belongs_to_one_rank() -> None:
    epochs = [epoch_of(GPT, rank=rank, world_size=2) for rank in (0, 1)]
    starts = [epoch.make(0).examples.tolist() for epoch in epochs]
    assert sorted(starts[0] + starts[1]) == sorted(epochs[0].plan.batch(0).tolist())


# Prefetching


def numbered(number: int) -> Batch:
    return whole([number % 3])._replace(target_tokens=number)


def numbers_of(made: list[int], numbers: Iterable[int]) -> Iterator[int]:
    """The numbers of prefetched batches; those that are collated are added to `made`."""

    def make(number: int) -> Batch:
        made.append(number)
        return numbered(number)

    return (batch.target_tokens for batch in prefetch(make, numbers, device="cpu"))


def test_batches_come_in_order_from_the_given_one() -> None:
    made: list[int] = []
    assert list(numbers_of(made, range(7, 40))) == list(range(7, 40)) == made


def test_an_error_in_the_thread_is_raised() -> None:
    def make(number: int) -> Batch:
        if number == 2:
            raise RuntimeError("broken example")
        return numbered(number)

    with pytest.raises(RuntimeError, match="broken example"):
        list(prefetch(make, range(5), device="cpu"))
    assert not prefetching()


def test_the_number_of_prefetched_batches_is_limited() -> None:
    made: list[int] = []
    batches = numbers_of(made, range(100))
    next(batches)
    time.sleep(0.05)
    assert len(made) <= 1 + PREFETCH


def prefetching() -> bool:
    gc.collect()
    return any("regard-prefetch" in thread.name for thread in threading.enumerate())


@pytest.mark.parametrize("read", [0, 3, 20])
def test_no_thread_is_left_when_reading_stops(read: int) -> None:
    batches = numbers_of([], range(20))
    for _ in range(read):
        next(batches)
    del batches
    assert not prefetching()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_batches_arrive_on_the_device() -> None:
    batch = next(prefetch(numbered, range(3), device="cuda"))
    assert batch.target_out.device.type == "cuda"
