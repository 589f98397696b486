"""Documents: TMX, XLIFF and PO files translated in place, with every tag and placeholder kept."""

from __future__ import annotations

import io
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol, cast
from xml.sax.saxutils import escape, quoteattr

from regard.documents import markup
from regard.documents.formats import format_of
from regard.documents.inline import Bare, Mark, Piece, find, is_tagged, put_back, take_out, written
from regard.documents.markup import Event, Passage
from regard.errors import DataError, InputError
from regard.folders import atomic_file
from regard.text.alignments import Link
from regard.text.files import display_name, one_line, open_text, peek_until, uncompressed_name
from regard.text.ordering import READ_AHEAD_CHARACTERS, READ_AHEAD_TEXTS, read_ahead
from regard.text.sentences import text_problem

if TYPE_CHECKING:
    from regard.decoding.glossary import Term
    from regard.translation.translator import Result, Translator

TOLD = 20  # problems that are named one by one
HEAD = 1024  # bytes that say how an XML file is encoded


class Linked(Protocol):
    """A translation, its links, and what became of the terms of a glossary."""

    @property
    def text(self) -> str: ...
    @property
    def alignment(self) -> Sequence[Link] | None: ...
    @property
    def terms(self) -> Sequence[Term]: ...


Translate = Callable[[Sequence[str]], Sequence[Linked]]
"""Texts in, translations out: `functools.partial(translator.translate, align=True)`."""

Progress = Callable[[str, int, int | None], None]


@dataclass
class Told:
    """Problems, and the lines or texts they are in: the first few and how many; a file may have no others."""

    count: int = 0
    first: list[tuple[int | str, str]] = field(default_factory=list)

    def add(self, where: int | str, what: str) -> None:
        self.count += 1
        self.first += [(where, what)] * (len(self.first) < TOLD)


@dataclass
class Outcome:
    """What was done with a document."""

    translated: int = 0
    """Segments; of a PO file, messages."""
    kept: int = 0
    """Those that had a translation."""
    skipped: Counter[str] = field(default_factory=Counter)
    unaligned: int = 0
    """Texts whose tags were put back in proportion, because the model has no alignment."""
    failed: Told = field(default_factory=Told)
    """What is no text, by its line; in a document it stays as it was, and counts as skipped."""
    split: int = 0
    """Texts with a sentence too long to be read at once."""
    terms: Counter[str] = field(default_factory=Counter)
    """What became of the terms of a glossary,"""
    missing: Told = field(default_factory=Told)
    """and those that found no place, by their line or, in a document, their text."""


class Gap(NamedTuple):
    """A place in a document to be filled: what to translate, and how to write it."""

    segments: list[list[Piece]]
    write: Callable[[list[list[Piece]]], str]


# Texts with tags.


def translate_pieces(texts: Sequence[Sequence[Piece]], translate: Translate, outcome: Outcome) -> list[list[Piece]]:
    """Translations of texts with marks in them; what has no words stays as it is."""
    bare = [take_out(pieces) for pieces in texts]
    wanted = list(dict.fromkeys(one_line(each.text) for each in bare if each.has_words))
    results = dict(zip(wanted, translate(wanted) if wanted else [], strict=True))
    found = []
    for pieces, each in zip(texts, bare, strict=True):
        if each.has_words:
            text = one_line(each.text)
            count_terms(text, results[text], outcome)
            found.append(_whole(each, results[text], outcome))
        else:
            found.append(list(pieces))
    return found


def count_terms(where: int | str, result: Linked, outcome: Outcome) -> None:
    """What became of the terms in a line or a text."""
    for term in result.terms:
        outcome.terms[term.status] += 1
        if term.status == "missing":
            outcome.missing.add(where, term.source)


def _whole(bare: Bare, result: Linked, outcome: Outcome) -> list[Piece]:
    outcome.unaligned += bool(bare.marks) and result.alignment is None
    return put_back(bare, result.text.strip(), result.alignment)


def stream(
    translator: Translator,
    texts: Iterable[str],
    *,
    outcome: Outcome,
    always: bool,
    lines: int = READ_AHEAD_TEXTS,
    **how: Any,
) -> Iterator[Result]:
    """As `Translator.stream`, with tags and placeholders kept in place; links count the words without them.

    Lines without any, and unless `always` those with no more than entities and addresses, are translated as they are.
    """
    own = translator.tokenizers.source.tags
    for window in read_ahead(texts, lines, READ_AHEAD_CHARACTERS):
        pieces = [[text] if text_problem(text) else find(text, own) for text in window]
        bare = [take_out(each) if always or is_tagged(each) else None for each in pieces]
        bare = [each if each and each.marks else None for each in bare]
        plain = [text if each is None else each.text * each.has_words for text, each in zip(window, bare, strict=True)]
        asked = how | {"align": True} if any(bare) else how
        for text, each, result in zip(window, bare, translator.translate(plain, **asked), strict=True):
            if each is None:
                yield result
            elif not each.has_words:
                yield result._replace(text=text)
            else:
                yield _tagged(each, result, outcome, own)


def _tagged(bare: Bare, result: Result, outcome: Outcome, own: Collection[str]) -> Result:
    before = sum(bare.text.startswith(tag) for tag in own)  # a model's own tag is a word that links do not count
    links = result.alignment and [(source + before, target) for source, target in result.alignment]
    text = written(_whole(bare, result._replace(alignment=links), outcome))
    others = [each._replace(text=written(put_back(bare, each.text, None))) for each in result.alternatives]
    return result._replace(text=text, alternatives=others)


# Files.


def translate_file(
    path: str | Path,
    out: Path,
    translate: Translate,
    *,
    format: str | None = None,  # noqa: A002 - the word of the field
    languages: tuple[str, str] | None = None,
    everything: bool = False,
    force: bool = False,
    progress: Progress = lambda name, done, total: None,
) -> Outcome:
    """Write a TMX, XLIFF or PO file with its missing translations filled in, and all else as it was.

    `everything` translates anew what has a translation. `progress` is told how many bytes of how many are done.
    """
    kind = format or format_of(path)
    if kind not in DOCUMENTS:
        raise InputError(f"{display_name(path)} is not a document: {', '.join(DOCUMENTS)} are translated in place")
    if uncompressed_name(out) != out.name:
        raise InputError(f"{out}: documents are written uncompressed; choose the name {uncompressed_name(out)}")
    outcome = Outcome()
    if kind == "tmx" and languages is None:
        languages = _tmx_languages(path)
    with open_text(path) as stream, atomic_file(out, force=force) as file:
        total = None if uncompressed_name(path) != Path(path).name or str(path) == "-" else os.path.getsize(path)
        read = _Remembering(stream)
        encoding, parts = DOCUMENTS[kind](read, display_name(path), Asked(languages, everything, outcome))
        for text in filled(parts, translate, outcome):
            file.write(text.encode(encoding, "xmlcharrefreplace"))
            progress(display_name(path), read.done, total)
    return outcome


class _Remembering(io.RawIOBase):
    """A stream that counts what was read of it, and keeps the lines of it that were read as lines."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream, self.done = stream, 0
        self.lines: list[bytes] = []

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        given = self.stream.read(len(buffer))
        buffer[: len(given)] = given
        self.done += len(given)
        return len(given)

    def readline(self, size: int | None = -1, /) -> bytes:
        line = self.stream.readline(-1 if size is None else size)
        self.lines += [line] * bool(line)
        self.done += len(line)
        return line


def filled(parts: Iterable[str | Gap], translate: Translate, outcome: Outcome) -> Iterator[str]:
    """A document as text, its gaps filled, a few hundred segments at a time."""
    waiting: list[str | Gap] = []
    segments = size = 0
    for part in chain(parts, [None]):
        if part is not None:
            waiting.append(part)
            segments += len(part.segments) if isinstance(part, Gap) else 0
            size += len(part) if isinstance(part, str) else sum(len(written(each)) for each in part.segments)
            if segments < READ_AHEAD_TEXTS and size < READ_AHEAD_CHARACTERS:
                continue
        wanted = [each for gap in waiting if isinstance(gap, Gap) for each in gap.segments]
        found = iter(translate_pieces(wanted, translate, outcome))
        for each in waiting:
            yield each if isinstance(each, str) else each.write([next(found) for _ in each.segments])
        waiting, segments, size = [], 0, 0


class Asked(NamedTuple):
    """What is wanted of a document."""

    languages: tuple[str, str] | None
    everything: bool
    outcome: Outcome


Document = Callable[[_Remembering, str, Asked], tuple[str, Iterator[str | Gap]]]
"""An open file as its encoding, and its parts."""


# XML: content.

WHOLE = {"x", "ph", "it", "ut", "cp", "sub"}  # nothing in these is to be translated
OPENS = {"bpt": ("rid", "id", "i"), "bx": ("rid", "id"), "sc": ("id",), "sm": ("id",)}  # and these come in twos,
CLOSES = {"ept": ("rid", "id", "i"), "ex": ("rid", "id"), "ec": ("startRef", "id"), "em": ("startRef",)}
PARTNERS = {"ept": "bpt", "ex": "bx", "ec": "sc", "em": "sm"}  # that name each other


class Content(NamedTuple):
    """What an element holds, ready to be translated, and how text is written there."""

    pieces: list[Piece]
    quote: Callable[[str], str]


def content(events: Sequence[Event]) -> Content:
    """The words and marks between the two tags of an element."""
    inner = [event for event in events if event.raw or event.text]
    if inner and inner[0].raw == "<![CDATA[" and inner[-1].raw == "]]>" and all(e.kind == "text" for e in inner[1:-1]):
        return Content(find(_joined(inner[1:-1])), _cdata)
    pieces: list[Piece] = []
    text = ""
    i = 0
    while i < len(events):
        event = events[i]
        if event.kind == "text":
            text += event.text
            i += 1
            continue
        if event.kind == "other" and event.raw in ("<![CDATA[", "]]>"):
            i += 1
            continue
        pieces, text = [*pieces, *_quoted(text)], ""
        if event.kind == "other":  # a comment
            pieces.append(Mark(event.raw))
            i += 1
            continue
        end = _end(events, i) if event.kind == "start" else i
        mark = _mark(event, _raw(events[i : end + 1]))
        pieces.append(mark)
        i = i + 1 if mark.firm else end + 1
    return Content([*pieces, *_quoted(text)], escape)


def _joined(events: Iterable[Event]) -> str:
    return "".join(event.text for event in events)


def _cdata(text: str) -> str:
    return f"<![CDATA[{text}]]>" if "]]>" not in text else escape(text)


def _quoted(text: str) -> Iterator[Piece]:
    for piece in find(text):
        yield piece if isinstance(piece, str) else piece._replace(raw=escape(piece.raw))


def _end(events: Sequence[Event], start: int) -> int:
    """Where the element that begins here ends."""
    depth = 0
    for i in range(start, len(events)):
        depth += {"start": 1, "end": -1}.get(events[i].kind, 0)
        if not depth:
            return i
    raise AssertionError("an element of parsed XML has an end")


def _mark(event: Event, whole: str) -> Mark:
    """An element as one mark, or its tag as one of a pair."""
    name, attributes = event.name, event.attributes or {}
    for table, side in ((OPENS, "open"), (CLOSES, "close")):
        if name in table and event.kind == "start":
            key = next((attributes[each] for each in table[name] if each in attributes), "")
            pair = f"{PARTNERS.get(name, name)} {key}"
            return Mark(whole, "open", pair) if side == "open" else Mark(whole, "close", pair)
    if event.kind == "end":
        return Mark(event.raw, "close", name, firm=True)
    protected = attributes.get("mtype") == "protected" or attributes.get("translate") == "no"
    if name in WHOLE or protected or whole == event.raw:  # the last has no inside
        return Mark(whole)
    return Mark(event.raw, "open", name, firm=True)


def _markup(pieces: Sequence[Piece], quote: Callable[[str], str]) -> str:
    """Pieces as XML."""
    if quote is _cdata:
        return _cdata(written(pieces))
    return "".join(quote(piece) if isinstance(piece, str) else piece.raw for piece in pieces)


class Child(NamedTuple):
    """An element directly inside a unit: the events from its start tag to its end tag."""

    name: str
    begin: int
    end: int


def _children(events: Sequence[Event]) -> list[Child]:
    found, i = [], 1
    while i < len(events) - 1:
        end = _end(events, i) if events[i].kind == "start" else i
        if events[i].kind == "start":
            found.append(Child(events[i].name, i, end))
        i = end + 1
    return found


def _named(children: Sequence[Child], name: str) -> Child | None:
    return next((child for child in children if child.name == name), None)


def _raw(events: Iterable[Event]) -> str:
    return "".join(event.raw for event in events)


def _indent(events: Sequence[Event], child: Child) -> str:
    """The blanks before an element, if nothing else is there: its neighbours are written below it."""
    before = ""
    for event in reversed(events[: child.begin]):
        if event.kind != "text":
            break
        before = event.raw + before
    return before if before.isspace() else ""


def _with(tag: str, **values: str) -> str:
    """A start tag with attributes set, the others as they were."""
    for key, value in values.items():
        name = key.replace("_", "-")
        said = re.search(rf"""\s{name}\s*=\s*("[^"]*"|'[^']*')""", tag)
        if said is not None:
            tag = tag[: said.start(1)] + quoteattr(value) + tag[said.end(1) :]
        else:
            end = len(tag) - (2 if tag.endswith("/>") else 1)
            tag = f"{tag[:end].rstrip()} {name}={quoteattr(value)}{tag[end:]}"
    return tag


def _decoded(
    stream: _Remembering, name: str, *, root: str, wanted: set[str], outer: Iterable[str] = ()
) -> tuple[str, Iterator[str | Event | Passage]]:
    head, whole = peek_until(cast(BinaryIO, stream), lambda head: len(head) >= HEAD)
    if not head:
        raise DataError(f"{name} is empty: there is nothing to translate")
    encoding = markup.encoding_of(head, name)
    return encoding, markup.passages(whole, name, encoding, root=root, wanted=wanted, outer=outer)


# XLIFF.

REVIEW = {"state": "needs-review-translation", "state_qualifier": "leveraged-mt"}  # of a target in XLIFF 1.2


def xliff(stream: _Remembering, name: str, asked: Asked) -> tuple[str, Iterator[str | Gap]]:
    """The targets of an XLIFF file, version 1.2 or 2."""
    outer = {"xliff", "file"}
    encoding, found = _decoded(stream, name, root="xliff", wanted={"trans-unit", "segment"}, outer=outer)

    def parts() -> Iterator[str | Gap]:
        for part in found:
            if isinstance(part, str):
                yield part
            elif isinstance(part, Event):
                yield _with_language(part, asked.languages)
            else:
                yield _xliff_unit(part, asked)

    return encoding, parts()


def _with_language(tag: Event, languages: tuple[str, str] | None) -> str:
    """The tag that says which languages a file has, with the target's where it was left open."""
    attributes = tag.attributes or {}
    source, target = ("srcLang", "trgLang") if tag.name == "xliff" else ("source-language", "target-language")
    if languages and attributes.get(source) and not attributes.get(target):
        return _with(tag.raw, **{target.replace("-", "_"): languages[1]})
    return tag.raw


def _xliff_unit(passage: Passage, asked: Asked) -> str | Gap:
    unit, events = passage
    outcome = asked.outcome
    children = _children(events)
    words = markup.words(markup.source_of(unit))
    source, target = _named(children, "source"), _named(children, "target")
    assert source is not None
    chosen = _named(children, "seg-source") or source
    around = [*unit.around, unit.element.attrib]
    may = next((each["translate"] for each in reversed(around) if each.get("translate")), "yes")
    if may == "no" or not words:
        outcome.skipped["not to be translated" if words else "empty"] += 1
        return _raw(events)
    if not asked.everything and markup.translation_of(unit) is not None:
        outcome.kept += 1
        return _raw(events)
    if not markup.agree(markup.unit_languages(unit), asked.languages):
        outcome.skipped["of other languages"] += 1
        return _raw(events)
    inner = list(_segments(events[chosen.begin + 1 : chosen.end]))
    outcome.translated += 1
    write = partial(_write_target, events, inner, source=chosen, target=target)
    return Gap([each.pieces for each in inner if isinstance(each, Content)], write)


def _segments(events: Sequence[Event]) -> Iterator[str | Content]:
    """What a source holds: one content, or where it is divided by <mrk mtype="seg">, each of them and what is between.

    Each sentence is translated by itself, so that none leaves its place.
    """
    starts = [i for i, event in enumerate(events) if (event.attributes or {}).get("mtype") == "seg"]
    if not starts:
        yield content(events)
        return
    end = 0
    for start in starts:
        if start < end:
            continue
        last = _end(events, start)
        yield _raw(events[end : start + 1])
        yield content(events[start + 1 : last])
        end = last
    yield _raw(events[end:])


def _write_target(
    events: Sequence[Event],
    inner: Sequence[str | Content],
    translations: list[list[Piece]],
    *,
    source: Child,
    target: Child | None,
) -> str:
    found = iter(translations)
    body = "".join(each if isinstance(each, str) else _markup(next(found), each.quote) for each in inner)
    old = events[0].name == "trans-unit"
    prefix = events[source.begin].raw[1:].partition(events[source.begin].name)[0]
    if target is None:
        tag = f"<{prefix}target>"
        before, after = events[: source.end + 1], events[source.end + 1 :]
        gap = _indent(events, source)
    else:
        tag = events[target.begin].raw.removesuffix("/>").removesuffix(">").rstrip() + ">"
        before, after = events[: target.begin], events[target.end + 1 :]
        gap = ""
    tag = _with(tag, **REVIEW) if old else tag
    unit = before[0].raw if old else _with(before[0].raw, state="translated")
    return f"{unit}{_raw(before[1:])}{gap}{tag}{body}</{prefix}target>{_raw(after)}"


# TMX.


def _tmx_languages(path: str | Path) -> tuple[str, str]:
    """The languages of the first unit that has two; a file of one language does not say into which."""
    if str(path) != "-":
        with open_text(path) as stream:
            if found := markup.tmx_languages(stream, display_name(path)):
                return found
    raise DataError(
        f"{display_name(path)} does not say into which language: say which two, for example --languages en,fr"
    )


def tmx(stream: _Remembering, name: str, asked: Asked) -> tuple[str, Iterator[str | Gap]]:
    """The variants of a TMX file in the target language."""
    encoding, found = _decoded(stream, name, root="tmx", wanted={"tu"})

    def parts() -> Iterator[str | Gap]:
        for part in found:
            yield part if isinstance(part, str) else _tmx_unit(cast(Passage, part), asked)

    return encoding, parts()


def _tmx_unit(passage: Passage, asked: Asked) -> str | Gap:
    unit, events = passage
    assert asked.languages is not None
    codes, texts = zip(*markup.variants(unit), strict=True) if unit.element.find("tuv/seg") is not None else ((), ())
    ours, theirs = (markup.place_of(list(codes), language) for language in asked.languages)
    if ours is None or not texts[ours]:
        asked.outcome.skipped["without the source language"] += 1
        return _raw(events)
    if theirs is not None and texts[theirs] and not asked.everything:
        asked.outcome.kept += 1
        return _raw(events)
    children = [child for child in _children(events) if child.name == "tuv" and _segment(events, child) is not None]
    source, target = children[ours], None if theirs is None else children[theirs]
    segment = _segment(events, source)
    assert segment is not None
    held = content(events[segment.begin + 1 : segment.end])
    asked.outcome.translated += 1
    write = partial(_write_variant, events, held, asked.languages[1], source=source, target=target)
    return Gap([held.pieces], write)


def _segment(events: Sequence[Event], child: Child) -> Child | None:
    inner = _named(_children(events[child.begin : child.end + 1]), "seg")
    return inner and Child("seg", inner.begin + child.begin, inner.end + child.begin)


def _write_variant(
    events: Sequence[Event],
    held: Content,
    language: str,
    translations: list[list[Piece]],
    *,
    source: Child,
    target: Child | None,
) -> str:
    body = _markup(translations[0], held.quote)
    tag = events[source.begin].raw
    prefix = tag[1:].partition("tuv")[0]
    written_segment = f"<{prefix}seg>{body}</{prefix}seg>"
    if target is not None:
        segment = _segment(events, target)
        assert segment is not None
        opening = _with(events[target.begin].raw, creationtool="regard")
        before = _raw(events[: target.begin]) + opening + _raw(events[target.begin + 1 : segment.begin])
        return before + written_segment + _raw(events[segment.end + 1 :])
    code = "xml:lang" if "xml:lang" in (events[source.begin].attributes or {}) else "lang"
    variant = f'<{prefix}tuv {code}={quoteattr(language)} creationtool="regard">{written_segment}</{prefix}tuv>'
    return _raw(events[: source.end + 1]) + _indent(events, source) + variant + _raw(events[source.end + 1 :])


# PO.

EMPTY = '""'
PLURALS = re.compile(r"nplurals\s*=\s*(\d{1,2})")
QUOTED = str.maketrans({
    "\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r", "\a": "\\a", "\b": "\\b", "\f": "\\f",
    "\v": "\\v",
})  # fmt: skip


def po(stream: _Remembering, name: str, asked: Asked) -> tuple[str, Iterator[str | Gap]]:
    """The messages of a PO file."""

    def parts() -> Iterator[str | Gap]:
        forms, done = 0, 0
        for entry in markup.po_entries(cast(BinaryIO, stream), name, asked.outcome.skipped):
            if not entry.texts["id"] and "context" not in entry.texts:
                said = PLURALS.search(entry.texts.get("0", ""))
                forms = int(said[1]) if said else 0
                continue
            last = max(row for field, rows in entry.rows.items() for row in rows)
            rows = [line.decode() for line in stream.lines[: last - done]]
            del stream.lines[: last - done]
            message = _Message(entry, rows, done + 1)
            done = last
            yield _po_message(message, forms, asked)
        yield b"".join(stream.lines).decode()

    return "utf-8", parts()


class _Message(NamedTuple):
    """A message, and the lines up to its end."""

    entry: markup.Entry
    lines: list[str]
    first: int
    """The number of the first of them in its file."""


def _po_message(message: _Message, forms: int, asked: Asked) -> str | Gap:
    texts = message.entry.texts
    plural = texts.get("plural")
    there = [number for number in texts if number.isdigit()]
    numbers = there if plural is None else sorted({*there, *map(str, range(forms))}, key=int)
    open_ones = [number for number in numbers if asked.everything or not texts.get(number)]
    if not texts["id"].strip() or not open_ones:
        asked.outcome.kept += bool(texts["id"].strip())
        return "".join(message.lines)
    if problem := text_problem(texts["id"] + (plural or "")):  # in XML there is no such text
        asked.outcome.skipped["unreadable"] += 1
        asked.outcome.failed.add(message.entry.rows["id"][0], problem)
        return "".join(message.lines)
    asked.outcome.translated += 1
    one = texts["id"] if plural is None or len(numbers) > 1 else plural
    sources = {number: one if number == "0" or plural is None else plural for number in open_ones}
    segments = {number: [find(line) for line in source.split("\n")] for number, source in sources.items()}
    write = partial(_write_message, message, {number: len(each) for number, each in segments.items()}, plural)
    return Gap([line for each in segments.values() for line in each], write)


def _write_message(
    message: _Message, counts: dict[str, int], plural: str | None, translations: list[list[Piece]]
) -> str:
    entry, lines = message.entry, list(message.lines)
    found = iter(translations)
    new_line = "\r\n" if lines[0].endswith("\r\n") else "\n"
    changed: dict[int, str] = {}
    added = ""
    for number, count in counts.items():
        text = "\n".join(written(next(found)) for _ in range(count))
        statement = _statement("msgstr" if plural is None else f"msgstr[{number}]", text, new_line)
        if number in entry.rows:
            first, *rest = entry.rows[number]
            changed |= {first: statement} | dict.fromkeys(rest, "")
        else:
            added += statement
    first = min(row for field, rows in entry.rows.items() if field != "flags" for row in rows)
    if "fuzzy" in entry.flags:
        pass
    elif "flags" in entry.rows:
        row = entry.rows["flags"][0]
        changed[row] = re.sub(r"#,\s*", "#, fuzzy, ", lines[row - message.first], count=1)
    else:
        changed[first] = f"#, fuzzy{new_line}" + changed.get(first, lines[first - message.first])
    whole = [changed.get(row, line) for row, line in enumerate(lines, message.first)]
    if added and not whole[-1].endswith("\n") and whole[-1]:
        whole.append(new_line)
    return "".join(whole) + added


def _statement(keyword: str, text: str, new_line: str) -> str:
    """A translation as PO writes it: one line, or one for every line of the text."""
    *lines, last = text.split("\n")
    parts = [f"{line}\n" for line in lines] + [last] * bool(last)
    quoted = [f'"{part.translate(QUOTED)}"' for part in parts]
    if len(quoted) < 2:
        return f"{keyword} {''.join(quoted) or EMPTY}{new_line}"
    return "".join(f"{line}{new_line}" for line in [f"{keyword} {EMPTY}", *quoted])


DOCUMENTS: dict[str, Document] = {"tmx": tmx, "xliff": xliff, "po": po}
