"""Attention over short sentences: the kernels give what the formula gives, on a GPU or interpreted."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="there is no Triton on this system")

from regard.attention.core import attend
from regard.kernels.short import _attend, applies, attend_short
from tests.kernels.halves import DEVICE, HALVES, apart, heads_of


def projected(rows: int, tokens: int, parts: int, heads: int, size: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(rows, tokens, parts * heads * size, device=DEVICE, dtype=dtype)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize(
    ("queries", "keys", "size", "causal", "masked"),
    [
        (1, 1, 16, False, False),
        (5, 7, 16, False, True),
        (16, 17, 32, False, False),
        (7, 7, 64, True, False),
        (3, 9, 32, True, False),
        (33, 20, 64, False, True),
        (9, 9, 128, True, True),
    ],
)
def test_context_and_gradients_are_those_of_the_formula(
    queries: int, keys: int, size: int, causal: bool, masked: bool, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    asking, answering = projected(3, queries, 1, 2, size, dtype), projected(3, keys, 2, 2, size, dtype)
    mask = None
    if masked:
        mask = torch.rand(3, 1, 1, keys, device=DEVICE) > 0.4
        mask[0] = False  # a sentence in which nothing may be seen
    given = torch.randn(3, 2, queries, size, device=DEVICE, dtype=dtype)

    def run(wide: bool) -> list[Tensor]:
        x, y = (each.double() if wide else each.clone() for each in (asking, answering))
        x.requires_grad_()
        y.requires_grad_()
        query, (key, value) = heads_of(x, size), (heads_of(part, size) for part in y.chunk(2, dim=-1))
        if wide:
            context, _ = attend(query, key, value, "scaled_dot", mask, causal=causal)
        else:
            context = attend_short(query, key, value, mask, causal=causal, scale=size**-0.5)
        context.backward(given.to(context.dtype))
        return [context.detach(), x.grad, y.grad]

    close = 2e-3 if dtype == torch.float16 else 1e-2
    for ours, wanted in zip(run(wide=False), run(wide=True), strict=True):
        assert apart(ours, wanted) < close


def test_the_kernels_pass_torchs_operator_check() -> None:
    query, key, value = (torch.randn(2, 2, 5, 16, device=DEVICE, dtype=torch.float16) for _ in range(3))
    for tensor in (query, key, value):
        tensor.requires_grad_()
    mask = torch.ones(2, 1, 1, 5, dtype=torch.bool, device=DEVICE)
    torch.library.opcheck(_attend, (query, key, value, mask, True, 0.25), raise_exception=True)


def test_fp32_queries_and_keys_are_cast_to_the_precision_of_the_values() -> None:
    value = torch.randn(2, 2, 5, 16, device=DEVICE, dtype=torch.float16, requires_grad=True)
    query, key = (torch.randn(2, 2, 5, 16, device=DEVICE, requires_grad=True) for _ in range(2))
    context = attend_short(query, key, value, None, causal=False, scale=0.25)
    context.backward(torch.ones_like(context))
    assert (context.dtype, query.grad.dtype) == (torch.float16, torch.float32)


@pytest.mark.parametrize(("queries", "keys"), [(0, 5), (5, 0)])
def test_hidden_keys_and_queries_without_visible_keys_have_zero_gradients(queries: int, keys: int) -> None:
    query = torch.randn(2, 2, queries, 16, device=DEVICE, dtype=torch.float16, requires_grad=True)
    key = torch.randn(2, 2, keys, 16, device=DEVICE, dtype=torch.float16, requires_grad=True)
    context = attend_short(query, key, key, None, causal=False, scale=1.0)
    assert not context.any()
    context.backward(torch.ones_like(context))
    assert not query.grad.any()
    assert not key.grad.any()


def test_sentences_without_tokens_have_an_empty_context() -> None:
    query, key = (torch.randn(0, 2, 5, 16, device=DEVICE, dtype=torch.float16) for _ in range(2))
    assert attend_short(query, key, key, None, causal=False, scale=1.0).shape == (0, 2, 5, 16)


@pytest.mark.parametrize(
    ("shape", "dtype", "mask"),
    [
        ((2, 2, 5, 16), torch.float32, None),
        ((2, 2, 129, 16), torch.float16, None),
        ((2, 2, 5, 24), torch.float16, None),
        ((2, 2, 5, 16), torch.float16, (2, 1, 5, 5)),
        ((2, 5, 16), torch.float16, None),
    ],
    ids=["precise", "long", "odd heads", "masked by query", "no heads"],
)
def test_unsuitable_inputs_are_declined(
    shape: tuple[int, ...], dtype: torch.dtype, mask: tuple[int, ...] | None
) -> None:
    x = torch.randn(shape, dtype=dtype)
    assert not applies(x, x, x, None if mask is None else torch.ones(mask, dtype=torch.bool))
