"""The key-value cache of a decoder's self-attention, and the one rule for what a new token may attend to.

B rows (hypotheses), L cached keys, T new tokens, G key-value heads, D head size.

Each cached key has a position; a query attends to the keys at or before its own position. Padding has the position
EMPTY, which is after every query. This one rule covers causality and prompts of different lengths.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attention.masks import Packed
from regard.attention.multihead import Memory, Slots
from regard.errors import InputError
from regard.models.contract import tree_map

EMPTY = 2**31 - 1


class Cache(NamedTuple):
    """Keys and values of every decoder layer; the first axis of every tensor is the hypotheses."""

    layers: tuple[Memory, ...]  # (B, G, L, D) keys and values per layer; no layers before the first step
    key_positions: Tensor  # (B, L) position of each key
    next_position: Tensor  # (B,) position of each row's next token
    length: int  # cached keys
    unpadded: bool  # every row holds positions 0 to length - 1, so causality alone decides and no mask is needed
    capacity: int  # slots allocated ahead and written in place; 0: each step makes new tensors, older states stay valid

    def filled(self) -> Cache:
        """This cache without its empty slots; the tensors are views."""
        layers = (Memory(*(x[:, :, : self.length] for x in layer)) for layer in self.layers)
        return self._replace(layers=tuple(layers)) if self.capacity else self


class SearchCache(NamedTuple):
    """Keys and values of the hypotheses of a search, at fixed addresses: see `Slots`."""

    layers: tuple[Memory, ...]  # (R, G, L, D) keys and values per layer; no layers before the first step
    table: Tensor  # (R, L) row in which each token of a hypothesis was written; from the next position on, its own
    positions: Tensor  # (R,) position of each row's next token

    @property
    def length(self) -> int:
        """0: it is the search that limits the length."""
        return 0

    @property
    def capacity(self) -> int:
        return self.table.shape[1]


class NewTokens(NamedTuple):
    """Positions and visibility of the T tokens of one step, the same for all layers."""

    positions: Tensor  # (B, T)
    mask: Tensor | Packed | None  # (B, 1, T, L), True where a new token may attend; in training, packed sentences
    causal: bool  # the cache was empty and the new tokens attend to each other causally


def empty_cache(rows: int, device: torch.device, capacity: int = 0) -> Cache:
    """A cache before the first step."""
    key_positions = torch.zeros(rows, 0, dtype=torch.int64, device=device)
    next_position = torch.zeros(rows, dtype=torch.int64, device=device)
    return Cache((), key_positions, next_position, length=0, unpadded=True, capacity=capacity)


def for_search(past: Any, beams: int, capacity: int) -> Any:
    """The state of a decoder after `start` as that of a search with `beams` hypotheses of each sentence.

    A cache gets slots for `capacity` more tokens; any other state is repeated.
    """
    if not isinstance(past, Cache):
        return tree_map(lambda x: x.repeat_interleave(beams, 0), past)
    rows = torch.arange(beams * len(past.next_position), device=past.next_position.device)
    prompt = past.key_positions.shape[1]  # a prompt is written once, in the first row of its sentence
    table = rows[:, None].repeat(1, prompt + capacity)
    positions = past.next_position.repeat_interleave(beams)
    in_prompt = torch.arange(prompt + capacity, device=rows.device) < positions[:, None]
    table = torch.where(in_prompt, rows[:, None] // beams * beams, table).int()
    layers = tuple(Memory(*(_with_slots(x, beams, capacity) for x in layer)) for layer in past.layers)
    return SearchCache(layers, table, positions)


def _with_slots(x: Tensor, beams: int, capacity: int) -> Tensor:
    rows, heads, length, size = x.shape
    slots = x.new_zeros(beams * rows, heads, length + capacity, size)
    slots[::beams, :, :length] = x
    return slots


def reorder(past: Any, rows: Tensor) -> Any:
    """Make row i of the state of a search the old row `rows[i]`; slots stay where they are."""
    if not isinstance(past, SearchCache):
        return tree_map(lambda x: x.index_select(0, rows), past)
    places = torch.arange(past.capacity, device=rows.device, dtype=past.table.dtype)
    own = torch.arange(len(rows), device=rows.device, dtype=past.table.dtype)
    is_past = places < past.positions[:, None]
    return past._replace(table=torch.where(is_past, past.table.index_select(0, rows), own[:, None]))


def advance(
    cache: Cache | SearchCache, tokens: Tensor, real: Tensor | None = None
) -> tuple[Cache | SearchCache, NewTokens]:
    """Add the positions of (B, T) new tokens to the cache; `real` is False for padding at the end of a row."""
    if isinstance(cache, SearchCache):
        return cache._replace(positions=cache.positions + 1), NewTokens(cache.positions[:, None], None, causal=False)
    width = tokens.shape[1]
    length = cache.length + width
    if cache.capacity and length > cache.capacity:
        raise InputError(f"the text has {length} tokens and the cache has a capacity of {cache.capacity}")
    positions = cache.next_position[:, None] + torch.arange(width, device=tokens.device)
    new_positions = positions if real is None else positions.masked_fill(~real, EMPTY)
    key_positions = torch.cat([cache.key_positions, new_positions], dim=1)
    next_position = cache.next_position + (width if real is None else real.sum(1))
    unpadded = cache.unpadded and real is None
    first, single = cache.length == 0, True if width == 1 else False  # noqa: SIM210 - torch.compile needs a plain bool
    mask = None
    if not (unpadded and (first or single)):
        mask = (key_positions[:, None, :] <= positions[:, :, None])[:, None]
    advanced = cache._replace(
        key_positions=key_positions, next_position=next_position, length=length, unpadded=unpadded
    )
    return advanced, NewTokens(positions, mask, causal=unpadded and first and not single)


def extend(cache: Cache | SearchCache, layer: int, new: Memory) -> tuple[Memory, Memory | Slots]:
    """Append the new keys and values of one layer; returns the layer's cache and the part of it to attend to."""
    if not cache.capacity:
        if cache.layers:
            new = Memory(*(torch.cat(pair, dim=2) for pair in zip(cache.layers[layer], new, strict=True)))
        return new, new
    if cache.layers:
        slots = cache.layers[layer]
    else:
        slots = Memory(*(x.new_zeros(*x.shape[:2], cache.capacity, x.shape[3]) for x in new))
    if isinstance(cache, SearchCache):
        return slots, Slots(*slots, cache.table, cache.positions, *new)
    end = cache.length + new.key.shape[2]
    for slot, x in zip(slots, new, strict=True):
        slot[:, :, cache.length : end] = x
    return slots, Memory(slots.key[:, :, :end], slots.value[:, :, :end])
