"""`regard explain` writes what its file's name says, and refuses what means nothing before it loads a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regard.cli.app import app
from regard.errors import ConfigError, InputError
from regard.inspection.trace import Trace
from tests.translation.test_explain import made

SENTENCE = "the old house"


def explain(*words: object) -> str:
    done = CliRunner().invoke(app, ["explain", *map(str, words)], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def test_a_json_file_is_a_trace_with_the_map_that_was_asked_for(tmp_path: Path) -> None:
    folder = made("transformer", tmp_path)
    out = tmp_path / "x.json"
    explain(folder, SENTENCE, "--target", "a bird", "--method", "ablation", "--out", out)
    told = json.loads(out.read_bytes())["explanation"]
    assert (told["method"], told["rows"], told["columns"][:3]) == ("ablation", ["a", "bird", "</s>"], SENTENCE.split())
    assert Trace.load(out).target.words == told["rows"]


def test_what_was_written_is_told(tmp_path: Path) -> None:
    folder = made("transformer", tmp_path)
    said = explain(folder, SENTENCE, "--target", "a bird", "--out", tmp_path / "x.svg")
    assert said.splitlines() == ["a bird", str(tmp_path / "x.svg")]
    told = json.loads(explain(folder, SENTENCE, "--target", "a bird", "--out", tmp_path / "y.html", "--json"))
    assert (told["target"], told["method"], told["kind"]) == ("a bird", "attention", "cross")


def test_a_page_of_an_rnn_without_attention_has_the_other_methods(tmp_path: Path) -> None:
    folder = made("rnn", tmp_path)
    assert json.loads(explain(folder, SENTENCE, "--out", tmp_path / "x.html", "--json"))["method"] == "gradient"
    with pytest.raises(InputError, match="has no attention to show"):
        explain(folder, SENTENCE, "--out", tmp_path / "x.png")


@pytest.mark.parametrize(("option", "value", "message"), [("--method", "rolout", "Did you mean rollout"),
                                                          ("--kind", "crss", "Did you mean cross"),
                                                          ("--target", " ", "--target is empty"),
                                                          ("--out", "x.pdf", "must end in")])  # fmt: skip
def test_what_means_nothing_is_refused_before_anything_is_loaded(option: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        explain("nowhere", SENTENCE, "--out", "x.svg", option, value)
