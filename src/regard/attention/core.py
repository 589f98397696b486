"""Attention: weigh values by how well their keys match a query.

B batch, H heads, Q queries, K keys, D size of a query and of a key, V size of a value.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard import kernels
from regard.attention.masks import causal as causal_mask
from regard.attention.scores import Additive, Product, Score, as_product, find_score, needs_equal_sizes
from regard.errors import InputError

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
    _check(query, key, value, score, mask)
    if not 0 <= dropout < 1:
        raise InputError(f"dropout ({dropout}) must be at least 0 and below 1")
    if mask is not None and mask.dim() < 2:
        mask = mask.expand(1, key.shape[-2])  # the kernels need both axes
    return attend_unchecked(query, key, value, score, mask, weights, causal=causal, dropout=dropout)


def attend_unchecked(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score: Score,
    mask: Tensor | None,
    weights: bool,
    *,
    causal: bool = False,
    dropout: float = 0.0,
) -> tuple[Tensor, Tensor | None]:
    """`attend` without checks of its arguments, for the models."""
    if not weights and _use_short_kernel(query, key, value, mask, dropout):
        product = as_product(score, query, key)
        if product is not None:
            context: Tensor = short.attend_short(*product[:2], value, mask, causal=causal, scale=product.scale)
            return context, None
    if not weights and _use_single_kernel(query, key, value, mask, dropout):
        if isinstance(score, Additive):
            score.check(query, key)
            return single.attend_single(query, key, value, mask, 1.0, (score.v, score.b)), None
        product = as_product(score, query, key)
        if product is not None:
            return single.attend_single(*product[:2], value, mask, product.scale, None), None
    if not weights and not _plain_is_faster(query, key):
        product = as_product(score, query, key)
        if product is not None:
            if causal and mask is None and query.shape[-2] == key.shape[-2]:
                return _fused(product, value, None, dropout, True), None
            return _fused(product, value, _visible(query, key, mask, causal), dropout, False), None
    visible = _visible(query, key, mask, causal)
    attention = _softmax(score(query, key), visible)
    context = F.dropout(attention, dropout) @ value if dropout else attention @ value
    return context, attention if weights else None


def _use_short_kernel(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> bool:
    """Whether the Triton kernel for short sentences applies."""
    return short is not None and _is_gpu_training(query, dropout) and short.suits(query, key, value, mask)


def _use_single_kernel(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> bool:
    """Whether the Triton kernel for one query per sentence applies, as in a recurrent decoder."""
    return single is not None and _is_gpu_training(query, dropout) and single.suits(query, key, value, mask)


def _is_gpu_training(query: Tensor, dropout: float) -> bool:
    """Whether the Triton kernels may be used: in training on a GPU, without attention dropout."""
    return query.requires_grad and query.device.type == "cuda" and not dropout


def _plain_is_faster(query: Tensor, key: Tensor) -> bool:
    """Whether torch.compile makes the plain formula faster than a fused kernel: for short sentences on a GPU."""
    is_short = max(query.shape[-2], key.shape[-2]) <= MAX_PLAIN_LENGTH
    return torch.compiler.is_compiling() and query.device.type == "cuda" and is_short


def _fused(product: Product, value: Tensor, visible: Tensor | None, dropout: float, causal: bool) -> Tensor:
    sees_nothing = None
    if visible is not None and value.device.type != "cpu":
        # cuDNN's result is undefined for queries without visible keys: let them see all keys, then set zeros.
        sees_nothing = ~visible.any(-1, keepdim=True)
        visible = visible | sees_nothing
    query, key, scale = product
    context = F.scaled_dot_product_attention(query, key, value, visible, dropout, is_causal=causal, scale=scale)
    return context if sees_nothing is None else context.masked_fill(sees_nothing, 0.0)


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
    causal_part = causal_mask(query.shape[-2], key.shape[-2], device=query.device)
    return causal_part if mask is None else mask & causal_part


def _check(query: Tensor, key: Tensor, value: Tensor, score: Score, mask: Tensor | None) -> None:
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        _check_tensor(name, tensor, query)
    weight = next(score.parameters(), query) if isinstance(score, nn.Module) else query
    if weight.dtype != query.dtype and not torch.is_autocast_enabled(query.device.type):
        raise InputError(
            f"the score's weights are {_name(weight.dtype)} and query is {_name(query.dtype)}: convert one, as in "
            f"score.to(torch.{_name(query.dtype)})"
        )
    if key.shape[-2] != value.shape[-2]:
        raise InputError(f"there are {key.shape[-2]} keys and {value.shape[-2]} values; each key needs its value")
    if query.shape[-1] != key.shape[-1] and needs_equal_sizes(score):
        raise InputError(
            f"query has size {query.shape[-1]} and key has size {key.shape[-1]}; this score needs vectors of one "
            "size: project one of them, or use regard.General"
        )
    try:
        rows = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    except RuntimeError as error:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in (query, key, value))
        raise InputError(f"query, key and value of shapes {shapes} do not match: batch and heads differ") from error
    if mask is not None:
        _check_mask(mask, (*rows, query.shape[-2], key.shape[-2]))


def _check_tensor(name: str, tensor: Tensor, query: Tensor) -> None:
    if not isinstance(tensor, Tensor):
        raise InputError(f"{name} is a {type(tensor).__name__}; it must be a tensor")
    if not tensor.is_floating_point():
        raise InputError(f"{name} is {_name(tensor.dtype)}; attention takes float32, float64, bfloat16 or float16")
    if tensor.dtype != query.dtype:
        raise InputError(f"{name} is {_name(tensor.dtype)} and query is {_name(query.dtype)}; they must be the same")
    if tensor.dim() < 2:
        raise InputError(f"{name} has shape {tuple(tensor.shape)}; it must have at least two axes: positions and size")


def _check_mask(mask: Tensor, full: tuple[int, ...]) -> None:
    if not isinstance(mask, Tensor):
        raise InputError(f"mask is a {type(mask).__name__}; it must be a tensor")
    if mask.dtype != torch.bool:
        raise InputError(f"mask is {_name(mask.dtype)}; it must be bool, True where a key is visible")
    try:
        fits = torch.broadcast_shapes(mask.shape, full) == full
    except RuntimeError:
        fits = False
    if not fits:
        raise InputError(f"mask of shape {tuple(mask.shape)} does not fit queries and keys of shape {full}")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
