"""Translations inside markup: TMX, XLIFF and PO files, read unit by unit in constant memory."""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import BinaryIO, Literal, NamedTuple
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from regard.errors import DataError
from regard.text import files as streams
from regard.text.files import Origin, Pair, lines, one_line


class Unit(NamedTuple):
    """One element of an XML file with everything in it, and the attributes of the elements around it."""

    element: Element
    around: list[dict[str, str]]
    origin: Origin


class Entry(NamedTuple):
    """One message of a PO file: `context`, `id`, `plural` and the translations by their number."""

    texts: dict[str, str]
    flags: set[str]
    origin: Origin
    rows: dict[str, list[int]]
    """The lines on which each of these stands, and the `flags`, and the `previous` message in a comment."""


@dataclass
class Event:
    """A piece of an XML file: `raw` as it is written, all pieces together being the file."""

    kind: Literal["start", "end", "text", "other"]
    name: str = ""
    attributes: dict[str, str] | None = None
    text: str = ""
    raw: str = ""


class Passage(NamedTuple):
    """A unit, and the pieces it is written in."""

    unit: Unit
    events: list[Event]


DEEPEST = 100  # elements inside one another; more is an attack, not a translation
NATIVE = {"bpt", "ept", "it", "ph", "ut"}  # these hold the code of another format, not words
UNTRANSLATED = {"new", "needs-translation", "initial"}  # states of an XLIFF target that is still the source
_CHUNK = 2**16


# XML


def units(stream: BinaryIO, name: str, *, root: str, wanted: set[str]) -> Iterator[Unit]:
    """The wanted elements one after another; nothing declared is expanded, nothing is fetched."""
    parser = expat.ParserCreate()
    parser.buffer_text = True
    collector = _Collector(parser, name, root, wanted)
    parser.StartElementHandler = collector.start
    parser.EndElementHandler = collector.end
    parser.CharacterDataHandler = collector.data
    parser.EntityDeclHandler = collector.refuse_entity
    parser.SkippedEntityHandler = collector.refuse_entity
    for _ in _parsed(iter(lambda: stream.read(_CHUNK), b""), name, parser, collector):
        yield from collector.take()


def _parsed(chunks: Iterable[bytes], name: str, parser: expat.XMLParserType, collector: _Collector) -> Iterator[None]:
    """Feed a parser, one step a chunk; damage becomes a message."""
    fed = 0
    for chunk in chain(chunks, [b""]):
        if not chunk and not fed:
            return
        fed += len(chunk)
        try:
            parser.Parse(chunk, not chunk)
        except (expat.ExpatError, ValueError, LookupError) as error:
            if isinstance(error, DataError):
                raise
            reason = expat.ErrorString(error.code) if isinstance(error, expat.ExpatError) else str(error)
            raise DataError(f"{name}:{parser.ErrorLineNumber}: broken XML: {reason}") from error
        yield
        if chunk and fed - collector.settled() > streams.MAX_LINE_BYTES + _CHUNK:
            raise DataError(
                f"{collector.here()}: one unit is longer than {streams.MAX_LINE_BYTES:,} bytes: is the file damaged?"
            )


class _Collector:
    """Builds a small tree of each wanted element and forgets all else."""

    def __init__(self, parser: expat.XMLParserType, name: str, root: str, wanted: set[str]) -> None:
        self.parser, self.name, self.root, self.wanted = parser, name, root, wanted
        self.prefix = ""
        self.around: list[dict[str, str]] = []
        self.depth = 0
        self.builder: TreeBuilder | None = None
        self.floor = 0
        self.began, self.line = 0, 1
        self.done: list[Unit] = []

    def here(self) -> Origin:
        return Origin(self.name, self.parser.CurrentLineNumber)

    def settled(self) -> int:
        """Bytes that nothing is still waiting on."""
        return self.began if self.builder else self.parser.CurrentByteIndex

    def take(self) -> list[Unit]:
        done, self.done = self.done, []
        return done

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if not self.depth:
            prefix, _, plain = name.rpartition(":")
            if plain != self.root:
                raise DataError(f"{self.here()}: the outermost element is <{name}>, and <{self.root}> is needed")
            self.prefix = f"{prefix}:" if prefix else ""
        self.depth += 1
        if self.depth > DEEPEST:
            raise DataError(f"{self.here()}: elements are nested more than {DEEPEST} deep: is the file damaged?")
        # Elements of another vocabulary keep their prefix and so are never taken for ours.
        name = name.removeprefix(self.prefix)
        if self.builder is None and name in self.wanted:
            self.builder, self.floor = TreeBuilder(), self.depth
            self.began, self.line = self.parser.CurrentByteIndex, self.parser.CurrentLineNumber
        if self.builder is None:
            self.around.append(attributes)
        else:
            self.builder.start(name, attributes)

    def end(self, name: str) -> None:
        if self.builder is None:
            self.around.pop()
        else:
            self.builder.end(name.removeprefix(self.prefix))
            if self.depth == self.floor:
                self.done.append(Unit(self.builder.close(), list(self.around), Origin(self.name, self.line)))
                self.builder = None
        self.depth -= 1

    def data(self, text: str) -> None:
        if self.builder is not None:
            self.builder.data(text)

    def refuse_entity(self, name: str, *_: object) -> None:
        raise DataError(
            f"{self.here()}: the entity {name} is declared in the file or outside it, and such entities are never "
            "expanded; write the text itself"
        )


# XML, piece by piece


def encoding_of(head: bytes, name: str) -> str:
    """The encoding of an XML file by how it begins; a byte order mark stays part of the text."""
    for mark, encoding in _BEGINNINGS.items():
        if head.startswith(mark):
            return encoding
    said = re.match(rb"""<\?xml[^>]*?\sencoding\s*=\s*["']([\w.:-]+)["']""", head)
    encoding = said[1].decode().lower() if said else "utf-8"
    try:
        "".encode(encoding)
        known = codecs.lookup(encoding).name
    except (LookupError, ValueError):
        known = ""
    if known.startswith(("utf-16", "utf-32")):
        raise DataError(f"{name}:1: the file says that it is {encoding}, and it is not")
    if not known or known in _NO_ENCODINGS:
        raise DataError(f"{name}:1: the encoding {encoding} is not known; UTF-8 is")
    return encoding


def passages(
    stream: BinaryIO, name: str, encoding: str, *, root: str, wanted: set[str], outer: Iterable[str] = ()
) -> Iterator[str | Event | Passage]:
    """All of an XML file in order: wanted units as passages, `outer` start tags as events, what is between as text."""
    parser = expat.ParserCreate("utf-8")  # whatever the file says of itself: it is decoded here
    recorder = _Recorder(parser, _Collector(parser, name, root, wanted), set(outer))
    decoder = codecs.getincrementaldecoder(encoding)()

    def chunks() -> Iterator[bytes]:
        while True:
            chunk = stream.read(_CHUNK)
            try:
                data = decoder.decode(chunk, not chunk).encode()
            except UnicodeError as error:
                line = parser.CurrentLineNumber
                raise DataError(f"{name}: below line {line:,} there is text that is not {encoding}") from error
            recorder.feed(data)
            if data:
                yield data
            if not chunk:
                return

    for _ in _parsed(chunks(), name, parser, recorder.collector):
        yield from recorder.take()
    recorder.finish()
    yield from recorder.take()


class _Recorder:
    """Keeps what a file is written in beside what it says."""

    def __init__(self, parser: expat.XMLParserType, collector: _Collector, outer: set[str]) -> None:
        self.parser, self.collector, self.outer = parser, collector, outer
        self.buffer, self.base, self.given = b"", 0, 0  # what was fed, where in the file it begins, how much is told
        self.last: Event | None = None  # it ends where the next one begins
        self.events: list[Event] = []
        self.unit: Unit | None = None
        self.found: list[str | Event | Passage] = []
        parser.StartElementHandler = self.start
        parser.EndElementHandler = self.end
        parser.CharacterDataHandler = self.data
        parser.DefaultHandler = self.other
        parser.EntityDeclHandler = collector.refuse_entity
        parser.SkippedEntityHandler = collector.refuse_entity

    def feed(self, data: bytes) -> None:
        self.buffer, self.base, self.given = self.buffer[self.given :] + data, self.base + self.given, 0

    def take(self) -> list[str | Event | Passage]:
        found, self.found = self.found, []
        return found

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self.settle()
        self.collector.start(name, attributes)
        self.last = Event("start", name.removeprefix(self.collector.prefix), attributes)

    def end(self, name: str) -> None:
        self.settle()
        inside = self.collector.builder is not None
        self.collector.end(name)
        self.last = Event("end", name.removeprefix(self.collector.prefix))
        if inside and self.collector.builder is None:
            (self.unit,) = self.collector.take()

    def data(self, text: str) -> None:
        self.settle()
        self.collector.data(text)
        self.last = Event("text", text=text)

    def other(self, _: str) -> None:
        self.settle()
        self.last = Event("other")

    def finish(self) -> None:
        self._give(self.base + len(self.buffer))

    def settle(self) -> None:
        self._give(self.parser.CurrentByteIndex)

    def _give(self, end: int) -> None:
        """The last event is whole now."""
        raw, event = self.buffer[self.given : end - self.base].decode(), self.last
        self.given = end - self.base
        if event is None:
            self.found.append(raw)
            return
        event.raw = raw
        if self.collector.builder is not None or self.unit is not None:
            self.events.append(event)
        elif event.kind == "start" and event.name in self.outer:
            self.found.append(event)
        else:
            self.found.append(raw)
        if self.unit is not None:
            self.found.append(Passage(self.unit, self.events))
            self.events, self.unit = [], None


_BEGINNINGS = {
    b"\xef\xbb\xbf": "utf-8",
    b"\xff\xfe\0\0": "utf-32-le",
    b"\0\0\xfe\xff": "utf-32-be",
    b"\xff\xfe": "utf-16-le",
    b"\xfe\xff": "utf-16-be",
    b"<\0?\0": "utf-16-le",
    b"\0<\0?": "utf-16-be",
}
_NO_ENCODINGS = {"idna", "punycode", "unicode-escape", "unicode_escape", "raw-unicode-escape", "raw_unicode_escape"}


def words(element: Element) -> str:
    """The text of an element as one line, without its inline tags and without the native code inside them."""
    return one_line(_words(element))


def _words(element: Element) -> str:
    parts = [element.text or ""]
    for child in element:
        if child.tag == "cp":  # XLIFF 2's way to write characters that XML has not
            parts.append(_code_point(child.get("hex", "")))
        elif child.tag not in NATIVE:
            parts.append(_words(child))
        parts.append(child.tail or "")
    return "".join(parts)


def _code_point(digits: str) -> str:
    try:
        number = int(digits, 16)
        return "" if 0xD800 <= number < 0xE000 else chr(number)
    except (ValueError, OverflowError):
        return ""


# Languages


def same_language(one: str, other: str) -> bool:
    """`en` is `en-US`, `EN` and `en_GB`; `en-US` is not `en-GB`."""
    first, second = (code.lower().replace("_", "-").split("-") for code in (one, other))
    shared = min(len(first), len(second))
    return first[:shared] == second[:shared]


def pick(variants: list[tuple[str, str]], language: str) -> str | None:
    """The text in a language: of the very code if it is there, else of the first that agrees."""
    place = place_of([code for code, _ in variants], language)
    return None if place is None else variants[place][1]


def place_of(codes: list[str], language: str) -> int | None:
    """Which of the codes is the language: the very same if it is there, else the first that agrees."""
    agreeing = [place for place, code in enumerate(codes) if same_language(code, language)]
    return min(agreeing, key=lambda place: codes[place].lower() != language.lower(), default=None)


# TMX


def read_tmx(
    stream: BinaryIO, name: str, *, languages: tuple[str, str] | None = None, skipped: Counter[str] | None = None
) -> Iterator[Pair]:
    """The pairs of a TMX file: of the two languages asked for, or of its source language and the one other."""
    skipped = Counter() if skipped is None else skipped
    for unit, there, chosen in _tmx_units(stream, name, languages):
        found = (pick(there, chosen[0]), pick(there, chosen[1])) if chosen else (None, None)
        if found[0] is None or found[1] is None:
            skipped["units without both languages"] += 1
        else:
            yield Pair(found[0], found[1], unit.origin)


def tmx_languages(stream: BinaryIO, name: str) -> tuple[str, str] | None:
    """The languages of the first unit that has two."""
    found = (chosen for _, _, chosen in _tmx_units(stream, name, None) if chosen)
    return next(found, None)


def _tmx_units(
    stream: BinaryIO, name: str, languages: tuple[str, str] | None
) -> Iterator[tuple[Unit, list[tuple[str, str]], tuple[str, str] | None]]:
    """Units, their texts by language, and the two languages they are read for, as soon as those are known."""
    chosen, header = languages, ""
    for unit in units(stream, name, root="tmx", wanted={"header", "tu"}):
        if unit.element.tag == "header":
            header = unit.element.get("srclang", "")
            continue
        there = list(variants(unit))
        if languages is None:
            chosen = _default_languages(unit, there, header, chosen)
        yield unit, there, chosen


def variants(unit: Unit) -> Iterator[tuple[str, str]]:
    """The languages of a unit and its text in each."""
    for variant in unit.element.findall("tuv"):
        code = variant.get("xml:lang") or variant.get("lang")
        if not code:
            raise DataError(f"{unit.origin}: a <tuv> has no xml:lang, so its language is not known")
        segment = variant.find("seg")
        if segment is not None:
            yield code, words(segment)


def _default_languages(
    unit: Unit, variants: list[tuple[str, str]], header: str, chosen: tuple[str, str] | None
) -> tuple[str, str] | None:
    """The file's source language and the one other, as soon as a unit has both."""
    codes = list(dict.fromkeys(code for code, _ in variants))
    named = unit.element.get("srclang") or header
    source = chosen[0] if chosen else named if named and named != "*all*" else codes[0] if codes else ""
    others = [code for code in codes if not same_language(code, source)]
    if chosen:
        others = [chosen[1], *(code for code in others if not same_language(code, chosen[1]))]
    if len(others) > 1:
        raise DataError(
            f"{unit.origin}: there are several languages ({', '.join([source, *others])}): say which two, for example "
            f"--languages {source},{others[0]} (in Python languages=({source!r}, {others[0]!r}))"
        )
    return (source, others[0]) if others else None


# XLIFF


def read_xliff(
    stream: BinaryIO, name: str, *, languages: tuple[str, str] | None = None, skipped: Counter[str] | None = None
) -> Iterator[Pair]:
    """The translated units of an XLIFF file, version 1.2 or 2."""
    skipped = Counter() if skipped is None else skipped
    for unit in units(stream, name, root="xliff", wanted={"trans-unit", "segment"}):
        source, target = source_of(unit), translation_of(unit)
        if target is None:
            skipped["untranslated"] += 1
            continue
        pair = Pair(words(source), words(target), unit.origin)
        codes = unit_languages(unit)
        if agree(codes, languages):
            yield pair
        elif languages and agree(codes, (languages[1], languages[0])):
            yield Pair(pair.target, pair.source, pair.origin)
        else:
            skipped["units without both languages"] += 1


def source_of(unit: Unit) -> Element:
    """The source of an XLIFF unit, which must be there."""
    source = unit.element.find("source")
    if source is None:
        raise DataError(f"{unit.origin}: a <{unit.element.tag}> has no <source>")
    return source


def translation_of(unit: Unit) -> Element | None:
    """The target of an XLIFF unit, if it is a translation and no copy of the source."""
    target = unit.element.find("target")
    state = unit.element.get("state") if target is None else target.get("state", unit.element.get("state"))
    return None if target is None or not words(target) or state in UNTRANSLATED else target


def unit_languages(unit: Unit) -> tuple[str, str]:
    """What an XLIFF unit says of its languages; "" where it says nothing."""
    elements = unit.element.find("source"), unit.element.find("target")
    said = ["" if element is None else element.get("xml:lang", "") for element in elements]
    ours, theirs = ("source-language", "srcLang"), ("target-language", "trgLang")
    return said[0] or _inherited(unit, *ours), said[1] or _inherited(unit, *theirs)


def _inherited(unit: Unit, *names: str) -> str:
    for attributes in reversed(unit.around):
        for name in names:
            if attributes.get(name):
                return attributes[name]
    return ""


def agree(codes: tuple[str, str], languages: tuple[str, str] | None) -> bool:
    """A language the file does not name is taken to be the one asked for."""
    return languages is None or all(
        not code or same_language(code, language) for code, language in zip(codes, languages, strict=True)
    )


# PO

_STATEMENT = re.compile(r'(msgctxt|msgid_plural|msgid|msgstr|domain)(?:\[(\d{1,3})\])?\s*(".*")')
_COMMENTS = {"#,": "flags", "#|": "previous"}
_FIELDS = {"msgctxt": "context", "msgid": "id", "msgid_plural": "plural", "msgstr": "0", "domain": "domain"}
_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)", re.DOTALL)
_ESCAPES = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"\\": b"\\", b'"': b'"', b"a": b"\a", b"b": b"\b", b"f": b"\f"}
_ESCAPES[b"v"] = b"\v"


def read_po(stream: BinaryIO, name: str, *, skipped: Counter[str] | None = None) -> Iterator[Pair]:
    """The translated messages of a PO file; fuzzy, obsolete and untranslated ones are left out and counted."""
    skipped = Counter() if skipped is None else skipped
    for entry in po_entries(stream, name, skipped):
        texts = dict(entry.texts)
        source, plural = texts.pop("id"), texts.pop("plural", None)
        context = texts.pop("context", None)
        if not source and context is None:  # the header
            continue
        if "fuzzy" in entry.flags:
            skipped["fuzzy"] += 1
            continue
        if plural is not None and len(texts) == 1:  # a language with one form, so it stands for any number
            source = plural
        for number in sorted(texts, key=int):
            if translation := one_line(texts[number]):
                original = source if number == "0" or plural is None else plural
                yield Pair(one_line(original), translation, entry.origin)
            else:
                skipped["untranslated"] += 1


def po_entries(stream: BinaryIO, name: str, skipped: Counter[str]) -> Iterator[Entry]:
    """The messages of a PO file as they stand, the header among them."""
    texts: dict[str, str] = {}
    flags: set[str] = set()
    rows: dict[str, list[int]] = {}
    field, begin, size = "", Origin(name, 1), 0
    for line, origin in lines(stream, name):
        line = line.strip(" \t\r\f\v")
        statement = _STATEMENT.fullmatch(line)
        begins = line.startswith("#") or (statement is not None and statement[1] in ("msgctxt", "msgid", "domain"))
        if begins and "0" in texts:
            yield Entry(texts, flags, begin, rows)
            texts, flags, rows, field, size = {}, set(), {}, "", 0
        size += len(line)
        if size > streams.MAX_LINE_BYTES:
            raise DataError(
                f"{begin}: one message is longer than {streams.MAX_LINE_BYTES:,} bytes: is the file damaged?"
            )
        if line.startswith("#"):
            flags = _flags(line, flags, skipped)
            if comment := _COMMENTS.get(line[:2]):
                rows.setdefault(comment, []).append(origin.line)
            elif line.startswith("#~"):
                rows = {}
        elif statement is not None:
            field = statement[2] or _FIELDS[statement[1]]
            _check_order(field, texts, origin)
            begin = origin if field == "id" else begin
            texts[field] = _unquote(statement[3], origin)
            rows[field] = [origin.line]
            if field == "domain":
                texts, rows, field = {}, {}, ""
        elif line.startswith('"') and field:
            texts[field] += _unquote(line, origin)
            rows[field].append(origin.line)
        elif line:
            raise DataError(
                f'{origin}: {line[:40]!r} is not PO; a line is a comment, msgid "...", msgstr "..." or "..."'
            )
    if texts and "0" not in texts:
        raise DataError(f"{begin}: the file ends before the msgstr of this message: it is truncated")
    if texts:
        yield Entry(texts, flags, begin, rows)


def _flags(line: str, flags: set[str], skipped: Counter[str]) -> set[str]:
    if line.startswith("#~"):
        if re.match(r"#~\s*msgid\s", line):
            skipped["obsolete"] += 1
        return set()  # flags above an obsolete message are its own
    return flags | {flag.strip() for flag in line[2:].split(",")} if line.startswith("#,") else flags


def _check_order(field: str, texts: dict[str, str], origin: Origin) -> None:
    if field in texts:
        raise DataError(
            f"{origin}: the message has this part twice; each has one msgid and one msgstr (or msgstr[0], ...)"
        )
    if field not in ("context", "id", "domain") and "id" not in texts:
        raise DataError(f"{origin}: a translation without its msgid")


def _unquote(quoted: str, origin: Origin) -> str:
    inside = quoted[1:-1]
    if len(quoted) < 2 or not re.fullmatch(r'(?:[^"\\]|\\.)*', inside, re.DOTALL):
        raise DataError(
            f'{origin}: the string does not end where the line ends; write it as "...", with \\" for a quote'
        )
    if "\\" not in inside:
        return inside
    try:
        return _ESCAPE.sub(_unescape(origin), inside.encode()).decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{origin}: the escapes of this string are not UTF-8") from error


def _unescape(origin: Origin) -> Callable[[re.Match[bytes]], bytes]:
    def replace(match: re.Match[bytes]) -> bytes:
        code = match[1]
        if code in _ESCAPES:
            return _ESCAPES[code]
        if code[:1] == b"x" and len(code) > 1:
            return bytes([int(code[1:], 16)])
        if code[:1].isdigit() and code < b"8" and int(code, 8) < 256:
            return bytes([int(code, 8)])
        raise DataError(f"{origin}: the escape \\{code.decode(errors='replace')} is not known in PO")

    return replace
