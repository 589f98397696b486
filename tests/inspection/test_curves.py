"""The curves of a training, from its journal alone."""

from __future__ import annotations

from typing import Any

import pytest
from matplotlib.figure import Figure

from regard.inspection.curves import _losses, draw, series, smooth


def journal(updates: int, every: int, metric: str = "bleu") -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    for update in range(1, updates + 1):
        numbers = {"loss": 5 / update, "learning_rate": 1e-4 * update, "grad_norm": 1.0, "tokens": 100, "seconds": 0.1}
        lines.append({"kind": "update", "update": update, **numbers})
        if update % every == 0:
            lines.append({"kind": "validation", "update": update, "valid_loss": 2.0, metric: 30.0})
    return lines


@pytest.mark.slow
@pytest.mark.parametrize(
    "lines",
    [journal(40, 10), journal(10, 10), journal(3, 10, "none"), journal(1, 10), []],
    ids=["several validations", "one validation", "no validation", "one update", "nothing"],
)
def test_every_run_can_be_drawn(lines: list[dict[str, Any]]) -> None:
    files = draw(lines, best=10, title="a $run$ of_mine")
    assert int.from_bytes(files["training.png"][16:20], "big") > 1000  # a PNG begins with its width
    assert b"<svg" in files["training.svg"]


@pytest.mark.slow
def test_the_kept_update_is_marked() -> None:
    svg = draw(journal(40, 10), best=20, title="mine")["training.svg"].decode()
    assert "kept: 30.00 at 20" in svg
    assert "BLEU on the validation set" in svg


@pytest.mark.parametrize(("updates", "scale"), [(10, "linear"), (40, "log")])
def test_a_wide_range_of_losses_is_drawn_on_a_logarithmic_scale(updates: int, scale: str) -> None:
    axes = Figure().add_subplot()
    _losses(axes, journal(updates, 50), 0)
    assert axes.get_yscale() == scale


def test_a_repeated_update_counts_once_with_its_last_value() -> None:
    lines = [{"kind": "update", "update": number, "loss": loss} for number, loss in ((1, 5.0), (2, 4.0), (2, 3.0))]
    assert series(lines, "update", "loss") == ([1, 2], [5.0, 3.0])


def test_nan_is_not_drawn() -> None:
    lines = [{"kind": "update", "update": 1, "loss": float("nan")}, {"kind": "update", "update": 2, "loss": 1.0}]
    assert series(lines, "update", "loss") == ([2], [1.0])


def test_a_short_curve_is_not_smoothed() -> None:
    assert smooth(([1, 2, 3], [3.0, 1.0, 2.0])) == ([1, 2, 3], [3.0, 1.0, 2.0])
