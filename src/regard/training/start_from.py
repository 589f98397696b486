"""Fine-tuning: start from the config, tokenizers and weights of finished models; freeze parameters or add LoRA."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from operator import attrgetter
from pathlib import Path

import torch
from torch import Tensor, nn

from regard import folders
from regard.config import Config, TextConfig, load_config
from regard.errors import ConfigError, FolderError, did_you_mean
from regard.models import build
from regard.models.folder import MODEL, load_model, load_weights
from regard.models.lora import add_lora
from regard.models.warm_start import FIXED, SAME, warm_config, warm_weights
from regard.text.tokenizer import Tokenizers
from regard.training.events import Say

# the tensors with one row for each token of the source vocabulary, and of the target vocabulary
SOURCE_ROWS = ("source.token.weight", "source.weight", "head.bias")
TARGET_ROWS = ("target.token.weight", "target.weight", "output.weight", "output_bias")
TOKENIZER_FIELDS = ("tokenizer", "vocabulary", "shared", "lowercase")  # of the text section
MAX_NAMES_SHOWN = 4


def base_config(origins: Sequence[Path]) -> Config:
    """The defaults of a run that starts from these folders: their model, text and decode sections."""
    if not origins:
        return Config()
    configs = [load_config(folder) for folder in origins]
    if len(configs) > 2:
        raise ConfigError(f"--from takes one folder, or two bert folders, and {len(configs)} were given")
    text = configs[0].text
    if len(configs) == 1:
        return Config(model=configs[0].model, text=text, decode=configs[0].decode)
    model = warm_config(configs[0].model, configs[1].model)
    return Config(model=model, text=replace(text, shared=_load_tokenizers(origins).shared, continuous=False))


def check_start(config: Config, origins: Sequence[Path], out: Path) -> None:
    """Raise a ConfigError if a run with this config cannot start from these folders."""
    family = config.model.family
    if config.train.lora_rank and not origins:
        raise ConfigError("train.lora_rank adds LoRA to a finished model: give it with --from FOLDER")
    if config.train.lora_rank and config.train.sharded:
        raise ConfigError("train.lora_rank does not work with train.sharded: set train.sharded=false")
    for folder in origins:
        if os.path.realpath(folder) == os.path.realpath(out):
            raise ConfigError(f"--from and --out are the same folder ({out}): choose another --out")
        if not (folder / MODEL).is_file():
            load_weights(folder)  # raises an error that says why it is missing
    if len(origins) == 1 and (other := load_config(origins[0]).model.family) != family:
        hint = "; two bert folders make a transformer: --from BERT --from BERT" if other == "bert" else ""
        raise ConfigError(f"model.family = {family} cannot start from {other} ({origins[0]}){hint}")
    if len(origins) == 2:
        base = base_config(origins)
        names = [f"model.{name}" for name in ("family", *SAME.split(), *FIXED)]
        names += [f"text.{name}" for name in TOKENIZER_FIELDS]
        if changed := [name for name in names if attrgetter(name)(config) != attrgetter(name)(base)]:
            raise ConfigError(
                "two bert folders make a transformer of their shape, with their tokenizers: do not set "
                + ", ".join(changed)
            )


def origin_checksums(origins: Iterable[Path]) -> str:
    """The checksums of the weights and tokenizers of these folders."""
    tables = [sorted(folders.read_checksums(folder).items()) for folder in origins]
    return " ".join(
        "+".join(checksum for name, checksum in table if name == MODEL or "tokenizer" in name) for table in tables
    )


# Tokenizers


def reuse_tokenizers(origins: Sequence[Path], text: TextConfig, say: Say) -> Tokenizers | None:
    """The tokenizers of the folders with the tags of this run; None without folders or if the config sets others."""
    if not origins:
        return None
    names = " and ".join(map(str, origins))
    base = load_config(origins[0]).text
    if len(origins) == 1 and any(getattr(text, name) != getattr(base, name) for name in TOKENIZER_FIELDS):
        say(f"the tokenizer of {names} is not used: the config asks for another one")
        return None
    tokenizers = _load_tokenizers(origins)
    source = tokenizers.source.with_tags(text.tags.split())
    tags = [tag for tag in source.tags if tag not in tokenizers.source.tags]
    say(f"the tokenizer of {names} is used" + (f", with new tags: {' '.join(tags)}" if tags else ""))
    return Tokenizers(source, source if tokenizers.shared else tokenizers.target)


def _load_tokenizers(origins: Sequence[Path]) -> Tokenizers:
    """The tokenizers of one folder, or the source tokenizers of two."""
    first, *others = (Tokenizers.load(folder) for folder in origins)
    if not others:
        return first
    same = first.source.fingerprint == others[0].source.fingerprint
    return Tokenizers(first.source, first.source if same else others[0].source)


# Weights


def make_model(
    config: Config, *, origins: Sequence[Path], tokenizers: Tokenizers, device: str = "cpu", say: Say | None = None
) -> nn.Module:
    """The model of update 0; `say` is called with what it starts from and what is trained."""
    torch.manual_seed(config.train.seed)
    model = build(config.model, device)
    report, new = load_start(model, origins, tokenizers)
    for line in (report, set_trained(model, config, new)):
        if say and line:
            say(line)
    return model


def load_start(model: nn.Module, origins: Sequence[Path], tokenizers: Tokenizers) -> tuple[str, set[str]]:
    """Copy the weights of the folders whose names and shapes fit into a new model.

    Returns a line about it, and the names of the parameters that are randomly initialised, or some of whose rows are.
    """
    if not origins:
        return "", set()
    stored, sources = _load_tensors(origins)
    old = _load_tokenizers(origins)
    old_rows = []  # for each side, the old id of each new token with the same text; -1 if there is none
    for before, now in zip(old, tokenizers, strict=True):
        ids = {token: number for number, token in enumerate(before.tokens(range(before.size)))}
        old_rows.append(torch.tensor([ids.get(token, -1) for token in now.tokens(range(now.size))]))
    used: set[int] = set()
    missing: list[str] = []
    with_new_rows: set[str] = set()
    parameters = dict(model.named_parameters())
    for name, parameter in parameters.items():
        source = tensor = sources.get(name)
        rows = old_rows[0] if name in SOURCE_ROWS else old_rows[1] if name in TARGET_ROWS else None
        if tensor is not None and rows is not None:
            tensor = _map_rows(tensor, rows)
        if tensor is None or tensor.shape != parameter.shape:
            missing.append(name)
            continue
        with torch.no_grad():
            parameter.copy_(tensor)
        used.add(id(source))
        if rows is not None and (rows < 0).any():
            with_new_rows.add(name)
    folder_names = " and ".join(map(str, origins))
    if len(missing) == len(parameters):
        raise FolderError(f"no weights of {folder_names} fit this model: use the model section of that folder")
    report = [f"from {folder_names}: copied {len(parameters) - len(missing):,} of {len(parameters):,} tensors"]
    sides = ("",) if old.shared and tokenizers.shared else ("source ", "target ")
    for side, rows in zip(sides, old_rows, strict=False):
        if new := int((rows < 0).sum()):
            report.append(f"new {side}tokens: {new:,} of {len(rows):,} (the others keep their embedding)")
    unused = sorted(name for name, tensor in stored.items() if id(tensor) not in used)
    for title, names in (("new", missing), ("not used", unused)):
        if names:
            distinct = list(dict.fromkeys(re.sub(r"\.\d+\.", ".*.", name) for name in names))  # layers are alike
            more = f" and {len(distinct) - MAX_NAMES_SHOWN:,} more" if len(distinct) > MAX_NAMES_SHOWN else ""
            report.append(f"{title}: {', '.join(distinct[:MAX_NAMES_SHOWN])}{more}")
    return "; ".join(report), with_new_rows.union(missing)


def _load_tensors(origins: Sequence[Path]) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
    """The tensors of the folders by their own names, and by the names of the parameters that start from them."""
    if len(origins) == 2:
        stored, names = warm_weights(*map(load_weights, origins))
        return stored, {name: stored[origin] for name, origin in names.items()}
    model, config = load_model(origins[0])
    parameters = dict(model.named_parameters(remove_duplicate=False))
    embeddings = parameters.get("target.token.weight", parameters.get("target.weight"))
    if embeddings is not None and config.model.tie_embeddings != "none":
        parameters["output.weight"] = embeddings
    return dict(model.named_parameters()), parameters


def _map_rows(table: Tensor, rows: Tensor) -> Tensor:
    """The rows of the new tokens; tokens without an old row (-1) get a random one.

    Random rows have the mean and standard deviation of the old rows, so that their logits have the usual size.
    """
    if len(table) == len(rows) and rows.equal(torch.arange(len(rows))):
        return table
    old = table.float()
    deviation = old.std(0, correction=0) if old.dim() > 1 else 0.0
    mapped = old.mean(0) + deviation * torch.randn(len(rows), *old.shape[1:])
    mapped[rows >= 0] = old[rows[rows >= 0]]
    return mapped.to(table.dtype)


# Trained parameters


def set_trained(model: nn.Module, config: Config, new: Collection[str]) -> str:
    """Freeze parameters or add LoRA, as configured; return a line about it, or "" if all parameters are trained.

    A pattern of train.freeze matches the name of a parameter, or of a module that it is in.
    """
    settings, named = config.train, dict(model.named_parameters(remove_duplicate=False))
    if settings.lora_rank:
        add_lora(model, settings.lora_rank, new)
        method = f"LoRA of rank {settings.lora_rank}" + (", and new parameters" if new else "")
    elif settings.freeze:
        for pattern in settings.freeze.split():
            matches = [name for name in named if fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")]
            if not matches:
                modules = {name.partition(".")[0] for name in named}
                raise ConfigError(f"train.freeze: no parameter is called {pattern}.{did_you_mean(pattern, modules)}")
            for name in matches:
                named[name].requires_grad_(False)
        method = f"frozen: {settings.freeze}"
    else:
        return ""
    parameters = list(model.parameters())
    trained = sum(parameter.numel() for parameter in parameters if parameter.requires_grad)
    if not trained:
        raise ConfigError("train.freeze leaves nothing to train")
    return f"{trained:,} of {sum(p.numel() for p in parameters):,} parameters are trained ({method})"
