"""The writer generates text after a prompt, token by token, however long."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import cast

import pytest
import torch

import regard
from regard.config import Config
from regard.errors import FolderError, InputError
from regard.models import GPT, build
from regard.models.folder import save_model
from regard.text.tokenizer import END, Tokenizer, train
from regard.translation.translator import Translator
from regard.translation.writer import Writer, _IncrementalDecoder

FAMILIES = {"learned": {"positions": "learned"}, "rotary": {"positions": "rotary"}, "sinusoidal": {}}


@functools.cache
def tokenizer() -> Tokenizer:
    return train(["the old house sees a small bird\n"] * 3, kind="bpe", vocabulary=300)


def make(family: str = "learned", *, running: bool = True) -> Writer:
    shape = {
        "size": 16,
        "heads": 2,
        "feed_forward_size": 32,
        "decoder_layers": 2,
        "max_positions": 16,
        "norm_placement": "pre",
    }
    config = Config.read({
        "model": {"family": "gpt", **shape, **FAMILIES[family], "vocabulary": tokenizer().size},
        "text": {"continuous": running},
    })  # fmt: skip
    torch.manual_seed(0)
    return Writer(build(config.model).eval(), tokenizer(), config)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_text_may_be_longer_than_the_positions(family: str) -> None:
    assert make(family).generate("the old", tokens=50).tokens == 50


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_takes_the_most_probable_token_of_the_model(family: str) -> None:
    writer = make(family)
    ids = tokenizer().encode("the old house")
    model = cast(GPT, writer.models[0])
    with torch.no_grad():
        logits, _ = model.step(torch.tensor([ids]), model.start(torch.zeros(1, 0, dtype=torch.long)))
    logits[..., :5] = -torch.inf
    best = tokenizer().decode([int(logits[0, -1].argmax())])
    assert writer.generate("the old house", tokens=1, temperature=0).text == best


def test_a_sample_depends_on_the_seed() -> None:
    one, same, other = (make().generate("the", tokens=20, seed=seed).text for seed in (1, 1, 2))
    assert one == same != other


def test_the_streamed_tokens_are_the_generated_text() -> None:
    tokens = list(make().stream("the", tokens=40, seed=3))
    assert "".join(token.text for token in tokens) == make().generate("the", tokens=40, seed=3).text
    assert len(tokens) == 40


def test_the_text_ends_before_a_stop_text() -> None:
    whole = make().generate("the", tokens=40, seed=3).text
    stop = whole[10:12]
    cut = make().generate("the", tokens=40, seed=3, stop=[stop])
    assert cut.text == whole[: whole.index(stop)]
    assert cut.finished


@pytest.mark.parametrize("running", [True, False])
def test_an_empty_prompt_is_continued(running: bool) -> None:
    assert make(running=running).generate(tokens=3).tokens >= 1


def test_a_prompt_of_white_space_without_tokens_is_continued() -> None:
    own = train(["the old house sees a small bird"] * 3, kind="wordpiece", vocabulary=300)
    writer = make()
    writer = Writer(GPT(dataclasses.replace(writer.config.model, vocabulary=own.size)).eval(), own, writer.config)
    assert own.encode("\n") == []
    assert writer.generate(" ", tokens=2).tokens == 2


@pytest.mark.parametrize("family", ["rotary", "sinusoidal"])
def test_a_growing_cache_does_not_change_the_text(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = make(family).generate("the old", tokens=40, temperature=0)
    monkeypatch.setattr("regard.translation.writer.INITIAL_CAPACITY", 2)
    grown = make(family).generate("the old", tokens=40, temperature=0)
    assert grown.text == whole.text
    assert grown.log_probability == pytest.approx(whole.log_probability, abs=1e-3)


def test_any_number_of_tokens_can_be_requested() -> None:
    assert next(make("rotary").stream("the", tokens=10**15)).log_probability < 0


def test_continuous_text_never_ends_by_itself() -> None:
    writer = make("rotary")
    with torch.no_grad():
        cast(GPT, writer.models[0]).target.token.weight[END] += 100 * torch.randn(16)
    assert not writer.generate("the", tokens=30).finished


def test_a_character_is_streamed_when_all_its_bytes_are_there() -> None:
    ids = tokenizer().encode("a😀b")
    decoder = _IncrementalDecoder(tokenizer(), [], [])
    pieces = [decoder.add(number, last=False)[0] for number in ids]
    assert "".join(pieces) == "a😀b"
    assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in pieces)


@pytest.mark.parametrize("prompt", ["a\0", "\ud800"])
def test_an_unreadable_prompt_is_refused(prompt: str) -> None:
    with pytest.raises(InputError, match="the prompt cannot be read"):
        make().generate(prompt, tokens=1)


def test_a_gpt_folder_is_a_writer_and_no_translator(tmp_path: Path) -> None:
    writer, folder = make(), tmp_path / "gpt"
    save_model(folder, writer.models[0], writer.config, {"tokenizer.json": tokenizer().text}, force=False)
    loaded = regard.load(folder)
    assert loaded.generate("the", tokens=5).text == writer.generate("the", tokens=5).text  # type: ignore[union-attr]
    with pytest.raises(FolderError, match="does not translate: use regard generate"):
        Translator.load(folder)
