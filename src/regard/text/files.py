"""Text files: bytes and lines, compressed or not, from disk or standard input, with clear errors."""

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
"""Bytes of a line, or of a unit of a marked-up file; a longer one is damaged or a decompression bomb."""

MAX_CONTINUOUS_CHARACTERS = 2**16  # read at once from a continuous text without line breaks

STANDARD_INPUT = "standard input"
SUFFIXES = (".gz", ".bz2", ".xz", ".zst", ".zstd")

_BUFFER = 2**18
_LINE_BREAKS = re.compile(r"[\r\n]+")
_MAGIC_BYTES = 16  # enough to recognize a compression
_CONVERT = "convert the file, for example with iconv -f ISO-8859-1 -t UTF-8"
_NUL = "there is a NUL byte, so this is a binary file or UTF-16; give UTF-8 text"

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
_UTF16_OR_32 = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"\0\0\xfe\xff": "UTF-32"}


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


# Bytes


def open_text(path: str | Path) -> BinaryIO:
    """The decompressed bytes of a text file; `-` is standard input."""
    if str(path) == "-":
        return decompress(sys.stdin.buffer, STANDARD_INPUT, close=False)
    return decompress(_open(str(path)), str(path))


def decompress(file: BinaryIO, name: str, *, close: bool = True) -> BinaryIO:
    """The decompressed bytes of an open file (gzip, bz2, xz, zstd or none); `name` is for messages."""
    to_close: list[Any] = [file] if close else []
    try:
        head = _read_head(file, name)
        compression, decoder = _decoder(head, io.BufferedReader(_Rewound(head, file), _BUFFER))
        to_close.insert(0, decoder)
        stream = io.BufferedReader(_Decoded(decoder, name, compression, to_close), _BUFFER)
        _refuse_binary(stream.peek(_BUFFER), name)
    except BaseException:
        for opened in to_close:
            opened.close()
        raise
    return cast(BinaryIO, stream)


def peek_until(stream: BinaryIO, enough: Callable[[bytes], bool]) -> tuple[bytes, BinaryIO]:
    """The first bytes of a stream, until they are enough, and the stream from its beginning."""
    head = b""
    while not enough(head) and (more := _read_some(stream, _BUFFER)):
        head += more
    return head, cast(BinaryIO, io.BufferedReader(_Rewound(head, stream), _BUFFER))


def display_name(path: str | Path) -> str:
    """The name of a path in messages."""
    return STANDARD_INPUT if str(path) == "-" else str(path)


def uncompressed_name(path: str | Path) -> str:
    """The name of a file without the suffix of its compression."""
    name = Path(path).name
    suffix = next((suffix for suffix in SUFFIXES if name.lower().endswith(suffix)), "")
    return name[: len(name) - len(suffix)]


def list_files(path: str | Path) -> list[Path]:
    """The files of a folder by name, or the one file; names that begin with . or _ are skipped."""
    folder = Path(path)
    if not os.path.isdir(path):  # unlike Path.is_dir, it never raises
        if str(path) != "-" and not os.path.exists(path):
            _open(str(path)).close()  # raises the error
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


def _open(path: str) -> BinaryIO:
    try:
        return open(path, "rb")
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist.{_similar_name(Path(path))}") from error
    except IsADirectoryError as error:
        raise DataError(f"{path} is a folder; a file is needed here") from error
    except PermissionError as error:
        raise DataError(f"{path} cannot be read: permission denied") from error
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _similar_name(path: Path) -> str:
    try:
        names = [file.name for file in path.parent.iterdir()]
    except OSError:
        return f" There is no folder {path.parent}."
    close = difflib.get_close_matches(path.name, names, n=1)
    return f" Did you mean {path.parent / close[0]}?" if close else ""


class _Rewound(io.RawIOBase):
    """A file with the bytes already read from it put back in front, since pipes cannot seek."""

    def __init__(self, head: bytes, file: BinaryIO) -> None:
        self.head, self.file = head, file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.head[: len(buffer)] if self.head else _read_some(self.file, len(buffer))
        self.head = self.head[len(data) :]
        buffer[: len(data)] = data
        return len(data)


class _Decoded(io.RawIOBase):
    """The output of a decoder, with clear errors."""

    def __init__(self, decoder: Any, name: str, compression: str, to_close: list[Any]) -> None:
        self.decoder, self.name, self.compression, self.to_close = decoder, name, compression, to_close

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = _read_some(self.decoder, len(buffer))
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
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            for opened in self.to_close:
                opened.close()
        super().close()


def _read_some(file: Any, size: int) -> bytes:
    """Up to `size` bytes, without waiting for more, so that a typed line is processed immediately."""
    return cast(bytes, file.read1(size) if hasattr(file, "read1") else file.read(size))


def _read_head(file: BinaryIO, name: str) -> bytes:
    head = b""
    try:
        while len(head) < _MAGIC_BYTES and b"\n" not in head and (more := _read_some(file, _BUFFER)):
            head += more
    except OSError as error:
        raise DataError(f"{name} cannot be read: {error.strerror or error}") from error
    return head


def _decoder(head: bytes, file: Any) -> tuple[str, Any]:
    """The compression that the first bytes show, and its decoder."""
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
    for magic, kind in _BINARY.items():
        if head.startswith(magic):
            raise DataError(f"{name} is {kind}, not text")
    if head[257:262] == b"ustar":
        raise DataError(f"{name} is a tar archive: unpack it and give the files inside")


# Lines


def lines(stream: BinaryIO, name: str) -> Iterator[tuple[str, Origin]]:
    """The lines of a stream with their origin."""
    for number, text in enumerate(texts(stream, name), 1):
        yield text, Origin(name, number)


def texts(stream: BinaryIO, name: str) -> Iterator[str]:
    r"""The lines of a UTF-8 stream; only \n and \r\n end a line, as in other tools."""
    for line in lines_or_errors(stream, name):
        if isinstance(line, DataError):
            raise line
        yield line


def lines_or_errors(stream: BinaryIO, name: str) -> Iterator[str | DataError]:
    """The lines of `texts`, with the error in place of a line that cannot be read."""
    number = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        if number == 1:
            line = _without_byte_order_mark(line, name)
            if not line:
                return
        if len(line) > MAX_LINE_BYTES:
            while line and not line.endswith(b"\n"):
                line = stream.readline(MAX_LINE_BYTES)
            yield DataError(
                f"{name}:{number}: the line is longer than {MAX_LINE_BYTES:,} bytes; give one sentence per line"
            )
            continue
        yield _decode(line, name, number)


def _without_byte_order_mark(line: bytes, name: str) -> bytes:
    for mark, encoding in _UTF16_OR_32.items():
        if line.startswith(mark):
            raise DataError(f"{name} is {encoding}; convert it with iconv -f {encoding} -t UTF-8")
    return line.removeprefix(b"\xef\xbb\xbf")


def _decode(line: bytes, name: str, number: int) -> str | DataError:
    if line.endswith(b"\n"):
        line = line[:-2] if line.endswith(b"\r\n") else line[:-1]
    if b"\0" in line:
        return DataError(f"{name}:{number}: {_NUL}")
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = f"byte {error.start + 1} of the line (0x{line[error.start]:02X})"
        return DataError(f"{name}:{number}: {byte} is not UTF-8; {_CONVERT}")


def one_line(text: str) -> str:
    """The text with line breaks, and the spaces around them, replaced by one space; at either end they are removed."""
    if "\n" not in text and "\r" not in text:
        return text
    first, *middle, last = _LINE_BREAKS.split(text)
    parts = [first.rstrip(" \t"), *(part.strip(" \t") for part in middle), last.lstrip(" \t")]
    return " ".join(part for part in parts if part)


def read_lines(path: str | Path) -> Iterator[tuple[str, Origin]]:
    """The lines of a file, or of a folder of files, with their origin."""
    files = list_files(path)

    def read() -> Iterator[tuple[str, Origin]]:
        empty = True
        for file in files:
            with open_text(file) as stream:
                for line in lines(stream, display_name(file)):
                    empty = False
                    yield line
        if empty:
            raise DataError(f"{display_name(path)} is empty")

    return read()


# Continuous text


def continuous_text(stream: BinaryIO, name: str) -> Iterator[str]:
    """The text of a UTF-8 stream with its line ends, line by line; very long lines come in parts."""
    with io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
        number = 0
        while True:
            try:
                line = text.readline(MAX_CONTINUOUS_CHARACTERS)
            except UnicodeDecodeError as error:
                byte = f"a byte 0x{error.object[error.start]:02X} below line {number:,}"
                raise DataError(f"{name} is not UTF-8: there is {byte}; {_CONVERT}") from error
            if not line:
                return
            if "\0" in line:
                raise DataError(f"{name}:{number + 1}: {_NUL}")
            number += line.endswith("\n")
            yield line


def read_continuous(path: str | Path, start: int = 0, end: int | None = None) -> Iterator[str]:
    """The characters from `start` to before `end` of a file, or of a folder of files one after the other.

    They come line by line, with line ends; joined, they are the text.
    """
    files = list_files(path)

    def read() -> Iterator[str]:
        position = 0
        for file in files:
            with open_text(file) as stream:
                for line in continuous_text(stream, display_name(file)):
                    first, last = start - position, len(line) if end is None else end - position
                    position += len(line)
                    if last <= 0:
                        return
                    if wanted := line[max(first, 0) : last]:
                        yield wanted
        if not position:
            raise DataError(f"{display_name(path)} is empty")

    return read()
