"""Survival: kill -9 at random moments, a hundred times in a row, and the end is that of the run that was left alone."""

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
from regard.corpora.builtin.corpus import sentences
from regard.errors import RegardError
from regard.folders import checksum
from regard.models.folder import CONFIG, MODEL, load_config, load_model
from regard.text.tokenizer import Tokenizers
from regard.training.checkpoint import CHECKPOINTS, checkpoints, load_checkpoint

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
    """Runs are started again and again until they are finished, and new ones begun, until so many were killed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder)
        alone = folder / "alone"
        life = finish(folder, alone)
        wanted = checksum(alone / MODEL)
        chance, seen = random.Random(seed), Counter[str]()
        wrong: list[str] = []
        run, before, begun = 1, 0, time.perf_counter()
        while seen["kills"] < kills:
            out = folder / f"run-{run}"
            killed = start(folder, out, after=chance.uniform(0.0, 1.05 * life))
            wrong += [f"run {run}: {line}" for line in faults(out, before, said(folder))]
            seen[phase(out, said(folder)) if killed else "finished"] += 1
            seen["kills"] += killed
            before = newest_update(out)
            if not killed:
                if checksum(out / MODEL) != wanted:
                    wrong.append(f"run {run} ended with other weights than the run that was left alone")
                run, before = run + 1, 0
        seconds = time.perf_counter() - begun
        out = folder / f"run-{run}"  # the last one is brought to its end as well
        finish(folder, out)
        wrong += faults(out, before, said(folder))
        equal = not wrong and checksum(out / MODEL) == wanted
    for line in wrong:
        print(line, file=sys.stderr)
    return report(
        "kill -9 survived", float(equal), at_least=1.0, kills=seen.pop("kills"), finished=seen.pop("finished") + 1,
        killed_while=dict(seen), wrong=len(wrong), seconds=round(seconds), life=round(life, 1), seed=seed,
    )  # fmt: skip


def write(folder: Path) -> None:
    pairs = list(sentences(PAIRS))
    (folder / "source").write_text("".join(pair.source + "\n" for pair in pairs), encoding="utf-8")
    (folder / "target").write_text("".join(pair.target + "\n" for pair in pairs), encoding="utf-8")


# One life


def begin(folder: Path, out: Path) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "regard", "train", "source", "target", "--out", str(out), "--device", "cpu"]
    words += ["--threads", "1", *(word for value in SETTINGS for word in ("--set", value))]
    environment: dict[str, Any] = {**os.environ, "REGARD_CACHE": str(folder / "cache"), "COLUMNS": "120"}
    with open(folder / "said", "wb") as log:
        return subprocess.Popen(words, cwd=folder, env=environment, stdout=log, stderr=log)


def said(folder: Path) -> str:
    return (folder / "said").read_text(encoding="utf-8", errors="replace")


def finish(folder: Path, out: Path) -> float:
    """A run to its end; how long that took."""
    begun = time.perf_counter()
    process = begin(folder, out)
    if process.wait():
        raise SystemExit(f"the run failed:\n{said(folder)}")
    return time.perf_counter() - begun


def start(folder: Path, out: Path, *, after: float) -> bool:
    """A run that is killed after so many seconds; False where it was done before."""
    process = begin(folder, out)
    try:
        code = process.wait(after)
    except subprocess.TimeoutExpired:
        process.kill()
        code = process.wait()
    if code > 0:
        raise SystemExit(f"a run that was started again failed:\n{said(folder)}")
    return code < 0


# What is left of it


def newest_update(out: Path) -> int:
    found = checkpoints(out)
    return int(found[-1].name.removeprefix("update-")) if found else 0


def faults(out: Path, before: int, words: str) -> list[str]:
    """What of a folder does not load, and what was lost since the checkpoint that was there `before`."""
    wrong = []
    try:
        for path in checkpoints(out):
            load_checkpoint(path)
        if (out / CONFIG).exists():
            load_config(out)
            Tokenizers.load(out)
        if (out / MODEL).exists():
            load_model(out)
    except RegardError as error:
        wrong.append(f"does not load: {error}")
    if "passed over" in words:
        wrong.append("a checkpoint was damaged")
    resumed = re.search(r"resumed at update ([\d,]+)", words)
    if resumed and int(resumed[1].replace(",", "")) < before:
        wrong.append(f"went on from update {resumed[1]} though {before} was saved")
    if newest_update(out) < before:
        wrong.append(f"has {newest_update(out)} updates, and had {before}")
    return wrong


def phase(out: Path, words: str) -> str:
    """What a run was doing when it was killed, as far as can be seen from outside."""
    hidden = [*out.glob(".regard-*"), *(out / CHECKPOINTS).glob(".regard-*")]
    if (out / MODEL).exists():
        return "finished already"
    if any(path.parent.name == CHECKPOINTS for path in hidden):
        return "saving"
    if newest_update(out) == updates():
        return "finishing"
    if hidden:
        return "writing other files"
    return "training" if "examples to train on" in words else "starting"


def updates() -> int:
    return next(int(value.partition("=")[2]) for value in SETTINGS if value.startswith("train.updates="))
