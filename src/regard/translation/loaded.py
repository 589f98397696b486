"""Loaded models: what a Translator, a Writer and a Reader share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from regard.config import Config


class LoadedModels:
    """A model or an ensemble with its config, and the folder it was loaded from."""

    def __init__(self, models: nn.Module | Sequence[nn.Module], config: Config, folder: str | Path = "") -> None:
        self.models = [models] if isinstance(models, nn.Module) else list(models)
        self.config, self.folder = config, str(folder)

    @property
    def device(self) -> torch.device:
        return next(self.models[0].parameters()).device

    def __repr__(self) -> str:
        parameters = sum(parameter.numel() for model in self.models for parameter in model.parameters())
        parts = [self.config.model.family, f"{parameters:,} parameters", self.folder, str(self.device)]
        return f"{type(self).__name__}({', '.join(filter(None, parts))})"
