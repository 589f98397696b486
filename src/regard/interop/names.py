"""Names of tensors in Hugging Face transformers and here: one table per architecture, for import and export."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from regard.config import ModelConfig

POSITION_OFFSET = 2  # unused rows before the positions of RoBERTa, BART and mBART


class Row(NamedTuple):
    """The name of a tensor in Regard, and of the tensors in transformers that are concatenated into it."""

    ours: str
    theirs: tuple[str, ...]
    form: Literal["same", "transposed", "row", "offset"] = "same"
    """transposed: (inputs, outputs), as GPT-2's Conv1D; row: (1, n); offset: POSITION_OFFSET unused rows come first."""
    copies: tuple[str, ...] = ()
    """Other names of the same tied weights, which some files have instead or in addition."""


Names = Callable[[ModelConfig], Iterator[Row]]


def _linear(ours: str, *theirs: str, transposed: bool = False, bias: bool = True) -> Iterator[Row]:
    yield Row(f"{ours}.weight", tuple(f"{name}.weight" for name in theirs), "transposed" if transposed else "same")
    if bias:
        yield Row(f"{ours}.bias", tuple(f"{name}.bias" for name in theirs))


def _norm(ours: str, theirs: str, config: ModelConfig) -> Iterator[Row]:
    return _linear(ours, theirs, bias=config.norm == "layer")


def seq2seq(config: ModelConfig) -> Iterator[Row]:
    """Marian, Pegasus, BART, mBART and M2M100."""
    sides = {side: f"model.{side}.embed_tokens.weight" for side in ("encoder", "decoder")}
    if config.tie_embeddings == "all":
        yield Row("source.token.weight", ("model.shared.weight",), copies=(*sides.values(), "lm_head.weight"))
    else:
        tied = ("lm_head.weight",) if config.tie_embeddings == "target" else ()
        yield Row("source.token.weight", (sides["encoder"],))
        yield Row("target.token.weight", (sides["decoder"],), copies=tied)
        if not tied:
            yield Row("output.weight", ("lm_head.weight",))
    if config.output_bias:
        yield Row("output_bias", ("final_logits_bias",), "row")
    stacks = (("encoder", "source", config.encoder_layers), ("decoder", "target", config.decoder_layers))
    for side, embedding, layers in stacks:
        if config.positions == "learned":
            yield Row(f"{embedding}.position.weight", (f"model.{side}.embed_positions.weight",), "offset")
        if config.embedding_norm:
            yield from _norm(f"{embedding}.norm", f"model.{side}.layernorm_embedding", config)
        for i in range(layers):
            ours, theirs = f"{side}.blocks.{i}", f"model.{side}.layers.{i}"
            kinds = [("attention", "self_attn")] + [("cross", "encoder_attn")] * (side == "decoder")
            for name, kind in kinds:
                yield from _linear(f"{ours}.{name}.in_proj", *(f"{theirs}.{kind}.{part}_proj" for part in "qkv"))
                yield from _linear(f"{ours}.{name}.out_proj", f"{theirs}.{kind}.out_proj")
                yield from _norm(f"{ours}.{name}_norm", f"{theirs}.{kind}_layer_norm", config)
            yield from _linear(f"{ours}.feed_forward.up_proj", f"{theirs}.fc1")
            yield from _linear(f"{ours}.feed_forward.down_proj", f"{theirs}.fc2")
            yield from _norm(f"{ours}.feed_forward_norm", f"{theirs}.final_layer_norm", config)
        if config.norm_placement == "pre":
            yield from _norm(f"{side}.norm", f"model.{side}.layer_norm", config)


def _bert_layer(ours: str, theirs: str, *, cross: bool = False) -> Iterator[Row]:
    for name, kind in [("attention", "attention")] + [("cross", "crossattention")] * cross:
        here = f"{theirs}.{kind}"
        yield from _linear(f"{ours}.{name}.in_proj", *(f"{here}.self.{part}" for part in ("query", "key", "value")))
        yield from _linear(f"{ours}.{name}.out_proj", f"{here}.output.dense")
        yield from _linear(f"{ours}.{name}_norm", f"{here}.output.LayerNorm")
    yield from _linear(f"{ours}.feed_forward.up_proj", f"{theirs}.intermediate.dense")
    yield from _linear(f"{ours}.feed_forward.down_proj", f"{theirs}.output.dense")
    yield from _linear(f"{ours}.feed_forward_norm", f"{theirs}.output.LayerNorm")


def _bert_embeddings(
    ours: str, theirs: str, *, types: int, offset: bool = False, copies: tuple[str, ...] = ()
) -> Iterator[Row]:
    yield Row(f"{ours}.token.weight", (f"{theirs}.word_embeddings.weight",), copies=copies)
    yield Row(f"{ours}.position.weight", (f"{theirs}.position_embeddings.weight",), "offset" if offset else "same")
    if types:
        yield Row(f"{ours}.types.weight", (f"{theirs}.token_type_embeddings.weight",))
    yield from _linear(f"{ours}.norm", f"{theirs}.LayerNorm")


def bert(config: ModelConfig) -> Iterator[Row]:
    tied = ("cls.predictions.decoder.weight",)
    yield from _bert_embeddings("source", "bert.embeddings", types=config.token_types, copies=tied)
    for i in range(config.encoder_layers):
        yield from _bert_layer(f"encoder.blocks.{i}", f"bert.encoder.layer.{i}")
    if config.pooler:
        yield from _linear("pooler", "bert.pooler.dense")
    if config.mlm_head:
        yield from _linear("head.dense", "cls.predictions.transform.dense")
        yield from _linear("head.norm", "cls.predictions.transform.LayerNorm")
        yield Row("head.bias", ("cls.predictions.bias",), copies=("cls.predictions.decoder.bias",))


def roberta(config: ModelConfig) -> Iterator[Row]:
    tied = ("lm_head.decoder.weight",)
    yield from _bert_embeddings("source", "roberta.embeddings", types=config.token_types, offset=True, copies=tied)
    for i in range(config.encoder_layers):
        yield from _bert_layer(f"encoder.blocks.{i}", f"roberta.encoder.layer.{i}")
    if config.pooler:
        yield from _linear("pooler", "roberta.pooler.dense")
    if config.mlm_head:
        yield from _linear("head.dense", "lm_head.dense")
        yield from _linear("head.norm", "lm_head.layer_norm")
        yield Row("head.bias", ("lm_head.bias",), copies=("lm_head.decoder.bias",))


def distilbert(config: ModelConfig) -> Iterator[Row]:
    yield from _bert_embeddings("source", "distilbert.embeddings", types=0, copies=("vocab_projector.weight",))
    for i in range(config.encoder_layers):
        ours, theirs = f"encoder.blocks.{i}", f"distilbert.transformer.layer.{i}"
        yield from _linear(f"{ours}.attention.in_proj", *(f"{theirs}.attention.{part}_lin" for part in "qkv"))
        yield from _linear(f"{ours}.attention.out_proj", f"{theirs}.attention.out_lin")
        yield from _linear(f"{ours}.attention_norm", f"{theirs}.sa_layer_norm")
        yield from _linear(f"{ours}.feed_forward.up_proj", f"{theirs}.ffn.lin1")
        yield from _linear(f"{ours}.feed_forward.down_proj", f"{theirs}.ffn.lin2")
        yield from _linear(f"{ours}.feed_forward_norm", f"{theirs}.output_layer_norm")
    if config.mlm_head:
        yield from _linear("head.dense", "vocab_transform")
        yield from _linear("head.norm", "vocab_layer_norm")
        yield Row("head.bias", ("vocab_projector.bias",))


def bert_generation(config: ModelConfig) -> Iterator[Row]:
    tied = ("decoder.lm_head.decoder.weight",)
    yield from _bert_embeddings("source", "encoder.embeddings", types=0)
    yield from _bert_embeddings("target", "decoder.bert.embeddings", types=0, copies=tied)
    for i in range(config.encoder_layers):
        yield from _bert_layer(f"encoder.blocks.{i}", f"encoder.encoder.layer.{i}")
    for i in range(config.decoder_layers):
        yield from _bert_layer(f"decoder.blocks.{i}", f"decoder.bert.encoder.layer.{i}", cross=True)
    yield Row("output_bias", ("decoder.lm_head.bias",), copies=("decoder.lm_head.decoder.bias",))


def gpt2(config: ModelConfig) -> Iterator[Row]:
    tied = ("lm_head.weight",) if config.tie_embeddings != "none" else ()
    yield Row("target.token.weight", ("transformer.wte.weight",), copies=tied)
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
    if not tied:
        yield Row("output.weight", ("lm_head.weight",))


def llama(config: ModelConfig) -> Iterator[Row]:
    tied = ("lm_head.weight",) if config.tie_embeddings != "none" else ()
    yield Row("target.token.weight", ("model.embed_tokens.weight",), copies=tied)
    for i in range(config.decoder_layers):
        ours, theirs = f"decoder.blocks.{i}", f"model.layers.{i}"
        parts = tuple(f"{theirs}.self_attn.{part}_proj.weight" for part in "qkv")
        yield Row(f"{ours}.attention.in_proj.weight", parts)
        yield Row(f"{ours}.attention.out_proj.weight", (f"{theirs}.self_attn.o_proj.weight",))
        yield Row(f"{ours}.attention_norm.weight", (f"{theirs}.input_layernorm.weight",))
        gated = (f"{theirs}.mlp.gate_proj.weight", f"{theirs}.mlp.up_proj.weight")
        yield Row(f"{ours}.feed_forward.up_proj.weight", gated)
        yield Row(f"{ours}.feed_forward.down_proj.weight", (f"{theirs}.mlp.down_proj.weight",))
        yield Row(f"{ours}.feed_forward_norm.weight", (f"{theirs}.post_attention_layernorm.weight",))
    yield Row("decoder.norm.weight", ("model.norm.weight",))
    if not tied:
        yield Row("output.weight", ("lm_head.weight",))
