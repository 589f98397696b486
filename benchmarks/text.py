"""Text: preparing a corpus against the bare `tokenizers` library, its memory, and how fast batches are served."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Engine

from regard.config import TextConfig
from regard.text.cleaning import Cleaning
from regard.text.dataset import Dataset, identity, prepare
from regard.text.tokenizer import Tokenizers, train_sides
from regard.text.workers import cores

SIDES = ("source", "target")
LINES = 4096  # in one call of the bare library
BUDGET = 4096


def main(size: int = 1_000_000, rounds: int = 3) -> bool:
    """Tokenise and store pairs of the built-in corpus; serve them."""
    from benchmarks.measure import report  # not above: it brings torch, which would count as memory of what is measured

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        few, many = folder / "few", folder / "many"
        write(few, size // 10)
        write(many, size)
        pairs = islice(read(many), 50_000)
        train_sides(*zip(*pairs, strict=True), shared=True, kind="bpe", vocabulary=8000).save(folder)
        turns = [(child("prepared", many), child("bare", many)) for _ in range(rounds)]
        ours, theirs = (min(turn[side]["seconds"] for turn in turns) for side in (0, 1))
        small = max((child("prepared", few) for _ in range(rounds)), key=lambda turn: turn["megabytes"])
        large = max((ours for ours, _ in turns), key=lambda turn: turn["megabytes"])
        served = max(child("served", many)["tokens"] for _ in range(rounds))
    return all(
        [
            report(
                "clean, tokenise and store against the bare tokenizers library",
                theirs / ours,
                at_least=0.9,
                value=2 * size / ours,
                unit="sentences/s",
                bare=2 * size / theirs,
                pairs=size,
                cores=cores(),
            ),
            report(
                "memory of preparing ten times as many pairs",
                large["megabytes"] / small["megabytes"],
                at_most=1.3,
                value=large["megabytes"],
                unit="MB in all processes",
                fewer=small["megabytes"],
                pairs=size,
            ),
            report("batches served", served / 1e6, at_least=1.0, value=served, unit="tokens/s", budget=BUDGET),
        ]
    )


def write(folder: Path, size: int) -> None:
    """Pairs of the built-in corpus as two text files."""
    from regard.corpora.builtin.corpus import sentences

    folder.mkdir()
    with (
        open(folder / "source", "w", encoding="utf-8") as source,
        open(folder / "target", "w", encoding="utf-8") as target,
    ):
        for pair in sentences(size):
            source.write(pair.source + "\n")
            target.write(pair.target + "\n")


def read(folder: Path) -> Iterator[tuple[str, str]]:
    with open(folder / "source", encoding="utf-8") as source, open(folder / "target", encoding="utf-8") as target:
        for one, other in zip(source, target, strict=True):
            yield one.rstrip("\n"), other.rstrip("\n")


def child(work: str, folder: Path) -> dict[str, Any]:
    """A measurement in a process of its own, so that memory is its own too."""
    command = [sys.executable, "-m", "benchmarks.text", work, str(folder)]
    return dict(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def prepared(folder: Path) -> dict[str, Any]:
    """Clean, tokenise and store, everything made anew."""
    sides = Tokenizers.load(folder.parent)
    files = [folder / side for side in SIDES]
    with tempfile.TemporaryDirectory(dir=folder) as cache, watched() as peaks:
        begun = time.perf_counter()
        rules = Cleaning.from_config(TextConfig())
        made = prepare(Path(cache), lambda: read(folder), identity=identity(files), tokenizers=sides, cleaning=rules)
        seconds = time.perf_counter() - begun
        text = Dataset.open(made).record["report"]["text"]
    return {"seconds": seconds, "megabytes": sum(peaks.values()) / 1024, "text": text}


@contextmanager
def watched() -> Iterator[dict[str, int]]:
    """The peak of resident memory of this process and each of its children, in KB, by process.

    Linux's own count for children begins with what their parent had when it started them: they are looked at instead.
    """
    peaks: dict[str, int] = {}
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.02):
            mine = Path("/proc/self/task", str(os.getpid()), "children").read_text(encoding="ascii").split()
            for process in ("self", *mine):
                try:
                    status = Path("/proc", process, "status").read_text(encoding="ascii", errors="replace")
                    peaks[process] = int(status.partition("VmHWM:")[2].split()[0])
                except (OSError, IndexError):
                    continue  # it has just ended

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield peaks
    finally:
        done.set()
        thread.join()


def bare(folder: Path) -> dict[str, Any]:
    """The library's fastest call on the same lines, all its threads, nothing kept."""
    engine = Engine.from_file(str(folder.parent / "tokenizer.json"))
    begun = time.perf_counter()
    for side in SIDES:
        with open(folder / side, encoding="utf-8") as file:
            while lines := [line.rstrip("\n") for line in islice(file, LINES)]:
                engine.encode_batch_fast(lines, add_special_tokens=False)
    return {"seconds": time.perf_counter() - begun}


def served(folder: Path) -> dict[str, Any]:
    """Real tokens a second out of the feed, from one process."""
    from regard.text.batching import Prefetcher, pairs
    from regard.text.ordering import plan

    sides = Tokenizers.load(folder.parent)
    rules = Cleaning.from_config(TextConfig())
    made = prepare(folder / "cache", lambda: read(folder), identity="served", tokenizers=sides, cleaning=rules)
    store = Dataset.open(made)
    batches = plan(store.source_lengths, store.target_lengths, budget=BUDGET, seed=1, epoch=0)
    begun = time.perf_counter()
    tokens = 0
    for batch in Prefetcher(pairs(store, batches, rank=0, world_size=1), range(len(batches)), device="cpu"):
        tokens += batch.source_tokens + batch.target_tokens
    return {"tokens": tokens / (time.perf_counter() - begun)}


WORK = {"prepared": prepared, "bare": bare, "served": served}

if __name__ == "__main__":
    print(json.dumps(WORK[sys.argv[1]](Path(sys.argv[2]))))
