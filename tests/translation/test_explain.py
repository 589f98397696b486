"""`regard.explain` traces a sentence for every family, with the model's own output or a given target."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import regard
from regard.config import Config
from regard.errors import ConfigError, InputError
from regard.models import build
from regard.models.folder import save_model
from regard.text.tokenizer import train
from regard.translation.explain import explain

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
    found = explain(folder, "the old house")
    assert [word for word, special in zip(found.trace.source.words, found.trace.source.special, strict=True)
            if not special] == ["the", "old", "house"]  # fmt: skip
    assert len(found.trace.alternatives) == len(found.trace.log_probabilities) > 0
    assert found.trace.hidden


def test_given_words_are_explained_instead_of_its_own(folder: Path) -> None:
    if family_of(folder) == "bert":
        with pytest.raises(ConfigError, match="does not generate text"):
            explain(folder, "the old house", target="a bird")
        return
    found = explain(folder, "the old house", target="a bird").trace
    assert found.target.words == ["a", "bird", "</s>"]
    assert found.score == pytest.approx(float(found.log_probabilities.mean()))


def family_of(folder: Path) -> str:
    return explain(folder, "the").trace.family


def test_a_search_leaves_its_tree(tmp_path: Path) -> None:
    found = explain(made("transformer", tmp_path), "the old house", beams=3).trace
    assert len(found.tree) >= len(found.target.ids)


@pytest.mark.parametrize("text", ["", "  \t", "a\0b"])
def test_what_is_no_sentence_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="sentence"):
        explain(tmp_path, text)


def test_more_than_a_model_can_read_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="tokens"):
        explain(folder, "the " * 400)


def test_a_loaded_model_is_explained_like_its_folder(folder: Path) -> None:
    assert explain(regard.load(folder, "cpu"), "the old house").to_dict() == explain(folder, "the old house").to_dict()


def test_an_explanation_prints_a_table_and_shows_a_page(folder: Path) -> None:
    view = explain(folder, "the old house")
    assert "most from" in str(view)
    assert "<iframe" in view._repr_html_()


@pytest.mark.parametrize("name", ["why.html", "why.svg", "why.json"])
def test_an_explanation_is_saved_as_its_name_ends(name: str, tmp_path: Path) -> None:
    view = explain(made("transformer", tmp_path), "the old house", layer=0)
    view.save(tmp_path / name)
    assert (tmp_path / name).stat().st_size > 100


def test_the_page_of_a_folder_has_the_languages_of_its_card(tmp_path: Path) -> None:
    folder = made("transformer", tmp_path)
    (folder / "card.md").write_text("A **transformer** that translates from en to fr, trained with Regard.\n")
    explain(folder, "the old house").save(tmp_path / "why.html")
    page = (tmp_path / "why.html").read_text(encoding="utf-8")
    assert {"en", "fr"} == set(re.findall(r'"language":"(\w+)"', page))


def test_an_empty_target_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="target is empty"):
        explain(tmp_path, "the old house", target=" ")
