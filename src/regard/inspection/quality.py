"""Quality signals: warnings about a translation, and the confidence that it is good."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import NamedTuple

import torch

from regard.documents import inline
from regard.errors import FolderError
from regard.folders import read_json
from regard.text.scripts import RELATED_SCRIPTS, UNSPACED_SCRIPTS, script, script_of
from regard.text.sentences import count_sentences

CALIBRATION_FILE = "calibration.json"

GOOD_CHRF = 60.0  # a translation counts as good if the chrF of its sentence against the reference is at least this
MIN_SENTENCES = 50  # for a calibration
MIN_EACH = 10  # good and bad translations that a calibration needs; missing ones are filled up with TYPICAL values
# Mean and minimum token log-probability of a good (True) and of a bad translation: the medians of the demo's model on
# its validation set (all 300 are good) and on the first 400 test sentences of Tatoeba en-fr (373 are bad).
TYPICAL = {True: (-0.02, -0.2), False: (-0.36, -1.4)}

LENGTH_SLACK = 15  # characters added to both sides before lengths are compared: "Yes." may become "Yes, of course."
OUTLIERS = 0.002  # share of pairs below and above the expected length ratios
WIDENING = 1.25  # factor by which the expected ratios are widened
MAX_LOOP = 20  # words in a repeated phrase
MIN_COPIED = 3  # words in a row; a copied part is also at least half of the translation
MAX_COMPARED = 1_000_000  # pairs of words; longer texts are not searched for copied parts


class QualityWarning(NamedTuple):
    """A sign that a translation may be wrong."""

    kind: str  # repetition, copied, script, numbers, tags or length; a translator adds input, split and unfinished
    message: str
    evidence: list[str]  # the words or numbers it is about, as they are written in the source or the translation


@dataclass(frozen=True, kw_only=True)
class Expected:
    """The script and the relative length that translations are expected to have."""

    script: str = ""  # empty: that of most letters of the translation
    min_ratio: float = 0.4  # of the lengths in characters, translation / source, with LENGTH_SLACK added to both
    max_ratio: float = 2.5
    max_source_length: int = 0  # characters of the longest source; 0: unknown
    max_source_sentences: int = 0  # the most sentences of a source; 0: unknown

    @classmethod
    def from_pairs(cls, pairs: Sequence[tuple[str, str]]) -> Expected:
        """The script and lengths of these sources and translations."""
        ratios = torch.tensor([_ratio(*pair) for pair in pairs], dtype=torch.float64)
        scripts = Counter(name for _, target in pairs if (name := script(target)))
        low, high = torch.quantile(ratios, torch.tensor([OUTLIERS, 1 - OUTLIERS], dtype=torch.float64)).tolist()
        return cls(
            script=scripts.most_common(1)[0][0] if scripts else "",
            min_ratio=low / WIDENING,
            max_ratio=high * WIDENING,
            max_source_length=max(len(source) for source, _ in pairs),
            max_source_sentences=max(count_sentences(source) for source, _ in pairs),
        )


def find_warnings(source: str, target: str, *, expected: Expected | None = None) -> list[QualityWarning]:
    """Warnings about a translation, from its text and that of its source."""
    expected = expected or Expected()
    source_text, target_text = TAG.sub(" ", source), TAG.sub(" ", target)
    source_tags, target_tags = Counter(TAG.findall(source)), Counter(TAG.findall(target))
    lost_tags, added_tags = source_tags - target_tags, target_tags - source_tags
    return [
        *_repetition(source_text, target_text),
        *_copied(source_text, target_text),
        *_script(source_text, target_text, expected.script),
        *_difference("numbers", *number_differences(source_text, target_text)),
        *_difference("tags", list(lost_tags.elements()), list(added_tags.elements())),
        *_length(source, target, expected),
    ]


# Warnings from the texts.

WORD = re.compile(r"\w+(?:['’-]\w+)*")
STUTTER = re.compile(r"([^\W\d_]{1,12}?)\1{5,}")  # inside a word
TAG = re.compile(f"{inline.TAG}|{inline.PLACEHOLDER}|{inline.ADDRESS}")


def _units(text: str) -> list[str]:
    """Words, or characters in scripts without spaces."""
    words = WORD.findall(text.casefold())
    return list("".join(words)) if script(text) in UNSPACED_SCRIPTS else words


def _repetition(source: str, target: str) -> Iterator[QualityWarning]:
    phrase, times = _loop(target)
    if phrase and times > _loop(source)[1]:
        yield QualityWarning("repetition", f"“{phrase}” is repeated {times} times", [phrase])
    elif (stutter := STUTTER.search(target)) and not STUTTER.search(source):
        text = stutter.group()
        yield QualityWarning("repetition", f"“{stutter[1]}” is repeated {len(text) // len(stutter[1])} times", [text])


def _loop(text: str) -> tuple[str, int]:
    """The phrase that is repeated most often in a row, and how often.

    Two or more words count if they occur twice in a row, one word if it occurs three times; characters need more.
    """
    units, unspaced = _units(text), script(text) in UNSPACED_SCRIPTS
    best: tuple[Sequence[str], int] = ((), 1)
    for size in range(1, min(len(units) // 2, MAX_LOOP) + 1):
        min_times = (3 if size >= 4 else 5) if unspaced else (2 if size >= 2 else 3)
        same = 0  # units in a row that equal those `size` before
        for index in range(size, len(units)):
            same = same + 1 if units[index] == units[index - size] else 0
            times = same // size + 1
            if times > best[1] and times >= min_times:
                best = (units[index - size + 1 : index + 1], times)
    return ("" if unspaced else " ").join(best[0]), best[1]


def _copied(source: str, target: str) -> Iterator[QualityWarning]:
    source_units, units, words = _units(source), _units(target), WORD.findall(target)
    unspaced = script(target) in UNSPACED_SCRIPTS
    if units == source_units and len(units) >= (6 if unspaced else 2) and not all(word[:1].isupper() for word in words):
        yield QualityWarning("copied", "the translation is a copy of the source", [target])
    elif not unspaced and len(source_units) * len(units) <= MAX_COMPARED:
        start, _, size = SequenceMatcher(None, units, source_units, autojunk=False).find_longest_match()
        copied = words[start : start + size]
        lower = sum(word[:1].islower() for word in copied)  # names may be copied
        if size >= max(MIN_COPIED, len(units) / 2) and lower >= size / 2:
            text = " ".join(copied)
            yield QualityWarning("copied", f"“{text}” is copied from the source", [text])


def _script(source: str, target: str, expected: str) -> Iterator[QualityWarning]:
    main = script(target)
    expected = expected or main
    if not expected:
        return
    allowed = {expected, "", *RELATED_SCRIPTS.get(expected, ())}
    wrong = main not in allowed
    allowed_in_word = allowed if wrong else allowed | {"Latin"}  # words in Latin letters occur in texts of all scripts
    in_source = set(WORD.findall(source))
    foreign = [
        word
        for word in WORD.findall(target)
        if not {script_of(letter) for letter in word} <= allowed_in_word and word not in in_source
    ]
    if foreign:
        problem = f"the translation is in {main} letters" if wrong else "some words are in another script"
        yield QualityWarning("script", f"{problem}; {expected} is expected", foreign[:10])


def _difference(kind: str, lost: list[str], added: list[str]) -> Iterator[QualityWarning]:
    sides = (("source", lost), ("translation", added))
    found = [f"{_listed(words)} is only in the {side}" for side, words in sides if words]
    if found:
        yield QualityWarning(kind, ", and ".join(found), lost + added)


def _ratio(source: str, target: str) -> float:
    return (len(target.strip()) + LENGTH_SLACK) / (len(source.strip()) + LENGTH_SLACK)


def _length(source: str, target: str, expected: Expected) -> Iterator[QualityWarning]:
    ratio = _ratio(source, target)
    empty = bool(WORD.search(source)) and not target.strip()
    # Without learned lengths: a Chinese sentence has a third of the characters of an English one.
    loose = 2 if not expected.script and script(source) != script(target) else 1
    if expected.min_ratio / loose <= ratio <= expected.max_ratio * loose and not empty:
        return
    size = "empty" if empty else "unusually short" if ratio < 1 else "unusually long"
    lengths = f"{len(target.strip())} characters for {len(source.strip())}"
    yield QualityWarning("length", f"the translation is {size}: {lengths}", [])


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words[:5]) + (" …" if len(words) > 5 else "")


# Numbers in digits.

MAX_SPELLED = 12  # numbers up to here may be spelled out in the other text
MAX_HOUR = 24  # numbers up to here may be hours, which are compared modulo 12
NUMBER_WORDS = (  # above 12, in Western European languages and Chinese, Japanese and Korean
    r"\b(?:thir|four|fif|six|seven|eigh|nine)teen|\b(?:twen|thir|for|fif|six|seven|eigh|nine)t(?:y|ie)",
    r"\bhundred|\bthousand",
    r"\b(?:treize|quatorze|quinze|seize|dix-|vingt|trent|quarant|cinquant|soixant|septant|huitant|octant|nonant)",
    r"(?<!pour )\bcents?\b|\bmille\b",
    r"\b(?:trece|catorce|quince|dieci|veint|treint|cuarent|cincuent|sesent|setent|ochent|novent)",
    r"cien(?:tos?)?\b|\bmil\b",
    r"\b(?:tredici|quattordici|quindici|sedici|dicia[sn]|diciotto|vent[iu]|sessant|settant|ottant|novant)",
    r"cento\b|mila\b",
    r"\b(?:treze|catorze|dez[ae]sse|dezoito|dez[ae]nove|vinte|trinta|quarent|cinquent|sessent|oitent)|[cz]entos\b",
    r"(?:drei|vier|fünf|sech|sieb|acht|neun)zehn|(?:zwan|vier|fünf|sech|sieb|acht|neun)zig|dreißig|hundert|tausend",
    r"(?:der|veer|vijf|zes|zeven|acht|negen)tien|(?:twin|der|veer|vijf|zes|zeven|tach|negen)tig|honderd|duizend",
    r"[十百千万萬億亿兆]|\d ?(?:[백천만억조]|k\b)",  # 10k users
)
ROMAN_NUMERAL = r"(?-i:\b[XVIL]{2,}(?:e|ème|th|st|nd|rd)?\b)"  # XXIe siècle
NUMBER_WORD = re.compile("|".join([*NUMBER_WORDS, ROMAN_NUMERAL]), re.IGNORECASE)
MILLIONS = re.compile(r"mil+i|bil+i|bilh|мил+и|[万萬億亿兆]|\d ?[만억조]", re.IGNORECASE)
ENTITY_OR_PERCENT = re.compile(r"&#?\w+;|\bp\. ?100\b")  # &#91; and the French "p. 100" (percent) are not numbers
NUMBER = re.compile(r"(?<![\d.,])\d{1,3}(?:[.,'’\u00a0\u202f ]\d{3})+(?!\d)|\d+")  # 1,000 or plain digits


def number_differences(source: str, target: str) -> tuple[list[str], list[str]]:
    """The numbers that only the source has and those that only the translation has, as they are written.

    Separators of thousands and decimals may differ, hours may be counted by 12 or 24, and years may be abbreviated. A
    number that may be spelled out in the other text is reported only if the other text has another number instead. A
    number above 12 is not reported if the other text has number words above 12.
    """
    numbers, target_numbers = _digits(source), _digits(target)
    lost = {digits for digits in _missing(numbers, target_numbers) if not _in_words(digits, target)}
    added = {digits for digits in _missing(target_numbers, numbers) if not _in_words(digits, source)}
    if not (lost and added and any(map(_is_large, lost | added))):
        # Numbers of three digits and more are hardly ever spelled out, unless they are round.
        lost, added = ({x for x in missing if len(x) > 2 and not x.endswith("00")} for missing in (lost, added))
    return [numbers[x] for x in numbers if x in lost], [target_numbers[x] for x in target_numbers if x in added]


def _is_large(digits: str) -> bool:
    return len(digits) > 2 or int(digits) > MAX_SPELLED


def _in_words(digits: str, text: str) -> bool:
    """Whether a number above 12 may be written in words in a text, as in `veintidós` or `1.5 million`."""
    pattern = MILLIONS if digits.endswith("00000") else NUMBER_WORD
    return _is_large(digits) and pattern.search(text) is not None


def _digits(text: str) -> dict[str, str]:
    """The numbers of a text by their digits without separators and leading zeros; decimals are numbers of their own."""
    numbers = {}
    for match in NUMBER.finditer(ENTITY_OR_PERCENT.sub(" ", text)):
        digits = "".join(str(int(letter)) for letter in match.group() if letter.isdecimal())  # digits of any script
        numbers[digits.lstrip("0") or "0"] = match.group()
    return numbers


def _missing(numbers: dict[str, str], others: dict[str, str]) -> set[str]:
    """The numbers that have no match among the others."""

    def hour(digits: str) -> int | None:
        return int(digits) % 12 if len(digits) <= 2 and int(digits) <= MAX_HOUR else None

    def year(digits: str) -> str:  # in 1988-89, 89 is 1989
        return digits[-2:].lstrip("0") if len(digits) == 4 else digits

    hours, years = {hour(digits) for digits in others} - {None}, {year(digits) for digits in others}
    missing = {digits for digits in numbers.keys() - others.keys() if hour(digits) not in hours}
    return {digits for digits in missing if (year(digits) not in others if len(digits) == 4 else digits not in years)}


# Confidence.


@dataclass(frozen=True)
class Calibration:
    """A logistic regression from the log-probabilities of a translation to the probability that it is good."""

    weights: tuple[float, ...]  # the bias and the weights of the features; without any there is no confidence
    expected: Expected

    def as_text(self) -> str:
        """The `calibration.json` of a model folder."""
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def load(cls, folder: Path) -> Calibration | None:
        """The calibration of a model folder, or None."""
        path = folder / CALIBRATION_FILE
        values = read_json(path, optional=True)
        if values is None:
            return None
        try:
            calibration = cls(tuple(map(float, values["weights"])), Expected(**values["expected"]))
            confidence([-1.0], calibration)  # raises if it has too few or too many weights
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise FolderError(f"{path} is damaged: it is not a calibration") from error
        return calibration


def features(steps: Sequence[float]) -> list[float]:
    """The mean and the minimum of the log-probabilities of all tokens, and the log of their number."""
    return [sum(steps) / len(steps), min(steps), math.log(len(steps))]


def confidence(steps: Sequence[float], calibration: Calibration) -> float | None:
    """The probability that a translation is good (chrF of GOOD_CHRF or more), from its log-probabilities."""
    if not calibration.weights:
        return None
    bias, *weights = calibration.weights
    logit = bias + sum(weight * value for weight, value in zip(weights, features(steps), strict=True))
    return 1 / (1 + math.exp(-max(min(logit, 30.0), -30.0)))


def fit(rows: Sequence[Sequence[float]], good: Sequence[bool]) -> tuple[float, ...]:
    """The weights of a calibration from the features of translations and whether each of them is good.

    If fewer than MIN_EACH of them are good, or bad, TYPICAL values are added.
    """
    length = sum(row[-1] for row in rows) / len(rows)
    added = [kind for kind in TYPICAL for _ in range(MIN_EACH - sum(is_good == kind for is_good in good))]
    x = torch.tensor([*rows, *([*TYPICAL[kind], length] for kind in added)], dtype=torch.float64)
    y = torch.tensor([*good, *added], dtype=torch.float64)
    # Newton's method on standardized features, with an L2 penalty of 1
    mean, scale = x.mean(0), x.std(0).clamp(min=1e-6)
    x = torch.cat([torch.ones(len(x), 1, dtype=x.dtype), (x - mean) / scale], 1)
    weights = torch.zeros(x.shape[1], dtype=x.dtype)
    for _ in range(50):
        predicted = torch.sigmoid(x @ weights)
        gradient = x.T @ (predicted - y) + weights
        hessian = (x * (predicted * (1 - predicted))[:, None]).T @ x + torch.eye(len(weights), dtype=x.dtype)
        change = torch.linalg.solve(hessian, gradient)
        weights = weights - change
        if float(change.abs().max()) < 1e-10:
            break
    slopes = weights[1:] / scale
    return float(weights[0] - (slopes * mean).sum()), *slopes.tolist()
