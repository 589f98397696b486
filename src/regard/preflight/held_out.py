"""Held-out pairs: validation and test pairs that are also in the training data, found by hashes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import regex

from regard.text.cleaning import Digests, digests, pair_digests
from regard.text.files import Pair

KINDS = ("leakage", "source-leakage", "target-leakage")  # the closest match first
MIN_CHARACTERS = 24  # of both sides: "Thank you." is in every text and leaks nothing
PUNCTUATION = regex.compile(r"[\p{P}\p{S}\s]+")


class HeldOut:
    """An index of the validation and test pairs, to look up training pairs in."""

    def __init__(self, held_out: Mapping[str, Sequence[Pair]]) -> None:
        self.pairs = [
            (split, pair)
            for split, pairs in held_out.items()
            for pair in pairs
            if len(pair.source) + len(pair.target) >= MIN_CHARACTERS
        ]
        self.digests = leak_digests([pair for _, pair in self.pairs])
        self.matches: dict[str, dict[int, Pair]] = {kind: {} for kind in KINDS}
        """By kind and digest, the first training pair that has it."""

    def look_up(self, pairs: Sequence[Pair]) -> None:
        """Look up training pairs, and remember the first match of each kind."""
        if not self.pairs:
            return
        for kind, values in leak_digests(pairs).items():
            for index in np.flatnonzero(np.isin(values, self.digests[kind])).tolist():
                self.matches[kind].setdefault(int(values[index]), pairs[index])

    def leaks(self) -> Iterator[tuple[str, str, Pair, Pair]]:
        """Yield (split, kind, held-out pair, training pair) for the closest match of each held-out pair."""
        for index, (split, pair) in enumerate(self.pairs):
            for kind in KINDS:
                if match := self.matches[kind].get(int(self.digests[kind][index])):
                    yield split, kind, pair, match
                    break


def leak_digests(pairs: Sequence[Pair]) -> dict[str, Digests]:
    """The digests of the pairs by kind of leakage; case, spaces and punctuation are ignored."""
    source, target = (
        digests([PUNCTUATION.sub("", getattr(pair, side).casefold()) for pair in pairs])
        for side in ("source", "target")
    )
    return dict(zip(KINDS, (pair_digests(source, target), source, target), strict=True))
