"""Evaluation: how good translations are, by sacreBLEU's own numbers and with its signature."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from regard.errors import DataError


class Score(NamedTuple):
    """A metric's value and what it depends on."""

    score: float
    signature: str

    def as_dict(self) -> dict[str, Any]:
        return self._asdict()


def corpus_scores(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    metrics: Sequence[str] = ("bleu", "chrf", "ter"),
    lowercase: bool = False,
    tokenize: str | None = None,
) -> dict[str, Score]:
    """BLEU, chrF and TER of whole corpora, as the command line of sacreBLEU gives them."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    if len(hypotheses) != len(references):
        raise DataError(f"there are {len(hypotheses):,} translations and {len(references):,} references: line for line")
    made: dict[str, Callable[[], Any]] = {
        "bleu": lambda: BLEU(lowercase=lowercase, tokenize=tokenize),
        "chrf": lambda: CHRF(lowercase=lowercase),
        "ter": lambda: TER(case_sensitive=not lowercase),
    }
    scores = {}
    for name in metrics:
        metric = made[name]()
        found = metric.corpus_score(list(hypotheses), [list(references)])
        scores[name] = Score(float(found.score), str(metric.get_signature()))
    return scores
