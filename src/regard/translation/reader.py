"""The reader: a bert fills masked words in a text (fill-mask) and embeds texts as vectors.

B texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray

from regard.config import Config, split_folders
from regard.errors import FolderError, InputError
from regard.models import BERT
from regard.models.folder import load_ensemble
from regard.text.batching import pad
from regard.text.ordering import READ_AHEAD_CHARACTERS, READ_AHEAD_TEXTS, batch_by_length, read_ahead
from regard.text.sentences import text_list, text_problem
from regard.text.tokenizer import Tokenizer
from regard.translation.loaded import LoadedModels

BATCH_TOKENS = {"cpu": 2048, "mps": 8192, "cuda": 65536}  # padded tokens encoded at once
GAP = re.compile(r"\[MASK\]|<mask>")


class Guess(NamedTuple):
    """A predicted token for a [MASK]."""

    text: str
    probability: float


class Filled(NamedTuple):
    """A text with its masks filled in."""

    text: str  # with the best guess for every mask
    gaps: list[list[Guess]]  # the guesses for each mask, best first; masks are predicted independently


class Reader(LoadedModels):
    """A bert and its tokenizer."""

    def __init__(self, model: BERT, tokenizer: Tokenizer, config: Config, *, folder: str | Path = "") -> None:
        super().__init__(model, config, folder)
        self.model, self.tokenizer = model, tokenizer

    @classmethod
    def load(cls, folder: str | Path, device: torch.device | str = "auto", config: Config | None = None) -> Reader:
        """Load a model folder."""
        if len(split_folders(folder)) > 1:
            raise FolderError(f"{folder} is an ensemble, which is not supported for a bert: give one folder")
        models, tokenizers, config = load_ensemble(folder, device, ("bert",), "does not embed or fill texts", config)
        return cls(cast(BERT, models[0]), tokenizers.source, config, folder=folder)

    @torch.inference_mode()
    def fill(self, text: str, *, top: int) -> Filled:
        """Predict the `top` most probable tokens for every [MASK] or <mask> in a text."""
        _check(text)
        if top < 1:
            raise InputError(f"top ({top}) must be at least 1")
        pieces = GAP.split(text)
        if len(pieces) == 1:
            raise InputError("the text has no [MASK]: write [MASK] in place of the word to predict")
        ids, special = self.encode_with_gaps(pieces), self.tokenizer.special
        self.check_length(ids)
        masks = [position for position, token in enumerate(ids) if token == special.mask]
        logits = self.model.logits(self.model.encode(torch.tensor([ids], device=self.device))[0, masks]).float()
        probabilities = logits.softmax(-1)
        probabilities[:, list(special.textless)] = -1
        values, best = probabilities.topk(min(top, probabilities.shape[-1] - len(special)))
        gaps = []
        for tokens, row, mask in zip(best.tolist(), values.tolist(), masks, strict=True):
            words = self.tokenizer.token_texts(tokens, ids[mask - 1] if mask else special.pad)
            gaps.append([Guess(word.strip() or word, value) for word, value in zip(words, row, strict=True)])
        filled = pieces[0] + "".join(guesses[0].text + after for guesses, after in zip(gaps, pieces[1:], strict=True))
        return Filled(filled, gaps)

    @torch.inference_mode()
    def embed(self, texts: Iterable[str], *, pool: str = "mean") -> NDArray[np.float32]:
        """Embed texts as (B, size): the mean of all token states or the first token state; zeros for an empty text.

        The special tokens around a text are in the mean, as in sentence-transformers. A text longer than the model can
        read is read in parts, and the mean is over all of them.
        """
        if pool not in ("mean", "first"):
            raise InputError(f"pool ({pool}) must be mean or first")
        texts = text_list(texts, "embed")
        for text in texts:
            _check(text)
        before, after = self._special_tokens
        rows: list[tuple[int, list[int]]] = []  # the text each row belongs to, and its ids
        size = self.model.config.max_positions - len(before) - len(after)
        for number, ids in enumerate(self.tokenizer.encode_batch([text if text.strip() else "" for text in texts])):
            starts = range(0, len(ids), size) if pool == "mean" else range(min(len(ids), 1))
            rows += [(number, [*before, *ids[start : start + size], *after]) for start in starts]
        sums = np.zeros((len(texts), self.model.config.size), np.float64)
        counts = np.zeros(len(texts), np.int64)
        lengths, names = [len(ids) for _, ids in rows], [texts[number] for number, _ in rows]
        for batch in batch_by_length(lengths, names, BATCH_TOKENS[self.device.type]):
            tokens, mask = pad([rows[row][1] for row in batch], self.device)
            for row, states in zip(batch, self.model.encode(tokens, mask=mask).float().cpu(), strict=True):
                pooled = states[: 1 if pool == "first" else lengths[row]]
                sums[rows[row][0]] += pooled.sum(0, dtype=torch.float64).numpy()
                counts[rows[row][0]] += len(pooled)
        return (sums / np.maximum(counts, 1)[:, None]).astype(np.float32)

    def stream(self, texts: Iterable[str], *, pool: str = "mean") -> Iterator[NDArray[np.float32]]:
        """Embed any number of texts: one array for every window of texts."""
        for window in read_ahead(texts, READ_AHEAD_TEXTS, READ_AHEAD_CHARACTERS):
            yield self.embed(window, pool=pool)

    @property
    def _special_tokens(self) -> tuple[list[int], list[int]]:
        """The special tokens before and after a text; continuous text has none."""
        return ([], []) if self.config.text.continuous else self.tokenizer.surrounding_tokens

    def encode_with_gaps(self, pieces: Sequence[str]) -> list[int]:
        """Encode a text with a mask token between its pieces."""
        before, after = self._special_tokens
        ids = list(before)
        characters = self.config.text.tokenizer == "characters"  # other tokens include the space before a word
        for number, piece in enumerate(pieces):
            text = piece if characters or number == len(pieces) - 1 else piece.removesuffix(" ")
            ids += [*[self.tokenizer.special.mask] * bool(number), *self.tokenizer.encode(text)]
        return ids + list(after)

    def check_length(self, ids: Sequence[int]) -> None:
        positions = self.model.config.max_positions
        if len(ids) > positions:
            raise InputError(f"the text has {len(ids)} tokens and this bert reads {positions}: shorten the text")


def _check(text: str) -> None:
    if problem := text_problem(text):
        raise InputError(f"the text cannot be read: {problem}")
