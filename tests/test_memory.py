"""GPU memory: work that does not fit is done in parts; other errors are raised."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import pytest
import torch

from regard.memory import in_halves, in_parts, is_out_of_memory


def holding(most: int) -> object:
    """Doubles numbers on a device whose memory holds so many."""

    def double(numbers: Sequence[int]) -> list[int]:
        if len(numbers) > most:
            raise torch.cuda.OutOfMemoryError("as if a GPU were full")
        return [2 * number for number in numbers]

    return double


@pytest.fixture
def _no_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Collecting garbage takes long in a process that has imported as much as the tests have."""
    monkeypatch.setattr("regard.memory.gc.collect", lambda: 0)


@pytest.mark.usefixtures("_no_collection")
@pytest.mark.parametrize("most", [1, 2, 3, 7, 100])
def test_work_in_parts_gives_all_results(most: int) -> None:
    parts = in_parts(holding(most), list(range(7)), in_halves)  # type: ignore[arg-type]
    assert [number for part in parts for number in part] == [0, 2, 4, 6, 8, 10, 12]
    assert max(map(len, parts)) <= most


@pytest.mark.usefixtures("_no_collection")
def test_work_that_cannot_be_split_raises_the_out_of_memory_error() -> None:
    with pytest.raises(torch.cuda.OutOfMemoryError, match="as if"):
        in_parts(holding(0), list(range(7)), in_halves)  # type: ignore[arg-type]


def test_memory_of_a_failed_call_is_freed_before_the_work_is_split() -> None:
    held, kept = list[weakref.ref[torch.Tensor]](), list[bool]()

    def take(numbers: Sequence[int]) -> None:
        activations = torch.zeros(4)
        held.append(weakref.ref(activations))
        if len(numbers) > 1:
            raise torch.cuda.OutOfMemoryError("as if a GPU were full")

    def divide(numbers: list[int]) -> list[list[int]]:
        kept.append(held[-1]() is not None)
        return in_halves(numbers)

    in_parts(take, [1, 2], divide)
    assert kept == [False]


def test_other_errors_are_not_retried() -> None:
    tried = []

    def broken(numbers: Sequence[int]) -> None:
        tried.append(numbers)
        raise RuntimeError("no such kernel")

    with pytest.raises(RuntimeError, match="no such kernel"):
        in_parts(broken, list(range(7)), in_halves)
    assert len(tried) == 1


@pytest.mark.parametrize(
    "told",
    ["CUDA error: out of memory", "CUDA driver error: out of memory", "Triton Error [CUDA]: out of memory",
     "CUDA failed with error out of memory", "MPS backend out of memory (MPS allocated: 17 GB)",
     "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"],
    ids=["CUDA", "driver", "Triton", "CTranslate2", "Apple", "cuBLAS"],
)  # fmt: skip
def test_out_of_memory_messages_of_all_libraries_are_recognised(told: str) -> None:
    assert is_out_of_memory(RuntimeError(told))


def test_an_out_of_memory_error_behind_another_error_is_recognised() -> None:
    told = RuntimeError("capture was broken off")
    assert not is_out_of_memory(told)
    told.__context__ = torch.cuda.OutOfMemoryError("as if a GPU were full")
    assert is_out_of_memory(told)
