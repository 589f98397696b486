"""Results print, convert and show themselves."""

from __future__ import annotations

from typing import Any

import pytest

from regard.results import Report, Table, counted, format_duration


class Scores(Report):
    """A result of one table."""

    def tables(self) -> list[Table]:
        return [Table(["metric", "score"], [["BLEU", "9.1"], ["<chrF>", "61.2"]], title="two scores")]

    def to_dict(self) -> dict[str, Any]:
        return {"bleu": 9.1, "language": "français"}


def test_a_result_prints_as_aligned_columns() -> None:
    assert str(Scores()).splitlines() == ["two scores", "metric  score", "BLEU      9.1", "<chrF>   61.2"]


def test_a_table_without_column_names_prints_its_rows_alone() -> None:
    assert str(Table(["", ""], [["a", "1"], ["bc", "22"]])) == "a    1\nbc  22"


def test_json_is_the_plain_values_and_keeps_letters_readable() -> None:
    assert Scores().to_json() == '{\n  "bleu": 9.1,\n  "language": "français"\n}'


def test_a_notebook_gets_a_table_with_markup_escaped() -> None:
    shown = Scores()._repr_html_()
    assert shown.startswith("<table><caption>two scores</caption><tr><th>metric</th>")
    assert "<td>&lt;chrF&gt;</td>" in shown


def test_one_thing_has_no_plural() -> None:
    assert (counted(1, "sentence"), counted(2000, "sentence")) == ("1 sentence", "2,000 sentences")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(45, "45 s"), (720, "12 min"), (12000, "3 h 20 min"), (190000, "2 d 4 h")],
)
def test_a_duration_is_formatted_in_two_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
