"""The process of `regard serve`: signals under load, and what it says when everybody may connect."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from regard.server import run
from tests.server.requests import get, post

TEXTS = [f"the old house sees {number} birds" for number in range(100)]


@pytest.mark.parametrize(("host", "keys", "warned"), [("0.0.0.0", None, True), ("127.0.0.1", None, False)])
def test_an_address_for_everybody_without_keys_is_named(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch, host: str, keys: str | None, warned: bool
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(run, "make_app", lambda **options: run.serve(folders["translator"], device="cpu"))
    monkeypatch.setattr(run.uvicorn, "run", lambda *words, **options: None)
    monkeypatch.setattr(run.signal, "signal", lambda *words: None)
    run.run(host=host, port=free_port(), workers=1, grace=1, say=lines.append, keys=keys)
    assert any("anyone" in line for line in lines) == warned


def test_several_processes_are_not_started_without_a_model(tmp_path: Path) -> None:
    words = ["serve", str(tmp_path / "missing"), "--workers", "2", "--port", str(free_port())]
    done = subprocess.run([sys.executable, "-m", "regard", *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr == f"regard: no model could be loaded: There is no folder {tmp_path / 'missing'}\n"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture
def process(folders: dict[str, Path]) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address of a server in a process of its own, and the process."""
    port = free_port()
    words = [sys.executable, "-m", "regard", "serve", folders["translator"], "--port", str(port), "--threads", "1"]
    with subprocess.Popen(list(map(str, words)), stderr=subprocess.PIPE, text=True, env=dict(os.environ)) as server:
        address = f"http://127.0.0.1:{port}"
        wait_until(lambda: get(f"{address}/health/ready")[0] == 200)
        yield address, server
        server.kill()


def waiting(address: str) -> bool:
    with urllib.request.urlopen(f"{address}/metrics") as answer:
        return b'regard_waiting_texts{model="translator"} 0.0' not in answer.read()


def wait_until(condition: Callable[[], Any]) -> None:
    while True:
        try:
            if condition():
                return
        except OSError:
            pass
        time.sleep(0.02)


@pytest.mark.slow
def test_signals_lose_no_request_and_the_log_has_no_text(process: tuple[str, subprocess.Popen[str]]) -> None:
    address, server = process
    with ThreadPoolExecutor(4) as pool:

        def send(text: str) -> int:
            return post(f"{address}/translate", {"q": text, "source": "en", "target": "fr"})[0]

        answers = [pool.submit(send, text) for text in TEXTS]
        wait_until(answers[4].done)
        server.send_signal(signal.SIGHUP)
        assert {answer.result() for answer in answers} == {200}
        last = pool.submit(
            post, f"{address}/translate", {"q": TEXTS, "source": "en", "target": "fr", "alternatives": 4}
        )
        wait_until(lambda: last.done() or waiting(address))
        server.send_signal(signal.SIGTERM)
        assert last.result()[0] == 200
    log = server.communicate(timeout=60)[1]
    assert server.returncode == 0
    assert "reload" in log
    assert "birds" not in log
