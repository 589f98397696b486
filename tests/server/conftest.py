"""A server of small random models, one of each kind, in a thread."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI

import regard
from regard.config import Config
from regard.models.folder import save_model
from regard.server.run import TimedProtocol
from tests.translation import test_reader, test_translator, test_writer

PAIRS = [{"source": "the old house sees a bird", "target": "la vieille maison voit un oiseau"}] * 3


def save(folder: Path, model: Any, config: Config, tokenizer: Any) -> Path:
    save_model(folder, model, config, {"tokenizer.json": tokenizer.text}, force=False)
    return folder


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of a translator from English to French, a gpt and a bert."""
    base = tmp_path_factory.mktemp("served")
    translator = test_translator.save(base / "translator", test_translator.make())
    (translator / "card.md").write_text("A **transformer** of 1 parameters that translates from en to fr, trained.\n")
    (translator / "validation.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in PAIRS))
    writer, reader = test_writer.make(), test_reader.make()
    gpt = save(base / "gpt", writer.models[0], writer.config, writer.tokenizer)
    bert = save(base / "bert", reader.model, reader.config, reader.tokenizer)
    return {"translator": translator, "gpt": gpt, "bert": bert}


@contextmanager
def running(app: FastAPI) -> Iterator[str]:
    """The address of an app that is served in a thread."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", http=TimedProtocol, ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="session")
def app(folders: dict[str, Path]) -> FastAPI:
    return regard.serve(*folders.values(), f"de-en={folders['gpt'].parent / 'missing'}", device="cpu")


@pytest.fixture(scope="session")
def address(app: FastAPI) -> Iterator[str]:
    with running(app) as address:
        yield address
