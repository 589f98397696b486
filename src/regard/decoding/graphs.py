"""CUDA graphs of decoding steps: captured once for each shape, replayed without Python, bounded in memory and freed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cache
from threading import RLock
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from regard.memory import hold_until_short

MEMORY_SHARE = 0.25  # of GPU memory, for the tensors of all graphs of one engine
SPARE_BYTES = 1 << 28  # that stay free during a capture

State = TypeVar("State", bound=tuple[Any, ...])
Step = Callable[[State], State]
Watch = Callable[[State], Tensor]


class CapturedSteps(Generic[State]):
    """Functions from one state to the next, over tensors at fixed addresses."""

    def __init__(
        self, steps: Sequence[Step[State]], state: State, pool: Any = None, watch: Watch[State] | None = None
    ) -> None:
        """Capture the steps, which from then on read and write the tensors of `state`; steps fill its empty tuples.

        After every step, the result of `watch(state)` is copied to `watched` in host memory.
        """
        self.watched, self._watch = torch.ones((), dtype=torch.bool, pin_memory=watch is not None), watch
        self._device = next(leaves(state)).device
        with torch.cuda.device(self._device):
            for step in steps:
                state = fill_empty(state, _warm_up(step, state))
            self.state = state
            self._graphs = [self._capture(step, pool) for step in steps]

    def replay(self, step: int = 0) -> None:
        """Replay one of the steps, by its index."""
        with torch.cuda.device(self._device):
            self._graphs[step].replay()

    def _capture(self, step: Step[State], pool: Any) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        stream = _side_stream(torch.cuda.current_device())
        with torch.cuda.graph(graph, pool, stream, capture_error_mode="thread_local"):
            copy_into(self.state, step(self.state))
            if self._watch is not None:
                self.watched.copy_(self._watch(self.state), non_blocking=True)
        return graph


class Graphs:
    """The captured steps of one engine; those not used for longest are freed first, and all when memory runs out."""

    def __init__(self, models: Sequence[nn.Module]) -> None:
        self._models = models
        self._captured: dict[Hashable, CapturedSteps[Any]] = {}
        self._weights: list[int] = []
        self._pool = torch.cuda.graph_pool_handle()
        self.lock = RLock()  # the tensors of a graph serve one search at a time
        hold_until_short(self)

    def find(
        self, key: Hashable, steps: Sequence[Step[State]], make_state: Callable[[], State], watch: Watch[State]
    ) -> CapturedSteps[State]:
        """The captured steps with this key; they are captured if there are none."""
        weights = [parameter.data_ptr() for model in self._models for parameter in model.parameters()]
        if weights != self._weights:  # graphs read the weights at their old addresses
            self.free()
            self._weights = weights
        captured = self._captured.pop(key, None) or CapturedSteps(steps, make_state(), self._pool, watch)
        self._captured[key] = captured  # now the newest
        while len(self._captured) > 1 and self._bytes() > MEMORY_SHARE * torch.cuda.mem_get_info()[1]:
            self._captured.pop(next(iter(self._captured)))
        return captured

    def free(self) -> None:
        """Free all graphs; the next search captures new ones."""
        self._captured.clear()

    def _bytes(self) -> int:
        return sum(tensor.nbytes for captured in self._captured.values() for tensor in leaves(captured.state))


def _warm_up(step: Step[State], state: State) -> State:
    """Run the step before its capture, so that libraries choose kernels and caches allocate their slots.

    A capture that runs out of memory leaves torch's allocator locked. So this measures the memory of a step and raises
    an out-of-memory error before the capture starts.
    """
    current, stream = torch.cuda.current_stream(), _side_stream(torch.cuda.current_device())
    stream.wait_stream(current)
    try:
        with torch.cuda.stream(stream):
            after = step(state)
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            step(fill_empty(state, after))
            needed = torch.cuda.max_memory_allocated() - before + SPARE_BYTES
    finally:
        current.wait_stream(stream)
    if torch.cuda.mem_get_info()[0] < needed:
        torch.cuda.empty_cache()
        if torch.cuda.mem_get_info()[0] < needed:
            raise torch.cuda.OutOfMemoryError(f"out of memory: a CUDA graph needs {needed:,} bytes")
    return after


@cache
def _side_stream(device: int) -> torch.cuda.Stream:
    """One stream for all captures of a device: memory freed on a stream is only reused on that stream."""
    return torch.cuda.Stream(device)


def copy_into(tree: Any, values: Any) -> None:
    """Copy the tensors of `values` into those of `tree`, which has the same shapes; empty tuples are skipped."""
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


def fill_empty(tree: Any, values: Any) -> Any:
    """Replace the empty tuples of a tree with the parts of `values` in the same positions."""
    if not isinstance(tree, tuple) or values == ():
        return tree
    if not tree:
        return values
    parts = [fill_empty(*pair) for pair in zip(tree, values, strict=True)]
    return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
