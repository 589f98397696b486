"""Evaluation: everything about one system, from its scores to the sentences worth a look."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from regard.corpora.catalog import write_builtin
from regard.evaluation.compare import compare
from regard.evaluation.evaluate import evaluate, score_translations
from regard.evaluation.systems import EvaluationSet, read_test
from regard.inspection.quality import QualityWarning
from tests.evaluation.systems import lines, translations, worse, write

REFERENCE = lines(80, longest=14)
HYPOTHESIS = translations(worse(REFERENCE, 0.3, 2))


def test_the_answer_is_what_the_interface_promises_and_valid_json() -> None:
    found = json.loads(
        json.dumps(score_translations(HYPOTHESIS, EvaluationSet([REFERENCE])).to_dict(), allow_nan=False)
    )
    assert all({"score", "signature", "low", "high"} <= set(found[name]) for name in ("bleu", "chrf", "ter"))
    assert found["sentences"] == 80
    assert set(found["by_length"][0]) == {"from", "to", "sentences", "bleu", "low", "high", "small"}


def test_without_a_source_nothing_is_said_of_warnings() -> None:
    assert "warnings" not in score_translations(HYPOTHESIS, EvaluationSet([REFERENCE])).to_dict()


def test_warnings_are_counted_once_a_sentence_and_kind(tmp_path: Path) -> None:
    texts = {
        "hypothesis": ["the small house the small house the small house", "a bird"],
        "reference": ["the small house", "a bird"],
        "source": ["la petite maison", "un oiseau"],
    }
    found = evaluate(**{name: write(tmp_path / name, text) for name, text in texts.items()})
    assert found.to_dict()["warnings"]["repetition"] == 1


def test_the_translators_own_warnings_are_taken_where_there_are_any() -> None:
    warned = [[QualityWarning("length", "short", [])], []]
    translated = translations(["a b", "c"], warned, [0.5, 0.7])
    found = score_translations(translated, EvaluationSet([["a b", "c"]], ["x y", "z"]))
    assert found.to_dict()["warnings"] == {"length": 1}
    assert found.to_dict()["confidence"] == pytest.approx(0.6)


def test_words_are_counted_in_the_training_text_where_it_is_given(tmp_path: Path) -> None:
    train, text = write(tmp_path / "train", ["house"] * 7), write(tmp_path / "text", ["house tree"])
    found = evaluate(hypothesis=text, reference=text, train=train).to_dict()
    assert [(each["from"], each["words"]) for each in found["by_frequency"]] == [(0, 1), (5, 1)]
    assert found["frequencies_from"] == str(train)


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """English and French text of the same sentences."""
    folder = tmp_path_factory.mktemp("texts")
    write_builtin(folder / "files", sizes={"train": 100, "test": 100})
    return folder / "files"


def test_translations_in_the_language_of_the_source_are_announced(texts: Path) -> None:
    french, english = texts / "test.fr", texts / "test.en"
    swapped = evaluate(hypothesis=french, source=french, reference=english)
    assert "read like --source" in swapped.messages[0]
    assert not evaluate(hypothesis=french, source=english, reference=french).messages


def test_swapped_files_of_compare_and_a_reference_equal_to_the_source_are_announced(texts: Path) -> None:
    french, english = texts / "test.fr", texts / "test.en"
    swapped = compare([french, english], source=french, reference=english)
    assert [message.partition(" (")[0] for message in swapped.messages] == [
        f"the translations of {french} read like --source and not like --reference"
    ]
    assert (
        f"is the same text as --source ({english})"
        in evaluate(hypothesis=french, source=english, reference=english).messages[0]
    )


def test_spaces_at_the_ends_of_lines_are_removed_as_sacrebleu_does(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes("a b \t\r\n\u3000c\u3000\n".encode())
    assert read_test(str(path)) == ["a b", "\u3000c"]
