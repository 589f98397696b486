"""Decoding: greedy and beam search against `transformers`' generate and bare CTranslate2, and what a trace costs.

All have the same random transformer-base weights. Their outputs never end, but for CTranslate2, where they learn to.
"""

from __future__ import annotations

import copy
import dataclasses
import os
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from benchmarks.measure import in_turn, report
from benchmarks.models import marian
from regard.config import Config, ModelConfig
from regard.decoding import Constraints, Encoded, Hypothesis, beam, greedy
from regard.inspection.trace import trace
from regard.interop import names
from regard.interop.weights import Source, to_ours
from regard.models import build
from regard.models.folder import save_model
from regard.text.tokenizer import END, START, Tokenizers, train
from regard.translation.translator import Translator

SENTENCES, SOURCE, STEPS = 32, 24, 32
FOR_BF16 = ("avx512_bf16", "amx_bf16")
SYLLABLES = [first + last for first in "bcdfghjklmnpqrstvwxz" for last in "aeiouy"]


def pair() -> tuple[nn.Module, nn.Module]:
    """Our transformer-base and their Marian with one set of weights."""
    config = ModelConfig(positions="sinusoidal_halves", output_bias=True)
    theirs, ours = marian(config).eval(), build(config).eval()
    with torch.no_grad():
        theirs.final_logits_bias[:, END] = -100.0
    shapes = {name: tuple(parameter.shape) for name, parameter in ours.named_parameters()}
    converted = to_ours(names.seq2seq(config), Source(theirs.state_dict(), "", Path("theirs")), shapes, config)
    missing = ours.load_state_dict({name: tensor.make() for name, tensor in converted.items()}, strict=False)
    assert not missing.unexpected_keys
    return ours, theirs


def searching(
    model: Any, source: Tensor, beams: int, encoded: list[Encoded] | None = None
) -> Callable[[], list[Hypothesis]]:
    """A search of ours that writes STEPS tokens, the end that is forced counted."""
    first = torch.zeros(len(source), dtype=torch.int64)
    constraints = Constraints(end=END, max_lengths=[STEPS - 1] * len(source), forbidden=[0])

    def run() -> list[Hypothesis]:
        if encoded is not None:
            encoded.clear()
        if beams == 1:
            return greedy(model, source, first, constraints=constraints, length_penalty=1.0, encoded=encoded)
        found = beam(
            model,
            source,
            first,
            constraints=constraints,
            beams=beams,
            results=1,
            length_penalty=1.0,
            coverage_penalty=0.0,
            encoded=encoded,
        )
        return [hypotheses[0] for hypotheses in found]

    return run


def against_generate(ours: Any, theirs: Any, beams: int, rounds: int, *, name: str, at_least: float) -> bool:
    """Tokens a second, all sentences to the same length; in float32 greedy outputs have to be the same."""
    source = torch.randint(3, ours.config.vocabulary, (SENTENCES, SOURCE))
    our_run = searching(ours, source, beams)

    def their_run() -> Tensor:
        return theirs.generate(
            source, attention_mask=torch.ones_like(source), num_beams=beams, do_sample=False, min_new_tokens=STEPS,
            max_new_tokens=STEPS, bad_words_ids=[[0]],
        )  # fmt: skip

    written = [hypothesis.tokens for hypothesis in our_run()]
    same = sum(a == b.tolist() for a, b in zip(written, their_run()[:, 1:STEPS], strict=True)) / SENTENCES
    seconds = in_turn({"regard": our_run, "transformers": their_run}, rounds=rounds)
    speed = {who: SENTENCES * STEPS / value for who, value in seconds.items()}
    kind = "greedy" if beams == 1 else f"beam of {beams}"
    ratio = speed["regard"] / speed["transformers"]
    return report(
        f"{kind}{name} against transformers generate", ratio, at_least=at_least, same=same, tokens_per_second=speed
    )


def in_bf16(ours: nn.Module, theirs: Any, rounds: int) -> bool:
    """Ours in bf16 against theirs in float32, where the CPU has instructions for it."""
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        flags = ""
    if not any(flag in flags for flag in FOR_BF16):
        return True
    half = copy.deepcopy(ours).bfloat16()
    good = [against_generate(half, theirs, beams, rounds, name=" in bf16", at_least=1.6) for beams in (1, 4)]
    return all(good)


def prepacking(ours: Any, beams: int, rounds: int) -> bool:
    """Decoding with prepacked weights against decoding with plain ones, in turns."""
    source = torch.randint(3, ours.config.vocabulary, (SENTENCES, SOURCE))
    search = searching(ours, source, beams)

    def plain() -> None:
        with patch("regard.decoding.search.prepack", lambda model: model):
            search()

    seconds = in_turn({"prepacked": search, "plain": plain}, rounds=rounds)
    kind = "greedy" if beams == 1 else f"beam of {beams}"
    ratio = seconds["plain"] / seconds["prepacked"]
    return report(f"{kind} with prepacked weights against plain ones", ratio, at_least=1.1, seconds=seconds)


def tracing(ours: Any, sides: Tokenizers, rounds: int) -> bool:
    """A beam of 5 with the attention of what it chose, the reading of the source kept, against the beam alone."""
    source = torch.randint(5, sides.source.size, (SENTENCES, SOURCE))
    encoded: list[Encoded] = []
    searched, kept = searching(ours, source, 5), searching(ours, source, 5, encoded)

    def traced() -> None:
        found = kept()
        trace(ours, source.tolist(), found, sides, encoded=encoded[0])

    seconds = in_turn({"searched": searched, "traced": traced}, rounds=rounds)
    return report(
        "a traced beam of 5 against a beam of 5", seconds["traced"] / seconds["searched"], at_most=1.25, seconds=seconds
    )


def invented(lines: int, words: int, seed: int) -> list[str]:
    """Lines of words that nobody knows."""
    chance = random.Random(seed)
    return [
        " ".join("".join(chance.choices(SYLLABLES, k=chance.randint(1, 4))) for _ in range(words)) for _ in range(lines)
    ]


def ending(ours: Any) -> nn.Module:
    """The same model with an end of its own: a row of the output matrix that finds the states after SOURCE tokens."""
    config = dataclasses.replace(ours.config, tie_embeddings="none")
    model: Any = build(config).eval()
    missing = model.load_state_dict(ours.state_dict(), strict=False)
    assert not missing.unexpected_keys
    with torch.inference_mode():
        source = torch.randint(5, config.vocabulary, (4 * SENTENCES, SOURCE))
        tokens = torch.tensor([[START, *hypothesis.tokens] for hypothesis in searching(ours, source, 1)()])
        record: dict[str, Tensor] = {}
        ours.step(tokens, ours.start(source), record)
        states = record["decoder.output"]
        wanted = torch.where(torch.arange(states.shape[1]) < SOURCE, -12.0, 12.0).expand(states.shape[:2])
        states, few = states.flatten(0, 1), 10 * torch.eye(states.shape[-1])
        row = torch.linalg.solve(states.T @ states + few, states.T @ wanted.flatten())
    with torch.no_grad():
        model.target.token.weight.copy_(ours.source.token.weight)
        model.output.weight.copy_(ours.source.token.weight)
        model.output.weight[END], model.output_bias[END] = row.clone(), 0.0
    return model


def against_bare_ctranslate2(ours: nn.Module, sides: Tokenizers, beams: int, precision: str, rounds: int) -> bool:
    """Text to text by `Translator` against the same engine given tokens in batches of about the same size."""
    import ctranslate2

    from regard.interop.ctranslate2 import PATIENCE, TYPES

    texts = invented(4 * SENTENCES, 8, seed=2)
    kept = os.environ.get("REGARD_CACHE")
    with tempfile.TemporaryDirectory() as place:
        os.environ["REGARD_CACHE"] = place
        folder = Path(place, "model")
        config = Config(model=ours.config)  # type: ignore[arg-type]
        save_model(folder, ours, config, {"tokenizer.json": sides.source.text}, force=False)
        translator = Translator.load(folder, "cpu")
        translator.use("ctranslate2", precision, folder, token_scores=False)
        converted = next(Path(place, "ctranslate2").iterdir())
        threads = torch.get_num_threads()
        bare = ctranslate2.Translator(str(converted), compute_type=TYPES[precision], intra_threads=threads)
        names = sides.source.tokens(range(sides.source.size))
        tokens = [[names[number] for number in [*ids, END]] for ids in sides.source.encode_batch(texts)]

        def alone() -> list[list[str]]:
            found = bare.translate_batch(
                tokens, beam_size=beams, patience=PATIENCE, max_batch_size=1024, batch_type="tokens",
                min_decoding_length=0, return_scores=True,
            )  # fmt: skip
            return [result.hypotheses[0] for result in found]

        length = sum(map(len, alone())) / len(texts)
        runs = {"regard": lambda: translator.translate(texts, beams=beams, warn=False), "ctranslate2": alone}
        seconds = in_turn(runs, rounds=rounds)
    os.environ.pop("REGARD_CACHE") if kept is None else os.environ.update(REGARD_CACHE=kept)
    speed = {who: len(texts) / value for who, value in seconds.items()}
    kind = "greedy" if beams == 1 else f"beam of {beams}"
    return report(
        f"{kind} text to text in {precision} against bare CTranslate2", speed["regard"] / speed["ctranslate2"],
        at_least=0.95, mean_length=length, sentences_per_second=speed,
    )  # fmt: skip


def main(rounds: int = 5) -> bool:
    """Everything; each comparison is judged by the fastest of so many turns."""
    torch.manual_seed(0)
    ours, theirs = pair()
    tokenizer = train(invented(20000, 10, seed=1), kind="bpe", vocabulary=ours.config.vocabulary)  # type: ignore[union-attr, arg-type]
    sides = Tokenizers(tokenizer, tokenizer)
    finite = ending(ours)
    return all(
        [
            against_generate(ours, theirs, 1, rounds + 2, name="", at_least=1.3),
            against_generate(ours, theirs, 4, rounds, name="", at_least=1.3),
            in_bf16(ours, theirs, rounds),
            *(prepacking(ours, beams, rounds) for beams in (1, 5)),
            *(against_bare_ctranslate2(finite, sides, 5, precision, rounds) for precision in ("int8", "fp32")),
            tracing(ours, sides, rounds),
        ]
    )
