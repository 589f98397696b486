"""The journal: what happened in a run, one JSON object a line, in the order it happened."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from regard.folders import clear_os_errors, write_file


class Journal:
    """`journal.jsonl` of a run; a resumed run goes on from the update it resumes at."""

    def __init__(self, path: Path | None, update: int) -> None:
        """Without a path (a process that is not the main one) nothing is written."""
        self._path: Path | None = path
        self._file: TextIO | None = None
        self.take_back(update)

    def take_back(self, update: int) -> None:
        """Leave out what came after an update, from which the run goes on."""
        if self._path is None:
            return
        if self._file is not None:
            self._file.close()
        kept = [line for line in read(self._path) if line["update"] <= update]
        write_file(self._path, "".join(json.dumps(line) + "\n" for line in kept), force=True)
        with clear_os_errors(self._path):
            self._file = self._path.open("a", encoding="utf-8")

    def write(self, kind: str, update: int, **facts: Any) -> None:
        """One line, on disk before the next update."""
        if self._file is not None and self._path is not None:
            with clear_os_errors(self._path):
                self._file.write(json.dumps({"kind": kind, "update": update, **facts}) + "\n")
                self._file.flush()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            with suppress(OSError):  # what could not be written has been said
                self._file.close()


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a journal; what is none, such as a last one that was cut short, is left out."""
    if not path.exists():
        return []
    lines = []
    with clear_os_errors(path, "read"):
        whole = path.read_text(encoding="utf-8", errors="replace")
    for text in whole.splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and isinstance(line.get("kind"), str) and isinstance(line.get("update"), int):
            lines.append(line)
    return lines
