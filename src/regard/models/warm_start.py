"""Warm start: initialise an encoder-decoder from two trained berts, with new cross-attention.

After Rothe, Narayan and Severyn (2020): both stacks take the layers of a bert, the decoder's become causal, and each
gets a cross-attention with new weights.
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
"""Fields that must be the same in both berts and in the transformer."""
FIXED: dict[str, Any] = {"positions": "learned", "embedding_norm": True, "scale_embeddings": False, "output_bias": True}
"""Fields with a fixed value in every bert, whatever its config says: its embeddings and the bias of its head."""

REMEDY = "pass the weights of two berts, and a model built from warm_config(encoder, decoder)"


@dataclass(frozen=True)
class WarmStart:
    """Where the tensors of the new model came from; each is in exactly one of copied, tied and new."""

    copied: dict[str, str]
    """The origin by name, such as `encoder: encoder.blocks.0.attention.in_proj.weight`."""
    tied: dict[str, str]
    """Names of shared tensors, and the first name of each."""
    new: list[str]
    """Initialised at random."""
    unused: list[str]
    """Tensors of the berts that the new model does not use."""

    def __str__(self) -> str:
        return (
            f"{len(self.copied)} tensors copied, {len(self.tied)} tied, {len(self.new)} new; "
            f"{len(self.unused)} tensors of the berts unused"
        )


def warm_config(
    encoder: ModelConfig, decoder: ModelConfig, *, tie_embeddings: Literal["all", "target", "none"] = "target"
) -> ModelConfig:
    """The config of the transformer whose two stacks are those of two berts."""
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


def check_warm_config(requested: ModelConfig, warm: ModelConfig) -> None:
    """Refuse a requested config that does not fit `warm`, the result of `warm_config`.

    A stack may have fewer layers than its bert: it takes the first ones. Dropout, tied embeddings and vocabularies may
    differ.
    """
    wrong = [name for name in (*SAME, *FIXED) if _differ(requested, warm, name)]
    wrong += [name for name in ("encoder_layers", "decoder_layers") if getattr(requested, name) > getattr(warm, name)]
    if wrong:
        raise ConfigError(
            f"two bert folders need {_list(warm, wrong)}, not {_list(requested, wrong)}: "
            f"do not set {_join(f'model.{name}' for name in wrong)}"
        )


def _differ(first: ModelConfig, second: ModelConfig, name: str) -> bool:
    """Whether two configs differ in a field; 0 and auto equal the values that they resolve to."""
    resolved = {"key_value_heads": "kv_heads", "score": "score_name"}.get(name, name)
    return all(getattr(first, field) != getattr(second, field) for field in (name, resolved))


def _list(config: ModelConfig, names: Iterable[str]) -> str:
    return _join(f"model.{name} = {str(getattr(config, name)).lower()}" for name in names)


def _join(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def warm_start(model: Transformer, encoder: Mapping[str, Tensor], decoder: Mapping[str, Tensor]) -> WarmStart:
    """Copy the weights of two berts into a transformer made with `warm_config`, and report what was copied."""
    for name, value in FIXED.items():
        if getattr(model.config, name) != value:
            raise ConfigError(f"a warm start needs model.{name} = {str(value).lower()}: {REMEDY}")
    ours = dict(model.named_parameters(remove_duplicate=False))
    copied: dict[str, str] = {}
    used: set[str] = set()
    for name, side, bert_name in _plan(model):
        weights = encoder if side == "encoder" else decoder
        if bert_name not in weights:
            if name == "output_bias":  # a bert without its head
                continue
            raise ConfigError(f"the {side}'s weights lack {bert_name}, the origin of {name}: {REMEDY}")
        value = weights[bert_name]
        if bert_name == "source.position.weight" and "source.types.weight" in weights:
            # All tokens have type 0 here, so its vector is added to every position.
            value = value + weights["source.types.weight"][0]
            used.add(f"{side}: source.types.weight")
        if value.shape != ours[name].shape:
            raise ConfigError(
                f"{name} has shape {tuple(ours[name].shape)} and the {side}'s {bert_name} has {tuple(value.shape)}: "
                f"{REMEDY}"
            )
        with torch.no_grad():
            ours[name].copy_(value)
        copied[name] = f"{side}: {bert_name}"
        used.add(copied[name])
    tied = _tied(model)
    new = [name for name in ours if name not in copied and name not in tied]
    names = [("encoder", name) for name in encoder] + [("decoder", name) for name in decoder]
    unused = [(side, name) for side, name in names if f"{side}: {name}" not in used]
    for side, name in unused:
        if not _may_be_unused(model.config, side, name):
            raise ConfigError(f"the model does not use the {side}'s {name}: {REMEDY}")
    return WarmStart(copied, tied, new, [f"{side}: {name}" for side, name in unused])


def _may_be_unused(config: ModelConfig, side: str, name: str) -> bool:
    """Whether a tensor of a bert may be unused: of its head, of extra layers, or of tied embeddings."""
    if name.startswith("source."):
        return side == "decoder" and config.tie_embeddings == "all"
    if name.startswith("encoder."):
        layer = re.match(r"encoder\.blocks\.(\d+)\.", name)
        layers = config.encoder_layers if side == "encoder" else config.decoder_layers
        return layer is not None and int(layer[1]) >= layers
    return True


def _plan(model: Transformer) -> Iterator[tuple[str, str, str]]:
    """The name of each copied tensor, which bert it comes from, and its name there."""
    sides = [("source", "encoder")] + ([] if model.config.tie_embeddings == "all" else [("target", "decoder")])
    for embedding, side in sides:
        for part, _ in model.get_submodule(embedding).named_parameters():
            yield f"{embedding}.{part}", side, f"source.{part}"
    for name, _ in model.named_parameters():
        stack = name.split(".")[0]
        if stack in ("encoder", "decoder") and ".cross" not in name:
            yield name, stack, name.replace("decoder.", "encoder.", 1)
    if model.output is not None:
        yield "output.weight", "decoder", "source.token.weight"
    yield "output_bias", "decoder", "head.bias"


def _tied(model: Transformer) -> dict[str, str]:
    """Names of shared tensors and the first name of each, and the output matrix where it is the embeddings."""
    first: dict[int, str] = {}
    tied = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if id(parameter) in first:
            tied[name] = first[id(parameter)]
        first.setdefault(id(parameter), name)
    if model.output is None:
        tied["output.weight"] = first[id(model.target.token.weight)]
    return tied
