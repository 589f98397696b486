"""Numbers: find numbers in digits that a translation lost, changed or added."""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_SPELLED = 12  # numbers up to here may be spelled out in the other text
MAX_HOUR = 24  # numbers up to here may be hours, which are compared modulo 12

IGNORED = re.compile(r"&#?\w+;|\bp\. ?100\b")  # digits that are no numbers: &#91; and the French percent sign
NUMBER = re.compile(r"(?<![\d.,])\d{1,3}(?:[.,'’\u00a0\u202f ]\d{3})+(?!\d)|\d+")  # 1,000 or plain digits


class Differences(NamedTuple):
    """The numbers that only one of two texts has, as they are written there."""

    lost: list[str]
    added: list[str]


def differences(source: str, target: str) -> Differences:
    """The numbers of a source that its translation lacks, and the other way round.

    Separators of thousands and decimals may differ, hours may be counted by 12 or 24, and years may be abbreviated. A
    number that may be spelled out in the other text is reported only if the other text has another number instead.
    """
    here, there = _numbers(source), _numbers(target)
    lost, added = _missing(here, there), _missing(there, here)
    if not (lost and added and any(len(digits) > 2 or int(digits) > MAX_SPELLED for digits in [*lost, *added])):
        lost, added = ({digits for digits in missing if _never_spelled(digits)} for missing in (lost, added))
    return Differences(
        [text for digits, text in here.items() if digits in lost],
        [text for digits, text in there.items() if digits in added],
    )


def _numbers(text: str) -> dict[str, str]:
    """The numbers of a text by their digits without separators and leading zeros; decimals are numbers of their own."""
    numbers = {}
    for match in NUMBER.finditer(IGNORED.sub(" ", text)):
        digits = "".join(str(int(letter)) for letter in match.group() if letter.isdecimal())  # digits of any script
        numbers[digits.lstrip("0") or "0"] = match.group()
    return numbers


def _missing(numbers: dict[str, str], others: dict[str, str]) -> set[str]:
    """The numbers that have no match among the others."""
    hours = {int(digits) % 12 for digits in others if _is_hour(digits)}
    years = {digits[-2:].lstrip("0") for digits in others if len(digits) == 4}  # in 1988-89, 89 is 1989
    return {
        digits
        for digits in numbers.keys() - others.keys()
        if not (_is_hour(digits) and int(digits) % 12 in hours)
        and digits not in years
        and not (len(digits) == 4 and digits[-2:].lstrip("0") in others)
    }


def _is_hour(digits: str) -> bool:
    return len(digits) <= 2 and int(digits) <= MAX_HOUR


def _never_spelled(digits: str) -> bool:
    """Numbers of three digits and more are hardly ever spelled out, unless they are round."""
    return len(digits) > 2 and not digits.endswith("00")
