"""Checkpoints in shards, read without any other process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from regard import folders
from regard.errors import FolderError
from regard.training.checkpoint import average_checkpoints, latest_checkpoint, load_checkpoint, save_checkpoint

WEIGHT = torch.arange(20.0).view(5, 4)


def divided(root: Path) -> Path:
    """A checkpoint of one weight whose rows are divided among two processes, as three and two."""
    folder = root / "checkpoints" / "update-00000007"
    folder.mkdir(parents=True)
    parts = []
    for rank, (begin, end) in enumerate([(0, 3), (3, 5)]):
        save_file({"model/w": WEIGHT[begin:end].contiguous()}, folder / f"shard-0000{rank}.safetensors")
        parts.append({"file": f"shard-0000{rank}.safetensors", "at": [begin, 0], "shape": [end - begin, 4]})
    save_file({"optimizer/w:step": torch.tensor(7.0)}, folder / "shard-00002.safetensors")
    scalar = [{"file": "shard-00002.safetensors", "at": [], "shape": []}]
    table = {
        "model/w": {"dtype": "float32", "shape": [5, 4], "parts": parts},
        "optimizer/w:step": {"dtype": "float32", "shape": [], "parts": scalar},
    }
    (folder / "shards.json").write_text(json.dumps(table))
    (folder / "progress.json").write_text("{}")
    folders.write_checksums(folder)
    return folder


def test_shards_are_read_as_the_whole_they_are_parts_of(tmp_path: Path) -> None:
    found = load_checkpoint(divided(tmp_path))
    assert found.tensors["model"]["w"].equal(WEIGHT)
    assert found.tensors["optimizer"]["w:step"] == 7


def test_the_weights_alone_are_read_for_an_average(tmp_path: Path) -> None:
    assert list(average_checkpoints([divided(tmp_path)])) == ["w"]


def test_a_missing_shard_is_named_and_the_checkpoint_passed_over(tmp_path: Path) -> None:
    (divided(tmp_path) / "shard-00001.safetensors").unlink()
    path, (remark,) = latest_checkpoint(tmp_path)
    assert path is None
    assert "shard-00001.safetensors is missing" in remark


def test_whole_files_are_read_in_parts(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, 3, {"model": {"w": WEIGHT}, "average": {"w": 2 * WEIGHT}}, {})
    found = load_checkpoint(path, part=lambda name, saved: torch.empty_like(saved, device="cpu"))
    assert found.tensors["model"]["w"].equal(WEIGHT)
    assert found.tensors["average"]["w"].equal(2 * WEIGHT)


OUTSIDE = '{"model/w": {"parts": [{"file": "../x", "at": [], "shape": []}], "shape": []}}'


@pytest.mark.parametrize("text", ["[]", "{", '{"model/w": {}}', OUTSIDE])
def test_a_damaged_table_is_an_error_and_not_a_traceback(tmp_path: Path, text: str) -> None:
    folder = divided(tmp_path)
    (folder / "shards.json").write_text(text)
    folders.write_checksums(folder)
    with pytest.raises(FolderError, match=r"shards.json is damaged: it is not a table of tensors"):
        load_checkpoint(folder)


def test_a_shard_cut_short_on_purpose_is_an_error_and_not_a_traceback(tmp_path: Path) -> None:
    folder = divided(tmp_path)
    (folder / "shard-00001.safetensors").write_bytes(b"short")
    folders.write_checksums(folder)
    with pytest.raises(FolderError, match="damaged or cut short"):
        load_checkpoint(folder)
