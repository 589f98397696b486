"""The lineage race: every family on the same sentences, short and long, and what attention makes of the long ones.

Each racer is a run of its own, `python -m regard train ...`, so that what stops is gone on with, and what is finished
is not trained again.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch

from regard import folders
from regard.config import Config, find_config
from regard.corpora import catalog
from regard.counting import count
from regard.errors import FolderError, RunError
from regard.evaluation.metrics import bootstrap_seed, by_length, corpus_scores
from regard.inspection import race
from regard.inspection.attribution import Map, attention
from regard.models import build
from regard.training.data import Files, make_tokenizers, prepare
from regard.training.distributed import Runtime
from regard.training.journal import read
from regard.training.planning import time_updates
from regard.translation.translator import Translator

RACERS = {
    "no attention": "builtin-rnn-none",
    "additive": "builtin-rnn",
    "dot": "builtin-rnn-dot",
    "general": "builtin-rnn-general",
    "cosine": "builtin-rnn-cosine",
    "transformer": "builtin-transformer",
}
WITHOUT = "no attention"
SIZES = {"train": 60_000, "valid": 300, "test": 1_600}
MADE = {"lengths": "uniform", "max_length": 80}
LENGTHS = (10, 20, 30, 40, 50, 60, 70)  # where buckets of reference words end
UPDATES = 4000
GRAPHS = 24  # shapes of batches on a GPU, which plays recorded updates: token by token, Python would be far too slow
ROWS = 2  # times as many sentences in an update of a GPU, which takes hardly longer for them
SENTENCE = "The agreement on the European Economic Area was signed in August 1992."
SHORT = 30.0  # BLEU that a model must reach on short sentences, or what it does on long ones would mean nothing
HALF, TENTH = 0.5, 0.1  # what it must lose from the shortest bucket to the longest, and what the others may
SPENT = 0.8  # of the minutes given that training may take; the rest is for sentences, scores and the page
ASKED_EVERY = 0.5  # seconds from one look at the racers to the next

PROBE_SECONDS = 1.0  # for the time of an update of each racer

TRANSLATED = "test.fr"  # what a racer makes of the test sentences, beside its model

Say = Callable[[str], None]


class Entry(NamedTuple):
    """A racer with a seed."""

    name: str
    seed: int
    folder: Path

    @property
    def update(self) -> int:
        """How far it has come."""
        lines = read(self.folder / "journal.jsonl")
        return int(lines[-1]["update"]) if lines else 0

    @property
    def finished(self) -> bool:
        return (self.folder / "model.safetensors").exists()


Show = Callable[[Sequence[tuple[Entry, str]], int], None]
"""Told now and then where every racer stands (waiting, running, finished), and how many updates there are."""


def run(
    out: Path, *, minutes: float, updates: int, seeds: int, device: torch.device, sizes: Mapping[str, int], say: Say,
    show: Show,
) -> dict[str, Any]:  # fmt: skip
    """Train all, score all, write the page: what was found, as `race.json` has it."""
    begun = time.perf_counter()
    bootstrap_seed()  # a wrong one is said now, not after the training
    with folders.lock_folder(out), _counted(out / "spent.txt", begun) as before:
        data = _corpus(out / "data", sizes, say)
        plan = _plan(out, data, minutes, updates, seeds, device, say)
        entries = [
            Entry(name, seed, out / "runs" / f"{name.replace(' ', '-')}-{seed}")
            for seed in range(1, seeds + 1)
            for name in RACERS
        ]
        if found := _known(out, entries):
            return found
        _train(entries, data, plan, device, show)
        found = _scores(entries, data, device, say)
        found |= {"updates": plan, "seconds": before + time.perf_counter() - begun, "device": device.type}
        found["verdicts"] = verdicts(found)
        folders.write_file(out / "index.html", race.page(found, _looks(entries, device)), force=True)
        folders.write_file(out / "race.json", json.dumps(found, indent=2) + "\n", force=True)
    return found


@contextmanager
def _counted(path: Path, begun: float) -> Iterator[float]:
    """The seconds a race took before it was stopped; those of now are added, however it ends."""
    try:
        before = float(path.read_text())
    except (OSError, ValueError):
        before = 0.0
    try:
        yield before
    finally:
        folders.write_file(path, f"{before + time.perf_counter() - begun}\n", force=True)


def _known(out: Path, entries: Sequence[Entry]) -> dict[str, Any] | None:
    """What was found before, where these racers are finished, scored and drawn."""
    path, there = out / "race.json", all((entry.folder / TRANSLATED).exists() for entry in entries)
    if not (there and path.is_file() and (out / "index.html").is_file()):
        return None
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
        return found if sum(racer["seeds"] for racer in found["racers"]) == len(entries) else None
    except (ValueError, KeyError, TypeError):
        return None


# Sentences


def _corpus(folder: Path, sizes: Mapping[str, int], say: Say) -> Path:
    """Built-in sentences, as many of every length up to eighty words."""
    wanted = json.dumps({"sizes": dict(sizes), "made": MADE}, sort_keys=True)
    record = folder / "race.txt"
    if record.exists():
        if record.read_text(encoding="utf-8").strip() != wanted:
            raise FolderError(f"{folder} holds other sentences than are asked for: choose another --out")
        return folder
    say(f"writing {sum(sizes.values()):,} sentence pairs of 2 to {MADE['max_length']} words")
    catalog.write_builtin(folder, sizes=sizes, force=True, **MADE)
    folders.write_file(record, wanted + "\n", force=True)
    return folder


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


# Running


def _config(name: str, device: torch.device) -> Config:
    config = find_config(RACERS[name])
    return config.with_values([f"{field}={value}" for field, value in _own(config, device).items()])


def _own(config: Config, device: torch.device) -> dict[str, int]:
    """What a race on this device has other than the recipes, which are for a CPU."""
    if device.type != "cuda":
        return {}
    return {"train.batch_tokens": ROWS * config.train.batch_tokens, "train.batch_shapes": GRAPHS}


def _plan(out: Path, data: Path, minutes: float, updates: int, seeds: int, device: torch.device, say: Say) -> int:
    """The updates of every racer: asked for, or as many as fit into the minutes; said once and then kept."""
    path = out / "updates.txt"
    if path.exists():
        planned = int(path.read_text())
        if updates and updates != planned:
            raise FolderError(
                f"{out} holds a race of {planned:,} updates: choose another --out, or leave --updates out"
            )
        return planned
    planned = updates or UPDATES
    if minutes:
        each = _seconds(data, device)
        say(", ".join(f"{name} {1000 * took:.0f}" for name, took in each.items()) + " ms an update")
        cores = _places(device) if device.type == "cpu" else 1  # a GPU has them take turns
        longest = max(sum(each.values()) * seeds / cores, max(each.values()))
        planned = max(20, int(SPENT * 60 * minutes / longest))
    budget = _config(WITHOUT, device).train.batch_tokens
    say(f"{planned:,} updates of {budget:,} positions for each of {len(RACERS)} models")
    folders.write_file(path, f"{planned}\n", force=True)
    return planned


def _seconds(data: Path, device: torch.device) -> dict[str, float]:
    """What an update of each takes, one after the other and on one thread, as they run."""
    files = Files(data / "train.en", data / "train.fr", False)
    valid = Files(data / "valid.en", data / "valid.fr", False)
    text = _config(WITHOUT, device).text
    sides = make_tokenizers([files], text, lambda _: None)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = {}
        for name in RACERS:
            config = _config(name, device)
            shape = dataclasses.replace(config.model, vocabulary=sides.source.size)
            config = dataclasses.replace(config, model=shape)
            made, _ = prepare([files], valid, config, sides, lambda _: None)
            found[name] = time_updates(config, made, Runtime(device, 0, 1), PROBE_SECONDS, _build)[0]
        return found
    finally:
        torch.set_num_threads(threads)


def _build(config: Config) -> torch.nn.Module:
    return build(config.model)


def _places(device: torch.device) -> int:
    """How many run side by side: one a core; on a CUDA GPU, which small models leave idle, all of them."""
    return {"cpu": max(1, os.cpu_count() or 1), "cuda": len(RACERS)}.get(device.type, 1)


def _command(entry: Entry, data: Path, updates: int, device: torch.device) -> list[str]:
    sides = [str(data / f"{part}.{side}") for part in ("train", "valid") for side in ("en", "fr")]
    every = max(1, updates // 8)
    values = {"train.metric": "loss", "train.validate_every": every, "train.save_every": every}
    values |= _own(find_config(RACERS[entry.name]), device)
    shape = [word for name, value in values.items() for word in ("--set", f"{name}={value}")]
    return [
        sys.executable, "-m", "regard", "train", *sides[:2], "--valid", *sides[2:], "--recipe", RACERS[entry.name],
        "--out", str(entry.folder), "--updates", str(updates), "--seed", str(entry.seed), "--threads", "1",
        "--device", device.type, *shape,
    ]  # fmt: skip


def _train(entries: Sequence[Entry], data: Path, updates: int, device: torch.device, show: Show) -> None:
    """All of them, a few side by side, the slowest first; a signal stops them all, and each saves."""
    slow = ["additive", "cosine", "general", "dot", "transformer", WITHOUT]
    waiting = sorted(
        (entry for entry in entries if not entry.finished), key=lambda entry: (entry.seed, slow.index(entry.name))
    )
    running: dict[Entry, subprocess.Popen[bytes]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < _places(device):
                entry = waiting.pop(0)
                entry.folder.parent.mkdir(parents=True, exist_ok=True)
                with entry.folder.with_suffix(".log").open("wb") as log:
                    running[entry] = subprocess.Popen(
                        _command(entry, data, updates, device), stdout=subprocess.DEVNULL, stderr=log
                    )
            show([(entry, _standing(entry, waiting, running)) for entry in entries], updates)
            time.sleep(ASKED_EVERY)
            for entry, process in list(running.items()):
                code = process.poll()
                if code is not None:
                    del running[entry]
                    if code:
                        raise RunError(f"{entry.name} did not finish: {_last_words(entry)}")
        show([(entry, "finished") for entry in entries], updates)
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.wait()


def _standing(entry: Entry, waiting: Sequence[Entry], running: Mapping[Entry, Any]) -> str:
    return "waiting" if entry in waiting else "running" if entry in running else "finished"


def _last_words(entry: Entry) -> str:
    said = _lines(entry.folder.with_suffix(".log"))
    return said[-1] if said else "it said nothing"


# Scores


def _scores(entries: Sequence[Entry], data: Path, device: torch.device, say: Say) -> dict[str, Any]:
    sources, references = _lines(data / "test.en"), _lines(data / "test.fr")
    racers = []
    for name in RACERS:
        own = [entry for entry in entries if entry.name == name]
        say(f"scoring {name}")
        texts = [_translated(entry, sources, device) for entry in own]
        buckets = [by_length(each, references, lengths=LENGTHS) for each in texts]
        scores = [corpus_scores(each, references, metrics=["bleu"])["bleu"] for each in texts]
        counted = count(_config_of(own[0]))
        racers.append(
            {
                "name": name,
                "bleu": fmean(score.score for score in scores),
                "signature": scores[0].signature,
                "by_length": [_joined(each) for each in zip(*buckets, strict=True)],
                "parameters": {"total": counted.total, "parts": dict(counted.parts)},
                "curve": _curve(own[0]),
                "seeds": len(own),
            }
        )
    return {"racers": racers, "sentences": len(sources)}


def _config_of(entry: Entry) -> Config:
    return find_config(str(entry.folder))


def _translated(entry: Entry, sources: Sequence[str], device: torch.device) -> list[str]:
    """What a racer makes of the test sentences, one word after the other; kept beside its model."""
    path = entry.folder / TRANSLATED
    if path.exists() and len(found := _lines(path)) == len(sources):
        return found
    translator = Translator.load(entry.folder, device)
    texts = [result.text for result in translator.translate(sources, beams=1, warn=False)]
    folders.write_file(path, "".join(f"{text}\n" for text in texts), force=True)
    return texts


def _joined(buckets: Sequence[Any]) -> dict[str, Any]:
    """A bucket of several seeds: the mean, and between which they lie; of one, its bootstrap interval."""
    found: dict[str, Any] = buckets[0].to_dict()
    if len(buckets) > 1:
        scores = [bucket.bleu for bucket in buckets]
        found |= {"bleu": fmean(scores), "low": min(scores), "high": max(scores)}
    return found


def _curve(entry: Entry) -> list[tuple[float, float]]:
    """Seconds of training and loss of the validation set."""
    journal = read(entry.folder / "journal.jsonl")
    updates, seconds = [0], [0.0]
    for line in journal:
        if line["kind"] == "update":  # every tenth is written: it stands for those before it
            seconds.append(seconds[-1] + line["seconds"] * (line["update"] - updates[-1]))
            updates.append(line["update"])
    return [
        (round(float(np.interp(line["update"], updates, seconds)), 2), line["valid_loss"])
        for line in journal
        if line["kind"] == "validation"
    ]


def _looks(entries: Sequence[Entry], device: torch.device) -> dict[str, Map | str]:
    """What each looks at in the same sentence; where there is no attention, what it writes."""
    looks: dict[str, Map | str] = {}
    for name in RACERS:
        entry = next(entry for entry in entries if entry.name == name)
        (result,) = Translator.load(entry.folder, device).translate([SENTENCE], trace=True)
        trace = result.trace
        looks[name] = attention(trace, "cross") if trace is not None and "cross" in trace.attention else result.text
    return looks


# What the notes claim


def verdicts(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Whether it came out as the notes say: without attention BLEU falls with length, with attention it stays."""
    said = []
    for racer in found["racers"]:
        buckets = [bucket for bucket in racer["by_length"] if not bucket["small"]]
        if len(buckets) < 2:
            continue
        first, last = buckets[0]["bleu"], buckets[-1]["bleu"]
        lost = 1 - last / first if first else None
        if racer["name"] == WITHOUT:
            holds, claim = lost is not None and lost >= HALF, "falls by half at least"
        else:
            holds, claim = lost is not None and lost <= TENTH, "stays within a tenth"
        holds = holds and first >= SHORT  # what was not learned is neither lost nor kept
        said.append({"name": racer["name"], "claim": claim, "first": first, "last": last, "lost": lost, "holds": holds})
    return said
