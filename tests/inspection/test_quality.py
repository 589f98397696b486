"""Faults give warnings, good translations give none, and confidence is calibrated."""

from __future__ import annotations

import gzip
import json
import math
import random
from collections import Counter
from pathlib import Path

import pytest

from regard.errors import FolderError
from regard.inspection.quality import (
    CALIBRATION_FILE,
    Calibration,
    Expected,
    confidence,
    features,
    find_warnings,
    fit,
    number_differences,
)

LATIN = Expected(script="Latin")
SOURCE = "The old man sits on a bench in the park and reads."
TARGET = "Der alte Mann sitzt auf einer Bank im Park und liest."

FAULTS = [
    ("repetition", SOURCE, "Der alte Mann sitzt auf einer Bank auf einer Bank und liest."),
    ("repetition", SOURCE, "Der Mann Mann Mann sitzt im Park und liest ein Buch."),
    ("repetition", SOURCE, "Der alte Mann lalalalalalalala im Park und liest ein Buch."),
    ("repetition", SOURCE, "老人坐在公园里坐在公园里坐在公园里看书"),
    ("copied", SOURCE, SOURCE),
    ("copied", SOURCE, "The old man sits on a bench im Park und liest."),
    ("script", SOURCE, "Der alte Mann sitzt на скамейке im Park und liest."),
    ("script", SOURCE, "Старик сидит на скамейке в парке и читает."),
    ("script", SOURCE, "Der аlte Mann sitzt auf einer Bank im Park und liest."),  # a Cyrillic а
    ("numbers", "He was born in 1969 in a small town.", "Er wurde 1996 in einer kleinen Stadt geboren."),
    ("numbers", "He was born in 1969 in a small town.", "Er wurde in einer kleinen Stadt geboren."),
    ("tags", "Press <b>start</b> now.", "Drücken Sie jetzt <b>Start."),
    ("tags", "Hello {name}, welcome!", "Hallo, willkommen!"),
    ("tags", "%s files of %(total)d", "%s Dateien"),
    ("tags", "Write to me@example.org or see https://example.org/a", "Siehe https://example.org/a"),
    ("length", SOURCE, "Der."),
    ("length", SOURCE, ""),
    ("length", "He reads.", " ".join(f"Wort{letter}" for letter in "abcdefghijkl")),
]


@pytest.mark.parametrize(("kind", "source", "target"), FAULTS)
def test_a_fault_in_a_translation_gives_a_warning(kind: str, source: str, target: str) -> None:
    found = find_warnings(source, target, expected=LATIN)
    assert kind in [warned.kind for warned in found]
    assert all(warned.message for warned in found)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (SOURCE, TARGET),
        ("No, no, no!", "Nein, nein, nein!"),
        ("We enjoyed ourselves.", "Nous nous sommes amusés."),
        ("Tom Jackson", "Tom Jackson"),
        ("Taxi!", "Taxi!"),
        ("Yes.", "Ja, natürlich."),
        ("The letter Ω is Greek.", "Der Buchstabe Ω ist griechisch."),
        ("50% discount", "50 % de réduction"),
        ("<b>Start</b> {0}", "{0} <b>Start</b>"),
        ("", ""),
        ("😀", "😀"),
    ],
)
def test_a_good_translation_gives_no_warning(source: str, target: str) -> None:
    assert find_warnings(source, target, expected=LATIN) == []


def test_a_name_in_latin_letters_gives_no_warning_in_other_scripts() -> None:
    assert (
        find_warnings("I bought an iPhone today.", "Я сегодня купил iPhone.", expected=Expected(script="Cyrillic"))
        == []
    )


def test_without_learned_lengths_chinese_is_not_too_short() -> None:
    source = "The old man sits on a bench in the park every morning and reads the newspaper to his wife and her sister."
    assert find_warnings(source, "老人每天早上坐在公园的长凳上给妻子和她的妹妹读报纸。") == []


def test_the_expected_script_and_lengths_are_learned_from_pairs() -> None:
    expected = Expected.from_pairs([("x" * length, "я" * 2 * length) for length in range(100, 200)])
    assert expected.script == "Cyrillic"
    assert 1.4 < expected.min_ratio < 1.9 < expected.max_ratio < 2.5


@pytest.mark.parametrize(
    "text", ["a" * 100_000, "9" * 100_000, "a.b@" * 25_000, "12:30 " * 4_000, "<a " * 33_000, "\ud800 \0 \u202e"]
)
def test_any_text_can_be_checked(text: str) -> None:
    assert find_warnings(text, text + " ") is not None
    assert find_warnings(text, "") is not None


# Numbers.


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
        ("21 birds and two cats", "vingt et un oiseaux et 2 chats"),
        ("22 people in twelve cars", "veintidós personas en 12 coches"),
        ("fourteen birds and 2 cats", "14 oiseaux et deux chats"),
        ("17 birds and two cats", "siebzehn Vögel und 2 Katzen"),
        ("two wars of the 21st century", "2 guerres du XXIe siècle"),
        ("1.5 million people", "1 500 000 personnes"),
        ("1.5 million people", "anderthalb Millionen Menschen"),
        ("in 1957", "en mille-neuf-cent-cinquante-sept"),
        ("in the 1960s", "in den Sechzigern"),
        ("10k users", "10 000 utilisateurs"),
        ("3億円", "300 million yen"),
        ("1万2千人", "12,000 people"),
    ],
)
def test_the_same_numbers_do_not_differ(source: str, target: str) -> None:
    assert number_differences(source, target) == ([], [])
    assert number_differences(target, source) == ([], [])


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
    assert number_differences(source, target) == (lost, added)


# Confidence.


def judged(count: int) -> tuple[list[list[float]], list[bool]]:
    """Translations that are good as often as their mean log-probability says."""
    chance = random.Random(3)
    rows = [[-2 * chance.random(), -4 * chance.random(), 3 * chance.random()] for _ in range(count)]
    return rows, [chance.random() < 1 / (1 + math.exp(-(3 + 4 * row[0]))) for row in rows]


def calibrated(rows: list[list[float]], good: list[bool], expected: Expected | None = None) -> Calibration:
    return Calibration(fit(rows, good), expected or Expected())


def test_confidence_is_the_share_of_good_translations() -> None:
    fitted = calibrated(*judged(2000))
    for mean in (-0.2, -0.5, -1.0):
        assert confidence([mean, mean], fitted) == pytest.approx(1 / (1 + math.exp(-(3 + 4 * mean))), abs=0.08)


def test_translations_that_were_good_before_are_likely_to_be_good() -> None:
    steps = [[-0.1 * number] * 3 for number in range(60)]
    found = calibrated(list(map(features, steps)), [number < 21 for number in range(60)])
    assert confidence(steps[0], found) > 0.9 > 0.1 > confidence(steps[-1], found)


def test_a_calibration_is_read_back_from_its_folder(tmp_path: Path) -> None:
    fitted = calibrated(*judged(100), Expected(script="Latin", min_ratio=0.5, max_ratio=2.0))
    assert Calibration.load(tmp_path) is None
    (tmp_path / CALIBRATION_FILE).write_text(fitted.as_text())
    assert Calibration.load(tmp_path) == fitted


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", *(f'{{"weights": {weights}, "expected": {{}}}}'
                            for weights in ("[1]", '"high"'))],
)  # fmt: skip
def test_a_damaged_calibration_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / CALIBRATION_FILE).write_text(text)
    with pytest.raises(FolderError, match="is damaged"):
        Calibration.load(tmp_path)


def test_a_warning_can_be_written_as_json() -> None:
    found = find_warnings(SOURCE, "", expected=LATIN)
    assert json.loads(json.dumps([warned._asdict() for warned in found]))[0]["kind"] == "length"


# False alarms.


def lines(path: Path) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return file.read().split("\n")[:-1]


@pytest.mark.parametrize(
    ("corpus", "source", "target"),
    [
        ("tatoeba_ende/valid", "en", "de"),
        ("tatoeba_ende/valid", "de", "en"),
        ("tatoeba_enfr/valid", "en", "fr"),
        ("multi30k/val", "en", "de"),
        ("multi30k/val", "en", "fr"),
        ("hansards_enfr/valid", "en", "fr"),
    ],
)
@pytest.mark.parametrize("learned", [False, True])
def test_references_hardly_ever_give_a_warning(
    corpora: Path, corpus: str, source: str, target: str, learned: bool
) -> None:
    def pairs(name: str) -> list[tuple[str, str]]:
        return list(zip(lines(corpora / f"{name}.{source}.gz"), lines(corpora / f"{name}.{target}.gz"), strict=True))

    expected = Expected.from_pairs(pairs(f"{Path(corpus).parent}/train")[:2000]) if learned else LATIN
    references = pairs(corpus)[:1000]
    found = [{warned.kind for warned in find_warnings(*pair, expected=expected)} for pair in references]
    kinds = Counter(kind for each in found for kind in each)
    assert all(count <= 0.01 * len(references) for count in kinds.values()), kinds
    assert sum(map(bool, found)) <= 0.03 * len(references)


def nearly_all(good: bool, exceptions: int, count: int = 300) -> Calibration:
    """The calibration of a model whose translations are nearly all good, or nearly all bad."""
    mean, low = (-0.02, -0.2) if good else (-0.6, -2.0)
    rows = [[mean * (0.5 + place / count), low * (0.5 + place / count), 2.0] for place in range(count)]
    return calibrated(rows, [(place < count - exceptions) == good for place in range(count)])


@pytest.mark.parametrize("bad", [0, 1, 6], ids=["0 %", "0.3 %", "2 %"])
def test_a_model_whose_translations_are_nearly_all_good_has_a_confidence(bad: int) -> None:
    found = nearly_all(True, bad)
    usual, unsure = confidence([-0.02] * 7, found), confidence([-0.5] * 7, found)
    assert 1 > usual > 0.9 > 0.5 > unsure


def test_a_model_whose_translations_are_all_bad_has_a_confidence() -> None:
    found = nearly_all(False, 0)
    usual, sure = confidence([-0.6] * 7, found), confidence([-0.02] * 7, found)
    assert usual < 0.1 < 0.5 < sure


def test_a_calibration_without_weights_gives_no_confidence(tmp_path: Path) -> None:
    found = Calibration((), Expected())
    assert confidence([-0.1, -0.2], found) is None
    (tmp_path / "calibration.json").write_text(found.as_text())
    assert Calibration.load(tmp_path) == found
