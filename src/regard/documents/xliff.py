"""XLIFF 1.2 and 2: the units of a file, with their targets or gaps for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import BinaryIO

from regard.documents.inline import Piece
from regard.documents.languages import Languages, same_language
from regard.documents.outcome import Entry, Gap
from regard.documents.xml import Element, Unit, read_pieces, read_xml, with_attributes, write_pieces
from regard.errors import DataError

UNITS = ("trans-unit", "segment")  # of version 1.2 and of version 2
UNTRANSLATED = ("new", "needs-translation", "initial")  # states of a target that is still the source
REVIEW = {"state": "needs-review-translation", "state-qualifier": "leveraged-mt"}  # of a target in version 1.2

Segment = tuple[Element, Element | None]
"""A source, or a part of it, and its translation, which is never empty."""


def parse_xliff(stream: BinaryIO, name: str, languages: Languages | None) -> tuple[str, Iterator[str | Entry]]:
    """The encoding of a file, and its units as entries with the text between them."""
    encoding, parts = read_xml(stream, name, root="xliff", units=UNITS, tags=("xliff", "file"))
    return encoding, (part if isinstance(part, str) else _parse_unit(part, languages) for part in parts)


def _parse_unit(unit: Unit, languages: Languages | None) -> str | Entry:
    element, raw = unit.element, unit.raw.decode()
    if element.name not in UNITS:  # a tag that declares the languages
        names = ("srcLang", "trgLang") if element.name == "xliff" else ("source-language", "target-language")
        if languages and element.attributes.get(names[0]) and not element.attributes.get(names[1]):
            return with_attributes(raw, {names[1]: languages[1]})
        return raw
    source, target = element.find("source"), element.find("target")
    if source is None:
        raise DataError(f"{unit.origin}: a <{element.name}> has no <source>")
    attributes = unit.attributes | element.attributes
    codes = [
        (side and side.attributes.get("xml:lang")) or attributes.get(first) or attributes.get(second, "")
        for side, first, second in ((source, "source-language", "srcLang"), (target, "target-language", "trgLang"))
    ]
    agree, swapped = _agree(codes, languages), _agree(codes[::-1], languages)
    not_filled = "" if agree else "of other languages"
    if not source.text:
        not_filled = "empty"
    elif attributes.get("translate") == "no":
        not_filled = "not to be translated"
    is_new = target is None or target.attributes.get("state", element.attributes.get("state")) in UNTRANSLATED
    divided = element.find("seg-source") or source
    segments = _segments(divided, None if is_new else target)
    texts = [(part.text, translation.text if translation else "") for part, translation in segments]

    def gap(everything: bool) -> Gap:
        if element.name == "segment" and not (attributes.get("trgLang") or (languages and codes[0])):
            raise DataError(f"{unit.origin}: the <xliff> has no trgLang: name both languages, as in --languages en,fr")
        chosen = _segments(divided, None) if everything else segments
        missing = [list(read_pieces(unit, segment)) for segment, translation in chosen if translation is None]
        return Gap(missing, partial(_write, unit, divided, target, chosen))

    return Entry(
        raw,
        unit.origin,
        pairs=[pair if agree or not pair[1] else pair[::-1] for pair in texts if pair[0]],
        not_read="" if agree or swapped else "units without both languages",
        not_filled=not_filled,
        gap=gap,
    )


def _segments(source: Element, target: Element | None) -> list[Segment]:
    """A source and its translation, or the segments of both where <mrk mtype="seg"> divides them."""
    marks = list(_segment_marks(source))
    target_marks = [mark for mark in _segment_marks(target) if mark.text] if target is not None else []
    if not marks or (target is not None and target.text and not target_marks):
        return [(source, target if target is not None and target.text else None)]
    translations = {mark.attributes.get("mid"): mark for mark in target_marks}
    return [(mark, translations.get(mark.attributes.get("mid"))) for mark in marks]


def _segment_marks(element: Element) -> Iterator[Element]:
    for child in element.children:
        if isinstance(child, Element):
            yield from [child] if child.attributes.get("mtype") == "seg" else _segment_marks(child)


def _agree(codes: Sequence[str], languages: Languages | None) -> bool:
    """Whether declared languages are the requested ones; a language that is not declared may be any."""
    return languages is None or all(
        not code or same_language(code, language) for code, language in zip(codes, languages, strict=True)
    )


def _write(
    unit: Unit, source: Element, target: Element | None, segments: Sequence[Segment], translations: list[list[Piece]]
) -> str:
    """The unit with new translations between those that exist."""
    element, new, filled = unit.element, iter(translations), []
    first_version = element.name == "trans-unit"
    for segment, translation in segments:
        text = unit.text(translation.inside, translation.close) if translation else write_pieces(next(new))
        filled.append((segment.inside, segment.close, text))
    body = unit.edited(*filled, start=source.inside, end=source.close)
    if target is None:
        start = end = source.end
        indent, tag = unit.indentation(source), f"<{unit.prefix}target>"
    else:
        start, end = target.start, target.end
        indent, tag = "", unit.text(start, target.inside).removesuffix("/>").removesuffix(">").rstrip() + ">"
    tag = with_attributes(tag, REVIEW) if first_version else tag
    edits = [(start, end, f"{indent}{tag}{body}</{unit.prefix}target>")]
    if not first_version or element.attributes.get("approved") == "yes":
        values = {"approved": "no"} if first_version else {"state": "translated", "subState": None}
        opening = with_attributes(unit.text(element.start, element.inside), values)
        edits.append((element.start, element.inside, opening))
    return unit.edited(*edits)
