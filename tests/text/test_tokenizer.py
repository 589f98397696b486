"""Tokenizers: nothing is lost, nothing is special by accident, and the same input gives the same tokenizer."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.config import TextConfig, preset, to_json
from regard.errors import ConfigError, FolderError, InputError, RunError
from regard.text.tokenizer import (
    DROPOUT_TABLES,
    END,
    FILES,
    PAD,
    SPECIALS,
    TARGET_FILE,
    UNKNOWN,
    CorpusEncoder,
    Tokenizer,
    Tokenizers,
    drop_merges,
    train,
)

CORPORA = [
    "multi30k/val.de.gz",
    "tatoeba_enfr/test.fr.gz",
    "wikitext2/wiki.valid.tokens.gz",
    "word_alignment_gold/jaen.test.ja.gz",
    "word_alignment_gold/zhen.test.zh.gz",
]
KINDS = ["bpe", "unigram", "wordpiece", "characters", "words"]
LOSSLESS = ["bpe", "characters"]
TEXTS = [
    "the man with the red hat is looking at the boats in the harbour",
    "two men and a woman are standing near the red boats, and they aren't looking",
    "der Mann mit dem roten Hut sieht die Boote im Hafen an, größer als gestern",
    "zwei Männer und eine Frau stehen bei den roten Booten; sie sehen nichts",
] * 5
AWKWARD = [
    "",
    " ",
    "  ",
    "   a",
    "a  b",
    "a   b  ",
    "\t a\u00a0 \u00a0b",
    "x\ny",
    "<2fr> hi  <2fr>",
    "a  <2fr>  b",
    "</s>",
]

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
spaced = st.text(st.sampled_from(" \t\n\u00a0\u2003ab.'<2fr>é1"), max_size=40)


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    return {kind: train(TEXTS, kind=kind, vocabulary=600, tags=["<2fr>"]) for kind in KINDS}  # type: ignore[arg-type]


def train_pair(*, shared: bool) -> Tokenizers:
    if shared:
        tokenizer = train(TEXTS, kind="bpe", vocabulary=300)
        return Tokenizers(tokenizer, tokenizer)
    return Tokenizers(*(train(texts, kind="bpe", vocabulary=300) for texts in (TEXTS[:10], TEXTS[10:12])))


def cut(lines: CorpusEncoder, texts: list[str]) -> list[list[int]]:
    ids, lengths = lines(texts)
    return [row.tolist() for row in np.split(ids, np.cumsum(lengths)[:-1])]


@pytest.mark.parametrize("kind", LOSSLESS)
@given(text | spaced)
@settings(max_examples=300, deadline=None)
def test_text_is_decoded_exactly(tokenizers: dict[str, Tokenizer], kind: str, text: str) -> None:
    tokenizer = tokenizers[kind]
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.slow
@pytest.mark.parametrize("kind", LOSSLESS)
def test_every_character_of_unicode_is_decoded(tokenizers: dict[str, Tokenizer], kind: str) -> None:
    tokenizer = tokenizers[kind]
    characters = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    texts = ["".join(characters[start : start + 64]) for start in range(0, len(characters), 64)]
    assert [tokenizer.decode(ids) for ids in tokenizer.encode_batch(texts)] == texts


@pytest.mark.slow
@pytest.mark.parametrize("kind", LOSSLESS)
@pytest.mark.parametrize("name", CORPORA)
def test_every_line_of_a_corpus_is_decoded(
    tokenizers: dict[str, Tokenizer], corpora: Path, kind: str, name: str
) -> None:
    with gzip.open(corpora / name, "rt", encoding="utf-8", newline="\n") as file:
        lines = [line.removesuffix("\n") for line in file]
    rows = cut(CorpusEncoder([tokenizers[kind]]), lines)
    assert [tokenizers[kind].decode(row) for row in rows] == lines


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("special", SPECIALS)
def test_the_name_of_a_special_token_is_plain_text(tokenizers: dict[str, Tokenizer], kind: str, special: str) -> None:
    ids = tokenizers[kind].encode(f"a {special} b{special}")
    assert not {0, 1, 2, 4} & set(ids)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "characters"])
def test_nothing_is_unknown(tokenizers: dict[str, Tokenizer], kind: str) -> None:
    assert UNKNOWN not in tokenizers[kind].encode("Ελληνικά 東京 \U0001f600 <0x41> ~")


def test_seen_characters_are_one_token_and_others_are_bytes(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers["characters"]
    assert tokenizer.tokens(tokenizer.encode("ä東")) == ["ä", "<0xE6>", "<0x9D>", "<0xB1>"]


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_come_first_and_tags_next(tokenizers: dict[str, Tokenizer], kind: str) -> None:
    assert tokenizers[kind].tokens(range(6)) == [*SPECIALS, "<2fr>"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_tag_in_text_is_one_token(tokenizers: dict[str, Tokenizer], kind: str) -> None:
    tokenizer = tokenizers[kind]
    assert tokenizer.tokens(tokenizer.encode("<2fr> the man"))[0] == "<2fr>"


@pytest.mark.parametrize("tag", ["a b", "", "<s>", "é€", "x"])
def test_an_ambiguous_tag_is_refused(tag: str) -> None:
    with pytest.raises(ConfigError, match="tag"):
        train(TEXTS, kind="bpe", vocabulary=300, tags=[tag])


@pytest.mark.parametrize("kind", ["unigram", "wordpiece", "words"])
def test_ordinary_text_is_decoded(tokenizers: dict[str, Tokenizer], kind: str) -> None:
    tokenizer = tokenizers[kind]
    sentence = "the man is looking at two women"
    assert tokenizer.decode(tokenizer.encode(sentence)) in (sentence, sentence.replace("women", "<unk>"))


@pytest.mark.parametrize("kind", ["wordpiece", "words"])
@pytest.mark.parametrize("sentence", ["the 東京 is red", "東京 is", "the 東京", "東京 東京"])
def test_an_unknown_word_is_decoded_as_unk(tokenizers: dict[str, Tokenizer], kind: str, sentence: str) -> None:
    tokenizer = tokenizers[kind]
    shown = re.sub("(<unk> ?)+", "<unk> ", tokenizer.decode(tokenizer.encode(sentence)))  # a word each, or one
    assert shown.strip() == re.sub("(東京 ?)+", "<unk> ", sentence).strip()


@pytest.mark.parametrize("kind", KINDS)
def test_the_other_special_tokens_have_no_text(tokenizers: dict[str, Tokenizer], kind: str) -> None:
    tokenizer = tokenizers[kind]
    assert tokenizer.decode([1, *tokenizer.encode("the red"), 4, 2, 0, 0]) == "the red"


def test_a_word_list_gives_punctuation_back_where_it_stood(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers["words"]
    assert tokenizer.decode(tokenizer.encode("the boats, and they aren't")) == "the boats, and they aren't"


def test_a_lone_surrogate_is_refused_with_its_place(tokenizers: dict[str, Tokenizer]) -> None:
    with pytest.raises(InputError, match=r"U\+D83D\) at character 3"):
        tokenizers["bpe"].encode("ab\ud83d")


@pytest.mark.parametrize("kind", KINDS)
def test_a_lone_surrogate_is_refused_in_training(kind: str) -> None:
    with pytest.raises(InputError, match="lone surrogate"):
        train([*TEXTS, "\ud83d"], kind=kind, vocabulary=400)  # type: ignore[arg-type]


def test_bytes_are_refused(tokenizers: dict[str, Tokenizer]) -> None:
    with pytest.raises(InputError, match="not bytes"):
        tokenizers["bpe"].encode(b"bytes")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["bpe", "characters", "words"])
def test_the_same_text_gives_the_same_tokenizer(tokenizers: dict[str, Tokenizer], kind: str) -> None:
    again = train(TEXTS, kind=kind, vocabulary=600, tags=["<2fr>"])  # type: ignore[arg-type]
    assert again.text == tokenizers[kind].text


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such terminals")
def test_nothing_is_drawn_on_a_terminal_while_a_tokenizer_is_learned() -> None:
    program = (
        "from regard.text.tokenizer import train\n"
        f"for kind in {KINDS}: train(['the old house'] * 9, kind=kind, vocabulary=600)"
    )
    screen, terminal = os.openpty()
    try:
        subprocess.run([sys.executable, "-c", program], stdout=terminal, stderr=terminal, check=True)
        os.write(terminal, b"the end")
        assert os.read(screen, 10_000) == b"the end"
    finally:
        os.close(screen)
        os.close(terminal)


@pytest.mark.parametrize("kind", ["bpe", "characters", "wordpiece"])
def test_lowercase_ignores_capitals(kind: str) -> None:
    tokenizer = train(TEXTS, kind=kind, vocabulary=600, lowercase=True)  # type: ignore[arg-type]
    assert tokenizer.encode("The MAN") == tokenizer.encode("the man")


@pytest.fixture(scope="module", params=KINDS)
def both(
    request: pytest.FixtureRequest, tokenizers: dict[str, Tokenizer], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Tokenizer, Any]:
    """Ours, and what `transformers` reads from its folder, in which the config of a model lies too."""
    transformers = pytest.importorskip("transformers")
    ours, folder = tokenizers[request.param], tmp_path_factory.mktemp(request.param)
    Tokenizers(ours, ours).save(folder)
    (folder / "config.json").write_text(to_json(preset("gpt2")), encoding="utf-8")
    return ours, transformers.AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("text", ["the man <2fr> x", "a </s> b", "x<mask><pad> <s>y <unk>", *AWKWARD])
def test_transformers_gives_our_ids(both: tuple[Tokenizer, Any], text: str) -> None:
    ours, theirs = both
    assert theirs(text).input_ids == [*ours.encode(text), END]


def test_transformers_knows_the_special_tokens(both: tuple[Tokenizer, Any]) -> None:
    _, theirs = both
    names = ("pad", "bos", "eos", "unk", "mask")
    assert [getattr(theirs, f"{name}_token_id") for name in names] == list(range(len(SPECIALS)))
    assert len(theirs) == both[0].size


def test_transformers_pads_with_our_pad(both: tuple[Tokenizer, Any]) -> None:
    ours, theirs = both
    short, long = ([*ours.encode(text), END] for text in ("the", "the man with the hat"))
    padded = theirs(["the", "the man with the hat"], padding=True)
    assert padded.input_ids == [short + [PAD] * (len(long) - len(short)), long]
    assert [sum(row) for row in padded.attention_mask] == [len(short), len(long)]


def test_transformers_reads_the_class_by_name_too(both: tuple[Tokenizer, Any]) -> None:
    from transformers import PreTrainedTokenizerFast

    theirs = PreTrainedTokenizerFast.from_pretrained(both[1].name_or_path)
    assert theirs("the </s>").input_ids == [*both[0].encode("the </s>"), END]


@pytest.mark.parametrize("shared", [True, False])
def test_every_file_of_the_tokenizers_has_its_name_in_the_list(tmp_path: Path, shared: bool) -> None:
    train_pair(shared=shared).save(tmp_path)
    written = {path.name for path in tmp_path.iterdir()}
    assert written == set(FILES) - ({TARGET_FILE} if shared else set())


def test_separate_tokenizers_are_saved_and_loaded(tmp_path: Path) -> None:
    sides = train_pair(shared=False)
    sides.save(tmp_path)
    assert Tokenizers.load(tmp_path).fingerprint == sides.fingerprint


def test_a_full_disk_is_named_with_the_file(tiny_disk: Path) -> None:
    with suppress(OSError):
        (tiny_disk / "rest").write_bytes(bytes(2**20))
    with pytest.raises(RunError, match=r"tokenizer\.json could not be written: the disk is full"):
        train_pair(shared=True).save(tiny_disk)


def test_shared_tokenizers_are_one_object(tmp_path: Path) -> None:
    train_pair(shared=True).save(tmp_path)
    assert Tokenizers.load(tmp_path).shared


def test_a_fingerprint_does_not_depend_on_the_layout_of_the_file(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers["bpe"]
    assert Tokenizer(tokenizer.text.replace("\n", "")).fingerprint == tokenizer.fingerprint


def test_a_file_that_is_no_tokenizer_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    with pytest.raises(FolderError, match=r"tokenizer\.json"):
        Tokenizer.load(tmp_path / "tokenizer.json")


# Whole corpora


@pytest.mark.parametrize("kind", KINDS)
@given(st.lists(text | spaced | st.sampled_from(AWKWARD), max_size=6))
@settings(max_examples=150, deadline=None)
def test_many_lines_are_encoded_as_single_ones(tokenizers: dict[str, Tokenizer], kind: str, texts: list[str]) -> None:
    tokenizer = tokenizers[kind]
    texts = [*texts, "the red hat"]
    assert cut(CorpusEncoder([tokenizer]), texts) == [[*ids, END] for ids in tokenizer.encode_batch(texts)]


def test_words_that_left_the_cache_are_encoded_the_same(
    tokenizers: dict[str, Tokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.text.tokenizer.MAX_CACHED_WORDS", 6)
    lines = CorpusEncoder([tokenizers["bpe"], *drop_merges(tokenizers["bpe"], 0.5, seed=1)])
    rows = [row for text in TEXTS[:4] * 2 for row in cut(lines, [text])]
    assert rows == [[*tokenizers["bpe"].encode(text), END] for text in TEXTS[:4] * 2]


def test_dropout_gives_other_subwords_of_the_same_text(tokenizers: dict[str, Tokenizer]) -> None:
    plain = tokenizers["bpe"]
    for dropped in drop_merges(plain, 0.9, seed=1):
        assert dropped.encode(TEXTS[0]) != plain.encode(TEXTS[0])
        assert plain.decode(dropped.encode(TEXTS[0])) == TEXTS[0]


def test_the_seed_decides_what_dropout_drops(tokenizers: dict[str, Tokenizer]) -> None:
    first, again, other = ([t.text for t in drop_merges(tokenizers["bpe"], 0.9, seed=seed)] for seed in (1, 1, 2))
    assert first == again
    assert len({*first, *other}) == 2 * DROPOUT_TABLES


# How many tokens


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "words", "characters"])
def test_few_lines_get_a_small_vocabulary(kind: str) -> None:
    assert train(TEXTS, kind=kind, vocabulary=0).size < 1000


@pytest.mark.slow
def test_multi30k_gets_about_eight_thousand_tokens(corpora: Path) -> None:
    lines = []
    for language in ("en", "de"):
        with gzip.open(corpora / f"multi30k/train.{language}.gz", "rt", encoding="utf-8") as file:
            lines += [line.rstrip("\n") for line in file]
    assert 7000 <= train(lines, kind="bpe", vocabulary=0).size <= 9000


def test_the_vocabulary_of_characters_has_all_of_them() -> None:
    assert train(["abc", "abd"], kind="characters", vocabulary=0).size == 5 + 256 + 4


def test_dropout_needs_bpe() -> None:
    with pytest.raises(ConfigError, match="bpe_dropout"):
        TextConfig(tokenizer="words", bpe_dropout=0.1)


def test_an_unknown_rule_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="Did you mean duplicate"):
        TextConfig(cleaning="empty duplicates")


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "characters", "words"])
def test_every_token_knows_its_word(kind: str) -> None:
    tokenizer = train(["the old house", "qu'un été"] * 9, kind=kind, vocabulary=700, lowercase=True)
    text = "  The été  qu'un house "
    words = tokenizer.word_ids([text])[0]
    assert len(words) == len(tokenizer.encode(text))
    assert sorted(set(words)) == [0, 1, 2, 3]
    assert words == sorted(words)


def test_tags_that_are_added_come_last_and_change_nothing_else() -> None:
    tokenizer = train(["the old house"] * 9, kind="bpe", vocabulary=270, tags=["<2fr>"])
    more = tokenizer.with_tags(["<2fr>", "<2de>"])
    assert more.tags == ("<2fr>", "<2de>")
    assert more.encode("<2de> the old house") == [tokenizer.size, *tokenizer.encode(" the old house")]
    assert tokenizer.with_tags(["<2fr>"]) is tokenizer
