"""Inline marks: tags and placeholders taken out of a sentence, and put back where its words went.

Positions in a target of T words are whole numbers: 4t is the gap before word t and 4T the end; 4t + 1 and 4t + 2 stand
inside word t, between its letters and the punctuation before and after them.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, NamedTuple

from regard.text.alignments import Link


class Mark(NamedTuple):
    """What is not words: it must come out as it went in."""

    raw: str
    side: Literal["open", "close", "alone"] = "alone"
    name: str = ""
    """Which opening and closing marks belong together."""
    firm: bool = False
    """An XML element: what it encloses must stay well-formed, whatever else is opened and closed."""


Piece = str | Mark

TAG = r"</?[A-Za-z][\w:.-]*(?:\s(?:[^<>\"']|\"[^\"<]*\"|'[^'<]*')*)?/?>|<!--[^<>]*-->"  # <b>, </g>, <x id="1"/>
PLACEHOLDER = (
    r"\{\w+,\s*(?:plural|select|selectordinal)\s*,(?:[^{}]|\{[^{}]*\})*\}"  # {n, plural, one {...} other {...}}
    r"|\{\{[^{}]*\}\}|[$%#]?\{[^{}\s]*\}"  # {{name}}, {0}, ${name}, %{name}
    r"|(?<!\d\s)%(?:\(\w+\)|\d+\$)[-+ 0#]*+\d*+(?:\.\d++)?(?:hh?|ll?|[zjtL])?[sdiufgGxXeEcrp@]"  # %(count)d, %1$s
    r"|(?<!\d)(?<!\d\s)%[-+0#]*+\d*+(?:\.\d++)?(?:hh?|ll?|[zjtL])?[sdiufgGxXeEcrp@](?![A-Za-z])|%%"  # %s, %.2f
)
ADDRESS = r"\bhttps?://[^\s<>\"]*[\w/]|\b[\w.+-]{1,64}@[\w-]+\.[\w.-]*\w"
ENTITY = r"&(?:[A-Za-z][A-Za-z0-9]{1,30}|#\d{1,7}|#x[0-9A-Fa-f]{1,6});"
MARK = re.compile(f"(?P<tag>{TAG})|{PLACEHOLDER}|{ADDRESS}|{ENTITY}")
TEXT = re.compile(f"{ADDRESS}|{ENTITY}")  # these stand in plain text too, and a model may have learned them

EMPTY = {"br", "hr", "img", "input", "wbr"}  # of HTML: these have no closing tag
CLOSERS = {"(": ")", "[": "]", '"': '"', "'": "'", "«": "»", "“": "”", "‘": "’", "„": "“"}
CLINGING = set(",.;:!?…)]}»”’、。，！？")  # punctuation that stands at the word before it
NEAR = 8  # words either side of a mark whose links say where it goes
DEEPEST = 50  # pairs inside one another; what is opened deeper encloses nothing


def find(text: str, own: Collection[str] = ()) -> list[Piece]:
    """A text as words and marks; joined again they are the text. A model's own tags, such as <fr>, are words to it."""
    pieces: list[Piece] = []
    end = 0
    for match in MARK.finditer(text):
        start, stop = match.span()
        if match[0] in own:
            continue
        tag = match["tag"]
        if tag is None and start > end and text[stop : stop + 1] == CLOSERS.get(text[start - 1], "none"):
            start, stop = start - 1, stop + 1  # (%s) and "%s" are kept as they are: without %s they say nothing
        pieces += [text[end:start]] * (start > end)
        pieces.append(_tag(tag) if tag else Mark(text[start:stop]))
        end = stop
    return pieces + [text[end:]] * (end < len(text))


def _tag(raw: str) -> Mark:
    name = re.match(r"</?([A-Za-z][\w:.-]*)", raw)
    if name is None or raw.endswith("/>") or name[1].lower() in EMPTY:
        return Mark(raw)
    return Mark(raw, "close" if raw.startswith("</") else "open", name[1])


def is_tagged(pieces: Iterable[Piece]) -> bool:
    """Whether there are tags or placeholders: more than an entity or an address, which plain text has too."""
    return any(isinstance(piece, Mark) and not TEXT.fullmatch(piece.raw) for piece in pieces)


def written(pieces: Iterable[Piece]) -> str:
    """Pieces as one text."""
    return "".join(piece if isinstance(piece, str) else piece.raw for piece in pieces)


# Taking out.


@dataclass(eq=False)
class Placed:
    """A mark, where it stood among the words, and whether it stood apart from what was before and after it."""

    mark: Mark
    at: int
    """Characters of the bare text before it."""
    before: bool | None
    """A blank; None: it began the text."""
    after: bool | None
    breaks: bool = False
    """It stood between two words that nothing else kept apart, as <br/> does."""


class Bare(NamedTuple):
    """A text without its marks, and the marks."""

    text: str
    marks: list[Placed]
    lead: str
    trail: str

    @property
    def has_words(self) -> bool:
        return any(letter.isalnum() for letter in self.text)


def take_out(pieces: Sequence[Piece]) -> Bare:
    """The words alone, and what is needed to put the marks back."""
    whole = list(pieces)
    lead = trail = ""
    if whole and isinstance(whole[0], str):
        lead = whole[0][: len(whole[0]) - len(whole[0].lstrip())]
        whole[0] = whole[0].lstrip()
    if whole and isinstance(whole[-1], str):
        trail = whole[-1][len(whole[-1].rstrip()) :]
        whole[-1] = whole[-1].rstrip()
    whole = [piece for piece in whole if piece]
    text, marks = "", list[Placed]()
    waiting: list[Placed] = []
    blank = False  # among the marks that wait for the next words, or before them
    for i, piece in enumerate(whole):
        if isinstance(piece, Mark):
            before, after = _blank(whole, i - 1, -1), _blank(whole, i + 1, 0)
            waiting.append(Placed(piece, len(text), before, after))
        elif piece.isspace():
            blank = True
        else:
            between = _between(text, piece, waiting, blank or piece[:1].isspace())
            for placed in waiting:
                placed.at = len(text) + (len(between) if placed.mark.side == "open" else 0)
            marks += waiting
            text += between + piece.strip()
            waiting, blank = [], piece[-1:].isspace()
    for placed in waiting:
        placed.at = len(text)
    return Bare(text, marks + waiting, lead, trail)


def _blank(pieces: Sequence[Piece], i: int, edge: int) -> bool | None:
    """Whether the piece beside a mark has a blank on the mark's side."""
    if not 0 <= i < len(pieces):
        return None
    piece = pieces[i]
    return isinstance(piece, str) and piece[edge].isspace()


def _between(text: str, piece: str, waiting: Sequence[Placed], blank: bool) -> str:
    """What parts the words before some marks from those after them, now that the marks are gone."""
    if not text:
        return ""
    if blank:
        clings = waiting and piece[0] in CLINGING  # "Hello {name}!" is "Hello!" without it
        return "" if clings else " "
    sides = [placed.mark.side for placed in waiting]
    parts = "alone" in sides or ("close" in sides and "open" in sides)
    if parts and text[-1].isalnum() and piece[0].isalnum():
        for placed in waiting:
            placed.breaks = True
        return " "
    return ""


# Putting back.


class Word(NamedTuple):
    """Where a word stands in its text, and where its letters do."""

    start: int
    end: int
    first: int
    last: int
    spoken: bool
    """It has letters, and is not a punctuation mark that stands apart."""


def words_of(text: str) -> list[Word]:
    """The words of a text: what blanks part."""
    found, end = [], 0
    for word in text.split():
        start = text.index(word, end)
        end = start + len(word)
        found.append(_word(text, start, end))
    return found


def _word(text: str, start: int, end: int) -> Word:
    letters = [i for i in range(start, end) if text[i].isalnum()]
    first, last = (letters[0], letters[-1] + 1) if letters else (start, end)
    return Word(start, end, first, last, bool(letters))


def _counted(text: str, linked: Iterable[int]) -> list[Word]:
    """The words that links count; where blanks do not part words these are tokens, taken to be alike long."""
    words, most = words_of(text), max(linked, default=-1) + 1
    if most <= len(words):
        return words
    edges = [place * len(text) // most for place in range(most + 1)]
    return [_word(text, start, end) for start, end in pairwise(edges)]


@dataclass(eq=False)
class Node:
    """A mark by itself, or a pair with all that stood inside it."""

    order: int
    opening: Placed
    closing: Placed | None = None
    inside: list[Node] = field(default_factory=list)
    start: int = 0
    end: int = 0
    targets: list[int] = field(default_factory=list)


def put_back(bare: Bare, target: str, links: Sequence[Link] | None) -> list[Piece]:
    """The target with every mark in it once: pairs around the words that theirs became, the others beside them.

    `links` say which word of the source and which of the target belong together; without any, places are kept in
    proportion.
    """
    if not bare.marks:
        return [piece for piece in (bare.lead, target, bare.trail) if piece]
    links = links or []
    ours = _counted(bare.text, (source for source, _ in links))
    theirs = _counted(target, (target for _, target in links))
    tree, crossing = _tree(bare.marks)
    places = _Places(ours, theirs, links)
    places.arrange(tree, 0, 4 * len(theirs))
    merged = _merged(target, theirs, _in_order(list(_flat(tree)), crossing))
    return [piece for piece in (bare.lead, *merged, bare.trail) if piece]


def _tree(marks: Sequence[Placed]) -> tuple[list[Node], list[tuple[Placed, Placed]]]:
    """Pairs that enclose, the rest by itself; and the pairs that cross others, whose order must be kept."""
    root: list[Node] = []
    stack: list[Node] = []
    crossing: list[tuple[Placed, Placed]] = []
    crossed: list[Placed] = []
    for order, placed in enumerate(marks):
        here = stack[-1].inside if stack else root
        if placed.mark.side == "open" and (placed.mark.firm or len(stack) < DEEPEST):
            stack.append(Node(order, placed))
            here.append(stack[-1])
        elif placed.mark.side == "close" and _is_open(stack, placed):
            while not _belong(stack[-1].opening, placed):
                crossed.append(stack[-1].opening)
                _dissolve(stack.pop(), stack[-1].inside)
            stack.pop().closing = placed
        else:
            partner = next((o for o in reversed(crossed) if placed.mark.side == "close" and _belong(o, placed)), None)
            if partner is not None:
                crossed.remove(partner)
                crossing.append((partner, placed))
            here.append(Node(order, placed))
    while stack:
        node = stack.pop()
        _dissolve(node, stack[-1].inside if stack else root)
    return root, crossing


def _belong(opening: Placed, closing: Placed) -> bool:
    return opening.mark.name == closing.mark.name and opening.mark.firm == closing.mark.firm


def _is_open(stack: Sequence[Node], closing: Placed) -> bool:
    """Whether a closing mark has its opening one before it, with no firm one between them."""
    for node in reversed(stack):
        if _belong(node.opening, closing):
            return True
        if node.opening.mark.firm and not closing.mark.firm:
            return False
    return False


def _dissolve(node: Node, around: list[Node]) -> None:
    """An opening mark that nothing closes encloses nothing."""
    around += node.inside
    node.inside = []


class _Places:
    """Finds where in the target the marks of a source go."""

    def __init__(self, ours: list[Word], theirs: list[Word], links: Sequence[Link]) -> None:
        self.ours, self.theirs = ours, theirs
        self.linked: list[list[int]] = [[] for _ in ours]
        self.starts, self.ends = [word.start for word in ours], [word.end for word in ours]
        self.lasts = [word.last for word in ours]
        for source, target in links:
            self.linked[source].append(target)

    def arrange(self, nodes: list[Node], low: int, high: int) -> None:
        """Give the marks that stand side by side their places between two positions, pairs apart from one another."""
        pairs = [node for node in nodes if self.span(node, low, high)]
        pairs.sort(key=lambda node: (sum(node.targets) / len(node.targets), node.order))
        for one, other in pairwise(pairs):
            if one.end > other.start:
                cut = _cut(one, other)
                one.start, one.end = min(one.start, cut), min(one.end, cut)
                other.start, other.end = max(other.start, cut), max(other.end, cut)
        spans = set(map(id, pairs))
        for node in nodes:
            if id(node) not in spans:
                node.start = node.end = _outside(self.gap(node.opening, low, high), pairs, node.order)
        for node in nodes:
            if node.closing is not None:
                self.arrange(node.inside, node.start, node.end)
        nodes.sort(key=lambda node: (node.start, node.end, node.order))

    def span(self, node: Node, low: int, high: int) -> bool:
        """Whether a pair encloses words; then its span is the smallest that covers what they became."""
        if node.closing is None:
            return False
        opening, closing = node.opening, node.closing
        inside = range(bisect_right(self.ends, opening.at), bisect_left(self.starts, closing.at))
        if not inside or opening.at == closing.at:
            return False
        if len(inside) == len(self.ours):
            first, last = self.ours[0], self.ours[-1]
            node.start = 0 if opening.at <= first.start else self.letters(0)
            node.end = 4 * len(self.theirs) if closing.at >= last.end else self.letters_end(len(self.theirs) - 1)
            node.targets = list(range(len(self.theirs)))
        else:
            node.targets = sorted({target for i in inside for target in self.linked[i]})
            if node.targets:
                first, last = self.ours[inside[0]], self.ours[inside[-1]]
                # Punctuation that was not inside stays outside, and where there was none, none comes in.
                bare_start, bare_end = first.first <= opening.at or first.first == first.start, last.last == last.end
                start, end = node.targets[0], node.targets[-1]
                node.start = self.letters(start) if bare_start else 4 * start
                node.end = self.letters_end(end) if bare_end or closing.at <= last.last else 4 * end + 4
            else:
                ends = sorted((self.gap(opening, low, high), self.gap(closing, low, high)))
                node.start, node.end = ends
                node.targets = list(range(ends[0] // 4, max(ends[1] // 4, ends[0] // 4 + 1)))
        node.start, node.end = (min(max(place, low), high) for place in (node.start, max(node.start, node.end)))
        node.targets = node.targets or [0]
        return True

    def letters(self, word: int) -> int:
        """The position before the letters of a word, or of the first after it that has any."""
        word = next((i for i in range(word, len(self.theirs)) if self.theirs[i].spoken), word)
        if not self.theirs or self.theirs[word].first == self.theirs[word].start:
            return 4 * max(word, 0)
        return 4 * word + 1

    def letters_end(self, word: int) -> int:
        """The position after the letters of a word, or of the last before it that has any."""
        word = next((i for i in range(word, -1, -1) if self.theirs[i].spoken), word)
        if not self.theirs or self.theirs[word].last == self.theirs[word].end:
            return 4 * (word + 1)
        return 4 * word + 2

    def gap(self, placed: Placed, low: int, high: int) -> int:
        """The gap between target words that the fewest links cross, near ones counting more."""
        middle = bisect_right(self.lasts, placed.at)
        left, right = (2.0 if glued is False else 1.0 for glued in (placed.before, placed.after))
        near = [
            (i, target, (left if i < middle else right) / 2 ** (middle - 1 - i if i < middle else i - middle))
            for i in range(max(middle - NEAR, 0), min(middle + NEAR, len(self.ours)))
            for target in self.linked[i]
        ]
        first, last = -(-low // 4), high // 4
        even = round(len(self.theirs) * middle / len(self.ours)) if self.ours else 0
        candidates = {even, *(place for _, target, _ in near for place in (target, target + 1))}
        candidates = {min(max(place, first), max(first, last)) for place in candidates}

        def cost(place: int) -> tuple[float, int, int]:
            crossed = sum(weight for i, target, weight in near if (i < middle) != (target < place))
            return crossed, abs(place - even), place

        best = min(candidates, key=cost)
        # Before the punctuation of its left word if it stood there: "Hello {name}!"
        if best and middle and self.ours[middle - 1].last <= placed.at < self.ours[middle - 1].end:
            return min(max(self.letters_end(best - 1), low), high)
        return min(max(4 * best, low), high)


def _cut(one: Node, other: Node) -> int:
    """Where two pairs that overlap in the target part, so that the fewest words are on the wrong side."""
    low, high = max(one.start, other.start), one.end
    candidates: list[int] = [low, high, *range(-(-low // 4) * 4, high, 4)]

    def wrong(place: int) -> tuple[int, int]:
        word = (place + 2) // 4
        ours = len(one.targets) - bisect_left(one.targets, word)
        return ours + bisect_left(other.targets, word), place

    return min(candidates, key=wrong)


def _outside(place: int, pairs: Sequence[Node], order: int) -> int:
    """A mark that stood outside a pair stays outside."""
    for pair in pairs:
        if pair.start < place < pair.end:
            to_start, to_end = place - pair.start, pair.end - place
            before = to_start < to_end or (to_start == to_end and order < pair.order)
            return pair.start if before else pair.end
    return place


def _flat(nodes: Sequence[Node]) -> Iterator[tuple[int, Placed]]:
    for node in nodes:
        yield node.start, node.opening
        yield from _flat(node.inside)
        if node.closing is not None:
            yield node.end, node.closing


def _in_order(ordered: list[tuple[int, Placed]], crossing: Sequence[tuple[Placed, Placed]]) -> list[tuple[int, Placed]]:
    """Pairs that cross others close after they open."""
    places = {id(placed): i for i, (_, placed) in enumerate(ordered)}
    late = {id(closing): opening for opening, closing in crossing if places[id(closing)] < places[id(opening)]}
    moved = {id(opening): closing for opening, closing in crossing if id(closing) in late}
    found = []
    for place, placed in ordered:
        if id(placed) not in late:
            found.append((place, placed))
        if id(placed) in moved:
            found.append((place, moved[id(placed)]))
    return found


# Writing.


def _merged(target: str, words: Sequence[Word], ordered: Sequence[tuple[int, Placed]]) -> list[Piece]:
    """Words and marks in one row."""
    groups: dict[int, list[Placed]] = {}
    for place, placed in ordered:
        groups.setdefault(place, []).append(placed)
    pieces: list[Piece] = []
    end = 0
    for i, word in enumerate(words):
        blank = target[end : word.start]
        alone = not word.spoken  # French writes "Bonjour !"
        pieces += _gap(groups.get(4 * i, []), blank, first=i == 0, last=False, tight=i > 0 and not blank, alone=alone)
        pieces.append(target[word.start : word.first])
        pieces += _gap(groups.get(4 * i + 1, []), "", first=True, last=False)
        pieces.append(target[word.first : word.last])
        pieces += _gap(groups.get(4 * i + 2, []), "", first=False, last=True)
        pieces.append(target[word.last : word.end])
        end = word.end
    pieces += _gap(groups.get(4 * len(words), []), "", first=not words, last=True)
    return [piece for piece in pieces if piece]


def _gap(
    marks: Sequence[Placed], blank: str, *, first: bool, last: bool, tight: bool = False, alone: bool = False
) -> list[Piece]:
    """The marks between two words, with blanks where they had them, and one at least where the words need one."""
    if not marks:
        return [blank]
    around = [None, *marks, None]
    wanted = [_apart(before, after) and not tight for before, after in pairwise(around)]
    wanted[0] &= not first
    wanted[-1] &= not last
    if blank and not any(wanted) and not any(placed.breaks for placed in marks):
        clinging = [placed.mark.side == "close" or _clings(placed) for placed in marks]
        wanted[[*clinging, False].index(False)] = True
    wanted[-1] |= bool(blank) and alone
    pieces: list[Piece] = []
    for i, wants in enumerate(wanted):
        if wants:
            pieces.append(blank or " ")
        pieces += [placed.mark for placed in marks[i : i + 1]]
    return pieces


def _clings(placed: Placed) -> bool:
    return placed.mark.side == "alone" and placed.before is False and placed.after is not False


def _apart(before: Placed | None, after: Placed | None) -> bool:
    """Whether a blank stood between two neighbours; inside a pair, only if one was there."""
    opened = before if before and before.mark.side == "open" else None
    closes = after if after and after.mark.side == "close" else None
    if opened or closes:
        return bool((opened and opened.after) or (closes and closes.before))
    return bool((before and before.after is not False) or (after and after.before is not False))
