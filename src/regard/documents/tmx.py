"""TMX: the units of a translation memory, with their variants in two languages or gaps for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO
from xml.sax.saxutils import quoteattr

from regard.documents.inline import Piece
from regard.documents.languages import Languages, find_language, same_language
from regard.documents.outcome import Entry, Gap
from regard.documents.xml import Element, Unit, read_pieces, read_xml, with_attributes, write_pieces
from regard.errors import DataError

Variant = tuple[str, Element, Element]
"""The language of a <tuv>, the <tuv> and its <seg>."""


def parse_tmx(stream: BinaryIO, name: str, languages: Languages | None) -> tuple[str, Iterator[str | Entry]]:
    """The encoding of a file, and its units as entries with the text between them.

    By default the source is the language that the file declares, and the target is the only other language.
    """
    encoding, parts = read_xml(stream, name, root="tmx", units=("tu",), tags=("header",))

    def entries() -> Iterator[str | Entry]:
        chosen, header = languages, ""
        known: set[tuple[str, ...]] = set()  # languages of the units so far
        for part in parts:
            if isinstance(part, str):
                yield part
                continue
            if part.element.name == "header":
                header = part.element.attributes.get("srclang", "")
                yield part.raw.decode()
                continue
            variants = _variants(part)
            codes = tuple(code for code, _, _ in variants)
            if languages is None and codes not in known:
                chosen = _choose_languages(part, codes, header, chosen)
                known |= {codes} if chosen else set()
            yield _parse_unit(part, codes, variants, chosen)

    return encoding, entries()


def _variants(unit: Unit) -> list[Variant]:
    variants = []
    for variant in unit.element.find_all("tuv"):
        code = variant.attributes.get("xml:lang") or variant.attributes.get("lang")
        if not code:
            raise DataError(f"{unit.origin}: a <tuv> has no xml:lang, so its language is not known")
        segment = variant.find("seg")
        if segment is not None:
            variants.append((code, variant, segment))
    return variants


def _choose_languages(unit: Unit, codes: tuple[str, ...], header: str, chosen: Languages | None) -> Languages | None:
    """The source language of the file and its only other language; None until a unit has both."""
    declared = unit.element.attributes.get("srclang") or header
    source = declared if declared not in ("", "*all*") else next(iter(codes), "")
    source, *others = chosen or (source,)
    for code in codes:
        if not any(same_language(code, known) for known in (source, *others)):
            others.append(code)
    if len(others) > 1:
        raise DataError(
            f"{unit.origin}: there are several languages ({', '.join([source, *others])}): say which two, for example "
            f"--languages {source},{others[0]} (in Python languages=({source!r}, {others[0]!r}))"
        )
    return (source, others[0]) if others else None


def _parse_unit(unit: Unit, codes: tuple[str, ...], variants: list[Variant], languages: Languages | None) -> Entry:
    source = find_language(codes, languages[0]) if languages else None
    target = find_language(codes, languages[1]) if languages else None
    text = "" if source is None else variants[source][2].text
    translation = "" if target is None else variants[target][2].text

    def gap(everything: bool) -> Gap:
        if source is None or languages is None:
            raise DataError(
                f"{unit.origin}: no unit up to here has two languages: name both, for example --languages en,fr"
            )
        return _find_gap(unit, variants[source], None if target is None else variants[target], languages[1])

    not_read = "units without both languages" if source is None or target is None else ""
    not_filled = "" if text or languages is None else "without the source language"
    return Entry(unit.raw.decode(), unit.origin, [(text, translation)], not_read, not_filled, gap)


def _find_gap(unit: Unit, source: Variant, target: Variant | None, language: str) -> Gap:
    _, variant, segment = source

    def write(translations: list[list[Piece]]) -> str:
        new = f"<{unit.prefix}seg>{write_pieces(translations[0])}</{unit.prefix}seg>"
        if target is not None:
            _, old, old_segment = target
            tag = with_attributes(unit.text(old.start, old.inside), {"creationtool": "regard"})
            return unit.edited((old.start, old.inside, tag), (old_segment.start, old_segment.end, new))
        attribute = "xml:lang" if "xml:lang" in variant.attributes else "lang"
        tag = f'<{unit.prefix}tuv {attribute}={quoteattr(language)} creationtool="regard">'
        end = variant.end
        return unit.edited((end, end, f"{unit.indentation(variant)}{tag}{new}</{unit.prefix}tuv>"))

    return Gap([list(read_pieces(unit, segment))], write)
