"""Sequence-level distillation: a teacher translates the training source, and a student learns from its translations."""

from __future__ import annotations

import hashlib
import json
import signal
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from itertools import chain, count, islice
from pathlib import Path
from typing import Any

from regard import folders
from regard.config import CONFIG, load_config, run_values, split_folders
from regard.devices import find_device
from regard.errors import ConfigError, DataError, FolderError
from regard.evaluation.metrics import sentence_scores
from regard.evaluation.precision import use_engine
from regard.interop.ctranslate2 import unsupported_reason
from regard.results import format_duration
from regard.text.files import written_line
from regard.training.data import Files
from regard.training.events import ActivityEvent, Observer, Say
from regard.training.observers import PlainLines
from regard.training.start_from import origin_checksums
from regard.training.train import (
    PathLike,
    Request,
    Run,
    check_folder,
    check_request,
    clear_folder,
    find_settings,
    restored_state,
    text_files,
    train,
)
from regard.translation.translator import Result, Translator

TEXTS = "distilled-"  # the folder of the translations, followed by a hash of teacher, source, beam size and precision
PART_LINES = 1000  # translated together, into one file; a killed run repeats at most one of them


def distill(
    teacher: PathLike,
    source: PathLike,
    target: PathLike | None = None,
    *,
    out: PathLike,
    valid: PathLike | tuple[PathLike, PathLike | None] | None = None,
    also: PathLike | Iterable[PathLike] = (),
    recipe: str = "fast",
    updates: int | None = None,
    minutes: float | None = None,
    config: Iterable[str] | Mapping[str, Any] | None = None,
    languages: tuple[str, str] | None = None,
    fields: tuple[str, str] | None = None,
    beams: int | None = None,
    precision: str = "auto",
    device: str = "auto",
    seed: int | None = None,
    threads: int | None = None,
    fresh: bool = False,
    say: Say | None = None,
    observe: Observer | None = None,
    call: str | None = None,
) -> Run:
    """Translate `source` with a teacher, train a student on the translations, and save it in the folder `out`.

    The same call again resumes; Ctrl-C returns a Run that is not finished. The options are those of `train`, and:

    teacher: a model folder, or several joined by `+`.
    target: references; the student learns them and, of each beam, the hypothesis with the best chrF against them.
    also: more text in the source language, which needs no references.
    beams: the beam size of the teacher, by default that of its config.
    precision: of the teacher. On a CPU it translates with CTranslate2, if that is installed and supports it.
    fresh: discard the translations and the run in the folder and start over.
    """
    say = say or (lambda line: print(line, file=sys.stderr))
    observe = observe or PlainLines(say).observe
    values = run_values(config or {}, updates=updates, minutes=minutes, seed=seed)
    settings = find_settings(values, recipe=recipe, origins=[], tags=[])
    options: dict[str, Any] = {"languages": languages, "fields": fields}
    corpora = [text_files(settings, source, target, **options)]
    more = [also] if isinstance(also, str | Path) else also
    corpora += [text_files(settings, path, None, **options) for path in more]
    teachers, out = split_folders(teacher), Path(out)
    if not settings.model.is_translator:
        raise ConfigError(
            f"the student must be a translator, and model.family is {settings.model.family}: choose another --recipe"
        )
    valid_pair = (valid, None) if isinstance(valid, str | Path) else valid
    check_request(Request((), valid_pair and text_files(settings, *valid_pair, **options), out, settings, call=""))
    for path in teachers:
        folders.check_apart(out, path)
    lines = characters = 0
    for row in chain.from_iterable(files.read() for files in corpora):  # finds errors now, not after hours
        lines, characters = lines + 1, characters + len(row[0].strip())
    if not characters:
        raise DataError(f"{source} has no text to translate")
    beams = beams or load_config(teachers[0]).decode.beams
    identity = repr((origin_checksums(teachers), [files.identity() for files in corpora], beams, precision, PART_LINES))
    texts = out / f"{TEXTS}{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
    try:
        with folders.lock_folder(out), restored_state(find_device(device), threads):
            _check_folder(out, texts, fresh=fresh)
            if valid is None:
                say("without --valid the student is scored on held-out translations of the teacher")
            if len(list(texts.glob("*.jsonl"))) * PART_LINES < lines:
                say(f"translating {lines:,} lines with {teacher}")
                translator = _load_teacher(teacher, device, precision, say)
                _translate_parts(corpora, texts, translator, beams, lines, observe)
    except KeyboardInterrupt:
        return Run(out, 0, finished=False, scores={}, signal=signal.SIGINT)
    return train(
        texts,
        also=[(files.source, files.target, 1.0) for files in corpora if not files.single],
        out=out,
        valid=valid,
        recipe=recipe,
        updates=updates,
        minutes=minutes,
        config=config,
        **options,
        device=device,
        seed=seed,
        threads=threads,
        say=say,
        observe=observe,
        call=call or f"regard.distill({str(teacher)!r}, {str(source)!r}, ..., out={str(out)!r})",
    )


def _check_folder(out: Path, texts: Path, *, fresh: bool) -> None:
    """Raise a FolderError if a folder holds another run or other translations; with `fresh`, delete them instead."""
    known = list(out.glob(TEXTS + "[0-9a-f]" * 16))
    check_folder(out, fresh=fresh)
    if fresh:
        clear_folder(out)
        for path in known:
            folders.delete(path)
    elif texts not in known and (known or (out / CONFIG).exists()):
        raise FolderError(
            f"{out} holds another run, or translations of another teacher or other text (--also included), or with "
            "another beam size or precision: choose another --out, or start over with --fresh"
        )


def _load_teacher(folder: PathLike, device: str, precision: str, say: Say) -> Translator:
    """Load the teacher; on a CPU it translates with CTranslate2, if that is installed and supports it."""
    translator = Translator.load(folder, device)
    can_run = len(translator.models) == 1 and not unsupported_reason(translator.config.model, translator.config.decode)
    fast = translator.device.type == "cpu" and precision != "bf16" and can_run and find_spec("ctranslate2")
    use_engine(translator, "ctranslate2" if fast else "torch", precision, folder, token_scores=False, say=say)
    return translator


def _translate_parts(
    corpora: Sequence[Files], texts: Path, translator: Translator, beams: int, lines: int, observe: Observer
) -> None:
    """Write the translations of all lines as files that appear only when complete; existing files are kept."""
    rows = chain.from_iterable(files.read() for files in corpora)
    translated, start, fields = 0, time.perf_counter(), corpora[0].fields or ("source", "target")
    for number in count():
        part = list(islice(rows, PART_LINES))
        if not part:
            break
        path = texts / f"{number:06}.jsonl"
        if path.exists():
            continue
        alternatives = beams - 1 if any(len(row) > 1 for row in part) else 0  # with references
        results = translator.translate([row[0] for row in part], beams=beams, alternatives=alternatives, warn=False)
        pairs = []
        for (source, *reference), result in zip(part, results, strict=True):
            pair = zip(fields, (source, written_line(_best(result, *reference))), strict=True)
            pairs.append(json.dumps(dict(pair), ensure_ascii=False) + "\n")
        folders.write_file(path, "".join(pairs), force=False)
        translated, done = translated + len(part), number * PART_LINES + len(part)
        rate = translated / (time.perf_counter() - start)
        left = format_duration((lines - done) / rate)
        observe(ActivityEvent(0, f"translating: {done:,} of {lines:,} lines, {rate:,.0f} a second, {left} left"))


def _best(result: Result, reference: str | None = None) -> str:
    """The text with the best chrF among a result and its alternatives; ties go to the most probable one."""
    texts = [result.text, *(other.text for other in result.alternatives)]
    if reference is None or len(texts) == 1:
        return result.text
    scores = sentence_scores(texts, [reference] * len(texts), metrics=["chrf"])
    return max(zip(texts, scores, strict=True), key=lambda pair: pair[1]["chrf"])[0]
