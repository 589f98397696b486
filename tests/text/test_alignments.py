"""Word alignments become alignments of tokens, and stay with their pair."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from regard.config import CLEANING
from regard.documents.formats import read_pairs
from regard.errors import DataError
from regard.text import dataset, preparation
from regard.text.alignments import parse_alignment, read_alignments, read_gold, token_alignment
from regard.text.batching import collate
from regard.text.cleaning import Cleaning
from regard.text.dataset import Dataset
from regard.text.tokenizer import Tokenizer, train

PAIRS = [
    ("the old house", "la vieille maison", "0-0 1-1 2-2"),
    ("", "vide", ""),
    ("green trees", "arbres verts", "0-1 1-0"),
    ("the old house", "la vieille maison", "0-0 1-1 2-2"),
    ("no links", "sans liens", ""),
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    texts = [text for pair in PAIRS for text in pair[:2]]
    return train(texts * 3, kind="bpe", vocabulary=290, tags=["<2fr>"])


def stored(folder: Path, tokenizer: Tokenizer, tag: str = "") -> Dataset:
    rules = Cleaning(rules=CLEANING, max_length=50, max_length_ratio=9.0)
    made = preparation.prepare(
        folder, lambda: PAIRS, identity="x", tokenizers=[tokenizer, tokenizer], cleaning=rules, tag=tag, alignments=True
    )
    return Dataset.open(made)


def linked(store: Dataset, tokenizer: Tokenizer, example: int) -> set[tuple[str, str]]:
    """The words that the links of a batch join."""
    batch = collate(store, np.arange(len(store)), shape=None)
    source, target = store.pair(example)
    words = []
    for ids in (source, target):
        text = tokenizer.decode(ids)
        words.append([text.split()[word] for word in tokenizer.word_ids([text])[0]])
    return {(words[0][s], words[1][t]) for t, s in batch.alignment[example].nonzero().tolist()}


def test_alignments_stay_with_their_pair_when_others_are_left_out(tmp_path: Path, tokenizer: Tokenizer) -> None:
    store = stored(tmp_path, tokenizer)
    assert len(store) == 3
    assert linked(store, tokenizer, 0) == {("the", "la"), ("old", "vieille"), ("house", "maison")}
    assert linked(store, tokenizer, 1) == {("green", "verts"), ("trees", "arbres")}
    assert linked(store, tokenizer, 2) == set()


def test_a_tag_before_the_source_moves_its_words(tmp_path: Path, tokenizer: Tokenizer) -> None:
    store = stored(tmp_path, tokenizer, "<2fr>")
    assert tokenizer.tokens(store.source.ids(0).tolist())[0] == "<2fr>"
    assert linked(store, tokenizer, 1) == {("green", "verts"), ("trees", "arbres")}


def test_the_attention_targets_of_a_token_sum_to_one(tmp_path: Path, tokenizer: Tokenizer) -> None:
    batch = collate(stored(tmp_path, tokenizer), np.arange(3), shape=None)
    sums = batch.alignment.sum(-1)
    assert set(sums.unique().tolist()) == {0.0, 1.0}
    assert (sums[0] == 1).sum() == batch.target_out[0].ge(0).sum() - 1  # all but </s>


def test_a_part_of_a_dataset_keeps_its_alignments(tmp_path: Path, tokenizer: Tokenizer) -> None:
    whole = stored(tmp_path, tokenizer)
    part = dataset.join([whole, whole]).take(np.array([4, 0]))
    assert linked(part, tokenizer, 0) == linked(whole, tokenizer, 1)


def test_every_token_of_a_word_is_aligned_with_every_token_of_the_other() -> None:
    found = token_alignment([(0, 1)], [0, 0, 1], [0, 1, 1])
    assert [(link >> 16, link & 0xFFFF) for link in found] == [(1, 0), (1, 1), (2, 0), (2, 1)]


@pytest.mark.parametrize("word", ["1", "a-b", "1-", "-1-2", "1p2"])
def test_a_malformed_alignment_is_refused(word: str) -> None:
    with pytest.raises(DataError, match=r"gold, line 3: .* is not an alignment; write i-j"):
        parse_alignment(f"0-0 {word}", "gold, line 3")


@pytest.mark.parametrize(
    ("links", "message"),
    [
        ("0-0\n", "links has fewer lines than the pairs: the shorter has 1"),
        ("0-0\n\n0-0\n", "links has more lines than the pairs: the shorter has 2"),
        ("0-0\n0-1\n", "line 2: 0-1 is beyond the 1 words of the target"),
    ],
)
def test_alignments_that_do_not_fit_the_pairs_are_refused(tmp_path: Path, links: str, message: str) -> None:
    for name, text in (("a", "one two\nthree\n"), ("b", "eins zwei\ndrei\n"), ("links", links)):
        (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        list(read_alignments(read_pairs(tmp_path / "a", tmp_path / "b"), tmp_path / "links"))


def test_an_empty_alignment_file_is_refused(tmp_path: Path) -> None:
    for name, text in (("a", "one\n"), ("b", "eins\n"), ("links", " \n")):
        (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match="links has no alignments"):
        list(read_alignments(read_pairs(tmp_path / "a", tmp_path / "b"), tmp_path / "links"))


def gold_of(folder: Path, name: str, text: str) -> list[tuple[set[tuple[int, int]], set[tuple[int, int]]]]:
    (folder / "a").write_text("the old house\n")
    (folder / "b").write_text("la vieille maison\n")
    (folder / name).write_text(text)
    found = read_gold(read_pairs(folder / "a", folder / "b"), folder / name)
    return [(set(gold.sure), set(gold.possible)) for _, gold in found]


def test_an_empty_gold_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="gold has no alignments"):
        gold_of(tmp_path, "gold", "\n")


def test_sure_gold_alignments_are_possible_too(tmp_path: Path) -> None:
    assert gold_of(tmp_path, "gold", "0-0 1p2\n") == [({(0, 0)}, {(0, 0), (1, 2)})]


def test_a_talp_file_counts_words_from_one(tmp_path: Path) -> None:
    assert gold_of(tmp_path, "gold.talp", "1-1 3p2\n") == [({(0, 0)}, {(0, 0), (2, 1)})]
    with pytest.raises(DataError, match=r"line 1: 0-1 has a word 0, .* counted from 1"):
        gold_of(tmp_path, "gold.talp", "0-1\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0-3\n", "0-3 is beyond the 3 words of the target .words are counted from 0"),
        ("0x1\n", "'0x1' is not a gold alignment"),
    ],
)
def test_impossible_gold_alignments_are_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        gold_of(tmp_path, "gold", text)
