"""The built-in corpus: distinct sentence pairs with word alignments, the same for the same seed."""

from __future__ import annotations

import hashlib
import random
from bisect import bisect
from collections.abc import Iterator
from typing import NamedTuple

from regard.corpora.builtin.grammar import sentence
from regard.corpora.builtin.morphology import Word, elide_and_contract
from regard.errors import ConfigError

PARTS = ("train", "valid", "test")
PART_BOUNDS = (230, 243)  # of one byte of a sentence's digest: 90 %, 5 % and 5 %
LONGEST_SENTENCE = 80  # English words
MAX_FAILURES = 600  # in a row of one length before it is given up


class Pair(NamedTuple):
    """A sentence, its translation, and the alignment as (source word, target word), counted from 0."""

    source: str
    target: str
    alignment: tuple[tuple[int, int], ...]


def sentences(
    size: int,
    *,
    seed: int = 1,
    part: str = "train",
    min_length: int = 2,
    max_length: int = LONGEST_SENTENCE,
    lengths: str = "natural",
) -> Iterator[Pair]:
    """`size` sentence pairs, the same for the same arguments, none twice, and none that another part may have.

    Lengths are in English words, distributed as in ordinary text ("natural") or evenly ("uniform"). There are fewer
    pairs only if the grammar has fewer sentences of these lengths.
    """
    if not 2 <= min_length <= max_length <= LONGEST_SENTENCE:
        raise ConfigError(
            f"min_length ({min_length}) and max_length ({max_length}) must be in order and between 2 and "
            f"{LONGEST_SENTENCE} words"
        )
    span, generator = range(min_length, max_length + 1), random.Random(f"{seed}/{part}")
    weights = {length: natural_frequency(length) if lengths == "natural" else 1.0 for length in span}
    seen: set[bytes] = set()
    while len(seen) < size and weights:
        (length,) = generator.choices(list(weights), list(weights.values()))
        for _ in range(MAX_FAILURES):
            derived = sentence(generator.random, length)
            source = punctuated(derived.english)
            digest = hashlib.sha256(source.encode()).digest()
            mine = PARTS[bisect(PART_BOUNDS, digest[8])] == part
            if mine and len(derived.english) in span and digest[:8] not in seen:
                seen.add(digest[:8])
                yield to_pair(source, derived.french)
                break
        else:
            del weights[length]


def natural_frequency(length: int) -> float:
    """The relative frequency of a sentence length in ordinary text: highest at 10 to 12 words, with a long tail."""
    rise = length**3 / (length**3 + 700)
    return rise * (0.86 ** max(0, length - 11) + 0.02 * 0.97**length)


def to_pair(source: str, french: list[Word]) -> Pair:
    """The sentence and its translation, with their word alignment."""
    words = elide_and_contract(french)
    alignment = sorted({(i, j) for j, (_, positions) in enumerate(words) for i in positions})
    return Pair(source, punctuated([text for text, _ in words]), tuple(alignment))


def punctuated(words: list[str]) -> str:
    """Words as a sentence, with a capital letter and a full stop."""
    text = " ".join(words)
    return text[0].upper() + text[1:] + "."
