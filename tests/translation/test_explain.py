"""A folder of any family and a sentence become a trace, its own words or given ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from regard.config import Config
from regard.errors import ConfigError, InputError
from regard.models import build
from regard.models.folder import save_model
from regard.text.tokenizer import train
from regard.translation.explain import look

SHAPES = {
    "transformer": {"decoder_layers": 1},
    "rnn": {"decoder_layers": 1, "score": "none"},
    "gpt": {"decoder_layers": 1, "positions": "learned"},
    "bert": {"activation": "gelu"},
}


@pytest.fixture(scope="module", params=SHAPES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(request.param, tmp_path_factory.mktemp("folders"))


def made(family: str, parent: Path) -> Path:
    """A model folder of a family, named after it."""
    tokenizer = train(["the old house sees a small bird"] * 3, kind="words", vocabulary=40)
    shape = {
        "size": 16,
        "heads": 2,
        "feed_forward_size": 32,
        "encoder_layers": 1,
        "max_positions": 24,
        **SHAPES[family],
    }
    config = Config.read({"model": {"family": family, **shape, "vocabulary": tokenizer.size}})
    torch.manual_seed(0)
    save_model(parent / family, build(config.model), config, {"tokenizer.json": tokenizer.text}, force=False)
    return parent / family


def test_a_sentence_becomes_a_trace_with_its_hidden_states(folder: Path) -> None:
    found = look(folder, "the old house")
    assert [word for word, special in zip(found.trace.source.words, found.trace.source.special, strict=True)
            if not special] == ["the", "old", "house"]  # fmt: skip
    assert len(found.trace.alternatives) == len(found.trace.log_probabilities) > 0
    assert found.trace.hidden


def test_given_words_are_explained_instead_of_its_own(folder: Path) -> None:
    if found_family(folder) == "bert":
        with pytest.raises(ConfigError, match="writes nothing"):
            look(folder, "the old house", target="a bird")
        return
    found = look(folder, "the old house", target="a bird").trace
    assert found.target.words == ["a", "bird", "</s>"]
    assert found.score == pytest.approx(float(found.log_probabilities.mean()))


def found_family(folder: Path) -> str:
    return look(folder, "the").trace.family


def test_a_search_leaves_its_tree(tmp_path: Path) -> None:
    found = look(made("transformer", tmp_path), "the old house", beams=3).trace
    assert len(found.tree) >= len(found.target.ids)


@pytest.mark.parametrize("text", ["", "  \t", "a\0b"])
def test_what_is_no_sentence_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="sentence"):
        look(tmp_path, text)


def test_more_than_a_model_can_read_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="tokens"):
        look(folder, "the " * 400)
