"""The numbers at the axes of charts."""

from __future__ import annotations

import pytest

from regard.inspection import charts


@pytest.mark.parametrize(
    ("low", "high", "marks"),
    [
        (0, 9.0, [0, 2, 4, 6, 8]),
        (0, 15.9, [0, 5, 10, 15]),
        (0, 0.4, [0, 0.1, 0.2, 0.3, 0.4]),
        (0.9, 1.1, [0.9, 0.95, 1, 1.05, 1.1]),
    ],
)
def test_an_axis_has_round_numbers(low: float, high: float, marks: list[float]) -> None:
    assert list(charts.round_ticks(low, high)) == pytest.approx(marks)


def test_a_logarithmic_axis_has_ones_twos_and_fives() -> None:
    assert charts.log_ticks(0.04, 2.5) == pytest.approx([0.05, 0.1, 0.2, 0.5, 1, 2])


def test_a_logarithmic_axis_between_them_has_round_numbers() -> None:
    assert charts.log_ticks(7.28, 8.77) == pytest.approx([7.5, 8, 8.5])


def test_a_long_curve_keeps_the_shape_of_its_series() -> None:
    html = charts.curve_chart({"a": [(float(x), 1.0 + x) for x in range(100)]}, "loss", "update")
    assert 2 <= html.count('<g class="point') <= charts.MAX_MARKED


def test_a_legend_names_every_series_though_shapes_repeat() -> None:
    names = [f"system {number}" for number in range(8)]
    groups = [charts.Group(1, 10, 50, False, [(50.0, 40.0, 60.0)] * len(names))]
    legend = charts.interval_chart(groups, names, "BLEU", "length").partition("</ul>")[0]
    assert all(f"{name}</li>" in legend for name in names)
