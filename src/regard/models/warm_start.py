"""Warm start: initialise an encoder-decoder from two trained berts, with new cross-attention.

After Rothe, Narayan and Severyn (2020): both stacks take the layers of a bert, the decoder's become causal, and each
gets a cross-attention with new weights.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard.config import ModelConfig
from regard.errors import ConfigError

SAME = (
    "size heads key_value_heads feed_forward_size activation norm norm_placement norm_epsilon bias max_positions score"
)
"""Fields that must be the same in both berts and in the transformer."""
FIXED: dict[str, Any] = {"positions": "learned", "embedding_norm": True, "scale_embeddings": False, "output_bias": True}
"""Fields with a fixed value in every bert, whatever its config says: its embeddings and the bias of its head."""


def warm_config(encoder: ModelConfig, decoder: ModelConfig) -> ModelConfig:
    """The config of the transformer whose two stacks are those of two berts."""
    for config in (encoder, decoder):
        if config.family != "bert":
            raise ConfigError(f"a warm start takes two bert models, and one is model.family = {config.family}")
    for name in SAME.split():
        if getattr(encoder, name) != getattr(decoder, name):
            raise ConfigError(
                f"the two bert models differ in model.{name} ({getattr(encoder, name)} and {getattr(decoder, name)}): "
                "a warm start needs it the same in both"
            )
    return dataclasses.replace(
        encoder,
        family="transformer",
        target_vocabulary=decoder.vocabulary if decoder.vocabulary != encoder.vocabulary else 0,
        decoder_layers=decoder.encoder_layers,
        tie_embeddings="target",
        **FIXED,
    )


def warm_weights(
    encoder: Mapping[str, Tensor], decoder: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of two berts as `encoder: NAME` and `decoder: NAME`, and which of them each tensor of the transformer
    is initialised with."""
    tensors: dict[str, Tensor] = {}
    origins: dict[str, str] = {}
    for stack, embedding, bert in (("encoder", "source", encoder), ("decoder", "target", decoder)):
        weights = dict(bert)
        if (types := weights.pop("source.types.weight", None)) is not None:
            # all tokens have type 0 here, so its vector is added to every position
            weights["source.position.weight"] = weights["source.position.weight"] + types[0]
        for name, tensor in weights.items():
            tensors[f"{stack}: {name}"] = tensor
            part, _, rest = name.partition(".")
            if part in ("source", "encoder"):
                origins[f"{embedding if part == 'source' else stack}.{rest}"] = f"{stack}: {name}"
    origins["output.weight"] = "decoder: source.token.weight"
    if "decoder: head.bias" in tensors:  # not in a bert without its head
        origins["output_bias"] = "decoder: head.bias"
    return tensors, origins
