"""The loop: exact when it is interrupted, steady when numbers are not."""

from __future__ import annotations

import math
import os
import signal
from pathlib import Path

import pytest
import torch

from regard.errors import RunError
from regard.models.folder import named_tensors
from regard.text.batching import Batch
from regard.training import loop, step
from regard.training.checkpoint import checkpoints
from regard.training.journal import read
from tests.training.runs import (
    FAMILIES,
    compare_saves,
    copy_late,
    lacking,
    make_config,
    make_training,
    no_validation,
    write_corpus,
)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    os.environ["REGARD_CACHE"] = str(folder / "cache")
    return write_corpus(folder)


def trained(folder: Path, corpus: Path, family: str, stop_after: int | None = None, **values: object) -> loop.Training:
    """A run to its end, or one that is asked to stop after so many updates."""
    folder.mkdir(exist_ok=True)
    training = make_training(folder, corpus, make_config(family, **values))
    training.resume()

    def watch(kind: str, facts: dict[str, object]) -> None:
        if kind == "update" and facts["update"] == stop_after:
            os.kill(os.getpid(), signal.SIGTERM)

    training.run(no_validation, watch)
    return training


def same(one: loop.Training, other: loop.Training) -> None:
    for group, tensors in one.state().items():
        for name, tensor in tensors.items():
            assert torch.equal(tensor, other.state()[group][name]), f"{group}: {name}"


@pytest.mark.parametrize(("family", "stop_after"), [*((family, 5) for family in FAMILIES), ("transformer", 1)])
def test_a_run_that_was_stopped_equals_one_that_was_not(
    family: str, stop_after: int, corpus: Path, tmp_path: Path
) -> None:
    whole = trained(tmp_path / "whole", corpus, family, ema_decay=0.9)
    stopped = trained(tmp_path / "stopped", corpus, family, stop_after, ema_decay=0.9)
    assert stopped.progress.update == stop_after
    resumed = trained(tmp_path / "stopped", corpus, family, ema_decay=0.9)
    assert resumed.progress.update == whole.progress.update == 12
    same(whole, resumed)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_checkpoint_has_what_was_there_when_it_was_saved_however_late_the_copy(
    family: str, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_late(monkeypatch)
    config = make_config(family, updates=4, save_every=1, keep_checkpoints=9, ema_decay=0.9)
    compare_saves(make_training(tmp_path, corpus, config))


def test_ctrl_c_that_a_parent_passes_on_as_sigterm_is_one_wish_to_stop(corpus: Path, tmp_path: Path) -> None:
    training = make_training(tmp_path, corpus, make_config("transformer"))

    def watch(kind: str, facts: dict[str, object]) -> None:
        if kind == "update" and facts["update"] == 5:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)

    training.run(no_validation, watch)
    assert [path.name for path in checkpoints(tmp_path)][-1] == "update-00000005"


def test_the_same_signal_again_ends_a_run_at_once(corpus: Path, tmp_path: Path) -> None:
    training = make_training(tmp_path, corpus, make_config("transformer"))

    def watch(kind: str, facts: dict[str, object]) -> None:
        if kind == "update" and facts["update"] == 5:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        training.run(no_validation, watch)


def test_the_journal_of_a_resumed_run_has_every_update_once(corpus: Path, tmp_path: Path) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    trained(whole, corpus, "transformer", updates=30)
    trained(stopped, corpus, "transformer", 17, updates=30)
    trained(stopped, corpus, "transformer", updates=30)
    untimed = [[line | {"seconds": 0} for line in read(folder / "journal.jsonl")] for folder in (stopped, whole)]
    assert untimed[0] == untimed[1]


@pytest.mark.slow
def test_several_epochs_are_resumed_in_the_middle(corpus: Path, tmp_path: Path) -> None:
    whole = trained(tmp_path / "whole", corpus, "transformer", updates=60, batch_tokens=1500)
    assert whole.progress.epoch > 2
    trained(tmp_path / "stopped", corpus, "transformer", 31, updates=60, batch_tokens=1500)
    same(whole, trained(tmp_path / "stopped", corpus, "transformer", updates=60, batch_tokens=1500))


def test_micro_batches_make_the_update_of_the_batches_together(corpus: Path, tmp_path: Path) -> None:
    import dataclasses

    config = make_config("transformer", gradient_accumulation=2).with_values(["model.dropout=0"])
    training = make_training(tmp_path, corpus, config)
    prepared = training._prepared()
    first, second = (next(training._batches()) for _ in range(2))
    training.cursor = (0, 0)

    def joined(one: Batch, other: Batch) -> Batch:
        width = max(one.source.shape[1], other.source.shape[1])
        length = max(one.target_out.shape[1], other.target_out.shape[1])

        def both(name: str, size: int) -> torch.Tensor:
            parts = [getattr(batch, name) for batch in (one, other)]
            return torch.cat([torch.nn.functional.pad(part, (0, size - part.shape[1])) for part in parts])

        return one._replace(
            source=both("source", width),
            mask=both("source", width) != 0,
            target_in=both("target_in", length),
            target_out=both("target_out", length),
            target_tokens=one.target_tokens + other.target_tokens,
        )

    training._update(prepared, iter([first, second]))
    apart = {name: parameter.grad.clone() for name, parameter in training.model.named_parameters()}
    training.model.load_state_dict(make_training(tmp_path, corpus, training.config).model.state_dict())
    training.progress = dataclasses.replace(training.progress, update=0)
    training.config = training.config.with_values(["train.gradient_accumulation=1"])
    training._update(prepared, iter([joined(first, second)]))
    for name, parameter in training.model.named_parameters():
        torch.testing.assert_close(parameter.grad, apart[name], rtol=1e-4, atol=1e-6)


def test_a_batch_with_nothing_to_guess_is_an_update_all_the_same(corpus: Path, tmp_path: Path) -> None:
    training = make_training(tmp_path, corpus, make_config("bert"))
    batch = next(training._batches())
    empty = batch._replace(target_out=torch.zeros_like(batch.target_out), target_tokens=0)
    facts = training._update(training._prepared(), iter([empty]))
    assert facts is not None
    assert facts["loss"] == 0


def test_an_update_that_is_no_number_is_left_out_and_counted(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    cost = step.objective

    def sometimes(*arguments: object) -> object:
        calls.append(1)
        found = cost(*arguments)
        return found._replace(loss=found.loss * math.nan) if len(calls) == 3 else found

    monkeypatch.setattr(step, "objective", sometimes)
    training = trained(tmp_path, corpus, "transformer")
    assert training.progress.skipped == 1
    assert [line["update"] for line in read(tmp_path / "journal.jsonl") if line["kind"] == "skipped"] == [3]
    assert training.progress.update == 12
    assert all(parameter.isfinite().all() for parameter in training.model.parameters())


def test_a_device_that_is_told_of_the_next_update_before_it_is_asked_about_this_one_learns_the_same(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cost, seen = step.objective, []

    def sometimes(*arguments: object) -> object:
        seen.append(1)
        found = cost(*arguments)
        return found._replace(loss=found.loss * math.nan) if len(seen) in (3, 4, 8) else found

    def run(name: str, *, ahead: bool, stop_after: int | None = None) -> loop.Training:
        monkeypatch.setattr(loop, "runs_ahead", lambda *_: ahead)
        return trained(tmp_path / name, corpus, "transformer", stop_after, ema_decay=0.9)

    monkeypatch.setattr(step, "objective", sometimes)
    waiting = run("waiting", ahead=False)
    seen.clear()
    ahead = run("ahead", ahead=True)
    assert ahead.progress.skipped == waiting.progress.skipped == 3
    same(waiting, ahead)
    monkeypatch.setattr(step, "objective", cost)
    whole = run("whole", ahead=True)
    run("stopped", ahead=True, stop_after=5)
    same(whole, run("stopped", ahead=True))


def give_no_numbers(monkeypatch: pytest.MonkeyPatch, during: range) -> None:
    """From one batch to another the loss is no number."""
    calls = []
    cost = step.objective

    def for_a_while(*arguments: object) -> object:
        calls.append(1)
        found = cost(*arguments)
        return found._replace(loss=found.loss * math.nan) if len(calls) in during else found

    monkeypatch.setattr(step, "objective", for_a_while)


def test_many_such_updates_in_a_row_go_back_to_the_last_checkpoint_with_a_lower_rate(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_no_numbers(monkeypatch, range(6, 11))
    training = trained(tmp_path, corpus, "transformer")
    assert training.progress.lowered == 0.5
    assert training.progress.skipped == 5
    assert training.progress.update == 12
    told = [line for line in read(tmp_path / "journal.jsonl") if line["kind"] in ("skipped", "fell_back")]
    assert told == [{"kind": "fell_back", "update": 5, "lowered": 0.5, "skipped": 5}]


def test_before_the_first_save_they_go_back_to_the_start_with_a_lower_rate(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config("transformer", save_every=100, ema_decay=0.9)
    slower = make_training(tmp_path / "slower", corpus, config)
    slower.progress.lowered, slower.progress.skipped = 0.5, 5
    slower.run(no_validation, lambda *_: None)
    give_no_numbers(monkeypatch, range(3, 8))
    training = make_training(tmp_path / "fell", corpus, config)
    training.run(no_validation, lambda *_: None)
    assert training.progress.skipped == 5
    same(slower, training)


def trained_past_a_fall(folder: Path, corpus: Path, keep: int) -> loop.Training:
    """A run that is asked to stop one update after it fell back."""
    training = make_training(folder, corpus, make_config("transformer", keep_checkpoints=keep, validate_every=100))
    training.resume()

    def watch(kind: str, facts: dict[str, object]) -> None:
        if kind == "update" and training.progress.lowered < 1:
            os.kill(os.getpid(), signal.SIGTERM)

    training.run(no_validation, watch)
    return training


@pytest.mark.parametrize("keep", [1, 3])
def test_they_go_back_to_the_same_checkpoint_though_the_run_was_stopped_after_it(
    keep: int, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_no_numbers(monkeypatch, range(8, 13))
    whole = trained(tmp_path / "whole", corpus, "transformer", keep_checkpoints=keep, validate_every=100)
    monkeypatch.undo()
    stopped = trained(tmp_path / "stopped", corpus, "transformer", 6, keep_checkpoints=keep, validate_every=100)
    assert [path.name for path in checkpoints(stopped.folder)][-2:] == ["update-00000004", "update-00000006"]
    give_no_numbers(monkeypatch, range(2, 7))
    assert trained_past_a_fall(tmp_path / "stopped", corpus, keep).progress.update == 5
    monkeypatch.undo()
    resumed = trained(tmp_path / "stopped", corpus, "transformer", keep_checkpoints=keep, validate_every=100)
    assert resumed.progress.skipped == whole.progress.skipped == 5
    same(whole, resumed)


def test_a_run_that_gives_no_numbers_at_all_ends_with_advice(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cost = step.objective
    monkeypatch.setattr(step, "objective", lambda *a: cost(*a)._replace(loss=cost(*a).loss * math.inf))
    with pytest.raises(RunError, match=r"lower train.learning_rate \(0.01\) or use train.precision=fp32"):
        trained(tmp_path, corpus, "transformer")


def test_patience_ends_a_run_that_no_longer_gets_better(corpus: Path, tmp_path: Path) -> None:
    training = trained(tmp_path, corpus, "transformer", updates=100, validate_every=2, patience=3)
    assert training.progress.update == 8  # the first validation is the best, and three more
    assert training.progress.finished


def test_of_validations_that_score_alike_the_one_with_the_lower_loss_is_the_best(corpus: Path, tmp_path: Path) -> None:
    losses = iter([3.0, 2.0, 2.5])
    training = make_training(tmp_path, corpus, make_config("transformer", validate_every=4))
    training.run(lambda _: loop.Validation(0.0, {"valid_loss": next(losses)}), lambda *_: None)
    assert training.progress.best_update == 8


def test_old_checkpoints_go_and_the_best_stays(corpus: Path, tmp_path: Path) -> None:
    trained(tmp_path, corpus, "transformer", updates=20, save_every=2, validate_every=2, keep_checkpoints=2)
    kept = [path.name for path in checkpoints(tmp_path)]
    assert kept == ["update-00000002", "update-00000018", "update-00000020"]


def test_the_best_is_saved_between_two_checkpoints_too(corpus: Path, tmp_path: Path) -> None:
    trained(tmp_path, corpus, "transformer", save_every=5, validate_every=3, keep_checkpoints=1)
    assert [path.name for path in checkpoints(tmp_path)] == ["update-00000003", "update-00000012"]


def test_a_checkpoint_that_is_to_be_averaged_stays_whatever_else_is_saved(corpus: Path, tmp_path: Path) -> None:
    values: dict[str, object] = {
        "save_every": 2,
        "validate_every": 100,
        "keep_checkpoints": 1,
        "average_checkpoints": 3,
    }
    trained(tmp_path, corpus, "transformer", 11, **values)
    assert [path.name[-2:] for path in checkpoints(tmp_path)] == ["08", "10", "11"]
    training = trained(tmp_path, corpus, "transformer", **values)
    assert loop.last_saved(12, training.config.train) == [12, 10, 8]
    assert {"08", "10", "12"} <= {path.name[-2:] for path in checkpoints(tmp_path)}


def test_the_average_follows_the_weights(corpus: Path, tmp_path: Path) -> None:
    training = trained(tmp_path, corpus, "transformer", ema_decay=0.5)
    own = {name: tensor.clone() for name, tensor in named_tensors(training.model).items()}
    with training.averaged():
        inside = named_tensors(training.model)
        assert all(torch.equal(inside[name], training.average[name]) for name in own)
        assert any(not torch.equal(inside[name], own[name]) for name in own)
    assert all(torch.equal(named_tensors(training.model)[name], own[name]) for name in own)


# Too little memory


def trained_plainly(folder: Path, corpus: Path, family: str) -> tuple[list[float], int]:
    """The losses of a run without dropout, and how often it said that it splits its batches."""
    folder.mkdir()
    training = make_training(folder, corpus, make_config(family).with_values(["model.dropout=0"]))
    told: dict[str, list[float]] = {"split": []}
    training.run(no_validation, lambda kind, facts: told.setdefault(kind, []).append(facts.get("loss", 0.0)))
    return told["update"], len(told["split"])


@pytest.mark.slow
@pytest.mark.parametrize("family", ["transformer", "rnn-input", "gpt", "bert"])
def test_a_run_out_of_memory_goes_on_with_parts_of_batches(
    family: str, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, _ = trained_plainly(tmp_path / "whole", corpus, family)
    monkeypatch.setattr(step, "objective", lacking(step.objective, 6))
    split, said = trained_plainly(tmp_path / "split", corpus, family)
    assert said
    assert [line["parts"] for line in read(tmp_path / "split" / "journal.jsonl") if line["kind"] == "split"][-1] > 1
    assert split == pytest.approx(whole, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", ["CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"]
)
def test_a_full_memory_is_known_by_whoever_tells_of_it(
    words: str, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = lacking(step.objective, 6)

    def told_by_another(*arguments: object) -> object:
        try:
            return held(*arguments)
        except torch.cuda.OutOfMemoryError:
            raise RuntimeError(words) from None

    monkeypatch.setattr(step, "objective", told_by_another)
    assert trained(tmp_path, corpus, "transformer").progress.split > 1


def test_another_error_is_not_taken_for_a_full_memory(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> object:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(step, "objective", broken)
    with pytest.raises(RuntimeError, match="no such kernel"):
        trained(tmp_path, corpus, "transformer")


def test_a_validation_out_of_memory_is_tried_again_without_what_training_holds(corpus: Path, tmp_path: Path) -> None:
    training, tried = make_training(tmp_path, corpus, make_config("transformer")), []

    def once(model: torch.nn.Module) -> loop.Validation:
        tried.append(1)
        if len(tried) == 1:
            raise torch.cuda.OutOfMemoryError("as if a GPU were full")
        return loop.Validation(1.0)

    assert training.run(once, lambda *_: None).best == 1.0
    assert len(tried) == 3  # two validations, and the first of them twice


def test_a_validation_that_does_not_fit_ends_the_run_with_advice(corpus: Path, tmp_path: Path) -> None:
    training = make_training(tmp_path, corpus, make_config("transformer"))

    def never(model: torch.nn.Module) -> loop.Validation:
        raise torch.cuda.OutOfMemoryError("as if a GPU were full")

    with pytest.raises(RunError, match=r"smaller train.batch_tokens \(400\) or decode.beams \(5\)"):
        training.run(never, lambda *_: None)


@pytest.mark.slow
def test_a_resumed_run_splits_its_batches_as_before(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, "objective", lacking(step.objective, 6))
    whole = trained(tmp_path / "whole", corpus, "transformer")
    trained(tmp_path / "parts", corpus, "transformer", 5)
    resumed = trained(tmp_path / "parts", corpus, "transformer")
    assert resumed.progress.split == whole.progress.split
    same(whole, resumed)


@pytest.mark.slow
def test_an_example_that_does_not_fit_alone_ends_the_run_with_advice(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, "objective", lacking(step.objective, 0))
    with pytest.raises(RunError, match=r"one example of \d+ tokens does not fit into the GPU's memory"):
        trained(tmp_path / "out", corpus, "transformer")
