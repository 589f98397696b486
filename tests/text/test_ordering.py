"""Ordering: every example once, the same batches for any number of processes, little padding, few shapes."""

from __future__ import annotations

import gzip
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from regard.text.ordering import (
    BatchPlan,
    choose_shapes,
    in_passes,
    key,
    mix_corpora,
    noise,
    packed_shape,
    plan_batches,
    plan_packed,
    plan_shapes,
    plan_windows,
    shuffled,
)
from regard.text.tokenizer import CorpusEncoder, train

Lengths = NDArray[np.int64]

lengths = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=60).map(
    lambda pairs: (np.array([s for s, _ in pairs], np.int64), np.array([t for _, t in pairs], np.int64))
)
world_sizes = st.integers(1, 4)


@pytest.fixture(scope="module")
def multi30k(corpora: Path) -> tuple[Lengths, Lengths]:
    sides = []
    for language in ("en", "de"):
        with gzip.open(corpora / f"multi30k/train.{language}.gz", "rt", encoding="utf-8") as file:
            sides.append([line.rstrip("\n") for line in file])
    lines = CorpusEncoder([train(sides[0] + sides[1], kind="bpe", vocabulary=8000)])
    return lines(sides[0])[1], lines(sides[1])[1]


def random_lengths(count: int) -> tuple[Lengths, Lengths]:
    source = 2 + (noise(count, 1) % np.uint64(40)).astype(np.int64)
    return source, source + (noise(count, 2) % np.uint64(7)).astype(np.int64)


def union(plan: BatchPlan, number: int, world_size: int) -> list[int]:
    return sorted(
        np.concatenate([plan.shard(number, rank=rank, world_size=world_size) for rank in range(world_size)]).tolist()
    )


def fill_rate(plan: BatchPlan, source: Lengths, target: Lengths) -> float:
    """The share of padded tokens that are real."""
    padded = (plan.shapes[:, 0] * plan.shapes[:, 1:].sum(axis=1)).sum()
    return float((source + target)[plan.examples].sum() / padded)


@given(lengths, world_sizes)
def test_every_example_is_seen_once_over_all_ranks(sides: tuple[Lengths, Lengths], world_size: int) -> None:
    found = plan_batches(*sides, batch_tokens=100, seed=1, epoch=0)
    seen = [example for number in range(len(found)) for example in union(found, number, world_size)]
    assert sorted(seen) == list(range(len(sides[0])))


@given(lengths)
def test_no_batch_has_more_than_batch_tokens(sides: tuple[Lengths, Lengths]) -> None:
    found = plan_batches(*sides, batch_tokens=100, seed=1, epoch=0)
    assert all(found.shape(number).tokens <= 100 for number in range(len(found)))


@given(lengths)
def test_shapes_hold_their_examples(sides: tuple[Lengths, Lengths]) -> None:
    source, target = sides
    shapes = choose_shapes(source, target, batch_tokens=100, count=4)
    found = plan_shapes(source, target, shapes, seed=1, epoch=0)
    for number in range(len(found)):
        batch, shape = found.batch(number), found.shape(number)
        assert len(batch) <= shape.rows
        assert (source[batch] <= shape.source).all()
        assert (target[batch] <= shape.target).all()


@given(lengths, world_sizes)
def test_fixed_shapes_hold_every_example_once(sides: tuple[Lengths, Lengths], world_size: int) -> None:
    shapes = choose_shapes(*sides, batch_tokens=100, count=4)
    found = plan_shapes(*sides, shapes, seed=1, epoch=0)
    seen = [example for number in range(len(found)) for example in union(found, number, world_size)]
    assert sorted(seen) == list(range(len(sides[0])))


@pytest.mark.parametrize("batch_tokens", [600, 8000])
def test_packed_batches_of_one_shape_are_nearly_full(batch_tokens: int) -> None:
    source, target = random_lengths(20_000)
    shape = packed_shape(source, target, batch_tokens)
    found = plan_packed(source, target, shape, seed=1, epoch=0)
    batches = [found.batch(number) for number in range(len(found))]
    assert sorted(np.concatenate(batches).tolist()) == list(range(20_000))
    assert max(source[batch].sum() for batch in batches) <= shape.source
    assert max(target[batch].sum() for batch in batches) <= shape.target
    assert max(map(len, batches)) < shape.rows
    filled = (source + target).sum() / ((shape.source + shape.target) * len(batches))
    assert filled > (0.97 if batch_tokens == 8000 else 0.85)


def test_the_longest_sentences_fit_into_a_packed_batch() -> None:
    source, target = np.array([500, 3, 4], np.int32), np.array([2, 300, 4], np.int32)
    found = plan_packed(source, target, packed_shape(source, target, 100), seed=1, epoch=0)
    assert sorted(found.examples.tolist()) == [0, 1, 2]


def test_shards_have_about_as_many_tokens() -> None:
    source, target = random_lengths(2000)
    found = plan_batches(source, target, batch_tokens=4000, seed=1, epoch=0)
    tokens = np.array(
        [
            [(source + target)[found.shard(n, rank=r, world_size=4)].sum() for r in range(4)]
            for n in range(len(found) - 1)
        ]
    )
    assert (tokens.max(axis=1) <= 1.1 * tokens.mean(axis=1) + 50).all()


def test_the_same_seed_and_epoch_give_the_same_plan() -> None:
    one, two = (plan_batches(*random_lengths(300), batch_tokens=400, seed=3, epoch=2) for _ in range(2))
    assert np.array_equal(one.examples, two.examples)


@pytest.mark.parametrize("other", [{"seed": 4, "epoch": 2}, {"seed": 3, "epoch": 3}])
def test_another_seed_or_epoch_gives_other_batches(other: dict[str, int]) -> None:
    source, target = random_lengths(3000)
    batches = []
    for numbers in ({"seed": 3, "epoch": 2}, other):
        found = plan_batches(source, target, batch_tokens=1000, **numbers)
        batches.append({frozenset(found.batch(number).tolist()) for number in range(len(found))})
    assert len(batches[0] & batches[1]) < 0.1 * len(batches[0])


def test_batches_do_not_come_in_the_order_of_length() -> None:
    found = plan_batches(*random_lengths(3000), batch_tokens=1000, seed=1, epoch=0)
    widths = found.shapes[:, 1]
    assert 0.3 < (np.diff(widths) > 0).mean() < 0.7


def test_random_numbers_are_the_same_everywhere() -> None:
    assert noise(3, 7, 1).tolist() == [8075172986249684972, 12401800857092103923, 6199670205751106309]


def test_the_order_of_the_key_parts_matters() -> None:
    assert key(1, 2) != key(2, 1)


def test_a_shuffle_has_every_number_once() -> None:
    assert sorted(shuffled(50, 1).tolist()) == list(range(50))


# Several corpora


def test_a_weight_of_three_takes_each_example_three_times() -> None:
    found = mix_corpora([4, 5], [1.0, 3.0], seed=1, epoch=0)
    assert np.bincount(found).tolist() == [1] * 4 + [3] * 5


def test_a_weight_of_a_quarter_takes_all_in_four_epochs() -> None:
    found = np.concatenate([mix_corpora([8], [0.25], seed=1, epoch=epoch) for epoch in range(4)])
    assert sorted(found.tolist()) == list(range(8))


@given(st.integers(1, 30), st.floats(0, 3), st.integers(0, 5))
def test_a_weighted_corpus_is_read_evenly(size: int, weight: float, epoch: int) -> None:
    counts = np.bincount(mix_corpora([size], [weight], seed=1, epoch=epoch), minlength=size)
    assert abs(counts.sum() - weight * size) <= 1
    assert counts.max() - counts.min() <= 2


def test_repeated_examples_come_after_all_others() -> None:
    taken = mix_corpora([3, 2], [2, 1], seed=1, epoch=0)
    assert in_passes(taken).tolist() == [0, 1, 2, 3, 4, 0, 1, 2]


def test_a_mixture_is_planned_with_its_repeats() -> None:
    source, target = random_lengths(20)
    chosen = mix_corpora([10, 10], [2.0, 1.0], seed=1, epoch=0)
    found = plan_batches(source, target, batch_tokens=200, seed=1, epoch=0, examples=chosen)
    assert np.bincount(found.examples).tolist() == [2] * 10 + [1] * 10


# Streams


@given(st.integers(1, 300), st.integers(1, 40), st.integers(0, 3))
def test_windows_do_not_overlap_and_leave_little(tokens: int, length: int, epoch: int) -> None:
    found = plan_windows(tokens, length=length, batch_tokens=100, seed=1, epoch=epoch)
    starts = np.sort(found.examples)
    width = min(length, tokens)
    assert (np.diff(starts) == width).all()
    assert tokens - width * len(starts) < 2 * max(width, 1)
    assert not len(starts) or (starts[0] >= 0 and starts[-1] + width <= tokens)


@given(st.integers(1, 300), st.integers(1, 40))
def test_windows_that_cover_all_have_every_token_once(tokens: int, length: int) -> None:
    found = plan_windows(tokens, length=length, batch_tokens=100, seed=0, epoch=0, cover_all=True)
    covered = [
        place
        for number in range(len(found))
        for start in found.batch(number).tolist()
        for place in range(start, start + found.shape(number).source)
    ]
    assert sorted(covered) == list(range(tokens))


def test_windows_start_elsewhere_in_another_epoch() -> None:
    assert (
        len({int(plan_windows(1000, length=64, batch_tokens=256, seed=1, epoch=e).examples.min()) for e in range(5)})
        > 2
    )


# Figures


@pytest.mark.slow
def test_multi30k_is_filled_to_95_percent(multi30k: tuple[Lengths, Lengths]) -> None:
    assert fill_rate(plan_batches(*multi30k, batch_tokens=4096, seed=1, epoch=0), *multi30k) >= 0.95


@pytest.mark.slow
def test_multi30k_is_filled_to_87_percent_by_sixteen_shapes(multi30k: tuple[Lengths, Lengths]) -> None:
    shapes = choose_shapes(*multi30k, batch_tokens=4096, count=16)
    assert len(shapes) <= 16
    assert fill_rate(plan_shapes(*multi30k, shapes, seed=1, epoch=0), *multi30k) >= 0.87


@pytest.mark.slow
def test_an_epoch_of_a_million_is_planned_in_seconds() -> None:
    sides = random_lengths(1_000_000)
    began = time.perf_counter()
    plan_batches(*sides, batch_tokens=4096, seed=1, epoch=0)
    assert time.perf_counter() - began < 5
