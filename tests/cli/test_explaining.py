"""`regard explain` writes the format of its file name, and refuses wrong requests before it loads a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regard.cli.app import app
from regard.errors import ConfigError, InputError
from tests.translation.test_explain import made

SENTENCE = "the old house"


def explain(*words: object) -> str:
    done = CliRunner().invoke(app, ["explain", *map(str, words)], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def test_a_json_file_is_a_trace_with_the_requested_map(tmp_path: Path) -> None:
    folder = made("transformer", tmp_path)
    out = tmp_path / "x.json"
    explain(folder, SENTENCE, "--target", "a bird", "--method", "ablation", "--out", out)
    values = json.loads(out.read_bytes())
    told = values["explanation"]
    assert (told["method"], told["rows"], told["columns"][:3]) == ("ablation", ["a", "bird", "</s>"], SENTENCE.split())
    assert values["target"]["words"] == told["rows"]


def test_the_translation_is_printed(tmp_path: Path) -> None:
    folder = made("transformer", tmp_path)
    said = explain(folder, SENTENCE, "--target", "a bird", "--out", tmp_path / "x.svg")
    assert said.splitlines() == ["a bird", str(tmp_path / "x.svg")]
    told = json.loads(explain(folder, SENTENCE, "--target", "a bird", "--out", tmp_path / "y.html", "--json"))
    assert (told["target"], told["method"], told["kind"]) == ("a bird", "attention", "cross")


def test_an_rnn_without_attention_is_explained_by_another_method(tmp_path: Path) -> None:
    folder = made("rnn", tmp_path)
    assert json.loads(explain(folder, SENTENCE, "--out", tmp_path / "x.html", "--json"))["method"] == "gradient"
    assert json.loads(explain(folder, SENTENCE, "--out", tmp_path / "x.png", "--json"))["method"] == "gradient"


@pytest.mark.parametrize("suffix", [".PNG", ".Html", ".SVG", ".JSON"])
def test_the_suffix_of_a_file_may_be_in_capitals(tmp_path: Path, suffix: str) -> None:
    folder = made("transformer", tmp_path)
    starts = []
    for out in (tmp_path / f"lower{suffix.lower()}", tmp_path / f"upper{suffix}"):
        explain(folder, SENTENCE, "--out", out)
        starts.append(out.read_bytes()[:4])
    assert starts[0] == starts[1]


@pytest.mark.parametrize(("option", "value"), [("--method", "rolout"), ("--kind", "crss")])
def test_unknown_choices_are_refused_by_the_parser(option: str, value: str) -> None:
    done = CliRunner().invoke(app, ["explain", "nowhere", SENTENCE, "--out", "x.svg", option, value])
    assert done.exit_code == 2


@pytest.mark.parametrize(
    ("option", "value", "error", "message"),
    [("--target", " ", InputError, "the target is empty"), ("--out", "x.pdf", ConfigError, "must end in")],
)
def test_wrong_requests_are_refused_before_a_model_is_loaded(
    tmp_path: Path, option: str, value: str, error: type[Exception], message: str
) -> None:
    (tmp_path / "config.json").write_text("{}")  # and no weights
    with pytest.raises(error, match=message):
        explain(str(tmp_path), SENTENCE, "--out", "x.svg", option, value)
