"""The drawings of the pages on formulas, computed by Regard itself: `python docs/figures.py` writes docs/figures/*.svg.

They are plain SVG of few colours on no background: text and axes take the colour of the page around them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from statistics import NormalDist

import torch
from torch import Tensor

from regard.attention.masks import causal, over_queries, packed
from regard.attention.positions import sinusoidal
from regard.config import TrainConfig
from regard.counting import count
from regard.decoding import Constraints, Tree
from regard.decoding import beam as search
from regard.models.contract import Record, State
from regard.models.layers import ACTIVATIONS
from regard.training.optimizer import learning_rate

FOLDER = Path(__file__).parent / "figures"
BLUE, ORANGE, TEAL = "#3b82f6", "#f97316", "#14a38b"
Point = tuple[float, float]


# Drawing.


def number(x: float) -> str:
    return f"{x:.1f}".removesuffix(".0").replace("-0", "-0" if x <= -0.05 else "0")


def drawing(title: str, width: int, height: int, *parts: str) -> str:
    """A whole file; the title is what a screen reader says."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img" '
        f'aria-label="{escape(title)}" color="#777" font-family="system-ui, sans-serif" font-size="13">'
    )
    return "\n".join([head, *parts, "</svg>\n"])


def text(x: float, y: float, words: str, anchor: str = "start", **more: object) -> str:
    place = f'x="{number(x)}" y="{number(y)}" text-anchor="{anchor}"'
    return f"<text {place} {_more(fill='currentColor', **more)}>{escape(words)}</text>"


def box(x: float, y: float, width: float, height: float, **more: object) -> str:
    sides = f'x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
    return f"<rect {sides} {_more(**more)}/>"


def stroke(points: Sequence[Point], colour: str = "currentColor", **more: object) -> str:
    path = "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)
    return f'<path d="{path}" fill="none" stroke="{colour}" {_more(**{"stroke_width": 1.5, **more})}/>'


def arrow(start: Point, end: Point) -> str:
    """A line with a head, in the direction it goes."""
    angle = math.atan2(end[1] - start[1], end[0] - start[0])
    wings = [(end[0] - 7 * math.cos(angle + turn), end[1] - 7 * math.sin(angle + turn)) for turn in (0.45, -0.45)]
    return stroke([start, end]) + stroke([wings[0], end, wings[1]])


def label(x: float, y: float, width: float, words: str, colour: str) -> str:
    """A named box around (x, y)."""
    frame = box(x - width / 2, y - 15, width, 30, rx=6, fill=colour, fill_opacity=0.18, stroke=colour)
    return frame + text(x, y + 4.5, words, "middle")


def cells(values: Tensor, left: float, top: float, wide: float, high: float) -> list[str]:
    """A matrix of numbers from -1 to 1: orange above zero and blue below, the fuller the larger."""
    squares: dict[int, list[str]] = {}
    for row, line in enumerate(values.tolist()):
        for column, value in enumerate(line):
            x, y = left + column * wide, top + row * high
            squares.setdefault(round(8 * value), []).append(
                f"M{number(x)} {number(y)}h{number(wide)}v{number(high)}h-{number(wide)}z"
            )
    return [
        f'<path d="{"".join(path)}" {_more(fill=ORANGE if level > 0 else BLUE, fill_opacity=abs(level) / 8)} '
        'shape-rendering="crispEdges"/>'
        for level, path in sorted(squares.items())
        if level
    ]


def axes(left: float, top: float, width: float, height: float) -> str:
    return stroke([(left, top), (left, top + height), (left + width, top + height)], stroke_width=1)


def _more(**more: object) -> str:
    return " ".join(f'{name.replace("_", "-")}="{value}"' for name, value in more.items())


# The drawings.


def sinusoids() -> str:
    values = sinusoidal(torch.arange(48), 32)
    return drawing(
        "Sinusoidal positions: 48 positions from top to bottom, 32 dimensions from left to right",
        560, 330,
        *cells(values, 90, 20, 14, 5.5),
        box(90, 20, 448, 264, fill="none", stroke="currentColor", stroke_opacity=0.4),
        *(text(82, 20 + 5.5 * p + 7, str(p), "end") for p in (0, 10, 20, 30, 40)),
        *(text(90 + 14 * d + 7, 300, str(d), "middle") for d in (0, 8, 16, 24, 31)),
        text(314, 322, "dimension: even ones are sines, odd ones cosines", "middle"),
        text(0, 0, "position", "middle", transform="translate(40 152) rotate(-90)"),
    )  # fmt: skip


def masks() -> str:
    tokens = torch.tensor([[5, 6, 7, 8, 0, 0]])
    kinds = [
        ("padding", over_queries(tokens != 0)[0, 0].expand(6, 6), ["a", "b", "c", "d", "·", "·"]),
        ("causal", causal(6), ["a", "b", "c", "d", "e", "f"]),
        ("packed", packed(torch.tensor([[1, 1, 1, 2, 2, 0]]))[0, 0], ["a", "b", "c", "A", "B", "·"]),
    ]
    parts = []
    for i, (name, seen, words) in enumerate(kinds):
        left = 40 + 185 * i
        parts += [text(left + 66, 20, name, "middle", font_weight=600)]
        parts += [text(left + 22 * k + 11, 42, word, "middle") for k, word in enumerate(words)]
        parts += [text(left - 10, 65 + 22 * q, word, "end") for q, word in enumerate(words)]
        for q in range(6):
            for k in range(6):
                look = {"fill": TEAL} if seen[q, k] else {"fill": "currentColor", "fill_opacity": 0.12}
                parts.append(box(left + 22 * k + 1, 50 + 22 * q, 20, 20, rx=3, **look))
    parts.append(text(292, 204, "rows ask, columns are asked; full: may be seen; · is padding", "middle"))
    return drawing("Three masks of six tokens: padding, causal, packed", 584, 214, *parts)


def schedule() -> str:
    left, top, width, height, last, peak = 70, 16, 470, 210, 20000, 0.0008
    lines = []
    kinds = [(512, 4000, TEAL), (512, 8000, BLUE), (1024, 4000, ORANGE)]
    for i, (size, warmup, colour) in enumerate(kinds):
        config = TrainConfig(learning_rate=1.0, schedule="noam", warmup=warmup)
        steps = sorted({*range(1, last + 1, 250), warmup})
        points = [(left + width * u / last, top + height * (1 - learning_rate(u, config, size) / peak)) for u in steps]
        lines.append(stroke(points, colour, stroke_width=2.2))
        y = 30 + 22 * i
        lines += [stroke([(330, y), (354, y)], colour, stroke_width=2.2)]
        lines += [text(362, y + 4.5, f"size {size:,}, warm-up {warmup:,}")]
    return drawing(
        "The Noam schedule: the rate rises in a straight line over the warm-up and falls as one over the square root",
        580, 270, axes(left, top, width, height), *lines,
        *(text(left + width * u / last, 246, f"{u:,}", "middle") for u in (0, 4000, 8000, 12000, 16000, 20000)),
        *(text(left - 8, top + height * (1 - y / peak) + 4, f"{y:.4f}", "end") for y in (0, 2e-4, 4e-4, 6e-4, 8e-4)),
        text(left + width / 2, 266, "update", "middle"),
    )  # fmt: skip


def smoothing() -> str:
    parts = []
    for i, (name, e) in enumerate([("one-hot", 0.0), ("smoothed, ε = 0.1", 0.1)]):
        left = 30 + 280 * i
        parts += [text(left + 115, 18, name, "middle", font_weight=600)]
        for word in range(5):
            share = (1 - e) * (word == 1) + e / 5
            x, high = left + 46 * word, 120 * share
            parts += [box(x + 6, 160 - high, 34, high, rx=2, fill=TEAL if word == 1 else BLUE)]
            parts += [text(x + 23, 154 - high, f"{share:.2f}", "middle", font_size=12)]
            parts += [text(x + 23, 177, ["le", "chat", "chien", "dort", "."][word], "middle")]
        parts += [stroke([(left, 160), (left + 232, 160)], stroke_width=1)]
    return drawing("The target distribution over five words, one-hot and smoothed", 560, 186, *parts)


ENTRIES = "the weights of eight keys; queries and keys have entries of mean 0 and variance 1"


def scaling() -> str:
    z = torch.tensor([NormalDist().inv_cdf((i + 0.5) / 8) for i in range(8)])
    parts = []
    for i, (name, scores) in enumerate(
        [(f"q·k, D = {d}", z * math.sqrt(d)) for d in (4, 16, 64)] + [("q·k/√D, any D", z)]
    ):
        left = 8 + 140 * i
        colour = TEAL if i == 3 else BLUE
        parts += [text(left + 64, 18, name, "middle", font_weight=600)]
        for k, weight in enumerate(scores.softmax(0).tolist()):
            parts.append(box(left + 16 * k + 1, 150 - 118 * weight, 13, max(118 * weight, 0.5), rx=1.5, fill=colour))
        parts += [stroke([(left, 150), (left + 128, 150)], stroke_width=1)]
    parts.append(text(284, 172, ENTRIES, "middle"))
    return drawing("Softmax of unscaled products grows peaked with the size; scaled, it does not", 568, 182, *parts)


def activations() -> str:
    x = torch.linspace(-4, 3, 141)
    left, top, unit = 30, 14, 52
    at: Callable[[float, float], Point] = lambda a, b: (left + unit * (a + 4), top + unit * (3 - b))  # noqa: E731
    parts = [stroke([at(-4, 0), at(3, 0)], stroke_width=1), stroke([at(0, -0.5), at(0, 3)], stroke_width=1)]
    for i, (name, colour) in enumerate([("relu", TEAL), ("gelu", BLUE), ("silu", ORANGE)]):
        values = ACTIVATIONS[name](x)
        line = [at(a, b) for a, b in zip(x.tolist(), values.tolist(), strict=True)]
        key = [(50, 40 + 22 * i), (74, 40 + 22 * i)]
        parts += [stroke(line, colour, stroke_width=2.2), stroke(key, colour, stroke_width=2.2)]
        parts.append(text(82, 44.5 + 22 * i, name))
    marks = [("−4", -4), ("−3", -3), ("−2", -2), ("−1", -1), ("1", 1), ("2", 2), ("3", 3)]
    parts += [text(at(a, 0)[0], at(0, -0.5)[1] + 12, name, "middle") for name, a in marks]
    parts += [text(at(0, 0)[0] - 6, at(0, b)[1] + 4, str(b), "end") for b in (1, 2, 3)]
    return drawing("ReLU, GELU and SiLU from -4 to 3", 424, 216, *parts)


def add_norm() -> str:
    parts = []
    for left, name, steps in [
        (0, "post (the paper)", ["sublayer", "+", "norm"]),
        (280, "pre", ["norm", "sublayer", "+"]),
    ]:
        parts.append(text(left + 130, 18, name, "middle", font_weight=600))
        parts.append(text(left + 20, 84, "x", "middle", font_style="italic"))
        x, places = left + 32, {}
        for step in steps:
            wide = {"sublayer": 76, "norm": 52, "+": 24}[step]
            parts.append(arrow((x, 80), (x + 18, 80)))
            colour = {"sublayer": BLUE, "norm": ORANGE, "+": TEAL}[step]
            parts.append(label(x + 18 + wide / 2, 80, wide, step, colour))
            places[step] = x + 18 + wide / 2
            x += 18 + wide
        parts.append(arrow((x, 80), (x + 20, 80)))
        parts.append(stroke([(left + 40, 80), (left + 40, 42), (places["+"], 42)], TEAL, stroke_width=2))
        parts.append(stroke([(places["+"], 42), (places["+"], 64)], TEAL, stroke_width=2))
    return drawing("Add & Norm: in the paper the norm follows the sum; pre-norm comes first", 550, 110, *parts)


def heads() -> str:
    parts = [label(50, 100, 70, "x", BLUE)]
    for i in range(3):
        y = 40 + 60 * i
        names = ", ".join(f"{letter}{'₁₂₃'[i]}" for letter in "QKV")
        parts += [arrow((85, 100), (133, y)), label(190, y, 112, names, BLUE)]
        parts += [arrow((246, y), (274, y)), label(320, y, 90, "attention", TEAL), arrow((365, y), (413, 100))]
    parts += [
        label(458, 100, 88, "side by side", ORANGE),
        arrow((502, 100), (522, 100)),
        label(546, 100, 44, "Wᴼ", ORANGE),
    ]
    return drawing("Multi-head attention: three heads project, attend and are joined", 574, 190, *parts)


class Table:
    """A model whose next word depends on the last one alone: that of the page on beam search."""

    words = ("begin", "a", "the", "cat", "dog", "end")
    next = torch.tensor([
        [0.0, 0.6, 0.4, 0.0, 0.0, 0.0],
        [0.0, 0.0, 0.0, 0.4, 0.5, 0.1],
        [0.0, 0.0, 0.0, 0.9, 0.1, 0.0],
        [0.0, 0.0, 0.0, 0.0, 0.0, 1.0],
        [0.0, 0.0, 0.0, 0.0, 0.0, 1.0],
    ])  # fmt: skip

    def start(
        self, source: Tensor, mask: Tensor | None = None, record: Record | None = None, capacity: int = 0
    ) -> State:
        return State((), ())

    def step(self, tokens: Tensor, state: State, record: Record | None = None) -> tuple[Tensor, State]:
        return self.next[tokens].log(), state


def tree() -> str:
    trees: list[Tree] = []
    constraints = Constraints(end=5, max_lengths=[4])
    options = {"length_penalty": 1.0, "coverage_penalty": 0.0}
    source, first = torch.zeros(1, 1).long(), torch.tensor([0])
    search(Table(), source, first, constraints=constraints, beams=2, results=2, trees=trees, **options)
    parts, before = [label(40, 110, 56, "begin", BLUE)], [(68.0, 110.0)]
    for step, branches in enumerate(trees[0]):
        x, after = 170 + 140 * step, []
        possible = sorted(
            (b for b in branches if b.log_probability > -20), key=lambda b: (before[max(b.parent, 0)][1], b.token)
        )
        for i, branch in enumerate(possible):
            y = 110 + 200 / max(len(possible), 3) * (i - (len(possible) - 1) / 2)
            parts.append(arrow(before[max(branch.parent, 0)], (x - 38, y)))
            words = f"{Table.words[branch.token]} {math.exp(branch.log_probability):.2f}"
            parts.append(label(x, y, 76, words, TEAL if branch.kept else "#999"))
            after.append((branches.index(branch), (x + 38.0, y)))
        before = [dict(after).get(i, (0.0, 0.0)) for i in range(len(branches))]
    return drawing("A beam of two: greedy search goes by a; the beam keeps the, and ends better", 500, 220, *parts)


def brevity() -> str:
    left, top, width, height = 50, 14, 380, 150
    ratio = [i / 100 for i in range(5, 151)]
    points = [(left + width * r / 1.5, top + height * (1 - min(1.0, math.exp(1 - 1 / r)))) for r in ratio]
    return drawing(
        "The brevity penalty against the length of the translation over that of the reference",
        450, 206, axes(left, top, width, height), stroke(points, TEAL, stroke_width=2.2),
        *(text(left + width * r / 1.5, 182, str(r), "middle") for r in (0, 0.5, 1, 1.5)),
        *(text(left - 8, top + height * (1 - y) + 4, str(y), "end") for y in (0, 0.5, 1)),
        text(left + width / 2, 200, "c / r, translation over reference", "middle"),
    )  # fmt: skip


def parameters() -> str:
    parts, y = [], 8
    found = count("bert-base")
    layer = next(part for part in found.tree if part.times == 12)
    rows = [(part.name, part.total * layer.times) for part in layer.parts]
    rows += [(part.name, part.total) for part in found.tree if part is not layer]
    for name, total in sorted(rows, key=lambda row: -row[1]):
        wide = 260 * total / 57_000_000
        parts += [text(128, y + 15, name, "end"), box(136, y + 2, max(wide, 1), 18, rx=2, fill=TEAL)]
        parts.append(text(144 + wide, y + 15.5, f"{total:,}"))
        y += 26
    return drawing("The parameters of bert-base by part, its twelve layers together", 520, y + 4, *parts)


DRAWINGS: dict[str, Callable[[], str]] = {
    "sinusoids": sinusoids,
    "masks": masks,
    "schedule": schedule,
    "smoothing": smoothing,
    "scaling": scaling,
    "activations": activations,
    "add_norm": add_norm,
    "heads": heads,
    "tree": tree,
    "brevity": brevity,
    "parameters": parameters,
}

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, draw in DRAWINGS.items():
        (FOLDER / f"{name}.svg").write_text(draw())
