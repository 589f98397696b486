"""Two processes train the same model as one, with whole or sharded weights, even if one is stopped or killed."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import regard
from regard.training.checkpoint import load_tensors, read_progress
from regard.training.journal import read
from tests.training.processes import Outcome, launch, train
from tests.training.runs import write_corpus

pytestmark = pytest.mark.slow

FEW_ROWS = {"updates": 8, "batch_tokens": 64, "r_drop": 1.0}  # one row a batch, or two: a process may have none
SHARDED = {"updates": 10, "gradient_accumulation": 2, "sharded": True, "model": {"feed_forward_size": 33}}
SAME_LOSSES: dict[str, dict[str, Any]] = {
    "transformer": {"updates": 12},
    "rnn": {"updates": 12, "family": "rnn-output"},
    "lora": {"updates": 8, "lora_rank": 2},
    "frozen": {"updates": 8, "freeze": "encoder"},
    **{f"{family} few rows": {**FEW_ROWS, "family": family} for family in ("transformer", "bert")},
    **{f"{family} sharded": {**SHARDED, "family": family} for family in ("transformer", "rnn-input", "bert")},
}
RESUMED = {"updates": 20, "model": {"dropout": 0.1}, "ema_decay": 0.9, "save_every": 4}
SHARDS = {"updates": 16, "ema_decay": 0.9, "sharded": True}
DIVERGED = {"learning_rate": 1e17, "warmup": 1, "save_every": 100, "sharded": True}
RUNS: dict[str, dict[str, Any]] = {
    **{name: {"folder": name, **asked} for name, asked in SAME_LOSSES.items()},
    "whole": {"folder": "whole", **RESUMED},
    "parts": {"folder": "parts", **RESUMED, "stop": 5},
    "parts again": {"folder": "parts", **RESUMED},
    "whole shards": {"folder": "whole-shards", **RESUMED, "sharded": True},
    "parts of shards": {"folder": "parts-of-shards", **RESUMED, "sharded": True, "stop": 5},
    "parts of shards again": {"folder": "parts-of-shards", **RESUMED, "sharded": True},
    "two": {"folder": "two", **SHARDS, "stop": 5},
    "one before": {"folder": "one-before", **SHARDS},
    "diverged": {"folder": "diverged", **DIVERGED},
    "scalar": {"folder": "scalar", "family": "rnn-input", "model": {"score": "cosine"}, "sharded": True},
}


class Two(NamedTuple):
    """The outcomes of all runs in two processes that were started once."""

    root: Path
    first: dict[str, Outcome]
    second: dict[str, Outcome]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = write_corpus(tmp_path_factory.mktemp("corpus"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(folder / "cache"))
        yield folder


@pytest.fixture(scope="module")
def two(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Two:
    root = tmp_path_factory.mktemp("two")
    train(root / "one-before", corpus, **{**SHARDS, "sharded": False, "stop": 10})
    (first, second), _ = launch(root, corpus, list(RUNS.values()))
    return Two(root, dict(zip(RUNS, first, strict=True)), dict(zip(RUNS, second, strict=True)))


@pytest.fixture(scope="module")
def alone(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The losses of one process that is not interrupted."""
    return train(tmp_path_factory.mktemp("alone"), corpus, **{**SHARDS, "sharded": False})


def same(one: Path, other: Path, update: int = 20) -> None:
    paths = [path / "checkpoints" / f"update-{update:08d}" for path in (one, other)]
    first, second = (dataclasses.replace(read_progress(path), seconds=0, prepared=0, elapsed=0) for path in paths)
    assert first == second
    others = load_tensors(paths[1])
    for group, tensors in load_tensors(paths[0]).items():
        for name, tensor in tensors.items():
            assert tensor.equal(others[group][name]), f"{group}: {name}"


@pytest.mark.parametrize("name", SAME_LOSSES)
def test_one_and_two_processes_agree_in_loss(two: Two, corpus: Path, tmp_path: Path, name: str) -> None:
    assert two.first[name] == pytest.approx(train(tmp_path, corpus, **SAME_LOSSES[name]), rel=1e-5)
    assert two.second[name] == two.first[name]


@pytest.mark.parametrize(("whole", "parts"), [("whole", "parts"), ("whole shards", "parts of shards")])
def test_two_stopped_processes_resume_bit_for_bit(two: Two, whole: str, parts: str) -> None:
    first = two.first[parts]
    assert len(first) == 10  # they agree to stop every ten updates
    assert [*first, *two.first[f"{parts} again"]] == two.first[whole]
    same(two.root / RUNS[whole]["folder"], two.root / RUNS[parts]["folder"])


def test_killed_processes_are_restarted_and_the_result_is_the_same(two: Two, corpus: Path, tmp_path: Path) -> None:
    runs = [{"folder": "whole", **RESUMED, "die": 11}, {"folder": "shards", **RESUMED, "die": 11, "sharded": True}]
    _, said = launch(tmp_path, corpus, runs, restarts=2)
    same(two.root / "whole", tmp_path / "whole")
    same(two.root / "whole-shards", tmp_path / "shards")
    assert "RunError: process 0 of 2 lost the connection to another one" in said


# Sharded weights


def test_a_sharded_checkpoint_is_resumed_by_one_process(two: Two, alone: Outcome, corpus: Path, tmp_path: Path) -> None:
    shutil.copytree(two.root / "two", tmp_path / "one")
    saved = {path.name for path in (tmp_path / "one" / "checkpoints" / "update-00000010").iterdir()}
    assert saved == {
        "checksums.json",
        "progress.json",
        *(f"{x}.safetensors" for x in ("model", "optimizer", "average")),
    }
    rest = train(tmp_path / "one", corpus, **{**SHARDS, "sharded": False})
    assert rest == pytest.approx(alone[10:], rel=1e-5)


def test_a_checkpoint_of_one_process_is_resumed_by_two_with_shards(two: Two, alone: Outcome) -> None:
    assert two.first["one before"] == pytest.approx(alone[10:], rel=1e-5)


def test_sharded_weights_start_over_if_the_loss_is_nan_before_the_first_checkpoint(two: Two) -> None:
    assert "and rolling back did not help: lower train.learning_rate" in two.first["diverged"]
    entries = read(two.root / "diverged" / "journal.jsonl")
    assert [entry["lr_scale"] for entry in entries if entry["kind"] == "rollback"] == [0.5**9]  # it goes back too


def test_a_model_with_a_scalar_weight_cannot_be_sharded(two: Two) -> None:
    assert "ConfigError: train.sharded cannot shard a scalar weight, and this model has score" in two.first["scalar"]


# The command line

CONFIG = {
    "model.size": 16,
    "model.heads": 2,
    "model.feed_forward_size": 32,
    "model.encoder_layers": 1,
    "model.decoder_layers": 1,
    "model.dropout": 0.0,
    "text.vocabulary": 300,
    "train.updates": 8,
    "train.batch_tokens": 400,
    "train.validate_every": 4,
    "train.ema_decay": 0.9,
    "train.warmup": 4,
    "train.learning_rate": 0.01,
    "train.metric": "chrf",
    "decode.beams": 1,
    "decode.max_length_ratio": 1.0,
}


def test_the_command_line_uses_all_processes(corpus: Path, tmp_path: Path) -> None:
    """Sharded weights are validated, averaged, chosen and saved as whole ones are."""
    files = [str(corpus / "a.txt"), str(corpus / "b.txt")]
    values = [word for name, value in CONFIG.items() for word in ("--set", f"{name}={value}")]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = ["train", *files, "--out", str(tmp_path / "2"), "--json", "--device", "cpu", *values]
    done = subprocess.run(
        [sys.executable, *launcher, "-m", "regard", *command, "--set", "train.sharded=true"],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    one = regard.train(*files, out=tmp_path / "1", config=CONFIG, device="cpu", say=lambda _: None)
    assert json.loads(done.stdout)["scores"]["loss"] == pytest.approx(one.scores["loss"], rel=1e-4)
    again = regard.train(*files, out=tmp_path / "2", config=CONFIG, device="cpu", say=lambda _: None)
    assert again.finished  # how a run is divided is no part of what it is
    assert not again.is_new
