"""Recurrent layers: GRU and LSTM, over a whole sentence at once or one step at a time.

B batch, T tokens, N size of a state, I size of an input.

The cells are torch's. Its GRU applies the reset gate after the product, n = tanh(W x + r * (U h)); Cho's and Bahdanau's
before it, n = tanh(W x + U (r * h)). The other gates are the same.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.devices import supports_bf16

Hidden = tuple[Tensor, ...]
"""The state of one layer: (h,) of a GRU, (h, c) of an LSTM; each (B, N)."""


class RecurrentLayer(nn.Module):
    """One direction of one layer."""

    def __init__(self, cell: str, inputs: int, size: int) -> None:
        super().__init__()
        self.is_gru = cell == "gru"
        self.size = size
        self.rnn: nn.GRU | nn.LSTM = (nn.GRU if self.is_gru else nn.LSTM)(inputs, size, batch_first=True)
        _initialise(self.rnn, size)

    def forward(self, x: Tensor, hidden: Hidden | None = None) -> tuple[Tensor, Hidden]:
        """The whole sentence in one fused call: (B, T, I) -> (B, T, N), and the state after the last token."""
        first = None if hidden is None else tuple(part[None].to(x.dtype).contiguous() for part in hidden)
        states, last = self._run(x, first[0] if first and self.is_gru else first)
        after = (last[0],) if self.is_gru else (last[0][0], last[1][0])
        # Under autocast the kernels may return another dtype (float16 on a GPU): return the dtype of the input.
        return states.to(x.dtype), tuple(part.to(x.dtype) for part in after)

    def _run(self, x: Tensor, hidden: Any) -> Any:
        if x.device.type == "cpu" and torch.is_autocast_enabled("cpu") and not supports_bf16("cpu"):
            with torch.autocast("cpu", enabled=False):  # oneDNN has no bf16 LSTM for such a CPU: run it in fp32
                return self.rnn(x, hidden)
        return self.rnn(x, hidden)

    def input_weights(self, width: int) -> tuple[Tensor, Tensor]:
        """The input matrix in two parts: for the first `width` numbers of an input, and for the rest."""
        weight = self.rnn.all_weights[0][0]
        return weight[:, :width], weight[:, width:]

    def step(self, gates: Tensor, hidden: Hidden) -> Hidden:
        """One step, from the product of its input with the input matrix."""
        _, weight, bias, recurrent_bias = self.rnn.all_weights[0]
        if gates.device.type == "cuda":
            return _fused_step(gates, F.linear(hidden[0], weight), hidden, bias, recurrent_bias)
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


def _fused_step(gates: Tensor, recurrent: Tensor, hidden: Hidden, *biases: Tensor) -> Hidden:
    """One step in torch's fused CUDA kernel, in the precision of the state."""
    aten = torch.ops.aten
    kernel = aten._thnn_fused_gru_cell if len(hidden) == 1 else aten._thnn_fused_lstm_cell
    dtype = hidden[-1].dtype
    with torch.autocast("cuda", enabled=False):
        *after, _ = kernel(
            gates.to(dtype), recurrent.to(dtype), hidden[-1].contiguous(), *(b.to(dtype) for b in biases)
        )
    return tuple(after)


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


def _initialise(rnn: nn.GRU | nn.LSTM, size: int) -> None:
    """Xavier for input matrices, orthogonal for recurrent ones; the forget gate of an LSTM starts with bias 1."""
    for name, parameter in rnn.named_parameters():
        with torch.no_grad():
            if name.startswith("bias"):
                nn.init.zeros_(parameter)
            elif not parameter.is_meta:
                for block in parameter.split(size):
                    (nn.init.xavier_uniform_ if "ih" in name else nn.init.orthogonal_)(block)
    if isinstance(rnn, nn.LSTM):
        with torch.no_grad():
            rnn.all_weights[0][3][size : 2 * size].fill_(1.0)
