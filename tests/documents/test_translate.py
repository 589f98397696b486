"""Documents: filled in place, with all else as it was."""

from __future__ import annotations

import re
import shutil
import subprocess
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from regard.cli.app import app
from regard.config import preset, to_json
from regard.decoding.glossary import Term
from regard.documents import translate as documents
from regard.documents.formats import read_pairs
from regard.documents.inline import join_pieces, split_tags
from regard.documents.outcome import Outcome
from regard.documents.translate import translate_file, translate_lines, translate_pieces
from regard.errors import ConfigError, DataError, FolderError, InputError
from regard.models import build
from regard.models.folder import save_model
from regard.text.tokenizer import Tokenizers
from regard.translation.translator import Result, Translator
from tests.training.runs import learned, make_config, make_data, make_training, no_validation, write_corpus


class Said(NamedTuple):
    text: str
    alignment: list[tuple[int, int]] | None
    terms: Sequence[Term] = ()


def backwards(texts: Sequence[str], **options: Any) -> list[Said]:
    """Every word in capitals, the last one first."""
    results = []
    for text in texts:
        words = text.upper().split()
        results.append(Said(" ".join(reversed(words)), [(i, len(words) - 1 - i) for i in range(len(words))]))
    return results


def without_links(texts: Sequence[str], **options: Any) -> list[Said]:
    return [Said(text.upper(), None) for text in texts]


def through(folder: Path, name: str, data: str | bytes, **options: Any) -> tuple[bytes, Outcome]:
    source, out = folder / name, folder / f"out-{name}"
    source.write_bytes(data.encode() if isinstance(data, str) else data)
    outcome = translate_file(source, out, options.pop("translate", backwards), **options)
    return out.read_bytes(), outcome


def pairs(folder: Path, name: str, **options: Any) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in read_pairs(folder / f"out-{name}", **options)]


# Texts.


def test_texts_keep_their_tags_and_placeholders() -> None:
    lines = ["the <b>red</b> car", "no tags here", "", "{x}", "  Hello {name}!"]
    found = translate_pieces([split_tags(line) for line in lines], backwards, Outcome())
    assert [join_pieces(each) for each in found] == ["CAR <b>RED</b> THE", "HERE TAGS NO", "", "{x}", "  HELLO {name}!"]


def test_texts_with_tags_and_without_an_alignment_are_counted() -> None:
    outcome = Outcome()
    found = translate_pieces([split_tags("a <b>b</b> c"), split_tags("plain")], without_links, outcome)
    assert [join_pieces(each) for each in found] == ["A <b>B</b> C", "PLAIN"]
    assert outcome.unaligned == 1


def test_only_texts_with_tags_are_aligned() -> None:
    calls: list[tuple[Sequence[str], dict[str, Any]]] = []

    def translate(texts: Sequence[str], **options: Any) -> list[Said]:
        calls.append((texts, options))
        return backwards(texts)

    lines = ["one", "the {x} car", "two", "the car"]
    translate_pieces([split_tags(line) for line in lines], translate, Outcome())
    assert calls == [(["one", "two"], {}), (["the car"], {"align": True})]


def test_terms_are_counted_in_every_text_and_the_missing_ones_named() -> None:
    def translate(texts: Sequence[str]) -> list[Said]:
        return [Said(text, None, [Term("bird", "", "missing"), Term("cat", "chat", "written")]) for text in texts]

    outcome = Outcome()
    translate_pieces([split_tags("a bird"), split_tags("a bird"), split_tags("{x}")], translate, outcome)
    assert outcome.terms == {"missing": 2, "written": 2}
    assert outcome.missing == [("a bird", "bird")] * 2


# XLIFF.

XLIFF = """<?xml version="1.0" encoding="UTF-8"?>
<!-- a comment & <more> -->
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
  <file source-language="en"  target-language='fr' original="a.txt" datatype="plaintext">
    <body>
      {}
    </body>
  </file>
</xliff>
"""
REVIEW = 'state="needs-review-translation" state-qualifier="leveraged-mt"'


def unit(inside: str, attributes: str = "") -> str:
    return XLIFF.format(f'<trans-unit id="1"{attributes}>{inside}</trans-unit>')


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("red car", "CAR RED"),
        ("1 &lt; 2 &amp; so", "SO &amp; 2 &lt; 1"),
        ('the <g id="1">red</g> car', 'CAR <g id="1">RED</g> THE'),
        ('the <g id="1">very <g id="2">red</g></g> car', 'CAR <g id="1"><g id="2">RED</g> VERY</g> THE'),
        ('see <x id="1"/>', 'SEE <x id="1"/>'),
        ('a <bpt id="1">[</bpt>big<ept id="1">]</ept> car', 'CAR <bpt id="1">[</bpt>BIG<ept id="1">]</ept> A'),
        ('a <ph id="1">code <sub>words</sub></ph> b', '<ph id="1">code <sub>words</sub></ph> B A'),
        ('a <mrk mtype="protected">b c</mrk> d', '<mrk mtype="protected">b c</mrk> D A'),
        ("a {name} b", "{name} B A"),
        ("<![CDATA[the <b>red</b> car]]>", "CAR &lt;b&gt;RED&lt;/b&gt; THE"),
        ("one <![CDATA[& two]]>", "TWO &amp; ONE"),
        ('empty <g id="1"></g> pair', '<g id="1"></g> PAIR EMPTY'),
        (' padded <g id="1"/> ', ' PADDED <g id="1"/> '),
        ("two\n   lines", "LINES TWO"),
        ("one<!-- note --> two", "TWO ONE<!-- note -->"),
    ],
)  # fmt: skip
def test_a_unit_gets_its_target(tmp_path: Path, source: str, target: str) -> None:
    data, outcome = through(tmp_path, "a.xlf", unit(f"<source>{source}</source>"))
    assert data.decode() == unit(f"<source>{source}</source><target {REVIEW}>{target}</target>")
    ElementTree.fromstring(data)
    assert outcome.translated == 1


def test_a_target_stands_below_its_source(tmp_path: Path) -> None:
    data, _ = through(tmp_path, "a.xlf", unit("\n\t<source>a b</source>\n\t<note>n</note>\n"))
    assert data.decode() == unit(f"\n\t<source>a b</source>\n\t<target {REVIEW}>B A</target>\n\t<note>n</note>\n")


@pytest.mark.parametrize(
    ("inside", "attributes"),
    [
        ("<source>a b</source><target>fait</target>", ""),
        ('<source>a b</source><target state="final">fait</target>', ' approved="yes"'),
        ("<source>a b</source>", ' translate="no"'),
        ("<source></source><target></target>", ""),
    ],
)
def test_what_needs_no_translation_is_not_touched(tmp_path: Path, inside: str, attributes: str) -> None:
    data, outcome = through(tmp_path, "a.xlf", unit(inside, attributes))
    assert data.decode() == unit(inside, attributes)
    assert outcome.translated == 0


@pytest.mark.parametrize("target", ["<target/>", '<target state="new">a b</target>', "<target>fait</target>"])
def test_existing_targets_are_replaced_on_request(tmp_path: Path, target: str) -> None:
    data, _ = through(tmp_path, "a.xlf", unit(f"<source>a b</source>{target}"), everything=True)
    assert data.decode() == unit(f"<source>a b</source><target {REVIEW}>B A</target>")


def test_the_sentences_of_a_divided_unit_stay_where_they_are(tmp_path: Path) -> None:
    divided = '<mrk mtype="seg" mid="1">a b.</mrk> <mrk mtype="seg" mid="2">c d.</mrk>'
    data, _ = through(tmp_path, "a.xlf", unit(f"<source>a b. c d.</source><seg-source>{divided}</seg-source>"))
    assert '<mrk mtype="seg" mid="1">B. A</mrk> <mrk mtype="seg" mid="2">D. C</mrk></target>' in data.decode()


PARTLY = (
    "<source>a b. c d.</source><seg-source>"
    '<mrk mtype="seg" mid="1">a b.</mrk> <mrk mtype="seg" mid="2">c d.</mrk></seg-source>'
    '<target><mrk mtype="seg" mid="1"><g id="1">fait</g>.</mrk> {}</target>'
)


@pytest.mark.parametrize("second", ["", '<mrk mtype="seg" mid="2"/>'])
def test_a_partly_translated_unit_gets_the_segments_it_lacks(tmp_path: Path, second: str) -> None:
    data, _ = through(tmp_path, "a.xlf", unit(PARTLY.format(second)))
    assert (
        '<mrk mtype="seg" mid="1"><g id="1">fait</g>.</mrk> <mrk mtype="seg" mid="2">D. C</mrk></target>'
        in data.decode()
    )
    assert pairs(tmp_path, "a.xlf") == [("a b.", "fait."), ("c d.", "D. C")]


def test_all_segments_of_a_unit_are_replaced_on_request(tmp_path: Path) -> None:
    data, _ = through(tmp_path, "a.xlf", unit(PARTLY.format("")), everything=True)
    assert '<mrk mtype="seg" mid="1">B. A</mrk> <mrk mtype="seg" mid="2">D. C</mrk></target>' in data.decode()


def test_a_machine_translation_is_not_approved(tmp_path: Path) -> None:
    data, _ = through(tmp_path, "a.xlf", unit("<source>a b</source>", ' approved="yes"'))
    assert '<trans-unit id="1" approved="no">' in data.decode()


XLIFF_2 = (
    '<xliff version="2.0" srcLang="en"{}><file id="f"><unit id="u"><segment{}><source>{}</source></segment></unit>'
    "</file></xliff>"
)


def test_the_substate_of_xliff_2_goes_with_the_old_state(tmp_path: Path) -> None:
    text = XLIFF_2.format(' trgLang="fr"', ' state="initial" subState="x:y"', "a b")
    data, _ = through(tmp_path, "a.xlf", text)
    assert '<segment state="translated"><source>' in data.decode()


def test_xliff_2_without_a_target_language_asks_for_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.xlf:1: the <xliff> has no trgLang: name both languages, as in"):
        through(tmp_path, "a.xlf", XLIFF_2.format("", "", "a b"))
    assert not (tmp_path / "out-a.xlf").exists()
    data, _ = through(tmp_path, "a.xlf", XLIFF_2.format("", "", "a b"), languages=("en", "fr"))
    assert b'srcLang="en" trgLang="fr">' in data


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (
            'a <sm id="1" translate="no"/>b c<em startRef="1"/> d',
            '<sm id="1" translate="no"/>b c<em startRef="1"/> D A',
        ),
        ('a b <sm id="1" translate="no"/>c d', 'B A <sm id="1" translate="no"/>c d'),
    ],
)
def test_a_marked_span_of_xliff_2_is_not_translated(tmp_path: Path, source: str, target: str) -> None:
    data, _ = through(tmp_path, "a.xlf", XLIFF_2.format(' trgLang="fr"', "", source))
    assert f"<target>{target}</target>" in data.decode()


def test_xliff_2_has_its_state_on_the_segment(tmp_path: Path) -> None:
    before = '<xliff version="2.0" srcLang="en" trgLang="fr"><file id="f"><unit id="u"><segment state="initial">'
    source = '<source>a <pc id="1">b<ph id="2"/></pc> <sc id="3"/>c<ec startRef="3"/></source>'
    after = "</segment><ignorable><source> </source></ignorable></unit></file></xliff>"
    data, _ = through(tmp_path, "a.xlf", before + source + after)
    target = '<target><sc id="3"/>C<ec startRef="3"/> <pc id="1">B<ph id="2"/></pc> A</target>'
    assert data.decode() == before.replace("initial", "translated") + source + target + after


def test_a_namespace_prefix_is_kept(tmp_path: Path) -> None:
    before = '<x:xliff xmlns:x="u" version="1.2"><x:file><x:body><x:trans-unit id="1"><x:source>a b</x:source>'
    after = "</x:trans-unit></x:body></x:file></x:xliff>"
    data, _ = through(tmp_path, "a.xlf", before + after)
    assert data.decode() == f"{before}<x:target {REVIEW}>B A</x:target>{after}"

    before = '<x:tmx xmlns:x="u"><x:body><x:tu><x:tuv xml:lang="en"><x:seg>a b</x:seg></x:tuv>'
    data, _ = through(tmp_path, "a.tmx", f"{before}</x:tu></x:body></x:tmx>", languages=("en", "fr"))
    new = '<x:tuv xml:lang="fr" creationtool="regard"><x:seg>B A</x:seg></x:tuv>'
    assert data.decode() == f"{before}{new}</x:tu></x:body></x:tmx>"


def test_a_missing_target_language_is_added(tmp_path: Path) -> None:
    text = unit("<source>a b</source>").replace("  target-language='fr'", "")
    data, _ = through(tmp_path, "a.xlf", text, languages=("en", "de"))
    assert b'datatype="plaintext" target-language="de">' in data


def test_units_of_other_languages_are_counted(tmp_path: Path) -> None:
    data, outcome = through(tmp_path, "a.xlf", unit("<source>a b</source>"), languages=("de", "fr"))
    assert data.decode() == unit("<source>a b</source>")
    assert outcome.skipped == {"of other languages": 1}


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be", "iso-8859-1"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_a_file_keeps_its_encoding_and_its_line_ends(tmp_path: Path, encoding: str, line_end: str) -> None:
    said = {"utf-8-sig": "UTF-8", "utf-16-be": "UTF-16"}.get(encoding, encoding)
    text = unit("<source>é <g id='1'>ß</g></source>").replace("UTF-8", said).replace("\n", line_end)
    data, _ = through(tmp_path, "a.xlf", text.encode(encoding))
    expected = text.replace("</source>", f"</source><target {REVIEW}><g id='1'>SS</g> É</target>")
    assert data == expected.encode(encoding)


def test_letters_an_encoding_lacks_are_written_as_character_references(tmp_path: Path) -> None:
    text = unit("<source>oe</source>").replace("UTF-8", "ISO-8859-1")
    data, _ = through(tmp_path, "a.xlf", text, translate=lambda texts: [Said("œ", [(0, 0)]) for _ in texts])
    assert b"&#339;" in data


def test_a_filled_file_reads_as_pairs(tmp_path: Path) -> None:
    through(tmp_path, "a.xlf", unit('<source>the <g id="1">red</g> car</source>'))
    assert pairs(tmp_path, "a.xlf") == [("the red car", "CAR RED THE")]


# TMX.


def tmx(*units: str, header: str = 'srclang="en"') -> str:
    body = "".join(f"  <tu>\n    {each}\n  </tu>\n" for each in units)
    return f'<?xml version="1.0"?>\n<tmx version="1.4"><header {header}/>\n<body>\n{body}</body></tmx>'


DONE = '<tuv xml:lang="en"><seg>cat</seg></tuv><tuv xml:lang="fr"><seg>chat</seg></tuv>'


def test_a_unit_gets_a_variant_in_the_language_the_others_have(tmp_path: Path) -> None:
    source = '<tuv xml:lang="en"><prop type="x">p</prop><seg>a <hi>red</hi> car</seg></tuv>'
    data, outcome = through(tmp_path, "a.tmx", tmx(DONE, source))
    target = '<tuv xml:lang="fr" creationtool="regard"><seg>CAR <hi>RED</hi> A</seg></tuv>'
    assert data.decode() == tmx(DONE, f"{source}\n    {target}")
    assert (outcome.translated, outcome.kept) == (1, 1)
    assert pairs(tmp_path, "a.tmx") == [("cat", "chat"), ("a red car", "CAR RED A")]


def test_the_languages_of_a_tmx_can_be_named(tmp_path: Path) -> None:
    source = '<tuv xml:lang="de-DE"><seg>ein Auto</seg></tuv>'
    data, _ = through(tmp_path, "a.tmx", tmx(source, header='srclang="*all*"'), languages=("de", "it"))
    assert '<tuv xml:lang="it" creationtool="regard"><seg>AUTO EIN</seg></tuv>' in data.decode()


def test_an_existing_variant_is_replaced_on_request(tmp_path: Path) -> None:
    data, _ = through(tmp_path, "a.tmx", tmx(DONE), everything=True)
    assert data.decode() == tmx(DONE.replace('"fr"', '"fr" creationtool="regard"').replace("chat", "CAT"))


def test_a_tmx_of_one_language_asks_into_which(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no unit up to here has two languages: name both, for example --languages"):
        through(tmp_path, "a.tmx", tmx('<tuv xml:lang="en"><seg>cat</seg></tuv>'))
    assert not (tmp_path / "out-a.tmx").exists()


# PO.

HEADER = (
    'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n"Plural-Forms: nplurals=2; plural=n>1;\\n"\n'
)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('msgid "red car"\nmsgstr ""\n', '#, fuzzy\nmsgid "red car"\nmsgstr "CAR RED"\n'),
        (
            '# note\n#: a.c:1\n#, c-format\n#| msgid "old"\nmsgctxt "m"\nmsgid "%d cars"\nmsgstr ""\n',
            '# note\n#: a.c:1\n#, fuzzy, c-format\n#| msgid "old"\nmsgctxt "m"\nmsgid "%d cars"\nmsgstr "%d CARS"\n',
        ),
        ('#| msgid "o"\nmsgid "a b"\nmsgstr ""\n', '#, fuzzy\n#| msgid "o"\nmsgid "a b"\nmsgstr "B A"\n'),
        (
            'msgid ""\n"one two\\n"\n"three four\\n"\nmsgstr ""\n""\n',
            '#, fuzzy\nmsgid ""\n"one two\\n"\n"three four\\n"\nmsgstr ""\n"TWO ONE\\n"\n"FOUR THREE\\n"\n',
        ),
        (
            'msgid "%d file"\nmsgid_plural "%d files here"\nmsgstr[0] ""\nmsgstr[1] ""\n',
            '#, fuzzy\nmsgid "%d file"\nmsgid_plural "%d files here"\nmsgstr[0] "%d FILE"\nmsgstr[1] "%d HERE FILES"\n',
        ),
        (
            'msgid "a"\nmsgid_plural "b c"\nmsgstr[0] ""\n',
            '#, fuzzy\nmsgid "a"\nmsgid_plural "b c"\nmsgstr[0] "A"\nmsgstr[1] "C B"\n',
        ),
        ('msgid "say \\"a\\tb\\""\nmsgstr ""\n', '#, fuzzy\nmsgid "say \\"a\\tb\\""\nmsgstr "B\\" \\"A SAY"\n'),
        ('msgid "done"\nmsgstr "fait"\n', 'msgid "done"\nmsgstr "fait"\n'),
        ('#, fuzzy\nmsgid "done"\nmsgstr "fait"\n', '#, fuzzy\nmsgid "done"\nmsgstr "fait"\n'),
        ('#~ msgid "old"\n#~ msgstr ""\n', '#~ msgid "old"\n#~ msgstr ""\n'),
    ],
)
def test_a_message_gets_its_translation(tmp_path: Path, before: str, after: str) -> None:
    rest = '\nmsgid "last"\nmsgstr "dernier"\n\n#~ msgid "gone"\n#~ msgstr "parti"\n'
    data, _ = through(tmp_path, "a.po", f"{HEADER}\n{before}{rest}")
    assert data.decode() == f"{HEADER}\n{after}{rest}"


def test_an_obsolete_line_inside_a_message_is_a_comment(tmp_path: Path) -> None:
    data, _ = through(tmp_path, "a.po", f'{HEADER}\nmsgid "a b"\n#~ msgid "old"\nmsgstr ""\n')
    assert data.decode() == f'{HEADER}\n#, fuzzy\nmsgid "a b"\n#~ msgid "old"\nmsgstr "B A"\n'


def test_a_language_with_one_form_gets_the_plural(tmp_path: Path) -> None:
    message = 'msgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] ""\n'
    data, _ = through(tmp_path, "a.po", HEADER.replace("nplurals=2", "nplurals=1") + "\n" + message)
    assert 'msgstr[0] "%d FILES"' in data.decode()


RUSSIAN = HEADER.replace("nplurals=2; plural=n>1", "nplurals=3; plural=n%10==1 && n%100!=11 ? 0 : n%10<5 ? 1 : 2")
GERMAN = HEADER.replace("plural=n>1", "plural=n!=1")


@pytest.mark.parametrize(("header", "singular"), [(RUSSIAN, "%d FILES"), (GERMAN, "FILE ONE")])
def test_a_singular_that_is_for_other_numbers_too_gets_the_number(tmp_path: Path, header: str, singular: str) -> None:
    message = '#, c-format\nmsgid "one file"\nmsgid_plural "%d files"\nmsgstr[0] ""\nmsgstr[1] ""\n'
    data, _ = through(tmp_path, "a.po", f"{header}\n{message}")
    assert f'msgstr[0] "{singular}"\nmsgstr[1] "%d FILES"' in data.decode()


def test_the_singular_need_not_be_the_first_form(tmp_path: Path) -> None:
    header = HEADER.replace("nplurals=2; plural=n>1", "nplurals=3; plural=n==0 ? 0 : n==1 ? 1 : 2")
    data, _ = through(tmp_path, "a.po", f'{header}\nmsgid "one"\nmsgid_plural "many"\nmsgstr[0] ""\n')
    assert 'msgstr[0] "MANY"\nmsgstr[1] "ONE"\nmsgstr[2] "MANY"' in data.decode()


def test_plurals_are_left_out_where_the_header_does_not_say_how_many_forms_there_are(tmp_path: Path) -> None:
    message = 'msgid "a"\nmsgid_plural "b c"\nmsgstr[0] ""\n'
    _, outcome = through(tmp_path, "a.po", message)
    assert (outcome.translated, outcome.skipped.total()) == (0, 1)


@pytest.mark.parametrize(("flag", "kept"), [("c-format", True), ("no-c-format", False), ("", False)])
def test_a_percentage_is_a_directive_only_in_a_format_string(tmp_path: Path, flag: str, kept: bool) -> None:
    data, _ = through(tmp_path, "a.po", f'{HEADER}\n#, {flag}\nmsgid "is it 100% sure"\nmsgstr ""\n')
    assert ("% sure" in data.decode().partition("msgstr")[2].rpartition("msgstr")[2]) == kept


@pytest.mark.parametrize("charset", ["ISO-8859-1", "ASCII", "CHARSET"])
def test_the_header_of_a_translated_po_file_says_that_it_is_utf_8(tmp_path: Path, charset: str) -> None:
    text = f'{HEADER.replace("UTF-8", charset)}\nmsgid "oe"\nmsgstr ""\n'
    data, _ = through(tmp_path, "a.pot", text, translate=lambda texts: [Said("œ", [(0, 0)]) for _ in texts])
    assert data.decode() == f'{HEADER}\n#, fuzzy\nmsgid "oe"\nmsgstr "œ"\n'


def test_a_po_file_is_read_in_its_charset(tmp_path: Path) -> None:
    text = f'{HEADER.replace("UTF-8", "ISO-8859-1")}\nmsgid "done"\nmsgstr "terminé"\n'
    (tmp_path / "out-a.po").write_bytes(text.encode("iso-8859-1"))
    assert pairs(tmp_path, "a.po") == [("done", "terminé")]


@pytest.mark.skipif(not shutil.which("msgfmt"), reason="gettext is not installed")
@pytest.mark.parametrize(
    ("flag", "text"),
    [
        ("c-format", "%ds of %.3fs, %<PRIu64> and 100% sure or %5.1f%%"),
        ("python-format", "%(order.number)s: 10 %(x)s of %(y)F"),
        ("python-brace-format", "{0:{width}} of {name!r}: big-{x}"),
        ("sh-format", "see $HOME and ${name}"),
        ("qt-format", "file %1 of %L2."),
        ("objc-format", "say %@ or %1$@"),
        ("java-printf-format", "%,d of %tY"),
    ],
)
def test_msgfmt_accepts_the_translation_of_a_format_string(tmp_path: Path, flag: str, text: str) -> None:
    message = f'#, {flag}\nmsgid "{text}"\nmsgstr ""\n'
    through(tmp_path, "a.po", HEADER.replace('msgstr ""', 'msgstr ""\n"Language: fr\\n"') + "\n" + message)
    for name in ("a.po", "out-a.po"):
        command = ["msgfmt", "--check-format", "--use-fuzzy", "-o", "/dev/null", str(tmp_path / name)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_po_keeps_its_byte_order_mark_and_line_ends(tmp_path: Path) -> None:
    text = f'{HEADER}\nmsgid "a b"\nmsgstr ""\n'.replace("\n", "\r\n")
    data, _ = through(tmp_path, "a.po", b"\xef\xbb\xbf" + text.encode())
    expected = text.replace('msgid "a b"\r\nmsgstr ""', '#, fuzzy\r\nmsgid "a b"\r\nmsgstr "B A"')
    assert data == b"\xef\xbb\xbf" + expected.encode()


def test_a_placeholder_of_several_lines_is_kept_whole(tmp_path: Path) -> None:
    icu = r"{n, plural,\n one {# a dog}\n other {# dogs}}"
    data, _ = through(tmp_path, "a.po", f'{HEADER}\nmsgid "a b {icu}\\nc d"\nmsgstr ""\n')
    assert re.sub(r'"\n"', "", data.decode()).endswith(rf'msgstr "B A {icu}\nD C"' + "\n")


def test_existing_messages_are_replaced_on_request(tmp_path: Path) -> None:
    data, _ = through(tmp_path, "a.po", f'{HEADER}\nmsgid "a b"\nmsgstr ""\n"fait"\n', everything=True)
    assert data.decode() == f'{HEADER}\n#, fuzzy\nmsgid "a b"\nmsgstr "B A"\n'


# What can go wrong.


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.xlf", "<xliff>\n<file></xliff>", "a.xlf:2: broken XML: mismatched tag"),
        ("a.xlf", unit("<target>x</target>"), "a.xlf:6: a <trans-unit> has no <source>"),
        ("a.xlf", '<!DOCTYPE xliff [<!ENTITY e "x">]><xliff/>', "a.xlf:1: the entity e is declared in the file"),
        (
            "a.xlf",
            b"<?xml version='1.0' encoding='klingon'?><xliff/>",
            "a.xlf:1: the file declares the encoding klingon",
        ),
        ("a.xlf", b"<?xml version='1.0' encoding='utf-16'?><xliff/>", "a.xlf:1: the file declares the encoding utf-16"),
        ("a.xlf", b"<xliff>\n\xff</xliff>", "there is text that is not utf-8"),
        ("a.xlf", "", "a.xlf is empty"),
        ("a.po", 'msgid "a"\nmsgstr "b\n', "a.po:2: "),
        ("a.po", 'msgid "a"\n', "a.po:1: the file ends before the msgstr"),
    ],
)
def test_a_broken_file_is_reported_with_its_line_and_nothing_is_written(
    tmp_path: Path, name: str, data: str | bytes, message: str
) -> None:
    with pytest.raises(DataError) as caught:
        through(tmp_path, name, data)
    assert message in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "out-a.po").write_text("mine")
    with pytest.raises(FolderError, match="already exists"):
        through(tmp_path, "a.po", HEADER)
    assert (tmp_path / "out-a.po").read_text() == "mine"


def test_only_documents_are_translated_in_place(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a document: tmx, xliff, po are translated in place"):
        through(tmp_path, "a.txt", "text")


@pytest.mark.parametrize("suffix", [".srt", ".md", ".docx", ".HTML"])
def test_markup_that_is_not_supported_is_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_text("text")
    (tmp_path / "config.json").write_text(to_json(preset("transformer-base")))
    with pytest.raises(ConfigError, match=f"{suffix.lower()} is not supported, because its markup"):
        CliRunner().invoke(app, ["translate", str(tmp_path), str(path)], catch_exceptions=False)


def test_a_document_is_not_written_under_a_compressed_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"choose the name b\.po"):
        translate_file(tmp_path / "a.po", tmp_path / "b.po.gz", backwards)


# Size.


@pytest.mark.parametrize("target", ["CAT", "A MUCH LONGER TEXT THAN THAT"])
def test_progress_counts_what_was_read(tmp_path: Path, target: str) -> None:
    calls: list[tuple[int, int | None]] = []
    text = tmx(DONE, *['<tuv xml:lang="en"><seg>chat é</seg></tuv>'] * 2000)
    through(
        tmp_path,
        "a.tmx",
        text,
        translate=lambda texts: [Said(target, None) for _ in texts],
        progress=lambda name, done, total: calls.append((done, total)),
    )
    size = len(text.encode())
    assert calls[0] == (0, size)
    assert calls[1][0] < size
    assert calls[-1] == (size, size)


@pytest.mark.slow
def test_a_long_tmx_needs_no_more_memory_than_a_short_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "READ_AHEAD_TEXTS", 50)
    monkeypatch.setattr(documents, "READ_AHEAD_CHARACTERS", 10_000)

    def peak(count: int) -> int:
        text = tmx(DONE, *(f'<tuv xml:lang="en"><seg>message {i}</seg></tuv>' for i in range(count)))
        path = tmp_path / f"{count}.tmx"
        path.write_text(text)
        del text
        tracemalloc.start()
        translate_file(path, tmp_path / f"{count}.out.tmx", backwards)
        _, highest = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return highest

    short = peak(1_000)
    assert peak(4_000) < 1.3 * short


# With models.


def tagged(translator: Translator, lines: list[str], **options: Any) -> Iterator[Result]:
    return translate_lines(translator.translate, lines, model_tags=translator.tokenizers.source.tags, **options)


@pytest.mark.parametrize(("family", "unaligned"), [("transformer", 0), ("rnn-input", 0), ("rnn-none", 3)])
def test_tags_come_through_a_model_of_any_family(tmp_path: Path, family: str, unaligned: int) -> None:
    config = make_config(family)
    tokenizer = learned(write_corpus(tmp_path))
    config = config.over({"model": {"vocabulary": tokenizer.size}})
    translator = Translator(build(config.model).eval(), Tokenizers(tokenizer, tokenizer), config)
    lines = ["the <b>old</b> house", "plain", "", "{x}", "see {y} &amp; <i>the river</i>.", "a%s &amp; %d b", "&amp;"]
    outcome = Outcome()
    found = [result.text for result in tagged(translator, lines, outcome=outcome, always=False, beams=1)]
    assert [raws(text) for text in found[4:6]] == [sorted(raws(line)) for line in lines[4:6]]
    assert raws(found[0]) == raws(lines[0])
    assert found[2:4] == ["", "{x}"]
    assert outcome.unaligned == unaligned
    plain = translator.translate([lines[1], lines[6]], beams=1)
    assert [found[1], found[6]] == [result.text for result in plain]  # no tags: as ever


@pytest.mark.parametrize("line", ["the <b>o\0ld</b> house", "<b>\0</b>", "the {\0} house", "<b>\ud800 old</b>"])
def test_an_invalid_line_with_tags_has_an_empty_translation(tmp_path: Path, line: str) -> None:
    config = make_config("transformer")
    tokenizer = learned(write_corpus(tmp_path))
    config = config.over({"model": {"vocabulary": tokenizer.size}})
    translator = Translator(build(config.model).eval(), Tokenizers(tokenizer, tokenizer), config)
    outcome = Outcome()
    (found,) = tagged(translator, [line], outcome=outcome, always=True)
    assert (found.text, [note.kind for note in found.warnings], outcome.unaligned) == ("", ["input"], 0)


def raws(text: str) -> list[str]:
    return sorted(piece.raw for piece in split_tags(text) if not isinstance(piece, str))


@pytest.mark.slow
def test_a_file_is_translated_in_place_by_a_trained_model(tmp_path: Path) -> None:
    config = make_config("transformer")
    corpus, model = write_corpus(tmp_path / "corpus"), tmp_path / "model"
    training = make_training(tmp_path / "run", corpus, config)
    training.run(no_validation, lambda *_: None)
    config, data = make_data(corpus, config)
    save_model(model, training.model, config, {"tokenizer.json": data.tokenizers.source.text}, force=False)
    source, out = tmp_path / "a.xlf", tmp_path / "b.xlf"
    source.write_text(unit('<source>the <g id="1">old</g> house {x}</source>'))
    command = ["translate", str(model), str(source), "--out", str(out), "--device", "cpu", "--threads", "1"]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    assert done.stderr == f"{out}: translated 1\n"
    target = ElementTree.fromstring(out.read_text()).find(".//{*}target")
    assert target is not None
    assert target.find("{*}g") is not None
    assert "".join(target.itertext()).count("{x}") == 1
    with pytest.raises(FolderError, match="already exists"):
        CliRunner().invoke(app, command, catch_exceptions=False)
