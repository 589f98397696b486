"""Pairs of texts from whatever the user has."""

import bz2
import gzip
import io
import json
import lzma
import tracemalloc
from collections import Counter

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from regard.cli.app import app
from regard.documents.formats import EXTENSIONS, FORMATS, format_of, left_out, read_pairs
from regard.errors import DataError, RegardError
from regard.text.files import read_continuous, read_lines

TMX = (
    '<tmx version="1.4"><header srclang="en"/><body><tu><tuv xml:lang="en"><seg>cat</seg></tuv>'
    '<tuv xml:lang="fr"><seg>chat</seg></tuv></tu></body></tmx>'
)
XLIFF = (
    '<xliff version="1.2"><file source-language="en" target-language="fr"><body><trans-unit id="1">'
    "<source>cat</source><target>chat</target></trans-unit></body></file></xliff>"
)
SAMPLES = {
    "tsv": "cat\tchat\n",
    "jsonl": '{"source": "cat", "target": "chat"}\n',
    "tmx": TMX,
    "xliff": XLIFF,
    "po": 'msgid "cat"\nmsgstr "chat"\n',
}
COMPRESS = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: pyarrow.compress(data, codec="zstd", asbytes=True),
}


def put(folder, name, text):
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def read(*paths, **options):
    return [(pair.source, pair.target) for pair in read_pairs(*paths, **options)]


@pytest.fixture
def type_in(monkeypatch):
    def give(text):
        class Console:
            buffer = io.BytesIO(text.encode())

        monkeypatch.setattr("sys.stdin", Console)

    return give


# Every format


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_is_read_plain_and_compressed(tmp_path, kind, suffix):
    path = put(tmp_path, f"corpus.{kind}{suffix}", COMPRESS[suffix](SAMPLES[kind].encode()))
    assert read(path) == [("cat", "chat")]


@pytest.mark.parametrize("kind", FORMATS)
def test_the_format_may_be_said_instead_of_named(tmp_path, kind):
    assert read(put(tmp_path, "corpus", SAMPLES[kind]), format=kind) == [("cat", "chat")]


@pytest.mark.parametrize("kind", FORMATS)
def test_an_empty_file_is_refused_in_every_format(tmp_path, kind):
    with pytest.raises(DataError, match=rf"corpus\.{kind} is empty"):
        read(put(tmp_path, f"corpus.{kind}", ""))


@pytest.mark.parametrize("kind", FORMATS)
def test_every_pair_knows_its_file(tmp_path, kind):
    path = put(tmp_path, f"corpus.{kind}", SAMPLES[kind])
    assert [pair.origin for pair in read_pairs(path)] == [(str(path), 1)]


def test_every_extension_leads_to_a_reader():
    assert set(EXTENSIONS.values()) == set(FORMATS)


@pytest.mark.parametrize(
    ("name", "kind"), [("a.tsv", "tsv"), ("b.TMX.gz", "tmx"), ("c.xlf", "xliff"), ("d.en", None), ("train.gz", None)]
)
def test_the_format_is_in_the_name(name, kind):
    assert format_of(name) == kind


def test_an_unknown_format_suggests_a_known_one(tmp_path):
    with pytest.raises(DataError, match=r"There is no format tsx\. Did you mean t"):
        read_pairs(tmp_path, format="tsx")


def test_one_file_of_unknown_format_is_refused_at_once(tmp_path):
    with pytest.raises(DataError, match=r"corpus\.txt is one plain text, and pairs need two"):
        read_pairs(put(tmp_path, "corpus.txt", "cat\tchat\n"))


def test_a_missing_file_is_refused_at_once(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        read_pairs(tmp_path / "corpus.tsv")


def test_a_file_in_which_all_is_left_out_says_why(tmp_path):
    with pytest.raises(DataError, match="holds no pairs: left out 1 untranslated"):
        read(put(tmp_path, "corpus.po", 'msgid "cat"\nmsgstr ""\n'))


def test_what_is_left_out_is_counted_for_the_caller(tmp_path):
    skipped = Counter()
    read(put(tmp_path, "corpus.tsv", "cat\tchat\n\n\n"), skipped=skipped)
    assert skipped == {"blank lines": 2}


@pytest.mark.parametrize(
    ("skipped", "words"),
    [
        ({}, ""),
        ({"untranslated": 2, "fuzzy": 3000}, "left out 3,000 fuzzy and 2 untranslated"),
        (
            {"blank lines": 1, "units without both languages": 1},
            "left out 1 blank line and 1 unit without both languages",
        ),
    ],
)
def test_skipped_entries_are_reported_in_words(skipped, words):
    assert left_out(Counter(skipped)) == words


def test_a_file_is_not_blamed_for_what_another_left_out(tmp_path):
    skipped = Counter({"fuzzy": 7})
    with pytest.raises(DataError, match=r"holds no pairs: left out 1 untranslated$"):
        read(put(tmp_path, "corpus.po", 'msgid "cat"\nmsgstr ""\n'), skipped=skipped)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("jsonl", '{"source": "a \\n\\r\\n b\\n", "target": " c\\u2028\\td "}'),
        ("po", 'msgid "a\\n"\n" b\\n"\nmsgstr " c\u2028\\td "\n'),
        ("tmx", TMX.replace("cat", "\n  a\n  b\n").replace("chat", " c\u2028\td ")),
        ("xliff", XLIFF.replace("cat", "\n  a\n  <g>\n b</g>\n").replace("chat", " c\u2028\td ")),
    ],
)
def test_line_breaks_inside_a_text_become_one_blank(tmp_path, kind, text):
    assert read(put(tmp_path, f"corpus.{kind}", text)) == [("a b", " c\u2028\td ")]


# Standard input


def test_standard_input_is_tsv(type_in):
    type_in("<b>cat\tchat\n")
    assert read("-") == [("<b>cat", "chat")]


@pytest.mark.parametrize("kind", FORMATS)
def test_the_format_of_standard_input_can_be_given(type_in, kind):
    type_in(SAMPLES[kind])
    assert read("-", format=kind) == [("cat", "chat")]


# On the command line


@pytest.fixture
def check():
    def run(*arguments):
        done = CliRunner().invoke(app, ["check", *map(str, arguments), "--json"])
        if isinstance(done.exception, RegardError):
            raise done.exception
        return json.loads(done.stdout), done.stderr

    return run


def test_check_reports_skipped_entries(tmp_path, check):
    messages = '#, fuzzy\nmsgid "a"\nmsgstr "b"\n\nmsgid "c"\nmsgstr ""\n\nmsgid "cat"\nmsgstr "chat"\n'
    answer, error = check(put(tmp_path, "corpus.po", messages))
    assert answer["skipped"] == {"fuzzy": 1, "untranslated": 1}
    assert error == "left out 1 fuzzy and 1 untranslated\n"


def test_check_is_silent_when_nothing_was_left_out(tmp_path, check):
    answer, error = check(put(tmp_path, "corpus.tsv", SAMPLES["tsv"]))
    assert (answer["skipped"], error) == ({}, "")


@pytest.mark.parametrize(
    ("name", "text", "flags"),
    [
        ("corpus", SAMPLES["tsv"], ["--format", "tsv"]),
        ("a.jsonl", '{"q": "cat", "a": "chat"}', ["--fields", "q,a"]),
        ("a.jsonl", '{"fr": "chat", "en": "cat"}', ["--languages", "en,fr"]),
    ],
)
def test_check_takes_what_the_messages_ask_for(tmp_path, check, name, text, flags):
    answer, _ = check(put(tmp_path, name, text), *flags)
    assert answer["statistics"]["train"]["pairs"] == 1


@pytest.mark.parametrize(
    ("name", "text", "flag"),
    [
        ("corpus", SAMPLES["tsv"], "--format tsv"),
        ("a.jsonl", '{"fr": "chat", "en": "cat"}', "--languages en,fr"),
        ("a.jsonl", '{"q": "cat", "a": "chat"}', "--fields"),
        ("a.jsonl", '{"translation": {"fr": "chat", "en": "cat", "de": "Katze"}}', "--languages en,fr"),
        ("a.tmx", TMX.replace("</tu>", '<tuv xml:lang="de"><seg>Katze</seg></tuv></tu>'), "--languages en,fr"),
        ("a.tsv", "cat chat\n", "--format"),
    ],
)
def test_messages_name_the_flag_that_would_be_right(tmp_path, check, name, text, flag):
    with pytest.raises(DataError, match=flag):
        check(put(tmp_path, name, text))


@pytest.mark.parametrize("names", [["corpus"], ["a.tsv", "b.tsv"]], ids=["one file", "two files"])
def test_messages_name_the_command_that_takes_a_format(tmp_path, names):
    with pytest.raises(DataError, match=r"use --format .* of regard check"):
        read_pairs(*[put(tmp_path, name, "cat\n") for name in names])


@pytest.mark.parametrize("flag", ["--languages", "--fields"])
def test_two_names_are_needed(tmp_path, flag):
    done = CliRunner().invoke(app, ["check", str(put(tmp_path, "a.jsonl", SAMPLES["jsonl"])), flag, "en,fr,de"])
    assert done.exit_code == 2
    assert "en,fr,de must be two words" in done.stderr


# Parallel text


def test_two_files_are_read_line_by_line(tmp_path):
    pairs = read(put(tmp_path, "a.en", "a\n\nb\n"), put(tmp_path, "a.fr", "c\n\nd"))
    assert pairs == [("a", "c"), ("", ""), ("b", "d")]


def test_odd_separators_inside_a_line_do_not_shift_the_other_side(tmp_path):
    pairs = read(put(tmp_path, "a.en", "a\u2028b\nc\n"), put(tmp_path, "a.fr", "x\r\ny\r\n"))
    assert pairs == [("a\u2028b", "x"), ("c", "y")]


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("a\nb\nc\n", "d\n", r"a\.en and .*a\.fr differ in lines \(3 and 1\): line 2 is missing in .*a\.fr"),
        ("a\n", "d\ne\nf", r"differ in lines \(1 and 3\): line 2 is missing in .*a\.en"),
    ],
)
def test_unequal_line_counts_are_both_reported(tmp_path, source, target, message):
    with pytest.raises(DataError, match=message):
        read(put(tmp_path, "a.en", source), put(tmp_path, "a.fr", target))


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("", "d\n", r"a\.en is empty"),
        ("d\n", "", r"a\.fr is empty"),
        ("a\n", b"\xe9\ne\n", r"a\.fr:1: byte 1 .* is not UTF-8"),
        ("a\n", b"d\n\xe9\n", r"a\.fr:2: byte 1 .* is not UTF-8"),
        ("a\n", b"d\ne\n\0\n", r"a\.fr:3: there is a NUL byte, so this is a binary file"),
        ("", b"\xe9\n", r"a\.fr:1: byte 1 .* is not UTF-8"),
    ],
)
@pytest.mark.parametrize("collects", [False, True])
def test_an_empty_or_unreadable_file_is_named_before_lines_are_compared(tmp_path, source, target, message, collects):
    files = put(tmp_path, "a.en", source), put(tmp_path, "a.fr", target)
    with pytest.raises(DataError, match=message):
        list(read_pairs(*files, unreadable=[] if collects else None))


def test_pairs_before_a_missing_line_are_given_first(tmp_path):
    pairs = read_pairs(put(tmp_path, "a.en", "a\nb\n"), put(tmp_path, "a.fr", "c\n"))
    assert next(pairs).target == "c"


def test_one_side_may_be_typed_in(tmp_path, type_in):
    type_in("a\nb\n")
    assert read("-", put(tmp_path, "a.fr", "c\nd\n")) == [("a", "c"), ("b", "d")]


def test_both_sides_cannot_be_typed_in():
    with pytest.raises(DataError, match="Only one side can come from standard input"):
        read_pairs("-", "-")


def test_two_folders_are_read_file_by_file(tmp_path):
    for language in ("en", "fr"):
        put(tmp_path, f"{language}/2.txt.gz", gzip.compress(b"b\n"))
        put(tmp_path, f"{language}/1.txt", "a\n")
    assert read(tmp_path / "en", tmp_path / "fr") == [("a", "a"), ("b", "b")]


def test_a_shard_may_be_compressed_on_one_side_only(tmp_path):
    put(tmp_path, "en/1.txt.gz", gzip.compress(b"a\n"))
    put(tmp_path, "fr/1.txt", "b\n")
    assert read(tmp_path / "en", tmp_path / "fr") == [("a", "b")]


@pytest.mark.parametrize("lonely", ["en", "fr"])
def test_two_folders_hold_the_same_names(tmp_path, lonely):
    for language in ("en", "fr"):
        put(tmp_path, f"{language}/1.txt", "a\n")
    put(tmp_path, f"{lonely}/2.txt", "a\n")
    with pytest.raises(DataError, match=r"has no 2\.txt, and .*2\.txt needs it"):
        read_pairs(tmp_path / "en", tmp_path / "fr")


def test_a_folder_and_a_file_do_not_go_together(tmp_path):
    put(tmp_path, "en/1.txt", "a\n")
    with pytest.raises(DataError, match=r"en is a folder and .*fr is a file: give two files or two folders"):
        read_pairs(tmp_path / "en", put(tmp_path, "fr", "a\n"))


def test_a_file_with_both_sides_is_not_given_twice(tmp_path):
    path = put(tmp_path, "corpus.tmx", TMX)
    with pytest.raises(DataError, match=r"corpus\.tmx is TMX, which holds both sides: give it alone"):
        read_pairs(path, path)


def test_a_format_with_both_sides_is_not_said_of_two_files(tmp_path):
    with pytest.raises(DataError, match="format tsv holds both sides in one file"):
        read_pairs("a", "b", format="tsv")


def test_one_plain_text_is_half_of_a_corpus(tmp_path):
    with pytest.raises(DataError, match="is one text, and pairs need two"):
        read_pairs(put(tmp_path, "a.en", "a\n"), format="text")


def test_memory_stays_flat_on_large_parallel_files(tmp_path):
    for language in ("en", "fr"):
        with gzip.open(tmp_path / f"a.{language}.gz", "wb", compresslevel=1) as file:
            for _ in range(30):
                file.write((b"a sentence of some length, repeated. " * 10 + b"\n") * 1000)
    tracemalloc.start()
    count = sum(1 for _ in read_pairs(tmp_path / "a.en.gz", tmp_path / "a.fr.gz"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 30_000
    assert peak < 6 * 2**20  # 22 MB of text


# A folder of files that hold both sides


def test_a_folder_may_hold_files_of_several_formats(tmp_path):
    for number, kind in enumerate(FORMATS):
        put(tmp_path, f"corpus/{number}.{kind}", SAMPLES[kind])
    assert read(tmp_path / "corpus") == [("cat", "chat")] * len(FORMATS)


def test_an_empty_shard_among_others_is_no_mistake(tmp_path):
    put(tmp_path, "corpus/1.tsv", "")
    put(tmp_path, "corpus/2.tsv", "cat\tchat\n")
    assert read(tmp_path / "corpus") == [("cat", "chat")]


# TSV


def test_further_columns_are_ignored(tmp_path):
    assert read(put(tmp_path, "a.tsv", "cat\tchat\tCC BY\t#1\n")) == [("cat", "chat")]


def test_backslashes_and_quotes_are_text_in_tsv(tmp_path):
    assert read(put(tmp_path, "a.tsv", '"a\\n\t"b""\n')) == [('"a\\n', '"b""')]


def test_a_row_with_one_column_is_named_by_its_line(tmp_path):
    with pytest.raises(DataError, match=r"a\.tsv:2: there is one column; a row is source, a tab, target"):
        read(put(tmp_path, "a.tsv", "cat\tchat\ndog chien\n"))


# JSONL


def test_translations_are_told_apart_by_name_and_not_by_order(tmp_path):
    rows = [{"en": "cat", "fr": "chat"}, {"fr": "chien", "en": "dog"}, {"de": "Kuh", "fr": "vache", "en-GB": "cow"}]
    path = put(tmp_path, "a.jsonl", "".join(json.dumps({"translation": row}) + "\n" for row in rows))
    assert read(path, languages=("en", "fr")) == [("cat", "chat"), ("dog", "chien"), ("cow", "vache")]


def test_the_very_code_of_a_language_is_read_before_one_that_agrees(tmp_path):
    row = {"fr-CA": "char", "fr": "voiture", "en": "car", "source": "web"}
    assert read(put(tmp_path, "a.jsonl", json.dumps(row)), languages=("en", "fr")) == [("car", "voiture")]


@pytest.mark.parametrize(
    ("row", "options"),
    [
        ({"src": "cat", "tgt": "chat"}, {}),
        ({"translation": {"en": "cat", "fr": "chat"}}, {"languages": ("en", "fr")}),
        ({"translation": {"fr": "chat", "de": "Katze", "en": "cat"}}, {"languages": ("en", "fr")}),
        ({"fr-FR": "chat", "en": "cat"}, {"languages": ("en", "fr")}),
        ({"q": "cat", "a": "chat", "source": "web"}, {"fields": ("q", "a")}),
    ],
)
def test_the_usual_names_of_fields_are_known(tmp_path, row, options):
    assert read(put(tmp_path, "a.jsonl", json.dumps(row)), **options) == [("cat", "chat")]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"sorce": "cat", "target": "chat"}', r"a\.jsonl:2: there is no field source\. Did you mean sorce\?"),
        ('{"source": "cat"}', "there is no field target"),
        ("{}", r"there is no field source\. The object is empty"),
        ('{"source": "cat", "target": null}', "a.jsonl:2: target is null, not text"),
        ('{"source": "cat", "target": "\\ud800"}', "a.jsonl:2: target has half a character"),
        (
            '{"translation": {"en": "a", "fr": "b", "de": "c"}}',
            "translation has en, fr, de: name the source and the target",
        ),
        ('{"source": "cat"', "a.jsonl:2: not valid JSON: .* column 17"),
        ('["cat", "chat"]', "a.jsonl:2: not an object"),
        ("[" * 100_000, "a.jsonl:2: not valid JSON"),
        ("1" * 5000, "a.jsonl:2: not valid JSON"),
    ],
)
def test_a_wrong_row_is_named_by_its_line(tmp_path, row, message):
    with pytest.raises(DataError, match=message):
        read(put(tmp_path, "a.jsonl", f"{SAMPLES['jsonl']}{row}\n"))


# What is written comes back

COLUMN = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\t\n\r\ufeff"))
ANY_LINE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r"))


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(COLUMN, COLUMN), min_size=1))
def test_what_is_written_as_tsv_comes_back(tmp_path_factory, pairs):
    path = put(tmp_path_factory.getbasetemp(), "round.tsv", "".join(f"{s}\t{t}\n" for s, t in pairs))
    assert read(path) == pairs


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(COLUMN, COLUMN), min_size=1))
def test_what_is_written_as_parallel_text_comes_back(tmp_path_factory, pairs):
    folder = tmp_path_factory.getbasetemp()
    paths = [put(folder, f"round.{side}", "".join(f"{pair[side]}\n" for pair in pairs)) for side in (0, 1)]
    assert read(*paths) == pairs


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(ANY_LINE, ANY_LINE), min_size=1), st.booleans())
def test_what_is_written_as_jsonl_comes_back(tmp_path_factory, pairs, ascii_only):
    rows = [json.dumps({"source": s, "target": t}, ensure_ascii=ascii_only) + "\n" for s, t in pairs]
    assert read(put(tmp_path_factory.getbasetemp(), "round.jsonl", "".join(rows))) == pairs


# One text


def test_one_text_is_read_line_by_line(tmp_path):
    path = put(tmp_path, "a.txt", "a\n\nb")
    assert list(read_lines(path)) == [("a", (str(path), 1)), ("", (str(path), 2)), ("b", (str(path), 3))]


def test_a_folder_of_texts_is_one_text(tmp_path):
    put(tmp_path, "text/2.txt", "b\n")
    put(tmp_path, "text/1.txt.gz", gzip.compress(b"a\n"))
    assert [line for line, _ in read_lines(tmp_path / "text")] == ["a", "b"]


@pytest.mark.parametrize(("begin", "end"), [(0, None), (0, 4), (4, None), (1, 5), (3, 3)])
def test_a_stretch_of_a_running_text_is_counted_in_characters(tmp_path, begin, end):
    put(tmp_path, "text/1.txt", "ö\n\n")
    put(tmp_path, "text/2.txt", "ab\nc")
    assert "".join(read_continuous(tmp_path / "text", begin, end)) == "ö\n\nab\nc"[begin:end]


def test_an_empty_running_text_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"a\.txt is empty"):
        list(read_continuous(put(tmp_path, "a.txt", "")))


def test_an_empty_text_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"a\.txt is empty"):
        list(read_lines(put(tmp_path, "a.txt", "")))


def test_the_real_corpora_have_as_many_lines_on_both_sides(corpora):
    pairs = read_pairs(corpora / "multi30k" / "val.en.gz", corpora / "multi30k" / "val.de.gz")
    assert sum(1 for _ in pairs) == 1014


def test_two_folders_may_name_their_files_by_language(tmp_path):
    for language in ("en", "fr"):
        (tmp_path / language).mkdir()
        for number in (0, 1):
            (tmp_path / language / f"{number}.{language}").write_text(f"{language} {number}\n")
    found = [(pair.source, pair.target) for pair in read_pairs(tmp_path / "en", tmp_path / "fr")]
    assert found == [("en 0", "fr 0"), ("en 1", "fr 1")]


def test_two_files_for_one_number_are_refused_with_both_names(tmp_path):
    for name in ("en/0.en", "en/0.old", "fr/0.fr"):
        put(tmp_path, name, "a\n")
    with pytest.raises(DataError, match=r"en/0\.en and 0\.old are two files for 0: keep one"):
        read_pairs(tmp_path / "en", tmp_path / "fr")
