"""ONNX: export a transformer as two graphs, the encoder and the decoder with a key-value cache.

B rows, S source tokens, T new tokens, L tokens before them, G key-value heads, D head size, V vocabulary.
"""

from __future__ import annotations

import importlib.util
import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.attention.masks import over_queries
from regard.attention.multihead import Memory
from regard.config import Config
from regard.errors import ConfigError
from regard.interop.verification import Verification, bleu_difference, search, verification_texts
from regard.models.cache import Cache
from regard.models.contract import State
from regard.models.transformer import Source, Transformer
from regard.text.batching import pad
from regard.text.tokenizer import SpecialIds, Tokenizers

ENCODER, DECODER = "encoder.onnx", "decoder.onnx"
Tensors = list[Tensor]


class Encoder(nn.Module):
    """The source (B, S) and its mask -> keys and values (B, G, S, D) for the cross-attention of each decoder layer."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, mask: Tensor) -> Tensors:
        return _flat(self.model.start(source, mask.bool()).memory.memories)


class Decoder(nn.Module):
    """New tokens (B, T) and the keys and values of the source and of the tokens before -> (B, T, V) logits, and the
    keys and values of all tokens."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, mask: Tensor, cross: Tensors, past: Tensors) -> Tensors:
        rows, length = tokens.shape[0], past[0].shape[2]
        positions = torch.arange(length).expand(rows, length)
        next_position = tokens.new_full((rows,), length)
        cache = Cache(_pairs(past), positions, next_position, length=0, unpadded=False, capacity=0)
        state = State(Source(_pairs(cross), over_queries(mask.bool())), cache)
        logits, after = self.model.step(tokens, state)
        return [logits, *_flat(after.past.layers)]


def _flat(memories: Sequence[Memory]) -> Tensors:
    return [tensor for memory in memories for tensor in memory]


def _pairs(tensors: Tensors) -> tuple[Memory, ...]:
    return tuple(Memory(*pair) for pair in zip(tensors[::2], tensors[1::2], strict=True))


# Exporting


def write_onnx(model: Transformer, folder: Path) -> None:
    """Write both graphs, with their weights beside them."""
    missing = [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"an export to onnx needs {' and '.join(missing)}: pip install regard[onnx]")
    config = model.config
    names = [f"{layer}.{part}" for layer in range(config.decoder_layers) for part in ("key", "value")]
    cross, past, present = ([f"{kind}.{name}" for name in names] for kind in ("cross", "past", "present"))
    rows, sources, new, before = 2, 3, 4, 5  # any sizes above 1, all different
    tokens = torch.zeros(rows, new, dtype=torch.int64)
    source = torch.zeros(rows, sources, dtype=torch.int64)
    shape = rows, config.kv_heads
    memories = [torch.zeros(*shape, sources, config.head_size) for _ in names]
    caches = [torch.zeros(*shape, before, config.head_size) for _ in names]
    texts = {0: "rows", 1: "source"}
    _write(
        folder / ENCODER, Encoder(model), (source, torch.ones_like(source)), (texts, texts), ["source", "mask"], cross
    )
    shapes = (
        {0: "rows", 1: "new"},
        texts,
        [{0: "rows", 2: "source"}] * len(names),
        [{0: "rows", 2: "past"}] * len(names),
    )
    inputs = ["tokens", "mask", *cross, *past]
    _write(
        folder / DECODER, Decoder(model), (tokens, torch.ones_like(source), memories, caches), shapes, inputs,
        ["logits", *present],
    )  # fmt: skip


def _write(path: Path, module: nn.Module, example: Any, shapes: Any, inputs: list[str], outputs: list[str]) -> None:
    """Trace a module and write its graph, without the metadata of the exporter about the source code."""
    import onnx

    logger = logging.getLogger("torch.onnx")  # it warns about libraries that are not needed here
    level, logger.level = logger.level, logging.ERROR
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module.eval(), example, path, input_names=inputs, output_names=outputs, dynamic_shapes=shapes,
                dynamo=True, external_data=True, verbose=False,
            )  # fmt: skip
    finally:
        logger.setLevel(level)
    graph = onnx.load(path, load_external_data=False)
    for node in graph.graph.node:
        del node.metadata_props[:]
    onnx.save(graph, path)


# Verification


def verify_onnx(
    model: Transformer, folder: Path, out: Path, tokenizers: Tokenizers, config: Config, count: int
) -> Verification:
    """Compare a model with its graphs in onnxruntime on `count` sentences, by logits and greedy outputs."""
    if not count:
        return Verification(reason="no sentences were asked for")
    if importlib.util.find_spec("onnxruntime") is None:
        return Verification(reason="onnxruntime is not installed (pip install regard[onnx])")
    special = tokenizers.target.special
    texts = verification_texts(folder, tokenizers, config, count)
    ours = [hypothesis.tokens for hypothesis in search(model, texts, special)]
    tokens, mask = pad(texts.sources, torch.device("cpu"))
    before, _ = pad([[special.start, *output] for output in ours], torch.device("cpu"))
    with torch.inference_mode():
        logits, _ = model.step(before, model.start(tokens, mask))
    runtime = Runtime(out)
    real = torch.ones_like(tokens) if mask is None else mask.long()
    cross = runtime.encode(tokens.numpy(), real.numpy())
    expected, _ = runtime.decode(before.numpy(), cross, runtime.empty(len(tokens)))
    theirs = runtime.greedy(cross, special, texts.length)
    return Verification(
        len(ours),
        float(np.abs(expected - logits.numpy()).max()),
        float(np.abs(expected).max()),
        sum(one == other for one, other in zip(ours, theirs, strict=True)),
        bleu=bleu_difference(ours, theirs, texts.references, tokenizers.target),
        library="onnxruntime",
    )


class Runtime:
    """Both graphs of a folder in onnxruntime."""

    def __init__(self, folder: Path) -> None:
        import onnxruntime

        self.encoder, self.decoder = (onnxruntime.InferenceSession(folder / name) for name in (ENCODER, DECODER))

    def encode(self, source: Any, mask: Any) -> dict[str, Any]:
        """Encode the source: the inputs of the decoder that are the same in all steps."""
        names = [output.name for output in self.encoder.get_outputs()]
        found = self.encoder.run(names, {"source": source, "mask": mask})
        return {"mask": mask, **dict(zip(names, found, strict=True))}

    def empty(self, rows: int) -> dict[str, Any]:
        """An empty cache, for the first token."""
        caches = [given for given in self.decoder.get_inputs() if given.name.startswith("past.")]
        return {cache.name: np.zeros((rows, cache.shape[1], 0, cache.shape[3]), np.float32) for cache in caches}

    def decode(self, tokens: Any, cross: dict[str, Any], past: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """The logits of each next token, and the cache after the tokens."""
        logits, *present = self.decoder.run(None, {"tokens": tokens, **cross, **past})
        return logits, dict(zip(past, present, strict=True))

    def greedy(self, cross: dict[str, Any], special: SpecialIds, length: int) -> list[list[int]]:
        """Greedy search: the tokens of each row up to the end token."""
        rows = len(cross["mask"])
        past, tokens = self.empty(rows), np.full((rows, 1), special.start)
        outputs: list[list[int]] = [[] for _ in range(rows)]
        ended = [False] * rows
        for _ in range(length):
            logits, past = self.decode(tokens, cross, past)
            logits[:, :, list(special.never_generated)] = -np.inf
            tokens = logits[:, -1:].argmax(-1)
            for row, token in enumerate(tokens[:, 0].tolist()):
                ended[row] |= token == special.end
                if not ended[row]:
                    outputs[row].append(token)
            if all(ended):
                break
        return outputs
