"""The small parts of the attentive families: norms, feed-forward, embeddings.

B batch, T tokens.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention import Learned, sinusoidal
from regard.config import ModelConfig

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "swiglu": F.silu,  # of the gate, which then multiplies
}


def make_norm(config: ModelConfig) -> nn.Module:
    """LayerNorm or RMSNorm, as the config says."""
    if config.norm == "rms":
        return nn.RMSNorm(config.size, eps=config.norm_epsilon)
    return nn.LayerNorm(config.size, eps=config.norm_epsilon)


class FeedForward(nn.Module):
    """act(x W1 + b1) W2 + b2; gated, with the gate's matrix and W1 as one."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        inner = config.feed_forward_size
        self.activation, self.gated = ACTIVATIONS[config.activation], config.gated
        self.widen = nn.Linear(config.size, inner * (2 if config.gated else 1), bias=config.bias)
        self.narrow = nn.Linear(inner, config.size, bias=config.bias)
        with torch.no_grad():
            for block in self.widen.weight.split(inner):
                nn.init.xavier_uniform_(block)
        nn.init.xavier_uniform_(self.narrow.weight)
        if config.bias:
            nn.init.zeros_(self.widen.bias)
            nn.init.zeros_(self.narrow.bias)

    def forward(self, x: Tensor) -> Tensor:
        wide = self.widen(x)
        if self.gated:
            gate, wide = wide.chunk(2, dim=-1)
            wide = self.activation(gate) * wide
        else:
            wide = self.activation(wide)
        narrowed: Tensor = self.narrow(wide)
        return narrowed


class Embedding(nn.Module):
    """Tokens and where they stand, as the first layer takes them."""

    def __init__(self, config: ModelConfig, vocabulary: int, *, types: int = 0) -> None:
        super().__init__()
        self.size, self.kind = config.size, config.positions
        self.scale = config.size**0.5 if config.scale_embeddings else 1.0
        self.token = nn.Embedding(vocabulary, config.size)
        # Scaled up by sqrt(size) they start at unit variance; as an output matrix, small enough for a softmax.
        nn.init.normal_(self.token.weight, std=config.size**-0.5 if config.scale_embeddings else 0.02)
        self.position = Learned(config.max_positions, config.size) if config.positions == "learned" else None
        self.types = nn.Embedding(types, config.size) if types else None
        if self.types is not None:
            nn.init.normal_(self.types.weight, std=0.02)
        self.norm = make_norm(config) if config.embedding_norm else None
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, tokens: Tensor, positions: Tensor, types: Tensor | None = None) -> Tensor:
        x = self.token(tokens)
        if self.scale != 1.0:
            x = x * self.scale
        if self.position is not None:
            x = x + self.position(positions)
        elif self.kind != "rotary":
            x = x + sinusoidal(positions, self.size, halves=self.kind == "sinusoidal_halves").to(x.dtype)
        if self.types is not None:
            x = x + (self.types.weight[0] if types is None else self.types(types))
        if self.norm is not None:
            x = self.norm(x)
        dropped: Tensor = self.dropout(x)
        return dropped

    def check(self, length: int, what: str) -> None:
        """Refuse what is longer than a learned table."""
        if self.position is not None:
            self.position.check(length, what)


def start_normal(model: nn.Module, layers: int | None = None) -> None:
    """BERT's beginning: matrices normal 0.02, biases zero; and GPT-2's, where what adds to the residual stream starts
    smaller the more `layers` add to it."""
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif layers and name.endswith(("join.weight", "narrow.weight")):
            nn.init.normal_(parameter, std=0.02 / (2 * layers) ** 0.5)
        elif parameter.dim() == 2:
            nn.init.normal_(parameter, std=0.02)
