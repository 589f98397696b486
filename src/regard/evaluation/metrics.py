"""Scores: BLEU, chrF and TER by sacreBLEU's own numbers, with its signature and its bootstrap interval."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from regard.errors import ConfigError, DataError, did_you_mean

METRICS = ("bleu", "chrf", "ter")
RESAMPLES = 1000  # of a bootstrap, as sacreBLEU has it
LENGTHS = (10, 20, 30, 40, 60)  # the last of the words a reference has in each bucket; one more bucket has the rest
FEW = 30  # sentences below which the score of a bucket says little
TOKENIZERS = ("13a", "intl", "none", "char", "zh", "ja-mecab", "ko-mecab")  # those of sacreBLEU that fetch nothing
BY_BLANKS = ("13a", "intl", "none")  # tokenizers of languages whose words are parted by blanks


class Score(NamedTuple):
    """A metric's value, what it depends on, and where it lies in 95 of 100 resampled corpora."""

    score: float
    signature: str
    low: float | None = None
    high: float | None = None

    @property
    def interval(self) -> tuple[float, float]:
        """Where it lies, when asked for."""
        assert self.low is not None
        assert self.high is not None
        return self.low, self.high

    def as_dict(self) -> dict[str, Any]:
        return {name: value for name, value in self._asdict().items() if value is not None}


class Bucket(NamedTuple):
    """The sentences whose references have from `first` to `last` words."""

    first: int
    last: int | None
    """None: however many."""
    sentences: int
    bleu: float
    low: float
    high: float

    @property
    def small(self) -> bool:
        """Too few sentences for its score to say much."""
        return self.sentences < FEW

    def as_dict(self) -> dict[str, Any]:
        first, last, *rest = self
        return {"from": first, "to": last, **dict(zip(self._fields[2:], rest, strict=True)), "small": self.small}


def make_metric(name: str, *, lowercase: bool = False, tokenize: str | None = None, **more: Any) -> Any:
    """A metric of sacreBLEU as its command line sets it: TER never minds case there."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    if tokenize is not None and tokenize not in TOKENIZERS:
        raise ConfigError(f"There is no tokenizer {tokenize}.{did_you_mean(tokenize, TOKENIZERS)}")
    made: dict[str, Callable[[], Any]] = {
        # force: it would warn that text looks tokenized, in the middle of whatever is shown
        "bleu": lambda: BLEU(lowercase=lowercase, tokenize=tokenize, force=True, **more),
        "chrf": lambda: CHRF(lowercase=lowercase, **more),
        "ter": lambda: TER(**more),
    }
    try:
        return made[name]()
    except (RuntimeError, ImportError) as error:
        raise ConfigError(f"sacreBLEU cannot tokenize by {tokenize}: {' '.join(str(error).split())}") from error


def corpus_scores(
    hypotheses: Sequence[str],
    *references: Sequence[str],
    metrics: Sequence[str] = METRICS,
    lowercase: bool = False,
    tokenize: str | None = None,
    interval: bool = False,
) -> dict[str, Score]:
    """Scores of a whole corpus against one reference or several, as the command line of sacreBLEU gives them."""
    check_lines(hypotheses, *references)
    scores = {}
    for name in metrics:
        metric = make_metric(name, lowercase=lowercase, tokenize=tokenize)
        scores[name] = _score(metric, hypotheses, references, interval)
    return scores


def _score(metric: Any, hypotheses: Sequence[str], references: Sequence[Sequence[str]], interval: bool) -> Score:
    lists = [list(lines) for lines in references]
    if not interval:
        found = metric.corpus_score(list(hypotheses), lists)
        return Score(float(found.score), str(metric.get_signature()))
    statistics = metric._extract_corpus_statistics(list(hypotheses), lists)
    found = metric._aggregate_and_compute(statistics)
    (drawn,) = resample(metric, statistics)
    try:
        found.estimate_ci(drawn)
    except TypeError:  # where some resampled corpora score nothing at all, its mean fails on two kinds of numbers
        for each in drawn:
            each.score = float(each.score)
        found.estimate_ci(drawn)
    metric.n_bootstrap, metric.seed = RESAMPLES, str(seed()).lower()
    mean, half = float(found._mean), float(found._ci)  # it has no public name for these
    return Score(float(found.score), str(metric.get_signature()), mean - half, mean + half)


def seed() -> int | None:
    """Of whatever is drawn, where sacreBLEU takes its own from."""
    said = os.environ.get("SACREBLEU_SEED", "12345")
    if said.lower() == "none":
        return None
    try:
        number = int(said)
    except ValueError:
        number = -1
    if number < 0:
        raise ConfigError(f"SACREBLEU_SEED ({said}) must be a whole number from 0 on, or none")
    return number


def resample(metric: Any, *systems: Any) -> list[list[Any]]:
    """Of the statistics of each system, sacreBLEU's scores of the same RESAMPLES corpora drawn from this one.

    The draws are sacreBLEU's, one at a time: all at once take gigabytes of a test set of a hundred thousand lines.
    """
    tables = [np.array(own, dtype="float32") for own in systems]
    random, size = np.random.default_rng(seed()), len(tables[0])
    found: list[list[Any]] = [[] for _ in tables]
    for _ in range(RESAMPLES):
        places = random.choice(size, size)
        for own, table in zip(found, tables, strict=True):
            own.append(metric._compute_score_from_stats(table[places].sum(0)))
    return found


def sentence_scores(
    hypotheses: Sequence[str],
    *references: Sequence[str],
    metrics: Sequence[str] = METRICS,
    lowercase: bool = False,
    tokenize: str | None = None,
) -> list[dict[str, float]]:
    """The scores of every sentence by itself, as `sacrebleu --sentence-level` gives them."""
    check_lines(hypotheses, *references)
    made = {
        name: make_metric(
            name, lowercase=lowercase, tokenize=tokenize, **({"effective_order": True} if name == "bleu" else {})
        )
        for name in metrics
    }
    return [
        {name: float(metric.sentence_score(hypothesis, list(own)).score) for name, metric in made.items()}
        for hypothesis, *own in zip(hypotheses, *references, strict=True)
    ]


def by_length(
    hypotheses: Sequence[str],
    *references: Sequence[str],
    ends: Sequence[int] = LENGTHS,
    lowercase: bool = False,
    tokenize: str | None = None,
) -> list[Bucket]:
    """BLEU over the sentences whose (first) reference has so many words, for every bucket that has any."""
    check_lines(hypotheses, *references)
    places: dict[int, list[int]] = {}
    for place, size in enumerate(lengths(references[0], tokenize=tokenize)):
        places.setdefault(bucket_of(size, ends), []).append(place)
    metric = make_metric("bleu", lowercase=lowercase, tokenize=tokenize)
    found = []
    for bucket, own in sorted(places.items()):
        parts = [[lines[place] for place in own] for lines in (hypotheses, *references)]
        scored = _score(metric, parts[0], parts[1:], interval=True)
        low, high = scored.interval  # the mean and twice the deviation: of few sentences more than there can be
        found.append(Bucket(*bounds(bucket, ends), len(own), scored.score, max(low, 0.0), min(high, 100.0)))
    return found


def bucket_of(size: int, ends: Sequence[int]) -> int:
    """Which of the buckets that end there a length falls into; an empty line is in the first."""
    return sum(size > end for end in ends)


def bounds(bucket: int, ends: Sequence[int]) -> tuple[int, int | None]:
    """The first and the last length of a bucket."""
    return (ends[bucket - 1] + 1 if bucket else 1), (ends[bucket] if bucket < len(ends) else None)


def check_ends(ends: Sequence[int]) -> None:
    """Refuse ends of buckets that do not grow."""
    if not ends or ends[0] < 1 or list(ends) != sorted(set(ends)):
        listed = ",".join(map(str, ends))
        raise ConfigError(f"--lengths ({listed}) must be growing numbers of words from 1 on, such as 10,20,30,40,60")


def lengths(lines: Sequence[str], *, tokenize: str | None = None) -> list[int]:
    """How many words lines have: between blanks, or where there are none, by sacreBLEU's tokenizer."""
    if tokenize is None or tokenize in BY_BLANKS:
        return [len(line.split()) for line in lines]
    cut = splitter(lowercase=False, tokenize=tokenize)
    return [len(cut(line)) for line in lines]


def splitter(*, lowercase: bool, tokenize: str | None) -> Callable[[str], list[str]]:
    """The words of a line as BLEU counts them."""
    tokenizer = make_metric("bleu", tokenize=tokenize).tokenizer
    return lambda line: tokenizer((line.lower() if lowercase else line).rstrip()).split()


def check_lines(hypotheses: Sequence[str], *references: Sequence[str]) -> None:
    """Refuse what does not belong together line for line."""
    if not references:
        raise DataError("there is no reference to score by")
    for lines in references:
        if len(hypotheses) != len(lines):
            raise DataError(f"there are {len(hypotheses):,} translations and {len(lines):,} references: line for line")
    if not hypotheses:
        raise DataError("there are no translations to score")
