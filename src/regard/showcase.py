"""The showcase: what works today, measured as it is shown."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, cast

import torch

from regard.accounting import count
from regard.attention import attend
from regard.config import ModelConfig
from regard.models import Generator, build

if TYPE_CHECKING:
    from rich.console import Console

SHAPE: dict[str, Any] = {
    "vocabulary": 1000,
    "size": 64,
    "feed_forward": 128,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "dropout": 0.0,
}
KINDS = {
    "rnn, one fixed vector": ModelConfig(**SHAPE, family="rnn", score="none"),
    "rnn, Bahdanau's attention": ModelConfig(**SHAPE, family="rnn", score="additive"),
    "rnn, Luong's attention": ModelConfig(**SHAPE, family="rnn", score="general", feed="output"),
    "transformer": ModelConfig(**SHAPE),
    "gpt": ModelConfig(**SHAPE, family="gpt", norm_place="pre"),
}


def show(console: Console) -> None:
    """Attention on four keys, the two verbs over all families, and the way on."""
    from rich.table import Table

    torch.manual_seed(0)
    console.print("[bold]attend()[/bold]: one query, four keys, the second of them the query itself\n")
    keys = torch.randn(1, 1, 4, 8)
    table = Table(box=None, pad_edge=False)
    for column in ("score", *(f"key {i}" for i in range(1, 5))):
        table.add_column(column, justify="right" if column != "score" else "left")
    for score in ("dot", "scaled_dot", "cosine"):
        _, weights = attend(keys[:, :, 1:2], keys, keys, score)
        assert weights is not None
        table.add_row(score, *(f"{w:.3f}" for w in weights.flatten().tolist()))
    console.print(table)

    console.print("\n[bold]start() and step()[/bold]: 32 tokens at once, and the same 32 one by one\n")
    table = Table(box=None, pad_edge=False)
    for column in ("family", "parameters", "at once", "one by one", "largest difference"):
        table.add_column(column, justify="left" if column == "family" else "right")
    source, target = torch.randint(0, 1000, (8, 24)), torch.randint(0, 1000, (8, 32))
    for name, config in KINDS.items():
        table.add_row(name, f"{count(config).total:,}", *_both_ways(config, source, target))
    console.print(table)
    console.print("\nNext: [bold].venv/bin/regard count bert-base[/bold], or [bold].venv/bin/regard --help[/bold]")


@torch.no_grad()
def _both_ways(config: ModelConfig, source: torch.Tensor, target: torch.Tensor) -> tuple[str, str, str]:
    model = cast(Generator, build(config).eval())
    begun = time.perf_counter()
    whole, _ = model.step(target, model.start(source))
    middle = time.perf_counter()
    state, steps = model.start(source), []
    for token in target.split(1, dim=1):
        logits, state = model.step(token, state)
        steps.append(logits)
    difference = (torch.cat(steps, dim=1) - whole).abs().max().item()
    end = time.perf_counter()
    return f"{1000 * (middle - begun):.0f} ms", f"{1000 * (end - middle):.0f} ms", f"{difference:.1e}"
