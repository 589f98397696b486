"""Plans: the updates that fit into a time, and the time that is left."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import pytest

from regard.config import Config, TrainConfig
from regard.devices import find_device
from regard.errors import RunError
from regard.models import build
from regard.text.batching import Batch
from regard.training import planning as plan_module
from regard.training.distributed import Runtime
from regard.training.planning import Found, Pace, facts, pace, planned, settled
from regard.training.sizing import CHOSEN, PLANNED, Facts, choose
from regard.training.step import Step
from tests.training.runs import make_config, make_data, no_validation, write_corpus

KNOWN = Facts(examples=5000, source=10, target=10, longest=40, device="cpu", memory=0, cores=2, minutes=10.0)
FOUND = Found(update=0.5, cold=1.0, validation=4.0, ending=10.0)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("plan"))


def plan(found: Found = FOUND, left_open: frozenset[str] = CHOSEN, known: Facts = KNOWN) -> Config:
    return planned(Config(), left_open, found, known, time.perf_counter())


def test_a_plan_fills_its_time_and_not_more() -> None:
    whole = FOUND.whole(plan().train)
    assert 0.9 * 600 < whole < 600


def test_what_has_passed_is_not_planned_for() -> None:
    late = planned(Config(), CHOSEN, FOUND, KNOWN, time.perf_counter() - 300)
    assert 0.85 * 300 < FOUND.whole(late.train) < 300


def test_costly_validations_become_rare() -> None:
    found = FOUND._replace(validation=50.0)
    settings = plan(found).train
    assert settings.updates == pytest.approx(settings.validate_every, abs=1)
    assert found.whole(settings) < 600


@pytest.mark.parametrize("minutes", [1.0, 3.0, 60.0])
@pytest.mark.parametrize("asked", [frozenset(), frozenset({"train.validate_every"})])
def test_sentences_that_do_not_end_yet_are_planned_for(minutes: float, asked: frozenset[str]) -> None:
    found = Found(update=0.2, cold=1.0, validation=4.0, ending=8.0, repeated=4.0, endless=4.0)
    settings = plan(found, CHOSEN - asked, dataclasses.replace(KNOWN, minutes=minutes)).train
    assert 0.75 * 60 * minutes < found.whole(settings) < 60 * minutes
    once = settings.updates <= settings.validate_every
    assert found.whole(settings) >= 1 + 0.2 * settings.updates + 4 + (4 if once else 8)


def test_validations_that_were_asked_for_are_made() -> None:
    settings = plan(left_open=PLANNED - {"train.validate_every"}).train
    assert settings.validate_every == Config().train.validate_every
    assert FOUND.whole(settings) < 600


def test_saves_that_were_asked_for_leave_no_time_for_more_validations() -> None:
    found = FOUND._replace(validation=50.0)
    settings = planned(Config(), CHOSEN - {"train.save_every"}, found, KNOWN, time.perf_counter()).train
    assert settings.save_every == Config().train.save_every
    assert settings.validate_every % settings.save_every == 0
    assert found.whole(settings) < 600


def test_a_recipes_rate_and_schedule_stay_with_a_warm_up_no_longer_than_a_sixth() -> None:
    recipe = Config.read({"train": {"schedule": "noam", "learning_rate": 2.0, "warmup": 4000}})
    settings = planned(recipe, PLANNED, FOUND, KNOWN, time.perf_counter()).train
    assert (settings.schedule, settings.learning_rate, settings.warmup) == ("noam", 2.0, settings.updates // 6)


def test_too_little_time_is_time_for_the_fewest_updates_and_one_validation() -> None:
    settings = plan(known=dataclasses.replace(KNOWN, minutes=0.1)).train
    assert (settings.updates, settings.validate_every) == (10, 10)


def test_a_run_without_minutes_is_not_probed_on_a_cpu(corpus: Path) -> None:
    config, data = make_data(corpus, make_config("transformer"))

    def never(*_: object) -> None:
        raise AssertionError("something was tried")

    runtime = Runtime(find_device("cpu"), 0, 1)
    said: list[str] = []
    tools = {"begun": 0.0, "make": never, "validate": never, "say": said.append}
    found = settled(config, CHOSEN - {"train.updates"}, data, runtime, minutes=0.0, **tools)  # type: ignore[arg-type]
    assert found.train.updates == config.train.updates
    assert len(said) == 1


@pytest.mark.slow
def test_a_probe_finds_what_a_run_takes(corpus: Path) -> None:
    config, data = make_data(corpus, make_config("transformer"))
    runtime = Runtime(find_device("cpu"), 0, 1)
    found = settled(
        config,
        PLANNED,
        data,
        runtime,
        minutes=1.0,
        begun=time.perf_counter(),
        make=lambda config: build(config.model),
        validate=lambda model, _: no_validation(model),
        say=lambda _: None,
    )
    assert found.train.updates > 12
    assert found.train.batch_tokens == config.train.batch_tokens


def test_recording_a_shape_is_no_update_and_is_planned_for_once_a_shape() -> None:
    times, recorded = [30.0, 2.0, 2.0, 0.5, *[0.5] * 8], [2, 3, 4, 4, *[4] * 8]
    assert plan_module._cold(times, 0.5, recorded, shapes=14) == pytest.approx(29.5 + 3.0 + 10 * 1.5)


def test_nothing_recorded_is_nothing_to_plan_for() -> None:
    assert plan_module._cold([3.0, 0.5, 0.5], 0.5, [0, 0, 0], shapes=14) == pytest.approx(2.5)


def test_a_probe_of_what_is_recorded_sees_few_batches_often(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, data = make_data(corpus, make_config("transformer"))
    seen: list[int] = []

    def met(self: Step, batch: Batch, scale: float, *, last: bool) -> None:
        seen.append(id(batch.source))
        plain(self, batch, scale, last=last)

    plain = Step.__call__
    monkeypatch.setattr(Step, "__call__", met)
    monkeypatch.setattr(Step, "records", True)
    make = lambda config: build(config.model)  # noqa: E731
    runtime = Runtime(find_device("cpu"), 0, 1)
    plan_module.probe(config, data, runtime, 0.01, make, lambda model, _: no_validation(model))
    assert len(seen) > len(set(seen)) == plan_module.COLD


def test_a_budget_is_halved_until_it_fits_and_the_updates_follow(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, data = make_data(corpus, make_config("transformer"))
    gpu = dataclasses.replace(KNOWN, examples=500_000, device="cuda", memory=140 << 30, minutes=0.0)
    config = choose(Config(), CHOSEN, gpu)
    monkeypatch.setattr(plan_module, "_fits", lambda config, *_: config.train.batch_tokens <= config_budget // 4)
    config_budget = config.train.batch_tokens
    runtime = Runtime(find_device("cpu"), 0, 1)
    found = plan_module._affordable(config, CHOSEN, data, runtime, gpu, lambda config: build(config.model))
    assert found.train.batch_tokens == config_budget // 4
    assert found.train.updates == pytest.approx(4 * config.train.updates, rel=0.1)


def test_an_example_that_no_budget_fits_is_said(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, data = make_data(corpus, make_config("transformer"))
    gpu = dataclasses.replace(KNOWN, device="cuda", memory=1 << 30, minutes=0.0)
    monkeypatch.setattr(plan_module, "_fits", lambda *_: False)
    runtime = Runtime(find_device("cpu"), 0, 1)
    with pytest.raises(RunError, match=r"lower text\.max_length"):
        plan_module._affordable(Config(), CHOSEN, data, runtime, gpu, lambda config: build(config.model))


@pytest.mark.parametrize("family", ["transformer", "rnn-input", "gpt", "bert"])
def test_facts_are_those_of_the_data(corpus: Path, family: str) -> None:
    _, data = make_data(corpus, make_config(family))
    known = facts(data, Runtime(find_device("cpu"), 0, 1), 0.0)
    assert known.examples == len(data.train[0])
    assert known.pairs == (family in ("transformer", "rnn-input"))
    assert known.longest >= known.target > 2


SETTINGS = TrainConfig(updates=1000, validate_every=100, save_every=50)


def test_nothing_is_said_of_the_time_left_before_a_few_updates() -> None:
    told = Pace(SETTINGS, validation=0.0, ending=1.0)
    told.update(1.0)
    assert told.left(1) is None


def test_the_time_left_counts_updates_validations_saves_and_the_end() -> None:
    told = Pace(SETTINGS, validation=0.0, ending=2.0)
    for _ in range(10):
        told.update(0.5)
    told.validation(10.0, 100, best=True)
    told.saved(1.0)
    assert told.left(100) == 900 * 0.5 + (9 + 2) * 10 + (18 + 1) * 1.0
    assert told.left(1000) == 2 * 10 + 1.0


@pytest.mark.parametrize(("best", "left"), [(True, 10 + 1.0), (False, 20 + 1.0)])
def test_after_the_last_validation_only_what_it_has_not_scored_is_left(best: bool, left: float) -> None:
    told = Pace(TrainConfig(updates=153, validate_every=154, save_every=153), validation=0.0, ending=2.0, again=True)
    for _ in range(10):
        told.update(0.5)
    told.validation(10.0, 153, best=best)
    told.saved(1.0)
    assert told.left(153) == left


def test_an_update_that_took_very_long_does_not_count() -> None:
    told = Pace(SETTINGS, validation=0.0, ending=0.0)
    for seconds in (60.0, *[0.5] * 9):
        told.update(seconds)
    assert told.left(10) == 990 * 0.5


def test_until_the_first_validation_it_is_taken_for_some_updates() -> None:
    told = Pace(SETTINGS, validation=20.0, ending=0.0)
    for _ in range(10):
        told.update(0.5)
    assert told.left(0) == 1000 * 0.5 + 10 * 20 * 0.5
    told.validation(1.0, 100, best=True)
    assert told.left(0) == 1000 * 0.5 + 10


def test_a_search_by_more_beams_is_expected_to_take_longer(corpus: Path) -> None:
    config, data = make_data(corpus, make_config("transformer"))
    runtime = Runtime(find_device("cpu"), 0, 1)
    left = []
    for beams in (1, 8):
        told = pace(config.with_values([f"decode.beams={beams}"]), data, runtime)
        for _ in range(4):
            told.update(1.0)
        left.append(told.left(0))
    assert left[0] is not None
    assert left[1] is not None
    assert left[1] > left[0]


def test_the_time_said_before_a_run_has_its_validations_in_it() -> None:
    told = Pace(SETTINGS, validation=20.0, ending=2.0)
    validations = -(-SETTINGS.updates // SETTINGS.validate_every)
    assert told.whole(0.5) == pytest.approx(0.5 * (SETTINGS.updates + 20 * (validations + 2)))
