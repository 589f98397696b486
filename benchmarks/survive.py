"""Survival: a run killed with kill -9 at a hundred random moments ends with the weights of an uninterrupted run."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.measure import report
from regard.config import CONFIG, load_config
from regard.corpora.builtin.corpus import sentences
from regard.errors import RegardError
from regard.folders import checksum
from regard.models.folder import MODEL, load_model
from regard.text.tokenizer import Tokenizers
from regard.training.checkpoint import CHECKPOINTS, checkpoints, update_number, verify_checkpoint

PAIRS = 600
SETTINGS = (
    "model.size=32",
    "model.heads=2",
    "model.feed_forward_size=64",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "text.vocabulary=400",
    "train.updates=120",
    "train.batch_tokens=600",
    "train.warmup=10",
    "train.save_every=5",
    "train.validate_every=60",
    "train.ema_decay=0.9",
    "decode.beams=1",
    "decode.max_length_ratio=1",
    "decode.max_length_extra=10",
)


def main(kills: int = 100, seed: int = 0) -> bool:
    """Start and kill runs until `kills` were killed; each run is restarted until it is finished."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder)
        uninterrupted = folder / "uninterrupted"
        duration = finish(folder, uninterrupted)
        expected = checksum(uninterrupted / MODEL)
        generator, counts = random.Random(seed), Counter[str]()
        faults_found: list[str] = []
        run, before, start_time = 1, 0, time.perf_counter()
        while counts["kills"] < kills:
            out = folder / f"run-{run}"
            killed = start(folder, out, after=generator.uniform(0.0, 1.05 * duration))
            faults_found += [f"run {run}: {line}" for line in faults(out, before, said(folder))]
            counts[phase(out, said(folder)) if killed else "finished"] += 1
            counts["kills"] += killed
            before = latest_update(out)
            if not killed:
                if checksum(out / MODEL) != expected:
                    faults_found.append(f"run {run} ended with other weights than the uninterrupted run")
                run, before = run + 1, 0
        seconds = time.perf_counter() - start_time
        out = folder / f"run-{run}"  # finish the last one
        finish(folder, out)
        faults_found += faults(out, before, said(folder))
        equal = not faults_found and checksum(out / MODEL) == expected
    for line in faults_found:
        print(line, file=sys.stderr)
    return report(
        "kill -9 survived", float(equal), at_least=1.0, kills=counts.pop("kills"), finished=counts.pop("finished") + 1,
        killed_while=dict(counts), wrong=len(faults_found), seconds=round(seconds), life=round(duration, 1), seed=seed,
    )  # fmt: skip


def write(folder: Path) -> None:
    pairs = list(sentences(PAIRS))
    (folder / "source").write_text("".join(pair.source + "\n" for pair in pairs), encoding="utf-8")
    (folder / "target").write_text("".join(pair.target + "\n" for pair in pairs), encoding="utf-8")


# One start


def launch(folder: Path, out: Path) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "regard", "train", "source", "target", "--out", str(out), "--device", "cpu"]
    words += ["--threads", "1", *(word for value in SETTINGS for word in ("--set", value))]
    environment: dict[str, Any] = {**os.environ, "REGARD_CACHE": str(folder / "cache"), "COLUMNS": "120"}
    with open(folder / "said", "wb") as log:
        return subprocess.Popen(words, cwd=folder, env=environment, stdout=log, stderr=log)


def said(folder: Path) -> str:
    return (folder / "said").read_text(encoding="utf-8", errors="replace")


def finish(folder: Path, out: Path) -> float:
    """Run to the end and return the seconds."""
    start_time = time.perf_counter()
    process = launch(folder, out)
    if process.wait():
        raise SystemExit(f"the run failed:\n{said(folder)}")
    return time.perf_counter() - start_time


def start(folder: Path, out: Path, *, after: float) -> bool:
    """Kill a run after some seconds; False if it was finished before."""
    process = launch(folder, out)
    try:
        code = process.wait(after)
    except subprocess.TimeoutExpired:
        process.kill()
        code = process.wait()
    if code > 0:
        raise SystemExit(f"a restarted run failed:\n{said(folder)}")
    return code < 0


# What it leaves


def latest_update(out: Path) -> int:
    return max(map(update_number, checkpoints(out)), default=0)


def faults(out: Path, before: int, words: str) -> list[str]:
    """Files that do not load, and updates lost since the checkpoint of update `before`."""
    faults_found = []
    try:
        for path in checkpoints(out):
            verify_checkpoint(path)
        if (out / CONFIG).exists():
            load_config(out)
            Tokenizers.load(out)
        if (out / MODEL).exists():
            load_model(out)
    except RegardError as error:
        faults_found.append(f"does not load: {error}")
    if "was skipped" in words:
        faults_found.append("a checkpoint was damaged")
    resumed = re.search(r"resumed at update ([\d,]+)", words)
    if resumed and int(resumed[1].replace(",", "")) < before:
        faults_found.append(f"resumed at update {resumed[1]} though {before} was saved")
    if latest_update(out) < before:
        faults_found.append(f"has {latest_update(out)} updates, and had {before}")
    return faults_found


def phase(out: Path, words: str) -> str:
    """What a run was doing when it was killed, as its files show."""
    temporary = [*out.glob(".regard-*"), *(out / CHECKPOINTS).glob(".regard-*")]
    if (out / MODEL).exists():
        return "finished already"
    if any(path.parent.name == CHECKPOINTS for path in temporary):
        return "saving"
    if latest_update(out) == updates():
        return "finishing"
    if temporary:
        return "writing other files"
    return "training" if "examples to train on" in words else "starting"


def updates() -> int:
    return next(int(value.partition("=")[2]) for value in SETTINGS if value.startswith("train.updates="))
