"""The demo: one command makes a model and its pages; the same command again repeats nothing."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regard.config import find_config
from regard.errors import FolderError
from regard.stories import demo
from regard.training.events import Observer


def run_demo(out: Path, say: Callable[[str], None] = lambda _: None, observe: Observer = lambda _: None) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "SIZES", {"train": 300, "valid": 20, "test": 20})
        return demo.run(out, updates=3, device="cpu", say=say, observe=observe)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder of a demo, and its results."""
    out = tmp_path_factory.mktemp("demo")
    return out, run_demo(out)


@pytest.mark.slow
def test_the_demo_writes_a_model_and_pages(finished: tuple[Path, dict[str, Any]]) -> None:
    out, found = finished
    assert found["finished"]
    assert 0 <= found["bleu"]["low"] <= found["bleu"]["high"]
    assert 0 < found["training_seconds"] < found["seconds"]
    assert (out / "model" / "model.safetensors").exists()
    page = (out / "index.html").read_text()
    linked = ["evaluation.html", *(f"sentence-{number}.html" for number in (1, 2, 3))]
    assert all(f'href="{name}"' in page and (out / name).exists() for name in linked)


@pytest.mark.slow
def test_the_same_call_again_repeats_nothing(finished: tuple[Path, dict[str, Any]]) -> None:
    events: list[str] = []
    assert run_demo(finished[0], events.append, lambda event: events.append(type(event).__name__)) == finished[1]
    assert "UpdateEvent" not in events
    assert "3  score it on sentences it has not seen" not in events


@pytest.mark.slow
def test_a_missing_page_is_written_again_and_the_earlier_training_time_counts(
    finished: tuple[Path, dict[str, Any]],
) -> None:
    out, found = finished
    (out / "evaluation.html").unlink()
    again = run_demo(out)
    assert (out / "evaluation.html").exists()
    assert again["training_seconds"] == found["training_seconds"]
    assert again["seconds"] > again["training_seconds"]


def test_the_commands_to_try_next_exist(tmp_path: Path) -> None:
    from regard.cli.app import app

    names = {command.callback.__name__ for command in app.registered_commands if command.callback}
    for line in demo.next_commands(tmp_path):
        words = shlex.split(line.split("|")[-1])
        assert words[0] == "regard"
        assert words[1] in names


def test_a_folder_that_cannot_be_written_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "demo").touch()
    said: list[str] = []
    with pytest.raises(FolderError, match="is not a folder"):
        run_demo(tmp_path / "demo", said.append)
    assert not said


@pytest.mark.slow
def test_other_pages_link_back_to_the_demo(finished: tuple[Path, dict[str, Any]]) -> None:
    out, _ = finished
    assert all('<a href="index.html">← the demo</a>' in (out / name).read_text() for name in demo.PAGES[1:])


@pytest.mark.slow
def test_words_are_counted_in_the_training_text(finished: tuple[Path, dict[str, Any]]) -> None:
    assert "frequency of a word in train.fr" in (finished[0] / "evaluation.html").read_text()


def test_the_recipe_is_found_beside_a_folder_named_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "demo").mkdir()  # the default --out
    monkeypatch.chdir(tmp_path)
    assert find_config(demo.RECIPE).model.family == "transformer"
