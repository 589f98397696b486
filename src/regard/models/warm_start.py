"""Warm start: an encoder-decoder that begins where trained encoders ended, with cross-attention added.

After Rothe, Narayan and Severyn (2020): both stacks take a bert's layers, the decoder's are masked, and between its
self-attention and its feed-forward stands a cross-attention that nothing has trained yet.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from regard.config import ModelConfig
from regard.errors import ConfigError
from regard.models.transformer import Transformer

SAME = (
    "size",
    "heads",
    "key_value_heads",
    "feed_forward_size",
    "activation",
    "norm",
    "norm_placement",
    "norm_epsilon",
    "bias",
    "max_positions",
    "score",
)
"""Fields that two berts must have alike, and the transformer as they have them."""
FIXED: dict[str, Any] = {"positions": "learned", "embedding_norm": True, "scale_embeddings": False, "output_bias": True}
"""What is so of every bert, whatever its config says: its embeddings, and the bias of its head."""

REMEDY = "give the weights of two berts, and a model that warm_config makes of their configs"


@dataclass(frozen=True)
class Report:
    """Which tensors of the new model came from where; every one is in exactly one of the first three."""

    copied: dict[str, str]
    """Ours, and whose it was: `encoder: encoder.blocks.0.attention.project.weight`."""
    tied: dict[str, str]
    """A second name of a tensor that is counted once."""
    new: list[str]
    """Initialised, to be trained."""
    unused: list[str]
    """Of the berts, and without a place here."""

    def __str__(self) -> str:
        return (
            f"{len(self.copied)} tensors copied, {len(self.tied)} tied, {len(self.new)} new; "
            f"{len(self.unused)} of the encoders' left unused"
        )


def warm_config(
    encoder: ModelConfig, decoder: ModelConfig, *, tie_embeddings: Literal["all", "target", "none"] = "target"
) -> ModelConfig:
    """The transformer whose two stacks are those of two berts."""
    for config in (encoder, decoder):
        if config.family != "bert":
            raise ConfigError(f"a warm start takes two bert models, and one is model.family = {config.family}")
    for name in SAME:
        if _differ(encoder, decoder, name):
            raise ConfigError(
                f"the two bert models differ in model.{name} ({getattr(encoder, name)} and {getattr(decoder, name)}): "
                "a warm start needs it the same in both"
            )
    return dataclasses.replace(
        encoder,
        family="transformer",
        target_vocabulary=decoder.vocabulary if decoder.vocabulary != encoder.vocabulary else 0,
        decoder_layers=decoder.encoder_layers,
        tie_embeddings=tie_embeddings,
        **FIXED,
    )


def check_asked(asked: ModelConfig, given: ModelConfig) -> None:
    """Refuse a shape that two berts' weights do not have, `given` being what `warm_config` makes of them.

    A stack may have fewer layers than its bert: the first ones. Dropout, tied embeddings and vocabularies are free.
    """
    wrong = [name for name in (*SAME, *FIXED) if _differ(asked, given, name)]
    wrong += [name for name in ("encoder_layers", "decoder_layers") if getattr(asked, name) > getattr(given, name)]
    if wrong:
        raise ConfigError(
            f"two bert folders give {_list(given, wrong)}, and {_list(asked, wrong)} {'were' if wrong[1:] else 'was'} "
            f"asked: leave {_join(f'model.{name}' for name in wrong)} alone"
        )


def _differ(one: ModelConfig, other: ModelConfig, name: str) -> bool:
    """Whether a field means another thing: what a 0 or an auto stands for may also be said."""
    meant = {"key_value_heads": "kv_heads", "score": "score_name"}.get(name, name)
    return bool(getattr(one, name) != getattr(other, name) and getattr(one, meant) != getattr(other, meant))


def _list(config: ModelConfig, names: Iterable[str]) -> str:
    return _join(f"model.{name} = {str(getattr(config, name)).lower()}" for name in names)


def _join(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def warm_start(model: Transformer, encoder: Mapping[str, Tensor], decoder: Mapping[str, Tensor]) -> Report:
    """Copy two berts' weights (by our names) into a transformer made by `warm_config`, and say what went where."""
    for name, value in FIXED.items():
        if getattr(model.config, name) != value:
            raise ConfigError(f"a warm start needs model.{name} = {str(value).lower()}: {REMEDY}")
    ours = dict(model.named_parameters(remove_duplicate=False))
    copied: dict[str, str] = {}
    used: set[str] = set()
    for name, side, theirs in _plan(model):
        weights = encoder if side == "encoder" else decoder
        if theirs not in weights:
            if name == "output_bias":  # a bert without its head
                continue
            raise ConfigError(f"the {side}'s weights lack {theirs}, which {name} begins with: {REMEDY}")
        value = weights[theirs]
        if theirs == "source.position.weight" and "source.types.weight" in weights:
            # Every token of a sentence is of type 0 here: its vector is part of every position.
            value = value + weights["source.types.weight"][0]
            used.add(f"{side}: source.types.weight")
        if value.shape != ours[name].shape:
            raise ConfigError(
                f"{name} has shape {tuple(ours[name].shape)} and the {side}'s {theirs} {tuple(value.shape)}: {REMEDY}"
            )
        with torch.no_grad():
            ours[name].copy_(value)
        copied[name] = f"{side}: {theirs}"
        used.add(copied[name])
    tied = _tied(model)
    new = [name for name in ours if name not in copied and name not in tied]
    names = [("encoder", name) for name in encoder] + [("decoder", name) for name in decoder]
    unused = [(side, name) for side, name in names if f"{side}: {name}" not in used]
    for side, name in unused:
        if not _may_stay(model.config, side, name):
            raise ConfigError(f"the model has no place for the {side}'s {name}: {REMEDY}")
    return Report(copied, tied, new, [f"{side}: {name}" for side, name in unused])


def _may_stay(config: ModelConfig, side: str, name: str) -> bool:
    """Whether a bert's tensor may be left behind: of its head, of layers above ours, of embeddings that are tied."""
    if name.startswith("source."):
        return side == "decoder" and config.tie_embeddings == "all"
    if name.startswith("encoder."):
        layer = re.match(r"encoder\.blocks\.(\d+)\.", name)
        layers = config.encoder_layers if side == "encoder" else config.decoder_layers
        return layer is not None and int(layer[1]) >= layers
    return True


def _plan(model: Transformer) -> Iterator[tuple[str, str, str]]:
    """Our name, which bert, its name there."""
    sides = [("source", "encoder")] + ([] if model.config.tie_embeddings == "all" else [("target", "decoder")])
    for ours, side in sides:
        for part, _ in model.get_submodule(ours).named_parameters():
            yield f"{ours}.{part}", side, f"source.{part}"
    for name, _ in model.named_parameters():
        stack = name.split(".")[0]
        if stack in ("encoder", "decoder") and ".cross" not in name:
            yield name, stack, name.replace("decoder.", "encoder.", 1)
    if model.output is not None:
        yield "output.weight", "decoder", "source.token.weight"
    yield "output_bias", "decoder", "head.bias"


def _tied(model: Transformer) -> dict[str, str]:
    """Names that share a tensor with an earlier one, and the output matrix where it is the embeddings."""
    first: dict[int, str] = {}
    tied = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if id(parameter) in first:
            tied[name] = first[id(parameter)]
        first.setdefault(id(parameter), name)
    if model.output is None:
        tied["output.weight"] = first[id(model.target.token.weight)]
    return tied
