"""Models: the families rnn, transformer, bert and gpt behind one interface."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from regard.config import ModelConfig
from regard.models.bert import BERT
from regard.models.contract import Generator, Record, State, tree_map
from regard.models.gpt import GPT
from regard.models.rnn import RNN
from regard.models.transformer import Transformer

__all__ = [
    "BERT",
    "FAMILIES",
    "GPT",
    "RNN",
    "Generator",
    "Record",
    "State",
    "Transformer",
    "build",
    "tree_map",
]

FAMILIES: dict[str, Any] = {"rnn": RNN, "transformer": Transformer, "bert": BERT, "gpt": GPT}


def build(config: ModelConfig, device: torch.device | str = "cpu") -> nn.Module:
    """Build a new model; on the device "meta" its parameters have shapes but no data."""
    with torch.device(device):
        model: nn.Module = FAMILIES[config.family](config)
    return model
