"""CUDA graphs of decoding steps: captured once for each shape, replayed without Python, bounded in memory and freed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cache
from threading import RLock
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from regard.memory import hold_until_short

MEMORY_SHARE = 0.25  # of the GPU, for the tensors of all graphs of one engine
SPARE_BYTES = 1 << 28  # left free at a capture

State = TypeVar("State", bound=tuple[Any, ...])
Step = Callable[[State], State]


class CapturedSteps(Generic[State]):
    """Functions from one state to the next, over tensors at fixed addresses."""

    def __init__(
        self,
        steps: Sequence[Step[State]],
        state: State,
        pool: Any = None,
        watch: Callable[[State], Tensor] | None = None,
    ) -> None:
        """Capture the steps. The tensors of `state` become their own; where it has empty tuples, a step fills them.

        After every step, what `watch` says of the state is copied to `watched`, in the memory of the host.
        """
        self.watched, self._watch = torch.ones((), dtype=torch.bool, pin_memory=watch is not None), watch
        self._device = next(leaves(state)).device
        with torch.cuda.device(self._device):
            for step in steps:
                state = adopt(state, _warm_up(step, state))
            self.state = state
            self._graphs = [self._capture(step, pool) for step in steps]

    def replay(self, step: int = 0) -> None:
        with torch.cuda.device(self._device):
            self._graphs[step].replay()

    def _capture(self, step: Step[State], pool: Any) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool, _side_stream(), capture_error_mode="thread_local"):
            copy_into(self.state, step(self.state))
            if self._watch is not None:
                self.watched.copy_(self._watch(self.state), non_blocking=True)
        return graph


class Graphs:
    """The captured steps of one engine. The oldest are freed when they take too much memory, all when it is short."""

    def __init__(self, models: Sequence[nn.Module]) -> None:
        self._models = models
        self._captured: dict[Hashable, CapturedSteps[Any]] = {}
        self._weights: list[int] = []
        self._pool = torch.cuda.graph_pool_handle()
        self.lock = RLock()  # the tensors of a graph serve one search at a time
        hold_until_short(self)

    def find(
        self,
        key: Hashable,
        steps: Sequence[Step[State]],
        make_state: Callable[[], State],
        watch: Callable[[State], Tensor],
    ) -> CapturedSteps[State]:
        """The captured steps of this key; captured now if there are none."""
        weights = [parameter.data_ptr() for model in self._models for parameter in model.parameters()]
        if weights != self._weights:  # a graph reads the weights where they were
            self.free()
            self._weights = weights
        captured = self._captured.pop(key, None) or CapturedSteps(steps, make_state(), self._pool, watch)
        self._captured[key] = captured  # now the newest
        while len(self._captured) > 1 and self._bytes() > MEMORY_SHARE * torch.cuda.mem_get_info()[1]:
            self._captured.pop(next(iter(self._captured)))
        return captured

    def free(self) -> None:
        """Delete all graphs; the next search captures again."""
        self._captured.clear()

    def _bytes(self) -> int:
        return sum(tensor.nbytes for captured in self._captured.values() for tensor in leaves(captured.state))


def _warm_up(step: Step[State], state: State) -> State:
    """Run the step before its capture, so that libraries choose kernels and caches allocate their slots.

    A capture that runs out of memory leaves torch's allocator locked. So the memory of a step is measured here, and an
    out-of-memory error raised before the capture starts.
    """
    current, stream = torch.cuda.current_stream(), _side_stream()
    stream.wait_stream(current)
    try:
        with torch.cuda.stream(stream):
            after = step(state)
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            step(adopt(state, after))
            needed = torch.cuda.max_memory_allocated() - before + SPARE_BYTES
    finally:
        current.wait_stream(stream)
    if torch.cuda.mem_get_info()[0] < needed:
        torch.cuda.empty_cache()
        if torch.cuda.mem_get_info()[0] < needed:
            raise torch.cuda.OutOfMemoryError(f"out of memory: a CUDA graph needs {needed:,} bytes")
    return after


@cache
def _stream(device: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


def _side_stream() -> torch.cuda.Stream:
    """One stream for all captures of a device: what is freed on a stream is only reused there."""
    return _stream(torch.cuda.current_device())


def copy_into(tree: Any, values: Any) -> None:
    """Copy the tensors of one tree into those of another with the same shapes; empty tuples change nothing."""
    if isinstance(tree, Tensor):
        if tree is not values:
            tree.copy_(values)
    elif isinstance(tree, tuple) and values != ():
        for part, value in zip(tree, values, strict=True):
            copy_into(part, value)


def leaves(tree: Any) -> Iterator[Tensor]:
    """The tensors of a tree of tuples."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, tuple):
        for part in tree:
            yield from leaves(part)


def adopt(tree: Any, values: Any) -> Any:
    """The tree with the parts of another where it has empty tuples."""
    if not isinstance(tree, tuple) or values == ():
        return tree
    if not tree:
        return values
    parts = [adopt(*pair) for pair in zip(tree, values, strict=True)]
    return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
