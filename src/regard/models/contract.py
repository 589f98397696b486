"""The interface of all model families: generators have `start` and `step`.

B batch, S source tokens, T target tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from regard.errors import InputError

Record = dict[str, Tensor]
"""Intermediate tensors by name; a model fills the record that its caller passes in:

    encoder.embedding   encoder.3.self   encoder.3.hidden   encoder.output      (B, S, size), (B, H, S, S)
    decoder.embedding   decoder.3.self   decoder.3.hidden   decoder.output      (B, T, size), (B, H, T, past + T)
    decoder.3.cross     attention of the target to the source                   (B, H, T, S)

Layers count from 0. A recurrent decoder with attention has one `decoder.0.cross` with one head, and its
`decoder.output` is the layer below the softmax.
"""


class State(NamedTuple):
    """The state of a generation between two steps."""

    memory: Any  # the encoded source: one row per sentence, never reordered
    past: Any  # decoder state or cache: one row per hypothesis, reordered by beam search


class Generator(Protocol):
    """The interface of rnn, transformer and gpt."""

    def start(
        self, source: Tensor, mask: Tensor | None = None, record: Record | None = None, capacity: int = 0
    ) -> State:
        """Encode the source (B, S). `mask` (B, S) is True for tokens and False for padding at the end of a row.

        Without a mask there is no padding. For a gpt the source is the prompt before the first token of `step`, and may
        be empty. With `capacity`, for decoding without gradients, caches for that many tokens of `step` are allocated
        now and written in place, so each state can be used only once.
        """

    def step(self, tokens: Tensor, state: State, record: Record | None = None) -> tuple[Tensor, State]:
        """Decode (B, T) tokens: returns the (B, T, V) logits of each next token, and the state after them.

        One call with all tokens is teacher forcing; one token per call is decoding. For n hypotheses per sentence,
        the rows of `tokens` and of the past are ordered by sentence: 0, 0, .. 1, 1, ..
        """


def tree_map(function: Callable[[Tensor], Tensor], tree: Any) -> Any:
    """The same tree of tuples with `function` applied to its tensors."""
    if isinstance(tree, Tensor):
        return function(tree)
    if isinstance(tree, tuple):
        leaves = [tree_map(function, leaf) for leaf in tree]
        return type(tree)(*leaves) if hasattr(tree, "_fields") else tuple(leaves)
    return tree


def note(record: Record | None, name: str, value: Tensor | None) -> None:
    """Store a tensor in the record, if there is a record and a tensor."""
    if record is not None and value is not None:
        record[name] = value


def check_tokens(tokens: Tensor, vocabulary: int, name: str, mask: Tensor | None = None) -> None:
    """Check that tokens are (batch, tokens) ids of the vocabulary, and that a mask hides only the ends of rows.

    Their values are checked only on a CPU: reading them waits for a GPU.
    """
    readable = tokens.device.type == "cpu" and not torch.compiler.is_compiling()
    valid = tokens.dtype in (torch.int64, torch.int32) and tokens.dim() == 2
    if valid and readable and tokens.numel():
        low, high = tokens.aminmax()
        valid = bool(low >= 0 and high < vocabulary)
    if not valid:
        dtype = str(tokens.dtype).removeprefix("torch.")
        raise InputError(
            f"{name} is {dtype} of shape {tuple(tokens.shape)}; it must be (batch, tokens) of token ids as int64, "
            f"0 to {vocabulary - 1}"
        )
    valid = mask is None or (mask.dtype == torch.bool and mask.shape == tokens.shape)
    if mask is not None and valid and readable:
        valid = not bool((mask[:, 1:] & ~mask[:, :-1]).any())
    if not valid:
        raise InputError(
            f"the mask of {name} must be bool of shape {tuple(tokens.shape)}, True for tokens and False for padding at "
            "the end of a row"
        )
