"""XML: read the units of a TMX or XLIFF file one by one in constant memory, with their exact source text."""

from __future__ import annotations

import codecs
import re
from collections.abc import Collection, Iterator, Sequence
from typing import BinaryIO, Literal, NamedTuple
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from regard.documents.inline import Piece, Tag, join_pieces, split_tags
from regard.errors import DataError
from regard.text import files
from regard.text.files import Origin, one_line, peek_until

MAX_DEPTH = 100  # nested elements; more is an attack, not a translation
HEAD_BYTES = 1024  # that tell the encoding of a file
CHUNK_BYTES = 2**16
NATIVE_CODE = {"bpt", "ept", "it", "ph", "ut"}  # elements that hold code of another format, not words

BYTE_ORDER_MARKS = {
    b"\xef\xbb\xbf": "utf-8",
    b"\xff\xfe\0\0": "utf-32-le",
    b"\0\0\xfe\xff": "utf-32-be",
    b"\xff\xfe": "utf-16-le",
    b"\xfe\xff": "utf-16-be",
    b"<\0?\0": "utf-16-le",
    b"\0<\0?": "utf-16-be",
}
NO_TEXT_ENCODINGS = {"idna", "punycode", "unicode-escape", "unicode_escape", "raw-unicode-escape", "raw_unicode_escape"}
TAG_BYTES = re.compile(rb"<(?:[^>\"']|\"[^\"]*\"|'[^']*')*>")


class Unit(NamedTuple):
    """One element with its source text, and the attributes of its ancestors."""

    element: Element
    raw: bytes
    ancestors: list[dict[str, str]]
    origin: Origin
    prefix: str
    """The namespace prefix of the format, such as `x:`."""


class OuterTag(NamedTuple):
    """The start tag of an element around units."""

    name: str
    attributes: dict[str, str]
    raw: str


def read_units(stream: BinaryIO, name: str, *, root: str, wanted: Collection[str]) -> Iterator[Unit]:
    """The wanted elements of a file; declared entities are refused and nothing is fetched."""
    encoding, whole = open_xml(stream, name)
    return (part for part in read_parts(whole, name, encoding, root=root, wanted=wanted) if isinstance(part, Unit))


def open_xml(stream: BinaryIO, name: str) -> tuple[str, BinaryIO]:
    """The encoding of a file and the file from its beginning; a byte order mark stays part of the text."""
    head, whole = peek_until(stream, lambda head: len(head) >= HEAD_BYTES)
    for mark, encoding in BYTE_ORDER_MARKS.items():
        if head.startswith(mark):
            return encoding, whole
    declared = re.match(rb"""<\?xml[^>]*?\sencoding\s*=\s*["']([\w.:-]+)["']""", head)
    encoding = declared[1].decode().lower() if declared else "utf-8"
    try:
        "".encode(encoding)
        known = codecs.lookup(encoding).name
    except (LookupError, ValueError):
        known = ""
    if known.startswith(("utf-16", "utf-32")):
        raise DataError(f"{name}:1: the file declares the encoding {encoding}, and it is not {encoding}")
    if not known or known in NO_TEXT_ENCODINGS:
        raise DataError(f"{name}:1: the encoding {encoding} is not known; use UTF-8")
    return encoding, whole


def read_parts(
    stream: BinaryIO,
    name: str,
    encoding: str,
    *,
    root: str,
    wanted: Collection[str],
    outer: Collection[str] = (),
) -> Iterator[str | OuterTag | Unit]:
    """All of a file in order: wanted elements as units, start tags named in `outer`, and the text between them."""
    parser = _Parser(name, root, wanted, outer)
    decoder = codecs.getincrementaldecoder(encoding)()
    final = False
    while not final:
        chunk = stream.read(CHUNK_BYTES)
        final = not chunk
        try:
            data = decoder.decode(chunk, final).encode()
        except UnicodeError as error:
            raise DataError(f"{name}: after line {parser.line:,} there is text that is not {encoding}") from error
        parser.feed(data, final=final)
        yield from parser.take_parts()


class _Parser:
    """Feeds expat, builds a tree of each wanted element, and keeps the text around them."""

    def __init__(self, name: str, root: str, wanted: Collection[str], outer: Collection[str]) -> None:
        self.name, self.root, self.wanted, self.outer = name, root, wanted, outer
        self.expat = expat.ParserCreate("utf-8")  # the text is decoded before, whatever the file declares
        self.expat.buffer_text = True
        self.expat.StartElementHandler = self._start
        self.expat.EndElementHandler = self._end
        self.expat.CharacterDataHandler = self._data
        self.expat.EntityDeclHandler = self._refuse_entity
        self.expat.SkippedEntityHandler = self._refuse_entity
        self.buffer, self.base = b"", 0  # the text of the last chunks, and where in the file it begins
        self.position = 0  # in the file: all text before it belongs to a part
        self.parts: list[str | OuterTag | Unit] = []
        self.ancestors: list[dict[str, str]] = []
        self.prefix = ""
        self.depth = self.unit_depth = self.unit_line = 0
        self.builder: TreeBuilder | None = None

    @property
    def line(self) -> int:
        return self.expat.CurrentLineNumber

    def feed(self, data: bytes, *, final: bool) -> None:
        """Parse the next bytes; broken XML becomes a message with its line."""
        self.buffer, self.base = self.buffer[self.position - self.base :] + data, self.position
        if final and not self.buffer and not self.position:
            return
        try:
            self.expat.Parse(data, final)
        except (expat.ExpatError, ValueError, LookupError) as error:
            if isinstance(error, DataError):
                raise
            reason = expat.ErrorString(error.code) if isinstance(error, expat.ExpatError) else str(error)
            raise DataError(f"{self.name}:{self.expat.ErrorLineNumber}: broken XML: {reason}") from error
        end = self.base + len(self.buffer)
        begin = self.position if self.builder else self.expat.CurrentByteIndex
        if not final and end - begin > files.MAX_LINE_BYTES + CHUNK_BYTES:
            raise DataError(
                f"{self.name}:{self.line}: one unit is longer than {files.MAX_LINE_BYTES:,} bytes: is the file damaged?"
            )
        if final:
            self._take_text(end)

    def take_parts(self) -> list[str | OuterTag | Unit]:
        """The parts that are complete."""
        parts, self.parts = self.parts, []
        return parts

    def _take(self, end: int) -> bytes:
        """The text up to a position in the file."""
        raw, self.position = self.buffer[self.position - self.base : end - self.base], end
        return raw

    def _take_text(self, end: int) -> None:
        if end > self.position:
            self.parts.append(self._take(end).decode())

    def _tag_end(self) -> int:
        """Where the tag of the current event ends."""
        begin = self.expat.CurrentByteIndex
        tag = TAG_BYTES.match(self.buffer, begin - self.base)
        return begin if tag is None else self.base + tag.end()

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if not self.depth:
            prefix, _, plain = name.rpartition(":")
            if plain != self.root:
                raise DataError(
                    f"{self.name}:{self.line}: the outermost element is <{name}>, and <{self.root}> is needed"
                )
            self.prefix = f"{prefix}:" if prefix else ""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise DataError(
                f"{self.name}:{self.line}: elements are nested more than {MAX_DEPTH} deep: is the file damaged?"
            )
        name = name.removeprefix(self.prefix)  # elements of another namespace keep their prefix
        if self.builder is None:
            begin = self.expat.CurrentByteIndex
            if name in self.wanted or name in self.outer or begin - self.position > CHUNK_BYTES:
                self._take_text(begin)
            if name in self.wanted:
                self.builder, self.unit_depth, self.unit_line = TreeBuilder(), self.depth, self.line
            elif name in self.outer:
                self.parts.append(OuterTag(name, attributes, self._take(self._tag_end()).decode()))
        if self.builder is None:
            self.ancestors.append(attributes)
        else:
            self.builder.start(name, attributes)

    def _end(self, name: str) -> None:
        if self.builder is None:
            self.ancestors.pop()
        else:
            self.builder.end(name.removeprefix(self.prefix))
            if self.depth == self.unit_depth:
                origin = Origin(self.name, self.unit_line)
                raw = self._take(self._tag_end())
                self.parts.append(Unit(self.builder.close(), raw, list(self.ancestors), origin, self.prefix))
                self.builder = None
        self.depth -= 1

    def _data(self, text: str) -> None:
        if self.builder is not None:
            self.builder.data(text)

    def _refuse_entity(self, name: str, *_: object) -> None:
        raise DataError(
            f"{self.name}:{self.line}: the entity {name} is declared in the file or outside it, and such entities are "
            "never expanded; write the text itself"
        )


def element_text(element: Element) -> str:
    """The text of an element as one line, without inline tags and the native code inside them."""
    return one_line(_text(element))


def _text(element: Element) -> str:
    parts = [element.text or ""]
    for child in element:
        if child.tag == "cp":  # a character that XML cannot hold (XLIFF 2)
            parts.append(_code_point(child.get("hex", "")))
        elif child.tag not in NATIVE_CODE:
            parts.append(_text(child))
        parts.append(child.tail or "")
    return "".join(parts)


def _code_point(digits: str) -> str:
    try:
        number = int(digits, 16)
        return "" if 0xD800 <= number < 0xE000 else chr(number)
    except (ValueError, OverflowError):
        return ""


# The text of a unit, token by token.

TOKEN = re.compile(
    r"<!\[CDATA\[(?P<cdata>.*?)\]\]>|<(?:!--.*?--|\?.*?\?)>|</(?P<end>[^\s>]+)\s*>"
    r"|<(?P<start>[^\s/>]+)(?P<attributes>(?:[^>\"']|\"[^\"]*\"|'[^']*')*?)(?P<empty>/?)>|(?P<text>[^<]+)",
    re.DOTALL,
)
ATTRIBUTE = re.compile(r"([^\s=]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")
REFERENCE = re.compile(r"&(?:#x([0-9a-fA-F]+)|#(\d+)|(lt|gt|amp|quot|apos));")
NAMED_REFERENCES = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}

PLACEHOLDERS = {"x", "ph", "it", "ut", "cp", "sub"}  # elements with nothing inside to translate
OPENING = {"bpt": ("rid", "id", "i"), "bx": ("rid", "id"), "sc": ("id",), "sm": ("id",)}  # and these come in pairs
CLOSING = {"ept": ("rid", "id", "i"), "ex": ("rid", "id"), "ec": ("startRef", "id"), "em": ("startRef",)}
PARTNERS = {"ept": "bpt", "ex": "bx", "ec": "sc", "em": "sm"}


class Token(NamedTuple):
    """A piece of well-formed XML; all `raw` together are the text. An empty element is a start and an end."""

    kind: Literal["start", "end", "text", "cdata", "comment"]
    raw: str
    name: str = ""
    text: str = ""
    attributes: dict[str, str] = {}  # noqa: RUF012 - never changed


def tokenize(unit: Unit) -> list[Token]:
    """The tokens of a unit."""
    tokens = []
    for match in TOKEN.finditer(unit.raw.decode()):
        raw = match[0]
        if match["start"]:
            pairs = ((key, one or other) for key, one, other in ATTRIBUTE.findall(match["attributes"]))
            attributes = {key: _unescape(value) for key, value in pairs}
            name = match["start"].removeprefix(unit.prefix)
            tokens.append(Token("start", raw, name, attributes=attributes))
            tokens += [Token("end", "", name)] * bool(match["empty"])
        elif match["end"]:
            tokens.append(Token("end", raw, match["end"].removeprefix(unit.prefix)))
        elif match["text"]:
            tokens.append(Token("text", raw, text=_unescape(raw)))
        elif match["cdata"] is not None:
            tokens.append(Token("cdata", raw, text=match["cdata"]))
        else:
            tokens.append(Token("comment", raw))
    return tokens


def _unescape(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        code, number, name = match.groups()
        return NAMED_REFERENCES[name] if name else chr(int(code, 16) if code else int(number))

    return REFERENCE.sub(character, text) if "&" in text else text


def raw_text(tokens: Sequence[Token]) -> str:
    """Tokens as they are written."""
    return "".join(token.raw for token in tokens)


def element_end(tokens: Sequence[Token], start: int) -> int:
    """The index of the end tag that belongs to a start tag."""
    depth = 0
    for i in range(start, len(tokens)):
        depth += {"start": 1, "end": -1}.get(tokens[i].kind, 0)
        if not depth:
            return i
    raise AssertionError("every element of well-formed XML has an end")


def find_children(tokens: Sequence[Token], name: str, start: int = 0) -> list[tuple[int, int]]:
    """The first and last token of each child with a name, of the element that begins at `start`."""
    children, i, last = [], start + 1, element_end(tokens, start)
    while i < last:
        end = element_end(tokens, i) if tokens[i].kind == "start" else i
        if tokens[i].kind == "start" and tokens[i].name == name:
            children.append((i, end))
        i = end + 1
    return children


def indentation(tokens: Sequence[Token], start: int) -> str:
    """The white space before an element, so that a new one can be written below it; "" after other text."""
    before = tokens[start - 1]
    return before.raw if before.kind == "text" and before.raw.isspace() else ""


def with_attributes(tag: str, **values: str) -> str:
    """A start tag with some attributes set and the others unchanged; `_` in a name means `-`."""
    for key, value in values.items():
        name = key.replace("_", "-")
        old = re.search(rf"""\s{name}\s*=\s*("[^"]*"|'[^']*')""", tag)
        if old is not None:
            tag = tag[: old.start(1)] + quoteattr(value) + tag[old.end(1) :]
        else:
            end = len(tag) - (2 if tag.endswith("/>") else 1)
            tag = f"{tag[:end].rstrip()} {name}={quoteattr(value)}{tag[end:]}"
    return tag


class Content(NamedTuple):
    """The words and tags inside an element, and whether they are one CDATA section."""

    pieces: list[Piece]
    cdata: bool

    def write(self, pieces: Sequence[Piece]) -> str:
        """A translation as the XML inside an element."""
        if self.cdata:
            text = join_pieces(pieces)
            return f"<![CDATA[{text}]]>" if "]]>" not in text else escape(text)
        return "".join(escape(piece) if isinstance(piece, str) else piece.raw for piece in pieces)


def parse_content(tokens: Sequence[Token]) -> Content:
    """Split the tokens inside an element into words and tags."""
    if len(tokens) == 1 and tokens[0].kind == "cdata":
        return Content(split_tags(tokens[0].text), cdata=True)
    pieces: list[Piece] = []
    text = ""
    i = 0
    while i < len(tokens):
        token, end = tokens[i], i
        if token.kind in ("text", "cdata"):
            text += token.text
        else:
            pieces += _escaped_tags(text)
            text = ""
            if token.kind == "start":
                end = element_end(tokens, i)
            tag = Tag(token.raw) if token.kind == "comment" else _element_tag(token, raw_text(tokens[i : end + 1]))
            pieces.append(tag)
            end = i if tag.element else end
        i = end + 1
    return Content([*pieces, *_escaped_tags(text)], cdata=False)


def _escaped_tags(text: str) -> Iterator[Piece]:
    for piece in split_tags(text):
        yield piece if isinstance(piece, str) else piece._replace(raw=escape(piece.raw))


def _element_tag(token: Token, whole: str) -> Tag:
    """An element as one tag, or its start or end tag as one of a pair."""
    name, attributes = token.name, token.attributes
    if token.kind == "end":
        return Tag(token.raw, "close", name, element=True)
    if keys := OPENING.get(name) or CLOSING.get(name):
        key = next((attributes[key] for key in keys if key in attributes), "")
        return Tag(whole, "open" if name in OPENING else "close", f"{PARTNERS.get(name, name)} {key}")
    protected = attributes.get("mtype") == "protected" or attributes.get("translate") == "no"
    if name in PLACEHOLDERS or protected or whole == token.raw:  # the last is an empty element
        return Tag(whole)
    return Tag(token.raw, "open", name, element=True)
