"""The recurrent encoder-decoder, with one fixed context vector or with attention at every step.

B batch, S source tokens, T target tokens, N decoder state, C context, E embedding, V vocabulary.

feed = "input" is Bahdanau et al. (2015): attention from s(t-1), the context is an input of the cell, and the output is
a maxout layer of s(t-1), y(t-1) and c(t). feed = "output" is Luong et al. (2015) as in pointer networks: attention from
s(t), z = [c; s], two linear layers. With score = "none" the context is the same fixed vector at every step (Cho et al.,
2014; Sutskever et al., 2014), and the rest is the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention import Memory, make_score
from regard.attention.core import attend_unchecked
from regard.attention.masks import over_queries
from regard.attention.prepacked import PrepackedLinear
from regard.attention.scores import Score, prepare
from regard.config import ModelConfig
from regard.models.contract import (
    Record,
    State,
    check_capacity,
    check_not_empty,
    check_rows,
    check_tokens,
    checked_mask,
    note,
)
from regard.models.recurrent import BidirectionalLayer, Hidden, RecurrentLayer

if TYPE_CHECKING:
    from regard.text.batching import Batch


class Source(NamedTuple):
    """The encoded source: a memory to attend to, or one fixed vector."""

    memory: Memory | None
    """(B, 1, S, key), (B, 1, S, C)"""
    mask: Tensor | None
    """(B, 1, 1, S)"""
    fixed: Tensor | None
    """(B, C)"""


class RNN(nn.Module):
    """GRU or LSTM encoder and decoder of any depth; `score` chooses the attention, `feed` where its context goes."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        attends, into_cell = config.score != "none", config.feed == "input"
        size, embedding, context = config.size, config.embedding_size, config.encoder_state_size

        self.source = _embedding(config.vocabulary, embedding)
        self.target = (
            self.source if config.tie_embeddings == "all" else _embedding(config.target_vocabulary_size, embedding)
        )
        widths = [embedding] + [context] * (config.encoder_layers - 1)
        self.encoder = nn.ModuleList(
            BidirectionalLayer(config.cell, width, config.direction_size, bidirectional=config.bidirectional)
            for width in widths
        )
        # s(0) comes from the backward state at the first word; without attention, from both directions.
        summary = config.direction_size if attends else context
        self.bridge = nn.Linear(summary, config.decoder_layers * size * (1 if config.cell == "gru" else 2))

        widths = [embedding + (context if into_cell else 0)] + [size] * (config.decoder_layers - 1)
        self.decoder = nn.ModuleList(RecurrentLayer(config.cell, width, size) for width in widths)
        additive = config.score_name == "additive"
        self.query_proj = nn.Linear(size, size, bias=False) if additive else None
        self.key_proj = nn.Linear(context, size, bias=False) if additive else None
        self.score = make_score(config.score_name, size, context) if attends else None

        if into_cell:
            self.deep_output = nn.Linear(size + embedding + context, 2 * config.deep_output_size)
        else:
            self.deep_output = nn.Linear(context + size, config.deep_output_size)
        self.output = (
            None
            if config.tie_embeddings != "none"
            else nn.Linear(config.deep_output_size, config.target_vocabulary_size, bias=False)
        )
        self.output_bias = nn.Parameter(torch.zeros(config.target_vocabulary_size))
        self.dropout = nn.Dropout(config.dropout)
        for layer in (self.bridge, self.query_proj, self.key_proj, self.deep_output, self.output):
            if layer is not None:
                nn.init.xavier_uniform_(layer.weight)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)

    def start(
        self, source: Tensor, mask: Tensor | None = None, record: Record | None = None, capacity: int = 0
    ) -> State:
        """Encode the source (B, S); `capacity` is for families with a cache."""
        check_tokens(source, self.config.vocabulary, "source")
        mask = checked_mask(mask, source, "source")
        check_capacity(capacity)
        check_not_empty(source)
        lengths = None if mask is None else mask.sum(1).clamp(min=1)
        states = self.dropout(self.source(source))
        note(record, "encoder.embedding", states)
        for depth, layer in enumerate(self.encoder):
            if depth:
                states = self.dropout(states)
            states, forward, backward = layer(states, lengths)
            note(record, f"encoder.{depth}.hidden", states)
        note(record, "encoder.output", states)
        ends = forward if backward is None else torch.cat([forward, backward], dim=-1)
        if self.score is None:
            return State(Source(None, None, ends), self._first_hidden(ends))
        # under autocast the projection is bf16 and the states are fp32
        key = states if self.key_proj is None else self.key_proj(states).to(states.dtype)
        memory = Memory(key[:, None], states[:, None])
        visible = None if mask is None else over_queries(mask)
        return State(Source(memory, visible, None), self._first_hidden(forward if backward is None else backward))

    def _first_hidden(self, summary: Tensor) -> tuple[Hidden, ...]:
        """s(0) of every layer: tanh(W h + b)."""
        parts = torch.tanh(self.bridge(summary)).split(self.config.size, dim=-1)
        per_layer = 1 if self.config.cell == "gru" else 2
        return tuple(parts[i : i + per_layer] for i in range(0, len(parts), per_layer))

    def forward(self, batch: Batch, record: Record | None = None) -> Tensor:
        """For training: the teacher-forced logits of the whole target; the decoder fills the record."""
        assert batch.source is not None
        assert batch.target_in is not None
        return self.step(batch.target_in, self.start(batch.source, batch.mask), record)[0]

    def step(self, tokens: Tensor, state: State, record: Record | None = None) -> tuple[Tensor, State]:
        """Decode: (B, T) -> (B, T, V)."""
        check_tokens(tokens, self.config.target_vocabulary_size, "target")
        source, past = state
        check_rows(tokens, len(past[0][0]), len(source.fixed if source.memory is None else source.memory.key))
        embedded = self.dropout(self.target(tokens))
        note(record, "decoder.embedding", embedded)
        if self.config.feed == "output":
            states, past = self._run_layers(embedded, past, record)
            context = self._context(states, source, record)
            deep = self.deep_output(torch.cat([context, states], dim=-1))
        elif source.fixed is not None:
            context = self._context(embedded, source, record)
            previous = past[-1][0][:, None]
            states, past = self._run_layers(torch.cat([embedded, context], dim=-1), past, record)
            deep = self._maxout(torch.cat([previous, states[:, :-1]], dim=1), embedded, context)
        else:
            previous, context, past = self._run_steps(embedded, source, past, record)
            deep = self._maxout(previous, embedded, context)
        note(record, "decoder.output", deep)
        return self._logits(self.dropout(deep)), State(source, past)

    @property
    def output_matrix(self) -> Tensor:
        """(V, size): the matrix that turns a state into logits."""
        return self.target.weight if self.output is None else self.output.weight

    def _logits(self, x: Tensor) -> Tensor:
        if isinstance(self.output, PrepackedLinear):
            return self.output(x)
        return F.linear(x, self.output_matrix, self.output_bias)

    def _run_layers(
        self, x: Tensor, past: tuple[Hidden, ...], record: Record | None
    ) -> tuple[Tensor, tuple[Hidden, ...]]:
        """All tokens through all layers, one fused call per layer."""
        after = []
        for depth, (layer, hidden) in enumerate(zip(self.decoder, past, strict=True)):
            x, last = layer(self.dropout(x) if depth else x, hidden)
            note(record, f"decoder.{depth}.hidden", x)
            after.append(last)
        return x, tuple(after)

    def _run_steps(
        self, embedded: Tensor, source: Source, past: tuple[Hidden, ...], record: Record | None
    ) -> tuple[Tensor, Tensor, tuple[Hidden, ...]]:
        """Token by token, since each context is part of the next state: all s(t-1), all c(t), and the last state."""
        first, *upper = self.decoder
        assert isinstance(first, RecurrentLayer)
        embedding_weight, context_weight = first.input_weights(embedded.shape[-1])
        if torch.is_autocast_enabled(embedded.device.type):
            context_weight = context_weight.to(
                torch.get_autocast_dtype(embedded.device.type)
            )  # once, not at every step
        products = F.linear(embedded, embedding_weight)  # of all tokens at once: these need no context
        assert source.memory is not None
        assert self.score is not None
        score, key = prepare(self.score, source.memory.key)
        memory = source.memory._replace(key=key)
        previous, contexts, attentions, states = [], [], [], []
        for gates in products.unbind(1):
            previous.append(past[-1][0])
            context, weights = self._attend(past[-1][0][:, None], memory, score, source.mask, record is not None)
            contexts.append(context.squeeze(1))
            attentions.append(weights)
            after = [first.step(gates + F.linear(contexts[-1], context_weight), past[0])]
            for layer, hidden in zip(upper, past[1:], strict=True):
                assert isinstance(layer, RecurrentLayer)
                after.append(layer.step(F.linear(self.dropout(after[-1][0]), layer.rnn.all_weights[0][0]), hidden))
            past = tuple(after)
            states.append([hidden[0] for hidden in past])
        if record is not None:
            note(
                record, "decoder.0.cross", torch.cat([weights for weights in attentions if weights is not None], dim=2)
            )
            for depth in range(len(past)):
                note(record, f"decoder.{depth}.hidden", torch.stack([state[depth] for state in states], dim=1))
        return torch.stack(previous, dim=1), torch.stack(contexts, dim=1), past

    def _context(self, states: Tensor, source: Source, record: Record | None) -> Tensor:
        """(B, T, C) for all T at once: the fixed vector, or the attention context of these states."""
        if source.fixed is not None:
            rows, width = states.shape[:2]
            times = rows // max(len(source.fixed), 1)
            return source.fixed.repeat_interleave(times, 0)[:, None].expand(-1, width, -1).to(states.dtype)
        assert source.memory is not None
        assert self.score is not None
        context, weights = self._attend(states, source.memory, self.score, source.mask, record is not None)
        note(record, "decoder.0.cross", weights)
        return context

    def _attend(
        self, states: Tensor, memory: Memory, score: Score, mask: Tensor | None, weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Attention of (B·n, T, N) states on B sentences: (B·n, T, C), (B·n, 1, T, S)."""
        rows, width = states.shape[:2]
        key, value = memory
        sentences = len(key)
        query = states if self.query_proj is None else self.query_proj(states)
        # the n hypotheses of a sentence are queries of one row
        query = query.reshape(sentences, 1, rows // max(sentences, 1) * width, query.shape[-1]).to(value.dtype)
        context, attention = attend_unchecked(query, key, value, score, mask, weights)
        if attention is not None:
            attention = attention.reshape(rows, 1, width, attention.shape[-1])
        return context.reshape(rows, width, context.shape[-1]), attention

    def _maxout(self, previous: Tensor, embedded: Tensor, context: Tensor) -> Tensor:
        """Bahdanau's deep output: the maximum of each pair of U s(t-1) + V E y(t-1) + C c(t)."""
        pairs = self.deep_output(torch.cat([previous, embedded, context], dim=-1)).unflatten(-1, (-1, 2))
        return torch.amax(pairs, dim=-1)


def _embedding(vocabulary: int, size: int) -> nn.Embedding:
    embedding = nn.Embedding(vocabulary, size)
    nn.init.normal_(embedding.weight, std=size**-0.5)
    return embedding
