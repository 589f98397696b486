"""Serving: `regard serve` on one core, loaded by wrk on another, against the engine called directly.

It needs a finished model: `regard demo`, then `python -m benchmarks serving --model demo/model --data demo/data`, and
`apt-get install wrk`. With `--libretranslate PYTHON` LibreTranslate's server is compared, which needs an environment
of its own: `pip install libretranslate tokenizers safetensors`.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

import regard
from benchmarks.measure import report
from regard.interop.ctranslate2 import export_ctranslate2
from regard.server.batching import BATCH_TEXTS
from regard.server.served import CACHE_SIZE
from regard.translation.translator import Translator

CONNECTIONS = 64
LUA = Path(__file__).with_suffix(".lua")
SHORT = range(4, 8)  # words
TEXTS_PER_REQUEST = 8  # under overload, so that few connections fill the queue
OVERLOAD_CONNECTIONS = 256
MAX_PAUSE = 60.0  # seconds between the requests of a connection: the server closes those that are silent for 75
NEAR_TIE = 1e-4  # of a score
DISTINCT = (
    2 * CACHE_SIZE
)  # texts for each time of the capacity: the server no longer has an answer when one comes again


def main(
    model: str = "demo/model",
    data: str = "demo/data",
    seconds: int = 24,
    rounds: int = 2,
    minutes: float = 10.0,
    times: float = 2.0,
    libretranslate: str = "",
) -> bool:
    """Throughput and latency against the engine in the same run, then `minutes` at `times` the capacity.

    rounds: of throughput; with 0 only the overload is measured.
    libretranslate: the python of an environment with libretranslate, tokenizers and safetensors, whose server is given
    the same CTranslate2 model and the same requests.
    """
    if not Path(model, "model.safetensors").exists() or shutil.which("wrk") is None:
        print(f"serving needs wrk and a model of the built-in corpus in {model}: left out", file=sys.stderr)
        return True
    server_core, load_core = sorted(os.sched_getaffinity(0))[:2]
    os.sched_setaffinity(0, {server_core})
    torch.set_num_threads(1)
    translator = Translator.load(model, "cpu")
    lines = Path(data, "train.en").read_text(encoding="utf-8").splitlines()
    distinct = int(times * DISTINCT)
    short = [line for line in lines[:-distinct] if len(line.split()) in SHORT]
    with server(server_core, ours(model)) as (address, process), tempfile.TemporaryDirectory() as folder:
        load = Load(address, load_core, Path(folder, "requests"))
        good = rounds == 0 or throughput(translator, lines, load, process, seconds, rounds)
        good &= rounds == 0 or latency(translator, short, load, seconds)
        good &= overload(translator, lines[-distinct:], load, process, minutes, times)
    if libretranslate:
        compare(
            model,
            translator.config.decode.beams,
            libretranslate,
            [lines[:-distinct], short],
            (server_core, load_core),
            seconds,
            rounds,
        )
    return good


def ours(model: str, *options: str) -> list[str]:
    """The command that serves a model of ours, without the port."""
    return [sys.executable, "-m", "regard", "serve", f"en-fr={model}", "--quiet", "--threads", "1", *options, "--port"]


@contextmanager
def server(core: int, command: Sequence[str]) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The address and process of a server on one core; the port is added to its command."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(regard.__file__).parents[1])}
    with subprocess.Popen(["taskset", "-c", str(core), *command, str(port)], env=environment) as process:
        address = f"http://127.0.0.1:{port}"
        while process.poll() is None:
            try:
                urllib.request.urlopen(f"{address}/health").close()
                break
            except OSError:
                time.sleep(0.2)
        yield address, process
        process.terminate()


class Load:
    """wrk on a core; requests go to a file for each of its threads."""

    def __init__(self, address: str, core: int, path: Path) -> None:
        self.address, self.core, self.path = address, core, path

    def run(
        self, pairs: Sequence[tuple[Any, Any]], connections: int, seconds: float, *, pause: float = 0.0
    ) -> dict[str, Any]:
        """Send texts for some seconds, each connection its own; `pairs` are texts and their right translations."""
        for number in range(connections):
            rows = (
                _compact({"q": text, "source": "en", "target": "fr"}) + "\t" + _compact({"translatedText": right})
                for text, right in pairs[number::connections]
            )
            Path(f"{self.path}{number}").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
        count = str(connections)
        words = ["taskset", "-c", str(self.core), "wrk", f"-t{count}", f"-c{count}", f"-d{seconds:.0f}s"]
        words += ["--timeout", "90s", "-s", str(LUA), self.address, "--", str(self.path), str(pause)]
        output = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
        result: dict[str, Any] = json.loads(output.rpartition("RESULT ")[2])
        return result

    def differing(self, connections: int) -> list[list[str]]:
        """Each wrong answer of the last run, and the right answers to the requests it may belong to."""
        files = [Path(f"{self.path}{number}.wrong").read_text(encoding="utf-8") for number in range(connections)]
        return [line.split("\t") for text in files for line in text.splitlines()]


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def throughput(
    translator: Translator,
    lines: Sequence[str],
    load: Load,
    process: subprocess.Popen[bytes],
    seconds: int,
    rounds: int,
) -> bool:
    """Sentences per second with many connections, one by one, and by the engine in full batches, in turns."""
    best = {"engine": 0.0, "many": 0.0, "single": 0.0, "engine_cpu": 0.0, "many_cpu": 0.0}  # _cpu: per CPU second
    texts, right = iter(lines), 0
    for _ in range(rounds):
        started, cpu, translated, pairs = time.perf_counter(), time.process_time(), 0, []
        while time.perf_counter() - started < seconds:
            batch = [next(texts) for _ in range(BATCH_TEXTS)]
            results = translator.translate(batch, beams=None)
            pairs += [(text, result.text) for text, result in zip(batch, results, strict=True)]
            translated += len(batch)
        best["engine"] = max(best["engine"], translated / (time.perf_counter() - started))
        best["engine_cpu"] = max(best["engine_cpu"], translated / (time.process_time() - cpu))
        cpu = _cpu_seconds(process.pid)
        many = load.run(pairs + [(text, "") for text in _take(texts, len(pairs))], CONNECTIONS, seconds)
        right += many["right"]
        best["many"] = max(best["many"], (many["right"] + many["wrong"]) / many["seconds"])
        best["many_cpu"] = max(best["many_cpu"], (many["right"] + many["wrong"]) / (_cpu_seconds(process.pid) - cpu))
        single = load.run([(text, "") for text in _take(texts, len(pairs))], 1, seconds)
        best["single"] = max(best["single"], single["wrong"] / single["seconds"])
    good = report("64 connections against the engine with full batches", best["many"] / best["engine"], at_least=0.9,
                  **best)  # fmt: skip
    return report("64 connections against one request at a time", best["many"] / best["single"], at_least=3) and good


def compare(
    model: str,
    beams: int,
    python: str,
    texts: Sequence[Sequence[str]],
    cores: tuple[int, int],
    seconds: int,
    rounds: int,
) -> None:
    """LibreTranslate's server and ours with CTranslate2 on the same model, in turns: sentences/s, and p50 alone."""
    with tempfile.TemporaryDirectory() as folder:
        exported = Path(folder, "exported")
        export_ctranslate2(Path(model), exported, sentences=0)
        commands = {
            "regard": ours(model, "--engine", "ctranslate2", "--precision", "fp32"),
            "libretranslate": [python, str(Path(__file__).with_name("_libretranslate.py")), str(exported), str(beams)],
        }
        best = {name: {"per_second": 0.0, "per_cpu_second": 0.0, "p50_ms": 1e9} for name in commands}
        for turn in range(rounds):
            for name, command in commands.items():
                with server(cores[0], command) as (address, process):
                    load = Load(address, cores[1], Path(folder, "requests"))
                    many, alone = ([(text, "") for text in part[turn::rounds]] for part in texts)
                    load.run(alone[:50], 1, 2)  # the first request loads the model
                    cpu = _cpu_seconds(process.pid)
                    answered = load.run(many, CONNECTIONS, seconds)
                    rate = answered["wrong"] / (_cpu_seconds(process.pid) - cpu)
                    best[name]["per_cpu_second"] = max(best[name]["per_cpu_second"], rate)
                    rate = answered["wrong"] / answered["seconds"]
                    best[name]["per_second"] = max(best[name]["per_second"], rate)
                    best[name]["p50_ms"] = min(best[name]["p50_ms"], 1000 * load.run(alone[50:], 1, 2)["p50"])
    regards, theirs = best["regard"], best["libretranslate"]
    report("sentences/s against LibreTranslate's server", regards["per_second"] / theirs["per_second"], **best)
    report("p50 of a short request against LibreTranslate's server", regards["p50_ms"] / theirs["p50_ms"])


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _take(texts: Iterator[str], number: int) -> list[str]:
    return [text for text, _ in zip(texts, range(number), strict=False)]


def latency(translator: Translator, short: Sequence[str], load: Load, seconds: int) -> bool:
    """The median time of a short request alone on the server, against the engine's."""
    times = []
    for text in short[:200]:
        started = time.perf_counter()
        translator.translate([text])
        times.append(time.perf_counter() - started)
    answered = load.run([(text, "") for text in short], 1, seconds)
    engine = statistics.median(times)
    facts = {"engine_ms": 1000 * engine, "server_ms": 1000 * answered["p50"], "p99_ms": 1000 * answered["p99"]}
    return report("p50 of a short request against the engine", answered["p50"] / engine, at_most=1.3, **facts)


def overload(
    translator: Translator,
    texts: Sequence[str],
    load: Load,
    process: subprocess.Popen[bytes],
    minutes: float,
    times: float,
) -> bool:
    """More texts than the engine can translate: memory, and answers other than the right ones and 429."""
    started, translations = time.perf_counter(), []
    for first in range(0, len(texts), BATCH_TEXTS):
        translations += [result.text for result in translator.translate(texts[first : first + BATCH_TEXTS])]
    capacity = len(texts) / (time.perf_counter() - started)
    size = TEXTS_PER_REQUEST
    pairs = [(list(texts[i : i + size]), translations[i : i + size]) for i in range(0, len(texts), size)]
    memory, seconds = [], 60 * minutes
    pause = min(OVERLOAD_CONNECTIONS * size / (times * capacity), MAX_PAUSE)
    with _sampled(process.pid, memory):
        result = load.run(pairs, OVERLOAD_CONNECTIONS, seconds, pause=pause)
    quarter = len(memory) // 4
    growth = statistics.mean(memory[-quarter:]) / statistics.mean(memory[quarter : 2 * quarter])
    differing = load.differing(OVERLOAD_CONNECTIONS)
    sources = {_compact({"translatedText": right}): sources for sources, right in pairs}
    strange = [
        received
        for received, *candidates in differing
        if not any(_near_ties(translator, sources[right], right, received) for right in candidates)
    ]
    offered = size * sum(result[x] for x in ("right", "wrong", "busy", "other")) / result["seconds"]
    facts = {**result, "capacity": capacity, "offered": offered, "times": offered / capacity,
             "megabytes": max(memory), "near_ties": len(differing) - len(strange)}  # fmt: skip
    good = report("memory in the last quarter against the second", growth, at_most=1.05, **facts)
    failures = len(strange) + result["other"] + result["broken"]
    return report("answers that are neither right nor 429", failures, at_most=0) and good


def _near_ties(translator: Translator, sources: Sequence[str], right: str, received: str) -> bool:
    """Whether all translations that differ score as well: where two are as good, the batch decides by rounding."""
    for source, expected, text in zip(
        sources, *(json.loads(x)["translatedText"] for x in (right, received)), strict=True
    ):
        [best] = translator.translate([source], alternatives=4)
        equal = {other.text for other in (best, *best.alternatives) if best.score - other.score < NEAR_TIE}
        if text != expected and text not in equal:
            return False
    return True


@contextmanager
def _sampled(pid: int, megabytes: list[float]) -> Iterator[None]:
    """Sample the resident memory of a process every second."""
    ended = threading.Event()

    def sample() -> None:
        while not ended.wait(1):
            pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
            megabytes.append(pages * os.sysconf("SC_PAGE_SIZE") / 1e6)

    thread = threading.Thread(target=sample)
    thread.start()
    yield
    ended.set()
    thread.join()
