"""Validation: the loss over the validation set, and its translations scored against the reference text.

Translations are scored against the text of the files, as `regard evaluate` does; decoded tokens may differ from it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from regard.evaluation.calibration import MAX_SENTENCES, calibrate, scored_texts
from regard.evaluation.metrics import choose_tokenizer, corpus_scores
from regard.evaluation.perplexity import negative_log_likelihood
from regard.inspection import quality
from regard.training.data import Data, Files, find_texts
from regard.training.distributed import Runtime
from regard.training.events import Say
from regard.translation.translator import Result, Translator

TIMED_SENTENCES = 16  # translated first to see how many fit into the time left (--minutes)
SAMPLE_CHARACTERS = 80  # length of the sentence shown at every validation


@dataclass(frozen=True)
class Validation:
    """The result of a validation."""

    score: float  # the best checkpoint has the highest score
    loss: float  # negative log-likelihood per token, without label smoothing
    metrics: dict[str, Any] = field(default_factory=dict)  # bleu or chrf, its signature and the number of sentences
    sample: dict[str, str] = field(default_factory=dict)  # source, reference and model output of one sentence


@dataclass(frozen=True)
class ValidationSet:
    """The validation set: tokens for the loss and, for translators, texts to translate and references."""

    data: Data
    sources: Sequence[str] = ()
    references: Sequence[str] = ()
    tag: str = ""  # put before every source sentence
    tokenize: str | None = None  # the tokenizer of BLEU


def validation_set(data: Data, corpora: Sequence[Files], valid: Files | None, say: Say) -> ValidationSet:
    """The validation set of a run, as text: the `valid` files, or the held-out pairs of the training corpora."""
    if not data.config.model.is_translator:
        return ValidationSet(data)
    pairs = list(valid.read()) if valid is not None else find_texts(data.valid, corpora)
    sources, references = ([text.rstrip() for text in side] for side in zip(*pairs, strict=True))
    tag = valid.tag if valid is not None else ""
    return ValidationSet(data, sources, references, tag, choose_tokenizer(references, say))


@torch.no_grad()
def validate(model: nn.Module, valid_set: ValidationSet, runtime: Runtime, seconds: float = math.inf) -> Validation:
    """The loss of the validation set and, for translators, BLEU or chrF of the first 500 sentences.

    If they would take longer than `seconds`, fewer sentences are translated.
    """
    start = time.perf_counter()
    model.eval()
    metric = valid_set.data.config.train.metric
    loss = valid_loss(model, valid_set.data, runtime)
    if not valid_set.sources or metric == "loss":
        return Validation(-loss, loss)
    results = translate(model, valid_set, MAX_SENTENCES, start + seconds - time.perf_counter())
    hypotheses, references = scored_texts(results), valid_set.references[: len(results)]
    score = corpus_scores(hypotheses, references, metrics=[metric], tokenize=valid_set.tokenize)[metric]
    metrics = {metric: score.score, "signature": score.signature, "sentences": len(hypotheses)}
    shown = min(range(len(references)), key=lambda place: abs(len(references[place]) - SAMPLE_CHARACTERS))
    sample = {"source": valid_set.sources[shown], "reference": references[shown], "model": hypotheses[shown]}
    return Validation(score.score, loss, metrics, sample)


def valid_loss(model: nn.Module, data: Data, runtime: Runtime) -> float:
    """The negative log-likelihood per token of the validation set."""
    nll, tokens = negative_log_likelihood(model, data.validation(), runtime.device)
    return nll / max(tokens, 1)


def translate(model: nn.Module, valid_set: ValidationSet, limit: int, seconds: float = math.inf) -> list[Result]:
    """The model's translations of the first `limit` validation sentences.

    With a limit of `seconds`, a few are timed first, and then as many are translated as fit into the time.
    """
    translator = Translator(model, valid_set.data.tokenizers, valid_set.data.config)
    options: dict[str, Any] = {"tag": valid_set.tag, "warn": False}
    sources, results = valid_set.sources[:limit], []
    if math.isfinite(seconds):
        start = time.perf_counter()
        results = translator.translate(sources[:TIMED_SENTENCES], **options)
        used = time.perf_counter() - start
        sources = sources[len(results) : max(len(results), int(len(results) * seconds / used))]
    return results + translator.translate(sources, **options)


def final_scores(
    model: nn.Module, valid_set: ValidationSet, runtime: Runtime, seconds: float = math.inf
) -> tuple[dict[str, Any], quality.Calibration | None]:
    """The scores on the whole validation set, or on what fits into `seconds`, and the calibration of confidence."""
    start = time.perf_counter()
    scores: dict[str, Any] = {"loss": valid_loss(model, valid_set.data, runtime)}
    if not valid_set.sources:
        return scores, None
    results = translate(model, valid_set, len(valid_set.sources), start + seconds - time.perf_counter())
    calibration = calibrate(valid_set.sources, valid_set.references, results)
    references = valid_set.references[: len(results)]
    partial = {"sentences": len(results)} if len(results) < len(valid_set.sources) else {}
    both = corpus_scores(scored_texts(results), references, metrics=["bleu", "chrf"], tokenize=valid_set.tokenize)
    return scores | {name: score.to_dict() | partial for name, score in both.items()}, calibration
