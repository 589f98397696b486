"""The commands that use a model: one line out per line in, and a clear word on every line that is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from regard.checkpoint import save_model
from regard.cli import app
from regard.errors import ConfigError, DataError, FolderError
from tests import test_reader, test_translator, test_writer


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    test_translator.save(root / "translator", test_translator.make())
    test_translator.save(root / "rnn", test_translator.make("rnn"))
    writer, reader = test_writer.make(), test_reader.make()
    save_model(root / "gpt", writer.models[0], writer.config, {"tokenizer.json": writer.tokenizer.text}, force=False)
    save_model(root / "bert", reader.model, reader.config, {"tokenizer.json": reader.tokenizer.text}, force=False)
    return root


def regard(*words: str | Path, text: str | bytes = "") -> Any:
    done = CliRunner().invoke(app, [*map(str, words), "--device", "cpu"], input=text)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def test_one_line_comes_out_for_each_that_goes_in(folders: Path) -> None:
    text = "the bird\n\n  \nthe old house. The river sees a small bird.\r\nthe bird"
    done = regard("translate", folders / "translator", text=text)
    lines = done.stdout.split("\n")
    assert done.exit_code == 0
    assert len(lines) == 6
    assert (lines[1], lines[2], lines[-1]) == ("", "  ", "")
    assert lines[0] == lines[4]


def test_a_line_that_cannot_be_read_is_empty_and_named_and_the_rest_is_translated(folders: Path) -> None:
    done = regard("translate", folders / "translator", text=b"the bird\na\0b\ncaf\xe9\nthe bird\n")
    lines = done.stdout.split("\n")
    assert done.exit_code == 1
    assert lines[1:3] == ["", ""]
    assert lines[0] == lines[3] != ""
    assert "standard input:2: there is a NUL byte" in done.stderr
    assert "standard input:3: byte 4 of the line (0xE9) is not UTF-8" in done.stderr


def test_objects_keep_their_fields_and_get_a_translation(folders: Path) -> None:
    rows = ['{"id": 1, "en": "the bird"}', "no json", "", '{"id": 2}', '{"en": "\\ud800"}']
    how = ("--jsonl", "--field", "en", "--add", "score,warnings,alignment", "--alternatives", "1")
    done = regard("translate", folders / "translator", *how, text="\n".join(rows))
    first, bad, empty, lacking, half = done.stdout.rstrip("\n").split("\n")
    assert set(json.loads(first)) >= {"id", "en", "translation", "score", "warnings", "alignment"}
    assert json.loads(first)["id"] == 1
    assert "this is not JSON" in json.loads(bad)["error"]
    assert empty == ""
    assert "no text in a field 'en'" in json.loads(lacking)["error"]
    assert "surrogate" in json.loads(half)["error"]
    assert done.exit_code == 1


def test_alternatives_follow_on_the_same_line(folders: Path) -> None:
    first, second, _ = regard("translate", folders / "rnn", "--alternatives", "2", text="the bird\n\n").stdout.split(
        "\n"
    )
    assert len(set(first.split("\t"))) == len(first.split("\t")) > 1
    assert second == ""


def test_a_report_as_json_needs_a_file_to_write_to(folders: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give --out"):
        regard("translate", folders / "translator", "--json", text="a\n")
    done = regard("translate", folders / "translator", "--json", "--out", tmp_path / "out.txt", text="the bird\n\0\n")
    assert json.loads(done.stdout)["lines"] == 2
    assert [failed["line"] for failed in json.loads(done.stdout)["failed"]] == [2]
    assert len((tmp_path / "out.txt").read_text().split("\n")) == 3


def test_terms_of_a_glossary_are_counted_and_those_that_are_missing_are_named(folders: Path, tmp_path: Path) -> None:
    glossary, keep, out = tmp_path / "terms.tsv", tmp_path / "keep.txt", tmp_path / "out"
    glossary.write_text("bird\tzorblax\n")
    keep.write_text("/X\\d/\n")
    given = ("--glossary", glossary, "--keep", keep, "--out", out, "--json")
    done = regard("translate", folders / "translator", *given, text="the river\nthe bird X7\n")
    assert sum(json.loads(done.stdout)["terms"].values()) == 2
    assert "glossary: 2 terms" in done.stderr
    text = out.read_text()
    for term, form in (("bird", "zorblax"), ("X7", "X7")):
        assert (f"glossary: term {term} not placed in line 2" in done.stderr) != (form in text)
    with pytest.raises(ConfigError, match=r"--terms \(firm\) must be soft or hard"):
        regard("translate", folders / "translator", "--terms", "firm", text="the bird\n")


def test_nothing_is_overwritten_and_least_of_all_the_input(folders: Path, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("the bird\n")
    with pytest.raises(FolderError, match="is what is read"):
        regard("translate", folders / "translator", path, "--out", path, "--force")
    (tmp_path / "out.txt").write_text("old")
    with pytest.raises(FolderError, match="already there"):
        regard("translate", folders / "translator", path, "--out", tmp_path / "out.txt")


def test_the_prompt_and_what_follows_are_written(folders: Path) -> None:
    done = regard("generate", folders / "gpt", "the old", "--tokens", "5", "--greedy")
    assert done.stdout.startswith("the old")
    answer = json.loads(regard("generate", folders / "gpt", "the old", "--tokens", "5", "--greedy", "--json").stdout)
    assert done.stdout == f"the old{answer['text']}\n"


def test_gaps_are_filled_on_the_terminal_and_as_json(folders: Path) -> None:
    answer = json.loads(regard("fill", folders / "bert", "the [MASK] sees", "--top", "2", "--json").stdout)
    assert len(answer["gaps"][0]) == 2
    assert answer["text"] in regard("fill", folders / "bert", "the [MASK] sees").stdout


def test_every_line_becomes_a_row_of_numbers_or_there_is_no_file(folders: Path, tmp_path: Path) -> None:
    regard("embed", folders / "bert", "--out", tmp_path / "x.npy", text="the bird\n\nthe old house\n")
    found = np.load(tmp_path / "x.npy")
    assert (found.shape, found.dtype) == ((3, 16), np.float32)
    with pytest.raises(DataError, match="standard input:2"):
        regard("embed", folders / "bert", "--out", tmp_path / "y.npy", text=b"the bird\n\xff\n")
    assert not (tmp_path / "y.npy").exists()


@pytest.mark.parametrize(
    ("words", "right"),
    [(("translate", "gpt"), "regard generate"), (("generate", "translator"), "regard translate"),
     (("fill", "gpt", "[MASK]"), "regard generate"), (("translate", "bert"), "regard fill")],
)  # fmt: skip
def test_a_folder_of_another_family_is_refused_with_what_it_is_for(
    folders: Path, words: tuple[str, ...], right: str
) -> None:
    with pytest.raises(FolderError, match=right):
        regard(words[0], folders / words[1], *words[2:])
