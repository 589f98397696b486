"""Alignment: word alignments from attention, symmetrization, and alignment error rate.

L layers, H heads, T target words, S source words, C candidate settings.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from regard.config import Config
from regard.errors import FolderError, InputError, did_you_mean
from regard.folders import read_json, write_file
from regard.inspection.trace import Trace
from regard.text.alignments import Gold, Link

FILE = "alignment.json"
MEAN = "mean"

METHODS = {
    "one": "for every target word the source word with the most attention",
    "intersection": "links in both directions",
    "union": "links in either direction",
    "grow": "the intersection, and neighbouring links of the union that align a new word",
    "grow-diag": "as grow, with diagonal neighbours",
    "grow-diag-final": "as grow-diag, then links of either direction that align a new word",
    "grow-diag-final-and": "as grow-diag, then links of either direction that align two new words",
}
"""How the directions source-to-target and target-to-source are symmetrized, after Koehn et al. (2003, 2005)."""

STRAIGHT = [(-1, 0), (0, -1), (1, 0), (0, 1)]
DIAGONAL = [(-1, -1), (-1, 1), (1, -1), (1, 1)]


@dataclass(frozen=True)
class AlignmentSettings:
    """Which attention is read as an alignment, and how its directions are symmetrized."""

    layer: int | str | None = None
    """Decoder layer, from 0, or "mean". None: the second-to-last layer, which the literature finds best in deep
    decoders; with one or two layers, their mean (on the built-in corpus an AER of 0.12 against 0.15 and 0.16)."""
    head: int | str = MEAN
    """From 0, or "mean"."""
    shift: bool = False
    """Use the step that has a word as its input instead of the step that generates it (Chen et al., 2020)."""
    method: str = "grow-diag-final"
    """One of METHODS."""

    def __post_init__(self) -> None:
        for name, number in (("layer", self.layer), ("head", self.head)):
            whole = type(number) is int and number >= 0
            if not whole and number != MEAN and (name, number) != ("layer", None):
                raise InputError(f"the {name} ({number}) must be a number from 0, or {MEAN}")
        if type(self.shift) is not bool:
            raise InputError(f"shift ({self.shift}) must be true or false")
        if self.method not in METHODS:
            known = f"{did_you_mean(self.method, METHODS)} There are: {', '.join(METHODS)}"
            raise InputError(f"There is no method {self.method}.{known}")

    def __str__(self) -> str:
        layers: dict[int | str | None, str] = {None: "the default layer", MEAN: "the mean of the layers"}
        layer = layers.get(self.layer, f"layer {self.layer}")
        head = "the mean of its heads" if self.head == MEAN else f"head {self.head}"
        head = "" if self.layer == self.head == MEAN else head
        return ", ".join(filter(None, [layer, head, "shifted" * self.shift, self.method]))

    def save(self, folder: Path) -> None:
        """Write `alignment.json` into a model folder, which later calls read."""
        write_file(folder / FILE, json.dumps(asdict(self), indent=2) + "\n", force=True)

    @classmethod
    def load(cls, folder: Path) -> AlignmentSettings | None:
        """The settings saved in a model folder, or None."""
        path = folder / FILE
        values = read_json(path, optional=True)
        try:
            return None if values is None else cls(**values)
        except (ValueError, TypeError, InputError) as error:
            raise FolderError(f"{path} is damaged: {error}") from error

    @classmethod
    def default(cls, config: Config) -> AlignmentSettings:
        """The head trained by `train.guided_alignment`, else the mean over the heads of the default layer."""
        if not config.train.guided_alignment:
            return cls()
        layers = config.model.decoder_layers if config.model.family == "transformer" else 1
        return cls(layer=max(layers - 2, 0), head=0)


def cross_attention(trace: Trace) -> Tensor:
    """[target word, source word]: the cross-attention that alignments are read from by default."""
    return _select(_by_word(trace, shift=False), AlignmentSettings())


def extract_alignment(trace: Trace) -> list[Link]:
    """(source word, target word) pairs, counted from 0 without special tokens, as in Pharaoh's format."""
    settings = AlignmentSettings()
    return symmetrize(*directions(attention_weights(trace, [settings])[0]), settings.method)


def attention_weights(trace: Trace, candidates: Sequence[AlignmentSettings]) -> Tensor:
    """(C, T, S): the attention of target words to source words without special tokens, for each of the settings."""
    sources, targets = (
        [index for index, special in enumerate(side.special) if not special] for side in (trace.source, trace.target)
    )
    tables = {shift: _by_word(trace, shift) for shift in {settings.shift for settings in candidates}}
    weights = torch.stack([_select(tables[settings.shift], settings) for settings in candidates])
    return weights[:, targets][:, :, sources]


def directions(weights: Tensor) -> tuple[list[Link], list[Link]]:
    """From (T, S), the best source word of every target word, and the best target word of every source word."""
    return best_links(weights, -1), best_links(weights, -2)


def best_links(weights: Tensor, axis: int = -1) -> list[Link]:
    """Links to the largest weights of (T, S) along an axis; a word whose weights are all zero has none."""
    if not weights.numel():
        return []
    best = torch.zeros_like(weights, dtype=torch.bool).scatter(axis, weights.argmax(axis, keepdim=True), True)
    return sorted((source, target) for target, source in (best & (weights > 0)).nonzero().tolist())


def candidate_settings(layers: int, heads: int, *, averages: bool) -> list[AlignmentSettings]:
    """Settings to choose from: layers and their heads, or only averages over heads."""
    layer_heads: list[tuple[int | str, int | str]] = [(MEAN, MEAN)] if layers > 1 else []
    layer_heads += [(layer, MEAN) for layer in range(layers)]
    if heads > 1 and not averages:
        layer_heads += product(range(layers), range(heads))
    return [AlignmentSettings(layer, head, shift) for shift in (False, True) for layer, head in layer_heads]


def _by_word(trace: Trace, shift: bool) -> Tensor:
    """(L, H, T, S) with special tokens."""
    if "cross" not in trace.attention:
        raise InputError(f"this {trace.family} has no cross-attention: there is nothing to align")
    if shift:  # the step after a token takes it as input; the end token has none and is never aligned
        trace = replace(trace, attention={"cross": trace.attention["cross"].roll(-1, 2)})
    return trace.by_word("cross")


def _select(weights: Tensor, settings: AlignmentSettings) -> Tensor:
    """(T, S) from (L, H, T, S)."""
    layer, head, (layers, heads) = settings.layer, settings.head, weights.shape[:2]
    if layer is None:
        layer = layers - 2 if layers > 2 else MEAN
    if isinstance(layer, int) and layer >= layers:
        raise InputError(f"there is no decoder layer {layer}: it has layers 0 to {layers - 1}")
    if isinstance(head, int) and head >= heads:
        raise InputError(f"there is no head {head}: it has heads 0 to {heads - 1}")
    chosen = weights[layer] if isinstance(layer, int) else weights.mean(0)
    return chosen[head] if isinstance(head, int) else chosen.mean(0)


def symmetrize(forward: Iterable[Link], backward: Iterable[Link], method: str) -> list[Link]:
    """One alignment from two directions, both as (source, target).

    Points are visited in the order of Moses' symal, by target, then source, on which the result of growing depends.
    """
    if method == "one":
        return sorted(forward)
    first, second = ({(target, source) for source, target in links} for links in (forward, backward))
    union = first | second
    points = set(union) if method == "union" else first & second
    targets, sources = {target for target, _ in points}, {source for _, source in points}

    def add(point: Link) -> None:
        points.add(point)
        targets.add(point[0])
        sources.add(point[1])

    neighbours = STRAIGHT + DIAGONAL * ("diag" in method)
    growing = method.startswith("grow")
    while growing:
        growing = False
        for target, source in sorted(union):
            for down, right in neighbours if (target, source) in points else ():
                point = target + down, source + right
                if point in union and not (point[0] in targets and point[1] in sources):
                    add(point)
                    growing = True
    for target, source in (*sorted(first), *sorted(second)) if "final" in method else ():
        free = target not in targets, source not in sources
        if all(free) if method.endswith("and") else any(free):
            add((target, source))
    return sorted((source, target) for target, source in points)


# Alignment error rate.


class AlignmentCounts(NamedTuple):
    """Counts over sentences from which AER, precision and recall are computed."""

    predicted: int = 0
    sure: int = 0
    in_sure: int = 0
    in_possible: int = 0

    @property
    def aer(self) -> float:
        """Alignment error rate: 1 - (|A and S| + |A and P|) / (|A| + |S|) (Och and Ney, 2003)."""
        return self.to_dict()["aer"]

    def to_dict(self) -> dict[str, float]:
        def ratio(part: int, whole: int) -> float:
            return part / whole if whole else 1.0

        return {
            "aer": 1 - ratio(self.in_sure + self.in_possible, self.predicted + self.sure),
            "precision": ratio(self.in_possible, self.predicted),
            "recall": ratio(self.in_sure, self.sure),
        }

    def __str__(self) -> str:
        return "AER {aer:.1%}, precision {precision:.1%}, recall {recall:.1%}".format(**self.to_dict())


def count_matches(alignments: Iterable[Iterable[Link]], golds: Iterable[Gold]) -> AlignmentCounts:
    """Compare the alignments of sentences with their gold alignments."""
    counts = [
        (len(links), len(gold.sure), len(links & gold.sure), len(links & gold.possible))
        for links, gold in zip(map(set, alignments), golds, strict=True)
    ]
    return AlignmentCounts(*map(sum, zip(*counts, strict=True)))
