"""Two processes train the same model as one, even if one of them is stopped or killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from regard.training.checkpoint import load_checkpoint
from tests.training.processes import run, start
from tests.training.runs import write_corpus

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("two"))


@pytest.mark.parametrize("family", ["transformer", "rnn-output"])
def test_one_and_two_processes_agree_in_loss_for_fifty_updates(corpus: Path, tmp_path: Path, family: str) -> None:
    one = run(tmp_path / "one", corpus, 1, updates=50, family=family)
    two = run(tmp_path / "two", corpus, 2, updates=50, family=family)
    assert two == pytest.approx(one, rel=1e-5)


@pytest.mark.parametrize("sharded", [False, True])
def test_two_stopped_processes_resume_bit_for_bit(corpus: Path, tmp_path: Path, sharded: bool) -> None:
    asked = {"updates": 20, "model": {"dropout": 0.1}, "ema_decay": 0.9, "sharded": sharded}
    whole = run(tmp_path / "whole", corpus, 2, **asked)
    first = run(tmp_path / "parts", corpus, 2, **asked, stop=5)
    assert len(first) == 10  # they agree to stop every ten updates
    assert first + run(tmp_path / "parts", corpus, 2, **asked) == whole
    same(tmp_path / "whole", tmp_path / "parts", 20)


@pytest.mark.parametrize("family", ["transformer", "rnn-input", "gpt", "bert"])
def test_a_process_with_an_empty_part_of_a_batch_changes_nothing(corpus: Path, tmp_path: Path, family: str) -> None:
    asked = {"updates": 8, "batch_tokens": 64, "family": family, "r_drop": 1.0}  # one row a batch, or two
    one = run(tmp_path / "one", corpus, 1, **asked)
    assert run(tmp_path / "two", corpus, 2, **asked) == pytest.approx(one, rel=1e-5)


def test_when_one_process_runs_out_of_memory_all_split_their_batches(corpus: Path, tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", corpus, 2, updates=8)
    assert run(tmp_path / "split", corpus, 2, updates=8, rows=3) == pytest.approx(whole, rel=1e-4)
    assert load_checkpoint(tmp_path / "split" / "checkpoints" / "update-00000008").progress["split"] > 1


@pytest.mark.parametrize("sharded", [False, True])
def test_a_killed_process_is_restarted_and_the_result_is_the_same(corpus: Path, tmp_path: Path, sharded: bool) -> None:
    asked = {"updates": 16, "save_every": 4, "model": {"dropout": 0.1}, "sharded": sharded}
    whole = run(tmp_path / "whole", corpus, 2, **asked)
    assert run(tmp_path / "killed", corpus, 2, **asked, die=11, restarts=1) == whole[8:]
    same(tmp_path / "whole", tmp_path / "killed", 16)


def test_when_a_process_is_killed_the_others_end_with_one_line(corpus: Path, tmp_path: Path) -> None:
    done = start(tmp_path, corpus, 2, updates=10**6, die=3)
    assert done.returncode != 0
    assert "RunError: process 0 of 2 lost the connection to another one" in done.stderr


def same(one: Path, other: Path, update: int) -> None:
    first, second = (load_checkpoint(path / "checkpoints" / f"update-{update:08d}") for path in (one, other))
    assert {**first.progress, "seconds": 0} == {**second.progress, "seconds": 0}
    for group, tensors in first.tensors.items():
        for name, tensor in tensors.items():
            assert tensor.equal(second.tensors[group][name]), f"{group}: {name}"


def test_the_command_line_uses_all_processes(corpus: Path, tmp_path: Path) -> None:
    """Divided weights are validated, averaged, chosen and saved as whole ones are."""
    losses = []
    for processes in (1, 2):
        out = tmp_path / str(processes)
        done = command(corpus, out, processes)
        assert done.returncode == 0, done.stderr
        losses.append(json.loads(done.stdout)["scores"]["loss"])
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    finished = command(corpus, tmp_path / "2", 1)  # how a run is divided is no part of what it is
    assert json.loads(finished.stdout)["finished"]


def command(corpus: Path, out: Path, processes: int):  # type: ignore[no-untyped-def]
    import os
    import subprocess
    import sys

    values = {
        "model.size": 16,
        "model.heads": 2,
        "model.feed_forward_size": 32,
        "model.encoder_layers": 1,
        "model.decoder_layers": 1,
        "model.dropout": 0,
        "text.vocabulary": 300,
        "train.updates": 8,
        "train.batch_tokens": 400,
        "train.validate_every": 4,
        "train.ema_decay": 0.9,
        "train.warmup": 4,
        "train.learning_rate": 0.01,
        "train.metric": "chrf",
        "train.sharded": str(processes > 1).lower(),
    }
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"] if processes > 1 else []
    words = ["train", str(corpus / "a.txt"), str(corpus / "b.txt"), "--out", str(out), "--json", "--device", "cpu"]
    words += [word for name, value in values.items() for word in ("--set", f"{name}={value}")]
    return subprocess.run(
        [sys.executable, *launch, "-m", "regard", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "REGARD_CACHE": str(corpus / "cache"), "OMP_NUM_THREADS": "1"},
    )
