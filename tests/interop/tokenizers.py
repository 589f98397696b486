"""Tokenizers as published models have them, trained on real text, and the ids of the libraries that made them.

Each function writes the files of a model, and returns the ids of some lines here and in the other library.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Engine

from regard.interop.hf_tokenizer import import_tokenizers
from regard.text.tokenizer import SOURCE_FILE, TARGET_FILE

Ids = list[list[int]]
Both = list[tuple[Ids, Ids]]
ODD_LINES = [
    "", "   ", "  two  spaces ", "a\u00a0b\u3000c", "ﬁne ½ ① Ａ № 5 ™", "😀 ok 👩‍👩‍👧 x",
    "中文 字符 测试", "a\tb\x07c", "e\u0301te\u0301 …",
    "Иван пошел", "a\u200bb", "हिन्दी", "\ufeffx", "x \u0308y",
]  # fmt: skip
CORPORA = [
    *(f"multi30k/train.{language}.gz" for language in ("en", "de", "fr", "cs")),
    *(f"word_alignment_gold/{name}.gz" for name in ("roen.test.ro", "jaen.test.ja", "zhen.test.zh")),
]
TRANSLATOR = {"is_encoder_decoder": True, "decoder_start_token_id": 2}


def read_lines(name: str, count: int) -> list[str]:
    with gzip.open(Path(os.environ["REGARD_DATA"]) / name, "rt", encoding="utf-8", newline="\n") as file:
        return [line.rstrip("\n") for line in islice(file, count)]


def seven_languages(count: int) -> list[str]:
    """Odd lines, and the first `count` lines of a text in each language."""
    return ODD_LINES + [line for name in CORPORA for line in read_lines(name, count)]


def encode(text: str, lines: list[str]) -> Ids:
    engine = Engine.from_str(text)
    return [encoding.ids for encoding in engine.encode_batch(lines)]


def train_pieces(path: Path, texts: list[str], kind: str, **options: object) -> Any:
    """Write a SentencePiece model; returns its processor."""
    import sentencepiece

    with path.open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts), model_writer=file, model_type=kind, minloglevel=2,
            **{"vocab_size": 1500, "character_coverage": 0.99, **options},
        )  # fmt: skip
    return sentencepiece.SentencePieceProcessor(model_file=str(path))


def marian(lines: list[str], folder: Path, *, kind: str) -> Both:
    from transformers import MarianTokenizer

    tokens: list[str] = ["</s>", "<unk>"]
    for side, language in (("source", "en"), ("target", "de")):
        texts = [line for name in CORPORA[:4] for line in read_lines(name, 3000 if f".{language}." in name else 400)]
        processor = train_pieces(folder / f"{side}.spm", texts, kind, vocab_size=1000, character_coverage=1.0)
        tokens += [processor.id_to_piece(number) for number in range(3, processor.vocab_size())]
    ids = {token: number for number, token in enumerate(dict.fromkeys([*tokens, "<pad>"]))}
    (folder / "vocab.json").write_text(json.dumps(ids))
    (folder / "tokenizer_config.json").write_text(json.dumps({"source_lang": "en", "target_lang": "de"}))
    config = {"model_type": "marian", "is_encoder_decoder": True, "decoder_start_token_id": ids["<pad>"]}
    files = import_tokenizers(folder, config)
    original = MarianTokenizer.from_pretrained(folder)
    return [
        (encode(files[SOURCE_FILE], lines), [original(line)["input_ids"] for line in lines]),
        (encode(files[TARGET_FILE], lines), [original(text_target=line)["input_ids"] for line in lines]),
    ]


def nllb(lines: list[str], folder: Path, *, kind: str) -> Both:
    """The ids of NLLB and mBART are those of sentencepiece, after their special tokens."""
    processor = train_pieces(folder / "sentencepiece.bpe.model", lines, kind)
    codes = ["eng_Latn", "fra_Latn"]
    (folder / "tokenizer_config.json").write_text(json.dumps({"additional_special_tokens": codes}))
    text = import_tokenizers(folder, {"model_type": "m2m_100", **TRANSLATOR})[SOURCE_FILE]
    assert Engine.from_str(text).token_to_id("fra_Latn") == processor.vocab_size() + 2
    return [
        (
            encode(text, lines),
            [[number + 1 if number else 3 for number in ids] + [2] for ids in processor.encode(lines)],
        )
    ]


def m2m100(lines: list[str], folder: Path) -> Both:
    from transformers import M2M100Tokenizer

    processor = train_pieces(folder / "sentencepiece.bpe.model", lines, "bpe")
    pieces = [processor.id_to_piece(number) for number in range(3, processor.vocab_size())]
    ids = {token: number for number, token in enumerate(["<s>", "<pad>", "</s>", "<unk>", *pieces])}
    (folder / "vocab.json").write_text(json.dumps(ids))
    (folder / "tokenizer_config.json").write_text(json.dumps({"src_lang": "en"}))
    text = import_tokenizers(folder, {"model_type": "m2m_100", **TRANSLATOR})[SOURCE_FILE]
    original = M2M100Tokenizer.from_pretrained(folder)
    return [(encode(text, lines), [original(line)["input_ids"][1:] for line in lines])]  # without the language code


def llama(lines: list[str], folder: Path, *, kind: str) -> Both:
    """Unknown characters are bytes."""
    processor = train_pieces(
        folder / "tokenizer.model", lines, kind, byte_fallback=True, split_digits=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, allow_whitespace_only_pieces=True,
    )  # fmt: skip
    text = import_tokenizers(folder, {"model_type": "llama"})[SOURCE_FILE]
    lines = [*lines, " one space first"]
    return [(encode(text, lines), [[*ids, 2] for ids in processor.encode(lines)])]


def byte_level(lines: list[str], folder: Path, *, kind: str) -> Both:
    """GPT-2, RoBERTa and BART, with a token that was added later."""
    import transformers
    from tokenizers import ByteLevelBPETokenizer

    special = ["<|endoftext|>"] if kind == "gpt2" else ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(lines, vocab_size=1000, special_tokens=special, show_progress=False)
    trained.save_model(str(folder))  # vocab.json and merges.txt
    (folder / "added_tokens.json").write_text(json.dumps({"<user>": trained.get_vocab_size()}))
    lines = [*lines, "a<user> b"]
    text = import_tokenizers(folder, {"model_type": kind, **(TRANSLATOR if kind == "bart" else {})})[SOURCE_FILE]
    classes: dict[str, Any] = {
        "gpt2": transformers.GPT2Tokenizer,
        "roberta": transformers.RobertaTokenizer,
        "bart": transformers.BartTokenizer,
    }
    original = classes[kind].from_pretrained(folder)
    expected = [original(line)["input_ids"] for line in lines]
    ours = {"gpt2": [[*ids, 0] for ids in expected], "roberta": expected, "bart": [ids[1:] for ids in expected]}
    return [(encode(text, lines), ours[kind])]


def bert(lines: list[str], folder: Path, *, lowercase: bool) -> Both:
    from transformers import BertTokenizer

    characters = sorted({character for line in lines[:300] for character in line if not character.isspace()})
    words = sorted({word for line in lines[:300] for word in line.lower().split() if word.isalpha()})
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words, *characters, *(f"##{c}" for c in characters)]
    (folder / "vocab.txt").write_text("\n".join(dict.fromkeys(tokens)))
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": lowercase}))
    text = import_tokenizers(folder, {"model_type": "bert"})[SOURCE_FILE]
    original = BertTokenizer.from_pretrained(folder)
    return [(encode(text, lines), [original(line)["input_ids"] for line in lines])]


TOKENIZERS: dict[str, Callable[[list[str], Path], Both]] = {
    **{f"marian {kind}": partial(marian, kind=kind) for kind in ("unigram", "bpe")},
    **{f"nllb {kind}": partial(nllb, kind=kind) for kind in ("unigram", "bpe")},
    "m2m100": m2m100,
    **{f"llama {kind}": partial(llama, kind=kind) for kind in ("unigram", "bpe")},
    **{kind: partial(byte_level, kind=kind) for kind in ("gpt2", "roberta", "bart")},
    "bert uncased": partial(bert, lowercase=True),
    "bert cased": partial(bert, lowercase=False),
}
