"""Signals: how sure a model was of a translation, and what a reader should be warned of.

T target tokens, S source tokens, N sentences, F features.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.documents import inline
from regard.errors import DataError, FolderError, InputError
from regard.folders import read_optional
from regard.inspection.alignment import cross_attention
from regard.inspection.numbers import differences
from regard.inspection.trace import Trace
from regard.text.scripts import UNSPACED_SCRIPTS, script, script_of

CALIBRATION_FILE = "calibration.json"

GOOD_CHRF = 60.0  # a translation counts as good from this chrF on, of its own sentence against its reference
FOLDS = 5
BINS = 10
MIN_SENTENCES = 50  # sentences a calibration is made from
SCARCE = 10  # of them that must be good, and must not be, or nothing is learned of what tells them apart

SLACK = 15  # characters added to both sides before their lengths are compared: "Yes." may become "Yes, of course."
OUTSIDE = 0.002  # of the pairs may lie outside either end of a band before it is widened,
WIDER = 1.25  # by this much
LONGEST_LOOP = 20  # words that are looked for again right after themselves
COPIED = 3  # words in a row that are copied, and at least half of the translation
COMPARED = 1_000_000  # pairs of words; longer texts are compared only as wholes
BELONGING = {"Kana": {"Han"}, "Hangul": {"Han"}, "Han": {"Bopomofo"}}  # scripts that belong to a usual one

HARDLY = 0.05  # of its attention on the words of the source is hardly a look at them
STARING = 0.95  # on one token is a stare,
STILL = 0.1  # and attention that moves less than this from its mean stands still (a trained model moves 0.5 of it)
FEW = 4  # tokens of words below which nothing can be said of that


class QualityWarning(NamedTuple):
    """What a reader should be warned of."""

    kind: str
    """repetition, copied, script, numbers, tags, length or ignored; a translator adds input, split and unfinished."""
    message: str
    evidence: list[str]
    """The words or figures it is about, as they stand in the source or the translation."""


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What is usual for translations of a kind: the script they are in, and how long they are beside their source."""

    script: str = ""
    """Empty: the one that most letters of the translation are in."""
    min_ratio: float = 0.4
    """Characters for each of the source's, SLACK added to both."""
    max_ratio: float = 2.5
    max_source_length: int = 0
    """Characters the longest source has; 0: not known."""

    @classmethod
    def from_pairs(cls, pairs: Sequence[tuple[str, str]]) -> Expected:
        """What is usual in these sources and translations."""
        if not pairs:
            raise DataError("there are no pairs to learn from what is usual")
        ratios = torch.tensor([_ratio(*pair) for pair in pairs], dtype=torch.float64)
        scripts = Counter(name for _, target in pairs if (name := script(target)))
        low, high = torch.quantile(ratios, torch.tensor([OUTSIDE, 1 - OUTSIDE], dtype=torch.float64)).tolist()
        most = scripts.most_common(1)[0][0] if scripts else ""
        longest = max(len(source) for source, _ in pairs)
        return cls(script=most, min_ratio=low / WIDER, max_ratio=high * WIDER, max_source_length=longest)


def find_warnings(
    source: str, target: str, trace: Trace | None = None, *, expected: Expected | None = None
) -> list[QualityWarning]:
    """What a reader of this translation should be warned of; without a trace, what the texts alone say."""
    expected = expected or Expected()
    said, written = TAG.sub(" ", source), TAG.sub(" ", target)
    return [
        *_repetition(said, written),
        *_copied(said, written),
        *_script(said, written, expected.script),
        *_numbers(said, written),
        *_tags(source, target),
        *_length(source, target, expected),
        *(_ignored(trace) if trace is not None else ()),
    ]


# What the texts say.

WORD = re.compile(r"\w+(?:['’-]\w+)*")
STUTTER = re.compile(r"([^\W\d_]{1,12}?)\1{5,}")  # inside a word


def _units(text: str) -> list[str]:
    """Words, or letters where words are not parted."""
    words = WORD.findall(text.casefold())
    return list("".join(words)) if script(text) in UNSPACED_SCRIPTS else words


def _repetition(source: str, target: str) -> Iterator[QualityWarning]:
    block, times = _loop(target)
    if block and times > _loop(source)[1]:
        yield QualityWarning("repetition", f"“{block}” is repeated {times} times", [block])
    elif (stutter := STUTTER.search(target)) and not STUTTER.search(source):
        text = stutter.group()
        yield QualityWarning("repetition", f"“{stutter[1]}” is repeated {len(text) // len(stutter[1])} times", [text])


def _loop(text: str) -> tuple[str, int]:
    """What is repeated at once most often, and how often: nothing, once, where that is no more than languages do.

    Two words and more are not said twice in a row, nor one word three times; letters may be.
    """
    units, letters = _units(text), script(text) in UNSPACED_SCRIPTS
    best: tuple[Sequence[str], int] = ((), 1)
    for size in range(1, min(len(units) // 2, LONGEST_LOOP) + 1):
        enough = (3 if size >= 4 else 5) if letters else (2 if size >= 2 else 3)
        same = 0  # units in a row that are like those `size` before
        for place in range(size, len(units)):
            same = same + 1 if units[place] == units[place - size] else 0
            times = same // size + 1
            if times > best[1] and times >= enough:
                best = (units[place - size + 1 : place + 1], times)
    return ("" if letters else " ").join(best[0]), best[1]


def _copied(source: str, target: str) -> Iterator[QualityWarning]:
    here, there, words = _units(source), _units(target), WORD.findall(target)
    letters = script(target) in UNSPACED_SCRIPTS
    if here == there and len(there) >= (6 if letters else 2) and not all(word[:1].isupper() for word in words):
        yield QualityWarning("copied", "the translation is its source", [target])
        return
    if letters or len(here) * len(there) > COMPARED:
        return
    start, size = _shared(here, there)
    if size < COPIED or 2 * size < len(there):
        return
    if sum(word[:1].islower() for word in words[start : start + size]) >= size / 2:  # names may be copied
        text = " ".join(words[start : start + size])
        yield QualityWarning("copied", f"“{text}” is copied from the source", [text])


def _shared(here: Sequence[str], there: Sequence[str]) -> tuple[int, int]:
    """Where in `there` the longest run begins that `here` has too, and how long it is."""
    best, before = (0, 0), [0] * (len(here) + 1)
    for end, word in enumerate(there, start=1):
        now = [0] * (len(here) + 1)
        for place, other in enumerate(here, start=1):
            if word == other:
                now[place] = before[place - 1] + 1
                best = max(best, (end - now[place], now[place]), key=lambda found: found[1])
        before = now
    return best


def _script(source: str, target: str, usual: str) -> Iterator[QualityWarning]:
    expected = usual or script(target)
    if not expected:
        return
    belonging = {expected, "", *BELONGING.get(expected, ())}
    known = set(WORD.findall(source))
    strange = [
        word
        for word in WORD.findall(target)
        if not {script_of(letter) for letter in word} <= belonging and word not in known
    ]
    most = script(target)
    wrong = most not in belonging
    # Words in Latin letters stand in texts of all scripts; words in others are strange one by one.
    odd = [word for word in strange if wrong or any(script_of(letter) not in belonging | {"Latin"} for letter in word)]
    if odd:
        what = f"in {most} letters" if wrong else "not all in its script"
        yield QualityWarning("script", f"the translation is {what}; {expected} is usual", odd[:10])


def _numbers(source: str, target: str) -> Iterator[QualityWarning]:
    lost, added = differences(source, target)
    ours, theirs = [figure.text for figure in lost], [figure.text for figure in added]
    if ours and theirs:
        yield QualityWarning("numbers", f"{_listed(ours)} of the source became {_listed(theirs)}", ours + theirs)
    elif ours:
        yield QualityWarning("numbers", f"{_listed(ours)} of the source is not in the translation", ours)
    elif theirs:
        yield QualityWarning("numbers", f"{_listed(theirs)} of the translation is not in the source", theirs)


TAG = re.compile(f"{inline.TAG}|{inline.PLACEHOLDER}|{inline.ADDRESS}")


def _tags(source: str, target: str) -> Iterator[QualityWarning]:
    here, there = Counter(TAG.findall(source)), Counter(TAG.findall(target))
    lost, added = list((here - there).elements()), list((there - here).elements())
    if lost:
        yield QualityWarning("tags", f"{_listed(lost)} of the source is not in the translation", lost)
    elif added:
        yield QualityWarning("tags", f"{_listed(added)} of the translation is not in the source", added)


def _ratio(source: str, target: str) -> float:
    return (len(target.strip()) + SLACK) / (len(source.strip()) + SLACK)


def _length(source: str, target: str, expected: Expected) -> Iterator[QualityWarning]:
    ratio = _ratio(source, target)
    empty = bool(WORD.search(source)) and not target.strip()
    # Between scripts, where nothing was learned: a Chinese sentence has a third of the letters of an English one.
    loose = 2 if not expected.script and script(source) != script(target) else 1
    if expected.min_ratio / loose <= ratio <= expected.max_ratio * loose and not empty:
        return
    how = "empty" if empty else "short" if ratio < 1 else "long"
    lengths = f"{len(target.strip())} characters for {len(source.strip())}"
    yield QualityWarning("length", f"the translation is {how if empty else 'unusually ' + how}: {lengths}", [])


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words[:5]) + (" …" if len(words) > 5 else "")


# What the attention says.


def coverage(trace: Trace, layer: int | None = None) -> list[float]:
    """How much attention each source word got in all; about as much as it has words in the translation."""
    pieces = torch.bincount(torch.tensor(trace.target.word), minlength=len(trace.target.words))
    return [float(value) for value in (cross_attention(trace, layer) * pieces[:, None]).sum(0)]


def dispersion(trace: Trace, layer: int | None = None) -> list[float]:
    """How spread out the look of each target word was: 0 at one source word, 1 at all alike."""
    weights = cross_attention(trace, layer)
    if weights.shape[1] < 2:
        return [0.0] * len(weights)
    entropy = -(weights * weights.clamp(min=1e-12).log()).sum(1) / math.log(weights.shape[1])
    return [float(value) for value in entropy.clamp(0, 1)]


def _ignored(trace: Trace) -> Iterator[QualityWarning]:
    """Whatever the layer, what wrote words hardly looked at the source, stared at one token or stood still."""
    if "cross" not in trace.attention:
        return
    source = [not trace.source.special[word] for word in trace.source.word]
    target = [not trace.target.special[word] for word in trace.target.word]
    if min(sum(source), sum(target)) < FEW:
        return
    weights = trace.attention["cross"].mean(1)[:, target]  # [L, T, S]
    on_words = weights[..., source].sum(-1)
    if bool((on_words.amax(0) < HARDLY).float().mean() > 0.9):
        share = float(on_words.mean())
        yield QualityWarning("ignored", f"only {share:.0%} of the attention was on words of the source", [])
        return
    average = weights.mean(1)
    if bool((average.amax(-1) > STARING).all()):
        token = trace.source.subwords[int(average.mean(0).argmax())].strip()
        yield QualityWarning("ignored", f"all words were written looking at “{token}” alone", [token])
        return
    moves = (weights - average[:, None]).abs().sum(-1).mean(-1) / 2
    if bool((moves < STILL).all()):
        yield QualityWarning("ignored", "every word was written looking at the source in the same way", [])


# Confidence.


@dataclass(frozen=True)
class Calibration:
    """How the log-probabilities of a model become a probability that a translation is good."""

    weights: tuple[float, ...]
    """Of 1 and the features, in a logistic regression; none where nearly all were good, or nearly none: what tells them
    apart is then not known, and no translation has a confidence."""
    error: float
    """Expected calibration error, of sentences that had no part in the fit."""
    good: float
    """The share of good translations."""
    sentences: int
    expected: Expected

    def as_text(self) -> str:
        """The `calibration.json` of a model folder."""
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def load(cls, folder: Path) -> Calibration | None:
        """The calibration in a model folder, or none."""
        path = folder / CALIBRATION_FILE
        data = read_optional(path)
        if data is None:
            return None
        try:
            values: dict[str, Any] = json.loads(data)
            found = cls(
                **{
                    **values,
                    "weights": tuple(map(float, values["weights"])),
                    "expected": Expected(**values["expected"]),
                }
            )
            numbers = [*found.weights, found.error, found.good, found.expected.min_ratio, found.expected.max_ratio]
            if len(found.weights) not in (0, 1 + FEATURES) or not all(math.isfinite(number) for number in numbers):
                raise ValueError("its numbers are not those of a calibration")
            if not isinstance(found.expected.script, str):
                raise ValueError(f"expected.script is {found.expected.script!r} and must be the name of a script")
            if type(found.expected.max_source_length) is not int or found.expected.max_source_length < 0:
                raise ValueError(
                    f"max_source_length ({found.expected.max_source_length!r}) must be a number of characters"
                )
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise FolderError(f"{path} is damaged: {error}") from error
        return found


FEATURES = 3


def features(steps: Sequence[float]) -> list[float]:
    """What confidence is judged by: the mean and the least log-probability of a token, and the length."""
    if not len(steps):
        raise InputError("a translation without steps, not even its end, is nothing to be sure of")
    return [sum(steps) / len(steps), min(steps), math.log(len(steps))]


def confidence(steps: Sequence[float], calibration: Calibration) -> float | None:
    """The probability that a translation is good, as the validation data had it, from its log-probabilities.

    Good means that the chrF of the sentence against its reference is at least GOOD_CHRF.
    """
    if not calibration.weights:
        return None
    bias, *weights = calibration.weights
    total = bias + sum(weight * value for weight, value in zip(weights, features(steps), strict=True))
    return 1 / (1 + math.exp(-max(min(total, 30.0), -30.0)))


class CalibrationExample(NamedTuple):
    """A translation of validation data."""

    source: str
    reference: str
    chrf: float
    """Of the translation against the reference."""
    steps: Sequence[float]
    """The log-probability of every token and the end."""


def calibrate(judged: Sequence[CalibrationExample]) -> Calibration:
    """The calibration from translations of validation data."""
    good = [each.chrf >= GOOD_CHRF for each in judged]
    expected = Expected.from_pairs([(each.source, each.reference) for each in judged])
    return fit([features(each.steps) for each in judged], good, expected)


def fit(rows: Sequence[Sequence[float]], good: Sequence[bool], expected: Expected) -> Calibration:
    """The calibration from the `features` of translations and whether each of them is good.

    The error is that of fits that did not see the sentences they are asked about, FOLDS of them.
    """
    if len(rows) < MIN_SENTENCES:
        raise DataError(f"{len(rows)} sentences are too few to calibrate confidence: give at least {MIN_SENTENCES}")
    if not SCARCE <= sum(good) <= len(good) - SCARCE:
        return Calibration((), error=0.0, good=sum(good) / len(good), sentences=len(good), expected=expected)
    x, y = torch.tensor(rows, dtype=torch.float64), torch.tensor(good, dtype=torch.float64)
    fold = torch.arange(len(y)) % FOLDS
    guessed = torch.empty_like(y)
    for number in range(FOLDS):
        seen, asked = fold != number, fold == number
        guessed[asked] = torch.sigmoid(_with_one(x[asked]) @ _newton(x[seen], y[seen]))
    return Calibration(
        weights=tuple(_newton(x, y).tolist()),
        error=calibration_error(guessed.tolist(), good),
        good=float(y.mean()),
        sentences=len(y),
        expected=expected,
    )


def calibration_error(confidences: Sequence[float], good: Sequence[bool]) -> float:
    """How far confidence is from the share of good ones, on average over BINS equal ranges of confidence."""
    gaps = [0.0] * BINS
    for sure, right in zip(confidences, good, strict=True):
        gaps[min(int(sure * BINS), BINS - 1)] += sure - right
    return sum(map(abs, gaps)) / max(len(good), 1)


def _with_one(x: Tensor) -> Tensor:
    return torch.cat([torch.ones(len(x), 1, dtype=x.dtype), x], 1)


def _newton(x: Tensor, y: Tensor) -> Tensor:
    """(1 + F,): logistic regression by Newton's method, the features standardised and their weights held small."""
    mean, scale = x.mean(0), x.std(0).clamp(min=1e-6)
    rows = _with_one((x - mean) / scale)
    weights = torch.zeros(rows.shape[1], dtype=x.dtype)
    hold = torch.ones_like(weights)
    for _ in range(50):
        sure = torch.sigmoid(rows @ weights)
        slope = rows.T @ (sure - y) + hold * weights
        curve = (rows * (sure * (1 - sure))[:, None]).T @ rows + torch.diag(hold)
        change = torch.linalg.solve(curve, slope)
        weights = weights - change
        if float(change.abs().max()) < 1e-10:
            break
    own = weights[1:] / scale
    return torch.cat([(weights[0] - (own * mean).sum())[None], own])
