"""Alignment: word alignments of pairs of texts from attention, symmetrization, and alignment error rate.

L layers, H heads, T target words, S source words, C candidate settings.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice, product
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from regard.config import Config
from regard.decoding import Hypothesis
from regard.errors import ConfigError, FolderError, InputError, did_you_mean, refuse_options
from regard.folders import read_json, write_file
from regard.inspection.trace import Side, Trace, trace
from regard.memory import in_halves, in_parts
from regard.models.folder import load_ensemble
from regard.results import Report, Table
from regard.text.alignments import Gold, Link, read_alignments_with_gold, read_gold
from regard.text.ordering import batch_by_length
from regard.text.scripts import UNSPACED_SCRIPTS, script
from regard.text.tokenizer import END, SPECIALS, Tokenizers

FILE = "alignment.json"
MEAN = "mean"
METHODS = ("one", "intersection", "union", "grow", "grow-diag", "grow-diag-final", "grow-diag-final-and")
"""How two directions are symmetrized, after Koehn et al. (2003, 2005); "one" takes the first direction alone."""
STRAIGHT = [(-1, 0), (0, -1), (1, 0), (0, 1)]
DIAGONAL = [(-1, -1), (-1, 1), (1, -1), (1, 1)]
WINDOW = 512  # pairs that are read and sorted by length at once
BATCH_TOKENS = {"cpu": 2048, "mps": 8192, "cuda": 32768}  # padded, of both sides
LONG_WORD = 5  # characters; a longer line without spaces is probably a sentence

Texts = tuple[str, str]
"""A source and its target."""


@dataclass(frozen=True)
class AlignmentSettings:
    """Which attention is read as an alignment, and how its directions are symmetrized."""

    # Decoder layer, from 0, or "mean". None: the second-to-last layer, which the literature finds best in deep
    # decoders; with one or two layers, their mean (on the built-in corpus an AER of 0.12 against 0.15 and 0.16).
    layer: int | str | None = None
    head: int | str = MEAN  # from 0, or "mean"
    shift: bool = False  # use the step that has a word as its input, not the one that generates it (Chen et al., 2020)
    method: str = "grow-diag-final"  # one of METHODS

    def __post_init__(self) -> None:
        for name, number in (("layer", self.layer), ("head", self.head)):
            whole = type(number) is int and number >= 0
            if not whole and number != MEAN and (name, number) != ("layer", None):
                raise InputError(f"the {name} ({number}) must be a number from 0, or {MEAN}")
        if self.method not in METHODS:
            known = f"{did_you_mean(self.method, METHODS)} There are: {', '.join(METHODS)}"
            raise InputError(f"There is no method {self.method}.{known}")

    def __str__(self) -> str:
        layer = "default" if self.layer is None else self.layer
        return f"layer {layer}, head {self.head}, {'shifted, ' * self.shift}{self.method}"

    def save(self, folder: Path) -> None:
        """Write `alignment.json` into a model folder, which later calls read."""
        write_file(folder / FILE, json.dumps(asdict(self), indent=2) + "\n", force=True)

    @classmethod
    def load(cls, folder: Path, config: Config) -> AlignmentSettings:
        """The settings saved in a model folder, else the head trained by `train.guided_alignment`, else the default."""
        path = folder / FILE
        values = read_json(path, optional=True)
        if values is None and config.train.guided_alignment:
            layers = config.model.decoder_layers if config.model.family == "transformer" else 1
            return cls(layer=max(layers - 2, 0), head=0)
        try:
            return cls() if values is None else cls(**values)
        except (ValueError, TypeError, InputError) as error:
            raise FolderError(f"{path} is damaged: {error}") from error


# The alignment of one trace.


def cross_attention(trace: Trace) -> Tensor:
    """[target word, source word]: the cross-attention that alignments are read from by default."""
    return _select(trace.by_word("cross"), AlignmentSettings())


def extract_alignment(trace: Trace) -> list[Link]:
    """(source word, target word) pairs, counted from 0 without special tokens, as in Pharaoh's format."""
    settings = AlignmentSettings()
    return extract_links(attention_weights(trace, [settings])[0], settings.method)


def attention_weights(trace: Trace, candidates: Sequence[AlignmentSettings]) -> Tensor:
    """(C, T, S): the attention of target words to source words without special tokens, for each of the settings."""
    by_word = {False: trace.by_word("cross")}
    if any(settings.shift for settings in candidates):  # the end token is the input of no step, and is never aligned
        next_steps = trace.attention["cross"].roll(-1, 2)
        by_word[True] = replace(trace, attention={"cross": next_steps}).by_word("cross")
    weights = torch.stack([_select(by_word[settings.shift], settings) for settings in candidates])
    for axis, side in ((1, trace.target), (2, trace.source)):
        weights = weights.index_select(axis, (~torch.tensor(side.special)).nonzero()[:, 0])
    return weights


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


def extract_links(weights: Tensor, method: str) -> list[Link]:
    """The best source word of each target word and the best target word of each source word in (T, S), symmetrized."""
    return symmetrize(best_links(weights, -1), best_links(weights, -2), method)


def best_links(weights: Tensor, axis: int = -1) -> list[Link]:
    """Links to the largest weights of (T, S) along an axis; a word whose weights are all zero has none."""
    if not weights.numel():
        return []
    best = torch.zeros_like(weights, dtype=torch.bool).scatter(axis, weights.argmax(axis, keepdim=True), True)
    return sorted((source, target) for target, source in (best & (weights > 0)).nonzero().tolist())


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


def count_matches(alignments: Iterable[Iterable[Link]], golds: Iterable[Gold]) -> Counter[str]:
    """Counts over sentences, which are compared with their gold alignments; `error_rates` needs their sums."""
    counts: Counter[str] = Counter()
    for links, gold in zip(map(set, alignments), golds, strict=True):
        counts["predicted"] += len(links)
        counts["sure"] += len(gold.sure)
        counts["in_sure"] += len(links & gold.sure)
        counts["in_possible"] += len(links & gold.possible)
    return counts


def error_rates(counts: Counter[str]) -> dict[str, float]:
    """The alignment error rate, 1 - (|A and S| + |A and P|) / (|A| + |S|) (Och and Ney, 2003), precision and recall."""

    def ratio(part: int, whole: int) -> float:
        return part / whole if whole else 1.0

    return {
        "aer": 1 - ratio(counts["in_sure"] + counts["in_possible"], counts["predicted"] + counts["sure"]),
        "precision": ratio(counts["in_possible"], counts["predicted"]),
        "recall": ratio(counts["in_sure"], counts["sure"]),
    }


def format_rates(rates: Mapping[str, float]) -> str:
    """`AER 13.0%, precision 88.2%, recall 85.9%`"""
    return "AER {aer:.1%}, precision {precision:.1%}, recall {recall:.1%}".format(**rates)


# Files.


@dataclass(frozen=True, kw_only=True)
class Alignments(Report):
    """The word alignments of a file of pairs."""

    # (source word, target word), counted from 0 between spaces; empty if `align` was called with `write`
    alignments: list[list[Link]]
    pairs: int
    points: int
    rates: dict[str, float] = field(default_factory=dict)  # with gold alignments: aer, precision and recall
    left_out: dict[str, int] = field(default_factory=dict)  # pairs without an alignment, by reason
    settings: AlignmentSettings | None = None  # None if the alignments were read from a file
    reverse_settings: AlignmentSettings | None = None
    messages: Sequence[str] = ()

    @property
    def aer(self) -> float | None:
        """Alignment error rate."""
        return self.rates.get("aer")

    def to_dict(self) -> dict[str, Any]:
        values = {"pairs": self.pairs, "points": self.points, **self.rates, "left_out": self.left_out}
        settings = {"settings": self.settings, "reverse": self.reverse_settings}
        return values | {name: asdict(used) for name, used in settings.items() if used is not None}

    def tables(self) -> list[Table]:
        rows = [["pairs", f"{self.pairs:,}"], ["alignment points", f"{self.points:,}"]]
        rows += [[f"left out: {reason}", f"{number:,}"] for reason, number in self.left_out.items()]
        rows += [[name, f"{value:.1%}"] for name, value in self.rates.items()]
        return [Table(["", ""], rows, f"from the attention of {self.settings}" if self.settings is not None else "")]

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write one line of `i-j` for every pair (Pharaoh's format)."""
        write_file(Path(path), "".join(f"{pharaoh(links)}\n" for links in self.alignments), force=force)


def pharaoh(links: Iterable[Link]) -> str:
    """`0-0 1-2`"""
    return " ".join(f"{source}-{target}" for source, target in links)


def align(
    folder: str | Path | None = None,
    source: str | Path | None = None,
    target: str | Path | None = None,
    *,
    hypothesis: str | Path | None = None,
    reverse: str | Path | None = None,
    gold: str | Path | None = None,
    dev: tuple[str, str, str] | None = None,
    layer: int | str | None = None,
    head: int | str | None = None,
    shift: bool | None = None,
    method: str | None = None,
    tag: str = "",
    device: torch.device | str = "auto",
    write: Callable[[list[Link]], None] | None = None,
) -> Alignments:
    """Align the words of a source and a target file by the attention of the model in a folder.

    `reverse` is a model of the other direction, whose attention is multiplied with that of the first. With `gold`
    alignments the alignment error rate is computed. `dev` (source, target, gold) chooses the attention and the method
    with the lowest error rate and saves them in the folders. If `write` is given, it is called with the alignment of
    every pair, and none is kept in memory. Instead of a folder, `hypothesis` is a file of alignments, such as another
    aligner's, to score with `gold`.
    """
    options = {"layer": layer, "head": head, "shift": shift, "method": method}
    chosen: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if hypothesis is not None:
        model_options: dict[str, object] = {"FOLDER": folder, "--reverse": reverse, "--dev": dev, "--tag": tag}
        model_options |= {f"--{name}": True for name in chosen}
        refuse_options(model_options, "is for a model, and --hypothesis is already aligned")
        if gold is None:
            raise ConfigError("--hypothesis is compared with gold alignments: give --gold FILE")
        return _score_file(Path(hypothesis), Path(gold))
    if folder is None or source is None:
        raise ConfigError("give a model folder and texts to align, or --hypothesis FILE and --gold FILE to score")
    if dev and chosen:
        name = next(iter(chosen))
        raise ConfigError(f"--dev chooses the {name}: leave out --{name}")
    forward = Aligner.load(Path(folder), device, tag=tag)
    backward = Aligner.load(Path(reverse), device) if reverse is not None else None
    examples = _read(source, target, gold)
    messages = choose_settings(dev, forward, backward) if dev else []
    for aligner in filter(None, (forward, backward)):
        if backward is not None and aligner.settings.layer is None:
            # Of four layers the mean had an AER of 7.5 %, the second-to-last 9.4 % (built-in corpus).
            aligner.settings = replace(aligner.settings, layer=MEAN)
        aligner.settings = replace(aligner.settings, **chosen)
        aligner.left_out.clear()  # counted while settings were chosen
    alignments: list[list[Link]] = []
    pairs = points = one_word = 0
    matches: Counter[str] = Counter()
    while window := list(islice(examples, WINDOW)):
        texts = [pair for pair, _ in window]
        weights = combined_weights(texts, forward, backward)
        links = [extract_links(x, forward.settings.method) for x in weights]
        pairs, points = pairs + len(links), points + sum(map(len, links))
        for alignment in links:
            (write or alignments.append)(alignment)
        long_words = (line for pair in texts for line in pair if len(line) > LONG_WORD and len(line.split()) == 1)
        one_word += sum(script(line) in UNSPACED_SCRIPTS for line in long_words)
        if gold is not None:
            matches += count_matches(links, [cast(Gold, gold_links) for _, gold_links in window])
    if one_word > pairs / 2:
        advice = "put spaces between their words, as a word segmenter does"
        messages.append(f"{one_word:,} lines have no spaces, so each is one word to align: {advice}")
    return Alignments(
        alignments=alignments,
        pairs=pairs,
        points=points,
        rates=error_rates(matches) if gold is not None else {},
        left_out=dict(forward.left_out | (backward.left_out if backward is not None else Counter())),
        settings=forward.settings,
        reverse_settings=None if backward is None else backward.settings,
        messages=messages,
    )


def _score_file(path: Path, gold: Path) -> Alignments:
    """The alignments in a file, compared with gold alignments."""
    alignments, golds = map(list, zip(*read_alignments_with_gold(path, gold), strict=True))
    words = {word for links in alignments for link in links for word in link}
    messages = []
    if words and 0 not in words and any(0 in link for links in golds for link in links.possible):
        messages = [f"{path} aligns no word 0: if its words are counted from 1, name it {path.stem}.talp"]
    return Alignments(
        alignments=alignments,
        pairs=len(alignments),
        points=sum(map(len, alignments)),
        rates=error_rates(count_matches(alignments, golds)),
        messages=messages,
    )


def _read(
    source: str | Path, target: str | Path | None, gold: str | Path | None
) -> Iterator[tuple[Texts, Gold | None]]:
    """The pairs of these files, with their gold alignments if there are any."""
    from regard.documents.formats import read_pairs  # translators do not need it

    pairs = read_pairs(str(source), None if target is None else str(target))
    aligned = ((pair, None) for pair in pairs) if gold is None else read_gold(pairs, Path(gold))
    return (((pair.source, pair.target), links) for pair, links in aligned)


@dataclass
class Aligner:
    """A model with its tokenizers, and the settings by which its attention is read."""

    folder: Path
    model: nn.Module
    tokenizers: Tokenizers
    config: Config
    settings: AlignmentSettings
    tag: str
    left_out: Counter[str] = field(default_factory=Counter)  # pairs without an alignment, by reason

    @classmethod
    def load(cls, folder: Path, device: torch.device | str, *, tag: str = "") -> Aligner:
        """The model of a folder with its saved settings."""
        families = ("rnn", "transformer")
        (model, *_), tokenizers, config = load_ensemble(folder, device, families, "has no cross-attention")
        if config.model.score == "none":
            raise ConfigError(f"{folder} holds an rnn without attention: there is nothing to align with")
        if tag and tag not in tokenizers.source.tags:
            raise ConfigError(f"{folder} was not trained with the tag {tag}")
        return cls(folder, model, tokenizers, config, AlignmentSettings.load(folder, config), tag)

    def traces(self, pairs: Sequence[Texts]) -> Iterator[tuple[int, Trace]]:
        """The traces of all pairs in batches of similar length, with their numbers.

        Pairs with an empty side have none; those that are too long are counted in `left_out`.
        """
        sources = [f"{self.tag} {source}" if self.tag else source for source, _ in pairs]
        targets = [target for _, target in pairs]
        source_ids = self.tokenizers.source.encode_batch(sources)
        target_ids = self.tokenizers.target.encode_batch(targets)
        model = self.config.model
        max_length = min([self.config.text.max_length, *[model.max_positions - 1] * model.has_position_table])
        fitting = []
        for number, pair in enumerate(pairs):
            if max(len(source_ids[number]), len(target_ids[number])) > max_length:
                self.left_out[f"longer than {max_length} tokens"] += 1
            elif all(text.strip() for text in pair) and source_ids[number] and target_ids[number]:
                fitting.append(number)

        def trace_batch(batch: Sequence[int]) -> list[Trace]:
            return trace(
                self.model,
                [[*source_ids[number], self.tokenizers.source.special.end] for number in batch],
                [Hypothesis(target_ids[number], 0.0, 0.0, True, []) for number in batch],
                self.tokenizers,
                texts=[sources[number] for number in batch],
                target_texts=[targets[number] for number in batch],
                top=0,
            )

        sizes = [len(source_ids[number]) + len(target_ids[number]) + 2 for number in fitting]
        limit = BATCH_TOKENS[next(self.model.parameters()).device.type]
        for places in batch_by_length(sizes, ["\n".join(pairs[number]) for number in fitting], limit):
            batch = [fitting[place] for place in places]
            traces = [traced for part in in_parts(trace_batch, batch, in_halves) for traced in part]
            for number, traced in zip(batch, traces, strict=True):
                source_words = _space_separated(traced.source, self.tag)
                yield number, replace(traced, source=source_words, target=_space_separated(traced.target))


def _space_separated(side: Side, tag: str = "") -> Side:
    """A side whose words are those between spaces, also in scripts without spaces; the tag counts as special."""
    words = side.text.split()
    word_of_token = [len(words) if side.special[word] else min(word, len(words) - 1) for word in side.word]
    special = [bool(tag), *[False] * (len(words) - 1), True]
    return side._replace(words=[*words, SPECIALS[END]], word=word_of_token, special=special)


def combined_weights(pairs: Sequence[Texts], forward: Aligner, backward: Aligner | None = None) -> list[Tensor]:
    """For every pair, the attention of target words to source words (T, S); zeros where there is none.

    The weights of two models are multiplied, so a link needs both.
    """
    weights = [torch.zeros(len(target.split()), len(source.split())) for source, target in pairs]
    for number, traced in forward.traces(pairs):
        weights[number] = attention_weights(traced, [forward.settings])[0]
    if backward is None:
        return weights
    reverse_weights = combined_weights([(target, source) for source, target in pairs], backward)
    return [one * other.T for one, other in zip(weights, reverse_weights, strict=True)]


# Choosing settings.


def choose_settings(dev: tuple[str, str, str], forward: Aligner, backward: Aligner | None) -> list[str]:
    """Choose the settings with the lowest AER and save them in the folders; returns messages about them.

    First the layer, head and shift of each model, with one link for every target word; then the method.
    """
    texts, golds = map(list, zip(*_read(*dev), strict=True))
    choose_attention(forward, texts, golds)
    if backward is not None:
        swapped = [Gold(*(frozenset((target, source) for source, target in links) for links in gold)) for gold in golds]
        choose_attention(backward, [(target, source) for source, target in texts], swapped)
    weights = combined_weights(texts, forward, backward)
    rates = {}
    for method in METHODS:
        rates[method] = error_rates(count_matches([extract_links(x, method) for x in weights], golds))
    best = min(METHODS, key=lambda method: rates[method]["aer"])
    forward.settings = replace(forward.settings, method=best)
    messages = []
    for aligner in filter(None, (forward, backward)):
        aligner.settings.save(aligner.folder)
        messages.append(f"{aligner.folder}: attention of {aligner.settings}")
    return [*messages, f"on {dev[0]}: {format_rates(rates[best])}"]


def choose_attention(aligner: Aligner, pairs: Sequence[Texts], golds: Sequence[Gold]) -> None:
    """Choose the layer, head and shift with the lowest AER, with one link for every target word."""
    model = aligner.config.model
    layers, heads = (model.decoder_layers, model.heads) if model.family == "transformer" else (1, 1)
    places: list[tuple[int | str, int | str]]
    places = [(MEAN, MEAN), *product(range(layers), [MEAN]), *product(range(layers), range(heads))]
    candidates = [AlignmentSettings(layer, head, shift) for shift in (False, True) for layer, head in places]
    links: list[list[list[Link]]] = [[[] for _ in pairs] for _ in candidates]
    for number, traced in aligner.traces(pairs):
        for candidate_links, weights in zip(links, attention_weights(traced, candidates), strict=True):
            candidate_links[number] = best_links(weights)
    errors = [error_rates(count_matches(candidate_links, golds))["aer"] for candidate_links in links]
    best = errors.index(min(errors))  # ties go to the simplest, the first
    aligner.settings = replace(candidates[best], method=aligner.settings.method)
