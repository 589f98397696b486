"""Metrics: BLEU, chrF, chrF++ and TER as sacreBLEU computes them, with signature, interval and paired tests.

The F1 of words by their frequency is computed as in compare-mt. N sentences, K frequency buckets.
"""

from __future__ import annotations

import functools
import operator
import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

from regard.errors import ConfigError, DataError, did_you_mean
from regard.results import counted
from regard.text.scripts import script

METRICS = {"bleu": "BLEU", "chrf": "chrF", "chrf++": "chrF++", "ter": "TER"}
TESTS = {"bootstrap": "bs", "randomisation": "ar"}  # sacreBLEU's names of the paired tests
MIN_DIFFERING = 5  # sentences; with fewer, sacreBLEU's tests find almost any difference significant: ties count as wins
RESAMPLES = 1000  # bootstrap samples, sacreBLEU's default
SEED = 12345  # of the bootstrap of F1; sacreBLEU's default
LENGTHS = (10, 20, 30, 40, 60)  # upper limits of the length buckets in reference words; the last bucket has no limit
FREQUENCIES = (0, 1, 2, 3, 4, 9, 99, 999)  # upper limits of the frequency buckets; the first has the unseen words
FEW_SENTENCES = 30  # a bucket with fewer sentences is marked as small
Tokenizer = Literal["13a", "intl", "none", "char", "zh", "ja-mecab", "ko-mecab"]  # those that download nothing
SCRIPT_TOKENIZERS: dict[str, tuple[str, list[Tokenizer]]] = {
    "Han": ("Chinese", ["zh"]),
    "Kana": ("Japanese", ["ja-mecab", "char"]),
    "Hangul": ("Korean", ["ko-mecab"]),
    **{name: (name, ["char"]) for name in ("Thai", "Lao", "Khmer", "Myanmar")},
}  # the likely language of a script, and its tokenizers, of which the first that is installed is used
MIN_KANA = 0.1  # if the ratio of Kana lines to Han lines is higher, a text is Japanese
SPACE_TOKENIZERS = (None, "13a", "intl", "none")  # for languages that separate words by spaces


class Score(NamedTuple):
    """The value of a metric and its sacreBLEU signature."""

    score: float
    signature: str
    low: float | None = None  # the 95 % bootstrap interval, if requested
    high: float | None = None
    p_bootstrap: float | None = None  # of the difference from the first system; None if fewer than MIN_DIFFERING differ
    p_randomisation: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in self._asdict().items() if value is not None}


Bucket = dict[str, Any]
"""The score of a range (`from`, `to`) of lengths or frequencies, with its 95 % bootstrap interval (`low`, `high`)."""


def make_metric(name: str, *, lowercase: bool = False, tokenize: str | None = None, **options: Any) -> Any:
    """Return a sacreBLEU metric with the settings of its command line, where TER always ignores case."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    if tokenize is not None and tokenize not in get_args(Tokenizer):
        raise ConfigError(f"There is no tokenizer {tokenize}.{did_you_mean(tokenize, get_args(Tokenizer))}")
    try:
        if name == "bleu":  # force: do not warn about text that looks tokenized
            return BLEU(lowercase=lowercase, tokenize=tokenize, force=True, **options)
        if name == "ter":
            return TER(**options)
        return CHRF(lowercase=lowercase, word_order=2 if name == "chrf++" else 0, **options)
    except (RuntimeError, ImportError) as error:
        raise ConfigError(f"sacreBLEU cannot tokenize with {tokenize}: {' '.join(str(error).split())}") from error


def choose_tokenizer(reference: Iterable[str], say: Callable[[str], None]) -> Tokenizer | None:
    """The BLEU tokenizer for the script of a reference, announced with `say`; None (13a) for most scripts."""
    scripts = Counter(filter(None, map(script, reference)))
    if scripts["Kana"] > MIN_KANA * scripts["Han"]:
        scripts["Kana"] += scripts.pop("Han", 0)
    [(name, _)] = scripts.most_common(1) or [("", 0)]
    language, tokenizers = SCRIPT_TOKENIZERS.get(name, ("", []))
    for tokenizer in tokenizers:
        try:
            make_metric("bleu", tokenize=tokenizer)
        except ConfigError:  # it is not installed
            continue
        better = "" if tokenizer == tokenizers[0] else f" ({tokenizers[0]} is not installed)"
        say(f"the reference is {language}: BLEU uses the tokenizer {tokenizer}{better}")
        return tokenizer
    return None


def corpus_scores(
    hypotheses: Sequence[str],
    *references: Sequence[str],
    metrics: Sequence[str] = tuple(METRICS),
    interval: bool = False,
    **options: Any,
) -> dict[str, Score]:
    """Score a corpus against one or more references, as sacreBLEU's command line does.

    `options` are `lowercase` and `tokenize`, here and below.
    """
    texts, lists = list(hypotheses), [list(lines) for lines in references]
    check_lines({"the translation": texts, **{f"reference {n}": lines for n, lines in enumerate(lists, 1)}})
    if interval:
        check_seed()
    scores = {}
    for name in metrics:
        metric = make_metric(name, **options)
        try:
            result = metric.corpus_score(texts, lists, n_bootstrap=RESAMPLES if interval else 1)
        except TypeError:  # sacreBLEU cannot average the samples when some of them score zero; its paired test can
            system_scores, _ = paired_tests(name, [texts], lists, ["bootstrap"], **options)
            scores[name] = system_scores[0]
            continue
        scores[name] = Score(float(result.score), str(metric.get_signature()))
        if interval:
            mean, half = float(result._mean), float(result._ci)  # sacreBLEU 2 has no public names for these
            scores[name] = scores[name]._replace(low=mean - half, high=mean + half)
    return scores


def paired_tests(
    name: str,
    systems: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    tests: Sequence[str] = tuple(TESTS),
    **options: Any,
) -> tuple[list[Score], dict[str, str]]:
    """Score systems, test them against the first one, and return the scores and the signature of each test.

    Equal scores get p = 1, where sacreBLEU's tests give the smallest p.
    """
    from sacrebleu.significance import PairedTest

    metric = make_metric(name, references=[list(lines) for lines in references], **options)
    # Both tests and all systems share the statistics of the sentences, which take long for TER.
    metric._extract_corpus_statistics = functools.cache(metric._extract_corpus_statistics)
    texts: list[tuple[str, Sequence[str]]] = [(str(n), tuple(lines)) for n, lines in enumerate(systems)]
    results, signatures = dict[str, Any](), dict[str, str]()
    for test in tests:
        test_signatures, test_results = PairedTest(texts, {name: metric}, None, test_type=TESTS[test])()
        (signatures[test],) = map(str, test_signatures.values())
        _, results[test] = test_results.values()
    counts = [list(map(list, metric._extract_corpus_statistics(lines, None))) for _, lines in texts]
    scores = list[Score]()
    for number, bootstrap in enumerate(results["bootstrap"]):
        mean, half = float(bootstrap.mean), float(bootstrap.ci)
        p_values: list[float | None] = [results[test][number].p_value for test in tests]
        if scores and bootstrap.score == scores[0].score:
            p_values = [1.0] * len(tests)
        elif scores and sum(map(operator.ne, counts[number], counts[0])) < MIN_DIFFERING:
            p_values = []
        scores.append(Score(float(bootstrap.score), signatures["bootstrap"], mean - half, mean + half, *p_values))
    return scores, signatures


def check_seed() -> None:
    """Raise a ConfigError if sacreBLEU cannot use the bootstrap seed in SACREBLEU_SEED."""
    seed = os.environ.get("SACREBLEU_SEED", "none")
    if seed.lower() != "none" and not seed.isdecimal():
        raise ConfigError(f"SACREBLEU_SEED ({seed}) must be a whole number of at least 0, or none")


def sentence_scores(
    hypotheses: Sequence[str], *references: Sequence[str], metrics: Sequence[str] = tuple(METRICS), **options: Any
) -> list[dict[str, float]]:
    """Score every sentence separately, as `sacrebleu --sentence-level` does."""
    scorers = {name: make_metric(name, **options) for name in metrics}
    if "bleu" in scorers:
        scorers["bleu"] = make_metric("bleu", effective_order=True, **options)
    return [
        {name: float(scorer.sentence_score(hypothesis, list(lines)).score) for name, scorer in scorers.items()}
        for hypothesis, *lines in zip(hypotheses, *references, strict=True)
    ]


def by_length(
    hypotheses: Sequence[str], *references: Sequence[str], lengths: Sequence[int] = LENGTHS, **options: Any
) -> list[Bucket]:
    """BLEU of the sentences in each bucket of the length of the first reference; empty buckets are left out.

    Words are separated by spaces, or by the tokenizer for languages without spaces.
    """
    tokenize = options.get("tokenize")
    split = str.split if tokenize in SPACE_TOKENIZERS else word_splitter(tokenize=tokenize)
    members: dict[int, list[int]] = {}
    for sentence, line in enumerate(references[0]):
        members.setdefault(bisect_left(lengths, len(split(line))), []).append(sentence)
    buckets = []
    for number, sentences in sorted(members.items()):
        texts, *lists = ([lines[sentence] for sentence in sentences] for lines in (hypotheses, *references))
        bleu, _, low, high, *_ = corpus_scores(texts, *lists, metrics=["bleu"], interval=True, **options)["bleu"]
        # The interval is centred on the bootstrap mean, so with few sentences it may leave the range of BLEU.
        interval = {"low": max(low or 0.0, 0.0), "high": min(high or 0.0, 100.0)}
        size = {"sentences": len(sentences), "bleu": bleu, **interval, "small": len(sentences) < FEW_SENTENCES}
        buckets.append(_range(lengths, number, start=1) | size)
    return buckets


def _range(limits: Sequence[int], number: int, *, start: int) -> Bucket:
    """The range of a bucket; `limits` are the upper limits of all buckets but the last, which has none."""
    first = limits[number - 1] + 1 if number else start
    return {"from": first, "to": limits[number] if number < len(limits) else None}


def by_frequency(
    hypotheses: Sequence[Sequence[str]], references: Sequence[Sequence[str]], frequencies: Counter[str]
) -> list[Bucket]:
    """Precision, recall and F1 of words by their frequency in a text, after compare-mt (Neubig et al., 2019).

    A word counts as correct at most as often as it occurs in the reference of the same line (clipped counts).
    """
    import numpy as np  # slow to import for the command line, which needs the names of the tokenizers

    def f1(counts: Any) -> Any:
        correct, translated, expected = counts
        return 2 * correct / np.maximum(translated + expected, 1)

    counts = np.zeros((len(hypotheses), 3, len(FREQUENCIES) + 1))  # (N, 3, K): correct, translated, expected
    for row, (hypothesis, reference) in enumerate(zip(hypotheses, references, strict=True)):
        translated, expected = Counter(hypothesis), Counter(reference)
        for kind, words in enumerate((translated & expected, translated, expected)):
            for word, number in words.items():
                counts[row, kind, bisect_left(FREQUENCIES, frequencies[word])] += number
    random, size = np.random.default_rng(SEED), len(counts)
    samples = [np.bincount(random.integers(size, size=size), minlength=size) for _ in range(RESAMPLES)]
    low, high = np.quantile([f1(np.tensordot(sample, counts, 1)) for sample in samples], [0.025, 0.975], axis=0)
    totals = counts.sum(0)
    correct, translated, expected = totals
    columns = {
        "words": expected.astype(int),  # in the reference
        "precision": correct / np.maximum(translated, 1),
        "recall": correct / np.maximum(expected, 1),
        "f1": f1(totals),
        "low": low,
        "high": high,
    }
    return [
        _range(FREQUENCIES, bucket, start=0) | {name: column[bucket].item() for name, column in columns.items()}
        for bucket in np.flatnonzero(translated + expected).tolist()
    ]


def word_splitter(*, lowercase: bool = False, tokenize: str | None = None) -> Callable[[str], list[str]]:
    """Return a function that splits a line into words as BLEU does."""
    tokenizer = make_metric("bleu", tokenize=tokenize).tokenizer
    return lambda line: tokenizer((line.lower() if lowercase else line).rstrip()).split()


def check_lines(texts: Mapping[str, Sequence[object]]) -> None:
    """Raise a DataError unless these texts, by name, have the same number of lines, and at least one."""
    (first, lines), *others = texts.items()
    for name, other in others:
        if len(other) != len(lines):
            raise DataError(
                f"{name} has {counted(len(other), 'line')} and {first} {len(lines):,}: the numbers must be equal"
            )
    if not lines:
        raise DataError(f"{first} has no lines: there is nothing to score")
