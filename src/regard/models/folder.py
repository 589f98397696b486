"""A model is a folder: save it, load it, alone or with others.

model.safetensors  config.json  tokenizer.json  card.md  checksums.json
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from regard import folders
from regard.config import Config, from_json, to_json
from regard.errors import ConfigError, FolderError
from regard.folders import CHECKSUMS, explained
from regard.models import build
from regard.text.tokenizer import Tokenizers, check_fingerprint

MODEL = "model.safetensors"
CONFIG = "config.json"
USE = {
    "rnn": "use regard translate",
    "transformer": "use regard translate",
    "gpt": "use regard generate",
    "bert": "use regard fill or regard embed",
}

_EDITED = (CONFIG, "card.md")  # people may change these, so no checksum holds them fast
_WEIGHTS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

"""Tensors by name, in groups that become files: model, optimizer."""


# A model's folder.


def save_model(
    folder: Path,
    model: nn.Module | Mapping[str, Tensor],
    config: Config,
    files: Mapping[str, bytes | str],
    *,
    force: bool,
) -> None:
    """Write a model and the files that go with it (tokenizer, card) as a folder, or into the folder of its training.

    Without `force` nothing that is there already is changed. While an old model is replaced there is a moment without
    any, and none in which old weights stand beside a new config.
    """
    assert all(Path(name).name == name and name not in (MODEL, CONFIG, CHECKSUMS) for name in files)
    texts = {CONFIG: to_json(config).encode()} | {
        name: data.encode() if isinstance(data, str) else data for name, data in files.items()
    }
    tensors = parameters(model) if isinstance(model, nn.Module) else model
    if not os.path.lexists(folder):
        with folders.whole_folder(folder, force=False) as new:
            _write_model(new, tensors, texts)
        return
    folders.sweep(folder)
    if not force:
        with explained(folder):
            _refuse_change(folder, texts)
    with folders.hidden_folder(folder, about=folder) as new, explained(folder):
        _write_model(new, tensors, texts)
        folders.settle(new)
        for name in (MODEL, *_replaced(folder)) if force else ():  # a tokenizer of the old model must not stay
            if os.path.lexists(folder / name):
                folders.discard(folder / name)
        for name in (*texts, CHECKSUMS, MODEL):
            os.replace(new / name, folder / name)
        folders.sync(folder)


def load_model(
    folder: Path, device: torch.device | str = "cpu", *, dtype: torch.dtype | None = None
) -> tuple[nn.Module, Config]:
    """The model of a folder, ready to be used (dropout off), in the precision of its file or the one asked for."""
    config = load_config(folder)
    tensors = load_weights(folder)
    model = build(config.model, "meta")
    check_fit(model, tensors, folder / MODEL)
    dtype = dtype or functools.reduce(torch.promote_types, [tensor.dtype for tensor in tensors.values()])
    # The weights are copied: they do not depend on the file any more, and modules that are shared stay shared.
    model = model.to(dtype).to_empty(device=device)
    fill(model, tensors, folder / MODEL)
    return model.eval(), config


def folders_in(name: str | Path) -> list[Path]:
    """The folders of a name: one, or several joined by `+`."""
    path = Path(name)
    return [path] if path.exists() else [Path(part) for part in str(name).split("+") if part] or [path]


def load_together(
    folder: str | Path, device: torch.device | str, families: Collection[str], otherwise: str
) -> tuple[list[nn.Module], Tokenizers, Config]:
    """The models of one folder or of several joined by `+`, their tokenizers, and the config of the first."""
    found: list[tuple[nn.Module, Tokenizers, Config]] = []
    for path in folders_in(folder):
        config = load_config(path)
        if config.model.family not in families:
            raise FolderError(f"{path} holds a {config.model.family}, which {otherwise}: {USE[config.model.family]}")
        sides = Tokenizers.load(path)
        if config.text.fingerprint:
            check_fingerprint(sides.fingerprint, config.text.fingerprint, path)
        if found and sides.fingerprint != found[0][1].fingerprint:
            raise FolderError(
                f"{path} has another tokenizer than {folders_in(folder)[0]}: only models of one tokenizer work "
                "together, such as those that start from one another (regard train --from)"
            )
        found.append((load_model(path, device)[0], sides, config))
    return [model for model, _, _ in found], found[0][1], found[0][2]


def load_config(folder: Path) -> Config:
    """The config of a model folder."""
    path = folder / CONFIG
    if not folder.is_dir():
        raise FolderError(
            f"{folder} is a file, not a model folder" if folder.exists() else f"There is no folder {folder}"
        )
    if not path.is_file():
        raise FolderError(f"{folder} is not a model folder: it has no {CONFIG}")
    try:
        return from_json(path)
    except ConfigError as error:
        message = str(error)
        raise FolderError(message if message.startswith(str(path)) else f"{path}: {message}") from error


def load_weights(folder: Path) -> dict[str, Tensor]:
    """The tensors of a model folder or a checkpoint, as they were written."""
    path = folder / MODEL
    if not path.is_file():
        unfinished = "its training has not ended" if (folder / "checkpoints").is_dir() else "it is not a model folder"
        raise FolderError(f"{folder} has no {MODEL}: {unfinished}")
    folders.verify(folder, only=[MODEL])
    return read_tensors(path)


def parameters(model: nn.Module) -> dict[str, Tensor]:
    """What is saved of a model: each parameter once, under the first of its names."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def fill(model: nn.Module, tensors: Mapping[str, Tensor], origin: Path) -> None:
    """Copy tensors into a model that has exactly these; `origin` is for the messages."""
    check_fit(model, tensors, origin)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[name])


def to_local(tensor: Tensor) -> Tensor:
    """The shard of this process if the tensor is sharded, otherwise the tensor itself."""
    local = getattr(tensor, "to_local", None)
    return tensor if local is None else cast(Tensor, local())


def check_fit(model: nn.Module, tensors: Mapping[str, Tensor], origin: Path) -> None:
    """Refuse tensors that are not exactly those of a model."""
    wanted = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    wrong = [f"{name} {shape} is missing" for name, shape in wanted.items() if name not in tensors]
    for name, tensor in tensors.items():
        shape = tuple(tensor.shape)
        if name not in wanted:
            wrong.append(f"{name} {shape} has no place in the model")
        elif shape != wanted[name]:
            wrong.append(f"{name} has the shape {shape}, and {wanted[name]} is wanted")
        elif tensor.dtype not in _WEIGHTS:
            wrong.append(f"{name} holds {str(tensor.dtype).removeprefix('torch.')}, and weights are floating-point")
    if wrong:
        more = f" (and {len(wrong) - 3} more)" if len(wrong) > 3 else ""
        raise FolderError(f"{origin} does not fit its config: {'; '.join(wrong[:3])}{more}")


def _write_model(new: Path, tensors: Mapping[str, Tensor], texts: Mapping[str, bytes]) -> None:
    write_tensors(new / MODEL, tensors)
    for name, data in texts.items():
        (new / name).write_bytes(data)
    folders.seal(new, but=_EDITED)


def _refuse_change(folder: Path, texts: Mapping[str, bytes]) -> None:
    if not folder.is_dir():
        raise FolderError(f"{folder} is a file, and a folder is wanted: choose another name")
    if (folder / MODEL).exists():
        raise FolderError(f"{folder} already holds a model: choose another folder, or replace it with --force")
    for name, data in texts.items():
        if (folder / name).exists() and (folder / name).read_bytes() != data:
            raise FolderError(f"{folder / name} is already there and differs: replace it with --force")


def _replaced(folder: Path) -> list[str]:
    """What an earlier save wrote into a folder."""
    try:
        return list(folders.sums(folder))
    except FolderError:
        return []


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """No metadata: safetensors writes several keys in an order that changes from process to process."""
    try:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)
        path.chmod(0o666 & ~_umask())  # the library makes files that nobody else may read
    except SafetensorError as error:
        if code := re.search(r"os error (\d+)", str(error)):
            raise OSError(int(code[1]), os.strerror(int(code[1])), str(path)) from error
        raise


@functools.cache
def _umask() -> int:
    """What new files may not be; it can only be read by setting it."""
    found = os.umask(0o022)
    os.umask(found)
    return found


def read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        with explained(path, "read"):
            return load_file(path)
    except SafetensorError as error:
        raise FolderError(f"{path} is damaged or cut short: {error}") from error


# Many processes. What they need takes long to import, so only they do.
