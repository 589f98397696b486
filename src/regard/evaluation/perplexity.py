"""Perplexity: how well a gpt or a bert predicts a text, token by token.

V vocabulary.
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

from regard.config import Config
from regard.errors import ConfigError, DataError
from regard.evaluation.systems import Progress
from regard.results import Report, Table
from regard.text import ordering
from regard.text.batching import IGNORE_INDEX, MakeBatch, Stream, packed, packed_masked, prefetch
from regard.text.dataset import Column
from regard.text.files import read_continuous, read_lines
from regard.text.tokenizer import Tokenizer
from regard.translation.reader import Reader
from regard.translation.writer import Writer

BATCH_TOKENS = 4096
SEED = 0  # for the masked tokens of a bert; the same as in validation during training


@dataclass(frozen=True, kw_only=True)
class Perplexity(Report):
    """The perplexity of a language model on a text."""

    system: str
    family: str
    perplexity: float
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
    perplexity_per_word: float | None
    """None for a bert, which predicts only masked tokens, and if infinite (a script without spaces)."""
    bits_per_character: float | None
    """None for a bert."""
    signature: str
    """The settings that determine the numbers, in the style of sacreBLEU."""
    seed: int | None
    """The seed that chose the masked tokens of a bert; None for a gpt."""

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}

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


@torch.inference_mode()
def measure(
    model: Writer | Reader, text: str | Path, *, system: str = "model", progress: Progress | None = None
) -> Perplexity:
    """The perplexity of a gpt or bert on a text file, computed as in validation during training."""
    if isinstance(model, Writer) and len(model.models) > 1:
        raise ConfigError(f"{system} is an ensemble: give one language model")
    module, config = model.models[0] if isinstance(model, Writer) else model.model, model.config
    if config.text.continuous:
        texts = list(read_continuous(str(text)))
        lines = "".join(texts).split("\n")
        ends = len(lines) - 1
    else:
        texts = lines = [line for line, _ in read_lines(text) if line.strip()]
        ends = len(lines)
    if not texts:
        raise DataError(f"{text} is empty or has only empty lines")
    words = sum(len(line.split()) for line in lines) + ends
    characters = sum(map(len, lines)) + ends
    make, batches, tokens, window = _windows(texts, model.tokenizer, config)
    nats, predicted = torch.zeros((), dtype=torch.float64), 0
    for number, batch in enumerate(prefetch(make, range(batches), device=model.device), 1):
        logits = module(batch)
        labels = batch.target_out if logits.dim() == 3 else batch.target_out[batch.target_out != IGNORE_INDEX]
        loss = F.cross_entropy(
            logits.flatten(0, -2).float(), labels.flatten(), ignore_index=IGNORE_INDEX, reduction="sum"
        )
        nats += loss.double().cpu()
        predicted += batch.target_tokens
        if progress is not None:
            progress(number, batches)
    mean = float(nats) / max(predicted, 1)
    is_gpt = config.model.family == "gpt"
    masked = None if is_gpt else config.text.mask_probability
    per_word = _exp(mean * tokens / max(words, 1))
    signature = f"window:{window}|overlap:no"
    return Perplexity(
        system=system,
        family=config.model.family,
        perplexity=_exp(mean),
        nats=mean,
        predicted=predicted,
        tokens=tokens,
        words=words,
        characters=characters,
        window=window,
        masked=masked,
        perplexity_per_word=per_word if is_gpt and math.isfinite(per_word) else None,
        bits_per_character=mean * tokens / math.log(2) / max(characters, 1) if is_gpt else None,
        signature=signature if is_gpt else f"{signature}|masked:{masked:g}|seed:{SEED}",
        seed=None if is_gpt else SEED,
    )


def _windows(texts: Sequence[str], tokenizer: Tokenizer, config: Config) -> tuple[MakeBatch, int, int, int]:
    """The batches of a text cut into windows, their number, the number of tokens and the length of a window."""
    ids = [np.array([*tokens, tokenizer.special.end], np.int64) for tokens in tokenizer.encode_batch(list(texts))]
    column = Column.of(np.concatenate(ids), np.array([len(tokens) for tokens in ids], np.int32))
    stream = Stream(column, np.arange(len(ids)), continuous=config.text.continuous, special=tokenizer.special)
    length = min(config.text.context_length, config.model.max_positions, len(stream))
    batch_tokens = max(BATCH_TOKENS, length)
    plan = ordering.plan_windows(len(stream), length=length, batch_tokens=batch_tokens, seed=0, epoch=0, cover_all=True)
    options: dict[str, Any] = {"rank": 0, "world_size": 1, "segments": config.text.isolate_texts}
    if config.model.family == "gpt":
        return packed(stream, plan, **options), len(plan), len(stream), length
    masking: dict[str, Any] = {"mask_probability": config.text.mask_probability, "vocabulary": config.model.vocabulary}
    return packed_masked(stream, plan, **options, **masking, seed=SEED, epoch=0), len(plan), len(stream), length


def _exp(nats: float) -> float:
    return math.exp(nats) if nats < 700 else math.inf
