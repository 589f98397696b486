"""The training loop: exact resume, NaN rollback, gradient accumulation, patience and short memory."""

from __future__ import annotations

import math
import os
import signal
from pathlib import Path

import pytest
import torch

from regard.errors import RunError
from regard.models.folder import named_tensors
from regard.text.batching import IGNORE_INDEX, Batch
from regard.training import gradients, loop
from regard.training.checkpoint import checkpoints
from regard.training.events import Event, ProblemEvent, UpdateEvent, ValidationEvent
from regard.training.journal import read
from regard.training.validation import Validation
from tests.training.runs import (
    FAMILIES,
    compare_saves,
    copy_late,
    ignore,
    make_config,
    make_training,
    no_validation,
    out_of_memory_above,
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

    def observe(event: Event) -> None:
        if isinstance(event, UpdateEvent) and event.update == stop_after:
            os.kill(os.getpid(), signal.SIGTERM)

    training.run(no_validation, observe)
    return training


def same(one: loop.Training, other: loop.Training) -> None:
    for group, tensors in one.state().items():
        for name, tensor in tensors.items():
            assert torch.equal(tensor, other.state()[group][name]), f"{group}: {name}"


@pytest.mark.parametrize(("family", "stop_after"), [*((family, 5) for family in FAMILIES), ("transformer", 1)])
def test_a_stopped_and_resumed_run_equals_an_uninterrupted_one(
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


def test_ctrl_c_followed_by_sigterm_stops_once(corpus: Path, tmp_path: Path) -> None:
    training = make_training(tmp_path, corpus, make_config("transformer"))

    def observe(event: Event) -> None:
        if isinstance(event, UpdateEvent) and event.update == 5:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)

    training.run(no_validation, observe)
    assert [path.name for path in checkpoints(tmp_path)][-1] == "update-00000005"


def test_the_same_signal_twice_ends_a_run_at_once(corpus: Path, tmp_path: Path) -> None:
    training = make_training(tmp_path, corpus, make_config("transformer"))

    def observe(event: Event) -> None:
        if isinstance(event, UpdateEvent) and event.update == 5:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        training.run(no_validation, observe)


def test_a_checkpoint_is_written_before_a_validation(corpus: Path, tmp_path: Path) -> None:
    training = make_training(tmp_path, corpus, make_config("transformer", save_every=100))
    saved = []

    def validate(model: torch.nn.Module) -> Validation:
        training._saver.wait()
        saved.append(checkpoints(tmp_path)[-1].name)
        return Validation(0.0, 0.0)

    training.run(validate, ignore)
    assert saved == ["update-00000006", "update-00000012"]


@pytest.mark.parametrize("update", [6, 12])
@pytest.mark.parametrize("killed", ["during", "after"])
def test_a_run_that_ends_in_a_validation_repeats_it_once(
    update: int, killed: str, corpus: Path, tmp_path: Path
) -> None:
    class KilledError(Exception):
        pass

    def validate(model: torch.nn.Module) -> Validation:
        if training.progress.update == update and killed == "during":
            raise KilledError
        return Validation(0.0, 0.0)

    def observe(event: Event) -> None:
        if isinstance(event, ValidationEvent) and event.update == update:
            raise KilledError

    whole = trained(tmp_path / "whole", corpus, "transformer", ema_decay=0.9)
    (tmp_path / "killed").mkdir()
    training = make_training(tmp_path / "killed", corpus, make_config("transformer", ema_decay=0.9))
    with pytest.raises(KilledError):
        training.run(validate, observe)
    resumed = make_training(tmp_path / "killed", corpus, make_config("transformer", ema_decay=0.9))
    assert resumed.resume()
    assert resumed.progress.update == update
    validated = []
    resumed.run(lambda _: (validated.append(resumed.progress.update), Validation(0.0, 0.0))[1], ignore)
    assert validated == [6, 12][[6, 12].index(update) :]
    same(whole, resumed)
    assert vars(resumed.progress) | {"seconds": 0} == vars(whole.progress) | {"seconds": 0}
    journal = read(tmp_path / "killed" / "journal.jsonl")
    assert [entry["update"] for entry in journal if entry["kind"] == "validation"] == [6, 12]


def test_a_signal_during_a_validation_ends_it_and_the_resumed_run_validates(corpus: Path, tmp_path: Path) -> None:
    training = make_training(tmp_path, corpus, make_config("transformer"))

    def validate(model: torch.nn.Module) -> Validation:
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError

    training.run(validate, ignore)
    assert training.signal == signal.SIGINT
    assert training.progress.update == 6
    resumed = trained(tmp_path, corpus, "transformer")
    assert resumed.finished
    entries = read(tmp_path / "journal.jsonl")
    assert [entry["update"] for entry in entries if entry["kind"] == "validation"] == [6, 12]


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


def test_gradient_accumulation_equals_one_large_batch(corpus: Path, tmp_path: Path) -> None:
    import dataclasses

    config = make_config("transformer", gradient_accumulation=2).with_values(["model.dropout=0"])
    training = make_training(tmp_path, corpus, config)
    first, second = (next(training.batches) for _ in range(2))

    def joined(one: Batch, other: Batch) -> Batch:
        width = max(one.source.shape[1], other.source.shape[1])
        length = max(one.target_out.shape[1], other.target_out.shape[1])

        def both(name: str, size: int, value: int = 0) -> torch.Tensor:
            parts = [getattr(batch, name) for batch in (one, other)]
            padded = [torch.nn.functional.pad(part, (0, size - part.shape[1]), value=value) for part in parts]
            return torch.cat(padded)

        return one._replace(
            source=both("source", width),
            mask=both("source", width) != 0,
            target_in=both("target_in", length),
            target_out=both("target_out", length, IGNORE_INDEX),
            target_tokens=one.target_tokens + other.target_tokens,
        )

    training.batches = iter([first, second])
    training.step()
    apart = {name: parameter.grad.clone() for name, parameter in training.model.named_parameters()}
    training.model.load_state_dict(make_training(tmp_path, corpus, training.config).model.state_dict())
    training.progress = dataclasses.replace(training.progress, update=0)
    training.config = training.config.with_values(["train.gradient_accumulation=1"])
    training.batches = iter([joined(first, second)])
    training.step()
    for name, parameter in training.model.named_parameters():
        torch.testing.assert_close(parameter.grad, apart[name], rtol=1e-4, atol=1e-6)


def test_a_batch_without_masked_tokens_makes_an_update(corpus: Path, tmp_path: Path) -> None:
    training = make_training(tmp_path, corpus, make_config("bert"))
    batch = next(training.batches)
    empty = batch._replace(target_out=torch.full_like(batch.target_out, IGNORE_INDEX), target_tokens=0)
    training.batches = iter([empty])
    event = training.step()
    assert event is not None
    assert event.loss == 0


def test_an_update_with_a_nan_loss_is_skipped_and_counted(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    cost = gradients.batch_loss

    def sometimes(*arguments: object) -> object:
        calls.append(1)
        found = cost(*arguments)
        return (found[0] * math.nan, found[1]) if len(calls) == 3 else found

    monkeypatch.setattr(gradients, "batch_loss", sometimes)
    training = trained(tmp_path, corpus, "transformer")
    assert training.progress.skipped == 1
    assert [line["update"] for line in read(tmp_path / "journal.jsonl") if line["kind"] == "skipped"] == [3]
    assert training.progress.update == 12
    assert all(parameter.isfinite().all() for parameter in training.model.parameters())


def test_queueing_the_next_update_before_the_loss_is_read_changes_nothing(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cost, seen = gradients.batch_loss, []

    def sometimes(*arguments: object) -> object:
        seen.append(1)
        found = cost(*arguments)
        return (found[0] * math.nan, found[1]) if len(seen) in (3, 4, 8) else found

    def run(name: str, *, ahead: bool, stop_after: int | None = None) -> loop.Training:
        monkeypatch.setattr(loop, "runs_ahead", lambda *_: ahead)
        return trained(tmp_path / name, corpus, "transformer", stop_after, ema_decay=0.9)

    monkeypatch.setattr(gradients, "batch_loss", sometimes)
    waiting = run("waiting", ahead=False)
    seen.clear()
    ahead = run("ahead", ahead=True)
    assert ahead.progress.skipped == waiting.progress.skipped == 3
    same(waiting, ahead)
    monkeypatch.setattr(gradients, "batch_loss", cost)
    whole = run("whole", ahead=True)
    run("stopped", ahead=True, stop_after=5)
    same(whole, run("stopped", ahead=True))


@pytest.mark.parametrize(("value", "words"), [(math.nan, "loss nan"), (math.inf, "loss inf")])
def test_the_first_skipped_update_has_a_line_and_the_journal_lists_all(
    value: float, words: str, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cost, calls, said = gradients.batch_loss, [], []

    def often(*arguments: object) -> object:
        calls.append(1)
        loss, nll = cost(*arguments)
        return (loss * value, nll * value) if len(calls) in (3, 4, *range(6, 30, 2)) else (loss, nll)

    monkeypatch.setattr(gradients, "batch_loss", often)
    training = make_training(tmp_path, corpus, make_config("transformer"))
    training.run(no_validation, lambda event: said.append(event.message) if isinstance(event, ProblemEvent) else None)
    (line,) = filter(None, said)
    assert line.startswith(f"update 3 skipped: {words}, gradient norm nan; journal.jsonl lists")
    skipped = [entry for entry in read(tmp_path / "journal.jsonl") if entry["kind"] == "skipped"]
    assert training.progress.skipped == len(said) == len(skipped) > 2


def make_loss_nan(monkeypatch: pytest.MonkeyPatch, during: range) -> None:
    """The loss of these batches is NaN."""
    calls = []
    cost = gradients.batch_loss

    def for_a_while(*arguments: object) -> object:
        calls.append(1)
        found = cost(*arguments)
        return (found[0] * math.nan, found[1]) if len(calls) in during else found

    monkeypatch.setattr(gradients, "batch_loss", for_a_while)


def test_many_nan_losses_in_a_row_roll_back_to_the_last_checkpoint_and_halve_the_learning_rate(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_loss_nan(monkeypatch, range(6, 11))
    training = trained(tmp_path, corpus, "transformer")
    assert training.progress.lr_scale == 0.5
    assert training.progress.skipped == 5
    assert training.progress.update == 12
    entries = [line for line in read(tmp_path / "journal.jsonl") if line["kind"] in ("skipped", "rollback")]
    assert entries == [{"kind": "rollback", "update": 5, "lr_scale": 0.5, "skipped": 5}]


def test_nan_losses_before_the_first_save_roll_back_to_the_start(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config("transformer", save_every=100, ema_decay=0.9)
    slower = make_training(tmp_path / "slower", corpus, config)
    slower.progress.lr_scale, slower.progress.skipped = 0.5, 5
    slower.run(no_validation, ignore)
    make_loss_nan(monkeypatch, range(3, 8))
    training = make_training(tmp_path / "fell", corpus, config)
    training.run(no_validation, ignore)
    assert training.progress.skipped == 5
    same(slower, training)


def trained_past_a_rollback(folder: Path, corpus: Path, keep: int) -> loop.Training:
    """A run that is asked to stop one update after it was rolled back."""
    training = make_training(folder, corpus, make_config("transformer", keep_checkpoints=keep, validate_every=100))
    training.resume()

    def observe(event: Event) -> None:
        if isinstance(event, UpdateEvent) and training.progress.lr_scale < 1:
            os.kill(os.getpid(), signal.SIGTERM)

    training.run(no_validation, observe)
    return training


@pytest.mark.parametrize("keep", [1, 3])
def test_a_rollback_ignores_a_checkpoint_that_was_saved_by_a_stop(
    keep: int, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_loss_nan(monkeypatch, range(8, 13))
    whole = trained(tmp_path / "whole", corpus, "transformer", keep_checkpoints=keep, validate_every=100)
    monkeypatch.undo()
    stopped = trained(tmp_path / "stopped", corpus, "transformer", 6, keep_checkpoints=keep, validate_every=100)
    assert [path.name for path in checkpoints(stopped.folder)][-2:] == ["update-00000004", "update-00000006"]
    make_loss_nan(monkeypatch, range(2, 7))
    assert trained_past_a_rollback(tmp_path / "stopped", corpus, keep).progress.update == 5
    monkeypatch.undo()
    resumed = trained(tmp_path / "stopped", corpus, "transformer", keep_checkpoints=keep, validate_every=100)
    assert resumed.progress.skipped == whole.progress.skipped == 5
    same(whole, resumed)


def test_a_run_whose_loss_is_always_nan_ends_with_advice(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cost = gradients.batch_loss
    monkeypatch.setattr(gradients, "batch_loss", lambda *a: [part * math.inf for part in cost(*a)])
    with pytest.raises(RunError, match=r"lower train.learning_rate \(0.01\) or use train.precision=fp32"):
        trained(tmp_path, corpus, "transformer")


def test_patience_ends_a_run_that_no_longer_gets_better(corpus: Path, tmp_path: Path) -> None:
    training = trained(tmp_path, corpus, "transformer", updates=100, validate_every=2, patience=3)
    assert training.progress.update == 8  # the first validation is the best, and three more
    assert training.finished


def test_of_equal_scores_the_one_with_the_lower_validation_loss_is_the_best(corpus: Path, tmp_path: Path) -> None:
    losses = iter([3.0, 2.0, 2.5])
    training = make_training(tmp_path, corpus, make_config("transformer", validate_every=4))
    training.run(lambda _: Validation(0.0, next(losses)), ignore)
    assert training.progress.best_update == 8


def test_old_checkpoints_are_deleted_and_the_best_is_kept(corpus: Path, tmp_path: Path) -> None:
    trained(tmp_path, corpus, "transformer", updates=20, save_every=2, validate_every=2, keep_checkpoints=2)
    kept = [path.name for path in checkpoints(tmp_path)]
    assert kept == ["update-00000002", "update-00000018", "update-00000020"]


def test_the_best_is_saved_between_two_checkpoints_too(corpus: Path, tmp_path: Path) -> None:
    trained(tmp_path, corpus, "transformer", save_every=5, validate_every=3, keep_checkpoints=1)
    assert [path.name for path in checkpoints(tmp_path)] == ["update-00000003", "update-00000012"]


def test_the_average_follows_the_weights(corpus: Path, tmp_path: Path) -> None:
    training = trained(tmp_path, corpus, "transformer", ema_decay=0.5)
    own = {name: tensor.clone() for name, tensor in named_tensors(training.model).items()}
    with training.averaged():
        inside = named_tensors(training.model)
        assert all(torch.equal(inside[name], training.average[name]) for name in own)
        assert any(not torch.equal(inside[name], own[name]) for name in own)
    assert all(torch.equal(named_tensors(training.model)[name], own[name]) for name in own)


# Too little memory


def trained_plainly(folder: Path, corpus: Path, family: str, packed: bool) -> tuple[list[float], int]:
    """The losses of a run without dropout, and how often it split its batches."""
    folder.mkdir()
    training = make_training(folder, corpus, make_config(family, packed=packed).with_values(["model.dropout=0"]))
    events: list[Event] = []
    training.run(no_validation, events.append)
    losses = [event.loss for event in events if isinstance(event, UpdateEvent)]
    return losses, sum(isinstance(event, ProblemEvent) and event.kind == "split" for event in events)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "packed"),
    [("transformer", False), ("transformer", True), ("rnn-input", False), ("gpt", False), ("bert", False)],
)
def test_a_run_that_is_out_of_memory_splits_its_batches_and_learns_the_same(
    family: str, packed: bool, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, _ = trained_plainly(tmp_path / "whole", corpus, family, packed)
    monkeypatch.setattr(gradients, "batch_loss", out_of_memory_above(6, gradients.batch_loss))
    split, said = trained_plainly(tmp_path / "split", corpus, family, packed)
    assert said
    assert [line["parts"] for line in read(tmp_path / "split" / "journal.jsonl") if line["kind"] == "split"][-1] > 1
    assert split == pytest.approx(whole, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", ["CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"]
)
def test_out_of_memory_errors_of_every_library_are_recognised(
    words: str, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = out_of_memory_above(6, gradients.batch_loss)

    def told_by_another(*arguments: object) -> object:
        try:
            return held(*arguments)
        except torch.cuda.OutOfMemoryError:
            raise RuntimeError(words) from None

    monkeypatch.setattr(gradients, "batch_loss", told_by_another)
    assert trained(tmp_path, corpus, "transformer").progress.split > 1


def test_other_errors_are_not_taken_for_out_of_memory(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> object:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(gradients, "batch_loss", broken)
    with pytest.raises(RuntimeError, match="no such kernel"):
        trained(tmp_path, corpus, "transformer")


def test_scores_of_different_sentences_are_compared_by_the_loss(corpus: Path, tmp_path: Path) -> None:
    scores = iter([(40.0, 2.0, 500), (60.0, 3.0, 20)])  # the second translated the 20 easiest sentences

    def validation(model: torch.nn.Module) -> Validation:
        score, loss, sentences = next(scores)
        return Validation(score, loss, {"bleu": score, "sentences": sentences})

    progress = make_training(tmp_path, corpus, make_config("transformer")).run(validation, ignore)
    assert (progress.best_score, progress.best_sentences) == (40.0, 500)


@pytest.mark.slow
def test_a_resumed_run_splits_its_batches_as_before(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gradients, "batch_loss", out_of_memory_above(6, gradients.batch_loss))
    whole = trained(tmp_path / "whole", corpus, "transformer")
    trained(tmp_path / "parts", corpus, "transformer", 5)
    resumed = trained(tmp_path / "parts", corpus, "transformer")
    assert resumed.progress.split == whole.progress.split
    same(whole, resumed)


@pytest.mark.slow
def test_an_example_that_does_not_fit_alone_ends_the_run_with_advice(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gradients, "batch_loss", out_of_memory_above(0, gradients.batch_loss))
    with pytest.raises(RunError, match="process 0 ran out of GPU memory at update 1: start over"):
        trained(tmp_path / "out", corpus, "transformer")
