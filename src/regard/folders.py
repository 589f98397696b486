"""Files and folders that appear whole or not at all, what they must contain, and one run at a time in each."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO, Literal

from regard.errors import FolderError, RegardError, RunError

if sys.platform != "win32":
    import fcntl

CHECKSUMS = "checksums.json"
LOCK = ".lock"
SHARDS = "shards.json"  # which parts of which tensors lie in which file

_OURS = re.compile(r"\.regard-(new|old)-[0-9a-f]{16}")  # what is being written, and what is being deleted


def cache(name: str) -> Path:
    """Where things of a kind are kept that can be made or fetched again: REGARD_CACHE, or a folder of the user's."""
    return Path(os.environ.get("REGARD_CACHE") or Path.home() / ".cache" / "regard") / name


# Appearing.


@contextlib.contextmanager
def whole_folder(path: Path, *, force: bool) -> Iterator[Path]:
    """A hidden folder to write into; it becomes `path` when the block ends well, and is gone when it does not."""
    if not force and os.path.lexists(path):
        raise FolderError(f"{path} is already there: choose another name, or replace it with --force")
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    sweep(path.parent)
    with hidden_folder(path.parent, about=path) as new, explained(path):
        yield new
        settle(new)
        replace(path, new)


@contextlib.contextmanager
def hidden_folder(parent: Path, *, about: Path) -> Iterator[Path]:
    """A new hidden folder in `parent` that lives as long as the block; messages speak of `about`."""
    with explained(about):
        while True:
            new = _hidden(parent, "new")
            new.mkdir()
            try:
                held = _open(new)
            except FileNotFoundError:  # swept away before it was locked
                continue
            _take(held)
            if new.is_dir():
                break
            _close(held)
    try:
        yield new
    finally:
        _erase(new)
        _close(held)


def read_if_there(path: Path) -> bytes | None:
    """What a file holds, or None where there is none."""
    if not path.is_file():
        return None
    with explained(path, "read"):
        return path.read_bytes()


@contextlib.contextmanager
def whole_file(path: Path, *, force: bool) -> Iterator[BinaryIO]:
    """A file to write bytes into; it becomes `path` when the block ends well, and is gone when it does not."""
    path = Path(os.path.realpath(path))  # what a link points to is replaced, not the link
    with explained(path):
        there = os.stat(path) if os.path.lexists(path) else None
        if there is not None and not stat.S_ISREG(there.st_mode) and not stat.S_ISDIR(there.st_mode):
            with open(path, "wb") as file:  # a pipe or a device is written to, never replaced
                yield file
            return
        if there is not None and stat.S_ISDIR(there.st_mode):
            raise FolderError(f"{path} is a folder, and a file is wanted")
        if there is not None and not force:
            raise FolderError(f"{path} is already there: choose another name, or replace it with --force")
        path.parent.mkdir(parents=True, exist_ok=True)
        new = _hidden(path.parent, "new")
        try:
            with open(new, "xb") as file:
                _take(file.fileno())
                yield file
                file.flush()
                os.fsync(file.fileno())
                os.replace(new, path)
            sync(path.parent)
        finally:
            _erase(new)


def write_file(path: Path, data: bytes | str, *, force: bool) -> None:
    """A whole file, or none."""
    with whole_file(path, force=force) as file:
        file.write(data.encode() if isinstance(data, str) else data)


def replace(path: Path, new: Path) -> None:
    """Give `new` the name `path`; a folder cannot be renamed onto a full one, so the old one is hidden first."""
    old = hide(path) if os.path.lexists(path) else None
    try:
        os.rename(new, path)
    except OSError:
        if old is not None:
            os.rename(old, path)
        raise
    sync(path.parent)
    if old is not None:
        _erase(old)


# Disappearing.


def hide(path: Path) -> Path:
    """Give a file or folder a hidden name: killed in the middle of a deletion, nothing is left that looks whole."""
    old = _hidden(path.parent, "old")
    os.rename(path, old)
    sync(path.parent)
    return old


def discard(path: Path) -> None:
    """Delete a file or folder: it is there whole until it is not there at all."""
    with explained(path, "deleted"):
        _erase(hide(path))


def sweep(folder: Path) -> None:
    """Delete the hidden leftovers of killed runs; what a living run writes at this moment is left alone."""
    with contextlib.suppress(OSError):  # what cannot be swept is in nobody's way
        for path in folder.iterdir():
            if kind := _OURS.fullmatch(path.name):
                held = _open(path)
                try:
                    if _take(held) or kind[1] == "old":
                        _erase(path)
                finally:
                    _close(held)


def _hidden(parent: Path, kind: Literal["new", "old"]) -> Path:
    return parent / f".regard-{kind}-{secrets.token_hex(8)}"


def _erase(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


# Staying: a rename is only as lasting as the fsync of the files before it and of the folder after it.


def settle(folder: Path) -> None:
    """Bring every file below a folder, and the folder itself, to the disk."""
    for place, _, names in os.walk(folder, topdown=False):
        for name in names:
            sync(Path(place, name))
        sync(Path(place))


def sync(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk."""
    if sys.platform == "win32" and path.is_dir():  # Windows opens no folders, and keeps their names itself
        return
    held = os.open(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
    try:
        os.fsync(held)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems know no fsync of folders
            raise
    finally:
        os.close(held)


# Checksums.


def seal(folder: Path, *, but: Collection[str] = ()) -> None:
    """Write down the SHA-256 of every file of a folder, but for those that people may edit."""
    names = sorted(path.name for path in folder.iterdir() if path.name not in {*but, CHECKSUMS})
    listed = {name: checksum(folder / name) for name in names}
    (folder / CHECKSUMS).write_text(json.dumps(listed, indent=2) + "\n", encoding="utf-8")


def checksum(path: Path) -> str:
    """The SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sums(folder: Path) -> dict[str, str]:
    """What `seal` wrote down; nothing where a folder has no such file."""
    path = folder / CHECKSUMS
    if not path.is_file():
        return {}
    with explained(path, "read"):
        text = path.read_bytes()
    try:
        listed = json.loads(text)
    except ValueError as error:
        raise FolderError(f"{path} is damaged: {error}") from error
    if not isinstance(listed, dict) or not all(
        Path(name).name == name and isinstance(value, str) for name, value in listed.items()
    ):
        raise FolderError(f"{path} is damaged: it is not a table of checksums")
    return listed


def verify(folder: Path, only: Collection[str] | None = None) -> list[str]:
    """The names of the sealed files, all as they were written; a FolderError names the first that is not."""
    listed = sums(folder)
    for name, expected in listed.items():
        if only is None or name in only:
            path = folder / name
            if not path.is_file():
                raise FolderError(f"{path} is missing, and {CHECKSUMS} lists it")
            with explained(path, "read"):
                found = checksum(path)
            if found != expected:
                raise FolderError(
                    f"{path} is damaged: its SHA-256 begins {found[:8]}, and {CHECKSUMS} has {expected[:8]}"
                    f" (if you changed it on purpose, take its line out of {CHECKSUMS})"
                )
    return list(listed)


# One run at a time.

_held: set[int] = set()


def _let_go() -> None:
    for held in _held:
        os.close(held)
    _held.clear()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_let_go)  # or a worker that outlives its run would keep the run's lock


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[str]:
    """One run at a time in a folder, which is made if need be and cleared of what killed runs left.

    The lock dies with the process, however it dies. On Windows, and on file systems without locks, there is none: then
    a sentence to show the user is given, else an empty one.
    """
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
        held = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    _held.add(held)
    try:
        taken = _take(held)
        if taken is False:
            raise FolderError(f"another run is writing to {folder}: let it end, or choose another folder")
        for place in (folder, *(path for path in folder.iterdir() if path.is_dir())):
            sweep(place)
        yield "" if taken else f"there are no locks on this file system: let no other run write to {folder}"
    finally:
        if held in _held:
            _held.discard(held)
            os.close(held)


def _take(held: int) -> bool | None:
    """Lock an open file: True when it is ours now, False when another has it, None where there are no locks."""
    if sys.platform == "win32":
        return None
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _open(path: Path) -> int:
    return -1 if sys.platform == "win32" else os.open(path, os.O_RDONLY)  # Windows opens no folders


def _close(held: int) -> None:
    if held >= 0:
        os.close(held)


# What went wrong, in one line.

_FULL = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN = (errno.EACCES, errno.EPERM)
_FILE = (errno.ENOTDIR, errno.EEXIST)


@contextlib.contextmanager
def explained(path: Path, done: str = "written") -> Iterator[None]:
    """Say what the system refused to do with `path` in one line instead of an OSError."""
    try:
        yield
    except OSError as error:
        raise explanation(error, path, done) from error


def explanation(error: OSError, path: Path, done: str) -> RegardError:
    """A FolderError where the request was wrong, a RunError where the machine failed."""
    code = error.errno
    if code in _FULL:
        return RunError(f"{path} could not be {done}: the disk is full; what was there before is as it was")
    if code in _FORBIDDEN:
        return FolderError(f"{path} cannot be {done}: you have no permission to do that there")
    if code == errno.EROFS:
        return FolderError(f"{path} cannot be {done}: the file system is read-only")
    if code in _FILE:
        return FolderError(f"{path} cannot be {done}: {_blocking(path)} is a file, and a folder is wanted")
    if code == errno.EISDIR:
        return FolderError(f"{path} is a folder, and a file is wanted")
    if code == errno.ENOENT:
        return FolderError(f"{path} cannot be {done}: there is no such file or folder")
    return RunError(f"{path} could not be {done}: {error.strerror or error}")


def _blocking(path: Path) -> Path:
    """The part of a path that is a file where a folder should be."""
    return next((part for part in (path, *path.parents) if part.exists() and not part.is_dir()), path)
