"""Where kernels of our own can be made, and where torch's have to do."""

from __future__ import annotations

import shutil
import sysconfig
from pathlib import Path

import pytest
import torch

from regard import kernels


@pytest.fixture
def complete(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A machine that has all it takes."""
    (tmp_path / "Python.h").touch()
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(kernels.importlib.util, "find_spec", lambda _: True)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(sysconfig, "get_path", lambda *_: str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert kernels.is_available()
    return monkeypatch


def test_there_are_no_kernels_without_a_compiler(complete: pytest.MonkeyPatch) -> None:
    complete.setattr(shutil, "which", lambda _: None)
    assert kernels.find("packed") is None


def test_there_are_no_kernels_without_pythons_headers(complete: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "Python.h").unlink()
    assert kernels.find("packed") is None


def test_there_are_no_kernels_without_triton(complete: pytest.MonkeyPatch) -> None:
    complete.setattr(kernels.importlib.util, "find_spec", lambda _: None)
    assert kernels.find("packed") is None


def test_there_are_no_kernels_without_cuda(complete: pytest.MonkeyPatch) -> None:
    complete.setattr(torch.version, "cuda", None)
    assert kernels.find("packed") is None
