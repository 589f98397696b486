"""Losses: cross-entropy equals torch's, and guided alignment moves attention to the aligned words."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from regard.config import Config
from regard.errors import ConfigError
from regard.models import build
from regard.text.batching import IGNORE_INDEX
from regard.text.tokenizer import Tokenizers
from regard.training.data import Data, Files, prepare
from regard.training.losses import (
    batch_loss,
    cross_entropy,
    guided_alignment_loss,
)
from regard.training.train import Request, check_request
from tests.training.runs import learned, make_config, write_corpus


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    """Words and the same words backwards, with their alignment."""
    folder = write_corpus(tmp_path_factory.mktemp("linked"))
    os.environ["REGARD_CACHE"] = str(folder / "cache")
    lengths = [len(line.split()) for line in (folder / "a.txt").read_text().splitlines()]
    lines = [" ".join(f"{i}-{length - 1 - i}" for i in range(length)) for length in lengths]
    (folder / "links").write_text("".join(f"{line}\n" for line in lines))
    files = Files(folder / "a.txt", folder / "b.txt", False, alignments=folder / "links")
    tokenizer = learned(folder)
    return prepare([files], None, make_config("transformer"), Tokenizers(tokenizer, tokenizer), lambda _: None)


def attention_on_aligned_words(data: Data, family: str, guided: float, **train: float) -> float:
    """The mean attention of the guided head to aligned words after a few updates on one batch."""
    config = make_config(family, guided_alignment=guided, **train)
    shape = dataclasses.replace(config.model, vocabulary=data.tokenizers.source.size, dropout=0.0, decoder_layers=2)
    torch.manual_seed(1)
    epoch = data.epoch(0, rank=0, world_size=1)
    longest = max(map(epoch.make, range(len(epoch.plan))), key=lambda batch: batch.source.shape[1])
    model, batch = build(shape), longest.map_tensors(lambda tensor: tensor[:8])
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(25):
        optimizer.zero_grad()
        (batch_loss(model, batch, config.train)[0] / batch.target_tokens).backward()
        optimizer.step()
    record: dict[str, torch.Tensor] = {}
    with torch.no_grad():
        model(batch, record)
    attention = record["decoder.0.cross"][:, 0]
    return float((attention * (batch.alignment > 0)).sum() / batch.alignment.sum())


@pytest.mark.parametrize("family", ["transformer", "rnn-input", "rnn-output"])
def test_guided_alignment_moves_attention_to_the_aligned_words(data: Data, family: str) -> None:
    assert attention_on_aligned_words(data, family, 1.0) > 1.2 * attention_on_aligned_words(data, family, 0.0)


def test_guided_alignment_works_together_with_r_drop(data: Data) -> None:
    assert attention_on_aligned_words(data, "transformer", 1.0, r_drop=1.0) > 1.2 * attention_on_aligned_words(
        data, "transformer", 0.0, r_drop=1.0
    )


def test_the_negative_log_likelihood_leaves_guided_alignment_out(data: Data) -> None:
    config = make_config("transformer")
    model = build(dataclasses.replace(config.model, vocabulary=data.tokenizers.source.size)).eval()
    batch = data.epoch(0, rank=0, world_size=1).make(0)
    guided_loss, guided_nll = batch_loss(model, batch, dataclasses.replace(config.train, guided_alignment=1.0))
    loss, nll = batch_loss(model, batch, config.train)
    torch.testing.assert_close(guided_nll, nll)
    assert guided_loss > loss


def test_the_guided_alignment_loss_is_the_cross_entropy_of_the_first_head() -> None:
    weights = torch.tensor([[[[0.5, 0.25, 0.25], [0.1, 0.9, 0.0]], [[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]]]])
    links = torch.tensor([[[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]])
    expected = -(0.5 * np.log(0.5) + 0.5 * np.log(0.25))
    assert float(guided_alignment_loss(weights, links)) == pytest.approx(expected)


@pytest.mark.parametrize(
    "values", [["model.family=gpt"], ["model.family=bert"], ["model.family=rnn", "model.score=none"]]
)
def test_guided_alignment_needs_attention_to_a_source(values: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"train.guided_alignment needs a translator with attention to its source"):
        Config().with_values([*values, "train.guided_alignment=0.1"])


@pytest.mark.parametrize(
    ("values", "aligned", "message"),
    [
        ([], True, "needs its weight, --set train.guided_alignment=0.05"),
        (["train.guided_alignment=0.1"], False, "needs word alignments, --alignments FILE"),
        (["train.guided_alignment=0.1", "text.bpe_dropout=0.1"], True, "set text.bpe_dropout=0"),
    ],
)
def test_guided_alignment_is_refused_where_it_cannot_work(
    values: list[str], aligned: bool, message: str, tmp_path: Path
) -> None:
    paths = [tmp_path / name for name in ("source", "target", "alignments")]
    for path, text in zip(paths, ("the house\n", "la maison\n", "0-0 1-1\n"), strict=True):
        path.write_text(text)
    files = Files(paths[0], paths[1], False, alignments=paths[2] if aligned else None)
    with pytest.raises(ConfigError, match=message):
        check_request(Request((files,), None, tmp_path / "out", Config().with_values(values), call=""))


def test_a_corpus_without_alignments_can_be_trained_beside_one_with_them(data: Data, tmp_path: Path) -> None:
    one, two = write_corpus(tmp_path / "one", 100), write_corpus(tmp_path / "two", 60)
    (one / "links").write_text("0-0\n" * 100)
    files = [
        Files(one / "a.txt", one / "b.txt", False, alignments=one / "links"),
        Files(two / "a.txt", two / "b.txt", False),
    ]
    found = prepare(files, None, make_config("transformer"), data.tokenizers, lambda _: None).train[0]
    linked = found.columns["alignment"].lengths > 0
    assert linked.any()
    assert not linked[-20:].any()


# Cross-entropy


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 0.6])
@pytest.mark.parametrize("padded", [False, True])
def test_loss_and_gradient_equal_those_of_torch(label_smoothing: float, padded: bool) -> None:
    logits = torch.randn(4, 5, 11, requires_grad=True)
    labels = torch.randint(1, 11, (4, 5))
    if padded:
        labels[1, 3:] = IGNORE_INDEX
    expected = F.cross_entropy(
        logits.flatten(0, 1),
        labels.flatten(),
        reduction="sum",
        label_smoothing=label_smoothing,
        ignore_index=IGNORE_INDEX,
    )
    loss, _ = cross_entropy(logits, labels, label_smoothing)
    torch.testing.assert_close(loss, expected)
    (wanted,) = torch.autograd.grad(expected / 7, logits)
    (got,) = torch.autograd.grad(loss / 7, logits)
    torch.testing.assert_close(got, wanted)


def test_without_gradients_the_loss_is_the_same() -> None:
    logits, labels = torch.randn(3, 11), torch.tensor([1, IGNORE_INDEX, 10])
    with torch.no_grad():
        without = cross_entropy(logits, labels, 0.1)
    torch.testing.assert_close(without, cross_entropy(logits.requires_grad_(), labels, 0.1))


@pytest.mark.parametrize("learning", [False, True])
def test_the_negative_log_likelihood_has_no_label_smoothing_and_no_gradient(learning: bool) -> None:
    logits, labels = torch.randn(3, 11, requires_grad=learning), torch.tensor([1, IGNORE_INDEX, 10])
    with torch.set_grad_enabled(learning):
        _, nll = cross_entropy(logits, labels, 0.3)
    expected = F.cross_entropy(logits, labels, reduction="sum", ignore_index=IGNORE_INDEX)
    torch.testing.assert_close(nll, expected.detach())
    assert not nll.requires_grad


def test_the_gradient_equals_finite_differences() -> None:
    logits = torch.randn(3, 5, requires_grad=True)
    labels = torch.tensor([1, IGNORE_INDEX, 4])
    with torch.no_grad():
        small = 1e-2
        numeric = torch.zeros_like(logits)
        for i in range(3):
            for j in range(5):
                nudge = torch.zeros_like(logits)
                nudge[i, j] = small
                up, down = (cross_entropy(logits.double() + s * nudge, labels, 0.2)[0] for s in (1, -1))
                numeric[i, j] = (up - down) / (2 * small)
    (got,) = torch.autograd.grad(cross_entropy(logits, labels, 0.2)[0], logits)
    torch.testing.assert_close(got, numeric, rtol=1e-3, atol=1e-3)
