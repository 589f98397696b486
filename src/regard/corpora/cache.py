"""The cache: prepared corpora, downloads and converted models, listed and deleted; all of them can be recreated."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.folders import cache, clear_os_errors, delete, delete_leftovers
from regard.results import Report, Table, with_unit

KINDS = {"prepared": "prepared corpus", "corpora": "download", "ctranslate2": "converted model"}


@dataclass(frozen=True)
class Entry:
    """A file or folder of the cache."""

    kind: str
    path: Path
    bytes: int
    modified: float  # seconds since 1970


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
        if not self.entries:
            return [Table((), [], f"{self.folder} is empty")]
        rows = [
            (KINDS[e.kind], e.path.name, with_unit(e.bytes, "B"), time.strftime("%F", time.localtime(e.modified)))
            for e in self.entries
        ]
        size = with_unit(self.bytes, "B")
        total = f"freed {size}" if self.deleted else f"{size} can be freed"
        return [Table(("kind", "name", "size", "modified"), rows, f"{self.folder}: {total}")]

    def to_dict(self) -> dict[str, Any]:
        entries = [dataclasses.asdict(entry) | {"path": str(entry.path)} for entry in self.entries]
        return {"folder": str(self.folder), "bytes": self.bytes, "deleted": self.deleted, "entries": entries}


def clean_cache(*, dry_run: bool) -> CacheReport:
    """Delete everything in the cache, or only list it. Files that a running process is writing are kept."""
    entries = []
    for kind in KINDS:
        with clear_os_errors(cache(kind), "read"):
            for path in sorted(cache(kind).glob("[!.]*")):
                size = sum(file.stat().st_size for file in (path, *path.rglob("*")) if file.is_file())
                entries.append(Entry(kind, path, size, path.stat().st_mtime))
        if not dry_run:
            for path in [entry.path for entry in entries if entry.kind == kind]:
                delete(path)
            delete_leftovers(cache(kind))
    return CacheReport(cache(""), entries, deleted=not dry_run)
