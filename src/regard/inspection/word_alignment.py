"""Align: the word alignments of pairs of texts, by the attention of one model or of one for each direction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from regard.config import Config
from regard.decoding import Hypothesis
from regard.documents.formats import read_pairs
from regard.errors import ConfigError, refuse_options
from regard.folders import write_file
from regard.inspection.alignment import (
    METHODS,
    AlignmentCounts,
    AlignmentSettings,
    attention_weights,
    best_links,
    candidate_settings,
    count_matches,
    directions,
    symmetrize,
)
from regard.inspection.trace import Side, Trace, trace
from regard.memory import in_halves, in_parts
from regard.models.folder import load_ensemble
from regard.results import Report, Table
from regard.text.alignments import Gold, Link, read_alignments_with_gold, read_gold
from regard.text.ordering import batch_by_length
from regard.text.scripts import UNSPACED_SCRIPTS, script
from regard.text.tokenizer import END, SPECIALS, Tokenizers

WINDOW = 512  # pairs that are read and sorted by length at once
BATCH_TOKENS = {"cpu": 2048, "mps": 8192, "cuda": 32768}  # padded, of both sides
LONG_WORD = 5  # characters; a longer line without spaces is probably a sentence
SAMPLE = 1000  # pairs on which settings are chosen without gold alignments

Texts = tuple[str, str]
"""A source and its target."""


@dataclass(frozen=True, kw_only=True)
class Alignments(Report):
    """The word alignments of a file of pairs."""

    alignments: list[list[Link]]
    """(source word, target word), counted from 0 between spaces; empty if `align` was called with `write`."""
    pairs: int
    points: int
    counts: AlignmentCounts | None
    """Counts for the AER, with gold alignments."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Pairs without an alignment, by reason."""
    settings: AlignmentSettings | None = None
    """None if the alignments were read from a file."""
    reverse_settings: AlignmentSettings | None = None
    messages: Sequence[str] = ()

    @property
    def aer(self) -> float | None:
        """Alignment error rate."""
        return None if self.counts is None else self.counts.aer

    def to_dict(self) -> dict[str, Any]:
        return {
            "pairs": self.pairs,
            "points": self.points,
            **(self.counts.to_dict() if self.counts is not None else {}),
            "left_out": self.left_out,
            **({"settings": asdict(self.settings)} if self.settings is not None else {}),
            **({"reverse": asdict(self.reverse_settings)} if self.reverse_settings is not None else {}),
        }

    def tables(self) -> list[Table]:
        rows = [["pairs", f"{self.pairs:,}"], ["alignment points", f"{self.points:,}"]]
        rows += [[f"left out: {reason}", f"{number:,}"] for reason, number in self.left_out.items()]
        if self.counts is not None:
            rows += [[name, f"{value:.1%}"] for name, value in self.counts.to_dict().items()]
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
    with the lowest error rate and saves them in the folders. Without it, two models use the attention by which they
    agree most. If `write` is given, it is called with the alignment of every pair, and none is kept in memory.
    Instead of a folder, `hypothesis` is a file of alignments, such as another aligner's, to score with `gold`.
    """
    options = {"layer": layer, "head": head, "shift": shift, "method": method}
    chosen: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if hypothesis is not None:
        model_options: dict[str, object] = {"FOLDER": folder, "--reverse": reverse, "--dev": dev, "--tag": tag}
        model_options |= {f"--{name}": True for name in chosen}
        refuse_options(model_options, "is for a model, and --hypothesis is already aligned")
        if gold is None:
            raise ConfigError("--hypothesis is compared with gold alignments: give --gold FILE")
        return score_alignments(Path(hypothesis), Path(gold))
    if folder is None or source is None:
        raise ConfigError("give a model folder and texts to align, or --hypothesis FILE and --gold FILE to score")
    if dev and chosen:
        name = next(iter(chosen))
        raise ConfigError(f"--dev chooses the {name}: leave out --{name}")
    forward = Aligner.load(Path(folder), device, tag=tag)
    backward = Aligner.load(Path(reverse), device) if reverse is not None else None
    examples = _read(source, target, gold)
    messages: list[str] = []
    if dev:
        messages = _choose_by_gold(dev, forward, backward)
    elif backward is not None and not chosen and not (forward.settled and backward.settled):
        sample = list(islice(examples, SAMPLE))
        agreement = choose_by_agreement([texts for texts, _ in sample], forward, backward)
        settings = f"forward {forward.settings}; reverse {backward.settings}"
        messages = [f"attention chosen by agreement: {settings}: they agree on {agreement:.1%} of the links"]
        examples = chain(sample, examples)
    aligners = [forward] if backward is None else [forward, backward]
    for aligner in aligners:
        aligner.settings = replace(aligner.settings, **chosen)
        aligner.left_out.clear()  # counted while settings were chosen
    alignments: list[list[Link]] = []
    pairs = points = 0
    counts, one_word = AlignmentCounts(), Counter[str]()
    while window := list(islice(examples, WINDOW)):
        links = [
            symmetrize(*both, forward.settings.method)
            for both in both_directions([texts for texts, _ in window], forward, backward)
        ]
        pairs, points = pairs + len(links), points + sum(map(len, links))
        for alignment in links:
            (write or alignments.append)(alignment)
        lines = [line for texts, _ in window for line in texts]
        one_word.update(script(line) for line in lines if len(line) > LONG_WORD and len(line.split()) == 1)
        if gold is not None:
            matches = count_matches(links, [cast(Gold, gold_links) for _, gold_links in window])
            counts = AlignmentCounts(*map(sum, zip(counts, matches, strict=True)))
    messages += [
        f"{one_word[name]:,} lines in {name} script have no spaces, so each is one word to align: put spaces between "
        "their words, as a word segmenter does"
        for name in UNSPACED_SCRIPTS
        if one_word[name] > pairs / 2
    ]
    left_out: Counter[str] = Counter()
    for aligner in aligners:
        left_out |= aligner.left_out
    return Alignments(
        alignments=alignments,
        pairs=pairs,
        points=points,
        counts=counts if gold is not None else None,
        left_out=dict(left_out),
        settings=forward.settings,
        reverse_settings=None if backward is None else backward.settings,
        messages=messages,
    )


def score_alignments(path: Path, gold: Path) -> Alignments:
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
        counts=count_matches(alignments, golds),
        messages=messages,
    )


def _read(
    source: str | Path, target: str | Path | None, gold: str | Path | None
) -> Iterator[tuple[Texts, Gold | None]]:
    """The pairs of these files, with their gold alignments if there are any."""
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
    settled: bool
    """Whether the settings come from a file or from guided alignment, so that none are chosen."""
    tag: str
    left_out: Counter[str] = field(default_factory=Counter)
    """Pairs without an alignment, by reason."""

    @classmethod
    def load(cls, folder: Path, device: torch.device | str, *, tag: str = "") -> Aligner:
        """The model of a folder with its saved settings."""
        families = ("rnn", "transformer")
        (model, *_), tokenizers, config = load_ensemble(folder, device, families, "has no cross-attention")
        if config.model.score == "none":
            raise ConfigError(f"{folder} holds an rnn without attention: there is nothing to align with")
        if tag and tag not in tokenizers.source.tags:
            raise ConfigError(f"{folder} was not trained with the tag {tag}")
        saved = AlignmentSettings.load(folder)
        settled = saved is not None or config.train.guided_alignment > 0
        settings = saved or AlignmentSettings.default(config)
        return cls(folder, model, tokenizers, config, settings, settled, tag)

    @property
    def max_length(self) -> int:
        """Tokens that a side may have."""
        model = self.config.model
        return min([self.config.text.max_length, *[model.max_positions - 1] * model.has_position_table])

    def candidates(self, *, averages: bool) -> list[AlignmentSettings]:
        """The settings that can be chosen for this model."""
        model = self.config.model
        layers, heads = (model.decoder_layers, model.heads) if model.family == "transformer" else (1, 1)
        return candidate_settings(layers, heads, averages=averages)

    def weights(self, pairs: Sequence[Texts]) -> list[Tensor]:
        """For every pair, the attention of target words to source words (T, S); zeros where there is none."""
        weights = [torch.zeros(len(target.split()), len(source.split())) for source, target in pairs]
        for number, traced in self.traces(pairs):
            weights[number] = attention_weights(traced, [self.settings])[0]
        return weights

    def traces(self, pairs: Sequence[Texts]) -> Iterator[tuple[int, Trace]]:
        """The traces of all pairs in batches of similar length, with their numbers.

        Pairs with an empty side have none; those that are too long are counted in `left_out`.
        """
        prefix = f"{self.tag} " if self.tag else ""
        texts = [(prefix + source, target) for source, target in pairs]
        sources, targets = (
            tokenizer.encode_batch([pair[side] for pair in texts]) for side, tokenizer in enumerate(self.tokenizers)
        )
        fitting = []
        for number, pair in enumerate(pairs):
            longest = max(len(sources[number]), len(targets[number]))
            if longest > self.max_length:
                self.left_out[f"longer than {self.max_length} tokens"] += 1
            elif all(text.strip() for text in pair) and sources[number] and targets[number]:
                fitting.append(number)

        def trace_batch(batch: Sequence[int]) -> list[Trace]:
            return trace(
                self.model,
                [[*sources[number], self.tokenizers.source.special.end] for number in batch],
                [Hypothesis(targets[number], 0.0, 0.0, True, []) for number in batch],
                self.tokenizers,
                texts=[texts[number][0] for number in batch],
                target_texts=[texts[number][1] for number in batch],
                top=0,
            )

        sizes = [len(sources[number]) + len(targets[number]) + 2 for number in fitting]
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
    if len(words) + 1 != len(side.words):
        word_of_token = [len(words) if side.special[word] else min(word, len(words) - 1) for word in side.word]
        special = [*[False] * len(words), True]
        side = side._replace(words=[*words, SPECIALS[END]], word=word_of_token, special=special)
    return side._replace(special=[True, *side.special[1:]]) if tag else side


def both_directions(
    pairs: Sequence[Texts], forward: Aligner, backward: Aligner | None = None
) -> list[tuple[list[Link], list[Link]]]:
    """The links of both directions of each pair. The weights of two models are multiplied, so a link needs both."""
    weights = forward.weights(pairs)
    if backward is not None:
        back = backward.weights([(target, source) for source, target in pairs])
        weights = [here * there.T for here, there in zip(weights, back, strict=True)]
    return list(map(directions, weights))


# Choosing settings.


def _choose_by_gold(dev: tuple[str, str, str], forward: Aligner, backward: Aligner | None) -> list[str]:
    """Choose settings on gold alignments and save them in the folders; returns a line about each."""
    examples = list(_read(*dev))
    texts, golds = [pair for pair, _ in examples], [cast(Gold, links) for _, links in examples]
    messages = []
    choose_attention(forward, texts, golds)
    if backward is not None:
        swapped = [Gold(_swap(gold.sure), _swap(gold.possible)) for gold in golds]
        choose_attention(backward, [(target, source) for source, target in texts], swapped)
        backward.settings.save(backward.folder)
        messages.append(f"{backward.folder}: attention of {backward.settings}")
    counts = choose_method(texts, golds, forward, backward)
    forward.settings.save(forward.folder)
    return [*messages, f"{forward.folder}: attention of {forward.settings}; on {dev[0]}: {counts}"]


def _swap(links: Iterable[Link]) -> frozenset[Link]:
    """Links with source and target exchanged."""
    return frozenset((target, source) for source, target in links)


def _links_by_settings(
    aligner: Aligner, pairs: Sequence[Texts], candidates: Sequence[AlignmentSettings]
) -> list[list[list[Link]]]:
    """For each of the settings and each pair, one link for every target word; none for pairs without a trace."""
    links: list[list[list[Link]]] = [[[] for _ in pairs] for _ in candidates]
    for number, traced in aligner.traces(pairs):
        for settings_links, weights in zip(links, attention_weights(traced, candidates), strict=True):
            settings_links[number] = best_links(weights)
    return links


def choose_attention(aligner: Aligner, pairs: Sequence[Texts], golds: Sequence[Gold]) -> None:
    """Choose the layer, head and shift with the lowest AER, with one link for every target word."""
    candidates = aligner.candidates(averages=False)
    errors = [count_matches(links, golds).aer for links in _links_by_settings(aligner, pairs, candidates)]
    best = errors.index(min(errors))  # ties go to the simplest, the first
    aligner.settings = replace(candidates[best], method=aligner.settings.method)


def choose_method(
    pairs: Sequence[Texts], golds: Sequence[Gold], forward: Aligner, backward: Aligner | None = None
) -> AlignmentCounts:
    """Choose the symmetrization method with the lowest AER; returns its counts."""
    both = both_directions(pairs, forward, backward)
    counts = {method: count_matches([symmetrize(*pair, method) for pair in both], golds) for method in METHODS}
    best = min(counts, key=lambda method: counts[method].aer)
    forward.settings = replace(forward.settings, method=best)
    return counts[best]


def choose_by_agreement(pairs: Sequence[Texts], forward: Aligner, backward: Aligner) -> float:
    """Without gold, choose the two settings whose links agree most (Chen et al., 2020); returns their agreement.

    Only averages over heads are tried, as in the paper: heads that attend to fixed positions would agree too. Settled
    settings stay.
    """
    candidates = [
        [aligner.settings] if aligner.settled else aligner.candidates(averages=True) for aligner in (forward, backward)
    ]
    forward_links = _links_by_settings(forward, pairs, candidates[0])
    backward_links = _links_by_settings(backward, [(target, source) for source, target in pairs], candidates[1])
    best = 0.0
    for settings, links in zip(candidates[0], forward_links, strict=True):
        for back_settings, back_links in zip(candidates[1], backward_links, strict=True):
            common = sum(len(_swap(one) & set(two)) for one, two in zip(links, back_links, strict=True))
            agreement = 2 * common / max(sum(map(len, links)) + sum(map(len, back_links)), 1)
            if agreement > best:
                best = agreement
                forward.settings = replace(settings, method=forward.settings.method)
                backward.settings = replace(back_settings, method=backward.settings.method)
    return best
