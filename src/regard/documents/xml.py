"""XML: the units of a TMX or XLIFF file one by one in constant memory, with their exact source text."""

from __future__ import annotations

import codecs
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import BinaryIO, Literal, NamedTuple
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from regard.documents.inline import Piece, Tag, split_tags
from regard.errors import DataError
from regard.text import files
from regard.text.files import Origin, one_line

MAX_DEPTH = 100  # nested elements; more is an attack, not a translation
HEAD_BYTES = 1024  # read to find the encoding of a file
CHUNK_BYTES = 2**16

BYTE_ORDER_MARKS = {
    b"\xef\xbb\xbf": "utf-8",
    b"\xff\xfe": "utf-16-le",
    b"\xfe\xff": "utf-16-be",
    b"<\0?\0": "utf-16-le",
    b"\0<\0?": "utf-16-be",
}
START_TAG = re.compile(rb"<[^>\"']*+(?:(?:\"[^\"]*\"|'[^']*')[^>\"']*+)*+>")

NATIVE_CODE = {"bpt", "ept", "it", "ph", "ut"}  # elements that hold code of another format, not words
PLACEHOLDERS = {"x", "ph", "it", "ut", "cp", "sub"}  # elements with nothing inside to translate
# Elements that stand for the opening or the closing tag of a pair, and the attributes that connect the two.
OPENING = {"bpt": ("rid", "id", "i"), "bx": ("rid", "id"), "sc": ("id",), "sm": ("id",)}
CLOSING = {"ept": ("rid", "id", "i"), "ex": ("rid", "id"), "ec": ("startRef", "id"), "em": ("startRef",)}
PARTNERS = {"ept": "bpt", "ex": "bx", "ec": "sc", "em": "sm"}


@dataclass(slots=True)
class Element:
    """An element with its positions in the file; a comment is an element without a name."""

    name: str
    attributes: dict[str, str]
    start: int
    inside: int  # where its start tag ends
    close: int = 0  # where its end tag starts; the end of an element without one
    end: int = 0
    children: list[Element | str] = field(default_factory=list)

    def find(self, name: str) -> Element | None:
        """The first child with a name."""
        return next((child for child in self.children if isinstance(child, Element) and child.name == name), None)

    @property
    def text(self) -> str:
        """The text as one line, without inline tags and the native code inside them."""
        return one_line(self._words())

    def _words(self) -> str:
        words = (child if isinstance(child, str) else child._words() for child in self.children)
        return "" if self.name in NATIVE_CODE else "".join(words)


class Unit(NamedTuple):
    """An element with its source text; or a start tag alone."""

    element: Element
    raw: bytes
    attributes: dict[str, str]  # of the elements around it; inner elements override outer ones
    origin: Origin
    prefix: str  # of the namespace, with its colon, if all elements of the file have one, as in <x:source>

    def text(self, start: int, end: int) -> str:
        """The source text between two positions in the file."""
        return self.raw[start - self.element.start : end - self.element.start].decode()

    def indentation(self, element: Element) -> str:
        """The white space before an element, so that a new one can be written below it."""
        before = self.text(self.element.start, element.start)
        space = before[len(before.rstrip()) :]
        return space if before.endswith(f">{space}") else ""

    def edited(self, *edits: tuple[int, int, str], start: int | None = None, end: int | None = None) -> str:
        """The source text, or a part of it, with some places (start, end) replaced."""
        parts, start = [], self.element.start if start is None else start
        for first, after, new in sorted(edits):
            parts += [self.text(start, first), new]
            start = after
        return "".join(parts) + self.text(start, self.element.end if end is None else end)


def read_xml(
    stream: BinaryIO, name: str, *, root: str, units: Collection[str], tags: Collection[str]
) -> tuple[str, Iterator[str | Unit]]:
    """The encoding of a file, its `units` and the start tags named in `tags`, and the text between them.

    Declared entities are refused and nothing is fetched. A byte order mark stays part of the text.
    """
    head = stream.read(HEAD_BYTES)
    encoding = next((encoding for mark, encoding in BYTE_ORDER_MARKS.items() if head.startswith(mark)), "")
    if not encoding:
        declared = re.match(rb"""<\?xml[^>]*?\sencoding\s*=\s*["']([\w.:-]+)["']""", head)
        encoding = declared[1].decode().lower() if declared else "utf-8"
        try:
            is_ascii_compatible = b"<".decode(encoding) == "<"
        except (LookupError, UnicodeError):
            is_ascii_compatible = False
        if not is_ascii_compatible:
            raise DataError(
                f"{name}:1: the file declares the encoding {encoding}, in which it cannot be read; use UTF-8"
            )

    def parts() -> Iterator[str | Unit]:
        parser = _Parser(name, root, units, tags)
        try:
            for text in codecs.iterdecode(chain([head], iter(partial(stream.read, CHUNK_BYTES), b"")), encoding):
                yield from parser.feed(text.encode())
        except UnicodeError as error:
            line = parser.expat.CurrentLineNumber
            raise DataError(f"{name}: after line {line:,} there is text that is not {encoding}") from error
        yield from parser.feed(b"", final=True)

    return encoding, parts()


class _Parser:
    """Feeds expat, builds a tree of each unit, and keeps the text around them."""

    def __init__(self, name: str, root: str, units: Collection[str], tags: Collection[str]) -> None:
        self.name, self.root, self.units, self.tags = name, root, units, tags
        self.expat = expat.ParserCreate("utf-8")  # the text is decoded before, whatever the file declares
        self.expat.buffer_text = True
        self.expat.StartElementHandler = self._start
        self.expat.EndElementHandler = self._end
        self.expat.CharacterDataHandler = self._data
        self.expat.CommentHandler = partial(self._comment, b"-->")
        self.expat.ProcessingInstructionHandler = partial(self._comment, b"?>")
        self.expat.EntityDeclHandler = self.expat.SkippedEntityHandler = self._refuse_entity
        self.buffer, self.base = b"", 0  # the text of the last chunks, and its position in the file
        self.done = 0  # the end of the last part
        self.parts: list[str | Unit] = []
        self.ancestors: list[dict[str, str]] = [{}]  # each with the attributes of those around it
        self.open: list[Element] = []  # elements of the unit
        self.origin = Origin(name, 1)  # of the unit
        self.prefix = ""  # of the namespace of the outermost element

    def feed(self, data: bytes, *, final: bool = False) -> list[str | Unit]:
        """Parse the next bytes and return the parts that are complete; broken XML becomes a message with its line."""
        self.buffer, self.base = self.buffer[self.done - self.base :] + data, self.done
        if final and not self.buffer and not self.base:
            return []  # an empty file
        try:
            self.expat.Parse(data, final)
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code)
            raise DataError(f"{self.name}:{self.expat.ErrorLineNumber}: broken XML: {reason}") from error
        if not self.open:
            self._take(self.base + len(self.buffer) if final else self.expat.CurrentByteIndex)
        if self.base + len(self.buffer) - self.done > files.MAX_LINE_BYTES:
            raise self._error(f"one unit is longer than {files.MAX_LINE_BYTES:,} bytes: is the file damaged?")
        parts, self.parts = self.parts, []
        return parts

    def _error(self, problem: str) -> DataError:
        return DataError(f"{self.name}:{self.expat.CurrentLineNumber}: {problem}")

    def _take(self, end: int, element: Element | None = None) -> None:
        """Add the next part, up to a position: a unit, or the text before one."""
        # In a long token expat 2.6 and later report the position -1.
        raw = self.buffer[self.done - self.base : max(end - self.base, 0)]
        if element is not None:
            self.parts.append(Unit(element, raw, self.ancestors[-1], self.origin, self.prefix))
        elif raw:
            self.parts.append(raw.decode())
        self.done = max(self.done, end)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self.ancestors) == 1:
            self.prefix = name.removesuffix(self.root)
            if self.prefix and not self.prefix.endswith(":"):
                raise self._error(f"the outermost element is <{name}>, and <{self.root}> is needed")
        name = name.removeprefix(self.prefix)  # elements of other namespaces keep their prefix
        start = self.expat.CurrentByteIndex
        if self.open or name in self.units or name in self.tags:
            tag = START_TAG.match(self.buffer, start - self.base)
            assert tag is not None
            element = Element(name, attributes, start, self.base + tag.end())
            if not self.open:
                self._take(start)
                self.origin = Origin(self.name, self.expat.CurrentLineNumber)
        if self.open or name in self.units:
            if self.open:
                self.open[-1].children.append(element)
            self.open.append(element)
            if len(self.open) > MAX_DEPTH:
                raise self._error(f"elements are nested more than {MAX_DEPTH} deep: is the file damaged?")
            return
        if name in self.tags:
            element.end = element.inside
            self._take(element.end, element)
        self.ancestors.append({**self.ancestors[-1], **attributes})

    def _end(self, name: str) -> None:
        if not self.open:
            self.ancestors.pop()
            return
        element = self.open.pop()
        element.close = element.end = self.expat.CurrentByteIndex
        if not self.buffer.endswith(b"/>", 0, element.inside - self.base):
            element.end = self.base + self.buffer.index(b">", element.close - self.base) + 1
        if not self.open:
            self._take(element.end, element)

    def _data(self, text: str) -> None:
        if self.open:
            children = self.open[-1].children
            if children and isinstance(children[-1], str):  # expat may pass a text in parts
                children[-1] += text
            else:
                children.append(text)

    def _comment(self, end: bytes, *_: str) -> None:
        if self.open:
            start = self.expat.CurrentByteIndex
            close = self.base + self.buffer.index(end, start - self.base) + len(end)
            self.open[-1].children.append(Element("", {}, start, close, close, close))

    def _refuse_entity(self, name: str, *_: object) -> None:
        raise self._error(
            f"the entity {name} is declared in the file or outside it, and such entities are never expanded; write the "
            "text itself"
        )


def with_attributes(tag: str, values: Mapping[str, str | None]) -> str:
    """A start tag with some attributes set, or removed where the value is None, and the others unchanged."""
    for name, value in values.items():
        new = "" if value is None else f"{name}={quoteattr(value)}"
        old = re.search(rf"""(\s){name}\s*=\s*("[^"]*"|'[^']*')""", tag)
        if old is not None:
            tag = tag[: old.start()] + (old[1] + new if new else "") + tag[old.end() :]
        elif new:
            tag = re.sub(r"\s*(/?>)$", lambda end: f" {new}{end[1]}", tag)  # noqa: B023 - called at once
    return tag


def write_pieces(pieces: Sequence[Piece]) -> str:
    """Words and tags as XML."""
    return "".join(escape(piece) if isinstance(piece, str) else piece.raw for piece in pieces)


def split_text(text: str) -> list[Piece]:
    """Words and placeholders, which are escaped as tags are."""
    pieces = split_tags(text)
    return [piece if isinstance(piece, str) else piece._replace(raw=escape(piece.raw)) for piece in pieces]


def read_pieces(unit: Unit, element: Element) -> Iterator[Piece]:
    """The words and tags inside an element: an element inside is one tag, or a pair of tags around its content."""
    children = iter(element.children)
    for child in children:
        if isinstance(child, str):
            yield from split_text(child)
            continue
        name, attributes, start, end = child.name, child.attributes, child.start, child.end
        protected = attributes.get("mtype") == "protected" or attributes.get("translate") == "no"
        if name == "sm" and protected:  # one tag with all up to its <em>, which `others` takes from `children`
            reference = attributes.get("id")
            others = (other for other in children if isinstance(other, Element))
            ends = (other.end for other in others if other.attributes.get("startRef") == reference)
            yield Tag(unit.text(start, next(ends, element.close)))
        elif keys := OPENING.get(name) or CLOSING.get(name):
            key = next((attributes[key] for key in keys if key in attributes), "")
            side: Literal["open", "close"] = "open" if name in OPENING else "close"
            yield Tag(unit.text(start, end), side, f"{PARTNERS.get(name, name)} {key}")
        elif not name or name in PLACEHOLDERS or protected or child.close == end:
            yield Tag(unit.text(start, end))
        else:
            yield Tag(unit.text(start, child.inside), "open", f"<{name}")
            yield from read_pieces(unit, child)
            yield Tag(unit.text(child.close, end), "close", f"<{name}")
