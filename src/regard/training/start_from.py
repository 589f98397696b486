"""Fine-tuning: start from the config, tokenizers and weights of finished models; freeze parameters or add LoRA."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard import folders
from regard.config import Config, TextConfig
from regard.errors import ConfigError, FolderError, did_you_mean
from regard.models import Transformer, build
from regard.models.folder import MODEL, load_config, load_weights
from regard.models.lora import NewParameters, add_lora
from regard.models.warm_start import check_warm_config, warm_config, warm_start
from regard.text.tokenizer import Tokenizer, Tokenizers

TOKEN_ROWS = {
    "source.token.weight": 0, "source.weight": 0, "head.bias": 0,
    "target.token.weight": 1, "target.weight": 1, "output.weight": 1, "output_bias": 1,
}  # fmt: skip
"""Tensors with one row per token; 0: of the source vocabulary, 1: of the target vocabulary."""
TOKENIZER_FIELDS = ("tokenizer", "vocabulary", "shared", "lowercase")  # of the text section
MAX_NAMES_SHOWN = 4


def base_config(origins: Sequence[Path]) -> Config:
    """The defaults of a run that starts from these folders: their model, text and decode sections."""
    if not origins:
        return Config()
    configs = [load_config(folder) for folder in origins]
    if len(configs) > 2:
        raise ConfigError(f"--from takes one folder, or two bert folders, and {len(configs)} were given")
    text = dataclasses.replace(configs[0].text, fingerprint="")
    if len(configs) == 1:
        return Config(model=configs[0].model, text=text, decode=configs[0].decode)
    model = warm_config(configs[0].model, configs[1].model)
    return Config(
        model=model, text=dataclasses.replace(text, shared=_load_tokenizers(origins).shared, continuous=False)
    )


def check_start(config: Config, origins: Sequence[Path], out: Path) -> None:
    """Raise a ConfigError if a run with this config cannot start from these folders."""
    if config.train.lora_rank and not origins:
        raise ConfigError("train.lora_rank adds LoRA to a finished model: give it with --from FOLDER")
    if config.train.lora_rank and config.train.sharded:
        raise ConfigError("train.lora_rank does not work with train.sharded: set train.sharded=false")
    for folder in origins:
        if folder.resolve() == out.resolve():
            raise ConfigError(f"--from and --out are the same folder ({out}): choose another --out")
        if not (folder / MODEL).is_file():
            load_weights(folder)  # raises an error that says why it is missing
    family, wanted = config.model.family, "bert" if len(origins) == 2 else config.model.family
    others = {load_config(folder).model.family for folder in origins} - {wanted}
    if others:
        hint = "; two bert folders make a transformer: --from BERT --from BERT" if others == {"bert"} else ""
        raise ConfigError(f"model.family = {family} cannot start from {'/'.join(sorted(others))} ({origins[0]}){hint}")
    if len(origins) == 2:
        if family != "transformer":
            raise ConfigError(f"two bert folders make a transformer, and model.family is {family}")
        base = base_config(origins)
        check_warm_config(config.model, base.model)
        if _has_other_tokenizer(config.text, base.text):
            raise ConfigError(
                f"a run from two bert folders uses their tokenizers: do not set text.{', text.'.join(TOKENIZER_FIELDS)}"
            )


def origin_checksums(origins: Iterable[Path]) -> str:
    """The checksums of the weights and tokenizers of these folders."""
    return " ".join(
        "+".join(
            checksum
            for name, checksum in sorted(folders.read_checksums(folder).items())
            if name == MODEL or "tokenizer" in name
        )
        for folder in origins
    )


# Tokenizers


def reuse_tokenizers(origins: Sequence[Path], text: TextConfig, say: Callable[[str], None]) -> Tokenizers | None:
    """The tokenizers of the folders with the tags of this run; None without folders or if the config sets others."""
    if not origins:
        return None
    if len(origins) == 1 and _has_other_tokenizer(text, load_config(origins[0]).text):
        say(f"the tokenizer of {origins[0]} is not used: the config asks for another one")
        return None
    tokenizers = _load_tokenizers(origins)
    source = tokenizers.source.with_tags(text.tags.split())
    tags = [tag for tag in source.tags if tag not in tokenizers.source.tags]
    subject = f"tokenizer of {origins[0]} is" if tokenizers.shared else f"tokenizers of {_join(origins)} are"
    say(f"the {subject} used" + (f", with the new tag{'s' * (len(tags) > 1)} {' '.join(tags)}" if tags else ""))
    return Tokenizers(source, source if tokenizers.shared else tokenizers.target)


def _has_other_tokenizer(text: TextConfig, base: TextConfig) -> bool:
    return any(getattr(text, name) != getattr(base, name) for name in TOKENIZER_FIELDS)


def _load_tokenizers(origins: Sequence[Path]) -> Tokenizers:
    """The tokenizers of one folder, or the source tokenizers of two."""
    first, *others = (Tokenizers.load(folder) for folder in origins)
    if not others:
        return first
    same = first.source.fingerprint == others[0].source.fingerprint
    return Tokenizers(first.source, first.source if same else others[0].source)


def _join(origins: Sequence[Path]) -> str:
    return " and ".join(map(str, origins))


# Weights


class LoadedStart(NamedTuple):
    """A line about the copied weights, and the parameters that are new (randomly initialised)."""

    report: str
    new: NewParameters


def load_start(model: nn.Module, origins: Sequence[Path], tokenizers: Tokenizers) -> LoadedStart:
    """Copy the weights of the folders whose names and shapes fit into a new model."""
    if not origins:
        return LoadedStart("", {})
    if len(origins) == 2:
        return _start_from_berts(model, origins, tokenizers)
    return _start_from_one(model, origins[0], tokenizers)


def _start_from_berts(model: nn.Module, origins: Sequence[Path], tokenizers: Tokenizers) -> LoadedStart:
    assert isinstance(model, Transformer)
    if model.config.tie_embeddings == "all" and not tokenizers.shared:
        raise ConfigError(
            "model.tie_embeddings = all needs one tokenizer, and the two berts have two: set "
            'model.tie_embeddings="target"'
        )
    old = Tokenizers(*(Tokenizers.load(folder).source for folder in origins))
    weights = [
        _map_tokens(load_weights(folder), Tokenizers(before, before), Tokenizers(now, now))
        for folder, before, now in zip(origins, old, tokenizers, strict=True)
    ]
    report = warm_start(model, *weights)
    new = _new_rows(report.copied, old, tokenizers) | dict.fromkeys(report.new)
    return LoadedStart(f"from {_join(origins)}: {report}; new: {_shorten(report.new)}", new)


def _start_from_one(model: nn.Module, folder: Path, tokenizers: Tokenizers) -> LoadedStart:
    old, stored, aliases = Tokenizers.load(folder), load_weights(folder), _stored_names(folder)
    weights = _map_tokens({name: stored[alias] for name, alias in aliases.items()}, old, tokenizers)
    parameters = dict(model.named_parameters())
    copied = [name for name, tensor in parameters.items() if name in weights and weights[name].shape == tensor.shape]
    if not copied:
        raise FolderError(f"no weights of {folder} fit this model: use the model section of that folder")
    with torch.no_grad():
        for name in copied:
            parameters[name].copy_(weights[name])
    new = [name for name in parameters if name not in copied]
    unused = sorted(set(stored) - {aliases[name] for name in copied})
    report = [f"from {folder}: copied {len(copied):,} of {len(parameters):,} tensors"]
    report += _describe_tokens(old, tokenizers)
    report += [f"new: {_shorten(new)}"] if new else []
    report += [f"not used: {_shorten(unused)}"] if unused else []
    return LoadedStart("; ".join(report), _new_rows(copied, old, tokenizers) | dict.fromkeys(new))


def _stored_names(folder: Path) -> dict[str, str]:
    """The names of all parameters of a folder's model, with the name each is stored under (tied ones share it)."""
    config = load_config(folder).model
    model = build(config, "meta")
    stored = {id(parameter): name for name, parameter in model.named_parameters()}
    names = {name: stored[id(parameter)] for name, parameter in model.named_parameters(remove_duplicate=False)}
    embeddings = next((names[name] for name in ("target.token.weight", "target.weight") if name in names), None)
    if embeddings is not None and config.tie_embeddings != "none":
        names["output.weight"] = embeddings
    return names


def _map_tokens(weights: Mapping[str, Tensor], old: Tokenizers, new: Tokenizers) -> dict[str, Tensor]:
    """Map embeddings and output rows to a new vocabulary: a token with the same text keeps its row, others are random.

    Random rows have the mean and standard deviation of the old rows, so that their logits have the usual size.
    """
    mapped = dict(weights)
    for name, side in TOKEN_ROWS.items():
        rows = _old_rows(old[side], new[side])
        if name in weights and (len(weights[name]) != len(rows) or not rows.equal(torch.arange(len(rows)))):
            table = weights[name].float()
            deviation = table.std(0, correction=0) if table.dim() > 1 else 0.0
            mapped_table = table.mean(0) + deviation * torch.randn(len(rows), *table.shape[1:])
            mapped_table[rows >= 0] = table[rows[rows >= 0]]
            mapped[name] = mapped_table.to(weights[name].dtype)
    return mapped


def _old_rows(old: Tokenizer, new: Tokenizer) -> Tensor:
    """The old id of each new token with the same text; -1 if there is none."""
    ids = {token: number for number, token in enumerate(old.tokens(range(old.size)))}
    return torch.tensor([ids.get(token, -1) for token in new.tokens(range(new.size))])


def _new_rows(copied: Iterable[str], old: Tokenizers, new: Tokenizers) -> dict[str, Tensor | None]:
    """Masks of the rows of new tokens, for the copied tensors with one row per token."""
    masks = [_old_rows(*pair) < 0 for pair in zip(old, new, strict=True)]
    return {name: masks[TOKEN_ROWS[name]] for name in copied if name in TOKEN_ROWS and masks[TOKEN_ROWS[name]].any()}


def _describe_tokens(old: Tokenizers, new: Tokenizers) -> list[str]:
    lines: list[str] = []
    one_side = old.shared and new.shared
    for name, before, now in zip(("source ", "target "), old, new, strict=True):
        if before.fingerprint != now.fingerprint and not (lines and one_side):
            kept = int((_old_rows(before, now) >= 0).sum())
            added = now.size - kept
            side, verb = "" if one_side else name, "is" if added == 1 else "are"
            lines.append(f"of {now.size:,} {side}tokens {kept:,} keep their embedding, {added:,} {verb} new")
    return lines


def _shorten(names: Sequence[str]) -> str:
    """Format a few names; names that differ only in the layer number are shown once."""
    distinct = list(dict.fromkeys(re.sub(r"\.\d+\.", ".*.", name) for name in names))
    more = f" and {len(distinct) - MAX_NAMES_SHOWN:,} more" if len(distinct) > MAX_NAMES_SHOWN else ""
    return ", ".join(distinct[:MAX_NAMES_SHOWN]) + more


# Trained parameters


def set_trained(model: nn.Module, config: Config, new: NewParameters) -> str:
    """Freeze parameters or add LoRA, as configured; return a line about it, or "" if all parameters are trained."""
    settings = config.train
    if settings.lora_rank:
        trained = add_lora(model, settings.lora_rank, new)
        method = f"LoRA of rank {settings.lora_rank}" + (", and new parameters" if new else "")
    elif settings.freeze:
        _freeze(model, settings.freeze.split())
        trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
        method = f"frozen: {settings.freeze}"
    else:
        return ""
    total = sum(parameter.numel() for parameter in model.parameters())
    return f"{trained:,} of {total:,} parameters are trained ({method})"


def _freeze(model: nn.Module, patterns: Iterable[str]) -> None:
    """Freeze the parameters whose name, or the name of a module they are in, matches a pattern."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for pattern in patterns:
        matches = [name for name in parameters if fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")]
        if not matches:
            modules = {name.rsplit(".", depth)[0] for name in parameters for depth in range(name.count(".") + 1)}
            suggestion = did_you_mean(pattern, modules)
            hint = suggestion if suggestion.startswith(" Did") else ""
            examples = ", ".join(list(parameters)[:: max(1, len(parameters) // 3)][:3])
            raise ConfigError(f"train.freeze: no parameter is called {pattern}.{hint} Names are such as {examples}")
        for name in matches:
            parameters[name].requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ConfigError("train.freeze leaves nothing to train")
