"""Translate the lines of a large file on a Ray cluster; finished parts are kept on disk, so a stopped run resumes."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from regard.documents.outcome import Outcome
from regard.errors import ConfigError, RegardError, RunError
from regard.folders import atomic_file, clear_os_errors, delete, lock_folder, write_file
from regard.translation.lines import Line

PART_LINES = 1024
ATTEMPTS = 4  # at a part whose worker dies, before the run fails

TranslatePart = Callable[[int, list[Line]], tuple[list[str], Outcome]]
"""(number of lines before a part, its lines) -> its output lines and their outcome"""


class Part(NamedTuple):
    """Lines that one actor translates together."""

    before: int  # number of lines before this part
    lines: list[Line]
    file: Path  # for their translations; its name is a hash of the part


def translate_parts(
    lines: Iterable[Line],
    out: Path,
    *,
    start: Callable[[], TranslatePart],
    identity: str,
    workers: int,
    resources: dict[str, Any],
    force: bool,
    progress: Callable[[int], object],
) -> Outcome:
    """Write one output line for each input line, in order, and return the outcome of all lines.

    start: called once in each actor; returns the function that translates a part.
    identity: a text that identifies the model and the options; finished parts of an earlier call with it are reused.
    resources: num_cpus and num_gpus of each actor.
    """
    parts_folder, outcome, files, translated = out.with_name(f"{out.name}.parts"), Outcome(), list[Path](), 0
    with clear_os_errors(parts_folder), lock_folder(parts_folder):
        with ExitStack() as stack:
            pool: Any = None
            for part in _split(lines, parts_folder, identity):
                files.append(part.file)
                if part.file.exists():
                    translated += len(part.lines)
                else:
                    pool = pool or stack.enter_context(_actors(start, workers, resources))  # joining parts needs none
                    if not pool.has_free():
                        translated += _save_next(pool)
                    pool.submit(lambda actor, part: actor.translate.remote(part), part)
                progress(translated)
            while pool and pool.has_next():
                translated += _save_next(pool)
                progress(translated)
        with atomic_file(out, force=force) as file:
            for path in files:
                saved = json.loads(path.read_text(encoding="utf-8"))
                outcome.add(saved["outcome"])
                file.writelines(f"{line}\n".encode() for line in saved["lines"])
    if files:  # an empty file has no parts, and their folder is gone with its lock
        delete(parts_folder)
    return outcome


def _split(lines: Iterable[Line], parts_folder: Path, identity: str) -> Iterator[Part]:
    remaining, before = iter(lines), 0
    while part := list(islice(remaining, PART_LINES)):
        content = json.dumps([identity, before, part], ensure_ascii=False).encode("utf-8", "surrogatepass")
        yield Part(before, part, parts_folder / f"{hashlib.sha256(content).hexdigest()}.json")
        before += len(part)


@contextmanager
def _actors(start: Callable[[], TranslatePart], workers: int, resources: dict[str, Any]) -> Iterator[Any]:
    """A pool of actors on the cluster of RAY_ADDRESS, or on this machine."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported over the network
    try:
        import ray
        from ray.util import ActorPool
    except ImportError:
        raise ConfigError("--cluster needs Ray: pip install 'regard[cluster]'") from None

    class Actor:
        """Loads the model once and translates parts with it."""

        def __init__(self) -> None:
            self.run = start()

        def translate(self, part: Part) -> tuple[Path, int, str]:
            lines, outcome = self.run(part.before, part.lines)
            content = json.dumps({"lines": lines, "outcome": outcome}, default=vars, ensure_ascii=False)
            return part.file, len(lines), content

    local = {} if os.environ.get("RAY_ADDRESS") else {"num_cpus": math.ceil(workers * resources["num_cpus"])}
    try:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR, **local)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise RunError(f"Ray could not be started, or the cluster of RAY_ADDRESS not be reached: {error}") from None
    try:
        remote: Any = ray.remote(max_restarts=-1, max_task_retries=ATTEMPTS - 1, **resources)(Actor)
        yield ActorPool([remote.remote() for _ in range(workers)])
    finally:
        ray.shutdown()


def _save_next(pool: Any) -> int:
    """Wait for the next finished part and write its file; return its number of lines."""
    from ray.exceptions import RayError, RayTaskError

    try:
        file, number, content = pool.get_next_unordered()
    except RayTaskError as error:
        raise error.cause if isinstance(error.cause, RegardError) else error from None
    except RayError as error:
        raise RunError(f"a part failed {ATTEMPTS} times: {error}; the same command resumes") from None
    write_file(file, content, force=True)
    return int(number)
