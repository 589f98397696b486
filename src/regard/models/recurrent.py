"""Recurrent layers: GRU and LSTM, over a whole sentence at once or one step at a time.

B batch, T tokens, N size of a state, I size of an input.

The cells are torch's. Its GRU applies the reset gate after the product, n = tanh(W x + r * (U h)); Cho's and Bahdanau's
before it, n = tanh(W x + U (r * h)). The gates are the same otherwise.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Hidden = tuple[Tensor, ...]
"""The state of one layer: (h,) of a GRU, (h, c) of an LSTM; each (B, N)."""


class Layer(nn.Module):
    """One direction of one layer."""

    def __init__(self, cell: str, inputs: int, size: int) -> None:
        super().__init__()
        self.gru = cell == "gru"
        self.size = size
        self.rnn: nn.GRU | nn.LSTM = (nn.GRU if self.gru else nn.LSTM)(inputs, size, batch_first=True)
        _start(self.rnn, size)

    def forward(self, x: Tensor, hidden: Hidden | None = None) -> tuple[Tensor, Hidden]:
        """The whole sentence in one fused call: (B, T, I) -> (B, T, N), and the state after the last token."""
        given = None if hidden is None else tuple(part[None].to(x.dtype).contiguous() for part in hidden)
        states, last = self.rnn(x, given[0] if given and self.gru else given)
        after = (last[0],) if self.gru else (last[0][0], last[1][0])
        # Under autocast the kernels answer in what they like (float16 on a GPU): what came in is what goes out.
        return states.to(x.dtype), tuple(part.to(x.dtype) for part in after)

    def inputs(self, width: int) -> tuple[Tensor, Tensor]:
        """What the first so many numbers of an input are multiplied with to give gates, and what the rest is."""
        weight = self.rnn.all_weights[0][0]
        return weight[:, :width], weight[:, width:]

    def step(self, gates: Tensor, hidden: Hidden) -> Hidden:
        """One token further, from the products of its input."""
        _, weight, bias, recurrent_bias = self.rnn.all_weights[0]
        if gates.device.type == "cuda":
            return _fused(gates, F.linear(hidden[0], weight), hidden, bias, recurrent_bias)
        gates = gates + bias
        recurrent = F.linear(hidden[0], weight, recurrent_bias)
        if self.gru:
            reset, update, new = gates.chunk(3, -1)
            reset_h, update_h, new_h = recurrent.chunk(3, -1)
            reset, update = torch.sigmoid(reset + reset_h), torch.sigmoid(update + update_h)
            candidate = torch.tanh(new + reset * new_h)
            return (candidate + update * (hidden[0] - candidate),)
        entry, forget, new, leave = (gates + recurrent).chunk(4, -1)
        cell = torch.sigmoid(forget) * hidden[1] + torch.sigmoid(entry) * torch.tanh(new)
        return torch.sigmoid(leave) * torch.tanh(cell), cell


def _fused(gates: Tensor, recurrent: Tensor, hidden: Hidden, *biases: Tensor) -> Hidden:
    """A step in one kernel, which a GPU has; under autocast in what the state is kept in."""
    known = torch.ops.aten  # what torch's own cells call
    cell = known._thnn_fused_gru_cell if len(hidden) == 1 else known._thnn_fused_lstm_cell
    kept = hidden[-1].dtype
    with torch.autocast("cuda", enabled=False):
        *after, _ = cell(gates.to(kept), recurrent.to(kept), hidden[-1].contiguous(), *(b.to(kept) for b in biases))
    return tuple(after)


class BothWays(nn.Module):
    """A layer that reads left to right and, if asked, right to left as well."""

    def __init__(self, cell: str, inputs: int, size: int, *, bidirectional: bool) -> None:
        super().__init__()
        self.onward = Layer(cell, inputs, size)
        self.homeward = Layer(cell, inputs, size) if bidirectional else None

    def forward(self, x: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """(B, T, I) -> states (B, T, N or 2N), the last state onward and the last backward (at the first token)."""
        onward, _ = self.onward(x)
        last = onward[:, -1] if lengths is None else onward[torch.arange(len(x), device=x.device), lengths - 1]
        if self.homeward is None:
            return onward, last, None
        # The padding stays at the end of the turned sentence, where a left-to-right reading has not met it yet.
        backward = reverse(self.homeward(reverse(x, lengths))[0], lengths)
        return torch.cat([onward, backward], dim=-1), last, backward[:, 0]


def reverse(x: Tensor, lengths: Tensor | None) -> Tensor:
    """(B, T, I) with each sentence turned round inside its own length."""
    if lengths is None:
        return x.flip(1)
    place = torch.arange(x.shape[1], device=x.device)
    turned = lengths[:, None] - 1 - place
    index = torch.where(turned >= 0, turned, place)  # (B, T)
    return x.gather(1, index[..., None].expand_as(x))


def _start(rnn: nn.GRU | nn.LSTM, size: int) -> None:
    """Xavier for what comes in, orthogonal for what comes round; an LSTM begins by not forgetting."""
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
