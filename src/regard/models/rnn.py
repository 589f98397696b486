"""The recurrent encoder-decoder, with one fixed context vector or with attention at every step.

B batch, S source tokens, T target tokens, N decoder state, C context, E embedding, I size of an input, V vocabulary.

feed = "input" is Bahdanau et al. (2015): attention from s(t-1), the context is an input of the cell, and the output is
a maxout layer of s(t-1), y(t-1) and c(t). feed = "output" is Luong et al. (2015) as in pointer networks: attention from
s(t), z = [c; s], two linear layers. With score = "none" the context is the same fixed vector at every step (Cho et al.,
2014; Sutskever et al., 2014), and the rest is the same.

The cells are torch's. Its GRU applies the reset gate after the product, n = tanh(W x + r * (U h)); Cho's and Bahdanau's
before it, n = tanh(W x + U (r * h)). The other gates are the same.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention.core import attend_unchecked
from regard.attention.masks import over_queries
from regard.attention.multihead import Memory, initialise
from regard.attention.scores import Cosine, make_score, unit
from regard.config import ModelConfig
from regard.devices import supports_bf16
from regard.models.contract import Record, State, check_tokens, note
from regard.models.layers import logits

if TYPE_CHECKING:
    from regard.text.batching import Batch

Hidden = tuple[Tensor, ...]
"""The state of one layer: (h,) of a GRU, (h, c) of an LSTM; each (B, N)."""


class Source(NamedTuple):
    """The encoded source."""

    memory: Memory  # (B, 1, S, key), (B, 1, S, C); without attention one fixed vector, (B, 1, 1, C)
    mask: Tensor | None  # (B, 1, 1, S)


class RNN(nn.Module):
    """GRU or LSTM encoder and decoder of any depth; `score` chooses the attention, `feed` where its context goes."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        attends, into_cell = config.score != "none", config.feed == "input"
        size, embedding, context = config.size, config.embedding_size, config.encoder_state_size

        self.source = _embedding(config.vocabulary, embedding)
        shared = config.tie_embeddings == "all"
        self.target = self.source if shared else _embedding(config.target_vocabulary_size, embedding)
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
        if isinstance(self.score, Cosine):
            self.score.unit_keys = True  # `start` normalises the keys, once for all steps

        if into_cell:
            self.deep_output = nn.Linear(size + embedding + context, 2 * config.deep_output_size)
        else:
            self.deep_output = nn.Linear(context + size, config.deep_output_size)
        vocabulary, deep = config.target_vocabulary_size, config.deep_output_size
        self.output = None if config.tie_embeddings != "none" else nn.Linear(deep, vocabulary, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(vocabulary))
        self.dropout = nn.Dropout(config.dropout)
        for layer in (self.bridge, self.query_proj, self.key_proj, self.deep_output, self.output):
            if layer is not None:
                initialise(layer)

    def start(
        self, source: Tensor, mask: Tensor | None = None, record: Record | None = None, capacity: int = 0
    ) -> State:
        """Encode the source (B, S); `capacity` is for families with a cache."""
        check_tokens(source, self.config.vocabulary, "source", mask)
        lengths = None if mask is None else mask.sum(1).clamp(min=1)
        states = self.dropout(self.source(source))
        note(record, "encoder.embedding", states)
        for depth, layer in enumerate(self.encoder):
            if depth:
                states = self.dropout(states)
            states, forward, backward = layer(states, lengths)
            note(record, f"encoder.{depth}.hidden", states)
        note(record, "encoder.output", states)
        if self.score is None:
            summary = forward if backward is None else torch.cat([forward, backward], dim=-1)
            fixed = summary[:, None, None]
            encoded = Source(Memory(fixed, fixed), None)
        else:
            # under autocast the projection is bf16 and the states are fp32
            key = states if self.key_proj is None else self.key_proj(states).to(states.dtype)
            key = unit(key) if isinstance(self.score, Cosine) else key
            visible = None if mask is None else over_queries(mask)
            summary = forward if backward is None else backward
            encoded = Source(Memory(key[:, None], states[:, None]), visible)
        parts = torch.tanh(self.bridge(summary)).split(self.config.size, dim=-1)  # s(0) of all layers: tanh(W h + b)
        per_layer = 1 if self.config.cell == "gru" else 2
        return State(encoded, tuple(parts[i : i + per_layer] for i in range(0, len(parts), per_layer)))

    def forward(self, batch: Batch, record: Record | None = None) -> Tensor:
        """For training: the teacher-forced logits of the whole target; the decoder fills the record."""
        assert batch.source is not None
        assert batch.target_in is not None
        return self.step(batch.target_in, self.start(batch.source, batch.mask), record)[0]

    def step(self, tokens: Tensor, state: State, record: Record | None = None) -> tuple[Tensor, State]:
        """Decode: (B, T) -> (B, T, V)."""
        check_tokens(tokens, self.config.target_vocabulary_size, "target")
        source, past = state
        embedded = self.dropout(self.target(tokens))
        note(record, "decoder.embedding", embedded)
        if self.config.feed == "output":
            states, past = self._run_layers(embedded, past, record)
            context, weights = self._attend(states, source, record is not None)
            note(record, "decoder.0.cross", weights)
            deep = self.deep_output(torch.cat([context, states], dim=-1))
        elif self.score is None:
            context, _ = self._attend(embedded, source, weights=False)
            previous = past[-1][0][:, None]
            states, past = self._run_layers(torch.cat([embedded, context], dim=-1), past, record)
            deep = self._maxout(torch.cat([previous, states[:, :-1]], dim=1), embedded, context)
        else:
            previous, context, past = self._run_steps(embedded, source, past, record)
            deep = self._maxout(previous, embedded, context)
        note(record, "decoder.output", deep)
        return logits(self.dropout(deep), self.output, self.target, self.output_bias), State(source, past)

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
        input_weight, width = first.rnn.all_weights[0][0], embedded.shape[-1]
        embedding_weight, context_weight = input_weight[:, :width], input_weight[:, width:]
        if torch.is_autocast_enabled(embedded.device.type):  # once, not at every step
            context_weight = context_weight.to(torch.get_autocast_dtype(embedded.device.type))
        products = F.linear(embedded, embedding_weight)  # of all tokens at once: these need no context
        previous, contexts, attentions, states = [], [], [], []
        for gates in products.unbind(1):
            previous.append(past[-1][0])
            context, weights = self._attend(past[-1][0][:, None], source, record is not None)
            contexts.append(context.squeeze(1))
            if weights is not None:
                attentions.append(weights)
            after = [first.step(gates + F.linear(contexts[-1], context_weight), past[0])]
            for layer, hidden in zip(upper, past[1:], strict=True):
                assert isinstance(layer, RecurrentLayer)
                after.append(layer.step(F.linear(self.dropout(after[-1][0]), layer.rnn.all_weights[0][0]), hidden))
            past = tuple(after)
            states.append([hidden[0] for hidden in past])
        if record is not None:
            record["decoder.0.cross"] = torch.cat(attentions, dim=2)
            for depth in range(len(past)):
                record[f"decoder.{depth}.hidden"] = torch.stack([state[depth] for state in states], dim=1)
        return torch.stack(previous, dim=1), torch.stack(contexts, dim=1), past

    def _attend(self, states: Tensor, source: Source, weights: bool) -> tuple[Tensor, Tensor | None]:
        """The context of (B·n, T, N) states on B sentences, and the attention: (B·n, T, C), (B·n, 1, T, S)."""
        (rows, width, _), (key, value), sentences = states.shape, source.memory, len(source.memory.value)
        times = rows // max(sentences, 1)
        if self.score is None:  # the same vector at every step
            return value[:, 0].repeat_interleave(times, 0).expand(-1, width, -1).to(states.dtype), None
        query = states if self.query_proj is None else self.query_proj(states)
        # the n hypotheses of a sentence are queries of one row
        query = query.reshape(sentences, 1, times * width, query.shape[-1]).to(value.dtype)
        context, attention = attend_unchecked(query, key, value, self.score, source.mask, weights)
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


# Layers.


class RecurrentLayer(nn.Module):
    """One direction of one layer."""

    def __init__(self, cell: str, inputs: int, size: int) -> None:
        super().__init__()
        self.is_gru = cell == "gru"
        self.size = size
        self.rnn: nn.GRU | nn.LSTM = (nn.GRU if self.is_gru else nn.LSTM)(inputs, size, batch_first=True)
        # Xavier for input matrices, orthogonal for recurrent ones; the forget gate of an LSTM starts with bias 1
        with torch.no_grad():
            for name, parameter in self.rnn.named_parameters():
                if name.startswith("bias"):
                    nn.init.zeros_(parameter)
                elif not parameter.is_meta:
                    for block in parameter.split(size):
                        (nn.init.xavier_uniform_ if "ih" in name else nn.init.orthogonal_)(block)
            if not self.is_gru:
                self.rnn.all_weights[0][3][size : 2 * size].fill_(1.0)

    def forward(self, x: Tensor, hidden: Hidden | None = None) -> tuple[Tensor, Hidden]:
        """The whole sentence in one fused call: (B, T, I) -> (B, T, N), and the state after the last token."""
        first = None if hidden is None else tuple(part[None].to(x.dtype).contiguous() for part in hidden)
        in_fp32 = x.device.type == "cpu" and torch.is_autocast_enabled("cpu") and not supports_bf16("cpu")
        with torch.autocast("cpu", enabled=False) if in_fp32 else nullcontext():  # no bf16 LSTM for such a CPU
            states, last = self.rnn(x, first[0] if first and self.is_gru else first)
        after = (last[0],) if self.is_gru else (last[0][0], last[1][0])
        # Under autocast the kernels may return another dtype (float16 on a GPU): return the dtype of the input.
        return states.to(x.dtype), tuple(part.to(x.dtype) for part in after)

    def step(self, gates: Tensor, hidden: Hidden) -> Hidden:
        """One step, from the product of its input with the input matrix."""
        _, weight, bias, recurrent_bias = self.rnn.all_weights[0]
        if gates.device.type == "cuda":  # torch's fused kernel, in the precision of the state
            kernel = torch.ops.aten._thnn_fused_gru_cell if self.is_gru else torch.ops.aten._thnn_fused_lstm_cell
            recurrent, state = F.linear(hidden[0], weight), hidden[-1].contiguous()
            with torch.autocast("cuda", enabled=False):
                gates, recurrent, *biases = (x.to(state.dtype) for x in (gates, recurrent, bias, recurrent_bias))
                *after, _ = kernel(gates, recurrent, state, *biases)
            return tuple(after)
        gates = gates + bias
        recurrent = F.linear(hidden[0], weight, recurrent_bias)
        if self.is_gru:
            reset, update, new = gates.chunk(3, -1)
            reset_h, update_h, new_h = recurrent.chunk(3, -1)
            reset, update = torch.sigmoid(reset + reset_h), torch.sigmoid(update + update_h)
            candidate = torch.tanh(new + reset * new_h)
            return (candidate + update * (hidden[0] - candidate),)
        input_gate, forget_gate, new, output_gate = (gates + recurrent).chunk(4, -1)
        cell = torch.sigmoid(forget_gate) * hidden[1] + torch.sigmoid(input_gate) * torch.tanh(new)
        return torch.sigmoid(output_gate) * torch.tanh(cell), cell


class BidirectionalLayer(nn.Module):
    """An encoder layer: left to right and, if bidirectional, right to left as well."""

    def __init__(self, cell: str, inputs: int, size: int, *, bidirectional: bool) -> None:
        super().__init__()
        self.left_to_right = RecurrentLayer(cell, inputs, size)
        self.right_to_left = RecurrentLayer(cell, inputs, size) if bidirectional else None

    def forward(self, x: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """(B, T, I) -> states (B, T, N or 2N), the forward state at the last token, the backward state at the first."""
        forward, _ = self.left_to_right(x)
        last = forward[:, -1] if lengths is None else forward[torch.arange(len(x), device=x.device), lengths - 1]
        if self.right_to_left is None:
            return forward, last, None
        # Padding stays at the end of the reversed sentence, so that it is read after all tokens.
        backward = reverse(self.right_to_left(reverse(x, lengths))[0], lengths)
        return torch.cat([forward, backward], dim=-1), last, backward[:, 0]


def reverse(x: Tensor, lengths: Tensor | None) -> Tensor:
    """(B, T, I) with the tokens of each sentence reversed and its padding left at the end."""
    if lengths is None:
        return x.flip(1)
    position = torch.arange(x.shape[1], device=x.device)
    mirrored = lengths[:, None] - 1 - position
    index = torch.where(mirrored >= 0, mirrored, position)  # (B, T)
    return x.gather(1, index[..., None].expand_as(x))
