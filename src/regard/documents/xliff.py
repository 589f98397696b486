"""XLIFF 1.2 and 2: the units of a file, with their targets or gaps for them."""

from __future__ import annotations

from collections.abc import Iterator
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
    text = source.text
    translation = ""
    if target is not None and target.attributes.get("state", element.attributes.get("state")) not in UNTRANSLATED:
        translation = target.text
    codes = _declared(unit, source, "source-language", "srcLang"), _declared(unit, target, "target-language", "trgLang")
    agree, swapped = _agree(codes, languages), _agree(codes[::-1], languages)
    not_read = "" if agree or swapped else "units without both languages"
    not_filled = "" if agree else "of other languages"
    if not text:
        not_filled = "empty"
    elif _inherited(unit, "translate") == "no":
        not_filled = "not to be translated"
    pair = (text, translation) if agree or not translation else (translation, text)
    gap = partial(_find_gap, unit, element.find("seg-source") or source, target)
    return Entry(unit.raw.decode(), unit.origin, [pair], not_read, not_filled, gap)


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
    attribute_sets = [unit.element.attributes, *reversed(unit.ancestors)]
    return next((values[name] for values in attribute_sets for name in names if values.get(name)), "")


def _agree(codes: Languages, languages: Languages | None) -> bool:
    """Whether declared languages are the requested ones; a language that is not declared may be any."""
    if languages is None:
        return True
    return all(not code or same_language(code, language) for code, language in zip(codes, languages, strict=True))


def _find_gap(unit: Unit, source: Element, target: Element | None, everything: bool) -> Gap:
    """The content of a source; where <mrk mtype="seg"> divides it, each segment, so that it stays in its place."""
    segments, between = [], []
    position = unit.inside(source)
    for mark in list(_segment_marks(source)) or [source]:
        segments.append(list(read_pieces(unit, mark)))
        between.append(unit.text(position, unit.inside(mark)))
        position = mark.close
    between.append(unit.text(position, source.close))

    def write(translations: list[list[Piece]]) -> str:
        parts = zip(between, [*map(write_pieces, translations), ""], strict=True)
        body = "".join(text + translation for text, translation in parts)
        first_version = unit.element.name == "trans-unit"
        tag = f"<{unit.prefix}target>"
        start = end = unit.end(source)
        if target is not None:
            start, end = target.start, unit.end(target)
            tag = unit.text(start, unit.inside(target)).removesuffix("/>").removesuffix(">").rstrip() + ">"
        indent = unit.indentation(source) if target is None else ""
        tag = with_attributes(tag, REVIEW) if first_version else tag
        edits = [(start, end, f"{indent}{tag}{body}</{unit.prefix}target>")]
        if not first_version:
            opening = unit.inside(unit.element)
            edits.append((0, opening, with_attributes(unit.text(0, opening), {"state": "translated"})))
        return unit.edited(*edits)

    return Gap(segments, write)


def _segment_marks(element: Element) -> Iterator[Element]:
    for child in element.children:
        if isinstance(child, Element):
            yield from [child] if child.attributes.get("mtype") == "seg" else _segment_marks(child)
