"""Inline marks: taken out of a sentence and put back where its words went."""

from __future__ import annotations

import re
from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.documents.inline import MAX_DEPTH, Piece, Tag, extract_tags, insert_tags, join_pieces, split_tags

Links = list[tuple[int, int]]


def through(source: str, target: str, links: Links | None) -> str:
    return join_pieces(insert_tags(extract_tags(split_tags(source)), target, links))


def raws(text: str) -> list[str]:
    return [piece.raw for piece in split_tags(text) if isinstance(piece, Tag)]


# Finding.


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        ("a <b>bold</b> word", ["<b>", "</b>"]),
        ('a <a href="x > y">link</a>', ['<a href="x > y">', "</a>"]),
        ('see <x id="1"/>', ['<x id="1"/>']),
        ('<input checked name=a /> or <hr /> or <a href="">', ["<input checked name=a />", "<hr />", '<a href="">']),
        ("{name} and {{other}} and ${var} and %{ruby} and {}", ["{name}", "{{other}}", "${var}", "%{ruby}", "{}"]),
        ("{n, plural, one {# file} other {# files}} left", ["{n, plural, one {# file} other {# files}}"]),
        ("%s of %(count)d, %1$s, %.2f and %ld", ["%s", "%(count)d", "%1$s", "%.2f", "%ld"]),
        ("fish &amp; chips&#160;&#xA0;", ["&amp;", "&#160;", "&#xA0;"]),
        ("see https://example.org/a?b=c.", ["https://example.org/a?b=c"]),
        ("write to a.b+c@example.org, please", ["a.b+c@example.org"]),
        ("%ds or %.3fs, %ss, %F, %-5d and %*d%%", ["%ds", "%.3fs", "%ss", "%F", "%-5d", "%*d", "%%"]),
        ("1 %(x)s of 2 %1$s, 3 %s", ["%(x)s", "%1$s", "%s"]),
        ("%(order.number)s %<price>.2f {0:{width}} $name", ["%(order.number)s", "%<price>.2f", "{0:{width}}", "$name"]),
        ("file %1 of %L2.", ["%1", "%L2"]),
        ("see <https://demo.org/> or <a@demo.org>", ["<https://demo.org/>", "<a@demo.org>"]),
        (
            "{n, plural, other {{n} of {g, select, a {b} other {c}}}}",
            ["{n, plural, other {{n} of {g, select, a {b} other {c}}}}"],
        ),
        ("due {d, date, short} or {n, number, #.##}", ["{d, date, short}", "{n, number, #.##}"]),
        ("hi { name }, #{user.name || 'you'} and ${a + b}", ["{ name }", "#{user.name || 'you'}", "${a + b}"]),
        ("{$n -> [one] dog *[other] dogs}, {{{name}}}", ["{$n -> [one] dog *[other] dogs}", "{{{name}}}"]),
        ("{% if x %}yes{% endif %} <%= y %> <?= $z ?>", ["{% if x %}", "{% endif %}", "<%= y %>", "<?= $z ?>"]),
        ("<0>link</0> or <1/>", ["<0>", "</0>", "<1/>"]),
        ("copied %1!s! to $(dir) by $t(app.name)", ["%1!s!", "$(dir)", "$t(app.name)"]),
        ("@user has @count items", ["@user", "@count"]),
    ],
)
def test_tags_and_placeholders_are_found(text: str, marks: list[str]) -> None:
    assert raws(text) == marks


@pytest.mark.parametrize(
    "text",
    [
        "a < b and c > d",
        "100% sure",
        "50 % de",
        "AT&T; R & D",
        "I <3 you",
        "at 5% discount",
        "100 %ige",
        "costs $5",
        "sees <a small bird and the red house> near",
        "</a small bird>",
        "tod@s at 5 @ 3",
        "the set { a b }, a, date",
    ],
)
def test_words_are_not_taken_for_tags(text: str) -> None:
    assert raws(text) == []


def test_a_format_string_may_have_a_space_in_a_directive() -> None:
    pieces = split_tags("% d of 100% sure %<PRIu64>", format_string=True)
    assert [piece.raw for piece in pieces if isinstance(piece, Tag)] == ["% d", "% sure", "%<PRIu64>"]


def test_a_tag_the_model_knows_is_a_word() -> None:
    assert split_tags("<fr> a text", model_tags={"<fr>"}) == ["<fr> a text"]


@settings(deadline=None)
@given(st.text(alphabet="a <>/b{}%s&;\"'()$@.x:!-", max_size=60))
def test_pieces_joined_are_the_text(text: str) -> None:
    assert join_pieces(split_tags(text)) == text


def test_directives_that_take_their_values_in_order_keep_it() -> None:
    links = [(0, 2), (1, 1), (2, 0)]
    assert re.findall(r"%\w", through("%s sees %d old house", "HOUSE OLD SEES", links)) == ["%s", "%d"]


LONG = 30_000
RUNS = ["<", "{", "&", "%", "%0", "<a ", "<a '", "<!--", "{n, plural,", "{n,plural,{}", "http://!", "a@", "a@-", "0"]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("begin", ["", "%", "%(a)", "%1$", "%.", "<a ", "<!--", "{n, plural,", "http://", "a@", "a@b."])
def test_a_long_run_of_tag_beginnings_takes_linear_time(begin: str) -> None:
    for run in RUNS:
        text = (begin + LONG // len(run) * run)[:LONG]
        assert join_pieces(split_tags(text)) == text
        extract_tags([text, Tag("<x/>")])


# Taking out.


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("Click <b>here</b>, please", "Click here, please"),
        ("Hello {name}!", "Hello!"),
        ("one <x/> two", "one two"),
        ("Hello<br/>world", "Hello world"),
        ("<p>one</p><p>two</p>", "one two"),
        ("re<b>do</b>", "redo"),
        ("  padded <b>text</b> ", "padded text"),
        ("{x}: The dog", "The dog"),
        ("<b>{x}</b> : The dog", "The dog"),
        ("The dog. {x}, the cat", "The dog. the cat"),
        ("a big-{x} dog", "a big dog"),
        ('the file (%s) or "{name}"', "the file or"),
        ("Version %d.%d of {a}/{b}", "Version of"),
    ],
)
def test_the_text_without_tags_reads_well(text: str, bare: str) -> None:
    assert extract_tags(split_tags(text)).text == bare


# Putting back.


@pytest.mark.parametrize(
    ("source", "target", "links", "expected"),
    [
        ("the <b>red</b> car", "la voiture rouge", [(0, 0), (2, 1), (1, 2)], "la voiture <b>rouge</b>"),
        ("the <b>red</b> car.", "la voiture rouge.", [(0, 0), (2, 1), (1, 2)], "la voiture <b>rouge</b>."),
        ("a <b>c <i>d</i></b> e", "A D C E", [(0, 0), (1, 2), (2, 1), (3, 3)], "A <b><i>D</i> C</b> E"),
        ("a <b>b</b> <i>c</i>", "C B A", [(0, 2), (1, 1), (2, 0)], "<i>C</i> <b>B</b> A"),
        ("a <b>b c</b> d", "B A C D", [(0, 1), (1, 0), (2, 2), (3, 3)], "<b>B A C</b> D"),
        ("<b>all of it</b>", "le tout", [(0, 0)], "<b>le tout</b>"),
        ("<b>Hello</b>!", "Bonjour !", [(0, 0), (0, 1)], "<b>Bonjour</b> !"),
    ],
)  # fmt: skip
def test_a_pair_encloses_the_words_aligned_to_its_words(source: str, target: str, links: Links, expected: str) -> None:
    assert through(source, target, links) == expected


@pytest.mark.parametrize(
    ("source", "target", "links", "expected"),
    [
        ("delete {name} now", "supprimer maintenant", [(0, 0), (1, 1)], "supprimer {name} maintenant"),
        ("Hello {name}!", "Bonjour!", [(0, 0)], "Bonjour {name}!"),
        ("Hello {name}!", "Bonjour !", [(0, 0), (0, 1)], "Bonjour {name} !"),
        ("%s is a file", "ist eine Datei", [(0, 0), (1, 1), (2, 2)], "%s ist eine Datei"),
        ("I read %s", "ich lese", [(0, 0), (1, 1)], "ich lese %s"),
        ("Hello<br/>world", "Bonjour monde", [(0, 0), (1, 1)], "Bonjour<br/>monde"),
        ("one<x/> two", "un deux", [(0, 0), (1, 1)], "un<x/> deux"),
        ("one <x/>two", "un deux", [(0, 0), (1, 1)], "un <x/>deux"),
        ("{first} {last} wrote", "schrieb", [(0, 0)], "{first} {last} schrieb"),
        ("one <b>{name}</b>, two", "un, deux", [(0, 0), (1, 1)], "un <b>{name}</b>, deux"),
        ("a <x/> b", "B A", [(0, 1), (1, 0)], "<x/> B A"),
    ],
)
def test_a_single_tag_stays_with_its_neighbours(source: str, target: str, links: Links, expected: str) -> None:
    assert through(source, target, links) == expected


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("{x}: The dog", "Le chien", "{x}: Le chien"),
        ("<b>{x}</b>: The dog", "Le chien", "<b>{x}</b>: Le chien"),
        ("big-{x}", "grand", "grand-{x}"),
        ("file (%s)", "fichier", "fichier (%s)"),
        ("Version %d.%d", "Version", "Version %d.%d"),
        ("{0}% off", "de remise", "{0}% de remise"),
    ],
)
def test_punctuation_beside_a_placeholder_stays_there(source: str, target: str, expected: str) -> None:
    links = [(i, i) for i in range(len(target.split()))]
    assert through(source, target, links) == expected


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("the big-{x} dog", "CHIEN GRAND LE", "CHIEN GRAND-{x} LE"),
        ("the {x}-wide dog", "CHIEN LARGE LE", "CHIEN {x}-LARGE LE"),
        ("the {a}/{b} dog", "CHIEN LE", "{a}/{b} CHIEN LE"),
        ("dog %d.%d%%", "CHIEN", "CHIEN %d.%d%%"),
        ("the {x}.name dog", "CHIEN NOM LE", "CHIEN {x}.NOM LE"),
        ("for %s, which is", "EST QUI POUR", "%s EST QUI POUR"),
    ],
)
def test_what_is_joined_stays_joined_when_the_words_move(source: str, target: str, expected: str) -> None:
    count = len(target.split())
    assert through(source, target, [(i, count - 1 - i) for i in range(count)]) == expected


def test_without_an_alignment_positions_are_proportional() -> None:
    assert through("one two <b>three</b> {x} four", "A B C D", None) == "A B <b>C</b> {x} D"


@pytest.mark.parametrize("source", ["(<b>one</b>)", "<b>one {x}</b>!", "a <b>b</b>"])
def test_an_empty_translation_keeps_the_tags(source: str) -> None:
    assert re.findall(r"<[^>]*>|{x}", through(source, "", [])) == raws(source)


def test_spaces_around_the_text_are_kept() -> None:
    assert through("  a <b>b</b>\n", "A B", [(0, 0), (1, 1)]) == "  A <b>B</b>\n"


def test_alignments_of_unspaced_text_count_tokens_of_equal_length() -> None:
    links = [(0, 0), (1, 1)]  # two tokens of two letters each
    assert through("Hello <b>world</b>", "你好世界", links) == "你好<b>世界</b>"


def test_a_pair_ends_where_the_next_one_starts() -> None:
    links = [(0, 0), (0, 2), (1, 1), (2, 2)]  # "one" is aligned to words on both sides of that of "two"
    assert through("<b>one</b> <i>two</i> three", "A B C", links) == "<b>A</b> <i>B</i> C"


def test_a_pair_that_crosses_another_opens_before_it_closes() -> None:
    pieces: list[Piece] = [Tag("[1", "open", "1"), "a ", Tag("[2", "open", "2"), "b", Tag("1]", "close", "1")]
    pieces += [" c", Tag("2]", "close", "2")]
    for links in ([(0, 2), (1, 1), (2, 0)], [(0, 0), (1, 1), (2, 2)]):
        text = join_pieces(insert_tags(extract_tags(pieces), "X Y Z", links))
        assert text.index("[1") < text.index("1]")
        assert text.index("[2") < text.index("2]")


def test_a_tag_in_the_text_never_breaks_an_element_around_it() -> None:
    pieces: list[Piece] = [Tag("&lt;b>", "open", "b"), "one ", Tag("<g>", "open", "<g"), "two"]
    pieces += [Tag("&lt;/b>", "close", "b"), " three", Tag("</g>", "close", "<g")]
    text = join_pieces(insert_tags(extract_tags(pieces), "A B C", [(0, 2), (1, 1), (2, 0)]))
    assert text.index("<g>") < text.index("B") < text.index("</g>")


TOKENS = st.sampled_from(
    [
        "one",
        "two,",
        "three",
        "!",
        "(",
        "<b>",
        "</b>",
        "<i>",
        "</i>",
        "<x/>",
        "{n}",
        "%s",
        "&amp;",
        " ",
        " ",
        " ",
        "<br>",
    ]
)


@given(
    st.lists(TOKENS, max_size=24).map("".join),
    st.lists(st.sampled_from(["eins", "zwei,", "drei", "!", "«vier»"]), max_size=8),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12) | st.none(),
)
@settings(max_examples=150, deadline=None)
def test_every_tag_comes_out_once_and_words_are_kept(source: str, target: list[str], links: Links | None) -> None:
    bare = extract_tags(split_tags(source))
    sizes = len(bare.text.split()), len(target)
    inside = None if links is None else [(i, j) for i, j in links if i < sizes[0] and j < sizes[1]]
    pieces = insert_tags(bare, " ".join(target), inside)
    rest = join_pieces(pieces)
    for raw in sorted(raws(source), key=len, reverse=True):
        assert raw in rest
        rest = rest.replace(raw, "", 1)
    assert not set(rest) & set("<>{}%&")
    words = "".join(piece for piece in pieces if isinstance(piece, str))
    assert re.findall(r"\w", words) == re.findall(r"\w", " ".join(target))


def nested(children: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    blank = st.sampled_from(["", " "])
    joined = st.lists(st.tuples(children, blank).map("".join), min_size=1, max_size=4).map("".join)
    return st.tuples(st.sampled_from("gh"), joined).map(lambda each: f"<{each[0]}>{each[1]}</{each[0]}>")


TREES = st.recursive(st.sampled_from(["one ", "two ", "three, ", "<x/>", "{n} "]), nested, max_leaves=8)


@given(
    st.lists(TREES, max_size=4),
    st.integers(0, 8),
    st.randoms(use_true_random=False),
)
@settings(max_examples=150, deadline=None)
def test_well_formed_stays_well_formed(parts: list[str], size: int, chance: Random) -> None:
    source = " ".join(parts)
    bare = extract_tags(split_tags(source))
    everything = list(product(range(len(bare.text.split())), range(size)))
    links = chance.sample(everything, min(size, len(everything)))
    text = join_pieces(insert_tags(bare, " ".join(f"w{i}" for i in range(size)), links))
    stack = []
    for close, name in re.findall(r"<(/?)([gh])>", text):
        if close:
            assert stack.pop() == name
        else:
            stack.append(name)
    assert not stack


def test_tags_nested_too_deep_still_come_out_once() -> None:
    deep = 4 * MAX_DEPTH
    text = through("<b>" * deep + "word" + "</b>" * deep, "mot", [(0, 0)])
    assert (text.count("<b>"), text.count("</b>")) == (deep, deep)
