"""Word alignments in Pharaoh format (`i-j`, words counted from 0), gold alignments, and alignments of tokens."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple, TypeVar

from regard.errors import DataError
from regard.text.files import Pair, read_lines, uncompressed_name

LINK = re.compile(r"(\d+)([-p])(\d+)")
MAX_TOKENS = 1 << 16  # of a side; an aligned pair of tokens is stored as target * MAX_TOKENS + source

T = TypeVar("T")
Link = tuple[int, int]  # an aligned source and target word


class Gold(NamedTuple):
    """The alignment of a sentence by human annotators."""

    sure: frozenset[Link]
    possible: frozenset[Link]  # includes the sure ones


def parse_alignment(text: str, where: str, *, first: int = 0) -> list[Link]:
    """The alignment in a line such as `0-0 1-2`; `first` is the number of the first word."""
    expected = f"an alignment; write i-j, words counted from {first}: {first}-{first} {first + 1}-{first + 2}"
    return [link for link, _ in _links(text, where, "-", expected, first)]


def _links(text: str, where: str, kinds: str, expected: str, first: int) -> Iterator[tuple[Link, str]]:
    """Every link, with words counted from 0, and its kind."""
    for word in text.split():
        match = LINK.fullmatch(word)
        if match is None or match[2] not in kinds:
            raise DataError(f"{where}: {word!r} is not {expected}")
        link = int(match[1]) - first, int(match[3]) - first
        if min(link) < 0:
            raise DataError(f"{where}: {word} has a word 0, and in a .talp file words are counted from 1")
        yield link, match[2]


def read_alignments(pairs: Iterable[Pair], path: Path) -> Iterator[tuple[str, str, str]]:
    """Pairs with their line of an alignment file, which is checked against their words."""
    for pair, text, where in _with_lines(pairs, path):
        _check_words(parse_alignment(text, where), pair, where)
        yield pair.source, pair.target, text


def read_gold(pairs: Iterable[Pair], path: Path) -> Iterator[tuple[Pair, Gold]]:
    """Pairs with their gold alignment: `i-j` sure, `ipj` possible; words count from 1 in a .talp file, else from 0."""
    first = _first_word(path)
    for pair, text, where in _with_lines(pairs, path):
        gold = _gold(text, where, first)
        _check_words(gold.possible, pair, where, first)
        yield pair, gold


def read_alignments_with_gold(path: Path, gold: Path) -> Iterator[tuple[list[Link], Gold]]:
    """The alignments in a file, such as another aligner's, with the gold alignment of each line."""
    first, first_gold = _first_word(path), _first_word(gold)
    for (line, origin), text, where in _with_lines(read_lines(path), gold, of=str(path)):
        yield parse_alignment(line, str(origin), first=first), _gold(text, where, first_gold)


def _gold(text: str, where: str, first: int) -> Gold:
    links = list(_links(text, where, "-p", "a gold alignment; write i-j (sure) or ipj (possible)", first))
    return Gold(frozenset(link for link, kind in links if kind == "-"), frozenset(link for link, _ in links))


def _first_word(path: Path) -> int:
    """The number of the first word of a sentence: 1 in a .talp file, else 0."""
    return int(Path(uncompressed_name(path)).suffix.lower() == ".talp")


def _with_lines(items: Iterable[T], path: Path, *, of: str = "the pairs") -> Iterator[tuple[T, str, str]]:
    """Each item with its line of a file and the position of that line; a file of empty lines is refused."""
    empty = True
    for number, (item, line) in enumerate(zip_longest(items, read_lines(path)), start=1):
        if item is None or line is None:
            more = "more" if item is None else "fewer"
            raise DataError(f"{path} has {more} lines than {of}: the shorter has {number - 1:,}")
        empty = empty and not line[0].strip()
        yield item, line[0], f"{path}, line {number}"
    if empty:
        raise DataError(f"{path} has no alignments")


def _check_words(links: Iterable[Link], pair: Pair, where: str, first: int = 0) -> None:
    sizes = len(pair.source.split()), len(pair.target.split())
    for i, j in links:
        if i >= sizes[0] or j >= sizes[1]:
            size, side = (sizes[0], "source") if i >= sizes[0] else (sizes[1], "target")
            raise DataError(
                f"{where}: {i + first}-{j + first} is beyond the {size} words of the {side} (words are counted from "
                f"{first}; from 1 only in a file named .talp)"
            )


def token_alignment(links: Iterable[Link], source_words: Sequence[int], target_words: Sequence[int]) -> list[int]:
    """Align every token of a source word with every token of its target word, as numbers (see `MAX_TOKENS`).

    `source_words` and `target_words` hold the word of each token.
    """
    tokens: list[defaultdict[int, list[int]]] = []
    for words in (source_words, target_words):
        tokens.append(defaultdict(list))
        for token, word in enumerate(words[:MAX_TOKENS]):
            tokens[-1][word].append(token)
    return sorted({t * MAX_TOKENS + s for i, j in links for s in tokens[0][i] for t in tokens[1][j]})
