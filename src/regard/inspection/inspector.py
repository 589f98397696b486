"""Inspector: a trace with all its maps as one self-contained page, or as a part of another page.

L layers, H heads, R rows, C columns.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from regard.inspection import attribution, pages, quality
from regard.inspection.attribution import MEANINGS, UNITS, Map
from regard.inspection.trace import Trace, average_by_word

SCRIPTS = ("page.js", "heatmap.js", "inspector.js")
"""The scripts of a page with `embed`."""


def page(
    trace: Trace,
    maps: Sequence[Map] = (),
    *,
    title: str,
    layer: int | None = None,
    head: int | None = None,
    warned: Sequence[quality.QualityWarning] | None = None,
) -> str:
    """One HTML file; it opens with the first map and the given layer and head."""
    body = embed(trace, maps, layer=layer, head=head, warned=warned)
    return pages.page(title, [body], kind="attention", scripts=SCRIPTS)


def embed(trace: Trace, maps: Sequence[Map] = (), **options: Any) -> str:
    """An element that the inspector's script draws into; inside <details> it is drawn when they are opened."""
    return f'<div class="inspector">{pages.data(contents(trace, maps, **options))}</div>'


def contents(
    trace: Trace,
    maps: Sequence[Map] = (),
    *,
    layer: int | None = None,
    head: int | None = None,
    warned: Sequence[quality.QualityWarning] | None = None,
) -> dict[str, Any]:
    """The trace as plain values for the script; by default with the maps and warnings that the trace alone gives."""
    maps = maps or attribution.explain_all(trace)
    if warned is None and trace.family not in ("gpt", "bert"):
        warned = quality.find_warnings(trace.source.text, trace.target.text, trace)
    if layer is not None or head is not None:
        maps[0].picture(layer, head)  # raises if they do not exist
    layers = maps[0].values.shape[0] if maps else 1
    return {
        "family": trace.family,
        "source": pages.words(trace.source),
        "target": pages.words(trace.target),
        "score": round(trace.score, 4),
        "finished": trace.finished,
        "warnings": [warning.message for warning in warned or ()],
        "maps": list(map(_map, maps)),
        "layer": attribution.default_layer(layers) if layer is None else layer,
        "head": -1 if head is None else head,
        "steps": _steps(trace),
        "tree": [[[x.parent, x.subword, round(x.log_probability, 3), x.kept] for x in step] for step in trace.tree],
        "chosen": _chosen(trace),
        "hidden": _hidden(trace),
    }


def _map(shown: Map) -> dict[str, Any]:
    """A map with 16 bits for each value from low to high; the heads of a layer are followed by their combination."""
    layers, heads = shown.values.shape[:2]
    values = shown.values if heads == 1 else torch.cat([shown.values, shown.joined.unsqueeze(1)], 1)
    high = float(values.abs().max()) if values.numel() else 0.0
    high = 1.0 if shown.method in ("attention", "rollout") else float(f"{high:.6g}") or 1.0
    low = -high if shown.signed else 0.0
    shares = ((values - low) / (high - low)).clamp(0, 1)
    return {
        "method": shown.method,
        "kind": shown.kind,
        "meaning": MEANINGS[shown.method],
        "unit": UNITS[shown.method],
        "rows": pages.words(shown.rows),
        "columns": pages.words(shown.columns),
        "layers": layers,
        "heads": heads,
        "low": low,
        "high": high,
        "values": base64.b64encode((shares * 65535).round().numpy().astype("<u2").tobytes()).decode(),
    }


def _steps(trace: Trace) -> list[list[Any]]:
    """[word, subword, log-probability, [[subword, log-probability], ...]] of every token."""
    written = trace.source if trace.family == "bert" else trace.target
    steps = []
    for index, log in enumerate(trace.log_probabilities.tolist()):
        others = trace.alternatives[index] if trace.alternatives else []
        listed = [[other.subword, round(other.log_probability, 4)] for other in others]
        steps.append([written.word[index], written.subwords[index], round(log, 4), listed])
    return steps


def _chosen(trace: Trace) -> list[int]:
    """The branch of each step of the tree that became the output."""
    chosen, parent = [], -1
    for step, number in zip(trace.tree, trace.target.ids, strict=False):
        parent = next((index for index, b in enumerate(step) if b.parent == parent and b.id == number and b.kept), -1)
        if parent < 0:
            break
        chosen.append(parent)
    return chosen


def _hidden(trace: Trace) -> list[dict[str, Any]]:
    """The words of every layer as points in a plane, for the encoder and the decoder."""
    stacks = []
    for stack, side in (("encoder", trace.source), ("decoder", trace.target)):
        depth = sum(name.startswith(f"{stack}.") for name in trace.hidden)
        names = [f"{stack}.embedding", *(f"{stack}.{layer}.hidden" for layer in range(depth)), f"{stack}.output"]
        layers: list[dict[str, Any]] = []
        before = None
        for name in names if len(side.words) > 2 else ():
            if name in trace.hidden:
                before, share = plane(average_by_word(trace.hidden[name], side), before)
                points = [[round(x, 3) for x in point] for point in before.tolist()]
                layers.append({"name": name.removeprefix(f"{stack}."), "points": points, "share": round(share, 3)})
        if layers:
            stacks.append({"stack": stack, **pages.words(side), "layers": layers})
    return stacks


def plane(states: Tensor, before: Tensor | None = None) -> tuple[Tensor, float]:
    """The first two principal components (R, 2), and the share of variance they explain.

    The points are rotated to lie close to those of the layer `before`, so that layers can be compared.
    """
    left, sizes, _ = torch.linalg.svd(states - states.mean(0), full_matrices=False)
    points = left[:, :2] * sizes[:2]
    points = points / points.abs().max().clamp(min=1e-9)
    if before is None:
        points = points * torch.where(points.sum(0) < 0, -1.0, 1.0)
    else:
        left, _, right = torch.linalg.svd(points.T @ before)
        points = points @ left @ right
    return points, float(sizes[:2].square().sum() / sizes.square().sum().clamp(min=1e-12))
