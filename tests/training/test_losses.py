"""Guided alignment: attention is drawn to links, and where there are none to what both sides agree on."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from regard.config import Config
from regard.errors import ConfigError
from regard.models import build
from regard.text.batching import Batch
from regard.text.tokenizer import Tokenizers
from regard.training.data import Data, Files, prepare
from regard.training.losses import check_guided, guided_loss, objective, own_links
from tests.training.runs import learned, make_config, write_corpus


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    """Words and the same backwards, with the links that say so."""
    folder = write_corpus(tmp_path_factory.mktemp("linked"))
    os.environ["REGARD_CACHE"] = str(folder / "cache")
    lengths = [len(line.split()) for line in (folder / "a.txt").read_text().splitlines()]
    lines = [" ".join(f"{i}-{length - 1 - i}" for i in range(length)) for length in lengths]
    (folder / "links").write_text("".join(f"{line}\n" for line in lines))
    files = Files(folder / "a.txt", folder / "b.txt", False, alignments=folder / "links")
    tokenizer = learned(folder)
    return prepare([files], None, make_config("transformer"), Tokenizers(tokenizer, tokenizer), lambda _: None)[0]


def on_links(data: Data, family: str, guided: float, **train: float) -> float:
    """The mean of what the guided head gives to linked words after a few updates on one batch."""
    config = make_config(family, guided_alignment=guided, **train)
    shape = dataclasses.replace(config.model, vocabulary=data.tokenizers.source.size, dropout=0.0, decoder_layers=2)
    torch.manual_seed(1)
    epoch = data.epoch(0, rank=0, world_size=1)
    longest = max(map(epoch.make, range(len(epoch.plan))), key=lambda batch: batch.source.shape[1])
    model, batch = build(shape), longest.each(lambda tensor: tensor[:8])
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(25):
        optimizer.zero_grad()
        (objective(model, batch, config.train).loss / batch.target_tokens).backward()
        optimizer.step()
    record: dict[str, torch.Tensor] = {}
    with torch.no_grad():
        model(batch, record)
    given = record["decoder.0.cross"][:, 0]
    return float((given * (batch.alignment > 0)).sum() / batch.alignment.sum())


@pytest.mark.parametrize("family", ["transformer", "rnn-input", "rnn-output"])
def test_attention_is_drawn_to_gold_links(data: Data, family: str) -> None:
    assert on_links(data, family, 1.0) > 1.2 * on_links(data, family, 0.0)


def test_r_drop_goes_with_it(data: Data) -> None:
    assert on_links(data, "transformer", 1.0, r_drop=1.0) > 1.2 * on_links(data, "transformer", 0.0, r_drop=1.0)


def test_the_plain_loss_is_that_of_the_words_alone(data: Data) -> None:
    config = make_config("transformer")
    model = build(dataclasses.replace(config.model, vocabulary=data.tokenizers.source.size)).eval()
    batch = data.epoch(0, rank=0, world_size=1).make(0)
    guided = objective(model, batch, dataclasses.replace(config.train, guided_alignment=1.0))
    alone = objective(model, batch, config.train)
    torch.testing.assert_close(guided.plain, alone.plain)
    assert guided.loss > alone.loss


def test_the_guided_loss_is_the_cross_entropy_of_the_first_head() -> None:
    weights = torch.tensor([[[[0.5, 0.25, 0.25], [0.1, 0.9, 0.0]], [[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]]]])
    links = torch.tensor([[[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]])
    expected = -(0.5 * np.log(0.5) + 0.5 * np.log(0.25))
    assert float(guided_loss(weights, links)) == pytest.approx(expected)


def test_own_links_are_those_both_sides_agree_on() -> None:
    weights = torch.tensor([[[[0.8, 0.1, 0.1], [0.6, 0.3, 0.1], [0.35, 0.25, 0.4], [0.0, 0.0, 1.0]]]])
    source, target = torch.tensor([[7, 8, 9]]), torch.tensor([[5, 6, 7, 0]])
    batch = Batch(source, None, target, target, None, 3, 3, np.arange(1))
    assert own_links(weights, batch)[0].nonzero().tolist() == [[0, 0], [2, 2]]  # the last row is padding


def test_attention_that_is_spread_evenly_teaches_nothing() -> None:
    ids = torch.full((1, 6), 7)
    batch = Batch(ids, None, ids, ids, None, 6, 6, np.arange(1))
    assert own_links(torch.full((1, 2, 6, 6), 1 / 6), batch).sum() == 0


@pytest.mark.parametrize(
    ("values", "links", "message"),
    [
        (["model.family=gpt", "train.guided_alignment=0.1"], False, "and a gpt has none"),
        (["model.family=bert", "train.guided_alignment=0.1"], False, "and a bert has none"),
        (
            ["model.family=rnn", "model.score=none", "train.guided_alignment=0.1"],
            False,
            "model.score = none has no attention",
        ),
        ([], True, "give its weight, such as --set train.guided_alignment=0.05"),
        (["train.guided_alignment=0.1", "text.bpe_dropout=0.1"], True, "set text.bpe_dropout=0"),
    ],
)
def test_what_cannot_be_guided_is_refused(values: list[str], links: bool, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_guided(Config().with_values(values), links=links)


def test_a_corpus_without_links_stands_beside_one_with(data: Data, tmp_path: Path) -> None:
    one, two = write_corpus(tmp_path / "one", 100), write_corpus(tmp_path / "two", 60)
    (one / "links").write_text("0-0\n" * 100)
    files = [
        Files(one / "a.txt", one / "b.txt", False, alignments=one / "links"),
        Files(two / "a.txt", two / "b.txt", False),
    ]
    found = prepare(files, None, make_config("transformer"), data.tokenizers, lambda _: None)[0].train[0]
    linked = found.columns["links"].lengths > 0
    assert linked.any()
    assert not linked[-20:].any()
