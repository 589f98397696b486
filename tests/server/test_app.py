"""The server speaks LibreTranslate's contract: its own client works unchanged."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from libretranslatepy import LibreTranslateAPI

import regard
from regard.errors import ConfigError
from regard.server import app as server
from tests.translation import test_translator

PAIRS = [{"source": "the old house sees a bird", "target": "la vieille maison voit un oiseau"}] * 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = test_translator.save(tmp_path_factory.mktemp("served") / "model", test_translator.make())
    (folder / "card.md").write_text("A **transformer** of 1 parameters that translates from en to fr, trained.\n")
    (folder / "validation.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in PAIRS))
    return folder


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    app = regard.serve(folder, f"de-en={folder.parent / 'missing'}", device="cpu")
    running = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", ws="none"))
    thread = threading.Thread(target=running.run)
    thread.start()
    while not running.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{running.servers[0].sockets[0].getsockname()[1]}"
    running.should_exit = True
    thread.join()


def post(url: str, body: Any) -> tuple[int, Any]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_the_client_of_libretranslate_works(address: str, folder: Path) -> None:
    client = LibreTranslateAPI(address)
    expected = regard.load(folder, "cpu").translate(["the old house"])[0].text
    assert client.translate("the old house", "en", "fr") == expected
    assert client.languages() == [{"code": "en", "name": "en", "targets": ["fr"]}]
    assert client.detect("la vieille maison")[0]["language"] == "fr"


def test_a_list_gives_a_list_with_what_was_asked_for(address: str) -> None:
    body = {"q": ["the bird", ""], "target": "fr", "alternatives": 1, "add": ["warnings", "alignment"]}
    status, answer = post(f"{address}/translate", body)
    assert status == 200
    assert {name: len(values) for name, values in answer.items()} == dict.fromkeys(
        ["translatedText", "alternatives", "warnings", "alignment", "detectedLanguage"], 2
    )


def test_a_term_of_the_request_is_placed_or_reported(address: str) -> None:
    body = {"q": "the bird", "source": "en", "target": "fr", "glossary": {"bird": "zqx"}, "add": ["warnings"]}
    _, answer = post(f"{address}/translate", body)
    assert "zqx" in answer["translatedText"] or "glossary" in [warning["kind"] for warning in answer["warnings"]]


def test_a_folder_that_fails_to_load_does_not_stop_the_others(address: str) -> None:
    with urllib.request.urlopen(f"{address}/health") as answer:
        assert len(json.load(answer)["failed"]) == 1
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"q": "x", "source": "en", "target": "de"}, 400),
        ({"q": "x", "source": "en"}, 400),
        (b"{", 400),
        (b"\xff", 400),
        ({"q": ["x" * 15_000] * 2, "source": "en", "target": "fr"}, 413),
        (b" " * (server.MAX_BODY + 1), 413),
    ],
    ids=["pair", "missing", "half", "bytes", "characters", "size"],
)
def test_a_wrong_request_gets_one_clear_line(address: str, body: Any, status: int) -> None:
    found, answer = post(f"{address}/translate", body)
    assert (found, list(answer)) == (status, ["error"])


def test_a_folder_without_languages_is_refused(tmp_path: Path) -> None:
    folder = test_translator.save(tmp_path / "model", test_translator.make())
    with pytest.raises(ConfigError, match="en-fr="):
        regard.serve(folder, device="cpu")


def test_the_openapi_document_describes_every_route(address: str) -> None:
    with urllib.request.urlopen(f"{address}/openapi.json") as answer:
        paths = json.load(answer)["paths"]
    summaries = {path: next(iter(methods.values()))["summary"] for path, methods in paths.items()}
    assert summaries == {
        "/health": "Health",
        "/languages": "Languages",
        "/detect": "Detect",
        "/translate": "Translate",
        "/frontend/settings": "Settings",
    }
