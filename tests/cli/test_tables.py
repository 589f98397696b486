"""The terminal: nothing from a file, an argument or a config controls it."""

from __future__ import annotations

import ast
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from regard.cli import app, tables
from regard.config import preset, to_json
from regard.results import Report, Table
from tests.cli.test_app import regard

RED = "\x1b[31m"
TITLE = "\x1b]0;title\x07"


def test_every_print_of_the_command_line_is_in_tables() -> None:
    for path in Path(app.__file__).parent.glob("*.py"):
        calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        prints = [function for function in calls if isinstance(function, ast.Name) and function.id == "print"]
        assert path.name == "tables.py" or not prints, path


@pytest.mark.parametrize("evil", [RED, TITLE, "\x9b31m", "\r", "\u202e", "x\nregard: all is well"])
@pytest.mark.parametrize(
    "command",
    [
        ["count", "EVIL"],
        ["count", "gpt2", "--set", "model.family=EVIL"],
        ["count", "gpt2", "--set", "model.EVIL=1"],
        ["count", "gpt2", "--precision", "EVIL"],
        ["count", "gpt2", "--EVIL"],
        ["EVIL"],
        ["check", "EVIL"],
        ["train", "EVIL", "EVIL", "--out", "x"],
        ["translate", "EVIL", "EVIL"],
        ["evaluate", "EVIL"],
        ["explain", "EVIL", "EVIL", "--out", "x.html"],
    ],
    ids=" ".join,
)
def test_an_argument_does_not_control_the_terminal(command: list[str], evil: str) -> None:
    done = regard(*(word.replace("EVIL", evil) for word in command))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert not tables.CONTROLS.search(done.stderr)


def test_a_text_in_a_report_does_not_control_the_terminal(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("".join(f"{RED} one {name} {i}\n[red]two[/] {i}\n" for i in range(40)))
    done = regard("check", str(tmp_path / "a"), str(tmp_path / "b"))
    assert "‹U+001B›[31m one a" in done.stdout
    assert "[red]two[/]" in done.stdout
    assert not tables.CONTROLS.search(done.stdout + done.stderr)


def test_the_name_of_a_config_is_printed_without_markup_and_controls(tmp_path: Path) -> None:
    folder = tmp_path / f"{RED}[red]x"
    folder.mkdir()
    (folder / "config.json").write_text(to_json(preset("gpt2")))
    done = regard("count", str(folder), COLUMNS="400")
    assert "\\u001b[31m[red]x" in done.stdout
    assert RED not in done.stdout


class Texts(Report):
    """A result that holds text of a file."""

    def tables(self) -> list[Table]:
        return [Table([f"{RED}a", "b"], [[TITLE, "[red]x[/]"]], f"{RED}title")]

    def to_dict(self) -> dict[str, str]:
        return {"text": RED}


@pytest.mark.parametrize("as_json", [False, True])
def test_a_result_is_printed_without_controls(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    tables.show(Texts(), as_json=as_json)
    printed = capsys.readouterr().out
    assert not tables.CONTROLS.search(printed)
    assert ("\\u001b" if as_json else "[red]x[/]") in printed


@pytest.mark.parametrize(("terminal", "expected"), [(True, "\\u001b[31mred\n"), (False, f"{RED}red\n")])
def test_data_is_exact_except_on_a_terminal(monkeypatch: pytest.MonkeyPatch, terminal: bool, expected: str) -> None:
    stream = io.StringIO()
    stream.isatty = lambda: terminal  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stdout", stream)
    tables.write(f"{RED}red")
    assert stream.getvalue() == expected


WRITE_LINES = """
from regard.cli.tables import output_lines
with output_lines(None, "translating", force=False) as (write, progress):
    for number in range(3):
        write(f"line {number}")
        progress(number + 1, 3)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX terminals")
def test_lines_go_to_a_pipe_also_while_a_bar_is_on_the_terminal() -> None:
    import pty

    terminal, end = pty.openpty()
    done = subprocess.run([sys.executable, "-c", WRITE_LINES], stdout=subprocess.PIPE, stderr=end, text=True)
    assert done.stdout == "line 0\nline 1\nline 2\n"
    assert b"translating" in os.read(terminal, 100_000)
