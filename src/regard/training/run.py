"""A run: two text files in, a model folder out; the same request again goes on where it stopped."""

from __future__ import annotations

import dataclasses
import math
import shutil
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard import folders
from regard.accounting import count
from regard.checkpoint import CONFIG, MODEL, average, checkpoints, load_checkpoint, newest, parameters, save_model
from regard.config import Config, from_json, to_json
from regard.errors import ConfigError, DataError, FolderError
from regard.evaluate import corpus_scores
from regard.models import build
from regard.text.batch import Feed
from regard.text.tokenizer import FILES as TOKENIZERS
from regard.text.tokenizer import Sides
from regard.training.card import model_card
from regard.training.data import Data, Files, make_tokenizers, prepare
from regard.training.loop import Progress, Training, Validation, Watch
from regard.training.objectives import objective
from regard.training.runtime import Runtime
from regard.translator import Translator

VALIDATED = 500  # sentences translated at a validation during training: enough to choose by, quick enough to repeat
IDENTITY = "data.txt"  # the hash of the files a run is trained on
PROBED = 12  # updates timed to plan a run by minutes
Say = Callable[[str], None]


@dataclass(frozen=True)
class Request:
    """What the user asked for."""

    corpora: tuple[Files, ...]
    valid: Files | None
    out: Path
    config: Config
    fresh: bool
    """Begin anew, whatever is in the folder."""
    minutes: float
    """Plan for this long; 0: train.updates decides."""
    command: str


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    progress: Progress
    scores: dict[str, Any]
    finished: bool
    signal: int = 0
    """What asked it to stop."""


def run(request: Request, runtime: Runtime, say: Say, watch: Watch) -> Outcome:
    """Train, or go on training, until it is done or a signal asks to stop."""
    _check(request)
    try:
        with folders.locked(request.out) if runtime.is_main else nullcontext():
            return _run(request, runtime, say, watch)
    finally:
        if runtime.is_main and request.out.is_dir() and {path.name for path in request.out.iterdir()} <= {folders.LOCK}:
            shutil.rmtree(request.out)  # nothing came of it


def _run(request: Request, runtime: Runtime, say: Say, watch: Watch) -> Outcome:
    out = request.out
    if runtime.is_main and request.fresh:
        _clear(out)
    if runtime.is_main and not (out / CONFIG).exists():
        _begin(request, runtime, say)
    runtime.barrier()
    config, sides = from_json(out / CONFIG), Sides.load(out)
    _refuse_change(config, _fitted(request.config, sides), out, planned=bool(request.minutes))
    data, identity = prepare(request.corpora, request.valid, config, sides, say)
    if (out / IDENTITY).read_text().strip() != identity:
        raise FolderError(f"{out} holds a run on other data: choose another --out, or begin anew with --fresh")
    torch.manual_seed(config.train.seed)
    training = Training(out, build(config.model), config, data, runtime)
    say(f"{count(config).total:,} parameters, {len(data.train[0]):,} examples to train on")
    if training.resume():
        say(f"resumed at update {training.progress.update:,}")
    for remark in training.remarks:
        say(remark)
    progress = training.progress
    if progress.finished and (out / MODEL).exists():
        return Outcome(progress, {}, finished=True)
    if not progress.finished:
        progress = training.run(lambda model: validation(model, data, runtime), watch)
    if not progress.finished:
        return Outcome(progress, {}, finished=False, signal=training.signal)
    scores = _finish(request, training, say) if runtime.is_main else {}
    runtime.barrier()
    return Outcome(progress, scores, finished=True)


def _begin(request: Request, runtime: Runtime, say: Say) -> None:
    """Write what the run goes by, once it is known to be sound: tokenizers, the data's hash and, last, the config."""
    out = request.out
    sides = make_tokenizers(request.corpora, request.config.text, say)
    config = _fitted(request.config, sides)
    data, identity = prepare(request.corpora, request.valid, config, sides, lambda _: None)
    if request.minutes:
        config = _planned(config, data, runtime, request.minutes, say)
    sides.save(out)
    folders.write_file(out / IDENTITY, identity + "\n", force=True)
    folders.write_file(out / CONFIG, to_json(config), force=False)


def _fitted(config: Config, sides: Sides) -> Config:
    """The config with what the tokenizers decide."""
    shape = dataclasses.replace(config.model, vocabulary=sides.source.size)
    if not sides.shared:
        shape = dataclasses.replace(shape, target_vocabulary=sides.target.size)
    text = dataclasses.replace(config.text, fingerprint=sides.fingerprint)
    return dataclasses.replace(config, model=shape, text=text)


def _check(request: Request) -> None:
    """Nothing is written before the request is known to be sound."""
    for files in filter(None, (*request.corpora, request.valid)):
        if next(iter(files.read()), None) is None:
            raise DataError(f"{files.source} is empty")
    if request.valid is not None:
        for _ in request.valid.read():  # all of it: what is wrong at its end should not be found after hours
            pass
    single = request.config.model.family in ("gpt", "bert")
    if any(single != files.single for files in request.corpora):
        family = request.config.model.family
        raise ConfigError(
            f"model.family = {family} learns from one text file, and two were given"
            if single
            else f"model.family = {family} learns from pairs: give SOURCE and TARGET, or --set model.family=gpt or bert"
        )


def _clear(out: Path) -> None:
    for path in checkpoints(out):
        folders.discard(path)
    for name in (MODEL, CONFIG, *TOKENIZERS, "journal.jsonl", "card.md", folders.CHECKSUMS, IDENTITY):
        if (out / name).exists():
            folders.discard(out / name)


def _refuse_change(old: Config, new: Config, out: Path, *, planned: bool) -> None:
    """The same command goes on; another one is refused, with what differs."""
    free = {"train.updates", "train.warmup", "train.budget"} if planned else set()
    before, now = old.values(), new.values()
    changes = [
        f"{section}.{name} was {before[section][name]} and is now {value}"
        for section, fields in now.items()
        for name, value in fields.items()
        if before[section][name] != value and f"{section}.{name}" not in free
    ]
    if changes:
        raise FolderError(
            f"{out} holds a run with another config: {'; '.join(changes)}. Go on with the old values, choose another "
            "--out, or begin anew with --fresh"
        )


def _planned(config: Config, data: Data, runtime: Runtime, minutes: float, say: Say) -> Config:
    """As many updates as fit into the time, by a short probe; written down before update 1 and never measured again."""
    probe = Training(Path(), build(config.model), config, data, runtime)
    batches = probe._batches()
    wrapped = probe._prepared()
    times = []
    for _ in range(PROBED):
        begun = time.perf_counter()
        probe._update(wrapped, [next(batches) for _ in range(config.train.accumulate)])
        times.append(time.perf_counter() - begun)
    batches.close()  # type: ignore[attr-defined]
    steady = sorted(times[2:])
    each = sum(steady) / len(steady)
    begun = time.perf_counter()
    validation(probe.model, data, runtime)
    once = time.perf_counter() - begun
    usable = max(minutes * 60 - sum(times) - 3 * once, each)
    updates = max(10, int(usable / each))
    every = max(1, updates // 4, math.ceil(8 * once / each))
    warmup = min(config.train.warmup, max(1, updates // 10))
    say(f"{1000 * each:.0f} ms an update: {updates:,} updates in {minutes:g} minutes")
    planned = dataclasses.replace(
        config.train,
        updates=updates,
        warmup=warmup,
        validate_every=every,
        save_every=min(every, config.train.save_every),
    )
    return dataclasses.replace(config, train=planned)


# Validation


@torch.no_grad()
def validation(model: nn.Module, data: Data, runtime: Runtime) -> Validation:
    """The loss of the validation set and, of a translator, how good its translations are."""
    model.eval()
    metric = data.config.train.metric
    facts: dict[str, Any] = {"valid_loss": valid_loss(model, data, runtime)}
    if data.config.model.family in ("gpt", "bert") or metric == "loss":
        return Validation(-facts["valid_loss"], facts)
    hypotheses, references = translations(model, data, VALIDATED)
    score = corpus_scores(hypotheses, references, metrics=[metric])[metric]
    facts |= {metric: score.score, "signature": score.signature, "sentences": len(hypotheses)}
    return Validation(score.score, facts)


def valid_loss(model: nn.Module, data: Data, runtime: Runtime) -> float:
    """Cross-entropy a token, without smoothing."""
    plain = dataclasses.replace(data.config.train, smoothing=0.0, rdrop=0.0)
    epoch = data.validation()
    total, tokens = torch.zeros((), device=runtime.device), 0
    with Feed(epoch.make, range(len(epoch.plan)), device=runtime.device) as feed:
        for batch in feed:
            total += objective(model, batch, plain).plain
            tokens += batch.target_tokens
    return float(total) / max(tokens, 1)


def translations(model: nn.Module, data: Data, most: int) -> tuple[list[str], list[str]]:
    """What the model makes of the first validation sentences, and what they should be."""
    translator = Translator(model, data.sides, data.config)
    store, size = data.valid, min(most, len(data.valid))
    sources = [data.sides.source.decode(store.source.ids(i)) for i in range(size)]
    references = [data.sides.target.decode(store.target.ids(i)) for i in range(size)]
    return [result.text for result in translator.translate(sources)], references


# The end


def _finish(request: Request, training: Training, say: Say) -> dict[str, Any]:
    """The model that is kept: the best by the metric, or an average; with its scores on the whole validation set."""
    config, data, runtime = training.config, training.data, training.runtime
    weights = _chosen(training, say)
    with torch.no_grad():
        for name, parameter in training.model.named_parameters():
            parameter.copy_(weights[name])
    training.model.eval()
    scores: dict[str, Any] = {"loss": valid_loss(training.model, data, runtime)}
    if config.model.family in ("rnn", "transformer"):
        hypotheses, references = translations(training.model, data, len(data.valid))
        found = corpus_scores(hypotheses, references, metrics=["bleu", "chrf"])
        scores |= {name: score.as_dict() for name, score in found.items()}
    card = model_card(config, training.progress, scores, data, request.command)
    tokenizers = {name: (request.out / name).read_bytes() for name in TOKENIZERS if (request.out / name).exists()}
    save_model(request.out, parameters(training.model), config, {**tokenizers, "card.md": card}, force=True)
    return scores


def _chosen(training: Training, say: Say) -> dict[str, Tensor]:
    settings, progress = training.config.train, training.progress
    if settings.average:
        last = checkpoints(training.folder)[-settings.average :]
        say(f"averaged {len(last)} checkpoints")
        return average(last)
    best = training.folder / "checkpoints" / f"update-{progress.best_update:08d}"
    path = best if best.exists() else newest(training.folder)[0]
    if path is None:
        return parameters(training.model)
    found = load_checkpoint(path)
    return found.tensors["average" if settings.decay else "model"]
