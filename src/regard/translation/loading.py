"""Loading: a model folder becomes a Translator, a Writer or a Reader."""

from __future__ import annotations

from pathlib import Path

import torch

from regard.config import load_config, split_folders
from regard.translation.reader import Reader
from regard.translation.translator import Translator
from regard.translation.writer import Writer

FAMILIES: dict[str, type[Translator | Writer | Reader]] = {
    "rnn": Translator,
    "transformer": Translator,
    "gpt": Writer,
    "bert": Reader,
}


def load(folder: str | Path, device: torch.device | str = "auto") -> Translator | Writer | Reader:
    """Load a Translator, a Writer (gpt) or a Reader (bert); folders joined by `+` are an ensemble."""
    config = load_config(split_folders(folder)[0])
    return FAMILIES[config.model.family].load(folder, device, config=config)
