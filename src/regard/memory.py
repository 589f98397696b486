"""A GPU whose memory is full: knowing it by whatever tells of it, and doing the work in parts that fit."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

SAID = ("out of memory", "STATUS_ALLOC_FAILED")  # CUDA, its driver, Triton, CTranslate2 and Apple's; cuBLAS and cuDNN

Work = TypeVar("Work")
Result = TypeVar("Result")
Place = TypeVar("Place")


def is_full(error: BaseException | None) -> bool:
    """Whether a GPU's memory is full: drivers and libraries have words of their own for it, said or behind what is."""
    if error is None:
        return False
    said = isinstance(error, torch.cuda.OutOfMemoryError) or any(words in str(error) for words in SAID)
    return said or is_full(error.__context__)


def make_room() -> None:
    """What nobody holds any more goes back to the device."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    elif torch.backends.mps.is_available():
        torch.mps.empty_cache()


def in_parts(do: Callable[[Work], Result], work: Work, divide: Callable[[Work], Sequence[Work]]) -> list[Result]:
    """What comes of the work, done at once or, where a GPU's memory is too small for that, in parts.

    `divide` makes two of a work, or one where there is nothing to divide: that is tried once more in the room made.
    """
    try:
        return [do(work)]
    except RuntimeError as error:
        if not is_full(error):
            raise
    make_room()  # not before: the error held what the work had taken, and to divide it may take memory too
    parts = divide(work)
    if len(parts) < 2:
        return [do(work)]
    return [result for part in parts for result in in_parts(do, part, divide)]


def in_two(places: list[Place]) -> list[list[Place]]:
    """The first half and the second, of one place itself."""
    middle = (len(places) + 1) // 2
    return [some for some in (places[:middle], places[middle:]) if some]
