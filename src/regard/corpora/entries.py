"""Entries of the catalog: the named corpora of catalog.toml, and how lines are selected from their files."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from regard.errors import DataError


class File(NamedTuple):
    """A stored file: its name, its SHA-256 and its address, if they are known."""

    name: str
    sha256: str | None = None
    url: str | None = None


class Output(NamedTuple):
    """A plain text file to write: the stored files or archive members (archive/member) it consists of."""

    name: str
    parts: tuple[str, ...]
    lines: str = ""  # the name of the function that selects the lines; without it the parts are copied


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


def read_entries() -> tuple[Entry, ...]:
    """The entries of catalog.toml."""
    catalog = tomllib.loads(Path(__file__).with_name("catalog.toml").read_text(encoding="utf-8"))
    return tuple(
        Entry(name, **{**table, "forms": tuple(map(_form, table.get("forms", ())))}) for name, table in catalog.items()
    )


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


# Selecting lines


def segments(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The sentences of a WMT test set in SGML, stripped as sacreBLEU does."""
    for line in lines:
        if segment := re.search(rb"<seg[^>]*>(.*)</seg>", line):
            yield segment[1].strip() + b"\n"


def talks(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The sentences of transcribed talks, with titles and descriptions but without the other metadata."""
    for line in lines:
        line = re.sub(rb"</?(?:title|description)>", b"", line).strip()
        if not line.startswith(b"<"):
            yield line + b"\n"


def talks_part(lines: Iterable[bytes], *, valid: bool) -> Iterator[bytes]:
    """The usual division of IWSLT14: every 23rd sentence is for validation, the others are for training."""
    return (line for number, line in enumerate(talks(lines), 1) if (number % 23 == 0) == valid)


def column(lines: Iterable[bytes], index: int) -> Iterator[bytes]:
    """One of the first two columns of a TSV file."""
    for line in lines:
        columns = line.rstrip(b"\r\n").split(b"\t")
        if len(columns) < 2:
            raise DataError(f"a line of a TSV file has no tab ({line[:40]!r}): this is not the expected file")
        yield columns[index] + b"\n"


SELECTIONS: dict[str, Callable[[Iterable[bytes]], Iterator[bytes]]] = {
    "segments": segments,
    "talks_to_train": partial(talks_part, valid=False),
    "talks_to_validate": partial(talks_part, valid=True),
    "first_column": partial(column, index=0),
    "second_column": partial(column, index=1),
}
