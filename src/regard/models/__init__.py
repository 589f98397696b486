"""Models: the families rnn, transformer, bert and gpt behind one interface."""

from __future__ import annotations

import torch
from torch import nn

from regard.config import ModelConfig
from regard.models.bert import BERT
from regard.models.contract import Generator, Record, State, tree_map
from regard.models.gpt import GPT
from regard.models.rnn import RNN
from regard.models.transformer import Transformer

__all__ = ["BERT", "GPT", "RNN", "Generator", "Record", "State", "Transformer", "build", "tree_map"]


def build(config: ModelConfig, device: torch.device | str = "cpu") -> nn.Module:
    """Build a new model; on the device "meta" its parameters have shapes but no data."""
    families: dict[str, type[nn.Module]] = {"rnn": RNN, "transformer": Transformer, "bert": BERT, "gpt": GPT}
    with torch.device(device):
        return families[config.family](config)
