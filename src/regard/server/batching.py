"""Batching: threads that run models. `Worker` batches waiting texts, `SerialExecutor` runs one function at a time."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, NamedTuple, TypeVar

from regard.errors import RunError

Answer = TypeVar("Answer")

GATHER_SECONDS = 0.005  # a batch starts when no text has arrived for this long,
GATHER_SHARE = 0.05  # or for this share of the time of the previous batch, whose clients send their next texts,
MAX_GATHER_SECONDS = 0.1  # or at the latest this long after the previous batch
BATCH_TEXTS = 64
BATCH_CHARACTERS = 8192


class OverloadedError(RunError):
    """Too many texts are waiting."""


class Job(NamedTuple):
    """A text with its options. Equal jobs have equal answers; jobs with equal options can share a batch."""

    text: str
    options: Any
    """Any hashable value."""
    cached: bool = True
    """Whether the answer is kept for the next equal job; answers with traces are large."""


class Statistics(NamedTuple):
    """Counts of a worker since its start."""

    texts: int = 0
    """Texts that the model computed."""
    batches: int = 0
    cached: int = 0
    """Texts that were answered from the cache."""


class Worker(Generic[Answer]):
    """Computes texts in a thread of its own, in batches and with a cache; equal waiting texts are computed once."""

    def __init__(
        self, compute: Callable[[Sequence[str], Any], Sequence[Answer]], *, max_waiting: int, cache_size: int
    ) -> None:
        self.compute, self.max_waiting, self.cache_size = compute, max_waiting, cache_size
        self.changed = threading.Condition()
        self.waiting: OrderedDict[Job, list[Future[Answer]]] = OrderedDict()
        self.running: dict[Job, list[Future[Answer]]] = {}
        self.cache: OrderedDict[Job, Answer] = OrderedDict()
        self.statistics = Statistics()
        self.several = False  # whether the last batch had several texts; if not, the next text need not wait for others
        self.seconds = 0.0  # that the last batch took
        self.closed = False
        self.thread = threading.Thread(target=self._run, daemon=True, name="model")
        self.thread.start()

    def submit(self, jobs: Sequence[Job]) -> list[Future[Answer]]:
        """Queue all texts and return their futures, or raise OverloadedError. Cancel a future to withdraw its text."""
        with self.changed:
            if self.closed:
                raise OverloadedError("the server is stopping")
            new = {job for job in jobs if job not in self.cache and not self._waiters(job)}
            if len(self.waiting) + len(new) > self.max_waiting:
                raise OverloadedError(
                    f"too many texts are waiting ({len(self.waiting)} of {self.max_waiting}): try again later"
                )
            futures = [self._add(job) for job in jobs]
            if new:
                self.changed.notify()
        return futures

    def close(self) -> None:
        """Refuse new texts, finish the waiting ones, and end the thread."""
        with self.changed:
            self.closed = True
            self.changed.notify()
        self.thread.join()

    def _waiters(self, job: Job) -> list[Future[Answer]] | None:
        return self.waiting.get(job) or self.running.get(job)

    def _add(self, job: Job) -> Future[Answer]:
        future: Future[Answer] = Future()
        if job in self.cache:
            self.cache.move_to_end(job)
            self.statistics = self.statistics._replace(cached=self.statistics.cached + 1)
            future.set_result(self.cache[job])
        elif (waiters := self._waiters(job)) is not None:
            waiters.append(future)
        else:
            self.waiting[job] = [future]
        future.add_done_callback(lambda done: self._withdraw(job, done) if done.cancelled() else None)
        return future

    def _withdraw(self, job: Job, future: Future[Answer]) -> None:
        """Remove a cancelled text from the queue, unless another request waits for it."""
        with self.changed:
            waiters = self.waiting.get(job, [])
            if future in waiters:
                waiters.remove(future)
                if not waiters:
                    del self.waiting[job]

    def _run(self) -> None:
        while batch := self._next_batch():
            start = time.monotonic()
            try:
                results = self.compute([job.text for job in batch], batch[0].options)
                answers: list[Answer | Exception] = list(results)
            except Exception as error:  # the thread must survive a text that cannot be computed
                answers = [error] * len(batch)
            self.seconds = time.monotonic() - start
            with self.changed:
                texts, batches, _ = self.statistics
                self.statistics = self.statistics._replace(texts=texts + len(batch), batches=batches + 1)
                waiters = [self.running.pop(job) for job in batch]
                for job, answer in zip(batch, answers, strict=True):
                    if job.cached and not isinstance(answer, Exception):
                        self.cache[job] = answer
                while len(self.cache) > self.cache_size:
                    self.cache.popitem(last=False)
            for futures, answer in zip(waiters, answers, strict=True):
                for future in futures:
                    if future.set_running_or_notify_cancel():
                        _answer(future, answer)

    def _next_batch(self) -> list[Job]:
        """The oldest text and others of similar length with the same options; empty when the worker is closed."""
        with self.changed:
            while not self.waiting and not self.closed:
                self.changed.wait()
            deadline = time.monotonic() + (MAX_GATHER_SECONDS if self.several else 0)
            pause = max(GATHER_SECONDS, GATHER_SHARE * self.seconds)
            while len(self.waiting) < BATCH_TEXTS and not self.closed and time.monotonic() < deadline:
                if not self.changed.wait(pause):  # no text arrived
                    break
            if not self.waiting:  # all were withdrawn
                return [] if self.closed else self._next_batch()
            first = next(iter(self.waiting))
            others = [job for job in self.waiting if job.options == first.options and job is not first]
            others.sort(key=lambda job: abs(len(job.text) - len(first.text)))
            batch, characters = [first], len(first.text)
            for job in others[: BATCH_TEXTS - 1]:
                characters += len(job.text)
                if characters > BATCH_CHARACTERS:
                    break
                batch.append(job)
            for job in batch:
                self.running[job] = self.waiting.pop(job)
            self.several = len(batch) > 1
            return batch


def _answer(future: Future[Answer], answer: Answer | Exception) -> None:
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)


class SerialExecutor:
    """Runs functions one after the other in one thread; at most `max_waiting` functions wait."""

    def __init__(self, *, max_waiting: int) -> None:
        self.max_waiting = max_waiting
        self.slots = threading.BoundedSemaphore(max_waiting + 1)
        self.executor = ThreadPoolExecutor(1, "model")

    def submit(self, run: Callable[[], Answer]) -> Future[Answer]:
        """Queue a function and return its future, or raise OverloadedError. Cancel the future to withdraw it."""
        if not self.slots.acquire(blocking=False):
            raise OverloadedError(f"too many requests are waiting ({self.max_waiting}): try again later")
        try:
            future = self.executor.submit(run)
        except RuntimeError:
            self.slots.release()
            raise OverloadedError("the server is stopping") from None
        future.add_done_callback(lambda _: self.slots.release())
        return future

    def close(self) -> None:
        """Refuse new functions, finish the waiting ones, and end the thread."""
        self.executor.shutdown()
