"""Decoding: greedy and beam search against `transformers`' generate, with the same weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.measure import in_turn, report
from benchmarks.models import marian
from regard.config import ModelConfig
from regard.decoding import beam, greedy, make_rules
from regard.interop import rename
from regard.models import build

SENTENCES, SOURCE, STEPS, END = 32, 24, 32, 2


def pair() -> tuple[nn.Module, nn.Module]:
    """Our transformer-base and their Marian with one set of random weights, whose outputs never end."""
    config = ModelConfig(positions="sinusoidal_halves", output_bias=True)
    theirs, ours = marian(config).eval(), build(config).eval()
    with torch.no_grad():
        theirs.final_logits_bias[:, END] = -100.0
    missing = ours.load_state_dict(rename.to_ours(rename.marian(config), theirs.state_dict()), strict=False)
    assert not missing.unexpected_keys
    return ours, theirs


def against_generate(ours: Any, theirs: Any, beams: int, rounds: int) -> bool:
    """Tokens a second, all sentences to the same length; greedy outputs have to be the same."""
    source = torch.randint(3, ours.config.vocabulary, (SENTENCES, SOURCE))
    mask, first = torch.ones_like(source, dtype=torch.bool), torch.zeros(SENTENCES, dtype=torch.int64)
    rules = make_rules(end=END, longest=[STEPS - 1] * SENTENCES, shortest=0, no_repeat=0, forbidden=[0])

    def our_run() -> list[list[int]]:
        if beams == 1:
            return [
                hypothesis.tokens for hypothesis in greedy(ours, source, first, mask, rules=rules, length_penalty=1.0)
            ]
        found = beam(
            ours, source, first, mask, rules=rules, beams=beams, results=1, length_penalty=1.0, coverage_penalty=0.0,
            diversity=0.0,
        )  # fmt: skip
        return [hypotheses[0].tokens for hypotheses in found]

    def their_run() -> Tensor:
        return theirs.generate(
            source, attention_mask=mask.long(), num_beams=beams, do_sample=False, min_new_tokens=STEPS,
            max_new_tokens=STEPS, bad_words_ids=[[0]],
        )  # fmt: skip

    same = sum(a == b.tolist() for a, b in zip(our_run(), their_run()[:, 1:STEPS], strict=True)) / SENTENCES
    seconds = in_turn({"regard": our_run, "transformers": their_run}, rounds=rounds)
    speed = {name: SENTENCES * STEPS / value for name, value in seconds.items()}
    name = "greedy" if beams == 1 else f"beam of {beams}"
    ratio = speed["regard"] / speed["transformers"]
    return report(f"{name} against transformers generate", ratio, at_least=1.3, same=same, tokens_per_second=speed)


def main() -> bool:
    torch.manual_seed(0)
    ours, theirs = pair()
    return all([against_generate(ours, theirs, 1, rounds=7), against_generate(ours, theirs, 4, rounds=5)])
