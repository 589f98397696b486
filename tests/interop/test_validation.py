"""Validation pairs give an imported model confidence, scores in its card, and sentences to compare precisions on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import regard
from regard.corpora.builtin.corpus import sentences
from regard.errors import ConfigError
from regard.evaluation.importing import import_model
from regard.folders import verify
from tests.interop.published import publish

PAIRS = list(sentences(60, seed=5))
TEXT = "The old house is red."


@pytest.fixture(scope="module")
def marian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published") / "opus"
    publish("marian", 0, folder)
    return folder


def write_pairs(folder: Path, *, count: int = len(PAIRS)) -> tuple[Path, Path]:
    sides = folder / "valid.en", folder / "valid.fr"
    for number, side in enumerate(sides):
        side.write_text("".join(f"{pair[number]}\n" for pair in PAIRS[:count]))
    return sides


def test_validation_pairs_give_an_imported_model_confidence_and_scores(marian: Path, tmp_path: Path) -> None:
    folder = tmp_path / "ours"
    imported = import_model(marian, folder, valid=write_pairs(tmp_path), sentences=2)
    assert imported.confidence == "calibrated on 60 validation sentences"
    assert regard.load(folder).translate([TEXT])[0].confidence is not None
    assert f"| BLEU | {imported.scores['bleu']['score']:.4g} | `nrefs:1" in (folder / "card.md").read_text()
    assert {"validation.jsonl", "calibration.json"} <= set(verify(folder))


def test_both_models_are_compared_on_the_validation_pairs(marian: Path, tmp_path: Path) -> None:
    imported = import_model(marian, tmp_path / "ours", valid=write_pairs(tmp_path, count=3), sentences=20)
    assert imported.verification.sentences == 3
    assert imported.confidence.startswith("null")


def test_an_import_without_validation_pairs_says_what_confidence_needs(marian: Path, tmp_path: Path) -> None:
    imported = import_model(marian, tmp_path / "ours", sentences=0)
    assert "--valid SOURCE TARGET" in str(imported)
    assert regard.load(tmp_path / "ours").translate([TEXT])[0].confidence is None


def test_a_model_of_many_languages_is_validated_in_one_pair_of_them(tmp_path: Path) -> None:
    publish("m2m100", 0, tmp_path / "theirs")
    folder = tmp_path / "ours"
    import_model(tmp_path / "theirs", folder, valid=write_pairs(tmp_path), tag="__en__", to="__fr__", sentences=0)
    row = json.loads((folder / "validation.jsonl").read_text().splitlines()[0])
    assert row["source"] == f"__en__ {PAIRS[0].source}"
    model = regard.load(folder)
    found = model.translate([TEXT], tag="__en__", trace=True)[0].trace.target.ids[0]
    assert found == model.tokenizers.target.token_id("__fr__")


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("bert", {"to": "fr"}, "--valid and --to are for models that translate"),
        ("m2m100", {"to": "__ff__"}, "has no language __ff__"),
        ("m2m100", {"tag": "__en__"}, "give --valid SOURCE TARGET too"),
    ],
)
def test_options_of_other_models_are_refused(kind: str, options: dict[str, str], words: str, tmp_path: Path) -> None:
    publish(kind, 0, tmp_path / "theirs")
    with pytest.raises(ConfigError, match=words):
        import_model(tmp_path / "theirs", tmp_path / "ours", **options)  # type: ignore[arg-type]
    assert not (tmp_path / "ours").exists()
