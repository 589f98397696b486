"""PO: the messages of a gettext file, with their translations or gaps for them."""

from __future__ import annotations

import gettext
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import BinaryIO, NamedTuple

from regard.documents.inline import Piece, Tag, join_pieces, split_tags
from regard.documents.languages import Languages
from regard.documents.outcome import Entry, Gap
from regard.errors import DataError
from regard.text.files import Origin, one_line

ESCAPE = r'\\(?:[abfnrtv"\\]|[0-3]?[0-7]{1,2}|x[0-9a-fA-F]{1,2})'
STATEMENT = re.compile(  # without a keyword, it continues the statement above
    rf'(?:(msgctxt|msgid_plural|msgid|msgstr)(?:\[(\d{{1,3}})\])?\s*)?"((?:[^"\\]|{ESCAPE})*)"'
)
CHARSET = re.compile(rb"Content-Type:[^\n\\]*charset=([\w.:-]+)", re.IGNORECASE)
OTHER_CHARSET = re.compile(r"(charset=)(?!utf-?8\b)[\w.:-]+", re.IGNORECASE)
PLURAL_FORMS = re.compile(r"nplurals\s*=\s*(\d{1,2})(?:\s*;\s*plural\s*=([^;\n]*))?")
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
ESCAPED = str.maketrans({character: f"\\{letter}" for letter, character in ESCAPES.items()})


@dataclass
class Message:
    """A message, with all lines since the one before."""

    origin: Origin
    lines: list[str] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    """Source texts by keyword, and translations by number."""
    rows: dict[str, list[int]] = field(default_factory=dict)
    """The indices of the lines that hold each text, the flags and the previous message."""
    flags: set[str] = field(default_factory=set)
    obsolete: int = 0
    """Obsolete messages before it."""


class Plurals(NamedTuple):
    """The plural forms of a language: their number, and which of them is the singular."""

    forms: int = 0
    singular: int = 0
    exact: bool = True
    """Whether the singular is for one thing only; in Russian it is also for 21."""

    @classmethod
    def from_header(cls, header: str) -> Plurals:
        declared = PLURAL_FORMS.search(header)
        if declared is None:
            return cls()
        try:
            rule = gettext.c2py(declared[2])
            numbers = [rule(n) for n in range(200)]
        except (TypeError, ValueError, ArithmeticError, RecursionError):  # there is no rule, or it is wrong
            return cls(int(declared[1]))
        return cls(int(declared[1]), numbers[1], numbers.count(numbers[1]) == 1)


def parse_po(stream: BinaryIO, name: str, languages: Languages | None) -> tuple[str, Iterator[str | Entry]]:
    """The encoding of a file, and its messages as entries with the text between them; the header declares UTF-8."""
    data = stream.read()
    declared = CHARSET.search(data)
    charset = declared[1].decode() if declared and declared[1] != b"CHARSET" else "utf-8"  # CHARSET: of a template
    try:
        text = data.decode(charset)
    except LookupError as error:
        raise DataError(
            f"{name}: the charset {charset} is not known; convert the file to UTF-8 with msgconv"
        ) from error
    except UnicodeError as error:
        line = data.count(b"\n", 0, getattr(error, "start", 0)) + 1
        raise DataError(f"{name}:{line}: the text is not {charset}; convert the file to UTF-8 with msgconv") from error
    return "utf-8", _entries(text, name)


def _entries(text: str, name: str) -> Iterator[str | Entry]:
    plurals = Plurals()
    for message in _read_messages(text, name):
        for _ in range(message.obsolete):
            yield Entry("", message.origin, [], "obsolete", "obsolete", lambda _: ([], lambda _: ""))
        if message.texts.get("msgid") or "msgctxt" in message.texts:
            yield _parse_message(message, plurals)
            continue
        header = "0" in message.texts
        plurals = Plurals.from_header(message.texts["0"]) if header else plurals
        yield OTHER_CHARSET.sub(r"\1UTF-8", "".join(message.lines), count=int(header))


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
        if line.startswith("#"):
            _read_comment(line, row, message)
        elif statement is not None and (keyword or key):
            if keyword:
                key = statement[2] or ("0" if keyword == "msgstr" else keyword)
                if key in message.texts or (keyword in ("msgstr", "msgid_plural") and "msgid" not in message.texts):
                    raise DataError(f"{name}:{number}: a message has one msgid, then one msgstr (or msgstr[0], ...)")
                message.origin = Origin(name, number) if keyword == "msgid" else message.origin
            message.texts[key] = message.texts.get(key, "") + _unescape(statement[3])
            message.rows.setdefault(key, []).append(row)
        elif line:
            raise DataError(
                f'{name}:{number}: {line[:40]!r} is not PO; a line is a comment, msgid "...", msgstr "..." or "...", '
                'with \\" for a quote and \\\\ for a backslash'
            )
    if message.texts and "0" not in message.texts:
        raise DataError(f"{message.origin}: the file ends before the msgstr of this message: it is truncated")
    yield message


def _read_comment(line: str, row: int, message: Message) -> None:
    if line.startswith("#~"):  # flags above an obsolete message belong to it
        message.obsolete += bool(re.match(r"#~\s*msgid\s", line))
        message.flags.clear()
        message.rows.clear()
    elif line.startswith("#,"):
        message.flags.update(flag.strip() for flag in line[2:].split(","))
        message.rows.setdefault("flags", []).append(row)
    elif line.startswith("#|"):
        message.rows.setdefault("previous", []).append(row)


def _unescape(text: str) -> str:
    def character(match: re.Match[bytes]) -> bytes:
        code = match[0][1:].decode()
        if code in ESCAPES:
            return ESCAPES[code].encode()
        return bytes([int(code[1:], 16) if code[0] == "x" else int(code, 8)])

    return re.sub(ESCAPE.encode(), character, text.encode()).decode(errors="replace") if "\\" in text else text


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
        if len(numbers) == 1 or not (plurals.exact or _placeholders(source) == _placeholders(plural)):
            source = plural
    sources = {str(n): source if n == plurals.singular or plural is None else plural for n in sorted(numbers)}
    pairs = [(one_line(original), one_line(texts.get(number, ""))) for number, original in sources.items()]

    def gap(everything: bool) -> Gap:
        missing = [number for number in sources if everything or not texts.get(number)]
        segments = [_split_lines(split_tags(sources[number], format_string=is_format)) for number in missing]
        counts = {number: len(lines) for number, lines in zip(missing, segments, strict=True)}
        return [line for lines in segments for line in lines], partial(_write, message, counts)

    not_read = "fuzzy" if "fuzzy" in flags else ""
    not_filled = "" if source.strip() else "empty"
    if plural is not None and not plurals.forms:
        not_filled = "plurals, whose number of forms is not in the header (Plural-Forms)"
    return Entry("".join(message.lines), message.origin, pairs, not_read, not_filled, gap)


def _split_lines(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """The pieces of each line; a tag or placeholder may contain line breaks."""
    lines: list[list[Piece]] = [[]]
    for piece in pieces:
        first, *rest = [piece] if isinstance(piece, Tag) else piece.split("\n")
        lines[-1].append(first)
        lines += ([part] for part in rest)
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
            lines[rows[number][0]] = statement
            for row in rows[number][1:]:
                lines[row] = ""
        else:
            lines[last] += statement if lines[last].endswith("\n") or not lines[last] else line_end + statement
    if "flags" in rows and "fuzzy" not in message.flags:
        lines[rows["flags"][0]] = re.sub(r"#,\s*", "#, fuzzy, ", lines[rows["flags"][0]], count=1)
    elif "fuzzy" not in message.flags:
        first = min(row for key in rows for row in rows[key])
        lines[first] = f"#, fuzzy{line_end}{lines[first]}"
    return "".join(lines)
