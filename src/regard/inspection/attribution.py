"""Attribution: how much each output word depends on each input word, by attention, gradients or ablation.

L layers, H heads, R rows (output words), C columns (input words), T target tokens, S source tokens.

Attention shows where a model looked, not why it wrote a word. Gradients and ablation show what the probabilities of its
words depend on. Pages and figures name the method they show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import product
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from regard.attention.multihead import MultiHead
from regard.errors import ConfigError, InputError, did_you_mean
from regard.inspection.trace import KINDS, Side, Trace, average_by_word, sum_by_word, teacher_force
from regard.models import GPT, RNN
from regard.models.contract import Record
from regard.models.layers import Embedding

MEANINGS = {
    "attention": "attention weights: where the model looked, not why it wrote a word. Compare gradient and ablation.",
    "rollout": "attention rollout through all layers, with half of each layer for the residual connection (Abnar and "
    "Zuidema, 2020); as shares of everything that came from these words.",
    "value": "the norm of the attended values, ‖α f(x)‖ (Kobayashi et al., 2020): attention to a word whose value is "
    "small counts little.",
    "gradient": "integrated gradients (Sundararajan et al., 2017): how much each word added to a word's "
    "log-probability, in nats, compared with zero embeddings. Below zero it made the word less probable.",
    "ablation": "how much a word's log-probability falls, in nats, when one source word is removed. Below zero the "
    "word becomes more probable without it.",
}
UNITS = {"attention": "weight", "rollout": "share", "value": "norm", "gradient": "nats", "ablation": "nats"}
SIGNED = ("gradient", "ablation")
PER_HEAD = ("attention", "value")  # methods with a map for every layer and head
POINTS = 8  # of the Gauss-Legendre quadrature of integrated gradients
BATCH_TOKENS = 2048  # of all copies of a sentence that run at once


class Map(NamedTuple):
    """How much each row word depends on each column word, by one method."""

    method: str
    kind: str  # the attention whose axes it has: "encoder", "decoder" or "cross"
    rows: Side
    columns: Side
    values: Tensor  # [layer, head, row word, column word]; one layer and one head for methods that have none
    joined: Tensor  # [layer, row word, column word]: all heads of a layer combined

    @property
    def signed(self) -> bool:
        """Whether values can be below zero."""
        return self.method in SIGNED

    @property
    def high(self) -> float:
        """The value of the strongest colour: 1 for weights and shares, else the largest value of the whole map."""
        if self.method in ("attention", "rollout") or not self.values.numel():
            return 1.0
        highest = max(float(values.abs().max()) for values in (self.values, self.joined))
        return float(f"{highest:.6g}") or 1.0

    def picture(self, layer: int | None = None, head: int | None = None) -> tuple[str, Tensor]:
        """The chosen layer and head in words, and their values [row word, column word]."""
        layers, heads = self.values.shape[:2]
        if self.method not in PER_HEAD:
            if layer is not None or head is not None:
                raise InputError(f"{self.method} has no layers and heads to choose from: {' and '.join(PER_HEAD)} have")
            return "all layers" if self.method == "rollout" else "", self.joined[0]
        layer = default_layer(layers) if layer is None else layer
        for name, number, count in (("layer", layer, layers), ("head", 0 if head is None else head, heads)):
            if not 0 <= number < count:
                raise InputError(f"there is no {self.kind} {name} {number}: they count from 0 to {count - 1}")
        if layers == heads == 1:
            return "", self.values[0, 0]
        if head is None:
            return f"layer {layer}" + (f", {heads} heads combined" if heads > 1 else ""), self.joined[layer]
        return f"layer {layer}, head {head}", self.values[layer, head]


def default_layer(layers: int) -> int:
    """The layer that is shown by default: the second-to-last of a deep stack."""
    return layers - (2 if layers > 2 else 1)


def default_kind(trace: Trace) -> str:
    """The kind of attention that is shown by default for a family."""
    return {"gpt": "decoder", "bert": "encoder"}.get(trace.family, "cross")


def check_method(method: str, kind: str | None) -> None:
    """Raise a ConfigError for unknown names of methods and kinds of attention."""
    if method not in MEANINGS:
        raise ConfigError(f"there is no method {method!r}.{did_you_mean(method, MEANINGS)}")
    if kind and kind not in KINDS:
        raise ConfigError(f"there is no attention {kind!r}.{did_you_mean(kind, KINDS)}")


def explain(trace: Trace, method: str, model: nn.Module | None = None, kind: str | None = None) -> Map:
    """The map of a trace by one method. Gradient, ablation and value need the model; for a gpt, rollout does too."""
    kind = kind or default_kind(trace)
    if method in SIGNED and kind != default_kind(trace):
        raise InputError(f"{method} explains the output: for a {trace.family} the kind is {default_kind(trace)}")
    if method not in SIGNED:
        if not trace.attention:
            raise InputError(f"this {trace.family} has no attention to show: use --method gradient or ablation")
        trace.check_kind(kind)
    if model is None and (method in ("value", *SIGNED) or (method == "rollout" and trace.family == "gpt")):
        raise InputError(f"{method} needs the model that made this trace")
    return METHODS[method](trace, kind, model)


def explain_all(trace: Trace, model: nn.Module | None = None) -> list[Map]:
    """All maps of a trace that its family has, attention first; without a model, those that need only the trace."""
    kinds = sorted(trace.attention, key=lambda kind: kind != default_kind(trace)) or [default_kind(trace)]
    maps = []
    for method, kind in product(METHODS, kinds):
        with suppress(InputError):
            maps.append(explain(trace, method, model, kind))
    return maps


# Attention and rollout.


def attention(trace: Trace, kind: str, _: nn.Module | None = None) -> Map:
    """Attention weights; heads are combined by their mean."""
    values = trace.by_word(kind)
    return Map("attention", kind, trace.rows(kind), trace.columns(kind), values, values.mean(1))


def rollout(trace: Trace, kind: str, model: nn.Module | None = None) -> Map:
    """Attention rollout: attention multiplied through the layers down to the embeddings.

    For a gpt it needs the model: the tokens of the prompt attend too, and the trace has only generated ones.
    """
    if trace.family == "rnn":
        raise InputError("rollout needs several layers of attention, and an rnn has one: use another method")
    rows, columns = trace.rows(kind), trace.columns(kind)
    weights = {name: layers.mean(1) for name, layers in trace.attention.items()}  # [L, R, C], heads averaged
    if trace.family == "gpt":
        layers = torch.stack([layer.mean(0) for layer, _ in _projected_values(cast(nn.Module, model), trace, kind)])
        shares = rollout_self(layers)[-len(rows.ids) :]
    elif kind == "encoder":
        shares = rollout_self(weights["encoder"])
    elif kind == "cross" and len(weights) == len(KINDS):
        shares = rollout_cross(weights["encoder"], weights["decoder"], weights["cross"])
    else:
        raise InputError("rollout has the kinds encoder and cross; decoder attention is a part of cross")
    values = average_by_word(shares, rows, columns)
    return Map("rollout", kind, rows, columns, values[None, None], values[None])


def rollout_self(layers: Tensor) -> Tensor:
    """[C, C] from self-attention [L, C, C]; half of every layer is the residual connection."""
    product = torch.eye(layers.shape[-1])
    for weights in layers:
        product = _with_residual(weights) @ product
    return product


def rollout_cross(encoder: Tensor, decoder: Tensor, cross: Tensor) -> Tensor:
    """[T, S]: the share of each source token, without the part that comes from target tokens already generated."""
    shares = torch.zeros(cross.shape[1:])
    source = rollout_self(encoder)
    for self_weights, cross_weights in zip(decoder, cross, strict=True):
        shares = (_with_residual(self_weights) @ shares + cross_weights @ source) / 2
    return shares / shares.sum(-1, keepdim=True)


def _with_residual(weights: Tensor) -> Tensor:
    mixed = (weights + torch.eye(len(weights))) / 2
    return mixed / mixed.sum(-1, keepdim=True)


# Methods that need the model.


def value(trace: Trace, kind: str, model: nn.Module) -> Map:
    """‖α f(x)‖ of every head, f its values through its part of the output projection; combined, the norm of the sum."""
    rows, columns = trace.rows(kind), trace.columns(kind)
    values, joined = [], []
    for weights, projected in _projected_values(model, trace, kind):  # [H, R, C], [H, C, size]
        weights = weights[:, -len(rows.ids) :]  # the tokens of a gpt's prompt attend too
        values.append(weights * projected.norm(dim=-1)[:, None])
        joined.append(torch.einsum("hrc,hcs->rcs", weights, projected).norm(dim=-1))
    per_head, combined = (average_by_word(torch.stack(layers), rows, columns) for layers in (values, joined))
    return Map("value", kind, rows, columns, per_head, combined)


@torch.no_grad()
def _projected_values(model: nn.Module, trace: Trace, kind: str) -> list[tuple[Tensor, Tensor]]:
    """For every layer its attention, and the projected value of each column in each head."""
    if isinstance(model, RNN):
        record: Record = {}
        log_probabilities(model, [trace.source.ids], trace.target.ids, trace.special.start, record)
        return [(record["decoder.0.cross"][0].float().cpu(), record["encoder.output"].float().cpu())]
    layers: list[tuple[Tensor, Tensor]] = []

    def record_layer(module: nn.Module, inputs: Any, result: tuple[Tensor, Tensor]) -> None:
        head = cast(MultiHead, module)
        values = inputs[1].value[0].float().repeat_interleave(head.heads // head.key_value_heads, 0)  # (H, C, D)
        join = head.out_proj.weight.float().unflatten(1, (head.heads, -1))  # (size, H, D)
        layers.append((result[1][0].float().cpu(), torch.einsum("hcd,shd->hcs", values, join).cpu()))

    blocks = cast(Any, model.encoder if kind == "encoder" else model.decoder).blocks
    with ExitStack() as hooks:
        for block in blocks:
            attending = block.cross if kind == "cross" else block.attention
            hooks.enter_context(attending.register_forward_hook(record_layer))
        log_probabilities(model, [trace.source.ids], trace.target.ids, trace.special.start, {})
    return layers


def gradient(trace: Trace, kind: str, model: nn.Module) -> Map:
    """Integrated gradients of every token's log-probability, from zero embeddings to the real ones.

    In pre-norm models with rotary positions nearly all of the change happens close to zero: the sum is then far from
    the change of the log-probability, and ablation is more reliable.
    """
    rows, columns = trace.rows(kind), trace.columns(kind)
    target = _explained_tokens(trace)
    points, weights = np.polynomial.legendre.leggauss(POINTS)
    slopes = []
    # cuDNN's recurrent kernels have no gradients in eval mode
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        for steps in torch.arange(len(target)).split(_copies(trace)):
            total = torch.zeros(len(steps), len(columns.ids))
            for point, weight in zip(points.tolist(), weights.tolist(), strict=True):
                with scaled_embeddings(model, (1 + point) / 2) as (original, scaled):
                    logs = log_probabilities(model, [trace.source.ids] * len(steps), target, trace.special.start)
                (slope,) = torch.autograd.grad(logs[torch.arange(len(steps)), steps].sum(), scaled)
                total += weight / 2 * (slope * original[0]).sum(-1).float().cpu()
            slopes.append(total)
    values = sum_by_word(sum_by_word(torch.cat(slopes).mT, columns).mT, rows)
    return Map("gradient", kind, rows, columns, values[None, None], values[None])


@contextmanager
def scaled_embeddings(model: nn.Module, factor: float) -> Iterator[tuple[list[Tensor], list[Tensor]]]:
    """Within the context, the source's embeddings are multiplied by a factor; yields them before and after."""
    original: list[Tensor] = []
    scaled: list[Tensor] = []

    def scale(module: nn.Module, inputs: Any, embeddings: Tensor) -> Tensor | None:
        if scaled:  # a target embedded by the same table: only the source is scaled
            return None
        original.append(embeddings.detach())
        scaled.append((factor * original[0]).requires_grad_())
        return scaled[0]

    table: Any = model.target if isinstance(model, GPT) else model.source
    with (table.token if isinstance(table, Embedding) else table).register_forward_hook(scale):
        yield original, scaled


@torch.no_grad()
def ablation(trace: Trace, kind: str, model: nn.Module) -> Map:
    """The drop of every token's log-probability when a word is removed, or for a bert masked."""
    rows, columns, start = trace.rows(kind), trace.columns(kind), trace.special.start
    if trace.family == "gpt":  # removing a word changes only the tokens after it
        whole, begin = [*columns.ids, trace.target.ids[-1]], len(trace.source.ids)
        logs = log_probabilities(model, [trace.source.ids], trace.target.ids, start)[0].cpu()
        drops = torch.zeros(len(logs), len(columns.words))
        for removed in range(len(columns.words)):
            last = len(columns.word) - 1 - columns.word[::-1].index(removed)
            first = max(begin, last + 1)  # of the tokens that come after
            before = [number for number, word in zip(whole[:first], columns.word, strict=False) if word != removed]
            without = log_probabilities(model, [before or [start]], whole[first:], start)[0].cpu()
            drops[first - begin :, removed] = logs[first - begin :] - without
    else:
        replacement = [trace.special.mask] if trace.family == "bert" else []
        tokens = list(zip(columns.ids, columns.word, strict=True))
        texts = [columns.ids]  # first the whole text, then one without each word
        for removed in range(len(columns.words)):
            texts.append([kept for number, word in tokens for kept in ([number] if word != removed else replacement)])
        if not all(texts):
            raise InputError("the source has only one word: nothing is left without it")
        size, target = _copies(trace), _explained_tokens(trace)
        parts = [log_probabilities(model, texts[at : at + size], target, start) for at in range(0, len(texts), size)]
        logs = torch.cat(parts).cpu()
        drops = (logs[0] - logs[1:]).T
    values = sum_by_word(drops, rows)
    return Map("ablation", kind, rows, columns, values[None, None], values[None])


METHODS: dict[str, Callable[..., Map]] = {
    "attention": attention,
    "rollout": rollout,
    "value": value,
    "gradient": gradient,
    "ablation": ablation,
}


def log_probabilities(
    model: nn.Module, sources: Sequence[Sequence[int]], target: Sequence[int], start: int, record: Record | None = None
) -> Tensor:
    """(B, T) log-probabilities of one target after each of the sources; for a bert, of the target in their place."""
    logits, starts = teacher_force(model, sources, [target] * len(sources), record, start=start)
    ids = torch.tensor(target, dtype=torch.int64, device=logits.device).expand(len(sources), -1)
    return logits[:, starts[0] :].float().log_softmax(-1).gather(-1, ids[..., None])[..., 0]


def _copies(trace: Trace) -> int:
    """The number of copies of a sentence that run at once."""
    return max(1, BATCH_TOKENS // (len(trace.source.ids) + len(trace.target.ids)))


def _explained_tokens(trace: Trace) -> list[int]:
    """The tokens whose probabilities are explained: those written, or a bert's predictions of its masks."""
    if trace.family != "bert":
        return trace.target.ids
    if not trace.alternatives:
        raise InputError("this bert has no masked-token head, and so no probabilities to explain")
    pairs = zip(trace.source.ids, trace.alternatives, strict=True)
    return [best[0].id if number == trace.special.mask else number for number, best in pairs]
