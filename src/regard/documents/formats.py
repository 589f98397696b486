"""Formats: pairs of texts from plain text, TSV, JSONL, TMX, XLIFF or PO files, compressed or not."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, BinaryIO

from regard.documents.languages import Languages, find_language
from regard.documents.outcome import Entry
from regard.documents.po import parse_po
from regard.documents.tmx import parse_tmx
from regard.documents.xliff import parse_xliff
from regard.errors import DataError, did_you_mean
from regard.text import files
from regard.text.files import Origin, Pair, Unreadable, display_name, uncompressed_name

EXTENSIONS = {".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".tmx": "tmx", ".po": "po", ".pot": "po"}
EXTENSIONS |= dict.fromkeys((".xliff", ".xlf", ".sdlxliff", ".mxliff"), "xliff")

UNSUPPORTED = {  # their markup would be translated as text
    *(".srt", ".vtt", ".md", ".rst", ".tex", ".htm", ".html", ".xml", ".doc", ".docx", ".odt", ".rtf", ".pdf", ".pptx"),
    *(".xlsx", ".epub", ".json", ".jsonl", ".ndjson", ".yml", ".yaml", ".properties", ".strings", ".resx", ".arb"),
    *(".ts", ".csv"),
}

Parser = Callable[[BinaryIO, str, Languages | None], tuple[str, Iterator[str | Entry]]]
"""Takes a stream, its name and the languages; returns the encoding, and the entries with the text between them."""

DOCUMENTS: dict[str, Parser] = {"tmx": parse_tmx, "xliff": parse_xliff, "po": parse_po}
AS_TEXT = "rename plain text (or use --format text of regard check, in Python format='text')"
TWO_SIDES = f"SOURCE and TARGET, or one file that ends in {', '.join(EXTENSIONS)} (save a table as .tsv)"


@dataclass
class Options:
    """The options for files that hold both sides, and the counts of skipped entries."""

    languages: Languages | None = None
    fields: tuple[str, str] | None = None
    skipped: Counter[str] = field(default_factory=Counter)
    unreadable: Unreadable | None = None  # collects the lines that cannot be read; None: errors are raised


Line = str | DataError  # the error of a line that cannot be read
Reader = Callable[[BinaryIO, str, Options], Iterator[Pair]]


def read_pairs(
    source: str | Path,
    target: str | Path | None = None,
    *,
    format: str | None = None,  # noqa: A002 - the word of the field
    languages: Languages | None = None,
    fields: tuple[str, str] | None = None,
    skipped: Counter[str] | None = None,
    unreadable: Unreadable | None = None,
) -> Iterator[Pair]:
    """Pairs from two parallel texts, or from one file that holds both sides; a folder is read file by file.

    `-` is standard input, by default TSV. Skipped entries are counted in `skipped` by their reason. Lines that
    cannot be read are added to `unreadable`; without it, they are errors. Line breaks inside a text, and the spaces
    around them, become one space.
    """
    options = Options(languages, fields, Counter(), unreadable)
    if format is not None and format not in (*FORMATS, "text"):
        raise DataError(f"There is no format {format}.{did_you_mean(format, [*FORMATS, 'text'])}")
    if target is None:
        parts = [_read_file(file, format, options) for file in files.list_files(source)]
    else:
        parts = [_read_parallel(*both, options) for both in _match_files(source, target, format)]

    def checked() -> Iterator[Pair]:
        empty = True
        for pair in chain.from_iterable(parts):
            empty = False
            yield pair
        if skipped is not None:
            skipped.update(options.skipped)
        if empty and not unreadable:
            reasons = left_out(options.skipped)
            problem = f"holds no pairs: {reasons}" if reasons else "is empty: there are no pairs in it"
            raise DataError(f"{display_name(source)} {problem}")

    return checked()


def left_out(skipped: Counter[str]) -> str:
    """The skipped entries in words, such as `left out 3 fuzzy and 2 untranslated`; "" for none."""
    counts = " and ".join(
        f"{count:,} {reason if count > 1 else reason.replace('lines', 'line').replace('units', 'unit')}"
        for reason, count in sorted(skipped.items())
        if count
    )
    return f"left out {counts}" if counts else ""


def format_of(path: str | Path) -> str | None:
    """The format by the extension of a file name, ignoring compression; None for plain text or an unknown format."""
    return EXTENSIONS.get(Path(uncompressed_name(path)).suffix.lower())


def _read_file(file: Path, known: str | None, options: Options) -> Iterator[Pair]:
    """Read the pairs of a file with both sides. A wrong format is an error of this call, not of the first pair."""
    if known == "text":
        raise DataError(f"{display_name(file)} is one text, and pairs need two: give the target's file as well")
    known = known or format_of(file) or ("tsv" if str(file) == "-" else None)
    if known is None:
        raise DataError(
            f"{file} is one plain text, and pairs need two: give {TWO_SIDES} (or use --format tsv of regard check, in "
            "Python format='tsv')"
        )

    def pairs(reader: Reader) -> Iterator[Pair]:
        with files.open_text(file) as stream:
            yield from reader(stream, display_name(file), options)

    return pairs(FORMATS[known])


# Two parallel texts


def _match_files(source: str | Path, target: str | Path, known: str | None) -> list[tuple[Path, Path]]:
    """The source and target file, or for two folders each pair of files with the same name."""
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
    sides = files.list_files(source), files.list_files(target)
    if not os.path.isdir(source):
        return [(sides[0][0], sides[1][0])]
    names = [files.by_name(side, uncompressed_name) for side in sides]
    if not names[0].keys() & names[1].keys():  # 0.en and 0.fr
        names = [files.by_name(side, lambda file: Path(uncompressed_name(file)).stem) for side in sides]
    for name in sorted(names[0].keys() ^ names[1].keys()):
        folder, path = (target, names[0][name]) if name in names[0] else (source, names[1][name])
        raise DataError(f"{folder} has no {name}, and {path} needs it: both folders hold the same file names")
    return [(path, names[1][name]) for name, path in names[0].items()]


def _read_parallel(source: Path, target: Path, options: Options) -> Iterator[Pair]:
    names = display_name(source), display_name(target)
    with files.open_text(source) as left, files.open_text(target) as right:
        sides = files.lines_or_errors(left, names[0]), files.lines_or_errors(right, names[1])
        for number, (one, other) in enumerate(zip_longest(*sides), 1):
            if one is None or other is None:
                raise _unequal(names, sides, number - 1, (one, other), options)
            if isinstance(one, str) and isinstance(other, str):
                yield Pair(one, other, Origin(names[0], number))
                continue
            sides_read = zip(names, (one, other), strict=True)
            name, error = next((name, line) for name, line in sides_read if isinstance(line, DataError))
            if options.unreadable is None:
                raise error
            options.unreadable.append((Origin(name, number), error))


def _unequal(
    names: Sequence[str],
    sides: Sequence[Iterator[Line]],
    count: int,
    following: Sequence[Line | None],
    options: Options,
) -> DataError:
    """The error for two texts of which one ends after `count` lines; an unreadable line or an empty file goes first."""
    if options.unreadable:
        return options.unreadable[0][1]
    shorter, longer = (0, 1) if following[0] is None else (1, 0)
    counts = [count, count]
    for line in chain([following[longer]], sides[longer]):
        if isinstance(line, DataError):
            return line
        counts[longer] += 1
    if count == 0:
        return DataError(f"{names[shorter]} is empty")
    return DataError(
        f"{names[0]} and {names[1]} differ in lines ({counts[0]:,} and {counts[1]:,}): line {count + 1:,} is missing "
        f"in {names[shorter]}; line N of both must belong together"
    )


# One file with both sides


def _read_tsv(stream: BinaryIO, name: str, options: Options) -> Iterator[Pair]:
    for line, origin in files.lines(stream, name, options.unreadable):
        source, *columns = line.split("\t", 2)
        if columns:
            yield Pair(source, columns[0], origin)
        elif line:
            raise DataError(
                f"{origin}: there is one column; a row is source, a tab, target (for another format use "
                "--format of regard check, in Python format=...)"
            )
        else:
            options.skipped["blank lines"] += 1


def _read_jsonl(stream: BinaryIO, name: str, options: Options) -> Iterator[Pair]:
    for line, origin in files.lines(stream, name, options.unreadable):
        if not line.strip():
            options.skipped["blank lines"] += 1
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{origin}: not valid JSON: {error}; each line is one object") from error
        if not isinstance(row, dict):
            raise DataError(f'{origin}: not an object; each line is one, like {{"source": "...", "target": "..."}}')
        if isinstance(row.get("translation"), dict) and not options.fields:
            row = row["translation"]
            if options.languages is None:
                raise DataError(
                    f"{origin}: translation has {', '.join(row) or 'no languages'}: name the source and the target, "
                    "for example --languages en,fr (in Python languages=('en', 'fr'))"
                )
        source, target = (_field_text(row, name, origin, options) for name in _field_names(row, options))
        yield Pair(source, target, origin)


def _field_names(row: dict[str, Any], options: Options) -> tuple[str, str]:
    """The names of the fields of source and target: those requested, those of the languages, or the usual ones."""
    if options.fields:
        return options.fields
    usual = ("src", "tgt") if "src" in row and "source" not in row else ("source", "target")
    if options.languages is None:
        return usual
    names = tuple(row)
    source, target = (find_language(names, code) for code in options.languages)
    if source is None or target is None:
        return usual if usual[0] in row else options.languages
    return names[source], names[target]


def _field_text(row: dict[str, Any], name: str, origin: Origin, options: Options) -> str:
    if name not in row:
        hint = did_you_mean(name, row) if row else " The object is empty."
        if not (options.fields or options.languages):
            hint += (
                " Name the two fields with --fields, or with --languages where they are languages: --languages en,fr "
                "(in Python fields=('a', 'b') or languages=('en', 'fr'))"
            )
        raise DataError(f"{origin}: there is no field {name}.{hint}")
    text = row[name]
    if not isinstance(text, str):
        raise DataError(f"{origin}: {name} is {json.dumps(text)[:40]}, not text")
    if re.search(r"[\ud800-\udfff]", text):
        raise DataError(f"{origin}: {name} has half a character (a lone surrogate), which is not valid text")
    return files.one_line(text)


def _read_document(parse: Parser, stream: BinaryIO, name: str, options: Options) -> Iterator[Pair]:
    for entry in parse(stream, name, options.languages)[1]:
        if isinstance(entry, str):
            continue
        if entry.not_read:
            options.skipped[entry.not_read] += 1
            continue
        for source, target in entry.pairs:
            if target:
                yield Pair(source, target, entry.origin)
            else:
                options.skipped["untranslated"] += 1


FORMATS: dict[str, Reader] = {
    "tsv": _read_tsv,
    "jsonl": _read_jsonl,
    **{kind: partial(_read_document, parse) for kind, parse in DOCUMENTS.items()},
}
