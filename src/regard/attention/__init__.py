"""Attention: functions and modules on tensors, independent of models and text."""

from regard.attention.core import attend
from regard.attention.masks import causal, packed
from regard.attention.multihead import Memory, MultiHead
from regard.attention.positions import Learned, rotary, rotate, sinusoidal
from regard.attention.scores import Additive, Cosine, General, Score, cosine, dot, make_score, scaled_dot
from regard.attention.slots import Slots

__all__ = [
    "Additive",
    "Cosine",
    "General",
    "Learned",
    "Memory",
    "MultiHead",
    "Score",
    "Slots",
    "attend",
    "causal",
    "cosine",
    "dot",
    "make_score",
    "packed",
    "rotary",
    "rotate",
    "scaled_dot",
    "sinusoidal",
]
