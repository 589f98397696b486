"""The clock: runs that end by --minutes, and the time left."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from regard.config import TrainConfig
from regard.devices import find_device
from regard.models import build
from regard.training import clock as clocks
from regard.training import gradients, journal, loop, sizing
from regard.training.checkpoint import checkpoints, read_progress
from regard.training.clock import Clock
from regard.training.distributed import Runtime
from regard.training.events import ActivityEvent, Event, UpdateEvent, ValidationEvent
from regard.training.loop import Training
from regard.training.sizing import CHOSEN_FIELDS, complete_config, gather_facts
from regard.training.train import Request
from tests.training.processes import launch
from tests.training.runs import ignore, make_config, make_data, make_training, no_validation, write_corpus

ALONE = Runtime(find_device("cpu"), 0, 1)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("clock"))


class Time:
    """A clock that ticks only when something is done: 50 ms for every batch."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now

    thread_time = perf_counter


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> Time:
    """Updates take 50 ms, and the end of a run takes none."""
    ticks, batch_loss = Time(), gradients.batch_loss

    def slow(*arguments: Any) -> Any:
        ticks.now += 0.05
        return batch_loss(*arguments)

    monkeypatch.setattr(gradients, "batch_loss", slow)
    monkeypatch.setattr(clocks, "time", ticks)
    monkeypatch.setattr(loop, "time", ticks)
    monkeypatch.setattr(clocks, "END_SECONDS", 0.0)
    return ticks


def timed(folder: Path, corpus: Path, minutes: float, **values: Any) -> Training:
    values = {"updates": 100, "validate_every": 25, "save_every": 10, **values}
    training = make_training(folder, corpus, make_config("transformer", minutes=minutes, **values))
    training.resume()
    return training


# A run with --minutes


def test_a_run_with_minutes_ends_in_time_with_its_whole_schedule(corpus: Path, tmp_path: Path, ticking: Time) -> None:
    events: list[Event] = []
    training = timed(tmp_path, corpus, 0.05, schedule="linear", warmup=50)
    training.run(no_validation, events.append)
    assert training.finished
    assert 0.9 * 3 < training.progress.elapsed <= 3
    rates = [event.learning_rate for event in events if isinstance(event, UpdateEvent)]
    assert rates[-1] < 0.1 * max(rates)
    assert 0.45 < rates.index(max(rates)) / len(rates) < 0.55  # the end of the warm-up
    assert sum(isinstance(event, ValidationEvent) for event in events) in (3, 4)
    saved = [event for event in events if isinstance(event, ActivityEvent) and event.activity == "saving"]
    assert 10 <= len(saved) <= 15


def test_a_slow_validation_is_followed_by_updates_and_its_time_is_kept_for_the_last(
    corpus: Path, tmp_path: Path, ticking: Time
) -> None:
    events: list[Event] = []

    def slow(model: nn.Module) -> Any:
        ticking.now += 0.4
        return no_validation(model)

    training = timed(tmp_path, corpus, 0.05)
    training.run(slow, events.append)
    assert 0.85 * 3 < training.progress.elapsed <= 3
    assert sum(isinstance(event, ValidationEvent) for event in events) == 2  # one, and the last


def test_the_minutes_of_all_starts_count_together_even_of_updates_that_were_lost(
    corpus: Path, tmp_path: Path, ticking: Time
) -> None:
    class KilledError(Exception):
        pass

    def kill(event: Event) -> None:
        if isinstance(event, UpdateEvent) and event.update == 31:
            raise KilledError

    training = timed(tmp_path, corpus, 0.05, save_every=99, validate_every=99)  # killed before its second checkpoint
    with pytest.raises(KilledError):
        training.run(no_validation, kill)
    assert [path.name for path in checkpoints(tmp_path)] == ["update-00000000"]
    resumed = timed(tmp_path, corpus, 0.05, save_every=99, validate_every=99)
    assert resumed.clock.spent == pytest.approx(1.5)  # of update 30, the last in the journal
    resumed.run(no_validation, ignore)
    assert 0.9 * 3 < resumed.progress.elapsed <= 3
    assert resumed.progress.update < 30


def test_a_resumed_run_has_used_the_time_of_its_checkpoint(corpus: Path, tmp_path: Path, ticking: Time) -> None:
    whole = timed(tmp_path, corpus, 0.02)
    whole.run(no_validation, ignore)
    resumed = timed(tmp_path, corpus, 0.02)
    assert resumed.progress == whole.progress
    assert resumed.clock.spent >= whole.progress.elapsed
    entries = journal.read(tmp_path / "journal.jsonl")
    assert all(entry["elapsed"] <= resumed.clock.spent for entry in entries)


def test_a_run_that_continues_with_more_minutes_first_makes_updates(
    corpus: Path, tmp_path: Path, ticking: Time
) -> None:
    first = timed(tmp_path, corpus, 0.05)
    first.run(no_validation, ignore)
    events: list[Event] = []
    longer = timed(tmp_path, corpus, 0.06, updates=round(1.2 * first.progress.update))  # as `regard.train` counts them
    longer.run(no_validation, events.append)
    assert isinstance(next(e for e in events if isinstance(e, UpdateEvent | ValidationEvent)), UpdateEvent)
    assert longer.finished


def test_minutes_that_are_used_up_end_a_run_after_one_update(corpus: Path, tmp_path: Path) -> None:
    training = timed(tmp_path, corpus, 0.01)
    training.run(no_validation, ignore)
    assert training.finished
    assert training.progress.update == 1


@pytest.mark.slow
def test_two_processes_follow_the_clock_of_the_first(corpus: Path, tmp_path: Path) -> None:
    ((losses,), _), _ = launch(tmp_path, corpus, [{"folder": "run", "minutes": 0.25, "updates": 100}])
    progress = read_progress(checkpoints(tmp_path / "run")[-1])
    assert progress.finished_at == 0.25
    assert progress.position == 100
    assert progress.update == len(losses) > 1
    assert progress.elapsed < 1.2 * 15


# Before a run


def completed(corpus: Path, unset: frozenset[str], **values: Any) -> tuple[Any, list[str]]:
    config, data = make_data(corpus, make_config("transformer", **values))
    lines: list[str] = []
    options: dict[str, Any] = {"unset": unset, "choose_threads": True, "start": time.perf_counter()}
    request = Request((), None, Path(), config, "", **options)
    return complete_config(config, request, data, ALONE, lambda config: build(config.model), lines.append), lines


def test_nothing_is_timed_without_minutes(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizing, "time_update", None)
    config, lines = completed(corpus, CHOSEN_FIELDS - {"train.updates"})
    assert config.train.updates == 12
    assert len(lines) == 1


def test_the_time_of_a_short_run_is_not_told(corpus: Path) -> None:
    (line,) = completed(corpus, CHOSEN_FIELDS - {"train.updates"})[1]
    assert re.search(r"12 updates of [\d,]+ tokens; --minutes limits the time", line)


def test_a_recipe_keeps_its_schedule_with_minutes(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizing, "_time", lambda *_: 0.01)
    config, lines = completed(corpus, frozenset(), minutes=5.0)
    assert (config.train.updates, config.train.warmup, config.train.batch_tokens) == (12, 4, 400)
    assert lines == []


@pytest.mark.parametrize("faster", [1, 2])
def test_the_faster_number_of_threads_is_used(corpus: Path, monkeypatch: pytest.MonkeyPatch, faster: int) -> None:
    monkeypatch.setattr(sizing, "_time", lambda *_: 1.0 if torch.get_num_threads() == faster else 3.0)
    torch.set_num_threads(2)
    try:
        _, lines = completed(corpus, frozenset(), minutes=5.0)
        assert torch.get_num_threads() == faster
    finally:
        torch.set_num_threads(1)
    said = ["using one CPU thread: at the moment it is 3.0 times as fast as 2 threads"] if faster == 1 else []
    assert [line for line in lines if "thread" in line] == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (1e-4, ""),
        (
            6.0,
            r"beside preparation and scoring, only \d+% of an epoch fits into --minutes 1; --minutes \d+ would .*",
        ),
    ],
)
def test_less_than_one_epoch_is_said_beforehand(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, said: str
) -> None:
    monkeypatch.setattr(sizing, "_time", lambda *_: seconds)
    _, lines = completed(corpus, frozenset(), minutes=1.0)
    assert re.fullmatch(said, "".join(lines))


@pytest.mark.parametrize("family", ["transformer", "rnn-input", "gpt", "bert"])
def test_facts_are_gathered_from_the_data(corpus: Path, family: str) -> None:
    _, data = make_data(corpus, make_config(family))
    facts = gather_facts(data, ALONE)
    assert facts.examples == len(data.train[0])
    assert facts.is_pairs == (family in ("transformer", "rnn-input"))
    assert facts.target_length > 2


# The time left

SETTINGS = TrainConfig(updates=1000, validate_every=100, save_every=50)


def after_updates(seconds: list[float], **options: Any) -> Clock:
    """The clock after updates that took so many seconds each."""
    clock = Clock(SETTINGS, **options)
    for number, took in enumerate(seconds, 1):
        clock.observe(UpdateEvent(number, 3.0, 1.0, 0.1, 100, 0, took))
    return clock


def validated(update: int, seconds: float) -> ValidationEvent:
    return ValidationEvent(update, {"valid_loss": 2.0}, {}, True, seconds, nn.Identity())


def test_nothing_is_estimated_before_a_few_updates() -> None:
    assert after_updates([1.0]).left(1) is None


def test_the_time_left_counts_updates_validations_and_the_final_scores() -> None:
    clock = after_updates([0.5] * 10, final_validations=3.0)
    clock.observe(validated(100, 10.0))
    assert clock.left(100) == 900 * 0.5 + (8 + 3) * 10
    assert clock.left(1000) == 3 * 10


def test_an_update_that_took_very_long_does_not_count() -> None:
    assert after_updates([60.0, *[0.5] * 9]).left(1000 - 10) == 10 * 0.5
