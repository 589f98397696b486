"""Attention with one query per sentence on a GPU, for the steps of a recurrent decoder, as one kernel.

The steps wait for each other, so their time is the number of kernel launches: score, mask, softmax and context need
many, and more in the backward pass. Here one program computes one sentence, for all scores.

B batch, K keys, D size of a query and of a key, V size of a value.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.kernels import dense

MAX_KEYS = 256  # larger tiles were not tried
BLOCK = 64  # numbers of keys and values in one tile
MIN_TILE = 16  # keys of the smallest tile
WARPS = {16: 2, 32: 2, 64: 4, 128: 4, 256: 8}


def suits(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> bool:
    """Whether the kernel applies: one head, one query, with a mask by key or none."""
    if query.dim() != 4:
        return False
    rows, keys, kinds = len(query), key.shape[-2], (torch.float32, torch.bfloat16, torch.float16)
    by_key = mask is None or mask.shape == (rows, 1, 1, keys)
    one = query.shape[1:3] == (1, 1) and key.shape[:2] == value.shape[:2] == (rows, 1)
    return by_key and one and keys <= MAX_KEYS and all(x.dtype in kinds for x in (query, key, value))


def attend_single(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float, additive: tuple[Tensor, Tensor] | None
) -> Tensor:
    """The context of each query, (B, 1, 1, V); scores are `scale` q . k, or v . tanh(q + k + b) with `additive`."""
    v, b = map(dense, additive) if additive else (None, None)
    seen = None if mask is None else mask[:, 0, 0]
    context: Tensor
    # squeezed, not indexed: the backward pass of indexing launches one or two more kernels at every step
    context, _ = _attend(query.squeeze((1, 2)), key.squeeze(1), value.squeeze(1), seen, v, b, scale)
    return context[:, None, None]


@torch.library.custom_op("regard::single_attention", mutates_args=())
def _attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, v: Tensor | None, b: Tensor | None, scale: float
) -> tuple[Tensor, Tensor]:
    rows, keys, size = key.shape
    context, weights = value.new_empty(rows, value.shape[2]), key.new_empty(rows, keys, dtype=torch.float32)
    query, key, value = (dense(x) for x in (query, key, value))
    if rows:
        with torch.cuda.device_of(query):  # Triton uses the current device, not that of its arguments
            _forward[(rows,)](
                query, key, value, mask, v, b, context, weights, *_strides(query, key, value, mask), keys, scale,
                ADDITIVE=v is not None, MASKED=mask is not None, SIZE=size, WIDTH=value.shape[2], **_tiles(keys),
            )  # fmt: skip
    return context, weights


@_attend.register_fake
def _(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, v: Tensor | None, b: Tensor | None, scale: float
) -> tuple[Tensor, Tensor]:
    rows, keys, _ = key.shape
    return value.new_empty(rows, value.shape[2]), key.new_empty(rows, keys, dtype=torch.float32)


@torch.library.custom_op("regard::single_attention_backward", mutates_args=())
def _attend_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, weights: Tensor, v: Tensor | None, b: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    rows, keys, size = key.shape
    gradients = (
        query.new_empty(rows, size),
        key.new_empty(rows, keys, size),
        value.new_empty(rows, keys, value.shape[2]),
        key.new_empty(rows if v is not None else 0, size, dtype=torch.float32),  # gradient of v, per sentence
    )
    grad, query, key, value = (dense(x) for x in (grad, query, key, value))
    if rows:
        with torch.cuda.device_of(query):
            _backward[(rows,)](
                grad, query, key, value, weights, v, b, *gradients, grad.stride(0),
                *_strides(query, key, value, None)[:5], keys, scale, ADDITIVE=v is not None, SIZE=size,
                WIDTH=value.shape[2], **_tiles(keys),
            )  # fmt: skip
    return gradients


@_attend_backward.register_fake
def _(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, weights: Tensor, v: Tensor | None, b: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    rows, keys, size = key.shape
    return (
        query.new_empty(rows, size),
        key.new_empty(rows, keys, size),
        value.new_empty(rows, keys, value.shape[2]),
        key.new_empty(rows if v is not None else 0, size, dtype=torch.float32),
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    query, key, value, _, v, b, ctx.scale = inputs
    ctx.save_for_backward(query, key, value, output[1], v, b)


def _backward_pass(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    query, key, value, weights, v, b = ctx.saved_tensors
    to_query, to_key, to_value, to_v = _attend_backward(grad, query, key, value, weights, v, b, ctx.scale)
    if v is None:
        return to_query, to_key, to_value, None, None, None, None
    return to_query, to_key, to_value, None, to_v.sum(0).to(v.dtype), to_query.sum(0).to(b.dtype), None


_attend.register_autograd(_backward_pass, setup_context=_setup_context)


def _strides(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> list[int]:
    own = (0, 0) if mask is None else mask.stride()
    return [query.stride(0), *key.stride()[:2], *value.stride()[:2], *own]


def _tiles(keys: int) -> dict[str, int]:
    side = max(MIN_TILE, triton.next_power_of_2(keys))
    return {"TILE": side, "BLOCK": BLOCK, "num_warps": WARPS[side], "num_stages": 1}


# The kernels


@triton.jit
def _rows(start, row_stride, rows, row_count, columns, column_count):
    """Part of a matrix in fp32; zeros outside."""
    real = (rows < row_count)[:, None] & (columns < column_count)[None, :]
    return tl.load(start + rows[:, None] * row_stride + columns[None, :], mask=real, other=0.0).to(tl.float32)


@triton.jit
def _numbers(start, columns, column_count):
    return tl.load(start + columns, mask=columns < column_count, other=0.0).to(tl.float32)


@triton.jit
def _tanh(x):
    small = tl.exp(-2.0 * tl.abs(x))
    found = (1.0 - small) / (1.0 + small)
    return tl.where(x < 0, -found, found)


VARYING = ["keys", "mask_row", "mask_token"]  # change from batch to batch: no reason to compile again


@triton.jit(do_not_specialize=VARYING)
def _forward(
    query, key, value, mask, v, b, context, weights,
    q_row, k_row, k_token, v_row, v_token, mask_row, mask_token, keys, scale,
    ADDITIVE: tl.constexpr, MASKED: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row, places = tl.program_id(0).to(tl.int64), tl.arange(0, TILE)
    scores = tl.zeros([TILE], tl.float32)
    for start in range(0, SIZE, BLOCK):
        numbers = start + tl.arange(0, BLOCK)
        q = _numbers(query + row * q_row, numbers, SIZE)
        k = _rows(key + row * k_row, k_token, places, keys, numbers, SIZE)
        if ADDITIVE:
            q += _numbers(b, numbers, SIZE)
            scores += tl.sum(_numbers(v, numbers, SIZE)[None, :] * _tanh(q[None, :] + k), 1)
        else:
            scores += tl.sum(q[None, :] * k, 1) * scale
    seen = places < keys
    if MASKED:
        there = tl.load(mask + row * mask_row + places * mask_token, mask=places < keys, other=0)
        seen = seen & (there != 0)
    scores = tl.where(seen, scores, -1e30)
    powers = tl.where(seen, tl.exp(scores - tl.max(scores, 0)), 0.0)
    attention = powers / tl.maximum(tl.sum(powers, 0), 1e-30)  # zeros for a query without visible keys
    tl.store(weights + row * keys + places, attention, mask=places < keys)
    for start in range(0, WIDTH, BLOCK):
        numbers = start + tl.arange(0, BLOCK)
        found = tl.sum(attention[:, None] * _rows(value + row * v_row, v_token, places, keys, numbers, WIDTH), 0)
        tl.store(context + row * WIDTH + numbers, found.to(context.dtype.element_ty), mask=numbers < WIDTH)


@triton.jit(do_not_specialize=["keys"])
def _backward(
    grad, query, key, value, weights, v, b, to_query, to_key, to_value, to_v,
    g_row, q_row, k_row, k_token, v_row, v_token, keys, scale,
    ADDITIVE: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row, places = tl.program_id(0).to(tl.int64), tl.arange(0, TILE)
    real = (places < keys)[:, None]
    share = tl.load(weights + row * keys + places, mask=places < keys, other=0.0)
    moved = tl.zeros([TILE], tl.float32)  # gradient of the weights
    for start in range(0, WIDTH, BLOCK):
        numbers = start + tl.arange(0, BLOCK)
        g = _numbers(grad + row * g_row, numbers, WIDTH)
        moved += tl.sum(g[None, :] * _rows(value + row * v_row, v_token, places, keys, numbers, WIDTH), 1)
        own = share[:, None] * g[None, :]
        by_key = to_value + row * keys * WIDTH + places[:, None] * WIDTH + numbers[None, :]
        tl.store(by_key, own.to(to_value.dtype.element_ty), mask=real & (numbers < WIDTH)[None, :])
    moved = share * (moved - tl.sum(share * moved, 0))  # gradient of the scores
    for start in range(0, SIZE, BLOCK):
        numbers = start + tl.arange(0, BLOCK)
        q = _numbers(query + row * q_row, numbers, SIZE)
        k = _rows(key + row * k_row, k_token, places, keys, numbers, SIZE)
        if ADDITIVE:
            bent = _tanh((q + _numbers(b, numbers, SIZE))[None, :] + k)
            own = moved[:, None] * _numbers(v, numbers, SIZE)[None, :] * (1.0 - bent * bent)
            asked = tl.sum(own, 0)
            tl.store(to_v + row * SIZE + numbers, tl.sum(moved[:, None] * bent, 0), mask=numbers < SIZE)
        else:
            own = moved[:, None] * q[None, :] * scale
            asked = tl.sum(moved[:, None] * k, 0) * scale
        by_key = to_key + row * keys * SIZE + places[:, None] * SIZE + numbers[None, :]
        tl.store(by_key, own.to(to_key.dtype.element_ty), mask=real & (numbers < SIZE)[None, :])
        tl.store(to_query + row * SIZE + numbers, asked.to(to_query.dtype.element_ty), mask=numbers < SIZE)
