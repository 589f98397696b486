"""The lineage race: train every family on the same corpus and compare BLEU on short and long sentences.

Each model is trained by its own process, `python -m regard train ...`, so an interrupted race resumes and finished
models are not trained again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import torch

from regard import folders
from regard.config import find_config
from regard.corpora import catalog
from regard.counting import count
from regard.errors import FolderError, RunError
from regard.evaluation.metrics import by_length, corpus_scores
from regard.evaluation.pages import by_length as length_chart
from regard.evaluation.systems import read_test
from regard.inspection import charts, pages
from regard.inspection.attribution import Map, attention
from regard.models import build
from regard.models.folder import MODEL
from regard.results import counted
from regard.training import journal
from regard.training.data import Files, make_tokenizers, prepare
from regard.training.distributed import Runtime
from regard.training.events import Say
from regard.training.sizing import time_update
from regard.training.train import restored_state
from regard.translation.explain import explain
from regard.translation.translator import Translator

RECIPES = {
    "no attention": "builtin-rnn-none",
    "additive": "builtin-rnn",
    "dot": "builtin-rnn-dot",
    "general": "builtin-rnn-general",
    "cosine": "builtin-rnn-cosine",
    "transformer": "builtin-transformer",
}
BASELINE = "no attention"
SIZES = {"train": 60_000, "valid": 300, "test": 1_600}
CORPUS: dict[str, Any] = {"lengths": "uniform", "max_length": 80}
LENGTHS = (10, 20, 30, 40, 50, 60, 70)  # upper limits of the buckets, in reference words
UPDATES = 4000
GPU_BATCH_SHAPES = 24  # CUDA graphs: an RNN launches its kernels token by token
GPU_BATCH_FACTOR = 2  # larger batches hardly take longer on a GPU
SENTENCE = "The agreement on the European Economic Area was signed in August 1992."
MIN_BLEU = 30.0  # on short sentences; a model with less has not learned the task
MIN_BASELINE_DROP, MAX_ATTENTION_DROP = 0.5, 0.1  # relative drop of BLEU from short to long sentences
TRAINING_SHARE = 0.8  # of --minutes; the rest is for the corpus, scores and the page
POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Race:
    """The folder of a race, the device that it runs on, and how it reports what it does."""

    out: Path
    device: torch.device
    say: Say

    @property
    def at_once(self) -> int:
        """The number of models trained at the same time: one per CPU core, or all on one GPU."""
        return {"cpu": os.cpu_count() or 1, "cuda": len(RECIPES)}.get(self.device.type, 1)

    def folder(self, name: str) -> Path:
        return self.out / "runs" / name.replace(" ", "-")

    def journal(self, name: str) -> list[dict[str, Any]]:
        """The journal of a model so far."""
        return journal.read(self.folder(name) / journal.FILE)

    def settings(self, name: str) -> list[str]:
        """Settings that override a recipe on a GPU; the recipes are for a CPU."""
        if self.device.type != "cuda":
            return []
        batch_tokens = GPU_BATCH_FACTOR * find_config(RECIPES[name]).train.batch_tokens
        return [f"train.batch_tokens={batch_tokens}", f"train.batch_shapes={GPU_BATCH_SHAPES}"]

    def plan(self, sizes: Mapping[str, int], minutes: float | None, updates: int | None) -> int:
        """Write the corpus; return the updates of each model, as many as fit into the minutes; later calls use them."""
        path, corpus = self.out / "plan.json", {"sizes": dict(sizes), **CORPUS}
        if plan := folders.read_json(path, optional=True):
            if plan["corpus"] != corpus or (updates or plan["updates"]) != plan["updates"]:
                raise FolderError(
                    f"{self.out} holds a race of {plan['updates']:,} updates on {plan['corpus']['sizes']['train']:,}"
                    " pairs: choose another --out, or leave --updates and --pairs out"
                )
            return int(plan["updates"])
        self.say(f"writing {sum(sizes.values()):,} sentence pairs of 2 to {CORPUS['max_length']} words")
        catalog.write_builtin(self.out / "data", force=True, sizes=sizes, **CORPUS)
        planned = updates or UPDATES
        if minutes:
            seconds = self.time_updates()
            self.say(", ".join(f"{name} {1000 * value:.0f}" for name, value in seconds.items()) + " ms per update")
            processes = self.at_once if self.device.type == "cpu" else 1  # on a GPU they take turns
            round_seconds = max(sum(seconds.values()) / processes, max(seconds.values()))  # one update of each
            planned = max(20, int(TRAINING_SHARE * 60 * minutes / round_seconds))
        self.say(f"{counted(planned, 'update')} for each of {len(RECIPES)} models")
        folders.write_file(path, json.dumps({"corpus": corpus, "updates": planned}) + "\n", force=True)
        return planned

    def time_updates(self) -> dict[str, float]:
        """The seconds of an update of each model, with one CPU thread."""
        data = self.out / "data"
        configs = {name: find_config(recipe).with_values(self.settings(name)) for name, recipe in RECIPES.items()}
        files, valid = (Files(data / f"{part}.en", data / f"{part}.fr", False) for part in ("train", "valid"))
        tokenizers = make_tokenizers([files], configs[BASELINE].text, lambda _: None)
        seconds, runtime = {}, Runtime(self.device, 0, 1)
        with restored_state(self.device, threads=1):
            for name, config in configs.items():
                config = config.with_values([f"model.vocabulary={tokenizers.source.size}"])
                prepared, full = prepare([files], valid, config, tokenizers, lambda _: None), config.train.batch_tokens
                seconds[name] = time_update(config, prepared, runtime, lambda c: build(c.model), cpu_tokens=full)
        return seconds

    def command(self, name: str, updates: int) -> list[str]:
        """The command that trains a model."""
        data, every = self.out / "data", max(1, updates // 8)
        source, target, *valid = (str(data / file) for file in ("train.en", "train.fr", "valid.en", "valid.fr"))
        settings = ["train.metric=loss", f"train.validate_every={every}", f"train.save_every={every}"]
        values = [word for value in settings + self.settings(name) for word in ("--set", value)]
        return [
            sys.executable, "-m", "regard", "train", source, target, "--valid", *valid, "--recipe", RECIPES[name],
            "--out", str(self.folder(name)), "--updates", str(updates), "--seed", "1", "--threads", "1",
            "--device", self.device.type, *values,
        ]  # fmt: skip

    def train(self, updates: int, progress: Callable[[int, int], None]) -> None:
        """Train the unfinished models, several at once. If this process is interrupted, each saves a checkpoint."""
        waiting = [name for name in RECIPES if not (self.folder(name) / MODEL).exists()]
        running: dict[str, subprocess.Popen[bytes]] = {}
        try:
            while waiting or running:
                while waiting and len(running) < self.at_once:
                    name = waiting.pop(0)
                    self.say(f"{name}: running")
                    self.folder(name).parent.mkdir(parents=True, exist_ok=True)
                    with self.folder(name).with_suffix(".log").open("wb") as log:
                        command = self.command(name, updates)
                        running[name] = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)
                time.sleep(POLL_SECONDS)
                made = sum(entries[-1]["update"] for entries in map(self.journal, RECIPES) if entries)
                progress(made, updates * len(RECIPES))
                for name, process in list(running.items()):
                    if (code := process.poll()) is None:
                        continue
                    del running[name]
                    if code:
                        lines = self.folder(name).with_suffix(".log").read_text(encoding="utf-8").splitlines()
                        raise RunError(f"{name} did not finish: {lines[-1] if lines else f'exit code {code}'}")
                    self.say(f"{name}: finished")
        finally:
            for process in running.values():
                process.terminate()
            for process in running.values():
                process.wait()

    def score(self) -> dict[str, Any]:
        """The scores, parameters and losses of all models."""
        sources, references = (read_test(self.out / "data" / f"test.{language}") for language in ("en", "fr"))
        racers = []
        for name in RECIPES:
            self.say(f"scoring {name}")
            translated = Translator.load(self.folder(name), self.device).translate(sources, beams=1, warn=False)
            texts = [result.text for result in translated]
            score = corpus_scores(texts, references, metrics=["bleu"])["bleu"]
            racer = {
                "name": name,
                "bleu": score.score,
                "signature": score.signature,
                "by_length": by_length(texts, references, lengths=LENGTHS),
                "parameters": count(self.folder(name)).total,
                "curve": [(x["update"], x["valid_loss"]) for x in self.journal(name) if x["kind"] == "validation"],
            }
            racers.append(racer)
        return {"racers": racers, "sentences": len(sources)}


def run(
    out: Path,
    *,
    minutes: float | None,
    updates: int | None,
    device: torch.device,
    sizes: Mapping[str, int],
    say: Say,
    progress: Callable[[int, int], None],
) -> dict[str, Any]:
    """Train all models, score them and write the page; returns the results, which are also in `race.json`.

    `progress` is called with the updates made and planned, of all models together.
    """
    start, race = time.perf_counter(), Race(out, device, say)
    with folders.lock_folder(out):
        planned = race.plan(sizes, minutes, updates)
        results: dict[str, Any] = folders.read_json(out / "race.json", optional=True)
        if results:
            return results
        race.train(planned, progress)
        results = race.score()
        results |= {"updates": planned, "seconds": time.perf_counter() - start, "device": device.type}
        results["verdicts"] = verdicts(results)
        maps: dict[str, Map | str] = {}  # for the model without attention, its translation
        for name in RECIPES:
            trace = explain(race.folder(name), SENTENCE, device=device).trace
            maps[name] = attention(trace, "cross") if "cross" in trace.attention else trace.target.text
        folders.write_file(out / "index.html", page(results, maps), force=True)
        folders.write_file(out / "race.json", json.dumps(results, indent=2) + "\n", force=True)
    return results


def verdicts(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Check the papers' claim: without attention BLEU drops on long sentences, with attention it does not."""
    checked = []
    for racer in results["racers"]:
        buckets = [bucket for bucket in racer["by_length"] if not bucket["small"]]
        if len(buckets) > 1:
            first, last = buckets[0]["bleu"], buckets[-1]["bleu"]
            lost = 1 - last / first if first else 0.0
            claim, holds = "stays within a tenth", lost <= MAX_ATTENTION_DROP
            if racer["name"] == BASELINE:
                claim, holds = "falls by at least half", lost >= MIN_BASELINE_DROP
            facts = {"first": first, "last": last, "lost": lost, "holds": holds and first >= MIN_BLEU}
            checked.append({"name": racer["name"], "claim": claim, **facts})
    return checked


# The page


def page(results: Mapping[str, Any], maps: Mapping[str, Map | str]) -> str:
    """The results of a race as one HTML file: claims, BLEU by length, loss, attention."""
    racers = results["racers"]
    buckets = [{**row[0], "systems": row} for row in zip(*(racer["by_length"] for racer in racers), strict=True)]
    curves = {racer["name"]: racer["curve"] for racer in racers}
    losses = charts.curve_chart(curves, "loss, nats per token", "update")
    cells = []
    for name, shown in maps.items():
        if isinstance(shown, str):
            drawing = f'<p class="soft">It has no attention. It writes:</p>{pages.text("p", escape(shown), "fr")}'
        else:
            drawing = pages.heatmap(shown, ("en", "fr"))
        cells.append(f"<div><h3>{escape(name)}</h3>{drawing}</div>")
    note = "Rows: the translation; columns: the source. A stronger colour is a larger weight."
    parts = [
        _claims(results["verdicts"], racers),
        length_chart(buckets, list(curves)),
        pages.card("Validation loss", "Logarithmic scale.", losses),
        pages.card("Attention to the same sentence", note, f'<div class="heats">{"".join(cells)}</div>'),
    ]
    about = (
        f"{len(racers)} models of about the same size are trained on the same sentences of 2 to 80 words for "
        f"{results['updates']:,} updates each, and then translate {results['sentences']:,} new ones with greedy search."
        f" One seed, on a {'CPU' if results['device'] == 'cpu' else 'GPU'}."
    )
    return pages.page(headline(results["verdicts"]), parts, kind="The lineage race", about=about)


def headline(verdicts: Sequence[Mapping[str, Any]]) -> str:
    """What happens to BLEU on long sentences without and with attention."""
    base = next((verdict for verdict in verdicts if verdict["name"] == BASELINE), None)
    attending = [verdict["holds"] for verdict in verdicts if verdict["name"] != BASELINE]
    if base is None or not attending:
        return "What attention does for long sentences"
    kept = f"{sum(attending)} of {len(attending)} models with attention stay within a tenth"
    return f"Without attention BLEU goes from {base['first']:.0f} to {base['last']:.0f} on long sentences; {kept}"


def _claims(verdicts: Sequence[Mapping[str, Any]], racers: Sequence[Mapping[str, Any]]) -> str:
    """The models with what the papers claim of them, and whether it holds."""
    if not verdicts:
        return ""
    rows = []
    for number, (verdict, racer) in enumerate(zip(verdicts, racers, strict=True)):
        kind, text = ("yes", "✓ holds") if verdict["holds"] else ("no", "✗ fails")
        rows.append(
            [
                charts.series_key(number) + escape(verdict["name"]),
                f'{verdict["claim"]} <span class="verdict {kind}">{text}</span>',
                f"{verdict['first']:.1f} → {verdict['last']:.1f}",
                f"{-verdict['lost']:+z.0%}".replace("-", "−"),
                f"{racer['bleu']:.1f}",
                f"{racer['parameters']:,}",
            ]
        )
    note = (
        "Without attention one vector has to hold the whole sentence, however long; with attention each word is looked "
        "up in the source. BLEU of the shortest and of the longest sentences, as in the chart below, and of all. A "
        "claim holds only for a model that translates short sentences well."
    )
    head = ["model", "BLEU", "short → long", "change", "all", "parameters"]
    signature = pages.signature(racers[0]["signature"])
    return pages.card("The claims of the papers, measured", note, pages.table(head, rows), signature)
