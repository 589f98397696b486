"""Sentences: where a long text can be taken apart, and how its translated parts become a text again."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from regard.text.scripts import UNSPACED_SCRIPTS, script

CLOSE = ("Han", "Kana")  # scripts that part neither their words nor their sentences

# What stands before a full stop that ends no sentence, in small letters; single letters and d.h. need no mention.
ABBREVIATIONS = frozenset(
    """
    mr mrs ms dr prof rev gen col capt lt sgt sen rep gov hon st mt ft jr sr vs etc al ca cf approx dept est fig figs
    inc ltd co corp no nos vol vols pp ed eds trans ch sec art para jan feb mar apr jun jul aug sep sept oct nov dec
    mon tue wed thu fri sat sun ave blvd rd tel min max
    bzw bspw ggf evtl usw sog vgl nr abs bd bde hrsg hl str tel mio mrd geb gest inkl exkl zzgl ing dipl jh jhd fr hr
    mme mmes mlle mlles mm ste me av bd env éd ét janv févr avr juil déc chap réf
    sra sres srta dra ud uds vd vds avda pág págs núm tfno excmo
    sig sigg dott ssa avv ecc pag ing geom arch
    sr sra srs dr dra exmo exma pág núm
    dhr mevr mw bijv enz blz resp jl
    np tzw itd itp dr prof ul wg ok tj tzn tys zł
    г гг ул им см стр тыс руб обл проф акад рис
    """.split()  # noqa: SIM905
)

CLOSING = "\"'”’»›)\\]}」』）】〉》"
BREAKS = "\r\n\u2028\u2029"
STOPS = ".!?…؟۔।॥։።‽⁇⁈⁉"
# A run of marks or blanks is tried once, from its beginning: from every place in it, a long one would take for ever.
END = re.compile(
    rf"[{BREAKS}]+\s*"
    rf"|[。！？｡]+[{CLOSING}]*\s*"
    rf"|(?<![{STOPS}])[{STOPS}]++(?:[ \u00a0\u202f](?=[»›]))?[{CLOSING}]*+\s+"
)
CLAUSE = re.compile(rf"[,;:،؛，、；：—–][{CLOSING}]*+\s+|[，、；：،؛]|(?<!\s)\s++(?=[(\[«“„—–])|(?<=[)\]»”])\s+")
BLANK = re.compile(r"\s+")


class TextPart(NamedTuple):
    """A piece of a text, and the white space that stands before it there."""

    gap: str
    text: str
    split: bool = False
    """It begins inside a sentence,"""
    torn: bool = False
    """and inside a word."""


def split_sentences(text: str) -> list[TextPart]:
    """The sentences of a text; where it is doubtful they stay together. White space at its end is an empty part."""
    return _parts(text, (match for match in END.finditer(text) if _ends(text, match)))


def split_long_sentence(text: str, measure: Callable[[Sequence[str]], list[int]], most: int) -> list[TextPart]:
    """A sentence in parts that measure at most so much: at the marks of clauses, else at blanks, else anywhere."""
    return [
        first._replace(split=bool(place)) for place, first in enumerate(_fitting(text, measure, most, [CLAUSE, BLANK]))
    ]


def join_parts(parts: Sequence[TextPart], written: Sequence[str]) -> str:
    """The translations of parts as one text, with the white space the parts had, or what the script written uses."""
    found: list[str] = []
    for part, text in zip(parts, written, strict=True):
        gap, beside = part.gap, bool(found) and bool(text) and bool(found[-1])
        if beside and gap in ("", " ") and not part.torn:
            gap = "" if script(text) in CLOSE and script(found[-1]) in CLOSE else " "
        found += [gap, text]
    return "".join(found)


def text_problem(text: str) -> str:
    """What makes a text one that cannot be translated, or nothing."""
    if not isinstance(text, str):
        return f"a text must be a string, not {type(text).__name__}"
    if "\0" in text:
        return f"there is a NUL at character {text.index(chr(0)) + 1}: this is no text"
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        if 0xDC80 <= code <= 0xDCFF:  # as Python reads bytes that are no text
            return f"there is a byte that is not UTF-8 (0x{code - 0xDC00:02X}) at character {error.start + 1}"
        return f"there is half a character (the lone surrogate U+{code:04X}) at character {error.start + 1}"
    return ""


def _parts(text: str, cuts: Iterator[re.Match[str]]) -> list[TextPart]:
    """What lies between cuts: each match ends in the white space before the next part."""
    found, begin = [], 0
    for cut in cuts:
        found.append(text[begin : cut.end()])
        begin = cut.end()
    found.append(text[begin:])
    gap = text[: len(text) - len(text.lstrip())]
    parts = []
    for piece in found:
        if inside := piece.strip():
            parts.append(TextPart(gap, inside))
            gap = ""
        gap += piece[len(piece.rstrip()) :] if inside else ("" if not parts else piece)
    return [*parts, TextPart(gap, "")] if gap and parts else parts


def _ends(text: str, match: re.Match[str]) -> bool:
    """Whether these marks and the white space after them end a sentence."""
    marks, after = match.group(), text[match.end() : match.end() + 1]
    if marks[0] in BREAKS or any(mark in BREAKS for mark in marks):
        return True
    if not after or after.islower() or after in ",;:.!?":
        return False
    if not marks.startswith(".") or marks.startswith(".."):
        return True
    word = re.search(r"\S*$", text[max(match.start() - 40, 0) : match.start()])
    before = word.group().lstrip("\"'“‘«(¿¡[„") if word else ""
    if not before:
        return False
    if len(marks.rstrip()) > 1:  # a quote closes after the stop
        return True
    last = re.split(r"[.\-–/’']", before)[-1]
    single = len(last) == 1 and last.isalpha() and script(last) not in UNSPACED_SCRIPTS
    ordinal = last.isdecimal() and len(last) <= 2  # 3. Mai
    return not (single or ordinal or last.casefold() in ABBREVIATIONS)


def _fitting(
    text: str, measure: Callable[[Sequence[str]], list[int]], most: int, marks: Sequence[re.Pattern[str]]
) -> list[TextPart]:
    if measure([text])[0] <= most:
        return [TextPart("", text)]
    if not marks:
        return _halves(text, measure, most)
    pieces = _parts(text, marks[0].finditer(text))
    found: list[TextPart] = []
    for part in _packed(pieces, measure([piece.text for piece in pieces]), most):
        first, *others = _fitting(part.text, measure, most, marks[1:])
        found += [first._replace(gap=part.gap), *others]
    return found


def _packed(parts: Sequence[TextPart], sizes: Sequence[int], most: int) -> list[TextPart]:
    """Neighbours together, as many as fit."""
    found: list[TextPart] = []
    room = 0
    for part, size in zip(parts, sizes, strict=True):
        if found and size <= room:
            found[-1] = found[-1]._replace(text=found[-1].text + part.gap + part.text)
            room -= size
        else:
            found.append(part)
            room = most - size
    return found


def _halves(text: str, measure: Callable[[Sequence[str]], list[int]], most: int) -> list[TextPart]:
    """Whatever it is, in parts that fit: at a blank near the middle, else between two characters there."""
    waiting, found = [TextPart("", text)], []
    parted = script(text) not in UNSPACED_SCRIPTS
    while waiting:
        part = waiting.pop()
        if measure([part.text])[0] <= most or len(part.text) < 2:
            found.append(part)
            continue
        place = _middle(part.text)
        one, other = part.text[:place], part.text[place:]
        gap = other[: len(other) - len(other.lstrip())]
        waiting += [TextPart(gap, other.lstrip(), torn=parted and not gap), part._replace(text=one)]
    return found


def _middle(text: str) -> int:
    """Where to cut a text in two."""
    middle = len(text) // 2
    blank = text.rfind(" ", len(text) // 4, middle)
    if blank > 0:
        return blank
    # What a character is made of stays together: marks above it, joiners, what makes a sign an emoji.
    for place in range(middle, max(middle - 32, 0), -1):
        if unicodedata.category(text[place])[0] not in "MC" and unicodedata.category(text[place - 1]) != "Cf":
            return place
    return middle
