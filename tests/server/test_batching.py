"""The worker answers every text with its own translation, equal texts once, and refuses what would be late."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from regard.server import batching
from regard.server.batching import BATCH_TEXTS, ROUND_TEXTS, Job, OverloadedError, SerialExecutor, Worker
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
    worker = Worker(slow, max_waiting=max_waiting, max_seconds=60, cache_size=9)
    worker.submit([Job("first", PLAIN)])
    slow.started.wait(10)
    return worker


def test_a_thousand_requests_from_many_threads_each_get_their_own_answer() -> None:
    slow = Slow()
    slow.open.set()
    worker = Worker(slow, max_waiting=5000, max_seconds=60, cache_size=10)
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
    worker = Worker(slow, max_waiting=9, max_seconds=60, cache_size=9)
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

    worker = Worker(fail, max_waiting=9, max_seconds=60, cache_size=9)
    assert isinstance(worker.submit([Job("bad", PLAIN)])[0].exception(10), ValueError)
    assert worker.submit([Job("good", PLAIN)])[0].result(10).text == "fine"


def test_closing_finishes_what_waits() -> None:
    slow = Slow()
    worker = busy(slow)
    future = worker.submit([Job("last", PLAIN)])[0]
    slow.open.set()
    worker.close()
    assert future.result(0).text == "LAST"


class Clock:
    """A time that passes only while texts are computed: `seconds` for each text. A batch begins when it is allowed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        self.now, self.seconds = 1.0, seconds
        self.batches: list[list[str]] = []
        self.started, self.allowed = threading.Semaphore(0), threading.Semaphore(0)
        monkeypatch.setattr(batching, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.worker = Worker(self.compute, max_waiting=512, max_seconds=60, cache_size=0)

    def compute(self, texts: Sequence[str], options: TranslateOptions) -> list[Result]:
        self.batches.append(list(texts))
        self.started.release()
        self.allowed.acquire(timeout=10)
        self.now += self.seconds * len(texts)
        return [Result(text.upper()) for text in texts]

    def finish_batch(self) -> None:
        """Let the batch that has begun end, and wait until the next one has begun."""
        self.allowed.release()
        self.started.acquire(timeout=10)

    def finish(self) -> None:
        self.allowed.release(1000)
        self.worker.close()


def jobs(name: str, number: int) -> list[Job]:
    return [Job(f"{name} {n}", PLAIN) for n in range(number)]


@pytest.fixture
def slow_clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A worker that needs 0.25 s for a text, has computed a full batch, and is computing another one of 64 texts."""
    clock = Clock(monkeypatch, 0.25)
    clock.worker.submit(jobs("first", 1))
    clock.started.acquire(timeout=10)
    clock.worker.submit(jobs("second", 2 * BATCH_TEXTS))
    clock.finish_batch()
    clock.finish_batch()
    return clock


def test_a_cold_server_accepts_all_that_its_queue_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 1.0)
    futures = clock.worker.submit(jobs("first", 256)) + clock.worker.submit(jobs("second", 250))
    clock.finish()
    assert all(future.done() for future in futures)


def test_what_cannot_be_answered_in_time_is_refused_and_what_can_is_accepted(slow_clock: Clock) -> None:
    accepted = slow_clock.worker.submit(jobs("third", 50))  # 16 s of work ahead, counted twice, and 12.5 s
    with pytest.raises(OverloadedError, match="take 28 s: try again in 4 s") as refused:
        slow_clock.worker.submit(jobs("fourth", 44))  # 28.5 s of work ahead, counted twice, and 11 s: 8 s too much
    assert refused.value.retry_after == 4
    slow_clock.finish()
    assert [future.result(0).text for future in accepted[:2]] == ["THIRD 0", "THIRD 1"]


def test_texts_without_work_ahead_are_accepted_however_long_they_take(slow_clock: Clock) -> None:
    slow_clock.allowed.release(100)
    while slow_clock.worker.running:
        pass
    futures = slow_clock.worker.submit(jobs("many", 256))
    slow_clock.finish()
    assert futures[0].result(0).text == "MANY 0"


def test_texts_that_are_late_because_the_machine_became_slower_are_refused(slow_clock: Clock) -> None:
    futures = slow_clock.worker.submit(jobs("third", 100))
    slow_clock.seconds = 0.6  # 38 s for the batch that runs, and 60 s for these texts
    slow_clock.finish()
    errors = [future.exception(0) for future in futures]
    assert {type(error) for error in errors} == {type(None), OverloadedError}
    assert isinstance(errors[-1], OverloadedError)


def test_small_batches_do_not_make_the_rate_lower(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 30.0)
    clock.allowed.release(5)
    for number in range(5):
        clock.worker.submit(jobs(f"single {number}", 1))[0].result(10)
    clock.worker.submit(jobs("running", 1))
    futures = clock.worker.submit(jobs("many", 200))
    clock.finish()
    assert len(futures) == 200


def test_no_text_is_overtaken_by_more_than_a_round_of_newer_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 0.01)
    clock.worker.submit(jobs("first", 1))
    clock.started.acquire(timeout=10)
    clock.worker.submit([Job("long " * 50, PLAIN)])
    for number in range(8):
        clock.worker.submit(jobs(f"short {number}", BATCH_TEXTS // 2))
        clock.worker.submit(jobs(f"more {number}", BATCH_TEXTS // 2))
        clock.finish_batch()
    clock.finish()
    place = next(place for place, batch in enumerate(clock.batches) if "long " * 50 in batch)
    assert sum(map(len, clock.batches[:place])) <= ROUND_TEXTS


def test_functions_of_an_executor_are_refused_if_those_ahead_take_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(batching, "time", clock)
    started, end = threading.Event(), threading.Event()

    def long() -> None:
        started.set()
        end.wait(10)

    def measured() -> None:
        clock.now += 10.0

    executor = SerialExecutor(max_waiting=9, max_seconds=60)
    executor.submit(measured, 100).result(10)  # 10 tokens/s
    executor.submit(long, 200)
    started.wait(10)
    accepted = executor.submit(measured, 4000)  # 20 s of work ahead, counted twice
    with pytest.raises(OverloadedError) as refused:
        executor.submit(measured, 1)
    assert refused.value.retry_after == 390  # when half of the time is left: 420 s ahead
    end.set()
    executor.close()
    assert accepted.result(0) is None
