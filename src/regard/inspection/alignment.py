"""Alignment: which source words each target word was written from, as attention has it, and how right that is.

L layers, H heads, T target words, S source words, C ways of settings.
"""

from __future__ import annotations

import json
from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.config import Config
from regard.errors import FolderError, InputError, did_you_mean
from regard.folders import read_optional, write_file
from regard.inspection.trace import Trace
from regard.text.alignments import Gold, Link

FILE = "alignment.json"
MEAN = "mean"

METHODS = {
    "one": "the links of target words, one each",
    "intersection": "what both directions have",
    "union": "what either has",
    "grow": "the intersection, and neighbours in the union that link a word so far without a link",
    "grow-diag": "the same, neighbours across corners as well",
    "grow-diag-final": "and last what is left in either direction that links a word without a link",
    "grow-diag-final-and": "and last what links two words without a link",
}
"""How the links of target words and those of source words are joined, after Koehn et al. (2003, 2005)."""

BESIDE = [(-1, 0), (0, -1), (1, 0), (0, 1)]
ACROSS = [(-1, -1), (-1, 1), (1, -1), (1, 1)]


def cross_attention(trace: Trace, layer: int | str | None = None) -> Tensor:
    """[target word, source word]: the cross-attention of one decoder layer or of all ("mean"), its heads averaged.

    Without a layer the last but one is taken, as is best in the deep decoders of the literature; of one or two layers
    the mean, which is better there (on the built-in corpus, two layers, an AER of 0.12 against 0.15 and 0.16).
    """
    return _read(_by_word(trace, shift=False), AlignmentSettings(layer))


@dataclass(frozen=True)
class AlignmentSettings:
    """How attention is read as an alignment."""

    layer: int | str | None = None
    """Of the decoder, from 0, or "mean"; None: as `cross_attention` has it."""
    head: int | str = MEAN
    """From 0, or "mean"."""
    shift: bool = False
    """Attention of the step that takes a token as its input, not of the one that writes it (Chen et al., 2020)."""
    method: str = "grow-diag-final"
    """How the links of target words and of source words are joined."""
    apart: bool = False
    """With a model of the other direction: each draws its own links. Else both attentions are multiplied before links
    are drawn, so that what only one of them believes has no weight (after Liang et al., 2006)."""

    @property
    def words(self) -> str:
        """`layer 1, head 0, shifted, grow-diag-final`"""
        layers: dict[int | str | None, str] = {None: "the usual layer", MEAN: "the mean of the layers"}
        layer = layers.get(self.layer, f"layer {self.layer}")
        head = "the mean of its heads" if self.head == MEAN else f"head {self.head}"
        head = "" if self.layer == self.head == MEAN else head
        return ", ".join(filter(None, [layer, head, "shifted" * self.shift, self.method, "apart" * self.apart]))

    def save(self, folder: Path) -> None:
        """Write `alignment.json` into a model folder, where it is found from then on."""
        write_file(folder / FILE, json.dumps(asdict(self), indent=2) + "\n", force=True)

    @classmethod
    def load(cls, folder: Path) -> AlignmentSettings | None:
        """The settings that was chosen for a model folder, or none."""
        path = folder / FILE
        data = read_optional(path)
        if data is None:
            return None
        try:
            found = cls(**json.loads(data))
            if type(found.shift) is not bool or type(found.apart) is not bool:
                raise ValueError("shift and apart must be true or false")
            found.check()
        except (ValueError, TypeError, RecursionError, InputError) as error:
            raise FolderError(f"{path} is damaged: {error}") from error
        return found

    @classmethod
    def default(cls, config: Config) -> AlignmentSettings:
        """The head trained by `train.guided_alignment`, else the mean over the heads of the default layer."""
        if not config.train.guided_alignment:
            return cls()
        layers = config.model.decoder_layers if config.model.family == "transformer" else 1
        return cls(layer=max(layers - 2, 0), head=0)

    def check(self) -> None:
        """Whether it can be of any model."""
        for name, number in (("layer", self.layer), ("head", self.head)):
            whole = type(number) is int and number >= 0
            if not whole and number != MEAN and (name, number) != ("layer", None):
                raise InputError(f"the {name} ({number}) must be a number from 0, or {MEAN}")
        if self.method not in METHODS:
            known = f"{did_you_mean(self.method, METHODS)} There are: {', '.join(METHODS)}"
            raise InputError(f"There is no method {self.method}.{known}")


def extract_alignment(trace: Trace, settings: AlignmentSettings | None = None) -> list[Link]:
    """(source word, target word), counted from 0 without special tokens, as Pharaoh has them."""
    settings = settings or AlignmentSettings()
    return join(*halves(weights(trace, [settings])[0]), settings.method)


def weights(trace: Trace, candidates: Sequence[AlignmentSettings]) -> Tensor:
    """(C, T, S): how much each target word looks at each source word, special tokens left out."""
    sources = [place for place, special in enumerate(trace.source.special) if not special]
    targets = [place for place, special in enumerate(trace.target.special) if not special]
    tables = {shift: _by_word(trace, shift) for shift in {settings.shift for settings in candidates}}
    chosen = torch.stack([_read(tables[settings.shift], settings) for settings in candidates])
    return chosen[:, targets][:, :, sources]


def halves(weights: Tensor) -> tuple[list[Link], list[Link]]:
    """Of (T, S), the links of target words, one each, and those of source words."""
    rows, columns = (_pairs(most(weights, axis)) for axis in (-1, -2))
    return rows, columns


def most(weights: Tensor, axis: int) -> Tensor:
    """Where the largest is along an axis, which is no place if there is nothing but zeros."""
    if not weights.numel():
        return torch.zeros_like(weights, dtype=torch.bool)
    first = weights.argmax(axis, keepdim=True)
    return torch.zeros_like(weights, dtype=torch.bool).scatter(axis, first, True) & (weights > 0)


def _pairs(mask: Tensor) -> list[Link]:
    return sorted((source, target) for target, source in mask.nonzero().tolist())


def candidates(layers: int, heads: int, *, averages: bool) -> list[AlignmentSettings]:
    """Ways of settings to choose from: layers and their heads, or only averages."""
    found: list[tuple[int | str, int | str]] = [(layer, MEAN) for layer in ([MEAN] if layers > 1 else [])]
    found += [(layer, MEAN) for layer in range(layers)]
    if heads > 1 and not averages:
        found += product(range(layers), range(heads))
    return [AlignmentSettings(layer, head, shift) for shift in (False, True) for layer, head in found]


def _by_word(trace: Trace, shift: bool) -> Tensor:
    """(L, H, T, S) with special tokens."""
    if "cross" not in trace.attention:
        raise InputError(f"this {trace.family} does not look at a source: there is nothing to align")
    if shift:  # the step after a token is the one that takes it; the end has none, and is never linked
        trace = replace(trace, attention={"cross": trace.attention["cross"].roll(-1, 2)})
    return trace.by_word("cross")


def _read(weights: Tensor, settings: AlignmentSettings) -> Tensor:
    """(T, S) of (L, H, T, S)."""
    layer, layers, heads = settings.layer, len(weights), weights.shape[1]
    if layer is None:
        layer = layers - 2 if layers > 2 else MEAN
    if isinstance(layer, int) and not 0 <= layer < layers:
        raise InputError(f"there is no decoder layer {layer}: it has layers 0 to {layers - 1}")
    if isinstance(settings.head, int) and not 0 <= settings.head < heads:
        raise InputError(f"there is no head {settings.head}: it has heads 0 to {heads - 1}")
    one = weights[layer] if isinstance(layer, int) else weights.mean(0)
    return one[settings.head] if isinstance(settings.head, int) else one.mean(0)


# Two directions.


def join(forward: Iterable[Link], backward: Iterable[Link], method: str) -> list[Link]:
    """One alignment of two, both as (source, target): the links of target words, and those of source words.

    Points are visited in the order of Moses' symal (by target, then source, and new ones in their place), since the
    outcome of growing depends on it.
    """
    if method == "one":
        return sorted(forward)
    one, other = ({(target, source) for source, target in found} for found in (forward, backward))
    points = one | other if method == "union" else one & other
    if method.startswith("grow"):
        points = _grown(points, one | other, BESIDE + ACROSS * ("diag" in method))
    if "final" in method:
        for direction in (one, other):
            _finish(points, direction, both=method.endswith("and"))
    return sorted((source, target) for target, source in points)


def _grown(points: set[Link], union: set[Link], neighbours: Sequence[Link]) -> set[Link]:
    points, order = set(points), sorted(points)
    targets, sources = {target for target, _ in points}, {source for _, source in points}
    added = True
    while added:
        added, place = False, 0
        while place < len(order):
            here = order[place]
            for down, right in neighbours:
                point = here[0] + down, here[1] + right
                if point in union and not (point[0] in targets and point[1] in sources):
                    points.add(point)
                    insort(order, point)
                    targets.add(point[0])
                    sources.add(point[1])
                    added = True
            place = bisect_right(order, here)
    return points


def _finish(points: set[Link], direction: set[Link], *, both: bool) -> None:
    targets, sources = {target for target, _ in points}, {source for _, source in points}
    for target, source in sorted(direction):
        free = target not in targets, source not in sources
        if all(free) if both else any(free):
            points.add((target, source))
            targets.add(target)
            sources.add(source)


# Against gold.


class AlignmentCounts(NamedTuple):
    """How found links compare with gold ones, counted over sentences; a tensor counts several at once."""

    found: Any = 0
    sure: Any = 0
    in_sure: Any = 0
    in_possible: Any = 0

    def plus(self, other: AlignmentCounts) -> AlignmentCounts:
        return AlignmentCounts(*(one + more for one, more in zip(self, other, strict=True)))

    @property
    def aer(self) -> Any:
        """Alignment error rate: 1 - (|A and S| + |A and P|) / (|A| + |S|) (Och and Ney, 2003)."""
        return 1 - _over(self.in_sure + self.in_possible, self.found + self.sure)

    @property
    def precision(self) -> Any:
        return _over(self.in_possible, self.found)

    @property
    def recall(self) -> Any:
        return _over(self.in_sure, self.sure)

    def as_dict(self) -> dict[str, float]:
        return {"aer": float(self.aer), "precision": float(self.precision), "recall": float(self.recall)}


def _over(part: Any, whole: Any) -> Any:
    """Of nothing, nothing is missing."""
    if isinstance(whole, Tensor):
        return torch.where(whole > 0, part / whole.clamp(min=1), 1.0)
    return part / whole if whole else 1.0


def count_matches(found: Iterable[Link], gold: Gold) -> AlignmentCounts:
    """Of one sentence."""
    found = set(found)
    return AlignmentCounts(len(found), len(gold.sure), len(found & gold.sure), len(found & gold.possible))


def count_mask_matches(found: Tensor, gold: Gold, *, turned: bool = False) -> AlignmentCounts:
    """Of one sentence, for every way of settings in (C, T, S); turned: gold has the sides the other way round."""
    sure, possible = (torch.zeros(found.shape[1:], dtype=torch.bool) for _ in range(2))
    for table, listed in ((sure, gold.sure), (possible, gold.possible)):
        for link in listed:
            row, column = link if turned else link[::-1]
            if row < len(table) and column < table.shape[1]:  # a word may be nothing to the tokenizer
                table[row, column] = True
    counts = [found, found & sure, found & possible]
    found_, in_sure, in_possible = (count.sum((1, 2)) for count in counts)
    return AlignmentCounts(found_, len(gold.sure), in_sure, in_possible)
