"""XLIFF 1.2 and 2: the units of a file, with their targets or gaps for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    element = unit.element
    if element.name not in UNITS:
        return _with_language(unit, languages)
    source, target = element.find("source"), element.find("target")
    if source is None:
        raise DataError(f"{unit.origin}: a <{element.name}> has no <source>")
    is_new = target is None or target.attributes.get("state", element.attributes.get("state")) in UNTRANSLATED
    translated = None if is_new else target
    codes = _declared(unit, source, "source-language", "srcLang"), _declared(unit, target, "target-language", "trgLang")
    agree, swapped = _agree(codes, languages), _agree(codes[::-1], languages)
    not_read = "" if agree or swapped else "units without both languages"
    not_filled = "" if agree else "of other languages"
    if not source.text:
        not_filled = "empty"
    elif _inherited(unit, "translate") == "no":
        not_filled = "not to be translated"
    divided = element.find("seg-source") or source
    segments = _segments(divided, translated)
    texts = [(part.text, translation.text if translation else "") for part, translation in segments]
    pairs = [pair if agree or not pair[1] else pair[::-1] for pair in texts if pair[0]]

    def gap(everything: bool) -> Gap:
        if element.name == "segment" and not (_inherited(unit, "trgLang") or (languages and codes[0])):
            raise DataError(f"{unit.origin}: the <xliff> has no trgLang: name both languages, as in --languages en,fr")
        return _find_gap(unit, divided, target, _segments(divided, None) if everything else segments)

    return Entry(unit.raw.decode(), unit.origin, pairs, not_read, not_filled, gap)


def _segments(source: Element, target: Element | None) -> list[Segment]:
    """A source and its translation, or the segments of both where <mrk mtype="seg"> divides them."""
    marks = list(_segment_marks(source))
    target_marks = [mark for mark in _segment_marks(target) if mark.text] if target is not None else []
    if not marks or (target is not None and target.text and not target_marks):
        return [(source, target if target is not None and target.text else None)]
    translations = {mark.attributes.get("mid"): mark for mark in target_marks}
    return [(mark, translations.get(mark.attributes.get("mid"))) for mark in marks]


def _with_language(tag: Unit, languages: Languages | None) -> str:
    """A tag that declares the source language, with the target language added where it is missing."""
    attributes, raw = tag.element.attributes, tag.raw.decode()
    source, target = ("srcLang", "trgLang") if tag.element.name == "xliff" else ("source-language", "target-language")
    if languages and attributes.get(source) and not attributes.get(target):
        return with_attributes(raw, {target: languages[1]})
    return raw


def _declared(unit: Unit, element: Element | None, *names: str) -> str:
    """The language of a source or target; "" where none is declared."""
    return (element.attributes.get("xml:lang") if element else "") or _inherited(unit, *names)


def _inherited(unit: Unit, *names: str) -> str:
    """The value of an attribute of a unit or of the elements around it."""
    values = (unit.element.attributes.get(name) or unit.inherited.get(name) for name in names)
    return next(filter(None, values), "")


def _agree(codes: Languages, languages: Languages | None) -> bool:
    """Whether declared languages are the requested ones; a language that is not declared may be any."""
    if languages is None:
        return True
    return all(not code or same_language(code, language) for code, language in zip(codes, languages, strict=True))


def _find_gap(unit: Unit, source: Element, target: Element | None, segments: Sequence[Segment]) -> Gap:
    """The segments without a translation; `write` puts their translations between those that exist."""

    def write(translations: list[list[Piece]]) -> str:
        new, filled = map(write_pieces, translations), []
        for segment, translation in segments:
            text = next(new) if translation is None else unit.text(translation.inside, translation.close)
            filled.append((segment.inside, segment.close, text))
        body = unit.edited(*filled, start=source.inside, end=source.close)
        first_version = unit.element.name == "trans-unit"
        tag = f"<{unit.prefix}target>"
        start = end = source.end
        if target is not None:
            start, end = target.start, target.end
            tag = unit.text(start, target.inside).removesuffix("/>").removesuffix(">").rstrip() + ">"
        indent = unit.indentation(source) if target is None else ""
        tag = with_attributes(tag, REVIEW) if first_version else tag
        edits = [(start, end, f"{indent}{tag}{body}</{unit.prefix}target>")]
        if not first_version or unit.element.attributes.get("approved") == "yes":
            opening = unit.element.inside
            values = {"approved": "no"} if first_version else {"state": "translated", "subState": None}
            edits.append((0, opening, with_attributes(unit.text(0, opening), values)))
        return unit.edited(*edits)

    return Gap([list(read_pieces(unit, segment)) for segment, translation in segments if translation is None], write)


def _segment_marks(element: Element) -> Iterator[Element]:
    for child in element.children:
        if isinstance(child, Element):
            yield from [child] if child.attributes.get("mtype") == "seg" else _segment_marks(child)
