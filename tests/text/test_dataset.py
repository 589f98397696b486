"""Datasets: prepared once, whole or not at all, the same with any number of workers; held-out parts leak nothing."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.config import CLEANING
from regard.errors import DataError, FolderError, InputError, RunError
from regard.text import cleaning, preparation
from regard.text.cleaning import Cleaning
from regard.text.dataset import Column, Dataset, group_by_text, join, split
from regard.text.preparation import identity_of, prepare
from regard.text.tokenizer import END, Tokenizer, train

Examples = list[tuple[str, ...]]
RULES = Cleaning(rules=CLEANING, max_length=50, max_length_ratio=4.0)
UNCLEANED = Cleaning(rules=("empty",), max_length=50, max_length_ratio=4.0)
PAIRS: Examples = [(f"the house number {n} is red", f"la maison numéro {n} est rouge") for n in range(200)]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train((text for pair in PAIRS for text in pair), kind="bpe", vocabulary=400)


@pytest.fixture
def make(tokenizer: Tokenizer, tmp_path: Path) -> Callable[..., Path]:
    def made(examples: Examples = PAIRS, **options: object) -> Path:
        name = hashlib.sha256(repr(examples).encode()).hexdigest()
        sides = [tokenizer] * len(examples[0]) if examples else [tokenizer] * 2
        given = {"identity": name, "tokenizers": sides, "cleaning": RULES, "workers": 1} | options
        return prepare(tmp_path / "cache", lambda: examples, **given)  # type: ignore[arg-type]

    return made


def test_pairs_can_be_decoded(make: Callable[..., Path], tokenizer: Tokenizer) -> None:
    store = Dataset.open(make())
    assert [tuple(tokenizer.decode(side) for side in store.pair(n)) for n in range(len(store))] == PAIRS


@pytest.mark.parametrize("harm", [Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-1] + b"?")])
@pytest.mark.parametrize(
    "name", ["source.ids.bin", "source.offsets.bin", "digests.bin", "corpus.json", "checksums.json"]
)
def test_a_damaged_corpus_is_prepared_again_when_it_is_verified(
    make: Callable[..., Path], name: str, harm: Callable[[Path], object]
) -> None:
    folder = make()
    before = (folder / name).read_bytes()
    harm(folder / name)
    said: list[str] = []
    assert make(damaged=said.append) == folder
    assert said == [f"{folder} was damaged and is prepared again"]
    assert (folder / name).read_bytes() == before
    make(damaged=said.append)
    assert len(said) == 1


def test_every_text_ends_with_the_end_token(make: Callable[..., Path]) -> None:
    store = Dataset.open(make())
    assert all(side[-1] == END for n in range(len(store)) for side in store.pair(n))


def test_lengths_are_those_of_the_ids(make: Callable[..., Path]) -> None:
    store = Dataset.open(make())
    assert store.target.lengths.tolist() == [len(store.pair(n)[1]) for n in range(len(store))]


@pytest.mark.parametrize(("size", "kind"), [(65536, np.uint16), (65537, np.uint32)])
def test_ids_are_as_small_as_the_vocabulary_allows(
    make: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, size: int, kind: type
) -> None:
    monkeypatch.setattr(Tokenizer, "size", size)
    assert Dataset.open(make()).source.arrays[0].dtype == kind


def test_single_texts_make_a_corpus_of_one_column(make: Callable[..., Path], tokenizer: Tokenizer) -> None:
    store = Dataset.open(make([("one red house",), ("two red houses",)]))
    assert [tokenizer.decode(store.text.ids(n)) for n in range(2)] == ["one red house", "two red houses"]


def test_an_empty_corpus_is_a_corpus(make: Callable[..., Path]) -> None:
    assert len(Dataset.open(make([]))) == 0


def test_the_record_counts_what_was_left_out(make: Callable[..., Path]) -> None:
    store = Dataset.open(make([*PAIRS[:4], PAIRS[0], ("", "rien"), ("red " * 60, "rouge"), ("a", "la maison " * 15)]))
    assert store.record["report"]["left_out"] == {"empty": 1, "long": 1, "ratio": 1, "duplicate": 1}


def test_only_kept_pairs_are_stored(make: Callable[..., Path], tokenizer: Tokenizer) -> None:
    store = Dataset.open(make([PAIRS[0], ("", "rien"), PAIRS[0], PAIRS[1], ("red " * 40, "a"), PAIRS[2]]))
    assert [tokenizer.decode(store.pair(n)[1]) for n in range(len(store))] == [target for _, target in PAIRS[:3]]


def test_a_corpus_whose_script_changes_after_the_first_chunk_is_kept(
    make: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaning, "CHUNK_SIZE", 30)
    cyrillic = [(f"house {n}", f"кућа {n}") for n in range(40)]
    assert len(Dataset.open(make(PAIRS[:40] + cyrillic))) == 80


def test_the_same_corpus_is_not_read_twice(make: Callable[..., Path], tokenizer: Tokenizer, tmp_path: Path) -> None:
    folder = make()

    def read() -> Iterator[tuple[str, str]]:
        raise AssertionError("read again")

    name = hashlib.sha256(repr(PAIRS).encode()).hexdigest()
    again = prepare(tmp_path / "cache", read, identity=name, tokenizers=[tokenizer] * 2, cleaning=RULES)
    assert again == folder


def test_other_text_tokenizers_or_rules_are_another_corpus(make: Callable[..., Path]) -> None:
    other = train(["quite another text"] * 3, kind="bpe", vocabulary=300)
    folders = {
        make(),
        make(PAIRS[1:]),
        make(tokenizers=[other, other]),
        make(cleaning=UNCLEANED),
        make(bpe_dropout=0.1, variants=1),
    }
    assert len(folders) == 5


def test_the_identity_of_files_depends_on_their_content(tmp_path: Path) -> None:
    for name, text in (("a", "one"), ("b", "one"), ("c", "two")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert identity_of([tmp_path / "a"]) == identity_of([tmp_path / "b"]) != identity_of([tmp_path / "c"])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing\.en cannot be read"):
        identity_of([tmp_path / "nothing.en"])


def test_a_failed_preparation_leaves_nothing_behind(make: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="lone surrogate"):
        make(
            [*PAIRS, ("half \ud83d", "moitié")],
            cleaning=UNCLEANED,
        )
    assert [path for path in (tmp_path / "cache").iterdir() if path.is_dir()] == []


def test_files_of_a_killed_preparation_are_not_used(make: Callable[..., Path], tmp_path: Path) -> None:
    folder = make()
    partial = folder.with_name(f".{folder.name}.partial")
    folder.rename(partial)
    (partial / "source.7.ids.bin").touch()
    assert not (make() / "source.7.ids.bin").exists()


def test_a_folder_of_another_kind_is_named(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match=r"corpus.json cannot be read"):
        Dataset.open(tmp_path)


def test_damaged_ids_are_named(make: Callable[..., Path]) -> None:
    folder = make()
    (folder / "target.ids.bin").write_bytes(bytes(40))
    with pytest.raises(FolderError, match=r"target\.ids\.bin is damaged: it has 40 bytes"):
        Dataset.open(folder)


# Several processes


@pytest.mark.slow
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_ids_do_not_depend_on_the_number_of_workers(
    make: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, dropout: float
) -> None:
    monkeypatch.setattr(preparation, "CHUNKS_BEFORE_WORKERS", 1)
    monkeypatch.setattr(cleaning, "CHUNK_SIZE", 16)
    files = []
    for workers in (1, 2):
        folder = make([*PAIRS, *PAIRS[:20]], workers=workers, bpe_dropout=dropout, variants=2, seed=3)
        files.append({path.name: path.read_bytes() for path in folder.iterdir()})
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
    assert files[0] == files[1]


@pytest.mark.slow
def test_a_script_without_a_main_guard_may_prepare(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from pathlib import Path\n"
        "from regard.text import cleaning, preparation\n"
        "from regard.text.tokenizer import train\n"
        "print('begun')\n"
        "preparation.CHUNKS_BEFORE_WORKERS, cleaning.CHUNK_SIZE = 0, 8\n"
        "tokenizer = train(['a b c'], kind='bpe', vocabulary=300)\n"
        "rules = cleaning.Cleaning(rules=(), max_length=9, max_length_ratio=9.0)\n"
        "given = {'identity': 'x', 'tokenizers': [tokenizer], 'cleaning': rules, 'workers': 2}\n"
        "preparation.prepare(Path('cache'), lambda: [('a',)] * 20, **given)\n",
        encoding="utf-8",
    )
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "begun\n"


def die(number: int, columns: object) -> None:
    os._exit(1)


@pytest.fixture
def two_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "CHUNKS_BEFORE_WORKERS", 0)
    monkeypatch.setattr(cleaning, "CHUNK_SIZE", 16)


@pytest.mark.usefixtures("two_workers")
def test_an_error_in_a_worker_keeps_its_type(make: Callable[..., Path]) -> None:
    with pytest.raises(InputError, match="lone surrogate"):
        make([*PAIRS[:20], ("half \ud83d", "moitié")], cleaning=UNCLEANED, workers=2)


@pytest.mark.usefixtures("two_workers")
def test_a_worker_that_dies_is_noticed(make: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "_encode_chunk", die)
    with pytest.raises(RunError, match="a process that prepares the corpus has died"):
        make(workers=2)


# Dropout


def test_variants_have_the_same_text_in_other_tokens(make: Callable[..., Path], tokenizer: Tokenizer) -> None:
    folder = make(bpe_dropout=0.4, variants=2)
    plain, one, two = (Dataset.open(folder, variant=variant) for variant in range(3))
    texts = [[tokenizer.decode(store.pair(n)[0]) for n in range(len(store))] for store in (plain, one, two)]
    assert texts[0] == texts[1] == texts[2]
    assert len({int(store.source.lengths.sum()) for store in (plain, one, two)}) == 3


def test_one_word_has_several_segmentations(make: Callable[..., Path]) -> None:
    store = Dataset.open(make(bpe_dropout=0.4, variants=1), variant=1)
    assert len({int(length) for length in store.source.lengths[100:]}) > 2


def test_the_seed_decides_the_variants(make: Callable[..., Path]) -> None:
    one, two = (Dataset.open(make(bpe_dropout=0.4, variants=1, seed=seed), variant=1) for seed in (1, 2))
    assert one.source.lengths.tolist() != two.source.lengths.tolist()


def test_no_variant_is_longer_than_allowed(make: Callable[..., Path]) -> None:
    longest = int(Dataset.open(make()).target.lengths.max()) - 1
    rules = Cleaning(rules=("long",), max_length=longest, max_length_ratio=4.0)
    store = Dataset.open(make(bpe_dropout=0.9, variants=1, cleaning=rules), variant=1)
    assert len(store) == len(PAIRS)
    assert store.target.lengths.max() <= longest + 1


# Parts of datasets, and joined datasets


def test_examples_are_taken_in_the_given_order(make: Callable[..., Path], tokenizer: Tokenizer) -> None:
    store = Dataset.open(make()).take(np.array([5, 2]))
    assert [tokenizer.decode(store.pair(n)[0]) for n in range(2)] == [PAIRS[5][0], PAIRS[2][0]]


def test_joined_datasets_are_numbered_consecutively(make: Callable[..., Path], tokenizer: Tokenizer) -> None:
    store = join([Dataset.open(make(PAIRS[:3])), Dataset.open(make(PAIRS[10:12]))])
    assert [tokenizer.decode(store.pair(n)[1]) for n in range(5)] == [t for _, t in [*PAIRS[:3], *PAIRS[10:12]]]


def test_ids_of_joined_corpora_are_gathered_from_both(make: Callable[..., Path]) -> None:
    store = join([Dataset.open(make(PAIRS[:3])), Dataset.open(make(PAIRS[10:12]))])
    wanted = np.array([4, 0, 3])
    assert store.source.gather(wanted).tolist() == np.concatenate([store.source.ids(n) for n in wanted]).tolist()


def in_memory(digests: list[tuple[int, ...]]) -> Dataset:
    lengths = np.arange(len(digests), dtype=np.int32)
    column = Column.of(np.zeros(0, np.uint16), lengths)
    return Dataset({"source": column, "target": column}, np.array(digests, np.uint64).reshape(-1, 2), {})


def parts(digests: list[tuple[int, int]], size: int) -> tuple[Dataset, Dataset]:
    dataset = in_memory(digests)
    kept, held_out = split(dataset, size)
    return dataset.take(kept), dataset.take(held_out)


pairs_of_sentences = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), min_size=100, max_size=200)


@given(pairs_of_sentences)
@settings(max_examples=40)
def test_a_held_out_part_shares_no_sentence(digests: list[tuple[int, int]]) -> None:
    kept, held = parts(digests, 2000)
    for side in range(2):
        assert not set(kept.digests[:, side].tolist()) & set(held.digests[:, side].tolist())


@given(pairs_of_sentences)
@settings(max_examples=40)
def test_a_split_loses_nothing(digests: list[tuple[int, int]]) -> None:
    kept, held = parts(digests, 2000)
    assert sorted([*kept.source.lengths.tolist(), *held.source.lengths.tolist()]) == list(range(len(digests)))


def test_the_held_out_part_has_the_requested_size() -> None:
    digests = [(n, n + 1_000_000) for n in range(1000)]
    assert len(parts(digests, 15)[1]) == 15
    assert len(parts(digests, 2000)[1]) == 20


def test_what_is_held_out_does_not_depend_on_the_order_of_lines() -> None:
    digests = [(n, n + 1_000_000) for n in range(1000)]
    held_out = [parts(lines, 10)[1].digests[:, 0].tolist() for lines in (digests, digests[::-1])]
    assert sorted(held_out[0]) == sorted(held_out[1])


def test_a_frequent_sentence_stays_in_training() -> None:
    digests = [(1, n) for n in range(500)] + [(n, n) for n in range(1000, 1500)]
    assert 1 not in parts(digests, 2000)[1].digests[:, 0]


def test_examples_are_grouped_through_others() -> None:
    chain = [(n // 2, (n + 1) // 2) for n in range(100)]
    assert len(set(group_by_text(np.array(chain, np.uint64)).tolist())) == 1


def test_the_record_is_json_a_person_can_read(make: Callable[..., Path]) -> None:
    record = json.loads((make() / "corpus.json").read_text(encoding="utf-8"))
    assert record["report"]["text"] == "read 200 pairs; left out none"
