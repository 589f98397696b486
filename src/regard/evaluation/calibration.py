"""Calibration: fit the confidence of a model to the chrF of its translations of validation sentences."""

from __future__ import annotations

import json
from collections.abc import Sequence

from regard.evaluation.metrics import sentence_scores
from regard.inspection import quality
from regard.text.files import written_line
from regard.translation.translator import Result

MAX_SENTENCES = 500  # pairs in validation.jsonl: enough to compare scores, few enough to be translated quickly


def calibrate(
    sources: Sequence[str], references: Sequence[str], results: Sequence[Result]
) -> quality.Calibration | None:
    """Fit confidence to the translations of the first of these sources; None if they are too few."""
    chrf = sentence_scores(scored_texts(results), references[: len(results)], metrics=["chrf"])
    examples = [
        ((source, reference), quality.features(result.log_probabilities), score["chrf"] >= quality.GOOD_CHRF)
        for source, reference, score, result in zip(sources, references, chrf, results, strict=False)
        if result.log_probabilities
    ]
    if len(examples) < quality.MIN_SENTENCES:
        return None
    pairs, rows, good = zip(*examples, strict=True)
    return quality.Calibration(quality.fit(rows, good), quality.Expected.from_pairs(pairs))


def scored_texts(results: Sequence[Result]) -> list[str]:
    """The translations as `regard evaluate` scores them."""
    return [written_line(result.text).rstrip() for result in results]


def validation_lines(sources: Sequence[str], references: Sequence[str], *, tag: str) -> str:
    """The `validation.jsonl` of a model folder: the first pairs, with the tag before every source."""
    before = f"{tag} " if tag else ""
    pairs = list(zip(sources, references, strict=True))[:MAX_SENTENCES]
    rows = ({"source": before + source, "target": target} for source, target in pairs)
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
