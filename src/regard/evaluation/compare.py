"""Comparison: which of several systems is better, whether by chance, and where they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from regard.errors import DataError, InputError
from regard.evaluation.scores import LENGTHS, METRICS, by_length, check_lines, make_metric, sentence_scores, splitter
from regard.evaluation.words import matches, salient

TESTS = {"bs": "bootstrap", "ar": "randomisation"}
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
    wanted = [cut(line) for line in references[0]]
    right = {name: matches([cut(line) for line in lines], wanted) for name, lines in systems.items()}
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
    from sacrebleu.significance import PairedTest

    rows: dict[str, dict[str, Any]] = {name: {"name": name} for name in systems}
    signatures: dict[str, dict[str, str]] = {}
    named: list[Any] = [(name, list(lines)) for name, lines in systems.items()]
    for kind, test in TESTS.items():
        lists = [list(lines) for lines in references]
        metrics = {
            name: make_metric(name, lowercase=lowercase, tokenize=tokenize, references=lists) for name in METRICS
        }
        test_all: Any = PairedTest(named, metrics, None, test_type=kind)
        signed, results = test_all()
        for name in METRICS:
            signatures.setdefault(name, {})[test] = str(signed[_own_name(name, signed)])
            for row, result in zip(rows.values(), results[_own_name(name, results)], strict=True):
                row.setdefault(name, {"score": float(result.score)})
                if result.mean is not None:
                    mean, half = float(result.mean), float(result.ci)
                    row[name] |= {"low": mean - half, "high": mean + half}
                if result.p_value is not None:
                    row[name][f"p_{test}"] = float(result.p_value)
    return {"systems": list(rows.values()), "signatures": signatures}


def _own_name(name: str, table: Mapping[str, Any]) -> str:
    """What sacreBLEU calls a metric, such as chrF2."""
    return next(key for key in table if key.lower().startswith(name))


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
