"""What a run leaves for those who look at it: curves, a film, TensorBoard files and a card."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from regard.inspection import film
from regard.training import observers as watching
from regard.training import tensorboard as board
from regard.training.card import languages, model_card
from regard.training.data import Files, prepare
from regard.training.loop import Progress, Training, Validation
from tests.training.runs import make_config, make_training, write_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("files"))


@pytest.fixture(autouse=True)
def _cached(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(corpus / "cache"))


def looked_at(folder: Path, corpus: Path, told: list[tuple[str, dict[str, Any]]], said: list[str]) -> Training:
    folder.mkdir(exist_ok=True)
    training = make_training(folder, corpus, make_config("transformer", film=2))
    training.resume()
    watching.watched(
        training,
        lambda model: Validation(float(training.progress.update), {"valid_loss": 3.0, "bleu": 1.0}),
        lambda kind, facts: told.append((kind, facts)),
        said.append,
    )
    return training


@pytest.mark.slow
def test_a_run_is_told_of_drawn_and_filmed(corpus: Path, tmp_path: Path) -> None:
    told: list[tuple[str, dict[str, Any]]] = []
    training = looked_at(tmp_path, corpus, told, [])
    assert [kind for kind, _ in told if kind != "update"] == [
        "begun",
        "saved",
        "validation",
        "saved",  # the best so far
        "saved",
        "validation",
        "saved",
    ]
    begun = told[0][1]
    assert begun["updates"] == 12
    assert begun["operations"] > 0
    assert all(facts["seconds"] > 0 for kind, facts in told if kind in ("update", "validation", "saved"))
    assert list(film.frames(tmp_path)) == [6, 12]
    assert list((tmp_path / board.BOARD).iterdir())
    watching.draw(training)
    assert {path.name for path in tmp_path.iterdir()} >= {"training.png", "training.svg", "film.html"}
    assert "BLEU 1.0" in (tmp_path / "film.html").read_text()


def test_without_tensorboard_one_line_says_how_to_get_it(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "installed", lambda: False)
    said: list[str] = []
    looked_at(tmp_path, corpus, [], said)
    assert [line for line in said if "regard[tensorboard]" in line] == said
    assert len(said) == 1
    assert not (tmp_path / board.BOARD).exists()


@pytest.mark.parametrize("family", ["transformer", "gpt"])
def test_the_card_says_what_a_model_is_and_where_it_comes_from(family: str, corpus: Path, tmp_path: Path) -> None:
    training = make_training(tmp_path / "mine", corpus, make_config(family))
    training.progress = Progress(update=12, tokens=3456, best_update=6, seconds=600.0, skipped=2)
    files = Files(corpus / "a.txt", None if family == "gpt" else corpus / "b.txt", family == "gpt")
    scores = {"loss": 1.5, "bleu": {"score": 41.25, "signature": "nrefs:1|case:mixed"}}
    command = "regard train a.txt b.txt --out mine"
    card = model_card(training, scores, corpora=[files], valid=None, command=command, start="`runs/old`", kept=[6])
    for words in (
        "# mine", "![training](training.png)", f"    {command}", "| BLEU | 41.25 | `nrefs:1\\|case:mixed` |",
        "perplexity 4.48", "`a.txt`", " MB", "held out", "read 400", "`runs/old`", "12, the last in epoch 1", "3,456",
        "10 min", "cores", "fp32", "| seed | 1 |", "regard 0.", "torch ", "2, whose loss or gradient was no number",
    ):  # fmt: skip
        assert words in card, words
    rows = [line for line in card.splitlines() if line.startswith("|")]
    assert all(re.search(r"\|$", row) for row in rows)


def test_the_card_says_how_many_validation_pairs_were_left_out(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "valid.txt").write_text("the house\n\n")
    training = make_training(tmp_path, corpus, make_config("transformer"))
    files = Files(corpus / "a.txt", corpus / "b.txt", False)
    valid = Files(tmp_path / "valid.txt", tmp_path / "valid.txt", False)
    training.data, _ = prepare([files], valid, training.config, training.data.tokenizers, lambda _: None)
    card = model_card(training, {"loss": 1.5}, corpora=[files], valid=valid, command="", start="", kept=[])
    assert "<br>validation: read 2 pairs; left out 1 empty |" in card


@pytest.mark.parametrize(
    ("source", "target", "found"),
    [("train.en", "train.fr", ("en", "fr")), ("a.en.gz", "a.de.gz", ("en", "de")), ("a.txt", "b.txt", None)],
)
def test_languages_are_read_off_the_names_of_files(source: str, target: str, found: tuple[str, str] | None) -> None:
    assert languages(Files(Path(source), Path(target), False)) == found


def test_no_display_is_needed_to_draw(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "TkAgg")
    monkeypatch.delenv("DISPLAY", raising=False)
    assert "DISPLAY" not in os.environ
    training = make_training(tmp_path, corpus, make_config("rnn-none"))
    watching.draw(training)
    assert (tmp_path / "training.png").is_file()
