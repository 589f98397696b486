"""Routes of translators: LibreTranslate's API, and traces."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import quote

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from regard.documents.formats import DOCUMENTS, EXTENSIONS, UNSUPPORTED
from regard.documents.html import translate_html
from regard.documents.languages import Languages, language_name
from regard.documents.outcome import Outcome
from regard.documents.translate import translate_file
from regard.errors import InputError, RegardError
from regard.inspection import inspector
from regard.server.batching import BATCH_TEXTS, Job, OverloadedError
from regard.server.requests import (
    CLOSED_REQUEST,
    MAX_CHARACTERS,
    MAX_FILE,
    ErrorResponse,
    Text,
    Texts,
    body_schema,
    check_characters,
    read_body,
    read_form,
    wait_for,
)
from regard.server.served import Models, Served, TranslateOptions
from regard.server.service import Service
from regard.translation.explain import explain
from regard.translation.translator import Result

MAX_ALTERNATIVES = 9
MAX_TRACED = 2_000  # characters
FILE_SECONDS = 600.0
MAX_DOWNLOADS = 8  # translated files that are kept for download
DOWNLOAD_SECONDS = 600.0
FILE_FORMATS = sorted({".txt", *EXTENSIONS} - {".tsv", ".jsonl", ".ndjson"})

Glossary = Annotated[dict[str, str], Field(max_length=1000)]


class TranslationRequest(BaseModel):
    """A request to translate a text or a list of texts."""

    q: Texts
    source: str = "auto"
    target: str
    format: Literal["text", "html"] = "text"
    alternatives: Annotated[int, Field(ge=0, le=MAX_ALTERNATIVES)] = 0
    api_key: str = ""
    model: str = ""
    """The name of a model, if several have this language pair."""
    add: list[Literal["confidence", "warnings", "alignment"]] = []
    """Fields to add to the response."""
    glossary: Glossary = {}
    """Source terms and their translations, as plain words."""


class Detection(BaseModel):
    """The probability of a language, in percent."""

    language: str
    confidence: float


class TranslationWarning(BaseModel):
    """A quality warning about a translation."""

    kind: str
    message: str
    evidence: list[str]


class TranslationResponse(BaseModel):
    """A translation; for a list of texts, every field is a list."""

    translatedText: str | list[str]  # noqa: N815 - LibreTranslate's name
    alternatives: list[str] | list[list[str]] | None = None
    detectedLanguage: Detection | list[Detection] | None = None  # noqa: N815
    confidence: float | list[float | None] | None = None
    warnings: list[TranslationWarning] | list[list[TranslationWarning]] | None = None
    alignment: list[tuple[int, int]] | list[list[tuple[int, int]] | None] | None = None


class DetectRequest(BaseModel):
    """A request to detect the language of a text."""

    q: Text
    api_key: str = ""


class Head(BaseModel):
    """An attention head of a Transformer."""

    kind: Literal["cross", "encoder", "decoder"]
    layer: int
    head: int


class TraceRequest(BaseModel):
    """A request for the attention of a model while it translates, continues (gpt) or reads (bert) a text."""

    q: Annotated[str, Field(max_length=MAX_TRACED)]
    source: str = "auto"
    target: str = ""
    api_key: str = ""
    model: str = ""
    alternatives: Annotated[int, Field(ge=0, le=MAX_ALTERNATIVES)] = 0
    prefix: Annotated[str, Field(max_length=MAX_TRACED)] = ""
    """The beginning of the translation; the model continues it."""
    without: Annotated[list[Head], Field(max_length=256)] = []
    """Attention heads to switch off."""
    glossary: Glossary = {}
    view: Literal["trace", "page"] = "trace"
    """trace: the Trace as JSON; page: the values that the inspector's page draws."""


class LanguageResponse(BaseModel):
    """A source language with its target languages."""

    code: str
    name: str
    targets: list[str]


class TranslatedFile(BaseModel):
    """The address of a translated file."""

    translatedFileUrl: str  # noqa: N815


def add_routes(app: FastAPI, service: Service) -> None:
    """Add the routes to an app."""
    errors: dict[int | str, dict[str, Any]] = {
        code: {"model": ErrorResponse} for code in (400, 401, 408, 413, 429, CLOSED_REQUEST, 503)
    }
    downloads = Downloads()
    for path, route, body, answer in (
        ("/translate", partial(_translate, service), TranslationRequest, TranslationResponse),
        ("/detect", partial(_detect, service), DetectRequest, list[Detection]),
        ("/trace", partial(_trace, service), TraceRequest, None),
    ):
        app.post(
            path,
            name=path.strip("/"),
            description=route.func.__doc__,
            response_model=answer,
            response_model_exclude_unset=True,
            responses=errors,
            openapi_extra=body_schema(body),
        )(route)
    app.get("/languages", name="languages", response_model=list[LanguageResponse], description=_languages.__doc__)(
        partial(_languages, service)
    )
    app.get("/frontend/settings", name="settings", description=_settings.__doc__)(partial(_settings, service))
    app.post(
        "/translate_file",
        name="translate file",
        description=_translate_file.__doc__,
        response_model=TranslatedFile,
        responses=errors,
        openapi_extra=_FILE_SCHEMA,
    )(partial(_translate_file, service, downloads))
    app.get(
        "/download_file/{token}",
        name="download file",
        description=_download.__doc__,
        responses={200: {"content": {"application/octet-stream": {}}}, 404: {"model": ErrorResponse}},
        response_class=Response,
    )(partial(_download, downloads))


async def _translate(service: Service, request: Request) -> dict[str, Any]:
    """Translate a text, or each text of a list."""
    body = await read_body(service, request, TranslationRequest)
    texts = [body.q] if isinstance(body.q, str) else body.q
    request.state.texts = texts
    check_characters(texts)
    detected, model = _find(service.models, texts, body)
    options = TranslateOptions(
        body.alternatives,
        "alignment" in body.add,
        tuple(sorted(body.glossary.items())),
        scores=not {"confidence", "warnings"}.isdisjoint(body.add),
    )
    columns: dict[str, list[Any]]
    if body.format == "html":
        waiting = BackgroundTranslate(partial(_find, service.models, texts, body), options)
        columns = {"translatedText": await _in_thread(request, waiting, partial(_translate_html, texts, waiting))}
    else:
        results = await _submit(request, model, texts, options)
        columns = {"translatedText": [result.text for result in results]}
        if body.alternatives:
            columns["alternatives"] = [[other.text for other in result.alternatives] for result in results]
        for name in body.add:
            columns[name] = [_extra_field(result, name) for result in results]
    single = isinstance(body.q, str)
    answer: dict[str, Any] = {name: values[0] if single else values for name, values in columns.items()}
    return answer | ({"detectedLanguage": detected if single else [detected] * len(texts)} if detected else {})


def _find(
    models: Models, texts: Sequence[str], body: TranslationRequest | TraceRequest
) -> tuple[dict[str, Any] | None, Served]:
    """The language detected for `source = auto`, and the model for a request."""
    if body.model:
        return None, models.find_translator("", "", body.model)
    detected = None
    if body.source == "auto":
        detected = next(iter(models.detect("\n".join(texts))), None)
    return detected, models.find_translator(detected["language"] if detected else body.source, body.target)


async def _submit(
    request: Request, model: Served, texts: Sequence[str], options: TranslateOptions, *, cached: bool = True
) -> list[Result]:
    assert model.worker is not None
    futures = model.worker.submit([Job(text, options, cached) for text in texts])
    try:
        return await wait_for(request, asyncio.gather(*map(asyncio.wrap_future, futures)))
    finally:
        for future in futures:
            future.cancel()


def _extra_field(result: Result, name: str) -> Any:
    return [warning._asdict() for warning in result.warnings] if name == "warnings" else getattr(result, name)


async def _detect(service: Service, request: Request) -> list[dict[str, Any]]:
    """The served languages, the most probable first."""
    body = await read_body(service, request, DetectRequest)
    request.state.texts = [body.q]
    return service.models.detect(body.q)


async def _languages(service: Service) -> list[dict[str, Any]]:
    """The source languages, each with its target languages."""
    targets: dict[str, list[str]] = {}
    for model in service.models.translators:
        source, target = model.languages
        targets.setdefault(source, []).append(target)
    return [
        {"code": code, "name": language_name(code), "targets": sorted(set(codes))} for code, codes in targets.items()
    ]


async def _settings(service: Service) -> dict[str, Any]:
    """The limits of the server, and the language pair to begin with."""
    pair = next((model.languages for model in service.models.translators), ())
    return {
        "apiKeys": service.keys is not None,
        "keyRequired": service.keys is not None,
        "charLimit": MAX_CHARACTERS,
        "frontendTimeout": 500,
        "suggestions": False,
        "filesTranslation": True,
        "supportedFilesFormat": FILE_FORMATS,
        "language": {
            side: {"code": code, "name": language_name(code)}
            for side, code in zip(("source", "target"), pair, strict=False)
        },
    }


# Traces.


async def _trace(service: Service, request: Request) -> dict[str, Any]:
    """The attention, probabilities and alternatives of each sentence of a text."""
    body = await read_body(service, request, TraceRequest)
    request.state.texts = [body.q]
    view = inspector.contents if body.view == "page" else lambda trace: trace.as_json()
    model = service.models.find(body.model) if body.model else _find(service.models, [body.q], body)[1]
    if model.languages == ("", ""):  # a gpt or a bert
        explanation = await wait_for(request, asyncio.ensure_future(asyncio.to_thread(explain, model.model, body.q)))
        return {"parts": [{"text": body.q, "trace": view(explanation.trace.split_punctuation())}]}
    options = TranslateOptions(
        body.alternatives,
        True,
        tuple(sorted(body.glossary.items())),
        trace=True,
        prefix=body.prefix,
        without=tuple((head.kind, head.layer, head.head) for head in body.without),
        scores=True,
    )
    [result] = await _submit(request, model, [body.q], options, cached=False)
    return {
        "translatedText": result.text,
        "confidence": result.confidence,
        "warnings": [warning._asdict() for warning in result.warnings],
        "alternatives": [other.text for other in result.alternatives],
        "parts": [
            {"text": part.text, "trace": view(part.trace.split_punctuation())}
            for part in result.parts or [result]
            if part.trace is not None
        ],
    }


# Downloads and HTML.


class BackgroundTranslate:
    """Translates the texts of a file or page in batches; runs in its own thread, and shorter requests come first."""

    def __init__(self, find: Any, options: TranslateOptions, seconds: float = FILE_SECONDS) -> None:
        self.find, self.options = find, options
        self.deadline = time.monotonic() + seconds
        self.cancelled = threading.Event()

    def __call__(self, texts: Sequence[str], *, align: bool = False) -> list[Result]:
        results: list[Result] = []
        options = self.options._replace(align=align or self.options.align)
        while len(results) < len(texts):
            if self.cancelled.is_set() or time.monotonic() > self.deadline:
                raise OverloadedError("the translation was cancelled or took too long")
            batch = texts[len(results) : len(results) + BATCH_TEXTS]
            try:
                worker = self.find()[1].worker
                futures = worker.submit([Job(text, options) for text in batch])
                results += [future.result() for future in futures]
            except OverloadedError:  # the queue is full of other requests
                self.cancelled.wait(0.1)
        return results


async def _in_thread(request: Request, waiting: BackgroundTranslate, run: Any) -> Any:
    try:
        return await wait_for(request, asyncio.ensure_future(asyncio.to_thread(run)), seconds=FILE_SECONDS)
    finally:
        waiting.cancelled.set()


def _translate_html(texts: Sequence[str], translate: BackgroundTranslate) -> list[str]:
    return [translate_html(text, translate, Outcome()) for text in texts]


class Download(NamedTuple):
    """A translated file that can be downloaded."""

    content: bytes
    name: str
    time: float


class Downloads:
    """Translated files, kept in memory by random tokens until they are downloaded or too old."""

    def __init__(self) -> None:
        self.by_token: OrderedDict[str, Download] = OrderedDict()

    def add(self, content: bytes, name: str) -> str:
        """Keep a file, and return its token."""
        self.drop_old()
        token = secrets.token_urlsafe(24)
        self.by_token[token] = Download(content, name, time.monotonic())
        while len(self.by_token) > MAX_DOWNLOADS:
            self.by_token.popitem(last=False)
        return token

    def drop_old(self) -> None:
        """Delete files older than DOWNLOAD_SECONDS."""
        for token, download in list(self.by_token.items()):
            if time.monotonic() - download.time > DOWNLOAD_SECONDS:
                del self.by_token[token]


async def _translate_file(service: Service, downloads: Downloads, request: Request) -> dict[str, str]:
    """Translate a text, XLIFF, PO or TMX file; the response has a URL from which the result can be downloaded once."""
    fields, uploads = await read_form(service, request)
    if "file" not in uploads:
        raise HTTPException(400, "the form has no field named file")
    name, content = uploads["file"]
    suffix = PurePosixPath(name).suffix.lower()
    if suffix in UNSUPPORTED or suffix not in FILE_FORMATS:
        raise InputError(f"files of type {suffix[:20] or 'unknown'} are not supported, only {', '.join(FILE_FORMATS)}")
    body = TranslationRequest(
        q="", source=fields.get("source", "auto"), target=fields.get("target", ""), model=fields.get("model", "")
    )
    sample = content[:2000].decode("utf-8", "replace")
    _, model = _find(service.models, [sample], body)
    waiting = BackgroundTranslate(lambda: _find(service.models, [sample], body), TranslateOptions())
    run = partial(_translate_content, content, suffix, waiting, model.languages)
    translated = await _in_thread(request, waiting, run)
    stem = PurePosixPath(name).stem[:100] or "file"
    token = downloads.add(translated, f"{stem}_{model.languages[1]}{suffix}")
    path = f"{request.scope['root_path']}/download_file/{token}"
    return {"translatedFileUrl": str(request.url.replace(path=path, query=""))}


def _translate_content(content: bytes, suffix: str, translate: BackgroundTranslate, languages: Languages) -> bytes:
    """Translate the content of a file of the type that its suffix names."""
    if EXTENSIONS.get(suffix) not in DOCUMENTS:
        try:
            lines = content.decode("utf-8").split("\n")
        except UnicodeDecodeError:
            raise InputError("the file is not UTF-8 text") from None
        return "\n".join(result.text for result in translate(lines)).encode()
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, f"source{suffix}"), Path(folder, f"target{suffix}")
        source.write_bytes(content)
        try:
            translate_file(source, target, translate, languages=languages)
        except RegardError as error:
            raise InputError(str(error).replace(str(source), "the file")) from None
        return target.read_bytes()


async def _download(downloads: Downloads, token: str) -> Response:
    """A translated file; it can be downloaded once, within ten minutes."""
    downloads.drop_old()
    download = downloads.by_token.pop(token, None)
    if download is None:
        raise HTTPException(404, "there is no such file: a file is kept for ten minutes and can be downloaded once")
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(download.name)}"}
    return Response(download.content, media_type="application/octet-stream", headers=headers)


_FILE_SCHEMA = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file", "source", "target"],
                    "properties": {
                        "file": {"type": "string", "format": "binary", "maxLength": MAX_FILE},
                        "source": {"type": "string"},
                        "target": {"type": "string"},
                        "api_key": {"type": "string"},
                    },
                }
            }
        },
    }
}
