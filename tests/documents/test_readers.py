"""Translations inside markup: TMX, XLIFF and PO."""

import io
import tracemalloc
from collections import Counter
from types import SimpleNamespace
from xml.parsers import expat
from xml.sax.saxutils import escape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.documents import xml
from regard.documents.formats import FORMATS, Options
from regard.documents.languages import find_language, same_language
from regard.documents.xliff import parse_xliff
from regard.errors import DataError
from regard.text import files as streams


def tmx(*units, header='srclang="en"'):
    body = "".join(
        "<tu>" + "".join(f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>' for code, text in unit.items()) + "</tu>\n"
        for unit in units
    )
    return f'<tmx version="1.4"><header {header}/>\n<body>\n{body}</body></tmx>'.encode()


def texts(pairs):
    return [(pair.source, pair.target) for pair in pairs]


def pairs_of(kind, stream, **options):
    return FORMATS[kind](stream, "file", Options(**options))


def read(kind, data, **options):
    return texts(pairs_of(kind, io.BytesIO(data), **options))


# Languages


@pytest.mark.parametrize(
    ("one", "other"), [("en", "en-US"), ("EN", "en"), ("en_GB", "en-gb"), ("zh-Hant-TW", "zh-Hant")]
)
def test_codes_of_one_language_agree(one, other):
    assert same_language(one, other)


@pytest.mark.parametrize(("one", "other"), [("en", "fr"), ("en-US", "en-GB"), ("e", "en"), ("en", "enm")])
def test_codes_of_two_languages_differ(one, other):
    assert not same_language(one, other)


def test_the_same_code_comes_before_one_that_agrees():
    assert find_language(("fr-CA", "fr"), "fr") == 1


# TMX


def test_tmx_gives_the_source_language_and_the_one_other():
    data = tmx({"fr": "chat", "en": "cat"}, {"fr": "chien", "en": "dog"})
    assert read("tmx", data) == [("cat", "chat"), ("dog", "chien")]


def test_tmx_gives_the_languages_asked_for():
    data = tmx({"en-US": "cat", "fr-FR": "chat", "DE": "Katze"})
    assert read("tmx", data, languages=("de", "fr")) == [("Katze", "chat")]


def test_tmx_without_a_source_language_takes_the_order_of_the_file():
    data = tmx({"fr": "chat", "en": "cat"}, {"en": "dog", "fr": "chien"}, header='srclang="*all*"')
    assert read("tmx", data) == [("chat", "cat"), ("chien", "dog")]


def test_tmx_with_several_languages_asks_which_two():
    with pytest.raises(DataError, match=r"file:3: there are several languages \(en, fr, de\): say which two"):
        read("tmx", tmx({"en": "cat", "fr": "chat", "de": "Katze"}))


def test_tmx_with_another_language_further_down_asks_which_two():
    with pytest.raises(DataError, match=r"file:4: there are several languages \(en, fr, de\)"):
        read("tmx", tmx({"en": "cat", "fr": "chat"}, {"en": "dog", "de": "Hund"}))


def test_tmx_units_without_both_languages_are_counted():
    skipped = Counter()
    data = tmx({"en": "a", "fr": "b"}, {"en": "c"}, {"de": "d"})
    assert read("tmx", data, languages=("en", "fr"), skipped=skipped) == [("a", "b")]
    assert skipped == {"units without both languages": 2}


def test_tmx_keeps_the_words_inside_tags_and_drops_the_tags_and_their_code():
    text = (
        'a <bpt i="1">&lt;b&gt;</bpt><hi>bold</hi><ept i="1">x</ept> <ph>{0}<sub>x</sub></ph>word<it pos="end">y</it>'
    )
    assert read("tmx", tmx({"en": text, "fr": "b"})) == [("a bold word", "b")]


def test_tmx_of_the_old_version_names_languages_without_xml():
    data = tmx({"en": "cat", "fr": "chat"}).replace(b"xml:lang", b"lang")
    assert read("tmx", data) == [("cat", "chat")]


def test_tmx_in_utf16_is_read():
    data = ('<?xml version="1.0" encoding="utf-16"?>' + tmx({"en": "café", "fr": "b"}).decode()).encode("utf-16")
    assert read("tmx", data) == [("café", "b")]


def test_tmx_pairs_know_their_line():
    pairs = pairs_of("tmx", io.BytesIO(tmx({"en": "a", "fr": "b"}, {"en": "c", "fr": "d"})))
    assert [pair.origin.line for pair in pairs] == [3, 4]


def test_tmx_variant_without_a_language_is_refused():
    with pytest.raises(DataError, match="file:3: a <tuv> has no xml:lang"):
        read("tmx", tmx({"en": "a", "fr": "b"}).replace(b' xml:lang="fr"', b""))


def test_another_kind_of_xml_is_refused():
    with pytest.raises(DataError, match="the outermost element is <html>, and <tmx> is needed"):
        read("tmx", b"<html/>")


def test_xliff_with_a_prefix_is_read():
    data = (
        xliff1(CAT)
        .replace(b"</", b"</x:")
        .replace(b"<", b"<x:")
        .replace(b"<x:/x:", b"</x:")
        .replace(b"xmlns", b"xmlns:x")
    )
    assert read("xliff", data) == [("cat", "chat")]


@pytest.mark.parametrize("root", ["other", "x:other", "notxliff"])
def test_another_outermost_element_is_refused(root):
    with pytest.raises(DataError, match=f"file:1: the outermost element is <{root}>, and <xliff> is needed"):
        read("xliff", f'<{root} xmlns:x="u" version="1.2"/>'.encode())


def test_malformed_xml_is_named_by_its_line():
    with pytest.raises(DataError, match="file:4: broken XML: mismatched tag"):
        read("tmx", tmx({"en": "a", "fr": "b"}, {"en": "<b>", "fr": "d"}))


def test_truncated_xml_is_refused():
    with pytest.raises(DataError, match="broken XML"):
        read("tmx", tmx({"en": "a", "fr": "b"})[:-20])


def test_an_unknown_encoding_is_refused():
    with pytest.raises(DataError, match="file:1: the file declares the encoding klingon"):
        read("tmx", b'<?xml version="1.0" encoding="klingon"?><tmx/>')


BOMB = '<!DOCTYPE tmx [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]>'
FETCH = '<!DOCTYPE tmx [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
PARAMETER = '<!DOCTYPE tmx [<!ENTITY % a SYSTEM "http://127.0.0.1/x"> %a;]>'


@pytest.mark.parametrize("declaration", [BOMB, FETCH, PARAMETER])
def test_declared_entities_are_refused(declaration):
    with pytest.raises(DataError, match="the entity a is declared"):
        read("tmx", declaration.encode() + tmx({"en": "&a;", "fr": "b"}))


def test_an_entity_of_an_outside_document_is_refused_and_not_dropped():
    with pytest.raises(DataError, match="the entity eacute is declared"):
        read("tmx", b'<!DOCTYPE tmx SYSTEM "tmx14.dtd">' + tmx({"en": "caf&eacute;", "fr": "b"}))


def test_a_document_type_alone_is_harmless():
    assert read("tmx", b'<!DOCTYPE tmx SYSTEM "tmx14.dtd">' + tmx({"en": "a", "fr": "b"})) == [("a", "b")]


def test_elements_nested_without_end_are_refused():
    with pytest.raises(DataError, match="nested more than"):
        read("tmx", tmx({"en": "<hi>" * 200 + "</hi>" * 200, "fr": "b"}))


@pytest.mark.parametrize("flood", ["<tu><tuv xml:lang='en'><seg>{}", "<tu a='{}", "<!--{}"])
def test_a_unit_that_never_ends_is_refused_before_it_eats_memory(monkeypatch, flood):
    monkeypatch.setattr(streams, "MAX_LINE_BYTES", 2**17)
    data = "<tmx><body>" + flood.format("x" * 2**20)
    with pytest.raises(DataError, match="one unit is longer than"):
        read("tmx", data.encode())


def test_memory_stays_flat_on_a_large_tmx():
    class Endless(io.RawIOBase):
        def __init__(self):
            unit = (
                tmx({"en": "a cat sat there", "fr": "un chat"}).partition(b"<body>")[2].removesuffix(b"</body></tmx>")
            )
            self.parts = [b'<tmx><header srclang="en"/><body>', *[unit * 1000] * 8, b"</body></tmx>", b""]

        def read(self, size):
            return self.parts.pop(0) if self.parts else b""

    tracemalloc.start()
    count = sum(1 for _ in pairs_of("tmx", Endless()))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 8000
    assert peak < 4 * 2**20  # 600 kB of text at a time


XML_TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"))


@settings(deadline=None, max_examples=50)
@given(XML_TEXT, XML_TEXT.filter(bool))
def test_what_is_written_as_tmx_comes_back(source, target):
    assert read("tmx", tmx({"en": escape(source), "fr": escape(target)})) == [(source, target)]


class NewExpat:
    """Since version 2.6 expat waits for the rest of a long token, and meanwhile has no position."""

    def __init__(self, encoding):
        self.__dict__.update(parser=expat.ParserCreate(encoding), waiting=b"")

    def __getattr__(self, name):
        return -1 if name == "CurrentByteIndex" and self.waiting else getattr(self.parser, name)

    def __setattr__(self, name, value):
        setattr(self.parser, name, value)

    def Parse(self, data, final):  # noqa: N802 - the name of expat
        data = self.waiting + data
        is_partial = data.rfind(b"<") > data.rfind(b">") and not final
        self.__dict__["waiting"] = data if is_partial else b""
        if not is_partial:
            self.parser.Parse(data, final)


@pytest.mark.parametrize("chunk", [7, 100])
def test_no_text_is_lost_while_the_parser_waits(monkeypatch, chunk):
    data = xliff1(f"<!-- {'long ' * 500} -->{CAT}<!-- {'long ' * 500} -->")
    monkeypatch.setattr(xml, "expat", SimpleNamespace(**{**vars(expat), "ParserCreate": NewExpat}))
    monkeypatch.setattr(xml, "CHUNK_BYTES", chunk)
    monkeypatch.setattr(xml, "HEAD_BYTES", chunk)
    _, parts = parse_xliff(io.BytesIO(data), "file", None)
    assert "".join(part if isinstance(part, str) else part.raw for part in parts).encode() == data


# XLIFF


def xliff1(units, languages='source-language="en" target-language="fr"'):
    return (
        '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">\n'
        f"<file {languages}><body><group>\n{units}</group></body></file></xliff>"
    ).encode()


def xliff2(units):
    return (
        '<xliff version="2.0" xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="en" trgLang="fr">\n'
        f'<file id="f">{units}</file></xliff>'
    ).encode()


CAT = "<trans-unit id='1'><source>cat</source><target>chat</target></trans-unit>\n"


def test_xliff_gives_its_units():
    assert read("xliff", xliff1(CAT)) == [("cat", "chat")]


def test_xliff_pairs_know_their_line():
    assert [pair.origin.line for pair in pairs_of("xliff", io.BytesIO(xliff1(CAT + CAT)))] == [3, 4]


def test_xliff_suggestions_are_not_translations():
    unit = CAT.replace(
        "</trans-unit>", "<alt-trans><source>kitten</source><target>chaton</target></alt-trans></trans-unit>"
    )
    assert read("xliff", xliff1(unit)) == [("cat", "chat")]


def test_xliff_keeps_the_words_inside_tags_and_drops_the_tags_and_their_code():
    unit = CAT.replace(
        "cat", '<g id="1">a</g> <x id="2"/><bpt id="3">&lt;b></bpt><mrk mtype="seg">cat</mrk><ept id="3">y</ept>'
    )
    assert read("xliff", xliff1(unit)) == [("a cat", "chat")]


@pytest.mark.parametrize("target", ["", "<target/>", '<target state="new">cat</target>'])
def test_xliff_units_without_a_translation_are_counted(target):
    skipped = Counter()
    unit = CAT.replace("<target>chat</target>", target)
    assert read("xliff", xliff1(CAT + unit), skipped=skipped) == [("cat", "chat")]
    assert skipped == {"untranslated": 1}


def test_xliff_pairs_are_swapped_when_the_languages_are_requested_in_the_other_order():
    assert read("xliff", xliff1(CAT), languages=("fr", "en-GB")) == [("chat", "cat")]


def test_xliff_in_other_languages_is_counted():
    skipped = Counter()
    assert read("xliff", xliff1(CAT), languages=("en", "de"), skipped=skipped) == []
    assert skipped == {"units without both languages": 1}


def test_xliff_without_a_target_language_is_read_for_any():
    assert read("xliff", xliff1(CAT, 'source-language="en"'), languages=("en", "de")) == [("cat", "chat")]


def test_xliff_2_gives_every_segment():
    segments = "".join(
        f"<segment><source>{s}</source><target>{t}</target></segment>" for s, t in [("a", "b"), ("c", "d")]
    )
    assert read("xliff", xliff2(f'<unit id="1">{segments}</unit>')) == [("a", "b"), ("c", "d")]


def test_xliff_2_keeps_the_words_inside_tags():
    source = 'a <pc id="1">bold</pc><ph id="2"/> word<cp hex="0007"/>'
    data = xliff2(f'<unit id="1"><segment><source>{source}</source><target>b</target></segment></unit>')
    assert read("xliff", data) == [("a bold word", "b")]


def test_xliff_2_segments_still_to_be_translated_are_counted():
    skipped = Counter()
    unit = '<unit id="1"><segment state="initial"><source>a</source><target>a</target></segment></unit>'
    read("xliff", xliff2(unit), skipped=skipped)
    assert skipped == {"untranslated": 1}


def test_xliff_2_text_between_segments_and_suggestions_are_not_translations():
    unit = (
        '<unit id="1"><mtc:matches xmlns:mtc="m"><mtc:match><source>x</source><target>y</target></mtc:match>'
        "</mtc:matches>"
        "<segment><source>a</source><target>b</target></segment>"
        "<ignorable><source> </source><target> </target></ignorable></unit>"
    )
    assert read("xliff", xliff2(unit)) == [("a", "b")]


def test_xliff_unit_without_a_source_is_refused():
    with pytest.raises(DataError, match="file:3: a <trans-unit> has no <source>"):
        read("xliff", xliff1("<trans-unit id='1'><target>chat</target></trans-unit>"))


# PO

HEADER = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n'


def po(text, **options):
    return read("po", text.encode(), **options)


def test_po_gives_its_messages_without_the_header():
    assert po(HEADER + 'msgid "cat"\nmsgstr "chat"\n\nmsgid "dog"\nmsgstr "chien"\n') == [
        ("cat", "chat"),
        ("dog", "chien"),
    ]


def test_po_messages_need_no_blank_line_between_them():
    assert po('msgid "cat"\nmsgstr "chat"\nmsgid "dog"\nmsgstr "chien"') == [("cat", "chat"), ("dog", "chien")]


def test_po_strings_over_several_lines_are_joined():
    assert po('msgid ""\n"a "\n"b\\n"\nmsgstr "c"\n"d"') == [("a b", "cd")]


def test_po_line_breaks_alone_are_no_translation():
    skipped = Counter()
    assert po('msgid "a\\n"\nmsgstr "\\n"\n', skipped=skipped) == []
    assert skipped == {"untranslated": 1}


def test_po_escapes_are_read():
    assert po(r'msgid "a\tb\"c\\n\"\101\xc3\xa9"' + '\nmsgstr "x"') == [('a\tb"c\\n"Aé', "x")]


def test_po_pairs_know_their_line():
    data = b'# comment\nmsgctxt "menu"\nmsgid "cat"\nmsgstr "chat"\n'
    assert [pair.origin.line for pair in pairs_of("po", io.BytesIO(data))] == [3]


def test_po_plural_forms_go_with_the_plural():
    message = 'msgid "cat"\nmsgid_plural "cats"\nmsgstr[0] "кот"\nmsgstr[1] "кота"\nmsgstr[2] "котов"\n'
    assert po(message) == [("cat", "кот"), ("cats", "кота"), ("cats", "котов")]


def test_po_single_form_of_a_plural_goes_with_the_plural():
    assert po('msgid "cat"\nmsgid_plural "cats"\nmsgstr[0] "neko"\n') == [("cats", "neko")]


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("fuzzy", '#, c-format, fuzzy\nmsgid "dog"\nmsgstr "chat"\n'),
        ("untranslated", 'msgid "dog"\nmsgstr ""\n'),
    ],
)
def test_po_messages_that_are_no_translation_are_counted(reason, message):
    skipped = Counter()
    assert po(message + '\nmsgid "cat"\nmsgstr "chat"\n', skipped=skipped) == [("cat", "chat")]
    assert skipped == {reason: 1}


def test_po_obsolete_messages_are_comments():
    assert po('msgid "cat"\nmsgstr "chat"\n\n#~ msgid "dog"\n#~ msgstr "chien"\n') == [("cat", "chat")]


def test_po_flags_of_an_obsolete_message_do_not_reach_the_next():
    assert po('#, fuzzy\n#~ msgid "dog"\n#~ msgstr "chat"\n\nmsgid "cat"\nmsgstr "chat"\n') == [("cat", "chat")]


def test_po_previous_messages_are_ignored():
    assert po('#| msgid "kitten"\nmsgid "cat"\nmsgstr "chat"\n') == [("cat", "chat")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('msgid "cat"\nnonsense\n', "file:2: 'nonsense' is not PO"),
        ('msgid "cat\nmsgstr "chat"\n', "file:1: .* is not PO"),
        ('msgid "cat\\"\nmsgstr "chat"\n', "file:1: .* is not PO"),
        ('msgid "c"t"\nmsgstr "chat"\n', "file:1: .* is not PO"),
        ('msgid "\\q"\nmsgstr "chat"\n', "file:1: .* is not PO"),
        ('msgstr "chat"\n', "file:1: a message has one msgid, then one msgstr"),
        ('msgid "cat"\nmsgstr "a"\nmsgstr "b"\n', "file:3: a message has one msgid, then one msgstr"),
        ('msgid "cat"\n', "file:1: the file ends before the msgstr"),
    ],
)
def test_po_mistakes_are_named_by_their_line(text, message):
    with pytest.raises(DataError, match=message):
        po(text)


def quote(text):
    for plain, escaped in {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}.items():
        text = text.replace(plain, escaped)
    return f'"{text}"'


ANY_LINE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\n\r"), min_size=1)


@settings(deadline=None, max_examples=50)
@given(ANY_LINE, ANY_LINE)
def test_what_is_written_as_po_comes_back(source, target):
    assert po(f"{HEADER}msgid {quote(source)}\nmsgstr {quote(target)}\n") == [(source, target)]
