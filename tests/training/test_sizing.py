"""The size of a run, chosen from its data and its machine."""

from __future__ import annotations

import dataclasses

import pytest

from regard.config import Config, find_config
from regard.training.sizing import (
    CHOSEN_FIELDS,
    CORE_FLOPS,
    Facts,
    choose,
    describe,
    unset_fields,
    update_seconds,
)

MULTI30K = Facts(
    examples=29_000,
    source_length=15.5,
    target_length=16.5,
    has_gpu=True,
    cores=8,
    flops=1000 * CORE_FLOPS,
)
CPU = dataclasses.replace(MULTI30K, has_gpu=False, cores=2, flops=2 * CORE_FLOPS)


def chosen(facts: Facts, *asked: str) -> Config:
    config = Config().with_values(["model.vocabulary=10000", *asked])
    names = [value.partition("=")[0] for value in asked]
    return choose(config, unset_fields(names, recipe=False, started=False), facts)


def seconds(config: Config, facts: Facts) -> float:
    return config.train.updates * update_seconds(config, facts)


def test_multi30k_gets_the_model_of_its_recipe() -> None:
    recipe, found = find_config("multi30k-ende"), chosen(MULTI30K)
    model = dataclasses.replace(found.model, vocabulary=recipe.model.vocabulary)
    assert model == recipe.model
    assert (found.train.r_drop, found.train.ema_decay) == (recipe.train.r_drop, recipe.train.ema_decay)


def test_more_data_never_gets_a_smaller_model() -> None:
    sizes = [chosen(dataclasses.replace(MULTI30K, examples=10**power)).model.size for power in range(2, 9)]
    assert sizes == sorted(sizes)


def test_a_million_pairs_on_a_gpu_get_the_base_transformer() -> None:
    found = chosen(dataclasses.replace(MULTI30K, examples=1_500_000)).model
    shape = (found.size, found.heads, found.feed_forward_size, found.encoder_layers, found.dropout)
    assert shape == (512, 8, 2048, 6, 0.1)


@pytest.mark.parametrize("examples", [100, 29_000, 1_000_000, 100_000_000])
@pytest.mark.parametrize("family", ["transformer", "rnn"])
def test_a_cpu_is_done_in_about_three_hours(examples: int, family: str) -> None:
    facts = dataclasses.replace(CPU, examples=examples)
    assert seconds(chosen(facts, f"model.family={family}"), facts) < 3.2 * 3600


def test_updates_of_several_micro_batches_are_fewer() -> None:
    one, four = chosen(MULTI30K), chosen(MULTI30K, "train.gradient_accumulation=4")
    assert four.train.updates == pytest.approx(one.train.updates / 4, rel=0.1)
    assert seconds(four, MULTI30K) == pytest.approx(seconds(one, MULTI30K), rel=0.1)


@pytest.mark.parametrize("family", ["gpt", "bert"])
@pytest.mark.parametrize("tokens", [1_000, 300_000, 10**9])
def test_one_text_gets_a_model_by_its_tokens(family: str, tokens: int) -> None:
    facts = dataclasses.replace(CPU, examples=tokens // 20, source_length=0.0, target_length=20.0)
    found = chosen(facts, f"model.family={family}")
    assert found.model.family == family
    assert found.train.batch_tokens >= 1024
    assert seconds(found, facts) < 3.2 * 3600


def test_with_updates_given_the_cores_of_a_cpu_change_nothing() -> None:
    one, many = (dataclasses.replace(CPU, cores=cores, flops=cores * CORE_FLOPS) for cores in (1, 64))
    assert chosen(one, "train.updates=500") == chosen(many, "train.updates=500")


def test_a_run_with_updates_given_does_not_stop_early() -> None:
    assert chosen(CPU).train.patience > 0
    assert chosen(CPU, "train.updates=500").train.patience == 0


def test_fields_that_are_set_are_kept() -> None:
    asked = [
        "model.size=96",
        "model.dropout=0.05",
        "train.learning_rate=0.01",
        "train.batch_tokens=999",
        "train.save_every=7",
    ]
    values = chosen(CPU, *asked).values()
    for assignment in asked:
        path, _, value = assignment.partition("=")
        section, _, name = path.partition(".")
        assert values[section][name] == float(value), name


@pytest.mark.parametrize("asked", ["model.size=200", "model.size=8"])
@pytest.mark.parametrize("family", ["transformer", "gpt"])
def test_size_is_a_multiple_of_heads_whichever_was_set(family: str, asked: str) -> None:
    facts = CPU if family == "transformer" else dataclasses.replace(MULTI30K, source_length=0.0)
    model = chosen(facts, f"model.family={family}", asked).model
    assert model.size % model.heads == 0


def test_little_time_or_a_slow_machine_gets_a_smaller_model_and_a_schedule_that_fits() -> None:
    hours = dataclasses.replace(CPU, seconds=7200.0)
    slow = dataclasses.replace(hours, flops=hours.flops / 20)
    for facts in (slow, dataclasses.replace(CPU, seconds=120.0)):
        config = chosen(facts)
        assert config.model.size < chosen(hours).model.size
        assert seconds(config, facts) == pytest.approx(facts.seconds, rel=0.01)


def test_a_recipe_sets_all_fields() -> None:
    assert unset_fields([], recipe=True, started=False) == frozenset()


def test_a_model_to_start_from_keeps_its_shape() -> None:
    names = unset_fields([], recipe=False, started=True)
    assert "train.updates" in names
    assert not [name for name in names if name.startswith("model.")]


def test_every_chosen_field_is_in_the_config() -> None:
    values = Config().values()
    assert not CHOSEN_FIELDS - {f"{section}.{name}" for section, fields in values.items() for name in fields}


def test_the_choice_is_described_with_its_reason() -> None:
    assert describe(chosen(CPU), CPU) == (
        "29,000 pairs, 2 cores: a transformer of 4+4 layers of 256 (7.8 million parameters), 8,900 updates of 4,096 "
        "tokens, about 3 h 00 min; --minutes limits the time, --recipe sets the size"
    )


@pytest.mark.parametrize(
    ("facts", "asked", "packed"),
    [
        (MULTI30K, [], True),
        (CPU, [], False),
        (dataclasses.replace(MULTI30K, has_packed_kernels=False), [], False),
        (MULTI30K, ["train.precision=fp32"], False),
        (MULTI30K, ["train.guided_alignment=0.1"], False),
        (MULTI30K, ["train.batch_shapes=8"], False),
        (MULTI30K, ["train.packed=false"], False),
        (MULTI30K, ["model.family=gpt"], False),
    ],
)
def test_pairs_are_packed_where_there_is_a_kernel_for_it(facts: Facts, asked: list[str], packed: bool) -> None:
    found = chosen(facts, *asked).train
    assert found.packed is packed
    assert (found.batch_shapes > 0) is (facts.has_gpu and not packed and "model.family=gpt" not in asked)
