"""Comparison: sacreBLEU's paired tests, and the sentences in which systems differ."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from regard.evaluation.compare import Comparison, compare_translations, system_names
from regard.evaluation.metrics import Score, paired_tests
from regard.evaluation.systems import EvaluationSet
from tests.evaluation.systems import lines, translations, worse, write

REFERENCE = lines(40)
SYSTEMS = {"one": worse(REFERENCE, 0.3, 2), "two": worse(REFERENCE, 0.2, 3), "three": worse(REFERENCE, 0.31, 4)}


def compared(systems: dict[str, list[str]]) -> Comparison:
    outputs = {name: translations(texts) for name, texts in systems.items()}
    return compare_translations(outputs, EvaluationSet([REFERENCE]))


def sacrebleu(folder: Path, *flags: str) -> str:
    """What the command line says of the systems."""
    reference = write(folder / "r", REFERENCE)
    files = [write(folder / name, texts) for name, texts in SYSTEMS.items()]
    command = [sys.executable, "-m", "sacrebleu", reference, "-i", *files, "-m", "bleu", "chrf", "ter", *flags]
    environment = {**os.environ, "NO_COLOR": "1"}
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True, env=environment).stdout


@pytest.fixture(scope="module")
def scores() -> list[dict[str, Score]]:
    """The scores of every system by metric."""
    names = "bleu", "chrf", "ter"
    columns = [paired_tests(name, list(SYSTEMS.values()), [REFERENCE])[0] for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


@pytest.mark.slow
def test_approximate_randomisation_is_that_of_sacrebleus_command_line(
    tmp_path: Path, scores: list[dict[str, Score]]
) -> None:
    told = json.loads(sacrebleu(tmp_path, "--paired-ar", "-f", "json"))
    for row, each in zip(scores, told, strict=True):
        for name, key in (("bleu", "BLEU"), ("chrf", "chrF2"), ("ter", "TER")):
            assert (row[name].score, row[name].p_randomisation) == (each[key]["score"], each[key]["p_value"])


@pytest.mark.slow
def test_the_paired_bootstrap_is_that_of_sacrebleus_command_line(
    tmp_path: Path, scores: list[dict[str, Score]]
) -> None:
    told = sacrebleu(tmp_path, "--paired-bs", "-f", "text", "-w", "10")  # its JSON fails on what numpy makes of chrF
    intervals = [tuple(map(float, numbers)) for numbers in re.findall(r"([\d.]+) \(([\d.]+) ± ([\d.]+)\)", told)]
    chances = list(map(float, re.findall(r"\(p = ([\d.]+)\)", told)))
    found = [row[name].to_dict() for row in scores for name in ("bleu", "chrf", "ter")]
    assert [score["score"] for score in found] == pytest.approx([score for score, _, _ in intervals], abs=1e-9)
    assert [score["low"] for score in found] == pytest.approx([mean - half for _, mean, half in intervals], abs=1e-9)
    assert [score["high"] for score in found] == pytest.approx([mean + half for _, mean, half in intervals], abs=1e-9)
    assert [round(score["p_bootstrap"], 4) for score in found if "p_bootstrap" in score] == chances


@pytest.fixture(scope="module")
def found() -> dict:
    return compared(SYSTEMS).to_dict()


@pytest.mark.slow
def test_every_system_is_compared_with_the_first(found: dict) -> None:
    assert [(each["baseline"], each["system"]) for each in found["against"]] == [("one", "two"), ("one", "three")]
    assert all(sum(each[kind] for kind in ("better", "equal", "worse")) == 40 for each in found["against"])


@pytest.mark.slow
def test_buckets_of_length_stand_side_by_side(found: dict) -> None:
    assert [(bucket["from"], bucket["to"]) for bucket in found["by_length"]] == [(1, 10), (11, 20), (21, 30)]
    assert [system["name"] for system in found["by_length"][0]["systems"]] == list(SYSTEMS)


@pytest.mark.slow
def test_the_sentences_that_differ_most_come_first_with_both_texts(found: dict) -> None:
    for each in found["against"]:
        gaps = [abs(sentence["gap"]) for sentence in each["different"]]
        assert gaps == sorted(gaps, reverse=True)
        first = each["different"][0]
        assert first["text"] == SYSTEMS[each["system"]][first["line"] - 1]
        assert first["baseline_text"] == SYSTEMS["one"][first["line"] - 1]


@pytest.fixture(scope="module")
def copied() -> Comparison:
    """A system, a copy of it, and the same with the first four translations corrected."""
    one = SYSTEMS["one"]
    return compared({"one": one, "copy": one, "corrected": REFERENCE[:4] + one[4:]})


def test_a_system_differs_in_nothing_from_itself(copied: Comparison) -> None:
    against, _ = copied.to_dict()["against"]
    assert (against["better"], against["worse"], against["different"]) == (0, 0, [])


def test_identical_systems_have_a_p_of_1_and_are_called_identical(copied: Comparison) -> None:
    assert {(score.p_bootstrap, score.p_randomisation) for score in copied.scores["copy"].values()} == {(1.0, 1.0)}
    assert "copy against one: all translations are identical" in str(copied)


def test_fewer_than_five_differing_sentences_are_too_few_for_a_test(copied: Comparison) -> None:
    scores = copied.scores["corrected"].values()
    assert {(score.p_bootstrap, score.p_randomisation) for score in scores} == {(None, None)}
    assert "fewer than 5 sentences differ, too few for a test" in str(copied)
    assert "*" not in str(copied.tables()[0])


def test_five_differing_sentences_are_tested() -> None:
    one = SYSTEMS["one"]
    _, score = paired_tests("bleu", [one, REFERENCE[:5] + one[5:]], [REFERENCE])[0]
    assert score.p_randomisation is not None
    tested = compared({"one": one, "two": REFERENCE[:5] + one[5:]})
    assert "too few for a test" not in str(tested)


def test_an_ensemble_has_the_names_of_all_its_folders(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    a, b, c = (str(tmp_path / name) for name in ("a", "b", "c"))
    assert list(system_names([f"{a}+{b}", f"{c}+{b}", a])) == ["a+b", "c+b", "a"]
