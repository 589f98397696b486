"""`regard.train` from Python: a Run comes back, and the process is left as it was."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.evaluation.metrics import corpus_scores
from regard.training.events import Event, UpdateEvent
from regard.translation.translator import Translator
from tests.training.runs import SHAPE, write_corpus

CONFIG: dict[str, Any] = {
    **{f"model.{name}": value for name, value in SHAPE.items()},
    "text.vocabulary": 300,
    "train.batch_tokens": 400,
    "train.warmup": 4,
    "train.validate_every": 5,
    "train.save_every": 5,
    "decode.beams": 2,
    "decode.max_length_ratio": 1.0,
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("verb")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(folder / "cache"))
        write_corpus(folder / "valid", lines=30)
        with (folder / "valid" / "a.txt").open("a") as source, (folder / "valid" / "b.txt").open("a") as target:
            source.write("\nTHE  Old house…\n")
            target.write("\nhouse OLD  the…\n")
        yield write_corpus(folder)


def train(corpus: Path, out: Path, **more: Any) -> regard.Run:
    options: dict[str, Any] = {"updates": 10, "config": CONFIG, "device": "cpu", "threads": 1, "say": lambda _: None}
    return regard.train(corpus / "a.txt", str(corpus / "b.txt"), out=out, **options | more)


@pytest.fixture(scope="module")
def run(corpus: Path) -> regard.Run:
    return train(corpus, corpus / "run", valid=(corpus / "valid" / "a.txt", corpus / "valid" / "b.txt"))


def test_a_run_has_a_folder_scores_a_history_and_a_model(run: regard.Run, corpus: Path) -> None:
    assert run.finished
    assert run.folder == corpus / "run"
    assert {"loss", "bleu", "chrf"} <= set(run.scores)
    kinds = [entry["kind"] for entry in run.history]
    assert kinds == ["update", "validation", "update", "validation", "finished"]
    assert {"loss", "learning_rate", "grad_norm", "tokens", "seconds"} <= set(run.history[0])
    assert isinstance(run.model, Translator)


def test_a_run_prints_short_and_converts_to_json(run: regard.Run) -> None:
    assert "BLEU" in str(run)
    assert len(str(run).splitlines()) < 10
    assert json.loads(run.to_json())["scores"] == run.scores
    assert "<table>" in run._repr_html_()


def test_the_score_in_the_log_is_that_of_the_model_on_the_reference_text(run: regard.Run, corpus: Path) -> None:
    sources, references = ((corpus / "valid" / name).read_text().split("\n")[:-1] for name in ("a.txt", "b.txt"))
    assert len(sources) == 32
    hypotheses = [result.text for result in Translator.load(run.folder, "cpu").translate(sources)]
    assert corpus_scores(hypotheses, references, metrics=["bleu"])["bleu"].score == run.scores["bleu"]["score"]
    best = max(entry["bleu"] for entry in run.history if entry["kind"] == "validation")
    assert best == run.scores["bleu"]["score"]


def test_the_same_call_again_returns_the_scores_of_the_finished_run(run: regard.Run, corpus: Path) -> None:
    again = train(corpus, corpus / "run", valid=(corpus / "valid" / "a.txt", corpus / "valid" / "b.txt"))
    assert not again.is_new
    assert again.scores == run.scores


def test_the_card_names_the_call(run: regard.Run, corpus: Path) -> None:
    card = (run.folder / "card.md").read_text()
    assert f"regard.train('{corpus / 'a.txt'}', ..., out='{run.folder}')" in card


def test_random_state_threads_and_signal_handlers_are_restored(corpus: Path, tmp_path: Path) -> None:
    torch.manual_seed(7)
    before = torch.get_rng_state(), torch.get_num_threads(), signal.getsignal(signal.SIGINT)
    train(corpus, tmp_path / "out", updates=2, threads=before[1] + 1)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (torch.get_num_threads(), signal.getsignal(signal.SIGINT)) == before[1:]


def test_an_interrupt_returns_an_unfinished_run_that_the_same_call_resumes(corpus: Path, tmp_path: Path) -> None:
    def interrupt(event: Event) -> None:
        if isinstance(event, UpdateEvent) and event.update == 3:
            signal.raise_signal(signal.SIGINT)

    run = train(corpus, tmp_path / "out", observe=interrupt)
    assert (run.finished, run.update, run.signal, run.scores) == (False, 3, signal.SIGINT, {})
    assert "interrupted" in str(run)
    assert train(corpus, tmp_path / "out").finished


def test_an_interrupt_before_the_first_update_returns_an_unfinished_run(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("regard.training.train.prepare", interrupted)
    run = train(corpus, tmp_path / "out")
    assert (run.finished, run.update) == (False, 0)
    assert not (tmp_path / "out").exists()


def test_a_continued_run_that_was_killed_while_it_was_scored_does_not_return_its_old_model(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    train(corpus, tmp_path / "out")
    with monkeypatch.context() as patch:
        patch.setattr("regard.training.train.final_scores", interrupted)
        assert not train(corpus, tmp_path / "out", updates=20).finished
    again = train(corpus, tmp_path / "out", updates=20)
    assert again.is_new
    assert [entry["update"] for entry in again.history if entry["kind"] == "finished"] == [10, 20]


def test_seed_0_is_another_seed_than_1(corpus: Path, tmp_path: Path) -> None:
    losses = [train(corpus, tmp_path / str(seed), updates=1, seed=seed).history[0]["loss"] for seed in (0, 1)]
    assert losses[0] != losses[1]


def test_a_wrong_field_is_an_error_with_the_right_one(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(regard.ConfigError, match=r"Did you mean model\.size\?"):
        train(corpus, tmp_path / "out", config={"model.sise": 16})


def test_progress_has_null_before_the_first_validation(corpus: Path, tmp_path: Path) -> None:
    train(corpus, tmp_path / "out", config={**CONFIG, "train.save_every": 1, "train.keep_checkpoints": 99})
    paths = sorted((tmp_path / "out" / "checkpoints").glob("*/progress.json"))
    values = [json.loads(path.read_text(), parse_constant=pytest.fail)["best_score"] for path in paths]
    assert values[0] is None
    assert values[-1] is not None
