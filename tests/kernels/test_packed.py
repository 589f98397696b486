"""Attention over packed sentences: the kernels give what the formula gives, on a GPU or interpreted."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="there is no Triton on this system")

from regard.attention.core import attend
from regard.kernels.packed import _attend, attend_packed
from tests.kernels.halves import DEVICE, HALVES, apart, heads_of


def starts_of(*rows: list[int]) -> Tensor:
    """The starts of sentences of these lengths, row by row."""
    lengths = torch.tensor(rows, device=DEVICE)
    return torch.cat([torch.zeros_like(lengths[:, :1]), lengths.cumsum(1)], 1).int()


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize(
    ("queries", "keys", "size", "causal"),
    [
        ([[1, 5, 32]], [[1, 7, 20]], 16, False),
        ([[3, 9], [4, 8]], [[3, 9], [4, 8]], 32, True),
        ([[40, 2]], [[2, 64]], 64, False),
        ([[150, 33]], [[150, 33]], 24, True),
        ([[70]], [[140]], 128, False),
        ([[5, 0, 3]], [[0, 6, 2]], 16, False),
    ],
    ids=["short", "rows", "one tile", "tiles", "long", "empty"],
)
def test_context_and_gradients_are_those_of_each_sentence(
    queries: list[list[int]], keys: list[list[int]], size: int, causal: bool, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    rows, (q_starts, k_starts) = len(queries), (starts_of(*queries), starts_of(*keys))
    asking = torch.randn(rows, sum(queries[0]), 2 * size, device=DEVICE, dtype=dtype)
    answering = torch.randn(rows, sum(keys[0]), 4 * size, device=DEVICE, dtype=dtype)
    given = torch.randn(rows, 2, sum(queries[0]), size, device=DEVICE, dtype=dtype)

    def run(wide: bool) -> list[Tensor]:
        x, y = (each.double() if wide else each.clone() for each in (asking, answering))
        x.requires_grad_()
        y.requires_grad_()
        query, (key, value) = heads_of(x, size), (heads_of(part, size) for part in y.chunk(2, dim=-1))
        if wide:
            context = torch.zeros_like(query)
            for row, (q_row, k_row) in enumerate(zip(q_starts.tolist(), k_starts.tolist(), strict=True)):
                for n in range(len(q_row) - 1):
                    q, k = slice(*q_row[n : n + 2]), slice(*k_row[n : n + 2])
                    if k.stop > k.start:
                        one = [query[row, None, :, q], key[row, None, :, k], value[row, None, :, k]]
                        context[row, :, q] = attend(*one, "scaled_dot", causal=causal)[0][0]
        else:
            context = attend_packed(query, key, value, (q_starts, k_starts), causal=causal, scale=size**-0.5)
        context.backward(given.to(context.dtype))
        return [context.detach(), x.grad, y.grad]

    close = 2e-3 if dtype == torch.float16 else 1e-2
    for ours, wanted in zip(run(wide=False), run(wide=True), strict=True):
        assert apart(ours, wanted) < close


def test_the_kernels_pass_torchs_operator_check() -> None:
    query, key, value = (
        torch.randn(2, 2, 5, 16, device=DEVICE, dtype=torch.float16, requires_grad=True) for _ in range(3)
    )
    starts = starts_of([3, 2], [1, 4])
    torch.library.opcheck(_attend, (query, key, value, starts, starts, True, 0.25), raise_exception=True)


def test_fp32_queries_and_keys_are_cast_to_the_precision_of_the_values() -> None:
    value = torch.randn(1, 2, 5, 16, device=DEVICE, dtype=torch.float16, requires_grad=True)
    query, key = (torch.randn(1, 2, 5, 16, device=DEVICE, requires_grad=True) for _ in range(2))
    context = attend_packed(query, key, value, (starts_of([2, 3]), starts_of([3, 2])), causal=False, scale=0.25)
    context.backward(torch.ones_like(context))
    assert (context.dtype, query.grad.dtype) == (torch.float16, torch.float32)
