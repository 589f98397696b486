"""Corpora: text becomes ids on disk once, and is read from there without copies.

A prepared corpus is a folder named by the hash of all that it was made from: `ids.arrow`, in which every text ends with
</s> (and `ids.1.arrow` ... cut otherwise by BPE dropout), `digests.npy` and `corpus.json`.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from regard.errors import DataError, FolderError
from regard.folders import atomic_folder, clear_os_errors, delete, verify, write_checksums
from regard.text.alignments import parse_alignment, token_alignment
from regard.text.cleaning import (
    KEPT,
    Chunk,
    Cleaning,
    CleaningReport,
    Columns,
    DigestSet,
    Reasons,
    chunks,
    find_duplicates,
    judge_lengths,
    judge_texts,
    usual_scripts,
)
from regard.text.ordering import noise, scatter
from regard.text.overlap import Digests, pair_digests
from regard.text.tokenizer import DROPOUT_TABLES, Lines, Tokenizer, check_fingerprint, dropped, fingerprint_of, take
from regard.text.workers import Crew, cores, pack, unpack

if sys.platform != "win32":
    import fcntl

FORMAT = 2  # raised when what is in a folder changes, so that older ones are made anew
NAMES = {1: ("text",), 2: ("source", "target")}
ALONE = 8  # chunks that one process does before it calls for others: they need a second to start
GROUP = 8  # pairs that may be held out together because they share sentences

Ids = NDArray[Any]
Places = NDArray[np.int64]


# Reading


@dataclass(frozen=True, slots=True)
class Column:
    """One side of a corpus: the ids of every example, wherever they lie."""

    files: tuple[Ids, ...]
    """What is mapped into memory, as ids from beginning to end."""
    file: NDArray[np.uint8]
    """Which of the files an example is in."""
    starts: Places
    lengths: NDArray[np.int32]
    """In tokens, </s> included."""

    def ids(self, example: int) -> Ids:
        """The ids of an example, not copied."""
        start, length = int(self.starts[example]), int(self.lengths[example])
        values: Ids = self.files[self.file[example]]
        return values[start : start + length]

    def take(self, examples: Places) -> Column:
        """The same for some examples, in this order; no ids are read."""
        return Column(self.files, self.file[examples], self.starts[examples], self.lengths[examples])

    def gather(self, examples: Places, starts: Places | int = 0, lengths: Places | None = None) -> Ids:
        """The ids of these examples one after the other, or of a stretch of each."""
        starts = self.starts[examples] + starts
        lengths = self.lengths[examples].astype(np.int64) if lengths is None else lengths
        if len(self.files) == 1:
            return take(self.files[0], starts, lengths)
        file = self.file[examples]
        owner = np.repeat(file, lengths)
        ids = np.zeros(len(owner), np.uint32)
        for number in np.unique(file).tolist():
            mine = file == number
            ids[owner == number] = take(self.files[number], starts[mine], lengths[mine])
        return ids


class Dataset:
    """A prepared corpus: pairs, or single texts for language models."""

    def __init__(self, columns: dict[str, Column], digests: Digests, record: dict[str, Any]) -> None:
        self.columns = columns
        self.digests = digests
        """(examples, sides) of the texts, blanks and case aside."""
        self.record = record
        """What `corpus.json` says: the report of the cleaning, the fingerprint of the tokenizer."""

    @classmethod
    def open(cls, folder: Path, *, variant: int = 0) -> Dataset:
        """A prepared corpus; `variant` 1, 2 ... are those that BPE dropout has cut."""
        record = _record(folder)
        if variant > record["variants"]:
            raise FolderError(f"{folder} has no variant {variant}: it was prepared with {record['variants']}")
        columns = _map(folder / _ids_file(variant), record["columns"])
        with clear_os_errors(folder / "digests.npy", "read"):
            digests = np.load(folder / "digests.npy", mmap_mode="r")
        return cls(columns, digests, record)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())).lengths)

    @property
    def source(self) -> Column:
        return self.columns["source"]

    @property
    def target(self) -> Column:
        return self.columns["target"]

    @property
    def text(self) -> Column:
        """The only side of a corpus for language models."""
        return self.columns["text"]

    @property
    def source_lengths(self) -> NDArray[np.int32]:
        return self.source.lengths

    @property
    def target_lengths(self) -> NDArray[np.int32]:
        return self.target.lengths

    def pair(self, example: int) -> tuple[Ids, Ids]:
        """Source and target ids of an example, not copied; both end with </s>."""
        return self.source.ids(example), self.target.ids(example)

    def take(self, examples: Places) -> Dataset:
        """These examples as a corpus; nothing is copied but where they lie."""
        columns = {name: column.take(examples) for name, column in self.columns.items()}
        return Dataset(columns, self.digests[examples], self.record)

    def check(self, fingerprint: str, where: str | Path) -> None:
        """Refuse a corpus that another tokenizer made."""
        check_fingerprint(fingerprint, self.record["tokenizer"], where)


def variant_of(epoch: int, variants: int) -> int:
    """Which variant of a corpus an epoch reads: all in turn, or the only one."""
    return 1 + epoch % variants if variants else 0


def join(stores: Sequence[Dataset]) -> Dataset:
    """Several corpora as one, one after the other."""
    if len({tuple(store.columns) for store in stores}) != 1 or len({s.record["tokenizer"] for s in stores}) != 1:
        raise FolderError("corpora that are joined must have the same sides and the same tokenizer")
    columns = {}
    for name in stores[0].columns:
        parts = [store.columns[name] for store in stores]
        before = np.cumsum([0, *(len(part.files) for part in parts)])
        columns[name] = Column(
            tuple(values for part in parts for values in part.files),
            np.concatenate([part.file + np.uint8(shift) for part, shift in zip(parts, before[:-1], strict=True)]),
            np.concatenate([part.starts for part in parts]),
            np.concatenate([part.lengths for part in parts]),
        )
    return Dataset(columns, np.concatenate([store.digests for store in stores]), stores[0].record)


def _record(folder: Path) -> dict[str, Any]:
    try:
        record = json.loads((folder / "corpus.json").read_text(encoding="utf-8"))
    except OSError as error:
        raise FolderError(f"{folder} is not a prepared corpus: corpus.json: {error.strerror or error}") from error
    except ValueError as error:
        raise FolderError(f"{folder / 'corpus.json'} is damaged: {error}") from error
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise FolderError(f"{folder} was prepared by another version: delete it, and it is made anew")
    return record


def _ids_file(variant: int) -> str:
    return f"ids.{variant}.arrow" if variant else "ids.arrow"


def _map(path: Path, names: Sequence[str]) -> dict[str, Column]:
    """The columns of an Arrow file, mapped: lengths are read, ids are not."""
    try:
        source = pa.memory_map(str(path))
        whole = source.read_buffer()
        reader = pa.ipc.open_file(source)
        batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
    except (OSError, pa.ArrowInvalid) as error:
        raise FolderError(f"{path} cannot be read: {error}") from error
    columns = {}
    for side, name in enumerate(names):
        dtype = np.dtype(reader.schema.field(name).type.value_type.to_pandas_dtype())
        flat = np.frombuffer(whole, dtype, whole.size // dtype.itemsize)
        starts, lengths = [np.zeros(0, np.int64)], [np.zeros(0, np.int32)]
        for batch in batches:
            lists = batch.column(side)
            offsets = lists.offsets.to_numpy()
            first = (lists.values.buffers()[1].address - whole.address) // dtype.itemsize
            starts.append(first + offsets[:-1].astype(np.int64))
            lengths.append(np.diff(offsets))
        found = np.concatenate(lengths)
        columns[name] = Column((flat,), np.zeros(len(found), np.uint8), np.concatenate(starts), found)
    return columns


# A part held out


def split(store: Dataset, most: int) -> tuple[Dataset, Dataset]:
    """A corpus without, and with only, the part held out for validation: at most `most` examples and 2 in 100.

    Examples that share a text on either side, blanks and case aside, stay on the same side of the split. Which ones are
    held out depends on what they say, not on where they stand.
    """
    wanted = min(most, len(store) // 50)
    group = groups(store.digests)
    labels, member, sizes = np.unique(group, return_inverse=True, return_counts=True)
    said = scatter(store.digests[:, 0] if store.digests.shape[1] == 1 else pair_digests(*store.digests.T))
    lot = np.full(len(labels), np.iinfo(np.uint64).max, np.uint64)
    np.minimum.at(lot, member, said)
    order = np.argsort(lot, kind="stable")
    order = order[sizes[order] <= GROUP]
    chosen = np.zeros(len(labels), np.bool_)
    chosen[order[np.cumsum(sizes[order]) <= wanted]] = True
    held = chosen[member]
    return store.take(np.flatnonzero(~held)), store.take(np.flatnonzero(held))


def groups(digests: Digests) -> Places:
    """(examples,) the same number for examples that share a digest in a column, directly or through others."""
    keys = [np.unique(column, return_inverse=True)[1] for column in digests.T]
    label = np.arange(len(digests))
    while True:
        before = label
        for inverse in keys:
            least = np.full(len(digests), len(digests))
            np.minimum.at(least, inverse, label)
            label = least[inverse]
        label = label[label]  # labels are examples: their label is at least as small
        if np.array_equal(label, before):
            return label


# Preparing


class Settings(NamedTuple):
    """All that decides what becomes of a chunk of text."""

    tokenizers: tuple[str, ...]
    """tokenizer.json of each side."""
    cleaning: Cleaning
    dropout: float
    variants: int
    seed: int
    scripts: tuple[str, ...] = ()
    """What each side is usually written in: the first chunk says it."""
    tag: str = ""
    """Put before every source, after the rules have judged it."""
    links: bool = False
    """Examples bring a line of word alignments, which becomes a column of its own."""


class Cut(NamedTuple):
    """What became of a chunk: the ids of what the rules leave, by variant and side."""

    reasons: Reasons
    digests: tuple[Digests, ...]
    ids: list[list[tuple[Ids, Places]]]


def identity(paths: Iterable[Path]) -> str:
    """The hash of what files hold, one after the other."""
    found = hashlib.sha256()
    for path in paths:
        try:
            with open(path, "rb") as file:
                found.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    return found.hexdigest()


def prepare(
    cache: Path,
    read: Callable[[], Iterable[Sequence[Any]]],
    *,
    identity: str,
    tokenizers: Sequence[Tokenizer],
    cleaning: Cleaning,
    dropout: float = 0.0,
    variants: int = 0,
    seed: int = 0,
    tag: str = "",
    links: bool = False,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
    damaged: Callable[[str], None] | None = None,
) -> Path:
    """The folder of a prepared corpus in `cache`: found there, or made by all cores.

    `read()` gives examples: (source, target, ...) for two tokenizers, (text, ...) for one. `identity` is a hash of what
    it reads, which with tokenizers and rules decides the name of the folder. Ids do not depend on how many `workers`
    there are. `progress` is told how many examples have been read. A `tag` is put before every source; with `links` the
    examples are (source, target, word alignments), of one way to cut the text. `damaged` is told of a corpus that is
    not as it was written, and is made anew; without it nobody looks.
    """
    variants = variants if dropout else 0
    assert not (links and variants)
    texts = tuple(tokenizer.text for tokenizer in tokenizers)
    settings = Settings(texts, cleaning, dropout, variants, seed, tag=tag, links=links)
    fingerprint = fingerprint_of(tokenizers)
    varied = (dropout, variants, seed) if dropout else ()
    extra = [(tag, links)] if tag or links else []
    made_from = (FORMAT, identity, len(tokenizers), fingerprint, asdict(cleaning), varied, *extra)
    name = hashlib.sha256(json.dumps(made_from).encode()).hexdigest()[:20]
    folder = cache / name
    if _sound(folder, check=damaged is not None):
        return folder
    with clear_os_errors(cache):
        cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache / f".{name}.lock"):
        if _sound(folder, check=damaged is not None):  # made while this process waited
            return folder
        if folder.exists() and damaged is not None:
            damaged(f"{folder} was damaged, and is made anew")
            delete(folder)
        with atomic_folder(folder, force=False) as partial:
            record = _write(partial, read, settings, [tokenizer.size for tokenizer in tokenizers], workers, progress)
            record |= {"identity": identity, "tokenizer": fingerprint}
            (partial / "corpus.json").write_text(
                json.dumps(record, ensure_ascii=False, indent=2) + "\n", encoding="utf-8"
            )
            write_checksums(partial)
    return folder


def _sound(folder: Path, *, check: bool) -> bool:
    """Whether a corpus is there, and on request whether its files are as they were written."""
    if not check or not folder.exists():
        return folder.exists()
    try:
        return "corpus.json" in verify(folder)
    except FolderError as error:
        if isinstance(error.__cause__, PermissionError):  # it may be sound, and somebody else's
            raise
        return False


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Only one process at a time; the lock goes with the process, however it ends. (On Windows: as many as like.)"""
    with clear_os_errors(path), open(path, "w", encoding="utf-8") as file:
        if sys.platform != "win32":
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _write(
    folder: Path,
    read: Callable[[], Iterable[Sequence[Any]]],
    settings: Settings,
    sizes: list[int],
    workers: int | None,
    progress: Callable[[int], None] | None,
) -> dict[str, Any]:
    """Write the files of a corpus; returns its record."""
    width = len(sizes)
    names = (*NAMES[width], "links") if settings.links else NAMES[width]
    report = CleaningReport(settings.cleaning, noun="pairs" if width == 2 else "lines")
    types = [pa.uint16() if size <= 1 << 16 else pa.uint32() for size in sizes] + [pa.uint32()] * settings.links
    schema = pa.schema([pa.field(name, pa.list_(kind)) for name, kind in zip(names, types, strict=True)])
    stream = chunks(read(), len(names))
    first = list(islice(stream, 1))
    settings = settings._replace(scripts=usual_scripts(first[0][:width]) if first else ())
    stream = chain(first, stream)
    digests = _Numbers(folder / "digests.npy", width)
    with ExitStack() as stack:
        stack.enter_context(digests)
        writers = [
            stack.enter_context(pa.ipc.new_file(str(folder / _ids_file(variant)), schema))
            for variant in range(settings.variants + 1)
        ]
        seen = DigestSet()
        for columns, chunk in _work(stream, settings, workers):
            reasons = find_duplicates(chunk.reasons, chunk.digests, settings.cleaning, seen)
            report.add(reasons, columns[:width])
            kept = reasons == KEPT
            digests.add(np.stack([column[kept] for column in chunk.digests], axis=1))
            stay = kept[chunk.reasons == KEPT]
            for writer, sides in zip(writers, chunk.ids, strict=True):
                lists = [_lists(*_select(*side, stay), kind) for side, kind in zip(sides, types, strict=True)]
                writer.write_batch(pa.record_batch(lists, schema=schema))
            if progress:
                progress(report.read)
    return {
        "format": FORMAT,
        "examples": report.kept,
        "columns": list(names),
        "vocabularies": sizes,
        "variants": settings.variants,
        "scripts": list(settings.scripts),
        "report": report.to_dict(),
    }


def _select(ids: Ids, lengths: Places, stay: NDArray[np.bool_]) -> tuple[Ids, Places]:
    if stay.all():
        return ids, lengths
    return take(ids, (np.cumsum(lengths) - lengths)[stay], lengths[stay]), lengths[stay]


def _lists(ids: Ids, lengths: Places, kind: Any) -> Any:
    offsets = np.append(0, np.cumsum(lengths)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(ids, type=kind))


class _Numbers:
    """A .npy file of digests that grows while it is written."""

    def __init__(self, path: Path, width: int) -> None:
        self._path, self._width, self._rows = path, width, 0

    def __enter__(self) -> _Numbers:
        self._file = open(self._path, "wb")
        self._header()
        return self

    def _header(self) -> None:
        self._file.seek(0)  # numpy leaves room in its header for the number of rows to grow
        header = {"descr": "<u8", "fortran_order": False, "shape": (self._rows, self._width)}
        np.lib.format.write_array_header_1_0(self._file, header)

    def add(self, values: Digests) -> None:
        self._file.write(np.ascontiguousarray(values, "<u8").data)
        self._rows += len(values)

    def __exit__(self, *_: object) -> None:
        self._header()
        self._file.close()


def _work(stream: Iterator[Columns], settings: Settings, workers: int | None) -> Iterator[tuple[Columns, Cut]]:
    """Every chunk with what became of it, in order, whoever did it."""
    jobs = enumerate(stream)
    workers = cores() if workers is None else workers
    cut = Cutter(settings)
    for number, columns in islice(jobs, ALONE) if workers > 1 else jobs:
        yield columns, cut((number, columns))
    del cut
    if (job := next(jobs, None)) is not None:
        packed = ((columns, (number, tuple(map(pack, columns)))) for number, columns in chain([job], jobs))
        with Crew(cutter, settings._asdict() | {"cleaning": asdict(settings.cleaning)}, workers) as crew:
            for columns, cut_chunk in crew.in_order(packed):
                yield columns, Cut(*cut_chunk)


def cutter(told: dict[str, Any]) -> Callable[[Any], Cut]:
    """What a process of a crew does with packed chunks, from the settings it was told."""
    cut = Cutter(Settings(**told | {"cleaning": Cleaning(**told["cleaning"])}))
    return lambda job: cut((job[0], tuple(unpack(*column) for column in job[1])))


class Cutter:
    """Cleans and cuts chunks; what becomes of one depends on the settings, its number and its text alone."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        plain: dict[str, Lines] = {}
        varied: dict[str, Lines] = {}
        for text in settings.tokenizers:  # sides that share a tokenizer share what it remembers
            if text in plain:
                continue
            tokenizer = Tokenizer(text)
            plain[text] = Lines([tokenizer])
            if settings.variants:
                tables = range(DROPOUT_TABLES)
                varied[text] = Lines(
                    [dropped(tokenizer, settings.dropout, seed=settings.seed, table=t) for t in tables]
                )
        self._plain = [plain[text] for text in settings.tokenizers]
        self._varied = [varied[text] for text in settings.tokenizers] if varied else []
        self._tokenizers = [Tokenizer(text) for text in settings.tokenizers]
        kinds: list[Any] = [np.uint16 if each.size <= 1 << 16 else np.uint32 for each in self._tokenizers]
        self._kinds = [*kinds, *[np.uint32] * settings.links]

    def __call__(self, job: tuple[int, Columns]) -> Cut:
        number, columns = job
        cleaning, tag, sides = self._settings.cleaning, self._settings.tag, len(self._plain)
        chunk = Chunk.of(columns[:sides], self._settings.scripts)
        reasons = judge_texts(chunk, cleaning)
        alive = np.flatnonzero(reasons == KEPT).tolist()
        if len(alive) < len(reasons):
            columns = tuple([column[place] for place in alive] for column in columns)
        if tag:
            columns = ([f"{tag} {line}" for line in columns[0]], *columns[1:])
        cut = [lines(column) for lines, column in zip(self._plain, columns[:sides], strict=True)]
        reasons[alive] = judge_lengths([lengths - 1 for _, lengths in cut], cleaning)
        stay = reasons[alive] == KEPT
        if self._settings.links:
            cut.append(self._link(columns))
        variants = [cut]
        for variant in range(1, self._settings.variants + 1):
            variants.append([self._vary(columns, cut, side, variant, number) for side in range(sides)])
        ids = [
            [
                _select(found.astype(kind), lengths, stay)
                for (found, lengths), kind in zip(sides, self._kinds, strict=True)
            ]
            for sides in variants
        ]
        return Cut(reasons, chunk.digests, ids)

    def _link(self, columns: Columns) -> tuple[Ids, Places]:
        """The word alignments of a chunk as links between tokens."""
        source, target = (tokenizer.words(column) for tokenizer, column in zip(self._tokenizers, columns, strict=False))
        shift = 1 if self._settings.tag else 0  # the tag is the first word
        found = [
            token_alignment([(i + shift, j) for i, j in parse_alignment(text, "links")], ours, theirs)
            for text, ours, theirs in zip(columns[2], source, target, strict=True)
        ]
        lengths = np.fromiter(map(len, found), np.int64, len(found))
        return np.fromiter(chain.from_iterable(found), np.uint32, int(lengths.sum())), lengths

    def _vary(
        self, columns: Columns, cut: list[tuple[Ids, Places]], side: int, variant: int, number: int
    ) -> tuple[Ids, Places]:
        """The side of a chunk cut in another way; texts that would become too long stay as they are."""
        seed = self._settings.seed

        def choose(count: int) -> Places:
            return (noise(count, seed, variant, number, side) % np.uint64(DROPOUT_TABLES)).astype(np.int64)

        ids, lengths = self._varied[side](columns[side], choose)
        plain, plain_lengths = cut[side]
        cleaning = self._settings.cleaning
        long = lengths - 1 > cleaning.max_length
        if "long" not in cleaning.rules or not long.any():
            return ids, lengths
        starts = np.where(long, len(ids) + np.cumsum(plain_lengths) - plain_lengths, np.cumsum(lengths) - lengths)
        chosen = np.where(long, plain_lengths, lengths)
        return take(np.concatenate([ids, plain]), starts, chosen), chosen
