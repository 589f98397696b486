"""Models and checkpoints: saved and loaded unchanged, and intact after damage, full disks and kills."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from regard import folders
from regard.config import Config, ModelConfig
from regard.errors import FolderError, RunError
from regard.models import build
from regard.models.folder import copy_weights, load_model, named_tensors, save_model
from regard.training import checkpoint
from regard.training.checkpoint import (
    CheckpointWriter,
    latest_checkpoint,
    load_tensors,
    prune,
    save_checkpoint,
    verify_checkpoint,
)
from tests.models.families import ALL

TINY = Config(model=ALL["transformer"])
FILES = {"tokenizer.json": b"{}", "card.md": "# A card\n"}
TYPES = (torch.float32, torch.bfloat16, torch.int64)
PARTS = ["model.safetensors", "optimizer.safetensors", "progress.json", "checksums.json"]


def groups(value: float, size: int = 3) -> dict[str, dict[str, Tensor]]:
    return {
        "model": {"w": torch.full((size,), value), "b": torch.tensor(value)},
        "optimizer": {"w.mean": torch.full((size,), -value)},
    }


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def logits(model: nn.Module, config: ModelConfig) -> Tensor:
    source, target = torch.arange(5)[None], torch.arange(4)[None]
    with torch.no_grad():
        if config.family != "bert":
            written: Tensor = model.step(target, model.start(source))[0]
            return written
        encoded: Tensor = model.encode(source)
        return model.logits(encoded) if config.mlm_head else encoded


@pytest.fixture(autouse=True)
def _power_stays_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for the disk is what test_folders.py is about, and most of the time the tests here would take."""
    monkeypatch.setattr(os, "fsync", lambda held: None)


# A model's folder.


@pytest.mark.parametrize("name", ALL)
def test_a_loaded_model_gives_the_same_logits(name: str, tmp_path: Path) -> None:
    config = Config(model=ALL[name])
    model = build(config.model).eval()
    save_model(tmp_path / "m", model, config, FILES, force=False)
    loaded, read = load_model(tmp_path / "m")
    assert read == config
    assert torch.equal(logits(loaded, config.model), logits(model, config.model))


def test_a_model_folder_holds_its_files_and_nothing_else(tmp_path: Path) -> None:
    save_model(tmp_path / "m", build(TINY.model), TINY, FILES, force=False)
    assert names(tmp_path) == ["m"]
    assert names(tmp_path / "m") == ["card.md", "checksums.json", "config.json", "model.safetensors", "tokenizer.json"]


@pytest.mark.parametrize("name", [name for name, config in ALL.items() if config.tie_embeddings == "all"])
def test_tied_weights_are_saved_once(name: str, tmp_path: Path) -> None:
    model = build(ALL[name])
    save_model(tmp_path / "m", model, Config(model=ALL[name]), FILES, force=False)
    assert sorted(load_file(tmp_path / "m" / "model.safetensors")) == sorted(dict(model.named_parameters()))


@pytest.mark.parametrize("name", ["transformer", "rnn-additive-input-gru"])
def test_tied_weights_are_tied_after_loading(name: str, tmp_path: Path) -> None:
    save_model(tmp_path / "m", build(ALL[name]), Config(model=ALL[name]), FILES, force=False)
    model, _ = load_model(tmp_path / "m")
    assert model.source is model.target
    every = dict(model.named_parameters(remove_duplicate=False))
    assert len({parameter.data_ptr() for parameter in every.values()}) == len(list(model.parameters())) < len(every)


def test_loading_draws_no_random_numbers(tmp_path: Path) -> None:
    save_model(tmp_path / "m", build(TINY.model), TINY, FILES, force=False)
    before = torch.get_rng_state()
    load_model(tmp_path / "m")
    assert torch.equal(torch.get_rng_state(), before)


def test_a_loaded_model_outlives_its_file(tmp_path: Path) -> None:
    model = build(TINY.model).eval()
    save_model(tmp_path / "m", model, TINY, FILES, force=False)
    loaded, _ = load_model(tmp_path / "m")
    os.truncate(tmp_path / "m" / "model.safetensors", 0)
    assert torch.equal(logits(loaded, TINY.model), logits(model, TINY.model))


def test_a_loaded_model_can_be_trained(tmp_path: Path) -> None:
    save_model(tmp_path / "m", build(TINY.model), TINY, FILES, force=False)
    model, _ = load_model(tmp_path / "m")
    assert all(parameter.requires_grad and parameter.is_leaf for parameter in model.parameters())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["transformer", "rnn-additive-input-lstm"])
def test_weights_are_loaded_in_the_precision_of_their_file(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    model = build(ALL[name]).to(dtype)
    save_model(tmp_path / "m", model, Config(model=ALL[name]), FILES, force=False)
    loaded, _ = load_model(tmp_path / "m")
    for mine, theirs in zip(loaded.parameters(), model.parameters(), strict=True):
        assert mine.dtype == dtype
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t.pop("source.token.weight"), r"source.token.weight \(50, 16\) is missing"),
        (lambda t: t.update(extra=torch.zeros(2)), r"extra \(2,\) is not a parameter of the model"),
        (
            lambda t: t.update({"source.token.weight": torch.zeros(50, 8)}),
            r"source.token.weight has shape \(50, 8\), expected \(50, 16\)",
        ),
        (
            lambda t: t.update({"source.token.weight": torch.zeros(50, 16, dtype=torch.int32)}),
            "source.token.weight holds int32, and weights are floating-point",
        ),
        (lambda t: t.clear(), r".* is missing; .* is missing; .* is missing \(and \d+ more\)"),
    ],
)
def test_tensors_that_do_not_fit_are_named(change: Any, says: str, tmp_path: Path) -> None:
    tensors = named_tensors(build(TINY.model))
    change(tensors)
    save_model(tmp_path / "m", tensors, TINY, FILES, force=False)
    with pytest.raises(FolderError, match=f"m/model.safetensors does not fit its config: {says}"):
        load_model(tmp_path / "m")


@pytest.mark.parametrize("sealed", [True, False], ids=["with checksums", "without"])
@pytest.mark.parametrize("left", [0, 4, 100, 0.5, -1])
def test_truncated_weights_are_named(left: float, sealed: bool, tmp_path: Path) -> None:
    save_model(tmp_path / "m", build(TINY.model), TINY, FILES, force=False)
    weights = tmp_path / "m" / "model.safetensors"
    if not sealed:
        (tmp_path / "m" / "checksums.json").unlink()
    size = weights.stat().st_size
    os.truncate(weights, int(size * left) if isinstance(left, float) else left % size)
    with pytest.raises(FolderError, match=r"m/model.safetensors is damaged"):
        load_model(tmp_path / "m")


def test_a_flipped_bit_in_the_weights_is_found(tmp_path: Path) -> None:
    save_model(tmp_path / "m", build(TINY.model), TINY, FILES, force=False)
    flip(tmp_path / "m" / "model.safetensors", -3)
    with pytest.raises(FolderError, match=r"m/model.safetensors is damaged"):
        load_model(tmp_path / "m")


def test_the_card_and_the_config_may_be_edited(tmp_path: Path) -> None:
    save_model(tmp_path / "m", build(TINY.model), TINY, FILES, force=False)
    (tmp_path / "m" / "card.md").write_text("mine")
    (tmp_path / "m" / "config.json").write_text(json.dumps(TINY.values()))
    load_model(tmp_path / "m")


@pytest.mark.parametrize("text", ["{", "[]", '{"model": {"sise": 3}}', '{"model": {"size": "wide"}}', "\0\xff"])
def test_a_broken_config_is_named(text: str, tmp_path: Path) -> None:
    save_model(tmp_path / "m", build(TINY.model), TINY, FILES, force=False)
    (tmp_path / "m" / "config.json").write_text(text)
    with pytest.raises(FolderError, match=r"m/config.json"):
        load_model(tmp_path / "m")


@pytest.mark.parametrize(("field", "value"), [("decoder_layers", 1000), ("vocabulary", 9_999_999)])
def test_a_size_that_the_weights_do_not_have_is_refused(field: str, value: int, tmp_path: Path) -> None:
    save_model(tmp_path / "m", build(TINY.model), TINY, FILES, force=False)
    (tmp_path / "m" / "config.json").write_text(json.dumps(TINY.with_values({f"model.{field}": value}).values()))
    with pytest.raises(FolderError, match="does not fit its config"):
        load_model(tmp_path / "m")


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "run").mkdir()
    save_checkpoint(tmp_path / "run", 1, groups(1), {})
    (tmp_path / "run" / "config.json").write_text("{}")
    for name, says in {
        "none": "There is no folder .*none",
        "file": "file is a file, not a model folder",
        ".": "is not a model folder: it has no config.json",
        "run": "run has no model.safetensors: its training has not ended",
    }.items():
        with pytest.raises(FolderError, match=says):
            load_model(tmp_path / name)


def test_a_model_is_not_replaced_without_force(tmp_path: Path) -> None:
    save_model(tmp_path / "m", build(TINY.model), TINY, FILES, force=False)
    before = content(tmp_path)
    with pytest.raises(FolderError, match=r"m/config.json already exists"):
        save_model(tmp_path / "m", build(TINY.model), TINY, FILES, force=False)
    assert content(tmp_path) == before


def test_replacing_a_model_removes_its_tokenizer_and_keeps_other_files(tmp_path: Path) -> None:
    save_model(tmp_path / "m", build(TINY.model), TINY, {"tokenizer.json": "{}"}, force=False)
    (tmp_path / "m" / "notes").touch()
    both = {"tokenizer.source.json": "{}", "tokenizer.target.json": "{}"}
    save_model(tmp_path / "m", build(TINY.model), TINY, both, force=True)
    assert names(tmp_path / "m") == sorted([*both, "checksums.json", "config.json", "model.safetensors", "notes"])


def test_a_model_is_saved_into_the_folder_of_its_training(tmp_path: Path) -> None:
    folder, model = tmp_path / "m", build(TINY.model).eval()
    folders.write_file(folder / "tokenizer.json", FILES["tokenizer.json"], force=False)
    with folders.lock_folder(folder):
        save_checkpoint(folder, 1, {"model": named_tensors(model)}, {})
        save_model(folder, model, TINY, FILES, force=True)
    loaded, _ = load_model(folder)
    assert torch.equal(logits(loaded, TINY.model), logits(model, TINY.model))
    assert latest_checkpoint(folder) == (folder / "checkpoints" / "update-00000001", [])


@pytest.mark.parametrize("force", [False, True])
def test_a_file_in_place_of_a_folder_is_refused(force: bool, tmp_path: Path) -> None:
    (tmp_path / "m").write_text("mine")
    with pytest.raises(FolderError, match="m is not a folder"):
        save_model(tmp_path / "m", build(TINY.model), TINY, FILES, force=force)
    assert content(tmp_path) == {"m": b"mine"}


@pytest.mark.parametrize("killed_at", range(1, 6))
def test_killed_while_replacing_a_model_no_mixture_is_left(
    killed_at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old weights never stand beside the new tokenizer: there is the old model, none, or the new one."""
    save_model(tmp_path / "m", build(TINY.model), TINY, {"tokenizer.json": "old"}, force=False)
    replace, calls = os.replace, []

    def killed(source: Path, target: Path) -> None:
        calls.append(target)
        if len(calls) == killed_at:
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", killed)
    try:
        save_model(tmp_path / "m", build(TINY.model), TINY, {"tokenizer.json": "new"}, force=True)
    except KeyboardInterrupt:
        assert not (tmp_path / "m" / "model.safetensors").exists()
    else:
        assert killed_at == 5
        assert (tmp_path / "m" / "tokenizer.json").read_text() == "new"


def test_safetensors_carry_no_metadata_whose_order_could_change(tmp_path: Path) -> None:
    save_model(tmp_path / "m", build(TINY.model), TINY, FILES, force=False)
    with safe_open(tmp_path / "m" / "model.safetensors", "pt") as file:
        assert len(file.metadata() or {}) <= 1


def save_everything(root: Path) -> None:
    torch.manual_seed(1)
    config = Config(model=ALL["gpt"])
    model = build(config.model)
    save_model(root, model, config, FILES, force=False)
    progress = dict.fromkeys({"a", "b", "c", "d", "e"}, 1.5)  # in an order that changes from process to process
    save_checkpoint(root, 7, {"model": named_tensors(model)}, progress)


@pytest.mark.slow
def test_two_processes_write_the_same_bytes(tmp_path: Path) -> None:
    program = "from tests.training.test_checkpoint import Path, save_everything\n"
    program += f"save_everything(Path({str(tmp_path / 'there')!r}))"
    subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parent.parent.parent, check=True)
    save_everything(tmp_path / "here")
    assert content(tmp_path / "here") == content(tmp_path / "there")


# Checkpoints.


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def test_a_checkpoint_is_loaded_as_it_was_saved(tmp_path: Path) -> None:
    progress = {"epoch": 3, "loss": 0.1 + 0.2, "best": float("inf"), "cursor": [1, 2]}
    saved = groups(1.5)
    path = save_checkpoint(tmp_path, 100, saved, progress)
    assert path == tmp_path / "checkpoints" / "update-00000100"
    assert names(path) == sorted(PARTS)
    loaded = load_tensors(path)
    assert folders.read_json(path / "progress.json") == progress
    assert {group: list(named) for group, named in loaded.items()} == {
        "model": ["b", "w"],
        "optimizer": ["w.mean"],
    }
    for group, named in saved.items():
        for name, tensor in named.items():
            assert torch.equal(loaded[group][name], tensor)


def test_changing_loaded_tensors_does_not_change_the_checkpoint(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, 1, groups(1.0), {})
    load_tensors(path)["model"]["w"].add_(1)
    assert load_tensors(path)["model"]["w"][0] == 1


def test_an_empty_optimizer_state_is_saved(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, 0, {"model": {"w": torch.zeros(2)}, "optimizer": {}}, {})
    assert load_tensors(path)["optimizer"] == {}


def test_the_same_update_can_be_saved_again(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, groups(1), {})
    path = save_checkpoint(tmp_path, 1, groups(2), {})
    assert load_tensors(path)["model"]["b"] == 2
    assert names(tmp_path / "checkpoints") == ["update-00000001"]


def test_the_latest_checkpoint_is_the_one_of_the_last_update(tmp_path: Path) -> None:
    for update in (9, 100, 99_999_999, 100_000_000, 20):
        save_checkpoint(tmp_path, update, groups(1), {})
    assert latest_checkpoint(tmp_path) == (tmp_path / "checkpoints" / "update-100000000", [])


def test_checkpoints_that_cannot_be_listed_are_not_overlooked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "checkpoints").mkdir()
    for name in ("listdir", "scandir"):
        monkeypatch.setattr(os, name, fail)
    with pytest.raises(FolderError, match="checkpoints cannot be read: Permission denied"):
        checkpoint.checkpoints(tmp_path)


def test_without_checkpoints_there_is_no_latest_one(tmp_path: Path) -> None:
    assert latest_checkpoint(tmp_path / "none") == (None, [])


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "gone"])
@pytest.mark.parametrize("part", PARTS)
def test_a_damaged_checkpoint_is_passed_over_with_a_remark(part: str, damage: str, tmp_path: Path) -> None:
    sound = save_checkpoint(tmp_path, 1, groups(1), {"a": 1})
    path = save_checkpoint(tmp_path, 2, groups(2), {"a": 2}) / part
    size = path.stat().st_size
    if damage == "gone":
        path.unlink()
    elif damage == "flip":
        flip(path, size // 2)
    else:
        os.truncate(path, size // 2 if damage == "cut" else 0)
    found, remarks = latest_checkpoint(tmp_path)
    assert found == sound
    assert len(remarks) == 1
    assert remarks[0].startswith("update-00000002 was skipped: ")
    assert "\n" not in remarks[0]


@pytest.mark.parametrize("part", PARTS)
def test_every_flipped_bit_is_detected(part: str, tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, 1, groups(1), {"a": 1})
    whole = (path / part).read_bytes()
    for bit in range(0, 8 * len(whole), 31):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        (path / part).write_bytes(data)
        with pytest.raises(FolderError):
            verify_checkpoint(path)


def test_the_damaged_file_of_a_checkpoint_is_named(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, 2, groups(2), {})
    flip(path / "optimizer.safetensors", -1)
    with pytest.raises(FolderError, match=r"update-00000002/optimizer.safetensors is damaged"):
        verify_checkpoint(path)


@pytest.mark.parametrize(
    ("keep", "protect", "left"),
    [(2, (), [4, 5]), (1, (2,), [2, 5]), (9, (), [1, 2, 3, 4, 5]), (2, (5,), [4, 5])],
)
def test_pruning_keeps_the_newest_and_protected_checkpoints(
    keep: int, protect: tuple[int, ...], left: list[int], tmp_path: Path
) -> None:
    for update in range(1, 6):
        save_checkpoint(tmp_path, update, groups(update), {})
    prune(tmp_path, keep=keep, protect=protect)
    assert names(tmp_path / "checkpoints") == [f"update-{update:08d}" for update in left]


def test_killed_while_pruning_no_partial_checkpoint_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for update in (1, 2):
        save_checkpoint(tmp_path, update, groups(update), {})
    monkeypatch.setattr(folders, "_erase", lambda path: (path / "progress.json").unlink())
    prune(tmp_path, keep=1)
    assert checkpoint.checkpoints(tmp_path) == [tmp_path / "checkpoints" / "update-00000002"]


def test_a_model_is_filled_from_a_checkpoint(tmp_path: Path) -> None:
    model, other = build(TINY.model).eval(), build(TINY.model).eval()
    path = save_checkpoint(tmp_path, 1, {"model": named_tensors(model)}, {})
    copy_weights(other, load_tensors(path)["model"], path)
    assert torch.equal(logits(other, TINY.model), logits(model, TINY.model))


# A full disk.


def test_a_full_disk_is_one_line_and_keeps_existing_checkpoints(tiny_disk: Path) -> None:
    sound = save_checkpoint(tiny_disk, 1, groups(1), {})
    with pytest.raises(RunError, match=r"update-00000002 could not be written: the disk is full"):
        save_checkpoint(tiny_disk, 2, groups(2, 100_000), {})
    assert names(tiny_disk / "checkpoints") == ["update-00000001"]
    assert latest_checkpoint(tiny_disk) == (sound, [])


def test_a_full_disk_leaves_the_old_model(tiny_disk: Path) -> None:
    save_model(tiny_disk / "m", build(TINY.model), TINY, FILES, force=False)
    before = content(tiny_disk)
    with pytest.raises(RunError, match="m could not be written: the disk is full"):
        save_model(tiny_disk / "m", {"w": torch.zeros(100_000)}, TINY, FILES, force=True)
    assert content(tiny_disk) == before


def test_a_full_disk_is_recognised_in_errors_of_safetensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(tensors: dict[str, Tensor], path: Path) -> None:
        path.write_bytes(b"half")
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("regard.models.folder.save_file", full)
    with pytest.raises(RunError, match="the disk is full"):
        save_checkpoint(tmp_path, 1, groups(1), {})
    assert names(tmp_path / "checkpoints") == []


# In the background.


def test_changes_after_the_copy_are_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = threading.Event()

    def late(tensors: dict[str, Tensor], path: Path) -> None:
        assert changed.wait(10)
        save_file(tensors, path)

    monkeypatch.setattr("regard.models.folder.save_file", late)
    tensors, progress = groups(1), {"epoch": 1}
    with CheckpointWriter(tmp_path, keep=1) as saver:
        saver.save(1, tensors, progress)
        progress["epoch"] = 2
        saver.wait_for_copy()
        tensors["model"]["w"].fill_(2)
        changed.set()
        path = saver.wait()
    assert path is not None
    assert load_tensors(path)["model"]["w"].tolist() == [1, 1, 1]
    assert folders.read_json(path / "progress.json") == {"epoch": 1}


def test_only_wait_for_copy_waits_for_the_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one who waits is the one who lets the copy be made: nobody waits in `save`, or this would never end."""
    began, free, copy = threading.Event(), threading.Event(), CheckpointWriter._copy

    def late(saver: CheckpointWriter, *args: Any) -> Any:
        began.set()
        assert free.wait(10)
        return copy(saver, *args)

    monkeypatch.setattr(CheckpointWriter, "_copy", late)
    with CheckpointWriter(tmp_path, keep=1) as saver:
        saver.save(1, groups(1), {})
        assert began.wait(10)
        threading.Timer(0.05, free.set).start()
        saver.wait_for_copy()
        assert free.is_set()


def test_saving_cpu_tensors_uses_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: pytest.fail("a GPU was asked"))
    with CheckpointWriter(tmp_path, keep=1) as saver:
        saver.save(1, groups(1), {})
        saver.wait_for_copy()
    assert names(tmp_path / "checkpoints") == ["update-00000001"]


def test_a_failed_copy_is_a_run_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(*_: object, **__: object) -> None:
        raise MemoryError("nothing left")

    monkeypatch.setattr(torch, "_foreach_copy_", lacking)
    saver = CheckpointWriter(tmp_path, keep=1)
    saver.save(1, groups(1), {})
    with pytest.raises(RunError, match="the checkpoint of update 1 could not be copied: nothing left"):
        saver.wait_for_copy()


def test_tensors_of_several_dtypes_are_saved_unchanged(tmp_path: Path) -> None:
    torch.manual_seed(0)
    tensors = {f"{dtype} {place}": torch.randn(place, 3).to(dtype) for place in (1, 2) for dtype in TYPES}
    with CheckpointWriter(tmp_path, keep=1) as saver:
        saver.save(1, {"model": tensors | {"count": torch.tensor(7)}}, {})
        path = saver.wait()
    assert path is not None
    saved = load_tensors(path)["model"]
    assert saved.pop("count").item() == 7
    for name, tensor in tensors.items():
        assert saved[name].dtype == tensor.dtype
        assert torch.equal(saved[name], tensor)


def test_reused_buffers_do_not_mix_checkpoints(tmp_path: Path) -> None:
    with CheckpointWriter(tmp_path, keep=9) as saver:
        for update in range(4):
            saver.save(update, groups(update, size=3 + update // 2), {})
    values = [load_tensors(path)["model"]["w"].tolist() for path in checkpoint.checkpoints(tmp_path)]
    assert values == [[0] * 3, [1] * 3, [2] * 4, [3] * 4]


def test_the_writer_prunes(tmp_path: Path) -> None:
    with CheckpointWriter(tmp_path, keep=2) as saver:
        for update in range(1, 6):
            saver.save(update, groups(update), {}, protect=[1])
    assert names(tmp_path / "checkpoints") == ["update-00000001", "update-00000004", "update-00000005"]


def test_a_failure_in_the_background_is_raised_by_the_next_call(tiny_disk: Path) -> None:
    saver = CheckpointWriter(tiny_disk, keep=1)
    saver.save(1, groups(1), {})
    saver.save(2, groups(2, 100_000), {})
    with pytest.raises(RunError, match="update-00000002 could not be written: the disk is full"):
        saver.save(3, groups(3), {})
    assert names(tiny_disk / "checkpoints") == ["update-00000001"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").touch()
    saver = CheckpointWriter(tmp_path, keep=1)
    saver.save(1, groups(1), {})
    with pytest.raises(FolderError, match="checkpoints is not a folder"):
        saver.wait()


def test_the_error_that_ended_the_run_comes_before_a_background_error(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").touch()

    def interrupted() -> None:
        with CheckpointWriter(tmp_path, keep=1) as saver:
            saver.save(1, groups(1), {})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("name", ["transformer", "rnn-additive-input-lstm"])
def test_gpu_weights_may_change_after_the_copy(name: str, tmp_path: Path) -> None:
    config = Config(model=ALL[name])
    model = build(config.model).eval()
    expected = {key: tensor.clone() for key, tensor in named_tensors(model).items()}
    model.to("cuda")
    with CheckpointWriter(tmp_path, keep=1) as saver:
        saver.save(1, {"model": named_tensors(model)}, {})
        saver.wait_for_copy()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        path = saver.wait()
    assert path is not None
    saved = load_tensors(path)["model"]
    save_model(tmp_path, saved, config, FILES, force=False)
    loaded, _ = load_model(tmp_path, "cuda")
    for key, parameter in loaded.named_parameters():
        assert parameter.is_cuda
        assert torch.equal(parameter.cpu(), expected[key])
    if config.model.family == "rnn":
        loaded.start(torch.arange(5, device="cuda")[None])  # warns, and so fails, when its weights lie scattered


# Killed at any moment.

KILLED = """
import json, os, random, signal, sys, time
from pathlib import Path
import torch
from regard.training.checkpoint import CheckpointWriter, checkpoints, read_progress, latest_checkpoint
from regard.training.checkpoint import verify_checkpoint
from regard.folders import lock_folder

torch.set_num_threads(1)
root, rounds, chance = Path(sys.argv[1]), int(sys.argv[2]), random.Random(0)
tensors = {"model": {f"w{i}": torch.randn(50_000) for i in range(4)}, "optimizer": {"m": torch.randn(100_000)}}

def save_for_ever(report):
    with lock_folder(root), CheckpointWriter(root, keep=3) as saver:
        path, _ = latest_checkpoint(root)
        update = int(path.name[7:]) if path else 0
        while True:
            update += 1
            saver.save(update, tensors, {"update": update})
            saver.wait()
            os.write(report, b"%d\\n" % update)

for _ in range(rounds):
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            save_for_ever(writer)
        finally:
            os._exit(1)
    os.close(writer)
    time.sleep(chance.uniform(0.05, 0.6))
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    with open(reader) as lines:
        reported = [int(line) for line in lines]
    for path in checkpoints(root):
        verify_checkpoint(path)
    sound = [read_progress(path).update for path in checkpoints(root)]
    path, remarks = latest_checkpoint(root)
    print(json.dumps({"status": status, "reported": reported[-1:], "sound": sound, "remarks": remarks}), flush=True)
with lock_folder(root):
    print(json.dumps([name for name in os.listdir(root / "checkpoints") if name.startswith(".")]))
"""


@pytest.mark.slow
def test_killed_at_any_moment_every_checkpoint_is_intact_and_none_is_lost(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), "15"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *rounds, left = map(json.loads, done.stdout.splitlines())
    assert len(rounds) == 15
    last = 0
    for each in rounds:
        assert each["status"] == 9, done.stderr
        assert each["remarks"] == []
        last = max([last, *each["reported"]])
        assert max(each["sound"], default=0) >= last
    assert last > 15, "hardly anything was saved: this showed nothing"
    assert left == []
