"""The catalog: named corpora, read from a local folder, the cache or the web, verified, and written as text files."""

from __future__ import annotations

import http.client
import os
import re
import tarfile
import tomllib
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from regard import folders
from regard.errors import DataError, did_you_mean
from regard.folders import cache, checksum, clear_os_errors
from regard.text.files import decompress, open_text

BUILTIN_SIZES = {"train": 50_000, "valid": 1_000, "test": 1_000}  # pairs of the built-in corpus by default
CHUNK_BYTES = 2**20
TIMEOUT = 30  # seconds without a byte

Selection = Callable[[Iterable[bytes]], Iterator[bytes]]
Progress = Callable[[str, int, int | None], None]
"""Called during a download with the file's name, the bytes so far, and the total if it is known."""


class File(NamedTuple):
    """A stored file: its name, its SHA-256 and its address, if they are known."""

    name: str
    sha256: str | None = None
    url: str | None = None


class Output(NamedTuple):
    """A plain text file to write, and the stored files or archive members (archive/member) that it is made of."""

    name: str
    parts: tuple[str, ...]
    lines: str = ""  # which lines: a name of SELECTIONS


class Form(NamedTuple):
    """One way a corpus is stored: a folder, the files in it, and the outputs that are written from them."""

    folder: str
    files: tuple[File, ...]
    outputs: tuple[Output, ...]


class Entry(NamedTuple):
    """A named corpus. Without forms it is generated."""

    name: str
    description: str
    languages: tuple[str, ...]
    size: str
    licence: str
    source: str
    forms: tuple[Form, ...] = ()


def _form(table: dict[str, Any]) -> Form:
    files, outputs = [], []
    for file in table["files"]:
        name = file.get("name") or file["url"].rpartition("/")[2]
        url = file.get("url") or (table["url"] + name if "url" in table else None)
        files.append(File(name, file.get("sha256"), url))
        outputs.append(Output(file.get("write", name.removesuffix(".gz")), (name,)))
    if "write" in table:
        outputs = [Output(name, tuple(w["from"]), w.get("lines", "")) for name, w in table["write"].items()]
    return Form(table["folder"], tuple(files), tuple(outputs))


ENTRIES = tuple(
    Entry(name, **{**table, "forms": tuple(map(_form, table.get("forms", ())))})
    for name, table in tomllib.loads(Path(__file__).with_name("catalog.toml").read_text(encoding="utf-8")).items()
)


def find(name: str) -> Entry:
    """The corpus of this name."""
    for entry in ENTRIES:
        if entry.name == name:
            return entry
    raise DataError(f"There is no corpus {name}.{did_you_mean(name, [entry.name for entry in ENTRIES])}")


def locate(entry: Entry) -> str:
    """Where a corpus comes from: `built in`, `local`, `cached`, `download`, or `by hand` if the user must get it."""
    if not entry.forms:
        return "built in"
    form = _usable_form(entry)
    if form is None:
        return "by hand"
    paths = _stored(form)
    if len(paths) < len(form.files):
        return "download"
    return "cached" if cache("corpora") in paths[form.files[0].name].parents else "local"


def table() -> list[dict[str, str]]:
    """A row for every corpus."""
    rows = []
    for entry in ENTRIES:
        form = _usable_form(entry)
        verified = form is None or all(file.sha256 for file in form.files)
        status = ("sha256" if verified else "not verified") if entry.forms else "none needed"
        row = entry._asdict() | {"languages": " ".join(entry.languages), "where": locate(entry), "checksum": status}
        del row["forms"]
        rows.append(row)
    return rows


def get(name: str, out: str | Path, *, force: bool = False, progress: Progress | None = None) -> list[Path]:
    """Write a corpus as plain text files into a folder, all or none; existing files are replaced only with `force`."""
    entry, out = find(name), Path(out)
    if not entry.forms:
        return write_builtin(out, sizes=BUILTIN_SIZES, force=force)
    form = _usable_form(entry)
    if form is None:
        raise DataError(f"{name} is not here and has no address to download it from. {_instructions(entry.forms[0])}")
    names = [output.name for output in form.outputs]
    with folders.atomic_files(out, names, force=force) as folder:
        stored = _stored(form)
        for file in form.files:
            if file.name in stored:
                _verify(file, stored[file.name], str(stored[file.name]))
                continue
            stored[file.name] = cache("corpora") / form.folder / file.name
            with folders.atomic_file(stored[file.name], force=True) as copy:  # kept if it is complete and verified
                copy.writelines(_download(form, file, progress))
                copy.flush()
                _verify(file, Path(copy.name), str(file.url))
        counts: dict[str, tuple[str, int]] = {}
        for output in form.outputs:
            count = _write(folder / output.name, output, stored)
            first, lines = counts.setdefault(output.name.rpartition(".")[0], (output.name, count))
            if lines != count:
                raise DataError(f"{name} is damaged: {first} has {lines:,} lines and {output.name} {count:,}")
    return [out / name for name in names]


def write_builtin(out: str | Path, *, sizes: Mapping[str, int], force: bool = False, **options: Any) -> list[Path]:
    """Write parts of the built-in corpus; `options` (seed, min_length, max_length, lengths) go to `sentences`."""
    from regard.corpora.builtin.corpus import sentences

    out = Path(out)
    names = [f"{part}.{kind}" for part in sizes for kind in ("en", "fr", "align")]
    with folders.atomic_files(out, names, force=force) as folder, ExitStack() as stack:
        files = {name: stack.enter_context(open(folder / name, "x", encoding="utf-8", newline="\n")) for name in names}
        for part, size in sizes.items():
            for source, target, alignment in sentences(size, part=part, **options):
                files[f"{part}.en"].write(source + "\n")
                files[f"{part}.fr"].write(target + "\n")
                files[f"{part}.align"].write(" ".join(f"{i}-{j}" for i, j in alignment) + "\n")
    return [out / name for name in names]


# Stored files


def _local() -> Path | None:
    """The user's folder of corpora."""
    folder = os.environ.get("REGARD_DATA")
    if folder and not Path(folder).is_dir():
        raise DataError(f"REGARD_DATA ({folder}) is not a folder; it should contain a folder for each corpus")
    return Path(folder) if folder else None


def _stored(form: Form) -> dict[str, Path]:
    """The paths of the form's files that are on this machine, by name; a local file comes before a cached one."""
    places = [place / form.folder for place in (cache("corpora"), _local()) if place is not None]
    paths = [place / file.name for place in places for file in form.files]
    return {path.name: path for path in paths if path.is_file()}


def _usable_form(entry: Entry) -> Form | None:
    """The first form whose files are all on this machine, else the first one that can be downloaded."""
    stored = {form: _stored(form) for form in entry.forms}
    complete = [form for form in entry.forms if len(stored[form]) == len(form.files)]
    downloadable = [form for form in entry.forms if all(file.url or file.name in stored[form] for file in form.files)]
    return next(iter((*complete, *downloadable)), None)


def _instructions(form: Form) -> str:
    """Advice for a corpus that cannot be downloaded: the missing files, and the folder to put them into."""
    stored = _stored(form)
    missing = ", ".join(file.name for file in form.files if file.name not in stored)
    folder = (_local() or cache("corpora")) / form.folder
    return f"Put {missing} into {folder} (REGARD_DATA may name a folder of corpora)"


def _verify(file: File, path: Path, origin: str) -> None:
    """Compare the checksum of a file with the published one, if there is one."""
    with clear_os_errors(path, "read"):
        if file.sha256 and (computed := checksum(path)) != file.sha256:
            raise DataError(f"{origin} is not the expected file: its SHA-256 is {computed}, expected {file.sha256}")


def _download(form: Form, file: File, progress: Progress | None) -> Iterator[bytes]:
    """The content of a file at its address, in chunks."""
    received = 0
    try:
        request = urllib.request.Request(str(file.url), headers={"User-Agent": "regard"})  # some servers want one
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
            length = response.headers.get("Content-Length", "")
            total = int(length) if length.isdigit() else None
            while chunk := response.read(CHUNK_BYTES):
                received += len(chunk)
                if progress:
                    progress(file.name, received, total)
                yield chunk
        if total is not None and received != total:
            raise OSError(f"the connection ended after {received:,} of {total:,} bytes")
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise DataError(f"{file.url} cannot be downloaded ({reason}). {_instructions(form)}") from error


# Writing


def _write(path: Path, output: Output, stored: Mapping[str, Path]) -> int:
    """Write an output and return its number of lines."""
    count = 0
    with path.open("xb") as file:
        for part in output.parts:
            name, _, member = part.partition("/")
            for line in _read(stored[name], member, SELECTIONS[output.lines]):
                file.write(line)
                count += 1
    return count


def _read(path: Path, member: str, select: Selection) -> Iterator[bytes]:
    """Lines of a file or archive member. Archives are never unpacked, so a member's name is never a path."""
    if not member:
        with open_text(path) as stream:
            yield from select(stream)
        return
    file: IO[bytes] | None
    try:
        with ExitStack() as stack:
            if zipfile.is_zipfile(path):
                archive = stack.enter_context(zipfile.ZipFile(path))
                file = archive.open(member) if member in archive.namelist() else None
            else:
                tar = stack.enter_context(tarfile.open(path))
                members = (info for info in tar if info.name.removeprefix("./") == member and info.isreg())
                file = next((tar.extractfile(info) for info in members), None)
            if file is None:
                raise DataError(f"{path} has no file {member} in it: this is not the expected archive")
            yield from select(stack.enter_context(decompress(cast(Any, file), f"{path}, {member}")))
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError, zlib.error) as error:
        raise DataError(f"{path} is damaged or not an archive ({error}); delete it and get it again") from error


# Selecting lines


def _segments(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The sentences of a WMT test set in SGML, stripped as sacreBLEU does."""
    for line in lines:
        if segment := re.search(rb"<seg[^>]*>(.*)</seg>", line):
            yield segment[1].strip() + b"\n"


def _talks(lines: Iterable[bytes], *, valid: bool) -> Iterator[bytes]:
    """Sentences of transcribed talks, with titles and descriptions but without the other metadata.

    The usual division of IWSLT14: every 23rd sentence is for validation, the others are for training.
    """
    texts = (re.sub(rb"</?(?:title|description)>", b"", line).strip() for line in lines)
    for number, text in enumerate((text for text in texts if not text.startswith(b"<")), 1):
        if (number % 23 == 0) == valid:
            yield text + b"\n"


def _column(lines: Iterable[bytes], index: int) -> Iterator[bytes]:
    """One of the first two columns of a TSV file."""
    for line in lines:
        columns = line.rstrip(b"\r\n").split(b"\t")
        if len(columns) < 2:
            raise DataError(f"a line of a TSV file has no tab ({line[:40]!r}): this is not the expected file")
        yield columns[index] + b"\n"


SELECTIONS: dict[str, Selection] = {
    "": iter,
    "segments": _segments,
    "talks_to_train": partial(_talks, valid=False),
    "talks_to_validate": partial(_talks, valid=True),
    "first_column": partial(_column, index=0),
    "second_column": partial(_column, index=1),
}
