"""Model folders: save a model, load it, or load several as an ensemble.

model.safetensors  config.json  tokenizer.json  card.md  checksums.json
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from regard import folders
from regard.config import CONFIG, Config, load_config, split_folders, to_json
from regard.devices import find_device
from regard.errors import FolderError
from regard.folders import CHECKSUMS, clear_os_errors
from regard.models import build
from regard.text.tokenizer import FILES as TOKENIZER_FILES
from regard.text.tokenizer import Tokenizers

MODEL = "model.safetensors"
VALIDATION = "validation.jsonl"  # the first validation pairs
CARD = "card.md"
CARD_LANGUAGES = re.compile(r" translates from ([\w-]+) to ([\w-]+)[,. ]")
USE = {
    "rnn": "use regard translate",
    "transformer": "use regard translate",
    "gpt": "use regard generate",
    "bert": "use regard fill or regard embed",
}

_EDITABLE = (CONFIG, CARD)  # users may edit these, so they have no checksum
_WEIGHT_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def save_model(
    folder: Path,
    model: nn.Module | Mapping[str, Tensor] | Callable[[Path], None],
    config: Config,
    files: Mapping[str, bytes | str],
    *,
    force: bool,
) -> None:
    """Write a model, or what a function writes to a path, and its other files (tokenizer, card) into a folder.

    While an old model is replaced there may be no model for a moment, but never old weights beside a new config.
    """
    texts = {CONFIG: to_json(config), **files}
    with folders.atomic_files(folder, [*texts, CHECKSUMS, MODEL], force=force) as new:
        if isinstance(model, nn.Module | Mapping):
            write_tensors(new / MODEL, named_tensors(model) if isinstance(model, nn.Module) else model)
        else:
            model(new / MODEL)
        for name, data in texts.items():
            (new / name).write_bytes(data.encode() if isinstance(data, str) else data)
        folders.write_checksums(new, exclude=_EDITABLE)
        for name in (MODEL, *(name for name in TOKENIZER_FILES if name not in texts)):
            if (folder / name).exists():
                folders.delete(folder / name)


def load_model(
    folder: Path, device: torch.device | str = "cpu", config: Config | None = None
) -> tuple[nn.Module, Config]:
    """The model of a folder in eval mode and in the precision of its file, and its config."""
    config = load_config(folder) if config is None else config
    tensors = load_weights(folder)
    model = build(config.model, "meta")
    check_shapes(model, tensors, folder / MODEL)  # before memory is allocated
    dtype = functools.reduce(torch.promote_types, [tensor.dtype for tensor in tensors.values()])
    # The weights are copied, so that they no longer depend on the file and shared modules stay shared.
    model = model.to(dtype).to_empty(device=device)
    copy_weights(model, tensors, folder / MODEL)
    return model.eval(), config


def load_ensemble(
    folder: str | Path,
    device: torch.device | str,
    families: Collection[str],
    limitation: str,
    config: Config | None = None,
) -> tuple[list[nn.Module], Tokenizers, Config]:
    """The models of one folder or of several joined by `+`, their shared tokenizers, and the config of the first.

    `limitation` ends the message for a family that is not in `families`, such as "does not translate". `config` is the
    config of the first folder, if it has been read already.
    """
    paths = split_folders(folder)
    configs = [config or load_config(paths[0]), *map(load_config, paths[1:])]
    tokenizers = []
    for path, config in zip(paths, configs, strict=True):
        if config.model.family not in families:
            raise FolderError(f"{path} holds a {config.model.family}, which {limitation}: {USE[config.model.family]}")
        folders.verify(path, only=TOKENIZER_FILES)
        tokenizers.append(Tokenizers.load(path))
        if tokenizers[-1].fingerprint != tokenizers[0].fingerprint:
            raise FolderError(
                f"{path} has another tokenizer than {paths[0]}: only models with the same tokenizer work together, "
                "such as those that start from one another (regard train --from)"
            )
    place = find_device(device)
    models = [load_model(path, place, config=config)[0] for path, config in zip(paths, configs, strict=True)]
    return models, tokenizers[0], configs[0]


def read_languages(folder: Path) -> tuple[str, str] | None:
    """The languages that a model translates from and to, by its card."""
    card = folder / CARD
    match = CARD_LANGUAGES.search(card.read_text(encoding="utf-8", errors="replace")) if card.is_file() else None
    return (match[1], match[2]) if match else None


def load_weights(folder: Path) -> dict[str, Tensor]:
    """The tensors of a model folder; a checksum mismatch is an error."""
    path = folder / MODEL
    if not path.is_file():
        reason = "its training has not ended" if (folder / "checkpoints").is_dir() else "it is not a model folder"
        raise FolderError(f"{folder} has no {MODEL}: {reason}")
    folders.verify(folder, only=[MODEL])
    try:
        with clear_os_errors(path, "read"):
            return load_file(path)
    except SafetensorError as error:
        raise FolderError(f"{path} is damaged or truncated: {error}") from error


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The parameters that are saved: each once, under the first of its names."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def copy_weights(model: nn.Module, tensors: Mapping[str, Tensor], origin: Path) -> None:
    """Copy tensors into a model with exactly these parameters; errors name `origin`."""
    check_shapes(model, tensors, origin)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[name])


def check_shapes(model: nn.Module, tensors: Mapping[str, Tensor], origin: Path) -> None:
    """Raise a FolderError unless names, shapes and dtypes of the tensors are those of the model."""
    expected = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    wrong = [f"{name} {shape} is missing" for name, shape in expected.items() if name not in tensors]
    for name, tensor in tensors.items():
        shape = tuple(tensor.shape)
        if name not in expected:
            wrong.append(f"{name} {shape} is not a parameter of the model")
        elif shape != expected[name]:
            wrong.append(f"{name} has shape {shape}, expected {expected[name]}")
        elif tensor.dtype not in _WEIGHT_DTYPES:
            wrong.append(f"{name} holds {str(tensor.dtype).removeprefix('torch.')}, and weights are floating-point")
    if wrong:
        more = f" (and {len(wrong) - 3} more)" if len(wrong) > 3 else ""
        raise FolderError(f"{origin} does not fit its config: {'; '.join(wrong[:3])}{more}")


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file, without metadata, whose order changes from process to process."""
    path.touch()
    mode = path.stat().st_mode  # safetensors makes files that only their owner can read
    try:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)
        path.chmod(mode)
    except SafetensorError as error:
        if code := re.search(r"os error (\d+)", str(error)):
            raise OSError(int(code[1]), os.strerror(int(code[1])), str(path)) from error
        raise
