"""Regard: the attention lineage as one toolkit. The public names and nothing else; torch comes when one needs it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.attention import Additive, Cosine, General, Memory, MultiHead, attend
    from regard.config import Config, ModelConfig, preset
    from regard.counting import count
    from regard.errors import ConfigError, DataError, FolderError, InputError, RegardError, RequestError, RunError
    from regard.evaluation.compare import compare
    from regard.evaluation.evaluate import evaluate
    from regard.inspection.word_alignment import align
    from regard.models import build
    from regard.preflight.check import check
    from regard.training.train import Run, train
    from regard.translation.explain import explain
    from regard.translation.loading import load

_HOMES = {
    "regard.counting": ["count"],
    "regard.attention": ["Additive", "Cosine", "General", "Memory", "MultiHead", "attend"],
    "regard.config": ["Config", "ModelConfig", "preset"],
    "regard.errors": [
        "ConfigError", "DataError", "FolderError", "InputError", "RegardError", "RequestError", "RunError",
    ],
    "regard.preflight.check": ["check"],
    "regard.translation.explain": ["explain"],
    "regard.training.train": ["Run", "train"],
    "regard.translation.loading": ["load"],
    "regard.models": ["build"],
    "regard.evaluation.evaluate": ["evaluate"],
    "regard.evaluation.compare": ["compare"],
    "regard.inspection.word_alignment": ["align"],
}  # fmt: skip
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__version__ = "0.1.0"
__all__ = [
    "Additive",
    "Config",
    "ConfigError",
    "Cosine",
    "DataError",
    "FolderError",
    "General",
    "InputError",
    "Memory",
    "ModelConfig",
    "MultiHead",
    "RegardError",
    "RequestError",
    "Run",
    "RunError",
    "align",
    "attend",
    "build",
    "check",
    "compare",
    "count",
    "evaluate",
    "explain",
    "load",
    "preset",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
