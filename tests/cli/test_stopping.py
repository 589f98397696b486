"""Ctrl-C in every phase of `regard train`: an answer at once, also while compiled code runs, and nothing is lost."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.training.runs import write_corpus
from tests.training.test_train import regard, request

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")]
PHASES = {
    "preparing": "regard.training.data.train_tokenizer",
    "validating": "regard.training.train.validate",
    "saving": "regard.training.checkpoint.save_checkpoint",
    "scoring": "regard.training.train.final_scores",
}
MORE = ["--updates", "20", "--set", "train.validate_every=20"]
BLOCKED = """
import hashlib, pkgutil, sys
from regard.cli.app import main

def block(*arguments, **options):
    print("in the phase", file=sys.stderr, flush=True)
    try:
        hashlib.pbkdf2_hmac("sha256", b"", b"", 10_000_000)  # compiled code that no signal interrupts
    finally:
        print("after the phase", file=sys.stderr, flush=True)
    return original(*arguments, **options)

module, _, name = sys.argv.pop(1).rpartition(".")
module = pkgutil.resolve_name(module)
original = getattr(module, name)
setattr(module, name, block)
main()
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("stopping")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(folder / "cache"))
        yield write_corpus(folder)


def start(corpus: Path, out: Path, phase: str) -> subprocess.Popen[str]:
    """A run that is in the phase for seconds."""
    command = [sys.executable, "-c", BLOCKED, PHASES[phase], *request(corpus, out, *MORE)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if line == "in the phase\n":
            break
    time.sleep(0.2)
    return process


@pytest.mark.parametrize("phase", PHASES)
def test_ctrl_c_is_answered_at_once_and_the_run_resumes(phase: str, corpus: Path, tmp_path: Path) -> None:
    with start(corpus, tmp_path / "out", phase) as process:
        process.send_signal(signal.SIGINT)
        _, text = process.communicate(timeout=120)
    lines = text.splitlines()
    assert lines[0].startswith("stopping: a checkpoint is saved first; Ctrl-C again stops at once")
    assert "after the phase" in lines[1:]
    assert "the same command resumes" in lines[-1]
    assert process.returncode == 128 + signal.SIGINT
    done = regard(*request(corpus, tmp_path / "out", *MORE))
    assert done.returncode == 0, done.stderr
    assert ("resumed at update" in done.stderr) == (phase != "preparing")


@pytest.mark.parametrize("phase", ["preparing", "saving"])
def test_a_second_ctrl_c_ends_the_process_at_once(phase: str, corpus: Path, tmp_path: Path) -> None:
    with start(corpus, tmp_path / "out", phase) as process:
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, text = process.communicate(timeout=120)
    assert text == ""  # the phase did not end
    assert process.returncode == 128 + signal.SIGINT
