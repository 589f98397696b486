"""Tokenizers of Hugging Face folders: the same ids as `transformers` and `sentencepiece`, which made the originals."""

import gzip
import json
import os
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Engine

from regard.errors import FolderError
from regard.interop.hf_tokenizer import import_tokenizers
from regard.text.tokenizer import SOURCE_FILE, TARGET_FILE

LINES = 500  # REGARD_TOKENIZER_LINES compares more
ODD_LINES = [
    "", "   ", "  two  spaces ", "a\u00a0b\u3000c", "ﬁne ½ ① Ａ № 5 ™", "😀 ok 👩‍👩‍👧 x",
    "中文 字符 测试", "a\tb\x07c", "e\u0301te\u0301 …",
    "Иван пошел", "a\u200bb", "हिन्दी", "\ufeffx", "x \u0308y",
]  # fmt: skip
CORPORA = [
    *(f"multi30k/train.{language}.gz" for language in ("en", "de", "fr", "cs")),
    "word_alignment_gold/zhen.test.zh.gz",
]


def read_lines(name: str, count: int) -> list[str]:
    with gzip.open(Path(os.environ["REGARD_DATA"]) / name, "rt", encoding="utf-8", newline="\n") as file:
        return [line.rstrip("\n") for line in islice(file, count)]


@pytest.fixture(scope="module")
def lines() -> list[str]:
    if not os.environ.get("REGARD_DATA"):
        pytest.skip("REGARD_DATA is not set: the corpora are not here")
    count = int(os.environ.get("REGARD_TOKENIZER_LINES", LINES)) // len(CORPORA)
    return ODD_LINES + [line for name in CORPORA for line in read_lines(name, count)]


def encode(text: str, lines: list[str]) -> list[list[int]]:
    engine = Engine.from_str(text)
    return [encoding.ids for encoding in engine.encode_batch(lines)]


def train_pieces(path: Path, texts: list[str], kind: str, **options: object) -> Any:
    """Write a SentencePiece model; returns its processor."""
    import sentencepiece

    with path.open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts), model_writer=file, vocab_size=1200, model_type=kind, minloglevel=2,
            **{"character_coverage": 0.99, **options},
        )  # fmt: skip
    return sentencepiece.SentencePieceProcessor(model_file=str(path))


def marian(folder: Path, kind: str) -> dict[str, int]:
    """Write the files of a Marian model; returns its vocabulary."""
    import sentencepiece

    tokens: list[str] = ["</s>", "<unk>"]
    for side, language in (("source", "en"), ("target", "de")):
        texts = [line for name in CORPORA[:4] for line in read_lines(name, 3000 if f".{language}." in name else 400)]
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts), model_prefix=str(folder / side), vocab_size=1000, model_type=kind,
            character_coverage=1.0, minloglevel=2,
        )  # fmt: skip
        (folder / f"{side}.model").rename(folder / f"{side}.spm")
        processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.spm"))
        tokens += [processor.id_to_piece(number) for number in range(3, processor.vocab_size())]
    ids = {token: number for number, token in enumerate(dict.fromkeys([*tokens, "<pad>"]))}
    (folder / "vocab.json").write_text(json.dumps(ids))
    (folder / "tokenizer_config.json").write_text(json.dumps({"source_lang": "en", "target_lang": "de"}))
    return ids


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_both_sides_of_a_marian_folder_have_the_ids_of_transformers(
    kind: str, lines: list[str], tmp_path: Path
) -> None:
    from transformers import MarianTokenizer

    ids = marian(tmp_path, kind)
    config = {"model_type": "marian", "is_encoder_decoder": True, "decoder_start_token_id": ids["<pad>"]}
    files = import_tokenizers(tmp_path, config)
    original = MarianTokenizer.from_pretrained(tmp_path)
    assert encode(files[SOURCE_FILE], lines) == [original(line)["input_ids"] for line in lines]
    assert encode(files[TARGET_FILE], lines) == [original(text_target=line)["input_ids"] for line in lines]


TRANSLATOR = {"is_encoder_decoder": True, "decoder_start_token_id": 2}


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_nllb_and_mbart_have_the_ids_of_sentencepiece_after_their_special_tokens(
    kind: str, lines: list[str], tmp_path: Path
) -> None:
    processor = train_pieces(tmp_path / "sentencepiece.bpe.model", lines, kind)
    codes = ["eng_Latn", "fra_Latn"]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"additional_special_tokens": codes}))
    text = import_tokenizers(tmp_path, {"model_type": "m2m_100", **TRANSLATOR})[SOURCE_FILE]
    assert encode(text, lines) == [
        [number + 1 if number else 3 for number in ids] + [2] for ids in processor.encode(lines)
    ]
    assert Engine.from_str(text).token_to_id("fra_Latn") == processor.vocab_size() + 2


def test_m2m100_has_the_ids_of_transformers(lines: list[str], tmp_path: Path) -> None:
    from transformers import M2M100Tokenizer

    processor = train_pieces(tmp_path / "sentencepiece.bpe.model", lines, "bpe")
    pieces = [processor.id_to_piece(number) for number in range(3, processor.vocab_size())]
    ids = {token: number for number, token in enumerate(["<s>", "<pad>", "</s>", "<unk>", *pieces])}
    (tmp_path / "vocab.json").write_text(json.dumps(ids))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"src_lang": "en"}))
    text = import_tokenizers(tmp_path, {"model_type": "m2m_100", **TRANSLATOR})[SOURCE_FILE]
    original = M2M100Tokenizer.from_pretrained(tmp_path)
    assert encode(text, lines) == [original(line)["input_ids"][1:] for line in lines]  # without the language code


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_llama_with_bytes_for_unknown_characters_has_the_ids_of_sentencepiece(
    kind: str, lines: list[str], tmp_path: Path
) -> None:
    processor = train_pieces(
        tmp_path / "tokenizer.model", lines, kind, byte_fallback=True, split_digits=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, allow_whitespace_only_pieces=True,
    )  # fmt: skip
    text = import_tokenizers(tmp_path, {"model_type": "llama"})[SOURCE_FILE]
    lines = [*lines, " one space first"]
    assert encode(text, lines) == [[*ids, 2] for ids in processor.encode(lines)]


@pytest.mark.parametrize("kind", ["gpt2", "roberta"])
def test_byte_level_vocabularies_have_the_ids_of_transformers(kind: str, lines: list[str], tmp_path: Path) -> None:
    import transformers
    from tokenizers import ByteLevelBPETokenizer

    special = ["<|endoftext|>"] if kind == "gpt2" else ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(lines, vocab_size=1000, special_tokens=special, show_progress=False)
    trained.save_model(str(tmp_path))  # vocab.json and merges.txt
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<user>": trained.get_vocab_size()}))
    lines = [*lines, "a<user> b"]
    text = import_tokenizers(tmp_path, {"model_type": kind})[SOURCE_FILE]
    original = {"gpt2": transformers.GPT2Tokenizer, "roberta": transformers.RobertaTokenizer}[kind]
    expected = [row["input_ids"] for row in map(original.from_pretrained(tmp_path), lines)]
    assert encode(text, lines) == [[*ids, 0] if kind == "gpt2" else ids for ids in expected]


@pytest.mark.parametrize("lowercase", [True, False])
def test_a_bert_vocabulary_has_the_ids_of_transformers(lowercase: bool, lines: list[str], tmp_path: Path) -> None:
    from transformers import BertTokenizer

    characters = sorted({character for line in lines[:300] for character in line if not character.isspace()})
    words = sorted({word for line in lines[:300] for word in line.lower().split() if word.isalpha()})
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words, *characters, *(f"##{c}" for c in characters)]
    (tmp_path / "vocab.txt").write_text("\n".join(dict.fromkeys(tokens)))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": lowercase}))
    files = import_tokenizers(tmp_path, {"model_type": "bert"})
    original = BertTokenizer.from_pretrained(tmp_path)
    assert encode(files[SOURCE_FILE], lines) == [original(line)["input_ids"] for line in lines]


def test_the_post_processor_names_the_special_tokens_of_regard(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na")
    values = json.loads(import_tokenizers(tmp_path, {"model_type": "bert"})[SOURCE_FILE])
    special = {name: entry["ids"] for name, entry in values["post_processor"]["special_tokens"].items()}
    assert special == {"<pad>": [0], "<s>": [2], "</s>": [3], "<unk>": [1], "<mask>": [4]}


def test_a_damaged_sentencepiece_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(b"\x0a\xff\x01no")
    with pytest.raises(FolderError, match=r"tokenizer\.model is not a SentencePiece model"):
        import_tokenizers(tmp_path, {"model_type": "llama"})


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="has no supported tokenizer"):
        import_tokenizers(tmp_path, {"model_type": "marian"})
