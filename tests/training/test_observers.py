"""What a run leaves for those who look at it: curves, a film, TensorBoard files and a card."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from regard.inspection import film
from regard.training import observers
from regard.training.card import describe_machine, languages, model_card
from regard.training.checkpoint import Progress
from regard.training.data import Files, prepare
from regard.training.distributed import Runtime
from regard.training.events import (
    ActivityEvent,
    Event,
    StartEvent,
    UpdateEvent,
    ValidationEvent,
)
from regard.training.loop import Training
from regard.training.observers import BOARD, Board
from regard.training.train import Request
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
    order = [event.activity if isinstance(event, ActivityEvent) else type(event).__name__ for event in events]
    assert [name for name in order if name != "UpdateEvent"] == [
        "StartEvent",
        *("saving", "saving"),
        *("saving", "validating", "ValidationEvent", "saving"),
        *("saving", "validating", "ValidationEvent", "saving"),  # finished
    ]
    start = events[0]
    assert isinstance(start, StartEvent)
    assert start.clock.settings.updates == 12
    assert all(event.seconds > 0 for event in events if not isinstance(event, StartEvent | ActivityEvent))
    assert list(film.frames(tmp_path)) == [6, 12]
    assert list((tmp_path / BOARD).iterdir())
    observers.draw(training)
    assert {path.name for path in tmp_path.iterdir()} >= {"training.png", "training.svg", "film.html"}
    assert "BLEU 1.0" in (tmp_path / "film.html").read_text()


@pytest.mark.parametrize("family", ["transformer", "gpt"])
def test_the_card_says_what_a_model_is_and_where_it_comes_from(family: str, corpus: Path, tmp_path: Path) -> None:
    training = make_training(tmp_path / "mine", corpus, make_config(family))
    training.progress = Progress(update=12, tokens=3456, best_update=6, seconds=600.0, skipped=2)
    files = Files(corpus / "a.txt", None if family == "gpt" else corpus / "b.txt", family == "gpt")
    scores = {"loss": 1.5, "bleu": {"score": 41.25, "signature": "nrefs:1|case:mixed"}}
    command = "regard train a.txt b.txt --out mine"
    request = Request((files,), None, training.folder, training.config, command, origins=(Path("runs/old"),))
    card = model_card(training, scores, request, kept=6)
    for words in (
        "# mine", "![training](training.png)", f"    {command}", "| BLEU | 41.25 | `nrefs:1\\|case:mixed` |",
        "perplexity 4.48", "`a.txt`", " MB", "held out", "read 400", "`runs/old`", "12, the last in epoch 1", "3,456",
        "10 min", " thread", "fp32", "| seed | 1 |", "regard 0.", "torch ", "| skipped updates | 2, with NaN or inf |",
    ):  # fmt: skip
        assert words in card, words
    rows = [line for line in card.splitlines() if line.startswith("|")]
    assert all(re.search(r"\|$", row) for row in rows)


def test_the_card_says_how_many_validation_pairs_were_left_out(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "valid.txt").write_text("the house\n\n")
    training = make_training(tmp_path, corpus, make_config("transformer"))
    files = Files(corpus / "a.txt", corpus / "b.txt", False)
    valid = Files(tmp_path / "valid.txt", tmp_path / "valid.txt", False)
    training.data = prepare([files], valid, training.config, training.data.tokenizers, lambda _: None)
    request = Request((files,), valid, training.folder, training.config, "")
    card = model_card(training, {"loss": 1.5}, request, kept=0)
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


def test_the_card_names_the_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H200")
    assert describe_machine(Runtime(torch.device("cuda"), 0, 2)) == "2 × NVIDIA H200"


# TensorBoard's own reader finds what was written, each update once


def make_update(update: int) -> UpdateEvent:
    return UpdateEvent(update, 9.0 / update, 1.0, 0.1, tokens=50, epoch=0, seconds=0.25)


def write(folder: Path, first: int, last: int) -> None:
    with Board(folder, first - 1) as board:
        for update in range(first, last + 1):
            board.observe(make_update(update))
            if update % 20 == 0:
                sample = {"source": "ein Haus", "reference": "a house", "model": "a home"}
                scores = {"valid_loss": 2.0, "bleu": 30.0}
                board.observe(ValidationEvent(update, scores, sample, True, 1.0, nn.Identity()))


def read(folder: Path) -> Any:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = accumulator.EventAccumulator(str(folder / BOARD), size_guidance={"scalars": 0, "tensors": 0})
    return found.Reload()


def steps(folder: Path, name: str) -> list[int]:
    return [event.step for event in read(folder).Scalars(name)]


def test_scalars_are_read_back(tmp_path: Path) -> None:
    write(tmp_path, 1, 40)
    found = read(tmp_path)
    assert sorted(found.Tags()["scalars"]) == [
        "training/grad_norm", "training/learning_rate", "training/loss", "training/tokens per second",
        "validation/bleu", "validation/valid_loss",
    ]  # fmt: skip
    assert [event.step for event in found.Scalars("training/loss")] == [1, 10, 20, 30, 40]
    assert [event.value for event in found.Scalars("training/tokens per second")] == [200.0] * 5


def test_a_resumed_run_has_no_step_twice(tmp_path: Path) -> None:
    write(tmp_path, 1, 40)
    write(tmp_path, 21, 60)  # killed at 40, resumed from the checkpoint of 20
    assert steps(tmp_path, "training/loss") == [1, 10, 20, 30, 40, 50, 60]
    assert steps(tmp_path, "validation/bleu") == [20, 40, 60]
