"""XLIFF 1.2 and 2: read the translated units of a file, and fill its missing targets in place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import BinaryIO
from xml.etree.ElementTree import Element

from regard.documents import xml
from regard.documents.inline import Piece
from regard.documents.languages import Languages, same_language
from regard.documents.outcome import Gap, Outcome
from regard.errors import DataError
from regard.text.files import Pair

UNITS = ("trans-unit", "segment")  # of version 1.2 and of version 2
UNTRANSLATED = ("new", "needs-translation", "initial")  # states of a target that is still the source
REVIEW = {"state": "needs-review-translation", "state_qualifier": "leveraged-mt"}  # of a target in version 1.2


def read_xliff(stream: BinaryIO, name: str, *, languages: Languages | None, skipped: Counter[str]) -> Iterator[Pair]:
    """The translated units of a file."""
    for unit in xml.read_units(stream, name, root="xliff", wanted=UNITS):
        source, target = _source(unit), _translation(unit)
        if target is None:
            skipped["untranslated"] += 1
            continue
        texts = xml.element_text(source), xml.element_text(target)
        codes = _languages(unit)
        if _agree(codes, languages):
            yield Pair(*texts, unit.origin)
        elif languages and _agree(codes, (languages[1], languages[0])):
            yield Pair(texts[1], texts[0], unit.origin)
        else:
            skipped["units without both languages"] += 1


def _source(unit: xml.Unit) -> Element:
    source = unit.element.find("source")
    if source is None:
        raise DataError(f"{unit.origin}: a <{unit.element.tag}> has no <source>")
    return source


def _translation(unit: xml.Unit) -> Element | None:
    """The target of a unit, if it is a translation and not a copy of the source."""
    target = unit.element.find("target")
    if target is None or not xml.element_text(target):
        return None
    return None if target.get("state", unit.element.get("state")) in UNTRANSLATED else target


def _languages(unit: xml.Unit) -> Languages:
    """The languages that a unit declares; "" where it declares none."""

    def declared(name: str, *attributes: str) -> str:
        element = unit.element.find(name)
        if element is not None and element.get("xml:lang"):
            return element.get("xml:lang", "")
        inherited = (values[key] for values in reversed(unit.ancestors) for key in attributes if values.get(key))
        return next(inherited, "")

    return declared("source", "source-language", "srcLang"), declared("target", "target-language", "trgLang")


def _agree(codes: Languages, languages: Languages | None) -> bool:
    """Whether declared languages are the requested ones; a language that is not declared may be any."""
    if languages is None:
        return True
    return all(not code or same_language(code, language) for code, language in zip(codes, languages, strict=True))


def fill_xliff(
    stream: BinaryIO, name: str, *, languages: Languages | None, everything: bool, outcome: Outcome
) -> tuple[str, Iterator[str | Gap]]:
    """The encoding of a file and its parts, with a gap for each missing target."""
    encoding, whole = xml.open_xml(stream, name)

    def parts() -> Iterator[str | Gap]:
        for part in xml.read_parts(whole, name, encoding, root="xliff", wanted=UNITS, outer=("xliff", "file")):
            if isinstance(part, xml.Unit):
                yield _fill_unit(part, languages, everything=everything, outcome=outcome)
            else:
                yield part if isinstance(part, str) else _with_language(part, languages)

    return encoding, parts()


def _with_language(tag: xml.OuterTag, languages: Languages | None) -> str:
    """A tag that declares the source language, with the target language added where it is missing."""
    source, target = ("srcLang", "trgLang") if tag.name == "xliff" else ("source-language", "target-language")
    if languages and tag.attributes.get(source) and not tag.attributes.get(target):
        return xml.with_attributes(tag.raw, **{target.replace("-", "_"): languages[1]})
    return tag.raw


def _fill_unit(unit: xml.Unit, languages: Languages | None, *, everything: bool, outcome: Outcome) -> str | Gap:
    text = xml.element_text(_source(unit))
    attribute_sets = [unit.element.attrib, *reversed(unit.ancestors)]
    translate = next((attributes["translate"] for attributes in attribute_sets if attributes.get("translate")), "yes")
    if translate == "no" or not text:
        outcome.skipped["not to be translated" if text else "empty"] += 1
    elif not everything and _translation(unit) is not None:
        outcome.kept += 1
    elif not _agree(_languages(unit), languages):
        outcome.skipped["of other languages"] += 1
    else:
        outcome.translated += 1
        tokens = xml.tokenize(unit)
        source = (xml.find_children(tokens, "seg-source") or xml.find_children(tokens, "source"))[0]
        parts = list(_segments(tokens[source[0] + 1 : source[1]]))
        segments = [part.pieces for part in parts if isinstance(part, xml.Content)]
        return Gap(segments, partial(_write_target, tokens, parts, unit.prefix, source))
    return unit.raw.decode()


def _segments(tokens: list[xml.Token]) -> Iterator[str | xml.Content]:
    """The content of a source; where <mrk mtype="seg"> divides it, each segment and the text between them.

    Segments are translated one by one, so that each stays in its place.
    """
    starts = [i for i, token in enumerate(tokens) if token.attributes.get("mtype") == "seg"]
    if not starts:
        yield xml.parse_content(tokens)
        return
    last = 0
    for start in starts:
        if start >= last:
            yield xml.raw_text(tokens[last : start + 1])
            last = xml.element_end(tokens, start)
            yield xml.parse_content(tokens[start + 1 : last])
    yield xml.raw_text(tokens[last:])


def _write_target(
    tokens: list[xml.Token],
    parts: list[str | xml.Content],
    prefix: str,
    source: tuple[int, int],
    translations: list[list[Piece]],
) -> str:
    remaining = iter(translations)
    body = "".join(part if isinstance(part, str) else part.write(next(remaining)) for part in parts)
    version_1 = tokens[0].name == "trans-unit"
    if targets := xml.find_children(tokens, "target"):
        start, end = targets[0]
        tag = tokens[start].raw.removesuffix("/>").removesuffix(">").rstrip() + ">"
        before, after = tokens[1:start], tokens[end + 1 :]
        indent = ""
    else:
        tag = f"<{prefix}target>"
        before, after = tokens[1 : source[1] + 1], tokens[source[1] + 1 :]
        indent = xml.indentation(tokens, source[0])
    tag = xml.with_attributes(tag, **REVIEW) if version_1 else tag
    unit = tokens[0].raw if version_1 else xml.with_attributes(tokens[0].raw, state="translated")
    return f"{unit}{xml.raw_text(before)}{indent}{tag}{body}</{prefix}target>{xml.raw_text(after)}"
