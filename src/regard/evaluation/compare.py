"""Comparison: which of several systems is better, whether by chance, and where they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from regard.errors import DataError, InputError
from regard.evaluation.metrics import (
    LENGTHS,
    METRICS,
    RESAMPLES,
    by_length,
    check_lines,
    make_metric,
    resample,
    seed,
    sentence_scores,
    splitter,
)
from regard.evaluation.words import matches, salient

TRIALS = 10_000  # of approximate randomisation, as sacreBLEU has it
TOGETHER = 64  # of them at once, as all take gigabytes; by a multiple of 32, numpy tosses the same coins as for all
TESTS = {"bootstrap": ("bs", RESAMPLES), "randomisation": ("ar", TRIALS)}
SHOWN = 12  # n-grams of a list
DIFFERENT = 25  # sentences in which one system is far better than another, each way


def compare(
    systems: Mapping[str, Sequence[str]],
    *references: Sequence[str],
    lowercase: bool = False,
    tokenize: str | None = None,
    ends: Sequence[int] = LENGTHS,
) -> dict[str, Any]:
    """All systems beside each other, and each against the first."""
    if len(systems) < 2:
        raise InputError("one system cannot be compared: give two or more")
    for name, hypotheses in systems.items():
        try:
            check_lines(hypotheses, *references)
        except DataError as error:
            raise DataError(f"{name}: {error}") from error
    how: dict[str, Any] = {"lowercase": lowercase, "tokenize": tokenize}
    each = {
        name: sentence_scores(lines, *references, metrics=("bleu", "chrf"), **how) for name, lines in systems.items()
    }
    cut = splitter(**how)
    wanted = [[cut(line) for line in lines] for lines in references]
    right = {name: matches([cut(line) for line in lines], *wanted) for name, lines in systems.items()}
    first, *others = systems
    return {
        "sentences": len(references[0]),
        **paired(systems, *references, **how),
        "by_length": _side_by_side(systems, references, ends, how),
        "against": [
            {
                "system": name,
                "baseline": first,
                **_wins(each[name], each[first]),
                "ngrams": [found._asdict() for found in salient(right[name], right[first], SHOWN)],
                "baseline_ngrams": [found._asdict() for found in salient(right[first], right[name], SHOWN)],
                "different": _different(each[name], each[first], systems[name], systems[first]),
            }
            for name in others
        ],
    }


def paired(
    systems: Mapping[str, Sequence[str]],
    *references: Sequence[str],
    lowercase: bool = False,
    tokenize: str | None = None,
) -> dict[str, Any]:
    """The scores of all systems, and how likely chance alone sets them apart from the first, by sacreBLEU's tests.

    An interval is sacreBLEU's: the mean of the resampled scores and the half of where 95 in 100 of them lie.
    """
    from sacrebleu.significance import _compute_p_value, estimate_ci

    rows: list[dict[str, Any]] = [{"name": name} for name in systems]
    signatures: dict[str, dict[str, str]] = {}
    lists = [list(lines) for lines in references]
    for name in METRICS:
        metric = make_metric(name, lowercase=lowercase, tokenize=tokenize, references=lists)
        statistics = [metric._extract_corpus_statistics(list(lines), None) for lines in systems.values()]
        scores = [float(metric._aggregate_and_compute(own).score) for own in statistics]
        drawn = [np.array([each.score for each in own]) for own in resample(metric, *statistics)]
        for place, row in enumerate(rows):
            mean, half = map(float, estimate_ci(drawn[place]))
            row[name] = {"score": scores[place], "low": mean - half, "high": mean + half}
            if place:
                gap, gaps = abs(scores[0] - scores[place]), np.abs(drawn[place] - drawn[0])
                row[name]["p_bootstrap"] = _compute_p_value(gaps - gaps.mean(), gap)
                row[name]["p_randomisation"] = _compute_p_value(_swapped(metric, statistics[0], statistics[place]), gap)
        signatures[name] = {test: _signed(metric, kind, number) for test, (kind, number) in TESTS.items()}
    return {"systems": rows, "signatures": signatures}


def _swapped(metric: Any, one: Any, other: Any) -> Any:
    """(TRIALS,) how far apart two systems are when a coin is tossed for every line which of them wrote which."""
    random, tables = np.random.default_rng(seed()), (np.array(one, dtype=float), np.array(other, dtype=float))
    gaps = []
    for begin in range(0, TRIALS, TOGETHER):
        stays = random.integers(2, size=(min(TOGETHER, TRIALS - begin), len(one)), dtype=bool)
        pairs = [stays @ tables[0] + ~stays @ tables[1], ~stays @ tables[0] + stays @ tables[1]]
        ours, theirs = ([metric._compute_score_from_stats(row).score for row in sums] for sums in pairs)
        gaps.append(np.abs(np.array(ours) - np.array(theirs)))
    return np.concatenate(gaps)


def _signed(metric: Any, kind: str, number: int) -> str:
    """The signature of a metric with that of a test, as sacreBLEU writes it."""
    signature = metric.get_signature()
    signature.update("seed", str(seed()).lower())
    signature.update(kind, number)
    return str(signature)


def _side_by_side(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[Sequence[str]],
    ends: Sequence[int],
    how: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """The buckets of length, each with the BLEU of every system."""
    found = {name: by_length(lines, *references, ends=ends, **how) for name, lines in systems.items()}
    return [
        {
            "from": buckets[0].first,
            "to": buckets[0].last,
            "sentences": buckets[0].sentences,
            "small": buckets[0].small,
            "systems": [
                {"name": name, "bleu": bucket.bleu, "low": bucket.low, "high": bucket.high}
                for name, bucket in zip(systems, buckets, strict=True)
            ],
        }
        for buckets in zip(*found.values(), strict=True)
    ]


def _wins(here: Sequence[Mapping[str, float]], there: Sequence[Mapping[str, float]]) -> dict[str, int]:
    """In how many sentences a system is better than another, as good, and worse, by chrF."""
    gaps = [one["chrf"] - other["chrf"] for one, other in zip(here, there, strict=True)]
    return {
        "better": sum(gap > 0 for gap in gaps),
        "equal": sum(gap == 0 for gap in gaps),
        "worse": sum(gap < 0 for gap in gaps),
    }


def _different(
    here: Sequence[Mapping[str, float]],
    there: Sequence[Mapping[str, float]],
    ours: Sequence[str],
    theirs: Sequence[str],
) -> list[dict[str, Any]]:
    """The sentences that are furthest apart by chrF, the gains first, then the losses."""
    gaps = sorted(
        (one["chrf"] - other["chrf"], place) for place, (one, other) in enumerate(zip(here, there, strict=True))
    )
    losses = [found for found in gaps[:DIFFERENT] if found[0] < 0]
    gains = [found for found in reversed(gaps[-DIFFERENT:]) if found[0] > 0]
    return [
        {"line": place + 1, "gap": gap, "chrf": here[place]["chrf"], "baseline_chrf": there[place]["chrf"],
         "text": ours[place], "baseline_text": theirs[place]}
        for gap, place in (*gains, *losses)
    ]  # fmt: skip
