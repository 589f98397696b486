"""Validation: the loss over the validation set, and its translations scored against the reference text.

Translations of `--valid` files are scored against the text of these files, as `regard evaluate` does; a held-out part
of the training text is scored against its decoded tokens.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.config import Config
from regard.evaluation.metrics import corpus_scores, sentence_scores
from regard.inspection import quality
from regard.memory import in_parts
from regard.text.batching import Batch, Prefetcher, split_batch
from regard.text.files import one_line
from regard.training.data import Data, Files
from regard.training.distributed import Runtime
from regard.training.losses import batch_loss
from regard.translation.translator import Result, Translator

MAX_SENTENCES = 500  # translated at each validation: enough to choose a checkpoint, few enough to be quick
MAX_CALIBRATION_SENTENCES = 2000  # used to calibrate confidence
SAMPLE_CHARACTERS = 80  # length of the sentence shown at every validation


@dataclass
class Validation:
    """The result of a validation."""

    score: float
    """The best checkpoint is chosen by it; higher is better."""
    loss: float
    """Negative log-likelihood per token, without label smoothing."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """bleu or chrf, with its signature and the number of sentences."""
    sample: dict[str, str] = field(default_factory=dict)
    """source, reference and model output of one sentence."""
    results: Sequence[Result] = ()
    """The translations, reused if the same weights are scored at the end."""

    @property
    def scores(self) -> dict[str, Any]:
        """The loss and the metrics, as in the journal."""
        return {"valid_loss": self.loss, **self.metrics}


@dataclass(frozen=True)
class ValidationSet:
    """The validation set: tokens for the loss and, for translators, texts to translate and references."""

    data: Data
    sources: Sequence[str] = ()
    references: Sequence[str] = ()
    tag: str = ""
    """Put before every source sentence."""

    @property
    def is_translation(self) -> bool:
        return self.data.config.model.family in ("rnn", "transformer")

    def sample(self, sentences: int, config: Config) -> ValidationSet:
        """A smaller validation set of evenly spaced examples, with another config."""
        places, lines = (
            np.linspace(0, size - 1, min(sentences, size)).astype(np.int64)
            for size in (len(self.data.valid), len(self.sources))
        )
        data = Data(config, self.data.tokenizers, self.data.train, self.data.valid.take(places), self.data.shares)
        sources, references = ([texts[line] for line in lines] for texts in (self.sources, self.references))
        return ValidationSet(data, sources, references, self.tag)


def validation_set(data: Data, valid: Files | None) -> ValidationSet:
    """The validation set of a run: the text of the `valid` files, or the decoded tokens of the held-out examples."""
    if data.config.model.family not in ("rnn", "transformer"):
        return ValidationSet(data)
    if valid is not None:
        pairs = [(source.rstrip(), target.rstrip()) for source, target in valid.read()]
        return ValidationSet(data, [source for source, _ in pairs], [target for _, target in pairs], valid.tag)
    tokenizers, store = data.tokenizers, data.valid
    sources = [tokenizers.source.decode(store.source.ids(place)) for place in range(len(store))]
    references = [tokenizers.target.decode(store.target.ids(place)) for place in range(len(store))]
    return ValidationSet(data, sources, references)


@torch.no_grad()
def validate(model: nn.Module, valid_set: ValidationSet, runtime: Runtime) -> Validation:
    """The loss of the validation set and, for translators, BLEU or chrF of the first 500 sentences."""
    model.eval()
    metric = valid_set.data.config.train.metric
    loss = valid_loss(model, valid_set.data, runtime)
    if not valid_set.is_translation or metric == "loss":
        return Validation(-loss, loss)
    results = translate(model, valid_set, range(MAX_SENTENCES))
    hypotheses, references = _texts(results), valid_set.references[: len(results)]
    score = corpus_scores(hypotheses, references, metrics=[metric])[metric]
    metrics = {metric: score.score, "signature": score.signature, "sentences": len(hypotheses)}
    shown = min(range(len(references)), key=lambda place: abs(len(references[place]) - SAMPLE_CHARACTERS))
    sample = {"source": valid_set.sources[shown], "reference": references[shown], "model": hypotheses[shown]}
    return Validation(score.score, loss, metrics, sample, results)


@torch.no_grad()
def valid_loss(model: nn.Module, data: Data, runtime: Runtime) -> float:
    """The negative log-likelihood per token of the validation set."""
    plain = dataclasses.replace(data.config.train, label_smoothing=0.0, r_drop=0.0, guided_alignment=0.0)

    def nll(batch: Batch) -> Tensor:
        return batch_loss(model, batch, plain).nll

    epoch = data.validation()
    total, tokens = torch.zeros((), device=runtime.device), 0
    with Prefetcher(epoch.make, range(len(epoch.plan)), device=runtime.device) as batches:
        for batch in batches:
            total += sum(in_parts(nll, batch, lambda part: split_batch(part, 2)))
            tokens += batch.target_tokens
    return float(total) / max(tokens, 1)


def translate(model: nn.Module, valid_set: ValidationSet, places: range) -> list[Result]:
    """The model's translations of the validation sentences at these places."""
    translator = Translator(model, valid_set.data.tokenizers, valid_set.data.config)
    return translator.translate(valid_set.sources[places.start : places.stop], tag=valid_set.tag, warn=False)


def _texts(results: Sequence[Result]) -> list[str]:
    """The translations as `regard evaluate` scores them."""
    return [one_line(result.text).rstrip() for result in results]


# The finished model


def final_scores(
    model: nn.Module, valid_set: ValidationSet, runtime: Runtime, first: Sequence[Result]
) -> tuple[dict[str, Any], quality.Calibration | None]:
    """The scores on the whole validation set, and the calibration of confidence.

    `first` are the translations of the first 500 sentences if the last validation used the same weights. The rest is
    always translated separately, so that a resumed run gives the same translations.
    """
    scores: dict[str, Any] = {"loss": valid_loss(model, valid_set.data, runtime)}
    if not valid_set.is_translation:
        return scores, None
    results = [*(first or translate(model, valid_set, range(MAX_SENTENCES)))]
    results += translate(model, valid_set, range(MAX_SENTENCES, len(valid_set.sources)))
    calibration = calibrate(valid_set, results)
    if calibration is not None and calibration.weights:
        signature = (
            f"of confidence, {calibration.sentences:,} sentences apart; good: chrF from {quality.GOOD_CHRF:g} on"
        )
        scores["calibration"] = {"score": calibration.error, "signature": signature}
    metrics = corpus_scores(_texts(results), valid_set.references, metrics=["bleu", "chrf"])
    return scores | {name: score.to_dict() for name, score in metrics.items()}, calibration


def calibrate(valid_set: ValidationSet, results: Sequence[Result]) -> quality.Calibration | None:
    """Fit confidence to the chrF of the first validation sentences; None if there are too few."""
    results = results[:MAX_CALIBRATION_SENTENCES]
    references = valid_set.references[: len(results)]
    chrf = sentence_scores(_texts(results), references, metrics=["chrf"])
    judged = [
        quality.CalibrationExample(source, reference, score["chrf"], result.log_probabilities)
        for source, reference, score, result in zip(valid_set.sources, references, chrf, results, strict=False)
        if result.log_probabilities
    ]
    return quality.calibrate(judged) if len(judged) >= quality.MIN_SENTENCES else None
