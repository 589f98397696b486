"""The cache: prepared corpora, downloads and converted models, listed and deleted; all of them can be recreated."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.folders import cache, clear_os_errors, delete, delete_leftovers
from regard.results import Report, Table

KINDS = {"prepared": "prepared corpus", "corpora": "download", "ctranslate2": "converted model"}


@dataclass(frozen=True)
class Entry:
    """A file or folder of the cache."""

    kind: str
    path: Path
    bytes: int
    modified: float
    """Seconds since 1970."""


@dataclass(frozen=True)
class CacheReport(Report):
    """The entries of the cache, and whether they were deleted."""

    folder: Path
    entries: list[Entry]
    deleted: bool

    @property
    def bytes(self) -> int:
        return sum(entry.bytes for entry in self.entries)

    def tables(self) -> list[Table]:
        rows = [
            (
                KINDS[entry.kind],
                entry.path.name,
                _size(entry.bytes),
                time.strftime("%F", time.localtime(entry.modified)),
            )
            for entry in self.entries
        ]
        total = f"freed {_size(self.bytes)}" if self.deleted else f"{_size(self.bytes)} can be freed"
        title = f"{self.folder}: {total}" if rows else f"{self.folder} is empty"
        return [Table(("kind", "name", "size", "modified") if rows else (), rows, title)]

    def to_dict(self) -> dict[str, Any]:
        entries = [
            {"kind": entry.kind, "path": str(entry.path), "bytes": entry.bytes, "modified": entry.modified}
            for entry in self.entries
        ]
        return {"folder": str(self.folder), "bytes": self.bytes, "deleted": self.deleted, "entries": entries}


def clean_cache(*, dry_run: bool) -> CacheReport:
    """Delete everything in the cache, or only list it. Files that a running process is writing are kept."""
    entries = [entry for kind in KINDS for entry in _entries(kind)]
    if not dry_run:
        for entry in entries:
            delete(entry.path)
        for kind in KINDS:
            delete_leftovers(cache(kind))
    return CacheReport(cache(""), entries, deleted=not dry_run)


def _entries(kind: str) -> list[Entry]:
    folder = cache(kind)
    if not folder.is_dir():
        return []
    with clear_os_errors(folder, "read"):
        paths = [path for path in sorted(folder.iterdir()) if not path.name.startswith(".")]
        return [Entry(kind, path, _bytes(path), path.stat().st_mtime) for path in paths]


def _bytes(path: Path) -> int:
    if not path.is_dir():
        return path.stat().st_size
    return sum(Path(place, name).stat().st_size for place, _, names in os.walk(path) for name in names)


def _size(count: int) -> str:
    """Bytes as people read them: 3.2 MB."""
    value, units = float(count), ["bytes", "kB", "MB", "GB", "TB"]
    while value >= 1000 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.0f} {units[0]}" if units[0] == "bytes" else f"{value:.1f} {units[0]}"
