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

NEVER = float("-inf")


@dataclass(frozen=True)
class Constraints:
    """The constraints of a batch of sentences."""

    end: int  # the end-of-sentence token
    max_lengths: Sequence[int]  # of each sentence, without the end token, which is forced after them
    prefixes: Sequence[Sequence[int]] | None = None  # forced first tokens of each sentence
    min_length: int = 0  # minimum tokens of a sentence, without the end token
    no_repeat_ngram: int = 0  # the size of n-grams that may not be repeated; 0 allows repetition
    forbidden: Sequence[int] = ()  # tokens that are never generated, such as padding

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
        length, copies = tokens.shape[1], len(scores) // len(sentences)
        forced = [(place, token) for place, s in enumerate(sentences) if (token := self._forced(s, length)) is not None]
        rows = [place * copies + copy for place, _ in forced for copy in range(copies)]
        ids = [token for _, token in forced for _ in range(copies)]
        forced_scores = scores[rows, ids] if rows else None
        end_scores = scores[:, self.end].clone()
        for token in self.forbidden:
            scores[:, token] = NEVER
        if length < self.min_length:
            scores[:, self.end] = NEVER
        if self.no_repeat_ngram:
            _forbid_repeated_ngrams(scores, tokens, self.no_repeat_ngram)
            stuck = scores.amax(1) == NEVER
            scores[:, self.end] = torch.where(stuck, end_scores, scores[:, self.end])
        if forced_scores is not None:
            scores[rows] = NEVER
            scores[rows, ids] = forced_scores

    def _forced(self, sentence: int, length: int) -> int | None:
        """The only token that may come next, if there is one."""
        prefix = self.prefix(sentence)
        if length < len(prefix):
            return prefix[length]
        return self.end if length >= self.max_length(sentence) else None


def _forbid_repeated_ngrams(scores: Tensor, tokens: Tensor, size: int) -> None:
    if tokens.shape[1] < size:
        return
    ngrams = tokens.unfold(1, size, 1)  # (R, t - size + 1, size)
    last = tokens[:, None, tokens.shape[1] - size + 1 :]
    would_repeat = (ngrams[..., :-1] == last).all(-1)
    limit = torch.where(would_repeat, NEVER, torch.inf).to(scores.dtype)
    scores.scatter_reduce_(1, ngrams[..., -1], limit, "amin")
