"""Models: the families rnn, transformer, bert and gpt behind one interface."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from regard.config import ModelConfig
from regard.errors import ConfigError
from regard.models.bert import BERT
from regard.models.contract import Encoder, Generator, Record, State, reorder, tree_map
from regard.models.gpt import GPT
from regard.models.rnn import RNN
from regard.models.transformer import Transformer

__all__ = [
    "BERT",
    "FAMILIES",
    "GPT",
    "RNN",
    "Encoder",
    "Generator",
    "Record",
    "State",
    "Transformer",
    "build",
    "reorder",
    "tree_map",
]

FAMILIES: dict[str, Any] = {"rnn": RNN, "transformer": Transformer, "bert": BERT, "gpt": GPT}


def build(config: ModelConfig, device: torch.device | str = "cpu") -> nn.Module:
    """Build a new model; on the device "meta" its parameters have shapes but no data."""
    if not isinstance(config, ModelConfig):
        raise ConfigError(f"build takes a ModelConfig, such as preset('gpt2').model, not a {type(config).__name__}")
    with torch.device(device):
        model: nn.Module = FAMILIES[config.family](config)
    return model
