"""The command line: what a user types and gets."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from regard.cli import app as cli
from regard.config import preset, to_json
from regard.corpora import catalog


def regard(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command in this process, since each start of Python costs seconds."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        mock.patch.object(sys, "argv", ["regard", *arguments]),
        mock.patch.object(signal, "signal"),
        mock.patch.dict(os.environ, {"COLUMNS": "120", **environment}),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            cli.main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        except Exception:
            traceback.print_exc(file=err)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def test_count_prints_every_part_with_its_formula() -> None:
    printed = regard("count", "bert-base").stdout
    for line in ("30,522 × 768", "12 × 7,087,872", "768 × 3,072 + 3,072", "109,482,240"):
        assert line in printed


def test_count_as_json_is_one_object_and_nothing_else() -> None:
    done = regard("count", "bert-base", "--json")
    answer = json.loads(done.stdout)
    assert done.stderr == ""
    assert answer["parameters"]["total"] == 109482240
    assert answer["parameters"]["parts"] == {"embeddings": 23837184, "layers": 85054464, "pooler": 590592}
    assert answer["parameters"]["tree"][1]["single"] == 7087872


def test_count_takes_changes_to_the_config() -> None:
    answer = json.loads(regard("count", "gpt2", "--set", "model.decoder_layers=1", "--json").stdout)
    assert answer["parameters"]["total"] == 124_439_808 - 11 * 7_087_872


def test_count_says_time_and_cost_on_hardware() -> None:
    asked = ("--hardware", "h200", "--tokens", "1e9", "--devices", "8", "--price", "3")
    answer = json.loads(regard("count", "gpt2", *asked, "--json").stdout)["time"]
    assert answer["seconds"] > 0
    assert answer["cost"] == pytest.approx(3 * answer["device_hours"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("count", "bert-bse"), "There is no preset, recipe or folder bert-bse. Did you mean bert-base?"),
        (("count", "gpt2", "--set", "model.heads=7"), "model.size (768) must be a multiple of model.heads (7)"),
        (("count", "gpt2", "--hardware", "h20"), "'h20' is not one of 'h200'"),
        (("count", "gpt2", "--precision", "fp8"), "'fp8' is not one of 'fp32', 'bf16'"),
        (("count", "gpt2", "--hardware", "h100", "--tokens", "inf"), "tokens (inf) must be from 1 to 1e+30"),
        (("count", "gpt2", "--hardware", "h100", "--price", "inf"), "price (inf) must be from 0 to 1e+09"),
        (("count", "gpt2", "--batch", "1" + "0" * 400), "--batch"),
        (("count", "x" * 300), "There is no preset, recipe or folder xxx"),
        (("count", "gpt2", "--target", "2000"), "a sentence of 2000 tokens is longer than model.max_positions (1024)"),
        (("count", "gpt2", "--set", "model.size=96000000000000"), "must be from 1 to 10,000,000"),
        (("count", "gpt2", "--set", "model.norm_epsilon=inf"), "model.norm_epsilon (inf) must be a finite number"),
        (("count", "gpt2", "--sorce", "3"), "No such option: --sorce"),
        (("count", "gpt2", "--batch", "x"), "Invalid value for '--batch': it must be a valid integer\n"),
        (("count", "gpt2", "--batch", "0"), "Invalid value for '--batch': it must be greater than or equal to 1\n"),
        (("count", "gpt2", "--tokens", "x"), "Invalid value for '--tokens': "),
        (("count", "gpt2", "--hardware", "x"), "Invalid value for '--hardware': 'x' is not one of"),
        (("cuont", "gpt2"), "No such command 'cuont'."),
        (("count",), "Missing argument"),
        (("count", "missing.toml"), "missing.toml cannot be read: No such file or directory"),
    ],
)
def test_a_wrong_request_gets_one_line_and_exit_2(arguments: tuple[str, ...], message: str) -> None:
    done = regard(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("regard: ")
    assert len(done.stderr.splitlines()) == 1
    assert message in done.stderr


def test_a_folder_may_have_any_name(tmp_path) -> None:
    folder = tmp_path / "a[" / "b]"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(to_json(preset("gpt2")))
    done = regard("count", str(folder))
    assert done.returncode == 0, done.stderr
    assert "b]" in done.stdout


def test_regard_debug_shows_the_traceback() -> None:
    done = regard("count", "bert-bse", REGARD_DEBUG="1")
    assert "Traceback" in done.stderr


def test_an_input_file_is_never_overwritten(tmp_path) -> None:
    (tmp_path / "a.html").write_text("one\ntwo\n")
    (tmp_path / "b").write_text("un\ndeux\n")
    done = regard(
        "check", str(tmp_path / "a.html"), str(tmp_path / "b"), "--report", str(tmp_path / "a.html"), "--force"
    )
    assert done.returncode == 2
    assert "is an input file" in done.stderr
    assert (tmp_path / "a.html").read_text() == "one\ntwo\n"


def test_the_built_in_corpus_is_written_as_asked(tmp_path) -> None:
    sizes = ("--train", "30", "--valid", "5", "--test", "5", "--max-length", "6")
    done = regard("data", "get", "builtin", "--out", str(tmp_path / "c"), *sizes)
    assert done.returncode == 0, done.stderr
    assert "licence: " in done.stderr
    english = (tmp_path / "c" / "train.en").read_text().splitlines()
    assert len(english) == 30
    assert max(len(line.split()) for line in english) <= 6
    again = regard("data", "get", "builtin", "--out", str(tmp_path / "d"), *sizes, "--seed", "9")
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "d" / "train.en").read_text().splitlines() != english


def test_names_of_corpora_are_whole_on_a_narrow_terminal() -> None:
    printed = regard("data", "list", COLUMNS="80").stdout
    assert all(f"{corpus['name']} " in printed for corpus in catalog.table())


def test_options_of_the_built_in_corpus_are_refused_for_others(tmp_path) -> None:
    done = regard("data", "get", "multi30k", "--out", str(tmp_path / "c"), "--train", "30", "--max-length", "6")
    assert done.returncode == 2
    assert done.stderr == "regard: multi30k is a finished corpus: --train, --max-length can be used with builtin only\n"


def test_check_answers_with_a_verdict_and_an_exit_code(tmp_path) -> None:
    (tmp_path / "a").write_text("one word\n" * 100)
    (tmp_path / "b").write_text("un mot\n" * 100)
    done = regard("check", str(tmp_path / "a"), str(tmp_path / "b"), "--json")
    answer = json.loads(done.stdout)
    assert answer["verdict"] == "unfit"
    assert done.returncode == 1
    assert {"kind", "count", "share", "examples", "fix"} <= answer["findings"][0].keys()


def test_version_is_printed() -> None:
    done = subprocess.run([sys.executable, "-m", "regard", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout[:7]) == (0, "regard ")


def test_an_error_caused_by_a_signal_exits_with_the_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken(**_: object) -> None:
        with suppress(SystemExit):
            cli.stop(signal.SIGTERM, None)
        raise ValueError("could not determine the shape of an object")

    monkeypatch.setattr(cli, "command_line", lambda: mistaken)
    monkeypatch.setattr(cli, "signals", [])
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "runs/a"), "runs/a: No space left on device"),
        (OSError(errno.EIO, "Input/output error"), "Input/output error"),
        (MemoryError(), "out of memory: end other programs"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"), "out of memory"),
        (RecursionError("maximum recursion depth exceeded"), "RecursionError: maximum recursion depth exceeded"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), "UnicodeDecodeError: 'utf-8' codec"),
        (KeyError("a\nb"), "REGARD_DEBUG=1 shows in full: KeyError"),
    ],
    ids=repr,
)
def test_no_error_shows_a_traceback(error: Exception, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "command_line", lambda: mock.Mock(side_effect=error))
    done = regard("count", "gpt2")
    assert done.returncode == 1
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_an_import_ends_the_program(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "module_that_swallows.py").write_text(
        f"import os\ntry:\n    os.kill(os.getpid(), {int(number)})\nexcept BaseException:\n    pass\n"
    )
    program = "import signal\nfrom regard.cli.app import stop\n"
    program += f"signal.signal({int(number)}, stop)\nimport module_that_swallows"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (128 + number, "stopped\n")


def leaf_commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, part in getattr(command, "commands", {}).items():
        yield from leaf_commands(part, (*words, name))
    if not hasattr(command, "commands"):
        yield " ".join(words), command


@pytest.mark.parametrize("name", [name for name, _ in leaf_commands(cli.command_line())])
def test_every_command_has_two_examples_whose_options_exist(name: str) -> None:
    command = dict(leaf_commands(cli.command_line()))[name]
    options = {option for parameter in command.params for option in parameter.opts}
    assert len(command.callback.examples) >= 2
    for example in command.callback.examples:
        words = shlex.split(example.partition(f"regard {name}")[2])
        assert {word for word in words if re.match(r"--?[a-z]", word)} <= options, example


def test_the_help_groups_the_commands_in_the_order_of_work() -> None:
    printed = regard("--help").stdout
    groups = ("Prepare", "Train", "Measure", "Use", "Inspect", "Demonstrations")
    places = [printed.index(f"─ {group} ") for group in groups]
    assert places == sorted(places)


@pytest.mark.parametrize("name", [name for name, _ in leaf_commands(cli.command_line())])
def test_the_help_names_values_instead_of_types(name: str) -> None:
    assert not re.search("<(bool|str|int|float|path)", regard(*name.split(), "--help").stdout.lower())


@pytest.mark.parametrize("command", [[], ["train"], ["data", "get"]])
def test_h_is_help(command: list[str]) -> None:
    assert regard(*command, "-h").stdout == regard(*command, "--help").stdout != ""


def test_an_unknown_command_is_answered_with_where_the_commands_are() -> None:
    assert regard("xyz").stderr == "regard: No such command 'xyz'. regard --help lists all commands.\n"


def test_a_wrong_choice_is_refused_by_the_parser() -> None:
    done = regard("demo", "--device", "gpu")
    assert done.returncode == 2
    assert "'gpu' is not one of 'auto', 'cpu', 'cuda', 'mps'" in done.stderr


INTERRUPTED_IMPORT = """
import signal
from regard.cli import app
signal.signal(signal.SIGINT, app.stop)
import interrupted
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals and terminals")
def test_ctrl_c_during_an_import_shows_the_cursor_that_a_live_view_has_hidden(tmp_path: Path) -> None:
    import pty

    (tmp_path / "interrupted.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    terminal, end = pty.openpty()
    done = subprocess.run([sys.executable, "-c", INTERRUPTED_IMPORT], stderr=end, cwd=tmp_path, check=False)
    assert os.read(terminal, 1000) == b"\x1b[?25hstopped\r\n"
    assert done.returncode == 128 + signal.SIGINT


def test_ctrl_c_while_the_program_starts_shows_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt\n")
    command = [sys.executable, "-m", "regard", "--help"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")
