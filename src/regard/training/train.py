"""A run: two text files in, a model folder out; the same request again goes on where it stopped."""

from __future__ import annotations

import dataclasses
import math
import re
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard import folders
from regard.config import Config, TrainConfig, from_json, to_json
from regard.counting import count
from regard.errors import ConfigError, DataError, FolderError, RegardError
from regard.evaluation.metrics import corpus_scores, sentence_scores
from regard.inspection import quality
from regard.memory import in_parts
from regard.models import build
from regard.models.folder import CONFIG, MODEL, copy_weights, save_model
from regard.models.lora import merge_lora
from regard.text.batching import Batch, Prefetcher, split_batch
from regard.text.tokenizer import FILES as TOKENIZERS
from regard.text.tokenizer import Tokenizers
from regard.training.card import model_card
from regard.training.checkpoint import (
    average_checkpoints,
    checkpoint_path,
    checkpoints,
    damaged_checkpoints,
    latest_checkpoint,
    load_checkpoint,
    update_number,
    verify_checkpoint,
)
from regard.training.data import Data, Files, check_lengths, make_tokenizers, prepare
from regard.training.distributed import Runtime
from regard.training.loop import Progress, Training, Validation, Watch, last_saved
from regard.training.losses import check_guided, objective
from regard.training.observers import LEFT, draw, watched
from regard.training.planning import VALIDATED, settled
from regard.training.start_from import Started, choose_trained, origin_of, start_from, take_tokenizers
from regard.training.start_from import check as check_start
from regard.translation.translator import Result, Translator

IDENTITY = "data.txt"  # the hash of the files a run is trained on
DAMAGED = f"damaged-{MODEL}"
WRITTEN = (
    MODEL, DAMAGED, CONFIG, *TOKENIZERS, "journal.jsonl", "card.md", quality.CALIBRATION_FILE,
    folders.CHECKSUMS, *LEFT, IDENTITY
)  # fmt: skip
EASY = 80  # characters of a sentence shown
CALIBRATED = 2000  # sentences that confidence is calibrated by
Say = Callable[[str], None]


@dataclass(frozen=True)
class Request:
    """What the user asked for."""

    corpora: tuple[Files, ...]
    valid: Files | None
    out: Path
    config: Config
    fresh: bool
    """Begin anew, whatever run is in the folder."""
    minutes: float
    """Plan for this long; 0: train.updates decides."""
    command: str
    origins: tuple[Path, ...] = ()
    """Finished folders whose weights it starts from."""
    left_open: frozenset[str] = frozenset()
    """The fields of the config that the data and the machine decide."""
    begun: float = dataclasses.field(default_factory=time.perf_counter)
    """When the minutes began to run."""


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
    if runtime.is_main:
        _refuse_foreign(request.out, fresh=request.fresh)
    try:
        with folders.lock_folder(request.out) if runtime.is_main else nullcontext("") as warning:
            if warning:
                say(warning)
            return _run(request, runtime, say, watch)
    finally:
        if runtime.is_main and request.out.is_dir() and {path.name for path in request.out.iterdir()} <= {folders.LOCK}:
            shutil.rmtree(request.out)  # nothing came of it


def _run(request: Request, runtime: Runtime, say: Say, watch: Watch) -> Outcome:
    out = request.out
    if runtime.is_main and (request.fresh or not (out / CONFIG).exists()):
        _begin(request, runtime, say)
    runtime.barrier()
    config, sides = from_json(out / CONFIG), Tokenizers.load(out)
    _refuse_change(config, _fitted(request.config, sides), out, request.left_open)
    sharded = request.config.train.sharded  # how a run is divided may change from one start to the next
    config = dataclasses.replace(config, train=dataclasses.replace(config.train, sharded=sharded))
    if (
        runtime.world_size > 1 and runtime.is_local_main
    ):  # the other processes of a machine find what one of them has prepared
        prepare(request.corpora, request.valid, config, sides, lambda _: None, damaged=say)
    runtime.barrier()
    data, identity = prepare(request.corpora, request.valid, config, sides, say)
    with folders.clear_os_errors(out / IDENTITY, "read"):
        before = (out / IDENTITY).read_text(encoding="utf-8", errors="replace").splitlines()
    now = _identity(request, identity).splitlines()
    if before != now:
        other = "on other data" if before[:1] != now[:1] else "from another start (--from)"
        raise FolderError(f"{out} holds a run {other}: choose another --out, or begin anew with --fresh")
    model, report = _make_model(request, config, sides)
    training = Training(out, model, config, data, runtime, lambda: _make_model(request, config, sides)[0])
    say(f"{count(config).total:,} parameters, {len(data.train[0]):,} examples to train on")
    resumed = training.resume()
    progress = training.progress
    done = progress.finished and bool(runtime.broadcast(runtime.is_main and _is_whole(out, say)))
    if resumed and not done:
        say(f"resumed at update {progress.update:,}")
    for line in training.remarks if resumed else [*report, *training.remarks]:
        say(line)
    if done:
        return Outcome(progress, {}, finished=True)
    if not progress.finished:
        progress = watched(training, lambda model: validation(model, data, runtime), watch, say)
    if not progress.finished:
        return Outcome(progress, {}, finished=False, signal=training.signal)
    scores = _finish(request, training, say) if runtime.is_main else {}
    runtime.barrier()
    return Outcome(progress, scores, finished=True)


def _is_whole(out: Path, say: Say) -> bool:
    """Whether the finished model is there, as it was written; a damaged one is set aside."""
    if not (out / MODEL).exists():
        return False
    try:
        folders.verify(out, only=[MODEL])
    except FolderError as error:
        folders.replace(out / DAMAGED, out / MODEL)
        say(f"{error}: it is now named {DAMAGED}, and made anew from the checkpoints")
        return False
    return True


def _begin(request: Request, runtime: Runtime, say: Say) -> None:
    """Write what the run goes by, once it is known to be sound: the data's hash, tokenizers and, last, the config.

    The hash is the first to be written and the last to be deleted: it tells a run that was killed here from files of
    somebody else's.
    """
    out = request.out
    text = request.config.text
    sides = take_tokenizers(request.origins, text, say) or make_tokenizers(request.corpora, text, say)
    config = _fitted(request.config, sides)
    data, identity = prepare(request.corpora, request.valid, config, sides, lambda _: None, damaged=say)
    config = settled(
        config,
        request.left_open,
        data,
        runtime,
        minutes=request.minutes,
        begun=request.begun,
        make=lambda config: _make_model(request, config, sides)[0],
        validate=lambda model, data: validation(model, data, runtime),
        say=say,
    )
    check_lengths(data, config)
    _make_model(request, config, sides, "meta")  # whatever is wrong with its start is found now
    *trained, held = identity.split("+")
    if request.valid is not None and held in {each.rpartition("*")[0] for each in trained}:
        say("the validation text is the training text: its scores tell nothing of any other")
    _clear(out)
    folders.write_file(out / IDENTITY, _identity(request, identity) + "\n", force=True)
    sides.save(out)
    folders.write_file(out / CONFIG, to_json(config), force=False)


def _make_model(
    request: Request, config: Config, sides: Tokenizers, device: torch.device | str = "cpu"
) -> tuple[nn.Module, list[str]]:
    """The model as it is at update 0, and what is to be said of its start."""
    torch.manual_seed(config.train.seed)
    model = build(config.model, device)
    started = start_from(model, request.origins, sides) if request.origins else Started("", {})
    trained = choose_trained(model, config, started.new)
    return model, [line for line in (started.said, trained) if line]


def _identity(request: Request, data: str) -> str:
    """What tells a run from another one beside its config: its data and where it started from."""
    return f"{data}\nfrom {origin_of(request.origins)}" if request.origins else data


def _fitted(config: Config, sides: Tokenizers) -> Config:
    """The config with what the tokenizers decide."""
    target = 0 if sides.shared else sides.target.size
    shape = dataclasses.replace(config.model, vocabulary=sides.source.size, target_vocabulary=target)
    text = dataclasses.replace(config.text, fingerprint=sides.fingerprint)
    return dataclasses.replace(config, model=shape, text=text)


def _check_settings(settings: TrainConfig) -> None:
    """What an older run may have in its config, and a new one may not."""
    if settings.seed >= 2**63:
        raise ConfigError(f"train.seed ({settings.seed}) must be below 2^63")
    if settings.average_checkpoints and settings.ema_decay:
        raise ConfigError(
            f"train.average_checkpoints ({settings.average_checkpoints}) and train.ema_decay "
            f"({settings.ema_decay}) are two averages: set one to 0"
        )


def _check(request: Request) -> None:
    """Nothing is written before the request is known to be sound."""
    if not math.isfinite(request.minutes):
        raise ConfigError(f"--minutes ({request.minutes}) must be a number of minutes; without it the data decide")
    _check_settings(request.config.train)
    for files in filter(None, (*request.corpora, request.valid)):
        if next(iter(files.read()), None) is None:
            raise DataError(f"{files.source} is empty")
    if request.valid is not None:
        for _ in request.valid.read():  # all of it: what is wrong at its end should not be found after hours
            pass
    ours = {(request.out / name).resolve() for name in WRITTEN}
    for path in (path for files in filter(None, (*request.corpora, request.valid)) for path in files.paths):
        if path.resolve() in ours:
            raise ConfigError(f"a run in {request.out} would write over {path}: choose another --out")
    single = request.config.model.family in ("gpt", "bert")
    family = request.config.model.family
    if any(single != files.single for files in request.corpora):
        raise ConfigError(
            f"model.family = {family} learns from one text file, and two were given"
            if single
            else f"model.family = {family} learns from pairs: give SOURCE and TARGET, or --set model.family=gpt or bert"
        )
    if request.valid is not None and single != request.valid.single:
        wanted = 'one text file and ""' if single else "a SOURCE and a TARGET"
        raise ConfigError(f"--valid must be {wanted}: that is what model.family = {family} learns from")
    for tag in (files.tag for files in request.corpora):
        if tag and tag.split() != [tag]:
            raise ConfigError(f"a tag ({tag}) is one token, without blanks: such as <2fr>")
    if not single and not request.config.text.shared and request.config.model.tie_embeddings == "all":
        raise ConfigError(
            "model.tie_embeddings = all gives both sides the same embeddings, and text.shared = false two "
            "vocabularies: set "
            'model.tie_embeddings="target"'
        )
    check_start(request.config, request.origins, request.out)
    check_guided(request.config, links=any(files.alignments for files in request.corpora))


def _refuse_foreign(out: Path, *, fresh: bool) -> None:
    """A file of the name we use, where there is no run, is somebody's own; a run without its config says too little."""
    if (out / CONFIG).exists() and not fresh:
        return
    found = [name for name in WRITTEN if (out / name).exists()]
    if found and not checkpoints(out) and not _begun(out):
        name = IDENTITY if IDENTITY in found else found[0]
        raise FolderError(f"{out / name} is not of a run, which would write over it: choose another --out")
    if not fresh and (checkpoints(out) or MODEL in found):
        raise FolderError(
            f"{out} holds a run, and no {CONFIG} to go on by: put it back, begin anew with --fresh, or choose another "
            "--out"
        )


def _begun(out: Path) -> bool:
    """Whether the hash of a run's data is there."""
    path = out / IDENTITY
    if not path.is_file():
        return False
    with folders.clear_os_errors(path, "read"), path.open("rb") as file:
        return re.fullmatch(rb"[0-9a-f]{64}", file.read(64)) is not None


def _clear(out: Path) -> None:
    for path in (*checkpoints(out), *damaged_checkpoints(out)):
        folders.delete(path)
    for name in WRITTEN:
        if (out / name).exists():
            folders.delete(out / name)


def _refuse_change(old: Config, new: Config, out: Path, left_open: frozenset[str]) -> None:
    """The same command goes on, on another machine too; another one is refused, with what differs."""
    free = {"train.sharded"} | left_open
    before, now = old.values(), new.values()
    changes = [
        f"{section}.{name} was {_shown(before[section][name])} and is now {_shown(value)}"
        for section, fields in now.items()
        for name, value in fields.items()
        if before[section][name] != value and f"{section}.{name}" not in free
    ]
    if changes:
        raise FolderError(
            f"{out} holds a run with another config: {'; '.join(changes)}. Go on with the old values, choose another "
            "--out, or begin anew with --fresh"
        )


def _shown(value: Any) -> Any:
    return "empty" if value == "" else value


# Validation


@torch.no_grad()
def validation(model: nn.Module, data: Data, runtime: Runtime) -> Validation:
    """The loss of the validation set and, of a translator, how good its translations are."""
    model.eval()
    metric = data.config.train.metric
    facts: dict[str, Any] = {"valid_loss": valid_loss(model, data, runtime)}
    if data.config.model.family in ("gpt", "bert") or metric == "loss":
        return Validation(-facts["valid_loss"], facts)
    results, references = translations(model, data, range(VALIDATED))
    hypotheses = [result.text for result in results]
    score = corpus_scores(hypotheses, references, metrics=[metric])[metric]
    facts |= {metric: score.score, "signature": score.signature, "sentences": len(hypotheses)}
    facts["sample"] = _sample(data, hypotheses, references)
    return Validation(score.score, facts, results)


@torch.no_grad()
def valid_loss(model: nn.Module, data: Data, runtime: Runtime) -> float:
    """Cross-entropy a token, without smoothing."""
    plain = dataclasses.replace(data.config.train, label_smoothing=0.0, r_drop=0.0, guided_alignment=0.0)

    def price(batch: Batch) -> Tensor:
        return objective(model, batch, plain).plain

    epoch = data.validation()
    total, tokens = torch.zeros((), device=runtime.device), 0
    with Prefetcher(epoch.make, range(len(epoch.plan)), device=runtime.device) as feed:
        for batch in feed:
            total += sum(in_parts(price, batch, lambda part: split_batch(part, 2)))
            tokens += batch.target_tokens
    return float(total) / max(tokens, 1)


def translations(model: nn.Module, data: Data, places: range) -> tuple[list[Result], list[str]]:
    """What the model makes of the validation sentences at these places, and what they should be."""
    translator = Translator(model, data.tokenizers, data.config)
    places = range(len(data.valid))[places.start : places.stop]
    sources = [data.tokenizers.source.decode(data.valid.source.ids(place)) for place in places]
    references = [data.tokenizers.target.decode(data.valid.target.ids(place)) for place in places]
    return translator.translate(sources, warn=False), references


def _all_translations(model: nn.Module, training: Training, kept: list[int]) -> tuple[list[Result], list[str]]:
    """Those of the whole validation set; what the last validation made of the same weights is not made again.

    In two parts all the same, so that a run that was stopped in between ends with the same ones.
    """
    data = training.data
    update, last = training.validated or (0, Validation(0.0))
    if last.results and kept == [update] and not training.config.train.average_checkpoints:
        first = list(last.results)
    else:
        first, _ = translations(model, data, range(VALIDATED))
    rest, _ = translations(model, data, range(VALIDATED, len(data.valid)))
    return first + rest, [
        data.tokenizers.target.decode(data.valid.target.ids(place)) for place in range(len(data.valid))
    ]


def _sample(data: Data, hypotheses: list[str], references: list[str]) -> dict[str, str]:
    """One sentence to look at, the same at every validation: the first of a length that is easily read."""
    place = min(range(len(references)), key=lambda place: abs(len(references[place]) - EASY))
    source = data.tokenizers.source.decode(data.valid.source.ids(place))
    return {"source": source, "reference": references[place], "model": hypotheses[place]}


# The end


def _finish(request: Request, training: Training, say: Say) -> dict[str, Any]:
    """The model that is kept: the best by the metric, or an average; with its scores on the whole validation set."""
    config, data, runtime = training.config, training.data, training.runtime
    model = build(config.model).to(runtime.device).eval()  # a new one: the trained one may be divided among processes
    weights, kept = _chosen(training, say)
    copy_weights(model, merge_lora(weights), request.out)
    scores: dict[str, Any] = {"loss": valid_loss(model, data, runtime)}
    files: dict[str, bytes | str] = {}
    if config.model.family in ("rnn", "transformer"):
        results, references = _all_translations(model, training, kept)
        calibration = _calibration(data, results, references) if len(results) >= quality.MIN_SENTENCES else None
        if calibration is not None:
            files[quality.CALIBRATION_FILE] = calibration.as_text()
        if calibration is not None and calibration.weights:
            sure = f"of confidence, {calibration.sentences:,} sentences apart; good: chrF from {quality.GOOD_CHRF:g} on"
            scores["calibration"] = {"score": calibration.error, "signature": sure}
        found = corpus_scores([result.text for result in results], references, metrics=["bleu", "chrf"])
        scores |= {name: score.to_dict() for name, score in found.items()}
    draw(training)
    start = " and ".join(f"`{path}`" for path in request.origins) or "random weights"
    card = model_card(
        training, scores, corpora=request.corpora, valid=request.valid, command=request.command, start=start, kept=kept
    )
    files |= {name: (request.out / name).read_bytes() for name in TOKENIZERS if (request.out / name).exists()}
    save_model(request.out, model, config, {**files, "card.md": card}, force=True)
    return scores


def _calibration(data: Data, results: Sequence[Result], references: Sequence[str]) -> quality.Calibration:
    """How sure the model may be of a translation, by the first of the validation sentences."""
    results, references = results[:CALIBRATED], references[:CALIBRATED]
    each = sentence_scores([result.text for result in results], references, metrics=["chrf"])
    sources = [data.tokenizers.source.decode(data.valid.source.ids(place)) for place in range(len(results))]
    rows = zip(sources, references, each, results, strict=True)
    judged = [quality.CalibrationExample(one, other, score["chrf"], found.steps) for one, other, score, found in rows]
    return quality.calibrate(judged)


def _chosen(training: Training, say: Say) -> tuple[dict[str, Tensor], list[int]]:
    """The weights that are kept, and the updates they are of."""
    settings, progress, folder = training.config.train, training.progress, training.folder
    if settings.average_checkpoints:
        wanted = reversed(last_saved(progress.update, settings))
        last = [update for update in wanted if _sound(checkpoint_path(folder, update), say)]
        if last:
            fewer = (
                f", fewer than train.average_checkpoints ({settings.average_checkpoints})"
                if len(last) < settings.average_checkpoints
                else ""
            )
            say(f"averaged {len(last)} checkpoint{'s' * (len(last) != 1)}{fewer}")
            return average_checkpoints([checkpoint_path(folder, update) for update in last]), last
    best, group = checkpoint_path(folder, progress.best_update), "average" if settings.ema_decay else "model"
    path = best if _sound(best, say) else latest_checkpoint(folder)[0]
    if path is None:
        return dict(training.state()[group]), [progress.update]
    return load_checkpoint(path, check=False).tensors[group], [update_number(path)]


def _sound(path: Path, say: Say) -> bool:
    """Whether a checkpoint is there and as it was written; one that is damaged is said."""
    try:
        verify_checkpoint(path)
    except RegardError as error:
        if path.exists():
            say(f"{path.name} was passed over: {error}")
        return False
    return True
