"""Numbers are the same however they are written, and different when they are not."""

from __future__ import annotations

import pytest

from regard.inspection.numbers import differences, figures, spelled


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("It cost 1,000.50 dollars.", "Es kostete 1.000,50 Dollar."),
        ("1,000 men and 12,345,678 ants", "1 000 hommes et 12 345 678 fourmis"),
        ("10 000 people", "10'000 Leute"),
        ("3.5 km", "3,50 km"),
        ("three men", "3 Männer"),
        ("3 men", "drei Männer"),
        ("25 people", "vingt-cinq personnes"),
        ("forty-five hours", "45 Stunden"),
        ("2,000 dollars", "zweitausend Dollar"),
        ("his 88th birthday", "seinen achtundachtzigsten Geburtstag"),
        ("80 days", "quatre-vingts jours"),
        ("20 people", "二十人"),
        ("in 1969", "في ١٩٦٩"),
        ("at 2:30 p.m.", "um 14.30 Uhr"),
        ("at 2:30", "um halb drei"),
        ("at 3 pm", "um 15 Uhr"),
        ("at 8:00", "um acht Uhr"),
        ("at a quarter past seven", "um 19:15 Uhr"),
        ("at 10:30", "um 10 Uhr 30"),
        ("on 12/03/2010", "am 12.03.2010"),
        ("on March 12, 2010", "le 12.3.2010"),
        ("in 2000-01", "en 2000-2001"),
        ("up 25%", "en hausse de 25 p. 100"),
        ("about &#91; 4 &#93; things", "etwa 4 Dinge"),
        ("2 moms", "dvě maminky"),  # a small number in a language that is not known
        ("an ATV", "un 4x4"),
        ("page 5", "5. Seite"),
    ],
)
def test_the_same_numbers_do_not_differ(source: str, target: str) -> None:
    assert differences(source, target) == ([], [])
    assert differences(target, source) == ([], [])


@pytest.mark.parametrize(
    ("source", "target", "lost", "added"),
    [
        ("born in 1969", "né en 1996", ["1969"], ["1996"]),
        ("17 men", "71 hommes", ["17"], ["71"]),
        ("5 men", "6 Männer", ["5"], ["6"]),
        ("3.5 km", "35 km", ["3.5"], ["35"]),
        ("1,000 men", "100 hommes", ["1,000"], ["100"]),
        ("45 dogs", "Hunde", ["45"], []),
        ("dogs", "45 Hunde", [], ["45"]),
        ("three men", "5 Männer", [], ["5"]),
        ("2 men", "drei Männer", ["2"], []),
        ("5 pears and 3 plums", "3 Birnen und 3 Pflaumen", ["5"], []),
        ("at 10:30", "um 11:30 Uhr", ["10:30"], ["11:30 Uhr"]),
        ("on 12/03/2010", "am 12.03.2011", ["2010"], ["2011"]),
    ],
)
def test_a_number_lost_changed_or_added_is_found(source: str, target: str, lost: list[str], added: list[str]) -> None:
    found = differences(source, target)
    assert [figure.text for figure in found.lost] == lost
    assert [figure.text for figure in found.added] == added


def test_figures_stand_where_the_text_has_them() -> None:
    text = "On 12.03.2010 at 10:30, 1,000 men"
    assert [(figure.text, text[figure.start :].startswith(figure.text)) for figure in figures(text)] == [
        ("12", True), ("03", True), ("2010", True), ("10:30", True), ("1,000", True),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("two thousand three hundred and five", 2305),
        ("dreihundertfünfundvierzig", 345),
        ("soixante-dix-sept", 77),
        ("quatre-vingt-dix-neuf", 99),
        ("三千二百", 3200),
    ],
)
def test_words_that_say_one_number_together_are_read_together(text: str, value: int) -> None:
    assert value in spelled(text)
