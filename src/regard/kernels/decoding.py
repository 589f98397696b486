"""A decoding step on a GPU: attention through the table of a beam search, and the best tokens of a vocabulary.

R rows (hypotheses), G key-value heads, H heads, L slots, D head size, V vocabulary, c candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.kernels import dense

HEAD_SIZES = (16, 32, 64, 128)
TILE, WARPS = 16, 1  # keys read at once: of six variants the fastest at all sizes on an H200
MAX_BEAMS = 16  # each takes a pass over the best tokens
BLOCK = 1024  # tokens of the vocabulary in one part; larger if there would be more than MAX_PARTS
BEST_WARPS = 1
MAX_PARTS = 32


def applies(query: Tensor, key: Tensor) -> bool:
    """Whether the attention kernel applies: one query in each row, on a GPU."""
    on_gpu = query.device.type == "cuda" and query.dtype == key.dtype and query.dtype != torch.float64
    return on_gpu and query.shape[2] == 1 and query.shape[3] in HEAD_SIZES


def can_choose(logits: Tensor, beams: int, results: int) -> bool:
    """Whether `best_tokens` and `choose` apply."""
    on_gpu = logits.device.type == "cuda" and logits.dtype != torch.float64
    return on_gpu and beams <= MAX_BEAMS and results <= MAX_BEAMS


def attend_to_slots(query: Tensor, slots: Sequence[Tensor], *, scale: float) -> Tensor:
    """Write one token of every row into its slot, and attend from (R, H, 1, D) to all tokens so far.

    `slots` are those of `attention.multihead.Slots`.
    """
    key, value, table, positions, new_key, new_value = slots
    rows, heads, _, size = query.shape
    context = torch.empty_like(query, memory_format=torch.contiguous_format)
    query, new_key, new_value = (dense(x) for x in (query, new_key, new_value))
    with torch.cuda.device_of(query):  # Triton uses the current device, not that of its arguments
        _attend[(rows, heads)](
            query, new_key, new_value, key, value, table, positions, context,
            query.stride(0), query.stride(1), new_key.stride(0), new_key.stride(1), new_value.stride(0),
            new_value.stride(1), heads // key.shape[1], key.shape[1], key.shape[2], scale,
            SIZE=size, TILE=TILE, num_warps=WARPS,
        )  # fmt: skip
    return context


class Best(NamedTuple):
    """The best tokens of each part of the vocabulary, and the sums that make their logits log-probabilities."""

    logits: Tensor  # (R, c)
    tokens: Tensor  # (R, c)
    sums: Tensor  # (R, parts) logarithm of the sum of the exponentials of each part


def best_tokens(logits: Tensor, allowed: Tensor, forced: Tensor, step: Tensor, *, beams: int) -> Best:
    """The `beams` best allowed tokens of each part of the vocabulary, for each row; arguments as in `device.Inputs`."""
    rows, vocabulary = logits.shape
    block = max(BLOCK, triton.next_power_of_2(triton.cdiv(vocabulary, MAX_PARTS)))
    parts = triton.cdiv(vocabulary, block)
    best = Best(
        torch.empty(rows, parts * beams, dtype=torch.float32, device=logits.device),
        torch.empty(rows, parts * beams, dtype=torch.int64, device=logits.device),
        torch.empty(rows, parts, dtype=torch.float32, device=logits.device),
    )
    logits = dense(logits)
    with torch.cuda.device_of(logits):
        _best[(rows, parts)](
            logits, allowed, forced, step, *best, logits.stride(0), vocabulary, forced.shape[1], parts,
            BEAMS=beams, BLOCK=block, num_warps=max(1, block // BLOCK * BEST_WARPS),
        )  # fmt: skip
    return best


def choose(
    best: Best,
    divisors: Tensor,
    final_divisors: Tensor,
    step: Tensor,
    state: Sequence[Tensor],
    history: Sequence[Tensor],
    *,
    end: int,
) -> tuple[Tensor, Tensor]:
    """Choose the next hypotheses of each sentence: (R,) rows of their parents and (R,) tokens.

    The state (totals, places and scores of the best ended hypotheses) and the history are written in place.
    """
    sentences, beams = state[0].shape
    results, (rows, candidates), parts = state[2].shape[1], best.tokens.shape, best.sums.shape[1]
    parents, tokens = (torch.empty(rows, dtype=torch.int64, device=step.device) for _ in range(2))
    with torch.cuda.device_of(step):
        _choose[(sentences,)](
            *best, divisors, final_divisors, step, *state, *history, parents, tokens, history[0].shape[1], candidates,
            parts,
            END=end, BEAMS=beams, RESULTS=results, ROWS=max(2, triton.next_power_of_2(beams)),
            WIDTH=max(2, triton.next_power_of_2(candidates)), PARTS=max(2, triton.next_power_of_2(parts)),
            SLOTS=max(2, triton.next_power_of_2(results)), num_warps=4 if beams > 1 else 1,
        )  # fmt: skip
    return parents, tokens


# The kernels


@triton.jit
def _attend(
    query, new_key, new_value, key, value, table, positions, context,
    q_row, q_head, k_row, k_head, v_row, v_head, group_size, groups, capacity, scale,
    SIZE: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    group = head // group_size
    dims = tl.arange(0, SIZE)
    position = tl.load(positions + row)
    q = tl.load(query + row * q_row + head * q_head + dims).to(tl.float32) * scale
    k_new = tl.load(new_key + row * k_row + group * k_head + dims)
    v_new = tl.load(new_value + row * v_row + group * v_head + dims)
    if head % group_size == 0:
        slot = ((row * groups + group) * capacity + position) * SIZE + dims
        tl.store(key + slot, k_new)
        tl.store(value + slot, v_new)

    # The new token comes from the registers, all others through the table.
    maximum = tl.sum(q * k_new.to(tl.float32), 0)
    denominator = maximum * 0.0 + 1.0
    output = v_new.to(tl.float32)
    for start in range(0, position, TILE):
        past = start + tl.arange(0, TILE)
        is_past = past < position
        rows = tl.load(table + row * capacity + past, mask=is_past, other=0).to(tl.int64)
        slots = ((rows * groups + group) * capacity + past)[:, None] * SIZE + dims[None, :]
        keys = tl.load(key + slots, mask=is_past[:, None], other=0.0).to(tl.float32)
        scores = tl.where(is_past, tl.sum(keys * q[None, :], 1), -1e30)
        new_maximum = tl.maximum(maximum, tl.max(scores, 0))
        weights = tl.exp(scores - new_maximum)
        values = tl.load(value + slots, mask=is_past[:, None], other=0.0).to(tl.float32)
        rescale = tl.exp(maximum - new_maximum)
        output = output * rescale + tl.sum(weights[:, None] * values, 0)
        denominator = denominator * rescale + tl.sum(weights, 0)
        maximum = new_maximum
    pointer = context + (row * tl.num_programs(1) + head) * SIZE + dims
    tl.store(pointer, (output / denominator).to(v_new.dtype))


@triton.jit
def _best(
    logits, allowed, forced, step, out_logits, out_tokens, out_sums, row_stride, vocabulary, capacity, parts,
    BEAMS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    columns = tl.arange(0, BLOCK)
    ids = part * BLOCK + columns
    in_vocabulary = ids < vocabulary
    x = tl.load(logits + row * row_stride + ids, mask=in_vocabulary, other=float("-inf")).to(tl.float32)
    maximum = tl.max(x, 0)
    tl.store(out_sums + row * parts + part, maximum + tl.log(tl.sum(tl.exp(x - maximum), 0)))
    forced_token = tl.load(forced + row // BEAMS * capacity + tl.load(step))
    is_allowed = tl.where(
        forced_token >= 0, ids == forced_token, tl.load(allowed + ids, mask=in_vocabulary, other=0) != 0
    )
    x = tl.where(is_allowed, x, float("-inf"))
    offset = (row * parts + part) * BEAMS
    for i in tl.static_range(BEAMS):
        logit, index = tl.max(x, 0, return_indices=True)
        tl.store(out_logits + offset + i, logit)
        tl.store(out_tokens + offset + i, (part * BLOCK + index).to(tl.int64))
        x = tl.where(columns == index, float("-inf"), x)


@triton.jit
def _choose(
    logits, tokens, sums, divisors, final_divisors, step, totals, free_places, best,
    out_tokens, out_parents, out_log_probabilities, out_scores, out_rows, out_next, capacity, candidates, parts,
    END: tl.constexpr, BEAMS: tl.constexpr, RESULTS: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
    PARTS: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    sentence = tl.program_id(0).to(tl.int64)
    beam, column, part, result = tl.arange(0, ROWS), tl.arange(0, WIDTH), tl.arange(0, PARTS), tl.arange(0, SLOTS)
    first, is_beam = sentence * BEAMS, beam < BEAMS

    # Log-probabilities, and totals with those of the parents.
    inside = is_beam[:, None] & (part < parts)[None, :]
    s = tl.load(sums + (first + beam)[:, None] * parts + part[None, :], mask=inside, other=-1e30)
    maximum = tl.max(s, 1)
    log_sums = maximum + tl.log(tl.sum(tl.exp(s - maximum[:, None]), 1))
    inside = is_beam[:, None] & (column < candidates)[None, :]
    x = tl.load(logits + (first + beam)[:, None] * candidates + column[None, :], mask=inside, other=float("-inf"))
    parent_totals = tl.load(totals + first + beam, mask=is_beam, other=float("-inf"))
    x = parent_totals[:, None] + (x - log_sums[:, None])
    x = tl.where(x == x, x, float("-inf"))  # NaN is never chosen

    current, free_count = tl.load(step), tl.load(free_places + sentence)
    divisor, final_divisor = tl.load(divisors + current), tl.load(final_divisors + sentence)
    scores = tl.load(best + sentence * RESULTS + result, mask=result < RESULTS, other=float("inf"))
    new_totals = tl.full((ROWS,), float("-inf"), tl.float32)
    ended = 0
    for i in tl.static_range(BEAMS):
        row_best, columns_of_best = tl.max(x, 1, return_indices=True)
        total, parent = tl.max(row_best, 0, return_indices=True)
        candidate = tl.sum(tl.where(beam == parent, columns_of_best, 0), 0)
        source = (first + parent) * candidates + candidate
        token = tl.load(tokens + source)
        log_probability = tl.load(logits + source) - tl.sum(tl.where(beam == parent, log_sums, 0.0), 0)
        is_kept = (i < free_count) & (total > float("-inf"))
        ends = is_kept & (token == END)
        score = tl.where(ends, total / divisor, float("-inf"))
        lowest = tl.min(scores, 0)
        slot = tl.min(tl.where(scores == lowest, result, SLOTS), 0)
        scores = tl.where(result == slot, tl.maximum(score, lowest), scores)
        new_totals = tl.where((beam == i) & is_kept & (token != END), total, new_totals)
        ended += ends.to(tl.int32)
        offset = (sentence * capacity + current) * BEAMS + i
        tl.store(out_tokens + offset, token)
        tl.store(out_parents + offset, parent.to(tl.int64))
        tl.store(out_log_probabilities + offset, log_probability)
        tl.store(out_scores + offset, score)
        tl.store(out_rows + first + i, first + parent)
        tl.store(out_next + first + i, token)
        x = tl.where((beam[:, None] == parent) & (column[None, :] == candidate), float("-inf"), x)

    # No active hypothesis can beat the worst of the best ended ones: the sentence is done.
    if tl.min(scores, 0) >= tl.max(new_totals, 0) / final_divisor:
        new_totals = tl.full((ROWS,), float("-inf"), tl.float32)
    tl.store(totals + first + beam, new_totals, mask=is_beam)
    tl.store(free_places + sentence, free_count - ended)
    tl.store(best + sentence * RESULTS + result, scores, mask=result < RESULTS)
