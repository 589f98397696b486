"""Routes of gpt and bert models: OpenAI's completions, embeddings and models, and filling masks."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import threading
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Any, Literal, cast

from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response

from regard.server.batching import Job
from regard.server.requests import (
    CLOSED_REQUEST,
    ErrorResponse,
    OpenAIError,
    Text,
    Texts,
    body_schema,
    check_characters,
    check_key,
    read_body,
    wait_for,
)
from regard.server.served import Served
from regard.server.service import Service
from regard.translation.reader import Filled, Reader
from regard.translation.writer import GeneratedToken, Writer

MAX_TOKENS = 4096  # of a completion
MAX_CHOICES = 8
MAX_GUESSES = 100

ERRORS = (400, 401, 408, 413, 429, CLOSED_REQUEST, 503)


class CompletionRequest(BaseModel):
    """A request to continue a text, as OpenAI's clients send it."""

    model: str
    prompt: Texts = ""
    max_tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS)] = 16
    temperature: Annotated[float, Field(ge=0, le=2)] = 1.0
    top_p: Annotated[float, Field(ge=0, le=1)] = 1.0
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] = 1
    seed: int | None = None
    stop: str | Annotated[list[str], Field(max_length=4)] | None = None
    stream: bool = False
    echo: bool = False
    logprobs: None = None
    """Not supported, as are best_of, suffix and penalties."""
    best_of: Literal[1] | None = None
    suffix: None = None
    presence_penalty: Literal[0] | None = None
    frequency_penalty: Literal[0] | None = None


class EmbeddingRequest(BaseModel):
    """A request to embed texts, as OpenAI's clients send it."""

    model: str
    input: Texts
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: None = None


class FillRequest(BaseModel):
    """A request to fill the masks of a text."""

    text: Text
    model: str = ""
    top: Annotated[int, Field(ge=1, le=MAX_GUESSES)] = 5
    api_key: str = ""


def add_routes(app: FastAPI, service: Service) -> None:
    """Add the routes to an app."""
    for path, route, body, error in (
        ("/v1/completions", partial(_complete, service), CompletionRequest, OpenAIError),
        ("/v1/embeddings", partial(_embed, service), EmbeddingRequest, OpenAIError),
        ("/fill", partial(_fill, service), FillRequest, ErrorResponse),
    ):
        app.post(
            path,
            name=path.removeprefix("/v1").strip("/"),
            description=route.func.__doc__,
            responses={code: {"model": error} for code in ERRORS},
            response_model=None,
            openapi_extra=body_schema(body, form=error is ErrorResponse),
        )(route)
    app.get("/v1/models", name="models", description=_models.__doc__, responses={401: {"model": OpenAIError}})(
        partial(_models, service)
    )


async def _models(service: Service, request: Request) -> dict[str, Any]:
    """All served models."""
    check_key(service, request)
    data = [
        {"id": model.name, "object": "model", "created": 0, "owned_by": "regard", "family": model.family}
        | (dict(zip(("source", "target"), model.languages, strict=True)) if any(model.languages) else {})
        for model in service.models.served
    ]
    return {"object": "list", "data": data}


# Completions.


async def _complete(service: Service, request: Request) -> Response | dict[str, Any]:
    """Continue each prompt with a gpt; with `stream`, as server-sent events."""
    body = await read_body(service, request, CompletionRequest)
    prompts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
    request.state.texts = prompts
    check_characters(prompts)
    model = service.models.find(body.model, Writer)
    writer = cast(Writer, model.model)
    jobs = [(prompt, choice) for prompt in prompts for choice in range(body.n)]
    seed = secrets.randbelow(1 << 31) if body.seed is None else body.seed
    identity = {"id": f"cmpl-{secrets.token_hex(12)}", "object": "text_completion", "created": int(time.time())}
    identity |= {"model": model.name}
    if body.stream:
        if len(jobs) > 1:
            raise HTTPException(400, "stream supports only one prompt and n = 1")
        tokens = _generate(model, jobs[0][0], body, seed)
        first = await anext(tokens)  # before the response begins, so that an error has its own status
        return StreamingResponse(_events(identity, first, tokens, body), media_type="text/event-stream")
    choices, counted = [], 0
    for index, (prompt, choice) in enumerate(jobs):
        collected = asyncio.ensure_future(_collect(_generate(model, prompt, body, seed + choice)))
        generated = await wait_for(request, collected)
        counted += len(generated)
        text = prompt * body.echo + "".join(token.text for token in generated)
        choices.append(_choice(text, index, "stop" if generated[-1].finished else "length"))
    read = sum(len(writer.encode_prompt(prompt)) for prompt in prompts)
    usage = {"prompt_tokens": read, "completion_tokens": counted, "total_tokens": read + counted}
    return {**identity, "choices": choices, "usage": usage}


def _choice(text: str, index: int, reason: str | None) -> dict[str, Any]:
    return {"text": text, "index": index, "logprobs": None, "finish_reason": reason}


async def _events(
    identity: dict[str, Any], first: GeneratedToken, tokens: AsyncIterator[GeneratedToken], body: CompletionRequest
) -> AsyncIterator[str]:
    """Server-sent events: one for each token, one with the reason for the end, and [DONE]."""

    def event(text: str, reason: str | None = None) -> str:
        return f"data: {json.dumps({**identity, 'choices': [_choice(text, 0, reason)]}, ensure_ascii=False)}\n\n"

    last = first
    yield event(cast(str, body.prompt) * body.echo + first.text)
    async for last in tokens:
        yield event(last.text)
    yield event("", "stop" if last.finished else "length")
    yield "data: [DONE]\n\n"


async def _generate(model: Served, prompt: str, body: CompletionRequest, seed: int) -> AsyncIterator[GeneratedToken]:
    """Generate tokens in the model's thread, until the end or until nobody reads them."""
    assert model.executor is not None
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[GeneratedToken | Exception | None]()
    unread = threading.Event()

    def put(item: GeneratedToken | Exception | None) -> None:
        loop.call_soon_threadsafe(queue.put_nowait, item)

    def run() -> None:
        try:
            for token in cast(Writer, model.model).stream(
                prompt,
                tokens=body.max_tokens,
                temperature=body.temperature,
                top_p=body.top_p,
                seed=seed,
                stop=[body.stop] if isinstance(body.stop, str) else body.stop or [],
            ):
                if unread.is_set():
                    raise InterruptedError("nobody reads the tokens")
                put(token)
        except Exception as error:
            put(error)
            raise  # what was not finished does not count in the rate
        put(None)

    future = model.executor.submit(run, body.max_tokens)
    try:
        while (item := await queue.get()) is not None:
            if isinstance(item, Exception):
                raise item
            yield item
    finally:
        unread.set()
        future.cancel()


async def _collect(tokens: AsyncIterator[GeneratedToken]) -> list[GeneratedToken]:
    return [token async for token in tokens]


# Embeddings and masks.


async def _embed(service: Service, request: Request) -> dict[str, Any]:
    """The embedding of each text by a bert."""
    body = await read_body(service, request, EmbeddingRequest)
    texts = [body.input] if isinstance(body.input, str) else body.input
    request.state.texts = texts
    check_characters(texts)
    model = service.models.find(body.model, Reader)
    vectors = await _read(request, model, texts, 0)
    values: list[Any] = [vector.tolist() for vector in vectors]
    if body.encoding_format == "base64":
        values = [base64.b64encode(vector.astype("<f4").tobytes()).decode() for vector in vectors]
    tokens = sum(len(ids) for ids in cast(Reader, model.model).tokenizer.encode_batch(texts))
    return {
        "object": "list",
        "model": model.name,
        "data": [{"object": "embedding", "index": index, "embedding": value} for index, value in enumerate(values)],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


async def _fill(service: Service, request: Request) -> dict[str, Any]:
    """The most probable tokens for each [MASK] of a text, by a bert."""
    body = await read_body(service, request, FillRequest)
    request.state.texts = [body.text]
    readers = [model for model in service.models.served if isinstance(model.model, Reader)]
    model = service.models.find(body.model or (readers[0].name if readers else "bert"), Reader)
    [filled] = await _read(request, model, [body.text], body.top)
    gaps = [[guess._asdict() for guess in guesses] for guesses in cast(Filled, filled).gaps]
    return {"text": filled.text, "gaps": gaps}


async def _read(request: Request, model: Served, texts: list[str], top: int) -> list[Any]:
    assert model.worker is not None
    futures = model.worker.submit([Job(text, top) for text in texts])
    try:
        return await wait_for(request, asyncio.gather(*map(asyncio.wrap_future, futures)))
    finally:
        for future in futures:
            future.cancel()
