"""Atomic files and folders, bounded JSON, checksums, and a lock that allows one run at a time in a folder."""

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
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from regard.errors import FolderError, RunError

if sys.platform != "win32":
    import fcntl

CHECKSUMS = "checksums.json"
LOCK = ".lock"
MAX_JSON_BYTES = 2**28  # more than a tokenizer of a million tokens has
MAX_JSON_DIGITS = 40  # of an integer: transformers writes one of 31 digits where there is no maximum length
DAY = 24 * 3600.0

_TEMPORARY = re.compile(r"\.regard-[0-9a-f]{16}")  # the name of what is being written or deleted


def cache(name: str) -> Path:
    """The folder for cached files of one kind, below REGARD_CACHE or ~/.cache/regard."""
    return Path(os.environ.get("REGARD_CACHE") or Path.home() / ".cache" / "regard") / name


# Atomic writes


@contextlib.contextmanager
def atomic_folder(path: Path, *, force: bool) -> Iterator[Path]:
    """A temporary folder to write into; it is renamed to `path` if the block succeeds and deleted if it fails."""
    if not force:
        check_free(path)
    with clear_os_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with _temporary_folder(path.parent) as new:
            yield new
            _fsync_folder(new)
            replace(path, new)


@contextlib.contextmanager
def atomic_files(folder: Path, names: Sequence[str], *, force: bool) -> Iterator[Path]:
    """A temporary folder to write files into; if the block succeeds, they move to `folder` in the order of `names`."""
    if not folder.exists():
        with atomic_folder(folder, force=force) as new:
            yield new
        return
    for name in names if not force else ():
        check_free(folder / name)
    with clear_os_errors(folder), _temporary_folder(folder) as new:
        yield new
        _fsync_folder(new)
        for name in names:
            os.replace(new / name, folder / name)
        fsync(folder)


@contextlib.contextmanager
def atomic_file(path: Path, *, force: bool) -> Iterator[BinaryIO]:
    """A temporary file to write bytes to; it is renamed to `path` if the block succeeds and deleted if it fails."""
    path = Path(os.path.realpath(path))  # replace the file that a symbolic link points to, not the link
    with clear_os_errors(path):
        mode = path.stat().st_mode if path.exists() else stat.S_IFREG
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            with open(path, "wb") as file:  # a pipe or a device is written to, never replaced
                yield file
            return
        if not force:
            check_free(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        new = _temporary_name(path.parent)
        try:
            with open(new, "xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
                os.replace(new, path)
            fsync(path.parent)
        finally:
            _erase(new)


def write_file(path: Path, data: bytes | str, *, force: bool) -> None:
    """Write a file atomically."""
    with atomic_file(path, force=force) as file:
        file.write(data.encode() if isinstance(data, str) else data)


def replace(path: Path, new: Path) -> None:
    """Rename `new` to `path`; a folder cannot be renamed over a full one, so the old one is renamed first."""
    old = _rename_old(path) if os.path.lexists(path) else None
    try:
        os.rename(new, path)
    except OSError:
        if old is not None:
            os.rename(old, path)
        raise
    fsync(path.parent)
    if old is not None:
        _erase(old)


def delete(path: Path) -> None:
    """Delete a file or folder atomically: it is renamed first, so that it is never left half deleted."""
    with clear_os_errors(path, "deleted"):
        _erase(_rename_old(path))


def delete_leftovers(folder: Path, *, min_age: float = DAY) -> None:
    """Delete the temporary files and folders of killed runs; younger ones may belong to a running process."""
    with contextlib.suppress(OSError):  # leftovers do no harm
        for path in folder.iterdir():
            if _TEMPORARY.fullmatch(path.name) and time.time() - path.lstat().st_mtime >= min_age:
                _erase(path)


def check_free(path: Path) -> None:
    """Raise a FolderError if a file or folder of this name exists."""
    if os.path.lexists(path):
        raise FolderError(
            f"{path} already exists: choose another name, or replace it with --force (in Python force=True)"
        )


def check_replaceable(path: Path, new: Path) -> None:
    """Raise a FolderError if replacing the folder `path` by `new` would delete files that `new` does not have."""
    others = sorted(set(os.listdir(path)) - set(os.listdir(new))) if path.is_dir() else []
    if others:
        raise FolderError(f"{path} also holds {others[0]}, which would be deleted: choose another folder")


def check_apart(out: Path, source: Path) -> None:
    """Raise a FolderError if replacing the folder `out` would delete the folder that is read."""
    if source.resolve().is_relative_to(out.resolve()):
        raise FolderError(f"{out} holds the model that is read: choose another folder to write")


@contextlib.contextmanager
def _temporary_folder(parent: Path) -> Iterator[Path]:
    delete_leftovers(parent)
    new = _temporary_name(parent)
    new.mkdir()
    try:
        yield new
    finally:
        _erase(new)


def _temporary_name(parent: Path) -> Path:
    return parent / f".regard-{secrets.token_hex(8)}"


def _rename_old(path: Path) -> Path:
    old = _temporary_name(path.parent)
    os.rename(path, old)
    fsync(path.parent)
    return old


def _erase(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


# fsync: a rename survives a power cut only if the files were synced before it and the folder after it.


def _fsync_folder(folder: Path) -> None:
    for place, _, names in os.walk(folder, topdown=False):
        for name in names:
            fsync(Path(place, name))
        fsync(Path(place))


def fsync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the disk."""
    if sys.platform == "win32":  # cannot open folders
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot fsync a folder
            raise
    finally:
        os.close(descriptor)


# JSON. A folder may be untrusted, so size and integers are limited.


def read_json(path: Path, *, optional: bool = False) -> Any:
    """Read a JSON file; None if it is optional and missing."""
    if optional and not path.is_file():
        return None
    data = read_bounded(path)
    try:
        return parse_json(data)
    except ValueError as error:
        raise FolderError(f"{path} is damaged: {error}") from error


def read_bounded(path: Path) -> bytes:
    """Read a file of at most MAX_JSON_BYTES."""
    with clear_os_errors(path, "read"):
        size = path.stat().st_size
        if size > MAX_JSON_BYTES:
            raise FolderError(f"{path} has {size:,} bytes, and at most {MAX_JSON_BYTES:,} are read")
        return path.read_bytes()


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; deep nesting and long integers raise a ValueError too."""
    try:
        return json.loads(text, parse_int=_parse_int)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _parse_int(digits: str) -> int:
    if len(digits) > MAX_JSON_DIGITS:
        raise ValueError(f"it has a whole number of {len(digits):,} digits, and at most {MAX_JSON_DIGITS} are read")
    return int(digits)


# Checksums


def write_checksums(folder: Path, *, exclude: Collection[str] = ()) -> None:
    """Write the SHA-256 of every file of a folder to checksums.json, except the excluded ones."""
    names = sorted(path.name for path in folder.iterdir() if path.name not in {*exclude, CHECKSUMS})
    checksums = {name: checksum(folder / name) for name in names}
    (folder / CHECKSUMS).write_text(json.dumps(checksums, indent=2) + "\n", encoding="utf-8")


def checksum(path: Path) -> str:
    """The SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_checksums(folder: Path) -> dict[str, str]:
    """The checksums of a folder by file name; empty where it has no checksums.json."""
    path = folder / CHECKSUMS
    checksums: dict[str, str] = read_json(path, optional=True) or {}
    if not isinstance(checksums, dict) or not all(
        Path(name).name == name and isinstance(value, str) for name, value in checksums.items()
    ):
        raise FolderError(f"{path} is damaged: it is not a table of checksums")
    return checksums


def verify(folder: Path, only: Collection[str] | None = None) -> list[str]:
    """Check the files of a folder against checksums.json and return their names."""
    checksums = read_checksums(folder)
    for name, expected in checksums.items():
        if only is None or name in only:
            path = folder / name
            if not path.is_file():
                raise FolderError(f"{path} is missing, and {CHECKSUMS} lists it")
            with clear_os_errors(path, "read"):
                actual = checksum(path)
            if actual != expected:
                advice = f"if you changed it on purpose, remove its line from {CHECKSUMS}"
                raise FolderError(f"{path} is damaged: its SHA-256 is not the one in {CHECKSUMS} ({advice})")
    return list(checksums)


# Locks. filelock is not used: forked workers inherit its lock and keep it after their run was killed.


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[str]:
    """Allow one run at a time in a folder; create the folder and delete what killed runs left there.

    The operating system releases the lock when the process ends, even by kill -9; forked workers do not hold it.
    At the end the lock file is deleted, and the folder if it was created here and is empty.
    Yields a warning for the user on Windows and on file systems without locks, else an empty string.
    """
    created, path = not folder.exists(), folder / LOCK
    with clear_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = open(path, "a")  # noqa: SIM115
    with lock:
        locked = _try_lock(lock.fileno())
        if locked is False or os.fstat(lock.fileno()).st_nlink == 0:  # deleted by a run that has just ended
            raise FolderError(f"another run is writing to {folder}: wait until it ends, or choose another folder")
        try:
            for place in (folder, *(below for below in folder.glob("*/") if not (below / LOCK).exists())):
                delete_leftovers(place, min_age=0.0)
            yield "" if locked else f"there are no locks on this file system: let no other run write to {folder}"
        finally:
            with contextlib.suppress(OSError):  # the file does no harm, and the folder may not be empty
                path.unlink()
                if created:
                    folder.rmdir()


def _try_lock(descriptor: int) -> bool | None:
    """Lock an open file: True on success, False if another process has the lock, None where there are no locks."""
    if sys.platform == "win32":
        return None
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # unlike flock, not inherited by a fork
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        return None
    return True


# Errors

_FIXABLE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.EISDIR}  # by the user


@contextlib.contextmanager
def clear_os_errors(path: Path, done: str = "written") -> Iterator[None]:
    """Turn an OSError about `path` into one line: a FolderError if the user can fix it, else a RunError."""
    try:
        yield
    except OSError as error:
        code, reason = error.errno, error.strerror or error
        if code in (errno.ENOSPC, errno.EDQUOT):
            raise RunError(f"{path} could not be {done}: the disk is full; existing files are unchanged") from error
        if code in (errno.ENOTDIR, errno.EEXIST):
            files = (part for part in (path, *path.parents) if os.path.lexists(part) and not part.is_dir())
            raise FolderError(f"{path} cannot be {done}: {next(files, path)} is not a folder") from error
        if code in _FIXABLE:
            raise FolderError(f"{path} cannot be {done}: {reason}") from error
        raise RunError(f"{path} could not be {done}: {reason}") from error
