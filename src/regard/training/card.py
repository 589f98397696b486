"""The card: what a model is, what it was made from, how it was trained and how good it is."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from regard import __version__
from regard.counting import count
from regard.text.files import SUFFIXES
from regard.training import hardware as machine
from regard.training.data import Files, validation_report
from regard.training.loop import Training
from regard.training.progress import format_duration

NAMES = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER", "calibration": "calibration error"}
DOES = {"gpt": "writes on", "bert": "fills in masked words"}


def model_card(
    training: Training,
    scores: Mapping[str, Any],
    *,
    corpora: Sequence[Files],
    valid: Files | None,
    command: str,
    start: str,
    kept: Sequence[int],
) -> str:
    """`card.md`; `start` says what the weights were before the first update, `kept` of which updates they are now."""
    config, data = training.config, training.data
    counted = count(config)
    spoken = languages(corpora[0])
    does = DOES.get(config.model.family) or "translates" + (f" from {spoken[0]} to {spoken[1]}" if spoken else "")
    article = "An" if config.model.family == "rnn" else "A"
    lines = [
        f"# {training.folder.resolve().name}",
        "",
        f"{article} **{config.model.family}** of {counted.total:,} parameters that {does}, "
        f"trained with Regard {__version__}.",
        "",
        "![training](training.png)",
        "",
        "## How good it is",
        "",
        f"On the {len(data.valid):,} examples of the validation set{_searched(training)}:",
        "",
        "| metric | score | signature |",
        "|---|---:|---|",
        *(_score(name, scores[name]) for name in reversed(list(scores))),
        "",
        "The model was chosen by this set: on text it was never measured with, expect a little less.",
        "",
        "## What it was made from",
        "",
        *_table(_origin(training, corpora, valid) | {"started from": start}),
        "",
        "## How it was trained",
        "",
        f"    {command}",
        "",
        *_table(_course(training, kept)),
        "",
        "## Its parts",
        "",
        "| part | parameters |",
        "|---|---:|",
        *(f"| {part} | {number:,} |" for part, number in counted.parts.items()),
        f"| **all** | **{counted.total:,}** |",
    ]
    return "\n".join(lines) + "\n"


def languages(files: Files) -> tuple[str, str] | None:
    """The two languages, as they were given or as the names of the files end: train.en, train.fr.gz."""
    if files.languages or files.target is None:
        return files.languages
    ends = [
        next((end for end in reversed(path.suffixes) if end not in SUFFIXES), "").removeprefix(".")
        for path in (files.source, files.target)
    ]
    known = all(2 <= len(end) <= 3 and end.isalpha() and end not in ("txt", "tsv", "csv") for end in ends)
    return (ends[0], ends[1]) if known else None


def _score(name: str, score: Any) -> str:
    if isinstance(score, Mapping):
        return f"| {NAMES.get(name, name)} | {score['score']:.4g} | {_cell('`' + score['signature'] + '`')} |"
    perplexity = f", perplexity {math.exp(score):.2f}" if score < 50 else ""
    return f"| {name} | {score:.4f} | nats a token{perplexity} |"


def _searched(training: Training) -> str:
    config = training.config
    if config.model.family in DOES:
        return ""
    return f", beams {config.decode.beams}, length penalty {config.decode.length_penalty:g}"


def _origin(training: Training, corpora: Sequence[Files], valid: Files | None) -> dict[str, str]:
    config, data = training.config, training.data
    sides = "one for both sides" if data.tokenizers.shared else f"{data.tokenizers.target.size:,} on the target side"
    single = config.model.family in DOES
    said = validation_report(data.valid) if valid else ""
    return {
        "training text": "<br>".join(_named(files) for files in corpora),
        "cleaning": data.train[0].record["report"]["text"] + (f"<br>{said}" if said else ""),
        "validation text": _named(valid) if valid else "held out of the training text, none of it repeated there",
        "examples": f"{len(data.train[0]):,} to train on, {len(data.valid):,} to validate with",
        "tokenizer": f"{config.text.tokenizer}, {data.tokenizers.source.size:,} tokens"
        + ("" if single else f", {sides}"),
    }


def _named(files: Files) -> str:
    bytes_ = sum(path.stat().st_size for path in files.paths if path.is_file())
    names = " and ".join(f"`{path.name}`" for path in (files.source, files.target) if path is not None)
    weight = "" if files.weight == 1 else f", {files.weight:g} times an epoch"
    return f"{names}, {bytes_ / 1e6:,.3g} MB{weight}"


def _course(training: Training, kept: Sequence[int]) -> dict[str, str]:
    config, progress, runtime = training.config, training.progress, training.runtime
    settings = config.train
    updates = ", ".join(f"{update:,}" for update in kept)
    best = f"the best by {NAMES.get(settings.metric, settings.metric)}, of update {progress.best_update:,}"
    weights = best if list(kept) == [progress.best_update] else f"of update {updates}, the last that could be read"
    if settings.average_checkpoints:
        weights = f"the mean of {len(kept)} checkpoint{'s' * (len(kept) != 1)}, of update {updates}"
    elif settings.ema_decay:
        weights += f", averaged with a decay of {settings.ema_decay:g}"
    rows = {
        "updates": f"{progress.update:,}, the last in epoch {progress.epoch + 1:,}",
        "target tokens seen": f"{progress.tokens:,}",
        "weights kept": weights,
        "hardware": machine.describe(runtime),
        "time": f"{format_duration(progress.seconds)} of updates; preparing and validating come on top",
        "precision": "bf16, weights in fp32" if machine.precision(settings, runtime) == "bf16" else "fp32",
        "seed": str(settings.seed),
        "versions": f"regard {__version__}, torch {torch.__version__}, Python {platform.python_version()}",
    }
    if progress.skipped:
        rows["updates left out"] = f"{progress.skipped:,}, whose loss or gradient was no number"
    return rows


def _table(rows: Mapping[str, str]) -> list[str]:
    return ["| | |", "|---|---|", *(f"| {name} | {_cell(text)} |" for name, text in rows.items())]


def _cell(text: str) -> str:
    """Text that stays in its cell."""
    return " ".join(text.split()).replace("|", "\\|")
