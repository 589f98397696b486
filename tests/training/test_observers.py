"""What a run leaves for those who look at it: curves, a film, TensorBoard files and a card."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from regard.inspection import film
from regard.training import observers
from regard.training import tensorboard as board
from regard.training.card import languages, model_card
from regard.training.data import Files, prepare
from regard.training.events import Event, SaveEvent, StartEvent, UpdateEvent, ValidationEvent
from regard.training.loop import Progress, Training
from regard.training.validation import Validation
from tests.training.runs import make_config, make_training, write_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("files"))


@pytest.fixture(autouse=True)
def _cached(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(corpus / "cache"))


def observed(folder: Path, corpus: Path, events: list[Event], lines: list[str]) -> Training:
    folder.mkdir(exist_ok=True)
    training = make_training(folder, corpus, make_config("transformer", film=2))
    training.resume()
    with observers.observing(training, events.append, lines.append) as observe:
        training.run(lambda model: Validation(float(training.progress.update), 3.0, {"bleu": 1.0}), observe)
    return training


@pytest.mark.slow
def test_a_run_is_observed_drawn_and_filmed(corpus: Path, tmp_path: Path) -> None:
    events: list[Event] = []
    training = observed(tmp_path, corpus, events, [])
    assert [type(event) for event in events if not isinstance(event, UpdateEvent)] == [
        StartEvent,
        SaveEvent,
        ValidationEvent,
        SaveEvent,  # the best so far
        SaveEvent,
        ValidationEvent,
        SaveEvent,
    ]
    start = events[0]
    assert isinstance(start, StartEvent)
    assert start.updates == 12
    assert start.flops_per_token > 0
    assert all(event.seconds > 0 for event in events if not isinstance(event, StartEvent))
    assert list(film.frames(tmp_path)) == [6, 12]
    assert list((tmp_path / board.BOARD).iterdir())
    observers.draw(training)
    assert {path.name for path in tmp_path.iterdir()} >= {"training.png", "training.svg", "film.html"}
    assert "BLEU 1.0" in (tmp_path / "film.html").read_text()


def test_without_tensorboard_one_line_says_how_to_get_it(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observers, "installed", lambda: False)
    lines: list[str] = []
    observed(tmp_path, corpus, [], lines)
    assert [line for line in lines if "regard[tensorboard]" in line] == lines
    assert len(lines) == 1
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
        "10 min", "cores", "fp32", "| seed | 1 |", "regard 0.", "torch ", "2, whose loss or gradient was not finite",
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
    observers.draw(training)
    assert (tmp_path / "training.png").is_file()
