"""torch.compile for training: blocks, embeddings and loss, each compiled once and shared by all layers.

Compiling a whole model takes minutes, and its layers are alike. Decoding and recording of attention run uncompiled.
"""

from __future__ import annotations

from typing import Any

import torch
import torch._inductor.config
from torch import Tensor, nn

from regard.attention.multihead import Memory
from regard.models.blocks import Block
from regard.models.cache import Cache
from regard.models.layers import Embedding

MAX_VARIANTS = 64  # with and without a mask, one row and many, two stacks: more than torch's default of 8


def compile_blocks(model: nn.Module, *, dynamic: bool) -> None:
    """Compile the blocks and embeddings of this model for training.

    Unless `dynamic`, they are compiled for the shape of the first batch, and for all shapes once another comes.
    """
    torch._dynamo.config.cache_size_limit = MAX_VARIANTS
    # the compiled code must not assume equal lengths when a source and a target happen to have the same length
    torch.fx.experimental._config.use_duck_shape = False
    triton = torch._inductor.config.triton
    if hasattr(triton, "mix_order_reduction"):  # it would compile another kernel for small batches, a minute each
        triton.mix_order_reduction = False
    encode, decode, embed = (  # None: first for one shape
        torch.compile(part, dynamic=dynamic or None) for part in (_encode, _decode, Embedding.forward)
    )
    for module in model.modules():
        if isinstance(module, Block):
            _use(module, encode, decode)
        elif isinstance(module, Embedding):
            module.forward = _embedding(module, embed)  # type: ignore[method-assign]


def _embedding(module: Embedding, embed: Any) -> Any:
    eager = module.forward
    return lambda *inputs: embed(module, *inputs) if torch.is_grad_enabled() else eager(*inputs)


def _use(block: Block, encode: Any, decode: Any) -> None:
    """Replace a block's methods. The compiled code takes no layer name or record, so that all layers share it."""
    eager_encode, eager_decode = block.encode, block.decode

    def train_encode(*arguments: Any) -> Tensor:
        *inputs, record, _name = arguments
        if record is not None or not torch.is_grad_enabled():
            return eager_encode(*arguments)
        output: Tensor = encode(block, *inputs)
        return output

    def train_decode(x: Tensor, layer: int, cache: Cache, *arguments: Any) -> tuple[Tensor, Memory]:
        *inputs, record, _name = arguments
        if record is not None or cache.layers or cache.capacity or not torch.is_grad_enabled():
            return eager_decode(x, layer, cache, *arguments)
        return decode(block, x, *inputs), NO_MEMORY

    block.encode, block.decode = train_encode, train_decode  # type: ignore[method-assign, assignment]


# training never uses a KV cache, and a compiled function that returned one would compute its gradient
NO_MEMORY = Memory(torch.empty(0), torch.empty(0))
EMPTY_CACHE = Cache((), torch.empty(0), torch.empty(0), length=0, unpadded=True, capacity=0)


def _encode(block: Block, *inputs: Any) -> Tensor:
    return Block.encode(block, *inputs, None, "")  # type: ignore[call-arg]


def _decode(block: Block, x: Tensor, *inputs: Any) -> Tensor:
    return Block.decode(block, x, 0, EMPTY_CACHE, *inputs, None, "")[0]  # type: ignore[call-arg]
