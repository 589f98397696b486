"""Crews: work comes back in order, errors come back at all, and nobody is left behind."""

from __future__ import annotations

import os
import sys
import time

import pytest

from regard.errors import InputError, RunError
from regard.text.crew import Crew


class Slow:
    """Work that takes longer for even numbers."""

    def __init__(self, factor: int) -> None:
        self.factor = factor

    def __call__(self, job: int) -> tuple[int, int]:
        time.sleep(0.02 * (1 - job % 2))
        return os.getpid(), job * self.factor


class Failing:
    """Work that fails."""

    def __init__(self, _: None) -> None: ...

    def __call__(self, job: int) -> None:
        raise InputError("as it should")


class Dying:
    """Work that ends its process."""

    def __init__(self, _: None) -> None: ...

    def __call__(self, job: int) -> None:
        sys.exit(3)


@pytest.mark.slow
def test_results_come_in_the_order_of_the_jobs() -> None:
    with Crew(Slow, 10, 2) as crew:
        assert [(job, result) for job, (_, result) in crew.in_order(range(8))] == [(n, 10 * n) for n in range(8)]


@pytest.mark.slow
def test_no_process_is_left_when_reading_stops_early() -> None:
    with Crew(Slow, 10, 2) as crew:
        _, (process, _) = next(iter(crew.in_order(range(8))))
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_an_error_in_a_process_reaches_the_one_who_asked() -> None:
    with Crew(Failing, None, 1) as crew, pytest.raises(InputError, match="as it should"):
        list(crew.in_order([1]))


def test_a_process_that_dies_is_noticed() -> None:
    with Crew(Dying, None, 1) as crew, pytest.raises(RunError, match="died"):
        list(crew.in_order([1]))
