"""Slots: keys and values of a search, written in place and never moved.

R rows (hypotheses), G key-value heads, H heads, L slots, D head size.

When a beam search reorders its hypotheses, only a table changes: it says in which row each token of a hypothesis was
written. Attention follows the table, so the keys and values themselves stay where they are.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from regard import kernels
from regard.attention.scores import Score, as_product

decoding = kernels.find("decoding")


class Slots(NamedTuple):
    """The slots of one layer, and the key and value of the token that is written now."""

    key: Tensor  # (R, G, L, D)
    value: Tensor  # (R, G, L, D)
    table: Tensor  # (R, L) row in which each token of a hypothesis was written
    positions: Tensor  # (R,) slot of the new token; the slots after it are empty
    new_key: Tensor  # (R, G, 1, D)
    new_value: Tensor  # (R, G, 1, D)


def attend_in_kernel(query: Tensor, slots: Slots, score: Score) -> Tensor | None:
    """Write the new token and attend to all tokens so far: (R, H, 1, D); None if the kernel does not apply."""
    if decoding is None or not decoding.applies(query, slots.key):
        return None
    product = as_product(score, query, slots.new_key)
    if product is None:
        return None
    query, key, scale = product
    if key is not slots.new_key:  # the keys in the slots would have to change too
        return None
    context: Tensor = decoding.attend_to_slots(query, slots, scale=scale)
    return context


def gather(slots: Slots) -> tuple[Tensor, Tensor, Tensor]:
    """Write the new token; return keys and values of each hypothesis, (R, G, L, D), and a mask of those written."""
    rows, places = (torch.arange(size, device=slots.table.device) for size in slots.table.shape)
    slots.key[rows, :, slots.positions] = slots.new_key[:, :, 0]
    slots.value[rows, :, slots.positions] = slots.new_value[:, :, 0]
    key, value = (x.transpose(1, 2)[slots.table.long(), places].transpose(1, 2) for x in (slots.key, slots.value))
    return key, value, (places <= slots.positions[:, None])[:, None, None]
