"""Trace: one record of what a model read, wrote and attended to, for any family and any search.

L layers, H heads, S source tokens, T target tokens, k alternatives, B sentences, V vocabulary.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from regard.errors import DataError, InputError
from regard.folders import clear_os_errors, write_file
from regard.models.contract import Generator, Record
from regard.text.scripts import UNSPACED_SCRIPTS, script
from regard.text.tokenizer import END, PAD, SPECIALS, START, TEXTLESS_TOKENS, Tokenizer, Tokenizers

if TYPE_CHECKING:
    from regard.decoding import Encoded, Hypothesis, Tree
    from regard.models import BERT

KINDS = ("encoder", "decoder", "cross")
FORMAT = "regard trace 1"
NONSPACE = re.compile(r"\S+")


class Side(NamedTuple):
    """The tokens of a text, and the words they belong to."""

    text: str
    ids: list[int]
    subwords: list[str]
    """The text of each token with the space before it, or the name of a special token."""
    words: list[str]
    """Separated by spaces; a special token is a word of its own. In scripts without spaces, every token."""
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
    """[layer, head, target, source] by "encoder", "decoder", "cross", as far as the model has them."""
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

    def rows(self, kind: str) -> Side:
        """The tokens that attend."""
        return self.source if self._check_kind(kind) == "encoder" else self.target

    def columns(self, kind: str) -> Side:
        """The tokens that are attended to; for "decoder" all tokens before the last step."""
        if self._check_kind(kind) != "decoder":
            return self.source
        start = Side("", [START], [SPECIALS[START]], [SPECIALS[START]], [0], [True])
        return _join(self.source if self.family == "gpt" else start, self.target)

    def by_word(self, kind: str) -> Tensor:
        """[layer, head, word, word]: summed over the subwords of key words, averaged over those of query words."""
        rows, columns = self.rows(kind), self.columns(kind)
        return sum_by_word(self.attention[kind], rows, columns) / tokens_per_word(rows)[:, None]

    def _check_kind(self, kind: str) -> str:
        if kind not in self.attention:
            kinds = " and ".join(self.attention) or "none"
            raise InputError(f"this trace of a {self.family} has no attention {kind!r}: it has {kinds}")
        return kind

    def as_json(self) -> dict[str, Any]:
        """The trace as plain values, ready for JSON."""
        return self._metadata() | {name: _to_plain(tensor) for name, tensor in self._tensors().items()}

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write one `.safetensors` or `.json` file, which `Trace.load` reads without the model."""
        path = Path(path)
        if _is_json(path):
            write_file(path, json.dumps(self.as_json(), ensure_ascii=False) + "\n", force=force)
        else:
            # One key: the library writes several in an order that changes from process to process.
            metadata = {"trace": json.dumps(self._metadata(), ensure_ascii=False)}
            write_file(path, save(self._tensors(), metadata=metadata), force=force)

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Read and check the trace in a file."""
        path = Path(path)
        values = _read_json(path) if _is_json(path) else _read_safetensors(path)
        try:
            return cls.from_json(values)
        except DataError as error:
            raise DataError(f"{path} is not a valid trace: {error}") from error

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Trace:
        """The trace from the values that `as_json` returned."""
        if values.get("format") != FORMAT:
            raise DataError(f"its format is {values.get('format')!r}, not {FORMAT!r}")
        try:
            trace = _parse(values)
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError) as error:
            message = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise DataError(message) from error
        _check(trace)
        return trace

    def _metadata(self) -> dict[str, Any]:
        """Everything but the tensors."""
        return {
            "format": FORMAT,
            "family": self.family,
            "source": self.source._asdict(),
            "target": self.target._asdict(),
            "score": self.score,
            "finished": self.finished,
            "alternatives": [[list(alternative[:2]) for alternative in step] for step in self.alternatives],
            "tree": [[list(branch) for branch in step] for step in self.tree],
        }

    def _tensors(self) -> dict[str, Tensor]:
        logs = [[alternative.log_probability for alternative in step] for step in self.alternatives]
        return {
            **{f"attention.{kind}": weights.contiguous() for kind, weights in self.attention.items()},
            **{f"hidden.{name}": states.contiguous() for name, states in self.hidden.items()},
            "log_probabilities": self.log_probabilities.contiguous(),
            "alternative_log_probabilities": torch.tensor(logs, dtype=torch.float32).reshape(
                len(logs), len(logs[0]) if logs else 0
            ),
        }


def sum_by_word(tokens: Tensor, rows: Side, columns: Side) -> Tensor:
    """[..., row word, column word] from [..., row, column] tokens, summed over the subwords of both."""
    index = torch.tensor(columns.word, dtype=torch.int64)
    summed = tokens.new_zeros(*tokens.shape[:-1], len(columns.words)).index_add_(-1, index, tokens)
    return sum_rows_by_word(summed, rows)


def sum_rows_by_word(tokens: Tensor, rows: Side) -> Tensor:
    """[..., row word, column] from [..., row, column], summed over the subwords of the rows."""
    index = torch.tensor(rows.word, dtype=torch.int64)
    return tokens.new_zeros(*tokens.shape[:-2], len(rows.words), tokens.shape[-1]).index_add_(-2, index, tokens)


def tokens_per_word(side: Side) -> Tensor:
    """How many tokens each word has, at least 1."""
    return torch.bincount(torch.tensor(side.word, dtype=torch.int64), minlength=len(side.words)).clamp(min=1)


# Making traces by teacher forcing.


@torch.inference_mode()
def trace(
    model: Generator,
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

    `sources` are the ids that it read, with the end token; of a gpt, the whole prompt. With `encoded`, the
    encoder output that a search of the same sources kept, the encoder does not run again. `texts` are those of the
    sources and `target_texts` those of the hypotheses; by default both are decoded from ids. For an ensemble pass one
    model.
    """
    if not sources:
        return []
    family, device = _family_and_device(model)
    targets = [[*hypothesis.tokens, END] for hypothesis in hypotheses]
    record: Record = {}
    if family == "gpt":
        inputs, _ = pad([[*source, *target[:-1]] for source, target in zip(sources, targets, strict=True)], device)
        state = model.start(inputs[:, :0])
    else:
        inputs, _ = pad([[START, *target[:-1]] for target in targets], device)
        if encoded is None:
            state = model.start(*pad(sources, device), record)
        else:
            state, record = encoded.state, dict(encoded.record)
    logits, _ = model.step(inputs, state, record)
    starts = [len(source) - 1 if family == "gpt" else 0 for source in sources]  # the step that wrote the first token
    known: Sequence[str | None] = target_texts or [None] * len(targets)
    sides = [make_side(tokenizers.target, target, text) for target, text in zip(targets, known, strict=True)]
    steps = _steps(logits, starts, targets, top)
    make = _TraceMaker(family, sources, texts, tokenizers, record, hidden)
    return [
        make(
            row,
            sides[row],
            starts[row],
            *steps[row],
            score=hypotheses[row].score,
            finished=hypotheses[row].finished,
            tree=[] if trees is None else _tree(trees[row], tokenizers.target),
        )
        for row in range(len(sources))
    ]


@torch.inference_mode()
def trace_encoder(
    model: BERT,
    sources: Sequence[Sequence[int]],
    tokenizer: Tokenizer,
    *,
    texts: Sequence[str] | None = None,
    hidden: bool = False,
    top: int = 5,
) -> list[Trace]:
    """Trace a bert on texts of ids; its steps are the predictions of its masked-token head, if it has one."""
    if not sources:
        return []
    family, device = _family_and_device(model)
    record: Record = {}
    tokens, mask = pad(sources, device)
    encoded = model.encode(tokens, mask=mask, record=record)
    steps: list[tuple[Tensor, Best]] = [(torch.zeros(0), [])] * len(sources)
    if model.head is not None:
        steps = _steps(model.logits(encoded), [0] * len(sources), sources, top)
    make = _TraceMaker(family, sources, texts, Tokenizers(tokenizer, tokenizer), record, hidden)
    empty = make_side(tokenizer, [])
    return [make(row, empty, 0, *steps[row], score=0.0, finished=True, tree=[]) for row in range(len(sources))]


Best = list[list[tuple[int, float]]]
"""Ids and their log-probabilities, best first, for every step."""


class _TraceMaker:
    """Makes the traces of a batch from what a model recorded."""

    def __init__(
        self,
        family: str,
        sources: Sequence[Sequence[int]],
        texts: Sequence[str] | None,
        tokenizers: Tokenizers,
        record: Record,
        hidden: bool,
    ) -> None:
        self.family, self.sources, self.texts, self.tokenizers = family, sources, texts, tokenizers
        self.attention, self.hidden = _collect(record, hidden)

    def __call__(
        self, row: int, target: Side, start: int, log_probabilities: Tensor, best: Best, **values: Any
    ) -> Trace:
        source, text = self.sources[row], None if self.texts is None else self.texts[row]
        bounds = (row, start, len(source), len(target.ids))
        return Trace(
            family=self.family,
            source=make_side(self.tokenizers.source, source, text),
            target=target,
            attention=_cut(self.attention, *bounds),
            hidden=_cut(self.hidden, *bounds),
            log_probabilities=log_probabilities,
            alternatives=_alternatives(best, target.ids or source, self.tokenizers.target),
            **values,
        )


def _family_and_device(model: object) -> tuple[str, torch.device]:
    module = cast(Any, model)
    return module.config.family, next(module.parameters()).device


def pad(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor | None]:
    """(B, longest) ids and their mask, None where there is no padding."""
    width = max(map(len, rows))
    ids = torch.tensor([[*row, *[PAD] * (width - len(row))] for row in rows], device=device)
    lengths = torch.tensor([[len(row)] for row in rows], device=device)
    return ids, None if all(len(row) == width for row in rows) else torch.arange(width, device=device) < lengths


def _steps(
    logits: Tensor, starts: Sequence[int], targets: Sequence[Sequence[int]], top: int
) -> list[tuple[Tensor, Best]]:
    """The log-probabilities of the targets' tokens and of the best tokens, from (B, longest, V)."""
    positions = [(row, start + step) for row, start in enumerate(starts) for step in range(len(targets[row]))]
    rows, columns = torch.tensor(positions, device=logits.device).T
    chosen = logits[rows, columns].float()
    ids = torch.tensor([number for target in targets for number in target], device=logits.device)
    total = chosen.logsumexp(-1, keepdim=True)
    log_probabilities = (chosen.gather(1, ids[:, None]) - total)[:, 0].cpu()
    values, best = chosen.topk(min(top, chosen.shape[-1]))
    pairs = [list(zip(*step, strict=True)) for step in zip(best.tolist(), (values - total).tolist(), strict=True)]
    ends = list(accumulate(map(len, targets)))
    return [
        (log_probabilities[start:end].clone(), pairs[start:end]) for start, end in zip([0, *ends], ends, strict=False)
    ]


def _collect(record: Record, hidden: bool) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Attention by kind as (B, L, H, .., ..), and hidden states by name, in float32 on the CPU."""
    attention = {}
    for kind, name in (("encoder", "encoder.{}.self"), ("decoder", "decoder.{}.self"), ("cross", "decoder.{}.cross")):
        layers = [record[key] for layer in range(len(record)) if (key := name.format(layer)) in record]
        if layers:
            attention[kind] = torch.stack(layers, 1).float().cpu()
    states = {name: x.float().cpu() for name, x in record.items() if not name.endswith((".self", ".cross"))}
    return attention, states if hidden else {}


def _cut(tensors: dict[str, Tensor], row: int, start: int, source: int, target: int) -> dict[str, Tensor]:
    """The part of each tensor that belongs to one sentence, without padding."""
    read, written = slice(0, source), slice(start, start + target)
    axes = {"encoder": (read, read), "decoder": (written, slice(0, start + target)), "cross": (written, read)}
    return {
        name: tensor[(row, slice(None), slice(None), *axes[name])].clone()
        if name in axes
        else tensor[row, read if name.startswith("encoder") else written].clone()
        for name, tensor in tensors.items()
    }


def _alternatives(best: Best, ids: Sequence[int], tokenizer: Tokenizer) -> list[list[Alternative]]:
    alternatives = []
    for previous, step in zip([START, *ids], best, strict=False):
        subwords = tokenizer.token_texts([number for number, _ in step], previous)
        alternatives.append(
            [Alternative(number, text, log) for (number, log), text in zip(step, subwords, strict=True)]
        )
    return alternatives


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
            after = previous[parents[parent]].id if parent >= 0 else START
            (subword,) = tokenizer.token_texts([token], after)
            branches.append(Branch(parents[parent], token, subword, log_probability, kept))
        steps.append(branches)
    return steps


# Words.


def make_side(tokenizer: Tokenizer, ids: Sequence[int], text: str | None = None) -> Side:
    """The subwords and words of token ids, in the text they were made from, or in the one they decode to."""
    text, starts = tokenizer.token_starts(ids, text)
    in_text = [number not in TEXTLESS_TOKENS for number in ids]
    ends = [*starts[1:], len(text)][: len(ids)]
    subwords = [
        text[start:end] if shown else SPECIALS[number]
        for number, shown, start, end in zip(ids, in_text, starts, ends, strict=True)
    ]
    spans = _word_spans(text, starts, in_text)
    words, word, special = list[str](), list[int](), list[bool]()
    numbers: list[int] = []  # of the words of the text among all words
    for number, start, shown in zip(ids, starts, in_text, strict=True):
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
            words.append(text if shown else SPECIALS[number])
            special.append(not shown)
    return Side(text, list(ids), subwords, words, word, special)


def _word_spans(text: str, starts: Sequence[int], in_text: Sequence[bool]) -> list[tuple[int, int]]:
    """Where the words of a text begin and end."""
    if len(text.split()) == 1 and script(text) in UNSPACED_SCRIPTS:
        edges = sorted({start for start, shown in zip(starts, in_text, strict=True) if shown} | {len(text)})
        return list(pairwise(edges))
    return [match.span() for match in NONSPACE.finditer(text)]


def _join(first: Side, target: Side) -> Side:
    """The first side followed by all tokens of the target but the last, which is a word of its own."""
    words = len(first.words)
    return Side(
        first.text + target.text,
        first.ids + target.ids[:-1],
        first.subwords + target.subwords[:-1],
        first.words + target.words[:-1],
        first.word + [words + word for word in target.word[:-1]],
        first.special + target.special[:-1],
    )


# Reading files, whose contents are not trusted.


def _is_json(path: Path) -> bool:
    if path.suffix not in (".json", ".safetensors"):
        raise InputError(f"{path} must end in .safetensors or .json: a trace is saved as one of these")
    return path.suffix == ".json"


def _read_json(path: Path) -> dict[str, Any]:
    with clear_os_errors(path, "read"):
        data = path.read_bytes()
    return _decode_json(data, path)


def _read_safetensors(path: Path) -> dict[str, Any]:
    try:
        with clear_os_errors(path, "read"):
            path.stat()  # the library's own error says less
        with clear_os_errors(path, "read"), safe_open(path, "pt") as file:
            metadata = (file.metadata() or {}).get("trace")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise DataError(f"{path} is damaged, truncated or not a safetensors file: {error}") from error
    if metadata is None:
        raise DataError(f"{path} holds tensors but no trace")
    return _decode_json(metadata, path) | tensors


def _decode_json(data: str | bytes, path: Path) -> dict[str, Any]:
    try:
        values = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is damaged or truncated: {error}") from error
    if not isinstance(values, dict):
        raise DataError(f"{path} is not a trace: it holds a {type(values).__name__}")
    return values


def _to_plain(tensor: Tensor) -> dict[str, Any]:
    """Nine digits restore a float32 exactly."""
    return {"shape": list(tensor.shape), "values": [float(f"{value:.9g}") for value in tensor.flatten().tolist()]}


def _to_tensor(value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        shape = [int(size) for size in value["shape"]]
        value = torch.tensor(value["values"], dtype=torch.float32).reshape(shape)
    if value.dtype != torch.float32:
        raise ValueError(f"a tensor holds {str(value.dtype).removeprefix('torch.')}, not float32")
    return cast(Tensor, value)


def _parse(values: Mapping[str, Any]) -> Trace:
    def named(prefix: str) -> dict[str, Tensor]:
        return {name.removeprefix(prefix): _to_tensor(x) for name, x in values.items() if name.startswith(prefix)}

    logs = _to_tensor(values["alternative_log_probabilities"]).tolist()
    return Trace(
        family=_typed(values["family"], str),
        source=_parse_side(values["source"]),
        target=_parse_side(values["target"]),
        attention=named("attention."),
        hidden=named("hidden."),
        log_probabilities=_to_tensor(values["log_probabilities"]),
        alternatives=[
            [
                Alternative(_typed(number, int), _typed(subword, str), log)
                for (number, subword), log in zip(step, step_logs, strict=True)
            ]
            for step, step_logs in zip(values["alternatives"], logs, strict=True)
        ],
        score=float(values["score"]),
        finished=_typed(values["finished"], bool),
        tree=[[_parse_branch(*branch) for branch in step] for step in values["tree"]],
    )


def _typed(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise ValueError(f"{value!r:.40} is not a {kind.__name__}")
    return value


def _parse_side(values: dict[str, Any]) -> Side:
    kinds = {"ids": int, "subwords": str, "words": str, "word": int, "special": bool}
    lists = {name: [_typed(x, kind) for x in _typed(values[name], list)] for name, kind in kinds.items()}
    side = Side(text=_typed(values["text"], str), **lists)
    if not len(side.ids) == len(side.subwords) == len(side.word) or len(side.words) != len(side.special):
        raise ValueError("the numbers of its tokens, subwords and words do not match")
    if not all(0 <= word < len(side.words) for word in side.word):
        raise ValueError("a token belongs to a word that does not exist")
    return side


def _parse_branch(parent: Any, number: Any, subword: Any, log_probability: Any, kept: Any) -> Branch:
    tail = float(log_probability), _typed(kept, bool)
    return Branch(_typed(parent, int), _typed(number, int), _typed(subword, str), *tail)


def _check(trace: Trace) -> None:
    """Check that every tensor has the shape that the tokens require."""
    steps = len(trace.target.ids) or len(trace.log_probabilities)
    if trace.log_probabilities.shape != (steps,) or len(trace.alternatives) not in (0, steps):
        raise DataError(f"it has {len(trace.alternatives)} steps for {steps} tokens")
    for kind, weights in trace.attention.items():
        if kind not in KINDS:
            raise DataError(f"there is no attention {kind!r}: it can be {', '.join(KINDS)}")
        axes = (len(trace.rows(kind).ids), len(trace.columns(kind).ids))
        if weights.dim() != 4 or tuple(weights.shape[2:]) != axes:
            shape = tuple(weights.shape)
            raise DataError(f"its attention {kind!r} has the shape {shape}, not (layers, heads, {axes[0]}, {axes[1]})")
    for name, states in trace.hidden.items():
        tokens = len((trace.source if name.startswith("encoder") else trace.target).ids)
        if states.dim() != 2 or len(states) != tokens:
            raise DataError(f"its hidden states {name!r} have the shape {tuple(states.shape)}, not ({tokens}, size)")
    for step, branches in enumerate(trace.tree):
        parents = len(trace.tree[step - 1]) if step else 0
        if any(not -1 <= branch.parent < parents for branch in branches):
            raise DataError(f"step {step} of its tree continues a branch that does not exist")
    if not math.isfinite(trace.score):
        raise DataError("its score is not finite")
