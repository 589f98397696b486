"""The demo: one command from nothing to a page, and the same command again does nothing twice."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.cli.stories import next_commands
from regard.errors import FolderError
from regard.stories import demo as showcase
from regard.training.distributed import Runtime


@pytest.mark.slow
def test_the_demo_leaves_a_model_and_pages_and_is_finished_the_second_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(showcase, "SIZES", {"train": 300, "valid": 20, "test": 20})
    events: list[str] = []

    def run() -> dict[str, Any]:
        events.clear()
        runtime = Runtime(torch.device("cpu"), 0, 1)
        return showcase.run(tmp_path, 3, runtime, events.append, lambda event: events.append(type(event).__name__))

    found = run()
    assert found["finished"]
    assert 0 <= found["bleu"]["low"] <= found["bleu"]["high"]
    assert (tmp_path / "model" / "model.safetensors").exists()
    page = (tmp_path / "index.html").read_text()
    linked = ["evaluation.html", *(f"sentence-{number}.html" for number in (1, 2, 3))]
    assert all(f'href="{name}"' in page and (tmp_path / name).exists() for name in linked)
    assert "UpdateEvent" in events
    assert 0 < found["training_seconds"] < found["seconds"]
    assert run() == found
    assert "UpdateEvent" not in events
    assert "3  sentences it has never seen" not in events


@pytest.mark.slow
def test_a_demo_that_lost_a_page_draws_it_again_and_counts_the_training_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(showcase, "SIZES", {"train": 300, "valid": 20, "test": 20})

    def run() -> dict[str, Any]:
        return showcase.run(tmp_path, 3, Runtime(torch.device("cpu"), 0, 1), lambda _: None, lambda *_: None)

    found = run()
    (tmp_path / "evaluation.html").unlink()
    again = run()
    assert (tmp_path / "evaluation.html").exists()
    assert again["training_seconds"] == found["training_seconds"]
    assert again["seconds"] > again["training_seconds"]


def test_what_to_try_next_are_commands_there_are(tmp_path: Path) -> None:
    from regard.cli.app import app

    names = {command.callback.__name__ for command in app.registered_commands if command.callback}
    for line in next_commands(tmp_path):
        words = shlex.split(line.split("|")[-1])
        assert words[0] == "regard"
        assert words[1] in names


def test_a_demo_that_cannot_be_written_is_refused_before_it_says_anything(tmp_path: Path) -> None:
    (tmp_path / "demo").touch()
    said: list[str] = []
    with pytest.raises(FolderError, match="a folder is wanted"):
        showcase.run(tmp_path / "demo", 0, Runtime(torch.device("cpu"), 0, 1), said.append, lambda *_: None)
    assert not said
