"""Pairs of texts from whatever the user has: plain text, TSV, JSONL, TMX, XLIFF or PO, compressed or not."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from regard.documents import markup
from regard.documents.markup import same_language
from regard.errors import DataError, did_you_mean
from regard.text.files import (
    Origin,
    Pair,
    display_name,
    lines,
    list_files,
    one_line,
    open_text,
    peek_until,
    texts,
    uncompressed_name,
)


@dataclass
class Choice:
    """What the user said about files that hold both sides, and what is kept from one row or file to the next."""

    languages: tuple[str, str] | None = None
    fields: tuple[str, str] | None = None
    skipped: Counter[str] = field(default_factory=Counter)
    met: tuple[str, str] | None = None
    """The languages of the first `translation`: the order of names inside an object means nothing after it."""


Reader = Callable[[BinaryIO, str, Choice], Iterator[Pair]]


def read_pairs(
    source: str | Path,
    target: str | Path | None = None,
    *,
    format: str | None = None,  # noqa: A002 - the word of the field
    languages: tuple[str, str] | None = None,
    fields: tuple[str, str] | None = None,
    skipped: Counter[str] | None = None,
) -> Iterator[Pair]:
    """Pairs from two parallel texts, or from one file that holds both sides; a folder is read file by file.

    `-` is standard input. What is left out is counted in `skipped` under its reason. A text is one line: line breaks
    that a format can hold, and the blanks around them, become one blank.
    """
    choice = Choice(languages, fields, Counter() if skipped is None else skipped)
    if format is not None and format not in (*FORMATS, "text"):
        raise DataError(f"There is no format {format}.{did_you_mean(format, [*FORMATS, 'text'])}")
    if target is None:
        readers = [(file, _reader(file, format)) for file in list_files(source)]
        return _not_empty(_together(readers, choice), display_name(source), choice)
    sides = _sides(source, target, format)
    return _not_empty((pair for files in sides for pair in _parallel(*files)), display_name(source), choice)


def left_out(skipped: Counter[str]) -> str:
    """`left out 3 fuzzy and 2 untranslated entries`: what `read_pairs` counted, in words; "" for nothing."""
    kinds = [kind for kind in sorted(skipped, key=ENTRIES.__contains__) if skipped[kind]]
    phrases = [f"{skipped[kind]:,} {ONE.get(kind, kind) if skipped[kind] == 1 else kind}" for kind in kinds]
    if not phrases:
        return ""
    noun = f" {'entry' if skipped[kinds[-1]] == 1 else 'entries'}" if kinds[-1] in ENTRIES else ""
    return f"left out {' and '.join([', '.join(phrases[:-1]), phrases[-1]] if phrases[1:] else phrases)}{noun}"


def format_of(path: str | Path) -> str | None:
    """The format a file name promises, compression aside; None: plain text or unknown."""
    return EXTENSIONS.get(Path(uncompressed_name(path)).suffix.lower())


def _reader(file: Path, known: str | None) -> Reader | None:
    """How to read one file that holds both sides; None: only its first bytes can tell."""
    if known == "text":
        raise DataError(f"{display_name(file)} is one text, and pairs need two: give the target's file as well")
    if known is None and str(file) == "-":
        return None
    known = known or format_of(file)
    if known is None:
        raise DataError(
            f"{file} has no known format; give two plain text files, or one file whose name ends in "
            f"{', '.join(EXTENSIONS)} (regard check can be told with --format tsv, Python with format='tsv')"
        )
    return FORMATS[known]


def _together(readers: list[tuple[Path, Reader | None]], choice: Choice) -> Iterator[Pair]:
    for file, reader in readers:
        with open_text(file) as stream:
            if reader is not None:
                yield from reader(stream, display_name(file), choice)
            else:
                head, whole = peek_until(stream, lambda head: _typed(head) is not None)
                yield from (_typed(head) or _tsv)(whole, display_name(file), choice)


def _typed(head: bytes) -> Reader | None:
    """What standard input is when nobody says, by how it begins; None: these bytes cannot tell."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):  # UTF-16, which only XML may be
        head = head.replace(b"\0", b"")
    head = head.lstrip(b"\xef\xbb\xbf\xff\xfe \t\r\n")
    if head.startswith(b"{"):
        return _jsonl
    if root := (ROOT.search if head.startswith((b"<?", b"<!")) else ROOT.match)(head):
        return _xliff if root[1] == b"xliff" else _tmx
    if PO_BEGINS.match(head):
        return _po
    return None if UNCLEAR.fullmatch(head) and len(head) < UNCLEAR_BYTES else _tsv


def _not_empty(pairs: Iterator[Pair], name: str, choice: Choice) -> Iterator[Pair]:
    found, before = False, Counter(choice.skipped)
    for pair in pairs:
        found = True
        yield pair
    if not found:
        reasons = left_out(choice.skipped - before)
        raise DataError(
            f"{name} holds no pairs: {reasons}" if reasons else f"{name} is empty: there are no pairs in it"
        )


# Two parallel texts


def _sides(source: str | Path, target: str | Path, given: str | None) -> list[tuple[Path, Path]]:
    if given not in (None, "text"):
        raise DataError(f"format {given} holds both sides in one file: give only {display_name(source)}, or {AS_TEXT}")
    if str(source) == str(target) == "-":
        raise DataError("Only one side can come from standard input; give a file for the other")
    for path in (source, target):
        known = format_of(path)
        if known and not given:
            raise DataError(f"{path} is {known.upper()}, which holds both sides: give it alone, or {AS_TEXT}")
    if os.path.isdir(source) != os.path.isdir(target):
        folder, file = (source, target) if os.path.isdir(source) else (target, source)
        raise DataError(f"{folder} is a folder and {display_name(file)} is a file: give two files or two folders")
    files = list_files(source), list_files(target)
    if os.path.isdir(source):
        names = [{uncompressed_name(file): file for file in side} for side in files]
        if not names[0].keys() & names[1].keys():  # 0.en and 0.fr
            names = [{name.rpartition(".")[0] or name: file for name, file in side.items()} for side in names]
        for here, there, folder in ((0, 1, target), (1, 0, source)):
            for name, file in names[here].items():
                if name not in names[there]:
                    raise DataError(
                        f"{folder} has no {name}, and {file} needs it: both folders hold the same file names"
                    )
        return [(file, names[1][name]) for name, file in names[0].items()]
    return [(files[0][0], files[1][0])]


def _parallel(source: Path, target: Path) -> Iterator[Pair]:
    names = display_name(source), display_name(target)
    with open_text(source) as left, open_text(target) as right:
        sides = texts(left, names[0]), texts(right, names[1])
        number = 0
        while True:
            number += 1
            one, other = next(sides[0], None), next(sides[1], None)
            if one is None or other is None:
                break
            yield Pair(one, other, Origin(names[0], number))
        if one is not None or other is not None:
            longer = left if other is None else right
            counts = [number - 1, number - 1]
            counts[0 if other is None else 1] += 1 + _remaining(longer)
            raise DataError(
                f"{names[0]} and {names[1]} differ in lines ({counts[0]:,} and {counts[1]:,}): line {number:,} is "
                f"missing in {names[1] if other is None else names[0]}; line N of both must belong together"
            )


def _remaining(stream: BinaryIO) -> int:
    """Lines still to come, whatever they hold."""
    count, last = 0, b"\n"
    while chunk := stream.read(2**20):
        count += chunk.count(b"\n")
        last = chunk[-1:]
    return count + (last != b"\n")


# One file with both sides


def _tsv(stream: BinaryIO, name: str, choice: Choice) -> Iterator[Pair]:
    for line, origin in lines(stream, name):
        if not line:
            choice.skipped["blank lines"] += 1
            continue
        columns = line.split("\t", 2)
        if len(columns) < 2:
            raise DataError(
                f"{origin}: there is one column; a row is source, a tab, target (regard check can be told another "
                "format with --format, Python with format=...)"
            )
        yield Pair(columns[0], columns[1], origin)


def _jsonl(stream: BinaryIO, name: str, choice: Choice) -> Iterator[Pair]:
    for line, origin in lines(stream, name):
        if not line.strip():
            choice.skipped["blank lines"] += 1
            continue
        row = _row(line, origin)
        nested = None if choice.fields else row.get("translation")
        if isinstance(nested, dict):
            row, asked = nested, _languages(nested, choice, origin)
            names = _by_language(row, asked)
        else:
            names = _names(row, choice)
        source, target = (_text(row, name, line, origin, choice) for name in names)
        yield Pair(source, target, origin)


def _row(line: str, origin: Origin) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"{origin}: not JSON at column {error.colno}: {error.msg}; each line is one object") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{origin}: not JSON that can be read: {error}; each line is one object") from error
    if not isinstance(row, dict):
        raise DataError(f'{origin}: not an object; each line is one, like {{"source": "...", "target": "..."}}')
    return row


def _names(row: dict[str, Any], choice: Choice) -> tuple[str, str]:
    """The fields of a row that are the two sides."""
    if choice.fields:
        return choice.fields
    if choice.languages:
        names = _by_language(row, choice.languages)
        if all(name in row for name in names) or not ("source" in row or "src" in row):
            return names
    return ("src", "tgt") if "src" in row and "source" not in row else ("source", "target")


def _languages(row: dict[str, Any], choice: Choice, origin: Origin) -> tuple[str, str]:
    """The languages of the two sides inside `translation`: those asked for, else those of the first one there was."""
    if choice.languages:
        return choice.languages
    if choice.met is None:
        if len(row) != 2:
            raise DataError(
                f"{origin}: translation has {len(row)} languages ({', '.join(row)}), not two: say which two, for "
                "example --languages en,fr (in Python languages=('en', 'fr'))"
            )
        first, second = row
        choice.met = first, second
    return choice.met


def _by_language(row: dict[str, Any], languages: tuple[str, str]) -> tuple[str, str]:
    """The fields with the very codes if they are there, else the first that agree."""
    first, second = (
        code if code in row else next((name for name in row if same_language(name, code)), code) for code in languages
    )
    return first, second


def _text(row: dict[str, Any], name: str, line: str, origin: Origin, choice: Choice) -> str:
    if name not in row:
        known = did_you_mean(name, row) if row else " The object is empty."
        said = choice.fields or choice.languages or choice.met
        raise DataError(f"{origin}: there is no field {name}.{known}{'' if said else NAME_THEM}")
    text = row[name]
    if not isinstance(text, str):
        raise DataError(f"{origin}: {name} is {json.dumps(text)[:40]}, not text")
    if "\\u" in line and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise DataError(
            f"{origin}: {name} has half a character (a lone surrogate, \\ud800 to \\udfff), which no text has"
        )
    return one_line(text)


def _tmx(stream: BinaryIO, name: str, choice: Choice) -> Iterator[Pair]:
    return markup.read_tmx(stream, name, languages=choice.languages, skipped=choice.skipped)


def _xliff(stream: BinaryIO, name: str, choice: Choice) -> Iterator[Pair]:
    return markup.read_xliff(stream, name, languages=choice.languages, skipped=choice.skipped)


def _po(stream: BinaryIO, name: str, choice: Choice) -> Iterator[Pair]:
    return markup.read_po(stream, name, skipped=choice.skipped)


AS_TEXT = "name plain text otherwise (regard check can be told with --format text, Python with format='text')"
NAME_THEM = (
    " Name the two fields with --fields, or with --languages where they are languages: --languages en,fr "
    "(in Python fields=('a', 'b') or languages=('en', 'fr'))"
)
ENTRIES = ("fuzzy", "obsolete", "untranslated")  # kinds of the left out that need a noun
ONE = {"blank lines": "blank line", "units without both languages": "unit without both languages"}
ROOT = re.compile(rb"<(?:[\w.-]+:)?(tmx|xliff)\b")
PO_BEGINS = re.compile(rb'(?:#[^\n]*\n|\s)*(?:msgid|msgctxt|domain)\s*"')
UNCLEAR = re.compile(rb"(?:#[^\n]*\n|\s)*(?:#[^\n]*)?|<[?!].*", re.DOTALL)
UNCLEAR_BYTES = 2**16  # may come before what a file is: comments, a declaration

FORMATS: dict[str, Reader] = {"tsv": _tsv, "jsonl": _jsonl, "tmx": _tmx, "xliff": _xliff, "po": _po}
EXTENSIONS = {
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".tmx": "tmx",
    ".xliff": "xliff",
    ".xlf": "xliff",
    ".sdlxliff": "xliff",
    ".mxliff": "xliff",
    ".po": "po",
}
