"""Crews: work comes back in order, errors come back at all, and nobody is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest

from regard.errors import InputError, RunError
from regard.text.workers import Crew, pack, unpack


class Slow:
    """Work that takes longer for even numbers."""

    def __init__(self, factor: int) -> None:
        self.factor = factor

    def __call__(self, job: int) -> tuple[int, int]:
        time.sleep(0.02 * (1 - job % 2))
        return os.getpid(), job * self.factor


class Echo:
    """Work that gives back what it gets."""

    def __init__(self, _: None) -> None: ...

    def __call__(self, job: Any) -> Any:
        return job


class Failing:
    """Work that fails, as we foresaw or not."""

    def __init__(self, foreseen: bool) -> None:
        self.foreseen = foreseen

    def __call__(self, job: int) -> None:
        raise InputError("as it should") if self.foreseen else KeyError("as it should not")


class Dying:
    """Work that ends its process."""

    def __init__(self, _: None) -> None: ...

    def __call__(self, job: int) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class Printing:
    """Work that prints."""

    def __init__(self, _: None) -> None: ...

    def __call__(self, job: int) -> int:
        print("a word from a library")
        return job


JOBS = [(number, number) for number in range(8)]


@pytest.mark.slow
def test_results_come_in_the_order_of_the_jobs() -> None:
    with Crew(Slow, 10, 2) as crew:
        assert [(kept, result) for kept, (_, result) in crew.in_order(JOBS)] == [(n, 10 * n) for n in range(8)]


@pytest.mark.slow
def test_no_process_is_left_when_reading_stops_early() -> None:
    with Crew(Slow, 10, 2) as crew:
        _, (process, _) = next(iter(crew.in_order(JOBS)))
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


ENDLESS = """
import itertools
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may ignore it
from regard.text.workers import Crew
from {module} import Slow
with Crew(Slow, 10, 2) as crew:
    for _, (process, _) in crew.in_order(zip(itertools.count(), itertools.count())):
        print(process, flush=True)
"""


@pytest.mark.slow
def test_no_process_is_left_after_an_interrupt() -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", ENDLESS.format(module=Slow.__module__)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, process_group=0, text=True) as endless:
        assert endless.stdout
        process = int(endless.stdout.readline())
        os.killpg(endless.pid, signal.SIGINT)  # as a terminal does on Ctrl-C
        _, said = endless.communicate()
    # Python's own locks fail where an interrupt finds them: then it tells of both
    assert said.count("Traceback") - said.count("During handling of the above") == 1
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_arrays_come_back_as_they_went() -> None:
    table = np.arange(6, dtype=np.uint16).reshape(2, 3)
    sent = [table, table.T, table[:, 1], np.zeros((0, 2))]
    with Crew(Echo, None, 1) as crew:
        [(_, back)] = crew.in_order([(None, {"nested": sent})])
    for found, array in zip(back["nested"], sent, strict=True):
        np.testing.assert_array_equal(found, array, strict=True)


def test_texts_are_the_same_after_packing() -> None:
    texts = ["", "two\nlines", "Ærø", "漢字", "🙂", "half a \ud83d", ""]
    assert unpack(*pack(texts)) == texts


def test_an_error_in_a_process_reaches_the_one_who_asked() -> None:
    with Crew(Failing, True, 1) as crew, pytest.raises(InputError, match=r"^as it should$"):
        list(crew.in_order(JOBS))


def test_an_error_that_nobody_foresaw_is_named() -> None:
    with Crew(Failing, False, 1) as crew, pytest.raises(RunError, match="failed: KeyError: 'as it should not'"):
        list(crew.in_order(JOBS))


def test_a_process_that_dies_is_noticed() -> None:
    with Crew(Dying, None, 1) as crew, pytest.raises(RunError, match="died"):
        list(crew.in_order(JOBS))


def test_what_work_prints_does_not_go_between_the_results() -> None:
    with Crew(Printing, None, 1) as crew:
        assert list(crew.in_order(JOBS)) == JOBS
