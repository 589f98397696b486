"""Served models: load translation folders, each with its languages, a worker and a share of the detector."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.config import split_folders
from regard.decoding.glossary import Glossary
from regard.documents.languages import same_language
from regard.errors import ConfigError, InputError, RegardError
from regard.models.folder import VALIDATION
from regard.server.batching import JobOptions, Worker
from regard.translation.translator import Result, Translator

CARD_LANGUAGES = re.compile(r" translates from ([\w-]+) to ([\w-]+)[,. ]")
NAMED = re.compile(r"([A-Za-z]{2,3}(?:_\w+)?)-([A-Za-z]{2,3}(?:_\w+)?)=(.+)", re.DOTALL)
MAX_WAITING = 512  # texts of one model
CACHED = 4096  # translations of one model
DETECTOR_LINES = 2000  # of each language


@dataclass(frozen=True)
class Served:
    """A loaded model with its languages."""

    folder: str
    source: str
    target: str
    worker: Worker
    pairs: Sequence[tuple[str, str]]
    """Validation pairs of the folder, which the detector learns from."""


def load_served(name: str, device: str) -> Served:
    """Load a folder, given as FOLDER or as en-fr=FOLDER."""
    match = NAMED.fullmatch(name)
    folder = match[3] if match else name
    first = split_folders(folder)[0]
    languages = (match[1], match[2]) if match else _languages(first)
    if languages is None:
        raise ConfigError(f"{folder} does not say which languages it translates: write en-fr={folder}")
    translator = Translator.load(folder, device)

    def translate(texts: Sequence[str], options: JobOptions) -> Sequence[Result]:
        glossary = Glossary.make((term, [form]) for term, form in options.glossary) if options.glossary else None
        return translator.translate(texts, alternatives=options.alternatives, align=options.align, glossary=glossary)

    worker = Worker(translate, max_waiting=MAX_WAITING, cache_size=CACHED)
    return Served(folder, *languages, worker, _validation_pairs(first))


def _languages(folder: Path) -> tuple[str, str] | None:
    """The languages of a folder by its card."""
    card = folder / "card.md"
    match = CARD_LANGUAGES.search(card.read_text(encoding="utf-8", errors="replace")) if card.is_file() else None
    return (match[1], match[2]) if match else None


def _validation_pairs(folder: Path) -> list[tuple[str, str]]:
    path = folder / VALIDATION
    lines = path.read_text(encoding="utf-8").splitlines()[:DETECTOR_LINES] if path.is_file() else []
    return [(row["source"], row["target"]) for row in map(json.loads, lines)]


class Models:
    """All served models, and a detector of their languages."""

    def __init__(self, served: Sequence[Served], failed: dict[str, str]) -> None:
        self.served, self.failed = served, failed
        texts: dict[str, list[str]] = {}
        for model in served:
            texts.setdefault(model.source, []).extend(source for source, _ in model.pairs)
            texts.setdefault(model.target, []).extend(target for _, target in model.pairs)
        self.trigrams = {language: _count_trigrams(lines) for language, lines in texts.items()}

    @classmethod
    def load(cls, names: Sequence[str], device: str) -> Models:
        """Load folders; one that fails does not stop the others, unless all fail."""
        served, failed = [], {}
        for name in names:
            try:
                served.append(load_served(name, device))
            except RegardError as error:
                failed[name] = str(error)
        if not served:
            raise ConfigError("no model could be loaded: " + "; ".join(failed.values()))
        return cls(served, failed)

    def find(self, source: str, target: str) -> Served:
        """The model of a language pair."""
        for model in self.served:
            if same_language(model.source, source) and same_language(model.target, target):
                return model
        pairs = ", ".join(f"{model.source}-{model.target}" for model in self.served)
        raise InputError(f"no model here translates from {source[:20]!r} to {target[:20]!r}; there is {pairs}")

    def detect(self, text: str) -> list[dict[str, Any]]:
        """The served languages by how well their character trigrams fit a text; confidences in percent."""
        counted = _count_trigrams([text])
        scores = {}
        for language, known in self.trigrams.items():
            size = sum(known.values()) + len(known) + 1
            scores[language] = sum(number * math.log((known[x] + 1) / size) for x, number in counted.items())
        best = max(scores.values())
        shares = {language: math.exp(score - best) for language, score in scores.items()}
        total = sum(shares.values())
        found = [{"language": x, "confidence": round(100 * share / total, 1)} for x, share in shares.items()]
        return sorted(found, key=lambda one: -one["confidence"])

    def close(self) -> None:
        for model in self.served:
            model.worker.close()


def _count_trigrams(lines: Iterable[str]) -> Counter[str]:
    return Counter(
        text[i : i + 3] for line in lines for text in [f"  {line.casefold()}  "] for i in range(len(text) - 2)
    )
