"""Text files: bytes and lines, compressed or not, from disk or standard input, with clear errors."""

from __future__ import annotations

import bz2
import codecs
import difflib
import gzip
import io
import lzma
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from regard.errors import DataError

MAX_LINE_BYTES = 10 * 2**20  # of a line, or a unit of a marked-up file; longer ones are damaged or decompression bombs
MAX_CONTINUOUS_CHARACTERS = 2**16  # read at once from a continuous text without line breaks
SUFFIXES = (".gz", ".bz2", ".xz", ".zst", ".zstd")

_BUFFER = 2**18
_LINE_BREAKS = re.compile(r"(?<![ \t])[ \t]*+[\r\n][ \t\r\n]*")
_ENCODINGS = [  # encodings to guess from; if a text is the same in several, the first of them is named
    *("cp1252", "cp1251", "cp1250", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258", "iso8859_2"),
    *("iso8859_5", "koi8_r", "koi8_u", "mac_roman", "cp850", "cp866", "cp874"),
    *("cp932", "euc_jp", "gb18030", "big5", "cp949"),
]
_NUL = "there is a NUL byte, so this is a binary file or UTF-16; give UTF-8 text"
_BINARY = re.compile(  # images, documents, archives, databases, tables, arrays and programs, by their first bytes
    rb"\x89PNG|\xff\xd8\xff|GIF8|%PDF-|\xd0\xcf\x11\xe0|PK\x03\x04|7z\xbc\xaf|Rar!\x1a|.{257}ustar"
    rb"|SQLite format 3\0|PAR1\x15|ARROW1\0|\x93NUMPY|\x7fELF",
    re.DOTALL,
)


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


Unreadable = list[tuple[Origin, DataError]]
"""The lines that are not UTF-8, have a NUL byte or are too long, with their errors."""


# Bytes


def open_text(path: str | Path) -> BinaryIO:
    """The decompressed bytes of a text file; `-` is standard input."""
    path = str(path)
    if path == "-":
        return decompress(sys.stdin.buffer, display_name(path), close=False)
    try:
        file = open(path, "rb")  # noqa: SIM115 - closed with the stream
    except FileNotFoundError as error:
        if os.path.islink(path):
            raise DataError(f"{path} is a broken symbolic link") from error
        parent, name = os.path.split(path)
        names = os.listdir(parent or ".") if os.path.isdir(parent or ".") else []
        close = difflib.get_close_matches(name, names, n=1)
        hint = f" Did you mean {os.path.join(parent, close[0])}?" if close else ""
        raise DataError(f"{path} does not exist.{hint}") from error
    except IsADirectoryError as error:
        raise DataError(f"{path} is a folder; a file is needed here") from error
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    return decompress(file, path)


def decompress(file: BinaryIO, name: str, *, close: bool = True) -> BinaryIO:
    """The decompressed bytes of an open file (gzip, bz2, xz, zstd or none); `name` is for messages."""
    stream = io.BufferedReader(_Decoded(file, name, close), _BUFFER)
    try:
        if _BINARY.match(stream.peek(_BUFFER)):
            raise DataError(f"{name} is a binary file (an image, an archive, a document or a table), not text")
    except BaseException:
        stream.close()
        raise
    return cast(BinaryIO, stream)


def _zstd(file: Any) -> Any:
    import pyarrow

    return pyarrow.CompressedInputStream(pyarrow.PythonFile(file, mode="r"), "zstd")


_COMPRESSIONS: dict[str, tuple[bytes, Callable[[Any], Any]]] = {
    "gzip": (rb"\x1f\x8b", lambda file: gzip.GzipFile(fileobj=file, mode="rb")),
    "bz2": (rb"BZh[1-9](1AY&SY|\x17rE8P\x90)", bz2.BZ2File),
    "xz": (rb"\xfd7zXZ\0", lzma.LZMAFile),
    "zstd": (rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18", _zstd),
}


class _Decoded(io.RawIOBase):
    """The decompressed bytes of a file, with clear errors; its first bytes show the compression."""

    def __init__(self, file: Any, name: str, close: bool) -> None:
        self.file = file if hasattr(file, "peek") else io.BufferedReader(file)
        self.name, self.close_file, self.compression, self.decoder = name, close, "", self.file
        try:
            head = self.file.peek(16)
        except OSError as error:
            raise DataError(f"{name} cannot be read: {error.strerror or error}") from error
        for compression, (magic, decoder) in _COMPRESSIONS.items():
            if re.match(magic, head):
                self.compression, self.decoder = compression, decoder(self.file)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        # read1 does not wait for more, so that a typed line is processed immediately
        read = getattr(self.decoder, "read1", self.decoder.read)
        try:
            data = read(len(buffer))
        except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
            if not self.compression:
                raise DataError(f"{self.name} cannot be read: {error}") from error
            state = "truncated" if isinstance(error, EOFError) or "Truncated" in str(error) else "damaged"
            raise DataError(f"{self.name} is {state}: not a whole {self.compression} archive; copy it again") from error
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if self.compression:
            self.decoder.close()
        if self.close_file:
            self.file.close()
        super().close()


def display_name(path: str | Path) -> str:
    """The name of a path in messages."""
    return "standard input" if str(path) == "-" else str(path)


def uncompressed_name(path: str | Path) -> str:
    """The name of a file without the suffix of its compression."""
    path = Path(path)
    return path.stem if path.suffix.lower() in SUFFIXES else path.name


def list_files(path: str | Path) -> list[Path]:
    """The files of a folder by name, or the one file; names that begin with . or _ are skipped.

    A backup or a compressed copy of another file in the folder is an error: 0.en~ or 0.en.gz beside 0.en.
    """
    if not os.path.isdir(path):  # unlike Path.is_dir, it never raises
        if str(path) != "-" and not os.path.exists(path):
            open_text(path).close()  # raises the error
        return [Path(path)]
    try:
        files = sorted(file for file in Path(path).iterdir() if not file.name.startswith((".", "_")))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    if not files:
        raise DataError(f"{path} is an empty folder; give a file or a folder of files")
    by_name(files, lambda file: uncompressed_name(file.name.rstrip("~")))
    return files


def by_name(files: Sequence[Path], name: Callable[[Path], str]) -> dict[str, Path]:
    """The files of a folder by name; two files with the same name are an error."""
    names: dict[str, Path] = {}
    for file in files:
        if (first := names.setdefault(name(file), file)) != file:
            raise DataError(f"{first} and {file.name} are two files for {name(file)}: keep one of them in the folder")
    return names


# Lines


def lines(stream: BinaryIO, name: str, unreadable: Unreadable | None = None) -> Iterator[tuple[str, Origin]]:
    r"""The lines of a UTF-8 stream with their origin; only \n and \r\n end a line, as in other tools.

    A line that cannot be read is added to `unreadable`; without it, its error is raised.
    """
    for number, line in enumerate(lines_or_errors(stream, name), 1):
        if isinstance(line, str):
            yield line, Origin(name, number)
        elif unreadable is None:
            raise line
        else:
            unreadable.append((Origin(name, number), line))


def lines_or_errors(stream: BinaryIO, name: str) -> Iterator[str | DataError]:
    """The texts of `lines`, with the error in place of a line that cannot be read."""
    number, advice = 0, ""
    while line := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        if number == 1:
            if line.startswith((b"\xff\xfe", b"\xfe\xff")):
                encoding = "UTF-32" if line.startswith(b"\xff\xfe\0\0") else "UTF-16"
                raise DataError(f"{name} is {encoding}; convert it with iconv -f {encoding} -t UTF-8")
            line = line.removeprefix(b"\xef\xbb\xbf")
            if not line:
                return
        if len(line) > MAX_LINE_BYTES:
            while line and not line.endswith(b"\n"):
                line = stream.readline(MAX_LINE_BYTES)
            problem = f"the line is longer than {MAX_LINE_BYTES:,} bytes; give one sentence per line"
        elif b"\0" in line:
            problem = _NUL
        else:
            line = line[:-2] if line.endswith(b"\r\n") else line.removesuffix(b"\n")
            try:
                yield line.decode("utf-8")
                continue
            except UnicodeDecodeError as error:
                byte = f"byte {error.start + 1} of the line (0x{line[error.start]:02X})"
                if not advice:  # on standard input, peek could wait for a user who is typing
                    following = b"" if name == display_name("-") else cast(io.BufferedReader, stream).peek()
                    advice = _encoding_advice(line + b"\n" + following)
                problem = f"{byte} is not UTF-8; {advice}"
        yield DataError(f"{name}:{number}: {problem}")


def _encoding_advice(sample: bytes) -> str:
    """How to convert a text that is not UTF-8; charset-normalizer guesses its encoding."""
    from charset_normalizer import from_bytes

    whole_lines = sample[:_BUFFER].rpartition(b"\n")[0] or sample[:_BUFFER]
    not_utf8 = [line for line in whole_lines.splitlines() if line.decode(errors="ignore").encode() != line]
    best = from_bytes(b"\n".join(not_utf8), cp_isolation=_ENCODINGS).best()
    if best is None:
        return "convert the file with iconv -f ENCODING -t UTF-8"
    same_text = best.could_be_from_charset
    encoding = codecs.lookup(next((name for name in _ENCODINGS if name in same_text), best.encoding)).name.upper()
    return f"it looks like {encoding} (a guess): iconv -f {encoding} -t UTF-8"


def one_line(text: str) -> str:
    """The text with line breaks, and the spaces around them, replaced by one space; at either end they are removed."""
    if "\n" not in text and "\r" not in text:
        return text
    return " ".join(part for part in _LINE_BREAKS.split(text) if part)


def written_line(text: str) -> str:
    """A translation as one line of a file, without NUL bytes: a model may write them, but no reader accepts them."""
    return one_line(text.replace("\0", ""))


def language_of(path: str | Path | None) -> str:
    """The language code that ends the name of a file (train.en, train.fr.gz); empty if there is none."""
    suffixes = Path(path).suffixes if path else []
    code = next((suffix for suffix in reversed(suffixes) if suffix not in SUFFIXES), "").removeprefix(".")
    return code if 2 <= len(code) <= 3 and code.isalpha() and code not in ("txt", "tsv", "csv") else ""


def read_lines(path: str | Path) -> Iterator[tuple[str, Origin]]:
    """The lines of a file, or of a folder of files, with their origin."""
    empty = True
    for file in list_files(path):
        with open_text(file) as stream:
            for line in lines(stream, display_name(file)):
                empty = False
                yield line
    if empty:
        raise DataError(f"{display_name(path)} is empty")


# Continuous text


def read_continuous(path: str | Path, start: int = 0, end: int | None = None) -> Iterator[str]:
    """The characters from `start` to before `end` of a file, or of a folder of files one after the other.

    They come line by line, with line ends, and very long lines in parts; joined, they are the text.
    """
    position = 0
    for file in list_files(path):
        name, number = display_name(file), 0
        with io.TextIOWrapper(open_text(file), encoding="utf-8-sig", newline="") as text:
            try:
                while line := text.readline(MAX_CONTINUOUS_CHARACTERS):
                    if "\0" in line:
                        raise DataError(f"{name}:{number + 1}: {_NUL}")
                    number += line.endswith("\n")
                    first, last = start - position, len(line) if end is None else end - position
                    position += len(line)
                    if last <= 0:
                        return
                    if part := line[max(first, 0) : last]:
                        yield part
            except UnicodeDecodeError as error:
                byte = f"a byte 0x{error.object[error.start]:02X} below line {number:,}"
                raise DataError(f"{name} is not UTF-8: there is {byte}; {_encoding_advice(error.object)}") from error
    if not position:
        raise DataError(f"{display_name(path)} is empty")
