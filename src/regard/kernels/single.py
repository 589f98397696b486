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
BLOCK = 64  # dimensions of keys and values in one tile
MIN_TILE = 16  # keys of the smallest tile
WARPS = {16: 2, 32: 2, 64: 4, 128: 4, 256: 8}


def applies(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> bool:
    """Whether the kernel applies: one head, one query, with a mask by key or none."""
    if query.dim() != 4:
        return False
    rows, keys, dtypes = len(query), key.shape[-2], (torch.float32, torch.bfloat16, torch.float16)
    has_key_mask = mask is None or mask.shape == (rows, 1, 1, keys)
    is_single = query.shape[1:3] == (1, 1) and key.shape[:2] == value.shape[:2] == (rows, 1)
    return has_key_mask and is_single and keys <= MAX_KEYS and all(x.dtype in dtypes for x in (query, key, value))


def attend_single(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float, additive: tuple[Tensor, Tensor] | None
) -> Tensor:
    """The context of each query, (B, 1, 1, V); scores are `scale` q . k, or v . tanh(q + k + b) with `additive`."""
    v, b = map(dense, additive) if additive else (None, None)
    key_mask = None if mask is None else mask[:, 0, 0]
    context: Tensor
    # squeezed, not indexed: the backward pass of indexing launches one or two more kernels at every step
    context, _ = _attend(query.squeeze((1, 2)), key.squeeze(1), value.squeeze(1), key_mask, v, b, scale)
    return context[:, None, None]


def _empty_outputs(key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    return value.new_empty(len(value), value.shape[2]), key.new_empty(key.shape[:2], dtype=torch.float32)


def _empty_gradients(
    query: Tensor, key: Tensor, value: Tensor, v: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    sentences = len(key) if v is not None else 0  # each gives a gradient of v
    to_v = key.new_empty(sentences, key.shape[2], dtype=torch.float32)
    return query.new_empty(query.shape), key.new_empty(key.shape), value.new_empty(value.shape), to_v


@torch.library.custom_op("regard::single_attention", mutates_args=())
def _attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, v: Tensor | None, b: Tensor | None, scale: float
) -> tuple[Tensor, Tensor]:
    rows, keys, size = key.shape
    context, weights = _empty_outputs(key, value)
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
    return _empty_outputs(key, value)


@torch.library.custom_op("regard::single_attention_backward", mutates_args=())
def _attend_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, weights: Tensor, v: Tensor | None, b: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    rows, keys, size = key.shape
    gradients = _empty_gradients(query, key, value, v)
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
    return _empty_gradients(query, key, value, v)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    query, key, value, _, v, b, ctx.scale = inputs
    ctx.save_for_backward(query, key, value, output[1], v, b)


def _backward_pass(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    query, key, value, weights, v, b = ctx.saved_tensors
    query_grad, key_grad, value_grad, v_grad = _attend_backward(grad, query, key, value, weights, v, b, ctx.scale)
    if v is None:
        return query_grad, key_grad, value_grad, None, None, None, None
    return query_grad, key_grad, value_grad, None, v_grad.sum(0).to(v.dtype), query_grad.sum(0).to(b.dtype), None


_attend.register_autograd(_backward_pass, setup_context=_setup_context)


def _strides(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> list[int]:
    mask_strides = (0, 0) if mask is None else mask.stride()
    return [query.stride(0), *key.stride()[:2], *value.stride()[:2], *mask_strides]


def _tiles(keys: int) -> dict[str, int]:
    tile = max(MIN_TILE, triton.next_power_of_2(keys))
    return {"TILE": tile, "BLOCK": BLOCK, "num_warps": WARPS[tile], "num_stages": 1}


# The kernels


@triton.jit
def _load_matrix(start, row_stride, rows, row_count, columns, column_count):
    """Part of a matrix in fp32; zeros outside."""
    inside = (rows < row_count)[:, None] & (columns < column_count)[None, :]
    return tl.load(start + rows[:, None] * row_stride + columns[None, :], mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _load_vector(start, columns, column_count):
    return tl.load(start + columns, mask=columns < column_count, other=0.0).to(tl.float32)


@triton.jit
def _tanh(x):
    e = tl.exp(-2.0 * tl.abs(x))  # at most 1: no overflow
    magnitude = (1.0 - e) / (1.0 + e)
    return tl.where(x < 0, -magnitude, magnitude)


VARYING = ["keys", "mask_row", "mask_token"]  # change from batch to batch: no reason to compile again


@triton.jit(do_not_specialize=VARYING)
def _forward(
    query, key, value, mask, v, b, context, weights,
    q_row, k_row, k_token, v_row, v_token, mask_row, mask_token, keys, scale,
    ADDITIVE: tl.constexpr, MASKED: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row, positions = tl.program_id(0).to(tl.int64), tl.arange(0, TILE)
    scores = tl.zeros([TILE], tl.float32)
    for start in range(0, SIZE, BLOCK):
        dims = start + tl.arange(0, BLOCK)
        q = _load_vector(query + row * q_row, dims, SIZE)
        k = _load_matrix(key + row * k_row, k_token, positions, keys, dims, SIZE)
        if ADDITIVE:
            q += _load_vector(b, dims, SIZE)
            scores += tl.sum(_load_vector(v, dims, SIZE)[None, :] * _tanh(q[None, :] + k), 1)
        else:
            scores += tl.sum(q[None, :] * k, 1) * scale
    visible = positions < keys
    if MASKED:
        key_mask = tl.load(mask + row * mask_row + positions * mask_token, mask=positions < keys, other=0)
        visible = visible & (key_mask != 0)
    scores = tl.where(visible, scores, -1e30)
    exponentials = tl.where(visible, tl.exp(scores - tl.max(scores, 0)), 0.0)
    attention = exponentials / tl.maximum(tl.sum(exponentials, 0), 1e-30)  # zeros for a query without visible keys
    tl.store(weights + row * keys + positions, attention, mask=positions < keys)
    for start in range(0, WIDTH, BLOCK):
        dims = start + tl.arange(0, BLOCK)
        output = tl.sum(
            attention[:, None] * _load_matrix(value + row * v_row, v_token, positions, keys, dims, WIDTH), 0
        )
        tl.store(context + row * WIDTH + dims, output.to(context.dtype.element_ty), mask=dims < WIDTH)


@triton.jit(do_not_specialize=["keys"])
def _backward(
    grad, query, key, value, weights, v, b, query_grad, key_grad, value_grad, v_grad,
    g_row, q_row, k_row, k_token, v_row, v_token, keys, scale,
    ADDITIVE: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row, positions = tl.program_id(0).to(tl.int64), tl.arange(0, TILE)
    is_key = (positions < keys)[:, None]
    probabilities = tl.load(weights + row * keys + positions, mask=positions < keys, other=0.0)
    weight_grads = tl.zeros([TILE], tl.float32)
    for start in range(0, WIDTH, BLOCK):
        dims = start + tl.arange(0, BLOCK)
        g = _load_vector(grad + row * g_row, dims, WIDTH)
        weight_grads += tl.sum(g[None, :] * _load_matrix(value + row * v_row, v_token, positions, keys, dims, WIDTH), 1)
        grads = probabilities[:, None] * g[None, :]
        offsets = value_grad + row * keys * WIDTH + positions[:, None] * WIDTH + dims[None, :]
        tl.store(offsets, grads.to(value_grad.dtype.element_ty), mask=is_key & (dims < WIDTH)[None, :])
    score_grads = probabilities * (weight_grads - tl.sum(probabilities * weight_grads, 0))
    for start in range(0, SIZE, BLOCK):
        dims = start + tl.arange(0, BLOCK)
        q = _load_vector(query + row * q_row, dims, SIZE)
        k = _load_matrix(key + row * k_row, k_token, positions, keys, dims, SIZE)
        if ADDITIVE:
            activations = _tanh((q + _load_vector(b, dims, SIZE))[None, :] + k)
            key_grads = score_grads[:, None] * _load_vector(v, dims, SIZE)[None, :] * (1.0 - activations * activations)
            query_grads = tl.sum(key_grads, 0)
            tl.store(v_grad + row * SIZE + dims, tl.sum(score_grads[:, None] * activations, 0), mask=dims < SIZE)
        else:
            key_grads = score_grads[:, None] * q[None, :] * scale
            query_grads = tl.sum(score_grads[:, None] * k, 0) * scale
        offsets = key_grad + row * keys * SIZE + positions[:, None] * SIZE + dims[None, :]
        tl.store(offsets, key_grads.to(key_grad.dtype.element_ty), mask=is_key & (dims < SIZE)[None, :])
        tl.store(query_grad + row * SIZE + dims, query_grads.to(query_grad.dtype.element_ty), mask=dims < SIZE)
