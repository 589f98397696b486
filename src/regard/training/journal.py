"""The journal of a run, `journal.jsonl`: one JSON object per line for updates, validations and problems."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
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
        self._keep(lambda entry: entry["update"] <= update)
        if self._clock is not None and self._clock.spent:
            self.write("resumed", update)

    def _keep(self, keep: Callable[[dict[str, Any]], bool]) -> None:
        entries = [json.dumps(entry) + "\n" for entry in read(self._path) if keep(entry)]
        write_file(self._path, "".join(entries), force=True)

    def observe(self, event: Event) -> None:
        """Write the entry of an event; the first, the last and every tenth update have one."""
        if isinstance(event, UpdateEvent):
            if has_entry(event) or event.update == self._last_update:
                self.write("update", **dataclasses.asdict(event) | {"seconds": round(event.seconds, 6)})
        elif isinstance(event, ProblemEvent):
            if event.kind == "rollback":
                self._keep(lambda entry: entry["update"] <= event.update)
            self.write(event.kind, event.update + (event.kind == "rollback"), **event.values)
        elif isinstance(event, ValidationEvent):
            # a resumed run repeats the validation after its checkpoint
            self._keep(lambda entry: (entry["kind"], entry["update"]) != ("validation", event.update))
            sample = {"sample": event.sample} if event.sample else {}
            self.write("validation", event.update, **event.scores, **sample, seconds=round(event.seconds, 3))

    def write(self, kind: str, update: int, **values: Any) -> None:
        """Append an entry."""
        elapsed = {"elapsed": round(self._clock.elapsed(), 3)} if self._clock is not None else {}
        with clear_os_errors(self._path), self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, "update": update, **values, **elapsed}) + "\n")


def has_entry(event: UpdateEvent) -> bool:
    """Whether an update is the first or every tenth, which have an entry."""
    return event.update % UPDATES_PER_ENTRY == 0 or event.update == 1


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
