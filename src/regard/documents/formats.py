"""Formats: pairs of texts from plain text, TSV, JSONL, TMX, XLIFF or PO files, compressed or not."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from regard.documents.languages import Languages, find_language
from regard.documents.po import read_po
from regard.documents.tmx import read_tmx
from regard.documents.xliff import read_xliff
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
AS_TEXT = "rename plain text (or use --format text of regard check, in Python format='text')"
NAME_FIELDS = (
    " Name the two fields with --fields, or with --languages where they are languages: --languages en,fr "
    "(in Python fields=('a', 'b') or languages=('en', 'fr'))"
)
ENTRY_REASONS = ("fuzzy", "obsolete", "untranslated")  # reasons that need a noun: 3 fuzzy entries
SINGULAR = {"blank lines": "blank line", "units without both languages": "unit without both languages"}

ROOT_ELEMENT = re.compile(rb"<(?:[\w.-]+:)?(tmx|xliff)\b")
FIRST_MESSAGE = re.compile(rb'(?:#[^\n]*\n|\s)*(?:msgid|msgctxt|domain)\s*"')
UNDECIDED = re.compile(rb"(?:#[^\n]*\n|\s)*(?:#[^\n]*)?|<[?!].*", re.DOTALL)
MAX_UNDECIDED_BYTES = 2**16  # of comments or declarations before the format of standard input shows


@dataclass
class Options:
    """How to read files that hold both sides, and the counts of skipped entries."""

    languages: Languages | None = None
    fields: tuple[str, str] | None = None
    skipped: Counter[str] = field(default_factory=Counter)
    first_languages: Languages | None = None
    """Language codes of the first `translation` object; later objects may order them differently."""


Reader = Callable[[BinaryIO, str, Options], Iterator[Pair]]


def read_pairs(
    source: str | Path,
    target: str | Path | None = None,
    *,
    format: str | None = None,  # noqa: A002 - the word of the field
    languages: Languages | None = None,
    fields: tuple[str, str] | None = None,
    skipped: Counter[str] | None = None,
) -> Iterator[Pair]:
    """Pairs from two parallel texts, or from one file that holds both sides; a folder is read file by file.

    `-` is standard input. Skipped entries are counted in `skipped` by their reason. Line breaks inside a text, and the
    spaces around them, become one space.
    """
    options = Options(languages, fields, Counter() if skipped is None else skipped)
    if format is not None and format not in (*FORMATS, "text"):
        raise DataError(f"There is no format {format}.{did_you_mean(format, [*FORMATS, 'text'])}")
    if target is None:
        readers = [(file, _find_reader(file, format)) for file in list_files(source)]
        pairs = (pair for file, reader in readers for pair in _read_file(file, reader, options))
    else:
        files = _match_files(source, target, format)
        pairs = (pair for sides in files for pair in _read_parallel(*sides))
    return _require_pairs(pairs, display_name(source), options)


def left_out(skipped: Counter[str]) -> str:
    """The skipped entries in words, such as `left out 3 fuzzy and 2 untranslated entries`; "" for none."""
    reasons = [reason for reason in sorted(skipped, key=ENTRY_REASONS.__contains__) if skipped[reason]]
    phrases = [
        f"{skipped[reason]:,} {SINGULAR.get(reason, reason) if skipped[reason] == 1 else reason}" for reason in reasons
    ]
    if not phrases:
        return ""
    noun = f" {'entry' if skipped[reasons[-1]] == 1 else 'entries'}" if reasons[-1] in ENTRY_REASONS else ""
    listed = " and ".join([", ".join(phrases[:-1]), phrases[-1]] if len(phrases) > 1 else phrases)
    return f"left out {listed}{noun}"


def format_of(path: str | Path) -> str | None:
    """The format by the extension of a file name, ignoring compression; None for plain text or an unknown format."""
    return EXTENSIONS.get(Path(uncompressed_name(path)).suffix.lower())


def _find_reader(file: Path, known: str | None) -> Reader | None:
    """The reader of a file that holds both sides; None if only its first bytes can tell."""
    if known == "text":
        raise DataError(f"{display_name(file)} is one text, and pairs need two: give the target's file as well")
    if known is None and str(file) == "-":
        return None
    known = known or format_of(file)
    if known is None:
        raise DataError(
            f"{file} has no known format; give two plain text files, or one file whose name ends in "
            f"{', '.join(EXTENSIONS)} (or use --format tsv of regard check, in Python format='tsv')"
        )
    return FORMATS[known]


def _read_file(file: Path, reader: Reader | None, options: Options) -> Iterator[Pair]:
    with open_text(file) as stream:
        if reader is None:
            head, stream = peek_until(stream, lambda head: _detect_format(head) is not None)
            reader = FORMATS[_detect_format(head) or "tsv"]
        yield from reader(stream, display_name(file), options)


def _detect_format(head: bytes) -> str | None:
    """The format of standard input by its first bytes; None if they are too few to tell."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):  # UTF-16, which only XML may be
        head = head.replace(b"\0", b"")
    head = head.lstrip(b"\xef\xbb\xbf\xff\xfe \t\r\n")
    if head.startswith(b"{"):
        return "jsonl"
    if root := (ROOT_ELEMENT.search if head.startswith((b"<?", b"<!")) else ROOT_ELEMENT.match)(head):
        return root[1].decode()
    if FIRST_MESSAGE.match(head):
        return "po"
    return None if UNDECIDED.fullmatch(head) and len(head) < MAX_UNDECIDED_BYTES else "tsv"


def _require_pairs(pairs: Iterator[Pair], name: str, options: Options) -> Iterator[Pair]:
    empty, before = True, Counter(options.skipped)
    for pair in pairs:
        empty = False
        yield pair
    if empty:
        reasons = left_out(options.skipped - before)
        raise DataError(
            f"{name} holds no pairs: {reasons}" if reasons else f"{name} is empty: there are no pairs in it"
        )


# Two parallel texts


def _match_files(source: str | Path, target: str | Path, known: str | None) -> list[tuple[Path, Path]]:
    """The pairs of files of two sides: two files, or the files of two folders by name."""
    if known not in (None, "text"):
        raise DataError(f"format {known} holds both sides in one file: give only {display_name(source)}, or {AS_TEXT}")
    if str(source) == str(target) == "-":
        raise DataError("Only one side can come from standard input; give a file for the other")
    for path in (source, target):
        if (extension := format_of(path)) and not known:
            raise DataError(f"{path} is {extension.upper()}, which holds both sides: give it alone, or {AS_TEXT}")
    if os.path.isdir(source) != os.path.isdir(target):
        folder, file = (source, target) if os.path.isdir(source) else (target, source)
        raise DataError(f"{folder} is a folder and {display_name(file)} is a file: give two files or two folders")
    files = list_files(source), list_files(target)
    if not os.path.isdir(source):
        return [(files[0][0], files[1][0])]
    names = [{uncompressed_name(file): file for file in side} for side in files]
    if not names[0].keys() & names[1].keys():  # 0.en and 0.fr
        names = [{name.rpartition(".")[0] or name: file for name, file in side.items()} for side in names]
    for here, there, folder in ((0, 1, target), (1, 0, source)):
        for name, path in names[here].items():
            if name not in names[there]:
                raise DataError(f"{folder} has no {name}, and {path} needs it: both folders hold the same file names")
    return [(path, names[1][name]) for name, path in names[0].items()]


def _read_parallel(source: Path, target: Path) -> Iterator[Pair]:
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
        if one is None and other is None:
            return
        counts = [number - 1, number - 1]
        counts[0 if other is None else 1] += 1 + _count_lines(left if other is None else right)
        raise DataError(
            f"{names[0]} and {names[1]} differ in lines ({counts[0]:,} and {counts[1]:,}): line {number:,} is "
            f"missing in {names[1] if other is None else names[0]}; line N of both must belong together"
        )


def _count_lines(stream: BinaryIO) -> int:
    """The number of lines left in a stream."""
    count, last = 0, b"\n"
    while chunk := stream.read(2**20):
        count += chunk.count(b"\n")
        last = chunk[-1:]
    return count + (last != b"\n")


# One file with both sides


def _read_tsv(stream: BinaryIO, name: str, options: Options) -> Iterator[Pair]:
    for line, origin in lines(stream, name):
        if not line:
            options.skipped["blank lines"] += 1
            continue
        columns = line.split("\t", 2)
        if len(columns) < 2:
            raise DataError(
                f"{origin}: there is one column; a row is source, a tab, target (for another format use "
                "--format of regard check, in Python format=...)"
            )
        yield Pair(columns[0], columns[1], origin)


def _read_jsonl(stream: BinaryIO, name: str, options: Options) -> Iterator[Pair]:
    for line, origin in lines(stream, name):
        if not line.strip():
            options.skipped["blank lines"] += 1
            continue
        row = _parse_row(line, origin)
        nested = None if options.fields else row.get("translation")
        if isinstance(nested, dict):
            row = nested
            names = _find_fields(row, _nested_languages(row, options, origin))
        else:
            names = _field_names(row, options)
        source, target = (_field_text(row, field, line, origin, options) for field in names)
        yield Pair(source, target, origin)


def _parse_row(line: str, origin: Origin) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"{origin}: not JSON at column {error.colno}: {error.msg}; each line is one object") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{origin}: not JSON that can be read: {error}; each line is one object") from error
    if not isinstance(row, dict):
        raise DataError(f'{origin}: not an object; each line is one, like {{"source": "...", "target": "..."}}')
    return row


def _field_names(row: dict[str, Any], options: Options) -> tuple[str, str]:
    """The two fields of a row that are source and target."""
    if options.fields:
        return options.fields
    if options.languages:
        names = _find_fields(row, options.languages)
        if all(name in row for name in names) or not ("source" in row or "src" in row):
            return names
    return ("src", "tgt") if "src" in row and "source" not in row else ("source", "target")


def _nested_languages(row: dict[str, Any], options: Options, origin: Origin) -> Languages:
    """The languages of a `translation` object: the requested ones, else those of the first object."""
    if options.languages:
        return options.languages
    if options.first_languages is None:
        if len(row) != 2:
            raise DataError(
                f"{origin}: translation has {len(row)} languages ({', '.join(row)}), not two: say which two, for "
                "example --languages en,fr (in Python languages=('en', 'fr'))"
            )
        first, second = row
        options.first_languages = first, second
    return options.first_languages


def _find_fields(row: dict[str, Any], languages: Languages) -> tuple[str, str]:
    """The fields named after two languages; the code itself where there is no such field."""
    names = list(row)
    source, target = (find_language(names, code) for code in languages)
    return languages[0] if source is None else names[source], languages[1] if target is None else names[target]


def _field_text(row: dict[str, Any], name: str, line: str, origin: Origin, options: Options) -> str:
    if name not in row:
        known = did_you_mean(name, row) if row else " The object is empty."
        named = options.fields or options.languages or options.first_languages
        raise DataError(f"{origin}: there is no field {name}.{known}{'' if named else NAME_FIELDS}")
    text = row[name]
    if not isinstance(text, str):
        raise DataError(f"{origin}: {name} is {json.dumps(text)[:40]}, not text")
    if "\\u" in line and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise DataError(
            f"{origin}: {name} has half a character (a lone surrogate, \\ud800 to \\udfff), which no text has"
        )
    return one_line(text)


FORMATS: dict[str, Reader] = {
    "tsv": _read_tsv,
    "jsonl": _read_jsonl,
    "tmx": lambda stream, name, options: read_tmx(stream, name, languages=options.languages, skipped=options.skipped),
    "xliff": lambda stream, name, options: read_xliff(
        stream, name, languages=options.languages, skipped=options.skipped
    ),
    "po": lambda stream, name, options: read_po(stream, name, skipped=options.skipped),
}
