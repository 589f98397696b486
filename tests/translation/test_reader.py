"""The reader fills gaps with the model's most probable tokens and embeds texts."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.config import Config
from regard.errors import FolderError, InputError
from regard.models import build
from regard.models.folder import save_model
from regard.text.tokenizer import END, MASK, Tokenizer, train
from regard.translation.reader import Reader
from regard.translation.translator import Translator


@functools.cache
def tokenizer() -> Tokenizer:
    return train(["the old house sees a small bird\n"] * 3, kind="bpe", vocabulary=300)


def make(**text: Any) -> Reader:
    shape = {
        "size": 16,
        "heads": 2,
        "feed_forward_size": 32,
        "encoder_layers": 2,
        "max_positions": 16,
        "activation": "gelu",
    }
    config = Config.read({"model": {"family": "bert", **shape, "vocabulary": tokenizer().size}, "text": text})
    torch.manual_seed(0)
    return Reader(build(config.model).eval(), tokenizer(), config)  # type: ignore[arg-type]


@torch.inference_mode()
def states(reader: Reader, text: str) -> np.ndarray:
    ids = [*tokenizer().encode(text), END]
    return reader.model.encode(torch.tensor([ids]))[0].numpy()  # type: ignore[no-any-return]


def test_a_gap_is_filled_with_the_most_probable_tokens() -> None:
    reader = make()
    ids = [*tokenizer().encode("the old"), MASK, *tokenizer().encode(" sees"), END]
    with torch.no_grad():
        shares = reader.model.logits(reader.model.encode(torch.tensor([ids]))).softmax(-1)[0, ids.index(MASK)]
    shares[:5] = 0
    found = reader.fill("the old [MASK] sees", top=3)
    assert [guess.probability for guess in found.gaps[0]] == pytest.approx(shares.topk(3).values.tolist(), abs=1e-6)
    assert found.text == f"the old {found.gaps[0][0].text} sees"


def test_every_gap_is_filled_whichever_way_it_is_written() -> None:
    one, other = make().fill("the [MASK] sees a [MASK]", top=2), make().fill("the <mask> sees a <mask>", top=2)
    assert one == other
    assert len(one.gaps) == 2


@pytest.mark.parametrize(
    ("text", "problem"), [("the house", "no .MASK."), ("[MASK]\0", "NUL"), ("[MASK]" + " a" * 50, "reads 16")]
)
def test_a_text_that_cannot_be_filled_is_refused(text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        make().fill(text, top=1)


def test_an_embedding_is_the_mean_of_the_tokens_or_the_first() -> None:
    reader, seen = make(), states(make(), "the old house")
    assert np.allclose(reader.embed(["the old house"])[0], seen.mean(0), atol=1e-5)
    assert np.allclose(reader.embed(["the old house"], pool="first")[0], seen[0], atol=1e-5)


def test_embeddings_do_not_depend_on_the_batch_and_empty_texts_are_zeros() -> None:
    texts = ["the old house", "", "a", " ", "the small bird sees a house"]
    found = make().embed(texts)
    assert found.dtype == np.float32
    assert not found[[1, 3]].any()
    for text, row in zip(texts, found, strict=True):
        assert np.allclose(make().embed([text])[0], row, atol=1e-5)


def test_texts_may_come_from_a_generator() -> None:
    texts = ["the old house", "a"]
    assert np.array_equal(make().embed(text for text in texts), make().embed(texts))


def test_a_single_string_is_not_embedded_letter_by_letter() -> None:
    with pytest.raises(InputError, match="in brackets"):
        make().embed("the old house")


def test_what_is_no_text_is_not_embedded() -> None:
    with pytest.raises(InputError, match=r"embed takes a list of texts, .*: item 1 is of type int"):
        make().embed([5])  # type: ignore[list-item]


def test_a_text_longer_than_the_positions_is_read_in_parts() -> None:
    long = "the old house sees a small bird " * 5
    assert np.isfinite(make().embed([long])).all()
    assert not np.allclose(make().embed([long]), make().embed([long[:40]]))


def test_a_bert_folder_is_a_reader_and_no_translator(tmp_path: Path) -> None:
    reader, folder = make(), tmp_path / "bert"
    save_model(folder, reader.model, reader.config, {"tokenizer.json": tokenizer().text}, force=False)
    loaded = regard.load(folder)
    assert isinstance(loaded, Reader)
    assert loaded.fill("the [MASK]", top=1) == reader.fill("the [MASK]", top=1)
    with pytest.raises(FolderError, match="use regard fill or regard embed"):
        Translator.load(folder)
    with pytest.raises(FolderError, match="not supported for a bert"):
        Reader.load(f"{folder}+{folder}")
