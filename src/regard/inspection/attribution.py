"""Methods: what each word was written from, as attention, gradients and ablation tell it.

L layers, H heads, R rows (what was written), C columns (what it was written from), T target tokens, S source tokens.

Attention tells where a model looked, not why it wrote what it wrote. Gradients and ablation ask what the probabilities
of its words depend on. None of them is the whole truth: a page or a picture says which one it shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from regard.attention import MultiHead
from regard.errors import ConfigError, InputError, did_you_mean
from regard.inspection.trace import KINDS, Side, Trace, padded
from regard.models import BERT, GPT, RNN, Generator
from regard.models.contract import Record
from regard.models.layers import Embedding
from regard.text.tokenizer import MASK, START

MEANINGS = {
    "attention": "attention weights: where the model looked. A look is not a reason: compare gradient and ablation.",
    "rollout": "attention followed through all layers, half of each step staying where it was (Abnar and Zuidema, "
    "2020); as shares of all that came from these words.",
    "value": "the length of what a look brought, ‖α f(x)‖ (Kobayashi et al., 2020): a look at a word that holds "
    "nothing counts for nothing.",
    "gradient": "integrated gradients (Sundararajan et al., 2017): how much of a word's log-probability, in nats, each "
    "word gave, counted from a sentence of empty embeddings. Below zero it spoke against the word.",
    "ablation": "what a word's log-probability loses, in nats, when a word is taken away and all others stay. Below "
    "zero the word becomes more probable without it.",
}
UNITS = {"attention": "weight", "rollout": "share", "value": "length", "gradient": "nats", "ablation": "nats"}
SIGNED = ("gradient", "ablation")
HEADED = ("attention", "value")  # the methods that layers and heads can be chosen for
POINTS = 8  # at which gradients are integrated, Gauss's way
TOKENS = {"cpu": 2048, "mps": 4096, "cuda": 32768}  # of all copies of a sentence that are run at once


class Map(NamedTuple):
    """How much each word had from each other, for all layers and heads, as one method tells it."""

    method: str
    kind: str
    """Whose axes it has: "encoder", "decoder" or "cross"."""
    rows: Side
    columns: Side
    values: Tensor
    """[layer, head, row word, column word]; one layer and one head where a method has none."""
    joined: Tensor
    """[layer, row word, column word]: all heads of a layer together."""

    @property
    def signed(self) -> bool:
        """Values below zero mean something."""
        return self.method in SIGNED

    def picture(self, layer: int | None = None, head: int | None = None) -> tuple[str, Tensor]:
        """What was chosen in words, and [row word, column word]."""
        layers, heads = self.values.shape[:2]
        if self.method not in HEADED:
            if layer is not None or head is not None:
                raise InputError(f"{self.method} has no layers and heads to choose from: {' and '.join(HEADED)} have")
            return "all layers" if self.method == "rollout" else "", self.joined[0]
        layer = usual_layer(layers) if layer is None else layer
        for what, number, count in (("layer", layer, layers), ("head", 0 if head is None else head, heads)):
            if not 0 <= number < count:
                raise InputError(f"there is no {self.kind} {what} {number}: they count from 0 to {count - 1}")
        if layers == heads == 1:
            return "", self.values[0, 0]
        if head is None:
            return f"layer {layer}" + (f", {heads} heads together" if heads > 1 else ""), self.joined[layer]
        return f"layer {layer}, head {head}", self.values[layer, head]


def usual_layer(layers: int) -> int:
    """The layer shown where none is chosen, which `alignment.cross_attention` also takes."""
    return layers - (2 if layers > 2 else 1)


def usual_kind(trace: Trace) -> str:
    """What a family is asked about first: what its writing had from its reading."""
    return {"gpt": "decoder", "bert": "encoder"}.get(trace.family, "cross")


def check_method(method: str, kind: str | None) -> None:
    """Refuse names that mean nothing."""
    if method not in MEANINGS:
        raise ConfigError(f"there is no method {method!r}.{did_you_mean(method, MEANINGS)}")
    if kind and kind not in KINDS:
        raise ConfigError(f"there is no attention {kind!r}.{did_you_mean(kind, KINDS)}")


def explain(trace: Trace, method: str, model: nn.Module | None = None, kind: str | None = None) -> Map:
    """One map of a trace. Gradient, ablation, value, and of a gpt rollout, ask the model that made it."""
    check_method(method, kind)
    kind = kind or usual_kind(trace)
    if method in SIGNED and kind != usual_kind(trace):
        raise InputError(f"{method} asks what the output depends on: of a {trace.family} that is {usual_kind(trace)}")
    if method not in SIGNED and not trace.attention:
        raise InputError(f"this {trace.family} has no attention to show: --method gradient and ablation still tell")
    if method == "attention":
        return attention(trace, kind)
    if method == "rollout" and trace.family != "gpt":
        return rollout(trace, kind)
    if model is None:
        raise InputError(f"{method} needs the model that made this trace")
    return ASKING[method](model, trace, kind)


def explain_all(trace: Trace, model: nn.Module | None = None) -> list[Map]:
    """Every map there is, attention first; without a model, those that a trace alone gives."""
    kinds = sorted(trace.attention, key=lambda kind: kind != usual_kind(trace))
    found = [explain(trace, "attention", kind=kind) for kind in kinds]
    if trace.family != "rnn" and (trace.family != "gpt" or model is not None):
        whole = {"cross": set(KINDS), "encoder": {"encoder"}, "decoder": {"decoder"} if trace.family == "gpt" else {""}}
        found += [explain(trace, "rollout", model, kind) for kind in kinds if whole[kind] <= set(trace.attention)]
    if model is not None:
        found += [explain(trace, "value", model, kind) for kind in kinds]
        if not isinstance(model, BERT) or model.head is not None:
            found += [explain(trace, method, model) for method in SIGNED]
    return found


# From a trace alone.


def attention(trace: Trace, kind: str) -> Map:
    """The weights; heads together are their mean."""
    values = trace.by_word(kind)
    return Map("attention", kind, trace.rows(kind), trace.columns(kind), values, values.mean(1))


def rollout(trace: Trace, kind: str) -> Map:
    """Attention followed back through the layers to the embeddings."""
    if trace.family == "rnn":
        raise InputError("rollout follows attention through layers, and an rnn has only one: ask for another method")
    weights = {name: layers.mean(1) for name, layers in trace.attention.items()}  # [L, R, C], heads averaged
    if kind == "encoder" and kind in weights:
        shares = rolled(weights["encoder"])
    elif kind == "cross" and len(weights) == len(KINDS):
        shares = rolled_across(weights["encoder"], weights["decoder"], weights["cross"])
    else:
        raise InputError(
            "rollout shows encoder and cross: what a decoder's words have from each other is a part of that"
        )
    return _rolled_map(trace, kind, shares)


def _rolled_map(trace: Trace, kind: str, shares: Tensor) -> Map:
    rows, columns = trace.rows(kind), trace.columns(kind)
    values = by_word(shares, rows, columns) / _pieces(rows)[:, None]
    return Map("rollout", kind, rows, columns, values[None, None], values[None])


def rolled(layers: Tensor) -> Tensor:
    """[C, C] from self-attention [L, C, C]: half of every layer's output is what came in, the residual."""
    whole = torch.eye(layers.shape[-1])
    for weights in layers:
        whole = _half_stays(weights) @ whole
    return whole


def rolled_across(encoder: Tensor, decoder: Tensor, cross: Tensor) -> Tensor:
    """[T, S]: what came from the source, as shares; the rest came from the words already written."""
    read = torch.zeros(cross.shape[1:])
    source = rolled(encoder)
    for own, looked in zip(decoder, cross, strict=True):
        read = (_half_stays(own) @ read + looked @ source) / 2
    return read / read.sum(-1, keepdim=True)


def _half_stays(weights: Tensor) -> Tensor:
    mixed = (weights + torch.eye(len(weights))) / 2
    return mixed / mixed.sum(-1, keepdim=True)


# With the model.


def rollout_of_gpt(model: nn.Module, trace: Trace, kind: str) -> Map:
    """A trace keeps what the written tokens looked at; rollout needs what the prompt's looked at too."""
    record: Record = {}
    with torch.inference_mode():
        log_probabilities(model, [trace.source.ids], trace.target.ids, record)
    layers = [record[f"decoder.{layer}.self"][0].float().cpu().mean(0) for layer in range(len(trace.attention[kind]))]
    return _rolled_map(trace, kind, rolled(torch.stack(layers))[len(trace.source.ids) - 1 :])


def value(model: nn.Module, trace: Trace, kind: str) -> Map:
    """‖α f(x)‖ of every head, f its values through its part of the join; together, the length of the heads' sum."""
    rows, columns = trace.rows(kind), trace.columns(kind)
    values, joined = [], []
    for weights, brought in _brought(model, trace, kind):  # [H, R, C], [H, C, size]
        weights = weights[:, -len(rows.ids) :]  # a gpt's prompt looked too
        values.append(weights * brought.norm(dim=-1)[:, None])
        joined.append(torch.einsum("hrc,hcs->rcs", weights, brought).norm(dim=-1))
    pieces = _pieces(rows)[:, None]
    each, together = (by_word(torch.stack(layers), rows, columns) / pieces for layers in (values, joined))
    return Map("value", kind, rows, columns, each, together)


@torch.inference_mode()
def _brought(model: nn.Module, trace: Trace, kind: str) -> list[tuple[Tensor, Tensor]]:
    """For every layer its weights, and what each column would bring each head if all of its weight lay there."""
    if isinstance(model, RNN):
        record: Record = {}
        log_probabilities(model, [trace.source.ids], trace.target.ids, record)
        return [(record["decoder.0.cross"][0].float().cpu(), record["encoder.output"].float().cpu())]
    found: list[tuple[Tensor, Tensor]] = []

    def note(module: nn.Module, given: Any, result: tuple[Tensor, Tensor]) -> None:
        head = cast(MultiHead, module)
        values = given[1].value[0].float().repeat_interleave(head.heads // head.key_value_heads, 0)  # (H, C, D)
        join = head.out_proj.weight.float().unflatten(1, (head.heads, -1))  # (size, H, D)
        found.append((result[1][0].float().cpu(), torch.einsum("hcd,shd->hcs", values, join).cpu()))

    stack = cast(Any, model.encoder if kind == "encoder" else model.decoder)
    hooks = [
        (block.cross if kind == "cross" else block.attention).register_forward_hook(note) for block in stack.blocks
    ]
    try:
        log_probabilities(model, [trace.source.ids], trace.target.ids, {})
    finally:
        for hook in hooks:
            hook.remove()
    return found


def gradient(model: nn.Module, trace: Trace, kind: str) -> Map:
    """Integrated gradients of every token's log-probability along its embeddings, grown from nothing.

    Where norms come first and positions are no part of the embeddings (rotary), nearly all happens next to nothing: the
    sum is then far from what the words changed, and ablation is to be trusted more.
    """
    rows, columns = _axes(trace)
    target, device = _asked(trace), next(model.parameters()).device
    points, weights = np.polynomial.legendre.leggauss(POINTS)
    found = []
    # cuDNN's recurrent kernels refuse gradients outside of training
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        for steps in torch.arange(len(target)).split(_copies(trace, device)):
            total = torch.zeros(len(steps), len(columns.ids))
            for point, weight in zip(points.tolist(), weights.tolist(), strict=True):
                with _faded(model, (1 + point) / 2) as faded:
                    logs = log_probabilities(model, [trace.source.ids] * len(steps), target)
                (slope,) = torch.autograd.grad(logs[torch.arange(len(steps)), steps].sum(), faded.now)
                total += weight / 2 * (slope * faded.whole).sum(-1).float().cpu()
            found.append(total)
    values = by_word(torch.cat(found), rows, columns)
    return Map("gradient", kind, rows, columns, values[None, None], values[None])


class Faded:
    """Embeddings multiplied by a share, and what they were."""

    def __init__(self, share: float) -> None:
        self.share = share
        self.now: Tensor | None = None
        self.whole: Tensor | None = None

    def __call__(self, module: nn.Module, given: Any, embeddings: Tensor) -> Tensor | None:
        if self.now is not None:  # the target's, in the same table: only what was read fades
            return None
        self.whole = embeddings.detach()
        self.now = (self.share * self.whole).requires_grad_()
        return self.now


@contextmanager
def _faded(model: nn.Module, share: float) -> Iterator[Any]:
    """While it lasts, the embeddings of what the model reads are multiplied by a share."""
    table: Any = model.target if isinstance(model, GPT) else model.source
    faded = Faded(share)
    hook = (table.token if isinstance(table, Embedding) else table).register_forward_hook(faded)
    try:
        yield faded
    finally:
        hook.remove()


@torch.inference_mode()
def ablation(model: nn.Module, trace: Trace, kind: str) -> Map:
    """Every token's log-probability, less what it is without a word: left out, and in a bert's text masked."""
    rows, columns = _axes(trace)
    lost = _without_in_gpt(model, trace) if trace.family == "gpt" else _without_in_source(model, trace)
    values = _sum_rows(lost, rows)
    return Map("ablation", kind, rows, columns, values[None, None], values[None])


def _without_in_source(model: nn.Module, trace: Trace) -> Tensor:
    """(T, words)"""
    ids, words = trace.source.ids, trace.source.word
    instead = [MASK] if trace.family == "bert" else []
    texts = [ids]
    for gone in range(len(trace.source.words)):
        pairs = zip(ids, words, strict=True)
        texts.append([kept for number, word in pairs for kept in ([number] if word != gone else instead)])
    if not all(texts):
        raise InputError("the source is one word: nothing is left of it without that")
    size = _copies(trace, next(model.parameters()).device)
    parts = [log_probabilities(model, texts[at : at + size], _asked(trace)) for at in range(0, len(texts), size)]
    logs = torch.cat(parts).cpu()
    return (logs[0] - logs[1:]).T


def _without_in_gpt(model: nn.Module, trace: Trace) -> Tensor:
    """(T, words): a word can only be missed by what is written after it."""
    columns = trace.columns("decoder")
    whole, begin = [*columns.ids, trace.target.ids[-1]], len(trace.source.ids)
    logs = log_probabilities(model, [trace.source.ids], trace.target.ids)[0].cpu()
    lost = torch.zeros(len(logs), len(columns.words))
    for gone in range(len(columns.words)):
        places = [place for place, word in enumerate(columns.word) if word == gone]
        first = max(begin, places[-1] + 1)  # of the tokens that come after
        before = [whole[place] for place in range(first) if place not in places] or [START]
        without = log_probabilities(model, [before], whole[first:])[0].cpu()
        lost[first - begin :, gone] = logs[first - begin :] - without
    return lost


ASKING = {"rollout": rollout_of_gpt, "value": value, "gradient": gradient, "ablation": ablation}


def log_probabilities(
    model: nn.Module, sources: Sequence[Sequence[int]], target: Sequence[int], record: Record | None = None
) -> Tensor:
    """(B, T) of the tokens of one target after each of the sources; of a bert, of the target in their place."""
    device = next(model.parameters()).device
    ids = torch.tensor(target, dtype=torch.int64, device=device)
    source, mask = padded(sources, device)
    if isinstance(model, BERT):
        encoded = model.encode(source, mask=mask, record=record)
        if model.head is None:
            return encoded.new_zeros(source.shape)
        logits = model.logits(encoded)
    elif isinstance(model, GPT):
        assert mask is None, "prompts of one length"
        text = torch.cat([source, ids[:-1].expand(len(source), -1)], 1)
        logits = model.step(text, model.start(text[:, :0]), record)[0][:, source.shape[1] - 1 :]
    else:
        writer, begin = cast(Generator, model), ids.new_tensor([START])
        before = torch.cat([begin, ids[:-1]]).expand(len(source), -1)
        logits, _ = writer.step(before, writer.start(source, mask, record), record)
    return logits.float().log_softmax(-1).gather(-1, ids.expand(len(source), -1)[..., None])[..., 0]


def _axes(trace: Trace) -> tuple[Side, Side]:
    """What is asked about, and what it may depend on."""
    if trace.family == "bert":
        return trace.source, trace.source
    return trace.target, trace.columns("decoder") if trace.family == "gpt" else trace.source


def _asked(trace: Trace) -> list[int]:
    """The tokens whose probabilities are asked about: those written, or those a bert takes its masks for."""
    if trace.family != "bert":
        return trace.target.ids
    if not trace.alternatives:
        raise InputError("this bert has no masked-token head: it gives no probabilities to explain")
    pairs = zip(trace.source.ids, trace.alternatives, strict=True)
    return [best[0].id if number == MASK else number for number, best in pairs]


def _copies(trace: Trace, device: torch.device) -> int:
    """How many copies of a sentence are run at once."""
    return max(1, TOKENS[device.type] // (len(trace.source.ids) + len(trace.target.ids)))


# From tokens to words.


def by_word(tokens: Tensor, rows: Side, columns: Side) -> Tensor:
    """[..., row word, column word] from [..., row, column] tokens, summed over the pieces of both."""
    index = torch.tensor(columns.word, dtype=torch.int64)
    summed = tokens.new_zeros(*tokens.shape[:-1], len(columns.words)).index_add_(-1, index, tokens)
    return _sum_rows(summed, rows)


def _sum_rows(tokens: Tensor, rows: Side) -> Tensor:
    index = torch.tensor(rows.word, dtype=torch.int64)
    return tokens.new_zeros(*tokens.shape[:-2], len(rows.words), tokens.shape[-1]).index_add_(-2, index, tokens)


def _pieces(rows: Side) -> Tensor:
    """How many tokens each word has."""
    return torch.bincount(torch.tensor(rows.word, dtype=torch.int64), minlength=len(rows.words)).clamp(min=1)
