"""The model card: scores, training data and training settings of a model, as Markdown."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from regard import __version__
from regard.counting import count
from regard.evaluation.metrics import METRICS
from regard.results import counted, format_duration
from regard.text.files import language_of
from regard.training.data import Files, validation_report
from regard.training.distributed import Runtime
from regard.training.gradients import uses_bf16
from regard.training.loop import Training

if TYPE_CHECKING:
    from regard.training.train import Request

LANGUAGE_MODELS = {"gpt": "continues text", "bert": "fills in masked words"}


def model_card(training: Training, scores: Mapping[str, Any], request: Request, kept: int) -> str:
    """The text of `card.md`; `kept` is the update whose weights were kept."""
    config, data, tokenizers = training.config, training.data, training.data.tokenizers
    corpora, valid = request.corpora, request.valid
    settings, progress, family = config.train, training.progress, config.model.family
    pair = languages(corpora[0])
    task = LANGUAGE_MODELS.get(family) or "translates" + (f" from {pair[0]} to {pair[1]}" if pair else "")
    first = scores["bleu"].get("sentences") if "bleu" in scores else None  # the time was too short for all
    search = f", beams {config.decode.beams}, length penalty {config.decode.length_penalty:g}"
    target = "one for both sides" if tokenizers.shared else f"{tokenizers.target.size:,} on the target side"
    cleaning = [data.train[0].record["report"]["text"], validation_report(data.valid) if valid else ""]
    is_best, metric = kept == progress.best_update, METRICS.get(settings.metric, settings.metric)
    choice = f"the best by {metric}" if is_best else "the last intact checkpoint"
    average = f", exponential moving average with decay {settings.ema_decay:g}" if settings.ema_decay else ""
    minutes = f"; as many as fitted into --minutes {settings.minutes:g}" if settings.minutes else ""
    data_rows = {
        "training text": "<br>".join(map(_describe, corpora)),
        "cleaning": "<br>".join(filter(None, cleaning)),
        "validation text": _describe(valid) if valid else "held out of the training text, without duplicates in it",
        "examples": f"{len(data.train[0]):,} to train on, {len(data.valid):,} to validate on",
        "tokenizer": f"{config.text.tokenizer}, {tokenizers.source.size:,} tokens"
        + ("" if family in LANGUAGE_MODELS else f", {target}"),
        "started from": " and ".join(f"`{path}`" for path in request.origins) or "random weights",
    }
    training_rows = {
        "updates": f"{progress.update:,}, the last in epoch {progress.epoch + 1:,}{minutes}",
        "target tokens seen": f"{progress.tokens:,}",
        "weights kept": f"of update {kept:,}, {choice}{average}",
        "hardware": describe_machine(training.runtime),
        "time": f"{format_duration(progress.seconds)} of updates, without preparation and validation",
        "precision": "bf16, weights in fp32" if uses_bf16(settings, training.runtime.device) else "fp32",
        "seed": str(settings.seed),
        **({"skipped updates": f"{progress.skipped:,}, with NaN or inf"} if progress.skipped else {}),
        "versions": f"regard {__version__}, torch {torch.__version__}, Python {platform.python_version()}",
    }
    lines = [
        f"# {training.folder.resolve().name}",
        "",
        f"{'An' if family == 'rnn' else 'A'} **{family}** of {count(config).total:,} parameters that {task}, "
        f"trained with Regard {__version__}.",
        "",
        "![training](training.png)",
        "",
        "## Scores",
        "",
        f"On the {f'first {first:,} of ' if first else ''}{len(data.valid):,} examples of the validation set"
        f"{'' if family in LANGUAGE_MODELS else search}:",
        "",
        "| metric | score | signature |",
        "|---|---:|---|",
        *(_score_row(name, scores[name]) for name in reversed(list(scores))),
        "",
        "The best checkpoint was chosen on this set; expect slightly lower scores on other text.",
        "",
        "## Data",
        "",
        *_table(data_rows),
        "",
        "## Training",
        "",
        f"    {request.call}",
        "",
        *_table(training_rows),
    ]
    return "\n".join(lines) + "\n"


def languages(files: Files) -> tuple[str, str] | None:
    """The two languages of a corpus, as given or from the file names (train.en, train.fr.gz)."""
    if files.languages or files.target is None:
        return files.languages
    source, target = map(language_of, (files.source, files.target))
    return (source, target) if source and target else None


def _score_row(name: str, score: Any) -> str:
    if isinstance(score, Mapping):
        return f"| {METRICS.get(name, name)} | {score['score']:.4g} | {_cell('`' + score['signature'] + '`')} |"
    perplexity = f", perplexity {math.exp(score):.2f}" if score < 50 else ""
    return f"| {name} | {score:.4f} | nats per token{perplexity} |"


def _describe(files: Files) -> str:
    size = sum(path.stat().st_size for path in files.paths if path.is_file())
    names = " and ".join(f"`{path.name}`" for path in (files.source, files.target) if path is not None)
    weight = "" if files.weight == 1 else f", {files.weight:g} times per epoch"
    return f"{names}, {size / 1e6:,.3g} MB{weight}"


def describe_machine(runtime: Runtime) -> str:
    """`NVIDIA H200`, `2 × NVIDIA H200` or `AMD EPYC 7R13, 2 threads`."""
    if runtime.device.type == "cuda":
        name = torch.cuda.get_device_name(runtime.device)
        return f"{runtime.world_size} × {name}" if runtime.world_size > 1 else name
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(errors="replace").splitlines() if cpuinfo.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    processor = next(names, "") or platform.processor() or platform.machine()
    return f"{processor}, {counted(torch.get_num_threads(), 'thread')}" + " (Metal)" * (runtime.device.type == "mps")


def _table(rows: Mapping[str, str]) -> list[str]:
    return ["| | |", "|---|---|", *(f"| {name} | {_cell(text)} |" for name, text in rows.items())]


def _cell(text: str) -> str:
    """Text on one line, with escaped column separators."""
    return " ".join(text.split()).replace("|", "\\|")
