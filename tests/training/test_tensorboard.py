"""TensorBoard's own reader finds what was written, each update once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from regard.training.tensorboard import BOARD, Board

accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


def write(folder: Path, first: int, last: int) -> None:
    with Board(folder, first - 1) as board:
        for update in range(first, last + 1):
            numbers = {"loss": 9.0 / update, "learning_rate": 0.1, "grad_norm": 1.0, "tokens": 50, "seconds": 0.25}
            board.watch("update", {"update": update, **numbers})
            if update % 20 == 0:
                sample = {"source": "ein Haus", "reference": "a house", "model": "a home"}
                board.watch("validation", {"update": update, "valid_loss": 2.0, "bleu": 30.0, "sample": sample})


def read(folder: Path) -> Any:
    found = accumulator.EventAccumulator(str(folder / BOARD), size_guidance={"scalars": 0, "tensors": 0})
    return found.Reload()


def steps(folder: Path, name: str) -> list[int]:
    return [event.step for event in read(folder).Scalars(name)]


def test_scalars_and_samples_are_read_back(tmp_path: Path) -> None:
    write(tmp_path, 1, 40)
    found = read(tmp_path)
    assert sorted(found.Tags()["scalars"]) == [
        "training/grad_norm", "training/learning_rate", "training/loss", "training/tokens per second",
        "validation/bleu", "validation/valid_loss",
    ]  # fmt: skip
    assert [event.step for event in found.Scalars("training/loss")] == [1, 10, 20, 30, 40]
    assert [event.value for event in found.Scalars("training/tokens per second")] == [200.0] * 5
    assert [event.step for event in found.Tensors("sample/text_summary")] == [20, 40]


def test_a_resumed_run_has_no_step_twice(tmp_path: Path) -> None:
    write(tmp_path, 1, 40)
    write(tmp_path, 21, 60)  # killed at 40, resumed from the checkpoint of 20
    assert steps(tmp_path, "training/loss") == [1, 10, 20, 30, 40, 50, 60]
    assert steps(tmp_path, "validation/bleu") == [20, 40, 60]


def test_a_run_that_fell_back_has_no_step_twice(tmp_path: Path) -> None:
    with Board(tmp_path, 0) as board:
        facts = {"loss": 1.0, "learning_rate": 0.1, "grad_norm": 1.0, "tokens": 50}
        for update in (10, 20, 30):
            board.watch("update", {"update": update, **facts})
        board.watch("fell_back", {"update": 10})
        for update in (20, 30):
            board.watch("update", {"update": update, **facts})
    assert steps(tmp_path, "training/loss") == [10, 20, 30]
