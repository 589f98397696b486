"""Trace: one record of what a model read, wrote and attended to, for any family and any search.

L layers, H heads, S source tokens, T target tokens, k alternatives, B sentences, V vocabulary.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from safetensors.torch import save
from torch import Tensor, nn

from regard.decoding import Encoded, Hypothesis, Tree
from regard.errors import InputError
from regard.folders import write_file
from regard.models import BERT, GPT, Generator
from regard.models.contract import Record
from regard.text.batching import pad
from regard.text.scripts import UNSPACED_SCRIPTS, script
from regard.text.tokenizer import OWN_SPECIAL_IDS, SPECIALS, START, SpecialIds, Tokenizer, Tokenizers

KINDS = {"encoder": "encoder.{}.self", "decoder": "decoder.{}.self", "cross": "decoder.{}.cross"}
"""The kinds of attention, and their names in a `Record`."""
FORMAT = "regard trace 1"
NONSPACE = re.compile(r"\S+")


class Side(NamedTuple):
    """The tokens of a text, and the words they belong to."""

    text: str
    ids: list[int]
    subwords: list[str]
    """The text of each token with the space before it, or the name of a special token."""
    words: list[str]
    """Words are separated by spaces; a special token is a word. In scripts without spaces, every token is a word."""
    word: list[int]
    """The number of the word that each token belongs to."""
    special: list[bool]
    """Which of the words are special tokens, such as </s>."""


class Alternative(NamedTuple):
    """A token that could have been written in a step."""

    id: int
    subword: str
    log_probability: float


class Branch(NamedTuple):
    """One candidate of one step of a beam search, as in `decoding.Branch`, with its subword."""

    parent: int
    id: int
    subword: str
    log_probability: float
    kept: bool


@dataclass(frozen=True, eq=False)
class Trace:
    """The attention, probabilities and hidden states of one sentence.

    Row t of "cross" and "decoder" attention is the step that wrote target token t; `rows` and `columns` name both axes.
    A bert has no target: its steps are the predictions for every source token.
    """

    family: str
    source: Side
    target: Side
    """With the end token; empty for a bert."""
    attention: dict[str, Tensor]
    """[layer, head, target, source] by kind: those of "encoder", "decoder" and "cross" that the model has."""
    hidden: dict[str, Tensor]
    """[token, size] by the names of `models.contract.Record`, if requested."""
    log_probabilities: Tensor
    """(T,)"""
    alternatives: list[list[Alternative]]
    """The most probable tokens of every step, best first."""
    score: float
    """The score by which the search ranked the hypothesis."""
    finished: bool
    """Whether it ended with the end token."""
    tree: list[list[Branch]]
    """All branches of a beam search step by step, if requested."""
    special: SpecialIds = OWN_SPECIAL_IDS
    """The special tokens of what is written."""

    def rows(self, kind: str) -> Side:
        """The tokens that attend."""
        return self.source if kind == "encoder" else self.target

    def columns(self, kind: str) -> Side:
        """The tokens that are attended to; for "decoder" all tokens before the last step."""
        if kind != "decoder":
            return self.source
        start = Side("", [self.special.start], [SPECIALS[START]], [SPECIALS[START]], [0], [True])
        return _join(self.source if self.family == "gpt" else start, self.target)

    def by_word(self, kind: str) -> Tensor:
        """[layer, head, word, word]: summed over the subwords of key words, averaged over those of query words."""
        self.check_kind(kind)
        return average_by_word(self.attention[kind], self.rows(kind), self.columns(kind))

    def split_punctuation(self) -> Trace:
        """The same trace with the punctuation before and after a word as words of their own, where tokens allow it."""
        return dataclasses.replace(self, source=split_punctuation(self.source), target=split_punctuation(self.target))

    def check_kind(self, kind: str) -> None:
        """Raise an InputError if the model has no attention of this kind."""
        if kind not in self.attention:
            kinds = " and ".join(self.attention) or "none"
            raise InputError(f"this trace of a {self.family} has no attention {kind!r}: it has {kinds}")

    def as_json(self) -> dict[str, Any]:
        """The trace as plain values, ready for JSON; nine digits restore a float32 exactly."""
        return self._metadata() | {
            name: {"shape": list(tensor.shape), "values": [float(f"{x:.9g}") for x in tensor.flatten().tolist()]}
            for name, tensor in self._tensors().items()
        }

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write one `.safetensors` file, whose metadata has all but the tensors, or one `.json` file."""
        path = Path(path)
        if path.suffix.lower() == ".json":
            return write_file(path, json.dumps(self.as_json(), ensure_ascii=False) + "\n", force=force)
        if path.suffix.lower() != ".safetensors":
            raise InputError(f"{path} must end in .safetensors or .json: a trace is saved as one of these")
        # One key: the library writes several in an order that changes from process to process.
        metadata = {"trace": json.dumps(self._metadata(), ensure_ascii=False)}
        return write_file(path, save(self._tensors(), metadata=metadata), force=force)

    def _metadata(self) -> dict[str, Any]:
        """Everything but the tensors."""
        return {
            "format": FORMAT,
            "family": self.family,
            "source": self.source._asdict(),
            "target": self.target._asdict(),
            "score": self.score,
            "finished": self.finished,
            "special": list(self.special),
            "alternatives": [[list(alternative[:2]) for alternative in step] for step in self.alternatives],
            "tree": [[list(branch) for branch in step] for step in self.tree],
        }

    def _tensors(self) -> dict[str, Tensor]:
        logs = torch.tensor([[alternative.log_probability for alternative in step] for step in self.alternatives])
        return {
            **{f"attention.{kind}": weights.contiguous() for kind, weights in self.attention.items()},
            **{f"hidden.{name}": states.contiguous() for name, states in self.hidden.items()},
            "log_probabilities": self.log_probabilities.contiguous(),
            "alternative_log_probabilities": logs if self.alternatives else logs.reshape(0, 0),
        }


def sum_by_word(tokens: Tensor, rows: Side) -> Tensor:
    """[..., word, column] from [..., token, column], summed over the subwords of each word."""
    index = torch.tensor(rows.word, dtype=torch.int64)
    return tokens.new_zeros(*tokens.shape[:-2], len(rows.words), tokens.shape[-1]).index_add_(-2, index, tokens)


def average_by_word(tokens: Tensor, rows: Side, columns: Side | None = None) -> Tensor:
    """[..., word, column]: averaged over the subwords of rows, and summed over those of columns if they are given."""
    if columns is not None:
        tokens = sum_by_word(tokens.mT, columns).mT
    counts = torch.bincount(torch.tensor(rows.word, dtype=torch.int64), minlength=len(rows.words)).clamp(min=1)
    return sum_by_word(tokens, rows) / counts[:, None]


# Making traces by teacher forcing.


@torch.no_grad()  # not inference_mode: its tensors cannot be used to train a probe
def trace(
    model: nn.Module | Generator,
    sources: Sequence[Sequence[int]],
    hypotheses: Sequence[Hypothesis],
    tokenizers: Tokenizers,
    *,
    encoded: Encoded | None = None,
    texts: Sequence[str] | None = None,
    target_texts: Sequence[str] | None = None,
    trees: Sequence[Tree] | None = None,
    hidden: bool = False,
    top: int = 5,
) -> list[Trace]:
    """Trace a model on each of its hypotheses by one teacher-forced pass over all of them.

    `sources` are the ids that it read, with the end token; of a gpt, the whole prompt. A bert has no hypotheses: its
    steps are the predictions of its masked-token head, if it has one. With `encoded`, the encoder output that a search
    of the same sources kept, the encoder does not run again. `texts` are those of the sources and `target_texts` those
    of the hypotheses; by default both are decoded from ids. For an ensemble pass one model.
    """
    if not sources:
        return []
    special = tokenizers.target.special
    targets: Sequence[Sequence[int]] = [[*hypothesis.tokens, special.end] for hypothesis in hypotheses]
    written = targets
    if isinstance(model, BERT):
        targets, written = [[]] * len(sources), sources
        hypotheses = [Hypothesis([], 0.0, 0.0, True, [])] * len(sources)
    record: Record = {} if encoded is None else dict(encoded.record)
    logits, starts = teacher_force(model, sources, targets, record, encoded, start=special.start)
    steps: list[Steps] = [(torch.zeros(0), [])] * len(sources)
    if logits.shape[-1]:
        steps = _steps(logits, starts, written, top, tokenizers.target)
    attention = {}
    for kind, name in KINDS.items():
        layers = [record[key] for layer in range(len(record)) if (key := name.format(layer)) in record]
        if layers:
            attention[kind] = torch.stack(layers, 1).float().cpu()  # (B, L, H, .., ..)
    names = [name for name in record if hidden and not name.endswith((".self", ".cross"))]
    states = {name: record[name].float().cpu() for name in names}
    traces = []
    for row, (source_ids, target_ids) in enumerate(zip(sources, targets, strict=True)):
        read, wrote = slice(0, len(source_ids)), slice(starts[row], starts[row] + len(target_ids))
        axes = {"encoder": (read, read), "decoder": (wrote, slice(0, wrote.stop)), "cross": (wrote, read)}
        traces.append(
            Trace(
                family=cast(Any, model).config.family,
                source=make_side(tokenizers.source, source_ids, texts[row] if texts else None),
                target=make_side(tokenizers.target, target_ids, target_texts[row] if target_texts else None),
                attention={
                    kind: x[(row, slice(None), slice(None), *axes[kind])].clone() for kind, x in attention.items()
                },
                hidden={
                    name: x[row, read if name.startswith("encoder") else wrote].clone() for name, x in states.items()
                },
                log_probabilities=steps[row][0],
                alternatives=steps[row][1],
                score=hypotheses[row].score,
                finished=hypotheses[row].finished,
                tree=_tree(trees[row], tokenizers.target) if trees else [],
                special=special,
            )
        )
    return traces


def teacher_force(
    model: nn.Module | Generator,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    record: Record | None = None,
    encoded: Encoded | None = None,
    *,
    start: int,
) -> tuple[Tensor, list[int]]:
    """(B, longest, V) logits of a pass over sources and targets, and for each the step of its first target token.
    A decoder begins with the token `start`.

    A bert reads its sources alone; without a head its logits have no vocabulary.
    """
    device = next(cast(nn.Module, model).parameters()).device
    no_offset = [0] * len(sources)
    if isinstance(model, BERT):
        tokens, mask = pad(sources, device)
        states = model.encode(tokens, mask=mask, record=record)
        return states[..., :0] if model.head is None else model.logits(states), no_offset
    writer = cast(Generator, model)
    if isinstance(model, GPT):
        text, _ = pad([[*source, *target[:-1]] for source, target in zip(sources, targets, strict=True)], device)
        return writer.step(text, writer.start(text[:, :0]), record)[0], [len(source) - 1 for source in sources]
    before, _ = pad([[start, *target[:-1]] for target in targets], device)
    state = writer.start(*pad(sources, device), record) if encoded is None else encoded.state
    return writer.step(before, state, record)[0], no_offset


Steps = tuple[Tensor, list[list[Alternative]]]
"""The log-probabilities of a sentence's tokens, and the alternatives of every step."""


def _steps(
    logits: Tensor, starts: Sequence[int], targets: Sequence[Sequence[int]], top: int, tokenizer: Tokenizer
) -> list[Steps]:
    """The log-probabilities of the targets' tokens and of the best tokens, from (B, longest, V)."""
    positions = [(row, start + step) for row, start in enumerate(starts) for step in range(len(targets[row]))]
    rows, columns = torch.tensor(positions, device=logits.device).T
    chosen = logits[rows, columns].float()
    ids = torch.tensor([number for target in targets for number in target], device=logits.device)
    total = chosen.logsumexp(-1, keepdim=True)
    log_probabilities = (chosen.gather(1, ids[:, None]) - total)[:, 0].cpu()
    values, best = chosen.topk(min(top, chosen.shape[-1]))
    previous = [number for target in targets for number in [tokenizer.special.start, *target[:-1]]]
    alternatives = [
        list(map(Alternative, numbers, tokenizer.token_texts(numbers, before), logs))
        for numbers, before, logs in zip(best.tolist(), previous, (values - total).tolist(), strict=True)
    ]
    ends = list(accumulate(map(len, targets)))
    return [
        (log_probabilities[start:end].clone(), alternatives[start:end])
        for start, end in zip([0, *ends], ends, strict=False)
    ]


def _tree(tree: Tree, tokenizer: Tokenizer) -> list[list[Branch]]:
    """The tree with subwords, each as it reads after its parent, without branches that constraints forbade."""
    steps: list[list[Branch]] = []
    new_indices: dict[int, int] = {}
    for step in tree:
        previous, parents = steps[-1] if steps else [], new_indices | {-1: -1}
        allowed = [number for number, branch in enumerate(step) if math.isfinite(branch.log_probability)]
        new_indices = {number: index for index, number in enumerate(allowed)}
        branches = []
        for parent, token, log_probability, kept in (step[number] for number in allowed):
            after = previous[parents[parent]].id if parent >= 0 else tokenizer.special.start
            (subword,) = tokenizer.token_texts([token], after)
            branches.append(Branch(parents[parent], token, subword, log_probability, kept))
        steps.append(branches)
    return steps


# Words.


def make_side(tokenizer: Tokenizer, ids: Sequence[int], text: str | None = None) -> Side:
    """The subwords and words of token ids, in the text they were made from, or in the one they decode to."""
    text, starts = tokenizer.token_starts(ids, text)
    in_text = [number not in tokenizer.special.textless for number in ids]
    ends = [*starts[1:], len(text)][: len(ids)]
    names = tokenizer.tokens(ids)
    subwords = [
        text[start:end] if shown else name for name, shown, start, end in zip(names, in_text, starts, ends, strict=True)
    ]
    spans = [match.span() for match in NONSPACE.finditer(text)]
    tag = spans[: text.startswith(tokenizer.tags)]
    if len(spans) == 1 + len(tag) and script(text[spans[-1][0] :]) in UNSPACED_SCRIPTS:  # every token is a word
        first = spans[-1][0]
        cuts = {max(start, first) for start, end in zip(starts, ends, strict=True) if end > first} | {len(text)}
        spans = [*tag, *pairwise(sorted(cuts))]
    words, word, special = list[str](), list[int](), list[bool]()
    numbers: list[int] = []  # of the words of the text among all words
    for name, start, shown in zip(names, starts, in_text, strict=True):
        if shown and spans:
            letter = len(text) - len(text[start:].lstrip())  # a space belongs to what follows it
            index = max(bisect_right(spans, (letter, len(text))) - 1, 0)
            for span in spans[len(numbers) : index + 1]:
                numbers.append(len(words))
                words.append(text[slice(*span)])
                special.append(False)
            word.append(numbers[index])
        else:
            word.append(len(words))
            words.append(text if shown else name)
            special.append(not shown)
    return Side(text, list(ids), subwords, words, word, special)


def split_punctuation(side: Side) -> Side:
    """A side whose words have no punctuation before or after them: it is a word of its own."""
    if len(set(side.word)) < len(side.words):  # a token spans several words
        return side
    words, word, special = list[str](), list[int](), list[bool]()
    for old, tokens in groupby(range(len(side.ids)), side.word.__getitem__):
        texts = [side.subwords[token].strip() for token in tokens]
        letters = [number for number, text in enumerate(texts) if any(map(str.isalnum, text))]
        around = {letters[0], letters[-1] + 1} if letters else set[int]()
        cuts = [0, *sorted(cut for cut in around if any(texts[:cut]) and any(texts[cut:])), len(texts)]
        parts = ["".join(texts[start:end]) for start, end in pairwise(cuts)]
        if side.special[old] or "".join(parts) != side.words[old]:
            cuts, parts = [0, len(texts)], [side.words[old]]
        for part, (start, end) in zip(parts, pairwise(cuts), strict=True):
            word += [len(words)] * (end - start)
            words.append(part)
            special.append(side.special[old])
    return side._replace(words=words, word=word, special=special)


def _join(first: Side, target: Side) -> Side:
    """The first side, followed by the target without its last token, the end token."""
    words = len(first.words)
    return Side(
        first.text + target.text,
        first.ids + target.ids[:-1],
        first.subwords + target.subwords[:-1],
        first.words + target.words[:-1],
        first.word + [words + word for word in target.word[:-1]],
        first.special + target.special[:-1],
    )
