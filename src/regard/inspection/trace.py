"""Trace: one record of what a model did, for any family and any search.

L layers, H heads, S source tokens, T target tokens, k alternatives, B sentences, V vocabulary.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
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


class Side(NamedTuple):
    """The tokens of a text, and the words they are pieces of."""

    text: str
    ids: list[int]
    subwords: list[str]
    """What each token writes, with the blank before it; a special token's name."""
    words: list[str]
    """Separated by blanks; a special token is a word of its own. In scripts without blanks, every token."""
    word: list[int]
    """Which of the words each token belongs to."""
    special: list[bool]
    """Which of the words stand in no text, such as </s>."""


class Alternative(NamedTuple):
    """What could have been written in a step."""

    id: int
    subword: str
    log_probability: float


class Branch(NamedTuple):
    """One candidate of one step of a beam search, as `decoding.Branch` has it, with its piece."""

    parent: int
    id: int
    subword: str
    log_probability: float
    kept: bool


@dataclass(frozen=True, eq=False)
class Trace:
    """What a model read, wrote and looked at.

    Row t of "cross" and "decoder" is the step that wrote target token t; `rows` and `columns` name what stands along
    both axes. A bert has no target: its steps are what its head says of every source token.
    """

    family: str
    source: Side
    target: Side
    """With the end; empty for a bert."""
    attention: dict[str, Tensor]
    """[layer, head, target, source] by "encoder", "decoder", "cross", as far as the model has them."""
    hidden: dict[str, Tensor]
    """[token, size] by the names of `models.contract.Record`, when asked for."""
    log_probabilities: Tensor
    """(T,)"""
    alternatives: list[list[Alternative]]
    """The most probable tokens of every step, best first."""
    score: float
    """What the search ranked the hypothesis by."""
    finished: bool
    """It ended by itself."""
    tree: list[list[Branch]]
    """All branches of a beam search step by step, when asked for."""

    def rows(self, kind: str) -> Side:
        """What looked."""
        return self.source if self._known(kind) == "encoder" else self.target

    def columns(self, kind: str) -> Side:
        """What was looked at: of "decoder" that is all that stood before the last step."""
        if self._known(kind) != "decoder":
            return self.source
        return _joined(self.source if self.family == "gpt" else _begin(), self.target)

    def by_word(self, kind: str) -> Tensor:
        """[layer, head, word, word]: summed over the pieces looked at, averaged over those that looked."""
        rows, columns = self.rows(kind), self.columns(kind)
        weights = self.attention[kind]
        looked_at = weights.new_zeros(*weights.shape[:3], len(columns.words))
        looked_at.index_add_(3, torch.tensor(columns.word, dtype=torch.int64), weights)
        looks = weights.new_zeros(*weights.shape[:2], len(rows.words), len(columns.words))
        looks.index_add_(2, torch.tensor(rows.word, dtype=torch.int64), looked_at)
        pieces = torch.bincount(torch.tensor(rows.word, dtype=torch.int64), minlength=len(rows.words))
        return looks / pieces.clamp(min=1)[:, None]

    def _known(self, kind: str) -> str:
        if kind not in self.attention:
            found = " and ".join(self.attention) or "none"
            raise InputError(f"this trace of a {self.family} has no attention {kind!r}: it has {found}")
        return kind

    # Files.

    def as_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        return self._words() | {name: _plain(tensor) for name, tensor in self._tensors().items()}

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write it as one `.safetensors` or `.json` file, which `Trace.load` reads without the model."""
        path = Path(path)
        if path.suffix == ".json":
            write_file(path, json.dumps(self.as_json(), ensure_ascii=False) + "\n", force=force)
        elif path.suffix == ".safetensors":
            # one key: the library writes several in an order that changes from process to process
            words = {"trace": json.dumps(self._words(), ensure_ascii=False)}
            write_file(path, save(self._tensors(), metadata=words), force=force)
        else:
            raise InputError(f"{path} must end in .safetensors or .json: a trace is saved as one of these")

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """The trace in a file, checked."""
        path = Path(path)
        if path.suffix not in (".json", ".safetensors"):
            raise InputError(f"{path} must end in .safetensors or .json: a trace is saved as one of these")
        words, tensors = _read_json(path) if path.suffix == ".json" else _read_safetensors(path)
        try:
            return cls.from_json(words | tensors)
        except DataError as error:
            raise DataError(f"{path} is not a trace that can be read: {error}") from error

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Trace:
        """The trace that `as_json` gave."""
        if values.get("format") != FORMAT:
            raise DataError(f"its format is {values.get('format')!r}, and {FORMAT!r} is wanted")
        try:
            found = _read(values)
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise DataError(what) from error
        _check(found)
        return found

    def _words(self) -> dict[str, Any]:
        """What is no tensor."""
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
        ranks = [[alternative.log_probability for alternative in step] for step in self.alternatives]
        return {
            **{f"attention.{kind}": weights.contiguous() for kind, weights in self.attention.items()},
            **{f"hidden.{name}": states.contiguous() for name, states in self.hidden.items()},
            "log_probabilities": self.log_probabilities.contiguous(),
            "alternative_log_probabilities": torch.tensor(ranks, dtype=torch.float32).reshape(
                len(ranks), len(ranks[0]) if ranks else 0
            ),
        }


# Making one: a teacher-forced pass over what was chosen.


@torch.inference_mode()
def trace(
    model: Generator, sources: Sequence[Sequence[int]], hypotheses: Sequence[Hypothesis], sides: Tokenizers, *,
    encoded: Encoded | None = None, texts: Sequence[str] | None = None, target_texts: Sequence[str] | None = None,
    trees: Sequence[Tree] | None = None, hidden: bool = False, top: int = 5,
) -> list[Trace]:  # fmt: skip
    """What a model did for each of its hypotheses, by one pass over all of them.

    `sources` are the ids it was given, the end included; of a gpt, the whole prompt. `encoded` is what a search of the
    same sources kept of its reading, which then is not done again. `texts` are those the sources were made from,
    `target_texts` those of hypotheses that were given: without them their words are those the ids stand for. Of several
    models that searched together pass one: attention belongs to one.
    """
    if not sources:
        return []
    family, device = _facts(model)
    targets = [[*hypothesis.tokens, END] for hypothesis in hypotheses]
    begins = [len(source) - 1 if family == "gpt" else 0 for source in sources]  # which step wrote the first token
    record: Record = {}
    if family == "gpt":
        before, _ = padded([[*source, *target[:-1]] for source, target in zip(sources, targets, strict=True)], device)
        state = model.start(before[:, :0])
    else:
        before, _ = padded([[START, *target[:-1]] for target in targets], device)
        if encoded is None:
            state = model.start(*padded(sources, device), record)
        else:
            state, record = encoded.state, dict(encoded.record)
    logits, _ = model.step(before, state, record)
    steps = _steps(logits, begins, targets, top)
    attention, states = _kept(record, hidden)
    known: Sequence[str | None] = target_texts or [None] * len(targets)
    sided = [make_side(sides.target, target, text) for target, text in zip(targets, known, strict=True)]
    return [
        Trace(
            family=family,
            source=make_side(sides.source, sources[row], None if texts is None else texts[row]),
            target=written,
            attention=_cut(attention, row, begin, len(sources[row]), len(written.ids)),
            hidden=_cut(states, row, begin, len(sources[row]), len(written.ids)),
            log_probabilities=steps[row][0],
            alternatives=_named(steps[row][1], written.ids, sides.target),
            score=hypotheses[row].score,
            finished=hypotheses[row].finished,
            tree=[] if trees is None else _tree(trees[row], sides.target),
        )
        for row, (begin, written) in enumerate(zip(begins, sided, strict=True))
    ]


@torch.inference_mode()
def trace_encoder(
    model: BERT, sources: Sequence[Sequence[int]], tokenizer: Tokenizer, *, texts: Sequence[str] | None = None,
    hidden: bool = False, top: int = 5,
) -> list[Trace]:  # fmt: skip
    """What a bert did for each text of ids; its steps are what its head says of every token, where it has one."""
    if not sources:
        return []
    family, device = _facts(model)
    record: Record = {}
    tokens, mask = padded(sources, device)
    encoded = model.encode(tokens, mask=mask, record=record)
    nothing: list[tuple[Tensor, Best]] = [(torch.zeros(0), [])] * len(sources)
    steps = nothing if model.head is None else _steps(model.logits(encoded), [0] * len(sources), sources, top)
    attention, states = _kept(record, hidden)
    return [
        Trace(
            family=family,
            source=make_side(tokenizer, ids, None if texts is None else texts[row]),
            target=make_side(tokenizer, []),
            attention=_cut(attention, row, 0, len(ids), 0),
            hidden=_cut(states, row, 0, len(ids), 0),
            log_probabilities=steps[row][0],
            alternatives=_named(steps[row][1], ids, tokenizer),
            score=0.0,
            finished=True,
            tree=[],
        )
        for row, ids in enumerate(sources)
    ]


Best = list[list[tuple[int, float]]]
"""Ids and their log-probabilities, best first, for every step."""


def _facts(model: object) -> tuple[str, torch.device]:
    known = cast(Any, model)
    return known.config.family, next(known.parameters()).device


def padded(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor | None]:
    """(B, longest) ids and their mask, None where there is no padding."""
    width = max(map(len, rows))
    ids = torch.tensor([[*row, *[PAD] * (width - len(row))] for row in rows], device=device)
    lengths = torch.tensor([[len(row)] for row in rows], device=device)
    return ids, None if all(len(row) == width for row in rows) else torch.arange(width, device=device) < lengths


def _steps(
    logits: Tensor, begins: Sequence[int], targets: Sequence[Sequence[int]], top: int
) -> list[tuple[Tensor, Best]]:
    """The log-probabilities of the targets' tokens and of the best ones, from (B, longest, V)."""
    places = [list(range(begin, begin + len(target))) for begin, target in zip(begins, targets, strict=True)]
    rows = torch.tensor([row for row, own in enumerate(places) for _ in own], device=logits.device)
    chosen = logits[rows, torch.tensor([place for own in places for place in own], device=logits.device)].float()
    ids = torch.tensor([number for target in targets for number in target], device=logits.device)
    total = chosen.logsumexp(-1, keepdim=True)
    own = (chosen.gather(1, ids[:, None]) - total)[:, 0].cpu()
    values, best = chosen.topk(min(top, chosen.shape[-1]))
    pairs = [
        list(zip(*both, strict=True)) for both in zip(best.tolist(), (values - total).tolist(), strict=True)
    ]  # fmt: skip
    found, end = [], 0
    for target in targets:
        found.append((own[end : end + len(target)].clone(), pairs[end : end + len(target)]))
        end += len(target)
    return found


def _kept(record: Record, hidden: bool) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Attention by kind as (B, L, H, .., ..), and hidden states by name, in memory as float32."""
    attention = {}
    for kind, ending in (("encoder", "encoder.{}.self"), ("decoder", "decoder.{}.self"), ("cross", "decoder.{}.cross")):
        layers = [record[name] for layer in range(len(record)) if (name := ending.format(layer)) in record]
        if layers:
            attention[kind] = torch.stack(layers, 1).float().cpu()
    states = {name: x.float().cpu() for name, x in record.items() if not name.endswith((".self", ".cross"))}
    return attention, states if hidden else {}


def _cut(tensors: dict[str, Tensor], row: int, begin: int, source: int, target: int) -> dict[str, Tensor]:
    """The part of each that is one sentence's, without padding."""
    read, wrote = slice(0, source), slice(begin, begin + target)
    places = {"encoder": (read, read), "decoder": (wrote, slice(0, begin + target)), "cross": (wrote, read)}
    found = {}
    for name, tensor in tensors.items():
        if name in places:
            rows, columns = places[name]
            found[name] = tensor[row, :, :, rows, columns].clone()
        else:
            found[name] = tensor[row, read if name.startswith("encoder") else wrote].clone()
    return found


def _named(best: Best, ids: Sequence[int], tokenizer: Tokenizer) -> list[list[Alternative]]:
    found = []
    for after, step in zip([START, *ids], best, strict=False):
        numbers = [number for number, _ in step]
        pieces = tokenizer.token_texts(numbers, after)
        found.append([Alternative(number, piece, value) for (number, value), piece in zip(step, pieces, strict=True)])
    return found


def _tree(tree: Tree, tokenizer: Tokenizer) -> list[list[Branch]]:
    """The tree with pieces, each as it reads after its parent, without the branches that rules forbade."""
    found: list[list[Branch]] = []
    places: dict[int, int] = {}
    for step in tree:
        before, above = found[-1] if found else [], places | {-1: -1}
        allowed = [number for number, branch in enumerate(step) if math.isfinite(branch.log_probability)]
        places = {number: place for place, number in enumerate(allowed)}
        branches = []
        for parent, token, log_probability, kept in (step[number] for number in allowed):
            after = before[above[parent]].id if parent >= 0 else START
            branches.append(
                Branch(above[parent], token, tokenizer.token_texts([token], after)[0], log_probability, kept)
            )
        found.append(branches)
    return found


# Words.


def make_side(tokenizer: Tokenizer, ids: Sequence[int], text: str | None = None) -> Side:
    """The tokens of ids as pieces and words of the text they were made from, or of the one they stand for."""
    text, starts = tokenizer.token_starts(ids, text)
    shown = [number not in TEXTLESS_TOKENS for number in ids]
    ends = [*starts[1:], len(text)][: len(ids)]
    pieces = [
        text[start:end] if is_shown else SPECIALS[number]
        for number, is_shown, start, end in zip(ids, shown, starts, ends, strict=True)
    ]
    words = _words_in(text, starts, shown)
    listed: list[str] = []
    word, special = list[int](), list[bool]()
    places: list[int] = []  # where the words of the text stand among all
    for number, start, is_shown in zip(ids, starts, shown, strict=True):
        if is_shown and words:
            own = max(bisect_right(words, (_letter(text, start), len(text))) - 1, 0)
            for span in words[len(places) : own + 1]:
                places.append(len(listed))
                listed.append(text[slice(*span)])
                special.append(False)
            word.append(places[own])
        else:
            word.append(len(listed))
            listed.append(text if is_shown else SPECIALS[number])
            special.append(not is_shown)
    return Side(text, list(ids), pieces, listed, word, special)


def _words_in(text: str, starts: Sequence[int], shown: Sequence[bool]) -> list[tuple[int, int]]:
    """Where the words of a text begin and end."""
    if len(text.split()) == 1 and script(text) in UNSPACED_SCRIPTS:
        edges = sorted({start for start, is_shown in zip(starts, shown, strict=True) if is_shown} | {len(text)})
        return list(pairwise(edges))
    found, end = [], 0
    for word in text.split():
        start = text.index(word, end)
        end = start + len(word)
        found.append((start, end))
    return found


def _letter(text: str, start: int) -> int:
    """The first place from here that is no blank; a blank belongs to what follows it."""
    return len(text) - len(text[start:].lstrip())


def _begin() -> Side:
    return Side("", [START], [SPECIALS[START]], [SPECIALS[START]], [0], [True])


def _joined(first: Side, target: Side) -> Side:
    """All that stood before the last token, which is a word of its own."""
    words = len(first.words)
    return Side(
        first.text + target.text,
        first.ids + target.ids[:-1],
        first.subwords + target.subwords[:-1],
        first.words + target.words[:-1],
        first.word + [words + word for word in target.word[:-1]],
        first.special + target.special[:-1],
    )


# Reading files: nothing in them is trusted.


def _read_json(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    with clear_os_errors(path, "read"):
        data = path.read_bytes()
    return _json(data, path), {}


def _read_safetensors(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        with clear_os_errors(path, "read"):
            path.stat()  # the library's own error says less
        with clear_os_errors(path, "read"), safe_open(path, "pt") as file:
            words = (file.metadata() or {}).get("trace")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise DataError(f"{path} is damaged, cut short or no safetensors file: {error}") from error
    if words is None:
        raise DataError(f"{path} holds tensors and no trace")
    return _json(words, path), tensors


def _json(data: str | bytes, path: Path) -> dict[str, Any]:
    try:
        values = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is damaged or cut short: {error}") from error
    if not isinstance(values, dict):
        raise DataError(f"{path} is not a trace: it holds a {type(values).__name__}")
    return values


def _plain(tensor: Tensor) -> dict[str, Any]:
    """A float32 needs nine digits to come back the same."""
    return {"shape": list(tensor.shape), "values": [float(f"{value:.9g}") for value in tensor.flatten().tolist()]}


def _tensor(value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        shape = [int(size) for size in value["shape"]]
        value = torch.tensor(value["values"], dtype=torch.float32).reshape(shape)
    if value.dtype != torch.float32:
        raise ValueError(f"a tensor holds {str(value.dtype).removeprefix('torch.')}, and float32 is wanted")
    return cast(Tensor, value)


def _read(values: Mapping[str, Any]) -> Trace:
    def named(begin: str) -> dict[str, Tensor]:
        return {name.removeprefix(begin): _tensor(x) for name, x in values.items() if name.startswith(begin)}

    ranks = _tensor(values["alternative_log_probabilities"]).tolist()
    return Trace(
        family=_typed(values["family"], str),
        source=_side(values["source"]),
        target=_side(values["target"]),
        attention=named("attention."),
        hidden=named("hidden."),
        log_probabilities=_tensor(values["log_probabilities"]),
        alternatives=[
            [
                Alternative(_typed(number, int), _typed(piece, str), rank)
                for (number, piece), rank in zip(step, own, strict=True)
            ]
            for step, own in zip(values["alternatives"], ranks, strict=True)
        ],
        score=float(values["score"]),
        finished=_typed(values["finished"], bool),
        tree=[[_branch(branch) for branch in step] for step in values["tree"]],
    )


def _typed(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise ValueError(f"{value!r:.40} is not a {kind.__name__}")
    return value


def _list(values: Any, kind: type) -> list[Any]:
    return [_typed(value, kind) for value in _typed(values, list)]


def _side(values: dict[str, Any]) -> Side:
    found = Side(
        text=_typed(values["text"], str),
        ids=_list(values["ids"], int),
        subwords=_list(values["subwords"], str),
        words=_list(values["words"], str),
        word=_list(values["word"], int),
        special=_list(values["special"], bool),
    )
    if not len(found.ids) == len(found.subwords) == len(found.word) or len(found.words) != len(found.special):
        raise ValueError("its tokens, subwords and words are not as many as each other")
    if not all(0 <= word < len(found.words) for word in found.word):
        raise ValueError("a token belongs to a word that is not there")
    return found


def _branch(values: Any) -> Branch:
    parent, number, piece, log_probability, kept = values
    return Branch(
        _typed(parent, int), _typed(number, int), _typed(piece, str), float(log_probability), _typed(kept, bool)
    )


def _check(found: Trace) -> None:
    """Every tensor has the shape that the tokens give it."""
    steps = len(found.target.ids) or len(found.log_probabilities)
    if found.log_probabilities.shape != (steps,) or len(found.alternatives) not in (0, steps):
        raise DataError(f"it has {len(found.alternatives)} steps for {steps} tokens")
    for kind, weights in found.attention.items():
        if kind not in KINDS:
            raise DataError(f"there is no attention {kind!r}: it can be {', '.join(KINDS)}")
        axes = (len(found.rows(kind).ids), len(found.columns(kind).ids))
        if weights.dim() != 4 or tuple(weights.shape[2:]) != axes:
            shape = tuple(weights.shape)
            raise DataError(
                f"its attention {kind!r} has the shape {shape}, and (layers, heads, {axes[0]}, {axes[1]}) is wanted"
            )
    for name, states in found.hidden.items():
        tokens = len((found.source if name.startswith("encoder") else found.target).ids)
        if states.dim() != 2 or len(states) != tokens:
            raise DataError(
                f"its hidden states {name!r} have the shape {tuple(states.shape)}, and {tokens} rows are wanted"
            )
    for step, branches in enumerate(found.tree):
        above = len(found.tree[step - 1]) if step else 0
        if any(not -1 <= branch.parent < above for branch in branches):
            raise DataError(f"step {step} of its tree continues a branch that is not there")
    if not math.isfinite(found.score):
        raise DataError("its score is not a number")
