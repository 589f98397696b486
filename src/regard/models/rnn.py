"""The recurrent encoder-decoder: with one fixed vector, or with attention at every step.

B batch, S source tokens, T target tokens, N decoder state, C context, E embedding, V vocabulary.

feed = "input" is Bahdanau et al. (2015): attention from s(t-1), the context goes into the cell, and the output is read
from s(t-1), y(t-1) and c(t) through maxout. feed = "output" is Luong et al. (2015) as the pointer networks write it:
attention from s(t), z = [c; s], two linear layers. With score = "none" the context is the same fixed vector at every
step (Cho et al., 2014; Sutskever et al., 2014), and the rest is unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention import Memory, make_score
from regard.attention.core import attend_unchecked
from regard.attention.masks import over_queries
from regard.attention.scores import Score, prepare
from regard.attention.tiled import Tiled
from regard.config import ModelConfig
from regard.models.contract import (
    Record,
    State,
    check_not_empty,
    check_room,
    check_rows,
    check_tokens,
    checked_mask,
    note,
)
from regard.models.recurrent import BothWays, Hidden, Layer

if TYPE_CHECKING:
    from regard.text.batching import Batch


class Source(NamedTuple):
    """What the encoder left: a memory to attend to, or one fixed vector."""

    memory: Memory | None
    """(B, 1, S, key), (B, 1, S, C)"""
    mask: Tensor | None
    """(B, 1, 1, S)"""
    fixed: Tensor | None
    """(B, C)"""


class RNN(nn.Module):
    """GRU or LSTM encoder and decoder of any depth; `score` says how they are joined, `feed` where the context goes."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        attends, into_cell = config.score != "none", config.feed == "input"
        size, embedding, context = config.size, config.embedding_size, config.source_state

        self.source = _embedding(config.vocabulary, embedding)
        self.target = self.source if config.tie_embeddings == "all" else _embedding(config.target_tokens, embedding)
        widths = [embedding] + [context] * (config.encoder_layers - 1)
        self.encoder = nn.ModuleList(
            BothWays(config.cell, width, config.direction_size, bidirectional=config.bidirectional) for width in widths
        )
        # s(0): from the backward reading, which ends at the first word; without attention from all there is.
        summary = config.direction_size if attends else context
        self.bridge = nn.Linear(summary, config.decoder_layers * size * (1 if config.cell == "gru" else 2))

        widths = [embedding + (context if into_cell else 0)] + [size] * (config.decoder_layers - 1)
        self.decoder = nn.ModuleList(Layer(config.cell, width, size) for width in widths)
        additive = config.score_name == "additive"
        self.ask = nn.Linear(size, size, bias=False) if additive else None
        self.remember = nn.Linear(context, size, bias=False) if additive else None
        self.score = make_score(config.score_name, size, context) if attends else None

        if into_cell:
            self.deep = nn.Linear(size + embedding + context, 2 * config.deep_size)
        else:
            self.deep = nn.Linear(context + size, config.deep_size)
        self.output = (
            None if config.tie_embeddings != "none" else nn.Linear(config.deep_size, config.target_tokens, bias=False)
        )
        self.output_bias = nn.Parameter(torch.zeros(config.target_tokens))
        self.dropout = nn.Dropout(config.dropout)
        for layer in (self.bridge, self.ask, self.remember, self.deep, self.output):
            if layer is not None:
                nn.init.xavier_uniform_(layer.weight)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)

    # Reading.

    def start(self, source: Tensor, mask: Tensor | None = None, record: Record | None = None, room: int = 0) -> State:
        """Read the source (B, S); `room` is for families that keep a cache."""
        check_tokens(source, self.config.vocabulary, "source")
        mask = checked_mask(mask, source, "source")
        check_room(room)
        check_not_empty(source)
        lengths = None if mask is None else mask.sum(1).clamp(min=1)
        states = self.dropout(self.source(source))
        note(record, "encoder.embedding", states)
        for depth, layer in enumerate(self.encoder):
            if depth:
                states = self.dropout(states)
            states, onward, backward = layer(states, lengths)
            note(record, f"encoder.{depth}.hidden", states)
        note(record, "encoder.output", states)
        ends = onward if backward is None else torch.cat([onward, backward], dim=-1)
        if self.score is None:
            return State(Source(None, None, ends), self._first(ends))
        # under autocast products are narrower than states
        key = states if self.remember is None else self.remember(states).to(states.dtype)
        memory = Memory(key[:, None], states[:, None])
        seen = None if mask is None else over_queries(mask)
        return State(Source(memory, seen, None), self._first(onward if backward is None else backward))

    def _first(self, summary: Tensor) -> tuple[Hidden, ...]:
        """s(0) of every layer: tanh(W h + b)."""
        parts = torch.tanh(self.bridge(summary)).split(self.config.size, dim=-1)
        per_layer = 1 if self.config.cell == "gru" else 2
        return tuple(parts[i : i + per_layer] for i in range(0, len(parts), per_layer))

    # Writing.

    def forward(self, batch: Batch, record: Record | None = None) -> Tensor:
        """For training: the logits of the whole target, teacher-forced; what the decoder did goes into a record."""
        assert batch.source is not None
        assert batch.target_in is not None
        return self.step(batch.target_in, self.start(batch.source, batch.mask), record)[0]

    def step(self, tokens: Tensor, state: State, record: Record | None = None) -> tuple[Tensor, State]:
        """Write on: (B, T) -> (B, T, V)."""
        check_tokens(tokens, self.config.target_tokens, "target")
        source, past = state
        check_rows(tokens, len(past[0][0]), len(source.fixed if source.memory is None else source.memory.key))
        embedded = self.dropout(self.target(tokens))
        note(record, "decoder.embedding", embedded)
        if self.config.feed == "output":
            states, past = self._run(embedded, past, record)
            context = self._context(states, source, record)
            deep = self.deep(torch.cat([context, states], dim=-1))
        elif source.fixed is not None:
            context = self._context(embedded, source, record)
            before = past[-1][0][:, None]
            states, past = self._run(torch.cat([embedded, context], dim=-1), past, record)
            deep = self._maxout(torch.cat([before, states[:, :-1]], dim=1), embedded, context)
        else:
            before, context, past = self._walk(embedded, source, past, record)
            deep = self._maxout(before, embedded, context)
        note(record, "decoder.output", deep)
        return self._logits(self.dropout(deep)), State(source, past)

    @property
    def output_matrix(self) -> Tensor:
        """(V, size): what a state is compared with to say a token."""
        return self.target.weight if self.output is None else self.output.weight

    def _logits(self, x: Tensor) -> Tensor:
        return self.output(x) if isinstance(self.output, Tiled) else F.linear(x, self.output_matrix, self.output_bias)

    def _run(self, x: Tensor, past: tuple[Hidden, ...], record: Record | None) -> tuple[Tensor, tuple[Hidden, ...]]:
        """All tokens through all layers, one fused call a layer."""
        after = []
        for depth, (layer, hidden) in enumerate(zip(self.decoder, past, strict=True)):
            x, last = layer(self.dropout(x) if depth else x, hidden)
            note(record, f"decoder.{depth}.hidden", x)
            after.append(last)
        return x, tuple(after)

    def _walk(
        self, embedded: Tensor, source: Source, past: tuple[Hidden, ...], record: Record | None
    ) -> tuple[Tensor, Tensor, tuple[Hidden, ...]]:
        """Token by token, since each context is part of the next state: s(t-1) and c(t) of all, and the last state."""
        first, *upper = self.decoder
        assert isinstance(first, Layer)
        of_embedded, of_context = first.inputs(embedded.shape[-1])
        if torch.is_autocast_enabled(embedded.device.type):
            of_context = of_context.to(torch.get_autocast_dtype(embedded.device.type))  # once, not at every step
        known = F.linear(embedded, of_embedded)  # what does not wait for a context
        assert source.memory is not None
        assert self.score is not None
        score, key = prepare(self.score, source.memory.key)
        memory = source.memory._replace(key=key)
        before, contexts, weights, hiddens = [], [], [], []
        for gates in known.unbind(1):
            before.append(past[-1][0])
            context, given = self._look(past[-1][0][:, None], memory, score, source.mask, record is not None)
            contexts.append(context.squeeze(1))
            weights.append(given)
            now = [first.step(gates + F.linear(contexts[-1], of_context), past[0])]
            for layer, hidden in zip(upper, past[1:], strict=True):
                assert isinstance(layer, Layer)
                now.append(layer.step(F.linear(self.dropout(now[-1][0]), layer.rnn.all_weights[0][0]), hidden))
            past = tuple(now)
            hiddens.append([hidden[0] for hidden in past])
        if record is not None:
            note(record, "decoder.0.cross", torch.cat([w for w in weights if w is not None], dim=2))
            for depth in range(len(past)):
                note(record, f"decoder.{depth}.hidden", torch.stack([h[depth] for h in hiddens], dim=1))
        return torch.stack(before, dim=1), torch.stack(contexts, dim=1), past

    def _context(self, states: Tensor, source: Source, record: Record | None) -> Tensor:
        """(B, T, C) for all T at once: the fixed vector, or what attention from these states finds."""
        if source.fixed is not None:
            rows, width = states.shape[:2]
            times = rows // max(len(source.fixed), 1)
            return source.fixed.repeat_interleave(times, 0)[:, None].expand(-1, width, -1).to(states.dtype)
        assert source.memory is not None
        assert self.score is not None
        context, weights = self._look(states, source.memory, self.score, source.mask, record is not None)
        note(record, "decoder.0.cross", weights)
        return context

    def _look(
        self, states: Tensor, memory: Memory, score: Score, mask: Tensor | None, weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Attention of (B·n, T, N) states on B sentences: (B·n, T, C), (B·n, 1, T, S)."""
        rows, width = states.shape[:2]
        key, value = memory
        sentences = len(key)
        query = states if self.ask is None else self.ask(states)
        # n hypotheses of a sentence ask side by side
        query = query.reshape(sentences, 1, rows // max(sentences, 1) * width, query.shape[-1]).to(value.dtype)
        context, given = attend_unchecked(query, key, value, score, mask, weights)
        if given is not None:
            given = given.reshape(rows, 1, width, given.shape[-1])
        return context.reshape(rows, width, context.shape[-1]), given

    def _maxout(self, before: Tensor, embedded: Tensor, context: Tensor) -> Tensor:
        """Bahdanau's deep output: the larger of each two of U s(t-1) + V E y(t-1) + C c(t)."""
        pairs = self.deep(torch.cat([before, embedded, context], dim=-1)).unflatten(-1, (-1, 2))
        return torch.amax(pairs, dim=-1)


def _embedding(vocabulary: int, size: int) -> nn.Embedding:
    embedding = nn.Embedding(vocabulary, size)
    nn.init.normal_(embedding.weight, std=size**-0.5)
    return embedding
