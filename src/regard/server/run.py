"""Run the app with uvicorn, in one process or several, and close connections whose requests arrive too slowly."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from regard.devices import use_threads
from regard.errors import ConfigError
from regard.server.app import serve
from regard.server.served import LOG, check_arguments

LOAD_SECONDS = 300  # that a new process has to load the models; after SIGHUP the old one is kept if it takes longer
HEADER_SECONDS = 10.0  # from the first byte of a request, or from the connection, to the end of its headers
KEEP_ALIVE_SECONDS = (
    75  # of silence after an answer; a load balancer keeps connections for 60 and must close them first
)
SETTINGS = "REGARD_SERVE"  # the environment variable that carries the options to worker processes


def run(*, host: str, port: int, workers: int, grace: int, say: Callable[[str], None], **options: Any) -> None:
    """Serve until SIGTERM or Ctrl-C; `options` are those of `make_app`."""
    try:
        family, *_, address = socket.getaddrinfo(host, port)[0]
        socket.create_server(address[:2], family=family).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(f"cannot listen on {host}:{port}: {error}") from None
    if options["keys"] is None and not ip_address(address[0]).is_loopback:
        say(f"anyone who can reach {host}:{port} can use the models; --keys FILE makes an API key necessary")
    app: FastAPI | str = "regard.server.run:app_from_environment"
    if workers == 1:
        app = make_app(**options)
        models = app.state.service.models
        for message in models.failed.values():
            say(f"regard: not served: {message}")
        say(f"serving {', '.join(model.name for model in models.served)} at http://{host}:{port} (Ctrl-C stops)")
    else:
        check_arguments(options["folders"])  # uvicorn starts a process again and again if it fails
        os.environ[SETTINGS] = json.dumps(options)
        say(
            f"{workers} processes load {', '.join(options['folders'])} and serve at http://{host}:{port} (Ctrl-C stops)"
        )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)  # uvicorn stops by itself, and raises the signal again at its end
    uvicorn.run(
        app,
        factory=workers > 1,
        workers=workers,
        host=host,
        port=port,
        http=TimedProtocol,
        log_level="warning",
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=grace,
        timeout_worker_healthcheck=LOAD_SECONDS,
        ws="none",
    )


def make_app(*, folders: list[str], threads: int | None, quiet: bool, **options: Any) -> FastAPI:
    """Make the app, with its log on stderr."""
    use_threads(threads)
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    LOG.addHandler(handler)
    LOG.setLevel(logging.WARNING if quiet else logging.INFO)
    return serve(*folders, **options)


def app_from_environment() -> FastAPI:
    """Make the app in a worker process, from the options in the environment."""
    return make_app(**json.loads(os.environ[SETTINGS]))


class TimedProtocol(H11Protocol):
    """HTTP/1.1 with a time limit for request headers, which uvicorn itself does not have."""

    header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.header_timer = self.loop.call_later(HEADER_SECONDS, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.header_timer is None and self.cycle is not None and self.cycle.response_complete:  # the next request
            self.header_timer = self.loop.call_later(HEADER_SECONDS, self.transport.close)
        super().data_received(data)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:  # the headers are complete; the app limits the time of the body
            self._stop_timer()

    def _stop_timer(self) -> None:
        if self.header_timer is not None:
            self.header_timer.cancel()
            self.header_timer = None
