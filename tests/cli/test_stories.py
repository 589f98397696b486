"""The commands demo and lineage."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from regard.cli import training
from regard.stories import lineage


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), SystemExit(128 + signal.SIGTERM)], ids=["Ctrl-C", "SIGTERM"])
def test_a_stopped_race_says_once_how_to_resume(
    stop: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        raise stop

    monkeypatch.setattr(lineage, "run", stopped)
    with pytest.raises(type(stop)):
        training.lineage(tmp_path)
    assert capsys.readouterr().err == "stopped; the same command resumes\n"
