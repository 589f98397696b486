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
ATTEMPTS = 4  # a part whose workers die this often is reported

TranslatePart = Callable[[int, list[Line]], tuple[list[str], Outcome]]
"""From the number of lines before a part and the part to its output lines and their outcome."""


class Part(NamedTuple):
    """Lines that one actor translates at once, the number of lines before them, and the file for their translations."""

    before: int
    lines: list[Line]
    file: Path


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
    """Write one output line for each line, in order, and return the outcome of all.

    start: what each actor calls once; the result is called for every part.
    identity: names model and options; parts that an earlier call with the same identity translated are not repeated.
    resources: num_cpus and num_gpus of each actor.
    """
    kept, outcome, files, translated = out.with_name(f"{out.name}.parts"), Outcome(), list[Path](), 0
    pool: Any = None

    def count(number: int) -> None:
        nonlocal translated
        translated += number
        progress(translated)

    def save_next() -> None:
        file, number, content = _next(pool)
        write_file(file, content, force=True)
        count(number)

    with clear_os_errors(kept), lock_folder(kept):
        with ExitStack() as stack:
            for part in _split(lines, kept, identity):
                files.append(part.file)
                if part.file.exists():
                    count(len(part.lines))
                    continue
                if pool is None:  # a run that only joins finished parts needs no cluster
                    pool = stack.enter_context(_actors(start, workers, resources))
                if not pool.has_free():
                    save_next()
                pool.submit(lambda actor, part: actor.translate.remote(part), part)
            while pool is not None and pool.has_next():
                save_next()
        with atomic_file(out, force=force) as file:
            for path in files:
                saved = json.loads(path.read_text(encoding="utf-8"))
                outcome.merge(Outcome.from_dict(saved["outcome"]))
                file.writelines(f"{line}\n".encode() for line in saved["lines"])
    delete(kept)
    return outcome


def _split(lines: Iterable[Line], kept: Path, identity: str) -> Iterator[Part]:
    """The parts of a text; the names of their files depend on their content."""
    remaining, before = iter(lines), 0
    while part := list(islice(remaining, PART_LINES)):
        content = json.dumps([identity, before, part], ensure_ascii=False).encode("utf-8", "surrogatepass")
        yield Part(before, part, kept / f"{hashlib.sha256(content).hexdigest()}.json")
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
        """Holds a loaded model."""

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
        raise RunError(f"Ray could not be started or reached: {error}") from None
    try:
        remote: Any = ray.remote(max_restarts=-1, max_task_retries=ATTEMPTS - 1, **resources)(Actor)
        yield ActorPool([remote.remote() for _ in range(workers)])
    finally:
        ray.shutdown()


def _next(pool: Any) -> tuple[Path, int, str]:
    """The file of the next finished part, its number of lines, and its content."""
    from ray.exceptions import RayError, RayTaskError

    try:
        done: tuple[Path, int, str] = pool.get_next_unordered()
    except RayTaskError as error:
        raise error.cause if isinstance(error.cause, RegardError) else error from None
    except RayError as error:
        raise RunError(f"a part was given up after {ATTEMPTS} attempts: {error}") from None
    return done
