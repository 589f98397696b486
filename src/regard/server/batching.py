"""Batching: threads that run models. `Worker` batches waiting texts, `SerialExecutor` runs one function at a time.

Both refuse work that cannot be done within its time limit, judged by the rate of their recent work.
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, NamedTuple, TypeVar

from regard.errors import RunError

Answer = TypeVar("Answer")

GATHER_SECONDS = 0.005  # a batch starts when no text has arrived for this long,
GATHER_SHARE = 0.05  # or for this share of the time of the previous batch, whose clients send their next texts,
MAX_GATHER_SECONDS = 0.1  # or at the latest this long after the previous batch
BATCH_TEXTS = 64
BATCH_CHARACTERS = 8192
TEXT_CHARACTERS = BATCH_CHARACTERS // BATCH_TEXTS  # a shorter text counts as this many: it has its place in a batch too
ROUND_TEXTS = 4 * BATCH_TEXTS
FADING = 0.7  # the weight of a batch in the rate, relative to the batch after it


class OverloadedError(RunError):
    """Too much work is waiting; there should be room after `retry_after` seconds."""

    def __init__(self, message: str, seconds: float = 0.0) -> None:
        self.retry_after = max(1, math.ceil(seconds))
        super().__init__(f"{message}: try again in {self.retry_after} s")


class Pace:
    """The rate of a worker over its recent batches. Work is measured in characters or tokens."""

    def __init__(self) -> None:
        self.work = self.time = 0.0  # sums over the recent batches

    def record(self, work: float, seconds: float, *, full: bool) -> None:
        """Count a batch. One that was not full counts only if it was faster: a full batch has the highest rate."""
        if full or work * self.time > self.work * seconds:
            self.work, self.time = FADING * self.work + work, FADING * self.time + seconds

    def seconds(self, work: float) -> float:
        """The time that work will take; 0 while the rate is unknown."""
        return work * self.time / self.work if self.work else 0.0

    def admit(self, ahead: float, work: float, limit: float) -> None:
        """Raise OverloadedError if `work` is not expected to be done in `limit` seconds, as other work is ahead of it.

        The work ahead counts twice: shorter texts can overtake, and the machine can become slower. Without work ahead
        nothing is refused, as the same request would not be faster later.
        """
        late = self.seconds(2 * ahead + work) - limit
        if ahead and late > 0:
            waiting = self.seconds(ahead)
            raise OverloadedError(f"the waiting requests take {waiting:.0f} s", min(late / 2, waiting))


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


class Pending(NamedTuple, Generic[Answer]):
    """The futures of a text that waits or is being computed, and the time at which it arrived."""

    futures: list[Future[Answer]]
    arrived: float


class Worker(Generic[Answer]):
    """Computes texts in a thread of its own, in batches and with a cache; equal waiting texts are computed once.

    At most `max_waiting` texts wait, and only texts that should be answered within `max_seconds`.
    """

    def __init__(
        self,
        compute: Callable[[Sequence[str], Any], Sequence[Answer]],
        *,
        max_waiting: int,
        max_seconds: float,
        cache_size: int,
    ) -> None:
        self.compute, self.cache_size = compute, cache_size
        self.max_waiting, self.max_seconds = max_waiting, max_seconds
        self.changed = threading.Condition()
        self.waiting: OrderedDict[Job, Pending[Answer]] = OrderedDict()
        self.running: dict[Job, Pending[Answer]] = {}
        self.round = 0.0  # the time at which the newest text of the current round arrived
        self.pace = Pace()
        self.cache: OrderedDict[Job, Answer] = OrderedDict()
        self.statistics = Statistics()
        self.several = False  # whether the last batch had several texts; if not, the next text need not wait for others
        self.full = False  # whether the last batch left texts waiting
        self.seconds = 0.0  # that the last batch took
        self.closed = False
        self.thread = threading.Thread(target=self._run, daemon=True, name="model")
        self.thread.start()

    def submit(self, jobs: Sequence[Job]) -> list[Future[Answer]]:
        """Queue all texts and return their futures, or raise OverloadedError. Cancel a future to withdraw its text."""
        with self.changed:
            if self.closed:
                raise OverloadedError("the server is stopping")
            new = {job for job in jobs if job not in self.cache and not self._pending(job)}
            if new:
                work = _work(new)
                if len(self.waiting) + len(new) > self.max_waiting:
                    raise OverloadedError(
                        f"too many texts are waiting ({len(self.waiting)} of {self.max_waiting})",
                        self.pace.seconds(work),
                    )
                self.pace.admit(_work(self.running) + _work(self.waiting), work, self.max_seconds)
                self.changed.notify()
            now = time.monotonic()
            return [self._add(job, now) for job in jobs]

    def close(self) -> None:
        """Refuse new texts, finish the waiting ones, and end the thread."""
        with self.changed:
            self.closed = True
            self.changed.notify()
        self.thread.join()

    def _pending(self, job: Job) -> Pending[Answer] | None:
        return self.waiting.get(job) or self.running.get(job)

    def _add(self, job: Job, now: float) -> Future[Answer]:
        future: Future[Answer] = Future()
        if job in self.cache:
            self.cache.move_to_end(job)
            self.statistics = self.statistics._replace(cached=self.statistics.cached + 1)
            future.set_result(self.cache[job])
        elif (pending := self._pending(job)) is not None:
            pending.futures.append(future)
        else:
            self.waiting[job] = Pending([future], now)
        future.add_done_callback(lambda done: self._withdraw(job, done) if done.cancelled() else None)
        return future

    def _withdraw(self, job: Job, future: Future[Answer]) -> None:
        """Remove a cancelled text from the queue, unless another request waits for it."""
        with self.changed:
            pending = self.waiting.get(job)
            if pending is not None and future in pending.futures:
                pending.futures.remove(future)
                if not pending.futures:
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
                if not isinstance(answers[0], Exception):
                    self.pace.record(_work(batch), self.seconds, full=self.full)
                computed = [self.running.pop(job) for job in batch]
                for job, answer in zip(batch, answers, strict=True):
                    if job.cached and not isinstance(answer, Exception):
                        self.cache[job] = answer
                while len(self.cache) > self.cache_size:
                    self.cache.popitem(last=False)
            for pending, answer in zip(computed, answers, strict=True):
                _answer(pending.futures, answer)

    def _next_batch(self) -> list[Job]:
        """The next texts that have the same options; empty when the worker is closed."""
        with self.changed:
            while not self.waiting and not self.closed:
                self.changed.wait()
            deadline = time.monotonic() + (MAX_GATHER_SECONDS if self.several else 0)
            pause = max(GATHER_SECONDS, GATHER_SHARE * self.seconds)
            while len(self.waiting) < BATCH_TEXTS and not self.closed and time.monotonic() < deadline:
                if not self.changed.wait(pause):  # no text arrived
                    break
            self._refuse_late()
            if not self.waiting:  # all were withdrawn or refused
                return [] if self.closed else self._next_batch()
            first, *others = self._ordered()
            batch, characters = [first], len(first.text)
            for job in [job for job in others if job.options == first.options][: BATCH_TEXTS - 1]:
                characters += len(job.text)
                if characters > BATCH_CHARACTERS:
                    break
                batch.append(job)
            for job in batch:
                self.running[job] = self.waiting.pop(job)
            self.several, self.full = len(batch) > 1, bool(self.waiting)
            return batch

    def _ordered(self) -> list[Job]:
        """The waiting texts in the order in which they are computed: in rounds, and in a round the shortest first.

        A round has the oldest texts, which newer ones do not overtake; its batches have texts of similar length.
        """
        jobs = list(self.waiting)
        if self.waiting[jobs[0]].arrived > self.round:  # the round has ended
            self.round = self.waiting[jobs[:ROUND_TEXTS][-1]].arrived
        size = sum(pending.arrived <= self.round for pending in self.waiting.values())
        return sorted(jobs[:size], key=lambda job: len(job.text)) + jobs[size:]

    def _refuse_late(self) -> None:
        """Refuse texts that have waited for half of their time and will be late, as when the machine became slower."""
        now = time.monotonic()
        if not self.waiting or now - next(iter(self.waiting.values())).arrived < self.max_seconds / 2:
            return
        work, most = 0, _work(self.waiting)
        for job in self._ordered():
            waited = now - self.waiting[job].arrived
            expected = self.pace.seconds(min(work + BATCH_CHARACTERS, most))  # a text is answered with its batch
            if waited > self.max_seconds / 2 and waited + expected > self.max_seconds:
                error = OverloadedError("the server has become slower", self.pace.seconds(work))
                _answer(self.waiting.pop(job).futures, error)
            else:
                work += _work([job])


def _work(jobs: Iterable[Job]) -> int:
    """The characters of texts, each with at least its place in a batch."""
    return sum(max(len(job.text), TEXT_CHARACTERS) for job in jobs)


def _answer(futures: Iterable[Future[Answer]], answer: Answer | Exception) -> None:
    for future in futures:
        if future.set_running_or_notify_cancel():  # not cancelled
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)


class SerialExecutor:
    """Runs functions one after the other in one thread; at most `max_waiting` wait, and each at most `max_seconds`."""

    def __init__(self, *, max_waiting: int, max_seconds: float) -> None:
        self.max_waiting, self.max_seconds = max_waiting, max_seconds
        self.lock = threading.RLock()
        self.work: dict[Future[Any], float] = {}  # of the functions that wait or run
        self.pace = Pace()
        self.executor = ThreadPoolExecutor(1, "model")

    def submit(self, run: Callable[[], Answer], work: float) -> Future[Answer]:
        """Queue a function and return its future, or raise OverloadedError. Cancel the future to withdraw it.

        work: its length, in tokens.
        """

        def timed() -> Answer:
            start = time.monotonic()
            answer = run()
            with self.lock:
                self.pace.record(work, time.monotonic() - start, full=True)
            return answer

        with self.lock:
            if len(self.work) > self.max_waiting:
                raise OverloadedError(f"too many requests are waiting ({self.max_waiting})", self.pace.seconds(work))
            self.pace.admit(sum(self.work.values()), 0, self.max_seconds)
            try:
                future = self.executor.submit(timed)
            except RuntimeError:
                raise OverloadedError("the server is stopping") from None
            self.work[future] = work
        future.add_done_callback(self._forget)
        return future

    def close(self) -> None:
        """Refuse new functions, finish the waiting ones, and end the thread."""
        self.executor.shutdown()

    def _forget(self, future: Future[Any]) -> None:
        with self.lock:
            del self.work[future]
