"""Attention over short sentences on a GPU: all scores of a sentence in one tile of on-chip memory.

Kernels for long texts leave their tiles nearly empty on sentences, and plain products write every score to memory in
fp32 and unaligned. Here one program computes one head of one sentence, forward and backward.

B batch, H heads, Q queries, K keys, D size of a query and of a key.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.kernels import dense, empty_by_token, strides

MAX_LENGTH = 128  # queries and keys: a larger tile does not fit the registers
HEAD_SIZES = (16, 32, 64, 128)
MIN_TILE = 16  # the smallest tile of a tensor core
WARPS = {16: 1, 32: 2, 64: 4, 128: 8}


def applies(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> bool:
    """Whether the kernel applies: short sentences in half precision, with a mask by key or none."""
    if query.dim() != 4:
        return False
    rows, heads, queries, size = query.shape
    has_key_mask = mask is None or mask.shape == (rows, 1, 1, key.shape[-2])
    return (
        has_key_mask
        and size in HEAD_SIZES
        and value.shape == key.shape == (rows, heads, key.shape[-2], size)
        and query.dtype in (torch.bfloat16, torch.float16)
        and query.dtype == key.dtype == value.dtype
        and queries <= MAX_LENGTH
        and key.shape[-2] <= MAX_LENGTH
    )


def attend_short(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, causal: bool, scale: float
) -> Tensor:
    """The context of each query: (B, H, Q, D), stored as (B, Q, H, D), as the output projection reads it.

    Queries and keys may have a higher precision than the values: under autocast, a normalised one is fp32.
    """
    context: Tensor = _attend(query.to(value.dtype), key.to(value.dtype), value, mask, causal, scale)
    return context.transpose(1, 2)


@torch.library.custom_op("regard::short_attention", mutates_args=())
def _attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float) -> Tensor:
    rows, heads, queries, size = query.shape
    context = empty_by_token(query)
    query, key, value = (dense(x) for x in (query, key, value))
    if rows:
        with torch.cuda.device_of(query):  # Triton uses the current device, not that of its arguments
            _forward[(rows * heads,)](
                query, key, value, mask, context, *strides(query, key, value), *_mask_strides(mask), heads, queries,
                key.shape[2], scale, CAUSAL=causal, MASKED=mask is not None, SIZE=size,
                **_tiles(queries, key.shape[2]),
            )  # fmt: skip
    return context


@_attend.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float) -> Tensor:
    return empty_by_token(query)


@torch.library.custom_op("regard::short_attention_backward", mutates_args=())
def _attend_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    (rows, heads, queries, size), keys = query.shape, key.shape[2]
    gradients = empty_by_token(query), empty_by_token(key), empty_by_token(value)
    grad, query, key, value = (dense(x) for x in (grad, query, key, value))
    if rows:
        with torch.cuda.device_of(query):
            _backward[(rows * heads,)](
                query, key, value, mask, grad, *gradients, *strides(query, key, value),
                grad.stride(0), grad.stride(1), grad.stride(2), *_mask_strides(mask), heads, queries, keys,
                scale, CAUSAL=causal, MASKED=mask is not None, SIZE=size, **_tiles(queries, keys),
            )  # fmt: skip
    return gradients


@_attend_backward.register_fake
def _(grad: Tensor, query: Tensor, key: Tensor, value: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return empty_by_token(query), empty_by_token(key), empty_by_token(value)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    query, key, value, mask, ctx.causal, ctx.scale = inputs
    ctx.save_for_backward(query, key, value, mask)


def _backward_pass(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    gradients = _attend_backward(grad, *ctx.saved_tensors, ctx.causal, ctx.scale)
    return (*(gradient.transpose(1, 2) for gradient in gradients), None, None, None)


_attend.register_autograd(_backward_pass, setup_context=_setup_context)


def _mask_strides(mask: Tensor | None) -> tuple[int, int]:
    return (0, 0) if mask is None else (mask.stride(0), mask.stride(3))


def _tiles(queries: int, keys: int) -> dict[str, int]:
    """Square tiles, so that there are few kernels to compile."""
    tile = max(MIN_TILE, triton.next_power_of_2(max(queries, keys)))
    return {"TILE": tile, "num_warps": WARPS[tile], "num_stages": 1}


# The kernels


@triton.jit
def _load_rows(start, row_stride, rows, row_count, columns):
    """The rows of a head; zeros after the last."""
    offsets = start + rows[:, None] * row_stride + columns[None, :]
    return tl.load(offsets, mask=(rows < row_count)[:, None], other=0.0)


@triton.jit
def _weights(
    q, k, mask, mask_start, mask_token, rows, columns, queries, keys, scale, CAUSAL: tl.constexpr, MASKED: tl.constexpr
):
    """Softmax of the scores over the visible keys; zeros for a query without visible keys."""
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    visible = (rows < queries)[:, None] & (columns < keys)[None, :]
    if CAUSAL:
        visible = visible & (columns[None, :] <= rows[:, None] + (keys - queries))
    if MASKED:
        key_mask = tl.load(mask + mask_start + columns * mask_token, mask=columns < keys, other=0)
        visible = visible & (key_mask != 0)[None, :]
    scores = tl.where(visible, scores, -1e30)
    exponentials = tl.where(visible, tl.exp(scores - tl.max(scores, 1)[:, None]), 0.0)
    return exponentials / tl.maximum(tl.sum(exponentials, 1), 1e-30)[:, None]


VARYING = ["queries", "keys", "mask_row", "mask_token"]  # change from batch to batch: no reason to compile again


@triton.jit(do_not_specialize=VARYING)
def _forward(
    query, key, value, mask, context,
    q_row, q_head, q_token, k_row, k_head, k_token, v_row, v_head, v_token, mask_row, mask_token,
    heads, queries, keys, scale,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, SIZE: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    row, head = (tl.program_id(0) // heads).to(tl.int64), tl.program_id(0) % heads
    rows, columns, dims = tl.arange(0, TILE), tl.arange(0, TILE), tl.arange(0, SIZE)
    q = _load_rows(query + row * q_row + head * q_head, q_token, rows, queries, dims)
    k = _load_rows(key + row * k_row + head * k_head, k_token, columns, keys, dims)
    weights = _weights(
        q, k, mask, row * mask_row, mask_token, rows, columns, queries, keys, scale, CAUSAL, MASKED
    )  # fmt: skip
    v = _load_rows(value + row * v_row + head * v_head, v_token, columns, keys, dims)
    output = tl.dot(weights.to(v.dtype), v, input_precision="ieee")
    pointers = context + (row * queries * heads + head) * SIZE + rows[:, None] * heads * SIZE + dims[None, :]
    tl.store(pointers, output.to(v.dtype), mask=(rows < queries)[:, None])


@triton.jit(do_not_specialize=VARYING)
def _backward(
    query, key, value, mask, grad, query_grad, key_grad, value_grad,
    q_row, q_head, q_token, k_row, k_head, k_token, v_row, v_head, v_token, g_row, g_token, g_head,
    mask_row, mask_token, heads, queries, keys, scale,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, SIZE: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    row, head = (tl.program_id(0) // heads).to(tl.int64), tl.program_id(0) % heads
    rows, columns, dims = tl.arange(0, TILE), tl.arange(0, TILE), tl.arange(0, SIZE)
    q = _load_rows(query + row * q_row + head * q_head, q_token, rows, queries, dims)
    k = _load_rows(key + row * k_row + head * k_head, k_token, columns, keys, dims)
    weights = _weights(
        q, k, mask, row * mask_row, mask_token, rows, columns, queries, keys, scale, CAUSAL, MASKED
    )  # fmt: skip
    g = _load_rows(grad + row * g_row + head * g_head, g_token, rows, queries, dims)
    key_offsets = (row * keys * heads + head) * SIZE + columns[:, None] * heads * SIZE + dims[None, :]
    is_key = (columns < keys)[:, None]
    tl.store(
        value_grad + key_offsets,
        tl.dot(tl.trans(weights).to(g.dtype), g, input_precision="ieee").to(g.dtype),
        mask=is_key,
    )
    v = _load_rows(value + row * v_row + head * v_head, v_token, columns, keys, dims)
    weight_grads = tl.dot(g, tl.trans(v), input_precision="ieee")
    score_grads = (weights * (weight_grads - tl.sum(weights * weight_grads, 1)[:, None]) * scale).to(q.dtype)
    query_offsets = (row * queries * heads + head) * SIZE + rows[:, None] * heads * SIZE + dims[None, :]
    tl.store(
        query_grad + query_offsets,
        tl.dot(score_grads, k, input_precision="ieee").to(q.dtype),
        mask=(rows < queries)[:, None],
    )
    tl.store(key_grad + key_offsets, tl.dot(tl.trans(score_grads), q, input_precision="ieee").to(q.dtype), mask=is_key)
