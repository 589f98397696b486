"""The server speaks LibreTranslate's contract: its own client works unchanged; and it is safe by default."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import shutil
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import FastAPI
from libretranslatepy import LibreTranslateAPI

import regard
from regard.errors import ConfigError
from regard.server import requests as limits
from regard.server import run
from regard.server.batching import TEXT_CHARACTERS, Job, OverloadedError, Pace
from regard.server.keys import Keys, new_key
from regard.server.served import LOG, TranslateOptions
from regard.server.translating import BackgroundTranslate
from regard.translation.translator import Result
from tests.server.conftest import running
from tests.server.requests import get, post, upload
from tests.translation import test_translator

TO_FRENCH = {"source": "en", "target": "fr"}


def test_the_client_of_libretranslate_works(address: str, folders: dict[str, Path]) -> None:
    client = LibreTranslateAPI(address)
    expected = regard.load(folders["translator"], "cpu").translate(["the old house"])[0].text
    assert client.translate("the old house", "en", "fr") == expected
    assert client.languages() == [{"code": "en", "name": "English", "targets": ["fr"]}]
    assert client.detect("la vieille maison")[0]["language"] == "fr"


def test_json_is_read_whatever_its_content_type(address: str) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}  # as `curl -d` sends it
    assert post(f"{address}/translate", {"q": "the bird", **TO_FRENCH}, **form)[0] == 200


def test_a_list_gives_a_list_with_what_was_asked_for(address: str) -> None:
    body = {"q": ["the bird", ""], "target": "fr", "alternatives": 1, "add": ["warnings", "alignment"]}
    status, answer = post(f"{address}/translate", body)
    assert status == 200
    assert {name: len(values) for name, values in answer.items()} == dict.fromkeys(
        ["translatedText", "alternatives", "warnings", "alignment", "detectedLanguage"], 2
    )


def test_a_term_of_the_request_is_placed_or_reported(address: str) -> None:
    body = {"q": "the bird", **TO_FRENCH, "glossary": {"bird": "zqx"}, "add": ["warnings"]}
    _, answer = post(f"{address}/translate", body)
    assert "zqx" in answer["translatedText"] or "glossary" in [warning["kind"] for warning in answer["warnings"]]


def test_a_term_of_the_request_is_no_pattern(address: str) -> None:
    body = {"q": "the bird", **TO_FRENCH, "glossary": {"/b.*/": "zqx"}}
    assert "zqx" not in post(f"{address}/translate", body)[1]["translatedText"]


def test_html_keeps_its_markup_and_what_is_not_text(address: str) -> None:
    html = '<p>the <b>old</b> house</p><script>the();</script><code>bird</code><p translate="no">river</p>'
    answer = post(f"{address}/translate", {"q": html, **TO_FRENCH, "format": "html"})[1]["translatedText"]
    for kept in ("<p>", "<b>", "</b>", "<script>the();</script>", "<code>bird</code>", '<p translate="no">river</p>'):
        assert kept in answer


@pytest.mark.parametrize("name", ["a.txt", "a.po", "../../etc/a.xliff"])
def test_a_file_is_translated_and_can_be_downloaded_once(address: str, name: str) -> None:
    contents = {
        ".txt": b"the house\n\nthe bird\n",
        ".po": b'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "the house"\nmsgstr ""\n',
        ".xliff": b'<xliff version="1.2"><file source-language="en" target-language="fr"><body><trans-unit id="1">'
        b"<source>the house</source></trans-unit></body></file></xliff>",
    }
    content = contents[Path(name).suffix]
    status, answer = upload(f"{address}/translate_file", name, content, **TO_FRENCH)
    assert status == 200
    with urllib.request.urlopen(answer["translatedFileUrl"]) as download:
        assert f"a_fr{Path(name).suffix}" in download.headers["Content-Disposition"]
        assert len(download.read()) >= len(content) - 20
    assert get(answer["translatedFileUrl"])[0] == 404


def test_texts_of_a_file_that_were_refused_are_sent_again() -> None:
    attempts = 0

    def submit(jobs: list[Job]) -> list[Future[Result]]:
        nonlocal attempts
        attempts += 1
        futures: list[Future[Result]] = [Future() for _ in jobs]
        for job, future in zip(jobs, futures, strict=True):
            future.set_result(Result(job.text.upper()))
        if attempts == 1:
            futures[1] = Future()
            futures[1].set_exception(OverloadedError("the server has become slower"))
        return futures

    model = SimpleNamespace(worker=SimpleNamespace(submit=submit))
    results = BackgroundTranslate(lambda: (None, model), TranslateOptions())(["one", "two"])
    assert [result.text for result in results] == ["ONE", "TWO"]


def test_a_file_of_a_type_that_is_not_supported_is_refused(address: str) -> None:
    assert upload(f"{address}/translate_file", "a.docx", b"PK", **TO_FRENCH)[0] == 400


def test_a_file_that_is_broken_is_refused_without_naming_folders_of_the_server(address: str) -> None:
    status, answer = upload(f"{address}/translate_file", "a.xlf", b"<xliff", **TO_FRENCH)
    assert (status, answer["error"]) == (400, "the file:1: broken XML: unclosed token")


def test_a_trace_begins_with_the_prefix_and_has_attention(address: str) -> None:
    body = {"q": "the old house", **TO_FRENCH, "prefix": "la"}
    answer = post(f"{address}/trace", body)[1]
    assert answer["translatedText"].startswith("la")
    assert answer["parts"][0]["trace"]["attention.cross"]["shape"][:2] == [1, 2]


def test_a_head_that_is_switched_off_changes_the_probabilities_of_this_request_alone(address: str) -> None:
    def steps(**more: Any) -> Any:
        body = {"q": "the old house", **TO_FRENCH, "view": "page", **more}
        return post(f"{address}/trace", body)[1]["parts"][0]["trace"]["steps"]

    before = steps()
    assert steps(without=[{"kind": "cross", "layer": 0, "head": 1}]) != before
    assert steps() == before


@pytest.mark.parametrize("model", ["gpt", "bert"])
def test_a_gpt_and_a_bert_are_traced_too(address: str, model: str) -> None:
    status, answer = post(f"{address}/trace", {"q": "the old house", "model": model, "view": "page"})
    assert (status, answer["parts"][0]["trace"]["family"]) == (200, model)


def test_a_folder_that_fails_to_load_does_not_stop_the_others(address: str) -> None:
    with urllib.request.urlopen(f"{address}/health") as answer:
        assert len(json.load(answer)["failed"]) == 1
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_a_folder_with_damaged_validation_pairs_is_named(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(folders["translator"], tmp_path / "en-fr")
    (folder / "validation.jsonl").write_bytes(b"[[[\xff\n")
    with pytest.raises(ConfigError, match=r"validation\.jsonl:1: "):
        regard.serve(folder, device="cpu")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"q": "x", "source": "en", "target": "de"}, 400),
        ({"q": "x", "source": "en"}, 400),
        (b"{", 400),
        (b"\xff", 400),
        (b"[" * 100_000, 400),
        ({"q": ["x" * 15_000] * 2, **TO_FRENCH}, 413),
        (b" " * (limits.MAX_BODY + 1), 413),
        ({"q": "x", **TO_FRENCH, "model": "gpt"}, 400),
    ],
    ids=["pair", "missing", "half", "bytes", "deep", "characters", "size", "model"],
)
def test_a_wrong_request_gets_one_clear_line(address: str, body: Any, status: int) -> None:
    found, answer = post(f"{address}/translate", body)
    assert (found, list(answer)) == (status, ["error"])


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("alternatives", "x", "it must be a valid integer"),
        ("alternatives", -1, "it must be greater than or equal to 0"),
        ("q", None, "it must be a valid string"),
    ],
)
def test_a_wrong_value_is_named_with_its_field_and_what_would_be_right(
    address: str, field: str, value: object, problem: str
) -> None:
    status, answer = post(f"{address}/translate", {"q": "x", **TO_FRENCH, field: value})
    assert (status, answer["error"]) == (400, f"{field}: {problem}")


def test_a_missing_field_is_named(address: str) -> None:
    assert post(f"{address}/translate", {"q": "x", "source": "en"})[1]["error"] == "target: it is missing"


def test_two_models_of_one_name_are_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    other = shutil.copytree(folders["gpt"], tmp_path / "gpt")
    with pytest.raises(ConfigError, match="2 models are named gpt: give each its own name, NAME=FOLDER"):
        regard.serve(folders["gpt"], other, device="cpu")


def test_a_server_without_models_is_refused() -> None:
    with pytest.raises(ConfigError, match="give at least one model folder"):
        regard.serve()


def test_a_list_that_is_too_long_is_named_as_such(address: str) -> None:
    answer = post(f"{address}/translate", {"q": ["x"] * 257, **TO_FRENCH})[1]
    assert answer["error"] == "q: List should have at most 256 items after validation, not 257"


def test_a_full_queue_is_answered_with_429_and_the_time_to_wait(address: str, app: Any) -> None:
    worker = app.state.service.models.find("translator").worker
    worker.max_waiting, before = 0, (worker.max_waiting, worker.pace)
    worker.pace = Pace()
    worker.pace.record(TEXT_CHARACTERS, 6.5, full=True)
    body = json.dumps({"q": "a text too many", **TO_FRENCH}).encode()
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(
            urllib.request.Request(f"{address}/translate", body, {"Content-Type": "application/json"})
        )
    worker.max_waiting, worker.pace = before
    assert (error.value.code, error.value.headers["Retry-After"]) == (429, "7")
    error.value.close()


def test_an_app_inside_another_app_answers_as_it_does_alone(app: Any) -> None:
    outer = FastAPI()
    outer.mount("/inner", app)
    with running(outer) as address:
        assert post(f"{address}/inner/translate", {"q": "the bird", **TO_FRENCH})[0] == 200
        assert "message" in post(f"{address}/inner/v1/completions", {"model": "none"})[1]["error"]
        answer = upload(f"{address}/inner/translate_file", "a.txt", b"the bird", **TO_FRENCH)[1]
        assert urllib.request.urlopen(answer["translatedFileUrl"]).status == 200


def test_a_request_that_arrives_too_slowly_gets_408(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BODY_SECONDS", 0.1)
    with socket.create_connection(address.removeprefix("http://").split(":")) as client:
        client.sendall(b"POST /detect HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
        assert b" 408 " in client.recv(100)


def test_a_connection_without_a_request_is_closed(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "HEADER_SECONDS", 0.1)
    with socket.create_connection(address.removeprefix("http://").split(":"), timeout=30) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nHost")
        assert client.recv(100) == b""


def test_pipelined_requests_are_answered_in_order(address: str) -> None:
    with socket.create_connection(address.removeprefix("http://").split(":"), timeout=30) as client:
        one, last = (
            f"GET /{path} HTTP/1.1\r\nHost: x\r\n{end}\r\n".encode()
            for path, end in (("nothing", ""), ("health/live", "Connection: close\r\n"))
        )
        client.sendall(one * 2 + last)
        answers = b"".join(iter(lambda: client.recv(1 << 16), b""))
    assert re.findall(rb"HTTP/1.1 (\d+)", answers) == [b"404", b"404", b"200"]


def test_a_client_that_goes_away_frees_its_place(address: str, app: Any) -> None:
    worker = app.state.service.models.find("translator").worker
    before = worker.compute
    started, release = threading.Event(), threading.Event()

    def slow(texts: Any, options: Any) -> Any:
        started.set()
        release.wait(30)
        return before(texts, options)

    worker.compute = slow
    body = json.dumps({"q": "gone away", **TO_FRENCH}).encode()
    head = f"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    try:
        worker.submit([Job("first", TranslateOptions())])
        started.wait(30)
        with socket.create_connection(address.removeprefix("http://").split(":")) as client:
            client.sendall(head + body)
            while not worker.waiting:
                pass
        while worker.waiting:
            pass
    finally:
        release.set()
        worker.compute = before


def test_a_folder_without_languages_is_refused(tmp_path: Path) -> None:
    folder = test_translator.save(tmp_path / "model", test_translator.make())
    with pytest.raises(ConfigError, match="en-fr="):
        regard.serve(folder, device="cpu")


@pytest.fixture(scope="module")
def private(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A server that needs an API key, and a key."""
    keys = tmp_path_factory.mktemp("keys") / "keys.txt"
    key = new_key(keys, "me")
    with running(regard.serve(folders["translator"], folders["gpt"], device="cpu", keys=keys)) as address:
        yield address, key


def test_a_key_is_known_as_a_field_and_as_a_header_and_nothing_else_is(private: tuple[str, str]) -> None:
    address, key = private
    body = {"q": "the bird", **TO_FRENCH}
    assert post(f"{address}/translate", body)[0] == 401
    assert post(f"{address}/translate", {**body, "api_key": key[:-1]})[0] == 401
    assert post(f"{address}/translate", {**body, "api_key": key})[0] == 200
    assert post(f"{address}/translate", body, Authorization=f"Bearer {key}")[0] == 200
    assert get(f"{address}/v1/models")[0] == 401


def test_the_file_of_keys_does_not_hold_the_key(tmp_path: Path) -> None:
    key = new_key(tmp_path / "keys", "me")
    assert key not in (tmp_path / "keys").read_text()
    assert Keys.load(tmp_path / "keys").is_valid(key)


def test_other_origins_are_allowed_only_on_request(address: str, folders: dict[str, Path]) -> None:
    def allowed(address: str) -> str | None:
        request = urllib.request.Request(f"{address}/languages", headers={"Origin": "https://a.example"})
        with urllib.request.urlopen(request) as answer:
            return answer.headers["Access-Control-Allow-Origin"]

    assert allowed(address) is None
    app = regard.serve(folders["bert"], device="cpu", allow_origins=["https://a.example"])
    with running(app) as other:
        assert allowed(other) == "https://a.example"


@pytest.mark.parametrize("asked", [False, True])
def test_the_log_has_texts_only_on_request(address: str, app: Any, asked: bool) -> None:
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)
    app.state.service.log_texts = asked
    post(f"{address}/translate", {"q": "the secret bird", **TO_FRENCH})
    while not lines:  # the request is logged after its answer
        pass
    LOG.removeHandler(handler)
    app.state.service.log_texts = False
    entry = json.loads(lines[-1])
    assert (entry["status"], entry["characters"]) == (200, 15)
    assert ("secret" in lines[-1]) == asked


def test_the_metrics_count_requests_and_texts(address: str) -> None:
    post(f"{address}/translate", {"q": "the bird", **TO_FRENCH})
    with urllib.request.urlopen(f"{address}/metrics") as answer:
        text = answer.read().decode()
    assert 'regard_requests_total{path="/translate",status="200"}' in text
    assert 'regard_texts_total{model="translator"}' in text


def test_reloading_loses_no_request(folders: dict[str, Path]) -> None:
    app = regard.serve(folders["translator"], device="cpu")
    with running(app) as address, ThreadPoolExecutor(4) as pool:
        answers = [
            pool.submit(post, f"{address}/translate", {"q": f"the bird {number}", **TO_FRENCH}) for number in range(40)
        ]
        before = app.state.service.models
        asyncio.run(app.state.service.reload())
        assert [answer.result()[0] for answer in answers] == [200] * 40
        assert app.state.service.models is not before


def test_the_openapi_document_describes_every_route(address: str) -> None:
    paths = get(f"{address}/openapi.json")[1]["paths"]
    assert all(method["summary"] and method["description"] for path in paths.values() for method in path.values())
    assert {"/translate", "/detect", "/languages", "/frontend/settings", "/translate_file", "/trace", "/health",
            "/v1/completions", "/v1/embeddings", "/v1/models", "/fill", "/metrics"} <= set(paths)  # fmt: skip
