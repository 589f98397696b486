"""Recurrent training on a GPU: an update with attention as one kernel a step, against torch's kernels for it."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from benchmarks.gpu_training import timed_run
from benchmarks.measure import report
from benchmarks.training import configured, synthetic
from regard.attention import core
from regard.config import find_config

RECIPES = {"additive": "builtin-rnn", "dot": "builtin-rnn-dot", "general": "builtin-rnn-general",
           "cosine": "builtin-rnn-cosine"}  # fmt: skip


def main(
    scores: str = "additive,dot,general,cosine", device: str = "cuda", pairs: int = 20_000, updates: int = 100,
    warm: int = 150, **train: Any,
) -> bool:  # fmt: skip
    """Milliseconds of an update as the lineage race makes them; other options are fields of the section train."""
    if device == "cuda" and not torch.cuda.is_available():
        print("gpu-recurrent needs a GPU: left out", file=sys.stderr)
        return True
    good = []
    for score in scores.split(","):
        model = dataclasses.replace(find_config(RECIPES[score]).model, vocabulary=4000)
        settings = {"batch_tokens": 3072, "batch_shapes": 24, "updates": 100_000, **train}
        config = configured(model, **settings)
        data = synthetic(config, pairs)
        ours = timed_run(config, data, device, warm=warm, updates=updates)
        with torchs_kernels():
            theirs = timed_run(config, data, device, warm=warm, updates=updates)
        ratio = theirs["milliseconds"] / ours["milliseconds"]
        name = f"an update with {score} attention in one kernel against torch's"
        wanted = 1.0 if device == "cuda" else None
        good.append(report(name, ratio, at_least=wanted, device=device, train=settings, ours=ours, theirs=theirs))
    return all(good)


@contextmanager
def torchs_kernels() -> Iterator[None]:
    ours, core.single = core.single, None
    try:
        yield
    finally:
        core.single = ours
