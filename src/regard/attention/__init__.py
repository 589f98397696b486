"""Attention: functions and modules on tensors, independent of models and text."""

from regard.attention.core import attend
from regard.attention.masks import Packed, causal, packed, positions_in_sentences
from regard.attention.multihead import Memory, MultiHead
from regard.attention.positions import rotary, rotate, sinusoidal
from regard.attention.scores import Additive, Cosine, General, Score, cosine, dot, make_score, scaled_dot
from regard.attention.slots import Slots

__all__ = [
    "Additive",
    "Cosine",
    "General",
    "Memory",
    "MultiHead",
    "Packed",
    "Score",
    "Slots",
    "attend",
    "causal",
    "cosine",
    "dot",
    "make_score",
    "packed",
    "positions_in_sentences",
    "rotary",
    "rotate",
    "scaled_dot",
    "sinusoidal",
]
