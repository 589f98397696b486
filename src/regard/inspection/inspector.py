"""The inspector: a trace and what its words were written from, as one page that needs nothing else.

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
from regard.inspection.trace import Side, Trace

PLAIN = 2_500  # numbers of a picture that are written as they are; of more, eight bits each


def page(
    trace: Trace,
    maps: Sequence[Map] = (),
    *,
    title: str,
    layer: int | None = None,
    head: int | None = None,
    warned: Sequence[quality.QualityWarning] | None = None,
) -> str:
    """One HTML file with all in it; the first map, layer and head are what it opens with."""
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
    """Those, and the CSS of what `script` draws, for pages that show traces among other things."""
    return colours() + _file("inspector.css")


def script() -> str:
    """The JavaScript that defines `regardInspect(element, data)`, which draws what `embed` gave."""
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
    """The trace as JSON that may stand inside a script element: words as they are, weights as 8 bits in base64.

    Without maps, what the trace alone gives. `warned` is what a reader is warned of; None: what the trace shows.
    """
    maps = maps or attribution.explain_all(trace)
    if warned is None:
        warned = (
            []
            if trace.family in ("gpt", "bert")
            else quality.find_warnings(trace.source.text, trace.target.text, trace)
        )
    if layer is not None or head is not None:
        maps[0].picture(layer, head)  # refuses what is not there
    layers = maps[0].values.shape[0] if maps else 1
    data = {
        "title": title,
        "family": trace.family,
        "source": _words(trace.source),
        "target": _words(trace.target),
        "score": round(trace.score, 4),
        "finished": trace.finished,
        "warnings": [each.message for each in warned],
        "maps": [_map(each) for each in maps],
        "layer": attribution.usual_layer(layers) if layer is None else layer,
        "head": -1 if head is None else head,
        "steps": _steps(trace),
        "tree": [[[branch.parent, branch.subword, round(branch.log_probability, 3), branch.kept] for branch in step]
                 for step in trace.tree],
        "chosen": _chosen(trace),
        "hidden": _hidden(trace),
    }  # fmt: skip
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")  # a word must not end the script


def _file(name: str) -> str:
    return files("regard.inspection").joinpath(f"page/{name}").read_text(encoding="utf-8")


def _words(side: Side) -> dict[str, Any]:
    return {"text": side.text, "words": side.words, "special": [int(special) for special in side.special]}


# Maps.


def _map(shown: Map) -> dict[str, Any]:
    low, high = _range(shown)
    layers, heads = shown.values.shape[:2]
    alone = layers == heads == 1 and shown.values.numel() <= PLAIN
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
        # one picture alone is small enough for numbers as they are
        "plain": [float(f"{x:.4g}") for x in shown.values.flatten().tolist()] if alone else [],
        # the heads' mean is soon found again; what else "together" may mean is not
        "joined": _bytes(shown.joined, low, high) if shown.method == "value" else "",
    }


def _range(shown: Map) -> tuple[float, float]:
    """What the bytes 0 and 255 stand for."""
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
    """[word, piece, log-probability, [[piece, log-probability], ...]] of every token that was asked for."""
    written = trace.source if trace.family == "bert" else trace.target
    found = []
    for place, log in enumerate(trace.log_probabilities.tolist()):
        others = trace.alternatives[place] if trace.alternatives else []
        listed = [[other.subword, round(other.log_probability, 4)] for other in others]
        found.append([written.word[place], written.subwords[place], round(log, 4), listed])
    return found


def _chosen(trace: Trace) -> list[int]:
    """Which branch of each step of the tree became what was written."""
    found, parent = [], -1
    for step, number in zip(trace.tree, trace.target.ids, strict=False):
        parent = next((place for place, b in enumerate(step) if b.parent == parent and b.id == number and b.kept), -1)
        if parent < 0:
            break
        found.append(parent)
    return found


# Hidden states.


def _hidden(trace: Trace) -> list[dict[str, Any]]:
    """For the encoder and the decoder, the words of every layer as points of a plane."""
    found = []
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
        found.append({"stack": stack, **_words(side), "layers": layers})
    return found


def _of_words(states: Tensor, side: Side) -> Tensor:
    """[word, size]: the mean of its pieces."""
    index = torch.tensor(side.word, dtype=torch.int64)
    total = states.new_zeros(len(side.words), states.shape[1]).index_add_(0, index, states)
    return total / torch.bincount(index, minlength=len(side.words)).clamp(min=1)[:, None]


def plane(states: Tensor, before: Tensor | None = None) -> tuple[Tensor, float, Tensor]:
    """Points (R, 2) in the two directions the states differ most in, the share of the differences they show, lengths.

    Turned so that they lie as near to the points of the layer `before` as they can: layers can then be compared.
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
        one, _, other = torch.linalg.svd(points.T @ before)
        points = points @ one @ other
    share = float(sizes[:2].square().sum() / sizes.square().sum().clamp(min=1e-12))
    return points, share, states.norm(dim=1)
