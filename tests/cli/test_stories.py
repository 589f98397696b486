"""The commands that tell the story, as a user types them."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from regard.cli import stories
from regard.stories import lineage


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), SystemExit(128 + signal.SIGTERM)], ids=["Ctrl-C", "SIGTERM"])
def test_a_race_that_is_stopped_says_once_how_it_goes_on(
    stop: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        raise stop

    monkeypatch.setattr(lineage, "run", stopped)
    with pytest.raises(type(stop)):
        stories.lineage(tmp_path)
    assert capsys.readouterr().err == "stopped; the same command goes on from there\n"
