"""Links: word alignments in Pharaoh's format, `i-j` with words counted from 0, and what they say of tokens."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from regard.errors import DataError
from regard.text.formats import Pair, read_lines

LINK = re.compile(r"(\d+)-(\d+)")
PLACES = 1 << 16  # of a side; a link between tokens is one number, target * PLACES + source

Link = tuple[int, int]
"""A word of the source and one of the target."""


def parse(text: str, where: str) -> list[Link]:
    """The links of a line."""
    found = []
    for word in text.split():
        link = LINK.fullmatch(word)
        if link is None:
            raise DataError(f"{where}: {word!r} is no link; links are i-j, words counted from 0, such as 0-0 1-2")
        found.append((int(link[1]), int(link[2])))
    return found


def attach(pairs: Iterable[Pair], path: Path) -> Iterator[tuple[str, str, str]]:
    """Pairs with their line of links, which must be there and inside the sentences."""
    number = 0
    for number, (pair, line) in enumerate(zip_longest(pairs, read_lines(path)), start=1):
        if pair is None or line is None:
            more, fewer = ("links", "pairs") if pair is None else ("pairs", "links")
            raise DataError(
                f"{path} does not belong to the pairs: there are more lines of {more} than {number - 1:,} {fewer}"
            )
        text, where = line[0], f"{path}, line {number}"
        sizes = len(pair.source.split()), len(pair.target.split())
        for link in parse(text, where):
            for place, size, side in zip(link, sizes, ("source", "target"), strict=True):
                if place >= size:
                    raise DataError(f"{where}: {link[0]}-{link[1]} is beyond the {size} words of the {side}")
        yield pair.source, pair.target, text


def between_tokens(links: Iterable[Link], source: Sequence[int], target: Sequence[int]) -> list[int]:
    """Every token of a word linked to every token of the other, as numbers; the sides say each token's word."""
    ours, theirs = _by_word(source), _by_word(target)
    found = {t * PLACES + s for i, j in links for s in ours[i] for t in theirs[j] if max(s, t) < PLACES}
    return sorted(found)


def _by_word(words: Sequence[int]) -> defaultdict[int, list[int]]:
    tokens: defaultdict[int, list[int]] = defaultdict(list)
    for token, word in enumerate(words):
        tokens[word].append(token)
    return tokens
