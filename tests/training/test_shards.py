"""Checkpoints in shards, read without any other process."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from regard import folders
from regard.errors import FolderError
from regard.training.checkpoint import average_checkpoints, latest_checkpoint, load_checkpoint, save_checkpoint

WEIGHT = torch.arange(20.0).view(5, 4)


def sharded(root: Path) -> Path:
    """A checkpoint of one weight whose rows are sharded over two processes, as three and two."""
    folder = root / "checkpoints" / "update-00000007"
    folder.mkdir(parents=True)
    step = torch.tensor(7.0)
    save_file({"model/w": WEIGHT[:3].contiguous(), "optimizer/w:step": step}, folder / "shard-00000.safetensors")
    save_file({"model/w": WEIGHT[3:].contiguous()}, folder / "shard-00001.safetensors")
    (folder / "progress.json").write_text("{}")
    folders.write_checksums(folder)
    return folder


def test_shards_are_joined_to_whole_tensors(tmp_path: Path) -> None:
    found = load_checkpoint(sharded(tmp_path))
    assert found.tensors["model"]["w"].equal(WEIGHT)
    assert found.tensors["optimizer"]["w:step"] == 7


def test_an_average_reads_only_the_weights(tmp_path: Path) -> None:
    assert list(average_checkpoints([sharded(tmp_path)])) == ["w"]


def test_a_missing_shard_is_named_and_the_checkpoint_passed_over(tmp_path: Path) -> None:
    (sharded(tmp_path) / "shard-00001.safetensors").unlink()
    path, (remark,) = latest_checkpoint(tmp_path)
    assert path is None
    assert "shard-00001.safetensors is missing" in remark


def test_a_checkpoint_that_is_not_sharded_is_read_by_a_sharded_run(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, 3, {"model": {"w": WEIGHT}, "average": {"w": 2 * WEIGHT}}, {})
    found = load_checkpoint(path, part=lambda name, saved: torch.empty_like(saved, device="cpu"))
    assert found.tensors["model"]["w"].equal(WEIGHT)
    assert found.tensors["average"]["w"].equal(2 * WEIGHT)


def test_a_damaged_shard_raises_a_folder_error(tmp_path: Path) -> None:
    folder = sharded(tmp_path)
    (folder / "shard-00001.safetensors").write_bytes(b"short")
    folders.write_checksums(folder)
    with pytest.raises(FolderError, match="damaged or truncated"):
        load_checkpoint(folder)
