"""A training request: files, folder and config, checked before anything is written."""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard import folders
from regard.config import CONFIG, Config, find_config
from regard.documents.formats import TWO_SIDES, format_of
from regard.errors import ConfigError, DataError, FolderError
from regard.inspection import quality
from regard.models.folder import MODEL, VALIDATION
from regard.text.files import list_files
from regard.text.tokenizer import FILES as TOKENIZER_FILES
from regard.training import journal
from regard.training.checkpoint import CHECKPOINTS, checkpoints
from regard.training.data import Files
from regard.training.observers import FILES as OBSERVER_FILES
from regard.training.start_from import base_config, check_start, keeps_tokenizers

IDENTITY = "data.sha256"  # hashes of the data of a run and of the model it starts from
RUN_FILES = (
    *(MODEL, CONFIG, IDENTITY, journal.FILE, "card.md", quality.CALIBRATION_FILE, folders.CHECKSUMS),
    *(VALIDATION, *TOKENIZER_FILES, *OBSERVER_FILES),
)

PathLike = str | Path


@dataclass(frozen=True)
class Request:
    """The arguments of a call of `regard.train`."""

    corpora: tuple[Files, ...]
    valid: Files | None
    out: Path
    config: Config
    call: str
    """The command line or Python call, for the card."""
    unset: frozenset[str] = frozenset()
    """The config fields that are chosen from data and hardware."""
    origins: tuple[Path, ...] = ()
    """Finished folders whose weights the run starts from."""
    fresh: bool = False
    """Discard a run in the folder and start over."""
    choose_threads: bool = False
    """With --minutes, use one CPU thread where it is faster than all."""
    start: float = dataclasses.field(default_factory=time.perf_counter)
    """The time.perf_counter() from which the minutes are counted."""


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
    if single and tag:
        raise ConfigError(f"a tag ({tag}) is put before the source of a pair, and {source} is one text")
    options["continuous"] = config.text.continuous
    return Files(Path(source), Path(target) if target else None, single, weight, tag=tag, **options)


# Checks


def check_request(request: Request) -> None:
    """Raise an error if a request cannot work, before anything is written."""
    config = request.config
    _check_texts(request)
    one_vocabulary = config.text.shared or keeps_tokenizers(request.origins, config.text)  # imported ones may share it
    if config.model.is_translator and not one_vocabulary and config.model.tie_embeddings == "all":
        raise ConfigError(
            "model.tie_embeddings = all gives both sides the same embeddings, and text.shared = false gives them two "
            'vocabularies: set model.tie_embeddings="target"'
        )
    check_start(config, request.origins, request.out)
    aligned = any(files.alignments for files in request.corpora)
    if aligned != bool(config.train.guided_alignment):
        missing = "its weight, --set train.guided_alignment=0.05" if aligned else "word alignments, --alignments FILE"
        raise ConfigError(f"guided alignment needs {missing}")
    if aligned and config.text.bpe_dropout:
        raise ConfigError("--alignments need one segmentation of each word: set text.bpe_dropout=0, or leave them out")


def _check_texts(request: Request) -> None:
    """Raise an error for text files that are empty, damaged or not for this family."""
    family, single = request.config.model.family, not request.config.model.is_translator
    texts = [files for files in (*request.corpora, request.valid) if files is not None]
    for files in texts:
        if next(iter(files.read()), None) is None:
            raise DataError(f"{files.source} is empty")
    if request.valid is not None:
        deque(request.valid.read(), maxlen=0)  # finds errors now, not after the tokenizer is trained
    for files in texts:
        if files.single != single:
            name = "--valid" if files is request.valid else "the training text"
            expected = 'one file (--valid FILE "")' if single else f"{TWO_SIDES}; gpt and bert learn from one text"
            raise ConfigError(f"model.family = {family}: {name} must be {expected}")
    for tag in (files.tag for files in request.corpora):
        if tag and tag.split() != [tag]:
            raise ConfigError(f"a tag ({tag}) is one token, without spaces: such as <2fr>")


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
    for path in (*checkpoints(out), *(out / CHECKPOINTS).glob("damaged-update-*")):
        folders.delete(path)
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
    may_change = {"train.sharded"} | unset | ({"train.updates"} if train.minutes else set())
    if settings != old.train or journal.is_finished(out / journal.FILE):
        may_change |= {"train.updates", "train.minutes"}
    before, now = old.values(), new.values()
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
    return dataclasses.replace(old, train=dataclasses.replace(settings, sharded=train.sharded))
