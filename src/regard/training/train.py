"""Training from beginning to end: two text files in, a model folder out; the same call again resumes."""

from __future__ import annotations

import dataclasses
import functools
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard import folders
from regard.config import CONFIG, Config, find_config, load_config, run_values, to_json
from regard.counting import count
from regard.devices import bf16_warning, busy_warning, use_threads
from regard.documents.formats import TWO_SIDES, format_of
from regard.errors import ConfigError, DataError, FolderError
from regard.evaluation.calibration import MAX_SENTENCES, validation_lines
from regard.evaluation.metrics import METRICS
from regard.inspection import quality
from regard.models import build
from regard.models.folder import MODEL, VALIDATION, copy_weights, save_model
from regard.models.lora import merge_lora
from regard.results import Report, Table, counted
from regard.text.files import list_files
from regard.text.tokenizer import FILES as TOKENIZER_FILES
from regard.text.tokenizer import Tokenizers
from regard.training import journal
from regard.training.card import languages, model_card
from regard.training.checkpoint import CHECKPOINTS, checkpoints, latest_checkpoint, load_tensors, update_number
from regard.training.clock import Clock
from regard.training.data import Data, Files, make_tokenizers, prepare
from regard.training.distributed import Runtime, init_runtime
from regard.training.events import ActivityEvent, Observer, Say
from regard.training.loop import Training
from regard.training.observers import FILES as OBSERVER_FILES
from regard.training.observers import PlainLines, draw, observing
from regard.training.sizing import complete_config, time_update, unset_fields
from regard.training.start_from import base_config, check_start, make_model, origin_checksums, reuse_tokenizers
from regard.training.validation import ValidationSet, final_scores, validate, validation_set
from regard.translation.loading import load

IDENTITY = "data.sha256"  # hashes of the data of a run and of the model it starts from
RUN_FILES = (  # in the order in which they are deleted: without the last one, they may belong to something else
    *(CHECKPOINTS, MODEL, CONFIG, journal.FILE, "card.md", quality.CALIBRATION_FILE, folders.CHECKSUMS),
    *(VALIDATION, *TOKENIZER_FILES, *OBSERVER_FILES, IDENTITY),
)
USELESS_BLEU = 1.0  # of a model that writes the same words for every source
SCORE_LABELS = {**METRICS, "loss": "validation loss"}

PathLike = str | Path


@dataclass(frozen=True)
class Run(Report):
    """A training run: its folder and, when it is finished, its scores on the validation set."""

    folder: Path
    update: int
    """The number of updates so far."""
    finished: bool
    scores: Mapping[str, Any]
    """loss and, for translators, bleu and chrf with their signatures; empty until the run is finished."""
    signal: int = 0
    """The signal that interrupted the run."""
    is_new: bool = True
    """False if the run was already finished before this call."""

    @property
    def history(self) -> list[dict[str, Any]]:
        """The entries of the journal: updates, validations and errors."""
        return journal.read(self.folder / journal.FILE)

    @functools.cached_property
    def model(self) -> Any:
        """The trained model: a Translator, Writer (gpt) or Reader (bert)."""
        return load(self.folder)

    def tables(self) -> list[Table]:
        state = "finished" if self.finished else "interrupted; the same call resumes"
        rows = [("folder", str(self.folder)), ("updates", f"{self.update:,}"), ("state", state)]
        for name, score in reversed(list(self.scores.items())):
            value, sentences = (score["score"], score.get("sentences")) if isinstance(score, Mapping) else (score, None)
            part = f" on the first {sentences:,} validation sentences" if sentences else ""  # no time for more
            rows.append((SCORE_LABELS.get(name, name), f"{value:.3f}" if name == "loss" else f"{value:.2f}{part}"))
        return [Table(("", ""), rows, title="Training run")]

    def to_dict(self) -> dict[str, Any]:
        scores = dict(self.scores)
        return {"out": str(self.folder), "update": self.update, "finished": self.finished, "scores": scores}


@dataclass(frozen=True)
class Request:
    """The arguments of a call of `regard.train`."""

    corpora: tuple[Files, ...]
    valid: Files | None
    out: Path
    config: Config
    call: str  # the command line or Python call, for the card
    unset: frozenset[str] = frozenset()  # the config fields that are chosen from data and hardware
    origins: tuple[Path, ...] = ()  # finished folders whose weights the run starts from
    fresh: bool = False  # discard a run in the folder and start over
    choose_threads: bool = False  # with --minutes, use one CPU thread where it is faster than all
    start: float = 0.0  # the time.perf_counter() from which the minutes are counted


def train(
    source: PathLike,
    target: PathLike | None = None,
    *,
    out: PathLike,
    valid: PathLike | tuple[PathLike, PathLike | None] | None = None,
    also: Sequence[Sequence[Any]] = (),
    tag: str = "",
    alignments: PathLike | None = None,
    start_from: PathLike | Sequence[PathLike] | None = None,
    recipe: str | None = None,
    updates: int | None = None,
    minutes: float | None = None,
    config: Iterable[str] | Mapping[str, Any] | None = None,
    languages: tuple[str, str] | None = None,
    fields: tuple[str, str] | None = None,
    device: str = "auto",
    seed: int | None = None,
    threads: int | None = None,
    fresh: bool = False,
    say: Say | None = None,
    observe: Observer | None = None,
    call: str | None = None,
    start: float | None = None,
) -> Run:
    """Train a model on two text files, or a language model on one, and save it in the folder `out`.

    The same call again resumes an interrupted run. Ctrl-C saves a checkpoint and returns a Run that is not finished.

    valid: validation files; without them a part of the training text is held out.
    also: more corpora as (source, target, weight) or (source, target, weight, tag); each epoch has them weight times.
    start_from: a finished model folder to fine-tune, or two bert folders for a translator.
    recipe: the name or file of a tested config; without one, a size is chosen from data and hardware.
    config: fields to set, such as {"model.size": 256}.
    languages, fields: the two languages or fields to read from a file that holds both sides.
    fresh: discard a run in the folder and start over.
    say, observe: called with every message and every event (regard.training.events); the default prints lines.
    call: the command or call that the model card shows.
    start: the time.perf_counter() from which the minutes are counted, by default now.
    """
    values = run_values(config or {}, updates=updates, minutes=minutes, seed=seed)
    origins = tuple(map(Path, [start_from] if isinstance(start_from, str | Path) else start_from or []))
    settings = find_settings(values, recipe=recipe, origins=origins, tags=[tag, *("".join(c[3:]) for c in also)])
    options: dict[str, Any] = {"languages": languages, "fields": fields}
    corpus = text_files(settings, source, target, tag=tag, alignments=alignments and Path(alignments), **options)
    valid_pair = (valid, None) if isinstance(valid, str | Path) else valid
    request = Request(
        corpora=(corpus, *(text_files(settings, *corpus, **options) for corpus in also)),
        valid=None if valid_pair is None else text_files(settings, *valid_pair, tag=tag, **options),
        out=Path(out),
        config=settings,
        call=call or f"regard.train({str(source)!r}, ..., out={str(out)!r})",
        unset=unset_fields(values, recipe=bool(recipe), started=bool(origins)),
        origins=origins,
        fresh=fresh,
        choose_threads=threads is None,
        start=time.perf_counter() if start is None else start,
    )
    say = say or (lambda line: print(line, file=sys.stderr))
    with init_runtime(device) as runtime, restored_state(runtime.device, threads):
        try:
            return run(request, runtime, say, observe or PlainLines(say).observe)
        except KeyboardInterrupt:
            update = max(map(update_number, checkpoints(request.out)), default=0)
            return Run(request.out, update, finished=False, scores={}, signal=signal.SIGINT)


@contextmanager
def restored_state(device: torch.device, threads: int | None) -> Iterator[None]:
    """Use `threads` CPU threads within the context; restore their number and the random state at its end."""
    before = torch.get_num_threads()
    use_threads(threads)
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            yield
    finally:
        torch.set_num_threads(before)


def find_settings(
    values: Mapping[str, Any], *, recipe: str | None, origins: Sequence[Path], tags: Iterable[str]
) -> Config:
    """The config from the start folders, the recipe and `values`, in this order; tags are added to text.tags."""
    config = base_config(origins)
    config = (find_config(recipe, config) if recipe else config).with_values(values)
    return config.over({"text": {"tags": " ".join(dict.fromkeys([*config.text.tags.split(), *filter(None, tags)]))}})


def text_files(
    config: Config, source: PathLike, target: PathLike | None, weight: float = 1.0, tag: str = "", **options: Any
) -> Files:
    """The files of a corpus: two, one with both sides, or one text; `options` are fields of Files."""
    if not source:
        raise ConfigError("the name of a text file is empty")
    for path in map(Path, filter(None, (source, target, options.get("alignments")))):
        if str(path) == "-" or (path.exists() and not path.is_file() and not path.is_dir()):
            raise ConfigError(f"{path} can be read only once, and training reads its text several times: save it first")
    first = list_files(source)[0] if Path(source).is_dir() else source
    single = not target and (format_of(first) is None or not config.model.is_translator)
    if not 0 < weight <= 1000:
        raise ConfigError(f"the weight of {source} ({weight}) must be above 0 and at most 1000")
    if tag and (single or tag.split() != [tag]):
        raise ConfigError(f"a tag ({tag}) is one token, such as <2fr>, before the source of each pair")
    options["continuous"] = config.text.continuous
    return Files(Path(source), Path(target) if target else None, single, weight, tag=tag, **options)


# Checks


def check_request(request: Request) -> None:
    """Raise an error if a request cannot work, before anything is written."""
    config, family, single = request.config, request.config.model.family, not request.config.model.is_translator
    for files in (*request.corpora, request.valid):
        if files is not None and next(iter(files.read()), None) is None:
            raise DataError(f"{files.source} is empty")
        if files is not None and files.single != single:
            name = "--valid" if files is request.valid else "the training text"
            expected = 'one file (--valid FILE "")' if single else f"{TWO_SIDES}; gpt and bert learn from one text"
            raise ConfigError(f"model.family = {family}: {name} must be {expected}")
    if request.valid is not None:
        deque(request.valid.read(), maxlen=0)  # finds errors now, not after the tokenizer is trained
    if not single and not request.origins and not config.text.shared and config.model.tie_embeddings == "all":
        raise ConfigError('text.shared = false gives two vocabularies: set model.tie_embeddings="target"')
    check_start(config, request.origins, request.out)
    aligned = any(files.alignments for files in request.corpora)
    if aligned != bool(config.train.guided_alignment):
        missing = "its weight, --set train.guided_alignment=0.05" if aligned else "word alignments, --alignments FILE"
        raise ConfigError(f"guided alignment needs {missing}")
    if aligned and config.text.bpe_dropout:
        raise ConfigError("--alignments need one segmentation of each word: set text.bpe_dropout=0, or leave them out")


def check_folder(out: Path, *, fresh: bool) -> None:
    """Raise a FolderError if files in the folder would be overwritten, or if a run has no config."""
    if (out / CONFIG).exists() and not fresh:
        return
    present = [name for name in RUN_FILES if (out / name).exists()]
    if present and IDENTITY not in present and not checkpoints(out):  # a run writes it first
        raise FolderError(f"{out / present[0]} does not belong to a run and would be overwritten: choose another --out")
    if not fresh and (checkpoints(out) or MODEL in present):
        raise FolderError(
            f"{out} holds a run without its {CONFIG}: put it back, start over with --fresh, or choose another --out"
        )


def clear_folder(out: Path) -> None:
    """Delete the files of a run."""
    for name in RUN_FILES:
        if (out / name).exists():
            folders.delete(out / name)


def resumed_config(old: Config, new: Config, out: Path, unset: frozenset[str]) -> Config:
    """The config of a run that resumes: the old one, with the new train.updates or train.minutes if that is larger.

    With other differences it raises a FolderError that names them. A finished run ignores a smaller number.
    """
    settings, train = old.train, new.train
    if settings.minutes and train.minutes > settings.minutes:
        updates = round(settings.updates * train.minutes / settings.minutes)
        settings = dataclasses.replace(settings, minutes=train.minutes, updates=updates)
    elif not settings.minutes and not train.minutes and "train.updates" not in unset:
        settings = dataclasses.replace(settings, updates=max(settings.updates, train.updates))
    resumed = dataclasses.replace(old, train=dataclasses.replace(settings, sharded=train.sharded))
    may_change = unset | ({"train.updates"} if train.minutes else set())
    if [entry["kind"] for entry in journal.read(out / journal.FILE)[-1:]] == ["finished"]:
        may_change |= {"train.updates", "train.minutes"}
    before, now = resumed.values(), new.values()
    changes = [
        f"{section}.{name} was {before[section][name]!r} and is now {value!r}"
        for section, fields in now.items()
        for name, value in fields.items()
        if before[section][name] != value and f"{section}.{name}" not in may_change
    ]
    if changes:
        raise FolderError(
            f"{out} holds a run with another config: {'; '.join(changes)}. Resume with the old values, start from this "
            f"model with --from {out} and another --out, or start over with --fresh"
        )
    return resumed


# The run


def run(request: Request, runtime: Runtime, say: Say, observe: Observer) -> Run:
    """Train, or resume training, until the run is finished or a signal interrupts it."""
    check_request(request)
    with folders.lock_folder(request.out) if runtime.is_main else nullcontext("") as warning:
        if warning:
            say(warning)
        return _run(request, runtime, say, observe)


def _run(request: Request, runtime: Runtime, say: Say, observe: Observer) -> Run:
    """Start or load the run, prepare its data, train, and finish; the main process holds the lock of the folder."""
    out, files = request.out, (request.corpora, request.valid)
    data, is_resumed = None, (out / CONFIG).exists() and not request.fresh
    if runtime.is_main:
        check_folder(out, fresh=request.fresh)
        if request.choose_threads and not request.config.train.minutes and (busy := busy_warning(runtime.device.type)):
            say(busy)
        if not is_resumed:
            data = _start(request, runtime, say)
    runtime.barrier()
    old_config, tokenizers = load_config(out), Tokenizers.load(out)
    config = resumed_config(old_config, _with_vocabulary(request.config, tokenizers), out, request.unset)
    if data is None and os.environ.get("LOCAL_RANK", "0") == "0":  # one process of each machine prepares or verifies it
        data = prepare(*files, config, tokenizers, say, damaged=say)
    runtime.barrier()
    data = dataclasses.replace(data or prepare(*files, config, tokenizers, say), config=config)
    with folders.clear_os_errors(out / IDENTITY, "read"):
        identity = (out / IDENTITY).read_text(encoding="utf-8", errors="replace")
    if identity != _identity(request, data):
        raise FolderError(
            f"{out} holds a run on other data, with another tokenizer or from another model (--from): choose another "
            "--out, or start over with --fresh"
        )
    valid_set = validation_set(data, *files, say)
    translates = valid_set.sources and config.train.metric != "loss"  # every validation then scores MAX_SENTENCES
    final_validations = 1 + len(valid_set.sources) / MAX_SENTENCES if translates else 2.0
    clock = Clock(config.train, start=request.start, final_validations=final_validations)
    make = functools.partial(make_model, origins=request.origins, tokenizers=tokenizers)
    training = Training(out, make(config), config, data, runtime, clock)
    say(f"{count(config).total:,} parameters, {len(data.train[0]):,} examples to train on")
    if config.train.precision == "bf16" and (slow := bf16_warning(runtime.device.type)):
        say(slow)
    for line in training.resume():
        say(line)
    if (config.train.updates, config.train.minutes) != (old_config.train.updates, old_config.train.minutes):
        minutes, updates = config.train.minutes, config.train.updates
        end = f"{minutes:g} minutes" if minutes else f"{updates:,} updates"
        update = training.progress.update
        say(f"continues after update {update:,} to {end}; the learning rate follows the longer schedule")
        if runtime.is_main:
            folders.write_file(out / CONFIG, to_json(config), force=True)
    if not training.finished:
        if is_resumed and config.train.minutes and request.choose_threads and runtime.is_main:
            time_update(config, data, runtime, make, say)  # chooses the threads, perhaps on another machine
        with observing(training, observe, say) as observe_all:
            training.run(lambda model: validate(model, valid_set, runtime, clock.validation_seconds()), observe_all)
        if not training.finished:
            return Run(out, training.progress.update, finished=False, scores={}, signal=training.signal)
    elif runtime.broadcast(runtime.is_main and _has_model(out, training.progress.update, say)):
        saved = [entry["scores"] for entry in journal.read(out / journal.FILE) if entry["kind"] == "finished"]
        return Run(out, training.progress.update, finished=True, scores=saved[-1] if saved else {}, is_new=False)
    else:
        say(f"resumed at update {training.progress.update:,}, which was the last; the model is scored and saved")
    observe(ActivityEvent(training.progress.update, "scoring"))
    scores = _finish(request, training, valid_set, say) if runtime.is_main else {}
    runtime.barrier()
    return Run(out, training.progress.update, finished=True, scores=scores)


def _start(request: Request, runtime: Runtime, say: Say) -> Data:
    """Train the tokenizers, prepare the data, choose the size, and write config and tokenizers after all checks pass.

    The hash of the data is written first and deleted last: it distinguishes a run that was killed here from unrelated
    files of the same names. The config is written last.
    """
    out, text = request.out, request.config.text
    tokenizers = reuse_tokenizers(request.origins, text, say) or make_tokenizers(request.corpora, text, say)
    config = _with_vocabulary(request.config, tokenizers)
    data = prepare(request.corpora, request.valid, config, tokenizers, say, damaged=say)
    make = functools.partial(make_model, origins=request.origins, tokenizers=tokenizers)
    config = complete_config(config, request, data, runtime, make, say)
    make(config, device="meta", say=say)  # finds errors in the model to start from
    *trained, valid = data.identities
    if request.valid is not None and valid in {part.rpartition("*")[0] for part in trained}:
        say("the validation text is the training text: its scores do not show how well the model does on other text")
    clear_folder(out)
    folders.write_file(out / IDENTITY, _identity(request, data), force=True)
    tokenizers.save(out)
    folders.write_file(out / CONFIG, to_json(config), force=False)
    return data


def _with_vocabulary(config: Config, tokenizers: Tokenizers) -> Config:
    """The config with the sizes of the tokenizers."""
    target = 0 if tokenizers.shared else tokenizers.target.size
    return config.over({"model": {"vocabulary": tokenizers.source.size, "target_vocabulary": target}})


def _identity(request: Request, data: Data) -> str:
    """The text of data.sha256: hashes of data and tokenizers and, of a fine-tuned model, the checksums of its start."""
    origin = f"\nfrom {origin_checksums(request.origins)}" if request.origins else ""
    return "+".join([*data.identities, data.tokenizers.fingerprint]) + origin + "\n"


def _has_model(out: Path, update: int, say: Say) -> bool:
    """Whether the finished model exists and is intact; one from before the run was continued to `update` is not."""
    finished = [entry["update"] for entry in journal.read(out / journal.FILE) if entry["kind"] == "finished"]
    if finished and finished[-1] < update:
        return False
    try:
        return MODEL in folders.verify(out, only=[MODEL])
    except FolderError as error:
        say(f"{error}: it is rebuilt from the checkpoints")
        return False


# The end


def _finish(request: Request, training: Training, valid_set: ValidationSet, say: Say) -> dict[str, Any]:
    """Save the best model with its scores on the whole validation set, its card and its curves."""
    config, runtime, out = training.config, training.runtime, request.out
    model = build(config.model).to(runtime.device).eval()  # a new one: the trained one may be sharded
    weights, kept = _final_weights(training, say)
    copy_weights(model, merge_lora(weights), out)
    scores, calibration = final_scores(model, valid_set, runtime, training.clock.scoring_seconds())
    if "bleu" in scores and (bleu := scores["bleu"]["score"]) < USELESS_BLEU:
        made = counted(training.progress.update, "update")
        say(f"BLEU is {bleu:.2g}: the model did not learn to translate in {made}; give it more --minutes or --updates")
    draw(training, languages(request.corpora[0]) or ("", ""))
    files: dict[str, bytes | str] = dict(training.data.tokenizers.files())
    files["card.md"] = model_card(training, scores, request, kept)
    if calibration:
        files[quality.CALIBRATION_FILE] = calibration.as_text()
    if valid_set.sources:
        files[VALIDATION] = validation_lines(valid_set.sources, valid_set.references, tag=valid_set.tag)
    if config.train.minutes:
        config = config.over({"train": {"updates": training.progress.update}})
    save_model(out, model, config, files, force=True)
    update = training.progress.update
    journal.Journal(out / journal.FILE, update).write("finished", update, scores=scores)
    return scores


def _final_weights(training: Training, say: Say) -> tuple[dict[str, Tensor], int]:
    """The weights of the best validation, or of the last intact checkpoint, and the update they come from."""
    folder, best = training.folder, training.progress.best_update
    path, messages = latest_checkpoint(folder, where=lambda update: 0 < update == best)
    for message in messages:
        say(message)
    path = path or latest_checkpoint(folder)[0]
    assert path is not None, "training ends with a checkpoint"
    return load_tensors(path)["average" if training.config.train.ema_decay else "model"], update_number(path)
