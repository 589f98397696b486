"""Decoding on a GPU: the captured search against the search on the host, with random weights that never end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.measure import report
from regard.config import Config, ModelConfig
from regard.decoding import Constraints, Hypothesis, beam, greedy
from regard.decoding.device import device_beam
from regard.decoding.graphs import Graphs
from regard.models import build
from regard.text.tokenizer import END, OWN_SPECIAL_IDS, START
from regard.translation.writer import Writer

SOURCE, STEPS = 28, 28
RNNS: dict[str, dict[str, Any]] = {
    "rnn, no attention": {"score": "none"},
    "rnn, additive, into the cell": {"score": "additive", "feed": "input"},
    "rnn, dot, into the output": {"score": "dot", "feed": "output", "cell": "lstm"},
}
GPT2: dict[str, Any] = {
    "family": "gpt", "size": 768, "heads": 12, "decoder_layers": 12, "feed_forward_size": 3072, "vocabulary": 50257,
    "max_positions": 1024, "positions": "learned", "norm_placement": "pre", "activation": "gelu_tanh",
    "scale_embeddings": False,
}  # fmt: skip


def main(rounds: int = 5, only: str = "") -> bool:
    """All, or those whose name contains `only`; each is judged by its fastest round."""
    device = "cuda"
    if not torch.cuda.is_available():
        print("gpu-decoding needs a GPU: left out", file=sys.stderr)
        return True
    runs: dict[str, Callable[[str], bool]] = {
        "transformer-base, fp32, same translations": lambda name: same(name, {}, 128, 4, device),
        "transformer-base, greedy, 1 sentence": lambda name: speed(name, {}, 1, 1, rounds, device),
        "transformer-base, greedy, 64 sentences": lambda name: speed(name, {}, 64, 1, rounds, device),
        "transformer-base, beam 4, 64 sentences": lambda name: speed(name, {}, 64, 4, rounds, device, 100_000),
        "transformer-base, beam 4, 512 sentences": lambda name: speed(name, {}, 512, 4, rounds, device, 250_000),
    }
    for kind, values in RNNS.items():
        settings = {"family": "rnn", "size": 512, "heads": 1, **values}
        runs |= {
            f"{kind}, fp32, same translations": lambda name, settings=settings: same(name, settings, 128, 4, device),
            f"{kind}, beam 4, 64 sentences": lambda name, settings=settings: speed(
                name, settings, 64, 4, rounds, device
            ),
        }
    runs["gpt, 124 M, sampling one stream"] = lambda name: sampling(name, rounds, device)
    good = [run(name) for name, run in runs.items() if only in name]
    return all(good)


def searching(
    model: Any, source: torch.Tensor, beams: int, *, on_device: bool, ends: bool = False
) -> Callable[[], list[Hypothesis]]:
    """A search that writes STEPS tokens, the forced end counted, or fewer with `ends`."""
    first = torch.full((len(source),), START)
    forbidden = [0] if ends else [0, END]
    lengths = [STEPS - 1] * len(source)
    constraints = Constraints(end=END, max_lengths=lengths, forbidden=forbidden, min_length=5 if ends else 0)
    device = next(model.parameters()).device
    graphs = Graphs([model])

    def run() -> list[Hypothesis]:
        options: dict[str, Any] = {"constraints": constraints, "length_penalty": 1.0}
        if on_device:
            found = device_beam([model], source, first, beams=beams, results=1, graphs=graphs, **options)
            return [hypotheses[0] for hypotheses in found]
        inputs = source.to(device), first.to(device)
        if beams == 1:
            return greedy(model, *inputs, **options)
        found = beam(model, *inputs, beams=beams, results=1, coverage_penalty=0.0, **options)
        return [hypotheses[0] for hypotheses in found]

    return run


def fastest(run: Callable[[], Any], rounds: int) -> float:
    seconds = []
    for number in range(rounds + 2):
        begun = time.perf_counter()
        run()
        torch.cuda.synchronize()
        if number >= 2:
            seconds.append(time.perf_counter() - begun)
    return min(seconds)


def make(values: dict[str, Any], device: str, dtype: torch.dtype) -> tuple[Any, ModelConfig]:
    config = ModelConfig(**values)
    torch.manual_seed(0)
    return build(config, device).eval().to(dtype), config


def same(name: str, values: dict[str, Any], sentences: int, beams: int, device: str) -> bool:
    """In fp32 both searches translate the same, some sentences ending early."""
    model, config = make({**values, "output_bias": True}, device, torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():  # so that tokens differ in probability
            parameter.add_(0.02 * torch.randn_like(parameter))
        model.output_bias[END] = 4.8
    source = torch.randint(5, config.vocabulary, (sentences, SOURCE))
    runs = [searching(model, source, beams, on_device=on_device, ends=True) for on_device in (True, False)]
    ours, theirs = (run() for run in runs)
    ours = runs[0]()  # replayed with loaded tensors
    equal = sum(a.tokens == b.tokens for a, b in zip(ours, theirs, strict=True)) / sentences
    ended = sum(hypothesis.finished for hypothesis in ours) / sentences
    return report(name, equal, at_least=0.995, device=device, ended=ended)


def speed(
    name: str, values: dict[str, Any], sentences: int, beams: int, rounds: int, device: str, at_least: int = 0
) -> bool:
    """Target tokens a second in bf16."""
    model, config = make(values, device, torch.bfloat16)
    source = torch.randint(5, config.vocabulary, (sentences, SOURCE))
    on_device, on_host = (
        fastest(searching(model, source, beams, on_device=on_device), rounds) for on_device in (True, False)
    )
    tokens = sentences * STEPS
    return report(
        name, on_host / on_device, at_least=1.0, device=device, milliseconds=1000 * on_device,
        milliseconds_on_host=1000 * on_host, tokens_per_second=tokens / on_device, wanted=at_least or None,
    ) and tokens / on_device >= at_least  # fmt: skip


class _Numbers:
    """A tokenizer whose tokens are numbers."""

    special = OWN_SPECIAL_IDS

    def encode(self, text: str) -> list[int]:
        return [int(word) for word in text.split()]

    def decode(self, ids: list[int]) -> str:
        return " ".join(map(str, ids))


def sampling(name: str, rounds: int, device: str, tokens: int = 200) -> bool:
    """Milliseconds of a sampled token."""
    model, config = make(GPT2, device, torch.bfloat16)
    writer = Writer(model, _Numbers(), Config(model=config))  # type: ignore[arg-type]

    def run() -> None:
        for _ in writer.stream("100 200 300", tokens=tokens, temperature=0.8, top_p=0.9):
            pass

    seconds = fastest(run, rounds)
    return report(name, tokens / seconds, device=device, milliseconds_a_token=1000 * seconds / tokens)
