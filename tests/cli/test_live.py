"""What a run shows: a live view that fits its terminal, and plain lines where there is none."""

from __future__ import annotations

import io
import signal
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console
from torch import nn

from regard.cli.live import View
from regard.config import TrainConfig
from regard.training.clock import Clock
from regard.training.events import ActivityEvent, StartEvent, UpdateEvent, ValidationEvent
from regard.training.journal import Journal

SAMPLE = {"source": "ein Haus " * 30, "reference": "a house " * 30, "model": "一个房子 " * 30}


def console(width: int = 80, height: int = 24, *, terminal: bool = True) -> Console:
    return Console(file=io.StringIO(), width=width, height=height, force_terminal=terminal, color_system=None)


def written(place: Console) -> str:
    assert isinstance(place.file, io.StringIO)
    return place.file.getvalue()


def observed(place: Console, *, live: bool) -> View:
    """A view after 20 of 40 updates and two validations."""
    view, clock = View(place, live=live), Clock(TrainConfig(updates=40))
    view.observe(StartEvent(Path("runs/a"), "rnn", 0, clock))
    for update in range(1, 21):
        event = UpdateEvent(update, 8 - update / 5, 1.0, 1e-3, tokens=100, epoch=0, seconds=0.5)
        clock.observe(event)
        view.observe(event)
        if update % 10 == 0:
            scores = {"valid_loss": 2.5, "bleu": 30.0 + update}
            view.observe(ValidationEvent(update, scores, SAMPLE, True, 60.0, nn.Identity()))
    view.stop()
    return view


def drawn(width: int, height: int = 24) -> str:
    """The last state of the view."""
    place = console(width, height)
    view = observed(place, live=True)
    view._statistics.activity = "training"
    with place.capture() as captured:
        place.print(view)
    return captured.get()


@pytest.mark.parametrize("width", [1, 7, 20, 40, 80, 120, 300])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = drawn(width).splitlines()
    assert all(cell_len(line) <= width for line in lines)
    assert len(lines) == 9


def test_a_text_does_not_control_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SAMPLE, "source", "\x1b[31mein Haus [red]x[/]")
    assert "\\u001b[31mein Haus [red]x[/]" in drawn(80)
    place = console()
    View(place, live=False).say("\x1b[31m[red]x[/]")
    assert written(place) == "\\u001b[31m[red]x[/]\n"


@pytest.mark.parametrize("width", [80, 120])
def test_an_ordinary_terminal_shows_everything(width: int) -> None:
    text = drawn(width)
    for word in ("runs/a", "update 20 of 40", "50%", "loss", "BLEU", "tokens/s", "left", "50.00"):
        assert word in text
    for word in ("source", "reference", "model", "一个房子"):
        assert word in text


def test_the_time_of_validations_is_no_part_of_the_speed() -> None:
    assert "200 tokens/s" in drawn(80)  # 100 tokens in half a second


def test_a_chart_has_its_name_and_its_first_and_last_value() -> None:
    lines = drawn(80).splitlines()
    assert "loss         7.80 █▅▁ 4.00" in lines
    assert "BLEU        40.00 ▁█ 50.00" in lines


def test_a_validation_loss_that_is_not_finite_is_left_out_of_its_chart() -> None:
    place = console()
    view = View(place, live=True)
    view.observe(StartEvent(Path("runs/a"), "rnn", 0, Clock(TrainConfig(updates=40))))
    for update, loss in ((1, 3.0), (2, float("nan")), (3, 2.0)):
        view.observe(ValidationEvent(update, {"valid_loss": loss}, {}, True, 1.0, nn.Identity()))
    view.stop()
    assert "valid loss   3.00 █▁ 2.00" in written(place)


def test_messages_are_wrapped_between_words() -> None:
    place = console(20)
    View(place, live=False).say("the tokenizer is being trained")
    assert [line.rstrip() for line in written(place).splitlines()] == ["the tokenizer is", "being trained"]


def test_a_resumed_run_shows_its_history(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl", 0)
    for update, loss in ((1, 9.0), (10, 6.0), (20, 5.0)):
        journal.write("update", update, loss=loss)
    journal.write("validation", 10, valid_loss=4.0, bleu=12.0)
    place = console()
    view = View(place, live=True)
    view.observe(StartEvent(tmp_path, "rnn", 10, Clock(TrainConfig(updates=40))))
    view.stop()
    lines = [" ".join(line.split()) for line in written(place).splitlines()]
    assert "loss 9.00 █▁ 6.00" in lines
    assert "BLEU 12.00 ▁ 12.00" in lines


def test_the_view_names_the_current_activity() -> None:
    place = console()
    view = View(place, live=True)
    view.observe(StartEvent(Path("runs/a"), "rnn", 0, Clock(TrainConfig(updates=40))))

    def shown() -> str:
        other = console()
        other.print(view)
        return written(other).splitlines()[1].split(",")[0]

    activities = [shown()]
    for activity in ("saving", "validating", "scoring"):
        view.observe(ActivityEvent(0, activity))
        activities.append(shown())
    view.receive(signal.SIGINT)
    activities.append(shown())
    view.stop()
    assert activities == ["training", "saving", "validating", "scoring", "stopping"]


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
