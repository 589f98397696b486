"""Sharded weights (FSDP2) are trained, saved and resumed as weights in one process are."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from regard.training.journal import read
from tests.training.processes import run, start
from tests.training.runs import write_corpus

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("sharded"))


@pytest.mark.parametrize("family", ["transformer", "rnn-input", "bert"])
def test_sharded_weights_give_the_same_losses_as_one_process(corpus: Path, tmp_path: Path, family: str) -> None:
    asked = {"updates": 20, "family": family, "gradient_accumulation": 2}
    one = run(tmp_path / "one", corpus, 1, **asked)
    assert run(tmp_path / "two", corpus, 2, **asked, sharded=True) == pytest.approx(one, rel=1e-5)


def test_a_checkpoint_of_any_number_of_processes_is_resumed_by_any_other_number(corpus: Path, tmp_path: Path) -> None:
    asked = {"updates": 16, "ema_decay": 0.9}
    whole = run(tmp_path / "whole", corpus, 1, **asked)
    run(tmp_path / "two", corpus, 2, **asked, sharded=True, stop=5)
    saved = [path.name for path in (tmp_path / "two" / "checkpoints" / "update-00000010").iterdir()]
    shards = [f"shard-0000{rank}.safetensors" for rank in range(2)]
    assert sorted(saved) == ["checksums.json", "progress.json", *shards]
    for name in ("one", "four"):
        shutil.copytree(tmp_path / "two", tmp_path / name)
    rest = pytest.approx(whole[10:], rel=1e-5)
    assert run(tmp_path / "one", corpus, 1, **asked) == rest
    assert run(tmp_path / "four", corpus, 4, **asked, sharded=True) == rest
    run(tmp_path / "back", corpus, 1, **asked, stop=10)
    assert run(tmp_path / "back", corpus, 2, **asked, sharded=True) == rest


def test_a_damaged_shard_is_passed_over(corpus: Path, tmp_path: Path) -> None:
    asked = {"updates": 8, "save_every": 4, "sharded": True}
    run(tmp_path / "whole", corpus, 2, **asked)
    shard = tmp_path / "whole" / "checkpoints" / "update-00000008" / "shard-00001.safetensors"
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    assert len(run(tmp_path / "whole", corpus, 2, **asked)) == 4


def test_sharded_weights_start_over_if_the_loss_is_nan_before_the_first_checkpoint(
    corpus: Path, tmp_path: Path
) -> None:
    done = start(tmp_path, corpus, 2, learning_rate=1e17, warmup=1, save_every=100, sharded=True)
    assert "and rolling back did not help: lower train.learning_rate" in done.stderr
    scales = [line["lr_scale"] for line in read(tmp_path / "journal.jsonl") if line["kind"] == "rollback"]
    assert scales == [0.5**9]  # the journal goes back too


def test_a_model_with_a_scalar_weight_cannot_be_sharded(corpus: Path, tmp_path: Path) -> None:
    done = start(tmp_path, corpus, 2, family="rnn-input", model={"score": "cosine"}, sharded=True)
    assert "ConfigError: train.sharded cannot shard a scalar weight, and this model has score" in done.stderr


def test_a_full_disk_is_reported_with_the_path_of_the_checkpoint(corpus: Path, tiny_disk: Path) -> None:
    done = start(tiny_disk, corpus, 2, model={"size": 64}, save_every=4, sharded=True)
    path = tiny_disk / "checkpoints" / "update-00000004"
    assert set(re.findall(r"RunError: (.*);", done.stderr)) == {f"{path} could not be written: the disk is full"}
