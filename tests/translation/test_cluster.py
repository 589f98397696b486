"""Ray actors translate a file: every line exactly once and in order, also after a worker or the run was killed."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from regard.cli.app import app
from regard.documents.outcome import Outcome
from regard.translation import cluster
from regard.translation.lines import Line
from tests.translation import test_translator

LINES = [Line(f"line {number}") for number in range(40)]
CPU = {"num_cpus": 1, "num_gpus": 0}

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # Ray's own


def start(folder: Path, last: int | None = None) -> cluster.TranslatePart:
    """Translate to capitals; line 20 kills its worker the first time, and the lines from `last` on fail."""

    def translate(before: int, lines: list[Line]) -> tuple[list[str], Outcome]:
        if before == 20 and not (folder / "killed").exists():
            (folder / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if last is not None and before >= last:
            raise RuntimeError("stopped")
        (folder / f"{before}-{os.urandom(4).hex()}").touch()
        return [line.text.upper() for line in lines], Outcome(split=1)

    return translate


def run(out: Path, start: Callable[[], Any]) -> Outcome:
    return cluster.translate_parts(
        LINES, out, start=start, identity="test", workers=2, resources=CPU, force=False, progress=lambda lines: None
    )


def test_a_worker_and_then_the_run_are_killed_and_every_line_is_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "PART_LINES", 4)
    calls, out = tmp_path / "calls", tmp_path / "out.txt"
    calls.mkdir()
    with pytest.raises(Exception, match="stopped"):
        run(out, partial(start, calls, last=28))
    assert (calls / "killed").exists()
    assert not out.exists()
    kept = len(list((tmp_path / "out.txt.parts").glob("*.json")))
    before = len(list(calls.glob("*-*")))
    outcome = run(out, partial(start, calls))
    assert out.read_text().splitlines() == [line.text.upper() for line in LINES]
    assert outcome.split == 10
    assert kept > 0
    assert len(list(calls.glob("*-*"))) == before + 10 - kept
    assert sorted(path.name for path in tmp_path.iterdir()) == ["calls", "out.txt"]


def test_a_file_without_unfinished_parts_needs_no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_actors", lambda *_: pytest.fail("actors were started"))
    options: dict[str, Any] = {"start": partial(start, tmp_path), "identity": "", "workers": 1, "resources": CPU}
    options |= {"force": True, "progress": lambda lines: None}
    cluster.translate_parts([], tmp_path / "out.txt", **options)
    assert (tmp_path / "out.txt").read_bytes() == b""

    (part,) = cluster._split(LINES, tmp_path / "out.txt.parts", "")
    part.file.parent.mkdir()
    part.file.write_text(json.dumps({"lines": ["done"], "outcome": vars(Outcome())}, default=vars))
    cluster.translate_parts(LINES, tmp_path / "out.txt", **options)
    assert (tmp_path / "out.txt").read_text() == "done\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]


def test_the_command_writes_the_same_lines_as_without_a_cluster(tmp_path: Path) -> None:
    model, file = test_translator.save(tmp_path / "model", test_translator.make()), tmp_path / "a.en"
    file.write_text("the bird\n\nthe <b>old</b> house\n" * 3)
    for name, options in (("alone", []), ("together", ["--cluster", "2"])):
        words = ["translate", model, file, "--out", tmp_path / name, "--device", "cpu", "--threads", "1", *options]
        assert CliRunner().invoke(app, [str(word) for word in words]).exit_code == 0
    assert (tmp_path / "together").read_text() == (tmp_path / "alone").read_text()
