"""translate writes one line per input line and names every line that could not be read; generate, fill and embed."""

from __future__ import annotations

import io
import json
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from regard.cli.app import app, main
from regard.errors import ConfigError, FolderError
from regard.models.folder import save_model
from regard.translation.reader import Reader
from regard.translation.translator import Result
from tests.translation import test_reader, test_translator, test_writer


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


def test_every_input_line_gives_one_output_line(folders: Path) -> None:
    text = "the bird\n\n  \nthe old house. The river sees a small bird.\r\nthe bird"
    done = regard("translate", folders / "translator", text=text)
    lines = done.stdout.split("\n")
    assert done.exit_code == 0
    assert len(lines) == 6
    assert (lines[1], lines[2], lines[-1]) == ("", "  ", "")
    assert lines[0] == lines[4]


def test_the_output_file_called_minus_is_standard_output(
    folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = regard("translate", folders / "translator", "--out", "-", text="the bird\n")
    assert done.stdout == regard("translate", folders / "translator", text="the bird\n").stdout
    assert not list(tmp_path.iterdir())


def test_an_unreadable_line_gives_an_empty_line_and_a_message(folders: Path) -> None:
    done = regard("translate", folders / "translator", text=b"the bird\na\0b\ncaf\xe9\nthe bird\n")
    lines = done.stdout.split("\n")
    assert done.exit_code == 1
    assert lines[1:3] == ["", ""]
    assert lines[0] == lines[3] != ""
    assert "standard input:2: there is a NUL byte" in done.stderr
    assert "standard input:3: byte 4 of the line (0xE9) is not UTF-8" in done.stderr


def test_a_split_sentence_is_reported(folders: Path) -> None:
    done = regard("translate", folders / "translator", text="the bird, " * 30 + "\nthe bird\n")
    assert done.exit_code == 0
    assert "1 line had a sentence that was too long for the model" in done.stderr


def test_json_objects_keep_their_fields_and_get_a_translation(folders: Path) -> None:
    rows = ['{"id": 1, "en": "the bird"}', "no json", "", '{"id": 2}', '{"en": "\\ud800"}', '{"en": 3}']
    how = ("--jsonl", "--field", "en", "--add", "score,warnings,alignment", "--alternatives", "1")
    done = regard("translate", folders / "translator", *how, text="\n".join(rows))
    first, bad, empty, lacking, half, number = done.stdout.rstrip("\n").split("\n")
    assert set(json.loads(first)) >= {"id", "en", "translation", "score", "warnings", "alignment"}
    assert json.loads(first)["id"] == 1
    assert "this is not JSON" in json.loads(bad)["error"]
    assert empty == ""
    assert "there is no field 'en'" in json.loads(lacking)["error"]
    assert "the value of 'en' is not text" in json.loads(number)["error"]
    assert "surrogate" in json.loads(half)["error"]
    assert done.exit_code == 1


def test_a_json_object_is_written_as_it_was_read(folders: Path) -> None:
    row = '{ "pi":3.14159265358979323846264338327950288, "text": "the bird","n": 1%s, "half": "\\ud800"' % ("0" * 5000)
    done = regard("translate", folders / "translator", "--jsonl", text=f"{row} }}\n")
    assert done.exit_code == 0
    assert done.stdout.startswith(f'{row}, "translation": "')
    assert json.loads(done.stdout, parse_int=str)["translation"]


def test_json_nested_too_deeply_fails_alone(folders: Path) -> None:
    rows = [f'{{"text": "the bird", "x": {"[" * deep}{"]" * deep}}}' for deep in (600, 100_000, 1)]
    done = regard("translate", folders / "translator", "--jsonl", text="\n".join(rows))
    deep, deepest, last = map(json.loads, done.stdout.splitlines())
    assert deep["translation"] == last["translation"] != ""
    assert deepest["error"].startswith("this is not JSON (maximum recursion depth exceeded")


def test_an_existing_field_is_never_overwritten(folders: Path) -> None:
    rows = [
        '{"text": "the bird", "translation": "mine"}',
        '{"text": "the bird", "score": 1}',
        '{"error": 1, "text": ""}',
    ]
    done = regard("translate", folders / "translator", "--jsonl", "--add", "score", text="\n".join(rows))
    first, second, third = map(json.loads, done.stdout.splitlines())
    assert first["translation"] == "mine"
    assert first["error"] == "the object has a field 'translation' already: give it another name"
    assert (second["score"], second["translation"]) == (1, "")
    assert (third["error"], third["translation"]) == (1, "")
    assert done.exit_code == 1


def test_only_the_first_failed_lines_are_listed(folders: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.txt"
    done = regard("translate", folders / "translator", "--json", "--out", out, text="a\0\n" * 25)
    report = json.loads(done.stdout)
    assert (report["failures"], len(report["failed"])) == (25, 20)
    assert "and 5 more such lines" in done.stderr


def test_output_is_utf_8_whatever_the_locale(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii", write_through=True))
    words = ["fill", str(folders / "bert"), "caf\u00e9 [MASK]", "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", ["regard", *words])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as stopped:
        main()
    assert not stopped.value.code
    assert written.getvalue().startswith("caf\u00e9 ".encode())


def test_a_full_gpu_gives_a_message_of_one_line(
    folders: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate")

    monkeypatch.setattr(Reader, "fill", full)
    monkeypatch.setattr(sys, "argv", ["regard", "fill", str(folders / "bert"), "a [MASK]", "--device", "cpu"])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 1
    assert (
        capsys.readouterr().err
        == "regard: out of GPU memory: end other programs that use the GPU, or use --device cpu\n"
    )


def test_the_trace_is_of_the_first_translated_line(
    folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Result] = []
    monkeypatch.setattr(Result, "draw", lambda self, path, force: drawn.append(self))
    text = '\n{"text": "\\ud800"}\n{"text": "{x}"}\n{"text": "the <b>old</b> house"}\n{"text": "the bird"}\n'
    done = regard("translate", folders / "translator", "--jsonl", "--trace", tmp_path / "a.html", text=text)
    rows = [json.loads(line)["translation"] for line in done.stdout.splitlines() if line]
    assert rows[:2] == ["", "{x}"]
    assert len(rows) == 4
    assert [result.text for result in drawn] == [rows[2]]
    assert drawn[0].trace is not None
    assert drawn[0].trace.source.text == "the old house"


def test_without_a_translated_line_the_missing_trace_is_mentioned(folders: Path, tmp_path: Path) -> None:
    done = regard("translate", folders / "translator", "--trace", tmp_path / "a.html", text="\n")
    assert "no line was translated, so there is nothing to draw in" in done.stderr
    assert not (tmp_path / "a.html").exists()


def test_an_invalid_trace_file_is_refused_before_translating(folders: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"a\.pdf must end in"):
        regard(
            "translate", folders / "translator", "--trace", tmp_path / "a.pdf", "--out", tmp_path / "out", text="a\n"
        )
    assert not (tmp_path / "out").exists()


PO = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "the%s bird"\nmsgstr ""\n'


def test_an_unreadable_message_of_a_document_stays_and_is_reported(folders: Path, tmp_path: Path) -> None:
    path, out = tmp_path / "a.po", tmp_path / "b.po"
    path.write_text(PO % "\\000")
    done = regard("translate", folders / "translator", path, "--out", out)
    assert done.exit_code == 1
    assert out.read_bytes() == path.read_bytes()
    assert f"{path}:4: there is a NUL at character 4: this is not text; it is left as it was" in done.stderr
    assert f"{out}: translated 0; left out 1 unreadable" in done.stderr


def test_a_document_is_not_read_as_json(folders: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.po"
    path.write_text(PO % "")
    with pytest.raises(ConfigError, match=r"a\.po is a document, and --jsonl reads JSON objects: leave out --jsonl$"):
        regard("translate", folders / "translator", path, "--jsonl")


XLIFF = (
    '<xliff version="1.2"><file source-language="en" target-language="fr"><body><trans-unit id="1">'
    "<source>the bird</source></trans-unit></body></file></xliff>"
)


@pytest.mark.parametrize(("name", "text"), [("a.po", PO % ""), ("a.xlf", XLIFF)])
def test_terms_are_placed_and_counted_in_documents(folders: Path, tmp_path: Path, name: str, text: str) -> None:
    path, out, glossary = tmp_path / name, tmp_path / f"b{name}", tmp_path / "terms.tsv"
    path.write_text(text)
    glossary.write_text("bird\tzorblax\n")
    given = ("--glossary", glossary, "--out", out, "--json")
    done = regard("translate", folders / "translator", path, *given)
    assert sum(json.loads(done.stdout)["terms"].values()) == 1
    assert "glossary: 1 term:" in done.stderr
    assert ("term bird not placed in the bird" in done.stderr) != ("zorblax" in out.read_text())


def test_alternatives_follow_on_the_same_line(folders: Path) -> None:
    first, second, _ = regard("translate", folders / "rnn", "--alternatives", "2", text="the bird\n\n").stdout.split(
        "\n"
    )
    assert len(set(first.split("\t"))) == len(first.split("\t")) > 1
    assert second == ""


def test_json_needs_an_output_file(folders: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give --out"):
        regard("translate", folders / "translator", "--json", text="a\n")
    done = regard("translate", folders / "translator", "--json", "--out", tmp_path / "out.txt", text="the bird\n\0\n")
    assert json.loads(done.stdout)["lines"] == 2
    assert [failed["line"] for failed in json.loads(done.stdout)["failed"]] == [2]
    assert len((tmp_path / "out.txt").read_text().split("\n")) == 3


def test_terms_are_counted_and_missing_ones_are_named(folders: Path, tmp_path: Path) -> None:
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


def test_existing_files_and_the_input_are_not_overwritten(folders: Path, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("the bird\n")
    with pytest.raises(FolderError, match="is an input file"):
        regard("translate", folders / "translator", path, "--out", path, "--force")
    (tmp_path / "out.txt").write_text("old")
    with pytest.raises(FolderError, match="already exists"):
        regard("translate", folders / "translator", path, "--out", tmp_path / "out.txt")


def test_two_outputs_of_one_name_are_refused(folders: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the bird\n")
    outputs = ["--out", tmp_path / "x.html", "--trace", tmp_path / "x.html"]
    with pytest.raises(ConfigError, match="--out and --trace are both"):
        regard("translate", folders / "translator", tmp_path / "text.txt", *outputs)
    assert not (tmp_path / "x.html").exists()


def test_generate_prints_the_prompt_and_its_continuation(folders: Path) -> None:
    done = regard("generate", folders / "gpt", "the old", "--tokens", "5", "--greedy")
    assert done.stdout.startswith("the old")
    answer = json.loads(regard("generate", folders / "gpt", "the old", "--tokens", "5", "--greedy", "--json").stdout)
    assert done.stdout == f"the old{answer['text']}\n"


def test_fill_prints_guesses_or_json(folders: Path) -> None:
    answer = json.loads(regard("fill", folders / "bert", "the [MASK] sees", "--top", "2", "--json").stdout)
    assert len(answer["gaps"][0]) == 2
    assert answer["text"] in regard("fill", folders / "bert", "the [MASK] sees").stdout


def test_embed_writes_one_row_a_line(folders: Path, tmp_path: Path) -> None:
    regard("embed", folders / "bert", "--out", tmp_path / "x.npy", text="the bird\n\nthe old house\n")
    found = np.load(tmp_path / "x.npy")
    assert (found.shape, found.dtype) == ((3, 16), np.float32)


@pytest.mark.parametrize("name", ["e.txt", "e", "e.npz"])
def test_embed_writes_nothing_but_numpy_arrays(folders: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"embeddings are a NumPy array; choose a name that ends in \.npy"):
        regard("embed", folders / "bert", "--out", tmp_path / name, text="the bird\n")
    assert not list(tmp_path.iterdir())


def test_embed_gives_zeros_for_an_unreadable_line_and_a_message(folders: Path, tmp_path: Path) -> None:
    done = regard("embed", folders / "bert", "--out", tmp_path / "x.npy", text=b"the bird\n\xff\nthe bird\n")
    first, bad, last = np.load(tmp_path / "x.npy")
    assert (done.exit_code, bad.any()) == (1, False)
    assert np.array_equal(first, last)
    assert "standard input:2: byte 1 of the line (0xFF) is not UTF-8" in done.stderr
    assert "its embedding is zero" in done.stderr


@pytest.mark.parametrize(
    ("words", "right"),
    [(("translate", "gpt"), "regard generate"), (("generate", "translator"), "regard translate"),
     (("fill", "gpt", "[MASK]"), "regard generate"), (("translate", "bert"), "regard fill")],
)  # fmt: skip
def test_a_folder_of_another_family_is_refused_with_the_right_command(
    folders: Path, words: tuple[str, ...], right: str
) -> None:
    with pytest.raises(FolderError, match=right):
        regard(words[0], folders / words[1], *words[2:])


@pytest.mark.parametrize(("command", "says"), [("generate", True), ("fill", False), ("embed", False)])
def test_the_help_promises_an_ensemble_only_where_there_is_one(command: str, says: bool) -> None:
    assert ("ensemble" in regard(command, "--help").stdout) == says
