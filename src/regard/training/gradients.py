"""Gradients of a micro-batch: the forward and backward pass, eager, compiled or replayed as a CUDA graph.

A small model on a GPU waits for Python, which launches thousands of kernels per update. A CUDA graph launches them all
at once. A graph is captured for one shape of batch: packed batches have a single shape, and `train.batch_shapes` limits
the number of shapes of others.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from regard import kernels
from regard.attention.multihead import Memory
from regard.config import Config, TrainConfig
from regard.devices import supports_bf16
from regard.memory import hold_until_short
from regard.models.blocks import Block
from regard.models.cache import Cache
from regard.models.layers import Embedding
from regard.text.batching import Batch
from regard.training.distributed import Runtime
from regard.training.losses import LogitsLoss, batch_loss, logits_loss

MIN_WORK_TO_COMPILE = 5e10  # updates * batch_tokens * model.size; less is not worth compiling (RECORDS.md)
MAX_GRAPHS = 64  # each graph holds its own copy of the kernels' arguments
MAX_VARIANTS = 64  # of a compiled part: with and without a mask, one row and many, two stacks; torch's default is 8
SPARE_BYTES = 64 << 20  # GPU memory left free for a capture beyond what its pass needs
NO_EXAMPLES = np.zeros(0, np.int64)

Shape = tuple[torch.Size | None, ...]  # of a batch's tensors: a CUDA graph is replayed for equal shapes only


class CapturedPass(NamedTuple):
    """A forward and backward pass over batches of one shape, captured as a CUDA graph."""

    graph: torch.cuda.CUDAGraph
    inputs: Batch  # the tensors that the graph reads


class Gradients:
    """Accumulates the gradients of micro-batches in the parameters and their negative log-likelihood in `nll`."""

    def __init__(self, wrapped: nn.Module, config: Config, runtime: Runtime) -> None:
        self._wrapped, self._config, self._runtime = wrapped, config.train, runtime
        self._parameters = [parameter for parameter in wrapped.parameters() if parameter.requires_grad]
        self._logits_loss: LogitsLoss | None = None
        if uses_compile(config, runtime.device):
            dynamic = not config.train.packed
            compile_blocks(wrapped, dynamic=dynamic)
            self._logits_loss = torch.compile(logits_loss, dynamic=dynamic or None)
        has_packed_kernels = kernels.is_available() and uses_bf16(config.train, runtime.device)
        has_few_shapes = has_packed_kernels if config.train.packed else config.train.batch_shapes > 0
        # masked language modelling has as many labels as tokens were masked: its shapes are never the same
        self.uses_graphs = (
            has_few_shapes
            and runtime.device.type == "cuda"
            and runtime.world_size == 1
            and config.model.family != "bert"
        )
        self._graphs: dict[Shape, CapturedPass] = {}
        self._stream = torch.cuda.Stream(runtime.device) if self.uses_graphs else None  # with memory of its own
        self._scale = torch.zeros((), device=runtime.device)
        self.nll = torch.zeros((), device=runtime.device)
        hold_until_short(self)

    def zero(self) -> None:
        """Set the gradients and the loss to zero."""
        self.nll.zero_()
        if self.uses_graphs and self._parameters[0].grad is not None:  # the graphs add to these very tensors
            torch._foreach_zero_([parameter.grad for parameter in self._parameters if parameter.grad is not None])
        else:
            for parameter in self._parameters:
                parameter.grad = None

    def free(self) -> None:
        """Delete all CUDA graphs; `free_memory` calls it."""
        self._graphs.clear()

    def accumulate(self, batch: Batch, scale: float, *, last: bool) -> None:
        """Add the gradients of `scale` times the batch's loss; after the `last` one, processes average theirs."""
        # torch.compile would specialise on these values
        batch = batch._replace(target_tokens=0, examples=NO_EXAMPLES)
        if not self.uses_graphs:
            self._backward(batch, scale, last=last)
            return
        shape = tuple(value.shape if isinstance(value, Tensor) else None for value in batch)
        if shape not in self._graphs and len(self._graphs) < MAX_GRAPHS:
            self._graphs[shape] = self._capture(batch)
        if shape not in self._graphs:
            self._backward(batch, scale, last=last)
            return
        graph, inputs = self._graphs[shape]
        for graph_input, tensor in zip(inputs, batch, strict=True):
            if isinstance(graph_input, Tensor) and isinstance(tensor, Tensor):
                graph_input.copy_(tensor, non_blocking=True)
        self._scale.fill_(scale)
        graph.replay()

    def _backward(self, batch: Batch, scale: float | Tensor, *, last: bool) -> None:
        is_ddp = isinstance(self._wrapped, nn.parallel.DistributedDataParallel)
        context: Any = self._wrapped.no_sync() if is_ddp and not last else nullcontext()  # type: ignore[operator]
        with context, autocast(self._config, self._runtime.device):  # the gradients are averaged after the last batch
            loss, nll = batch_loss(self._wrapped, batch, self._config, self._logits_loss)
        loss = loss * scale
        if isinstance(scale, Tensor):  # a CUDA graph adds all gradients in a few kernels, not in one per parameter
            gradients = torch.autograd.grad(loss, self._parameters, materialize_grads=True)
            torch._foreach_add_([p.grad for p in self._parameters if p.grad is not None], list(gradients))
        else:
            loss.backward()
        self.nll += nll

    def _capture(self, batch: Batch) -> CapturedPass:
        inputs = batch.map_tensors(Tensor.clone)
        with self._restored_state():
            self._warm_up(inputs)
            graph = torch.cuda.CUDAGraph()
            pool = next(iter(self._graphs.values())).graph.pool() if self._graphs else None
            # the thread that loads batches allocates memory meanwhile: only errors of this thread count
            with torch.cuda.graph(graph, pool=pool, stream=self._stream, capture_error_mode="thread_local"):
                self._backward(inputs, self._scale, last=True)
        return CapturedPass(graph, inputs)

    def _warm_up(self, batch: Batch) -> None:
        """Run the pass before its capture, so that libraries choose kernels and allocate their workspaces.

        A capture that runs out of memory leaves torch's allocator locked. So the memory of the pass is measured here,
        and an out-of-memory error raised before the capture starts.
        """
        device = self._runtime.device
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved(device)
        side, current = self._stream, torch.cuda.current_stream()
        assert side is not None
        side.wait_stream(current)
        try:
            with torch.cuda.stream(side):
                for _ in range(1 if self._graphs else 2):  # the very first pass allocates what later ones reuse
                    self._backward(batch, self._scale, last=True)
        finally:
            current.wait_stream(side)
        needed = torch.cuda.memory_reserved(device) - before
        torch.cuda.empty_cache()
        if torch.cuda.mem_get_info(device)[0] < needed + SPARE_BYTES:
            raise torch.cuda.OutOfMemoryError(f"a CUDA graph needs {needed:,} bytes")

    @contextmanager
    def _restored_state(self) -> Iterator[None]:
        """Restore gradients, loss, random state and the current stream when the context ends."""
        for parameter in self._parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        before = [*(gradient.clone() for gradient in gradients), self.nll.clone()]
        random_state, stream = torch.cuda.get_rng_state(self._runtime.device), torch.cuda.current_stream()
        try:
            yield
        finally:
            torch.cuda.set_stream(stream)  # a capture that ran out of memory leaves its own stream as the current one
            torch.cuda.set_rng_state(random_state, self._runtime.device)
            torch._foreach_copy_([*gradients, self.nll], before)


def uses_compile(config: Config, device: torch.device) -> bool:
    """Whether torch.compile is used: `auto` means in long runs on a GPU, except for rnns and packed pairs in fp32."""
    settings = config.train
    if settings.compile != "auto":
        return settings.compile == "yes"
    if settings.sharded:
        return False  # torch.compile with sharded weights is not tested
    if settings.packed and not uses_bf16(settings, device):
        return False  # without the kernel for packed sentences, almost every batch would be compiled again
    is_long = settings.updates * settings.batch_tokens * config.model.size >= MIN_WORK_TO_COMPILE
    return device.type == "cuda" and kernels.is_available() and is_long and config.model.family != "rnn"


def uses_bf16(config: TrainConfig, device: torch.device) -> bool:
    """Whether training uses mixed precision (AMP): bf16 products, fp32 weights. auto: if the GPU has bf16."""
    return config.precision == "bf16" or (
        config.precision == "auto" and device.type == "cuda" and supports_bf16("cuda")
    )


def autocast(config: TrainConfig, device: torch.device) -> torch.autocast:
    """The context of mixed precision, if training uses it."""
    return torch.autocast(device.type, torch.bfloat16, enabled=uses_bf16(config, device))


# torch.compile: blocks, embeddings and loss are each compiled once and shared by all layers, because compiling a whole
# model takes minutes and its layers are alike. Decoding and recording of attention run uncompiled.


def compile_blocks(model: nn.Module, *, dynamic: bool) -> None:
    """Compile the blocks and embeddings of this model for training.

    Unless `dynamic`, they are compiled for the shape of the first batch, and for all shapes once another comes.
    """
    from torch._inductor import config as inductor  # slow to import

    torch._dynamo.config.cache_size_limit = MAX_VARIANTS
    # the compiled code must not assume equal lengths when a source and a target happen to have the same length
    torch.fx.experimental._config.use_duck_shape = False
    if hasattr(inductor.triton, "mix_order_reduction"):  # it compiles one more kernel for small batches, for a minute
        inductor.triton.mix_order_reduction = False
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
