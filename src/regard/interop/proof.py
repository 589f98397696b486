"""Proof of sameness: the same sentences through a model here and through the same model in transformers."""

from __future__ import annotations

import importlib.util
import json
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from regard.config import Config, DecodeConfig
from regard.corpora.builtin.corpus import sentences
from regard.decoding import Constraints, SearchOptions, TorchEngine
from regard.decoding.greedy import greedy
from regard.folders import read_bounded
from regard.models import BERT, GPT
from regard.models.contract import Generator
from regard.models.folder import VALIDATION, load_model
from regard.text.batching import pad
from regard.text.tokenizer import SpecialIds, Tokenizers

SENTENCES = 20
MAX_TOKENS = 40  # of an output
TOLERANCE = 1e-5  # of a logit, relative to the largest one
BEAMS = 5

Ids = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Proof:
    """What both sides gave; without the other library, the reason why nothing was compared."""

    sentences: int = 0
    difference: float = 0.0
    """The largest difference of a logit, or of a hidden state of a model without logits."""
    largest: float = 0.0
    """The largest logit, which gives the difference its scale."""
    greedy: int | None = None
    """Identical outputs of greedy search; None for a bert."""
    beam: int | None = None
    """Identical outputs of beam search, which is not the same algorithm on both sides; None for a bert or gpt."""
    reason: str = ""
    library: str = "transformers"

    @property
    def holds(self) -> bool:
        """Whether the difference is within the tolerance, and greedy outputs too but for near ties."""
        return self.difference <= self.tolerance

    @property
    def tolerance(self) -> float:
        return TOLERANCE * max(self.largest, 1.0)

    def __str__(self) -> str:
        if self.reason:
            return f"not proven: {self.reason}"
        difference = f"log-probability {self.difference:.2g}"
        if self.largest:
            difference = f"logit {self.difference:.2g} (the largest logit is {self.largest:.3g})"
        lines = [f"{self.sentences} sentences through {self.library} and Regard: largest difference of a {difference}"]
        if self.greedy is not None:
            lines.append(f"{self.greedy} of {self.sentences} greedy outputs are identical")
        if self.beam is not None:
            lines.append(f"{self.beam} of {self.sentences} outputs of beam search ({BEAMS} beams) are identical")
        return "; ".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        if self.reason:
            return {"proven": False, "reason": self.reason}
        values = {"sentences": self.sentences, "largest_difference": self.difference, "largest_logit": self.largest}
        return {"proven": True, **values, "identical_greedy": self.greedy, "identical_beam": self.beam}


def prove(
    folder: Path,
    theirs: Path,
    class_name: str,
    tokenizers: Tokenizers,
    config: Config,
    count: int,
) -> Proof:
    """Compare the model of a folder with that of a Hugging Face folder on `count` sentences, in float32 on the CPU."""
    if not count:
        return Proof(reason="no sentences were asked for")
    if importlib.util.find_spec("transformers") is None:
        return Proof(reason="transformers is not installed (pip install transformers)")
    special = tokenizers.target.special
    texts = proof_texts(folder, count)
    sources = [[*ids, tokenizers.source.special.end] for ids in tokenizers.source.encode_batch(texts)]
    positions = config.model.max_positions if config.model.has_position_table else math.inf
    sources = [ids[-int(min(len(ids), positions, MAX_TOKENS)) :] for ids in sources]
    ours = load_model(folder)[0].float()
    other = load_theirs(theirs, class_name, config)
    with torch.inference_mode():
        if isinstance(ours, BERT):
            return _compare_bert(ours, other, sources)
        if isinstance(ours, GPT):
            return _compare_gpt(ours, other, [ids[:-1] or ids for ids in sources], special, positions)
        return _compare_translator(ours, other, sources, special, positions)


def proof_texts(folder: Path, count: int) -> list[str]:
    """The first validation sentences of a model folder, or sentences of the built-in corpus if it has none."""
    path = folder / VALIDATION
    lines = read_bounded(path).decode().splitlines()[:count] if path.exists() else []
    return [json.loads(line)["source"] for line in lines] or [pair.source for pair in sentences(count, part="test")]


def load_theirs(folder: Path, class_name: str, config: Config) -> Any:
    """The model of a Hugging Face folder in transformers."""
    import transformers

    logging: Any = transformers.utils.logging
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    options: dict[str, Any] = {}
    if config.model.family == "bert" and not config.model.pooler and class_name in ("BertModel", "RobertaModel"):
        options["add_pooling_layer"] = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = getattr(transformers, class_name).from_pretrained(
            folder, attn_implementation="eager", dtype=torch.float32, local_files_only=True, **options
        )
    return model.eval()


def _largest(ours: Tensor, theirs: Tensor, real: Tensor) -> tuple[float, float]:
    """The largest difference and the largest value of two tensors where `real` is true."""
    return float((ours - theirs)[real].abs().max()), float(theirs[real].abs().max())


def _compare_bert(ours: BERT, other: Any, sources: Ids) -> Proof:
    tokens, mask = pad(sources, torch.device("cpu"))
    real = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask
    states = ours.encode(tokens, mask=mask)
    answer = other(tokens, attention_mask=real.long(), output_hidden_states=True)
    if ours.head is None:
        return Proof(len(sources), *_largest(states, answer.hidden_states[-1], real))
    logits = answer.prediction_logits if hasattr(answer, "prediction_logits") else answer.logits
    return Proof(len(sources), *_largest(ours.logits(states), logits, real))


def _compare_gpt(ours: GPT, other: Any, prompts: Ids, special: SpecialIds, positions: float) -> Proof:
    length = int(min(MAX_TOKENS, positions - max(map(len, prompts))))
    constraints = Constraints(end=special.end, max_lengths=[length], forbidden=special.never_generated)
    results, identical = [(0.0, 0.0)], 0
    for prompt in prompts:
        tokens = torch.tensor([prompt])
        (found,) = greedy(ours, tokens[:, :-1], tokens[:, -1], constraints=constraints, length_penalty=0.0)
        whole = torch.tensor([[*prompt, *found.tokens]])
        logits, _ = ours.step(whole, ours.start(whole[:, :0]))
        results.append(_largest(logits, other(whole).logits, torch.ones_like(whole, dtype=torch.bool)))
        identical += found.tokens == _generate(other, tokens, None, special, length, beams=1)[0]
    difference, largest = (max(values) for values in zip(*results, strict=True))
    return Proof(len(prompts), difference, largest, identical)


def _compare_translator(ours: nn.Module, other: Any, sources: Ids, special: SpecialIds, positions: float) -> Proof:
    length = int(min(MAX_TOKENS, positions - 1))
    settings = DecodeConfig(max_length_ratio=0.0, max_length_extra=length)
    tokens, mask = pad(sources, torch.device("cpu"))
    real = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask
    identical = {}
    engine = TorchEngine([ours], settings, special)
    outputs: list[list[int]] = []
    for beams in (1, BEAMS):
        found = [row[0].tokens for row in engine.search(sources, SearchOptions(beams=beams)).hypotheses]
        theirs = _generate(other, tokens, real, special, length, beams=beams)
        identical[beams] = sum(one == two for one, two in zip(found, theirs, strict=True))
        outputs = outputs or found
    before, before_mask = pad([[special.start, *output] for output in outputs], torch.device("cpu"))
    logits, _ = cast(Generator, ours).step(before, cast(Generator, ours).start(tokens, mask))
    expected = other(tokens, attention_mask=real.long(), decoder_input_ids=before).logits
    compared = torch.ones_like(before, dtype=torch.bool) if before_mask is None else before_mask
    return Proof(len(sources), *_largest(logits, expected, compared), identical[1], identical[BEAMS])


def _generate(
    other: Any, tokens: Tensor, mask: Tensor | None, special: SpecialIds, length: int, *, beams: int
) -> list[list[int]]:
    """The outputs of transformers with the limits of our search, without special tokens."""
    import transformers

    make: Any = transformers.GenerationConfig
    settings = make(
        num_beams=beams,
        do_sample=False,
        max_new_tokens=length + 1,
        length_penalty=1.0,
        decoder_start_token_id=special.start,
        eos_token_id=special.end,
        forced_eos_token_id=special.end,
        pad_token_id=special.pad,
        suppress_tokens=list(special.never_generated),
    )
    first = 1 if mask is not None else tokens.shape[1]
    mask = torch.ones_like(tokens) if mask is None else mask.long()
    other.generation_config = settings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = other.generate(tokens, attention_mask=mask, generation_config=settings)[:, first:].tolist()
    return [row[: row.index(special.end)] if special.end in row else row for row in rows]
