"""Preparation: clean and tokenize a corpus once, on all cores, into a folder of the cache."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import cache
from itertools import chain, cycle, islice
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError, FolderError, RunError
from regard.folders import atomic_folder, clear_os_errors, delete, verify, write_checksums
from regard.text.alignments import parse_alignment, token_alignment
from regard.text.cleaning import (
    KEPT,
    Chunk,
    Cleaning,
    CleaningReport,
    Columns,
    Digests,
    DigestSet,
    Reasons,
    Scripts,
    chunks,
    find_duplicates,
    frequent_scripts,
    judge_lengths,
    judge_texts,
    usual_scripts,
)
from regard.text.dataset import DIGESTS_FILE, FORMAT, RECORD_FILE, Ids, column_files
from regard.text.ordering import Indices
from regard.text.tokenizer import CorpusEncoder, Tokenizer, drop_merges

if sys.platform != "win32":
    import fcntl

CHUNKS_BEFORE_WORKERS = 8  # encoded here first: starting workers takes about as long
CHUNKS_PER_WORKER = 2  # one being encoded and one waiting
SIDES = {1: ("text",), 2: ("source", "target")}

Encoded = tuple[Ids, Indices]  # the ids of many texts one after the other, and the length of each


class Settings(NamedTuple):
    """Everything but its number and text that the result of a chunk depends on."""

    tokenizers: tuple[str, ...]  # tokenizer.json of each side
    columns: dict[str, str]  # the name and the type of each column: the sides, and the word alignment of a pair
    cleaning: Cleaning
    bpe_dropout: float
    variants: int
    seed: int
    tag: str  # put before every source after cleaning
    scripts: Scripts = ()  # the usual scripts of each side


def identity_of(paths: Iterable[Path]) -> str:
    """The hash of the content of files."""
    digest = hashlib.sha256()
    for path in paths:
        try:
            with open(path, "rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    return digest.hexdigest()


def prepare(
    cache: Path,
    read: Callable[[], Iterable[Sequence[str]]],
    *,
    identity: str,
    tokenizers: Sequence[Tokenizer],
    cleaning: Cleaning,
    bpe_dropout: float = 0.0,
    variants: int = 0,
    seed: int = 0,
    tag: str = "",
    alignments: bool = False,
    workers: int | None = None,
    damaged: Callable[[str], None] | None = None,
) -> Path:
    """The folder of a prepared corpus in `cache`, which is made if it is not there.

    `read()` yields (source, target) for two tokenizers, (text,) for one, and (source, target, word alignment) with
    `alignments`. The folder's name is a hash of all settings and of `identity`, the hash of the files that are read.
    The ids do not depend on the number of `workers`. With `damaged` an existing folder is verified first; `damaged` is
    called with a message before a damaged corpus is prepared again.
    """
    variants, seed = (variants, seed) if bpe_dropout else (0, 0)
    assert not (alignments and variants)
    columns = {
        name: "uint16" if tokenizer.size <= 1 << 16 else "uint32"
        for name, tokenizer in zip(SIDES[len(tokenizers)], tokenizers, strict=True)
    }
    if alignments:
        columns["alignment"] = "uint32"
    texts = tuple(tokenizer.text for tokenizer in tokenizers)
    settings = Settings(texts, columns, cleaning, bpe_dropout, variants, seed, tag)
    made_from = json.dumps((FORMAT, identity, *settings), default=asdict)
    name = hashlib.sha256(made_from.encode()).hexdigest()[:20]
    folder = cache / name
    if _is_prepared(folder, check=damaged is not None):
        return folder
    with clear_os_errors(cache):
        cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache / f".{name}.lock"):
        if _is_prepared(folder, check=damaged is not None):  # by another process, while this one waited
            return folder
        if folder.exists() and damaged is not None:
            damaged(f"{folder} was damaged and is prepared again")
            delete(folder)
        if workers is None:
            workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        with atomic_folder(folder, force=False) as partial:
            beginning = usual_scripts(next(chunks(read(), len(tokenizers)), ([],) * len(tokenizers)))
            record, scripts = _write(partial, read, settings._replace(scripts=beginning), workers)
            if "script" in cleaning.rules and scripts != beginning:
                record, _ = _write(partial, read, settings._replace(scripts=scripts), workers)
            text = json.dumps(record, ensure_ascii=False, indent=2) + "\n"
            (partial / RECORD_FILE).write_text(text, encoding="utf-8")
            write_checksums(partial)
    return folder


def _is_prepared(folder: Path, *, check: bool) -> bool:
    """Whether the folder of a corpus exists and, with `check`, its files match their checksums."""
    if not check or not folder.exists():
        return folder.exists()
    try:
        return RECORD_FILE in verify(folder)
    except FolderError as error:
        if isinstance(error.__cause__, PermissionError):  # it may belong to another user
            raise
        return False


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """A context for one process at a time; the lock ends with the process. On Windows there is no lock."""
    with clear_os_errors(path), open(path, "w", encoding="utf-8") as file:
        if sys.platform != "win32":
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _write(
    folder: Path, read: Callable[[], Iterable[Sequence[str]]], settings: Settings, workers: int
) -> tuple[dict[str, Any], Scripts]:
    """Write the arrays of a corpus; returns its record and its usual scripts."""
    sides = len(settings.tokenizers)
    scripts: list[Counter[str]] = [Counter() for _ in range(sides)]
    report = CleaningReport(settings.cleaning, noun="pairs" if sides == 2 else "lines")
    seen = DigestSet()
    with ExitStack() as stack:

        def opened(name: str) -> BinaryIO:
            return stack.enter_context(open(folder / name, "wb"))

        digests_file = opened(DIGESTS_FILE)
        variants = range(settings.variants + 1)
        names = [column_files(name, variant) for variant in variants for name in settings.columns]
        files = [(opened(ids_name), opened(offsets_name)) for ids_name, offsets_name in names]
        ends = [0] * len(files)
        for _, offsets_file in files:
            np.zeros(1, "<i8").tofile(offsets_file)
        for columns, chunk in _encode_all(chunks(read(), len(settings.columns)), settings, workers):
            for counts, side_counts in zip(scripts, chunk.scripts, strict=True):
                counts.update(side_counts)
            reasons = find_duplicates(chunk.reasons, chunk.digests, settings.cleaning, seen)
            report.add(reasons, columns[:sides])
            kept = reasons == KEPT
            np.stack([digests[kept] for digests in chunk.digests], axis=1).astype("<u8").tofile(digests_file)
            unique = kept[chunk.reasons == KEPT]
            for number, (encoded, (ids_file, offsets_file)) in enumerate(zip(chunk.columns, files, strict=True)):
                ids, lengths = _select(encoded, unique)
                ids.tofile(ids_file)
                (ends[number] + np.cumsum(lengths)).astype("<i8", copy=False).tofile(offsets_file)
                ends[number] += len(ids)
    record = {"examples": report.kept, "sides": sides, "columns": settings.columns, "report": report.to_dict()}
    return record, tuple(map(frequent_scripts, scripts))


def _select(encoded: Encoded, flags: NDArray[np.bool_]) -> Encoded:
    ids, lengths = encoded
    if flags.all():
        return encoded
    return ids[np.repeat(flags, lengths)], lengths[flags]


# Chunks


class EncodedChunk(NamedTuple):
    """The result of cleaning and tokenizing a chunk."""

    reasons: Reasons
    digests: tuple[Digests, ...]
    scripts: list[Counter[str]]  # how many lines of each side are in each script
    columns: list[Encoded]  # the ids of the examples that are kept: all columns, then those of each variant


class ChunkEncoder:
    """Cleans and tokenizes chunks; the result depends on the settings, the chunk's number and its text alone."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

        @cache  # sides that share a tokenizer share its cache of words
        def encoders(text: str) -> tuple[Tokenizer, CorpusEncoder, CorpusEncoder]:
            tokenizer, dropout, seed = Tokenizer(text), settings.bpe_dropout, settings.seed
            dropped = drop_merges(tokenizer, dropout, seed=seed) if settings.variants else [tokenizer]
            return tokenizer, CorpusEncoder([tokenizer]), CorpusEncoder(dropped)

        self._tokenizers, self._plain, self._dropout = zip(*map(encoders, settings.tokenizers), strict=True)

    def __call__(self, number: int, columns: Columns) -> EncodedChunk:
        cleaning, tag, sides = self._settings.cleaning, self._settings.tag, len(self._plain)
        chunk = Chunk.of(columns[:sides], self._settings.scripts)
        reasons = judge_texts(chunk, cleaning)
        kept = np.flatnonzero(reasons == KEPT).tolist()
        if len(kept) < len(reasons):
            columns = tuple([column[place] for place in kept] for column in columns)
        if tag:
            columns = ([f"{tag} {line}" for line in columns[0]], *columns[1:])
        encoded = [encode(column) for encode, column in zip(self._plain, columns[:sides], strict=True)]
        reasons[kept] = judge_lengths([lengths - 1 for _, lengths in encoded], cleaning)
        fits = reasons[kept] == KEPT
        if len(columns) > sides:
            encoded.append(self._encode_alignments(columns))
        for variant in range(1, self._settings.variants + 1):
            for side in range(sides):
                encoded.append(self._encode_variant(columns[side], encoded[side], side, variant, number))
        kinds = [np.dtype(kind).newbyteorder("<") for kind in self._settings.columns.values()]
        typed = [(ids.astype(kind), lengths) for (ids, lengths), kind in zip(encoded, cycle(kinds))]
        selected = [_select(column, fits) for column in typed]
        return EncodedChunk(reasons, chunk.digests, list(map(Counter, chunk.scripts)), selected)

    def _encode_alignments(self, columns: Columns) -> Encoded:
        """The word alignments of a chunk as alignments of tokens."""
        source_words, target_words = (
            tokenizer.word_ids(column) for tokenizer, column in zip(self._tokenizers, columns, strict=False)
        )
        shift = 1 if self._settings.tag else 0  # the tag is the first word
        rows = [
            token_alignment([(i + shift, j) for i, j in parse_alignment(text, "alignments")], source, target)
            for text, source, target in zip(columns[2], source_words, target_words, strict=True)
        ]
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        return np.fromiter(chain.from_iterable(rows), np.uint32, int(lengths.sum())), lengths

    def _encode_variant(self, lines: list[str], plain: Encoded, side: int, variant: int, number: int) -> Encoded:
        """A side of a chunk with BPE dropout; texts that would become too long are encoded without it."""
        cleaning = self._settings.cleaning
        ids, lengths = self._dropout[side](lines, self._settings.seed, variant, number, side)
        too_long = lengths - 1 > cleaning.max_length
        if "long" not in cleaning.rules or not too_long.any():
            return ids, lengths
        plain_ids, plain_lengths = plain
        rows, plain_rows = np.split(ids, np.cumsum(lengths)[:-1]), np.split(plain_ids, np.cumsum(plain_lengths)[:-1])
        for index in np.flatnonzero(too_long).tolist():
            rows[index] = plain_rows[index]
        return np.concatenate(rows), np.where(too_long, plain_lengths, lengths)


# Worker processes


def _encode_all(stream: Iterator[Columns], settings: Settings, workers: int) -> Iterator[tuple[Columns, EncodedChunk]]:
    """Every chunk with its result, in order."""
    numbered = enumerate(stream)
    encode = ChunkEncoder(settings)
    for number, columns in islice(numbered, CHUNKS_BEFORE_WORKERS) if workers > 1 else numbered:
        yield columns, encode(number, columns)
    del encode
    following = list(islice(numbered, 1))
    if not following:
        return
    pending: deque[tuple[Columns, Future[EncodedChunk]]] = deque()
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker, initargs=(settings,))
    try:
        for number, columns in chain(following, numbered):
            with _empty_main_module():
                pending.append((columns, pool.submit(_encode_chunk, number, columns)))
            if len(pending) >= CHUNKS_PER_WORKER * workers:
                columns, future = pending.popleft()
                yield columns, future.result()
        for columns, future in pending:
            yield columns, future.result()
    except BrokenProcessPool as error:
        raise RunError("a process that prepares the corpus has died; there may be too little memory") from error
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _empty_main_module() -> Iterator[None]:
    """Start workers without importing the user's script again, which may lack an `if __name__ == "__main__"`."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


_encoder: ChunkEncoder  # of a worker process


def _start_worker(settings: Settings) -> None:
    global _encoder
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the main process, which ends its workers
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # there is a worker for every core
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    _encoder = ChunkEncoder(settings)


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _encode_chunk(number: int, columns: Columns) -> EncodedChunk:
    return _encoder(number, columns)
