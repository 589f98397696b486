"""What a decoder's self-attention has seen so far, and the one rule of who may see it.

B rows (hypotheses), L keys held, T new tokens, G heads of keys and values, D head size.

Each key carries the position it stands at; a query sees the keys at or before its own position. Padding and slots not
yet written stand at NOWHERE, after every query. This one rule is causality, ragged prompts and preallocated caches.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from regard.attention import Memory
from regard.errors import InputError

NOWHERE = 2**31 - 1


class Past(NamedTuple):
    """Keys and values of every layer; all tensors have one row a hypothesis first."""

    caches: tuple[Memory, ...]
    """(B, G, L, D) a layer; none before the first step."""
    where: Tensor
    """(B, L) position of each key."""
    position: Tensor
    """(B,) position of each row's next token."""
    length: int
    """Keys held: the longest row's."""
    plain: bool
    """Every row holds positions 0 to length - 1: no mask is needed where causality alone decides."""
    room: int
    """Slots allocated ahead and written in place; 0: a new tensor each step, and older states stay as they were."""

    def written(self) -> Past:
        """The same without the slots that are still empty; its tensors are views."""
        caches = (Memory(*(x[:, :, : self.length] for x in cache)) for cache in self.caches)
        return self._replace(caches=tuple(caches)) if self.room else self

    def pick(self, rows: Tensor) -> Past:
        """The past whose row i is the old row `rows[i]`; empty slots are allocated anew, not copied."""

        def moved(x: Tensor) -> Tensor:
            if not self.room:
                return x.index_select(0, rows)
            # Empty slots that a mask hides still have to be numbers; where there is no mask nobody looks at them.
            make = x.new_empty if self.plain else x.new_zeros
            new = make(len(rows), *x.shape[1:])
            new[:, :, : self.length] = x[:, :, : self.length].index_select(0, rows)
            return new

        caches = tuple(Memory(*map(moved, cache)) for cache in self.caches)
        where, position = self.where.index_select(0, rows), self.position.index_select(0, rows)
        return self._replace(caches=caches, where=where, position=position)


class Now(NamedTuple):
    """What one step of T tokens needs to know of the past, the same for all layers."""

    positions: Tensor
    """(B, T) of the new tokens."""
    mask: Tensor | None
    """(B, 1, T, L) of what they may see, or None."""
    causal: bool
    """The new tokens see one another causally and there is nothing else to see."""


def begin(rows: int, device: torch.device, room: int = 0) -> Past:
    """Nothing seen yet."""
    where = torch.full((rows, room), NOWHERE, dtype=torch.int64, device=device)
    position = torch.zeros(rows, dtype=torch.int64, device=device)
    return Past((), where, position, length=0, plain=True, room=room)


def advance(past: Past, tokens: Tensor, real: Tensor | None = None) -> tuple[Past, Now]:
    """The past with the places of (B, T) new tokens added, `real` False for those that are padding at the end."""
    width = tokens.shape[1]
    if past.room and past.length + width > past.room:
        raise InputError(f"the text has {past.length + width} tokens and room was made for {past.room} of them")
    positions = past.position[:, None] + torch.arange(width, device=tokens.device)
    where = positions if real is None else positions.masked_fill(~real, NOWHERE)
    plain = past.plain and real is None
    # With room, padding is written too, and overwritten by what comes next: rows write at their own positions.
    where = past.where.scatter(1, positions, where) if past.room else torch.cat([past.where, where], dim=1)
    position = past.position + (width if real is None else real.sum(1))
    length = past.length + width
    fresh, single = past.length == 0, True if width == 1 else False  # noqa: SIM210 - a compiler has to know which
    mask = None
    if not (plain and (fresh or single)):
        seen = where[:, :length] if past.plain else where
        mask = (seen[:, None, :] <= positions[:, :, None])[:, None]
    after = past._replace(where=where, position=position, length=length, plain=plain)
    return after, Now(positions, mask, causal=plain and fresh and not single)


def extend(before: Past, layer: int, new: Memory, now: Now) -> tuple[Memory, Memory]:
    """The cache of a layer with the new keys and values in it, and the part of it that may be looked at."""
    if not before.room:
        if not before.caches:
            return new, new
        cache = Memory(*(torch.cat(pair, dim=2) for pair in zip(before.caches[layer], new, strict=True)))
        return cache, cache
    if before.caches:
        cache = before.caches[layer]
    else:
        cache = Memory(*(x.new_zeros(*x.shape[:2], before.room, x.shape[3]) for x in new))
    width = new.key.shape[2]
    if before.plain:  # all rows stand at the same place, known here: a slice is enough
        end = before.length + width
        for slots, x in zip(cache, new, strict=True):
            slots[:, :, before.length : end] = x
        return cache, Memory(cache.key[:, :, :end], cache.value[:, :, :end])
    index = now.positions[:, None, :, None]
    for slots, x in zip(cache, new, strict=True):
        slots.scatter_(2, index.expand_as(x), x)
    return cache, cache
