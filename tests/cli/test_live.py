"""What a run shows: a drawing that fits its terminal, and plain lines where there is none."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.control import Control

from regard.cli.live import HISTORY, Curve, Screen, View, spark
from regard.training.planning import lasting

SAMPLE = {"source": "ein Haus " * 30, "reference": "a house " * 30, "model": "一个房子 " * 30}


def console(width: int = 80, height: int = 24) -> Console:
    return Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)


def written(place: Console) -> str:
    assert isinstance(place.file, io.StringIO)
    return place.file.getvalue()


def facts(update: int, **more: Any) -> dict[str, Any]:
    return {
        "update": update,
        "loss": 3.0,
        "learning_rate": 1e-3,
        "grad_norm": 1.0,
        "tokens": 100,
        "seconds": 0.5,
        **more,
    }


def seen(place: Console) -> View:
    view = View(place, live=False)
    view.watch("begun", {"name": "runs/a", "what": "rnn", "update": 0, "updates": 40, "validate_every": 10, "cores": 2})
    for update in range(1, 21):
        view.watch("update", facts(update, loss=8 - update / 5))
        if update % 10 == 0:
            found = {"update": update, "valid_loss": 2.5, "bleu": 30.0 + update, "best": True, "sample": SAMPLE}
            view.watch("validation", {**found, "seconds": 60.0})
    return view


@pytest.mark.parametrize("width", [1, 7, 20, 40, 80, 120, 300])
@pytest.mark.parametrize("height", [1, 3, 10, 24, 60])
def test_the_drawing_fits_every_terminal(width: int, height: int) -> None:
    lines = seen(console()).draw(width, height)
    assert len(lines) <= height
    assert all(cell_len(line.plain) <= width for line in lines)


@pytest.mark.parametrize("width", [80, 120])
def test_an_ordinary_terminal_shows_everything(width: int) -> None:
    view = seen(console())
    view.watch("skipped", {"update": 21})
    text = "\n".join(line.plain for line in view.draw(width, 23))
    for word in ("runs/a", "update 20 of 40", "50%", "loss", "BLEU", "tokens/s", "of 2 cores", "50.00", "best", "▁"):
        assert word in text
    for word in ("source", "reference", "model", "一个房子", "1 updates left out"):
        assert word in text


def test_the_time_of_validations_is_no_part_of_the_speed() -> None:
    text = "\n".join(line.plain for line in seen(console()).draw(80, 23))
    assert " 200 " in text  # 100 tokens in half a second


def test_only_the_newest_best_is_called_so() -> None:
    text = "\n".join(line.plain for line in seen(console()).draw(80, 40))
    assert text.count("best") == 1


def test_without_a_terminal_there_are_plain_lines() -> None:
    place = Console(file=io.StringIO(), width=80)
    seen(place)
    lines = written(place).splitlines()
    assert lines[0] == "update      10  loss 6.900  200 tokens/s  BLEU 40.00  valid loss 2.500  (best)"
    assert lines[1].startswith("    source      ein Haus ein Haus")
    assert "\x1b" not in written(place)


def test_a_message_leaves_the_drawing_below_it() -> None:
    place = console()
    screen = Screen(place, seen(console()).draw)
    place.push_render_hook(screen)  # type: ignore[arg-type]
    place.print(Control())
    place.print("a message")
    last = written(place).rpartition("\x1b[J")[2]
    assert last.index("a message") < last.index("update 20 of 40")


def test_a_terminal_made_narrower_is_cleared_of_the_lines_it_broke() -> None:
    place = console(width=80)
    screen = Screen(place, seen(console()).draw)
    place.push_render_hook(screen)  # type: ignore[arg-type]
    place.print(Control())
    rows = sum(max(1, -(-width // 40)) for width in screen._widths)
    place.width = 40
    place.print(Control())
    assert rows > len(screen._widths)
    assert f"\x1b[{rows - 1}A\x1b[J" in written(place)


def test_a_long_history_stays_short_and_keeps_its_mean() -> None:
    curve = Curve()
    for number in range(5000):
        curve.add(float(number))
    points = curve.points(10 * HISTORY)
    assert HISTORY // 2 <= len(points) < HISTORY
    assert points == sorted(points)


def test_a_curve_that_falls_is_a_skyline_that_falls() -> None:
    assert spark([4.0, 3.0, 2.0, 1.0], 1) == ["█▆▃▁"]
    assert spark([1.0, 1.0], 1) == ["▁▁"]
    assert spark([], 2) == []


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(None, "…"), (45, "45 s"), (720, "12 min"), (12000, "3 h 20 min"), (190000, "2 d 4 h")],
)
def test_a_time_is_said_in_two_words(seconds: float | None, said: str) -> None:
    assert lasting(seconds) == said
