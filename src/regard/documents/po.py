"""PO: read the translated messages of a gettext file, and fill the missing ones in place."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import BinaryIO, NamedTuple, cast

from regard.documents.inline import Piece, join_pieces, split_tags
from regard.documents.languages import Languages
from regard.documents.outcome import Gap, Outcome
from regard.errors import DataError
from regard.text import files
from regard.text.files import Origin, Pair, lines, one_line
from regard.text.sentences import text_problem

STATEMENT = re.compile(r'(msgctxt|msgid_plural|msgid|msgstr|domain)(?:\[(\d{1,3})\])?\s*(".*")')
FIELDS = {"msgctxt": "context", "msgid": "id", "msgid_plural": "plural", "msgstr": "0", "domain": "domain"}
PLURAL_FORMS = re.compile(r"nplurals\s*=\s*(\d{1,2})")
ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)", re.DOTALL)
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
ESCAPED = str.maketrans({character: f"\\{letter}" for letter, character in ESCAPES.items()})


class Message(NamedTuple):
    """A message: `context`, `id`, `plural` and its translations by number, with their line numbers."""

    texts: dict[str, str]
    flags: set[str]
    origin: Origin
    rows: dict[str, list[int]]
    """Line numbers of each text, of the `flags` and of the `previous` message in a comment."""


def read_po(stream: BinaryIO, name: str, *, skipped: Counter[str]) -> Iterator[Pair]:
    """The translated messages of a file; fuzzy, obsolete and untranslated ones are skipped and counted."""
    for message in read_messages(stream, name, skipped):
        texts = message.texts
        source, plural = texts["id"], texts.get("plural")
        if not source and "context" not in texts:  # the header
            continue
        if "fuzzy" in message.flags:
            skipped["fuzzy"] += 1
            continue
        forms = sorted((number for number in texts if number.isdigit()), key=int)
        if plural is not None and len(forms) == 1:  # the language has one form for any number
            source = plural
        for number in forms:
            if translation := one_line(texts[number]):
                original = source if number == "0" or plural is None else plural
                yield Pair(one_line(original), translation, message.origin)
            else:
                skipped["untranslated"] += 1


def read_messages(stream: BinaryIO, name: str, skipped: Counter[str]) -> Iterator[Message]:
    """The messages of a file, its header among them; obsolete ones are counted."""
    message, field, size = Message({}, set(), Origin(name, 1), {}), "", 0
    for line, origin in lines(stream, name):
        line = line.strip(" \t\r\f\v")
        statement = STATEMENT.fullmatch(line)
        begins = line.startswith("#") or (statement is not None and statement[1] in ("msgctxt", "msgid", "domain"))
        if begins and "0" in message.texts:
            yield message
            message, field, size = Message({}, set(), message.origin, {}), "", 0
        size += len(line)
        if size > files.MAX_LINE_BYTES:
            raise DataError(
                f"{message.origin}: one message is longer than {files.MAX_LINE_BYTES:,} bytes: is the file damaged?"
            )
        if line.startswith("#"):
            _read_comment(line, message, origin, skipped)
        elif statement is not None:
            field = statement[2] or FIELDS[statement[1]]
            _check_order(field, message.texts, origin)
            if field == "domain":
                message, field = Message({}, message.flags, message.origin, {}), ""
                continue
            message = message._replace(origin=origin) if field == "id" else message
            message.texts[field] = _unquote(statement[3], origin)
            message.rows[field] = [origin.line]
        elif line.startswith('"') and field:
            message.texts[field] += _unquote(line, origin)
            message.rows[field].append(origin.line)
        elif line:
            raise DataError(
                f'{origin}: {line[:40]!r} is not PO; a line is a comment, msgid "...", msgstr "..." or "..."'
            )
    if message.texts and "0" not in message.texts:
        raise DataError(f"{message.origin}: the file ends before the msgstr of this message: it is truncated")
    if message.texts:
        yield message


def _read_comment(line: str, message: Message, origin: Origin, skipped: Counter[str]) -> None:
    if line.startswith("#~"):  # flags above an obsolete message belong to it
        skipped["obsolete"] += bool(re.match(r"#~\s*msgid\s", line))
        message.flags.clear()
        message.rows.clear()
    elif line.startswith("#,"):
        message.flags.update(flag.strip() for flag in line[2:].split(","))
        message.rows.setdefault("flags", []).append(origin.line)
    elif line.startswith("#|"):
        message.rows.setdefault("previous", []).append(origin.line)


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

    def character(match: re.Match[bytes]) -> bytes:
        code = match[1].decode(errors="replace")
        if code in ESCAPES:
            return ESCAPES[code].encode()
        if code[0] == "x" and len(code) > 1:
            return bytes([int(code[1:], 16)])
        if code[0] in "01234567" and int(code, 8) < 256:
            return bytes([int(code, 8)])
        raise DataError(f"{origin}: the escape \\{code} is not known in PO")

    try:
        return ESCAPE.sub(character, inside.encode()).decode() if "\\" in inside else inside
    except UnicodeDecodeError as error:
        raise DataError(f"{origin}: the escapes of this string are not UTF-8") from error


# Filling


class _Recorder(io.RawIOBase):
    """A stream that keeps the lines read from it."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self.lines: list[bytes] = []

    def readline(self, size: int | None = -1, /) -> bytes:
        line = self.stream.readline(-1 if size is None else size)
        if line:
            self.lines.append(line)
        return line


def fill_po(
    stream: BinaryIO, name: str, *, languages: Languages | None, everything: bool, outcome: Outcome
) -> tuple[str, Iterator[str | Gap]]:
    """The encoding of a file and its parts, with a gap for each message without a translation."""
    recorder = _Recorder(stream)

    def parts() -> Iterator[str | Gap]:
        plural_forms, done = 0, 0
        for message in read_messages(cast(BinaryIO, recorder), name, outcome.skipped):
            if not message.texts["id"] and "context" not in message.texts:
                declared = PLURAL_FORMS.search(message.texts.get("0", ""))
                plural_forms = int(declared[1]) if declared else 0
                continue
            last = max(row for rows in message.rows.values() for row in rows)
            text = [line.decode() for line in recorder.lines[: last - done]]
            del recorder.lines[: last - done]
            yield _fill_message(message, text, done + 1, plural_forms, everything=everything, outcome=outcome)
            done = last
        yield b"".join(recorder.lines).decode()

    return "utf-8", parts()


def _fill_message(
    message: Message, text: list[str], first: int, plural_forms: int, *, everything: bool, outcome: Outcome
) -> str | Gap:
    """The lines up to and including a message, unchanged or with a gap for its translations.

    `first` is the number of the first line.
    """
    texts = message.texts
    source, plural = texts["id"], texts.get("plural")
    numbers = [number for number in texts if number.isdigit()]
    if plural is not None:
        numbers = sorted({*numbers, *map(str, range(plural_forms))}, key=int)
    missing = [number for number in numbers if everything or not texts.get(number)]
    if not source.strip() or not missing:
        outcome.kept += bool(source.strip())
        return "".join(text)
    if problem := text_problem(source + (plural or "")):
        outcome.skipped["unreadable"] += 1
        outcome.failed.add(message.rows["id"][0], problem)
        return "".join(text)
    outcome.translated += 1
    if plural is not None and len(numbers) == 1:
        source = plural
    sources = {number: source if number == "0" or plural is None else plural for number in missing}
    segments = {number: [split_tags(line) for line in original.split("\n")] for number, original in sources.items()}
    counts = {number: len(lines) for number, lines in segments.items()}
    write = partial(_write_message, message, text, first, counts)
    return Gap([line for lines in segments.values() for line in lines], write)


def _write_message(
    message: Message, text: list[str], first: int, counts: dict[str, int], translations: list[list[Piece]]
) -> str:
    remaining = iter(translations)
    line_end = "\r\n" if text[0].endswith("\r\n") else "\n"
    changed, added = dict(enumerate(text, first)), ""
    for number, count in counts.items():
        translation = "\n".join(join_pieces(next(remaining)) for _ in range(count))
        keyword = f"msgstr[{number}]" if "plural" in message.texts else "msgstr"
        statement = _statement(keyword, translation, line_end)
        if number in message.rows:
            row, *rest = message.rows[number]
            changed |= {row: statement} | dict.fromkeys(rest, "")
        else:
            added += statement
    if "flags" in message.rows and "fuzzy" not in message.flags:
        row = message.rows["flags"][0]
        changed[row] = re.sub(r"#,\s*", "#, fuzzy, ", changed[row], count=1)
    elif "fuzzy" not in message.flags:
        row = min(row for rows in message.rows.values() for row in rows)
        changed[row] = f"#, fuzzy{line_end}{changed[row]}"
    whole = "".join(changed.values())
    return whole + line_end * bool(added and not whole.endswith("\n")) + added


def _statement(keyword: str, text: str, line_end: str) -> str:
    """A translation as PO writes it: one line, or one for every line of the text."""
    quoted = [f'"{line.translate(ESCAPED)}"' for line in re.findall(r"[^\n]*\n|[^\n]+", text)]
    if len(quoted) < 2:
        return f"{keyword} {quoted[0] if quoted else chr(34) * 2}{line_end}"
    return "".join(f"{line}{line_end}" for line in [f'{keyword} ""', *quoted])
