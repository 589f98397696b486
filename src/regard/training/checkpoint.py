"""Checkpoints and the progress of a training run: write in the background, load, verify, prune.

checkpoints/update-00000100/   model.safetensors  optimizer.safetensors  progress.json  checksums.json

They are the same for one process, several or a sharded run, so any number of processes can resume from them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from regard import folders
from regard.errors import FolderError, RegardError, RunError
from regard.folders import CHECKSUMS, clear_os_errors
from regard.models.folder import MODEL, write_tensors

PROGRESS = "progress.json"
CHECKPOINTS = "checkpoints"
NAME = re.compile(r"update-(\d{8,})")
SUFFIX = ".safetensors"

Groups = Mapping[str, Mapping[str, Tensor]]
"""Tensors by name, in groups: model, optimizer, average."""


@dataclass
class Progress:
    """The state of a run besides its tensors."""

    update: int = 0
    position: float = 0  # the update or, with train.minutes, the share of the time used, times train.updates
    next_validation: float = 0  # the position at which the next validation is due
    next_save: float = 0  # the position at which the next checkpoint is due
    epoch: int = 0
    batch: int = 0  # global batches of the epoch that were trained on
    tokens: int = 0  # target tokens trained on
    skipped: int = 0  # updates skipped because the loss or gradient was NaN or inf
    nan_in_a_row: int = 0
    lr_scale: float = 1.0  # factor of the learning rate; below 1 after a rollback
    split: int = 1  # number of parts that a batch is split into because GPU memory is short
    best_score: float | None = None
    best_loss: float | None = None  # ties go to the lower validation loss
    best_update: int = 0
    best_sentences: int = 0  # validation sentences that were translated for the best score
    validations_since_best: int = 0
    seconds: float = 0.0  # of updates
    prepared: float = 0.0  # seconds before the first update, with train.minutes
    elapsed: float = 0.0  # seconds of the whole run so far, with train.minutes
    finished_at: float = 0  # the train.minutes or train.updates at which the run ended; a larger number continues it


def checkpoint_path(root: Path, update: int) -> Path:
    """The folder of an update's checkpoint."""
    return root / CHECKPOINTS / f"update-{update:08d}"


def update_number(path: Path) -> int:
    """The update of a checkpoint's folder."""
    return int(path.name.removeprefix("update-"))


# Writing and reading


def save_checkpoint(root: Path, update: int, tensors: Groups, progress: Mapping[str, Any]) -> Path:
    """Write `checkpoints/update-...`, replacing a checkpoint of the same update."""
    path = checkpoint_path(root, update)
    with clear_os_errors(path):
        path.parent.mkdir(exist_ok=True)  # fails if the folder of the run was deleted
    with folders.atomic_folder(path, force=True) as new:
        for group, named in tensors.items():
            write_tensors(new / (group + SUFFIX), named)
        (new / PROGRESS).write_text(json.dumps(progress, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        folders.write_checksums(new)
    return path


def load_tensors(
    path: Path, place: Callable[[str, Tensor], Tensor] = lambda name, tensor: tensor
) -> dict[str, dict[str, Tensor]]:
    """The tensors of a verified checkpoint; `place` takes each name and tensor and returns it, or a shard of it."""
    tensors: dict[str, dict[str, Tensor]] = {}
    for name in [name for name in folders.read_checksums(path) if name.endswith(SUFFIX)]:
        with clear_os_errors(path / name, "read"), safe_open(path / name, framework="pt") as file:
            keys = file.keys()
            tensors[name.removesuffix(SUFFIX)] = {key: place(key, file.get_tensor(key)) for key in keys}
    return tensors


def read_progress(path: Path) -> Progress:
    """The progress of a checkpoint."""
    try:
        return Progress(**folders.read_json(path / PROGRESS))
    except TypeError as error:
        raise FolderError(f"{path} was written by another version of Regard: {error}") from error


def verify_checkpoint(path: Path) -> None:
    """Compare a checkpoint's files with its checksums; a FolderError names a damaged file."""
    if missing := {MODEL, PROGRESS}.difference(folders.verify(path)):
        raise FolderError(f"{path} is damaged: {CHECKSUMS} does not list {' and '.join(sorted(missing))}")


# The checkpoints of a run


def checkpoints(root: Path) -> list[Path]:
    """The checkpoints in a model's folder, oldest first."""
    folder = root / CHECKPOINTS
    with clear_os_errors(folder, "read"):  # a folder that cannot be listed is not one without checkpoints
        paths = [path for path in folder.iterdir() if NAME.fullmatch(path.name)] if folder.is_dir() else []
    return sorted(paths, key=update_number)


def latest_checkpoint(root: Path, *, where: Callable[[int], bool] = lambda _: True) -> tuple[Path | None, list[str]]:
    """The newest intact checkpoint, and a message about each newer one that is damaged; `where` selects updates.

    Damaged ones are renamed to damaged-update-..., so that `prune` does not count them.
    """
    messages: list[str] = []
    for path in reversed([path for path in checkpoints(root) if where(update_number(path))]):
        try:
            verify_checkpoint(path)
            return path, messages
        except RegardError as error:
            messages.append(f"{path.name} was skipped: {error}")
            with clear_os_errors(path):
                folders.replace(path.with_name(f"damaged-{path.name}"), path)
    return None, messages


def prune(root: Path, *, keep: int, protect: Collection[int] = ()) -> None:
    """Delete all but the `keep` newest checkpoints and those of the updates in `protect`."""
    for path in checkpoints(root)[:-keep]:
        if update_number(path) not in protect:
            folders.delete(path)


# Writing in the background


class CheckpointWriter:
    """Copies and writes checkpoints in a background thread while training continues.

    The tensors of `save` must not change before `wait_for_copy` returns. An error of the background thread (a full
    disk) is raised by the next call. Each save is followed by `prune` with `keep` and `protect`.
    """

    def __init__(self, root: Path, *, keep: int) -> None:
        self._root, self._keep = root, keep
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._copied: Future[list[Tensor]] | None = None
        self._written: Future[Path] | None = None
        self._buffers: list[Tensor] = []  # reused: pinned memory is slow to allocate
        self._stream: torch.cuda.Stream | None = None  # copies from the GPU without delaying its work

    def save(self, update: int, tensors: Groups, progress: Mapping[str, Any], *, protect: Collection[int] = ()) -> None:
        """Wait for the previous checkpoint, then start writing this one."""
        self.wait()
        originals = [tensor for named in tensors.values() for tensor in named.values()]
        # the optimizer keeps some scalars on the CPU
        device = next((tensor.device for tensor in originals if tensor.device.type != "cpu"), torch.device("cpu"))
        if device.type == "cuda":
            self._stream = self._stream or torch.cuda.Stream(device)
            self._stream.wait_stream(torch.cuda.current_stream(device))
        elif device.type != "cpu":  # only one thread may use such a device
            originals = [tensor.to("cpu", copy=True) for tensor in originals]
        names = {group: list(named) for group, named in tensors.items()}
        progress = dict(progress)

        def write(copied: Future[list[Tensor]]) -> Path:
            buffers = iter(copied.result())
            copy = {group: {name: next(buffers) for name in named} for group, named in names.items()}
            path = save_checkpoint(self._root, update, copy, progress)
            prune(self._root, keep=self._keep, protect=protect)
            return path

        self._copied = self._thread.submit(self._copy, update, originals)
        self._written = self._thread.submit(write, self._copied)

    def wait_for_copy(self) -> None:
        """Wait until the tensors of the last save may change."""
        if self._copied is not None:
            self._copied.result()

    def wait(self) -> Path | None:
        """Wait for the checkpoint that is being written and return its path; None if there is none."""
        return None if self._written is None else self._written.result()

    def __enter__(self) -> CheckpointWriter:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            with suppress(RegardError) if error is not None else nullcontext():  # the first error ended the run
                self.wait()
        finally:
            self._thread.shutdown()
            self._buffers.clear()

    def _copy(self, update: int, tensors: list[Tensor]) -> list[Tensor]:
        """Copy tensors to CPU buffers."""
        stream = self._stream
        on_gpu = stream is not None  # it copies to pinned memory asynchronously
        try:
            if stream is not None:
                torch.cuda.set_device(stream.device)  # the device of this thread, otherwise the first GPU
            if [buffer.shape for buffer in self._buffers] != [tensor.shape for tensor in tensors]:
                self._buffers = [torch.empty(x.shape, dtype=x.dtype, pin_memory=on_gpu) for x in tensors]
            with torch.no_grad(), torch.cuda.stream(stream) if on_gpu else nullcontext():
                torch._foreach_copy_(self._buffers, tensors, non_blocking=on_gpu)
            if stream is not None:
                stream.synchronize()
        except (RuntimeError, MemoryError) as error:
            raise RunError(f"the checkpoint of update {update} could not be copied: {error}") from error
        return self._buffers
