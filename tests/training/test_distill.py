"""Distillation: a teacher translates the source once, part by part, and a student is trained on its translations."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.documents.formats import read_pairs
from regard.training import distill as module
from regard.translation.translator import Result
from tests.training.runs import write_corpus
from tests.training.test_verb import CONFIG as SMALL
from tests.training.test_verb import train

PART = 150
CONFIG = SMALL | {"text.tokenizer": "words", "decode.min_length": 2}  # models of few updates that write words


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("distill")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(folder / "cache"))
        patch.setattr(module, "PART_LINES", PART)
        train(write_corpus(folder), folder / "teacher", updates=5, config=CONFIG)
        yield folder


def distill(corpus: Path, out: Path, target: Path | None = None, **more: Any) -> regard.Run:
    options: dict[str, Any] = {"updates": 5, "config": CONFIG, "device": "cpu", "threads": 1, "say": lambda _: None}
    return regard.distill(corpus / "teacher", corpus / "a.txt", target, out=out, **options | more)


@pytest.fixture(scope="module")
def student(corpus: Path) -> regard.Run:
    return distill(corpus, corpus / "student", recipe="fast", precision="fp32")


def texts(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.glob(f"{module.TEXTS}*/*")}


@pytest.mark.slow
def test_the_teacher_translates_every_line_once(student: regard.Run, corpus: Path) -> None:
    pairs = list(read_pairs(*student.folder.glob(f"{module.TEXTS}*")))
    assert [pair.source for pair in pairs] == (corpus / "a.txt").read_text().splitlines()
    teacher = regard.load(corpus / "teacher")
    assert isinstance(teacher, regard.Translator)
    assert pairs[PART].target == teacher.translate([pairs[PART].source])[0].text


@pytest.mark.slow
def test_the_student_is_trained_with_the_recipe_and_loads(student: regard.Run) -> None:
    assert student.finished
    assert student.model.config.decode.beams == 2  # set above: a value of the call comes before the recipe
    assert student.model.config.model.positions == "rotary"


@pytest.mark.slow
def test_the_student_learns_references_too(corpus: Path, tmp_path: Path) -> None:
    said: list[str] = []
    assert distill(corpus, tmp_path / "run", corpus / "b.txt", precision="fp32", beams=2, say=said.append).finished
    translations, references = (line for line in said if line.startswith("read "))
    assert translations.split()[1] == references.split()[1] == str(len((corpus / "b.txt").read_text().splitlines()))


@pytest.mark.slow
def test_more_text_is_translated_after_the_source_and_needs_no_references(corpus: Path, tmp_path: Path) -> None:
    more = tmp_path / "more.txt"
    more.write_text("one old house\nno house\n")
    said: list[str] = []
    run = distill(corpus, tmp_path / "run", corpus / "b.txt", also=more, precision="fp32", say=said.append)
    pairs = list(read_pairs(*run.folder.glob(f"{module.TEXTS}*")))
    assert [pair.source for pair in pairs] == [
        *(corpus / "a.txt").read_text().splitlines(),
        "one old house",
        "no house",
    ]
    assert sum(line.startswith("read ") for line in said) == 2  # the translations, and the references of the source


@pytest.mark.slow
def test_an_interrupted_distillation_continues_where_it_stopped(
    student: regard.Run, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, calls = module.folders.write_file, []

    def interrupted(path: Path, *args: Any, **options: Any) -> None:
        if path.suffix == ".jsonl" and path.parent.name.startswith("distilled-"):
            calls.append(path)
            if len(calls) == 2:
                raise KeyboardInterrupt
        write(path, *args, **options)

    monkeypatch.setattr(module.folders, "write_file", interrupted)
    stopped = distill(corpus, tmp_path / "run", precision="fp32")
    assert not stopped.finished
    assert len(texts(tmp_path / "run")) == 1
    assert distill(corpus, tmp_path / "run", precision="fp32").finished
    assert len(calls) == 1 + 1 + 2  # one part, the interrupted one, and two more
    assert texts(tmp_path / "run") == texts(student.folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changed", [{"beams": 4}, {"precision": "bf16"}, {"target": "b.txt"}, {"also": "b.txt"}], ids=str
)
def test_a_distillation_with_other_options_is_refused(
    changed: dict[str, Any], student: regard.Run, corpus: Path
) -> None:
    files = {name: corpus / changed[name] for name in ("target", "also") if name in changed}
    options = {"precision": "fp32"} | changed | files
    with pytest.raises(regard.FolderError, match="holds another run, or translations of another teacher or other text"):
        distill(corpus, student.folder, **options)


@pytest.mark.slow
def test_fresh_discards_the_translations_and_the_run(student: regard.Run, corpus: Path, tmp_path: Path) -> None:
    shutil.copytree(student.folder, tmp_path / "run")
    assert distill(corpus, tmp_path / "run", precision="fp32", beams=1, fresh=True).finished
    assert len(list((tmp_path / "run").glob(f"{module.TEXTS}*"))) == 1


def test_a_blank_source_is_refused_before_anything_is_written(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "blank").write_text("\n \n")
    with pytest.raises(regard.DataError, match="blank has no text to translate"):
        regard.distill(corpus / "teacher", tmp_path / "blank", out=tmp_path / "run", config=CONFIG)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_the_folder_of_another_run_is_refused(corpus: Path, tmp_path: Path) -> None:
    shutil.copytree(corpus / "teacher", tmp_path / "other")
    with pytest.raises(regard.FolderError, match="holds another run"):
        distill(corpus, tmp_path / "other")


@pytest.mark.slow
def test_a_student_does_not_replace_its_teacher(student: regard.Run, corpus: Path) -> None:
    with pytest.raises(regard.FolderError, match="holds the model that is read"):
        distill(corpus, corpus / "teacher", fresh=True)
    assert (corpus / "teacher" / "config.json").exists()


def test_the_hypothesis_closest_to_the_reference_is_chosen() -> None:
    result = Result("an old house", alternatives=[Result("the old house"), Result("the old mouse")])
    assert module._best(result, "the old house.") == "the old house"
    assert module._best(result) == "an old house"


def test_files_of_different_length_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "a.en").write_text("one\ntwo\n")
    (tmp_path / "a.fr").write_text("un\n")
    with pytest.raises(regard.DataError, match=r"differ in lines \(2 and 1\)"):
        regard.distill(tmp_path / "teacher", tmp_path / "a.en", tmp_path / "a.fr", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_teacher_that_does_not_translate_is_refused(corpus: Path, tmp_path: Path) -> None:
    config = {**CONFIG, "model.family": "gpt"}
    regard.train(corpus / "a.txt", out=tmp_path / "gpt", updates=2, config=config, say=lambda _: None)
    with pytest.raises(regard.FolderError, match="holds a gpt, which does not translate"):
        regard.distill(tmp_path / "gpt", corpus / "a.txt", out=tmp_path / "run", say=lambda _: None)
    assert not (tmp_path / "run").exists()
