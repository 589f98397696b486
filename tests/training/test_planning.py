"""Planning: updates that fit into --minutes, batches that fit into memory, and the time left."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from regard.config import Config, TrainConfig
from regard.devices import find_device
from regard.models import build
from regard.text.batching import Batch
from regard.training import planning
from regard.training.distributed import Runtime
from regard.training.events import SaveEvent, UpdateEvent, ValidationEvent
from regard.training.gradients import Gradients
from regard.training.planning import Probe, complete_config, gather_facts, plan, time_left
from regard.training.progress import TimeLeft, format_duration
from regard.training.sizing import CHOSEN_FIELDS, PLANNED_FIELDS, Facts, choose
from regard.training.validation import validation_set
from tests.training.runs import make_config, make_data, write_corpus

FACTS = Facts(
    examples=5000,
    source_length=10,
    target_length=10,
    max_length=40,
    device="cpu",
    gpu_memory=0,
    cores=2,
    minutes=10.0,
)
PROBE = Probe(update=0.5, warm_up=1.0, validation=4.0, final=10.0)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("plan"))


def planned(probe: Probe = PROBE, unset: frozenset[str] = CHOSEN_FIELDS, facts: Facts = FACTS) -> Config:
    return plan(Config(), unset, probe, facts, time.perf_counter())


def test_a_plan_fills_its_minutes_and_not_more() -> None:
    whole = PROBE.total(planned().train)
    assert 0.9 * 600 < whole < 600


def test_time_that_has_passed_is_subtracted() -> None:
    late = plan(Config(), CHOSEN_FIELDS, PROBE, FACTS, time.perf_counter() - 300)
    assert 0.85 * 300 < PROBE.total(late.train) < 300


def test_slow_validations_become_rare() -> None:
    probe = PROBE._replace(validation=50.0)
    settings = planned(probe).train
    assert settings.updates == pytest.approx(settings.validate_every, abs=1)
    assert probe.total(settings) < 600


@pytest.mark.parametrize("minutes", [1.0, 3.0, 60.0])
@pytest.mark.parametrize("asked", [frozenset(), frozenset({"train.validate_every"})])
def test_slow_validations_of_an_untrained_model_are_planned_for(minutes: float, asked: frozenset[str]) -> None:
    probe = Probe(update=0.2, warm_up=1.0, validation=4.0, final=8.0, untrained_factor=4.0)
    settings = planned(probe, CHOSEN_FIELDS - asked, dataclasses.replace(FACTS, minutes=minutes)).train
    assert 0.75 * 60 * minutes < probe.total(settings) < 60 * minutes
    assert probe.total(settings) >= 1 + 0.2 * settings.updates + 4 + 8


def test_validate_every_is_kept_if_it_is_set() -> None:
    settings = planned(unset=PLANNED_FIELDS - {"train.validate_every"}).train
    assert settings.validate_every == Config().train.validate_every
    assert PROBE.total(settings) < 600


def test_save_every_is_kept_if_it_is_set() -> None:
    probe = PROBE._replace(validation=50.0)
    settings = planned(probe, CHOSEN_FIELDS - {"train.save_every"}).train
    assert settings.save_every == Config().train.save_every
    assert settings.validate_every % settings.save_every == 0
    assert probe.total(settings) < 600


def test_a_recipe_keeps_its_learning_rate_and_schedule_with_a_shorter_warm_up() -> None:
    recipe = Config.read({"train": {"schedule": "noam", "learning_rate": 2.0, "warmup": 4000}})
    settings = plan(recipe, PLANNED_FIELDS, PROBE, FACTS, time.perf_counter()).train
    assert (settings.schedule, settings.learning_rate, settings.warmup) == ("noam", 2.0, settings.updates // 6)


def test_too_few_minutes_give_ten_updates_and_one_validation() -> None:
    settings = planned(facts=dataclasses.replace(FACTS, minutes=0.1)).train
    assert (settings.updates, settings.validate_every) == (10, 10)


def test_a_run_without_minutes_is_not_probed_on_a_cpu(corpus: Path) -> None:
    config, data = make_data(corpus, make_config("transformer"))

    def never(*_: object) -> None:
        raise AssertionError("something was tried")

    runtime, lines = Runtime(find_device("cpu"), 0, 1), list[str]()
    valid_set = validation_set(data, None)
    completed = complete_config(
        config,
        CHOSEN_FIELDS - {"train.updates"},
        valid_set,
        runtime,
        minutes=None,
        start=0.0,
        make_model=never,  # type: ignore[arg-type]
        say=lines.append,
    )
    assert completed.train.updates == config.train.updates
    assert len(lines) == 1


@pytest.mark.slow
def test_a_probe_plans_a_run_of_a_minute(corpus: Path) -> None:
    config, data = make_data(corpus, make_config("transformer"))
    completed = complete_config(
        config,
        PLANNED_FIELDS,
        validation_set(data, None),
        Runtime(find_device("cpu"), 0, 1),
        minutes=1.0,
        start=time.perf_counter(),
        make_model=lambda config: build(config.model),
        say=lambda _: None,
    )
    assert completed.train.updates > 12
    assert completed.train.batch_tokens == config.train.batch_tokens


def test_cuda_graphs_are_planned_for_once_per_shape() -> None:
    times, recorded = [30.0, 2.0, 2.0, 0.5, *[0.5] * 8], [2, 3, 4, 4, *[4] * 8]
    assert planning._warm_up_seconds(times, 0.5, recorded, shapes=14) == pytest.approx(29.5 + 3.0 + 10 * 1.5)


def test_without_cuda_graphs_only_slow_updates_are_planned_for() -> None:
    assert planning._warm_up_seconds([3.0, 0.5, 0.5], 0.5, [0, 0, 0], shapes=14) == pytest.approx(2.5)


def test_a_probe_with_cuda_graphs_repeats_a_few_batches(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, data = make_data(corpus, make_config("transformer"))
    seen: list[int] = []

    class Graphs(Gradients):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.uses_graphs = True

        def accumulate(self, batch: Batch, scale: float, *, last: bool) -> None:
            seen.append(id(batch.source))
            self._backward(batch, scale, last=last)

    monkeypatch.setattr("regard.training.loop.Gradients", Graphs)
    planning.time_updates(config, data, Runtime(find_device("cpu"), 0, 1), 0.1, lambda config: build(config.model))
    assert len(seen) > len(set(seen)) == planning.SLOW_UPDATES


def test_batch_tokens_are_halved_until_they_fit_into_memory() -> None:
    gpu = dataclasses.replace(FACTS, examples=500_000, device="cuda", gpu_memory=140 << 30, minutes=None)
    small = dataclasses.replace(gpu, gpu_memory=2 << 30)
    config, runtime = choose(Config(), CHOSEN_FIELDS, gpu), Runtime(find_device("cpu"), 0, 1)
    roomy, fitted = (planning.fit_memory(config, CHOSEN_FIELDS, runtime, facts) for facts in (gpu, small))
    assert roomy.train.batch_tokens == config.train.batch_tokens
    assert small.max_length <= fitted.train.batch_tokens < config.train.batch_tokens
    assert fitted.train.updates > config.train.updates


@pytest.mark.parametrize("family", ["transformer", "rnn-input", "gpt", "bert"])
def test_facts_are_gathered_from_the_data(corpus: Path, family: str) -> None:
    _, data = make_data(corpus, make_config(family))
    facts = gather_facts(data, Runtime(find_device("cpu"), 0, 1), None)
    assert facts.examples == len(data.train[0])
    assert facts.is_pairs == (family in ("transformer", "rnn-input"))
    assert facts.max_length >= facts.target_length > 2


SETTINGS = TrainConfig(updates=1000, validate_every=100, save_every=50)


def after_updates(times: list[float], settings: TrainConfig = SETTINGS, **options: Any) -> TimeLeft:
    """The time left after updates that took so many seconds each."""
    left = TimeLeft(settings, **{"validation_updates": 0.0, "final_validations": 0.0, **options})
    for number, seconds in enumerate(times, 1):
        left.observe(UpdateEvent(number, 3.0, 1.0, 0.1, 100, 0, seconds))
    return left


def validated(update: int, seconds: float, *, best: bool) -> ValidationEvent:
    return ValidationEvent(update, {"valid_loss": 2.0}, {}, best, seconds, nn.Identity())


def test_nothing_is_estimated_before_a_few_updates() -> None:
    assert after_updates([1.0]).seconds(1) is None


def test_the_time_left_counts_updates_validations_saves_and_the_final_scoring() -> None:
    left = after_updates([0.5] * 10, final_validations=2.0)
    left.observe(validated(100, 10.0, best=True))
    left.observe(SaveEvent(100, 1.0))
    assert left.seconds(100) == 900 * 0.5 + (9 + 2) * 10 + (18 + 1) * 1.0
    assert left.seconds(1000) == 2 * 10 + 1.0


def test_an_update_that_took_very_long_does_not_count() -> None:
    assert after_updates([60.0, *[0.5] * 9]).seconds(10) == 990 * 0.5


def test_the_first_validation_is_estimated_in_updates() -> None:
    left = after_updates([0.5] * 10, validation_updates=20.0)
    assert left.seconds(0) == 1000 * 0.5 + 10 * 20 * 0.5
    left.observe(validated(100, 1.0, best=True))
    assert left.seconds(0) == 1000 * 0.5 + 10


def test_a_search_with_more_beams_is_expected_to_take_longer(corpus: Path) -> None:
    config, data = make_data(corpus, make_config("transformer"))
    runtime = Runtime(find_device("cpu"), 0, 1)
    one, eight = (
        time_left(config.with_values([f"decode.beams={beams}"]), data, runtime).total(1.0) for beams in (1, 8)
    )
    assert eight > one


def test_the_estimate_before_a_run_includes_its_validations() -> None:
    left = TimeLeft(SETTINGS, validation_updates=20.0, final_validations=2.0)
    assert left.total(0.5) == pytest.approx(0.5 * (1000 + 20 * (10 + 2)))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "…"), (45, "45 s"), (720, "12 min"), (12000, "3 h 20 min"), (190000, "2 d 4 h")],
)
def test_a_duration_is_formatted_in_two_units(seconds: float | None, text: str) -> None:
    assert format_duration(seconds) == text
