"""TensorBoard's own reader finds what was written, each update once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import nn

from regard.training.events import RollbackEvent, UpdateEvent, ValidationEvent
from regard.training.tensorboard import BOARD, Board

accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


def make_update(update: int) -> UpdateEvent:
    return UpdateEvent(update, 9.0 / update, 1.0, 0.1, tokens=50, epoch=0, seconds=0.25)


def write(folder: Path, first: int, last: int) -> None:
    with Board(folder, first - 1) as board:
        for update in range(first, last + 1):
            board.observe(make_update(update))
            if update % 20 == 0:
                sample = {"source": "ein Haus", "reference": "a house", "model": "a home"}
                scores = {"valid_loss": 2.0, "bleu": 30.0}
                board.observe(ValidationEvent(update, scores, sample, True, 1.0, nn.Identity()))


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


def test_a_run_that_was_rolled_back_has_no_step_twice(tmp_path: Path) -> None:
    with Board(tmp_path, 0) as board:
        for update in (10, 20, 30):
            board.observe(make_update(update))
        board.observe(RollbackEvent(10, 5, 0.5, 5, ()))
        for update in (20, 30):
            board.observe(make_update(update))
    assert steps(tmp_path, "training/loss") == [10, 20, 30]
