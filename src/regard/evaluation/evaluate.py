"""Everything about one system's translations: scores, where they are good and where not, and what to look at."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from regard.errors import DataError
from regard.evaluation.metrics import (
    LENGTHS,
    Bucket,
    Score,
    by_length,
    check_lines,
    corpus_scores,
    lengths,
    sentence_scores,
    splitter,
)
from regard.evaluation.words import Frequency, by_frequency, count_words
from regard.inspection.quality import Expected, QualityWarning, find_warnings
from regard.text.files import read_lines

TELLING = 50  # sentences a report shows,
WARNED, WORST, BEST = 15, 15, 10  # of these kinds at most, and the rest from the middle
SHORT = 4  # words of a reference below which a sentence tells little


class Sentence(NamedTuple):
    """One line of the test set."""

    line: int
    """From 1."""
    source: str
    """Empty where only translations were given."""
    references: tuple[str, ...]
    text: str
    scores: dict[str, float]
    warnings: Sequence[QualityWarning]
    confidence: float | None = None

    def as_dict(self) -> dict[str, Any]:
        warned = [warning._asdict() for warning in self.warnings]
        return {**self._asdict(), "references": list(self.references), "warnings": warned}


@dataclass(frozen=True)
class Evaluation:
    """What is known of one system on one test set."""

    scores: dict[str, Score]
    by_length: list[Bucket]
    by_frequency: list[Frequency]
    counted_in: str
    """Where the frequencies of words are from."""
    warnings: dict[str, int] | None
    """Sentences by the kind of warning; None where there is no source to compare with."""
    each: list[Sentence]
    terms: Mapping[str, Any] | None = None

    def as_dict(self, *, sentences: bool = False) -> dict[str, Any]:
        """As JSON has it; `sentences` adds every line of the test set."""
        found: dict[str, Any] = {name: score.as_dict() for name, score in self.scores.items()}
        found["sentences"] = len(self.each)
        found["by_length"] = [bucket.as_dict() for bucket in self.by_length]
        found["by_frequency"] = [bucket.as_dict() for bucket in self.by_frequency]
        found["frequencies_from"] = self.counted_in
        found |= {"warnings": self.warnings} if self.warnings is not None else {}
        found |= {"terms": dict(self.terms)} if self.terms is not None else {}
        sure = [sentence.confidence for sentence in self.each if sentence.confidence is not None]
        found |= {"confidence": statistics.fmean(sure)} if sure else {}
        return found | ({"each": [sentence.as_dict() for sentence in self.each]} if sentences else {})


def evaluate(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    sources: Sequence[str] | None = None,
    warned: Sequence[Sequence[QualityWarning]] | None = None,
    confidences: Sequence[float | None] | None = None,
    train: str | None = None,
    terms: Mapping[str, Any] | None = None,
    lowercase: bool = False,
    tokenize: str | None = None,
    ends: Sequence[int] = LENGTHS,
) -> Evaluation:
    """Score translations against one reference or several.

    `warned` and `confidences` are those of the translator, where it made the translations; without, the texts alone are
    looked at. `train` is a file of the target language in which words are counted; without, they are in the reference.
    """
    check_lines(hypotheses, *references)
    if sources is not None and len(sources) != len(hypotheses):
        raise DataError(f"there are {len(sources):,} sources and {len(hypotheses):,} translations: line for line")
    how: dict[str, Any] = {"lowercase": lowercase, "tokenize": tokenize}
    cut = splitter(**how)
    wanted = [cut(line) for line in references[0]]
    seen = count_words(wanted if train is None else (cut(line) for line, _ in read_lines(train)))
    own = sentence_scores(hypotheses, *references, **how)
    if warned is None:
        warned = [()] * len(hypotheses) if sources is None else _warned(sources, hypotheses, references[0])
    each = [
        Sentence(
            line=place + 1,
            source=sources[place] if sources is not None else "",
            references=tuple(lines[place] for lines in references),
            text=hypotheses[place],
            scores=own[place],
            warnings=warned[place],
            confidence=confidences[place] if confidences is not None else None,
        )
        for place in range(len(hypotheses))
    ]
    return Evaluation(
        scores=corpus_scores(hypotheses, *references, interval=True, **how),
        by_length=by_length(hypotheses, *references, ends=ends, **how),
        by_frequency=by_frequency([cut(line) for line in hypotheses], wanted, seen),
        counted_in=train or ("the first reference" if len(references) > 1 else "the reference"),
        warnings=None if sources is None else _kinds(each),
        each=each,
        terms=terms,
    )


def read_test(path: str) -> list[str]:
    """The lines of a file without blanks at their ends, as the command line of sacreBLEU reads them."""
    return [line.rstrip() for line, _ in read_lines(path)]


def _warned(sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]) -> list[list[QualityWarning]]:
    """What the texts alone say, where the references tell what is usual."""
    expected = Expected.from_pairs(list(zip(sources, references, strict=True)))
    return [find_warnings(source, text, expected=expected) for source, text in zip(sources, hypotheses, strict=True)]


def _kinds(each: Iterable[Sentence]) -> dict[str, int]:
    counted = Counter(kind for sentence in each for kind in {warning.kind for warning in sentence.warnings})
    return dict(counted.most_common())


def telling(found: Evaluation, most: int = TELLING, *, tokenize: str | None = None) -> list[tuple[str, Sentence]]:
    """The sentences worth a look, each with why: warned of, worst, best and of the middle; by chrF of the sentence.

    Of sentences with the same score the longer ones: they tell more.
    """
    sizes = lengths([sentence.references[0] for sentence in found.each], tokenize=tokenize)
    long_enough = [place for place, size in enumerate(sizes) if size >= SHORT] or list(range(len(sizes)))

    def worth(place: int) -> tuple[float, int]:
        return found.each[place].scores["chrf"], -sizes[place]

    ranked = sorted(long_enough, key=worth)
    best = sorted(long_enough, key=lambda place: (-found.each[place].scores["chrf"], -sizes[place]))
    centre = len(ranked) // 2
    middle = [ranked[rank] for rank in sorted(range(len(ranked)), key=lambda rank: abs(rank - centre))]
    warned = sorted((place for place, sentence in enumerate(found.each) if sentence.warnings), key=worth)
    chosen: dict[int, str] = {}
    for why, places, number in (
        ("warned", warned, WARNED),
        ("worst", ranked, WORST),
        ("best", best, BEST),
        ("middle", middle, most),
    ):
        fresh = [place for place in places if place not in chosen][: min(number, most - len(chosen))]
        chosen |= dict.fromkeys(fresh, why)
    return [(why, found.each[place]) for place, why in chosen.items()]
