"""The commands import and export, from their words to the folders they write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from regard.cli.app import app
from tests.interop.published import publish


def run(*words: object) -> Any:
    return CliRunner().invoke(app, list(map(str, words)))


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published") / "opus"
    publish("marian", 0, folder)
    return folder


def test_a_folder_is_imported_translates_and_is_exported(published: Path, tmp_path: Path) -> None:
    done = run("import", published, tmp_path / "ours", "--sentences", 1)
    assert done.exit_code == 0, done.output
    assert "1 of 1 greedy outputs" in " ".join(done.stdout.split())
    done = run("export", tmp_path / "ours", tmp_path / "out", "--sentences", 0)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "out" / "generation_config.json").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["import", "nowhere", "ours"], "There is no folder nowhere"),
        (["import", "opus", "opus"], "opus"),
        (["export", "nowhere", "out"], "There is no folder nowhere"),
        (["translate", "opus"], "Import it first: regard import"),
    ],
    ids=lambda words: words[0] if isinstance(words, list) else "",
)
def test_a_wrong_folder_is_refused(
    words: list[str], message: str, published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "opus").symlink_to(published)
    before = sorted(published.iterdir())
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, Exception)
    assert message in str(done.exception)
    assert sorted(published.iterdir()) == before
    assert [path.name for path in tmp_path.iterdir()] == ["opus"]
