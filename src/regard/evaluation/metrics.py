"""Metrics: BLEU, chrF and TER as sacreBLEU computes them, with its signature and its bootstrap confidence interval."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

from regard.errors import ConfigError, DataError, did_you_mean

METRICS = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER"}
RESAMPLES = 1000  # bootstrap samples, sacreBLEU's default
LENGTHS = (10, 20, 30, 40, 60)  # upper limits of the length buckets in reference words; the last bucket has no limit
FEW_SENTENCES = 30  # a bucket with fewer sentences is marked as small
TOKENIZERS = ("13a", "intl", "none", "char", "zh", "ja-mecab", "ko-mecab")  # those of sacreBLEU that download nothing
SPACE_TOKENIZERS = ("13a", "intl", "none")  # for languages that separate words by spaces


class Score(NamedTuple):
    """The value of a metric, its sacreBLEU signature and its 95 % bootstrap interval."""

    score: float
    signature: str
    low: float | None = None
    high: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in self._asdict().items() if value is not None}


class Bucket(NamedTuple):
    """BLEU of the sentences whose references have from `first` to `last` words."""

    first: int
    last: int | None
    """None for no limit."""
    sentences: int
    bleu: float
    low: float
    high: float

    @property
    def small(self) -> bool:
        """Whether there are too few sentences for a reliable score."""
        return self.sentences < FEW_SENTENCES

    def to_dict(self) -> dict[str, Any]:
        first, last, *rest = self
        return {"from": first, "to": last, **dict(zip(self._fields[2:], rest, strict=True)), "small": self.small}


def make_metric(name: str, *, lowercase: bool = False, tokenize: str | None = None, **options: Any) -> Any:
    """Return a sacreBLEU metric with the settings of its command line, where TER always ignores case."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    if tokenize is not None and tokenize not in TOKENIZERS:
        raise ConfigError(f"There is no tokenizer {tokenize}.{did_you_mean(tokenize, TOKENIZERS)}")
    try:
        if name == "bleu":  # force: do not warn about text that looks tokenized
            return BLEU(lowercase=lowercase, tokenize=tokenize, force=True, **options)
        return CHRF(lowercase=lowercase, **options) if name == "chrf" else TER(**options)
    except (RuntimeError, ImportError) as error:
        raise ConfigError(f"sacreBLEU cannot tokenize with {tokenize}: {' '.join(str(error).split())}") from error


def corpus_scores(
    hypotheses: Sequence[str],
    *references: Sequence[str],
    metrics: Sequence[str] = tuple(METRICS),
    lowercase: bool = False,
    tokenize: str | None = None,
    interval: bool = False,
) -> dict[str, Score]:
    """Score a corpus against one or more references, as sacreBLEU's command line does."""
    check_lines(hypotheses, *references)
    return {
        name: _score(make_metric(name, lowercase=lowercase, tokenize=tokenize), hypotheses, references, interval)
        for name in metrics
    }


def _score(metric: Any, hypotheses: Sequence[str], references: Sequence[Sequence[str]], interval: bool) -> Score:
    texts, lists = list(hypotheses), [list(lines) for lines in references]
    if not interval:
        result = metric.corpus_score(texts, lists)
        return Score(float(result.score), str(metric.get_signature()))
    bootstrap_seed()
    try:
        result = metric.corpus_score(texts, lists, n_bootstrap=RESAMPLES)
        mean, half = float(result._mean), float(result._ci)  # sacreBLEU 2 has no public names for these
    except TypeError:  # sacreBLEU cannot average the samples when some of them score zero; its paired test can
        from sacrebleu.significance import PairedTest

        _, results = PairedTest([("", texts)], {"": metric}, lists, test_type="bs", n_samples=RESAMPLES)()
        result = cast(Any, results[next(name for name in results if name != "System")][0])
        mean, half = float(result.mean), float(result.ci)
    return Score(float(result.score), str(metric.get_signature()), mean - half, mean + half)


def bootstrap_seed() -> int | None:
    """Return the seed that sacreBLEU reads from SACREBLEU_SEED; None means a random seed."""
    text = os.environ.get("SACREBLEU_SEED", "12345")
    if text.lower() == "none":
        return None
    if not text.isdecimal():
        raise ConfigError(f"SACREBLEU_SEED ({text}) must be a whole number of at least 0, or none")
    return int(text)


def sentence_scores(
    hypotheses: Sequence[str],
    *references: Sequence[str],
    metrics: Sequence[str] = tuple(METRICS),
    lowercase: bool = False,
    tokenize: str | None = None,
) -> list[dict[str, float]]:
    """Score every sentence separately, as `sacrebleu --sentence-level` does."""
    check_lines(hypotheses, *references)
    scorers = {
        name: make_metric(
            name, lowercase=lowercase, tokenize=tokenize, **({"effective_order": True} if name == "bleu" else {})
        )
        for name in metrics
    }
    return [
        {name: float(scorer.sentence_score(hypothesis, list(lines)).score) for name, scorer in scorers.items()}
        for hypothesis, *lines in zip(hypotheses, *references, strict=True)
    ]


def by_length(
    hypotheses: Sequence[str],
    *references: Sequence[str],
    lengths: Sequence[int] = LENGTHS,
    lowercase: bool = False,
    tokenize: str | None = None,
) -> list[Bucket]:
    """BLEU of the sentences in each bucket of (first) reference length; empty buckets are left out.

    An empty reference is in the first bucket.
    """
    check_lines(hypotheses, *references)
    members: dict[int, list[int]] = {}
    for sentence, length in enumerate(line_lengths(references[0], tokenize=tokenize)):
        members.setdefault(sum(length > limit for limit in lengths), []).append(sentence)
    metric = make_metric("bleu", lowercase=lowercase, tokenize=tokenize)
    buckets = []
    for number, sentences in sorted(members.items()):
        texts, *lists = ([lines[sentence] for sentence in sentences] for lines in (hypotheses, *references))
        score, _, low, high = _score(metric, texts, lists, interval=True)
        assert low is not None
        assert high is not None
        first = lengths[number - 1] + 1 if number else 1
        last = lengths[number] if number < len(lengths) else None
        # The interval is centred on the bootstrap mean, so with few sentences it may leave the range of BLEU.
        buckets.append(Bucket(first, last, len(sentences), score, max(low, 0.0), min(high, 100.0)))
    return buckets


def check_lengths(lengths: Sequence[int]) -> None:
    """Raise a ConfigError if bucket limits do not increase."""
    if not lengths or lengths[0] < 1 or list(lengths) != sorted(set(lengths)):
        listed = ",".join(map(str, lengths))
        raise ConfigError(f"--lengths ({listed}) must be increasing numbers of words from 1, such as 10,20,30,40,60")


def line_lengths(lines: Sequence[str], *, tokenize: str | None = None) -> list[int]:
    """The number of words in every line: separated by spaces, or by the tokenizer for languages without spaces."""
    if tokenize is None or tokenize in SPACE_TOKENIZERS:
        return [len(line.split()) for line in lines]
    split = word_splitter(lowercase=False, tokenize=tokenize)
    return [len(split(line)) for line in lines]


def word_splitter(*, lowercase: bool, tokenize: str | None) -> Callable[[str], list[str]]:
    """Return a function that splits a line into words as BLEU does."""
    tokenizer = make_metric("bleu", tokenize=tokenize).tokenizer
    return lambda line: tokenizer((line.lower() if lowercase else line).rstrip()).split()


def check_lines(hypotheses: Sequence[str], *references: Sequence[str]) -> None:
    """Raise a DataError if hypotheses and references do not have the same number of lines."""
    if not references:
        raise DataError("there is no reference to score against")
    for lines in references:
        if len(hypotheses) != len(lines):
            raise DataError(
                f"there are {len(hypotheses):,} translations and {len(lines):,} references: the numbers must be equal"
            )
    if not hypotheses:
        raise DataError("there are no translations to score")
