"""The built-in corpus: an English-French grammar with gold word alignments. Its words are in two TOML files."""

import tomllib
from pathlib import Path
from typing import Any

LEXICON: dict[str, Any]
FUNCTION_WORDS: dict[str, Any]
LEXICON, FUNCTION_WORDS = (
    tomllib.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))
    for name in ("lexicon.toml", "function_words.toml")
)
