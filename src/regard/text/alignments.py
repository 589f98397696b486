"""Word alignments in Pharaoh format (`i-j`, words counted from 0), gold alignments, and alignments of tokens."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from regard.errors import DataError
from regard.text.files import Pair, read_lines, uncompressed_name

LINK = re.compile(r"(\d+)-(\d+)")
GOLD_LINK = re.compile(r"(\d+)([-p])(\d+)")
MAX_TOKENS = 1 << 16  # of a side; an aligned pair of tokens is stored as target * MAX_TOKENS + source

Link = tuple[int, int]
"""An aligned source and target word."""


class Gold(NamedTuple):
    """The alignment of a sentence by human annotators."""

    sure: frozenset[Link]
    possible: frozenset[Link]
    """Includes the sure ones."""


def parse_alignment(text: str, where: str) -> list[Link]:
    """The alignment in a line such as `0-0 1-2`."""
    links = []
    for word in text.split():
        match = LINK.fullmatch(word)
        if match is None:
            raise DataError(f"{where}: {word!r} is not an alignment; write i-j, words counted from 0, such as 0-0 1-2")
        links.append((int(match[1]), int(match[2])))
    return links


def read_alignments(pairs: Iterable[Pair], path: Path) -> Iterator[tuple[str, str, str]]:
    """Pairs with their line of an alignment file, which is checked against their words."""
    for pair, text, where in _with_lines(pairs, path, "learn from"):
        _check_words(parse_alignment(text, where), pair, where)
        yield pair.source, pair.target, text


def read_gold(pairs: Iterable[Pair], path: Path) -> Iterator[tuple[Pair, Gold]]:
    """Pairs with their gold alignment: `i-j` sure, `ipj` possible; words count from 1 in a .talp file, else from 0."""
    first = int(Path(uncompressed_name(path)).suffix.lower() == ".talp")
    for pair, text, where in _with_lines(pairs, path, "compare with"):
        sure, possible = set[Link](), set[Link]()
        for word in text.split():
            match = GOLD_LINK.fullmatch(word)
            if match is None:
                raise DataError(f"{where}: {word!r} is not a gold alignment; write i-j (sure) or ipj (possible)")
            link = int(match[1]) - first, int(match[3]) - first
            if min(link) < 0:
                raise DataError(f"{where}: {word} counts words from 0, and a .talp file counts from 1: rename it")
            possible.add(link)
            if match[2] == "-":
                sure.add(link)
        _check_words(possible, pair, where, first)
        yield pair, Gold(frozenset(sure), frozenset(possible))


def _with_lines(pairs: Iterable[Pair], path: Path, use: str) -> Iterator[tuple[Pair, str, str]]:
    """Each pair with its line of a file and the position of that line; a file of empty lines is refused."""
    empty = True
    for number, (pair, line) in enumerate(zip_longest(pairs, read_lines(path)), start=1):
        if pair is None or line is None:
            more, fewer = ("alignments", "pairs") if pair is None else ("pairs", "alignments")
            raise DataError(
                f"{path} does not belong to the pairs: there are more lines of {more} than {number - 1:,} {fewer}"
            )
        empty = empty and not line[0].strip()
        yield pair, line[0], f"{path}, line {number}"
    if empty:
        raise DataError(f"{path} has no alignments: there is nothing to {use}")


def _check_words(links: Iterable[Link], pair: Pair, where: str, first: int = 0) -> None:
    sizes = len(pair.source.split()), len(pair.target.split())
    for link in links:
        for word, size, side in zip(link, sizes, ("source", "target"), strict=True):
            if word >= size:
                written = f"{link[0] + first}-{link[1] + first}"
                hint = "" if first else " (words are counted from 0; from 1 only in a file named .talp)"
                raise DataError(f"{where}: {written} is beyond the {size} words of the {side}{hint}")


def token_alignment(links: Iterable[Link], source_words: Sequence[int], target_words: Sequence[int]) -> list[int]:
    """Every token of a word aligned with every token of the other, as `MAX_TOKENS` explains.

    `source_words` and `target_words` are the word of each token.
    """
    source, target = _tokens_by_word(source_words), _tokens_by_word(target_words)
    pairs = {t * MAX_TOKENS + s for i, j in links for s in source[i] for t in target[j] if max(s, t) < MAX_TOKENS}
    return sorted(pairs)


def _tokens_by_word(words: Sequence[int]) -> defaultdict[int, list[int]]:
    tokens: defaultdict[int, list[int]] = defaultdict(list)
    for token, word in enumerate(words):
        tokens[word].append(token)
    return tokens
