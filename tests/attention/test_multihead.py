"""Multi-head attention against torch's own, and memory asked more than once."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from regard import ConfigError
from regard.attention.multihead import MultiHead


def pair(size: int = 16, heads: int = 4) -> tuple[MultiHead, nn.MultiheadAttention]:
    ours = MultiHead(size, heads, key_value_heads=heads, bias=True)
    theirs = nn.MultiheadAttention(size, heads, batch_first=True)
    with torch.no_grad():
        nn.init.normal_(theirs.in_proj_bias)
        nn.init.normal_(theirs.out_proj.bias)
        ours.in_proj.weight.copy_(theirs.in_proj_weight)
        ours.in_proj.bias.copy_(theirs.in_proj_bias)
        ours.out_proj.load_state_dict(theirs.out_proj.state_dict())
    return ours, theirs


def test_cross_attention_equals_nn_multihead_attention() -> None:
    ours, theirs = pair()
    x, source = torch.randn(2, 3, 16), torch.randn(2, 5, 16)
    mask = torch.tensor([[True] * 5, [True, True, True, False, False]])
    found, weights = ours(ours.queries(x), ours.remember(source), mask=mask[:, None, None], weights=True)
    expected, expected_weights = theirs(x, source, source, key_padding_mask=~mask, average_attn_weights=False)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(weights, expected_weights)


def test_self_attention_equals_nn_multihead_attention() -> None:
    ours, theirs = pair()
    x = torch.randn(2, 4, 16)
    query, memory = ours.queries_and_memory(x)
    hidden = torch.ones(4, 4, dtype=torch.bool).triu(1)
    expected, _ = theirs(x, x, x, attn_mask=hidden)
    torch.testing.assert_close(ours(query, memory, causal=True)[0], expected)


def test_one_projection_for_query_key_and_value_equals_three() -> None:
    ours, _ = pair()
    x = torch.randn(2, 4, 16)
    query, memory = ours.queries_and_memory(x)
    torch.testing.assert_close(query, ours.queries(x))
    torch.testing.assert_close(memory.key, ours.remember(x).key)
    torch.testing.assert_close(memory.value, ours.remember(x).value)


def test_grouped_keys_are_shared_by_neighbouring_heads() -> None:
    grouped = MultiHead(16, 4, key_value_heads=2, bias=False)
    whole = MultiHead(16, 4, key_value_heads=4, bias=False)
    query, key, value = grouped.in_proj.weight.split(grouped.widths)
    spread = [x.unflatten(0, (2, 4)).repeat_interleave(2, 0).flatten(0, 1) for x in (key, value)]
    with torch.no_grad():
        whole.in_proj.weight.copy_(torch.cat([query, *spread]))
        whole.out_proj.weight.copy_(grouped.out_proj.weight)
    x = torch.randn(2, 3, 16)
    torch.testing.assert_close(grouped(*grouped.queries_and_memory(x))[0], whole(*whole.queries_and_memory(x))[0])


@pytest.mark.parametrize("queries", [1, 3])
def test_grouped_keys_give_weights_for_every_head_and_query(queries: int) -> None:
    grouped = MultiHead(16, 4, key_value_heads=2, bias=False)
    x = torch.randn(2, 5, 16)
    _, memory = grouped.queries_and_memory(x)
    found, weights = grouped(grouped.queries(x[:, :queries]), memory, weights=True)
    assert weights.shape == (2, 4, queries, 5)
    torch.testing.assert_close(found, grouped(*grouped.queries_and_memory(x))[0][:, :queries])


@pytest.mark.parametrize("mask_shape", [None, (2, 4, 5, 5), (4, 5, 5), (5, 5)])
def test_one_query_of_grouped_heads_attends_like_the_last_of_many(mask_shape: tuple[int, ...] | None) -> None:
    grouped = MultiHead(16, 4, key_value_heads=2, bias=False)
    query, memory = grouped.queries_and_memory(torch.randn(2, 5, 16))
    mask = torch.rand(mask_shape) < 0.7 if mask_shape else None
    many, many_weights = grouped(query, memory, mask=mask, causal=True, weights=True)
    last_mask = None if mask is None else mask[..., -1:, :]
    one, one_weights = grouped(query[:, :, -1:], memory, mask=last_mask, causal=True, weights=True)
    torch.testing.assert_close(one, many[:, -1:])
    torch.testing.assert_close(one_weights, many_weights[:, :, -1:])


@pytest.mark.parametrize(
    ("heads", "key_value_heads", "message"),
    [
        (3, 3, r"size \(16\) must be a multiple of heads \(3\)"),
        (4, 3, r"heads \(4\) must be a multiple of key_value_heads \(3\)"),
    ],
)
def test_heads_that_do_not_divide_are_refused(heads: int, key_value_heads: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        MultiHead(16, heads, key_value_heads=key_value_heads, bias=True)
