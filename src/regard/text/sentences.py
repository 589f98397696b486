"""Sentences: split a text into sentences, split long sentences into parts, and join their translations."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from regard.errors import InputError
from regard.text.scripts import UNSPACED_SCRIPTS, script

NO_SENTENCE_SPACES = ("Han", "Kana")  # scripts without spaces between sentences
# Abbreviations whose full stop ends no sentence, in lower case; single letters and d.h. are handled by rule.
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
# A run of marks or spaces is matched once, from its beginning: the lookbehinds keep matching linear in its length.
END = re.compile(
    rf"[{BREAKS}]+\s*"
    rf"|[。！？｡]+[{CLOSING}]*\s*"
    rf"|(?<![{STOPS}])[{STOPS}]++(?:[ \u00a0\u202f](?=[»›]))?[{CLOSING}]*+\s+"
)
CLAUSE = re.compile(rf"[,;:،؛，、；：—–][{CLOSING}]*+\s+|[，、；：،؛]|(?<!\s)\s++(?=[(\[«“„—–])|(?<=[)\]»”])\s+")
SPACES = re.compile(r"\s+")

Measure = Callable[[Sequence[str]], list[int]]  # returns the sizes of texts


class TextPart(NamedTuple):
    """A part of a text, and the white space before it."""

    gap: str
    text: str
    inside_sentence: bool = False  # it begins inside a sentence
    inside_word: bool = False  # it begins inside a word


def split_sentences(text: str) -> list[TextPart]:
    """The sentences of a text; where an end is doubtful it is not split. White space at the end is an empty part."""
    return _split(END, text, _ends)


def count_sentences(text: str) -> int:
    """The number of sentences of a text."""
    return sum(part.text != "" for part in split_sentences(text))


def split_long_sentence(text: str, measure: Measure, limit: int) -> list[TextPart]:
    """Parts of a sentence whose size is at most `limit`, split at clauses, else at spaces, else between characters."""
    clauses, words = (partial(_split, pattern) for pattern in (CLAUSE, SPACES))
    parts = _fitting(text, measure, limit, [clauses, words, _characters])
    return [part._replace(inside_sentence=bool(number)) for number, part in enumerate(parts)]


def join_parts(parts: Sequence[TextPart], translations: Sequence[str]) -> str:
    """Join the translations of parts, with the white space of the parts or that of the target script."""
    texts: list[str] = []
    for part, text in zip(parts, translations, strict=True):
        gap, has_neighbour = part.gap, bool(texts) and bool(text) and bool(texts[-1])
        if has_neighbour and gap in ("", " ") and not part.inside_word:
            gap = "" if script(text) in NO_SENTENCE_SPACES and script(texts[-1]) in NO_SENTENCE_SPACES else " "
        texts += [gap, text]
    return "".join(texts)


def text_problem(text: str) -> str:
    """Why a text cannot be translated; "" if it can."""
    if not isinstance(text, str):
        return f"a text must be a string, not {type(text).__name__}"
    if "\0" in text:
        return f"there is a NUL at character {text.index(chr(0)) + 1}: this is not text"
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        if 0xDC80 <= code <= 0xDCFF:  # how Python decodes bytes that are not UTF-8
            return f"there is a byte that is not UTF-8 (0x{code - 0xDC00:02X}) at character {error.start + 1}"
        return f"there is half a character (the lone surrogate U+{code:04X}) at character {error.start + 1}"
    return ""


def text_list(texts: Iterable[str], function: str) -> list[str]:
    """The texts as a list; an InputError that names the `function` they were passed to if they are not texts."""
    example = f'{function} takes a list of texts, such as ["A bird."]'
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise InputError(f"{example}: put a single text in brackets")
    checked = list(texts)
    for number, text in enumerate(checked, 1):
        if not isinstance(text, str):
            raise InputError(f"{example}: item {number} is of type {type(text).__name__}")
    return checked


def _split(
    pattern: re.Pattern[str], text: str, ends: Callable[[str, re.Match[str]], bool] | None = None
) -> list[TextPart]:
    """The parts of a text up to each match of a pattern, or to those for which `ends` is true."""
    cuts = [match.end() for match in pattern.finditer(text) if ends is None or ends(text, match)]
    parts: list[TextPart] = []
    gap = ""
    for start, end in pairwise([0, *cuts, len(text)]):
        piece = text[start:end]
        gap += piece[: len(piece) - len(piece.lstrip())]
        if inside := piece.strip():
            parts.append(TextPart(gap, inside))
            gap = piece[len(piece.rstrip()) :]
    return [*parts, TextPart(gap, "")] if gap and parts else parts


def _ends(text: str, match: re.Match[str]) -> bool:
    """Whether a match of `END` ends a sentence."""
    marks, after = match.group(), text[match.end() : match.end() + 1]
    if any(mark in BREAKS for mark in marks):
        return True
    if not after or after.islower() or after in ",;:.!?":
        return False
    if not marks.startswith(".") or marks.startswith(".."):
        return True
    before = re.split(r"\s", text[max(match.start() - 40, 0) : match.start()])[-1].lstrip("\"'“‘«(¿¡[„")
    if not before:
        return False
    if len(marks.rstrip()) > 1:  # a quote closes after the stop
        return True
    last = re.split(r"[.\-–/’']", before)[-1]
    single = len(last) == 1 and last.isalpha() and script(last) not in UNSPACED_SCRIPTS
    ordinal = last.isdecimal() and len(last) <= 2  # 3. Mai
    return not (single or ordinal or last.casefold() in ABBREVIATIONS)


def _fitting(
    text: str, measure: Measure, limit: int, splits: Sequence[Callable[[str], list[TextPart]]]
) -> list[TextPart]:
    """Parts that fit: neighbouring pieces of the first split are joined as long as they do, longer ones split again."""
    if not splits or measure([text])[0] <= limit:
        return [TextPart("", text)]
    joined: list[TextPart] = []
    remaining = 0
    pieces = splits[0](text)
    for piece, size in zip(pieces, measure([piece.text for piece in pieces]), strict=True):
        if joined and size <= remaining:
            joined[-1] = joined[-1]._replace(text=joined[-1].text + piece.gap + piece.text)
            remaining -= size
        else:
            joined.append(piece)
            remaining = limit - size
    parts: list[TextPart] = []
    for part in joined:
        first, *others = _fitting(part.text, measure, limit, splits[1:])
        parts += [part._replace(text=first.text), *others]
    return parts


def _characters(text: str) -> list[TextPart]:
    """The characters of a text; combining marks and joiners stay with the character before them."""
    characters = [text[0]]
    for character in text[1:]:
        if unicodedata.category(character)[0] in "MC" or unicodedata.category(characters[-1][-1]) == "Cf":
            characters[-1] += character
        else:
            characters.append(character)
    spaced = script(text) not in UNSPACED_SCRIPTS
    return [TextPart("", character, inside_word=spaced and number > 0) for number, character in enumerate(characters)]
