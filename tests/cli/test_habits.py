"""What users of other tools type is answered with what to type here."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import regard.errors
from regard.cli.app import command_line
from regard.config import Config, preset, to_json
from tests.cli.test_app import regard as run

TABLE = tomllib.loads(Path(regard.errors.__file__).with_name("habits.toml").read_text())
COMMANDS = command_line().commands
OPTIONS = [
    (command, names.split()[0], line)
    for sections, habits in TABLE.items()
    for command in sections.split()
    if command in COMMANDS
    for names, line in habits.items()
]


def answer(*words: str) -> str:
    """The one line on standard error for a wrong request."""
    done = run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    return done.stderr


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with two texts, a model folder in a folder of runs, and a Hugging Face folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("a.en", "a.fr", "pairs.json", "table.csv"):
        Path(name).write_text("one\n")
    Path("runs/first").mkdir(parents=True)
    Path("runs/first/config.json").write_text(to_json(preset("transformer-base")))
    Path("marian").mkdir()
    Path("marian/config.json").write_text('{"architectures": ["MarianMTModel"], "model_type": "marian"}')


@pytest.mark.parametrize(("command", "name", "line"), OPTIONS)
def test_an_option_of_another_tool_is_answered(command: str, name: str, line: str) -> None:
    option = f"--{name}" if len(name) > 1 else f"-{name}"
    assert f"{option} is not an option of {command}. {line}\n" in answer(command, option, "x")


@pytest.mark.parametrize(("command", "line"), sorted({(command, line) for command, _, line in OPTIONS}))
def test_options_that_a_line_names_exist(command: str, line: str) -> None:
    options = {option for parameter in COMMANDS[command].params for option in parameter.opts}
    assert set(re.findall(r"--[a-z-]+", line)) - {"--nproc-per-node"} <= options


@pytest.mark.parametrize("line", [line for _, _, line in OPTIONS if "--set" in line])
def test_values_that_a_line_sets_are_valid(line: str) -> None:
    Config().with_values(re.findall(r"--set ([\w.]+=[\w.]+)", line))


@pytest.mark.parametrize(("names", "line"), TABLE["fields"].items())
def test_a_field_of_another_tool_is_answered(names: str, line: str) -> None:
    said = answer("train", "a.en", "a.fr", "--out", "x", "--set", f"train.{names.split()[0]}=1")
    assert said == f"regard: There is no option train.{names.split()[0]}. {line}\n"


@pytest.mark.parametrize("line", [*TABLE["fields"].values(), *TABLE["sections"].values()])
def test_fields_that_a_line_names_exist(line: str) -> None:
    values = Config().values()
    for section, field in re.findall(r"(\w+)\.(\w+)", line):
        assert field in values[section] or field == "FIELD"


@pytest.mark.parametrize("field", [section for section in TABLE if "." in section])
def test_a_value_of_another_tool_is_answered(field: str) -> None:
    for names, line in TABLE[field].items():
        said = answer("count", "gpt2", "--set", f'{field}="{names.split()[0]}"')
        assert said.endswith(f"{line}\n")


@pytest.mark.parametrize(("names", "line"), TABLE["commands"].items())
def test_a_command_of_another_tool_is_answered(names: str, line: str) -> None:
    assert answer(names.split()[0]) == f"regard: No such command '{names.split()[0]}'. {line}\n"


@pytest.mark.parametrize(("commands", "line"), TABLE["arguments"].items())
def test_too_many_arguments_are_answered(commands: str, line: str) -> None:
    for command in commands.split():
        first = "a.en" if command in ("train", "check") else "runs/first"
        out = ["--out", "x"] if command in ("train", "distill", "explain", "embed") else []
        assert line in answer(command, first, "a.en", "a.fr", "a.en", "a.fr", *out)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("train --save_dir=x a.en a.fr", "--save_dir is not an option of train. Use --out FOLDER"),
        ("train -src a.en -tgt a.fr --out x", "-src is not an option of train. Give the two files"),
        ("train a.en a.fr --out x family=lstm", "fields as --set section.field=value"),
        ("translate runs/first hello", 'Sentences are read from a file or standard input: echo "The old house." |'),
        ("translate runs/first runs", "runs is a folder; a file is needed here"),
        ("check a.en", "a.en is one plain text, and pairs need two: give SOURCE and TARGET"),
        ("train table.csv --out x", "one file that ends in .tsv, .jsonl"),
        ("train table.csv --out x", "(save a table as .tsv)"),
        ("check pairs.json", "Give one JSON object per line, in a file that ends in .jsonl"),
        ("train pairs.json --out x", "Give one JSON object per line, in a file that ends in .jsonl"),
        ("translate runs/first pairs.json", "For one JSON object per line use --jsonl"),
        ("train a.en a.fr --out x --recipe runs/first/config.json", "Give the model folder (runs/first)"),
        ("translate runs a.en", "It holds model folders: give one of them, such as runs/first"),
        ("translate marian a.en", "is from Hugging Face transformers. Import it first: regard import marian FOLDER"),
    ],
)
def test_a_habit_is_answered(command: str, message: str) -> None:
    assert message in answer(*command.split())


def test_a_sentence_in_place_of_a_file_is_answered() -> None:
    said = answer("translate", "runs/first", "The old house.")
    assert "Sentences are read from a file or standard input" in said


@pytest.mark.parametrize("words", ["--valid a.en --out x", "--out x --valid a.en"])
def test_one_validation_file_is_answered_with_how_many_it_takes(words: str) -> None:
    said = answer("train", "a.en", "a.fr", *words.split())
    assert said == "regard: Option '--valid' requires 2 arguments. For one text give FILE \"\".\n"
