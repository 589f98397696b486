"""Traces of translations that no model made."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from regard.inspection.trace import Side, Trace
from regard.text.tokenizer import END, SPECIALS


def side(text: str, pieces: int = 1) -> Side:
    """Every word in so many pieces, and the end."""
    words = text.split()
    owners = [number for number in range(len(words)) for _ in range(pieces)]
    names = [words[owner] for owner in owners]
    ids = [*range(10, 10 + len(owners)), END]
    return Side(text, ids, [*names, SPECIALS[END]], [*words, SPECIALS[END]], [*owners, len(words)],
                [False] * len(words) + [True])  # fmt: skip


def made(
    source: str, target: str, *layers: Sequence[Sequence[float]], pieces: int = 1, logs: Sequence[float] | None = None
) -> Trace:
    """A trace with one head of cross-attention [target, source] in each layer."""
    written = side(target, pieces)
    return Trace(
        family="transformer",
        source=side(source),
        target=written,
        attention={"cross": torch.tensor(layers).unsqueeze(1)} if layers else {},
        hidden={},
        log_probabilities=torch.tensor(logs if logs is not None else [-0.1] * len(written.ids)),
        alternatives=[],
        score=0.0,
        finished=True,
        tree=[],
    )
