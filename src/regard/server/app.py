"""The ASGI application: LibreTranslate's contract over batching workers, with limits on every request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qsl

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException

from regard import __version__
from regard.errors import RequestError
from regard.server.batching import Job, JobOptions, OverloadedError
from regard.server.served import Models
from regard.translation.translator import Result

MAX_BODY = 1 << 20  # bytes
MAX_CHARACTERS = 20_000  # of all texts of a request
MAX_TEXTS = 256
MAX_ALTERNATIVES = 9
MAX_SECONDS = 60.0
BODY_SECONDS = 10.0  # for a client to send its request
CLOSED_REQUEST = 499  # the client has gone; nobody reads the answer
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}

Text = Annotated[str, Field(max_length=MAX_CHARACTERS)]
Body = TypeVar("Body", bound=BaseModel)
Scope = MutableMapping[str, Any]
Send = Callable[[Scope], Awaitable[None]]
Receive = Callable[[], Awaitable[Scope]]


class Translation(BaseModel):
    """A request to translate a text or a list of texts."""

    q: Text | Annotated[list[Text], Field(max_length=MAX_TEXTS)]
    source: str = "auto"
    target: str
    format: Literal["text"] = "text"
    alternatives: Annotated[int, Field(ge=0, le=MAX_ALTERNATIVES)] = 0
    add: list[Literal["confidence", "warnings", "alignment"]] = []
    """Fields to add to the answer."""
    glossary: Annotated[dict[str, str], Field(max_length=1000)] = {}
    """Source terms and their translations; they are plain words, not patterns."""


class Detection(BaseModel):
    """A request to detect the language of a text."""

    q: Text


class ErrorAnswer(BaseModel):
    """An error."""

    error: str


def serve(*folders: str | Path, device: str = "auto") -> FastAPI:
    """The ASGI app that serves model folders; a folder is FOLDER, or en-fr=FOLDER if its card names no languages."""
    models = Models.load([str(folder) for folder in folders], device)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(models.close)

    app = FastAPI(title="Regard", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.models = models
    app.add_middleware(_Headers)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, lambda _, error: _error(400, str(error)))
    app.add_exception_handler(RequestError, lambda _, error: _error(400, str(error)))
    app.add_exception_handler(OverloadedError, lambda _, error: _error(429, str(error), {"Retry-After": "1"}))
    problems: dict[int | str, dict[str, Any]] = {
        code: {"model": ErrorAnswer} for code in (400, 408, 413, 429, CLOSED_REQUEST, 503)
    }
    for path, method, route, body in (
        ("/health", "GET", _health, None),
        ("/languages", "GET", _languages, None),
        ("/detect", "POST", _detect, Detection),
        ("/translate", "POST", _translate, Translation),
    ):
        app.add_api_route(
            path,
            partial(route, models),
            methods=[method],
            name=path.strip("/"),
            description=route.__doc__,
            responses=problems if body else None,
            openapi_extra=_body_schema(body) if body else None,
        )
    app.get("/frontend/settings", name="settings")(_settings)
    return app


# Routes.


async def _health(models: Models) -> dict[str, Any]:
    """Whether the server is ready, and the folders that could not be loaded."""
    return {"status": "ok", "failed": sorted(models.failed)}


async def _languages(models: Models) -> list[dict[str, Any]]:
    """The source languages, each with its target languages."""
    targets: dict[str, list[str]] = {}
    for model in models.served:
        targets.setdefault(model.source, []).append(model.target)
    return [{"code": code, "name": code, "targets": found} for code, found in targets.items()]


async def _settings() -> dict[str, Any]:
    """The limits of the server."""
    return {
        "apiKeys": False,
        "keyRequired": False,
        "charLimit": MAX_CHARACTERS,
        "frontendTimeout": 500,
        "suggestions": False,
        "supportedFilesFormat": [],
    }


async def _detect(models: Models, request: Request) -> list[dict[str, Any]]:
    """The served languages, the most probable first."""
    body = await _read(request, Detection)
    return models.detect(body.q)


async def _translate(models: Models, request: Request) -> dict[str, Any]:
    """Translate a text, or each text of a list."""
    body = await _read(request, Translation)
    texts = [body.q] if isinstance(body.q, str) else body.q
    if sum(map(len, texts)) > MAX_CHARACTERS:
        raise HTTPException(413, f"the texts have more than {MAX_CHARACTERS:,} characters: send them in parts")
    options = JobOptions(body.alternatives, "alignment" in body.add, tuple(sorted(body.glossary.items())))
    detected = models.detect("\n".join(texts))[0] if body.source == "auto" else None
    model = models.find(detected["language"] if detected else body.source, body.target)
    futures = model.worker.submit([Job(text, options) for text in texts])
    try:
        results = await _unless_gone(request, asyncio.gather(*map(asyncio.wrap_future, futures)))
    finally:
        for future in futures:
            future.cancel()
    columns: dict[str, list[Any]] = {"translatedText": [result.text for result in results]}
    if body.alternatives:
        columns["alternatives"] = [[other.text for other in result.alternatives] for result in results]
    for name in body.add:
        columns[name] = [_added(result, name) for result in results]
    single = isinstance(body.q, str)
    answer: dict[str, Any] = {name: values[0] if single else values for name, values in columns.items()}
    return answer | ({"detectedLanguage": detected if single else [detected] * len(texts)} if detected else {})


def _added(result: Result, name: str) -> Any:
    return [warning._asdict() for warning in result.warnings] if name == "warnings" else getattr(result, name)


# Requests.


async def _read(request: Request, model: type[Body]) -> Body:
    """The body of a request, JSON or a form, within the limits of size and time."""
    data = b""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                data += chunk
                if len(data) > MAX_BODY:
                    raise HTTPException(413, f"the request has more than {MAX_BODY:,} bytes")
    except TimeoutError:
        raise HTTPException(408, f"the request did not arrive within {BODY_SECONDS:g} s") from None
    try:
        if "json" in request.headers.get("content-type", "json"):
            return model.model_validate_json(data)
        fields: dict[str, Any] = dict(parse_qsl(data.decode(), keep_blank_values=True))
        for name in {"add", "glossary"} & set(fields):
            fields[name] = json.loads(fields[name])
        return model.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise HTTPException(400, f"{where}: {first['msg']}" if where else first["msg"]) from None
    except ValueError:  # not UTF-8, or not JSON in a field
        raise HTTPException(400, "the request is neither JSON nor a form in UTF-8") from None


async def _unless_gone(request: Request, work: asyncio.Future[list[Result]]) -> list[Result]:
    """The results, unless the client goes away or the time is up; then the work is cancelled."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    watch = asyncio.ensure_future(gone())
    try:
        both: set[asyncio.Future[Any]] = {work, watch}
        done, _ = await asyncio.wait(both, timeout=MAX_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    finally:
        watch.cancel()
    if work in done:
        return work.result()
    work.cancel()
    if done:
        raise HTTPException(CLOSED_REQUEST, "the client has gone")
    raise HTTPException(503, f"the translation took longer than {MAX_SECONDS:g} s", {"Retry-After": "1"})


def _body_schema(model: type[BaseModel]) -> dict[str, Any]:
    schema = {"schema": model.model_json_schema()}
    content = {"application/json": schema, "application/x-www-form-urlencoded": schema}
    return {"requestBody": {"required": True, "content": content}}


# Answers.


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": message}, status, headers)


def _http_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return _error(error.status_code, error.detail, dict(error.headers or {}))


class _Headers:
    """Adds the security headers to every answer."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Scope) -> None:
            if message["type"] == "http.response.start":
                message["headers"] += [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
            await send(message)

        await self.app(scope, receive, send_with_headers)
