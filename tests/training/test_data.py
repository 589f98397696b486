"""Data: several corpora in one run, each as often as its weight says, and nothing held out is trained on."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from regard.config import Config
from regard.errors import ConfigError, DataError
from regard.text.batching import Batch
from regard.text.tokenizer import Tokenizer, Tokenizers, train
from regard.training.data import Data, Files, make_tokenizers, prepare
from regard.training.validation import validation_set
from tests.training.runs import learned, make_config, write_corpus


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    folder = tmp_path_factory.mktemp("weighted")
    os.environ["REGARD_CACHE"] = str(folder / "cache")
    one, two = write_corpus(folder / "one", 300), write_corpus(folder / "two", 120)
    lines = (two / "a.txt").read_text().splitlines()
    (two / "a.txt").write_text("".join(f"under {line}\n" for line in lines))  # none of them in the other corpus
    corpora = [Files(one / "a.txt", one / "b.txt", False), Files(two / "a.txt", two / "b.txt", False, 2.0)]
    tokenizer = learned(one)
    return prepare(corpora, None, make_config("transformer"), Tokenizers(tokenizer, tokenizer), lambda _: None)


def seen(data: Data, epoch: int) -> Counter[int]:
    found = data.epoch(epoch, rank=0, world_size=1)
    return Counter(int(i) for number in range(len(found.plan)) for i in found.make(number).examples)


def test_every_example_occurs_as_often_as_its_weight(data: Data) -> None:
    (first, _), (second, _) = data.shares
    for epoch in (0, 1):
        times = seen(data, epoch)
        assert all(times[i] == 1 for i in range(first))
        assert all(times[i] == 2 for i in range(first, first + second))


def test_the_sizes_of_the_corpora_sum_to_the_training_set(data: Data) -> None:
    assert sum(size for size, _ in data.shares) == len(data.train[0])


def test_nothing_held_out_is_trained_on(data: Data) -> None:
    trained = {tuple(data.train[0].source.ids(i).tolist()) for i in range(len(data.train[0]))}
    assert all(tuple(data.valid.source.ids(i).tolist()) not in trained for i in range(len(data.valid)))


def test_hidden_files_and_folders_of_a_corpus_folder_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "0.en").write_text("a\n")
    (tmp_path / ".DS_Store").write_bytes(b"\0")
    (tmp_path / ".git").mkdir()
    assert Files(tmp_path, None, single=True).paths == [tmp_path / "0.en"]


def test_a_file_that_is_not_utf8_is_refused_before_a_tokenizer_is_announced(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\n" * 99 + b"caf\xe9\n")
    said: list[str] = []
    with pytest.raises(DataError, match=r"a\.txt:100: byte 4 of the line \(0xE9\) is not UTF-8"):
        make_tokenizers([Files(tmp_path / "a.txt", None, single=True)], make_config("gpt").text, said.append)
    assert said == []


# Too long


def test_sentences_longer_than_the_positions_of_a_model_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    corpus, said = write_corpus(tmp_path, 400), list[str]()
    config = make_config("transformer").with_values(["model.positions=learned", "model.max_positions=8"])
    files = [Files(corpus / "a.txt", corpus / "b.txt", False)]
    data = prepare(files, None, config, Tokenizers(learned(corpus), learned(corpus)), said.append)
    assert "longer than 6" in said[0]
    for dataset in (data.train[0], data.valid):
        assert max(dataset.source.lengths.max(), dataset.target.lengths.max()) <= 7


# Nothing left


def prepare_corpus(corpus: Path, valid: Files | None, *values: str, target: str = "b.txt") -> None:
    tokenizer = learned(corpus)
    config = make_config("transformer").with_values(values)
    prepare([Files(corpus / "a.txt", corpus / target, False)], valid, config, Tokenizers(tokenizer, tokenizer), print)


def test_an_empty_training_set_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    with pytest.raises(DataError, match=r"a\.txt has nothing to train on after cleaning: read 60 pairs; left out 60 "):
        prepare_corpus(write_corpus(tmp_path, 60), None, target="a.txt")  # every one is a copy


def test_an_empty_validation_set_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    (tmp_path / "blank.txt").write_text("\n" * 60)
    valid = Files(tmp_path / "blank.txt", tmp_path / "blank.txt", False)
    with pytest.raises(
        DataError, match=r"blank\.txt has nothing to validate with after cleaning: read 60 pairs; left out 60 "
    ):
        prepare_corpus(write_corpus(tmp_path, 60), valid)


def test_without_a_held_out_part_validation_files_are_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    with pytest.raises(DataError, match=r"0 to validate with \(text\.held_out is 0\): .* or --valid files"):
        prepare_corpus(write_corpus(tmp_path, 60), None, "text.held_out=0")


def validated(folder: Path, lines: str) -> list[str]:
    """What is said of a corpus and of a validation text of these lines."""
    corpus = write_corpus(folder, 60)
    (folder / "valid.txt").write_text(lines)
    valid = Files(folder / "valid.txt", folder / "valid.txt", False)
    tokenizer = learned(corpus)
    said: list[str] = []
    files, config = Files(corpus / "a.txt", corpus / "b.txt", False), make_config("transformer")
    prepare([files], valid, config, Tokenizers(tokenizer, tokenizer), said.append)
    return said


def test_validation_pairs_that_are_left_out_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    assert validated(tmp_path, "the house\n\n")[1:] == ["validation: read 2 pairs; left out 1 empty"]


def test_nothing_is_reported_if_all_validation_pairs_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    assert validated(tmp_path, "the house\n")[1:] == []


def test_a_single_text_keeps_repeated_and_long_lines_in_training_and_validation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    text = tmp_path / "text.txt"
    text.write_text("yes\n" * 3 + "a long line " * 300 + "\n\n")
    tokenizer, files, said = (
        train(["yes a long line"], kind="bpe", vocabulary=300),
        Files(text, None, True),
        list[str](),
    )
    config = Config.read({"model": {"family": "gpt", "vocabulary": tokenizer.size}})
    data = prepare([files], files, config, Tokenizers(tokenizer, tokenizer), said.append)
    assert [len(dataset) for dataset in (*data.train, data.valid)] == [4, 4]
    assert said == ["read 5 lines; left out 1 empty", "validation: read 5 lines; left out 1 empty"]


def test_held_out_pairs_are_validated_as_they_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    words = [f"House {number} is RED" for number in range(200)]
    (tmp_path / "a.txt").write_text("".join(f"{line}\n" for line in words))
    (tmp_path / "b.txt").write_text("".join(f"{line[::-1]}\n" for line in words))
    files = Files(tmp_path / "a.txt", tmp_path / "b.txt", single=False, tag="<2xx>")
    tokenizer = train(["house is red"], kind="words", vocabulary=20, lowercase=True, tags=["<2xx>"])
    data = prepare([files], None, make_config("transformer"), Tokenizers(tokenizer, tokenizer), lambda _: None)
    valid_set = validation_set(data, [files], None, print)
    assert len(valid_set.sources) == len(data.valid) > 0
    assert {source.removeprefix("<2xx> ") for source in valid_set.sources} <= set(words)
    assert list(valid_set.references) == [source.removeprefix("<2xx> ")[::-1] for source in valid_set.sources]


# Continuous text

LINES = ["To be, or not to be:", "", "that is", "that is", "  the question.", ""] * 40
TEXT = "\n".join(LINES)


def continuous(folder: Path, kind: str) -> tuple[Data, Tokenizer, list[str]]:
    folder.mkdir()
    (folder / "text.txt").write_text(TEXT)
    tokenizer = train([line + "\n" for line in LINES], kind=kind, vocabulary=300)  # type: ignore[arg-type]
    text = {"tokenizer": kind, "continuous": True, "context_length": 24}
    config = Config.read({"model": {"family": "gpt", "vocabulary": tokenizer.size}, "text": text})
    said: list[str] = []
    files = Files(folder / "text.txt", None, True, continuous=True)
    return prepare([files], None, config, Tokenizers(tokenizer, tokenizer), said.append), tokenizer, said


def batches(data: Data) -> list[Batch]:
    epoch = data.validation()
    return [epoch.make(number) for number in range(len(epoch.plan))]


@pytest.mark.parametrize("kind", ["characters", "bpe"])
def test_the_last_tenth_of_a_continuous_text_is_validation_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    data, tokenizer, _ = continuous(tmp_path / kind, kind)
    rows = [
        pair for batch in batches(data) for pair in zip(batch.examples.tolist(), batch.target_out.tolist(), strict=True)
    ]
    ids = [number for _, row in sorted(rows) for number in row]
    assert tokenizer.decode(ids) == TEXT[len(TEXT) * 9 // 10 :]
    assert len(ids) == sum(batch.target_tokens for batch in batches(data))


def test_a_continuous_text_is_trained_on_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    data, tokenizer, said = continuous(tmp_path / "text", "characters")
    column = data.train[0].text
    assert tokenizer.decode(column.gather(np.arange(len(data.train[0])))) == TEXT[: len(TEXT) * 9 // 10]
    held = len(TEXT) - len(TEXT) * 9 // 10
    assert any(f"held out the last {held} of {len(TEXT):,} characters" in line for line in said)


def test_a_continuous_text_has_no_weight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    data, tokenizer, _ = continuous(tmp_path / "text", "characters")
    files = Files(tmp_path / "text" / "text.txt", None, True, 2.0, continuous=True)
    with pytest.raises(ConfigError, match="weights of --also must be 1"):
        prepare([files], None, data.config, Tokenizers(tokenizer, tokenizer), lambda _: None)
