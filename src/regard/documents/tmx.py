"""TMX: read the pairs of a translation memory, and fill its missing variants in place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import BinaryIO
from xml.sax.saxutils import quoteattr

from regard.documents import xml
from regard.documents.inline import Piece
from regard.documents.languages import Languages, find_language, same_language
from regard.documents.outcome import Gap, Outcome
from regard.errors import DataError
from regard.text.files import Pair


def read_tmx(stream: BinaryIO, name: str, *, languages: Languages | None, skipped: Counter[str]) -> Iterator[Pair]:
    """The pairs of two languages, by default of the source language of the file and the one other."""
    for unit, variants, chosen in _units(stream, name, languages):
        codes = [code for code, _ in variants]
        source, target = (find_language(codes, code) for code in chosen) if chosen else (None, None)
        if source is None or target is None:
            skipped["units without both languages"] += 1
        else:
            yield Pair(variants[source][1], variants[target][1], unit.origin)


def default_languages(stream: BinaryIO, name: str) -> Languages | None:
    """The languages of the first unit that has two."""
    return next((chosen for _, _, chosen in _units(stream, name, None) if chosen), None)


def _units(
    stream: BinaryIO, name: str, languages: Languages | None
) -> Iterator[tuple[xml.Unit, list[tuple[str, str]], Languages | None]]:
    """Each unit, its texts by language, and the two languages, as soon as they are known."""
    chosen, header = languages, ""
    for unit in xml.read_units(stream, name, root="tmx", wanted=("header", "tu")):
        if unit.element.tag == "header":
            header = unit.element.get("srclang", "")
            continue
        variants = list(_variants(unit))
        if languages is None:
            chosen = _choose_languages(unit, [code for code, _ in variants], header, chosen)
        yield unit, variants, chosen


def _variants(unit: xml.Unit) -> Iterator[tuple[str, str]]:
    """The languages of a unit, and its text in each."""
    for variant in unit.element.findall("tuv"):
        code = variant.get("xml:lang") or variant.get("lang")
        if not code:
            raise DataError(f"{unit.origin}: a <tuv> has no xml:lang, so its language is not known")
        segment = variant.find("seg")
        if segment is not None:
            yield code, xml.element_text(segment)


def _choose_languages(unit: xml.Unit, codes: list[str], header: str, chosen: Languages | None) -> Languages | None:
    """The source language of the file and the one other, as soon as a unit has both."""
    declared = unit.element.get("srclang") or header
    if chosen:
        source = chosen[0]
    elif declared and declared != "*all*":
        source = declared
    else:
        source = codes[0] if codes else ""
    others = [code for code in dict.fromkeys(codes) if not same_language(code, source)]
    if chosen:
        others = [chosen[1], *(code for code in others if not same_language(code, chosen[1]))]
    if len(others) > 1:
        raise DataError(
            f"{unit.origin}: there are several languages ({', '.join([source, *others])}): say which two, for example "
            f"--languages {source},{others[0]} (in Python languages=({source!r}, {others[0]!r}))"
        )
    return (source, others[0]) if others else None


def fill_tmx(
    stream: BinaryIO, name: str, *, languages: Languages | None, everything: bool, outcome: Outcome
) -> tuple[str, Iterator[str | Gap]]:
    """The encoding of a file and its parts, with a gap for each missing variant in the target language."""
    assert languages is not None
    encoding, whole = xml.open_xml(stream, name)

    def parts() -> Iterator[str | Gap]:
        for part in xml.read_parts(whole, name, encoding, root="tmx", wanted=("tu",)):
            if isinstance(part, xml.Unit):
                yield _fill_unit(part, languages, everything=everything, outcome=outcome)
            else:
                yield part if isinstance(part, str) else part.raw

    return encoding, parts()


def _fill_unit(unit: xml.Unit, languages: Languages, *, everything: bool, outcome: Outcome) -> str | Gap:
    variants = list(_variants(unit))
    codes = [code for code, _ in variants]
    source, target = (find_language(codes, language) for language in languages)
    if source is None or not variants[source][1]:
        outcome.skipped["without the source language"] += 1
        return unit.raw.decode()
    if target is not None and variants[target][1] and not everything:
        outcome.kept += 1
        return unit.raw.decode()
    tokens = xml.tokenize(unit)
    elements = [
        (start, end) for start, end in xml.find_children(tokens, "tuv") if xml.find_children(tokens, "seg", start)
    ]
    begin, end = xml.find_children(tokens, "seg", elements[source][0])[0]
    content = xml.parse_content(tokens[begin + 1 : end])
    outcome.translated += 1
    old = None if target is None else elements[target]
    write = partial(_write_variant, tokens, content, unit.prefix, languages[1], source=elements[source], target=old)
    return Gap([content.pieces], write)


def _write_variant(
    tokens: list[xml.Token],
    content: xml.Content,
    prefix: str,
    language: str,
    translations: list[list[Piece]],
    *,
    source: tuple[int, int],
    target: tuple[int, int] | None,
) -> str:
    segment = f"<{prefix}seg>{content.write(translations[0])}</{prefix}seg>"
    if target is not None:
        begin, end = xml.find_children(tokens, "seg", target[0])[0]
        tag = xml.with_attributes(tokens[target[0]].raw, creationtool="regard")
        before = xml.raw_text(tokens[: target[0]]) + tag + xml.raw_text(tokens[target[0] + 1 : begin])
        return before + segment + xml.raw_text(tokens[end + 1 :])
    start, end = source
    attribute = "xml:lang" if "xml:lang" in tokens[start].attributes else "lang"
    variant = f'<{prefix}tuv {attribute}={quoteattr(language)} creationtool="regard">{segment}</{prefix}tuv>'
    return xml.raw_text(tokens[: end + 1]) + xml.indentation(tokens, start) + variant + xml.raw_text(tokens[end + 1 :])
