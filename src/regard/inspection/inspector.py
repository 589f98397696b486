"""Inspector: a trace with all its maps as one self-contained page.

L layers, H heads, R rows, C columns.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Sequence
from importlib.resources import files
from string import Template
from typing import Any

import torch
from torch import Tensor

from regard.inspection import attribution, quality
from regard.inspection.attribution import MEANINGS, UNITS, Map
from regard.inspection.trace import Side, Trace, average_by_word

MAX_EXACT = 2_500  # values of a map that are written as numbers; larger maps have 8 bits for each value


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
    return Template(_file("inspector.html")).substitute(
        title=html.escape(title),
        style=style(),
        script=script(),
        data=embed(trace, maps, title=title, layer=layer, head=head, warned=warned),
    )


def colours() -> str:
    """The CSS that names the colours of every page."""
    return _file("colours.css")


def style() -> str:
    """The colours and the CSS of what `script` draws, for pages that embed traces."""
    return colours() + _file("inspector.css")


def script() -> str:
    """The JavaScript that defines `regardInspect(element, data)`, which draws the data of `embed`."""
    return _file("inspector.js")


def embed(
    trace: Trace,
    maps: Sequence[Map] = (),
    *,
    title: str = "",
    layer: int | None = None,
    head: int | None = None,
    warned: Sequence[quality.QualityWarning] | None = None,
) -> str:
    """The trace as JSON for a script element, with weights as 8 bits in base64.

    By default it has the maps and the warnings that the trace alone gives.
    """
    maps = maps or attribution.explain_all(trace)
    if warned is None:
        warned = (
            []
            if trace.family in ("gpt", "bert")
            else quality.find_warnings(trace.source.text, trace.target.text, trace)
        )
    if layer is not None or head is not None:
        maps[0].picture(layer, head)  # raises if they do not exist
    layers = maps[0].values.shape[0] if maps else 1
    data = {
        "title": title,
        "family": trace.family,
        "source": _words(trace.source),
        "target": _words(trace.target),
        "score": round(trace.score, 4),
        "finished": trace.finished,
        "warnings": [warning.message for warning in warned],
        "maps": [_map(shown) for shown in maps],
        "layer": attribution.default_layer(layers) if layer is None else layer,
        "head": -1 if head is None else head,
        "steps": _steps(trace),
        "tree": [[[branch.parent, branch.subword, round(branch.log_probability, 3), branch.kept] for branch in step]
                 for step in trace.tree],
        "chosen": _chosen(trace),
        "hidden": _hidden(trace),
    }  # fmt: skip
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")  # no word may end the script element


def _file(name: str) -> str:
    return files("regard.inspection").joinpath(f"page/{name}").read_text(encoding="utf-8")


def _words(side: Side) -> dict[str, Any]:
    return {"text": side.text, "words": side.words, "special": [int(special) for special in side.special]}


# Maps.


def _map(shown: Map) -> dict[str, Any]:
    low, high = _range(shown)
    layers, heads = shown.values.shape[:2]
    alone = layers == heads == 1 and shown.values.numel() <= MAX_EXACT
    return {
        "method": shown.method,
        "kind": shown.kind,
        "meaning": MEANINGS[shown.method],
        "unit": UNITS[shown.method],
        "rows": _words(shown.rows),
        "columns": _words(shown.columns),
        "layers": layers,
        "heads": heads,
        "low": low,
        "high": high,
        "values": "" if alone else _bytes(shown.values, low, high),
        # a single small map is written as numbers
        "plain": [float(f"{x:.4g}") for x in shown.values.flatten().tolist()] if alone else [],
        # the mean over heads can be computed by the page; combined values cannot
        "joined": _bytes(shown.joined, low, high) if shown.method == "value" else "",
    }


def _range(shown: Map) -> tuple[float, float]:
    """The values of the bytes 0 and 255."""
    if shown.method in ("attention", "rollout"):
        return 0.0, 1.0
    both = torch.cat([shown.values.flatten(), shown.joined.flatten()])
    high = float(f"{float(both.abs().max()) if len(both) else 0.0:.6g}") or 1.0
    return (-high if shown.signed else 0.0), high


def _bytes(values: Tensor, low: float, high: float) -> str:
    shares = ((values - low) / (high - low)).clamp(0, 1)
    return base64.b64encode((shares * 255).round().to(torch.uint8).contiguous().numpy().tobytes()).decode()


# Steps and the beam.


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


# Hidden states.


def _hidden(trace: Trace) -> list[dict[str, Any]]:
    """The words of every layer as points in a plane, for the encoder and the decoder."""
    stacks = []
    for stack, side in (("encoder", trace.source), ("decoder", trace.target)):
        depth = sum(name.startswith(f"{stack}.") for name in trace.hidden)
        names = [f"{stack}.embedding", *(f"{stack}.{layer}.hidden" for layer in range(depth)), f"{stack}.output"]
        kept = [name for name in names if name in trace.hidden]
        if not kept or len(side.words) < 3:
            continue
        layers, before = [], None
        for name in kept:
            points, share, lengths = plane(_of_words(trace.hidden[name], side), before)
            before = points
            layers.append(
                {
                    "name": name.removeprefix(f"{stack}."),
                    "points": [[round(x, 3) for x in point] for point in points.tolist()],
                    "lengths": [round(length, 2) for length in lengths.tolist()],
                    "share": round(share, 3),
                }
            )
        stacks.append({"stack": stack, **_words(side), "layers": layers})
    return stacks


def _of_words(states: Tensor, side: Side) -> Tensor:
    """[word, size]: the mean over the tokens of each word."""
    return average_by_word(states, side)


def plane(states: Tensor, before: Tensor | None = None) -> tuple[Tensor, float, Tensor]:
    """The first two principal components (R, 2), the share of variance they explain, and the norms of the states.

    The points are rotated to lie close to those of the layer `before`, so that layers can be compared.
    """
    centred = states - states.mean(0)
    left, sizes, _ = torch.linalg.svd(centred, full_matrices=False)
    points = left[:, :2] * sizes[:2]
    points = points / points.abs().max().clamp(min=1e-9)
    if points.shape[1] < 2:
        points = torch.cat([points, points.new_zeros(len(points), 2 - points.shape[1])], 1)
    if before is None:
        points = points * torch.where(points.sum(0) < 0, -1.0, 1.0)
    else:
        left, _, right = torch.linalg.svd(points.T @ before)
        points = points @ left @ right
    share = float(sizes[:2].square().sum() / sizes.square().sum().clamp(min=1e-12))
    return points, share, states.norm(dim=1)
