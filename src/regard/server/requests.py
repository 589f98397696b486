"""Requests: read bodies within limits, check API keys, wait for results, and make error responses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping, Sequence
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qsl

from fastapi import Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, ValidationError
from starlette._utils import get_route_path
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser

from regard.errors import plain_message
from regard.server.served import MAX_SECONDS
from regard.server.service import Service

MAX_BODY = 1 << 20  # bytes
MAX_FILE = 10 << 20  # bytes
MAX_CHARACTERS = 20_000  # of all texts of a request
MAX_TEXTS = 256
BODY_SECONDS = 10.0  # for a client to send its request
TYPE_ERRORS = {"string_type", "list_type"}  # of a field that may be a text or a list; its other error is clearer
CLOSED_REQUEST = 499  # the client has disconnected; nobody reads the response

Text = Annotated[str, Field(max_length=MAX_CHARACTERS)]
Texts = Text | Annotated[list[Text], Field(min_length=1, max_length=MAX_TEXTS)]
Body = TypeVar("Body", bound=BaseModel)
Value = TypeVar("Value")
Scope = MutableMapping[str, Any]
Send = Callable[[Scope], Awaitable[None]]
Receive = Callable[[], Awaitable[Scope]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class ErrorResponse(BaseModel):
    """An error message."""

    error: str


class OpenAIError(BaseModel):
    """An error of the routes under /v1."""

    error: dict[str, str | None]


async def read_body(service: Service, request: Request, model: type[Body]) -> Body:
    """Read the body of a request, JSON or a form, and check its API key."""
    data = await _read_bytes(request, MAX_BODY)
    try:
        if "json" in request.headers.get("content-type", "json") or data[:1] == b"{":  # curl -d '{...}' says form
            content = json.loads(data)
        else:
            content = dict(parse_qsl(data.decode(), keep_blank_values=True))
            for name in {"add", "glossary", "without"} & set(content):
                content[name] = json.loads(content[name])
    except (ValueError, RecursionError):  # not UTF-8, or not JSON
        raise HTTPException(400, "the request is neither JSON nor a form in UTF-8") from None
    if not isinstance(content, dict):
        raise HTTPException(400, "the request must be a JSON object")
    check_key(service, request, content.get("api_key"))
    try:
        return model.model_validate(content)
    except ValidationError as error:
        errors = error.errors()
        first = next((one for one in errors if one["type"] not in TYPE_ERRORS), errors[0])
        raise HTTPException(400, ": ".join(map(str, (*first["loc"][:1], plain_message(first["msg"]))))) from None


async def read_form(service: Service, request: Request) -> tuple[dict[str, str], dict[str, tuple[str, bytes]]]:
    """Read the fields and files of a multipart form, and check its API key."""
    data = await _read_bytes(request, MAX_FILE)

    async def stream() -> AsyncGenerator[bytes, None]:
        yield data

    try:
        form = await MultiPartParser(request.headers, stream(), max_files=1, max_fields=20).parse()
    except (MultiPartException, KeyError):
        raise HTTPException(400, "the request is not a multipart form") from None
    fields = {name: value for name, value in form.items() if isinstance(value, str)}
    uploads = {name: value for name, value in form.items() if isinstance(value, UploadFile)}
    files = {name: (upload.filename or "", await upload.read()) for name, upload in uploads.items()}
    await form.close()
    check_key(service, request, fields.get("api_key"))
    return fields, files


async def _read_bytes(request: Request, most: int) -> bytes:
    """Read a body of at most `most` bytes within BODY_SECONDS."""
    chunks, size = [], 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                chunks.append(chunk)
                size += len(chunk)
                if size > most:
                    raise HTTPException(413, f"the request has more than {most:,} bytes")
    except TimeoutError:
        raise HTTPException(408, f"the request did not arrive within {BODY_SECONDS:g} s") from None
    return b"".join(chunks)


def check_key(service: Service, request: Request, api_key: Any = None) -> None:
    """If keys are required, refuse a request without a valid one in `api_key` or `Authorization: Bearer`."""
    if service.keys is None:
        return
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    given = api_key if isinstance(api_key, str) else token if scheme.lower() == "bearer" else ""
    if not service.keys.is_valid(given):
        raise HTTPException(
            401, "a valid API key is needed: the field api_key, or the header Authorization: Bearer KEY"
        )


def check_characters(texts: Sequence[str]) -> None:
    """Refuse texts that together have more than MAX_CHARACTERS."""
    if sum(map(len, texts)) > MAX_CHARACTERS:
        raise HTTPException(
            413, f"the texts have more than {MAX_CHARACTERS:,} characters: send them in several requests"
        )


async def wait_for(request: Request, work: asyncio.Future[Value], seconds: float = MAX_SECONDS) -> Value:
    """The result of `work`; it is cancelled if the client disconnects or after `seconds`."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    watch = asyncio.ensure_future(gone())
    try:
        both: set[asyncio.Future[Any]] = {work, watch}
        done, _ = await asyncio.wait(both, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        watch.cancel()
    if work in done:
        return work.result()
    work.cancel()
    work.add_done_callback(lambda late: late.cancelled() or late.exception())  # nobody else retrieves its exception
    if done:
        raise HTTPException(CLOSED_REQUEST, "the client has disconnected")
    raise HTTPException(503, f"the request took longer than {seconds:g} s", {"Retry-After": "1"})


def error_response(request: Request, status: int, message: str, headers: Any = None) -> JSONResponse:
    """An error as JSON, in the form that the clients of its path expect."""
    if get_route_path(request.scope).startswith("/v1/"):  # without the prefix under which an outer app mounts this one
        kind = "invalid_request_error" if status < 500 else "server_error"
        return JSONResponse({"error": {"message": message, "type": kind, "param": None, "code": None}}, status, headers)
    return JSONResponse({"error": message}, status, headers)


def body_schema(model: type[BaseModel], *, form: bool = True) -> dict[str, Any]:
    """The description of a request body for the OpenAPI document."""
    schema = {"schema": model.model_json_schema()}
    kinds = ["application/json", *["application/x-www-form-urlencoded"] * form]
    return {"requestBody": {"required": True, "content": dict.fromkeys(kinds, schema)}}
