"""Data: from text files to the batches of every epoch, prepared once and found again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from regard.config import Config, TextConfig
from regard.errors import ConfigError, DataError
from regard.text import corpus, order
from regard.text.batch import Make, Stream, packed, packed_masked, pairs
from regard.text.clean import Rules
from regard.text.corpus import Places, Store
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
    weight: float = 1.0
    """How many times an epoch has it."""
    languages: tuple[str, str] | None = None
    fields: tuple[str, str] | None = None

    def read(self) -> Iterator[tuple[str, ...]]:
        """Every example."""
        if self.single:
            return ((line,) for line, _ in read_lines(self.source))
        pairs = read_pairs(self.source, self.target, languages=self.languages, fields=self.fields)
        return ((pair.source, pair.target) for pair in pairs)

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

    def __init__(
        self, config: Config, sides: Sides, train: Sequence[Store], valid: Store, shares: Sequence[tuple[int, float]]
    ) -> None:
        self.config, self.sides, self.valid, self.shares = config, sides, valid, shares
        self.train = train
        """The corpora as one, and where BPE dropout cuts them anew, their variants: the epochs take them in turn."""

    def epoch(self, number: int, *, rank: int, world: int) -> Epoch:
        """The training batches of an epoch, which (seed, epoch) alone decides."""
        store, settings = self.train[number % len(self.train)], self.config.train
        sizes, weights = zip(*self.shares, strict=True)
        examples = None
        if set(weights) != {1.0}:
            examples = order.mix(sizes, weights, seed=settings.seed, epoch=number)
        return self._batches(store, settings.seed, number, rank, world, settings.budget, examples)

    def validation(self) -> Epoch:
        """The validation batches, always the same."""
        return self._batches(self.valid, 0, 0, 0, 1, max(self.config.train.budget, 4096), None)

    def _batches(
        self, store: Store, seed: int, epoch: int, rank: int, world: int, budget: int, examples: Places | None
    ) -> Epoch:
        config, text = self.config, self.config.text
        if config.model.family in ("rnn", "transformer"):
            plan = order.plan(
                store.source_lengths,
                store.target_lengths,
                budget=budget,
                seed=seed,
                epoch=epoch,
                examples=examples,
                exact=config.train.exact,
            )
            return Epoch(plan, pairs(store, plan, rank=rank, world=world))
        stream = Stream(store.text, np.arange(len(store)) if examples is None else np.sort(examples))
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


def make_tokenizers(corpora: Sequence[Files], text: TextConfig, say: Callable[[str], None]) -> Sides:
    """The tokenizers of a run, learned from its training text."""
    single = corpora[0].single

    def learned(texts: Callable[[], Iterable[str]]) -> Tokenizer:
        size = text.vocabulary
        if not size:
            size, reason = suggest_vocabulary(texts(), kind=text.tokenizer)
            say(f"vocabulary: {size:,} ({reason})")
        say(f"learning {size:,} tokens")
        found = train_tokenizer(
            texts(), kind=text.tokenizer, vocabulary=size, lowercase=text.lowercase, tags=text.tags.split()
        )
        if text.vocabulary and found.size > text.vocabulary:
            raise ConfigError(
                f"text.vocabulary ({size}) is too small for {text.tokenizer}: it needs {found.size} or more"
            )
        return found

    def column(*numbers: int) -> Callable[[], Iterable[str]]:
        return lambda: (example[number] for files in corpora for example in files.read() for number in numbers)

    if single or text.shared:
        both = learned(column(*range(1 if single else 2)))
        return Sides(both, both)
    return Sides(learned(column(0)), learned(column(1)))


def prepare(
    corpora: Sequence[Files], valid: Files | None, config: Config, sides: Sides, say: Callable[[str], None]
) -> tuple[Data, str]:
    """Clean, cut into ids and keep what is trained and validated on; with it, a hash of all the files."""
    rules = Rules.of(config.text)
    identities = [f"{corpus.identity(files.paths)}*{files.weight:g}" for files in corpora]
    kept = [
        _stored(files, identity, config, sides, rules, variants=config.text.variants)
        for files, identity in zip(corpora, identities, strict=True)
    ]
    variants = range(1, 1 + config.text.variants) if config.text.bpe_dropout else range(1)
    stores = [corpus.join([Store.open(folder, variant=number) for folder in kept]) for number in variants]
    sizes = [len(Store.open(folder)) for folder in kept]
    for folder in kept:
        say(Store.open(folder).record["report"]["text"])
    if valid is not None:
        lenient = Rules(names=("empty", "long"), longest=rules.longest, ratio=rules.ratio)
        identities.append(corpus.identity(valid.paths))
        held = Store.open(_stored(valid, identities[-1], config, sides, lenient, variants=0))
    else:
        whole = corpus.join([Store.open(folder) for folder in kept])
        train, held = corpus.split(whole, config.text.held_out)
        chosen = _where(train, whole)
        bounds = np.cumsum([0, *sizes])
        sizes = np.histogram(chosen, bins=bounds)[0].tolist() if len(chosen) else sizes
        stores = [store.take(chosen) for store in stores]
        say(f"held out {len(held):,} {'texts' if corpora[0].single else 'pairs'} for validation")
    if not len(held) or not len(stores[0]):
        raise DataError(
            f"{corpora[0].source} leaves {len(stores[0]):,} examples to train on and {len(held):,} to validate with: "
            "it needs at least 50, or --valid files of their own"
        )
    shares = [(size, files.weight) for size, files in zip(sizes, corpora, strict=True)]
    return Data(config, sides, stores, held, shares), "+".join(identities)


def _where(part: Store, whole: Store) -> Places:
    """Which examples of a corpus a part of it holds."""
    first = next(iter(part.columns))
    places = [np.stack([store.columns[first].file, store.columns[first].starts]) for store in (whole, part)]
    keys = [place[0].astype(np.int64) << 48 | place[1].astype(np.int64) for place in places]
    return np.flatnonzero(np.isin(*keys))


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
