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
    """An element with its position in a unit; a comment is an element without a name."""

    name: str
    attributes: dict[str, str]
    start: int
    inside: int
    """Where its start tag ends."""
    close: int = 0
    """Where its end tag starts; the end of an element without one."""
    end: int = 0
    children: list[Element | str] = field(default_factory=list)

    def find(self, name: str) -> Element | None:
        """The first child with a name."""
        return next(self.find_all(name), None)

    def find_all(self, name: str) -> Iterator[Element]:
        """The children with a name."""
        return (child for child in self.children if isinstance(child, Element) and child.name == name)

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
    inherited: dict[str, str]
    """The attributes of the elements around it; inner elements override outer ones."""
    origin: Origin
    prefix: str
    """The namespace prefix of the format, such as `x:`."""

    def text(self, start: int, end: int) -> str:
        """A part of the source text."""
        return self.raw[start:end].decode()

    def indentation(self, element: Element) -> str:
        """The white space before an element, so that a new one can be written below it."""
        before = self.raw[: element.start]
        space = before[len(before.rstrip()) :]
        return space.decode() if before.endswith(b">" + space) else ""

    def edited(self, *edits: tuple[int, int, str], start: int = 0, end: int | None = None) -> str:
        """The source text, or a part of it, with some places (start, end) replaced."""
        parts = []
        for first, after, new in sorted(edits):
            parts += [self.text(start, first), new]
            start = after
        return "".join(parts) + self.text(start, len(self.raw) if end is None else end)


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
            ascii_compatible = b"<".decode(encoding) == "<"
        except (LookupError, UnicodeError):
            ascii_compatible = False
        if not ascii_compatible:
            raise DataError(
                f"{name}:1: the file declares the encoding {encoding}, in which it cannot be read; use UTF-8"
            )

    def parts() -> Iterator[str | Unit]:
        parser = _Parser(name, root, units, tags)
        try:
            for text in codecs.iterdecode(chain([head], iter(partial(stream.read, CHUNK_BYTES), b"")), encoding):
                yield from parser.feed(text.encode())
        except UnicodeError as error:
            raise DataError(f"{name}: after line {parser.line:,} there is text that is not {encoding}") from error
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
        self.expat.EntityDeclHandler = self._refuse_entity
        self.expat.SkippedEntityHandler = self._refuse_entity
        self.buffer, self.base = b"", 0  # the text of the last chunks, and its position in the file
        self.done = 0  # bytes of the buffer that belong to a part
        self.parts: list[str | Unit] = []
        self.ancestors: list[dict[str, str]] = []  # each with the attributes of those around it
        self.open: list[Element] = []  # elements of the unit
        self.prefix = ""
        self.unit_line = 0

    @property
    def line(self) -> int:
        return self.expat.CurrentLineNumber

    @property
    def here(self) -> int:
        """The position of the current event in the part that is being read."""
        return self.expat.CurrentByteIndex - self.base - self.done

    def feed(self, data: bytes, *, final: bool = False) -> list[str | Unit]:
        """Parse the next bytes and return the parts that are complete; broken XML becomes a message with its line."""
        self.buffer, self.base, self.done = self.buffer[self.done :] + data, self.base + self.done, 0
        if final and not self.buffer and not self.base:
            return []  # an empty file
        try:
            self.expat.Parse(data, final)
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code)
            raise DataError(f"{self.name}:{self.expat.ErrorLineNumber}: broken XML: {reason}") from error
        if not self.open:
            self._take_text(len(self.buffer) - self.done if final else self.here)
        if len(self.buffer) - self.done > files.MAX_LINE_BYTES:
            raise DataError(
                f"{self.name}:{self.line}: one unit is longer than {files.MAX_LINE_BYTES:,} bytes: is the file damaged?"
            )
        parts, self.parts = self.parts, []
        return parts

    @property
    def _inherited(self) -> dict[str, str]:
        return self.ancestors[-1] if self.ancestors else {}

    def _take(self, end: int) -> bytes:
        """The text of the part up to a position."""
        raw = self.buffer[self.done : self.done + end]
        self.done += end
        return raw

    def _take_text(self, end: int) -> None:
        if end > 0:
            self.parts.append(self._take(end).decode())

    def _add_unit(self, element: Element) -> None:
        origin = Origin(self.name, self.unit_line)
        self.parts.append(Unit(element, self._take(element.end), self._inherited, origin, self.prefix))

    def _element(self, name: str, attributes: dict[str, str]) -> Element:
        """The element that starts here."""
        start = self.here
        tag = START_TAG.match(self.buffer, self.done + start)
        assert tag is not None
        return Element(name, attributes, start, tag.end() - self.done)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if not self.ancestors:
            prefix, _, plain = name.rpartition(":")
            if plain != self.root:
                raise DataError(
                    f"{self.name}:{self.line}: the outermost element is <{name}>, and <{self.root}> is needed"
                )
            self.prefix = f"{prefix}:" if prefix else ""
        name = name.removeprefix(self.prefix)  # elements of another namespace keep their prefix
        if self.open:
            element = self._element(name, attributes)
            self.open[-1].children.append(element)
            self.open.append(element)
            if len(self.open) > MAX_DEPTH:
                raise DataError(
                    f"{self.name}:{self.line}: elements are nested more than {MAX_DEPTH} deep: is the file damaged?"
                )
            return
        if name in self.units or name in self.tags:
            self._take_text(self.here)
            self.unit_line = self.line
        if name in self.units:
            self.open.append(self._element(name, attributes))
            return
        if name in self.tags:
            element = self._element(name, attributes)
            element.end = element.inside
            self._add_unit(element)
        self.ancestors.append({**self._inherited, **attributes})

    def _end(self, name: str) -> None:
        if not self.open:
            self.ancestors.pop()
            return
        element = self.open.pop()
        element.close = element.end = self.here
        if not self.buffer.endswith(b"/>", 0, self.done + element.inside):
            element.end = self.buffer.index(b">", self.done + element.close) + 1 - self.done
        if not self.open:
            self._add_unit(element)

    def _data(self, text: str) -> None:
        if self.open:
            self.open[-1].children.append(text)

    def _comment(self, end: bytes, *_: str) -> None:
        if self.open:
            close = self.buffer.index(end, self.done + self.here) + len(end) - self.done
            self.open[-1].children.append(Element("", {}, self.here, close, close, close))

    def _refuse_entity(self, name: str, *_: object) -> None:
        raise DataError(
            f"{self.name}:{self.line}: the entity {name} is declared in the file or outside it, and such entities are "
            "never expanded; write the text itself"
        )


def with_attributes(tag: str, values: Mapping[str, str | None]) -> str:
    """A start tag with some attributes set, or removed where the value is None, and the others unchanged."""
    for name, value in values.items():
        old = re.search(rf"""\s{name}\s*=\s*("[^"]*"|'[^']*')""", tag)
        if value is None:
            tag = tag if old is None else tag[: old.start()] + tag[old.end() :]
        elif old is not None:
            tag = tag[: old.start(1)] + quoteattr(value) + tag[old.end(1) :]
        else:
            end = len(tag) - (2 if tag.endswith("/>") else 1)
            tag = f"{tag[:end].rstrip()} {name}={quoteattr(value)}{tag[end:]}"
    return tag


def write_pieces(pieces: Sequence[Piece]) -> str:
    """Words and tags as XML."""
    return "".join(escape(piece) if isinstance(piece, str) else piece.raw for piece in pieces)


def read_pieces(unit: Unit, element: Element) -> Iterator[Piece]:
    """The words and tags inside an element; a CDATA section is text."""
    text = ""
    children = iter([*element.children, None])
    for child in children:
        if isinstance(child, str):
            text += child
            continue
        for piece in split_tags(text):
            yield piece if isinstance(piece, str) else piece._replace(raw=escape(piece.raw))
        text = ""
        if child is not None and child.name == "sm" and child.attributes.get("translate") == "no":
            end = next((other for other in children if _ends(other, child)), None)
            yield Tag(unit.text(child.start, end.end if isinstance(end, Element) else element.close))
        elif child is not None:
            yield from _element_pieces(unit, child)


def _ends(child: Element | str | None, start: Element) -> bool:
    """Whether a child is the <em> that ends an <sm>."""
    return isinstance(child, Element) and child.attributes.get("startRef") == start.attributes.get("id")


def _element_pieces(unit: Unit, element: Element) -> Iterator[Piece]:
    """An element as one tag, or as a pair of tags around its content."""
    name, attributes, start, end = element.name, element.attributes, element.start, element.end
    protected = attributes.get("mtype") == "protected" or attributes.get("translate") == "no"
    if keys := OPENING.get(name) or CLOSING.get(name):
        key = next((attributes[key] for key in keys if key in attributes), "")
        side: Literal["open", "close"] = "open" if name in OPENING else "close"
        yield Tag(unit.text(start, end), side, f"{PARTNERS.get(name, name)} {key}")
    elif not name or name in PLACEHOLDERS or protected or element.close == end:
        yield Tag(unit.text(start, end))
    else:
        yield Tag(unit.text(start, element.inside), "open", f"<{name}")
        yield from read_pieces(unit, element)
        yield Tag(unit.text(element.close, end), "close", f"<{name}")
