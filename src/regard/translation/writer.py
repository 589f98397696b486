"""The writer: a gpt continues a text, token by token.

V vocabulary.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from regard.config import Config, ModelConfig
from regard.decoding import Constraints
from regard.decoding.graphs import CapturedSteps
from regard.decoding.sampling import draw, restrict
from regard.decoding.search import mean_probability
from regard.errors import InputError
from regard.models import Generator
from regard.models.cache import for_search
from regard.models.contract import State
from regard.models.folder import load_ensemble
from regard.text.sentences import text_problem
from regard.text.tokenizer import Tokenizer
from regard.translation.loaded import LoadedModels

CONTEXT_TOKENS = 8  # previous tokens detokenized together with a new one, since its text depends on them
INITIAL_CAPACITY = 1024  # initial size of the KV cache in tokens; it doubles when it is full
INCOMPLETE = "\N{REPLACEMENT CHARACTER}"  # text of a token with only some bytes of a character


class Generated(NamedTuple):
    """The text generated after a prompt."""

    text: str
    tokens: int
    finished: bool
    """True at an end token or stop text; False at the maximum number of tokens."""
    log_probability: float


class GeneratedToken(NamedTuple):
    """A generated token."""

    text: str
    """The new text; empty while a character or a stop text may be incomplete."""
    log_probability: float
    finished: bool


class Writer(LoadedModels):
    """A gpt or an ensemble, with its tokenizer and decode settings."""

    def __init__(
        self, models: nn.Module | Sequence[nn.Module], tokenizer: Tokenizer, config: Config, *, folder: str | Path = ""
    ) -> None:
        super().__init__(models, config, folder)
        self.tokenizer = tokenizer

    @classmethod
    def load(cls, folder: str | Path, device: torch.device | str = "auto", config: Config | None = None) -> Writer:
        """Load a model folder, or an ensemble joined by `+`."""
        models, tokenizers, config = load_ensemble(folder, device, ("gpt",), "does not generate text", config)
        return cls(models, tokenizers.source, config, folder=folder)

    def generate(self, prompt: str = "", **options: Any) -> Generated:
        """Generate the text after a prompt; the options are those of `stream`."""
        generated = list(self.stream(prompt, **options))
        text = "".join(token.text for token in generated)
        log_probability = sum(token.log_probability for token in generated)
        return Generated(text, len(generated), generated[-1].finished, log_probability)

    def stream(
        self,
        prompt: str = "",
        *,
        tokens: int,
        temperature: float | None = None,
        top_p: float | None = None,
        seed: int = 1,
        stop: Sequence[str] = (),
    ) -> Iterator[GeneratedToken]:
        """Generate at most `tokens` tokens after a prompt, one by one, up to the end or one of the `stop` texts.

        A temperature of 0 is greedy search; None uses the value of the config.
        """
        settings, special = self.config.decode, self.tokenizer.special
        temperature = settings.temperature if temperature is None else temperature
        top_p = settings.top_p if top_p is None else top_p
        if problem := text_problem(prompt):
            raise InputError(f"the prompt cannot be read: {problem}")
        if tokens < 1:
            raise InputError(f"tokens ({tokens}) must be at least 1")
        if not temperature >= 0 or not 0 <= top_p <= 1:
            raise InputError(f"the temperature ({temperature}) must be at least 0 and top_p ({top_p}) from 0 to 1")
        generator = random.Random(seed)

        def choose(scores: Tensor) -> int:
            if temperature == 0:
                return int(scores.argmax())
            allowed = restrict(scores / temperature, top_k=settings.top_k, top_p=top_p)
            return int(draw(allowed, torch.tensor([generator.random()], dtype=torch.float64, device=scores.device)))

        ids = self.encode_prompt(prompt)
        decoder = _IncrementalDecoder(self.tokenizer, ids, [text for text in stop if text])
        context, constraints = _Context(self.models, ids, tokens), self.constraints(tokens)
        for count in range(1, tokens + 1):
            token, log_probability = context.next(choose, constraints)
            text, stopped = decoder.add(token, last=token == special.end or count == tokens)
            finished = stopped or token == special.end
            yield GeneratedToken(text, log_probability, finished)
            if finished:
                return

    def encode_prompt(self, prompt: str) -> list[int]:
        """Encode a prompt. A model of continuous text has seen <s> only rarely, so its empty prompt is a line break."""
        start = self.tokenizer.special.start
        if self.config.text.continuous:
            return self.tokenizer.encode(prompt or "\n") or [start]  # white space may give no token
        return [start, *self.tokenizer.encode(prompt)]

    def constraints(self, tokens: int) -> Constraints:
        """The constraints of one text of at most `tokens` tokens; continuous text has no end token."""
        special = self.tokenizer.special
        forbidden = special.never_generated
        if self.config.text.continuous:
            forbidden = *forbidden, special.end
        return Constraints(
            end=special.end,
            max_lengths=[tokens],
            min_length=self.config.decode.min_length,
            no_repeat_ngram=self.config.decode.no_repeat_ngram,
            forbidden=forbidden,
        )


class _Step(NamedTuple):
    """The tensors of a captured step."""

    pasts: tuple[Any, ...]  # the cache of each model
    last: Tensor  # (1, 1) the token before the next one
    scores: Any = ()  # (1, V) log-probabilities of the next token, after the first step


class _Context:
    """The context of the models: the whole text, or its last part when positions or the KV cache run out."""

    def __init__(self, models: Sequence[nn.Module], ids: Sequence[int], tokens: int) -> None:
        self.models, self.device = cast(list[Generator], models), next(models[0].parameters()).device
        configs = [cast(ModelConfig, model.config) for model in models]
        positions = [config.max_positions for config in configs if config.has_position_table]
        self.max_capacity = min([len(ids) + tokens, *positions])
        self.capacity = min(len(ids) + INITIAL_CAPACITY, self.max_capacity)
        self.ids, self.generated = list(ids), list[int]()
        self.states, self.length = list[State](), 0
        self.captured: CapturedSteps[_Step] | None = None

    @torch.inference_mode()
    def next(self, choose: Callable[[Tensor], int], constraints: Constraints) -> tuple[int, float]:
        """Generate a token; return it and its log-probability."""
        scores = self._scores()
        device = self.device if constraints.no_repeat_ngram else "cpu"  # else only their number counts
        constraints.apply(scores, torch.tensor([self.generated], dtype=torch.int64, device=device), [0])
        token = choose(scores)
        self.ids.append(token)
        self.generated.append(token)
        return token, float(scores[0, token])

    def _scores(self) -> Tensor:
        """(1, V) log-probabilities of the next token."""
        if not self.states or self.length == self.capacity:
            self._start()
        self.length += 1
        if self.captured is not None:
            self.captured.state.last.fill_(self.ids[-1])
            self.captured.replay()
            return cast(Tensor, self.captured.state.scores.clone())
        scores, self.states = self._step(torch.tensor([[self.ids[-1]]], device=self.device), self.states)
        return scores

    def _start(self) -> None:
        """Read the text before its last token into caches with room; on a GPU, capture the step that follows."""
        if self.states and self.capacity < self.max_capacity:
            self.capacity = min(2 * self.capacity, self.max_capacity)
        # Keep half of the capacity free, so that the context is not encoded again at every token.
        self.ids = self.ids[-max(self.capacity // 2, 1) :] if len(self.ids) >= self.capacity else self.ids
        before = torch.tensor([self.ids[:-1]], dtype=torch.int64, device=self.device)
        self.length = len(self.ids) - 1
        room, on_gpu = self.capacity - self.length, self.device.type == "cuda"
        self.captured = None
        self.states = [model.start(before, capacity=0 if on_gpu else room) for model in self.models]
        if on_gpu:
            pasts = tuple(for_search(state.past, 1, room) for state in self.states)
            last = torch.zeros(1, 1, dtype=torch.int64, device=self.device)
            self.captured = CapturedSteps([self._captured_step], _Step(pasts, last))

    def _captured_step(self, step: _Step) -> _Step:
        states = [State(state.memory, past) for state, past in zip(self.states, step.pasts, strict=True)]
        scores, states = self._step(step.last, states)
        return _Step(tuple(state.past for state in states), step.last, scores)

    def _step(self, last: Tensor, states: Sequence[State]) -> tuple[Tensor, list[State]]:
        """(1, V) log-probabilities of the token after the last one, and the states after it."""
        steps = [model.step(last, state) for model, state in zip(self.models, states, strict=True)]
        return mean_probability([logits[:, -1].float().log_softmax(-1) for logits, _ in steps]), [
            state for _, state in steps
        ]


class _IncrementalDecoder:
    """Detokenizes a stream of tokens; text is returned when later tokens cannot change it."""

    def __init__(self, tokenizer: Tokenizer, ids: Sequence[int], stops: Sequence[str]) -> None:
        self.tokenizer, self.stops = tokenizer, stops
        self.ids = list(ids[-CONTEXT_TOKENS:])
        self.decoded = len(self.ids)  # ids whose text is known
        self.pending = ""

    def add(self, token: int, *, last: bool) -> tuple[str, bool]:
        """Add a token; return the new text, and whether a stop text was found."""
        self.ids.append(token)
        text = self.tokenizer.decode(self.ids)
        if not text.endswith(INCOMPLETE) or last:
            self.pending += text[len(self.tokenizer.decode(self.ids[: self.decoded])) :]
            self.ids = self.ids[-CONTEXT_TOKENS:]
            self.decoded = len(self.ids)
        ends = [place for stop in self.stops if (place := self.pending.find(stop)) >= 0]
        if ends:
            return self.pending[: min(ends)], True
        held_back = 0  # characters at the end that may begin a stop text
        for stop in () if last else self.stops:
            sizes = range(min(len(stop) - 1, len(self.pending)), held_back, -1)
            held_back = next((size for size in sizes if self.pending.endswith(stop[:size])), held_back)
        certain = self.pending[: len(self.pending) - held_back]
        self.pending = self.pending[len(certain) :]
        return certain, False
