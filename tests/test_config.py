"""The config: values are checked, and an error says what is wrong, where, and what would be right."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

from regard.config import (
    PRESETS,
    Config,
    ModelConfig,
    find_config,
    load_config,
    parse_assignments,
    preset,
    run_values,
    to_json,
)
from regard.errors import ConfigError, FolderError


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"size": 100, "heads": 8}, r"model.size \(100\) must be a multiple of model.heads \(8\)"),
        ({"heads": 8, "key_value_heads": 3}, r"model.heads \(8\) must be a multiple of model.key_value_heads \(3\)"),
        ({"size": 0}, r"model.size \(0\) must be from 1 to 10,000,000"),
        ({"size": 10**9}, r"model.size \(1000000000\) must be from 1 to 10,000,000"),
        ({"encoder_layers": 10**4}, r"model.encoder_layers \(10000\) must be from 1 to 1,000"),
        ({"size": 10**400}, "model.size is too large"),
        ({"dropout": 10**400}, "model.dropout is too large"),
        ({"size": "512"}, r"model.size \('512'\) must be a whole number"),
        ({"size": True}, r"model.size \(True\) must be a whole number"),
        ({"bias": 1}, r"model.bias \(1\) must be true or false"),
        ({"dropout": 1.0}, r"model.dropout \(1.0\) must be at least 0 and below 1"),
        ({"family": "xyz"}, r"model.family \(xyz\) must be one of rnn, transformer, bert, gpt$"),
        ({"score": "aditive"}, r"model.score \(aditive\) must be one of .*additive"),
        ({"score": "none"}, "model.score = none is for model.family = rnn: a transformer needs attention"),
        ({"positions": "rotary", "size": 24, "heads": 8}, r"model.size / model.heads \(24 / 8 = 3\) must be even"),
        ({"target_vocabulary": 9, "vocabulary": 8}, 'set model.target_vocabulary=0 or model.tie_embeddings="target"'),
        ({"family": "rnn", "size": 7}, r"model.size \(7\) must be even for a bidirectional encoder"),
        ({"family": "rnn", "score": "dot", "encoder_size": 9}, "set model.encoder_size=256 or model.score=general"),
        ({"family": "rnn", "output_size": 9}, 'set model.output_size=512 or model.tie_embeddings="none"'),
        ({"norm_epsilon": 0.0}, r"model.norm_epsilon \(0.0\) must be a number above 0"),
    ],
)
def test_a_wrong_value_is_refused_with_its_field_and_a_fix(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ModelConfig(**values)


@pytest.mark.parametrize("value", ["inf", "-inf", "nan"])
def test_no_number_is_infinite_or_nan(value: str) -> None:
    for section in dataclasses.fields(Config):
        numbers = [field.name for field in dataclasses.fields(getattr(Config(), section.name)) if field.type == "float"]
        for name in numbers:
            with pytest.raises(ConfigError, match=rf"{section.name}.{name} \({value}\) must be a finite number"):
                Config().with_values([f"{section.name}.{name}={value}"])


@pytest.mark.parametrize("text", ["9" * 5000, "[" * 100_000])
def test_a_value_that_toml_cannot_read_is_text(text: str) -> None:
    assert parse_assignments([f"text.tags={text}"]) == {"text.tags": text}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"model": {"sise": 3}},
            "There is no option model.sise. Did you mean model.size?",
        ),
        ({"modle": {}}, "There is no section modle. Did you mean model?"),
        ({"model": 3}, "model is a section with fields, not a value"),
        ({"decode": {"max_length_extra": 10**18}}, "must be from 0 to 100,000"),
        ({"text": {"continuous": True}}, "text.continuous is for model.family = gpt or bert: a transformer learns"),
        ({"text": {"continuous": True, "tokenizer": "words"}}, "set text.tokenizer to bpe or unigram or characters"),
    ],
)
def test_unknown_names_and_wrong_combinations_are_refused_with_a_fix(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("?", r"\?")):
        Config.read(values)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("model.sise=3", "There is no option model.sise"),
        ("size=3", r"is not of the form section.field=value. Did you mean model.size=3\?"),
        ("model.size", "is not of the form section.field=value"),
        ("modle.size=3", "There is no section modle"),
        ("model.size=big", r"model.size \('big'\) must be a whole number"),
    ],
)
def test_a_wrong_assignment_is_refused(assignment: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Config().with_values([assignment])


@pytest.mark.parametrize("path", ["model", "model.", {"model": {"size": 3}}])
def test_a_field_without_its_section_is_refused(path: str | dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"is not of the form section\.field"):
        Config().with_values(path if isinstance(path, dict) else {path: 3})


@pytest.mark.parametrize("minutes", ["x", 0, -1, math.nan, math.inf])
def test_minutes_that_are_no_number_above_0_are_refused(minutes: object) -> None:
    with pytest.raises(ConfigError, match=r"--minutes \(.*\) must be a number of minutes above 0"):
        run_values({}, updates=None, minutes=minutes, seed=None)


def test_assignments_are_read_as_toml_and_else_as_text() -> None:
    changed = Config().with_values(["model.size=64", "model.family=gpt", "model.bias=false", "model.dropout=0"]).model
    assert (changed.size, changed.family, changed.bias, changed.dropout) == (64, "gpt", False, 0.0)


@pytest.mark.parametrize("name", PRESETS)
def test_a_config_survives_json(name: str, tmp_path) -> None:
    (tmp_path / "config.json").write_text(to_json(preset(name)))
    assert load_config(tmp_path) == preset(name)
    assert find_config(str(tmp_path)) == preset(name)


def test_a_recipe_is_toml(tmp_path) -> None:
    recipe = tmp_path / "small.toml"
    recipe.write_text('[model]\nsize = 64\nfamily = "rnn"\n')
    assert find_config(str(recipe)).model == ModelConfig(size=64, family="rnn")


def test_a_wrong_field_of_a_recipe_is_named_with_its_file(tmp_path) -> None:
    (tmp_path / "small.toml").write_text("[model]\nsise = 64\n")
    with pytest.raises(ConfigError, match=r"small.toml: There is no option model.sise. Did you mean model.size\?"):
        find_config(str(tmp_path / "small.toml"))


def test_a_file_of_another_kind_is_no_recipe(tmp_path) -> None:
    (tmp_path / "small.yaml").write_text("model: 3\n")
    with pytest.raises(ConfigError, match=r"small.yaml is not a recipe. Give the model folder or a .toml file"):
        find_config(str(tmp_path / "small.yaml"))


@pytest.mark.parametrize("content", ["[model", "\0", "[]"])
def test_a_damaged_recipe_is_one_clear_error(content: str, tmp_path) -> None:
    (tmp_path / "x.toml").write_text(content)
    with pytest.raises(ConfigError, match=r"x.toml"):
        find_config(str(tmp_path / "x.toml"))


@pytest.mark.parametrize("content", [b"", b"[]", b"3", b"\xff\xfe", b"{" * 100_000, json.dumps({"model": []}).encode()])
def test_a_damaged_config_json_is_one_clear_error(content: bytes, tmp_path) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(FolderError):
        load_config(tmp_path)


def test_a_folder_without_a_config_is_not_a_model_folder(tmp_path) -> None:
    with pytest.raises(FolderError, match=r"is not a model folder: it has no config.json"):
        find_config(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "nearest"), [("bert-bas", "bert-base"), ("gpt-2", "gpt2"), ("rnnsearch", "rnnsearch-50")]
)
def test_an_unknown_preset_suggests_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match=rf"There is no preset, recipe or folder {name}. Did you mean {nearest}"):
        find_config(name)


def test_a_folder_of_an_older_version_is_refused_in_one_line(tmp_path) -> None:
    (tmp_path / "config.json").write_text('{"train": {"budget": 4096}}')
    with pytest.raises(FolderError, match=r"config.json: There is no option train.budget"):
        find_config(str(tmp_path))
