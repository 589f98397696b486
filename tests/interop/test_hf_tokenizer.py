"""Tokenizers of Hugging Face folders: the same ids as `transformers` and `sentencepiece`, which made the originals."""

import gzip
import json
import os
from itertools import islice
from pathlib import Path

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
    with pytest.raises(FolderError, match="has no tokenizer that is known here"):
        import_tokenizers(tmp_path, {"model_type": "marian"})
