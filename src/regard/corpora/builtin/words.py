"""The word lists of the built-in corpus, as read from lexicon.toml and function_words.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / name).read_text(encoding="utf-8"))


LEXICON = _read("lexicon.toml")
FUNCTION_WORDS = _read("function_words.toml")
