"""Numbers are the same however they are written, and different when they are not."""

from __future__ import annotations

import pytest

from regard.inspection.numbers import differences


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("It cost 1,000.50 dollars.", "Es kostete 1.000,50 Dollar."),
        ("1,000 men and 12,345,678 ants", "1 000 hommes et 12 345 678 fourmis"),
        ("10 000 people", "10'000 Leute"),
        ("3 men", "drei Männer"),
        ("25 people", "vingt-cinq personnes"),
        ("2,000 dollars", "zweitausend Dollar"),
        ("in 1969", "في ١٩٦٩"),
        ("at 2:30 p.m.", "um 14.30 Uhr"),
        ("at 3 pm", "um 15 Uhr"),
        ("at 10:30", "um 10 Uhr 30"),
        ("on 12/03/2010", "am 12.03.2010"),
        ("in 2000-01", "en 2000-2001"),
        ("up 25%", "en hausse de 25 p. 100"),
        ("about &#91; 4 &#93; things", "etwa 4 Dinge"),
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
        ("25 men", "5 hommes", ["25"], ["5"]),
        ("3.5 km", "35 km", ["3", "5"], ["35"]),
        ("1,050 men", "150 hommes", ["1,050"], ["150"]),
        ("145 dogs", "Hunde", ["145"], []),
        ("dogs", "145 Hunde", [], ["145"]),
        ("at 10:30", "um 10:45 Uhr", ["30"], ["45"]),
        ("on 12/03/2010", "am 12.03.2011", ["2010"], ["2011"]),
    ],
)
def test_a_number_lost_changed_or_added_is_found(source: str, target: str, lost: list[str], added: list[str]) -> None:
    assert differences(source, target) == (lost, added)
