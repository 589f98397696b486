"""Compiled parts: the blocks, embeddings and loss of a model, each compiled once and used by all its layers.

A whole model takes a compiler minutes, and each layer is like the one before. What stands between the parts stays as it
is, and so does everything that is not training: decoding, and whoever wants a record.
"""

from __future__ import annotations

from typing import Any

import torch
import torch._inductor.config
from torch import Tensor, nn

from regard.attention import Memory
from regard.attention.multihead import Rotation
from regard.models.blocks import Block
from regard.models.cache import Cache, NewTokens
from regard.models.contract import Record
from regard.models.layers import Embedding
from regard.training.losses import Price, priced

VARIANTS = 64  # with a mask and without, one row and many, two stacks: more than a compiler allows by itself


def compile_parts(model: nn.Module) -> None:
    """From here on the model trains with compiled parts."""
    torch._dynamo.config.cache_size_limit = VARIANTS
    # a source and a target that happen to be equally long are no rule
    torch.fx.experimental._config.use_duck_shape = False
    triton = torch._inductor.config.triton
    if hasattr(triton, "mix_order_reduction"):  # it makes other programs for small batches, a minute each
        triton.mix_order_reduction = False
    read, write, embed = (torch.compile(part, dynamic=True) for part in (_read, _write, Embedding.forward))
    for module in model.modules():
        if isinstance(module, Block):
            _use(module, read, write)
        elif isinstance(module, Embedding):
            module.forward = _embedding(module, embed)  # type: ignore[method-assign]


def compiled_price() -> Price:
    """`priced`, compiled: the softmax over the vocabulary is formed once."""
    price: Price = torch.compile(priced, dynamic=True)
    return price


def _embedding(module: Embedding, embed: Any) -> Any:
    plain = module.forward
    return lambda *inputs: embed(module, *inputs) if torch.is_grad_enabled() else plain(*inputs)


def _use(block: Block, read: Any, write: Any) -> None:
    """The names of layers and their records would make each layer a program of its own: they are left out."""
    plain_encode, plain_decode = block.encode, block.decode

    def reading(x: Tensor, mask: Tensor | None, rotation: Rotation | None, record: Record | None, name: str) -> Tensor:
        if record is not None or not torch.is_grad_enabled():
            return plain_encode(x, mask, rotation, record, name)
        found: Tensor = read(block, x, mask, rotation)
        return found

    def writing(
        x: Tensor,
        layer: int,
        cache: Cache,
        new: NewTokens,
        source: Memory | None,
        source_mask: Tensor | None,
        rotation: Rotation | None,
        record: Record | None,
        name: str,
    ) -> tuple[Tensor, Memory]:
        if record is not None or cache.layers or cache.capacity or not torch.is_grad_enabled():
            return plain_decode(x, layer, cache, new, source, source_mask, rotation, record, name)
        return write(block, x, new, source, source_mask, rotation), FORGOTTEN

    block.encode, block.decode = reading, writing  # type: ignore[method-assign]


def _read(block: Block, x: Tensor, mask: Tensor | None, rotation: Rotation | None) -> Tensor:
    return Block.encode(block, x, mask, rotation, None, "")


# who learns never goes on from a cache, and to a compiler one that is given back wants gradients
FORGOTTEN = Memory(torch.empty(0), torch.empty(0))
NOTHING = Cache((), torch.empty(0), torch.empty(0), length=0, unpadded=True, capacity=0)


def _write(
    block: Block,
    x: Tensor,
    new: NewTokens,
    source: Memory | None,
    source_mask: Tensor | None,
    rotation: Rotation | None,
) -> Tensor:
    return Block.decode(block, x, 0, NOTHING, new, source, source_mask, rotation, None, "")[0]
