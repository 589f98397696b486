"""The cache: prepared corpora, downloads and converted models, listed and deleted; all of them can be recreated."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.folders import cache, clear_os_errors, delete, delete_leftovers
from regard.results import Report, Table, with_unit

KINDS = {"prepared": "prepared corpus", "corpora": "download", "ctranslate2": "converted model"}


@dataclass(frozen=True)
class CacheReport(Report):
    """The entries of the cache, and whether they were deleted."""

    folder: Path
    entries: list[dict[str, Any]]  # kind, path, bytes, and when it was modified, in seconds since 1970
    deleted: bool

    @property
    def bytes(self) -> int:
        return sum(entry["bytes"] for entry in self.entries)

    def tables(self) -> list[Table]:
        if not self.entries:
            return [Table((), [], f"{self.folder} is empty")]
        rows = []
        for entry in self.entries:
            size, date = with_unit(entry["bytes"], "B"), time.strftime("%F", time.localtime(entry["modified"]))
            rows.append((KINDS[entry["kind"]], Path(entry["path"]).name, size, date))
        total = with_unit(self.bytes, "B")
        title = f"{self.folder}: freed {total}" if self.deleted else f"{self.folder}: {total} can be freed"
        return [Table(("kind", "name", "size", "modified"), rows, title)]

    def to_dict(self) -> dict[str, Any]:
        return {"folder": str(self.folder), "bytes": self.bytes, "deleted": self.deleted, "entries": self.entries}


def clean_cache(*, dry_run: bool) -> CacheReport:
    """Delete everything in the cache, or only list it. Files that a running process is writing are kept."""
    entries = []
    for kind in KINDS:
        with clear_os_errors(cache(kind), "read"):
            paths = sorted(cache(kind).glob("[!.]*"))
            for path in paths:
                size = sum(file.stat().st_size for file in (path, *path.rglob("*")) if file.is_file())
                entries.append({"kind": kind, "path": str(path), "bytes": size, "modified": path.stat().st_mtime})
        if not dry_run:
            for path in paths:
                delete(path)
            delete_leftovers(cache(kind))
    return CacheReport(cache(""), entries, deleted=not dry_run)
