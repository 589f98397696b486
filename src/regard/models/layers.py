"""Layers of the transformer families: norms, feed-forward, embeddings, logits.

B batch, T tokens.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention.multihead import initialise
from regard.attention.positions import sinusoidal, sinusoidal_fairseq
from regard.attention.prepacked import PrepackedLinear
from regard.config import ModelConfig
from regard.errors import InputError

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "swiglu": F.silu,  # applied to the gate
}


def make_norm(config: ModelConfig) -> nn.Module:
    """LayerNorm or RMSNorm."""
    if config.norm == "rms":
        return nn.RMSNorm(config.size, eps=config.norm_epsilon)
    return nn.LayerNorm(config.size, eps=config.norm_epsilon)


class FeedForward(nn.Module):
    """act(x W1 + b1) W2 + b2; if gated (SwiGLU), the gate's matrix and W1 are one."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        inner = config.feed_forward_size
        self.activation, self.gated = ACTIVATIONS[config.activation], config.gated
        self.up_proj = nn.Linear(config.size, inner * (2 if config.gated else 1), bias=config.bias)
        self.down_proj = nn.Linear(inner, config.size, bias=config.bias)
        initialise(self.up_proj, [inner] * (2 if config.gated else 1))
        initialise(self.down_proj)

    def forward(self, x: Tensor) -> Tensor:
        wide = self.up_proj(x)
        if self.gated:
            gate, wide = wide.chunk(2, dim=-1)
            wide = self.activation(gate) * wide
        else:
            wide = self.activation(wide)
        output: Tensor = self.down_proj(wide)
        return output


def position_table(kind: str, positions: Tensor, size: int) -> Tensor:
    """(...,) positions -> (..., D): the sinusoids of this kind of model.positions."""
    if kind == "sinusoidal_fairseq":
        return sinusoidal_fairseq(positions, size)
    return sinusoidal(positions, size, halves=kind == "sinusoidal_halves")


class Embedding(nn.Module):
    """Token embeddings plus positions: the input of the first layer."""

    def __init__(self, config: ModelConfig, vocabulary: int, *, types: int = 0) -> None:
        super().__init__()
        self.size, self.kind = config.size, config.positions
        self.scale = config.size**0.5 if config.scale_embeddings else 1.0
        self.token = nn.Embedding(vocabulary, config.size)
        # Scaled by sqrt(size) they start with unit variance; unscaled, as output matrix, small enough for a softmax.
        nn.init.normal_(self.token.weight, std=config.size**-0.5 if config.scale_embeddings else 0.02)
        self.position = None
        if config.positions == "learned":
            table = nn.init.normal_(torch.empty(config.max_positions, config.size), std=0.02)
            self.position = nn.Embedding.from_pretrained(table, freeze=False)
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
            x = x + position_table(self.kind, positions, self.size).to(x.dtype)
        if self.types is not None:
            x = x + (self.types.weight[0] if types is None else self.types(types))
        if self.norm is not None:
            x = self.norm(x)
        dropped: Tensor = self.dropout(x)
        return dropped

    def check_length(self, length: int, name: str) -> None:
        """Raise an InputError for a sentence that is longer than the learned position table."""
        limit = length if self.position is None else self.position.weight.shape[0]
        if length > limit:
            raise InputError(
                f"{name} has {length} tokens and model.max_positions is {limit}: give at most {limit}, or train with a "
                "larger model.max_positions or sinusoidal or rotary positions"
            )


def init_normal(model: nn.Module, layers: int | None = None) -> None:
    """Initialise as BERT: matrices normal with std 0.02, biases zero.

    With `layers`, as GPT-2: matrices that add to the residual stream have a std of 0.02 / sqrt(2 * layers).
    """
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif layers and name.endswith(("out_proj.weight", "down_proj.weight")):
            nn.init.normal_(parameter, std=0.02 / (2 * layers) ** 0.5)
        elif parameter.dim() == 2:
            nn.init.normal_(parameter, std=0.02)


def logits(
    x: Tensor, output: nn.Linear | PrepackedLinear | None, embeddings: nn.Embedding, bias: Tensor | None
) -> Tensor:
    """(..., V): the product with the output matrix, which is the embeddings if there is no other."""
    if isinstance(output, PrepackedLinear):
        return output.forward(x)
    return F.linear(x, embeddings.weight if output is None else output.weight, bias)
