"""The ASGI application: all routes over the served models, with limits, security headers, metrics and a log."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import PlainTextResponse

from regard import __version__
from regard.errors import RegardError
from regard.server import generating, pages, translating
from regard.server.batching import OverloadedError
from regard.server.requests import App, ErrorResponse, Receive, Scope, Send, error_response
from regard.server.service import Service

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}


def serve(
    *folders: str | Path,
    device: str = "auto",
    engine: str = "auto",
    precision: str = "auto",
    keys: str | Path | None = None,
    allow_origins: Sequence[str] = (),
    log_texts: bool = False,
) -> FastAPI:
    """The ASGI app that serves model folders, each given as FOLDER or as NAME=FOLDER, such as en-fr=FOLDER.

    engine, precision: of the translators, as in `regard translate`.
    keys: a file of API keys (regard serve --new-key); without it no key is needed.
    allow_origins: web origins whose pages may call the API (CORS).
    log_texts: log the texts of requests.
    """
    service = Service(
        [str(folder) for folder in folders],
        device=device,
        engine=engine,
        precision=precision,
        keys=Path(keys) if keys else None,
        log_texts=log_texts,
    )

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        reloads = set[asyncio.Task[None]]()  # the loop itself keeps only weak references
        if hasattr(signal, "SIGHUP") and threading.current_thread() is threading.main_thread():
            loop.add_signal_handler(signal.SIGHUP, lambda: reloads.add(loop.create_task(service.reload())))
        yield
        await asyncio.to_thread(service.close)

    app = FastAPI(title="Regard", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.service = service
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, lambda request, error: error_response(request, 400, str(error)))
    app.add_exception_handler(RegardError, lambda request, error: error_response(request, 400, str(error)))
    app.add_exception_handler(OverloadedError, _overloaded)
    app.add_exception_handler(Exception, lambda request, error: error_response(request, 500, "internal error"))
    translating.add_routes(app, service)
    generating.add_routes(app, service)
    pages.add_routes(app)
    stopping: dict[int | str, dict[str, Any]] = {503: {"model": ErrorResponse}}
    app.get("/health", name="health", description=_health.__doc__)(partial(_health, service))
    app.get("/health/live", name="live", description=_live.__doc__)(_live)
    app.get("/health/ready", name="ready", description=_ready.__doc__, responses=stopping)(partial(_ready, service))
    app.get("/metrics", name="metrics", description=_metrics.__doc__, response_class=PlainTextResponse)(
        partial(_metrics, service)
    )
    app.add_middleware(_LogAndHeaders, service=service)
    if allow_origins:
        app.add_middleware(CORSMiddleware, allow_origins=list(allow_origins), allow_methods=["*"], allow_headers=["*"])
    return app


async def _health(service: Service) -> dict[str, Any]:
    """Whether requests are accepted, the names of the models, and the folders that could not be loaded."""
    return {
        "status": "ok",
        "ready": not service.stopping,
        "models": [model.name for model in service.models.served],
        "failed": sorted(service.models.failed),
    }


async def _live() -> dict[str, str]:
    """Always ok: the process is running."""
    return {"status": "ok"}


async def _ready(service: Service) -> dict[str, str]:
    """Whether requests are accepted."""
    if service.stopping:
        raise HTTPException(503, "the server is stopping")
    return {"status": "ok"}


async def _metrics(service: Service) -> Response:
    """Metrics in the format of Prometheus."""
    return PlainTextResponse(generate_latest(service.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


def _overloaded(request: Request, error: Exception) -> Response:
    assert isinstance(error, OverloadedError)
    return error_response(request, 429, str(error), {"Retry-After": str(error.retry_after)})


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return error_response(request, error.status_code, error.detail, dict(error.headers or {}))


class _LogAndHeaders:
    """Middleware that adds security headers to every response, and counts and logs requests."""

    def __init__(self, app: App, service: Service) -> None:
        self.app, self.service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        start, status = time.perf_counter(), 500

        async def send_with_headers(message: Scope) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                present = {name for name, _ in message["headers"]}  # the page has its own policy
                added = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] += [(name, value) for name, value in added if name not in present]
            await send(message)

        try:
            await self.app(scope, receive, send_with_headers)
        finally:
            route = scope.get("route")  # unknown paths are counted together
            path = getattr(route, "path", "unknown")
            self.service.record(scope["method"], path, status, start, scope.get("state", {}).get("texts", ()))
