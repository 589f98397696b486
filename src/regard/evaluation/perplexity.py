"""Perplexity: how well a gpt or a bert foresees a text, token by token.

B rows, T tokens, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from regard.config import Config
from regard.errors import DataError, FolderError
from regard.models.folder import load_model
from regard.text import ordering
from regard.text.batching import MakeBatch, Prefetcher, Stream, packed, packed_masked
from regard.text.dataset import Column
from regard.text.files import read_lines, read_running
from regard.text.tokenizer import END, PAD, Tokenizer, Tokenizers, check_fingerprint

POSITIONS = 4096  # in a batch
SEED = 0  # of what a bert has to guess: that of its validation in training


@dataclass(frozen=True)
class Perplexity:
    """What a text cost a language model."""

    family: str
    perplexity: float
    """exp of the nats a token."""
    nats: float
    """A token that was to be guessed."""
    guessed: int
    tokens: int
    """In all, the ends of texts included."""
    words: int
    """Between blanks, and the ends of lines, as WikiText's perplexities count them."""
    characters: int
    """Ends of lines included."""
    window: int
    """Tokens that are seen at once: the text is cut into windows of so many, without overlap."""
    masked: float | None
    """The share of tokens a bert had to guess, drawn with SEED."""

    @property
    def perplexity_per_word(self) -> float | None:
        """exp of the nats a word; none of a bert, as it guesses only some of the tokens, nor of words too long for it.

        In a script without blanks a word is a whole line, whose perplexity no number can hold.
        """
        found = _exp(self.nats * self.tokens / max(self.words, 1))
        return None if self.masked is not None or math.isinf(found) else found

    @property
    def bits_per_character(self) -> float | None:
        return None if self.masked is not None else self.nats * self.tokens / math.log(2) / max(self.characters, 1)

    @property
    def told(self) -> str:
        """What the number depends on, in the manner of a signature."""
        cut = f"window:{self.window}|overlap:no"
        return cut if self.masked is None else f"{cut}|masked:{self.masked:g}|seed:{SEED}"

    def as_dict(self) -> dict[str, Any]:
        derived = {"perplexity_per_word": self.perplexity_per_word, "bits_per_character": self.bits_per_character}
        values = {**asdict(self), **derived, "signature": self.told, "seed": None if self.masked is None else SEED}
        return {name: value for name, value in values.items() if value is not None}


def of_folder(folder: Path, text: str, device: torch.device, progress: Callable[[int, int], None]) -> Perplexity:
    """The perplexity of a text file by the gpt or bert in a folder, which validation in training would find too."""
    model, config = load_model(folder, device)
    if config.model.family not in ("gpt", "bert"):
        raise FolderError(f"{folder} holds a {config.model.family}, whose translations are scored, not its perplexity")
    sides = Tokenizers.load(folder)
    if config.text.fingerprint:
        check_fingerprint(sides.fingerprint, config.text.fingerprint, folder)
    if config.text.continuous:
        texts = list(read_running(text))
        whole = "".join(texts)
        words, characters = len(whole.split()) + whole.count("\n"), len(whole)
    else:
        texts = [line for line, _ in read_lines(text) if line.strip()]
        words = sum(len(line.split()) + 1 for line in texts)
        characters = sum(len(line) + 1 for line in texts)
    if not texts:
        raise DataError(f"{text} has no line that is not empty")
    make, windows, size, window = _windows(texts, sides.source, config)
    nats, guessed = _cost(model, make, range(windows), device, progress)
    return Perplexity(
        family=config.model.family,
        perplexity=_exp(nats / max(guessed, 1)),
        nats=nats / max(guessed, 1),
        guessed=guessed,
        tokens=size,
        words=words,
        characters=characters,
        window=window,
        masked=config.text.mask_probability if config.model.family == "bert" else None,
    )


def _windows(texts: Sequence[str], tokenizer: Tokenizer, config: Config) -> tuple[MakeBatch, int, int, int]:
    """The batches of a text cut into windows, how many, how many tokens it has, and how long a window is."""
    ids = [np.array([*own, END], np.int64) for own in tokenizer.encode_batch(list(texts))]
    lengths = np.array([len(own) for own in ids], np.int32)
    starts = np.cumsum(lengths, dtype=np.int64) - lengths
    column = Column((np.concatenate(ids),), np.zeros(len(ids), np.uint8), starts, lengths)
    stream = Stream(column, np.arange(len(ids)), running=config.text.continuous)
    length = min(config.text.context_length, config.model.max_positions, len(stream))
    plan = ordering.windows(len(stream), length=length, budget=max(POSITIONS, length), seed=0, epoch=0, whole=True)
    apart: dict[str, Any] = {"rank": 0, "world_size": 1, "segments": config.text.isolate_texts}
    if config.model.family == "gpt":
        return packed(stream, plan, **apart), len(plan), len(stream), length
    share: dict[str, Any] = {"share": config.text.mask_probability, "vocabulary": config.model.vocabulary}
    return packed_masked(stream, plan, **apart, **share, seed=SEED, epoch=0), len(plan), len(stream), length


@torch.inference_mode()
def _cost(
    model: nn.Module, make: MakeBatch, numbers: range, device: torch.device, progress: Callable[[int, int], None]
) -> tuple[float, int]:
    """The nats of all that was to be guessed, and how much that was."""
    nats, guessed = torch.zeros((), dtype=torch.float64), 0
    with Prefetcher(make, numbers, device=device) as feed:
        for number, batch in enumerate(feed, 1):
            logits = model(batch)
            labels = batch.target_out if logits.dim() == 3 else batch.target_out[batch.target_out != PAD]
            cost = F.cross_entropy(logits.flatten(0, -2).float(), labels.flatten(), ignore_index=PAD, reduction="sum")
            nats += cost.double().cpu()
            guessed += batch.target_tokens
            progress(number, len(numbers))
    return float(nats), guessed


def _exp(nats: float) -> float:
    return math.exp(nats) if nats < 700 else math.inf
