"""Data: from text files to the batches of every epoch, prepared once and found again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from regard.config import Config, TextConfig
from regard.documents.formats import read_pairs
from regard.errors import ConfigError, DataError
from regard.folders import cache
from regard.text import dataset as corpus
from regard.text import ordering
from regard.text.alignments import read_alignments
from regard.text.batching import MakeBatch, Stream, packed, packed_masked, pairs
from regard.text.cleaning import Cleaning
from regard.text.dataset import Dataset, Places
from regard.text.files import read_lines, read_running
from regard.text.tokenizer import Tokenizer, Tokenizers, suggest_vocabulary
from regard.text.tokenizer import train as train_tokenizer

LEAST = 4096  # positions of a validation batch at least


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
    running: bool = False
    """The text is one, from beginning to end (`text.continuous`)."""
    begin: int = 0
    end: int | None = None
    """The characters of a running text that are meant."""
    tag: str = ""
    """Put before every source, to tell one kind of pair from another."""
    alignments: Path | None = None
    """Word alignments of the pairs, line for line."""

    def read(self) -> Iterator[tuple[str, ...]]:
        """Every example; of a running text its pieces."""
        if self.running:
            return ((piece,) for piece in read_running(self.source, self.begin, self.end))
        if self.single:
            return ((line,) for line, _ in read_lines(self.source))
        pairs = read_pairs(self.source, self.target, languages=self.languages, fields=self.fields)
        if self.alignments is not None:
            return read_alignments(pairs, self.alignments)
        return ((pair.source, pair.target) for pair in pairs)

    @property
    def paths(self) -> list[Path]:
        given = [path for path in (self.source, self.target, self.alignments) if path]
        return [path for top in given for path in (sorted(top.iterdir()) if top.is_dir() else [top])]

    @property
    def identity(self) -> str:
        """The hash of what the files hold, and which part of a running text is meant."""
        return corpus.identity(self.paths) + (f"[{self.begin}:{self.end}]" if self.running else self.tag)


class Epoch(NamedTuple):
    """The batches of one epoch."""

    plan: ordering.Plan
    make: MakeBatch


class Data:
    """The prepared corpora of a run."""

    def __init__(
        self,
        config: Config,
        tokenizers: Tokenizers,
        train: Sequence[Dataset],
        valid: Dataset,
        shares: Sequence[tuple[int, float]],
    ) -> None:
        self.config, self.tokenizers, self.valid, self.shares = config, tokenizers, valid, shares
        self.train = train
        """The corpora as one, and where BPE dropout cuts them anew, their variants: the epochs take them in turn."""
        self._chosen: tuple[int, list[ordering.Shape]] | None = None

    def epoch(self, number: int, *, rank: int, world_size: int) -> Epoch:
        """The training batches of an epoch, which (seed, epoch) alone decides."""
        store, settings = self.train[number % len(self.train)], self.config.train
        sizes, weights = zip(*self.shares, strict=True)
        examples = None
        if set(weights) != {1.0}:
            examples = ordering.mix(sizes, weights, seed=settings.seed, epoch=number)
        return self._batches(store, settings.seed, number, rank, world_size, settings.batch_tokens, examples)

    def _shapes(self, budget: int) -> list[ordering.Shape]:
        """The few shapes of all epochs, which hold every variant of the corpora."""
        if self._chosen is None or self._chosen[0] != budget:
            lengths = [
                np.concatenate([getattr(store, side) for store in self.train])
                for side in ("source_lengths", "target_lengths")
            ]
            settings = self.config.train
            shapes = ordering.choose_shapes(
                *lengths, budget=budget, most=settings.batch_shapes, exact=settings.equal_lengths
            )
            self._chosen = budget, shapes
        return self._chosen[1]

    def validation(self) -> Epoch:
        """The validation batches, always the same."""
        return self._batches(self.valid, 0, 0, 0, 1, max(self.config.train.batch_tokens, LEAST), None)

    def _batches(
        self, store: Dataset, seed: int, epoch: int, rank: int, world_size: int, budget: int, examples: Places | None
    ) -> Epoch:
        config, text = self.config, self.config.text
        if config.model.family in ("rnn", "transformer"):
            lengths, exact = (store.source_lengths, store.target_lengths), config.train.equal_lengths
            if config.train.batch_shapes and store is not self.valid:
                shapes = self._shapes(budget)
                plan = ordering.plan_shapes(*lengths, shapes, seed=seed, epoch=epoch, examples=examples, exact=exact)
            else:
                plan = ordering.plan(*lengths, budget=budget, seed=seed, epoch=epoch, examples=examples, exact=exact)
            return Epoch(plan, pairs(store, plan, rank=rank, world_size=world_size))
        chosen = np.arange(len(store)) if examples is None else ordering.in_laps(examples)
        stream = Stream(store.text, chosen, running=text.continuous)
        length = min(text.context_length, config.model.max_positions, len(stream))
        cut = {"length": length, "budget": max(budget, length), "seed": seed, "epoch": epoch}
        plan = ordering.windows(len(stream), **cut, whole=store is self.valid)
        if config.model.family == "gpt":
            return Epoch(plan, packed(stream, plan, rank=rank, world_size=world_size, segments=text.isolate_texts))
        make = packed_masked(
            stream,
            plan,
            rank=rank,
            world_size=world_size,
            segments=text.isolate_texts,
            share=text.mask_probability,
            vocabulary=config.model.vocabulary,
            seed=seed,
            epoch=epoch,
        )
        return Epoch(plan, make)


def make_tokenizers(corpora: Sequence[Files], text: TextConfig, say: Callable[[str], None]) -> Tokenizers:
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
        return Tokenizers(both, both)
    return Tokenizers(learned(column(0)), learned(column(1)))


def prepare(
    corpora: Sequence[Files], valid: Files | None, config: Config, sides: Tokenizers, say: Callable[[str], None],
    damaged: Callable[[str], None] | None = None,
) -> tuple[Data, str]:  # fmt: skip
    """Clean, cut into ids and keep what is trained and validated on; with it, a hash of all the files.

    What was kept before is taken as it is, or, where somebody is told of what is `damaged`, read through first.
    """
    rules = Cleaning.from_config(config.text)
    apart = [valid] if valid else []
    if config.text.continuous:
        if any(files.weight != 1 for files in corpora):
            raise ConfigError(
                "text.continuous reads a text once, from beginning to end: the weights of --also must be 1"
            )
        if not apart:
            corpora, apart = _without_end(corpora, say)
    identities = [f"{files.identity}*{files.weight:g}" for files in corpora]
    linked = any(files.alignments for files in corpora)
    kept = [
        _stored(
            files, identity, config, sides, rules, damaged, variants=config.text.bpe_dropout_variants, linked=linked
        )
        for files, identity in zip(corpora, identities, strict=True)
    ]
    variants = range(1, 1 + config.text.bpe_dropout_variants) if config.text.bpe_dropout else range(1)
    stores = [corpus.join([Dataset.open(folder, variant=number) for folder in kept]) for number in variants]
    sizes = [len(Dataset.open(folder)) for folder in kept]
    for folder in kept:
        say(Dataset.open(folder).record["report"]["text"])
    made: list[Path] = []
    if apart:
        lenient = Cleaning(
            rules=("empty", "long"), max_length=rules.max_length, max_length_ratio=rules.max_length_ratio
        )
        lenient = rules if config.text.continuous else lenient
        identities += [files.identity for files in apart]
        made = [
            _stored(files, files.identity, config, sides, lenient, damaged, variants=0, linked=False) for files in apart
        ]
        held = corpus.join([Dataset.open(folder) for folder in made])
    else:
        whole = corpus.join([Dataset.open(folder) for folder in kept])
        train, held = corpus.split(whole, config.text.held_out)
        chosen = _where(train, whole)
        bounds = np.cumsum([0, *sizes])
        sizes = np.histogram(chosen, bins=bounds)[0].tolist() if len(chosen) else sizes
        stores = [store.take(chosen) for store in stores]
        say(f"held out {len(held):,} {'texts' if corpora[0].single else 'pairs'} for validation")
    _refuse_nothing(corpora, stores[0], kept, "train on")
    _refuse_nothing(apart, held, made, "validate with")
    if said := validation_report(held) if apart else "":
        say(said)
    if not len(held) and not config.text.held_out:
        raise ConfigError("text.held_out=0 keeps nothing to validate with: give --valid files, or leave it out")
    if not len(held):
        raise DataError(
            f"{corpora[0].source} leaves {len(stores[0]):,} examples to train on and {len(held):,} to validate with: "
            "it needs at least 50, or --valid files of their own"
        )
    shares = [(size, files.weight) for size, files in zip(sizes, corpora, strict=True)]
    return Data(config, sides, stores, held, shares), "+".join(identities)


def validation_report(valid: Dataset) -> str:
    """What is said of --valid files of which something was left out; else nothing."""
    report = valid.record["report"]
    return f"validation: {report['text']}" if report["left_out"] else ""


def _refuse_nothing(files: Sequence[Files], found: Dataset, kept: Sequence[Path], use: str) -> None:
    if files and not len(found):
        reports = "; ".join(Dataset.open(folder).record["report"]["text"] for folder in kept)
        raise DataError(f"{files[0].source} leaves nothing to {use}: {reports}")


def check_lengths(data: Data, config: Config) -> None:
    """Refuse a config that some pair does not fit, however it is cut: better now than in an epoch to come."""
    if config.model.family not in ("rnn", "transformer"):
        return
    budget, shape = config.train.batch_tokens, config.model
    for store, room in (*((store, budget) for store in data.train), (data.valid, max(budget, LEAST))):
        positions = int((store.source_lengths + store.target_lengths).max())
        longest = int(max(store.source_lengths.max(), store.target_lengths.max()))
        if positions > room:
            raise ConfigError(
                f"train.batch_tokens ({budget}) has no room for a pair of {positions} positions: set "
                f"train.batch_tokens="
                f"{positions} or more, or a smaller text.max_length ({config.text.max_length})"
            )
        if shape.family == "transformer" and shape.has_position_table and longest > shape.max_positions:
            raise ConfigError(
                f"a sentence has {longest} tokens with its end, and model.max_positions is {shape.max_positions}: set "
                f"text.max_length="
                f"{shape.max_positions - 1}, or without --from model.max_positions={longest} or more, or "
                f"model.positions=sinusoidal "
                "or rotary"
            )


def _without_end(corpora: Sequence[Files], say: Callable[[str], None]) -> tuple[list[Files], list[Files]]:
    """Running texts without, and with only, the tenth of their characters that is validated on."""
    parts: tuple[list[Files], list[Files]] = ([], [])
    for files in corpora:
        size = sum(len(piece) for (piece,) in files.read())
        end = size * 9 // 10
        parts[0].append(replace(files, end=end))
        parts[1].append(replace(files, begin=end))
        say(f"held out the last {size - end:,} of {size:,} characters of {files.source} for validation")
    return parts


def _where(part: Dataset, whole: Dataset) -> Places:
    """Which examples of a corpus a part of it holds."""
    first = next(iter(part.columns))
    places = [np.stack([store.columns[first].file, store.columns[first].starts]) for store in (whole, part)]
    keys = [place[0].astype(np.int64) << 48 | place[1].astype(np.int64) for place in places]
    return np.flatnonzero(np.isin(*keys))


def _stored(
    files: Files,
    identity: str,
    config: Config,
    sides: Tokenizers,
    rules: Cleaning,
    damaged: Callable[[str], None] | None,
    *,
    variants: int,
    linked: bool,
) -> Path:
    return corpus.prepare(
        cache("prepared"),
        # Beside a corpus with links, one without has empty ones.
        (lambda: ((*pair, "") for pair in files.read())) if linked and files.alignments is None else files.read,
        identity=identity,
        tokenizers=[sides.source] if files.single else [sides.source, sides.target],
        cleaning=rules,
        dropout=config.text.bpe_dropout if variants else 0.0,
        variants=variants,
        seed=config.train.seed,
        tag=files.tag,
        links=linked,
        damaged=damaged,
    )
