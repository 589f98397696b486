"""Rules: what may come next.

R rows (hypotheses), t tokens written, S source tokens, V vocabulary.

A rule forbids: it lowers log-probabilities to -inf and changes no other, so that what a search reports stays the
model's own. A prefix and the longest length do the opposite, they leave one token, and win over every rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from regard.errors import InputError

NEVER = float("-inf")


class Written(NamedTuple):
    """Where the hypotheses of a batch stand when a rule is asked."""

    tokens: Tensor
    """(R, t) so far."""
    sentences: list[int]
    """Which sentences these are, in the order asked; each has R / len(sentences) rows, side by side."""
    attention: Tensor | None
    """(R, S) what the model looked at to choose the next token, where a rule `watches`."""


class Rule(Protocol):
    """Something that forbids tokens, and may keep a state with one row a hypothesis, which the search reorders."""

    @property
    def watches(self) -> bool:
        """It needs `Written.attention`, which costs the fused kernels."""

    def start(self, sentences: int, device: torch.device) -> Any:
        """The state before the first token: a tree of tensors with one row a sentence, or ()."""

    def apply(self, scores: Tensor, written: Written, state: Any) -> Any:
        """Forbid in `scores` (R, V), in place; the state for the next token comes back."""


@dataclass(frozen=True)
class Forbidden:
    """Tokens that are never written, such as padding."""

    tokens: Sequence[int]
    watches = False

    def start(self, sentences: int, device: torch.device) -> Any:
        return ()

    def apply(self, scores: Tensor, written: Written, state: Any) -> Any:
        for token in self.tokens:
            scores[:, token] = NEVER
        return ()


@dataclass(frozen=True)
class Shortest:
    """No end before so many tokens."""

    tokens: int
    end: int
    watches = False

    def start(self, sentences: int, device: torch.device) -> Any:
        return ()

    def apply(self, scores: Tensor, written: Written, state: Any) -> Any:
        if written.tokens.shape[1] < self.tokens:
            scores[:, self.end] = NEVER
        return ()


@dataclass(frozen=True)
class NoRepeat:
    """No run of so many tokens comes twice."""

    tokens: int
    watches = False

    def start(self, sentences: int, device: torch.device) -> Any:
        return ()

    def apply(self, scores: Tensor, written: Written, state: Any) -> Any:
        tokens, before = written.tokens, self.tokens - 1
        runs = tokens.shape[1] - before
        if runs < 1:
            return ()
        same = torch.ones_like(tokens[:, before:], dtype=torch.bool)  # (R, runs): begins as the last tokens begin
        for i in range(before):
            same &= tokens[:, i : i + runs] == tokens[:, runs + i, None]
        limit = torch.zeros_like(same, dtype=scores.dtype).masked_fill_(~same, torch.inf).masked_fill_(same, NEVER)
        scores.scatter_reduce_(1, tokens[:, before:], limit, "amin")
        return ()


@dataclass(frozen=True)
class Rules:
    """All that decides what may come next in a batch."""

    end: int
    """The token that ends a sentence."""
    longest: Sequence[int]
    """Tokens each sentence may have, the end not counted; there it is forced to end."""
    prefixes: Sequence[Sequence[int]] | None
    """What each sentence has to begin with, or None."""
    rules: tuple[Rule, ...]

    @property
    def watches(self) -> bool:
        return any(rule.watches for rule in self.rules)

    def check(self, sentences: int) -> None:
        """There is a limit and a prefix for every sentence."""
        if len(self.longest) != sentences:
            raise InputError(f"there are {len(self.longest)} longest lengths for {sentences} sentences")
        if self.prefixes is None:
            return
        if len(self.prefixes) != sentences:
            raise InputError(f"there are {len(self.prefixes)} prefixes for {sentences} sentences")
        if any(self.end in prefix for prefix in self.prefixes):
            raise InputError(f"a prefix holds {self.end}, the token that ends a sentence")

    def limit(self, sentence: int) -> int:
        """Tokens the sentence may have: a prefix is never cut."""
        return max(self.longest[sentence], len(self.prefix(sentence)), 0)

    def prefix(self, sentence: int) -> Sequence[int]:
        return () if self.prefixes is None else self.prefixes[sentence]

    def start(self, sentences: int, device: torch.device) -> tuple[Any, ...]:
        return tuple(rule.start(sentences, device) for rule in self.rules)

    def apply(self, scores: Tensor, written: Written, states: tuple[Any, ...]) -> tuple[Any, ...]:
        """Forbid in `scores` (R, V), in place; where rules forbid everything, the sentence may end."""
        place = written.tokens.shape[1]
        forced = [self._forced(sentence, place) for sentence in written.sentences]
        rows = len(scores) // len(forced)
        must = kept = None
        if any(token is not None for token in forced):
            ids = [-1 if token is None else token for token in forced]
            must = torch.tensor(ids, device=scores.device).repeat_interleave(rows)[:, None]
            kept = scores.gather(1, must.clamp(min=0))
        end = scores[:, self.end].clone()
        states = tuple(rule.apply(scores, written, state) for rule, state in zip(self.rules, states, strict=True))
        if self.rules:
            stuck = scores.amax(1) == NEVER
            scores[:, self.end] = torch.where(stuck, end, scores[:, self.end])
        if must is not None and kept is not None:
            scores.masked_fill_(must >= 0, NEVER)
            scores.scatter_reduce_(1, must.clamp(min=0), torch.where(must >= 0, kept, NEVER), "amax")
        return states

    def _forced(self, sentence: int, place: int) -> int | None:
        prefix = self.prefix(sentence)
        if place < len(prefix):
            return prefix[place]
        return self.end if place >= self.limit(sentence) else None


def make_rules(
    *,
    end: int,
    longest: Sequence[int],
    shortest: int,
    no_repeat: int,
    forbidden: Sequence[int],
    prefixes: Sequence[Sequence[int]] | None = None,
    more: Sequence[Rule] = (),
) -> Rules:
    """The usual rules, those whose value is 0 left out, and `more` after them."""
    rules: list[Rule] = []
    if forbidden:
        rules.append(Forbidden(tuple(forbidden)))
    if shortest:
        rules.append(Shortest(shortest, end))
    if no_repeat:
        rules.append(NoRepeat(no_repeat))
    return Rules(end, longest, prefixes, (*rules, *more))


def limits(lengths: Sequence[int], *, ratio: float, extra: int) -> list[int]:
    """How long the output for sources of these lengths may become."""
    return [int(ratio * length) + extra for length in lengths]
