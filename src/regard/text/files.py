"""Bytes and lines of any text file: compressed or not, on disk or from standard input, whole or with a clear error."""

from __future__ import annotations

import bz2
import difflib
import gzip
import io
import lzma
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from regard.errors import DataError

MAX_LINE_BYTES = 10 * 2**20
"""Bytes one line, or one unit of a marked-up file, may have: beyond it is damage or a bomb, not a sentence."""

PIECE = 2**16
"""Characters of a running text that are read at once, where no line ends before."""

STANDARD_INPUT = "standard input"
SUFFIXES = (".gz", ".bz2", ".xz", ".zst", ".zstd")

_BUFFER = 2**18
_BREAKS = re.compile(r"[\r\n]+")
_HEAD = 16  # the longest of the marks below that must be known before anything is decoded

_BINARY = {
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"GIF87a": "a GIF image",
    b"GIF89a": "a GIF image",
    b"%PDF-": "a PDF document",
    b"PK\x03\x04": "a ZIP archive (or an Office document)",
    b"\xd0\xcf\x11\xe0": "an Office document",
    b"7z\xbc\xaf": "a 7-Zip archive",
    b"Rar!\x1a": "a RAR archive",
    b"SQLite format 3\0": "an SQLite database",
    b"PAR1\x15": "a Parquet table",
    b"ARROW1\0": "an Arrow table",
    b"\x93NUMPY": "a NumPy array",
    b"\x7fELF": "a program",
}
_WIDE = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"\0\0\xfe\xff": "UTF-32"}


class Origin(NamedTuple):
    """Where a text begins: a file and a line, from 1."""

    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


class Pair(NamedTuple):
    """A text, its translation, and where they come from."""

    source: str
    target: str
    origin: Origin


def open_text(path: str | Path) -> BinaryIO:
    """The bytes of a text file, decompressed as its first bytes ask; `-` is standard input."""
    name = display_name(path)
    if str(path) == "-":
        return decompress(sys.stdin.buffer, name, close=False)
    return decompress(_open(str(path)), name)


def decompress(file: BinaryIO, name: str, *, close: bool = True) -> BinaryIO:
    """The bytes of an open file before compression (gzip, bz2, xz, zstd or none); `name` is for the messages."""
    owned: list[Any] = [file] if close else []
    try:
        head = _begin(file, name)
        whole = io.BufferedReader(_Again(head, file), _BUFFER)
        compression, opened = _decoder(head, whole)
        owned.insert(0, opened)
        stream = io.BufferedReader(_Plain(opened, name, compression, owned), _BUFFER)
        _refuse_binary(stream.peek(_BUFFER), name)
    except BaseException:
        for inner in owned:
            inner.close()
        raise
    return cast(BinaryIO, stream)


def peek_until(stream: BinaryIO, enough: Callable[[bytes], bool]) -> tuple[bytes, BinaryIO]:
    """The first bytes of a stream, until they are enough, and the stream as if they had not been read."""
    head = b""
    while not enough(head) and (more := _some(stream, _BUFFER)):
        head += more
    return head, cast(BinaryIO, io.BufferedReader(_Again(head, stream), _BUFFER))


def display_name(path: str | Path) -> str:
    """What messages and origins call a path."""
    return STANDARD_INPUT if str(path) == "-" else str(path)


def texts(stream: BinaryIO, name: str) -> Iterator[str]:
    r"""The lines of a stream of UTF-8, ended by \n or \r\n and by nothing else, so that line N is line N everywhere."""
    for found in lines_or_errors(stream, name):
        if isinstance(found, DataError):
            raise found
        yield found


def lines_or_errors(stream: BinaryIO, name: str) -> Iterator[str | DataError]:
    """The lines as `texts` has them; in the place of one that cannot be read stands what is wrong with it."""
    number = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        if number == 1:
            line = _without_mark(line, name)
            if not line:
                return
        if len(line) > MAX_LINE_BYTES:
            while line and not line.endswith(b"\n"):
                line = stream.readline(MAX_LINE_BYTES)
            yield DataError(
                f"{name}:{number}: the line is longer than {MAX_LINE_BYTES:,} bytes: is this text, one sentence a line?"
            )
            continue
        yield _text(line, name, number)


def _text(line: bytes, name: str, number: int) -> str | DataError:
    if line.endswith(b"\n"):
        line = line[:-2] if line.endswith(b"\r\n") else line[:-1]
    if b"\0" in line:
        return DataError(f"{name}:{number}: there is a NUL byte, so this is a binary file or UTF-16; give UTF-8 text")
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        return DataError(
            f"{name}:{number}: byte {error.start + 1} of the line (0x{line[error.start]:02X}) is not UTF-8; "
            "convert the file, for example with iconv -f ISO-8859-1 -t UTF-8"
        )


def continuous_text(stream: BinaryIO, name: str) -> Iterator[str]:
    """The text of a stream of UTF-8 as it stands, line ends included, in pieces: lines, or parts of very long ones."""
    with io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
        number = 0
        while True:
            try:
                piece = text.readline(PIECE)
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{name} is not UTF-8: there is a byte 0x{error.object[error.start]:02X} below line {number:,}; "
                    "convert the file, for example with iconv -f ISO-8859-1 -t UTF-8"
                ) from error
            if not piece:
                return
            if "\0" in piece:
                raise DataError(
                    f"{name}:{number + 1}: there is a NUL byte, so this is a binary file or UTF-16; give UTF-8 text"
                )
            number += piece.endswith("\n")
            yield piece


def one_line(text: str) -> str:
    """The text with each run of line breaks, and the blanks around it, as one blank; at either end they go."""
    if "\n" not in text and "\r" not in text:
        return text
    first, *middle, last = _BREAKS.split(text)
    parts = [first.rstrip(" \t"), *(part.strip(" \t") for part in middle), last.lstrip(" \t")]
    return " ".join(part for part in parts if part)


def lines(stream: BinaryIO, name: str) -> Iterator[tuple[str, Origin]]:
    """The lines of a stream, each with where it stands."""
    for number, text in enumerate(texts(stream, name), 1):
        yield text, Origin(name, number)


def list_files(path: str | Path) -> list[Path]:
    """The files of a folder in the order of their names, or the one file; `.hidden` and `_SUCCESS` are no data."""
    folder = Path(path)
    if not os.path.isdir(path):  # unlike Path.is_dir, it never raises
        if str(path) != "-" and not os.path.exists(path):
            _open(str(path)).close()  # says what is wrong
        return [folder]
    try:
        files = sorted(file for file in folder.iterdir() if not file.name.startswith((".", "_")))
    except OSError as error:
        raise DataError(f"{folder} cannot be read: {error.strerror}") from error
    for file in files:
        if file.is_dir():
            raise DataError(f"{file} is a folder inside a folder; the files of a corpus lie side by side in one folder")
    if not files:
        raise DataError(f"{folder} is an empty folder; give a file or a folder of files")
    return files


def uncompressed_name(path: str | Path) -> str:
    """The name of a file without the suffix of its compression."""
    name = Path(path).name
    for suffix in SUFFIXES:
        if name.lower().endswith(suffix):
            return name[: -len(suffix)]
    return name


def _open(path: str) -> BinaryIO:
    try:
        return open(path, "rb")
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist.{_neighbour(Path(path))}") from error
    except IsADirectoryError as error:
        raise DataError(f"{path} is a folder; a file is needed here") from error
    except PermissionError as error:
        raise DataError(f"{path} may not be read: you have no permission") from error
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _neighbour(path: Path) -> str:
    try:
        names = [file.name for file in path.parent.iterdir()]
    except OSError:
        return f" There is no folder {path.parent}."
    close = difflib.get_close_matches(path.name, names, n=1)
    return f" Did you mean {path.parent / close[0]}?" if close else ""


class _Again(io.RawIOBase):
    """A file whose beginning has been read, from its beginning; pipes cannot go back."""

    def __init__(self, head: bytes, file: BinaryIO) -> None:
        self.head, self.file = head, file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        given = self.head[: len(buffer)] if self.head else _some(self.file, len(buffer))
        self.head = self.head[len(given) :]
        buffer[: len(given)] = given
        return len(given)


class _Plain(io.RawIOBase):
    """What a decoder gives; damage becomes a message."""

    def __init__(self, decoder: Any, name: str, compression: str, owned: list[Any]) -> None:
        self.decoder, self.name, self.compression, self.owned = decoder, name, compression, owned

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            given = _some(self.decoder, len(buffer))
        except EOFError as error:
            raise DataError(
                f"{self.name} ends too early: the {self.compression} archive is truncated; copy it again"
            ) from error
        except (OSError, zlib.error, lzma.LZMAError) as error:
            if not self.compression:
                raise DataError(f"{self.name} cannot be read: {error}") from error
            state = "truncated" if "Truncated" in str(error) else "damaged"
            raise DataError(
                f"{self.name} is {state}: not a whole {self.compression} archive ({error}); copy it again"
            ) from error
        buffer[: len(given)] = given
        return len(given)

    def close(self) -> None:
        if not self.closed:
            for inner in self.owned:
                inner.close()
        super().close()


def _some(file: Any, size: int) -> bytes:
    """Up to `size` bytes, and no waiting for more than there are: a line typed is a line read."""
    return cast(bytes, file.read1(size) if hasattr(file, "read1") else file.read(size))


def _begin(file: BinaryIO, name: str) -> bytes:
    head = b""
    while len(head) < _HEAD and b"\n" not in head:
        try:
            more = _some(file, _BUFFER)
        except OSError as error:
            raise DataError(f"{name} cannot be read: {error.strerror or error}") from error
        if not more:
            break
        head += more
    return head


def _decoder(head: bytes, file: Any) -> tuple[str, Any]:
    if head.startswith(b"\x1f\x8b"):
        return "gzip", gzip.GzipFile(fileobj=file, mode="rb")
    if re.match(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)", head):
        return "bz2", bz2.BZ2File(file)
    if head.startswith(b"\xfd7zXZ\0"):
        return "xz", lzma.LZMAFile(file)
    if re.match(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18", head):
        import pyarrow

        return "zstd", pyarrow.CompressedInputStream(pyarrow.PythonFile(file, mode="r"), "zstd")
    return "", file


def _refuse_binary(head: bytes, name: str) -> None:
    for mark, kind in _BINARY.items():
        if head.startswith(mark):
            raise DataError(f"{name} is {kind}, not text")
    if head[257:262] == b"ustar":
        raise DataError(f"{name} is a tar archive: unpack it and give the files inside")


def _without_mark(line: bytes, name: str) -> bytes:
    for mark, encoding in _WIDE.items():
        if line.startswith(mark):
            raise DataError(f"{name} is {encoding}; convert it with iconv -f {encoding} -t UTF-8")
    return line.removeprefix(b"\xef\xbb\xbf")


def read_lines(path: str | Path) -> Iterator[tuple[str, Origin]]:
    """The lines of one text, or of a folder of texts, each with where it stands."""
    files = list_files(path)

    def read() -> Iterator[tuple[str, Origin]]:
        found = False
        for file in files:
            with open_text(file) as stream:
                for line in lines(stream, display_name(file)):
                    found = True
                    yield line
        if not found:
            raise DataError(f"{display_name(path)} is empty")

    return read()


def read_continuous(path: str | Path, begin: int = 0, end: int | None = None) -> Iterator[str]:
    """The characters of one text, or of a folder of texts one after the other, from `begin` to before `end`.

    In pieces which, joined, are the text: line ends are in it, and nothing is left out.
    """
    files = list_files(path)

    def read() -> Iterator[str]:
        place = 0
        for file in files:
            with open_text(file) as stream:
                for piece in continuous_text(stream, display_name(file)):
                    first, last = begin - place, len(piece) if end is None else end - place
                    place += len(piece)
                    if last <= 0:
                        return
                    if wanted := piece[max(first, 0) : last]:
                        yield wanted
        if not place:
            raise DataError(f"{display_name(path)} is empty")

    return read()
