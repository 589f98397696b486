"""SIGTERM and Ctrl-C during training: the run stops after the update, with a checkpoint."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class StopSignal:
    """A context that handles SIGTERM and SIGINT (Ctrl-C); `signal` is the one that asked to stop, or 0."""

    def __init__(self) -> None:
        self.signal = 0
        self._raises = False

    def __enter__(self) -> StopSignal:
        can_handle = threading.current_thread() is threading.main_thread()  # only the main thread may set handlers
        numbers = (signal.SIGTERM, signal.SIGINT) if can_handle else ()
        self._before = {number: signal.signal(number, self._receive) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: object) -> None:
        """Store the first signal; the same signal again raises KeyboardInterrupt.

        Another one is ignored: Ctrl-C reaches torchrun too, which then ends its processes with SIGTERM.
        """
        repeated = number == self.signal
        self.signal = self.signal or number
        if repeated or self._raises:
            raise KeyboardInterrupt

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """A context in which a signal, even one received before, raises KeyboardInterrupt."""
        self._raises = True
        try:
            if self.signal:
                raise KeyboardInterrupt
            yield
        finally:
            self._raises = False
