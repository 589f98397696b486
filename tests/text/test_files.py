"""Bytes and lines of any text file."""

import bz2
import gzip
import io
import lzma
import os
import random
import tracemalloc
from pathlib import Path

import pyarrow
import pytest

from regard.errors import DataError
from regard.text import files as streams
from regard.text.files import (
    Unreadable,
    lines,
    list_files,
    one_line,
    open_text,
    read_continuous,
    uncompressed_name,
    written_line,
)

COMPRESS = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda data: pyarrow.compress(data, codec="zstd", asbytes=True),
}


NOISE = random.Random(1).randbytes(5000).hex().encode()


def read(path):
    with open_text(path) as stream:
        return [text for text, _ in lines(stream, str(path))]


def put(folder, name, data):
    path = folder / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("kind", COMPRESS)
def test_compression_is_known_by_its_first_bytes_and_not_by_the_name(tmp_path, kind):
    path = put(tmp_path, "text", COMPRESS[kind]("déjà\nvu\n".encode()))
    assert read(path) == ["déjà", "vu"]


@pytest.mark.parametrize("kind", COMPRESS)
def test_parts_compressed_one_after_another_are_one_text(tmp_path, kind):
    path = put(tmp_path, "text", COMPRESS[kind](b"a\n") + COMPRESS[kind](b"b\n"))
    assert read(path) == ["a", "b"]


@pytest.mark.parametrize("kind", COMPRESS)
def test_a_truncated_archive_is_named(tmp_path, kind):
    path = put(tmp_path, "text", COMPRESS[kind](NOISE)[:-20])
    with pytest.raises(DataError, match=r"text .*truncated"):
        read(path)


@pytest.mark.parametrize("kind", COMPRESS)
def test_a_damaged_archive_is_named(tmp_path, kind):
    data = bytearray(COMPRESS[kind](NOISE))
    data[10:50] = b"\xff" * 40
    with pytest.raises(DataError, match=r"text .*(damaged|truncated)"):
        read(put(tmp_path, "text", bytes(data)))


def test_a_name_that_promises_compression_may_lie(tmp_path):
    assert read(put(tmp_path, "text.gz", b"plain\n")) == ["plain"]


def test_a_text_may_begin_like_an_archive(tmp_path):
    assert read(put(tmp_path, "text", b"BZh is how bz2 begins\n")) == ["BZh is how bz2 begins"]


def test_an_empty_file_has_no_lines(tmp_path):
    assert read(put(tmp_path, "text", b"")) == []


def test_only_a_newline_ends_a_line(tmp_path):
    line = "a\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\rb"
    assert read(put(tmp_path, "text", f"{line}\nc".encode())) == [line, "c"]


def test_windows_line_ends_and_the_byte_order_mark_are_not_text(tmp_path):
    assert read(put(tmp_path, "text", b"\xef\xbb\xbfa\r\nb\r\n")) == ["a", "b"]


def test_a_byte_order_mark_alone_is_no_line(tmp_path):
    assert read(put(tmp_path, "text", b"\xef\xbb\xbf")) == []


def test_empty_lines_are_lines(tmp_path):
    assert read(put(tmp_path, "text", b"\n\na\n")) == ["", "", "a"]


def test_lines_know_where_they_stand(tmp_path):
    path = put(tmp_path, "text", b"a\nb\n")
    with open_text(path) as stream:
        assert [str(origin) for _, origin in lines(stream, "text")] == ["text:1", "text:2"]


def test_bytes_that_are_not_utf8_are_named_by_line_and_byte(tmp_path):
    with pytest.raises(DataError, match=r"text:2: byte 4 of the line \(0xE9\) is not UTF-8"):
        read(put(tmp_path, "text", "ok\ncafé\n".encode("latin-1")))


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("CP1252", "Le café est près de la forêt.\nL'été, la maison est fermée à clé.\n"),
        ("CP1251", "Старый дом стоит у реки.\nМаленькая птица видит красный дом.\n"),
        ("CP932", "古い家は川のそばにあります。\n小さな鳥が赤い家を見ます。\n"),
    ],
)
def test_another_encoding_is_guessed(tmp_path: Path, encoding: str, text: str) -> None:
    path = put(tmp_path, "text", b"an ASCII line\n" + text.encode(encoding))
    with pytest.raises(DataError, match=rf"it looks like {encoding} \(a guess\): iconv -f {encoding} -t UTF-8"):
        read(path)
    with pytest.raises(DataError, match=rf"it looks like {encoding} \(a guess\)"):
        list(read_continuous(path))


def test_one_word_gets_a_usual_encoding(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"it looks like CP1252 \(a guess\)"):
        read(put(tmp_path, "text", "café\n".encode("latin-1")))


def test_lines_that_are_utf8_do_not_disturb_the_guess(tmp_path: Path) -> None:
    text = "古い家は川のそばにあります。\n".encode() * 9 + "Маленькая птица видит красный дом.\n".encode("cp1251")
    with pytest.raises(DataError, match=r"text:10: .* it looks like CP1251"):
        read(put(tmp_path, "text", text))


def test_unreadable_lines_are_collected(tmp_path: Path) -> None:
    path = put(tmp_path, "text", b"one\n\xff\ntwo\na\0b\n")
    unreadable: Unreadable = []
    with open_text(path) as stream:
        assert [text for text, _ in lines(stream, "text", unreadable)] == ["one", "two"]
    assert [str(origin) for origin, _ in unreadable] == ["text:2", "text:4"]


@pytest.mark.parametrize("encoding", ["UTF-16", "UTF-32"])
def test_utf16_and_utf32_are_named(tmp_path, encoding):
    with pytest.raises(DataError, match=f"is {encoding}; convert it with iconv -f {encoding}"):
        read(put(tmp_path, "text", "a\n".encode(encoding)))


def test_a_broken_symbolic_link_is_named(tmp_path):
    (tmp_path / "text").symlink_to("nowhere")
    with pytest.raises(DataError, match="text is a broken symbolic link"):
        read(tmp_path / "text")


def test_a_nul_byte_means_a_binary_file(tmp_path):
    with pytest.raises(DataError, match="text:2: there is a NUL byte"):
        read(put(tmp_path, "text", b"a\nb\0c\n"))


BINARIES = {
    "PNG": b"\x89PNG\r\n\x1a\n",
    "ZIP": b"PK\x03\x04\x14",
    "PDF": b"%PDF-1.7\n",
    "SQLite": b"SQLite format 3\0",
    "Parquet": b"PAR1\x15\x04",
    "tar": b"name".ljust(257, b"\0") + b"ustar\0",
}


@pytest.mark.parametrize("kind", BINARIES)
@pytest.mark.parametrize("wrap", [bytes, gzip.compress], ids=["plain", "compressed"])
def test_a_binary_file_is_refused(tmp_path, kind, wrap):
    with pytest.raises(DataError, match="is a binary file"):
        read(put(tmp_path, "text", wrap(BINARIES[kind])))


def test_a_missing_file_suggests_its_neighbour(tmp_path):
    put(tmp_path, "train.en.gz", b"")
    with pytest.raises(DataError, match=r"train\.en does not exist\. Did you mean .*train\.en\.gz\?"):
        open_text(tmp_path / "train.en")


def test_a_folder_is_not_a_file(tmp_path):
    with pytest.raises(DataError, match="is a folder; a file is needed"):
        open_text(tmp_path)


def test_a_file_without_permission_says_so(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(DataError, match="Permission denied"):
        open_text(tmp_path / "text")


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000])
@pytest.mark.parametrize("action", [open_text, list_files])
def test_an_impossible_name_is_an_error_of_the_request(action, name):
    with pytest.raises(DataError, match="cannot be read"):
        action(name)


def test_an_absurdly_long_line_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "MAX_LINE_BYTES", 10)
    with pytest.raises(DataError, match="text:2: the line is longer than 10 bytes"):
        read(put(tmp_path, "text", b"short\n" + b"x" * 11 + b"\n"))


def test_a_line_just_short_enough_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "MAX_LINE_BYTES", 10)
    assert read(put(tmp_path, "text", b"x" * 9 + b"\n" + b"y" * 10)) == ["x" * 9, "y" * 10]


def peak(action):
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_decompression_bomb_in_one_line_is_refused_before_it_eats_memory(tmp_path):
    path = tmp_path / "bomb.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(60):
            file.write(b"x" * 2**20)

    def refused():
        with pytest.raises(DataError, match="longer than"):
            read(path)

    assert peak(refused) < 40 * 2**20


def test_memory_stays_flat_on_a_large_compressed_file(tmp_path):
    path = tmp_path / "large.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(40):
            file.write((b"a sentence of some length, repeated. " * 10 + b"\n") * 800)

    def count():
        with open_text(path) as stream:
            assert sum(1 for _ in lines(stream, "large")) == 32_000

    assert path.stat().st_size < 3 * 2**20
    assert peak(count) < 4 * 2**20  # 12 MB of text


def test_standard_input_may_be_compressed_and_stays_open(monkeypatch):
    class Console:
        buffer = io.BufferedReader(io.BytesIO(gzip.compress(b"a\nb\n")))

    monkeypatch.setattr("sys.stdin", Console)
    assert read("-") == ["a", "b"]
    assert not Console.buffer.closed


def test_a_line_that_has_arrived_is_given_before_the_next_one_comes(monkeypatch):
    receiving, sending = os.pipe()

    class Console:
        buffer = os.fdopen(receiving, "rb")

    monkeypatch.setattr("sys.stdin", Console)
    with Console.buffer, os.fdopen(sending, "wb", buffering=0) as typed:
        typed.write(b"a\n")
        with open_text("-") as stream:
            assert next(lines(stream, "-"))[0] == "a"


def test_a_pipe_that_cannot_go_back_is_read(tmp_path):
    receiving, sending = os.pipe()
    with os.fdopen(sending, "wb") as file:
        file.write(gzip.compress(b"a\n"))
    try:
        assert read(f"/dev/fd/{receiving}") == ["a"]
    finally:
        os.close(receiving)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a \r\n\t\r b\nc", "a b c"),
        ("\n a\n", "a"),
        ("  a  b\t", "  a  b\t"),
        (" a\nb ", " a b "),
        (" \n ", ""),
        ("a\u2028b\u00a0\nc", "a\u2028b\u00a0 c"),
    ],
)
def test_line_breaks_become_a_space_and_all_else_stays(text, line):
    assert one_line(text) == line


def test_a_translation_is_written_as_a_line_without_nul():
    assert written_line("a\0b\n\0c") == "ab c"


def test_shards_come_in_the_order_of_their_names_without_hidden_files(tmp_path):
    for name in ("b.txt", "a.txt", ".c.txt", "_SUCCESS"):
        put(tmp_path, name, b"")
    assert [file.name for file in list_files(tmp_path)] == ["a.txt", "b.txt"]


@pytest.mark.parametrize("copy", ["0.en~", "0.en.gz"])
def test_a_file_beside_its_backup_or_compressed_copy_is_refused_with_both_names(tmp_path, copy):
    put(tmp_path, "0.en", b"")
    put(tmp_path, copy, b"")
    with pytest.raises(DataError, match=rf"/0\.en and {copy} are two files for 0\.en: keep one"):
        list_files(tmp_path)


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(DataError, match="is an empty folder"):
        list_files(tmp_path)


@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz", "a.tsv.BZ2", "a.tsv.xz", "a.tsv.zst", "a.tsv.zstd"])
def test_the_bare_name_has_no_suffix_of_compression(name):
    assert uncompressed_name(f"folder/{name}") == "a.tsv"


# Running text


def flowing(folder, data):
    return list(read_continuous(put(folder, "a.txt", data)))


def test_a_running_text_comes_as_it_stands(tmp_path):
    assert flowing(tmp_path, "ö\r\n\n \nb\rc".encode()) == ["ö\r\n", "\n", " \n", "b\r", "c"]


def test_a_running_text_may_have_no_line_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "MAX_CONTINUOUS_CHARACTERS", 3)
    assert flowing(tmp_path, "öäüßæ".encode()) == ["öäü", "ßæ"]


@pytest.mark.parametrize(("data", "message"), [(b"a\nb\0\n", "a.txt:2: .* NUL"), (b"a\n\xff", "0xFF below line")])
def test_a_running_text_is_text(tmp_path, data, message):
    with pytest.raises(DataError, match=message):
        flowing(tmp_path, data)


@pytest.mark.parametrize(
    ("name", "code"),
    [("train.en", "en"), ("a/train.fr.gz", "fr"), ("train.txt", ""), ("train", ""), ("corpus.jsonl", "")],
)
def test_the_name_of_a_file_tells_its_language(name, code):
    assert streams.language_of(name) == code
