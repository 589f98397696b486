"""Verification: run the same sentences through a model here and through its counterpart in another library."""

from __future__ import annotations

import importlib.util
import json
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from regard.config import Config, DecodeConfig, EarlyStopping
from regard.corpora.builtin.corpus import sentences
from regard.decoding import Constraints, Hypothesis, SearchOptions, TorchEngine, greedy
from regard.folders import read_bounded
from regard.models import BERT, GPT
from regard.models.contract import Generator
from regard.models.folder import VALIDATION, load_model
from regard.text.batching import pad
from regard.text.tokenizer import SpecialIds, Tokenizer, Tokenizers

SENTENCES = 20
MAX_TOKENS = 40  # of an output
TOLERANCE = 1e-5  # of a logit, relative to the largest one
BEAMS = 5
THEIR_STOPPING: dict[str, bool | str] = {"yes": True, "no": False, "never": "never"}

Ids = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Verification:
    """The result of a comparison of both models, or the reason why they were not compared."""

    sentences: int = 0
    difference: float = 0.0
    """The largest difference of a logit, or of a hidden state of a model without logits."""
    largest: float = 0.0
    """The largest logit, which gives the difference its scale."""
    greedy: int | None = None
    """Number of identical outputs of greedy search; None for a bert."""
    beam: int | None = None
    """Number of identical outputs of beam search; None unless both models were searched with beams."""
    bleu: float | None = None
    """BLEU of the other library's greedy outputs minus BLEU of ours; None for a bert or gpt."""
    reason: str = ""
    """Why nothing was compared; empty if it was."""
    library: str = "transformers"

    @property
    def holds(self) -> bool:
        """Whether the largest difference is within the tolerance."""
        return self.difference <= self.tolerance

    @property
    def tolerance(self) -> float:
        return TOLERANCE * max(self.largest, 1.0)

    def __str__(self) -> str:
        if self.reason:
            return f"not verified: {self.reason}"
        difference = f"log-probability {self.difference:.2g}"
        if self.largest:
            difference = f"logit {self.difference:.2g} (the largest logit is {self.largest:.3g})"
        lines = [f"{self.sentences} sentences through {self.library} and Regard: largest difference of a {difference}"]
        if self.greedy is not None:
            lines.append(f"{self.greedy} of {self.sentences} greedy outputs are identical")
        if self.beam is not None:
            lines.append(f"{self.beam} of {self.sentences} outputs of beam search ({BEAMS} beams) are identical")
        if self.bleu is not None:
            lines.append(f"BLEU of the greedy outputs differs by {self.bleu:.2f}")
        return "; ".join(lines)

    @property
    def sentence(self) -> str:
        """The result as a sentence for a model card."""
        return f"{str(self)[0].upper()}{str(self)[1:]}."

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        if self.reason:
            return {"verified": False, "reason": self.reason}
        values = {"sentences": self.sentences, "largest_difference": self.difference, "largest_logit": self.largest}
        outputs = {"identical_greedy": self.greedy, "identical_beam": self.beam, "bleu_difference": self.bleu}
        return {"verified": True, **values, **outputs}


def verify(
    folder: Path,
    theirs: Path,
    class_name: str,
    tokenizers: Tokenizers,
    config: Config,
    count: int,
) -> Verification:
    """Compare a model folder with a Hugging Face folder on `count` sentences, in float32 on the CPU."""
    if not count:
        return Verification(reason="no sentences were asked for")
    if importlib.util.find_spec("transformers") is None:
        return Verification(reason="transformers is not installed (pip install transformers)")
    texts = verification_texts(folder, tokenizers, config, count)
    ours = load_model(folder)[0].float()
    other = load_transformers_model(theirs, class_name, config)
    with torch.inference_mode():
        if isinstance(ours, BERT):
            return _compare_bert(ours, other, texts.sources)
        if isinstance(ours, GPT):
            return _compare_gpt(ours, other, texts, config, tokenizers.target.special)
        return _compare_translator(ours, other, texts, tokenizers.target, exported_stopping(config.decode))


class Texts(NamedTuple):
    """The sentences that both models compute."""

    sources: Ids
    """Token ids, with the end token."""
    references: list[str] | None
    length: int
    """Maximum tokens of an output."""


def verification_texts(folder: Path, tokenizers: Tokenizers, config: Config, count: int) -> Texts:
    """The first validation sentences of a model folder, or sentences of the built-in corpus if it has none."""
    path = folder / VALIDATION
    lines = read_bounded(path).decode().splitlines()[:count] if path.exists() else []
    pairs = [json.loads(line) for line in lines]
    texts = [pair["source"] for pair in pairs] or [pair.source for pair in sentences(count, part="test")]
    sources = [[*ids, tokenizers.source.special.end] for ids in tokenizers.source.encode_batch(texts)]
    positions = config.model.max_positions if config.model.has_position_table else MAX_TOKENS + 1
    sources = [ids[-min(len(ids), positions, MAX_TOKENS) :] for ids in sources]
    return Texts(
        sources, [pair["target"] for pair in pairs if "target" in pair] or None, min(MAX_TOKENS, positions - 1)
    )


def exported_stopping(decode: DecodeConfig) -> EarlyStopping:
    """The `early_stopping` of an exported model: transformers has no counterpart of `shrink`."""
    return "yes" if decode.early_stopping == "shrink" else decode.early_stopping


def search(
    model: nn.Module, texts: Texts, special: SpecialIds, beams: int = 1, early_stopping: EarlyStopping = "shrink"
) -> list[Hypothesis]:
    """The best hypothesis of Regard's own search for each text."""
    settings = DecodeConfig(max_length_ratio=0.0, max_length_extra=texts.length, early_stopping=early_stopping)
    found = TorchEngine([model], settings, special).search(texts.sources, SearchOptions(beams=beams))
    return [hypotheses[0] for hypotheses in found]


def bleu_difference(ours: Ids, theirs: Ids, references: list[str] | None, tokenizer: Tokenizer) -> float:
    """BLEU of their outputs minus BLEU of ours; without references, BLEU of theirs against ours, minus 100."""
    from sacrebleu.metrics.bleu import BLEU

    texts = [[tokenizer.decode(ids) for ids in outputs] for outputs in (ours, theirs)]
    score = BLEU(force=True).corpus_score
    own, other = (score(side, [references or texts[0]]).score for side in texts)
    return float(other - own)


def load_transformers_model(folder: Path, class_name: str, config: Config) -> Any:
    """Load the model of a Hugging Face folder with transformers."""
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


def _compare_bert(ours: BERT, other: Any, sources: Ids) -> Verification:
    tokens, mask = pad(sources, torch.device("cpu"))
    real = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask
    states = ours.encode(tokens, mask=mask)
    answer = other(tokens, attention_mask=real.long(), output_hidden_states=True)
    if ours.head is None:
        return Verification(len(sources), *_largest(states, answer.hidden_states[-1], real))
    logits = answer.prediction_logits if hasattr(answer, "prediction_logits") else answer.logits
    return Verification(len(sources), *_largest(ours.logits(states), logits, real))


def _compare_gpt(ours: GPT, other: Any, texts: Texts, config: Config, special: SpecialIds) -> Verification:
    prompts = [ids[:-1] or ids for ids in texts.sources]
    longest = max(map(len, prompts))
    length = min(MAX_TOKENS, config.model.max_positions - longest) if config.model.has_position_table else MAX_TOKENS
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
    return Verification(len(prompts), difference, largest, identical)


def _compare_translator(
    ours: nn.Module, other: Any, texts: Texts, tokenizer: Tokenizer, early_stopping: EarlyStopping
) -> Verification:
    special = tokenizer.special
    tokens, mask = pad(texts.sources, torch.device("cpu"))
    real = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask
    outputs = {}
    for beams in (1, BEAMS):
        found = [hypothesis.tokens for hypothesis in search(ours, texts, special, beams, early_stopping)]
        theirs = _generate(other, tokens, real, special, texts.length, beams=beams, early_stopping=early_stopping)
        outputs[beams] = found, theirs
    before, before_mask = pad([[special.start, *output] for output in outputs[1][0]], torch.device("cpu"))
    logits, _ = cast(Generator, ours).step(before, cast(Generator, ours).start(tokens, mask))
    expected = other(tokens, attention_mask=real.long(), decoder_input_ids=before).logits
    compared = torch.ones_like(before, dtype=torch.bool) if before_mask is None else before_mask
    bleu = bleu_difference(*outputs[1], texts.references, tokenizer)
    same = {beams: sum(one == two for one, two in zip(*pair, strict=True)) for beams, pair in outputs.items()}
    return Verification(len(texts.sources), *_largest(logits, expected, compared), same[1], same[BEAMS], bleu)


def _generate(
    other: Any,
    tokens: Tensor,
    mask: Tensor | None,
    special: SpecialIds,
    length: int,
    *,
    beams: int,
    early_stopping: EarlyStopping = "yes",
) -> list[list[int]]:
    """The outputs of `generate` with the limits of Regard's search, without special tokens."""
    import transformers

    make: Any = transformers.GenerationConfig
    settings = make(
        num_beams=beams,
        do_sample=False,
        max_new_tokens=length + 1,
        length_penalty=1.0,
        early_stopping=THEIR_STOPPING[early_stopping],
        decoder_start_token_id=special.start,
        eos_token_id=special.end,
        pad_token_id=special.pad,
        suppress_tokens=list(special.never_generated),
    )
    first = 1 if mask is not None else tokens.shape[1]
    mask = torch.ones_like(tokens) if mask is None else mask.long()

    def force_end(ids: Tensor, scores: Tensor) -> Tensor:
        """Allow only the end token after `length` tokens; unlike forced_eos_token_id this keeps its probability."""
        others = torch.arange(scores.shape[1]) != special.end
        return scores.masked_fill(others, -math.inf) if ids.shape[1] == first + length else scores

    other.generation_config = settings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = other.generate(
            tokens, attention_mask=mask, generation_config=settings, logits_processor=[force_end]
        )[:, first:].tolist()  # fmt: skip
    return [row[: row.index(special.end)] if special.end in row else row for row in rows]
