"""Rules: what may come next.

R rows (hypotheses), t tokens written, S source tokens, V vocabulary.

A rule forbids: it lowers log-probabilities to -inf and changes no other, so that what a search reports stays the
model's own; only `Terms` moves probability, and what is reported then is what was searched with. A prefix and the
longest length do the opposite of forbidding, they leave one token, and win over every rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from regard.errors import InputError

NEVER = float("-inf")
NEGLIGIBLE = 0.1  # a bonus that is not worth its time


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


class Form(NamedTuple):
    """One way to write a term."""

    tokens: tuple[int, ...]
    joined: bool | None
    """It has no blank before it: it begins a sentence or follows one of `Edges.joins`; None: it may stand anywhere."""


class Want(NamedTuple):
    """A term that a sentence shall have."""

    forms: tuple[Form, ...]
    """Any one of them will do."""
    source: tuple[int, ...]
    """The source tokens it stands for."""
    instead: frozenset[int]
    """The tokens that begin what the model would write in its place, where that is known."""


class Edges(NamedTuple):
    """Where words begin and end in a vocabulary."""

    joins: frozenset[int]
    """After these a word begins without a blank."""
    inside: frozenset[int]
    """These go on with the word before them."""


@dataclass(frozen=True)
class Terms:
    """Terms of a glossary: soft ones are more probable where attention rests on their source, hard ones must come.

    A hard term is written where the model would write what it has `instead`, at the latest before the end; a sentence
    that is too short for its terms ends without them. Every hypothesis has the probabilities renormalised, so that
    terms cost nothing and a search's bounds hold.
    """

    wants: Sequence[Sequence[Want]]
    """Those of each sentence."""
    edges: Edges
    end: int
    longest: Sequence[int]
    """As in `Rules`."""
    bonus: float
    """Added to the logarithm for all attention on the source of a term; without attention, anywhere."""
    hard: bool
    watches: bool

    def start(self, sentences: int, device: torch.device) -> Any:
        return (torch.zeros(sentences, dtype=torch.int64, device=device),)  # tokens of a term that has to be finished

    def apply(self, scores: Tensor, written: Written, state: Any) -> Any:
        (begun,) = state
        each = len(scores) // max(len(written.sentences), 1)
        wanting = [number for number in written.sentences if self.wants[number]]
        if not wanting:
            return state
        rows, counts = written.tokens.tolist(), begun.tolist()
        looks = None if written.attention is None else written.attention.tolist()
        best = scores.argmax(1).tolist() if self.hard else []
        for place, sentence in enumerate(written.sentences):
            for row in range(place * each, (place + 1) * each) if self.wants[sentence] else ():
                left, after = self._unwritten(rows[row], self.wants[sentence])
                if self.hard:
                    room = self.longest[sentence] - len(rows[row])
                    counts[row] = self._force(scores[row], rows[row], left, after, counts[row], best[row], room)
                if not counts[row] and left:
                    self._favour(scores[row], rows[row], left, after, None if looks is None else looks[row])
        return (torch.tensor(counts, device=begun.device),)

    def _unwritten(self, tokens: Sequence[int], wants: Sequence[Want]) -> tuple[list[Want], int]:
        """The wants that these tokens do not have yet, and where the last of the others ends."""
        left, place, after = list(wants), 0, 0
        while place < len(tokens) and left:
            here = [
                (len(form.tokens), want)
                for want in left
                for form in want.forms
                if tuple(tokens[place : place + len(form.tokens)]) == form.tokens
                and self._may_stand(form, tokens[:place])
                and not self.edges.inside.intersection(tokens[place + len(form.tokens) :][:1])
            ]
            if here:
                length, want = max(here, key=lambda found: found[0])
                left.remove(want)
                place = after = place + length
            else:
                place += 1
        return left, after

    def _may_stand(self, form: Form, before: Sequence[int]) -> bool:
        return form.joined is None or form.joined == (not before or before[-1] in self.edges.joins)

    def _next(self, tokens: Sequence[int], wants: Sequence[Want], begun: int) -> list[int]:
        """What may follow the last `begun` tokens, which begin a form."""
        before, own = tokens[: len(tokens) - begun], tuple(tokens[len(tokens) - begun :])
        return [
            form.tokens[begun]
            for want in wants
            for form in want.forms
            if len(form.tokens) > begun and form.tokens[:begun] == own and self._may_stand(form, before)
        ]

    def _force(
        self, scores: Tensor, tokens: Sequence[int], left: list[Want], after: int, begun: int, best: int, room: int
    ) -> int:
        """Leave only what a term needs, where one is due; how many tokens of it there will be, or 0, comes back."""
        if begun and len(tokens) - begun >= after and self._only(scores, self._next(tokens, left, begun)):
            return begun + 1
        if begun and after == len(tokens):  # it is whole, and its word ends with it
            scores[sorted(self.edges.inside)] = NEVER
        if not left:
            return 0
        needed = sum(max(len(form.tokens) for form in want.forms) for want in left)
        due = [want for want in left if best in want.instead]
        if best == self.end or room <= needed:
            due = left
        if due and self._only(scores, self._next(tokens, due, 0)):
            return 1
        scores[self.end] = NEVER
        return 0

    def _only(self, scores: Tensor, tokens: list[int]) -> bool:
        """Leave these tokens, as probable as they are among themselves; not where other rules forbid all of them."""
        tokens = sorted(set(tokens))
        if not tokens or scores[tokens].amax() == NEVER:
            return False
        kept = scores[tokens]
        scores.fill_(NEVER)
        scores[tokens] = kept.log_softmax(0)
        return True

    def _favour(
        self, scores: Tensor, tokens: Sequence[int], left: list[Want], after: int, look: list[float] | None
    ) -> None:
        """Make more probable what begins or continues a term."""
        gains: dict[int, float] = {}
        for want in left:
            gain = self.bonus * (1.0 if look is None else sum(look[place] for place in want.source))
            if gain < NEGLIGIBLE:
                continue
            longest = max(len(form.tokens) for form in want.forms)
            for begun in range(min(longest, len(tokens) - after + 1)):
                for token in self._next(tokens, [want], begun):
                    gains[token] = max(gains.get(token, 0.0), gain)
        if not gains or scores.amax() == NEVER:
            return
        places = list(gains)
        scores[places] += torch.tensor([gains[place] for place in places], dtype=scores.dtype, device=scores.device)
        scores.copy_(scores.log_softmax(0))


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
