"""The cache: what is in it is listed with its size, and deleted on request."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from regard.corpora.cache import clean_cache


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    for name, size in (
        ("prepared/0123/source.ids.bin", 3000),
        ("prepared/0123/corpus.json", 20),
        ("corpora/a/b.gz", 7),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(bytes(size))
    return tmp_path


def test_everything_is_deleted_and_its_size_reported(cache: Path) -> None:
    report = clean_cache(dry_run=False)
    assert report.bytes == 3027
    assert "freed 3.03 kB" in str(report)
    assert [list(folder.iterdir()) for folder in (cache / "prepared", cache / "corpora")] == [[], []]


def test_a_dry_run_deletes_nothing(cache: Path) -> None:
    report = clean_cache(dry_run=True)
    assert [(entry["kind"], Path(entry["path"]).name, entry["bytes"]) for entry in report.entries] == [
        ("prepared", "0123", 3020),
        ("corpora", "a", 7),
    ]
    assert (cache / "corpora/a/b.gz").exists()


def test_a_corpus_that_is_being_written_is_left_alone(cache: Path) -> None:
    (cache / "prepared/.abc.lock").touch()
    clean_cache(dry_run=False)
    assert (cache / "prepared/.abc.lock").exists()


def test_an_empty_cache_is_said_to_be_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "nothing"))
    assert "is empty" in str(clean_cache(dry_run=False))


def test_the_command_gives_json(cache: Path) -> None:
    command = [sys.executable, "-m", "regard", "data", "clean", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["bytes"] == 3027
