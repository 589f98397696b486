"""The start: what a run takes over from finished folders, what of it is trained, and a report of both."""

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
from regard.models.lora import New, add_lora
from regard.models.warm_start import check_asked, warm_config, warm_start
from regard.text.tokenizer import Tokenizer, Tokenizers

ROWS = {
    "source.token.weight": 0, "source.weight": 0, "head.bias": 0,
    "target.token.weight": 1, "target.weight": 1, "output.weight": 1, "output_bias": 1,
}  # fmt: skip
"""Tensors with one row a token, and the side whose tokens they are."""
TOKENIZER = ("tokenizer", "vocabulary", "shared", "lowercase")  # fields of text that ask for another tokenizer
SHOWN = 4  # names in a report before it counts the rest


def base_config(origins: Sequence[Path]) -> Config:
    """The config that a run from these folders has where nothing else is said: their shape and text, our training."""
    if not origins:
        return Config()
    found = [load_config(folder) for folder in origins]
    if len(found) > 2:
        raise ConfigError(f"--from takes one folder, or two of berts, and {len(found)} were given")
    text = dataclasses.replace(found[0].text, fingerprint="")
    if len(found) == 1:
        return Config(model=found[0].model, text=text, decode=found[0].decode)
    shape = warm_config(found[0].model, found[1].model)
    return Config(model=shape, text=dataclasses.replace(text, shared=_join(origins).shared, continuous=False))


def check(config: Config, origins: Sequence[Path], out: Path) -> None:
    """Refuse what cannot begin."""
    if config.train.lora_rank and not origins:
        raise ConfigError("train.lora_rank are trained beside the weights of a model: say which, with --from FOLDER")
    if config.train.lora_rank and config.train.sharded:
        raise ConfigError("train.lora_rank are too small to divide among processes: set train.sharded=false")
    for folder in origins:
        if folder.resolve() == out.resolve():
            raise ConfigError(f"--from and --out are the same folder ({out}): give the new model one of its own")
        if not (folder / MODEL).is_file():
            load_weights(folder)  # says why not
    theirs = {load_config(folder).model.family for folder in origins}
    wanted = "bert" if len(origins) == 2 else config.model.family
    if theirs - {wanted}:
        raise ConfigError(
            f"{_a(config.model.family)} cannot start from {_a('/'.join(sorted(theirs - {wanted})))} ({origins[0]})"
            + ("; two bert folders make a transformer: --from BERT --from BERT" if theirs == {"bert"} else "")
        )
    if len(origins) == 2 and config.model.family != "transformer":
        raise ConfigError(f"two bert folders make a transformer, and model.family is {config.model.family}")
    if len(origins) == 2:
        base = base_config(origins)
        check_asked(config.model, base.model)
        if _asks_for_another(config.text, base.text):
            raise ConfigError(
                "a run from two bert folders keeps their tokenizers: leave text.tokenizer and its like alone"
            )


def _a(family: str) -> str:
    return f"an {family}" if family.startswith("rnn") else f"a {family}"


def origin_of(origins: Iterable[Path]) -> str:
    """What tells the weights and tokenizers of these folders from others."""
    return " ".join(
        "+".join(
            sum_
            for name, sum_ in sorted(folders.read_checksums(folder).items())
            if name == MODEL or "tokenizer" in name
        )
        for folder in origins
    )


# Tokenizers


def take_tokenizers(origins: Sequence[Path], text: TextConfig, say: Callable[[str], None]) -> Tokenizers | None:
    """The folders' tokenizers, with the tags a run needs more; None where the text section asks for another one."""
    if not origins:
        return None
    if len(origins) == 1 and _asks_for_another(text, load_config(origins[0]).text):
        say(f"the tokenizer of {origins[0]} is not taken over: text asks for another one")
        return None
    theirs = _join(origins)
    source = theirs.source.with_tags(text.tags.split())
    target = source if theirs.shared else theirs.target
    new = [tag for tag in source.tags if tag not in theirs.source.tags]
    said = f"tokenizer of {origins[0]} is" if theirs.shared else f"tokenizers of {' and '.join(map(str, origins))} are"
    say(f"the {said} taken over" + (f", with {' '.join(new)} as new" if new else ""))
    return Tokenizers(source, target)


def _asks_for_another(text: TextConfig, theirs: TextConfig) -> bool:
    return any(getattr(text, name) != getattr(theirs, name) for name in TOKENIZER)


def _join(origins: Sequence[Path]) -> Tokenizers:
    """The tokenizers of one folder, or of the source sides of two."""
    first, *others = (Tokenizers.load(folder) for folder in origins)
    if not others:
        return first
    same = first.source.fingerprint == others[0].source.fingerprint
    return Tokenizers(first.source, first.source if same else others[0].source)


# Weights


class Started(NamedTuple):
    """What a model took over: in words, and what of it began at random."""

    said: str
    new: New


def start_from(model: nn.Module, origins: Sequence[Path], sides: Tokenizers) -> Started:
    """Give a new model the weights of folders, as far as they fit, and say what moved."""
    return _from_berts(model, origins, sides) if len(origins) == 2 else _from_one(model, origins[0], sides)


def _from_berts(model: nn.Module, origins: Sequence[Path], sides: Tokenizers) -> Started:
    assert isinstance(model, Transformer)
    if model.config.tie_embeddings == "all" and not sides.shared:
        raise ConfigError(
            "model.tie_embeddings = all needs one tokenizer, and the two berts have two: set "
            'model.tie_embeddings="target"'
        )
    theirs = Tokenizers(*(Tokenizers.load(folder).source for folder in origins))
    moved = [
        _recut(load_weights(folder), Tokenizers(before, before), Tokenizers(now, now))
        for folder, before, now in zip(origins, theirs, sides, strict=True)
    ]
    report = warm_start(model, *moved)
    new = _new_rows(report.copied, theirs, sides) | dict.fromkeys(report.new)
    return Started(f"from {origins[0]} and {origins[1]}: {report}; new: {_shorten(report.new)}", new)


def _from_one(model: nn.Module, folder: Path, sides: Tokenizers) -> Started:
    theirs, stored, first = Tokenizers.load(folder), load_weights(folder), _first_names(folder)
    weights = _recut({name: stored[owner] for name, owner in first.items()}, theirs, sides)
    ours = dict(model.named_parameters())
    kept = [name for name, parameter in ours.items() if name in weights and weights[name].shape == parameter.shape]
    if not kept:
        raise FolderError(f"nothing of {folder} fits this model: leave the model section as it is in that folder")
    with torch.no_grad():
        for name in kept:
            ours[name].copy_(weights[name])
    new = [name for name in ours if name not in kept]
    unused = sorted(set(stored) - {first[name] for name in kept})
    report = [f"from {folder}: kept {len(kept):,} of {len(ours):,} tensors", *_tokens_report(theirs, sides)]
    report += [f"new: {_shorten(new)}"] if new else []
    report += [f"not taken: {_shorten(unused)}"] if unused else []
    return Started("; ".join(report), _new_rows(kept, theirs, sides) | dict.fromkeys(new))


def _new_rows(kept: Iterable[str], theirs: Tokenizers, ours: Tokenizers) -> dict[str, Tensor | None]:
    """Of tensors with one row a token, which rows are of tokens that the folder did not have."""
    new = [torch.tensor(_places(*pair)) < 0 for pair in zip(theirs, ours, strict=True)]
    return {name: new[ROWS[name]] for name in kept if name in ROWS and new[ROWS[name]].any()}


def _first_names(folder: Path) -> dict[str, str]:
    """Every name a parameter of a folder's model goes by, and the one it is stored under."""
    shape = load_config(folder).model
    model = build(shape, "meta")
    stored = {id(parameter): name for name, parameter in model.named_parameters()}
    names = {name: stored[id(parameter)] for name, parameter in model.named_parameters(remove_duplicate=False)}
    embeddings = next((names[name] for name in ("target.token.weight", "target.weight") if name in names), None)
    if embeddings is not None and shape.tie_embeddings != "none":
        names["output.weight"] = embeddings
    return names


def _recut(weights: Mapping[str, Tensor], theirs: Tokenizers, ours: Tokenizers) -> dict[str, Tensor]:
    """The same weights with a row for each of our tokens: theirs by its text, or a new one.

    New rows are drawn from a normal distribution with the mean and the spread of theirs: they stand among the others,
    and a softmax is not upset by them.
    """
    places = [_places(*pair) for pair in zip(theirs, ours, strict=True)]
    found = dict(weights)
    for name, side in ROWS.items():
        if name in weights and (len(weights[name]) != ours[side].size or places[side] != list(range(ours[side].size))):
            rows = weights[name].float()
            spread = rows.std(0, correction=0) if rows.dim() > 1 else 0.0
            fresh = rows.mean(0) + spread * torch.randn(ours[side].size, *rows.shape[1:])
            known = torch.tensor(places[side])
            fresh[known >= 0] = rows[known[known >= 0]]
            found[name] = fresh.to(weights[name].dtype)
    return found


def _places(theirs: Tokenizer, ours: Tokenizer) -> list[int]:
    """Where each of our tokens stands among theirs, by its text; -1: nowhere."""
    known = {token: place for place, token in enumerate(theirs.tokens(range(theirs.size)))}
    return [known.get(token, -1) for token in ours.tokens(range(ours.size))]


def _tokens_report(theirs: Tokenizers, ours: Tokenizers) -> list[str]:
    lines: list[str] = []
    for name, before, now in zip(("source ", "target "), theirs, ours, strict=True):
        if before.fingerprint != now.fingerprint and not (lines and ours.shared and theirs.shared):
            kept = sum(place >= 0 for place in _places(before, now))
            side = "" if ours.shared and theirs.shared else name
            new = now.size - kept
            lines.append(
                f"of {now.size:,} {side}tokens {kept:,} keep their embedding, {new:,} {'is' if new == 1 else 'are'} new"
            )
    return lines


def _shorten(names: Sequence[str]) -> str:
    """Names, those of the same place in several layers as one."""
    alike = list(dict.fromkeys(re.sub(r"\.\d+\.", ".*.", name) for name in names))
    more = f" and {len(alike) - SHOWN:,} more" if len(alike) > SHOWN else ""
    return ", ".join(alike[:SHOWN]) + more


# What is trained


def choose_trained(model: nn.Module, config: Config, new: New) -> str:
    """Freeze what the config says, or put adapters on, and say how much is left; "" where all is trained."""
    settings = config.train
    if settings.lora_rank:
        trained = add_lora(model, settings.lora_rank, new)
        how = f"adapters of rank {settings.lora_rank}" + (", and what is new" if new else "")
    elif settings.freeze:
        _freeze(model, settings.freeze.split())
        trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
        how = f"frozen: {settings.freeze}"
    else:
        return ""
    return f"{trained:,} of {sum(p.numel() for p in model.parameters()):,} parameters are trained ({how})"


def _freeze(model: nn.Module, patterns: Iterable[str]) -> None:
    """No gradient for parameters whose name, or the name of a part they are in, is like a pattern."""
    named = dict(model.named_parameters(remove_duplicate=False))
    for pattern in patterns:
        found = [name for name in named if fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")]
        if not found:
            parts = {name.rsplit(".", depth)[0] for name in named for depth in range(name.count(".") + 1)}
            close = did_you_mean(pattern, parts)
            hint = close if close.startswith(" Did") else ""
            examples = ", ".join(list(named)[:: max(1, len(named) // 3)][:3])
            raise ConfigError(f"train.freeze: no parameter is called {pattern}.{hint} Names are such as {examples}")
        for name in found:
            named[name].requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ConfigError("train.freeze leaves nothing to train")
