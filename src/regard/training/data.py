"""Data: from text files to the batches of every epoch, prepared once and found again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from regard.config import Config, TextConfig
from regard.errors import DataError
from regard.text import corpus, order
from regard.text.batch import Make, Stream, packed, packed_masked, pairs
from regard.text.clean import Rules
from regard.text.corpus import Store
from regard.text.formats import read_lines, read_pairs
from regard.text.tokenizer import Sides, Tokenizer, suggest_vocabulary
from regard.text.tokenizer import train as train_tokenizer


@dataclass(frozen=True)
class Files:
    """What the user has: two files, or one that holds both sides or a single text."""

    source: Path
    target: Path | None
    single: bool
    """One text, for a language model."""

    def read(self) -> Iterator[tuple[str, ...]]:
        """Every example."""
        if self.single:
            return ((line,) for line, _ in read_lines(self.source))
        return ((pair.source, pair.target) for pair in read_pairs(self.source, self.target))

    @property
    def paths(self) -> list[Path]:
        given = [self.source] + ([self.target] if self.target else [])
        return [path for top in given for path in (sorted(top.iterdir()) if top.is_dir() else [top])]


class Epoch(NamedTuple):
    """The batches of one epoch."""

    plan: order.Plan
    make: Make


class Data:
    """The prepared corpora of a run."""

    def __init__(self, config: Config, sides: Sides, train: Sequence[Store], valid: Store) -> None:
        self.config, self.sides, self.valid = config, sides, valid
        self.train = train
        """The corpus, and where BPE dropout cuts it anew, its variants: the epochs take them in turn."""

    def epoch(self, number: int, *, rank: int, world: int) -> Epoch:
        """The training batches of an epoch, which (seed, epoch) alone decides."""
        store = self.train[number % len(self.train)]
        return self._batches(store, self.config.train.seed, number, rank, world, budget=self.config.train.budget)

    def validation(self) -> Epoch:
        """The validation batches, always the same."""
        return self._batches(self.valid, 0, 0, 0, 1, budget=max(self.config.train.budget, 4096))

    def _batches(self, store: Store, seed: int, epoch: int, rank: int, world: int, *, budget: int) -> Epoch:
        config, text = self.config, self.config.text
        if config.model.family in ("rnn", "transformer"):
            plan = order.plan(
                store.source_lengths,
                store.target_lengths,
                budget=budget,
                seed=seed,
                epoch=epoch,
                exact=config.train.exact,
            )
            return Epoch(plan, pairs(store, plan, rank=rank, world=world))
        stream = Stream(store.text, np.arange(len(store)))
        length = min(text.window, config.model.length, len(stream))
        plan = order.windows(len(stream), length=length, budget=max(budget, length), seed=seed, epoch=epoch)
        if config.model.family == "gpt":
            return Epoch(plan, packed(stream, plan, rank=rank, world=world, segments=text.segments))
        make = packed_masked(
            stream,
            plan,
            rank=rank,
            world=world,
            segments=text.segments,
            share=text.masked,
            vocabulary=config.model.vocabulary,
            seed=seed,
            epoch=epoch,
        )
        return Epoch(plan, make)


def cache() -> Path:
    """Where prepared corpora are kept: `REGARD_CACHE`, or the user's cache."""
    return Path(os.environ.get("REGARD_CACHE") or Path.home() / ".cache" / "regard") / "prepared"


def make_tokenizers(files: Files, text: TextConfig, say: Callable[[str], None]) -> Sides:
    """The tokenizers of a run, learned from its training text."""

    def learned(texts: Callable[[], Iterable[str]]) -> Tokenizer:
        size = text.vocabulary
        if not size:
            size, reason = suggest_vocabulary(texts(), kind=text.tokenizer)
            say(f"vocabulary: {size:,} ({reason})")
        return train_tokenizer(
            texts(), kind=text.tokenizer, vocabulary=size, lowercase=text.lowercase, tags=text.tags.split()
        )

    def column(*numbers: int) -> Callable[[], Iterable[str]]:
        return lambda: (example[number] for example in files.read() for number in numbers)

    if files.single or text.shared:
        both = learned(column(*range(1 if files.single else 2)))
        return Sides(both, both)
    return Sides(learned(column(0)), learned(column(1)))


def prepare(
    files: Files, valid: Files | None, config: Config, sides: Sides, say: Callable[[str], None]
) -> tuple[Data, str]:
    """Clean, cut into ids and keep what is trained and validated on; with it, the hash of the files."""
    rules = Rules.of(config.text)
    identity = corpus.identity(files.paths)
    folder = _stored(files, identity, config, sides, rules, variants=config.text.variants)
    variants = 1 + (config.text.variants if config.text.bpe_dropout else 0)
    stores = [Store.open(folder, variant=number) for number in range(variants)]
    if len(stores) > 1:
        stores = stores[1:]
    say(stores[0].record["report"]["text"])
    if valid is not None:
        lenient = Rules(names=("empty", "long"), longest=rules.longest, ratio=rules.ratio)
        known = corpus.identity(valid.paths)
        held = Store.open(_stored(valid, known, config, sides, lenient, variants=0))
        identity = f"{identity}+{known}"
    else:
        train, held = corpus.split(Store.open(folder), config.text.held_out)
        keep = _where(train, Store.open(folder))
        stores = [store.take(keep) for store in stores]
        say(f"held out {len(held):,} {'texts' if files.single else 'pairs'} for validation")
    if not len(held) or not len(stores[0]):
        raise DataError(
            f"{files.source} leaves {len(stores[0]):,} examples to train on and {len(held):,} to validate with: it "
            "needs at least 50, or --valid files of their own"
        )
    return Data(config, sides, stores, held), identity


def _where(part: Store, whole: Store) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Which examples of a corpus a part of it holds."""
    first = next(iter(part.columns))
    return np.flatnonzero(np.isin(whole.columns[first].starts, part.columns[first].starts))


def _stored(files: Files, identity: str, config: Config, sides: Sides, rules: Rules, *, variants: int) -> Path:
    return corpus.prepare(
        cache(),
        files.read,
        identity=identity,
        tokenizers=[sides.source] if files.single else [sides.source, sides.target],
        rules=rules,
        dropout=config.text.bpe_dropout if variants else 0.0,
        variants=variants,
        seed=config.train.seed,
    )
