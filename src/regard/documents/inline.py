"""Inline tags: take tags and placeholders out of a sentence, and insert them into its translation by word alignment.

A token is a word, or the punctuation before or after it. A position in a text is a number of tokens.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise, zip_longest
from typing import Literal, NamedTuple

from regard.text.alignments import Link


class Tag(NamedTuple):
    """An inline tag or a placeholder, which is copied unchanged into the translation."""

    raw: str
    side: Literal["open", "close", "alone"] = "alone"
    name: str = ""
    """Opening and closing tags of the same name belong together."""


Piece = str | Tag

ATTRIBUTE = r"\s++[\w:.@-]++(?:\s*+=\s*+(?:\"[^\"<]*\"|'[^'<]*'|[^\s\"'<>=]++))?"
ADDRESS = r"\bhttps?://[^\s<>\"]*[\w/]|\b[\w.+-]{1,64}@[\w-]+\.[\w.-]*\w|(?<![\w.])@[A-Za-z_]\w*+"  # or @name
TAG = (  # <b>, </g>, <x id="1"/>, <0>; words in angle brackets have no attribute with = and no slash
    rf"</?[A-Za-z][\w:.-]*+(?=\s*+/?>|[^<>]*=|[^<>]*/>)(?:{ATTRIBUTE})*+\s*+/?>|</?\d{{1,3}}\s*+/?>|<!--[^<>]*-->"
)
BRACED = r"[^{}]*+"
for _ in range(4):  # levels of braces in braces
    BRACED = rf"(?:[^{{}}]++|\{{{BRACED}\}})*+"
ICU = "plural|select|selectordinal|number|date|time|choice|ordinal|spellout|duration"
VARIABLE = (
    rf"\{{\s*+[\w.$-]++\s*+(?:,\s*+(?:{ICU})\b|->){BRACED}\}}"  # {n, plural, one {...} other {...}}, {d, date, short}
    rf"|\{{{{2,3}}[^{{}}]*+\}}{{2,3}}|[$%#]\{{{BRACED}\}}"  # {{x}}, ${x + y}
    r"|\{\s*+(?:[^{}\s]|\{[^{}\s]*\})*+\s*+\}"  # {0}, { x }, {0:{x}}
    r"|\{%[^{}]*%\}|<%[^<>]*%>|<\?[^<?]*+\?>"  # {% if x %}, <%= x %>, <?= $x ?>
    r"|(?<!\w)\$(?:[A-Za-z_]\w*+(?:\([^()\s]*+\))?|\([^()\s]*+\))"  # $x, $t(x), $(x)
)
NAME = r"(?:\([^()]*\)|<\w++>|\d++\$)"  # of %(count)d, %<count>d and %1$s
WIDTH = r"[\d*]*+(?:\.[\d*]*+)?"
NUMBERED = r"%\d{1,2}(?:%|![\w.*#+-]++!)?"  # %1 of Qt, %1!s! of Windows
LETTERS = r"[A-Za-z@][A-Za-z\d]*+"  # those that follow go with it, as in %ds
# "100% sure" has no placeholder: in plain text %s has no space inside, and after a digit it needs a name or one letter.
PLACEHOLDER = (
    rf"{VARIABLE}|%{NAME}[-+0#',]*+{WIDTH}{LETTERS}|(?<!\d)(?<!\d\s)%[-+0#',]*+{WIDTH}{LETTERS}"
    rf"|%[-+0#',]*+{WIDTH}[A-Za-z@](?![A-Za-z])|%%|{NUMBERED}"
)
FORMAT_STRING = rf"{VARIABLE}|%[-+ 0#',]*+{WIDTH}<PRI\w++>|%{NAME}?[-+ 0#',]*+{WIDTH}(?:{LETTERS}|%)|{NUMBERED}"
IN_ORDER = re.compile(rf"%[-+ 0#',]*+{WIDTH}[A-Za-z@<]|\{{\}}")  # these take their values in order
ENTITY = r"&(?:[A-Za-z][A-Za-z0-9]{1,30}|#\d{1,7}|#x[0-9A-Fa-f]{1,6});"
TEXT, FORMAT = (
    re.compile(f"(?P<tag>{TAG})|{kind}|<(?:{ADDRESS})>|{ADDRESS}|{ENTITY}") for kind in (PLACEHOLDER, FORMAT_STRING)
)
PLAIN_TEXT = re.compile(f"{ADDRESS}|{ENTITY}")  # plain text has these too, and a model may have learned them

VOID_ELEMENTS = {"br", "hr", "img", "input", "wbr"}  # of HTML: they have no closing tag

MAX_DISTANCE = 8  # tokens before and after a tag whose alignment decides where it goes
MAX_DEPTH = 50  # nested pairs; with more, the tags of a text keep their order


def split_tags(text: str, model_tags: Collection[str] = (), *, format_string: bool = False) -> list[Piece]:
    """Split a text into words and tags; joined they are the text. Tags the model knows, such as <fr>, are words."""
    pieces: list[Piece] = []
    end = 0
    for match in (FORMAT if format_string else TEXT).finditer(text):
        if match[0] in model_tags:
            continue
        if match.start() > end:
            pieces.append(text[end : match.start()])
        raw, name = match[0], re.match(r"</?([A-Za-z][\w:.-]*)", match["tag"] or "")
        if name is None or raw.endswith("/>") or name[1].lower() in VOID_ELEMENTS:
            pieces.append(Tag(raw))
        else:
            pieces.append(Tag(raw, "close" if raw.startswith("</") else "open", name[1]))
        end = match.end()
    return pieces + [text[end:]] * (end < len(text))


def has_tags(pieces: Iterable[Piece], *, plain_too: bool) -> bool:
    """Whether there are tags or placeholders; entities and addresses, which plain text has, count if `plain_too`."""
    return any(isinstance(piece, Tag) and (plain_too or not PLAIN_TEXT.fullmatch(piece.raw)) for piece in pieces)


def join_pieces(pieces: Iterable[Piece]) -> str:
    """Words and tags as one text."""
    return "".join(piece if isinstance(piece, str) else piece.raw for piece in pieces)


# Extracting tags

MARKS = {"alone": "\ud800", "open": "\ud801", "close": "\ud802"}  # lone surrogates, which no valid text has
ALONE, PAIRED = MARKS["alone"], f"[{MARKS['open']}{MARKS['close']}]"
STOPS = ",.;!?…、。，！？"  # belong to the word before them, if there is one
CLOSING_PUNCTUATION = set(f"{STOPS}:)]}}»”’")  # stands at the word before it
JOINERS = re.escape("-‐–—/\\|=+*#@~^_:$€£%×")  # beside a placeholder they belong to it: big-{x}, {x}: The dog, {x}%
JOINED = rf"(?:(?<![{JOINERS}])[{JOINERS}]++)?{ALONE}(?:[{JOINERS}{STOPS}]*+{ALONE})*+[{JOINERS}]*(?:[{STOPS}]+(?=\w))?"
BRACKETS = ("()", "[]", '""', "''", "«»", "“”", "‘’", "„“")
PLACEHOLDER_UNIT = "|".join([*(re.escape(pair[0]) + JOINED + re.escape(pair[1]) for pair in BRACKETS), JOINED])
UNIT = rf"(?:{PAIRED}|{PLACEHOLDER_UNIT})"
BEGINNING = rf"(?:\A|(?<=[{STOPS}]\s)|(?<=[(\[\"'«“‘„]))"  # where no word stands before punctuation
MORE = rf"(?:\s*+{UNIT})*+"
FIRST_RUN = rf"{BEGINNING}{PAIRED}*(?:{PLACEHOLDER_UNIT}){MORE}\s?[{JOINERS}{STOPS}]+(?=\s|\Z)"
UNITS, RUN = re.compile(UNIT), re.compile(rf"(?:(?<!\s)\s++)?(?:{FIRST_RUN}|{UNIT}){MORE}\s*+")


@dataclass(eq=False)
class PlacedTag:
    """A tag, or placeholders that are joined, with the punctuation that goes with them."""

    tag: Tag
    space_before: bool
    space_after: bool
    at: int = 0  # characters of the text without tags before it
    separates: bool = False  # whether the words before and after it have no other separator, as with <br/>

    @property
    def takes_values_in_order(self) -> bool:
        return self.tag.side == "alone" and IN_ORDER.search(self.tag.raw) is not None


class Extracted(NamedTuple):
    """A text without its tags, the tags, and the white space around the text."""

    text: str
    tags: list[PlacedTag]
    leading: str
    trailing: str

    @property
    def has_words(self) -> bool:
        return any(letter.isalnum() for letter in self.text)


def extract_tags(pieces: Sequence[Piece]) -> Extracted:
    """Take the tags out of a text, and keep what is needed to insert them into its translation."""
    marked = "".join(piece if isinstance(piece, str) else MARKS[piece.side] for piece in pieces)
    body = marked.strip()
    leading, trailing = marked[: len(marked) - len(marked.lstrip())], marked[len(marked.rstrip()) :] if body else ""
    remaining = iter([piece for piece in pieces if isinstance(piece, Tag)])
    text, tags, end = "", list[PlacedTag](), 0
    for run in RUN.finditer(body) if any(mark in body for mark in MARKS.values()) else ():
        text += body[end : run.start()]
        end = run.end()
        placed_tags, following = list(_read_run(body, run, remaining)), body[end : end + 1]
        has_space, separator = re.search(r"\s", run[0]) is not None, ""
        if text and following and has_space:
            separator = "" if following in CLOSING_PUNCTUATION else " "  # "Hello {name}!" becomes "Hello!"
        elif text[-1:].isalnum() and following.isalnum():  # a tag of one side, as in re<b>do</b>, separates no words
            separator = "" if {placed.tag.side for placed in placed_tags} in ({"open"}, {"close"}) else " "
        for placed in placed_tags:
            placed.at = len(text) + (len(separator) if placed.tag.side == "open" else 0)
            placed.separates = separator != "" and not has_space
        text += separator
        tags += placed_tags
    return Extracted(text + body[end:], tags, leading, trailing)


def _read_run(body: str, run: re.Match[str], remaining: Iterator[Tag]) -> Iterator[PlacedTag]:
    """The tags of a run, with the punctuation that goes with them."""
    units = list(UNITS.finditer(body, *run.span()))
    for unit, following in zip_longest(units, units[1:]):
        tail = body[unit.end() : following.start() if following else run.end()].rstrip()
        end = unit.end() + len(tail)
        members = [next(remaining) if letter in MARKS.values() else letter for letter in unit[0]]
        raw = join_pieces(members) + tail
        tag = members[0]._replace(raw=raw) if isinstance(members[0], Tag) and members[0].side != "alone" else Tag(raw)
        before, after = body[unit.start() - 1 : unit.start()] or " ", body[end : end + 1] or " "
        # Punctuation after it stays with the word before it; what follows it then needs a space.
        space_after = after.isspace() or (after in CLOSING_PUNCTUATION and tag.side != "open")
        yield PlacedTag(tag, before.isspace(), space_after)


# Inserting tags


class Token(NamedTuple):
    """The letters of a word, or a punctuation mark before or after them."""

    start: int
    end: int
    word: int
    place: int  # 0: the letters; -1: the mark before them; 1, 2, ...: the marks after them


LETTERS_OR_MARK = re.compile(r"[^\W_](?:\S*[^\W_])?|\S")


def _find_tokens(text: str, count: int) -> list[Token]:
    """The tokens of the words that an alignment counts; in text without spaces these words are of equal length."""
    spans = [match.span() for match in re.finditer(r"\S+", text)]
    if count > len(spans):
        spans = list(pairwise(i * len(text) // count for i in range(count + 1)))
    tokens = []
    for word, (start, end) in enumerate(spans):
        if text[start:end].isalnum():
            tokens.append(Token(start, end, word, 0))
            continue
        parts = [match.span() for match in LETTERS_OR_MARK.finditer(text, start, end)]
        letters = next((number for number, (first, _) in enumerate(parts) if text[first].isalnum()), -1)
        tokens += [Token(first, last, word, number - letters) for number, (first, last) in enumerate(parts)]
    return tokens


def insert_tags(extracted: Extracted, target: str, alignment: Sequence[Link] | None) -> list[Piece]:
    """The target with every tag once: pairs around the words aligned to theirs, single tags beside them.

    Without an alignment, or if pairs cross each other, positions are kept in proportion to the length.
    """
    tags = extracted.tags
    if not tags:  # finding the words of both texts would take half the time of a document without tags
        return [piece for piece in (extracted.leading, target, extracted.trailing) if piece]
    closings = _match_pairs(tags)
    if closings is None:
        closings, alignment = {}, None
    placement = _Placement(extracted.text, target, alignment or [])
    starts = [*(token.start for token in placement.target), len(target)]
    in_order = iter([placed for placed in tags if placed.takes_values_in_order])
    positions = [
        (starts[position], next(in_order) if placed.takes_values_in_order else placed)
        for position, placed in placement.place(tags, closings, range(len(tags)), 0, len(placement.target))
    ]
    pieces: list[Piece] = [extracted.leading]
    end = 0
    for start, group in groupby(positions, key=lambda position: position[0]):
        words = target[end:start].rstrip()
        space = target[end + len(words) : start]
        pieces += [words, *_spaced([placed for _, placed in group], target[:start].rstrip(), space, target[start:])]
        end = start
    return [piece for piece in (*pieces, target[end:], extracted.trailing) if piece]


def _match_pairs(tags: Sequence[PlacedTag]) -> dict[int, int] | None:
    """{index of an opening tag: index of its closing tag}; None if pairs cross or are nested too deeply."""
    closings, unclosed = dict[int, int](), list[int]()
    for number, placed in enumerate(tags):
        if placed.tag.side == "open":
            unclosed.append(number)
        elif placed.tag.side == "close" and placed.tag.name in [tags[opening].tag.name for opening in unclosed]:
            opening = unclosed.pop()
            if tags[opening].tag.name != placed.tag.name:
                return None
            closings[opening] = number
        if len(unclosed) > MAX_DEPTH:
            return None
    return closings


class _Placement:
    """Finds the positions of tags in a target."""

    def __init__(self, text: str, target: str, alignment: Sequence[Link]) -> None:
        self.source = _find_tokens(text, max((i for i, _ in alignment), default=-1) + 1)
        self.target = _find_tokens(target, max((j for _, j in alignment), default=-1) + 1)
        numbers = {(token.word, token.place): number for number, token in enumerate(self.target)}
        words: dict[int, list[int]] = {}
        for i, j in alignment:
            words.setdefault(i, []).append(j)
        self.aligned = [  # target tokens of each source token
            [numbers[j, token.place] for j in words.get(token.word, ()) if (j, token.place) in numbers]
            for token in self.source
        ]

    def place(
        self, tags: Sequence[PlacedTag], closings: Mapping[int, int], numbers: range, low: int, high: int
    ) -> Iterator[tuple[int, PlacedTag]]:
        """Yield the tags with these numbers in the order of the target, with their positions between `low` and `high`.

        What is inside a pair stays inside, and what is outside stays outside. A pair ends where the next one starts.
        """
        spans, number = [], numbers.start
        while number < numbers.stop:
            closing = closings.get(number, number)
            spans.append((*self.find_span(tags[number], tags[closing]), number, closing))
            number = closing + 1
        spans.sort()
        pair_starts = [start for start, end, *_ in spans if start < end]
        for start, end, number, closing in spans:
            next_pair = bisect_right(pair_starts, start)
            if next_pair < len(pair_starts):
                end = min(end, pair_starts[next_pair])
            start, end = (min(max(position, low), high) for position in (start, end))
            yield start, tags[number]
            if closing > number:
                yield from self.place(tags, closings, range(number + 1, closing), start, end)
                yield end, tags[closing]
            low = end

    def find_span(self, opening: PlacedTag, closing: PlacedTag) -> tuple[int, int]:
        """The first and the last position of the tokens aligned to those of a pair; a single tag is at both."""
        first = bisect_right(self.source, opening.at, key=lambda token: token.end)
        last = bisect_left(self.source, closing.at, key=lambda token: token.start)
        if first >= last or opening.at == closing.at:  # there are no tokens inside
            position = self.find_position(opening)
            return position, position
        if not any(token.place == 0 for token in self.source[:first] + self.source[last:]):  # the pair has all words
            letters = [j for j, token in enumerate(self.target) if token.place == 0]
            start = letters[0] if first and letters else 0
            return start, letters[-1] + 1 if last < len(self.source) and letters else len(self.target)
        if tokens := [j for aligned in self.aligned[first:last] for j in aligned]:
            return min(tokens), max(tokens) + 1
        start, end = sorted(map(self.find_position, (opening, closing)))
        return start, end

    def find_position(self, placed: PlacedTag) -> int:
        """The position between target tokens that the fewest alignment links cross; near words count more.

        A tag that is joined to the word before or after it stays with that word.
        """
        middle = bisect_right(self.source, placed.at, key=lambda token: token.end)
        near = range(max(middle - MAX_DISTANCE, 0), min(middle + MAX_DISTANCE, len(self.source)))
        if placed.space_before != placed.space_after:  # joined to the word after it, or to the one before it
            neighbour = middle - placed.space_after
            neighbours = self.aligned[neighbour] if neighbour in near else []
            if neighbours:
                return max(neighbours) + 1 if placed.space_after else min(neighbours)
        proportional = round(len(self.target) * middle / len(self.source)) if self.source else 0
        words = self.source[middle - 1].word + 1 if middle else 0
        links = [(i < middle, j, 0.5 ** abs(self.source[i].word + 0.5 - words)) for i in near for j in self.aligned[i]]

        def cost(position: int) -> tuple[float, int, int]:
            crossed = sum(weight for is_before, j, weight in links if is_before != (j < position))
            return crossed, abs(position - proportional), position

        beside_links = {position for _, j, _ in links for position in (j, j + 1)}
        return min({proportional, *beside_links}, key=cost)


def _spaced(tags: Sequence[PlacedTag], left: str, space: str, right: str) -> list[Piece]:
    """The tags between two texts with spaces where they had some, and at least one where the words need it."""
    spaces = []
    for before, after in pairwise([None, *tags, None]):
        opened, closes = before and before.tag.side == "open", after and after.tag.side == "close"
        wanted = bool(before and before.space_after and (opened or not closes))  # inside a pair only if there was one
        spaces.append(wanted or bool(after and after.space_before and not opened))
    if not space and left and right:  # inside a word, or between a word and its punctuation
        after_letter, before_letter = left[-1].isalnum(), right[0].isalnum()
        spaces = [wanted and not (after_letter and before_letter) for wanted in spaces]
        spaces[0] &= after_letter or left[-1] in CLOSING_PUNCTUATION
        spaces[-1] &= before_letter
    spaces[0] &= left != ""
    spaces[-1] &= right != ""
    if space and not any(spaces) and not any(placed.separates for placed in tags):
        spaces[[*(placed.tag.side == "close" for placed in tags), False].index(False)] = True
    pieces: list[Piece] = []
    for wanted, placed in zip_longest(spaces, tags):
        pieces += [*[space or " "] * wanted, *([placed.tag] if placed else [])]
    return pieces
