"""Text: preparing a corpus against the bare `tokenizers` library, its memory, and how fast batches are collated."""

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
from regard.text.dataset import Dataset
from regard.text.preparation import identity_of, prepare
from regard.text.tokenizer import Tokenizers, train

SIDES = ("source", "target")
LINES_PER_CALL = 4096  # of the bare library
BATCH_TOKENS = 4096


def main(size: int = 1_000_000, rounds: int = 3) -> bool:
    """Tokenize and store pairs of the built-in corpus; collate them."""
    from benchmarks.measure import report  # not above: it imports torch, whose memory would be measured too

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        few, many = folder / "few", folder / "many"
        write(few, size // 10)
        write(many, size)
        tokenizer = train((text for pair in islice(read(many), 50_000) for text in pair), kind="bpe", vocabulary=8000)
        Tokenizers(tokenizer, tokenizer).save(folder)
        turns = [(measure("prepared", many), measure("bare", many)) for _ in range(rounds)]
        ours, theirs = (min(turn[side]["seconds"] for turn in turns) for side in (0, 1))
        small = max((measure("prepared", few) for _ in range(rounds)), key=lambda turn: turn["megabytes"])
        large = max((ours for ours, _ in turns), key=lambda turn: turn["megabytes"])
        collated = max(measure("collated", many)["tokens"] for _ in range(rounds))
    return all(
        [
            report(
                "clean, tokenize and store against the bare tokenizers library",
                theirs / ours,
                at_least=0.9,
                value=2 * size / ours,
                unit="sentences/s",
                bare=2 * size / theirs,
                pairs=size,
                cores=os.cpu_count(),
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
            report(
                "batches collated",
                collated / 1e6,
                at_least=1.0,
                value=collated,
                unit="tokens/s",
                batch_tokens=BATCH_TOKENS,
            ),
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
    with open(folder / "source", encoding="utf-8") as sources, open(folder / "target", encoding="utf-8") as targets:
        for source, target in zip(sources, targets, strict=True):
            yield source.rstrip("\n"), target.rstrip("\n")


def measure(work: str, folder: Path) -> dict[str, Any]:
    """A measurement in a new process, so that its memory is its own."""
    command = [sys.executable, "-m", "benchmarks.text", work, str(folder)]
    return dict(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def prepared(folder: Path) -> dict[str, Any]:
    """Clean, tokenize and store a corpus."""
    files = [folder / side for side in SIDES]
    with tempfile.TemporaryDirectory(dir=folder) as cache, peak_memory() as peaks:
        start = time.perf_counter()
        made = prepared_in(Path(cache), folder, identity_of(files))
        seconds = time.perf_counter() - start
        text = Dataset.open(made).record["report"]["text"]
    return {"seconds": seconds, "megabytes": sum(peaks.values()) / 1024, "text": text}


def prepared_in(cache: Path, folder: Path, identity: str) -> Path:
    tokenizers, cleaning = Tokenizers.load(folder.parent), Cleaning.from_config(TextConfig())
    return prepare(cache, lambda: read(folder), identity=identity, tokenizers=tokenizers, cleaning=cleaning)


@contextmanager
def peak_memory() -> Iterator[dict[str, int]]:
    """The peak resident memory of this process and each of its children, in KB, by process.

    The count that Linux keeps for children begins with the memory of their parent, so they are polled instead.
    """
    peaks: dict[str, int] = {}
    done = threading.Event()

    def poll() -> None:
        while not done.wait(0.02):
            children = Path("/proc/self/task", str(os.getpid()), "children").read_text(encoding="ascii").split()
            for process in ("self", *children):
                try:
                    status = Path("/proc", process, "status").read_text(encoding="ascii", errors="replace")
                    peaks[process] = int(status.partition("VmHWM:")[2].split()[0])
                except (OSError, IndexError):
                    continue  # it has just ended

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield peaks
    finally:
        done.set()
        thread.join()


def bare(folder: Path) -> dict[str, Any]:
    """The library's fastest call on the same lines, with all its threads and without storing anything."""
    engine = Engine.from_file(str(folder.parent / "tokenizer.json"))
    start = time.perf_counter()
    for side in SIDES:
        with open(folder / side, encoding="utf-8") as file:
            while lines := [line.rstrip("\n") for line in islice(file, LINES_PER_CALL)]:
                engine.encode_batch_fast(lines, add_special_tokens=False)
    return {"seconds": time.perf_counter() - start}


def collated(folder: Path) -> dict[str, Any]:
    """Real tokens per second out of the prefetcher, from one process."""
    from regard.text.batching import pairs, prefetch
    from regard.text.ordering import plan_batches

    dataset = Dataset.open(prepared_in(folder / "cache", folder, "collated"))
    lengths = dataset.source.lengths, dataset.target.lengths
    plan = plan_batches(*lengths, batch_tokens=BATCH_TOKENS, seed=1, epoch=0)
    start = time.perf_counter()
    tokens = int(dataset.source.lengths.sum())
    for batch in prefetch(pairs(dataset, plan, rank=0, world_size=1), range(len(plan)), device="cpu"):
        tokens += batch.target_tokens
    return {"tokens": tokens / (time.perf_counter() - start)}


WORK = {"prepared": prepared, "bare": bare, "collated": collated}

if __name__ == "__main__":
    print(json.dumps(WORK[sys.argv[1]](Path(sys.argv[2]))))
