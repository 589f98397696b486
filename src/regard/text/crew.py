"""A crew: several processes that do the same work on different chunks; results come in the order of the chunks.

`multiprocessing` would run the user's script again in every process, or copy a process whose threads it cannot copy;
these import what they need and nothing else. What passes through the pipes is pickled: it comes from this process, goes
to its own children and back, and never from a file or anyone else.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, BinaryIO, Generic, TypeVar

from regard.errors import RunError

Settings = TypeVar("Settings")
Job = TypeVar("Job")
Result = TypeVar("Result")

AHEAD = 2  # jobs for each process: one in its hands and one that waits


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Crew(Generic[Settings, Job, Result]):
    """`size` processes that each have a `make(settings)` and call it on jobs."""

    def __init__(self, make: Callable[[Settings], Callable[[Job], Result]], settings: Settings, size: int) -> None:
        self._start = pickle.dumps((make, settings))
        self._size = size
        self._free: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._begun: set[int] = set()

    def __enter__(self) -> Crew[Settings, Job, Result]:
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        # one thread each: there are as many processes as cores
        environment = os.environ | {"PYTHONPATH": paths, "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
        for _ in range(self._size):
            process = subprocess.Popen(
                [sys.executable, "-c", f"from {__name__} import serve; serve()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
                start_new_session=True,  # Ctrl-C is for the process that asked; these end when it does
            )
            self._processes.append(process)
            self._free.put(process)
        self._threads = ThreadPoolExecutor(self._size)
        return self

    def in_order(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Result]]:
        """Each job with its result; only so many are read ahead as keep everyone busy."""
        waiting: deque[tuple[Job, Future[Result]]] = deque()
        for job in jobs:
            waiting.append((job, self._threads.submit(self._do, job)))
            if len(waiting) >= self._size * AHEAD:
                done, future = waiting.popleft()
                yield done, future.result()
        for done, future in waiting:
            yield done, future.result()

    def _do(self, job: Job) -> Result:
        process = self._free.get()
        assert process.stdin
        assert process.stdout
        try:
            if process.pid not in self._begun:  # not above, where each would wait for the one before to wake up
                self._begun.add(process.pid)
                process.stdin.write(self._start)
            pickle.dump(job, process.stdin, pickle.HIGHEST_PROTOCOL)
            process.stdin.flush()
            result, error = pickle.load(process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError) as problem:
            raise RunError("a process that prepares the corpus has died; there may be too little memory") from problem
        finally:
            self._free.put(process)
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(cancel_futures=True)
        for process in self._processes:
            assert process.stdin
            assert process.stdout
            process.kill()  # they hold nothing that could be lost
            with suppress(BrokenPipeError):
                process.stdin.close()
            process.stdout.close()
            process.wait()


def serve() -> None:
    """What a process of a crew does: jobs come in, results go out, until there are no more."""
    jobs, results = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # what a library prints must not go between the results
    try:
        make, settings = pickle.load(jobs)
        work = make(settings)
        while True:
            _answer(work, pickle.load(jobs), results)
    except EOFError:
        return


def _answer(work: Callable[[Any], Any], job: Any, results: BinaryIO) -> None:
    result, problem = None, None
    try:
        result = work(job)
    except Exception as error:  # the process that asked raises it
        problem = error
    pickle.dump((result, problem), results, pickle.HIGHEST_PROTOCOL)
    results.flush()
