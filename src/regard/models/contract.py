"""The contract of all families: what generates has two verbs, what reads has one.

B batch, S source tokens, T target tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from regard.errors import InputError

Record = dict[str, Tensor]
"""What a model did, by stable names, filled when a caller passes one in:

    encoder.embedding   encoder.3.self   encoder.3.hidden   encoder.output      (B, S, size), (B, H, S, S)
    decoder.embedding   decoder.3.self   decoder.3.hidden   decoder.output      (B, T, size), (B, H, T, past + T)
    decoder.3.cross     what the target looked at in the source                 (B, H, T, S)

Layers count from 0. A recurrent decoder with attention has one `decoder.0.cross` with one head, and its
`decoder.output` is the layer below the softmax.
"""


class State(NamedTuple):
    """Where a generation stands."""

    memory: Any
    """What the source left: one row a sentence, never reordered."""
    past: Any
    """What the hypotheses left: one row a hypothesis; all that a beam reorders."""


class Generator(Protocol):
    """rnn, transformer and gpt."""

    def start(self, source: Tensor, mask: Tensor | None = None, record: Record | None = None, room: int = 0) -> State:
        """Read the source (B, S); `mask` (B, S) is True for real tokens and False for padding, which stands at the end.

        None means that there is no padding. Of a gpt the source is what stands before the first token of `step`, and
        may be empty. `room` is for decoding, without gradients: caches for so many tokens are allocated now and written
        in place, so that a state is used once.
        """

    def step(self, tokens: Tensor, state: State, record: Record | None = None) -> tuple[Tensor, State]:
        """Write on: (B, T) tokens -> (B, T, V) logits of what follows each, and the state after them.

        One call with all tokens is teacher forcing; one token a call is decoding. A sentence may have n hypotheses:
        `reorder` the state by rows 0, 0, .. 1, 1, .. first, and the rows of `tokens` stand in that order.
        """


class Encoder(Protocol):
    """bert."""

    def encode(
        self, tokens: Tensor, types: Tensor | None = None, mask: Tensor | None = None, record: Record | None = None
    ) -> Tensor:
        """(B, S) tokens -> (B, S, size)."""


def tree_map(function: Callable[[Tensor], Tensor], tree: Any) -> Any:
    """The same tree of tuples with `function` applied to its tensors."""
    if isinstance(tree, Tensor):
        return function(tree)
    if isinstance(tree, tuple):
        leaves = [tree_map(function, leaf) for leaf in tree]
        return type(tree)(*leaves) if hasattr(tree, "_fields") else tuple(leaves)
    return tree


def reorder(state: State, rows: Tensor) -> State:
    """The state whose hypothesis i is the old one's hypothesis `rows[i]`; the memory stays as it is."""
    return state._replace(past=_pick(state.past, rows))


def _pick(tree: Any, rows: Tensor) -> Any:
    """The rows of every tensor in a tree; what knows how to `pick` does it itself."""
    if hasattr(tree, "pick"):
        return tree.pick(rows)
    if isinstance(tree, tuple):
        leaves = [_pick(leaf, rows) for leaf in tree]
        return type(tree)(*leaves) if hasattr(tree, "_fields") else tuple(leaves)
    return tree.index_select(0, rows) if isinstance(tree, Tensor) else tree


def note(record: Record | None, name: str, value: Tensor | None) -> None:
    """Write into a record, if there is one."""
    if record is not None and value is not None:
        record[name] = value


def check_tokens(tokens: Tensor, vocabulary: int, what: str) -> None:
    """Token ids are whole numbers inside the vocabulary, one row a sentence."""
    if tokens.dtype not in (torch.int64, torch.int32):
        name = str(tokens.dtype).removeprefix("torch.")
        raise InputError(f"{what} is {name}; it must hold token ids as int64 or int32")
    if tokens.dim() != 2:
        raise InputError(f"{what} has shape {tuple(tokens.shape)}; it must be (batch, tokens)")
    if tokens.device.type != "cpu" or torch.compiler.is_compiling() or not tokens.numel():
        return  # elsewhere the look would make the device wait
    low, high = tokens.aminmax()
    if low < 0 or high >= vocabulary:
        wrong = int(high) if high >= vocabulary else int(low)
        raise InputError(f"{what} holds the token id {wrong}; the vocabulary has ids 0 to {vocabulary - 1}")


def check_not_empty(source: Tensor) -> None:
    """There is something to look at."""
    if not source.shape[1]:
        raise InputError("source has no tokens: a sentence to translate needs at least one")


def checked_mask(mask: Tensor | None, tokens: Tensor, what: str) -> Tensor | None:
    """A padding mask that is boolean, has the shape of the tokens and hides only what stands at the end of a row.

    On a CPU, where a look costs nothing, a mask that hides nothing becomes none at all.
    """
    if mask is None:
        return None
    if mask.dtype != torch.bool:
        name = str(mask.dtype).removeprefix("torch.")
        raise InputError(f"the mask of {what} is {name}; it must be bool, True for real tokens")
    if mask.shape != tokens.shape:
        raise InputError(f"the mask of {what} has shape {tuple(mask.shape)} and the tokens {tuple(tokens.shape)}")
    if mask.device.type != "cpu" or torch.compiler.is_compiling():
        return mask
    if bool((mask[:, 1:] & ~mask[:, :-1]).any()):
        raise InputError(f"the mask of {what} hides tokens before real ones; padding must stand at the end of a row")
    return None if bool(mask.all()) else mask


def check_rows(tokens: Tensor, rows: int, sentences: int | None = None) -> None:
    """A step has one row of tokens for every hypothesis of the state, and as many hypotheses for every sentence."""
    if len(tokens) != rows:
        raise InputError(
            f"there are {len(tokens)} rows of tokens and {rows} hypotheses in the state: `reorder` the state first"
        )
    if sentences is not None and rows % max(sentences, 1):
        raise InputError(f"{rows} hypotheses cannot belong to {sentences} sentences, as many to each")


def check_room(room: int) -> None:
    """Room is a number of tokens."""
    if not isinstance(room, int) or room < 0:
        raise InputError(f"room ({room}) must be a whole number of tokens, or 0")
