"""Attention over packed sentences on a GPU: the sentences of a row lie one after the other, without padding.

FlashAttention's tiles are made for long texts; a sentence fills only a small part of one. Here one program computes one
head of one sentence, tile by tile, forward and backward. Sentences of at most SHORT tokens get smaller tiles. Every
token belongs to a sentence. Causal attention needs the same starts for queries and keys.

B rows, H heads, Q queries, K keys, D size of a query and of a key, N sentences of a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.kernels import dense, empty_by_token, strides

MAX_HEAD_SIZE = 128  # a larger tile does not fit the registers
SHORT = 32
LAUNCHES = (  # tile size; shortest (exclusive) and longest sentence; warps. Each skips the sentences of the other.
    (SHORT, 0, SHORT, 1),
    (64, SHORT, 2**30, 4),
)


def applies(query: Tensor, value: Tensor) -> bool:
    """Whether the kernels take these heads; not in fp32, where a small run was not done in 100 s (docs/log.md)."""
    return value.dtype in (torch.float16, torch.bfloat16) and query.shape[-1] <= MAX_HEAD_SIZE


def attend_packed(
    query: Tensor, key: Tensor, value: Tensor, starts: Sequence[Tensor], *, causal: bool, scale: float
) -> Tensor:
    """The context of each query: (B, H, Q, D), stored as (B, Q, H, D), as the output projection reads it.

    `starts`, (B, N + 1) of int32 each, say where the sentences of queries and keys begin, and where the last one ends.
    Sentence n of the queries attends to sentence n of the keys.
    """
    context: Tensor = _attend(query.to(value.dtype), key.to(value.dtype), value, *starts, causal, scale)[0]
    return context.transpose(1, 2)


@torch.library.custom_op("regard::packed_attention", mutates_args=())
def _attend(
    query: Tensor, key: Tensor, value: Tensor, query_starts: Tensor, key_starts: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    rows, heads, queries, size = query.shape
    context = empty_by_token(query)
    log_sum_exp = query.new_empty(rows, heads, queries, dtype=torch.float32)
    query, key, value = (dense(x) for x in (query, key, value))
    sentences = query_starts.shape[1] - 1
    for tile, above, longest, warps in LAUNCHES:
        with torch.cuda.device_of(query):  # Triton uses the current device, not that of its arguments
            _forward[(rows * sentences * heads,)](
                query, key, value, query_starts, key_starts, context, log_sum_exp, *strides(query, key, value),
                heads, sentences, queries, scale, causal, SIZE=size, WIDTH=_width(size), TILE=tile, ABOVE=above,
                LONGEST=longest, num_warps=warps, num_stages=1,
            )  # fmt: skip
    return context, log_sum_exp


@_attend.register_fake
def _(
    query: Tensor, key: Tensor, value: Tensor, query_starts: Tensor, key_starts: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    return empty_by_token(query), query.new_empty(query.shape[:3], dtype=torch.float32)


@torch.library.custom_op("regard::packed_attention_backward", mutates_args=())
def _attend_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_starts: Tensor,
    key_starts: Tensor,
    context: Tensor,
    log_sum_exp: Tensor,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    rows, heads, queries, size = query.shape
    gradients = empty_by_token(query), empty_by_token(key), empty_by_token(value)
    grad, query, key, value = (dense(x) for x in (grad, query, key, value))
    sentences = query_starts.shape[1] - 1
    for tile, above, longest, warps in LAUNCHES:
        with torch.cuda.device_of(query):
            _backward[(rows * sentences * heads,)](
                query, key, value, query_starts, key_starts, context, log_sum_exp, grad, *gradients,
                *strides(query, key, value), grad.stride(0), grad.stride(2), grad.stride(1),
                heads, sentences, queries, key.shape[2], scale, causal, SIZE=size, WIDTH=_width(size),
                TILE=tile, ABOVE=above, LONGEST=longest, num_warps=warps, num_stages=1,
            )  # fmt: skip
    return gradients


@_attend_backward.register_fake
def _(grad: Tensor, query: Tensor, key: Tensor, value: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return empty_by_token(query), empty_by_token(key), empty_by_token(value)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.causal, ctx.scale = inputs
    ctx.save_for_backward(*tensors, *output)


def _backward_pass(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    gradients = _attend_backward(grad, *ctx.saved_tensors, ctx.causal, ctx.scale)
    return (*(gradient.transpose(1, 2) for gradient in gradients), None, None, None, None)


_attend.register_autograd(_backward_pass, setup_context=_setup_context)


def _width(size: int) -> int:
    """The width of a tile: a power of two, and at least that of a tensor core."""
    return max(16, int(triton.next_power_of_2(size)))


# The kernels


@triton.jit
def _tile(start, token_stride, tokens, count, dims, SIZE: tl.constexpr):
    """Some tokens of a head; zeros after the last."""
    offsets = start + tokens[:, None] * token_stride + dims[None, :]
    return tl.load(offsets, mask=(tokens < count)[:, None] & (dims < SIZE)[None, :], other=0.0)


@triton.jit
def _sentence(query_starts, key_starts, index, sentences):
    """The row of a sentence, where its queries and keys begin, and how many it has of each."""
    place = index + index // sentences  # a row has one more start than sentences
    q_first, k_first = tl.load(query_starts + place).to(tl.int64), tl.load(key_starts + place).to(tl.int64)
    queries = tl.load(query_starts + place + 1) - q_first.to(tl.int32)
    keys = tl.load(key_starts + place + 1) - k_first.to(tl.int32)
    return (index // sentences).to(tl.int64), q_first, k_first, queries, keys


@triton.jit
def _scores(q, k, tokens, queries, columns, keys, scale, causal):
    """Scaled scores, -1e30 where hidden, and where they are visible."""
    last = tl.where(causal, tokens, keys - 1)  # the last key that each query sees
    visible = (tokens < queries)[:, None] & (columns < keys)[None, :] & (columns[None, :] <= last[:, None])
    return tl.where(visible, tl.dot(q, tl.trans(k)) * scale, -1e30), visible


@triton.jit
def _forward(
    query, key, value, query_starts, key_starts, context, log_sum_exp,
    q_row, q_head, q_token, k_row, k_head, k_token, v_row, v_head, v_token,
    heads, sentences, row_queries, scale, causal,
    SIZE: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr, ABOVE: tl.constexpr, LONGEST: tl.constexpr,
):  # fmt: skip
    head, index = tl.program_id(0) % heads, tl.program_id(0) // heads
    row, q_first, k_first, queries, keys = _sentence(query_starts, key_starts, index, sentences)
    longest = tl.maximum(queries, keys)
    if (longest > ABOVE) & (longest <= LONGEST):
        dims = tl.arange(0, WIDTH)
        q_start = query + row * q_row + head * q_head + q_first * q_token
        k_start = key + row * k_row + head * k_head + k_first * k_token
        v_start = value + row * v_row + head * v_head + k_first * v_token
        output_start = context + ((row * row_queries + q_first) * heads + head) * SIZE
        lse_start = log_sum_exp + (row * heads + head) * row_queries + q_first
        for first in range(0, queries, TILE):
            tokens = first + tl.arange(0, TILE)
            q = _tile(q_start, q_token, tokens, queries, dims, SIZE)
            maximum = tl.full((TILE,), -1e30, tl.float32)
            total = tl.zeros((TILE,), tl.float32)
            output = tl.zeros((TILE, WIDTH), tl.float32)
            seen = tl.where(causal, tl.minimum(keys, first + TILE), keys)
            for key_first in range(0, seen, TILE):
                columns = key_first + tl.arange(0, TILE)
                k = _tile(k_start, k_token, columns, keys, dims, SIZE)
                v = _tile(v_start, v_token, columns, keys, dims, SIZE)
                scores, visible = _scores(q, k, tokens, queries, columns, keys, scale, causal)
                new_maximum = tl.maximum(maximum, tl.max(scores, 1))
                weights = tl.where(visible, tl.exp(scores - new_maximum[:, None]), 0.0)
                rescale = tl.exp(maximum - new_maximum)
                total = total * rescale + tl.sum(weights, 1)
                output = output * rescale[:, None] + tl.dot(weights.to(v.dtype), v)
                maximum = new_maximum
            total = tl.maximum(total, 1e-30)
            output = output / total[:, None]
            pointers = output_start + tokens[:, None] * heads * SIZE + dims[None, :]
            is_query = tokens < queries
            tl.store(pointers, output.to(q.dtype), mask=is_query[:, None] & (dims < SIZE)[None, :])
            tl.store(lse_start + tokens, maximum + tl.log(total), mask=is_query)


@triton.jit
def _score_grads(weights, g, v, c, scale):
    """The gradients of the products q·k; the gradient of the softmax needs the context `c`."""
    weight_grads = tl.dot(g, tl.trans(v))
    delta = tl.sum(g.to(tl.float32) * c.to(tl.float32), 1)  # as in FlashAttention
    return (weights * (weight_grads - delta[:, None]) * scale).to(g.dtype)


@triton.jit
def _backward(
    query, key, value, query_starts, key_starts, context, log_sum_exp, grad, query_grad, key_grad, value_grad,
    q_row, q_head, q_token, k_row, k_head, k_token, v_row, v_head, v_token, g_row, g_head, g_token,
    heads, sentences, row_queries, row_keys, scale, causal,
    SIZE: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr, ABOVE: tl.constexpr, LONGEST: tl.constexpr,
):  # fmt: skip
    head, index = tl.program_id(0) % heads, tl.program_id(0) // heads
    row, q_first, k_first, queries, keys = _sentence(query_starts, key_starts, index, sentences)
    longest = tl.maximum(queries, keys)
    if (longest > ABOVE) & (longest <= LONGEST):
        dims = tl.arange(0, WIDTH)
        width = heads * SIZE
        in_head = (dims < SIZE)[None, :]
        q_start = query + row * q_row + head * q_head + q_first * q_token
        k_start = key + row * k_row + head * k_head + k_first * k_token
        v_start = value + row * v_row + head * v_head + k_first * v_token
        g_start = grad + row * g_row + head * g_head + q_first * g_token
        query_offset = (row * row_queries + q_first) * width + head * SIZE
        key_offset = (row * row_keys + k_first) * width + head * SIZE
        lse_start = log_sum_exp + (row * heads + head) * row_queries + q_first
        is_one_tile = (keys <= TILE) & (keys > 0)
        for key_first in range(0, keys, TILE):
            columns = key_first + tl.arange(0, TILE)
            k = _tile(k_start, k_token, columns, keys, dims, SIZE)
            v = _tile(v_start, v_token, columns, keys, dims, SIZE)
            k_sum = tl.zeros((TILE, WIDTH), tl.float32)
            v_sum = tl.zeros((TILE, WIDTH), tl.float32)
            for first in range(tl.where(causal, key_first, 0), queries, TILE):
                tokens = first + tl.arange(0, TILE)
                q = _tile(q_start, q_token, tokens, queries, dims, SIZE)
                g = _tile(g_start, g_token, tokens, queries, dims, SIZE)
                c = _tile(context + query_offset, width, tokens, queries, dims, SIZE)
                scores, visible = _scores(q, k, tokens, queries, columns, keys, scale, causal)
                lse = tl.load(lse_start + tokens, mask=tokens < queries, other=0.0)
                weights = tl.where(visible, tl.exp(scores - lse[:, None]), 0.0)
                score_grads = _score_grads(weights, g, v, c, scale)
                v_sum += tl.dot(tl.trans(weights.to(g.dtype)), g)
                k_sum += tl.dot(tl.trans(score_grads), q)
                if is_one_tile:
                    q_sum = tl.dot(score_grads, k)
                    pointers = query_grad + query_offset + tokens[:, None] * width + dims[None, :]
                    tl.store(pointers, q_sum.to(q.dtype), mask=(tokens < queries)[:, None] & in_head)
            pointers = key_offset + columns[:, None] * width + dims[None, :]
            is_key = (columns < keys)[:, None] & in_head
            tl.store(key_grad + pointers, k_sum.to(k.dtype), mask=is_key)
            tl.store(value_grad + pointers, v_sum.to(v.dtype), mask=is_key)
        if not is_one_tile:  # the weights are computed again, for the sum over the tiles of keys
            for first in range(0, queries, TILE):
                tokens = first + tl.arange(0, TILE)
                q = _tile(q_start, q_token, tokens, queries, dims, SIZE)
                g = _tile(g_start, g_token, tokens, queries, dims, SIZE)
                c = _tile(context + query_offset, width, tokens, queries, dims, SIZE)
                lse = tl.load(lse_start + tokens, mask=tokens < queries, other=0.0)
                q_sum = tl.zeros((TILE, WIDTH), tl.float32)
                seen = tl.where(causal, tl.minimum(keys, first + TILE), keys)
                for key_first in range(0, seen, TILE):
                    columns = key_first + tl.arange(0, TILE)
                    k = _tile(k_start, k_token, columns, keys, dims, SIZE)
                    v = _tile(v_start, v_token, columns, keys, dims, SIZE)
                    scores, visible = _scores(q, k, tokens, queries, columns, keys, scale, causal)
                    weights = tl.where(visible, tl.exp(scores - lse[:, None]), 0.0)
                    q_sum += tl.dot(_score_grads(weights, g, v, c, scale), k)
                pointers = query_grad + query_offset + tokens[:, None] * width + dims[None, :]
                tl.store(pointers, q_sum.to(q.dtype), mask=(tokens < queries)[:, None] & in_head)
