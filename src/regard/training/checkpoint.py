"""Checkpoints of a training run: write in the background, load, verify, prune, average.

checkpoints/update-00000100/   model.safetensors  optimizer.safetensors  progress.json  checksums.json
                               or shard-00000.safetensors ... if the run is sharded over processes
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from regard import folders
from regard.errors import FolderError, RegardError, RunError
from regard.folders import CHECKSUMS, clear_os_errors
from regard.models.folder import MODEL, load_weights, read_tensors, write_tensors
from regard.training.shards import Allocate, Groups, local_tensors, read_shards, write_shard

PROGRESS = "progress.json"
CHECKPOINTS = "checkpoints"
FIRST_SHARD = "shard-00000.safetensors"
NAME = re.compile(r"update-(\d{8,})")


class Checkpoint(NamedTuple):
    """Everything a run needs to resume after an update."""

    update: int
    tensors: dict[str, dict[str, Tensor]]
    progress: dict[str, Any]


def checkpoint_path(root: Path, update: int) -> Path:
    """The folder of an update's checkpoint."""
    return root / CHECKPOINTS / f"update-{update:08d}"


def update_number(path: Path) -> int:
    """The update of a checkpoint's folder."""
    match = NAME.fullmatch(path.name)
    if match is None:
        raise FolderError(f"{path} is not a checkpoint: its name is not of the form update-00000100")
    return int(match[1])


def save_checkpoint(
    root: Path, update: int, tensors: Groups, progress: Mapping[str, Any], writers: dist.ProcessGroup | None = None
) -> Path:
    """Write `checkpoints/update-...`, replacing a checkpoint of the same update. All `writers` must call it."""
    assert "model" in tensors
    path = checkpoint_path(root, update)
    if writers is not None and dist.get_rank(writers):
        with clear_os_errors(path):
            write_shard(None, tensors, writers)
        return path
    with folders.atomic_folder(path, force=True) as new:
        if writers is not None:
            write_shard(new, tensors, writers)
        else:
            for group, named in tensors.items():
                write_tensors(new / f"{group}.safetensors", named)
        (new / PROGRESS).write_text(json.dumps(progress, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        folders.write_checksums(new)
    return path


def load_checkpoint(path: Path, *, check: bool = True, part: Allocate | None = None) -> Checkpoint:
    """Load a checkpoint; `check` verifies it first. With `part`, only this process's part of each tensor is read."""
    update = update_number(path)
    names = verify_checkpoint(path) if check else list(folders.read_checksums(path))
    if FIRST_SHARD in names or part is not None:
        tensors = read_shards(path, part or _empty)
    else:
        files = [name for name in names if name.endswith(".safetensors")]
        tensors = {name.removesuffix(".safetensors"): read_tensors(path / name) for name in files}
    with clear_os_errors(path / PROGRESS, "read"):
        progress = json.loads((path / PROGRESS).read_bytes())
    return Checkpoint(update, tensors, progress)


def _empty(name: str, saved: Tensor) -> Tensor:
    return torch.empty_like(saved, device="cpu")


def verify_checkpoint(path: Path) -> list[str]:
    """Compare a checkpoint's files with its checksums and return their names; a FolderError names a damaged file."""
    if not path.is_dir():
        raise FolderError(f"There is no checkpoint {path}")
    names = folders.verify(path)
    for name in (FIRST_SHARD if FIRST_SHARD in names else MODEL, PROGRESS):
        if name not in names:
            raise FolderError(f"{path} is damaged: {name} is not listed in {CHECKSUMS}")
    return names


# The checkpoints of a run


def checkpoints(root: Path) -> list[Path]:
    """The checkpoints in a model's folder, oldest first."""
    folder = root / CHECKPOINTS
    if not folder.is_dir():
        return []
    with clear_os_errors(folder, "read"):
        paths = [path for path in folder.iterdir() if NAME.fullmatch(path.name)]
    return sorted(paths, key=update_number)


def latest_checkpoint(root: Path, *, where: Callable[[int], bool] = lambda _: True) -> tuple[Path | None, list[str]]:
    """The newest intact checkpoint, and a message about each newer one that is damaged; `where` selects updates."""
    remarks = []
    for path in reversed([path for path in checkpoints(root) if where(update_number(path))]):
        try:
            verify_checkpoint(path)
        except RegardError as error:
            remarks.append(f"{path.name} was skipped: {error}")
        else:
            return path, remarks
    return None, remarks


def rename_damaged(root: Path, intact: Path | None, *, where: Callable[[int], bool] = lambda _: True) -> None:
    """Rename the checkpoints newer than `intact` to damaged-update-..., so that `prune` does not count them."""
    for path in checkpoints(root):
        if where(update_number(path)) and (intact is None or update_number(path) > update_number(intact)):
            with clear_os_errors(path):
                folders.replace(path.with_name(f"damaged-{path.name}"), path)


def damaged_checkpoints(root: Path) -> list[Path]:
    """The checkpoints that were renamed because they were damaged."""
    return sorted((root / CHECKPOINTS).glob("damaged-update-*"))


def prune(root: Path, *, keep: int, protect: Collection[int] = ()) -> None:
    """Delete all but the `keep` newest checkpoints and those of the updates in `protect`."""
    for path in checkpoints(root)[:-keep]:
        if update_number(path) not in protect:
            folders.delete(path)


def delete_after(root: Path, update: int) -> None:
    """Delete the checkpoints after an update, when the run is rolled back to it."""
    for path in checkpoints(root):
        if update_number(path) > update:
            folders.delete(path)


def average_checkpoints(paths: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of the weights of several checkpoints or model folders."""
    assert paths
    first, *others = map(_load_weights, paths)
    for path, other in zip(paths[1:], others, strict=True):
        for name in sorted({*first, *other}):
            shapes = [tuple(weights[name].shape) if name in weights else "missing" for weights in (other, first)]
            if shapes[0] != shapes[1]:
                raise FolderError(
                    f"{path} cannot be averaged with {paths[0]}: the shape of {name} is {shapes[0]} here and "
                    f"{shapes[1]} there"
                )
    return {
        name: sum((other[name].double() for other in others), tensor.double()).div(len(paths)).to(tensor.dtype)
        for name, tensor in first.items()
    }


def _load_weights(folder: Path) -> dict[str, Tensor]:
    if not (folder / FIRST_SHARD).is_file():
        return load_weights(folder)
    folders.verify(folder)
    return read_shards(folder, _empty, only=["model"])["model"]


# Writing in the background


class CheckpointWriter:
    """Copies and writes checkpoints in a background thread while training continues.

    The tensors of `save` must not change before `wait_for_copy` returns. An error of the background thread (a full
    disk) is raised as a RunError by the next call. Each save is followed by `prune` with `keep` and `protect`. In a
    sharded run all processes of `writers` must call `save` at the same updates; each writes its shards.
    """

    def __init__(self, root: Path, *, keep: int, writers: dist.ProcessGroup | None = None) -> None:
        assert keep >= 1
        self._root, self._keep, self._writers = root, keep, writers
        self._main = writers is None or dist.get_rank(writers) == 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._write_job: Future[Path] | None = None
        self._copy_job: Future[Groups] | None = None
        self._copies_on_device = False  # the copy job reads copies in GPU memory, not the tensors themselves
        self._buffers: list[Tensor] = []  # reused: pinned memory is slow to allocate
        self._stream: torch.cuda.Stream | None = None  # copies from the GPU without delaying its work

    def save(self, update: int, tensors: Groups, progress: Mapping[str, Any], *, protect: Collection[int] = ()) -> None:
        """Wait for the previous checkpoint, then start writing this one."""
        self.wait()
        local = local_tensors(tensors, main=self._main)
        originals = [tensor for named in local.values() for tensor in named.values()]
        # the optimizer keeps some scalars on the CPU
        device = next((tensor.device for tensor in originals if tensor.device.type != "cpu"), torch.device("cpu"))
        copies = _copy_on_device(originals, device)
        if device.type == "cuda":
            self._stream = self._stream or torch.cuda.Stream(device)
            self._stream.wait_stream(torch.cuda.current_stream(device))
        self._copies_on_device = copies is not None
        names = {group: list(named) for group, named in local.items()}
        self._copy_job = self._thread.submit(self._copy, update, names, originals if copies is None else copies)
        self._write_job = self._thread.submit(self._write, update, self._copy_job, dict(progress), frozenset(protect))

    def wait_for_copy(self) -> None:
        """Wait until the tensors of the last save may change."""
        if self._copy_job is not None and not self._copies_on_device:
            self._finish_copy()

    def free_device_memory(self) -> bool:
        """Wait until the last save holds no GPU memory; return whether it held any since the last call."""
        if self._copy_job is None or not self._copies_on_device:
            return False
        self._finish_copy()
        return True

    def wait(self) -> Path | None:
        """Wait for the checkpoint that is being written and return its path; None if there is none."""
        if self._write_job is None:
            return None
        try:
            return self._write_job.result()
        finally:
            if self._write_job.done():  # otherwise Ctrl-C interrupted the wait, and the thread still reads the copies
                self._write_job = None

    def __enter__(self) -> CheckpointWriter:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.wait()
        except RunError as failure:
            if error is None:
                raise
            error.add_note(f"and {failure}")  # the first error ended the run
        finally:
            self._thread.shutdown()
            self._copy_job = None
            self._buffers.clear()

    def _finish_copy(self) -> None:
        assert self._copy_job is not None
        try:
            self._copy_job.result()
        finally:
            if self._copy_job.done():
                self._copy_job = None

    def _copy(self, update: int, names: Mapping[str, list[str]], tensors: list[Tensor]) -> Groups:
        """Copy tensors to CPU buffers."""
        stream = self._stream
        try:
            if stream is not None:
                torch.cuda.set_device(stream.device)  # the device of this thread, otherwise the first GPU
            if [buffer.shape for buffer in self._buffers] != [tensor.shape for tensor in tensors]:
                self._buffers = [_buffer(tensor, pinned=stream is not None) for tensor in tensors]
            with torch.no_grad(), nullcontext() if stream is None else torch.cuda.stream(stream):
                torch._foreach_copy_(self._buffers, tensors, non_blocking=stream is not None)
            if stream is not None:
                stream.synchronize()
        except (RuntimeError, MemoryError) as error:
            raise RunError(f"the checkpoint of update {update} could not be copied: {error}") from error
        finally:
            tensors.clear()  # free device copies now: the executor keeps its arguments a little longer
        buffers = iter(self._buffers)
        return {group: {name: next(buffers) for name in named} for group, named in names.items()}

    def _write(self, update: int, copy: Future[Groups], progress: Mapping[str, Any], protect: Collection[int]) -> Path:
        try:
            path = save_checkpoint(self._root, update, copy.result(), progress, self._writers)
            if self._main:
                prune(self._root, keep=self._keep, protect=protect)
        except RegardError as error:
            raise RunError(str(error)) from error
        return path


def _buffer(tensor: Tensor, *, pinned: bool) -> Tensor:
    """CPU memory for a copy; a GPU copies to pinned memory asynchronously."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=pinned)


def _copy_on_device(tensors: list[Tensor], device: torch.device) -> list[Tensor] | None:
    """Copy tensors within GPU memory, which is many times faster than copying to the CPU.

    Returns None if GPU memory is short (as much again must stay free) or the device is the CPU.
    """
    if device.type == "cpu":
        return None
    if device.type != "cuda":
        return [tensor.to("cpu", copy=True) for tensor in tensors]  # only one thread may use such a device
    if torch.cuda.mem_get_info(device)[0] < 2 * sum(tensor.nbytes for tensor in tensors):
        return None
    try:
        copies = [torch.empty_like(tensor) for tensor in tensors]
    except torch.cuda.OutOfMemoryError:  # another program took the memory
        return None
    torch._foreach_copy_(copies, tensors)
    return copies
