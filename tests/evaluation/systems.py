"""Translations that no model made: a small test set, and systems that are wrong in their own ways."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from regard.evaluation.systems import Translations
from regard.inspection.quality import QualityWarning
from regard.translation.translator import Result

WORDS = "The the a Green house tree, river bird child's sees 3.5 hears loves Paris finds under (behind) it".split()  # noqa: SIM905


def lines(number: int = 60, *, longest: int = 30, seed: int = 1) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=chance.randint(1, longest))) + "." for _ in range(number)]


def worse(texts: list[str], share: float, seed: int) -> list[str]:
    """The texts with a share of their words dropped or replaced."""
    chance = random.Random(seed)
    kept = [
        [
            chance.choice(WORDS) if chance.random() < share / 2 else word
            for word in text.split()
            if chance.random() > share / 2
        ]
        for text in texts
    ]
    return [" ".join(words) for words in kept]  # fmt: skip


def write(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


def translations(
    texts: Sequence[str], warnings: Sequence[Sequence[QualityWarning]] = (), confidences: Sequence[float] = ()
) -> Translations:
    """What a translator would return."""
    return Translations(
        [
            Result(text, warnings=warnings[n] if warnings else (), confidence=confidences[n] if confidences else None)
            for n, text in enumerate(texts)
        ]
    )
