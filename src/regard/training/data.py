"""Training data: turn text files into the batches of every epoch; prepared corpora are cached on disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from regard.config import Config, TextConfig
from regard.documents.formats import read_pairs
from regard.errors import ConfigError, DataError
from regard.folders import cache
from regard.text import ordering, preparation
from regard.text.alignments import read_alignments
from regard.text.batching import Epoch, Sides, packed_epoch, pairs
from regard.text.cleaning import Cleaning, chunks, digests, normalized
from regard.text.dataset import Dataset, join, split
from regard.text.files import list_files, read_continuous, read_lines
from regard.text.tokenizer import Tokenizer, Tokenizers
from regard.text.tokenizer import train as train_tokenizer
from regard.training.events import Say

MIN_VALIDATION_BATCH_TOKENS = 4096  # padded tokens of a validation batch, if train.batch_tokens is smaller
CACHE = "prepared"  # the folder of the cache that holds prepared corpora


@dataclass(frozen=True)
class Files:
    """The files of a corpus: two, or one that holds both sides or a single text."""

    source: Path
    target: Path | None
    single: bool  # a single text, for a language model
    weight: float = 1.0  # how many times each epoch contains the corpus
    languages: tuple[str, str] | None = None
    fields: tuple[str, str] | None = None
    continuous: bool = False  # the file is one text from beginning to end (text.continuous)
    start: int = 0  # of a continuous text, characters `start` to `end` are used, exclusive
    end: int | None = None
    tag: str = ""  # a token put before every source, such as <2fr> or <BT>
    alignments: Path | None = None  # word alignments of the pairs, line by line

    def read(self, *, aligned: bool = False) -> Iterator[tuple[str, ...]]:
        """Read every example; for a continuous text, every line. If `aligned`, pairs without an alignment get ""."""
        if self.continuous:
            return ((line,) for line in read_continuous(self.source, self.start, self.end))
        if self.single:
            return ((line,) for line, _ in read_lines(self.source))
        pairs = read_pairs(self.source, self.target, languages=self.languages, fields=self.fields)
        if self.alignments is not None:
            return read_alignments(pairs, self.alignments)
        return ((pair.source, pair.target, *[""] * aligned) for pair in pairs)

    @property
    def paths(self) -> list[Path]:
        """All files; those of a folder by name."""
        return [file for path in (self.source, self.target, self.alignments) if path for file in list_files(path)]

    def identity(self) -> str:
        """A hash of the content of the files, followed by the part of a continuous text or by the tag."""
        part = f"[{self.start}:{self.end}]" if self.continuous else self.tag
        return preparation.identity_of(self.paths) + part


@dataclass(frozen=True, eq=False)
class Data:
    """The prepared corpora of a run."""

    config: Config
    tokenizers: Tokenizers
    train: Sequence[Dataset]  # all corpora as one; with BPE dropout, segmentations of it that epochs use in turn
    valid: Dataset
    shares: Sequence[tuple[int, float]]  # the number of examples and the weight of each corpus
    identities: Sequence[str]  # a hash of the files of each corpus, and of the validation files

    def epoch(self, number: int, *, rank: int, world_size: int) -> Epoch:
        """The training batches of an epoch; their order depends only on (seed, epoch)."""
        settings, dataset = self.config.train, self.train[number % len(self.train)]
        sizes, weights = zip(*self.shares, strict=True)
        examples = np.arange(len(dataset))
        if set(weights) != {1.0}:
            examples = ordering.mix_corpora(sizes, weights, seed=settings.seed, epoch=number)
        order: dict[str, Any] = {"seed": settings.seed, "epoch": number}
        shard = {"rank": rank, "world_size": world_size}
        if not self.config.model.is_translator:
            order |= shard | {"batch_tokens": settings.batch_tokens}
            return packed_epoch(dataset.text, ordering.in_passes(examples), self.config, self._special[0], **order)
        lengths = dataset.source.lengths, dataset.target.lengths
        if settings.packed:
            plan = ordering.plan_packed(*lengths, self._shapes[0], examples=examples, **order)
        elif settings.batch_shapes:
            plan = ordering.plan_shapes(*lengths, self._shapes, examples=examples, **order)
        else:
            plan = ordering.plan_batches(*lengths, batch_tokens=settings.batch_tokens, examples=examples, **order)
        return Epoch(plan, pairs(dataset, plan, special=self._special, **shard))

    def validation(self) -> Epoch:
        """The validation batches, always the same."""
        valid, batch_tokens = self.valid, max(self.config.train.batch_tokens, MIN_VALIDATION_BATCH_TOKENS)
        order: dict[str, Any] = {"batch_tokens": batch_tokens, "seed": 0, "epoch": 0}
        shard: dict[str, Any] = {"rank": 0, "world_size": 1}
        if not self.config.model.is_translator:
            order |= shard | {"cover_all": True}
            return packed_epoch(valid.text, np.arange(len(valid)), self.config, self._special[0], **order)
        plan = ordering.plan_batches(valid.source.lengths, valid.target.lengths, **order)
        return Epoch(plan, pairs(valid, plan, special=self._special, **shard))

    @property
    def _special(self) -> Sides:
        return self.tokenizers.source.special, self.tokenizers.target.special

    @cached_property
    def _shapes(self) -> list[ordering.Shape]:
        """The shapes of batches; with train.packed there is one. All BPE dropout variants fit into the same shapes."""
        settings = self.config.train
        sources = np.concatenate([dataset.source.lengths for dataset in self.train])
        targets = np.concatenate([dataset.target.lengths for dataset in self.train])
        if settings.packed:
            sizes, weights = zip(*self.shares, strict=True)
            often = np.tile(np.repeat(weights, sizes), len(self.train))
            return [ordering.packed_shape(sources, targets, settings.batch_tokens, often)]
        return ordering.choose_shapes(sources, targets, batch_tokens=settings.batch_tokens, count=settings.batch_shapes)


def make_tokenizers(corpora: Sequence[Files], text: TextConfig, say: Say) -> Tokenizers:
    """Train the tokenizers of a run on its training text."""

    def train_on(*columns: int) -> Tokenizer:
        def texts() -> Iterator[str]:
            for files in corpora:
                for example in files.read():
                    yield from (example[column] for column in columns)
            say("training a tokenizer")  # now that all text was read without an error

        size, kind = text.vocabulary, text.tokenizer
        if kind == "unigram" and not size:  # it cannot choose a size
            size = train_tokenizer(texts(), kind="bpe", vocabulary=0, lowercase=text.lowercase).size
        tokenizer = train_tokenizer(
            texts(), kind=kind, vocabulary=size, lowercase=text.lowercase, tags=text.tags.split()
        )
        if text.vocabulary and tokenizer.size > text.vocabulary:
            raise ConfigError(f"text.vocabulary ({size}) is too small for {kind}: it needs {tokenizer.size} or more")
        say(f"the vocabulary has {tokenizer.size:,} tokens")
        return tokenizer

    if corpora[0].single or text.shared:
        shared = train_on(0) if corpora[0].single else train_on(0, 1)
        return Tokenizers(shared, shared)
    return Tokenizers(train_on(0), train_on(1))


def prepare(
    corpora: Sequence[Files],
    valid: Files | None,
    config: Config,
    tokenizers: Tokenizers,
    say: Say,
    damaged: Say | None = None,
) -> Data:
    """Prepare the training and validation data, or load it from the cache.

    If `damaged` is given, cached files are verified first; it is called with a message before a damaged corpus is
    prepared again.
    """
    text, valid_files, single = config.text, [valid] if valid else [], corpora[0].single
    if text.continuous and any(files.weight != 1 for files in corpora):
        raise ConfigError("text.continuous reads a text once, from beginning to end: the weights of --also must be 1")
    if text.continuous and not valid:
        corpora, valid_files = _without_end(corpora, say)
    cleaning = Cleaning.from_config(text, single=single)
    if config.model.has_position_table and not single:  # longer sentences, with </s> and a tag, have no position
        limit = min(cleaning.max_length, max(config.model.max_positions - 2, 0))
        cleaning = replace(cleaning, max_length=limit, rules=tuple(dict.fromkeys(["long", *cleaning.rules])))
    aligned = any(files.alignments for files in corpora)
    prepare_corpus = partial(
        preparation.prepare, cache(CACHE), tokenizers=[tokenizers.source] if single else tokenizers, damaged=damaged
    )
    prepare_training_corpus = partial(
        prepare_corpus,
        cleaning=cleaning,
        bpe_dropout=text.bpe_dropout,
        variants=text.bpe_dropout_variants,
        seed=config.train.seed,
        alignments=aligned,
    )
    identities = [f"{files.identity()}*{files.weight:g}" for files in corpora]
    folders = [
        prepare_training_corpus(partial(files.read, aligned=aligned), identity=identity, tag=files.tag)
        for files, identity in zip(corpora, identities, strict=True)
    ]
    parts = [Dataset.open(folder) for folder in folders]
    variants = range(1, 1 + text.bpe_dropout_variants) if text.bpe_dropout else range(1)
    train = [join([Dataset.open(folder, variant=number) for folder in folders]) for number in variants]
    sizes = [len(dataset) for dataset in parts]
    for dataset in parts:
        say(_report(dataset))
    if valid_files:
        lenient = cleaning if text.continuous else replace(cleaning, rules=("empty",) if single else ("empty", "long"))
        valid_identities = [files.identity() for files in valid_files]
        valid_folders = [
            prepare_corpus(files.read, identity=identity, tag=files.tag, cleaning=lenient)
            for files, identity in zip(valid_files, valid_identities, strict=True)
        ]
        identities += valid_identities
        valid_data = join([Dataset.open(folder) for folder in valid_folders])
        if left_out := validation_report(valid_data):
            say(left_out)
        if not len(valid_data):
            report = _report(valid_data)
            raise DataError(f"{valid_files[0].source} has nothing to validate with after cleaning: {report}")
    else:
        whole = join(parts)
        kept, held = split(whole, text.held_out)
        valid_data, train = whole.take(held), [dataset.take(kept) for dataset in train]
        sizes = np.histogram(kept, bins=np.cumsum([0, *sizes]))[0].tolist() if len(kept) else sizes
        say(f"held out {len(held):,} {'texts' if single else 'pairs'} for validation")
    if not len(train[0]):
        reports = "; ".join(map(_report, parts))
        raise DataError(f"{corpora[0].source} has nothing to train on after cleaning: {reports}")
    if not len(valid_data):
        raise DataError(
            f"{corpora[0].source} leaves {len(train[0]):,} examples to train on and 0 to validate with (text.held_out "
            f"is {text.held_out}): it needs at least 50, or --valid files"
        )
    shares = [(size, files.weight) for size, files in zip(sizes, corpora, strict=True)]
    return Data(config, tokenizers, train, valid_data, shares, identities)


def find_texts(dataset: Dataset, corpora: Sequence[Files]) -> list[tuple[str, str]]:
    """The pairs of a dataset as text, read from the files of the corpora, in whose order they are, by their digests."""
    texts: list[tuple[str, str]] = []
    for files in corpora:
        for sources, targets in chunks(files.read(), 2):
            known = np.isin(digests(list(map(normalized, sources))), dataset.digests[:, 0])
            for number in np.flatnonzero(known).tolist():
                pair = [normalized(sources[number]), normalized(targets[number])]
                if len(texts) < len(dataset) and np.array_equal(digests(pair), dataset.digests[len(texts)]):
                    texts.append((f"{files.tag} {sources[number]}" if files.tag else sources[number], targets[number]))
    return texts


def validation_report(valid: Dataset) -> str:
    """One line about what was left out of the --valid files; "" if nothing was."""
    return f"validation: {_report(valid)}" if valid.record["report"]["left_out"] else ""


def _report(dataset: Dataset) -> str:
    return str(dataset.record["report"]["text"])


def _without_end(corpora: Sequence[Files], say: Say) -> tuple[list[Files], list[Files]]:
    """Split continuous texts: the first nine tenths of the characters for training, the last tenth for validation."""
    train, valid = [], []
    for files in corpora:
        size = sum(len(line) for (line,) in files.read())
        end = size * 9 // 10
        train.append(replace(files, end=end))
        valid.append(replace(files, start=end))
        say(f"held out the last {size - end:,} of {size:,} characters of {files.source} for validation")
    return train, valid
