"""Attention: weigh values by how well their keys match a query.

B batch, H heads, Q queries, K keys, D size of a query and of a key, V size of a value.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard import kernels
from regard.attention.masks import causal as causal_mask
from regard.attention.scores import Additive, Product, Score, as_product, compares_alike, find_score
from regard.errors import InputError

short = kernels.find("short")
single = kernels.find("single")
SHORT = 128  # queries and keys; measured on an H200


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
    """The context each query gathers, and the weights it gave: (B, H, Q, V), (B, H, Q, K).

    With `weights=False` a fused kernel does the work where the score is a product, the weights are never formed, and
    None stands in their place. `mask` is True where a key may be seen; a query that may see none gathers zeros.
    `dropout` falls on the weights as they are used, not on those returned.
    """
    score = find_score(score)
    _check(query, key, value, score, mask)
    if not 0 <= dropout < 1:
        raise InputError(f"dropout ({dropout}) must be at least 0 and below 1")
    if mask is not None and mask.dim() < 2:
        mask = mask.expand(1, key.shape[-2])  # the kernels want both axes
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
    """`attend` for the models, which know what they pass."""
    if not weights and _for_short(query, key, value, mask, dropout):
        product = as_product(score, query, key)
        if product is not None:
            context: Tensor = short.attend_short(*product[:2], value, mask, causal=causal, scale=product.scale)
            return context, None
    if not weights and _for_single(query, key, value, mask, dropout):
        if isinstance(score, Additive):
            score.check(query, key)
            return single.attend_single(query, key, value, mask, 1.0, (score.v, score.b)), None
        product = as_product(score, query, key)
        if product is not None:
            return single.attend_single(*product[:2], value, mask, product.scale, None), None
    if not weights and not _better_plain(query, key):
        product = as_product(score, query, key)
        if product is not None:
            if causal and mask is None and query.shape[-2] == key.shape[-2]:
                return _fused(product, value, None, dropout, True), None
            return _fused(product, value, _visible(query, key, mask, causal), dropout, False), None
    visible = _visible(query, key, mask, causal)
    given = _softmax(score(query, key), visible)
    context = F.dropout(given, dropout) @ value if dropout else given @ value
    return context, given if weights else None


def _for_short(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> bool:
    """Whether sentences are trained on that kernels of our own are made for."""
    return short is not None and _trains(query, dropout) and short.suits(query, key, value, mask)


def _for_single(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> bool:
    """Whether a recurrent decoder is trained, which asks once a step."""
    return single is not None and _trains(query, dropout) and single.suits(query, key, value, mask)


def _trains(query: Tensor, dropout: float) -> bool:
    """Whether kernels of our own may do it: they are for training on a GPU, and drop no weights."""
    return query.requires_grad and query.device.type == "cuda" and not dropout


def _better_plain(query: Tensor, key: Tensor) -> bool:
    """Whether a compiler makes more of the plain formula: over short sentences, the tiles of the kernels stay empty."""
    short = query.shape[-2] <= SHORT and key.shape[-2] <= SHORT
    return torch.compiler.is_compiling() and query.device.type == "cuda" and short


def _fused(product: Product, value: Tensor, visible: Tensor | None, dropout: float, causal: bool) -> Tensor:
    blind = None
    if visible is not None and value.device.type != "cpu":
        # cuDNN's kernel gives what it likes where nothing may be seen: let such a query see all, and take it back.
        blind = ~visible.any(-1, keepdim=True)
        visible = visible | blind
    query, key, scale = product
    context = F.scaled_dot_product_attention(query, key, value, visible, dropout, is_causal=causal, scale=scale)
    return context if blind is None else context.masked_fill(blind, 0.0)


def _softmax(scores: Tensor, visible: Tensor | None) -> Tensor:
    """Weights that sum to one over what may be seen, and are exactly zero elsewhere."""
    wide = torch.float32 if scores.dtype in (torch.float16, torch.bfloat16) else scores.dtype
    if visible is None:
        return scores.softmax(-1, dtype=wide).to(scores.dtype)
    # The lowest number instead of -inf: where nothing may be seen, softmax stays finite and the zeros come after it.
    lowest, hidden = torch.finfo(scores.dtype).min, ~visible
    softmax = scores.masked_fill(hidden, lowest).softmax(-1, dtype=wide).to(scores.dtype)
    return softmax.masked_fill(hidden, 0.0)


def _visible(query: Tensor, key: Tensor, mask: Tensor | None, causal: bool) -> Tensor | None:
    if not causal:
        return mask
    up_to_now = causal_mask(query.shape[-2], key.shape[-2], device=query.device)
    return up_to_now if mask is None else mask & up_to_now


def _check(query: Tensor, key: Tensor, value: Tensor, score: Score, mask: Tensor | None) -> None:
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        _check_tensor(name, tensor, query)
    own = next(score.parameters(), query) if isinstance(score, nn.Module) else query
    if own.dtype != query.dtype and not torch.is_autocast_enabled(query.device.type):
        raise InputError(
            f"the score's weights are {_name(own.dtype)} and query is {_name(query.dtype)}: convert one of them, as in "
            f"score.to(torch.{_name(query.dtype)})"
        )
    if key.shape[-2] != value.shape[-2]:
        raise InputError(f"there are {key.shape[-2]} keys and {value.shape[-2]} values; each key needs its value")
    if query.shape[-1] != key.shape[-1] and compares_alike(score):
        raise InputError(
            f"query has size {query.shape[-1]} and key has size {key.shape[-1]}; this score compares vectors of one "
            "size: project one of them, or use regard.General"
        )
    try:
        rows = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    except RuntimeError as error:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in (query, key, value))
        raise InputError(
            f"query, key and value of shapes {shapes} do not belong together: batch and heads differ"
        ) from error
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
        raise InputError(f"mask is {_name(mask.dtype)}; it must be bool, True where a key may be seen")
    try:
        fits = torch.broadcast_shapes(mask.shape, full) == full
    except RuntimeError:
        fits = False
    if not fits:
        raise InputError(f"mask of shape {tuple(mask.shape)} does not fit queries and keys of shape {full}")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
