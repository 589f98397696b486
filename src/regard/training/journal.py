"""The journal of a run, `journal.jsonl`: one JSON object per line for updates, validations and problems."""

from __future__ import annotations

import dataclasses
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from regard.folders import clear_os_errors, parse_json, write_file
from regard.training.clock import Clock
from regard.training.events import Event, ProblemEvent, UpdateEvent, ValidationEvent

FILE = "journal.jsonl"
UPDATES_PER_ENTRY = 10


class Journal:
    """Writes `journal.jsonl`. A resumed run removes the entries after the update it resumes from."""

    def __init__(self, path: Path, update: int, clock: Clock | None = None) -> None:
        """With the clock of a run with --minutes, every entry has the seconds used so far."""
        self._path, self._clock = path, clock if clock is not None and clock.settings.minutes else None
        self._last_update = clock.settings.updates if clock is not None else 0
        self.truncate(update)
        if self._clock is not None and self._clock.spent:
            self.write("resumed", update)

    def truncate(self, update: int) -> None:
        """Remove the entries after an update."""
        kept = [entry for entry in read(self._path) if entry["update"] <= update]
        write_file(self._path, "".join(json.dumps(entry) + "\n" for entry in kept), force=True)
        with clear_os_errors(self._path):
            self._file = self._path.open("a", encoding="utf-8")

    def observe(self, event: Event) -> None:
        """Write the entry of an event; the first, the last and every tenth update have one."""
        if isinstance(event, UpdateEvent):
            if event.update % UPDATES_PER_ENTRY == 0 or event.update in (1, self._last_update):
                self.write("update", **dataclasses.asdict(event) | {"seconds": round(event.seconds, 6)})
        elif isinstance(event, ProblemEvent):
            if event.kind == "rollback":
                self._file.close()
                self.truncate(event.update)
            self.write(event.kind, event.update + (event.kind == "rollback"), **event.values)
        elif isinstance(event, ValidationEvent):
            sample = {"sample": event.sample} if event.sample else {}
            self.write("validation", event.update, **event.scores, **sample, seconds=round(event.seconds, 3))

    def write(self, kind: str, update: int, **values: Any) -> None:
        """Append an entry and flush it."""
        elapsed = {"elapsed": round(self._clock.elapsed(), 3)} if self._clock is not None else {}
        with clear_os_errors(self._path):
            self._file.write(json.dumps({"kind": kind, "update": update, **values, **elapsed}) + "\n")
            self._file.flush()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # write() has raised it before
            self._file.close()


def read(path: Path) -> list[dict[str, Any]]:
    """The entries of a journal; lines that are not entries, such as a truncated last one, are skipped."""
    if not path.exists():
        return []
    entries = []
    with clear_os_errors(path, "read"):
        content = path.read_text(encoding="utf-8", errors="replace")
    for line in content.splitlines():
        with suppress(ValueError):
            entry = parse_json(line)
            if isinstance(entry, dict) and isinstance(entry.get("kind"), str) and isinstance(entry.get("update"), int):
                entries.append(entry)
    return entries
