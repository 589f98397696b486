"""The commands that score, as a user types them; in this process, since each start of Python costs seconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from regard.cli.app import app
from regard.cli.tables import show
from regard.errors import ConfigError, DataError, FolderError, RegardError
from regard.evaluation.compare import Comparison
from regard.evaluation.evaluate import Evaluation
from regard.evaluation.evaluate import evaluate as verb
from regard.evaluation.metrics import METRICS, Score, corpus_scores
from regard.evaluation.systems import EvaluationSet
from regard.models import build
from regard.models.folder import save_model
from regard.translation.translator import Translator
from tests.evaluation.systems import lines, worse, write
from tests.training.runs import learned, make_config, write_corpus
from tests.translation import test_writer

REFERENCE = lines(40, longest=14)
HYPOTHESIS = worse(REFERENCE, 0.3, 2)


def run(*words: str | Path) -> Any:
    """A finished command; an error is raised."""
    done = CliRunner().invoke(app, list(map(str, words)), catch_exceptions=True)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def regard(*words: str | Path) -> Any:
    """What a command prints on standard output and standard error."""
    return run(*words).output


def reported(*words: str | Path) -> Any:
    """The JSON object that a command prints on standard output."""
    return json.loads(run(*words).stdout)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("test-set")
    texts = {"source": REFERENCE, "reference": REFERENCE, "one": HYPOTHESIS, "two": worse(REFERENCE, 0.1, 4)}
    return {name: write(folder / name, text) for name, text in texts.items()}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained translator: what it writes is nonsense, and can be scored."""
    import dataclasses

    place = tmp_path_factory.mktemp("models")
    corpus = write_corpus(place / "corpus", 40)
    config, tokenizer = make_config("transformer"), learned(corpus)
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, vocabulary=tokenizer.size))
    torch.manual_seed(1)
    save_model(place / "model", build(config.model), config, {"tokenizer.json": tokenizer.text}, force=False)
    return place / "model"


def test_translations_in_a_file_are_scored_without_a_source(files: dict[str, Path]) -> None:
    answer = reported("evaluate", "--hypothesis", files["one"], "--reference", files["reference"], "--json")
    told = corpus_scores(HYPOTHESIS, REFERENCE, interval=True)
    assert {name: answer[name] for name in told} == {name: score.to_dict() for name, score in told.items()}
    assert answer["sentences"] == 40


def test_several_references_and_every_sentence(files: dict[str, Path]) -> None:
    asked = ("--reference", files["reference"], "--reference", files["two"], "--json", "--sentences")
    answer = reported("evaluate", "--hypothesis", files["one"], *asked)
    assert answer["bleu"]["signature"].startswith("nrefs:2|")
    assert [each["line"] for each in answer["lines"]] == list(range(1, 41))


def test_the_table_says_what_the_json_says(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    asked = ("--hypothesis", files["one"], "--reference", files["reference"], "--source", files["source"])
    printed, answer = regard("evaluate", *asked), reported("evaluate", *asked, "--json")
    for name in METRICS:
        assert f"{answer[name]['score']:.2f}" in printed
    assert "warnings" in printed


@pytest.fixture(scope="module")
def evaluation(files: dict[str, Path]) -> Evaluation:
    result = verb(hypothesis=files["one"], reference=files["reference"])
    assert isinstance(result, Evaluation)
    return result


@pytest.mark.parametrize("width", [40, 48, 60, 80])
def test_every_number_is_printed_whole_however_narrow_the_terminal(
    evaluation: Evaluation, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    show(evaluation, as_json=False)
    printed, answer = capsys.readouterr().out, evaluation.to_dict()
    assert "…" not in printed
    assert {f"{answer[name][key]:.2f}" for name in ("bleu", "ter") for key in ("score", "low")} <= set(printed.split())
    assert {f"{bucket['bleu']:.1f}" for bucket in answer["by_length"]} <= set(printed.split())


@pytest.mark.parametrize("width", [40, 48, 60, 80])
def test_a_comparison_is_printed_whole_however_narrow_the_terminal(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    score = Score(63.58, "", 61.9, 65.1, 0.0123, 0.0456)
    names = ("one", "the-other")
    bleu = [{"name": name, "bleu": 65.7, "low": 61.1, "high": 70.2} for name in names]
    comparison = Comparison(
        scores={name: dict.fromkeys(METRICS, score) for name in names},
        signatures={},
        by_length=[{"from": 11, "to": 20, "sentences": 62, "small": False, "systems": bleu}],
        against=[],
        test=EvaluationSet([["a"]]),
        translations={},
    )
    show(comparison, as_json=False)
    printed = capsys.readouterr().out
    assert "…" not in printed
    assert {"system", "63.58", "61.9", "65.1", "0.0123", "0.0456", "11–20", "(61.1–70.2)"} <= set(printed.split())


@pytest.mark.parametrize(
    ("more", "tokenizer", "note"),
    [([], "zh", "the reference is Chinese: BLEU uses the tokenizer zh\n"), (["--tokenize", "char"], "char", "")],
    ids=["chosen", "given"],
)
@pytest.mark.parametrize("command", ["evaluate", "compare"])
def test_chinese_is_scored_with_its_own_tokenizer_which_is_said(
    tmp_path: Path, command: str, more: list[str], tokenizer: str, note: str
) -> None:
    reference = write(tmp_path / "reference", ["我们喜欢绿色的房子。"])
    hypothesis = write(tmp_path / "hypothesis", ["我们喜欢绿的房子。"])
    system = ["evaluate", "--hypothesis"] if command == "evaluate" else ["compare", reference]
    words = [*system, hypothesis, "--reference", reference, "--json", *more]
    result = CliRunner().invoke(app, list(map(str, words)))
    answer = json.loads(result.stdout)
    scores = answer if command == "evaluate" else answer["systems"][1]
    assert f"tok:{tokenizer}|" in scores["bleu"]["signature"]
    assert result.stderr == note


def test_a_glossary_without_a_term_in_the_source_leaves_the_scores(files: dict[str, Path], tmp_path: Path) -> None:
    glossary = write(tmp_path / "terms.tsv", ["zebra\tzèbre"])
    asked = ("--hypothesis", files["one"], "--reference", files["reference"], "--source", files["source"], "--json")
    result = CliRunner().invoke(app, list(map(str, ("evaluate", *asked, "--glossary", glossary))))
    assert json.loads(result.stdout)["bleu"]["score"] > 0
    assert f"no sentence of {files['source']} has a term of {glossary}" in result.stderr


@pytest.mark.slow
def test_a_folder_translates_and_its_report_opens_traces(files: dict[str, Path], model: Path, tmp_path: Path) -> None:
    few = {name: write(tmp_path / name, REFERENCE[:6]) for name in ("source", "reference")}
    page = tmp_path / "page.html"
    asked = ("--source", few["source"], "--reference", few["reference"], "--beams", "1", "--report", page)
    answer = reported("evaluate", model, *asked, "--json")
    assert answer["sentences"] == 6
    assert page.read_text().count('<details class="trace">') == 6


def test_a_glossary_tells_how_many_terms_come_out(files: dict[str, Path], tmp_path: Path) -> None:
    glossary = tmp_path / "terms.tsv"
    glossary.write_text("Paris\tParis\nriver\tfleuve\n")
    asked = ("--hypothesis", files["two"], "--reference", files["reference"], "--source", files["source"], "--json")
    terms = reported("evaluate", *asked, "--glossary", glossary)["terms"]
    paris, river = (sum(line.split().count(word) for line in REFERENCE) for word in ("Paris", "river"))
    paris += sum(line.endswith("Paris.") for line in REFERENCE)
    river += sum(line.endswith("river.") for line in REFERENCE)
    assert terms["terms"] == paris + river
    assert 0 < terms["accuracy"] <= paris / (paris + river)


@pytest.mark.slow
def test_systems_are_compared_and_named_by_their_files(files: dict[str, Path], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    asked = ("--reference", files["reference"], "--report", page, "--json")
    done = run("compare", files["one"], files["two"], *asked)
    assert f"report: {page}" in done.stderr
    answer = json.loads(done.stdout)
    assert [system["name"] for system in answer["systems"]] == ["one", "two"]
    assert answer["paths"]["one"] == str(files["one"])
    assert "two against one" in page.read_text()
    printed = regard("compare", files["one"], files["two"], "--reference", files["reference"])
    assert "two against one" in printed


@pytest.mark.parametrize(
    "option",
    ["--report x.html", "--glossary SOURCE", "--train SOURCE", "--sentences", "--beams 2", "--set decode.beams=2",
     "--lowercase", "--reference SOURCE"],
)  # fmt: skip
def test_what_is_of_translations_is_refused_of_a_language_model(
    files: dict[str, Path], tmp_path: Path, option: str
) -> None:
    writer = test_writer.make()
    save_model(
        tmp_path / "gpt", writer.models[0], writer.config, {"tokenizer.json": writer.tokenizer.text}, force=False
    )
    with pytest.raises(ConfigError, match=f"{option.split()[0]} is for translations"):
        regard(
            "evaluate",
            tmp_path / "gpt",
            "--source",
            files["source"],
            *option.replace("SOURCE", str(files["source"])).split(),
        )


def test_a_report_is_not_overwritten(files: dict[str, Path], tmp_path: Path) -> None:
    page = write(tmp_path / "page.html", ["mine"])
    with pytest.raises(FolderError, match="already exists"):
        regard("evaluate", "--hypothesis", files["one"], "--reference", files["reference"], "--report", page)
    assert page.read_text() == "mine\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["evaluate", "MODEL", "--reference", "short"], "short has 3 lines"),
        (["evaluate", "MODEL", "--reference", "reference", "--train", "nowhere"], "nowhere"),
        (["evaluate", "MODEL", "--reference", "reference", "--glossary", "nowhere.tsv"], "nowhere.tsv"),
        (["evaluate", "MODEL", "--reference", "reference", "--hypothesis", "one"], "give one of them"),
        (["compare", "MODEL", "one", "--reference", "short"], "short has 3 lines"),
        (["compare", "MODEL", "short", "--reference", "reference"], "short has 3 lines"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_wrong_is_found_before_anything_is_translated(
    files: dict[str, Path], model: Path, words: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files["one"].parent)
    monkeypatch.setattr(Translator, "stream", lambda *_, **__: pytest.fail("it translated"))
    write(Path("short"), REFERENCE[:3])
    with pytest.raises(RegardError, match=message):
        regard(*[str(model) if word == "MODEL" else word for word in words], "--source", "source")


@pytest.mark.parametrize("words", [["evaluate", "MODEL"], ["compare", "MODEL", "one"]], ids=lambda words: words[0])
def test_a_wrong_seed_is_found_before_anything_is_translated(
    files: dict[str, Path], model: Path, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files["one"].parent)
    monkeypatch.setattr(Translator, "stream", lambda *_, **__: pytest.fail("it translated"))
    monkeypatch.setenv("SACREBLEU_SEED", "abc")
    asked = [str(model) if word == "MODEL" else word for word in words]
    with pytest.raises(ConfigError, match="SACREBLEU_SEED"):
        regard(*asked, "--source", "source", "--reference", "reference")


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (["evaluate"], ConfigError, "give a model folder"),
        (["evaluate", "--hypothesis", "one"], ConfigError, "--reference"),
        (["evaluate", "--hypothesis", "one", "--reference", "short"], DataError, "one has 40 lines and short 3"),
        (["compare", "one", "short", "--reference", "reference"], DataError, "short has 3 lines and reference 40"),
        (["evaluate", "--hypothesis", "one", "--reference", "reference", "--train", "."], FolderError, "is a folder"),
        (["evaluate", "--hypothesis", ".", "--reference", "reference"], ConfigError, "is a folder"),
        (["evaluate", "--hypothesis", ".+.", "--reference", "reference"], DataError, "does not exist"),
        (["evaluate", "--hypothesis", "one", "--beams", "2"], ConfigError, "--beams is for decoding"),
        (["compare", "one", "two", "--reference", "reference", "--set", "decode.beams=2"], ConfigError, "--set is for"),
        (["evaluate", "nowhere", "--source", "source", "--reference", "reference"], FolderError, "no folder nowhere"),
        (["compare", "one", "one", "--reference", "reference"], ConfigError, "twice"),
        (["compare", "one", "--reference", "reference"], ConfigError, "two or more"),
        (["compare", "one", "two", "--reference", "reference", "--report", "x.pdf"], ConfigError, "ends in .html"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_request_says_what_would_be_right(
    files: dict[str, Path], words: list[str], error: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files["one"].parent)
    write(Path("short"), REFERENCE[:3])
    with pytest.raises(error, match=message):
        regard(*words)
