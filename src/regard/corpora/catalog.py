"""Named corpora on request: found in a local folder or the cache, else downloaded, checked, and written whole."""

from __future__ import annotations

import hashlib
import http.client
import lzma
import os
import secrets
import tarfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from regard.corpora.entries import ENTRIES, Entry, File, Form, Part, Piece
from regard.errors import DataError, did_you_mean
from regard.folders import atomic_folder, cache, clear_os_errors, fsync, fsync_folder, temporary_folder, write_file
from regard.text.files import MAX_LINE_BYTES, decompress, open_text

__all__ = ["BUILTIN_SIZES", "Entry", "entries", "find", "get", "locate", "table", "where", "write_builtin"]

BUILTIN_SIZES = {"train": 50_000, "valid": 1_000, "test": 1_000}
"""Pairs of the built-in corpus where nobody says otherwise."""

Progress = Callable[[str, int, int | None], None]
"""Told of a download as it goes: the file's name, bytes so far, bytes in all where that is known."""

NOTED = ".sha256"
"""Behind the name of a file without a published checksum: the one it had when it was downloaded."""

_CHUNK = 2**20
_TIMEOUT = 30  # seconds without a byte


def entries() -> list[Entry]:
    """Every corpus there is a name for."""
    return list(ENTRIES)


def find(name: str) -> Entry:
    """A corpus by its name."""
    for entry in ENTRIES:
        if entry.name == name:
            return entry
    raise DataError(f"There is no corpus {name}.{did_you_mean(name, [entry.name for entry in ENTRIES])}")


def locate(name: str) -> Path | None:
    """The folder in which the files of a corpus lie on this machine, if all of them do."""
    form = _complete(find(name))
    return _at(form, form.files[0]).parent if form else None


def where(name: str) -> str:
    """Where a corpus would come from: `built in`, `local`, `cached`, `download`, or `by hand`."""
    entry = find(name)
    if not entry.forms:
        return "built in"
    folder = locate(name)
    if folder is not None:
        return "cached" if folder.parent == _cache() else "local"
    return "download" if any(_downloadable(form) for form in entry.forms) else "by hand"


def table() -> list[dict[str, str]]:
    """What there is to know of every corpus, in words."""
    rows = []
    for entry in ENTRIES:
        form = _complete(entry) or next((form for form in entry.forms if _downloadable(form)), None)
        rows.append(
            {
                "name": entry.name,
                "languages": " ".join(entry.languages),
                "size": entry.size,
                "licence": entry.licence,
                "where": where(entry.name),
                "checksum": "none needed"
                if not entry.forms
                else "sha256"
                if not form or form.verified
                else "not verified",
                "description": entry.description,
                "source": entry.source,
            }
        )
    return rows


def get(
    name: str,
    out: str | Path,
    *,
    force: bool = False,
    progress: Progress | None = None,
) -> list[Path]:
    """Write a public corpus as plain text files into a folder: all or none, and none over others without `force`."""
    entry = find(name)
    form = _choose(entry)
    names = [piece.name for piece in form.pieces]
    _refuse_overwriting(Path(out), names, force=force)
    for file in form.files:
        if _stored(form, file) is None:
            _download(entry, form, file, progress)
        _check(_at(form, file), file.checksum)
    with _appearing(Path(out), names) as folder:
        counts: dict[str, tuple[str, int]] = {}
        for piece in form.pieces:
            count = _write(folder / piece.name, piece, form)
            other, lines = counts.setdefault(piece.name.rpartition(".")[0], (piece.name, count))
            if lines != count:
                raise DataError(f"{name} is damaged: {other} has {lines:,} lines and {piece.name} {count:,}")
    return [Path(out) / name for name in names]


# Where things lie


def _local() -> Path | None:
    """The user's folder of corpora."""
    folder = os.environ.get("REGARD_DATA")
    if not folder:
        return None
    if not Path(folder).is_dir():
        raise DataError(f"REGARD_DATA ({folder}) is not a folder; it holds one folder a corpus")
    return Path(folder)


def _cache() -> Path:
    return cache("corpora")


def _stored(form: Form, file: File) -> Path | None:
    for place in (_local(), _cache()):
        if place is not None and (place / form.folder / file.name).is_file():
            return place / form.folder / file.name
    return None


def _at(form: Form, file: File) -> Path:
    path = _stored(form, file)
    assert path is not None
    return path


def _complete(entry: Entry) -> Form | None:
    """The first form whose files are all on this machine."""
    return next((form for form in entry.forms if all(_stored(form, file) for file in form.files)), None)


def _downloadable(form: Form) -> bool:
    return all(file.url or _stored(form, file) for file in form.files)


def _choose(entry: Entry) -> Form:
    """The form that is here as a whole, else the first that can be completed."""
    form = _complete(entry) or next((form for form in entry.forms if _downloadable(form)), None)
    if form is None:
        raise DataError(f"{entry.name} is not here and has no address to download it from. {_by_hand(entry.forms[0])}")
    return form


def _by_hand(form: Form) -> str:
    missing = ", ".join(file.name for file in form.files if _stored(form, file) is None)
    return f"Put {missing} into {(_local() or _cache()) / form.folder} (REGARD_DATA may name a folder of corpora)"


# Downloads


def _download(entry: Entry, form: Form, file: File, progress: Progress | None) -> None:
    """A file from its address into the cache, where it appears only when it is whole and has its checksum."""
    assert file.url is not None
    folder = _cache() / form.folder
    partial = folder / f".{file.name}.{secrets.token_hex(4)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Some hosts turn away clients that do not say who they are.
        request = urllib.request.Request(file.url, headers={"User-Agent": "regard"})
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer, partial.open("xb") as copy:
            _receive(answer, copy, lambda done, total: progress(file.name, done, total) if progress else None)
        _check(partial, file.checksum, file.url)
        if file.checksum is None:  # nobody has published one: what came first is what it has to stay
            write_file(folder / f"{file.name}{NOTED}", _digest(partial) + "\n", force=True)
        partial.replace(folder / file.name)
        fsync(folder)
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise DataError(
            f"{entry.name} is not here, and {file.url} cannot be downloaded ({reason}). {_by_hand(form)}"
        ) from error
    finally:
        partial.unlink(missing_ok=True)


def _receive(answer: http.client.HTTPResponse, copy: BinaryIO, tell: Callable[[int, int | None], None]) -> None:
    length = answer.headers.get("Content-Length")
    total = int(length) if length and length.isdigit() else None
    done = 0
    while chunk := answer.read(_CHUNK):
        copy.write(chunk)
        done += len(chunk)
        tell(done, total)
    if total is not None and done != total:
        raise OSError(f"the connection ended after {done:,} of {total:,} bytes")
    copy.flush()
    os.fsync(copy.fileno())


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error


def _check(path: Path, checksum: str | None, name: str | None = None) -> None:
    noted = path.with_name(path.name + NOTED)
    if checksum is None and noted.is_file():
        checksum = noted.read_text(encoding="utf-8", errors="replace").strip()
    if checksum is None:
        return
    found = _digest(path)
    if found != checksum:
        raise DataError(f"{name or path} is not the file it should be: SHA-256 {checksum} expected, {found} found")


# Writing


def _write(path: Path, piece: Piece, form: Form) -> int:
    """Write a piece and count its lines."""
    count, last = 0, b"\n"
    with path.open("xb") as file:
        for part in piece.parts:
            stored = next(_at(form, kept) for kept in form.files if kept.name == part.file)
            for data in _read(stored, part):
                file.write(data)
                count += data.count(b"\n")
                last = data[-1:]
        file.flush()
        os.fsync(file.fileno())
    return count + (last != b"\n")


def _read(path: Path, part: Part) -> Iterator[bytes]:
    """The bytes of a part. Members are only ever read, never unpacked, so their names reach no folder."""
    if not part.member:
        with open_text(path) as stream:
            yield from _kept(stream, part, path)
        return
    opened = _zip_member if zipfile.is_zipfile(path) else _tar_member
    try:
        with opened(path, part.member) as member, decompress(member, f"{path}, {part.member}") as stream:
            yield from _kept(stream, part, path)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError, zlib.error, lzma.LZMAError, RuntimeError) as error:
        raise DataError(f"{path} is damaged or not an archive ({error}); delete it and get it again") from error


def _kept(stream: BinaryIO, part: Part, path: Path) -> Iterator[bytes]:
    if part.keep is None:
        return iter(lambda: stream.read(_CHUNK), b"")
    return part.keep(_raw_lines(stream, f"{path}, {part.member}"))


def _raw_lines(stream: BinaryIO, name: str) -> Iterator[bytes]:
    while line := stream.readline(MAX_LINE_BYTES + 1):
        if len(line) > MAX_LINE_BYTES:
            raise DataError(f"{name}: a line is longer than {MAX_LINE_BYTES:,} bytes: the file is damaged")
        yield line


@contextmanager
def _zip_member(path: Path, name: str) -> Iterator[BinaryIO]:
    with zipfile.ZipFile(path) as archive:
        if name not in archive.namelist():
            raise DataError(f"{path} has no {name} in it; it is another archive than the one expected")
        with archive.open(name) as member:
            yield cast(BinaryIO, member)


@contextmanager
def _tar_member(path: Path, name: str) -> Iterator[BinaryIO]:
    with tarfile.open(path) as archive:
        for info in archive:
            if info.name.removeprefix("./") == name and info.isreg():
                member = archive.extractfile(info)
                assert member is not None
                with member:
                    yield cast(BinaryIO, member)
                return
    raise DataError(f"{path} has no file {name} in it; it is another archive than the one expected")


def write_builtin(
    out: str | Path, *, sizes: Mapping[str, int] = BUILTIN_SIZES, force: bool = False, **options: Any
) -> list[Path]:
    """Write the built-in corpus; `options` (seed, min_length, max_length, lengths) go to `corpus.sentences`."""
    from regard.corpora.builtin import corpus

    out = Path(out)
    names = [f"{part}.{kind}" for part in sizes for kind in ("en", "fr", "align")]
    _refuse_overwriting(out, names, force=force)
    with _appearing(out, names) as folder:
        for part, size in sizes.items():
            pairs = corpus.sentences(size, part=part, **options)
            _write_columns(
                [folder / f"{part}.{kind}" for kind in ("en", "fr", "align")],
                ((pair.source, pair.target, " ".join(f"{i}-{j}" for i, j in pair.alignment)) for pair in pairs),
            )
    return [out / name for name in names]


def _write_columns(paths: list[Path], rows: Iterable[tuple[str, ...]]) -> None:
    files = [path.open("x", encoding="utf-8", newline="\n") for path in paths]
    try:
        for row in rows:
            for file, text in zip(files, row, strict=True):
                file.write(text + "\n")
        for file in files:
            file.flush()
            os.fsync(file.fileno())
    finally:
        for file in files:
            file.close()


def _refuse_overwriting(out: Path, names: list[str], *, force: bool) -> None:
    if os.path.exists(out) and not os.path.isdir(out):
        raise DataError(f"{out} is a file; give a folder to write into")
    there = [name for name in names if os.path.exists(out / name)]
    if there and not force:
        raise DataError(f"{out / there[0]} exists; give another folder, or force to write over it")


@contextmanager
def _appearing(out: Path, names: list[str]) -> Iterator[Path]:
    """A hidden folder to write into: its files become those of `out` once all of them are there."""
    if not os.path.lexists(out):
        with atomic_folder(out, force=False) as new:
            yield new
        return
    with temporary_folder(out, target=out) as new, clear_os_errors(out):
        yield new
        fsync_folder(new)
        for name in names:
            os.replace(new / name, out / name)
        fsync(out)
