"""Distillation on Multi30k English-German: a teacher and a student of two cores, through the same engine.

Trains both (half an hour), or measures finished ones: `--folder` holds or keeps `teacher` and `student`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch

import regard
from benchmarks.measure import in_turn, report
from regard.evaluation.metrics import corpus_scores
from regard.text.files import read_lines
from regard.translation.translator import Translator

TEACHER = """
[model]
family = "transformer"
size = 256
heads = 4
feed_forward_size = 512
encoder_layers = 4
decoder_layers = 4
norm_placement = "pre"
positions = "rotary"
dropout = 0.1

[text]
vocabulary = 6000

[train]
batch_tokens = 2048
learning_rate = 0.002
schedule = "linear"
warmup = 300
ema_decay = 0.99
validate_every = 1000
save_every = 500
"""
TESTS = ("test_2016_flickr", "test_2017_flickr")
LINES = 10_000  # read on one core
WORDS_PER_SECOND = 1500


def main(folder: str = "", minutes: float = 15, rounds: int = 3) -> bool:
    """Train teacher and student for so many minutes each, and compare their speed and their BLEU."""
    data = Path(os.environ.get("REGARD_DATA", ""), "multi30k")
    if not data.is_dir():
        print(f"distill is skipped: {data} is not here (REGARD_DATA)", file=sys.stderr)
        return True
    with tempfile.TemporaryDirectory() as temporary:
        runs = Path(folder or temporary)
        teacher, student = train(data, runs, minutes)
        models = {"teacher": load(teacher), "student": load(student)}
        return all([*quality(models, data), *speed(models, data, rounds), one_core(student, data, runs)])


def train(data: Path, runs: Path, minutes: float) -> tuple[Path, Path]:
    """The folders of a teacher and of its student; finished ones stay as they are."""
    teacher, student = runs / "teacher", runs / "student"
    if (student / "model.safetensors").exists():
        return teacher, student
    runs.mkdir(parents=True, exist_ok=True)
    recipe = runs / "teacher.toml"
    recipe.write_text(TEACHER)
    files = [data / f"train.{language}.gz" for language in ("en", "de")]
    options: dict[str, Any] = {"valid": (data / "val.en.gz", data / "val.de.gz"), "minutes": minutes, "device": "cpu"}
    regard.train(*files, out=teacher, recipe=str(recipe), **options)
    regard.distill(teacher, *files, out=student, **options)
    return teacher, student


def load(folder: Path) -> Translator:
    translator = Translator.load(folder, "cpu")
    translator.use("ctranslate2", "int8", folder, token_scores=False)
    return translator


def lines(path: Path) -> list[str]:
    return [line for line, _ in read_lines(path)]


def translations(model: Translator, texts: list[str], beams: int | None = None) -> list[str]:
    return [result.text for result in model.translate(texts, beams=beams, warn=False)]


def quality(models: dict[str, Translator], data: Path) -> list[bool]:
    """BLEU of both on the test sets, each with its own beam size."""
    good = []
    for name in TESTS:
        source, reference = (lines(data / f"{name}.{language}.gz") for language in ("en", "de"))
        bleu = {
            who: corpus_scores(translations(model, source), reference, metrics=["bleu"])["bleu"]
            for who, model in models.items()
        }
        scores = {who: score.score for who, score in bleu.items()}
        lost = scores["teacher"] - scores["student"]
        signature = bleu["teacher"].signature
        good.append(report(f"BLEU lost by the student on {name}", lost, at_most=0.5, bleu=scores, signature=signature))
    return good


def speed(models: dict[str, Translator], data: Path, rounds: int) -> list[bool]:
    """Text to text in CTranslate2's int8 with all threads: with the beam size of each, and both with one beam."""
    texts = lines(data / f"{TESTS[0]}.en.gz")
    good = []
    for beams, at_least in ((None, 4.0), (1, None)):
        runs = {who: partial(translations, model, texts, beams) for who, model in models.items()}
        seconds = in_turn(runs, rounds=rounds)
        used = {who: beams or model.config.decode.beams for who, model in models.items()}
        ratio = seconds["teacher"] / seconds["student"]
        per_second = {who: len(texts) / value for who, value in seconds.items()}
        name = f"student against teacher, {' and '.join(f'{number} beams' for number in used.values())}"
        good.append(report(name, ratio, at_least=at_least, sentences_per_second=per_second))
    return good


def one_core(student: Path, data: Path, runs: Path) -> bool:
    """Source words a second of `regard translate` on one core, from the start of the command to its end."""
    texts = lines(data / "train.en.gz")[:LINES]
    source, out = runs / "one-core.en", runs / "one-core.de"
    source.write_text("".join(f"{text}\n" for text in texts))
    command = [sys.executable, "-m", "regard", "translate", str(student), str(source), "--out", str(out), "--force"]
    command += ["--engine", "ctranslate2", "--precision", "int8", "--threads", "1"]
    core = next(iter(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else None
    begun = time.perf_counter()
    subprocess.run(
        command,
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        preexec_fn=None if core is None else lambda: os.sched_setaffinity(0, {core}),
    )
    seconds = time.perf_counter() - begun
    words = sum(len(text.split()) for text in texts)
    ratio = words / seconds / WORDS_PER_SECOND
    return report(
        f"regard translate on one core against {WORDS_PER_SECOND:,} words/s", ratio, at_least=1.0,
        words_per_second=words / seconds, threads_of_torch=torch.get_num_threads(),
    )  # fmt: skip
