"""Sampling: tokens drawn as the model weighs them.

R rows (hypotheses), V vocabulary.
"""

from __future__ import annotations

import random
from math import log

import torch
from torch import Tensor

from regard.decoding.constraints import NEVER, Rules
from regard.decoding.greedy import most_probable
from regard.decoding.search import Begun, Hypothesis, Models, walk
from regard.errors import InputError


def sample(
    models: Models, source: Tensor, first: Tensor, mask: Tensor | None = None, *, rules: Rules, samples: int, seed: int,
    temperature: float, top_k: int, top_p: float, min_p: float, length_penalty: float,
    begun: list[Begun] | None = None,
) -> list[list[Hypothesis]]:  # fmt: skip
    """`samples` hypotheses for each sentence, in the order drawn; `first` is as for `greedy`.

    What is drawn depends on the seed, the sentence and the number of the sample, not on what else is in the batch.
    Log-probabilities are the model's, whatever the temperature.
    """
    _check(samples, temperature, top_k, top_p, min_p)
    places = 1 + max((rules.limit(sentence) for sentence in range(len(source))), default=0)
    chances = _chances(source, first, mask, rules, samples, seed, places)  # (B, samples, places)

    def choose(scores: Tensor, place: int, sentences: list[int]) -> tuple[Tensor, Tensor]:
        if temperature == 0:
            return most_probable(scores, place, sentences)
        drawn = draw(
            restrict(scores / temperature, top_k=top_k, top_p=top_p, min_p=min_p),
            chances[sentences, :, place].flatten().to(scores.device),
        )
        return drawn, scores.gather(1, drawn[:, None])[:, 0]

    return walk(models, source, first, mask, rules, choose, copies=samples, length_penalty=length_penalty, begun=begun)


def restrict(scores: Tensor, *, top_k: int, top_p: float, min_p: float) -> Tensor:
    """The same (R, V) scores with -inf for what may not be drawn, one restriction after the other.

    top_k leaves the k largest (0: all); top_p the fewest of the largest that together have at least that share; min_p
    those at least that fraction as probable as the largest.
    """
    if 0 < top_k < scores.shape[-1]:
        least = scores.topk(top_k).values[:, -1:]
        scores = scores.masked_fill(scores < least, NEVER)
    if top_p < 1:
        ordered, places = scores.sort(stable=True, descending=True)
        shares = ordered.softmax(-1)
        enough = shares.cumsum(-1) - shares >= top_p  # those before have the share already
        enough[:, 0] = False
        scores = torch.full_like(scores, NEVER).scatter_(1, places, ordered.masked_fill(enough, NEVER))
    if min_p > 0:
        least = scores.amax(-1, keepdim=True) + log(min_p)
        scores = scores.masked_fill(scores < least, NEVER)
    return scores


def draw(scores: Tensor, chances: Tensor) -> Tensor:
    """The token of each row at which the summed probability passes the row's chance, a number from 0 up to 1: (R,)."""
    sums = scores.double().softmax(-1).cumsum(-1)
    total = sums[:, -1:]
    sought = torch.minimum(chances[:, None].double() * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(sums, sought, right=True)[:, 0]


def _chances(
    source: Tensor, first: Tensor, mask: Tensor | None, rules: Rules, samples: int, seed: int, places: int
) -> Tensor:
    """(B, samples, places) numbers from 0 up to 1 that a sentence has wherever it stands."""
    texts = source.tolist() if mask is None else [row[real].tolist() for row, real in zip(source, mask, strict=True)]
    chances = torch.empty(len(texts), samples, places, dtype=torch.float64)
    for number, (text, begin) in enumerate(zip(texts, first.tolist(), strict=True)):
        for copy in range(samples):
            # Seeded by text: Python hashes it the same way on every machine.
            own = random.Random(f"{seed} {copy} {text} {begin} {list(rules.prefix(number))}")
            chances[number, copy] = torch.tensor([own.random() for _ in range(places)], dtype=torch.float64)
    return chances


def _check(samples: int, temperature: float, top_k: int, top_p: float, min_p: float) -> None:
    if samples < 1:
        raise InputError(f"{samples} samples were asked for; it must be at least 1")
    if not temperature >= 0:
        raise InputError(f"the temperature ({temperature}) must be at least 0")
    if top_k < 0:
        raise InputError(f"top_k ({top_k}) must be at least 0")
    for name, share in (("top_p", top_p), ("min_p", min_p)):
        if not 0 <= share <= 1:
            raise InputError(f"{name} ({share}) must be from 0 to 1")
