"""Two processes train the model that one does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.runs import write_corpus

pytestmark = pytest.mark.slow

PROGRAM = """
import json, os, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from regard.training.runtime import running
from tests.training.runs import make_config, make_training, no_validation
folder, corpus, updates, family = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
losses = []
with running("cpu") as runtime:
    config = make_config(family, updates=updates, save_every=10, validate_every=1000)
    shape = {"model": {**config.values()["model"], "dropout": float(sys.argv[5])}}
    config = type(config).read({**config.values(), **shape})
    training = make_training(folder, corpus, config, runtime)
    training.resume()
    training.run(no_validation, lambda kind, facts: losses.append(facts["loss"]) if kind == "update" else None)
    if runtime.is_main:
        print(json.dumps(losses))
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("two"))


def run(folder: Path, corpus: Path, processes: int, updates: int, family: str, dropout: float) -> list[float]:
    folder.mkdir(exist_ok=True)
    program = folder.parent / "program.py"
    program.write_text(PROGRAM)
    start = [sys.executable]
    if processes > 1:
        start += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    root = str(Path(__file__).parent.parent.parent)
    done = subprocess.run(
        [*start, str(program), str(folder), str(corpus), str(updates), family, str(dropout)],
        capture_output=True,
        text=True,
        env={**os.environ, "REGARD_CACHE": str(corpus / "cache"), "PYTHONPATH": root, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.mark.parametrize("family", ["transformer", "rnn-output"])
def test_one_and_two_processes_agree_in_loss_for_fifty_updates(corpus: Path, tmp_path: Path, family: str) -> None:
    one = run(tmp_path / "one", corpus, 1, 50, family, 0.0)
    two = run(tmp_path / "two", corpus, 2, 50, family, 0.0)
    assert two == pytest.approx(one, rel=1e-5)


def test_two_processes_that_were_stopped_go_on_bit_for_bit(corpus: Path, tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", corpus, 2, 20, "transformer", 0.1)
    run(tmp_path / "parts", corpus, 2, 10, "transformer", 0.1)
    progress = tmp_path / "parts" / "checkpoints" / "update-00000010" / "progress.json"
    assert json.loads(progress.read_text())["finished"]
    reopen(tmp_path / "parts")
    assert run(tmp_path / "parts", corpus, 2, 20, "transformer", 0.1) == whole[10:]


def reopen(folder: Path) -> None:
    """A run of 10 updates becomes the first half of one of 20."""
    from regard.checkpoint import load_checkpoint, save_checkpoint

    found = load_checkpoint(folder / "checkpoints" / "update-00000010")
    save_checkpoint(folder, 10, found.tensors, {**found.progress, "finished": False})
