"""Masks: True means visible."""

from __future__ import annotations

import torch

from regard.attention.masks import causal, over_queries, packed


def test_a_padding_mask_serves_every_head_and_query() -> None:
    assert over_queries(torch.ones(2, 5, dtype=torch.bool)).shape == (2, 1, 1, 5)


def test_causal_hides_later_tokens() -> None:
    assert causal(3).tolist() == [[True, False, False], [True, True, False], [True, True, True]]


def test_causal_with_more_keys_ends_at_the_last_key() -> None:
    assert causal(1, 3).tolist() == [[True, True, True]]


def test_packed_sentences_see_only_themselves() -> None:
    seen = packed(torch.tensor([[1, 1, 2, 0]]))[0, 0]
    assert seen.tolist() == [
        [True, True, False, False],
        [True, True, False, False],
        [False, False, True, False],
        [False, False, False, False],
    ]
