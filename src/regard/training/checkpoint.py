"""Checkpoints of a training run: save, load, keep, average.

checkpoints/update-00000100/   model.safetensors  optimizer.safetensors  progress.json  checksums.json
                               or shard-00000.safetensors ... shards.json, where many processes wrote their parts
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from regard import folders
from regard.errors import FolderError, RegardError, RunError
from regard.folders import CHECKSUMS, SHARDS, clear_os_errors
from regard.models.folder import MODEL, load_weights, read_tensors, to_local, write_tensors

PROGRESS = "progress.json"
CHECKPOINTS = "checkpoints"
_UPDATE = re.compile(r"update-(\d{8,})")

Groups = Mapping[str, Mapping[str, Tensor]]
"""Tensors by name, in groups that become files: model, optimizer."""


# Checkpoints.


class Checkpoint(NamedTuple):
    """Everything a run needs to go on from an update."""

    update: int
    tensors: dict[str, dict[str, Tensor]]
    progress: dict[str, Any]


def save_checkpoint(root: Path, update: int, tensors: Groups, progress: Mapping[str, Any]) -> Path:
    """Write `checkpoints/update-...` into a model's folder; a checkpoint of the same update is replaced."""
    return _write_checkpoint(root, update, tensors, _to_text(progress))


Part = Callable[[str, Tensor], Tensor]
"""An empty tensor for what a process needs of a saved one, given its name, shape and type."""


def load_checkpoint(path: Path, *, check: bool = True, part: Part | None = None) -> Checkpoint:
    """A checkpoint as it was written; `latest_checkpoint` has checked the one it gives, so that need not be done again.

    With `part` this process reads no more than its part of each tensor.
    """
    number = _UPDATE.fullmatch(path.name)
    if number is None:
        raise FolderError(f"{path} is not a checkpoint: its name is not of the form update-00000100")
    names = verify_checkpoint(path) if check else list(folders.read_checksums(path))
    groups = [name for name in names if name.endswith(".safetensors")]
    if SHARDS in names or part is not None:
        tensors = _read_shards(path, part=part)
    else:
        tensors = {name.removesuffix(".safetensors"): read_tensors(path / name) for name in groups}
    with clear_os_errors(path / PROGRESS, "read"):
        progress = json.loads((path / PROGRESS).read_bytes())
    return Checkpoint(int(number[1]), tensors, progress)


def verify_checkpoint(path: Path) -> list[str]:
    """The names of a checkpoint's files, all there and as they were written; a FolderError names what is not."""
    if not path.is_dir():
        raise FolderError(f"There is no checkpoint {path}")
    names = folders.verify(path)
    for name in (SHARDS if SHARDS in names else MODEL, PROGRESS):
        if name not in names:
            raise FolderError(f"{path} is damaged: no {CHECKSUMS} lists its {name}")
    return names


def checkpoints(root: Path) -> list[Path]:
    """The checkpoints in a model's folder, oldest first."""
    place = root / CHECKPOINTS
    if not place.is_dir():
        return []
    with clear_os_errors(place, "read"):
        found = [path for path in place.iterdir() if _UPDATE.fullmatch(path.name)]
    return sorted(found, key=update_number)


def latest_checkpoint(root: Path, *, where: Callable[[int], bool] = lambda _: True) -> tuple[Path | None, list[str]]:
    """The newest checkpoint that is as it was written, and a sentence on each damaged one that was passed over.

    Only those of updates `where` which it is to be are looked at.
    """
    remarks = []
    for path in reversed([path for path in checkpoints(root) if where(update_number(path))]):
        try:
            verify_checkpoint(path)
        except RegardError as error:
            remarks.append(f"{path.name} was passed over: {error}")
        else:
            return path, remarks
    return None, remarks


def damaged_checkpoints(root: Path) -> list[Path]:
    """What was set aside."""
    return sorted((root / CHECKPOINTS).glob("damaged-update-*"))


def rename_damaged(root: Path, sound: Path | None, *, where: Callable[[int], bool] = lambda _: True) -> None:
    """Rename damaged checkpoints newer than `sound` to damaged-update-..., so that they do not count as kept."""
    for path in checkpoints(root):
        if where(update_number(path)) and (sound is None or update_number(path) > update_number(sound)):
            with clear_os_errors(path):
                folders.replace(path.with_name(f"damaged-{path.name}"), path)


def prune(root: Path, *, keep: int, protect: Collection[int] = ()) -> list[Path]:
    """Delete all but the `keep` newest checkpoints and those of the updates in `protect`."""
    found = checkpoints(root)
    old = [path for path in found[: max(len(found) - keep, 0)] if update_number(path) not in protect]
    for path in old:
        folders.delete(path)
    return old


def delete_after(root: Path, update: int) -> None:
    """Delete the checkpoints of what a run has given up: nobody is to go on from them."""
    for path in checkpoints(root):
        if update_number(path) > update:
            folders.delete(path)


def average_checkpoints(paths: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of the weights of several checkpoints or model folders."""
    assert paths
    first, *others = (_weights(path) for path in paths)
    for path, other in zip(paths[1:], others, strict=True):
        for name in sorted({*first, *other}):
            here, there = other.get(name), first.get(name)
            if here is None or there is None or here.shape != there.shape:
                shapes = ["missing" if each is None else f"of the shape {tuple(each.shape)}" for each in (here, there)]
                raise FolderError(
                    f"{path} cannot be averaged with {paths[0]}: {name} is {shapes[0]} here and {shapes[1]} there"
                )
    return {
        name: sum((other[name].double() for other in others), tensor.double()).div(len(paths)).to(tensor.dtype)
        for name, tensor in first.items()
    }


def _weights(folder: Path) -> dict[str, Tensor]:
    """The weights of a checkpoint, sharded or not, or of a model folder."""
    if (folder / SHARDS).is_file():
        folders.verify(folder)
        return _read_shards(folder, only=["model"])["model"]
    return load_weights(folder)


def update_number(path: Path) -> int:
    """The update a checkpoint is of."""
    return int(path.name.removeprefix("update-"))


def _to_text(progress: Mapping[str, Any]) -> str:
    return json.dumps(progress, indent=2, sort_keys=True) + "\n"


def checkpoint_path(root: Path, update: int) -> Path:
    """Where the checkpoint of an update is."""
    return root / CHECKPOINTS / f"update-{update:08d}"


def _write_checkpoint(
    root: Path, update: int, tensors: Groups, progress: str, writers: dist.ProcessGroup | None = None
) -> Path:
    assert "model" in tensors
    path = checkpoint_path(root, update)
    if writers is not None and dist.get_rank(writers):
        # The first of them makes the folder, which appears when all have written.
        with clear_os_errors(path):
            _write_shards(None, tensors, writers)
        return path
    with folders.atomic_folder(path, force=True) as new:
        if writers is not None:
            _write_shards(new, tensors, writers)
        for group, named in tensors.items() if writers is None else ():
            write_tensors(new / f"{group}.safetensors", named)
        (new / PROGRESS).write_text(progress, encoding="utf-8")
        folders.write_checksums(new)
    return path


# Tensors in a file.


def _write_shards(new: Path | None, tensors: Groups, writers: dist.ProcessGroup) -> None:
    from regard.training import shards

    shards.save(new, tensors, group=writers, write=write_tensors)


def _read_shards(path: Path, *, only: Collection[str] = (), part: Part | None = None) -> dict[str, dict[str, Tensor]]:
    from regard.training import shards

    part = part or (lambda _, tensor: torch.empty_like(tensor, device="cpu"))
    tensors = {
        group: {name: part(name, tensor) for name, tensor in named.items()}
        for group, named in shards.describe(path).items()
        if not only or group in only
    }
    shards.load(path, tensors)
    return tensors


# In the background.


def _device(tensors: Iterable[Tensor]) -> torch.device:
    """Where a process's tensors are, but for a count or so that the processor keeps."""
    return next((tensor.device for tensor in tensors if tensor.device.type != "cpu"), torch.device("cpu"))


def _place_for(tensor: Tensor, *, pinned: bool) -> Tensor:
    """Memory for a copy; a GPU writes to pinned memory without the processor."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=pinned)


def _quick_copies(tensors: list[Tensor], device: torch.device) -> list[Tensor] | None:
    """Copies made at once, or None where that takes as long as any copy.

    A GPU copies within its memory many times as fast as out of it; as much again stays free for what comes next.
    """
    if device.type == "cpu":
        return None
    if device.type != "cuda":
        return [tensor.to("cpu", copy=True) for tensor in tensors]  # now: only one thread speaks to such a device
    if torch.cuda.mem_get_info(device)[0] < 2 * sum(tensor.nbytes for tensor in tensors):
        return None
    try:
        copies = [torch.empty_like(tensor) for tensor in tensors]
    except torch.cuda.OutOfMemoryError:  # another program was quicker
        return None
    torch._foreach_copy_(copies, tensors)
    return copies


class CheckpointWriter:
    """Checkpoints copied and written while training goes on: what it saves may not change before `copied` says so.

    What fails in the background (a full disk) is raised as a RunError by the next call; the checkpoints that were
    there before are as they were. `keep` and `protect` are those of `prune`, which follows each save. `writers` are the
    processes among which the tensors are divided: each of them saves its part at the same updates.
    """

    def __init__(self, root: Path, *, keep: int, writers: dist.ProcessGroup | None = None) -> None:
        assert keep >= 1
        self._root, self._keep, self._writers = root, keep, writers
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="saver")
        self._job: Future[Path] | None = None
        self._copying: Future[Groups] | None = None
        self._quick = False  # whether it reads from copies, and not from what may change
        self._places: list[Tensor] = []  # used again and again: pinned memory is slow to get
        self._stream: torch.cuda.Stream | None = None  # a GPU's way out that does not hold up its work

    def save(self, update: int, tensors: Groups, progress: Mapping[str, Any], *, protect: Collection[int] = ()) -> None:
        """Begin to write a checkpoint, once the one before is written; progress may change afterwards."""
        self.wait()
        text = _to_text(progress)
        parts = [to_local(whole) for named in tensors.values() for whole in named.values()]
        device = _device(parts)
        copies = _quick_copies(parts, device)
        if device.type == "cuda":
            self._stream = self._stream or torch.cuda.Stream(device)
            self._stream.wait_stream(torch.cuda.current_stream(device))  # what it was told to compute until now
        self._quick = copies is not None
        self._copying = self._pool.submit(self._copy, update, tensors, parts if copies is None else copies)
        self._job = self._pool.submit(self._write, update, self._copying, text, frozenset(protect))

    def wait_for_copy(self) -> None:
        """Wait until the tensors of the last save may change."""
        if self._copying is not None and not self._quick:
            self._wait_for_copy()

    def free_device_memory(self) -> bool:
        """Wait until the last save holds no memory of the device; whether it may have held any since this was asked."""
        if self._copying is None or not self._quick:
            return False
        self._wait_for_copy()
        return True

    def wait(self) -> Path | None:
        """Wait for what is being written; gives its path, or None when nothing was."""
        if self._job is None:
            return None
        try:
            return self._job.result()
        finally:
            if self._job.done():  # else an interrupt came: its copies are still being read
                self._job = None

    def close(self) -> None:
        """Wait for what is being written and end."""
        try:
            self.wait()
        finally:
            self._pool.shutdown()
            self._copying = None
            self._places.clear()

    def __enter__(self) -> CheckpointWriter:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.close()
        except RunError as failure:
            if error is None:
                raise
            error.add_note(f"and {failure}")  # what ended the run is the news

    def _wait_for_copy(self) -> None:
        assert self._copying is not None
        try:
            self._copying.result()
        finally:
            if self._copying.done():
                self._copying = None

    def _copy(self, update: int, tensors: Groups, parts: list[Tensor]) -> Groups:
        """This process's parts of the tensors, as parts of the whole, in memory of their own."""
        stream = self._stream
        try:
            if stream is not None:
                torch.cuda.set_device(stream.device)  # of this thread, or it would stand on the first GPU
            if [place.shape for place in self._places] != [part.shape for part in parts]:
                self._places = [_place_for(part, pinned=stream is not None) for part in parts]
            with torch.no_grad(), nullcontext() if stream is None else torch.cuda.stream(stream):
                torch._foreach_copy_(self._places, parts, non_blocking=stream is not None)
            if stream is not None:
                stream.synchronize()
        except (RuntimeError, MemoryError) as error:
            raise RunError(f"the checkpoint of update {update} could not be copied: {error}") from error
        finally:
            parts.clear()  # the pool lets go of what it was given a moment after its word that all is done
        names = ((group, name) for group, named in tensors.items() for name in named)
        places = dict(zip(names, self._places, strict=True))
        if self._writers is None:
            return {group: {name: places[group, name] for name in named} for group, named in tensors.items()}
        from regard.training import shards

        return shards.copied(tensors, places, self._writers)

    def _write(self, update: int, copying: Future[Groups], progress: str, protect: Collection[int]) -> Path:
        try:
            path = _write_checkpoint(self._root, update, copying.result(), progress, self._writers)
            if self._writers is None or not dist.get_rank(self._writers):
                prune(self._root, keep=self._keep, protect=protect)
        except RegardError as error:
            raise RunError(str(error)) from error
        return path
