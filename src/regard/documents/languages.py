"""Language codes: which of them name the same language."""

from __future__ import annotations

from functools import lru_cache

Languages = tuple[str, str]
"""The codes of a source and a target language."""


def same_language(one: str, other: str) -> bool:
    """Whether two codes match: `en` matches `en-US`, `EN` and `en_GB`; `en-US` does not match `en-GB`."""
    first, second = (code.lower().replace("_", "-").split("-") for code in (one, other))
    shared = min(len(first), len(second))
    return first[:shared] == second[:shared]


@lru_cache(maxsize=1024)  # called for every unit of a file
def find_language(codes: tuple[str, ...], language: str) -> int | None:
    """The index of the code that is equal to `language`, else of the first one that matches it."""
    matching = [i for i, code in enumerate(codes) if same_language(code, language)]
    return min(matching, key=lambda i: codes[i].lower() != language.lower(), default=None)
