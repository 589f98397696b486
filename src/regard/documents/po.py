"""PO: the messages of a gettext file, with their translations or gaps for them."""

from __future__ import annotations

import codecs
import gettext
import io
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import BinaryIO, NamedTuple

from regard.documents.inline import Piece, Tag, join_pieces, split_tags
from regard.documents.languages import Languages
from regard.documents.outcome import Entry, Gap
from regard.errors import DataError
from regard.text.files import Origin, one_line

ESCAPE = r'\\(?:[abfnrtv"\\]|[0-3]?[0-7]{1,2}|x[0-9a-fA-F]{2})'
STATEMENT = re.compile(  # without a keyword, it continues the statement above
    rf'(?:(msgctxt|msgid_plural|msgid|msgstr)(?:\[(\d{{1,3}})\])?\s*)?"((?:[^"\\]|{ESCAPE})*)"'
)
CHARSET = re.compile(rb"Content-Type:[^\n\\]*charset=([\w.:-]+)", re.IGNORECASE)
OTHER_CHARSET = re.compile(r"(charset=)(?!utf-?8\b)[\w.:-]+", re.IGNORECASE)
PLURAL_FORMS = re.compile(r"nplurals\s*=\s*(\d{1,2})(?:\s*;\s*plural\s*=([^;\n]*))?")
ESCAPED = str.maketrans(
    {"\n": r"\n", "\t": r"\t", "\r": r"\r", "\\": r"\\", '"': r"\"", "\a": r"\a", "\b": r"\b", "\f": r"\f", "\v": r"\v"}
)


@dataclass
class Message:
    """A message, with all lines since the one before."""

    origin: Origin
    lines: list[str] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)  # source texts by keyword, and translations by number
    rows: dict[str, list[int]] = field(default_factory=dict)  # indices of the lines of each text and kind of comment
    flags: set[str] = field(default_factory=set)


class Plurals(NamedTuple):
    """The plural forms of a language."""

    forms: int = 0
    singular: int = 0  # the form of the singular
    is_exact: bool = True  # whether the singular is for one thing only; in Russian it is also for 21


def parse_po(stream: BinaryIO, name: str, languages: Languages | None) -> tuple[str, Iterator[str | Entry]]:
    """The encoding of a file, and its messages as entries with the text between them; the header declares UTF-8."""
    data = stream.read()
    declared = CHARSET.search(data)
    charset = declared[1].decode() if declared and declared[1] != b"CHARSET" else "utf-8"  # CHARSET: of a template
    try:
        text = data.decode(charset)
    except (LookupError, UnicodeError) as error:
        line = data.count(b"\n", 0, getattr(error, "start", 0)) + 1
        raise DataError(
            f"{name}:{line}: the text cannot be read as {charset}; convert the file to UTF-8 with msgconv"
        ) from error

    def entries() -> Iterator[str | Entry]:
        plurals = Plurals()
        for message in _read_messages(text, name):
            if message.texts.get("msgid") or "msgctxt" in message.texts:
                yield _parse_message(message, plurals)
                continue
            header = message.texts.get("0")
            plurals = plurals if header is None else _read_plurals(header)
            yield OTHER_CHARSET.sub(r"\1UTF-8", "".join(message.lines), count=int(header is not None))

    return "utf-8", entries()


def _read_plurals(header: str) -> Plurals:
    declared = PLURAL_FORMS.search(header)
    if declared is None:
        return Plurals()
    try:
        rule = gettext.c2py(declared[2])
        forms = [rule(number) for number in range(200)]
    except (TypeError, ValueError, ArithmeticError, RecursionError):  # there is no rule, or it is wrong
        return Plurals(int(declared[1]))
    return Plurals(int(declared[1]), forms[1], forms.count(forms[1]) == 1)


def _read_messages(text: str, name: str) -> Iterator[Message]:
    """The messages of a file, its header among them, and what follows the last one."""
    message, key = Message(Origin(name, 1)), ""
    for number, raw in enumerate(io.StringIO(text, newline="\n"), 1):
        line = raw.strip("\ufeff \t\r\f\v\n")
        statement = STATEMENT.fullmatch(line)
        keyword = statement[1] if statement else None
        if "0" in message.texts and (line.startswith("#") or keyword in ("msgctxt", "msgid")):
            yield message
            message, key = Message(Origin(name, number)), ""
        row = len(message.lines)
        message.lines.append(raw)
        if line.startswith("#~"):
            if not message.texts:  # the flags above belong to this obsolete message
                message.flags.clear()
                message.rows.clear()
        elif line.startswith("#"):
            message.flags |= {flag.strip() for flag in line[2:].split(",")} if line.startswith("#,") else set()
            message.rows.setdefault(line[:2], []).append(row)
        elif statement is not None and (keyword or key):
            if keyword:
                key = statement[2] or ("0" if keyword == "msgstr" else keyword)
                if key in message.texts or (keyword in ("msgstr", "msgid_plural") and "msgid" not in message.texts):
                    raise DataError(f"{name}:{number}: a message has one msgid, then one msgstr (or msgstr[0], ...)")
                message.origin = Origin(name, number) if keyword == "msgid" else message.origin
            content = codecs.escape_decode(statement[3].encode())[0].decode(errors="replace")
            message.texts[key] = message.texts.get(key, "") + content
            message.rows.setdefault(key, []).append(row)
        elif line:
            raise DataError(
                f'{name}:{number}: {line[:40]!r} is not PO; a line is a comment, msgid "...", msgstr "..." or "...", '
                'with \\" for a quote and \\\\ for a backslash'
            )
    if message.texts and "0" not in message.texts:
        raise DataError(f"{message.origin}: the file ends before the msgstr of this message: it is truncated")
    yield message


def _parse_message(message: Message, plurals: Plurals) -> Entry:
    """The entry of a message.

    The singular form translates `msgid`, the others `msgid_plural`. If the singular form is also for other numbers and
    `msgid` lacks the placeholder of the number, it translates `msgid_plural` too.
    """
    texts, flags = message.texts, message.flags
    source, plural = texts["msgid"], texts.get("msgid_plural")
    is_format = any(flag.endswith("-format") and not flag.startswith("no-") for flag in flags)
    numbers = {int(key) for key in texts if key.isdigit()}
    if plural is not None:
        numbers |= set(range(plurals.forms))
        if len(numbers) == 1 or not (plurals.is_exact or _placeholders(source) == _placeholders(plural)):
            source = plural
    sources = {str(n): source if n == plurals.singular or plural is None else plural for n in sorted(numbers)}

    def gap(everything: bool) -> Gap:
        missing = [number for number in sources if everything or not texts.get(number)]
        lines = {number: _split_lines(sources[number], is_format) for number in missing}
        counts = {number: len(of_translation) for number, of_translation in lines.items()}
        return Gap([*chain.from_iterable(lines.values())], partial(_write, message, counts))

    not_filled = "" if source.strip() else "empty"
    if plural is not None and not plurals.forms:
        not_filled = "plurals, whose number of forms is not in the header (Plural-Forms)"
    return Entry(
        "".join(message.lines),
        message.origin,
        pairs=[(one_line(original), one_line(texts.get(number, ""))) for number, original in sources.items()],
        not_read="fuzzy" if "fuzzy" in flags else "",
        not_filled=not_filled,
        gap=gap,
    )


def _split_lines(text: str, is_format: bool) -> list[list[Piece]]:
    """The pieces of each line of a text; line breaks inside a tag do not split it."""
    lines: list[list[Piece]] = [[]]
    for piece in split_tags(text, format_string=is_format):
        first, *rest = [piece] if isinstance(piece, Tag) else piece.split("\n")
        lines[-1].append(first)
        lines += [[part] for part in rest]
    return lines


def _placeholders(text: str) -> Counter[str]:
    return Counter(piece.raw for piece in split_tags(text, format_string=True) if isinstance(piece, Tag))


def _write(message: Message, counts: dict[str, int], translations: list[list[Piece]]) -> str:
    """The lines of a message with its translations, marked as fuzzy."""
    remaining = iter(translations)
    line_end = "\r\n" if message.lines[0].endswith("\r\n") else "\n"
    lines, rows = list(message.lines), message.rows
    last = max(row for key in message.texts for row in rows[key])
    for number, count in counts.items():
        translation = "\n".join(join_pieces(next(remaining)) for _ in range(count))
        keyword = f"msgstr[{number}]" if "msgid_plural" in message.texts else "msgstr"
        quoted = [f'"{line.translate(ESCAPED)}"' for line in re.findall(r"[^\n]*\n|[^\n]+", translation)]
        quoted = ['""', *quoted] if len(quoted) != 1 else quoted
        statement = f"{keyword} {line_end.join(quoted)}{line_end}"
        if number in rows:
            for row in rows[number]:
                lines[row] = ""
            lines[rows[number][0]] = statement
        else:
            lines[last] += statement if lines[last].endswith("\n") or not lines[last] else line_end + statement
    if "fuzzy" not in message.flags:
        if "#," in rows:
            flags = rows["#,"][0]
            lines[flags] = re.sub(r"#,\s*", "#, fuzzy, ", lines[flags], count=1)
        else:  # above the previous message, if there is one
            first = min(row for key in rows if key == "#|" or key in message.texts for row in rows[key])
            lines[first] = f"#, fuzzy{line_end}{lines[first]}"
    return "".join(lines)
