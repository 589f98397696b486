"""Loading: what a model folder can do, by its family."""

from __future__ import annotations

from pathlib import Path

import torch

from regard.models.folder import folders_in, load_config
from regard.translation.reader import Reader
from regard.translation.translator import Translator
from regard.translation.writer import Writer

FAMILIES: dict[str, type[Translator | Writer | Reader]] = {
    "rnn": Translator,
    "transformer": Translator,
    "gpt": Writer,
    "bert": Reader,
}


def load(folder: str | Path, device: torch.device | str = "cpu") -> Translator | Writer | Reader:
    """A Translator, a Writer (gpt) or a Reader (bert); several folders joined by `+` work as one."""
    return FAMILIES[load_config(folders_in(folder)[0]).model.family].load(folder, device)
