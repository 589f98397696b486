"""Regard: train, use, measure and inspect sequence models. The public names; each is imported when it is first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.attention.core import attend as attend
    from regard.attention.multihead import Memory as Memory
    from regard.attention.multihead import MultiHead as MultiHead
    from regard.attention.scores import Additive as Additive
    from regard.attention.scores import Cosine as Cosine
    from regard.attention.scores import General as General
    from regard.config import Config as Config
    from regard.config import ModelConfig as ModelConfig
    from regard.config import preset as preset
    from regard.counting import count as count
    from regard.errors import ConfigError as ConfigError
    from regard.errors import DataError as DataError
    from regard.errors import FolderError as FolderError
    from regard.errors import InputError as InputError
    from regard.errors import RegardError as RegardError
    from regard.errors import RequestError as RequestError
    from regard.errors import RunError as RunError
    from regard.evaluation.compare import compare as compare
    from regard.evaluation.evaluate import evaluate as evaluate
    from regard.evaluation.importing import import_model as import_model
    from regard.inspection.alignment import align as align
    from regard.interop.exporting import export as export
    from regard.models import build as build
    from regard.preflight.check import check as check
    from regard.results import Report as Report
    from regard.results import Table as Table
    from regard.server.app import serve as serve
    from regard.training.distill import distill as distill
    from regard.training.train import Run as Run
    from regard.training.train import train as train
    from regard.translation.explain import explain as explain
    from regard.translation.loading import load as load
    from regard.translation.reader import Reader as Reader
    from regard.translation.translator import Translator as Translator
    from regard.translation.writer import Writer as Writer

__version__ = "0.1.0"

_NAMES = {
    "attention.core": ("attend",),
    "attention.multihead": ("Memory", "MultiHead"),
    "attention.scores": ("Additive", "Cosine", "General"),
    "config": ("Config", "ModelConfig", "preset"),
    "counting": ("count",),
    "errors": ("ConfigError", "DataError", "FolderError", "InputError", "RegardError", "RequestError", "RunError"),
    "evaluation.compare": ("compare",),
    "evaluation.evaluate": ("evaluate",),
    "evaluation.importing": ("import_model",),
    "inspection.alignment": ("align",),
    "interop.exporting": ("export",),
    "models": ("build",),
    "preflight.check": ("check",),
    "results": ("Report", "Table"),
    "server.app": ("serve",),
    "training.distill": ("distill",),
    "training.train": ("Run", "train"),
    "translation.explain": ("explain",),
    "translation.loading": ("load",),
    "translation.reader": ("Reader",),
    "translation.translator": ("Translator",),
    "translation.writer": ("Writer",),
}
"""The public names of every module."""
_MODULES = {name: module for module, names in _NAMES.items() for name in names}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    return getattr(importlib.import_module(f"regard.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
