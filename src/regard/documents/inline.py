"""Inline tags: take tags and placeholders out of a sentence, and insert them into its translation by word alignment.

A position in the target is a number of characters; the gap between two words is the position of the second.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby, pairwise
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
FORMAT_STRING = rf"{VARIABLE}|%{NAME}?[-+ 0#',]*+{WIDTH}(?:{LETTERS}|%|<PRI\w++>)|{NUMBERED}"
ENTITY = r"&(?:[A-Za-z][A-Za-z0-9]{1,30}|#\d{1,7}|#x[0-9A-Fa-f]{1,6});"
TEXT, FORMAT = (
    re.compile(f"(?P<tag>{TAG})|{kind}|<(?:{ADDRESS})>|{ADDRESS}|{ENTITY}") for kind in (PLACEHOLDER, FORMAT_STRING)
)
PLAIN_TEXT = re.compile(f"{ADDRESS}|{ENTITY}")  # plain text has these too, and a model may have learned them

VOID_ELEMENTS = {"br", "hr", "img", "input", "wbr"}  # of HTML: they have no closing tag
CLOSERS = {"(": ")", "[": "]", '"': '"', "'": "'", "«": "»", "“": "”", "‘": "’", "„": "“", "<": ">"}
JOINERS = "-‐–—/\\|=+*#@&~^_:$€£%×"  # beside a placeholder they belong to it: big-{x}, {x}: The dog, {x}%
SENTENCE_PUNCTUATION = ",.;!?…、。，！？"  # belongs to the word before it, if there is one
INNER = re.compile(rf"[{SENTENCE_PUNCTUATION}]+(?=\w)")  # {x}.name
LEADING = re.compile(rf"\s?[{re.escape(JOINERS + SENTENCE_PUNCTUATION)}]+(?=\s)")
CLOSING_PUNCTUATION = set(",.;:!?…)]}»”’、。，！？")  # stands at the word before it
LONE_PUNCTUATION = re.compile(r"[^\w\s]+(?:\s|$)")  # French writes "Bonjour !"
MAX_DISTANCE = 8  # words; the alignment of words farther from a tag does not decide where it goes
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
        pieces.append(_parse_tag(match[0]) if match["tag"] else Tag(match[0]))
        end = match.end()
    return pieces + [text[end:]] * (end < len(text))


def _parse_tag(raw: str) -> Tag:
    name = re.match(r"</?([A-Za-z][\w:.-]*)", raw)
    if name is None or raw.endswith("/>") or name[1].lower() in VOID_ELEMENTS:
        return Tag(raw)
    return Tag(raw, "close" if raw.startswith("</") else "open", name[1])


def has_tags(pieces: Iterable[Piece]) -> bool:
    """Whether there are tags or placeholders other than entities and addresses, which plain text has too."""
    return any(isinstance(piece, Tag) and not PLAIN_TEXT.fullmatch(piece.raw) for piece in pieces)


def join_pieces(pieces: Iterable[Piece]) -> str:
    """Words and tags as one text."""
    return "".join(piece if isinstance(piece, str) else piece.raw for piece in pieces)


# Extracting tags

MARKS = {"alone": "\ud800", "open": "\ud801", "close": "\ud802"}  # lone surrogates, which no valid text has
ALONE, PAIRED = MARKS["alone"], MARKS["open"] + MARKS["close"]
UNIT = rf"[{PAIRED}]|{ALONE}(?:[{re.escape(JOINERS + SENTENCE_PUNCTUATION)}]*{ALONE})*"  # {a}/{b} is one placeholder
UNITS = re.compile(UNIT)
RUN = re.compile(rf"(?:[{re.escape(JOINERS)}]*(?=[{PAIRED}]*{ALONE}))?(?:{UNIT})+")


@dataclass(eq=False)
class PlacedTag:
    """A tag, or placeholders that are joined, with the punctuation that goes with them."""

    tag: Tag
    pieces: list[Piece]
    space_before: bool = False
    space_after: bool = False
    at: int = 0
    """Characters of the text without tags before it."""
    separates: bool = False
    """Whether the words before and after it have no other separator, as with <br/>."""


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
    whole = join_pieces(pieces)
    stripped = whole.lstrip()
    leading, trailing = whole[: len(whole) - len(stripped)], stripped[len(stripped.rstrip()) :]
    text, tags = "", list[PlacedTag]()
    waiting: list[PlacedTag] = []  # tags since the last words
    space = False  # since the last words
    for words, run in _find_runs(pieces):
        if words.strip():
            separator = _separator(text, words, waiting, space or words[0].isspace())
            for placed in waiting:
                placed.at = len(text) + (len(separator) if placed.tag.side == "open" else 0)
            tags += waiting
            text += separator + words.strip()
            waiting, space = [], words[-1].isspace()
        else:
            space = space or words != ""
        waiting += run
    for placed in waiting:
        placed.at = len(text)
    return Extracted(text, tags + waiting, leading, trailing)


def _find_runs(pieces: Sequence[Piece]) -> Iterator[tuple[str, list[PlacedTag]]]:
    """Words, each with the tags after it and the punctuation that belongs to these tags."""
    tags = iter([piece for piece in pieces if isinstance(piece, Tag)])
    marked = "".join(piece if isinstance(piece, str) else MARKS[piece.side] for piece in pieces)
    marked, end, after_word = f" {marked} ", 0, False
    for run in RUN.finditer(marked):
        start, stop = run.span()
        if marked[end:start].strip():
            after_word = marked[end:start].rstrip()[-1] not in {*JOINERS, *SENTENCE_PUNCTUATION, *CLOSERS}
        if ALONE in run[0]:
            stop += len(marked[stop:]) - len(marked[stop:].lstrip(JOINERS))
            if CLOSERS.get(marked[start - 1]) == marked[stop]:  # (%s) and "%s"
                start, stop = start - 1, stop + 1
            if leading := INNER.match(marked, stop) or (None if after_word else LEADING.match(marked, stop)):
                stop = leading.end()
        units = [*UNITS.finditer(marked, start, stop)]
        placed = []
        for unit in units:
            tag = next(tags)
            placed.append(PlacedTag(tag, [tag, *(next(tags) if letter == ALONE else letter for letter in unit[0][1:])]))
        first, last = placed[0], placed[-1]
        first.pieces.insert(0, marked[start : units[0].start()])
        last.pieces.append(marked[units[-1].end() : stop])
        first.space_before, last.space_after = marked[end:start][-1:].isspace(), marked[stop].isspace()
        if last.tag.side == "alone" and marked[stop] not in MARKS.values():
            last.space_after = not marked[stop].isalnum()  # without its comma it needs a space
        yield marked[end:start], placed
        end = stop
    yield marked[end:], []


def _separator(text: str, words: str, tags: Sequence[PlacedTag], space: bool) -> str:
    """The separator between the words before and after some tags, once the tags are removed."""
    if not text:
        return ""
    if space:
        return "" if tags and words[0] in CLOSING_PUNCTUATION else " "  # "Hello {name}!" becomes "Hello!"
    sides = {placed.tag.side for placed in tags}
    if ("alone" in sides or sides == {"open", "close"}) and text[-1].isalnum() and words[0].isalnum():
        for placed in tags:
            placed.separates = True
        return " "
    return ""


# Inserting tags


class Word(NamedTuple):
    """The span of a word in its text (start, end), and the span of its letters (first, last)."""

    start: int
    end: int
    first: int
    last: int
    has_letters: bool


def _find_words(text: str, count: int) -> list[Word]:
    """The words that an alignment counts; in text without spaces these are tokens, assumed to be of equal length."""
    spans = [match.span() for match in re.finditer(r"\S+", text)]
    if count > len(spans):
        spans = list(pairwise(i * len(text) // count for i in range(count + 1)))
    words = []
    for start, end in spans:
        letters = [i for i in range(start, end) if text[i].isalnum()]
        first, last = (letters[0], letters[-1] + 1) if letters else (start, end)
        words.append(Word(start, end, first, last, bool(letters)))
    return words


@dataclass(eq=False)
class Node:
    """A single tag, or a pair of tags with its content, and its position in the target."""

    opening: PlacedTag
    closing: PlacedTag | None = None
    inside: list[Node] = field(default_factory=list)
    start: int = 0
    end: int = 0


def insert_tags(extracted: Extracted, target: str, alignment: Sequence[Link] | None) -> list[Piece]:
    """The target with every tag once: pairs around the words aligned to theirs, single tags beside them.

    Without an alignment, or if pairs cross each other, positions are kept in proportion to the length.
    """
    if not extracted.tags:  # finding the words of both texts would take half the time of a document without tags
        return [piece for piece in (extracted.leading, target, extracted.trailing) if piece]
    nodes = _build_tree(extracted.tags) if target.strip() else None
    placement = _Placement(extracted.text, target, alignment or [] if nodes is not None else [])
    if nodes is None:
        gaps = (placement.find_gap(placed, 0, len(target)) for placed in extracted.tags)
        tags = list(zip(accumulate(gaps, max), extracted.tags, strict=True))
    else:
        placement.place(nodes, 0, len(target))
        tags = list(_flatten(nodes))
    pieces: list[Piece] = [extracted.leading]
    end = 0
    for position, group in groupby(tags, key=lambda placed: placed[0]):
        before = target[end:position]
        words = before.rstrip()
        pieces.append(words)
        space = before[len(words) :]
        pieces += _spaced([placed for _, placed in group], target[:position].rstrip(), space, target[position:])
        end = position
    return [piece for piece in (*pieces, target[end:], extracted.trailing) if piece]


def _build_tree(tags: Sequence[PlacedTag]) -> list[Node] | None:
    """Nested pairs and single tags as a tree; None if pairs cross or are nested too deeply."""
    root: list[Node] = []
    stack: list[Node] = []
    for placed in tags:
        siblings = stack[-1].inside if stack else root
        if placed.tag.side == "close" and any(node.opening.tag.name == placed.tag.name for node in stack):
            node = stack.pop()
            if node.opening.tag.name != placed.tag.name:
                return None
            node.closing = placed
            continue
        siblings.append(Node(placed))
        if placed.tag.side == "open":
            stack.append(siblings[-1])
        if len(stack) > MAX_DEPTH:
            return None
    while stack:  # tags that are never closed
        node = stack.pop()
        (stack[-1].inside if stack else root).extend(node.inside)
        node.inside = []
    return root


class _Placement:
    """Finds the positions of tags in a target."""

    def __init__(self, text: str, target: str, alignment: Sequence[Link]) -> None:
        self.source = _find_words(text, max((i for i, _ in alignment), default=-1) + 1)
        self.target = _find_words(target, max((j for _, j in alignment), default=-1) + 1)
        self.gaps = [*(word.start for word in self.target), len(target)]
        self.aligned: list[list[int]] = [[] for _ in self.source]  # target words of each source word
        for i, j in alignment:
            self.aligned[i].append(j)

    def place(self, nodes: list[Node], low: int, high: int) -> None:
        """Give sibling nodes positions between two others; pairs do not overlap."""
        pairs = [node for node in nodes if self.place_pair(node, low, high)]
        pairs.sort(key=lambda node: node.start + node.end)
        for left, right in pairwise(pairs):
            if left.start < right.start < left.end:
                left.end = right.start
            elif left.end > right.start:
                right.start, right.end = left.end, max(left.end, right.end)
        for node in nodes:
            if node not in pairs:
                node.start = node.end = _outside(self.find_gap(node.opening, low, high), pairs)
            if node.closing is not None:
                self.place(node.inside, node.start, node.end)
        nodes.sort(key=lambda node: (node.start, node.end))

    def place_pair(self, node: Node, low: int, high: int) -> bool:
        """Place a pair around the words aligned to those inside it; False if it has no words inside."""
        if node.closing is None:
            return False
        opening, closing = node.opening.at, node.closing.at
        first = bisect_right(self.source, opening, key=lambda word: word.end)
        last = bisect_left(self.source, closing, key=lambda word: word.start) - 1
        if first > last or opening == closing:
            return False
        before, after = self.source[first], self.source[last]
        words = [j for aligned in self.aligned[first : last + 1] for j in aligned]
        # Punctuation that stood outside stays outside.
        if last - first + 1 == len(self.source):
            node.start = 0 if opening <= before.start else self.letters_start(0)
            node.end = self.gaps[-1] if closing >= after.end else self.letters_end(len(self.target) - 1)
        elif words:
            bare_start = before.first <= opening or before.first == before.start
            bare_end = after.last == after.end or closing <= after.last
            node.start = self.letters_start(min(words)) if bare_start else self.gaps[min(words)]
            node.end = self.letters_end(max(words)) if bare_end else self.gaps[max(words) + 1]
        else:
            node.start, node.end = sorted(self.find_gap(tag, low, high) for tag in (node.opening, node.closing))
        node.start, node.end = (min(max(place, low), high) for place in (node.start, max(node.start, node.end)))
        return True

    def letters_start(self, word: int) -> int:
        """The position before the letters of a word, or of the first word after it that has letters."""
        word = next((i for i in range(word, len(self.target)) if self.target[i].has_letters), word)
        return self.target[word].first

    def letters_end(self, word: int) -> int:
        """The position after the letters of a word, or of the last word before it that has letters."""
        word = next((i for i in range(word, -1, -1) if self.target[i].has_letters), word)
        return self.gaps[word + 1] if self.target[word].last == self.target[word].end else self.target[word].last

    def find_gap(self, placed: PlacedTag, low: int, high: int) -> int:
        """The gap between target words that the fewest alignment links cross; near words count more.

        A tag that is joined to the word before or after it stays with that word.
        """
        middle = bisect_right(self.source, placed.at, key=lambda word: word.last)
        near = range(max(middle - MAX_DISTANCE, 0), min(middle + MAX_DISTANCE, len(self.source)))
        links = [(i, j) for i in near for j in self.aligned[i]]
        joined = placed.space_before - placed.space_after  # -1: to the word before it, 1: to the one after it
        neighbour = [j for i, j in links if joined and i == middle - (joined < 0)]
        proportional = round(len(self.target) * middle / len(self.source)) if self.source else 0

        def cost(gap: int) -> tuple[float, int, int]:
            crossed = sum(0.5 ** abs(i + 0.5 - middle) for i, j in links if (i < middle) != (j < gap))
            return crossed, abs(gap - proportional), gap

        if neighbour:
            best = max(neighbour) + 1 if joined < 0 else min(neighbour)
        else:
            best = min({proportional, *(gap for _, j in links for gap in (j, j + 1))}, key=cost)
        first, last = bisect_left(self.gaps, low), bisect_right(self.gaps, high) - 1
        best = min(max(best, first), max(first, last))
        position = self.gaps[best]
        if best and middle and self.source[middle - 1].last <= placed.at < self.source[middle - 1].end:
            inside = placed.at - self.source[middle - 1].last  # it stood inside the punctuation of its word
            position = min(self.letters_end(best - 1) + inside, position)  # "Hello {name}!"
        return min(max(position, low), high)


def _outside(position: int, pairs: Sequence[Node]) -> int:
    """Move a position inside a pair to its nearer edge: a tag that stood outside the pair stays outside."""
    for pair in pairs:
        if pair.start < position < pair.end:
            return pair.start if position - pair.start <= pair.end - position else pair.end
    return position


def _flatten(nodes: Sequence[Node]) -> Iterator[tuple[int, PlacedTag]]:
    for node in nodes:
        yield node.start, node.opening
        yield from _flatten(node.inside)
        if node.closing is not None:
            yield node.end, node.closing


def _spaced(tags: Sequence[PlacedTag], left: str, space: str, right: str) -> list[Piece]:
    """The tags between two texts with spaces where they had some, and at least one where the words need it."""
    glued = not space and left != "" and right != ""
    after_letter, before_letter = left[-1:].isalnum(), right[:1].isalnum()
    spaces = [_had_space(before, after) for before, after in pairwise([None, *tags, None])]
    if glued and after_letter and before_letter:
        spaces = [False] * len(spaces)
    spaces[0] &= left != "" and (not glued or after_letter)
    spaces[-1] &= right != "" and (not glued or before_letter)
    if space and not any(spaces) and not any(placed.separates for placed in tags):
        attached = [placed.tag.side == "close" or _is_attached(placed) for placed in tags]
        spaces[[*attached, False].index(False)] = True
    if space and tags[-1].tag.side != "open" and LONE_PUNCTUATION.match(right):
        spaces[-1] = True
    pieces: list[Piece] = []
    for i, wanted in enumerate(spaces):
        pieces += [space or " "] * wanted
        pieces += [piece for placed in tags[i : i + 1] for piece in placed.pieces]
    return pieces


def _is_attached(placed: PlacedTag) -> bool:
    """Whether a single tag directly followed a word and was separated from the next one."""
    return placed.tag.side == "alone" and not placed.space_before and placed.space_after


def _had_space(before: PlacedTag | None, after: PlacedTag | None) -> bool:
    """Whether there was a space between two neighbours; inside a pair only if the pair had one there."""
    opened = before if before and before.tag.side == "open" else None
    closes = after if after and after.tag.side == "close" else None
    if opened or closes:
        return bool((opened and opened.space_after) or (closes and closes.space_before))
    return bool((before and before.space_after) or (after and after.space_before))
