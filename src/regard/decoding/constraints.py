"""Constraints: restrict which tokens may come next.

R rows (hypotheses), t tokens so far, V vocabulary.

A constraint sets log-probabilities to -inf and does not change the others, so that a search reports the probabilities
of the model. A prefix and the maximum length leave exactly one token and take precedence over all other constraints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import InputError

NEVER = float("-inf")


@dataclass(frozen=True)
class Constraints:
    """The constraints of a batch of sentences."""

    end: int
    """The end-of-sentence token."""
    max_lengths: Sequence[int]
    """Maximum tokens of each sentence, without the end token; the end token is forced after them."""
    prefixes: Sequence[Sequence[int]] | None = None
    """Forced first tokens of each sentence."""
    min_length: int = 0
    """Minimum tokens of a sentence, without the end token."""
    no_repeat_ngram: int = 0
    """The size of n-grams that may not be repeated; 0 allows repetition."""
    forbidden: Sequence[int] = ()
    """Tokens that are never generated, such as padding."""

    def check(self, sentences: int) -> None:
        """Check that there is a maximum length and a prefix for every sentence."""
        if len(self.max_lengths) != sentences:
            raise InputError(f"there are {len(self.max_lengths)} maximum lengths for {sentences} sentences")
        if self.prefixes is None:
            return
        if len(self.prefixes) != sentences:
            raise InputError(f"there are {len(self.prefixes)} prefixes for {sentences} sentences")
        if any(self.end in prefix for prefix in self.prefixes):
            raise InputError(f"a prefix contains the end token ({self.end})")

    def max_length(self, sentence: int) -> int:
        """Maximum tokens of the sentence; at least those of its prefix."""
        return max(self.max_lengths[sentence], len(self.prefix(sentence)), 0)

    def prefix(self, sentence: int) -> Sequence[int]:
        return () if self.prefixes is None else self.prefixes[sentence]

    def apply(self, scores: Tensor, tokens: Tensor, sentences: Sequence[int]) -> None:
        """Set forbidden continuations of (R, t) `tokens` to -inf in the log-probabilities (R, V), in place.

        `sentences` are the sentences of the rows in order, each with R / len(sentences) rows. If every token of a row
        would be forbidden, the end token is allowed.
        """
        length = tokens.shape[1]
        forced = [self._forced(sentence, length) for sentence in sentences]
        rows = len(scores) // len(forced)
        forced_tokens = forced_scores = None
        if any(token is not None for token in forced):
            ids = [-1 if token is None else token for token in forced]
            forced_tokens = torch.tensor(ids, device=scores.device).repeat_interleave(rows)[:, None]
            forced_scores = scores.gather(1, forced_tokens.clamp(min=0))
        if self.forbidden or self.min_length or self.no_repeat_ngram:
            end_scores = scores[:, self.end].clone()
            for token in self.forbidden:
                scores[:, token] = NEVER
            if length < self.min_length:
                scores[:, self.end] = NEVER
            if self.no_repeat_ngram:
                _forbid_repeated_ngrams(scores, tokens, self.no_repeat_ngram)
            stuck = scores.amax(1) == NEVER
            scores[:, self.end] = torch.where(stuck, end_scores, scores[:, self.end])
        if forced_tokens is not None and forced_scores is not None:
            is_forced = forced_tokens >= 0
            scores.masked_fill_(is_forced, NEVER)
            scores.scatter_reduce_(1, forced_tokens.clamp(min=0), torch.where(is_forced, forced_scores, NEVER), "amax")

    def _forced(self, sentence: int, length: int) -> int | None:
        """The only token that may come next, if there is one."""
        prefix = self.prefix(sentence)
        if length < len(prefix):
            return prefix[length]
        return self.end if length >= self.max_length(sentence) else None


def _forbid_repeated_ngrams(scores: Tensor, tokens: Tensor, size: int) -> None:
    context = size - 1
    ngrams = tokens.shape[1] - context
    if ngrams < 1:
        return
    same = torch.ones_like(tokens[:, context:], dtype=torch.bool)  # (R, ngrams): begins with the last `context` tokens
    for i in range(context):
        same &= tokens[:, i : i + ngrams] == tokens[:, ngrams + i, None]
    limit = torch.zeros_like(same, dtype=scores.dtype).masked_fill_(~same, torch.inf).masked_fill_(same, NEVER)
    scores.scatter_reduce_(1, tokens[:, context:], limit, "amin")


def max_lengths(source_lengths: Sequence[int], *, ratio: float, extra: int) -> list[int]:
    """The maximum output lengths for sources of these lengths."""
    return [int(ratio * length) + extra for length in source_lengths]
