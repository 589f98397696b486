"""TMX: the units of a translation memory, with their variants in two languages or gaps for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import BinaryIO, NamedTuple
from xml.sax.saxutils import quoteattr

from regard.documents.inline import Piece
from regard.documents.languages import Languages, find_language, same_language
from regard.documents.outcome import Entry, Gap
from regard.documents.xml import Element, Unit, read_pieces, read_xml, with_attributes, write_pieces
from regard.errors import DataError


class Variant(NamedTuple):
    """A text in one language: a <tuv> and its <seg>."""

    language: str
    element: Element
    segment: Element


def parse_tmx(stream: BinaryIO, name: str, languages: Languages | None) -> tuple[str, Iterator[str | Entry]]:
    """The encoding of a file, and its units as entries with the text between them.

    By default the source is the language that the file declares, and the target is the only other language.
    """
    encoding, parts = read_xml(stream, name, root="tmx", units=("tu",), tags=("header",))

    def entries() -> Iterator[str | Entry]:
        header, known = "", list[str]()  # languages of the units so far, the source first
        for part in parts:
            if isinstance(part, str):
                yield part
                continue
            if part.element.name == "header":
                header = part.element.attributes.get("srclang", "")
                yield part.raw.decode()
                continue
            variants = _variants(part)
            if languages is None:
                declared = part.element.attributes.get("srclang") or header
                if declared not in ("", "*all*") and not known:
                    known.append(declared)
                for variant in variants:
                    if not any(same_language(variant.language, code) for code in known):
                        known.append(variant.language)
                if len(known) > 2:
                    raise DataError(
                        f"{part.origin}: there are several languages ({', '.join(known)}): say which two, for example "
                        f"--languages {known[0]},{known[1]} (in Python languages=({known[0]!r}, {known[1]!r}))"
                    )
            pair = languages or ((known[0], known[1]) if len(known) == 2 else None)
            yield _parse_unit(part, variants, pair)

    return encoding, entries()


def _variants(unit: Unit) -> list[Variant]:
    variants = []
    for child in unit.element.children:
        if isinstance(child, Element) and child.name == "tuv":
            code = child.attributes.get("xml:lang") or child.attributes.get("lang")
            if not code:
                raise DataError(f"{unit.origin}: a <tuv> has no xml:lang, so its language is not known")
            if segment := child.find("seg"):
                variants.append(Variant(code, child, segment))
    return variants


def _parse_unit(unit: Unit, variants: list[Variant], languages: Languages | None) -> Entry:
    codes = tuple(variant.language for variant in variants)
    numbers = [find_language(codes, language) for language in languages or ("", "")]
    source, target = (None if number is None else variants[number] for number in numbers)
    text, translation = (variant.segment.text if variant else "" for variant in (source, target))

    def gap(everything: bool) -> Gap:
        if source is None or languages is None:
            raise DataError(
                f"{unit.origin}: no unit up to here has two languages: name both, for example --languages en,fr"
            )
        write = partial(_write, unit, source, target, languages[1])
        return Gap([list(read_pieces(unit, source.segment))], write)

    not_read = "units without both languages" if source is None or target is None else ""
    not_filled = "" if text or languages is None else "without the source language"
    return Entry(unit.raw.decode(), unit.origin, [(text, translation)], not_read, not_filled, gap)


def _write(
    unit: Unit, source: Variant, target: Variant | None, language: str, translations: Sequence[Sequence[Piece]]
) -> str:
    """The unit with a new translation: in the target if there is one, otherwise in a new variant."""
    new = f"<{unit.prefix}seg>{write_pieces(translations[0])}</{unit.prefix}seg>"
    if target is not None:
        start, inside, segment = target.element.start, target.element.inside, target.segment
        tag = with_attributes(unit.text(start, inside), {"creationtool": "regard"})
        return unit.edited((start, inside, tag), (segment.start, segment.end, new))
    attribute = "xml:lang" if "xml:lang" in source.element.attributes else "lang"
    tag = f'<{unit.prefix}tuv {attribute}={quoteattr(language)} creationtool="regard">'
    end = source.element.end
    return unit.edited((end, end, f"{unit.indentation(source.element)}{tag}{new}</{unit.prefix}tuv>"))
