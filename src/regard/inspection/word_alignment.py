"""Aligning: which words of two texts belong together, by what a model, or one of each direction, looks at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TypeVar, cast

import torch
from torch import Tensor, nn

from regard.config import Config
from regard.decoding import Hypothesis
from regard.errors import ConfigError
from regard.inspection import alignment
from regard.inspection.alignment import (
    METHODS,
    AlignmentCounts,
    AlignmentSettings,
    count_mask_matches,
    count_matches,
    halves,
    join,
    most,
)
from regard.inspection.trace import Side, Trace, trace
from regard.memory import in_halves, in_parts
from regard.models import Generator
from regard.models.folder import load_model
from regard.text.alignments import Gold, Link
from regard.text.tokenizer import END, SPECIALS, Tokenizers, check_fingerprint

AHEAD = 512  # pairs read before their links are given
POSITIONS = {"cpu": 2048, "mps": 8192, "cuda": 32768}  # of both sides, padded, looked at together
SAMPLE = 1000  # pairs that readings are chosen by when there is no gold
LEFT_OUT = "longer than {} tokens"

Texts = tuple[str, str]
"""A source and its target."""
Use = Callable[[int, Trace], None]
"""What is done with the trace of a pair, told by its place; afterwards the trace is gone."""
T = TypeVar("T")


class Direction:
    """A model, its tokenizers, and how its attention is read."""

    def __init__(
        self, model: nn.Module, sides: Tokenizers, config: Config, reading: AlignmentSettings, *, tag: str = ""
    ) -> None:
        self.model, self.sides, self.config, self.settings, self.tag = model, sides, config, reading, tag
        self.settled = False
        """The reading was chosen for this model, or its training: there is no need to choose."""
        self.left_out: Counter[str] = Counter()

    @classmethod
    def load(cls, folder: Path, device: torch.device | str, *, tag: str = "") -> Direction:
        """The model of a folder, read as was chosen for it."""
        model, config = load_model(folder, device)
        if config.model.family not in ("rnn", "transformer"):
            raise ConfigError(
                f"{folder} holds a {config.model.family}, which does not look at a source: align with another"
            )
        if config.model.score == "none":
            raise ConfigError(f"{folder} holds an rnn without attention: there is nothing to align by")
        sides = Tokenizers.load(folder)
        check_fingerprint(sides.fingerprint, config.text.fingerprint, folder)
        if tag and tag not in sides.source.tags:
            raise ConfigError(f"{folder} was not trained with the tag {tag}")
        reading = AlignmentSettings.load(folder)
        found = cls(model, sides, config, reading or AlignmentSettings.default(config), tag=tag)
        found.settled = reading is not None or config.train.guided_alignment > 0
        return found

    @property
    def longest(self) -> int:
        """Tokens a side may have: what the model was trained on, and has positions for."""
        shape = self.config.model
        return min([self.config.text.max_length, *[shape.max_positions - 1] * shape.has_position_table])

    @property
    def attention_shape(self) -> tuple[int, int]:
        """Layers and heads that look at the source."""
        shape = self.config.model
        return (shape.decoder_layers, shape.heads) if shape.family == "transformer" else (1, 1)

    def weights(self, pairs: Sequence[Texts]) -> list[Tensor]:
        """How much each target word looks at each source word (T, S), of each pair.

        Nothing where a side is empty, or too long, which is counted in `left_out`.
        """
        found = [torch.zeros(len(target.split()), len(source.split())) for source, target in pairs]
        self.look(pairs, lambda place, seen: found.__setitem__(place, alignment.weights(seen, [self.settings])[0]))
        return found

    def look(self, pairs: Sequence[Texts], use: Use) -> None:
        """Every pair that can be looked at, in batches of about the same length."""
        before = f"{self.tag} " if self.tag else ""
        texts = [(before + source, target) for source, target in pairs]
        source, target = (
            tokenizer.encode_batch([pair[side] for pair in texts]) for side, tokenizer in enumerate(self.sides)
        )
        fit = []
        for place, pair in enumerate(pairs):
            if not all(text.strip() for text in pair) or not source[place] or not target[place]:
                continue
            if max(len(source[place]), len(target[place])) > self.longest:
                self.left_out[LEFT_OUT.format(self.longest)] += 1
                continue
            fit.append(place)
        fit.sort(key=lambda place: (len(source[place]), len(target[place]), pairs[place]))

        def together(batch: Sequence[int]) -> list[Trace]:
            return trace(
                cast(Generator, self.model),
                [[*source[place], END] for place in batch],
                [Hypothesis(target[place], 0.0, 0.0, True, []) for place in batch],
                self.sides,
                texts=[texts[place][0] for place in batch],
                target_texts=[texts[place][1] for place in batch],
                top=0,
            )

        most = POSITIONS[next(self.model.parameters()).device.type]
        for batch in _batches(fit, [len(s) + len(t) + 2 for s, t in zip(source, target, strict=True)], most):
            found = [seen for part in in_parts(together, batch, in_halves) for seen in part]
            for place, seen in zip(batch, found, strict=True):
                source_words, target_words = _between_blanks(seen.source, self.tag), _between_blanks(seen.target)
                use(place, replace(seen, source=source_words, target=target_words))


def _between_blanks(side: Side, tag: str = "") -> Side:
    """Words as a file has them: also in a script without blanks, also what is nothing to the tokenizer; no tag."""
    words = side.text.split()
    if len(words) + 1 != len(side.words):
        places = [len(words) if side.special[word] else min(word, len(words) - 1) for word in side.word]
        special = [*[False] * len(words), True]
        side = side._replace(words=[*words, SPECIALS[END]], word=places, special=special)
    return side._replace(special=[True, *side.special[1:]]) if tag else side


def _batches(places: Sequence[int], sizes: Sequence[int], most: int) -> Iterator[list[int]]:
    """Neighbours, as long as they have room together when padded."""
    batch: list[int] = []
    longest = 0
    for place in places:
        longest = max(longest, sizes[place])
        if batch and (len(batch) + 1) * longest > most:
            yield batch
            batch, longest = [], sizes[place]
        batch.append(place)
    if batch:
        yield batch


def align(pairs: Iterable[Texts], forward: Direction, backward: Direction | None = None) -> Iterator[list[Link]]:
    """The links of each pair, in their order.

    By what `forward` looks at, and `backward`, a model of the other direction, if there is one: the links of target
    words and those of source words, joined as the reading of `forward` says.
    """
    for some in _windows(pairs):
        yield from (join(*both, forward.settings.method) for both in _halves(some, forward, backward))


def _halves(
    pairs: Sequence[Texts], forward: Direction, backward: Direction | None
) -> Iterator[tuple[list[Link], list[Link]]]:
    """The links of target words and those of source words, both as (source, target)."""
    ours = forward.weights(pairs)
    theirs = backward.weights([(target, source) for source, target in pairs]) if backward else ours
    for one, other in zip(ours, theirs, strict=True):
        if backward is None:
            yield halves(one)
        elif forward.settings.apart:
            yield halves(one)[0], halves(other.T)[1]
        else:
            yield halves(one * other.T)


def _windows(items: Iterable[T]) -> Iterator[list[T]]:
    items = iter(items)
    while some := list(islice(items, AHEAD)):
        yield some


# Choosing how attention is read.


def choose(direction: Direction, pairs: Sequence[Texts], gold: Sequence[Gold], *, turned: bool = False) -> None:
    """Take the layer, head and shift with the least AER against gold, one link for each target word.

    Turned: gold has the sides the other way round.
    """
    readings = alignment.candidates(*direction.attention_shape, averages=False)
    total = AlignmentCounts(*torch.zeros(4, len(readings), dtype=torch.int64))
    for begin in range(0, len(pairs), AHEAD):
        own: dict[int, AlignmentCounts] = {}

        def count(place: int, seen: Trace, begin: int = begin, own: dict[int, AlignmentCounts] = own) -> None:
            own[place] = count_mask_matches(
                most(alignment.weights(seen, readings), -1), gold[begin + place], turned=turned
            )

        some = pairs[begin : begin + AHEAD]
        direction.look(some, count)
        for place in range(len(some)):
            total = total.plus(own.get(place) or count_matches([], gold[begin + place]))
    best = int(torch.as_tensor(total.aer).argmin())  # of equals the first, which is the simplest
    direction.settings = replace(readings[best], method=direction.settings.method)


def choose_method(
    pairs: Sequence[Texts], gold: Sequence[Gold], forward: Direction, backward: Direction | None = None
) -> AlignmentCounts:
    """Take the way of joining with the least AER against gold, which is returned."""
    totals = {}
    for apart in (False, True) if backward else (False,):
        forward.settings = replace(forward.settings, apart=apart)
        found = [both for some in _windows(pairs) for both in _halves(some, forward, backward)]
        for method in METHODS:
            total = AlignmentCounts()
            for both, right in zip(found, gold, strict=True):
                total = total.plus(count_matches(join(*both, method), right))
            totals[method, apart] = total
    best = min(totals, key=lambda way: float(totals[way].aer))
    forward.settings = replace(forward.settings, method=best[0], apart=best[1])
    return totals[best]


def choose_by_agreement(pairs: Sequence[Texts], forward: Direction, backward: Direction) -> float:
    """Without gold: take the two readings that agree most, the share of which is returned (Chen et al., 2020).

    Only averages of layers, as in the paper: heads that look at positions alone would agree and know nothing. What is
    settled stays.
    """
    both, found = torch.zeros(()), [torch.zeros(()), torch.zeros(())]
    readings = [
        [direction.settings] if direction.settled else alignment.candidates(*direction.attention_shape, averages=True)
        for direction in (forward, backward)
    ]
    for some in _windows(pairs):
        seen: list[dict[int, Tensor]] = [{}, {}]
        turned = [(target, source) for source, target in some]
        for side, (direction, texts) in enumerate(((forward, some), (backward, turned))):

            def keep(place: int, found: Trace, side: int = side, seen: list[dict[int, Tensor]] = seen) -> None:
                seen[side][place] = most(alignment.weights(found, readings[side]), -1).float()

            direction.look(texts, keep)
        for place in sorted(seen[0].keys() & seen[1].keys()):
            one, other = seen[0][place], seen[1][place].transpose(1, 2)
            both = both + one.flatten(1) @ other.flatten(1).T
            found = [total + mask.sum((1, 2)) for total, mask in zip(found, (one, other), strict=True)]
    agreed = 2 * both / (found[0][..., None] + found[1]).clamp(min=1)
    best = int(agreed.argmax())
    if both.dim():  # else no pair could be looked at
        row, column = divmod(best, len(readings[1]))
        forward.settings = replace(readings[0][row], method=forward.settings.method)
        backward.settings = replace(readings[1][column], method=backward.settings.method)
    return float(agreed.flatten()[best])
