"""What a run shows: a live view that fits its terminal, and plain lines where there is none."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console
from torch import nn

from regard.cli.live import View
from regard.config import TrainConfig
from regard.training.clock import Clock
from regard.training.events import ProblemEvent, StartEvent, UpdateEvent, ValidationEvent

SAMPLE = {"source": "ein Haus " * 30, "reference": "a house " * 30, "model": "一个房子 " * 30}


def console(width: int = 80, height: int = 24, *, terminal: bool = True) -> Console:
    return Console(file=io.StringIO(), width=width, height=height, force_terminal=terminal, color_system=None)


def written(place: Console) -> str:
    assert isinstance(place.file, io.StringIO)
    return place.file.getvalue()


def observed(place: Console, *, live: bool) -> View:
    """A view after 20 of 40 updates and two validations."""
    view = View(place, live=live)
    view.observe(StartEvent(Path("runs/a"), "rnn", 0, Clock(TrainConfig(updates=40))))
    for update in range(1, 21):
        view.observe(UpdateEvent(update, 8 - update / 5, 1.0, 1e-3, tokens=100, epoch=0, seconds=0.5))
        if update % 10 == 0:
            scores = {"valid_loss": 2.5, "bleu": 30.0 + update}
            view.observe(ValidationEvent(update, scores, SAMPLE, True, 60.0, nn.Identity()))
    view.stop()
    return view


def drawn(width: int, height: int = 24, *, skipped: bool = False) -> str:
    place = console(width, height)
    view = observed(place, live=True)
    if skipped:
        view.observe(ProblemEvent("skipped", 21))
    with place.capture() as captured:
        place.print(view)
    return captured.get()


@pytest.mark.parametrize("width", [1, 7, 20, 40, 80, 120, 300])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = drawn(width).splitlines()
    assert all(cell_len(line) <= width for line in lines)
    assert len(lines) == 10


@pytest.mark.parametrize("width", [80, 120])
def test_an_ordinary_terminal_shows_everything(width: int) -> None:
    text = drawn(width, skipped=True)
    for word in ("runs/a", "update 20 of 40", "50%", "loss", "BLEU", "tokens/s", "left", "50.00", "best"):
        assert word in text
    for word in ("source", "reference", "model", "一个房子", "1 updates skipped: loss or gradient was NaN"):
        assert word in text


def test_the_time_of_validations_is_no_part_of_the_speed() -> None:
    assert " 200 " in drawn(80)  # 100 tokens in half a second


def test_only_the_newest_best_validation_is_marked() -> None:
    assert drawn(80).count("best") == 1


def test_without_a_terminal_there_are_plain_lines() -> None:
    place = console(terminal=False)
    observed(place, live=False)
    lines = written(place).splitlines()
    assert lines[0].startswith("update      10  loss 6.900  200 tokens/s  BLEU 40.00  valid loss 2.500")
    assert lines[0].endswith("(best)")
    assert lines[1].startswith("    source      ein Haus ein Haus")
    assert "\x1b" not in written(place)


def test_a_message_stays_above_the_view() -> None:
    place = console()
    view = View(place, live=True)
    view.observe(StartEvent(Path("runs/a"), "rnn", 0, Clock(TrainConfig(updates=40))))
    view.say("a message")
    view.stop()
    text = written(place)
    assert text.index("a message") < text.rindex("update 0 of 40")


def test_before_training_starts_the_view_shows_the_time_and_leaves_nothing() -> None:
    place = console()
    view = View(place, live=True)
    with place.capture() as captured:
        place.print(view)
    view.stop()
    assert captured.get().startswith("preparing, 0 s")
