"""Compare: score several systems side by side, test each against the first one, and show where they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from regard.errors import ConfigError, DataError, InputError
from regard.evaluation.evaluate import format_interval, format_range, refuse
from regard.evaluation.metrics import (
    LENGTHS,
    METRICS,
    Bucket,
    by_length,
    check_lines,
    make_metric,
    sentence_scores,
    word_splitter,
)
from regard.evaluation.systems import Paths, Progress, Translations, is_model, read_test_set, translate_test
from regard.evaluation.words import NgramDifference, matching_ngrams, ngram_differences
from regard.folders import write_file
from regard.results import Report, Table
from regard.translation.translator import Translator

TESTS = {"bootstrap": "bs", "randomisation": "ar"}  # sacreBLEU's names of the paired tests
MAX_NGRAMS = 12
MAX_DIFFERENT = 25  # sentences that are much better or much worse
SHOWN_NGRAMS, SHOWN_DIFFERENT = 8, 2  # in the printed tables


class PairedScore(NamedTuple):
    """A score with its 95 % bootstrap interval and the p-values of its difference from the first system's."""

    score: float
    low: float
    high: float
    p_bootstrap: float | None = None
    p_randomisation: float | None = None

    def to_dict(self) -> dict[str, float]:
        return {name: value for name, value in self._asdict().items() if value is not None}


class Difference(NamedTuple):
    """A sentence that two systems translate differently."""

    line: int
    gap: float
    """chrF of the system minus chrF of the baseline."""
    chrf: float
    baseline_chrf: float
    text: str
    baseline_text: str


class Contrast(NamedTuple):
    """One system compared with the baseline, which is the first system."""

    system: str
    baseline: str
    better: int
    """Number of sentences with a higher chrF than the baseline."""
    equal: int
    worse: int
    ngrams: list[NgramDifference]
    """N-grams that the system has right more often than the baseline."""
    baseline_ngrams: list[NgramDifference]
    different: list[Difference]
    """The largest gains, then the largest losses."""

    def to_dict(self) -> dict[str, Any]:
        lists = {name: [item._asdict() for item in getattr(self, name)] for name in ("ngrams", "baseline_ngrams")}
        return {**self._asdict(), **lists, "different": [sentence._asdict() for sentence in self.different]}


@dataclass(frozen=True, kw_only=True)
class Comparison(Report):
    """Several systems on one test set."""

    scores: dict[str, dict[str, PairedScore]]
    """Scores by system and metric."""
    signatures: dict[str, dict[str, str]]
    """sacreBLEU signatures by metric and test."""
    by_length: dict[str, list[Bucket]]
    """Buckets by system."""
    against: list[Contrast]
    references: Sequence[Sequence[str]]
    sources: Sequence[str] | None = None
    paths: Mapping[str, str] | None = None
    """The file or folder of every system."""
    about: str = ""
    """A description of the test set."""
    translators: Mapping[str, Translator] | None = None
    """The models that translated; a saved page shows their attention."""
    beams: int | None = None

    def to_dict(self) -> dict[str, Any]:
        buckets = [
            {
                "from": row[0].first,
                "to": row[0].last,
                "sentences": row[0].sentences,
                "small": row[0].small,
                "systems": [
                    {"name": name, "bleu": bucket.bleu, "low": bucket.low, "high": bucket.high}
                    for name, bucket in zip(self.by_length, row, strict=True)
                ],
            }
            for row in zip(*self.by_length.values(), strict=True)
        ]
        return {
            **({"paths": dict(self.paths)} if self.paths is not None else {}),
            "sentences": len(self.references[0]),
            "systems": [
                {"name": name, **{metric: score.to_dict() for metric, score in scores.items()}}
                for name, scores in self.scores.items()
            ],
            "signatures": self.signatures,
            "by_length": buckets,
            "against": [contrast.to_dict() for contrast in self.against],
        }

    def tables(self) -> list[Table]:
        first, *_ = self.scores
        rows = []
        for metric, title in METRICS.items():
            for name, scores in self.scores.items():
                score = scores[metric]
                # sacreBLEU gives equal scores a small p-value too, which is not significant.
                differs = score.score != self.scores[first][metric].score
                p_values = [_p_value(p, marked=differs) for p in (score.p_randomisation, score.p_bootstrap)]
                interval = f"{score.low:z.1f} to {score.high:z.1f}"
                rows.append([title if name == first else "", name, f"{score.score:z.2f}", interval, *p_values])
        lengths = [
            [format_range(row[0].first, row[0].last), f"{row[0].sentences:,}", *map(_bucket_text, row)]
            for row in zip(*self.by_length.values(), strict=True)
        ]
        return [
            Table(["", "system", "score", "95 % interval", "p rand.", "p boot."], rows),
            Table([f"p: probability of such a difference from {first} by chance; * below 0.05"], []),
            Table(["words", "sentences", *self.scores], lengths, "BLEU by reference length"),
            *map(_contrast_table, self.against),
        ]

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write a page with the scores, charts and the sentences that differ most."""
        from regard.evaluation.pages import comparison_page

        write_file(Path(path), comparison_page(self), force=force)


def _p_value(p: float | None, *, marked: bool) -> str:
    return "" if p is None else f"{p:.4f}" + (" *" if marked and p < 0.05 else "  ")


def _bucket_text(bucket: Bucket) -> str:
    return f"{bucket.bleu:z.1f} ({format_interval(bucket).replace(' to ', '–')})" + " few" * bucket.small


def _contrast_table(contrast: Contrast) -> Table:
    counts = f"chrF higher in {contrast.better:,} sentences, equal in {contrast.equal:,}, lower in {contrast.worse:,}"
    rows = [
        [f"right more often in {name}: " + (", ".join(f"“{x.words}” {x.here}:{x.there}" for x in ngrams) or "nothing")]
        for name, ngrams in (
            (contrast.system, contrast.ngrams[:SHOWN_NGRAMS]),
            (contrast.baseline, contrast.baseline_ngrams[:SHOWN_NGRAMS]),
        )
    ]
    gains = [sentence for sentence in contrast.different if sentence.gap > 0][:SHOWN_DIFFERENT]
    losses = [sentence for sentence in contrast.different if sentence.gap < 0][:SHOWN_DIFFERENT]
    for sentence in (*gains, *losses):
        rows += [
            [f"line {sentence.line:,}, chrF {sentence.gap:+.0f}"],
            [f"  + {sentence.text}"],
            [f"  - {sentence.baseline_text}"],
        ]
    return Table([""], rows, f"{contrast.system} against {contrast.baseline}: {counts}")


def compare(
    systems: Sequence[str | Path | Translator],
    *,
    reference: Paths,
    source: str | Path | None = None,
    lowercase: bool = False,
    tokenize: str | None = None,
    lengths: Sequence[int] | None = None,
    beams: int | None = None,
    config: Mapping[str, Any] | None = None,
    device: torch.device | str = "auto",
    progress: Progress | None = None,
) -> Comparison:
    """Score model folders, files of translations or loaded models side by side, and test each against the first.

    The p-values are those of sacreBLEU's paired bootstrap and approximate randomisation tests.
    """
    if len(systems) < 2:
        raise ConfigError("one system cannot be compared: give two or more")
    named = _names(systems)
    if all(isinstance(system, str | Path) and Path(system).is_file() for system in systems):
        refuse({"--beams": beams, "--set": config}, "is for decoding, and these files are already translated")
    lengths = LENGTHS if lengths is None else lengths
    test = read_test_set(source, reference, tokenize=tokenize, lengths=lengths)
    # Read files first, so that their errors are found before anything is translated.
    order = sorted(named, key=lambda name: isinstance(named[name], Translator) or is_model(str(named[name])))
    models = sum(isinstance(system, Translator) or is_model(system) for system in systems)
    done: dict[str, Translations] = {}

    def count(finished: int, total: int) -> None:
        if progress is not None:
            before = sum(translations.translator is not None for translations in done.values())
            progress(before * total + finished, models * total)

    for name in order:
        done[name] = translate_test(
            named[name], test.sources, device=device, beams=beams, config=config, progress=count
        )
        test.check(str(named[name]) if isinstance(named[name], str | Path) else name, done[name].texts)
    texts = {name: done[name].texts for name in named}
    comparison = compare_translations(texts, *test.references, lowercase=lowercase, tokenize=tokenize, lengths=lengths)
    return replace(
        comparison,
        sources=test.sources,
        paths={name: str(system) if isinstance(system, str | Path) else name for name, system in named.items()},
        about=f"{len(test.references[0]):,} sentences against {', '.join(test.names)}",
        translators={name: system.translator for name, system in done.items() if system.translator is not None},
        beams=beams,
    )


def _names(systems: Sequence[str | Path | Translator]) -> dict[str, str | Path | Translator]:
    """Name the systems: by file or folder name, by path if two names are equal, or "model 1" for a loaded model."""
    paths = [str(system) for system in systems if isinstance(system, str | Path)]
    if len(set(paths)) < len(paths):
        raise ConfigError(f"{' '.join(paths)}: a system is named twice")
    short = [Path(path).name for path in paths]
    unique = len(set(short)) == len(short)
    return {
        f"model {number}" if isinstance(system, Translator) else Path(system).name if unique else str(system): system
        for number, system in enumerate(systems, 1)
    }


def compare_translations(
    systems: Mapping[str, Sequence[str]],
    *references: Sequence[str],
    lowercase: bool = False,
    tokenize: str | None = None,
    lengths: Sequence[int] = LENGTHS,
) -> Comparison:
    """Compare the translations of named systems; the first one is the baseline."""
    if len(systems) < 2:
        raise InputError("one system cannot be compared: give two or more")
    for name, hypotheses in systems.items():
        try:
            check_lines(hypotheses, *references)
        except DataError as error:
            raise DataError(f"{name}: {error}") from error
    options: dict[str, Any] = {"lowercase": lowercase, "tokenize": tokenize}
    chrf = {
        name: [scores["chrf"] for scores in sentence_scores(lines, *references, metrics=["chrf"], **options)]
        for name, lines in systems.items()
    }
    split = word_splitter(**options)
    reference_words = [[split(line) for line in lines] for lines in references]
    ngrams = {
        name: matching_ngrams([split(line) for line in lines], *reference_words) for name, lines in systems.items()
    }
    scores, signatures = paired_tests(systems, *references, **options)
    first, *others = systems
    return Comparison(
        scores=scores,
        signatures=signatures,
        by_length={name: by_length(lines, *references, lengths=lengths, **options) for name, lines in systems.items()},
        against=[
            Contrast(
                name,
                first,
                *_count_wins(chrf[name], chrf[first]),
                ngram_differences(ngrams[name], ngrams[first], MAX_NGRAMS),
                ngram_differences(ngrams[first], ngrams[name], MAX_NGRAMS),
                _differences(chrf[name], chrf[first], systems[name], systems[first]),
            )
            for name in others
        ],
        references=references,
    )


def paired_tests(
    systems: Mapping[str, Sequence[str]],
    *references: Sequence[str],
    lowercase: bool = False,
    tokenize: str | None = None,
) -> tuple[dict[str, dict[str, PairedScore]], dict[str, dict[str, str]]]:
    """The scores of all systems and the p-values of sacreBLEU's paired tests, and the signatures of the tests."""
    from sacrebleu.significance import PairedTest

    lists = [list(lines) for lines in references]
    texts: list[tuple[str, Sequence[str]]] = [(name, list(lines)) for name, lines in systems.items()]
    scores: dict[str, dict[str, PairedScore]] = {name: {} for name in systems}
    signatures: dict[str, dict[str, str]] = {name: {} for name in METRICS}
    for metric in METRICS:
        results = {}
        for test, kind in TESTS.items():
            # A metric with cached references does not prepare them again for every system.
            scorer = make_metric(metric, lowercase=lowercase, tokenize=tokenize, references=lists)
            test_signatures, test_results = PairedTest(texts, {metric: scorer}, None, test_type=kind)()
            (key,) = test_signatures
            results[test], signatures[metric][test] = test_results[key], str(test_signatures[key])
        for name, bootstrap, randomised in zip(systems, *results.values(), strict=True):
            mean, half = float(bootstrap.mean), float(bootstrap.ci)
            values = float(bootstrap.score), mean - half, mean + half
            scores[name][metric] = PairedScore(*values, bootstrap.p_value, randomised.p_value)
    return scores, signatures


def _count_wins(system: Sequence[float], baseline: Sequence[float]) -> tuple[int, int, int]:
    """The number of sentences in which a system is better than the baseline, equal and worse."""
    gaps = [one - other for one, other in zip(system, baseline, strict=True)]
    return sum(gap > 0 for gap in gaps), sum(gap == 0 for gap in gaps), sum(gap < 0 for gap in gaps)


def _differences(
    system: Sequence[float], baseline: Sequence[float], texts: Sequence[str], baseline_texts: Sequence[str]
) -> list[Difference]:
    """The sentences with the largest differences in chrF: gains, then losses."""
    gaps = sorted((one - other, line) for line, (one, other) in enumerate(zip(system, baseline, strict=True)))
    losses = [(gap, line) for gap, line in gaps[:MAX_DIFFERENT] if gap < 0]
    gains = [(gap, line) for gap, line in reversed(gaps[-MAX_DIFFERENT:]) if gap > 0]
    return [
        Difference(line + 1, gap, system[line], baseline[line], texts[line], baseline_texts[line])
        for gap, line in (*gains, *losses)
    ]
