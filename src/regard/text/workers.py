"""A crew: several processes that do the same work on different chunks; results come in the order of the chunks.

`multiprocessing` would run the user's script again in every process, or copy a process whose threads it cannot copy,
and would unpickle what it is sent; these import what they need and nothing else. What passes through the pipes is a
line of JSON and the bytes of the arrays that stand in it: data, never code.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from queue import SimpleQueue
from typing import IO, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from regard.errors import ConfigError, DataError, FolderError, InputError, RunError

Kept = TypeVar("Kept")
Value = Any
"""What JSON can say, and arrays anywhere in it; tuples arrive as lists."""
Work = Callable[[Value], Value]

ERRORS = {kind.__name__: kind for kind in (ConfigError, DataError, FolderError, InputError, RunError)}
AHEAD = 2  # jobs for each process: one in its hands and one that waits


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Crew:
    """`size` processes that each have a `make(settings)` and call it on jobs; they import `make` by its name."""

    def __init__(self, make: Callable[[Value], Work], settings: Value, size: int) -> None:
        self._make = make
        self._settings = settings
        self._size = size
        self._free: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._begun: set[int] = set()

    def __enter__(self) -> Crew:
        make = self._make
        program = f"from {make.__module__} import {make.__name__} as make; from {__name__} import serve; serve(make)"
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        # one thread each: there are as many processes as cores
        environment = os.environ | {"PYTHONPATH": paths, "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
        for _ in range(self._size):
            process = subprocess.Popen(
                [sys.executable, "-c", program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
                start_new_session=True,  # Ctrl-C is for the process that asked; these end when it does
            )
            self._processes.append(process)
            self._free.put(process)
        self._threads = ThreadPoolExecutor(self._size)
        return self

    def in_order(self, jobs: Iterable[tuple[Kept, Value]]) -> Iterator[tuple[Kept, Value]]:
        """What stays here of each job with the result of what is sent; only so many are read ahead as keep all busy."""
        waiting: deque[tuple[Kept, Future[Value]]] = deque()
        for kept, job in jobs:
            waiting.append((kept, self._threads.submit(self._do, job)))
            if len(waiting) >= self._size * AHEAD:
                done, future = waiting.popleft()
                yield done, future.result()
        for done, future in waiting:
            yield done, future.result()

    def _do(self, job: Value) -> Value:
        process = self._free.get()
        assert process.stdin
        assert process.stdout
        try:
            if process.pid not in self._begun:  # not above, where each would wait for the one before to wake up
                self._begun.add(process.pid)
                _send(process.stdin, self._settings)
            _send(process.stdin, job)
            result, error = _receive(process.stdout)
        except (OSError, EOFError, ValueError) as problem:
            raise RunError("a process that prepares the corpus has died; there may be too little memory") from problem
        finally:
            self._free.put(process)
        if error is not None:
            kind, text = error
            raise ERRORS[kind](text) if kind in ERRORS else RunError(f"preparing the corpus failed: {kind}: {text}")
        return result

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


def serve(make: Callable[[Value], Work]) -> None:
    """What a process of a crew does: jobs come in, results go out, until there are no more."""
    jobs, results = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # what a library prints must not go between the results
    with suppress(EOFError, BrokenPipeError):  # the process that asked has ended
        work = make(_receive(jobs))
        while True:
            _send(results, _answer(work, _receive(jobs)))


def _answer(work: Work, job: Value) -> tuple[Value, tuple[str, str] | None]:
    try:
        return work(job), None
    except Exception as error:  # the process that asked raises it
        return None, (type(error).__name__, str(error))


# What passes through the pipes


def _send(pipe: IO[bytes], value: Value) -> None:
    """A line of JSON, then the bytes of its arrays in the order in which they stand there."""
    arrays: list[NDArray[Any]] = []

    def describe(array: NDArray[Any]) -> dict[str, Any]:
        assert isinstance(array, np.ndarray), f"{type(array)} cannot be sent"
        arrays.append(np.ascontiguousarray(array))
        return {"array": array.dtype.str, "shape": array.shape}

    pipe.write(json.dumps(value, default=describe).encode("ascii") + b"\n")
    for array in arrays:
        pipe.write(array.data)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> Value:
    """What was sent; its arrays cannot be written to."""

    def fill(found: dict[str, Any]) -> Any:
        if "array" not in found:
            return found
        kind, shape = np.dtype(found["array"]), found["shape"]
        size = math.prod(shape) * kind.itemsize
        content = pipe.read(size)
        if len(content) < size:
            raise EOFError
        return np.frombuffer(content, kind).reshape(shape)

    line = pipe.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    return json.loads(line, object_hook=fill)


def pack(texts: Sequence[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Texts as arrays, which pass faster than JSON: the bytes of all, and the length of each in characters."""
    letters = "".join(texts).encode("utf-8", "surrogatepass")
    return np.frombuffer(letters, np.uint8), np.fromiter(map(len, texts), np.int64, len(texts))


def unpack(letters: NDArray[np.uint8], lengths: NDArray[np.int64]) -> list[str]:
    """The texts that were packed."""
    text = str(letters.data, "utf-8", "surrogatepass")
    return [text[start:end] for start, end in pairwise([0, *np.cumsum(lengths).tolist()])]
