"""Models: a training pass against `transformers`, and what a token late in a sentence costs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.measure import in_turn, report
from regard.config import ModelConfig
from regard.models import build
from regard.training.losses import cross_entropy


def marian(config: ModelConfig) -> nn.Module:
    """`transformers`' Marian in the shape of the config."""
    import transformers

    return transformers.MarianMTModel(
        transformers.MarianConfig(
            vocab_size=config.vocabulary, d_model=config.size, encoder_attention_heads=config.heads,
            decoder_attention_heads=config.heads, encoder_layers=config.encoder_layers,
            decoder_layers=config.decoder_layers, encoder_ffn_dim=config.feed_forward_size,
            decoder_ffn_dim=config.feed_forward_size, max_position_embeddings=512, pad_token_id=0, eos_token_id=2,
            decoder_start_token_id=0, scale_embedding=True, activation_function="relu", dropout=config.dropout,
            forced_eos_token_id=None,
        )
    )  # fmt: skip


def training_pass(rounds: int = 12) -> bool:
    """Forward and backward of transformer-base, 32 sentences of 32 tokens, dropout on, each in its own words."""
    config = ModelConfig()
    source, target, labels = (torch.randint(3, config.vocabulary, (32, 32)) for _ in range(3))
    mask = torch.ones(32, 32, dtype=torch.bool)
    ours, theirs = build(config).train(), marian(config).train()

    def our_pass() -> None:
        logits, _ = ours.step(target, ours.start(source, mask))
        (cross_entropy(logits, labels, 0.0)[0] / labels.numel()).backward()
        ours.zero_grad(set_to_none=True)

    def their_pass() -> None:
        theirs(source, attention_mask=mask.long(), decoder_input_ids=target, labels=labels).loss.backward()
        theirs.zero_grad(set_to_none=True)

    seconds = in_turn({"regard": our_pass, "transformers": their_pass}, rounds=rounds, warm=2)
    ratio = seconds["transformers"] / seconds["regard"]
    return report("training pass against transformers Marian", ratio, at_least=1.0, seconds=seconds)


@torch.no_grad()
def late_token(rounds: int = 15) -> bool:
    """Stepwise decoding with a cache at batch 1: token 512 against token 32."""
    config = ModelConfig()
    model = build(config).eval()
    source = torch.randint(3, config.vocabulary, (1, 32))

    def at(place: int) -> tuple[Tensor, Any]:
        state = model.start(source, capacity=640)
        _, state = model.step(torch.randint(3, config.vocabulary, (1, place - 1)), state)
        return torch.randint(3, config.vocabulary, (1, 1)), state

    early, late = at(32), at(512)
    runs = {"token 32": lambda: model.step(*early), "token 512": lambda: model.step(*late)}
    seconds = in_turn(runs, rounds=rounds * 4, warm=5)
    return report(
        "token 512 against token 32", seconds["token 512"] / seconds["token 32"], at_most=1.25, seconds=seconds
    )


def main() -> bool:
    torch.manual_seed(0)
    return all([training_pass(), late_token()])
