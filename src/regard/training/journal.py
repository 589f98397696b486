"""The journal of a run, `journal.jsonl`: one JSON object per line for updates, validations and problems."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from regard.folders import clear_os_errors, write_file

FILE = "journal.jsonl"


class Journal:
    """Writes `journal.jsonl`. A resumed run removes the entries after the update it resumes from."""

    def __init__(self, path: Path | None, update: int) -> None:
        """Without a path nothing is written: only the main process writes the journal."""
        self._path: Path | None = path
        self._file: TextIO | None = None
        self.truncate(update)

    def truncate(self, update: int) -> None:
        """Remove the entries after an update."""
        if self._path is None:
            return
        if self._file is not None:
            self._file.close()
        kept = [line for line in read(self._path) if line["update"] <= update]
        write_file(self._path, "".join(json.dumps(line) + "\n" for line in kept), force=True)
        with clear_os_errors(self._path):
            self._file = self._path.open("a", encoding="utf-8")

    def write(self, kind: str, update: int, **values: Any) -> None:
        """Append an entry and flush it."""
        if self._file is not None and self._path is not None:
            with clear_os_errors(self._path):
                self._file.write(json.dumps({"kind": kind, "update": update, **values}) + "\n")
                self._file.flush()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            with suppress(OSError):  # write() has raised it before
                self._file.close()


def read(path: Path) -> list[dict[str, Any]]:
    """The entries of a journal; lines that are not entries, such as a truncated last one, are skipped."""
    if not path.exists():
        return []
    lines = []
    with clear_os_errors(path, "read"):
        content = path.read_text(encoding="utf-8", errors="replace")
    for text in content.splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and isinstance(line.get("kind"), str) and isinstance(line.get("update"), int):
            lines.append(line)
    return lines
