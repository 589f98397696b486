"""Perplexity: how well a gpt or a bert predicts a text, token by token.

V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import ConfigError, DataError
from regard.evaluation.systems import Progress
from regard.memory import in_parts
from regard.results import Report, Table
from regard.text.batching import IGNORE_INDEX, Batch, Epoch, packed_epoch, prefetch, split_batch
from regard.text.dataset import Column
from regard.text.files import read_continuous, read_lines
from regard.translation.reader import Reader
from regard.translation.writer import Writer

BATCH_TOKENS = 4096
MAX_EXPONENT = 700  # of math.exp: in a script without spaces, a word is a whole line
SEED = 0  # for the masked tokens of a bert; the same as in validation during training


@dataclass(frozen=True, kw_only=True)
class Perplexity(Report):
    """The perplexity of a language model on a text."""

    system: str
    family: str
    perplexity: float
    nats: float  # the mean negative log-likelihood of a predicted token
    predicted: int  # the number of predicted tokens: all tokens for a gpt, the masked ones for a bert
    tokens: int  # all tokens, including the end tokens of texts
    words: int  # separated by spaces, plus line ends, as in the word-level perplexity of WikiText
    characters: int  # including line ends
    window: int  # the window size in tokens; windows do not overlap
    signature: str  # the settings that determine the numbers, in the style of sacreBLEU
    perplexity_per_word: float | None = None  # for a gpt, unless infinite (a script without spaces)
    bits_per_character: float | None = None  # for a gpt

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    def tables(self) -> list[Table]:
        rows = [
            [f"perplexity per token, windows of {self.window:,} tokens without overlap", f"{self.perplexity:,.2f}"],
            [f"nats per token, {self.predicted:,} of {self.tokens:,} tokens predicted", f"{self.nats:.4f}"],
        ]
        if self.perplexity_per_word is not None:
            rows.append([f"perplexity per word, {self.words:,} words and lines", f"{self.perplexity_per_word:,.2f}"])
        if self.bits_per_character is not None:
            rows.append([f"bits per character, {self.characters:,} characters", f"{self.bits_per_character:.4f}"])
        return [Table(["", ""], rows), Table(["signature"], [[self.signature]])]


@torch.no_grad()
def negative_log_likelihood(
    model: nn.Module, epoch: Epoch, device: torch.device, progress: Progress | None = None
) -> tuple[float, int]:
    """The negative log-likelihood of the labels of an epoch, and their number; the model must be in eval mode."""

    def nll(batch: Batch) -> Tensor:
        logits = model(batch)
        labels = batch.target_out
        if logits.dim() == 2:  # masked language modelling: the logits of the masked tokens only
            labels = labels[labels != IGNORE_INDEX]
        options: dict[str, Any] = {"ignore_index": IGNORE_INDEX, "reduction": "sum"}
        return F.cross_entropy(logits.flatten(0, -2).float(), labels.flatten(), **options)

    sums, labels = [], 0
    for number, batch in enumerate(prefetch(epoch.make, range(len(epoch.plan)), device=device), 1):
        sums += in_parts(nll, batch, lambda part: split_batch(part, 2))
        labels += batch.target_tokens
        if progress is not None:
            progress(number, len(epoch.plan))
    return float(torch.stack(sums).cpu().double().sum()), labels


def measure(
    model: Writer | Reader, text: str | Path, *, system: str = "model", progress: Progress | None = None
) -> Perplexity:
    """The perplexity of a gpt or bert on a text file, computed as in validation during training."""
    if isinstance(model, Writer) and len(model.models) > 1:
        raise ConfigError(f"{system} is an ensemble: give one language model")
    module, config = model.models[0] if isinstance(model, Writer) else model.model, model.config
    if config.text.continuous:
        texts = list(read_continuous(str(text)))
        content = "".join(texts)
    else:
        texts = [line for line, _ in read_lines(text) if line.strip()]
        content = "".join(f"{line}\n" for line in texts)
    if not texts:
        raise DataError(f"{text} is empty or has only empty lines")
    words, characters = len(content.split()) + content.count("\n"), len(content)
    special = model.tokenizer.special
    ids = [np.array([*tokens, special.end], np.int64) for tokens in model.tokenizer.encode_batch(texts)]
    column = Column.of(np.concatenate(ids), np.array([len(tokens) for tokens in ids], np.int32))
    options: dict[str, Any] = {"batch_tokens": BATCH_TOKENS, "seed": SEED, "epoch": 0, "rank": 0, "world_size": 1}
    epoch = packed_epoch(column, np.arange(len(ids)), config, special, cover_all=True, **options)
    rows, widths, _ = epoch.plan.shapes.T
    tokens, window = int(rows @ widths), int(widths.max())
    nats, predicted = negative_log_likelihood(module, epoch, model.device, progress)
    mean = nats / max(predicted, 1)
    of_family: dict[str, Any] = {"signature": f"window:{window}|overlap:no"}
    if config.model.family == "gpt":
        of_family["bits_per_character"] = mean * tokens / math.log(2) / max(characters, 1)
        if (word_nats := mean * tokens / max(words, 1)) < MAX_EXPONENT:
            of_family["perplexity_per_word"] = math.exp(word_nats)
    else:
        of_family["signature"] += f"|masked:{config.text.mask_probability:g}|seed:{SEED}"
    return Perplexity(
        system=system,
        family=config.model.family,
        perplexity=math.exp(min(mean, MAX_EXPONENT)),
        nats=mean,
        predicted=predicted,
        tokens=tokens,
        words=words,
        characters=characters,
        window=window,
        **of_family,
    )
