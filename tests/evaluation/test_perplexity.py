"""Perplexity: what a text costs a gpt or a bert, as validation in training has it."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
import torch

import regard
from regard.devices import find_device
from regard.errors import DataError
from regard.evaluation.perplexity import Perplexity
from regard.models import build
from regard.models.folder import save_model
from regard.text.tokenizer import Tokenizers
from regard.training.data import Files, prepare
from regard.training.distributed import Runtime
from regard.training.validation import valid_loss
from tests.training.runs import learned, make_config, write_corpus


def measured(folder: Path, text: Path) -> Perplexity:
    found = regard.evaluate(folder, source=text, device="cpu")
    assert isinstance(found, Perplexity)
    return found


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"), 60)


def made(folder: Path, corpus: Path, family: str, *, running: bool = False) -> Path:
    config, tokenizer = make_config(family), learned(corpus)
    config = dataclasses.replace(
        config,
        model=dataclasses.replace(config.model, vocabulary=tokenizer.size),
        text=dataclasses.replace(config.text, continuous=running),
    )
    torch.manual_seed(1)
    save_model(folder, build(config.model), config, {"tokenizer.json": tokenizer.text}, force=False)
    return folder


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize("family", ["gpt", "bert"])
def test_it_is_what_validation_in_training_finds(
    tmp_path: Path, corpus: Path, family: str, running: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    folder = made(tmp_path / "model", corpus, family, running=running)
    found = measured(folder, corpus / "a.txt")
    from regard.models.folder import load_model

    model, config = load_model(folder)
    files = Files(corpus / "a.txt", None, True, continuous=running)
    data = prepare([files], files, config, Tokenizers.load(folder), lambda _: None)
    told = valid_loss(model, data, Runtime(find_device("cpu"), 0, 1))
    assert found.nats == pytest.approx(told, rel=1e-5)
    assert found.perplexity == pytest.approx(math.exp(told), rel=1e-4)


def test_a_gpt_has_perplexity_per_word_and_bits_per_character_and_a_bert_has_not(tmp_path: Path, corpus: Path) -> None:
    (tmp_path / "text").write_text("the house\n\na tree\n")
    gpt = measured(made(tmp_path / "gpt", corpus, "gpt"), tmp_path / "text").to_dict()
    assert (gpt["words"], gpt["characters"], gpt["signature"]) == (6, 17, f"window:{gpt['window']}|overlap:no")
    assert gpt["bits_per_character"] * 17 * math.log(2) == pytest.approx(gpt["nats"] * gpt["tokens"])
    bert = measured(made(tmp_path / "bert", corpus, "bert"), tmp_path / "text").to_dict()
    assert "perplexity_per_word" not in bert
    assert bert["signature"].endswith("masked:0.15|seed:0")


def test_a_text_of_empty_lines_is_refused(tmp_path: Path, corpus: Path) -> None:
    (tmp_path / "text").write_text("\n\n")
    with pytest.raises(DataError, match="is empty or has only empty lines"):
        measured(made(tmp_path / "gpt", corpus, "gpt"), tmp_path / "text")
