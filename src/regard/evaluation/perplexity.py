"""Perplexity: how well a gpt or a bert predicts a text, token by token.

B rows, T tokens, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from regard.config import Config
from regard.errors import ConfigError, DataError
from regard.evaluation.systems import Progress
from regard.results import Report, Table
from regard.text import ordering
from regard.text.batching import MakeBatch, Prefetcher, Stream, packed, packed_masked
from regard.text.dataset import Column
from regard.text.files import read_continuous, read_lines
from regard.text.tokenizer import END, PAD, Tokenizer
from regard.translation.reader import Reader
from regard.translation.writer import Writer

BATCH_TOKENS = 4096
SEED = 0  # for the masked tokens of a bert; the same as in validation during training


@dataclass(frozen=True, kw_only=True)
class Perplexity(Report):
    """The perplexity of a language model on a text."""

    system: str
    family: str
    nats: float
    """The mean negative log-likelihood of a predicted token."""
    predicted: int
    """The number of predicted tokens: all tokens for a gpt, the masked ones for a bert."""
    tokens: int
    """All tokens, including the end tokens of texts."""
    words: int
    """Words separated by spaces, plus line ends, as in the word-level perplexity of WikiText."""
    characters: int
    """All characters, including line ends."""
    window: int
    """The window size in tokens; windows do not overlap."""
    masked: float | None
    """The share of tokens masked for a bert; None for a gpt."""

    @property
    def perplexity(self) -> float:
        return _exp(self.nats)

    @property
    def perplexity_per_word(self) -> float | None:
        """None for a bert, which predicts only masked tokens, and if infinite (a script without spaces)."""
        value = _exp(self.nats * self.tokens / max(self.words, 1))
        return None if self.masked is not None or math.isinf(value) else value

    @property
    def bits_per_character(self) -> float | None:
        return None if self.masked is not None else self.nats * self.tokens / math.log(2) / max(self.characters, 1)

    @property
    def signature(self) -> str:
        """The settings that determine the numbers, in the style of sacreBLEU."""
        window = f"window:{self.window}|overlap:no"
        return window if self.masked is None else f"{window}|masked:{self.masked:g}|seed:{SEED}"

    def to_dict(self) -> dict[str, Any]:
        derived = {name: getattr(self, name) for name in ("perplexity_per_word", "bits_per_character", "signature")}
        fields = {"system": self.system, "family": self.family, "perplexity": self.perplexity, **asdict(self)}
        values = {**fields, **derived, "seed": None if self.masked is None else SEED}
        return {name: value for name, value in values.items() if value is not None}

    def tables(self) -> list[Table]:
        window = f"windows of {self.window:,} tokens without overlap"
        if self.masked is not None:
            window += f", {self.masked:.0%} of them masked, seed {SEED}"
        rows = [
            [f"perplexity per token, {window}", f"{self.perplexity:,.2f}"],
            [f"nats per token, {self.predicted:,} of {self.tokens:,} tokens predicted", f"{self.nats:.4f}"],
        ]
        if self.perplexity_per_word is not None:
            rows.append([f"perplexity per word, {self.words:,} words and lines", f"{self.perplexity_per_word:,.2f}"])
        if self.bits_per_character is not None:
            rows.append([f"bits per character, {self.characters:,} characters", f"{self.bits_per_character:.4f}"])
        return [Table(["", ""], rows)]


def measure(
    model: Writer | Reader, text: str | Path, *, system: str = "model", progress: Progress | None = None
) -> Perplexity:
    """The perplexity of a gpt or bert on a text file, computed as in validation during training."""
    if isinstance(model, Writer) and len(model.models) > 1:
        raise ConfigError(f"{system} is an ensemble: give one language model")
    module, config = model.models[0] if isinstance(model, Writer) else model.model, model.config
    if config.text.continuous:
        texts = list(read_continuous(str(text)))
        whole = "".join(texts)
        words, characters = len(whole.split()) + whole.count("\n"), len(whole)
    else:
        texts = [line for line, _ in read_lines(text) if line.strip()]
        words = sum(len(line.split()) + 1 for line in texts)
        characters = sum(len(line) + 1 for line in texts)
    if not texts:
        raise DataError(f"{text} is empty or has only empty lines")
    make, windows, tokens, window = _windows(texts, model.tokenizer, config)
    nats, predicted = _negative_log_likelihood(module, make, range(windows), model.device, progress)
    return Perplexity(
        system=system,
        family=config.model.family,
        nats=nats / max(predicted, 1),
        predicted=predicted,
        tokens=tokens,
        words=words,
        characters=characters,
        window=window,
        masked=config.text.mask_probability if config.model.family == "bert" else None,
    )


def _windows(texts: Sequence[str], tokenizer: Tokenizer, config: Config) -> tuple[MakeBatch, int, int, int]:
    """The batches of a text cut into windows, their number, the number of tokens and the length of a window."""
    ids = [np.array([*tokens, END], np.int64) for tokens in tokenizer.encode_batch(list(texts))]
    lengths = np.array([len(tokens) for tokens in ids], np.int32)
    column = Column.of(np.concatenate(ids), lengths)
    stream = Stream(column, np.arange(len(ids)), continuous=config.text.continuous)
    length = min(config.text.context_length, config.model.max_positions, len(stream))
    batch_tokens = max(BATCH_TOKENS, length)
    plan = ordering.plan_windows(len(stream), length=length, batch_tokens=batch_tokens, seed=0, epoch=0, cover_all=True)
    options: dict[str, Any] = {"rank": 0, "world_size": 1, "segments": config.text.isolate_texts}
    if config.model.family == "gpt":
        return packed(stream, plan, **options), len(plan), len(stream), length
    masking: dict[str, Any] = {"mask_probability": config.text.mask_probability, "vocabulary": config.model.vocabulary}
    return packed_masked(stream, plan, **options, **masking, seed=SEED, epoch=0), len(plan), len(stream), length


@torch.inference_mode()
def _negative_log_likelihood(
    model: nn.Module, make: MakeBatch, numbers: range, device: torch.device, progress: Progress | None
) -> tuple[float, int]:
    """The sum over all predicted tokens in nats, and the number of these tokens."""
    nats, predicted = torch.zeros((), dtype=torch.float64), 0
    with Prefetcher(make, numbers, device=device) as feed:
        for number, batch in enumerate(feed, 1):
            logits = model(batch)
            labels = batch.target_out if logits.dim() == 3 else batch.target_out[batch.target_out != PAD]
            loss = F.cross_entropy(logits.flatten(0, -2).float(), labels.flatten(), ignore_index=PAD, reduction="sum")
            nats += loss.double().cpu()
            predicted += batch.target_tokens
            if progress is not None:
                progress(number, len(numbers))
    return float(nats), predicted


def _exp(nats: float) -> float:
    return math.exp(nats) if nats < 700 else math.inf
