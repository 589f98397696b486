"""Links: word alignments as Pharaoh has them, `i-j` from 0; gold ones, sure or possible; what they say of tokens."""

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
GOLD = re.compile(r"(\d+)([-p])(\d+)")
PLACES = 1 << 16  # of a side; a link between tokens is one number, target * PLACES + source

Link = tuple[int, int]
"""A word of the source and one of the target."""


class Gold(NamedTuple):
    """The links of a sentence that people drew."""

    sure: frozenset[Link]
    possible: frozenset[Link]
    """The sure ones are among them."""


def parse_alignment(text: str, where: str) -> list[Link]:
    """The links of a line."""
    found = []
    for word in text.split():
        link = LINK.fullmatch(word)
        if link is None:
            raise DataError(f"{where}: {word!r} is no link; links are i-j, words counted from 0, such as 0-0 1-2")
        found.append((int(link[1]), int(link[2])))
    return found


def read_alignments(pairs: Iterable[Pair], path: Path) -> Iterator[tuple[str, str, str]]:
    """Pairs with their line of links, which must be there and inside the sentences."""
    for pair, text, where in _beside(pairs, path, "learn from"):
        _check_inside(parse_alignment(text, where), pair, where)
        yield pair.source, pair.target, text


def read_gold(pairs: Iterable[Pair], path: Path) -> Iterator[tuple[Pair, Gold]]:
    """Pairs with their gold links: `i-j` sure, `ipj` possible; words counted from 1 in a .talp file, else from 0."""
    first = int(Path(uncompressed_name(path)).suffix.lower() == ".talp")
    for pair, text, where in _beside(pairs, path, "compare with"):
        sure, possible = set[Link](), set[Link]()
        for word in text.split():
            link = GOLD.fullmatch(word)
            if link is None:
                raise DataError(f"{where}: {word!r} is no gold link; those are i-j (sure) and ipj (possible)")
            place = int(link[1]) - first, int(link[3]) - first
            if min(place) < 0:
                raise DataError(f"{where}: {word} begins to count at 0, and a .talp file does so at 1: rename it")
            possible.add(place)
            if link[2] == "-":
                sure.add(place)
        _check_inside(possible, pair, where, first)
        yield pair, Gold(frozenset(sure), frozenset(possible))


def _beside(pairs: Iterable[Pair], path: Path, use: str) -> Iterator[tuple[Pair, str, str]]:
    """Pairs with their line of a file and where it stands; a file of blank lines is of no use."""
    number, blank = 0, True
    for number, (pair, line) in enumerate(zip_longest(pairs, read_lines(path)), start=1):
        if pair is None or line is None:
            more, fewer = ("links", "pairs") if pair is None else ("pairs", "links")
            raise DataError(
                f"{path} does not belong to the pairs: there are more lines of {more} than {number - 1:,} {fewer}"
            )
        blank = blank and not line[0].strip()
        yield pair, line[0], f"{path}, line {number}"
    if blank:
        raise DataError(f"{path} has no links: there is nothing to {use}")


def _check_inside(links: Iterable[Link], pair: Pair, where: str, first: int = 0) -> None:
    sizes = len(pair.source.split()), len(pair.target.split())
    for link in links:
        for place, size, side in zip(link, sizes, ("source", "target"), strict=True):
            if place >= size:
                named = f"{link[0] + first}-{link[1] + first}"
                hint = "" if first else " (words are counted from 0; from 1 only in a file named .talp)"
                raise DataError(f"{where}: {named} is beyond the {size} words of the {side}{hint}")


def token_alignment(links: Iterable[Link], source: Sequence[int], target: Sequence[int]) -> list[int]:
    """Every token of a word linked to every token of the other, as numbers; the sides say each token's word."""
    ours, theirs = _by_word(source), _by_word(target)
    found = {t * PLACES + s for i, j in links for s in ours[i] for t in theirs[j] if max(s, t) < PLACES}
    return sorted(found)


def _by_word(words: Sequence[int]) -> defaultdict[int, list[int]]:
    tokens: defaultdict[int, list[int]] = defaultdict(list)
    for token, word in enumerate(words):
        tokens[word].append(token)
    return tokens
