"""The worker answers every text with its own translation, equal texts once; cancelled ones free their place."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from regard.server.batching import BATCH_TEXTS, Job, OverloadedError, Worker
from regard.server.served import TranslateOptions
from regard.translation.translator import Result

PLAIN = TranslateOptions()


class Slow:
    """Translates to capitals, after `open` is set; remembers its batches."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.started, self.open = threading.Event(), threading.Event()

    def __call__(self, texts: Sequence[str], options: TranslateOptions) -> list[Result]:
        self.batches.append(list(texts))
        self.started.set()
        self.open.wait(10)
        return [Result(text.upper() + "!" * options.alternatives) for text in texts]


def busy(slow: Slow, max_waiting: int = 9) -> Worker:
    """A worker that translates its first text until `slow.open` is set."""
    worker = Worker(slow, max_waiting=max_waiting, cache_size=9)
    worker.submit([Job("first", PLAIN)])
    slow.started.wait(10)
    return worker


def test_a_thousand_requests_from_many_threads_each_get_their_own_answer() -> None:
    slow = Slow()
    slow.open.set()
    worker = Worker(slow, max_waiting=5000, cache_size=10)
    jobs = [Job("x" * (n % 50) + str(n), TranslateOptions(n % 3)) for n in range(1000)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda job: worker.submit([job])[0].result(10).text, jobs))
    worker.close()
    assert answers == [job.text.upper() + "!" * job.options.alternatives for job in jobs]
    assert max(map(len, slow.batches)) <= BATCH_TEXTS


def test_equal_texts_in_flight_are_translated_once() -> None:
    slow = Slow()
    worker = busy(slow)
    futures = worker.submit([Job("same", PLAIN)] * 3)
    slow.open.set()
    assert [future.result(10).text for future in futures] == ["SAME"] * 3
    assert slow.batches == [["first"], ["same"]]


def test_a_text_that_was_translated_before_comes_from_the_cache() -> None:
    slow = Slow()
    slow.open.set()
    worker = Worker(slow, max_waiting=9, cache_size=9)
    for _ in range(2):
        assert worker.submit([Job("same", PLAIN)])[0].result(10).text == "SAME"
    assert len(slow.batches) == 1


def test_a_full_queue_accepts_no_part_of_a_request() -> None:
    slow = Slow()
    worker = busy(slow, max_waiting=2)
    with pytest.raises(OverloadedError):
        worker.submit([Job(str(n), PLAIN) for n in range(3)])
    assert not worker.waiting
    slow.open.set()


def test_a_cancelled_text_frees_its_place() -> None:
    slow = Slow()
    worker = busy(slow, max_waiting=1)
    worker.submit([Job("gone", PLAIN)])[0].cancel()
    future = worker.submit([Job("next", PLAIN)])[0]
    slow.open.set()
    assert future.result(10).text == "NEXT"
    assert ["gone"] not in slow.batches


def test_an_error_reaches_the_request_and_the_worker_goes_on() -> None:
    def fail(texts: Sequence[str], options: TranslateOptions) -> list[Result]:
        if texts == ["bad"]:
            raise ValueError("bad text")
        return [Result("fine")]

    worker = Worker(fail, max_waiting=9, cache_size=9)
    assert isinstance(worker.submit([Job("bad", PLAIN)])[0].exception(10), ValueError)
    assert worker.submit([Job("good", PLAIN)])[0].result(10).text == "fine"


def test_closing_finishes_what_waits() -> None:
    slow = Slow()
    worker = busy(slow)
    future = worker.submit([Job("last", PLAIN)])[0]
    slow.open.set()
    worker.close()
    assert future.result(0).text == "LAST"
