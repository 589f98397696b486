"""What every test starts from: the same random numbers, and the corpora and the browser where they are."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # kernels of our own run on a CPU too, and show what they compute
torch.set_num_threads(1)  # the models are small, and tests run side by side
os.environ["OMP_NUM_THREADS"] = "1"  # the same for the commands that tests start


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def corpora() -> Path:
    """The folder of real corpora, or a visible skip."""
    folder = os.environ.get("REGARD_DATA")
    if not folder:
        pytest.skip("REGARD_DATA is not set: real corpora are not here")
    return Path(folder)


@contextmanager
def mounted(path: Path, options: str) -> Iterator[Path]:
    """A file system of its own at a path, or a visible skip."""
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)]
    if not sys.platform.startswith("linux") or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("mounting needs Linux and root")
    yield path
    subprocess.run(["umount", str(path)], check=True)


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for a quarter of a megabyte."""
    with mounted(tmp_path, "size=256k") as disk:
        yield disk


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A file system that is mounted read-only."""
    with mounted(tmp_path, "ro,size=64k") as disk:
        yield disk


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser for pages, or a visible skip."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip("there is no chromium here: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as player:
        opened = player.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield opened
        opened.close()
