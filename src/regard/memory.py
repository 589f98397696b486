"""GPU memory: recognise out-of-memory errors, free memory, and do work in parts that fit."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from weakref import WeakSet

import torch

# CUDA, its driver, Triton, CTranslate2 and Apple's MPS say the first; cuBLAS and cuDNN the second.
OUT_OF_MEMORY_MESSAGES = ("out of memory", "STATUS_ALLOC_FAILED")

Work = TypeVar("Work")
Result = TypeVar("Result")
Item = TypeVar("Item")


_held: WeakSet[Any] = WeakSet()


def hold_until_short(holder: Any) -> None:
    """Let an object keep GPU memory that it can do without, until `free_memory` calls its method `free`."""
    _held.add(holder)


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an error, or an earlier one in its context chain, reports that GPU memory is full."""
    if error is None:
        return False
    message = str(error)
    full = isinstance(error, torch.cuda.OutOfMemoryError) or any(text in message for text in OUT_OF_MEMORY_MESSAGES)
    return full or is_out_of_memory(error.__context__)


def free_memory() -> None:
    """Return memory to the device: what is held until memory is short, and what no tensor uses."""
    for holder in list(_held):
        holder.free()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    elif torch.backends.mps.is_available():
        torch.mps.empty_cache()


def in_parts(function: Callable[[Work], Result], work: Work, split: Callable[[Work], Sequence[Work]]) -> list[Result]:
    """Call `function` on all of the work, or on parts of it where the GPU runs out of memory; one result per part.

    `split` returns two parts, or one if the work cannot be split; then it is retried once after memory is freed.
    """
    try:
        return [function(work)]
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
    free_memory()  # only now: the error held on to the tensors of the failed call
    parts = split(work)
    if len(parts) < 2:
        return [function(work)]
    return [result for part in parts for result in in_parts(function, part, split)]


def in_halves(items: list[Item]) -> list[list[Item]]:
    """The first and the second half of a list; a list of one item stays whole."""
    middle = (len(items) + 1) // 2
    return [half for half in (items[:middle], items[middle:]) if half]
