"""One small model of every kind, for what must hold of all of them."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from regard.config import ModelConfig
from regard.models import State, tree_map

SMALL: dict[str, Any] = {
    "vocabulary": 50, "size": 16, "heads": 4, "feed_forward_size": 24, "encoder_layers": 2, "decoder_layers": 2,
    "max_positions": 32,
}  # fmt: skip

TRANSFORMERS: dict[str, dict[str, Any]] = {
    "transformer": {},
    "transformer-pre": {"norm_placement": "pre", "activation": "gelu", "decoder_layers": 1},
    "transformer-rotary": {
        "positions": "rotary",
        "norm": "rms",
        "activation": "swiglu",
        "tie_embeddings": "none",
        "bias": False,
    },
    "transformer-learned": {
        "positions": "learned",
        "embedding_norm": True,
        "output_bias": True,
        "tie_embeddings": "target",
    },
    "transformer-grouped": {"key_value_heads": 2, "target_vocabulary": 40, "tie_embeddings": "target"},
    "transformer-additive": {"score": "additive"},
    "transformer-cosine": {"score": "cosine"},
    "transformer-general": {"score": "general"},
}
GPTS: dict[str, dict[str, Any]] = {
    "gpt": {"positions": "learned", "norm_placement": "pre", "activation": "gelu_tanh", "scale_embeddings": False},
    "gpt-llama": {
        "positions": "rotary", "norm": "rms", "norm_placement": "pre", "activation": "swiglu", "bias": False,
        "key_value_heads": 2, "tie_embeddings": "none",
    },
}  # fmt: skip
SCORES = ["none", "additive", "dot", "scaled_dot", "general", "cosine"]
RNNS: dict[str, dict[str, Any]] = {
    f"rnn-{score}-{feed}-{cell}": {"score": score, "feed": feed, "cell": cell}
    for score, feed, cell in [
        *((score, "input", "gru") for score in SCORES),
        *((score, "output", "lstm") for score in SCORES),
        ("additive", "input", "lstm"),
        *((score, "output", "gru") for score in ("none", "additive", "dot")),
    ]
} | {
    "rnn-one-way": {"score": "dot", "bidirectional": False},
    "rnn-bahdanau": {
        "encoder_size": 12, "embedding": 10, "output_size": 6, "tie_embeddings": "none", "target_vocabulary": 40,
        "encoder_layers": 1, "decoder_layers": 1,
    },
}  # fmt: skip

GENERATORS: dict[str, ModelConfig] = {
    name: ModelConfig(**{**SMALL, "family": family, **shape})
    for family, shapes in (("transformer", TRANSFORMERS), ("gpt", GPTS), ("rnn", RNNS))
    for name, shape in shapes.items()
}
BERTS: dict[str, ModelConfig] = {
    "bert": ModelConfig(**SMALL, family="bert", activation="gelu", norm_epsilon=1e-12),
    "bert-bare": ModelConfig(**SMALL, family="bert", pooler=False, mlm_head=False, token_types=1),
    "bert-pre": ModelConfig(**SMALL, family="bert", norm_placement="pre", score="additive"),
}
ALL = GENERATORS | BERTS


def reorder(state: State, rows: Tensor) -> State:
    """The state whose hypothesis i is hypothesis `rows[i]` of this one; the memory stays the same."""
    return state._replace(past=tree_map(lambda x: x.index_select(0, rows), state.past))
