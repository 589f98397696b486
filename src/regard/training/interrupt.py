"""SIGTERM and Ctrl-C during training: the run stops after the update, with a checkpoint."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class StopSignal:
    """The signal that asked to stop, SIGTERM or SIGINT (Ctrl-C); 0 if none did."""

    def __init__(self) -> None:
        self.signal = 0
        self._raises = False

    def receive(self, number: int, frame: object) -> None:
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


@contextmanager
def stop_signal() -> Iterator[StopSignal]:
    """Handle SIGTERM and Ctrl-C for the duration of the context."""
    stop = StopSignal()
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        yield stop
        return
    before = {number: signal.signal(number, stop.receive) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
