"""Data: several corpora in one run, each as often as its weight says, and nothing held out is trained on."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from regard.text.tokenizer import Sides
from regard.training.data import Data, Files, prepare
from tests.training.runs import learned, make_config, write_corpus


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    folder = tmp_path_factory.mktemp("weighted")
    os.environ["REGARD_CACHE"] = str(folder / "cache")
    one, two = write_corpus(folder / "one", 300), write_corpus(folder / "two", 120)
    lines = (two / "a.txt").read_text().splitlines()
    (two / "a.txt").write_text("".join(f"under {line}\n" for line in lines))  # none of them in the other corpus
    corpora = [Files(one / "a.txt", one / "b.txt", False), Files(two / "a.txt", two / "b.txt", False, 2.0)]
    tokenizer = learned(one)
    return prepare(corpora, None, make_config("transformer"), Sides(tokenizer, tokenizer), lambda _: None)[0]


def seen(data: Data, epoch: int) -> Counter[int]:
    found = data.epoch(epoch, rank=0, world=1)
    return Counter(int(i) for number in range(len(found.plan)) for i in found.make(number).examples)


def test_every_example_comes_as_often_as_its_weight_says(data: Data) -> None:
    (first, _), (second, _) = data.shares
    for epoch in (0, 1):
        times = seen(data, epoch)
        assert all(times[i] == 1 for i in range(first))
        assert all(times[i] == 2 for i in range(first, first + second))


def test_the_shares_are_all_there_is(data: Data) -> None:
    assert sum(size for size, _ in data.shares) == len(data.train[0])


def test_nothing_held_out_is_trained_on(data: Data) -> None:
    trained = {tuple(data.train[0].source.ids(i).tolist()) for i in range(len(data.train[0]))}
    assert all(tuple(data.valid.source.ids(i).tolist()) not in trained for i in range(len(data.valid)))
