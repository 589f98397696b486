"""`regard.evaluate` and `regard.compare` return typed results that print, convert and save themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

import regard
from regard.errors import ConfigError
from regard.evaluation.evaluate import Evaluation
from regard.evaluation.metrics import corpus_scores
from tests.evaluation.systems import lines, worse, write
from tests.translation.test_translator import make

REFERENCE = lines(40, longest=14)
HYPOTHESIS = worse(REFERENCE, 0.3, 2)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    texts = {"reference": REFERENCE, "one": HYPOTHESIS, "two": worse(REFERENCE, 0.1, 4)}
    return {name: write(tmp_path / name, text) for name, text in texts.items()}


def test_an_evaluation_has_typed_scores_prints_and_saves_itself(files: dict[str, Path], tmp_path: Path) -> None:
    scores = regard.evaluate(hypothesis=files["one"], reference=files["reference"])
    assert isinstance(scores, Evaluation)
    assert scores.bleu == corpus_scores(HYPOTHESIS, REFERENCE, metrics=["bleu"], interval=True)["bleu"]
    assert scores.to_dict()["bleu"]["signature"] == scores.bleu.signature
    assert f"{scores.bleu.score:.2f}" in str(scores)
    assert f"{scores.bleu.score:.2f}" in scores._repr_html_()
    scores.save(tmp_path / "report.html")
    assert "BLEU by sentence length" in (tmp_path / "report.html").read_text()


@pytest.mark.slow
def test_a_comparison_names_systems_by_their_files(files: dict[str, Path]) -> None:
    comparison = regard.compare([files["one"], files["two"]], reference=files["reference"])
    assert list(comparison.scores) == ["one", "two"]
    assert comparison.scores["two"]["bleu"].p_bootstrap is not None
    assert "two against one" in str(comparison)


def test_a_loaded_model_has_its_name_as_path(files: dict[str, Path]) -> None:
    comparison = regard.compare([make(), files["one"]], source=files["reference"], reference=files["reference"])
    assert comparison.to_dict()["paths"] == {"model 1": "model 1", "one": str(files["one"])}


@pytest.mark.parametrize("name", ["x.bogus", "x", "x.pdf"])
def test_only_a_web_page_is_saved(files: dict[str, Path], tmp_path: Path, name: str) -> None:
    scores = regard.evaluate(hypothesis=files["one"], reference=files["reference"])
    with pytest.raises(ConfigError, match=rf"^\S*{name} will be a web page: give it a name that ends in \.html$"):
        scores.save(tmp_path / name)
    assert not (tmp_path / name).exists()
    scores.save(tmp_path / "x.htm")
