"""Tokenizers of Hugging Face folders: the same ids as `transformers` and `sentencepiece`, which made the originals."""

import json
import os
from pathlib import Path

import pytest

from regard.errors import FolderError
from regard.interop.hf_tokenizer import import_tokenizers
from regard.text.tokenizer import SOURCE_FILE, Tokenizer
from tests.interop.published import marian_files
from tests.interop.tokenizers import TOKENIZERS, seven_languages

SLOW = [name for name in TOKENIZERS if name.startswith("marian")]


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in TOKENIZERS]
)
def test_an_imported_tokenizer_has_the_ids_of_the_original_library(name: str, tmp_path: Path) -> None:
    if not os.environ.get("REGARD_DATA"):
        pytest.skip("REGARD_DATA is not set: the corpora are not here")
    for ours, theirs in TOKENIZERS[name](seven_languages(100), tmp_path):
        assert ours == theirs


def test_the_post_processor_names_the_special_tokens_of_regard(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na")
    values = json.loads(import_tokenizers(tmp_path, {"model_type": "bert"})[SOURCE_FILE])
    special = {name: entry["ids"] for name, entry in values["post_processor"]["special_tokens"].items()}
    assert special == {"<pad>": [0], "<s>": [2], "</s>": [3], "<unk>": [1], "<mask>": [4]}


def test_tokens_that_were_added_later_are_recognized_in_text_and_special_tokens_are_not(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na")
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<|user|>": 6}))
    no_limit = {"model_max_length": int(1e30)}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(no_limit))
    tokenizer = Tokenizer(import_tokenizers(tmp_path, {"model_type": "bert"})[SOURCE_FILE])
    assert tokenizer.encode("a<|user|>") == [5, 6]
    assert 3 not in tokenizer.encode("[SEP]")


def test_the_first_token_of_a_decoder_is_one_of_the_target_vocabulary(tmp_path: Path) -> None:
    ids, target_ids = marian_files(tmp_path, shared=False)
    config = {"model_type": "marian", "is_encoder_decoder": True, "decoder_start_token_id": target_ids["<pad>"]}
    source, target = map(Tokenizer, import_tokenizers(tmp_path, config).values())
    assert target.special.start == target_ids["<pad>"] >= source.size
    assert source.special.start == ids["</s>"]


def test_a_damaged_sentencepiece_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(b"\x0a\xff\x01no")
    with pytest.raises(FolderError, match=r"tokenizer\.model is not a SentencePiece model"):
        import_tokenizers(tmp_path, {"model_type": "llama"})


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="has no supported tokenizer"):
        import_tokenizers(tmp_path, {"model_type": "marian"})
