"""Inspector: a trace with all its maps as one self-contained page, or as a part of another page."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from typing import Any

import torch

from regard.inspection import attribution, pages, quality
from regard.inspection.alignment import cross_attention
from regard.inspection.attribution import MEANINGS, UNITS, Map
from regard.inspection.trace import Side, Trace

SURE = 0.9  # from this probability on, a word is not called doubtful
RIVAL = 0.1  # from this share of the probability of the chosen word on, another one is named
COVERED = 0.2  # a source word with less attention in all is marked


def page(trace: Trace, maps: Sequence[Map] = (), *, title: str, **options: Any) -> str:
    """One HTML file under its summary; it opens with the first map. The options are those of `contents`."""
    body, result = embed(trace, maps, **options), summary(trace)
    return pages.page(result or title, [body], kind="attention", about=title * bool(result))


def embed(trace: Trace, maps: Sequence[Map] = (), **options: Any) -> str:
    """An element that the inspector's script draws into; inside <details> it is drawn when they are opened."""
    return pages.drawn("inspector", contents(trace, maps, **options))


def contents(
    trace: Trace,
    maps: Sequence[Map] = (),
    *,
    layer: int | None = None,
    head: int | None = None,
    warned: Sequence[quality.QualityWarning] | None = None,
    languages: tuple[str, str] = ("", ""),
) -> dict[str, Any]:
    """The trace as plain values for the script; by default with the maps and warnings that the trace alone gives.

    `layer` and `head` are shown first. `languages` are the codes of source and target, if they are known.
    """
    maps = maps or attribution.explain_all(trace)
    if warned is None and trace.family not in ("gpt", "bert"):
        warned = quality.find_warnings(trace.source.text, trace.target.text)
    if layer is not None or head is not None:
        maps[0].picture(layer, head)  # raises if they do not exist
    layers = maps[0].values.shape[0] if maps else 1
    written, logs, least = _written(trace), trace.log_probabilities.tolist(), least_certain(trace)
    alternatives = trace.alternatives or [[]] * len(logs)
    chosen, parent = list[int](), -1  # the branch of each step of the tree that became the output
    for branches, number in zip(trace.tree, trace.target.ids, strict=False):
        path = [index for index, x in enumerate(branches) if x.kept and (x.parent, x.id) == (parent, number)]
        if not path:
            break
        parent = path[0]
        chosen.append(parent)
    return {
        "family": trace.family,
        "source": pages.words(trace.source, languages[0]),
        "target": pages.words(trace.target, languages[1]),
        "summary": summary(trace),
        "focus": None if least is None else written.word[least],
        "uncovered": uncovered_words(trace),
        "warnings": [warning.message for warning in warned or ()],
        "maps": [to_values(shown, languages=languages) for shown in maps],
        "layer": attribution.default_layer(layers) if layer is None else layer,
        "head": -1 if head is None else head,
        "steps": [
            [word, subword, round(log, 4), [[x.subword, round(x.log_probability, 4)] for x in others]]
            for word, subword, log, others in zip(written.word, written.subwords, logs, alternatives, strict=False)
        ],
        "tree": [[[x.parent, x.subword, round(x.log_probability, 3), x.kept] for x in step] for step in trace.tree],
        "chosen": chosen,
    }


def to_values(shown: Map, bits: int = 16, languages: tuple[str, str] = ("", "")) -> dict[str, Any]:
    """A map with 8 or 16 bits for each value from low to high; several heads are followed by their combination.

    The values of a film have one more dimension, the frames.
    """
    layers, heads = shown.values.shape[-4:-2]
    values = torch.cat([shown.values, shown.joined.unsqueeze(-3)], -3) if heads > 1 else shown.values
    low = -shown.high if shown.signed else 0.0
    shares = ((values - low) / (shown.high - low)).clamp(0, 1)
    numbers = (shares * (2**bits - 1)).round().numpy().astype(f"<u{bits // 8}")
    return {
        "method": shown.method,
        "kind": shown.kind,
        "meaning": MEANINGS[shown.method],
        "unit": UNITS[shown.method],
        "rows": pages.words(shown.rows, languages[shown.kind != "encoder"]),
        "columns": pages.words(shown.columns, languages[shown.kind == "decoder"]),
        "layers": layers,
        "heads": heads,
        "low": low,
        "high": shown.high,
        "bits": bits,
        "values": base64.b64encode(numbers.tobytes()).decode(),
    }


def summary(trace: Trace) -> str:
    """One sentence about what is worth knowing: the least certain word, and what else could stand there."""
    if not trace.finished:
        return "It was cut off at the maximum length."
    step = least_certain(trace)
    if step is None:
        return ""
    side, log = _written(trace), float(trace.log_probabilities[step])
    number = side.word[step]
    word = side.words[number]
    if math.exp(log) >= SURE:
        return f"It was sure of every word; the least probable is “{word}” with {percent(log)}."
    before = "".join(side.subwords[side.word.index(number) : step])
    others = trace.alternatives[step] if trace.alternatives else []
    for other in (other for other in others if other.log_probability >= log + math.log(RIVAL)):
        ends = other.id == trace.special.end or (before and other.subword[:1].isspace())
        text = (before if ends else before + other.subword).strip() or "end"
        if text != word and trace.family == "bert":
            return f"It expected “{text}” ({percent(other.log_probability)}) instead of “{word}” ({percent(log)})."
        if text != word:
            both = f"“{word}”\u00a0{percent(log)} and “{text}”\u00a0{percent(other.log_probability)}"
            return f"It hesitated between {both}."
    return f"The least probable word is “{word}” with {percent(log)}."


def least_certain(trace: Trace) -> int | None:
    """The step of the token with the lowest probability, special tokens aside."""
    side, logs = _written(trace), trace.log_probabilities.tolist()
    steps = [step for step, word in enumerate(side.word[: len(logs)]) if not side.special[word]]
    return min(steps, key=logs.__getitem__, default=None)


def _written(trace: Trace) -> Side:
    """The side whose tokens have probabilities."""
    return trace.source if trace.family == "bert" else trace.target


def percent(log_probability: float) -> str:
    """A log-probability in percent."""
    share = 100 * math.exp(log_probability)
    return "<0.1\u00a0%" if share < 0.05 else f"{share:.{int(share < 9.95)}f}\u00a0%"


def uncovered_words(trace: Trace) -> list[int]:
    """The words of the source that hardly any attention went to, over the whole translation."""
    if "cross" not in trace.attention:
        return []
    received, is_special = cross_attention(trace).sum(0), torch.tensor(trace.source.special, dtype=torch.bool)
    is_word = torch.tensor([any(map(str.isalnum, word)) for word in trace.source.words], dtype=torch.bool)
    uncovered: list[int] = ((received < COVERED) & is_word & ~is_special).nonzero()[:, 0].tolist()
    return uncovered
