"""Attention: weigh values by how well their keys match a query.

B batch, H heads, Q queries, K keys, D size of a query and of a key, V size of a value.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from regard import kernels
from regard.attention.masks import Packed
from regard.attention.masks import causal as causal_mask
from regard.attention.scores import Additive, Score, as_product, find_score
from regard.errors import InputError

packed = kernels.find("packed")
short = kernels.find("short")
single = kernels.find("single")
MAX_PLAIN_LENGTH = 128  # queries and keys up to which the compiled plain formula is faster; measured on an H200


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score: str | Score = "scaled_dot",
    mask: Tensor | None = None,
    weights: bool = True,
    *,
    causal: bool = False,
    dropout: float = 0.0,
) -> tuple[Tensor, Tensor | None]:
    """The context of each query and its attention weights: (B, H, Q, V), (B, H, Q, K).

    With `weights=False` a fused kernel is used where the score is a product; it forms no weights, and None is returned
    for them. `mask` is True where a query may attend to a key; a query without visible keys gets a context of zeros.
    `dropout` applies to the weights that are used, not to those returned.
    """
    score = find_score(score)
    tensors = {"query": query, "key": key, "value": value, "mask": mask}
    try:
        if mask is not None:
            if mask.dtype != torch.bool:
                raise TypeError("the mask must be bool, True where a key is visible")
            mask = torch.atleast_2d(mask)  # the kernels need both axes
        if key.shape[-2] != value.shape[-2]:
            raise ValueError("each key needs its value")
        return attend_unchecked(query, key, value, score, mask, weights, causal=causal, dropout=dropout)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
        inputs = ", ".join(
            f"{name} {str(x.dtype).removeprefix('torch.')} {tuple(x.shape)}"
            if isinstance(x, Tensor)
            else f"{name} of type {type(x).__name__}"
            for name, x in tensors.items()
            if x is not None
        )
        raise InputError(f"attend cannot use {inputs}: {str(error).splitlines()[0]}") from error


def attend_unchecked(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score: Score,
    mask: Tensor | Packed | None,
    weights: bool,
    *,
    causal: bool = False,
    dropout: float = 0.0,
) -> tuple[Tensor, Tensor | None]:
    """`attend` without checks of its arguments, for the models; packed sentences have no weights."""
    if isinstance(mask, Packed):
        assert not weights
        return _attend_packed(query, key, value, score, mask, causal, dropout), None
    if not weights:
        fused = _attend_fused(query, key, value, score, mask, causal, dropout)
        if fused is not None:
            return fused, None
    visible = _visible(query, key, mask, causal)
    attention = _softmax(score(query, key), visible)
    context = F.dropout(attention, dropout) @ value if dropout else attention @ value
    return context, attention if weights else None


def _attend_fused(
    query: Tensor, key: Tensor, value: Tensor, score: Score, mask: Tensor | None, causal: bool, dropout: float
) -> Tensor | None:
    """The context by a kernel that forms no weights; None without such a kernel, or where the plain formula is faster.

    The Triton kernels: `short` for short sentences, `single` for one query per sentence, as in a recurrent decoder.
    torch.compile makes the plain formula faster than the fused kernel for short sentences.
    """
    on_gpu = _has_kernels(query)
    use_short = on_gpu and not dropout and short is not None and short.applies(query, key, value, mask)
    use_single = on_gpu and not dropout and single is not None and single.applies(query, key, value, mask)
    context: Tensor
    if use_single and isinstance(score, Additive) and query.shape[-1] == key.shape[-1] == score.v.numel():
        context = single.attend_single(query, key, value, mask, 1.0, (score.v, score.b))
        return context
    is_short = max(query.shape[-2], key.shape[-2]) <= MAX_PLAIN_LENGTH
    if on_gpu and is_short and torch.compiler.is_compiling() and not (use_short or use_single):
        return None
    product = as_product(score, query, key)
    if product is None:
        return None
    query, key, scale = product
    if use_short:
        context = short.attend_short(query, key, value, mask, causal=causal, scale=scale)
    elif use_single and query.shape[-1] == key.shape[-1]:
        context = single.attend_single(query, key, value, mask, scale, None)
    elif causal and mask is None and query.shape[-2] == key.shape[-2]:
        context = F.scaled_dot_product_attention(query, key, value, None, dropout, is_causal=True, scale=scale)
    else:
        visible = _visible(query, key, mask, causal)
        sees_nothing = None
        if visible is not None and value.device.type != "cpu":
            # cuDNN's result is undefined for queries without visible keys: let them see all keys, then set zeros.
            sees_nothing = ~visible.any(-1, keepdim=True)
            visible = visible | sees_nothing
        context = F.scaled_dot_product_attention(query, key, value, visible, dropout, scale=scale)
        context = context if sees_nothing is None else context.masked_fill(sees_nothing, 0.0)
    return context


def _has_kernels(query: Tensor) -> bool:
    return query.device.type == "cuda"


def _attend_packed(
    query: Tensor, key: Tensor, value: Tensor, score: Score, mask: Packed, causal: bool, dropout: float
) -> Tensor:
    """The context over packed sentences, by a Triton kernel where there is one, else sentence by sentence."""
    applies = packed is not None and _has_kernels(query) and packed.applies(query, value) and not dropout
    if applies and (product := as_product(score, query, key)) is not None:
        query, key, scale = product
        fused: Tensor = packed.attend_packed(query, key, value, mask, causal=causal, scale=scale)
        return fused
    sentences = _sentences(query, mask.queries), _sentences(key, mask.keys), _sentences(value, mask.keys)
    contexts = [
        attend_unchecked(*tensors, score, None, False, causal=causal, dropout=dropout)[0]
        for tensors in zip(*sentences, strict=True)
    ]
    context: Tensor = torch.cat(contexts, dim=1).unflatten(1, (len(query), -1)).transpose(0, 1)
    return context


def _sentences(x: Tensor, starts: Tensor) -> tuple[Tensor, ...]:
    """(B, H, T, D) rows of packed sentences -> (H, length, D) of each sentence."""
    lengths: list[int] = starts.diff().flatten().tolist()
    return torch.split(x.transpose(0, 1).flatten(1, 2), lengths, dim=1)


def _softmax(scores: Tensor, visible: Tensor | None) -> Tensor:
    """Weights that sum to one over the visible keys and are exactly zero elsewhere, computed in at least fp32."""
    dtype = torch.float32 if scores.dtype in (torch.float16, torch.bfloat16) else scores.dtype
    if visible is None:
        return scores.softmax(-1, dtype=dtype).to(scores.dtype)
    # The lowest number instead of -inf keeps the softmax finite where no key is visible; then hidden keys get zeros.
    lowest, hidden = torch.finfo(scores.dtype).min, ~visible
    softmax = scores.masked_fill(hidden, lowest).softmax(-1, dtype=dtype).to(scores.dtype)
    return softmax.masked_fill(hidden, 0.0)


def _visible(query: Tensor, key: Tensor, mask: Tensor | None, causal: bool) -> Tensor | None:
    if not causal:
        return mask
    earlier = causal_mask(query.shape[-2], key.shape[-2], device=query.device)
    return earlier if mask is None else mask & earlier
