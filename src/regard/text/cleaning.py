"""Cleaning: one table of rules for examples that are left out of training; removed examples are counted and sampled.

`regard train` applies the rules to every chunk of a corpus; `regard check` can apply the same rules beforehand.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.config import CLEANING, TextConfig
from regard.text.scripts import CONTROL, RELATED_SCRIPTS, scripts

Digests = NDArray[np.uint64]
Columns = tuple[list[str], ...]  # the texts of many examples: sources and targets, or one text each
Flags = NDArray[np.bool_]
Scripts = tuple[tuple[str, ...], ...]  # the usual scripts of each column, the most frequent first
Reasons = NDArray[np.uint8]  # for each example KEPT, or the number of the rule that leaves it out
TokenLengths = Sequence[NDArray[np.int64]]  # the number of tokens of every example by column, without </s>

KEPT = 0
CHUNK_SIZE = 4096  # examples judged together
EXAMPLES_PER_RULE = 3
EXAMPLE_LENGTH = 200  # characters of an example in the report
CHARACTERS_PER_TOKEN = 32  # a line of more than max_length times as many characters is too long
RATIO_SLACK = 3  # tokens added to both sides before they are compared: "Yes." may become "Yes, of course."
SINGLE_TEXT_RULES = ("empty", "control")  # of the default rules; the others are for pairs
MAIN_SCRIPT_SHARE = 0.8  # if one script has this share of the lines, lines in other scripts are left out
COMMON_SCRIPT_SHARE, COMMON_SCRIPT_LINES = 0.05, 20  # other scripts with this share and number of lines are kept


@dataclass(frozen=True, kw_only=True)
class Cleaning:
    """The rules that apply to a corpus, by name, and their limits."""

    rules: tuple[str, ...]
    max_length: int  # in tokens; in words before the text is tokenized
    max_length_ratio: float  # largest allowed ratio of the longer side to the shorter, in tokens

    @classmethod
    def from_config(cls, config: TextConfig, *, single: bool = False) -> Cleaning:
        """The rules of a run for pairs or single texts; continuous text is not cleaned."""
        names = () if config.continuous else config.cleaning.split()
        rules = tuple(name for name in RULES if name in names)
        rules = SINGLE_TEXT_RULES if single and rules == CLEANING else rules
        return cls(rules=rules, max_length=config.max_length, max_length_ratio=config.max_length_ratio)


class Chunk(NamedTuple):
    """The texts of examples that are judged together, with their digests and usual scripts."""

    columns: Columns
    normalized: Columns  # the texts with single spaces and without case
    digests: tuple[Digests, ...]  # of the normalized texts
    scripts: Columns  # the script of each text
    usual: Scripts  # the usual scripts of each column

    @classmethod
    def of(cls, columns: Columns, usual: Scripts) -> Chunk:
        plain = tuple(list(map(normalized, column)) for column in columns)
        return cls(columns, plain, tuple(map(digests, plain)), tuple(map(scripts, columns)), usual)


# The rules

# the phrase that reports each rule; find_duplicates applies the last rule, because it needs all earlier chunks
RULES = {
    "empty": "{count:,} empty",
    "long": "{count:,} longer than {max_length}",
    "ratio": "{count:,} of unequal length",
    "control": "{count:,} with control characters",
    "copy": "{count:,} copied from the source",
    "script": "{count:,} in another script",
    "duplicate": "{count:,} repeated",
}
assert tuple(RULES) == CLEANING
RULE_NUMBERS = {name: number for number, name in enumerate(RULES, start=1)}


def judge_texts(chunk: Chunk, cleaning: Cleaning) -> Reasons:
    """The first rule that leaves each example out, by its text alone."""
    words, characters = cleaning.max_length, CHARACTERS_PER_TOKEN * cleaning.max_length
    is_long = [
        [len(line) > 2 * words and (len(line) > characters or line.count(" ") >= words) for line in column]
        for column in chunk.normalized
    ]
    suspects = [column for column in chunk.columns if CONTROL.search("".join(column))]  # nearly always none
    # numbers and punctuation are the same in many languages, so a copy has letters
    has_letters = np.array([name != "" for name in chunk.scripts[0]], np.bool_)
    is_copy = (chunk.digests[0] == chunk.digests[-1]) & has_letters & (len(chunk.columns) > 1)
    main = main_scripts(chunk.usual)
    is_swapped = [len(set(main)) == 2 and names == main[::-1] for names in zip(*chunk.scripts, strict=True)]
    foreign = [is_swapped]
    for names, usual in zip(chunk.scripts, chunk.usual, strict=True):
        expected = {"", *usual, *(related for name in usual for related in RELATED_SCRIPTS.get(name, ()))}
        foreign.append([bool(usual) and name not in expected for name in names])
    flags = {
        "empty": [[not line for line in column] for column in chunk.normalized],
        "long": is_long,
        "control": [[CONTROL.search(line) is not None for line in column] for column in suspects] or [[False]],
        "copy": [is_copy],
        "script": foreign,
    }
    return _first_rules(flags, len(chunk.columns[0]), cleaning)


def judge_lengths(lengths: TokenLengths, cleaning: Cleaning) -> Reasons:
    """The first rule that leaves each example out by its number of tokens."""
    longer, shorter = np.maximum.reduce(lengths), np.minimum.reduce(lengths)
    is_unbalanced = longer + RATIO_SLACK > cleaning.max_length_ratio * (shorter + RATIO_SLACK)
    return _first_rules({"long": [longer > cleaning.max_length], "ratio": [is_unbalanced]}, len(longer), cleaning)


def _first_rules(flags: Mapping[str, Sequence[Any]], count: int, cleaning: Cleaning) -> Reasons:
    """The first rule of each example that is flagged on any of its sides."""
    reasons = np.zeros(count, np.uint8)
    for name in cleaning.rules:
        if name in flags:
            reasons[np.any(flags[name], axis=0) & (reasons == KEPT)] = RULE_NUMBERS[name]
    return reasons


def find_duplicates(
    reasons: Reasons, column_digests: Sequence[Digests], cleaning: Cleaning, seen: DigestSet
) -> Reasons:
    """The reasons with repeated examples left out too; the first of several equal examples is kept."""
    reasons = reasons.copy()
    if "duplicate" in cleaning.rules:
        kept = np.flatnonzero(reasons == KEPT)
        reasons[kept[~seen.add(reduce(pair_digests, column_digests)[kept])]] = RULE_NUMBERS["duplicate"]
    return reasons


# Chunks, scripts and digests


def chunks(examples: Iterable[Sequence[str]], width: int) -> Iterator[Columns]:
    """The first `width` columns of the examples, `CHUNK_SIZE` examples at a time."""
    stream = iter(examples)
    while chunk := list(islice(stream, CHUNK_SIZE)):
        yield tuple([example[column] for example in chunk] for column in range(width))


def usual_scripts(columns: Iterable[Sequence[str]]) -> Scripts:
    """The scripts that the lines of each column are usually written in, the most frequent first."""
    return tuple(frequent_scripts(Counter(scripts(column))) for column in columns)


def frequent_scripts(counts: Mapping[str, int]) -> tuple[str, ...]:
    """The main script, and others that are too common to be errors, by their lines; () if there is no main script."""
    ordered = Counter({name: count for name, count in counts.items() if name}).most_common()
    total = sum(count for _, count in ordered)
    enough = max(COMMON_SCRIPT_SHARE * total, COMMON_SCRIPT_LINES)
    common = [name for name, count in ordered[1:] if count >= enough]
    has_main = ordered and (common or ordered[0][1] >= MAIN_SCRIPT_SHARE * total)
    return (ordered[0][0], *common) if has_main else ()


def main_scripts(scripts: Scripts) -> tuple[str, ...]:
    """The most frequent script of each column, if every column has one."""
    return tuple(usual[0] for usual in scripts) if all(scripts) else ()


def normalized(text: str) -> str:
    """The text in lower case with single spaces, as it is compared."""
    return " ".join(text.casefold().split())


def digests(lines: Sequence[str]) -> Digests:
    """A 64-bit hash of every line, the same on every machine."""
    joined = b"".join(hashlib.blake2b(line.encode("utf-8", "surrogatepass"), digest_size=8).digest() for line in lines)
    return np.frombuffer(joined, dtype="<u8").astype(np.uint64)


def pair_digests(source: Digests, target: Digests) -> Digests:
    """The digests of pairs from those of their sides."""
    return (source * np.uint64(0x9E3779B97F4A7C15)) ^ (target + (source >> np.uint64(29)))


class DigestSet:
    """A growing set of digests at eight bytes each: a few sorted arrays, each at least twice as long as the next."""

    def __init__(self) -> None:
        self._arrays: list[Digests] = []

    def __len__(self) -> int:
        return sum(map(len, self._arrays))

    def add(self, values: Digests) -> Flags:
        """Add digests; True for the first occurrence of each new one."""
        unique, first = np.unique(values, return_index=True)
        new = np.ones(len(unique), np.bool_)
        for array in self._arrays:
            positions = np.searchsorted(array, unique)
            new &= array[np.minimum(positions, len(array) - 1)] != unique
        flags = np.zeros(len(values), np.bool_)
        flags[first[new]] = True
        if new.any():
            self._arrays.append(unique[new])
        while len(self._arrays) > 1 and len(self._arrays[-2]) < 2 * len(self._arrays[-1]):
            merged = np.concatenate([self._arrays.pop(), self._arrays.pop()])
            merged.sort()
            self._arrays.append(merged)
        return flags


# The report


@dataclass
class CleaningReport:
    """The number of examples that were read and that each rule left out, with a few of them."""

    cleaning: Cleaning
    noun: str = "pairs"
    read: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[list[str]]] = field(default_factory=dict)

    @property
    def kept(self) -> int:
        return self.read - sum(self.left_out.values())

    def add(self, reasons: Reasons, columns: Sequence[Sequence[str]]) -> None:
        """Count a chunk, and keep the first examples of each rule."""
        self.read += len(reasons)
        for name, number in RULE_NUMBERS.items():
            indices = np.flatnonzero(reasons == number).tolist()
            if not indices:
                continue
            self.left_out[name] += len(indices)
            examples = self.examples.setdefault(name, [])
            for index in indices[: EXAMPLES_PER_RULE - len(examples)]:
                examples.append([column[index][:EXAMPLE_LENGTH] for column in columns])

    def __str__(self) -> str:
        """One line: `read 1,000,000 pairs; left out 312 longer than 256 and 18 empty`."""
        limit = self.cleaning.max_length
        phrases = [RULES[name].format(count=count, max_length=limit) for name, count in self.left_out.most_common()]
        listed = " and ".join([", ".join(phrases[:-1]), phrases[-1]] if len(phrases) > 1 else phrases)
        return f"read {self.read:,} {self.noun}; left out {listed or 'none'}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON, with examples."""
        left_out = {name: self.left_out[name] for name in RULES if name in self.left_out}
        examples = {name: self.examples[name] for name in RULES if name in self.examples}
        return {"read": self.read, "kept": self.kept, "left_out": left_out, "examples": examples, "text": str(self)}
