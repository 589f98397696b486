"""Import: a model of another library becomes a model folder, and is measured on validation sentences."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from regard.documents.formats import read_pairs
from regard.errors import ConfigError
from regard.evaluation.calibration import MAX_SENTENCES, calibrate, scored_texts, validation_lines
from regard.evaluation.metrics import METRICS, choose_tokenizer, corpus_scores
from regard.folders import write_file
from regard.inspection.quality import CALIBRATION_FILE, MIN_SENTENCES
from regard.interop.importing import Imported, Measured, convert
from regard.interop.verification import SENTENCES
from regard.translation.translator import Translator


def import_model(
    source: str | Path,
    folder: str | Path,
    *,
    valid: tuple[str | Path, str | Path] | None = None,
    tag: str = "",
    to: str = "",
    force: bool = False,
    sentences: int = SENTENCES,
) -> Imported:
    """Import a Hugging Face folder, or a model of its hub by name, into a new model folder.

    If transformers is installed, `sentences` of `valid`, or else of the built-in corpus, are computed on both sides; a
    difference above the tolerance is an error. The translations of the first 500 pairs of `valid` calibrate confidence
    and are scored in the card; `tag` is put before every source. Every translation of the model begins with the
    token `to`. Nothing is written after an error.
    """
    options: dict[str, Any] = {"first_token": to, "force": force, "sentences": sentences}
    if valid is not None:
        pairs = [(pair.source, pair.target) for pair in islice(read_pairs(*valid), MAX_SENTENCES)]
        sources, references = ([text.rstrip() for text in side] for side in zip(*pairs, strict=True))
        options["validation"] = validation_lines(sources, references, tag=tag)
        options["measure"] = partial(_measure, sources=sources, references=references, tag=tag)
    elif tag:
        raise ConfigError("--tag is put before the sources of --valid: give --valid SOURCE TARGET too")
    return convert(source, folder, **options)


def _measure(folder: Path, *, sources: Sequence[str], references: Sequence[str], tag: str) -> Measured:
    """Translate validation sentences, score them, and write the calibration of the folder."""
    translator = Translator.load(folder)
    results = translator.translate(sources, tag=tag, warn=False)
    tokenize = choose_tokenizer(references, lambda _: None)  # the signature names it
    scores = corpus_scores(scored_texts(results), references, metrics=["bleu", "chrf"], tokenize=tokenize)
    if calibration := calibrate(sources, references, results):
        write_file(folder / CALIBRATION_FILE, calibration.as_text(), force=True)
        confidence = f"calibrated on {len(results):,} validation sentences"
    else:
        confidence = f"null: {MIN_SENTENCES} translated validation sentences are needed, and there are fewer"
    decode = translator.config.decode
    lines = [
        f"On {len(results):,} validation sentences, beams {decode.beams}, length penalty {decode.length_penalty:g}:",
        "",
        "| metric | score | signature |",
        "|---|---:|---|",
        *(f"| {METRICS[name]} | {score.score:.4g} | `{score.signature}` |" for name, score in scores.items()),
    ]
    return Measured({name: score.to_dict() for name, score in scores.items()}, confidence, "\n".join(lines))
