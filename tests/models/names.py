"""Name tables: the names of our tensors in other libraries, for import.

One row per tensor of ours. Several tensors of theirs may be concatenated to one of ours: our query, key and value
projections are one matrix, theirs are three.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from regard.config import ModelConfig


class Row(NamedTuple):
    """A tensor of ours and the tensors of theirs that it consists of."""

    ours: str
    theirs: tuple[str, ...]
    transposed: bool = False
    """Theirs is stored as (inputs, outputs), as GPT-2's Conv1D is."""


def to_ours(rows: Iterable[Row], theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename, concatenate and transpose their tensors to ours."""
    ours = {}
    for row in rows:
        parts = [theirs[name].squeeze(0) if name == "final_logits_bias" else theirs[name] for name in row.theirs]
        joined = parts[0] if len(parts) == 1 else torch.cat(parts)
        ours[row.ours] = joined.T.contiguous() if row.transposed else joined
    return ours


def _linear(ours: str, *theirs: str, transposed: bool = False) -> Iterator[Row]:
    yield Row(f"{ours}.weight", tuple(f"{name}.weight" for name in theirs), transposed)
    yield Row(f"{ours}.bias", tuple(f"{name}.bias" for name in theirs))


def _bert_layer(ours: str, theirs: str, *, cross: bool = False) -> Iterator[Row]:
    kinds = [("attention", "attention")] + ([("cross", "crossattention")] if cross else [])
    for name, kind in kinds:
        here = f"{theirs}.{kind}"
        yield from _linear(f"{ours}.{name}.in_proj", *(f"{here}.self.{part}" for part in ("query", "key", "value")))
        yield from _linear(f"{ours}.{name}.out_proj", f"{here}.output.dense")
        yield from _linear(f"{ours}.{name}_norm", f"{here}.output.LayerNorm")
    yield from _linear(f"{ours}.feed_forward.up_proj", f"{theirs}.intermediate.dense")
    yield from _linear(f"{ours}.feed_forward.down_proj", f"{theirs}.output.dense")
    yield from _linear(f"{ours}.feed_forward_norm", f"{theirs}.output.LayerNorm")


def bert(config: ModelConfig, prefix: str = "bert.") -> Iterator[Row]:
    """`transformers`' BertModel (prefix "") and BertForPreTraining."""
    yield Row("source.token.weight", (f"{prefix}embeddings.word_embeddings.weight",))
    yield Row("source.position.weight", (f"{prefix}embeddings.position_embeddings.weight",))
    yield Row("source.types.weight", (f"{prefix}embeddings.token_type_embeddings.weight",))
    yield from _linear("source.norm", f"{prefix}embeddings.LayerNorm")
    for i in range(config.encoder_layers):
        yield from _bert_layer(f"encoder.blocks.{i}", f"{prefix}encoder.layer.{i}")
    if config.pooler:
        yield from _linear("pooler", f"{prefix}pooler.dense")
    if config.mlm_head:
        yield from _linear("head.dense", "cls.predictions.transform.dense")
        yield from _linear("head.norm", "cls.predictions.transform.LayerNorm")
        yield Row("head.bias", ("cls.predictions.bias",))


def gpt2(config: ModelConfig) -> Iterator[Row]:
    """`transformers`' GPT2LMHeadModel."""
    yield Row("target.token.weight", ("transformer.wte.weight",))
    yield Row("target.position.weight", ("transformer.wpe.weight",))
    for i in range(config.decoder_layers):
        ours, theirs = f"decoder.blocks.{i}", f"transformer.h.{i}"
        yield from _linear(f"{ours}.attention.in_proj", f"{theirs}.attn.c_attn", transposed=True)
        yield from _linear(f"{ours}.attention.out_proj", f"{theirs}.attn.c_proj", transposed=True)
        yield from _linear(f"{ours}.attention_norm", f"{theirs}.ln_1")
        yield from _linear(f"{ours}.feed_forward.up_proj", f"{theirs}.mlp.c_fc", transposed=True)
        yield from _linear(f"{ours}.feed_forward.down_proj", f"{theirs}.mlp.c_proj", transposed=True)
        yield from _linear(f"{ours}.feed_forward_norm", f"{theirs}.ln_2")
    yield from _linear("decoder.norm", "transformer.ln_f")


def llama(config: ModelConfig) -> Iterator[Row]:
    """`transformers`' LlamaForCausalLM."""
    yield Row("target.token.weight", ("model.embed_tokens.weight",))
    for i in range(config.decoder_layers):
        ours, theirs = f"decoder.blocks.{i}", f"model.layers.{i}"
        heads = tuple(f"{theirs}.self_attn.{part}_proj.weight" for part in "qkv")
        yield Row(f"{ours}.attention.in_proj.weight", heads)
        yield Row(f"{ours}.attention.out_proj.weight", (f"{theirs}.self_attn.o_proj.weight",))
        yield Row(f"{ours}.attention_norm.weight", (f"{theirs}.input_layernorm.weight",))
        widen = (f"{theirs}.mlp.gate_proj.weight", f"{theirs}.mlp.up_proj.weight")
        yield Row(f"{ours}.feed_forward.up_proj.weight", widen)
        yield Row(f"{ours}.feed_forward.down_proj.weight", (f"{theirs}.mlp.down_proj.weight",))
        yield Row(f"{ours}.feed_forward_norm.weight", (f"{theirs}.post_attention_layernorm.weight",))
    yield Row("decoder.norm.weight", ("model.norm.weight",))
    if config.tie_embeddings == "none":
        yield Row("output.weight", ("lm_head.weight",))


def marian(config: ModelConfig) -> Iterator[Row]:
    """`transformers`' MarianMTModel, one vocabulary for both sides."""
    yield Row("source.token.weight", ("model.shared.weight",))
    yield Row("output_bias", ("final_logits_bias",))
    for side, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for i in range(layers):
            ours, theirs = f"{side}.blocks.{i}", f"model.{side}.layers.{i}"
            kinds = [("attention", "self_attn")] + ([("cross", "encoder_attn")] if side == "decoder" else [])
            for name, kind in kinds:
                parts = (f"{theirs}.{kind}.{part}_proj" for part in "qkv")
                yield from _linear(f"{ours}.{name}.in_proj", *parts)
                yield from _linear(f"{ours}.{name}.out_proj", f"{theirs}.{kind}.out_proj")
                yield from _linear(f"{ours}.{name}_norm", f"{theirs}.{kind}_layer_norm")
            yield from _linear(f"{ours}.feed_forward.up_proj", f"{theirs}.fc1")
            yield from _linear(f"{ours}.feed_forward.down_proj", f"{theirs}.fc2")
            yield from _linear(f"{ours}.feed_forward_norm", f"{theirs}.final_layer_norm")


def bert_generation(config: ModelConfig) -> Iterator[Row]:
    """`transformers`' EncoderDecoderModel of a BertGenerationEncoder and a BertGenerationDecoder."""
    for ours, theirs in (("source", "encoder.embeddings"), ("target", "decoder.bert.embeddings")):
        yield Row(f"{ours}.token.weight", (f"{theirs}.word_embeddings.weight",))
        yield Row(f"{ours}.position.weight", (f"{theirs}.position_embeddings.weight",))
        yield from _linear(f"{ours}.norm", f"{theirs}.LayerNorm")
    for i in range(config.encoder_layers):
        yield from _bert_layer(f"encoder.blocks.{i}", f"encoder.encoder.layer.{i}")
    for i in range(config.decoder_layers):
        yield from _bert_layer(f"decoder.blocks.{i}", f"decoder.bert.encoder.layer.{i}", cross=True)
    yield Row("output_bias", ("decoder.lm_head.bias",))
