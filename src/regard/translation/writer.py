"""The writer: a gpt goes on with a text, piece by piece.

V vocabulary.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from regard.config import Config, ModelConfig
from regard.decoding import Rules, Written, make_rules
from regard.decoding.sampling import draw, restrict
from regard.decoding.search import mean
from regard.errors import InputError
from regard.models import Generator
from regard.models.contract import State
from regard.models.folder import load_ensemble
from regard.text.sentences import text_problem
from regard.text.tokenizer import END, MASK, PAD, START, UNKNOWN, Tokenizer

BEFORE = 8  # tokens decoded again with new ones: what a token writes depends on those before it
BLOCK = 1024  # tokens that room is made for at first; it doubles when they are there
HALF = "\N{REPLACEMENT CHARACTER}"  # what a token that is a part of a character reads as


class Passage(NamedTuple):
    """What was written after a prompt."""

    text: str
    tokens: int
    finished: bool
    """It ended by itself or at a stop; False: so many tokens were asked for."""
    log_probability: float


class Told(NamedTuple):
    """One more token, and what became of the passage by it."""

    text: str
    """What can be shown of it; empty while a character or a stop may still be coming."""
    log_probability: float
    finished: bool


class Writer:
    """A gpt or several, their tokenizer and how they choose."""

    def __init__(self, models: nn.Module | Sequence[nn.Module], tokenizer: Tokenizer, config: Config) -> None:
        self.models = [models] if isinstance(models, nn.Module) else list(models)
        self.tokenizer, self.config = tokenizer, config

    @classmethod
    def load(cls, folder: str | Path, device: torch.device | str = "cpu") -> Writer:
        """The writer in a model folder, or in several joined by `+`."""
        models, sides, config = load_ensemble(folder, device, ("gpt",), "does not write on")
        return cls(models, sides.source, config)

    @property
    def device(self) -> torch.device:
        return next(self.models[0].parameters()).device

    def generate(
        self, prompt: str = "", *, tokens: int, temperature: float | None = None, top_p: float | None = None,
        seed: int = 1, stop: Sequence[str] = (),
    ) -> Passage:  # fmt: skip
        """What follows the prompt, all of it at once; as `stream`."""
        told = list(self.stream(prompt, tokens=tokens, temperature=temperature, top_p=top_p, seed=seed, stop=stop))
        text = "".join(each.text for each in told)
        return Passage(text, len(told), bool(told) and told[-1].finished, sum(each.log_probability for each in told))

    def stream(
        self, prompt: str = "", *, tokens: int, temperature: float | None = None, top_p: float | None = None,
        seed: int = 1, stop: Sequence[str] = (),
    ) -> Iterator[Told]:  # fmt: skip
        """What follows the prompt, token by token, until one of `stop` would come, the text ends, or so many are there.

        A temperature of 0 takes the most probable token every time; what is not given is as the config says.
        """
        if problem := text_problem(prompt):
            raise InputError(f"the prompt cannot be read: {problem}")
        if tokens < 1:
            raise InputError(f"{tokens} tokens were asked for; it must be at least 1")
        settings = self.config.decode
        warmth = settings.temperature if temperature is None else temperature
        share = settings.top_p if top_p is None else top_p
        if not warmth >= 0 or not 0 <= share <= 1:
            raise InputError(f"the temperature ({warmth}) must be at least 0 and top_p ({share}) from 0 to 1")
        chances = random.Random(seed)

        def choose(scores: Tensor) -> int:
            if warmth == 0:
                return int(scores.argmax())
            left = restrict(scores / warmth, top_k=settings.top_k, top_p=share, min_p=settings.min_p)
            return int(draw(left, torch.tensor([chances.random()], dtype=torch.float64, device=scores.device)))

        ids = self.begin(prompt)
        shown = _Shown(self.tokenizer, ids, [text for text in stop if text])
        context, rules = self._context(ids, tokens), self.rules(tokens)
        written: list[int] = []
        for place in range(tokens):
            token, log_probability = _next(context, rules, written, choose)
            written.append(token)
            context.add(token)
            text, stopped = shown.add(token, last=token == END or place + 1 == tokens)
            finished = stopped or token == END
            yield Told(text, log_probability, finished)
            if finished:
                return

    def begin(self, prompt: str) -> list[int]:
        """The ids to go on from. Of a running text <s> is hardly known: nothing before is the end of a line."""
        if self.config.text.continuous:
            return self.tokenizer.encode(prompt or "\n") or [START]  # white space may be no token
        return [START, *self.tokenizer.encode(prompt)]

    def rules(self, tokens: int) -> Rules:
        settings = self.config.decode
        never = [PAD, START, UNKNOWN, MASK, *[END] * self.config.text.continuous]  # a running text has no end
        return make_rules(
            end=END,
            longest=[tokens],
            shortest=settings.min_length,
            no_repeat=settings.no_repeat_ngram,
            forbidden=never,
        )

    def _context(self, ids: list[int], tokens: int) -> _Context:
        tables = [
            shape.max_positions
            for model in self.models
            if (shape := cast(ModelConfig, model.config)).has_position_table
        ]
        return _Context(cast(list[Generator], self.models), self.device, ids, min([len(ids) + tokens, *tables]))


@torch.inference_mode()
def _next(context: _Context, rules: Rules, written: list[int], choose: Callable[[Tensor], int]) -> tuple[int, float]:
    """The token that is chosen and its log-probability."""
    scores = context.scores()
    so_far = torch.tensor([written], dtype=torch.int64, device=scores.device)
    rules.apply(scores, Written(so_far, [0], None), rules.start(1, scores.device))
    token = choose(scores)
    return token, float(scores[0, token])


class _Context:
    """What the models have read: all of the text, or, where positions end, the last part of it."""

    def __init__(self, models: list[Generator], device: torch.device, ids: list[int], most: int) -> None:
        self.models, self.device, self.most = models, device, most
        self.room = min(len(ids) + BLOCK, most)
        self.ids = list(ids)
        self.states: list[State] = []
        self.read = 0

    def scores(self) -> Tensor:
        """(1, V) log-probabilities of the next token."""
        if not self.states or self.read == self.room:
            if self.states and self.room < self.most:
                self.room = min(2 * self.room, self.most)
            # Half of the room stays free, so that this is not done again at every token.
            self.ids = self.ids[-max(self.room // 2, 1) :] if len(self.ids) >= self.room else self.ids
            before = torch.tensor([self.ids[:-1]], dtype=torch.int64, device=self.device)
            self.states = [model.start(before, capacity=self.room) for model in self.models]
            self.read = len(self.ids) - 1
        last = torch.tensor([[self.ids[-1]]], device=self.device)
        steps = [model.step(last, state) for model, state in zip(self.models, self.states, strict=True)]
        self.states = [state for _, state in steps]
        self.read += 1
        return mean([logits[:, -1].float().log_softmax(-1) for logits, _ in steps])

    def add(self, token: int) -> None:
        self.ids.append(token)


class _Shown:
    """Tokens as text, as soon as it is certain what they read as."""

    def __init__(self, tokenizer: Tokenizer, ids: Sequence[int], stops: Sequence[str]) -> None:
        self.tokenizer, self.stops = tokenizer, stops
        self.ids = list(ids[-BEFORE:])
        self.known = len(self.ids)  # of them are shown
        self.waiting = ""

    def add(self, token: int, *, last: bool) -> tuple[str, bool]:
        """What can be shown now, and whether a stop has come."""
        self.ids.append(token)
        whole = self.tokenizer.decode(self.ids)
        if not whole.endswith(HALF) or last:
            self.waiting += whole[len(self.tokenizer.decode(self.ids[: self.known])) :]
            self.ids = self.ids[-BEFORE:]
            self.known = len(self.ids)
        ends = [place for stop in self.stops if (place := self.waiting.find(stop)) >= 0]
        if ends:
            return self.waiting[: min(ends)], True
        held = 0 if last else max((_begun(self.waiting, stop) for stop in self.stops), default=0)
        text = self.waiting[: len(self.waiting) - held]
        self.waiting = self.waiting[len(text) :]
        return text, False


def _begun(text: str, stop: str) -> int:
    """How many characters at the end of a text may be the beginning of a stop."""
    return next((size for size in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:size])), 0)
