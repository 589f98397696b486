"""Terminology: the terms of a glossary, and what is copied, stand in the translation as they should, in every family.

T target tokens, S source tokens.
"""

from __future__ import annotations

import functools
import re
import time
import unicodedata
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, cast

from regard.decoding import Edges, Form, Hypothesis, Terms, Want
from regard.errors import DataError, InputError
from regard.inspection.alignment import cross_attention
from regard.inspection.quality import QualityWarning
from regard.inspection.trace import Trace, make_side, trace
from regard.models import Generator
from regard.text.files import read_lines
from regard.text.scripts import UNSPACED_SCRIPTS, script_of
from regard.text.tokenizer import END, TEXTLESS_TOKENS, UNKNOWN, Tokenizer

if TYPE_CHECKING:
    from torch import Tensor, nn

    from regard.decoding import Begun
    from regard.translation.translator import Asked, Draft, Translator

BONUS = 15.0  # of all attention on a term's source, for its logarithm
BLIND = 4.0  # of a term that no attention says the place of
PIECES = 2  # a word that training has seen often is cut into no more
LEAST = 0.05  # of a word's attention on the source of a term, to be what it is written for
AS_MUCH = 0.8  # of the best word's attention that makes its neighbour a part of the same
HALF = 0.5
LINKED = 0.25  # of a word's attention on one of a term's words, to be a part of it
SHORT = 3  # letters of an article or a preposition
OPENING = "'’([{«“-/¿¡"  # after these a word begins without a blank
BEFORE_CAPITALS = ".!?…:>" + OPENING  # after these a sentence may begin; > ends a tag

Mode = Literal["soft", "hard"]
How = Literal["written", "forced", "placed", "missing"]
Span = tuple[int, int]
Key = tuple[str, ...]
Right = TypeVar("Right")


# Words.


def units(text: str) -> list[Span]:
    """Where the words and the signs of a text begin and end; of scripts without blanks every character is one."""
    found: list[Span] = []
    for kind, group in groupby(enumerate(text), key=lambda place: _kind(place[1])):
        places = [place for place, _ in group]
        if kind == "word":
            found.append((places[0], places[-1] + 1))
        elif kind == "sign":
            found += [(place, place + 1) for place in places]
    return found


@functools.lru_cache(maxsize=1 << 14)
def _kind(character: str) -> str:
    if character.isspace():
        return "blank"
    if script_of(character) in UNSPACED_SCRIPTS:
        return "sign"
    return "word" if character.isalnum() or character == "_" or unicodedata.category(character)[0] == "M" else "sign"


def _key(text: str, spans: Sequence[Span], *, ignore_case: bool) -> Key:
    words = [text[slice(*span)] for span in spans]
    return tuple(word.casefold() for word in words) if ignore_case else tuple(words)


# What is asked for.


class Match(NamedTuple):
    """A term where it stands in a source."""

    start: int
    end: int
    source: str
    forms: tuple[str, ...]
    """The target may have any of them; the first is what is put there where the model does not write one."""
    kept: bool
    """It is copied, to the byte."""


@dataclass(frozen=True)
class Glossary:
    """Terms of a source language with their forms in the target language, and what is copied."""

    terms: Mapping[Key, tuple[str, ...]]
    patterns: tuple[re.Pattern[str], ...]
    """What is copied beside the `kept` words."""
    kept: frozenset[Key]
    ignore_case: bool
    """Of the terms; what is copied is copied in this case only."""

    @classmethod
    def make(
        cls, terms: Iterable[tuple[str, Sequence[str]]] = (), keep: Iterable[str] = (), *, ignore_case: bool = False
    ) -> Glossary:
        """From (source, forms) and from words to copy, those between slashes being regular expressions."""
        found: dict[Key, tuple[str, ...]] = {}
        for source, forms in terms:
            key = _key(source, units(source), ignore_case=ignore_case)
            if not key or not forms or not all(form.strip() for form in forms):
                raise InputError(f"the term {source!r} must have a source and at least one target form")
            found[key] = tuple(dict.fromkeys([*found.get(key, ()), *(form.strip() for form in forms)]))
        patterns, words = [], []
        for word in keep:
            if len(word) > 2 and word[0] == word[-1] == "/":
                try:
                    patterns.append(re.compile(word[1:-1]))
                except re.error as error:
                    raise InputError(f"{word} is no regular expression: {error}") from error
            else:
                words.append(_key(word, units(word), ignore_case=False))
        return cls(found, tuple(patterns), frozenset(filter(None, words)), ignore_case)

    @classmethod
    def read(cls, glossary: Path | None, keep: Path | None, *, ignore_case: bool = False) -> Glossary:
        """From a TSV of source terms and target forms, and a list of what is copied."""
        terms = [] if glossary is None else [_row(*line) for line in _meant(glossary)]
        words = [] if keep is None else [line.strip() for line, _ in _meant(keep)]
        try:
            return cls.make(terms, words, ignore_case=ignore_case)
        except InputError as error:
            raise DataError(f"{glossary if keep is None else keep}: {error}") from error

    def find(self, text: str) -> list[Match]:
        """The terms in a text, in its order; where they overlap the longest one counts."""
        spans = units(text)
        found = [*self._copied(text, spans), *self._terms(text, spans)]
        taken: list[Match] = []
        for match in sorted(found, key=lambda match: (match.start - match.end, match.start)):
            if all(match.end <= other.start or other.end <= match.start for other in taken):
                taken.append(match)
        return sorted(taken)

    @functools.cached_property
    def _sizes(self) -> tuple[set[int], set[int]]:
        """How many units the words that are copied and the terms have."""
        return {len(key) for key in self.kept}, {len(key) for key in self.terms}

    def _copied(self, text: str, spans: Sequence[Span]) -> Iterator[Match]:
        matches = (match for pattern in self.patterns for match in pattern.finditer(text) if match[0].strip())
        found = [_whole_units(spans, match.span()) for match in matches]
        found += [span for span, _ in _alike(text, spans, self.kept, self._sizes[0], lambda key, _: key)]
        for start, end in found:
            yield Match(start, end, text[start:end], (text[start:end],), kept=True)

    def _terms(self, text: str, spans: Sequence[Span]) -> Iterator[Match]:
        def spelled(key: Key, first: int) -> Key:
            if self.ignore_case:
                return tuple(word.casefold() for word in key)
            begins = first == 0 or text[spans[first - 1][0]] in BEFORE_CAPITALS
            if begins and key not in self.terms:  # a capital there need not be the word's own
                return (key[0][:1].lower() + key[0][1:], *key[1:])
            return key

        for (start, end), key in _alike(text, spans, self.terms, self._sizes[1], spelled):
            yield Match(start, end, text[start:end], self.terms[key], kept=False)


def _whole_units(spans: Sequence[Span], span: Span) -> Span:
    """From where the first unit begins that is touched to where the last one ends: part of a word is not copied."""
    first = bisect_right(spans, span[0], key=lambda unit: unit[1])
    last = bisect_left(spans, span[1], key=lambda unit: unit[0]) - 1
    return spans[first][0], spans[last][1]


def _alike(
    text: str, spans: Sequence[Span], known: Container[Key], sizes: Iterable[int], spelled: Callable[[Key, int], Key]
) -> Iterator[tuple[Span, Key]]:
    """Where the units of a text, spelled so, are a key."""
    for length in sizes:
        for first in range(len(spans) - length + 1):
            own = spans[first : first + length]
            key = spelled(tuple(text[slice(*span)] for span in own), first)
            if key in known:
                yield (own[0][0], own[-1][1]), key


def _meant(path: Path) -> Iterator[tuple[str, str]]:
    """The lines of a file that are neither empty nor a remark, and where they stand."""
    for line, origin in read_lines(path):
        if line.strip() and not line.startswith("# "):
            yield line, str(origin)


def _row(line: str, where: str) -> tuple[str, list[str]]:
    source, *columns = line.split("\t")
    forms = [form.strip() for column in columns for form in column.split("|") if form.strip()]
    if not source.strip() or not forms:
        raise DataError(
            f"{where}: {line[:40]!r} must be a source term, a tab and its target term; more forms after | or more tabs"
        )
    return source.strip(), forms


# What came of it.


class Placed(NamedTuple):
    """What became of a term."""

    source: str
    """As it stands in the source."""
    form: str
    """As it stands in the translation; empty: it does not."""
    how: How
    """By the model, favoured or not; because nothing else was allowed; in place of the model's own word; not at all."""


def present(text: str, matches: Sequence[Match]) -> list[Span | None]:
    """Where the form of each term stands in a translation; each stretch of it serves one term."""
    spans = units(text)
    starts, ends = {start for start, _ in spans}, {end for _, end in spans}
    found: list[Span | None] = [None] * len(matches)
    order = sorted(range(len(matches)), key=lambda number: -max(map(len, matches[number].forms)))
    for number in order:
        match = matches[number]
        forms = [*match.forms] if match.kept else [*match.forms, *map(_capital, match.forms)]
        for form in sorted(dict.fromkeys(forms), key=len, reverse=True):
            first = 0
            while found[number] is None and (start := text.find(form, first)) >= 0:
                first, end = start + 1, start + len(form)
                free = all(span is None or end <= span[0] or span[1] <= start for span in found)
                meant = form in match.forms or start == (spans[0][0] if spans else 0)  # or a capital of the sentence
                if free and meant and start in starts and end in ends:
                    found[number] = start, end
    return found


def _capital(word: str) -> str:
    return word[:1].upper() + word[1:]


def place(seen: Trace, weights: Tensor, text: str, matches: Sequence[Match]) -> tuple[str, list[Span | None]]:
    """The text with every term it lacks in place of the word that looked at its source, and the words so replaced.

    `text` is what the trace's target stands for, `weights` [target token, source token] what was looked at.
    """
    targets = [span for span in units(text) if _kind(text[span[0]]) == "word" or script_of(text[span[0]])]
    by_word = _by_units(weights, seen.target.ids, seen.target.subwords, targets)
    here = present(text, matches)
    taken = {number for number, span in enumerate(targets) for other in here if other and _meet(span, other)}
    new: dict[int, Span] = {}
    masses = {number: _mass(by_word, seen, match) for number, match in enumerate(matches) if here[number] is None}
    for number in sorted(masses, key=lambda number: -max((max(row) for row in masses[number]), default=0.0)):
        words = _stretch(masses[number], taken, [text[slice(*span)] for span in targets])
        if words:
            taken |= set(words)
            new[number] = targets[words[0]][0], targets[words[-1]][1]
    for number in sorted(new, key=lambda number: -new[number][0]):
        start, end = new[number]
        form, kept = matches[number].forms[0], matches[number].kept
        begins = text[start].isupper() and not text[:start].strip()
        text = text[:start] + (_capital(form) if begins and not kept else form) + text[end:]
    return text, [new.get(number) for number in range(len(matches))]


def _by_token(seen: Trace) -> Tensor:
    """[target token, source token]: what alignments are read from, not gathered into words."""
    sides = (each._replace(words=each.subwords, word=[*range(len(each.ids))]) for each in (seen.source, seen.target))
    source, target = sides
    return cross_attention(replace(seen, source=source, target=target))


def _meet(one: Span, other: Span) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _spans(ids: Sequence[int], pieces: Sequence[str]) -> list[Span]:
    """Where each token stands in the text that its pieces make, the blank before it aside; nowhere: (0, 0)."""
    found, end = [], 0
    for number, piece in zip(ids, pieces, strict=True):
        if number in TEXTLESS_TOKENS:
            found.append((0, 0))
            continue
        start, end = end + len(piece) - len(piece.lstrip()), end + len(piece)
        found.append((start, end))
    return found


def _by_units(weights: Tensor, ids: Sequence[int], pieces: Sequence[str], targets: Sequence[Span]) -> list[Tensor]:
    """What each target word looked at, averaged over its tokens."""
    tokens = _spans(ids, pieces)
    found = []
    for target in targets:
        own = [number for number, span in enumerate(tokens) if _meet(span, target)]
        found.append(weights[own].mean(0) if own else weights.new_zeros(weights.shape[1]))
    return found


def _mass(by_word: Sequence[Tensor], seen: Trace, match: Match) -> list[list[float]]:
    """For each target word, its attention on every source word of the term."""
    tokens = _spans(seen.source.ids, seen.source.subwords)
    words = [(match.start + start, match.start + end) for start, end in units(match.source)]
    own = [[number for number, span in enumerate(tokens) if _meet(span, word)] for word in words]
    shared = Counter(number for numbers in own for number in numbers)  # a token of two words is half of each
    return [[sum(float(looks[n]) / shared[n] for n in numbers) for numbers in own] for looks in by_word]


def _stretch(mass: Sequence[Sequence[float]], taken: set[int], words: Sequence[str]) -> list[int]:
    """The target words, side by side, that a term replaces: those that looked at it most.

    An article looks at its noun, sometimes as much as the noun itself does: of two that look alike the longer word is
    taken, and short ones never beside another.
    """
    free = [number for number in range(len(mass)) if number not in taken]
    total = {number: sum(mass[number]) for number in free}
    most = max(total.values(), default=0.0)
    if most < LEAST:
        return []
    alike = [number for number in free if total[number] >= AS_MUCH * most]
    best = max(alike, key=lambda number: (len(words[number]), total[number]))
    chosen = {number for number in alike if total[number] >= HALF and _is_long(words[number])}
    for column in zip(*mass, strict=True) if len(mass[best]) > 1 else ():  # every word of the term has its own
        own = max(free, key=column.__getitem__)
        chosen |= {own} if column[own] >= LINKED else set()
    found = [best]
    for step in (-1, 1):
        while True:
            edge = found[0] if step < 0 else found[-1]
            reach = next((far for far in (1, 2) if edge + step * far in chosen), 0)  # over one word that is no name's
            between = [edge + step * far for far in range(1, reach + 1)]
            if not reach or taken & set(between):
                break
            found = sorted([*found, *between])
    return found


def _is_long(word: str) -> bool:
    return len(word) > SHORT or script_of(word[0]) in UNSPACED_SCRIPTS


# Searching.


@functools.lru_cache(maxsize=8)
def edges(tokenizer: Tokenizer) -> Edges:
    """Where words begin and end, as the pieces of a vocabulary read inside a text."""
    numbers = [number for number in range(tokenizer.size) if number not in TEXTLESS_TOKENS and number != UNKNOWN]
    pieces = dict(zip(numbers, tokenizer.token_texts(numbers, after=tokenizer.encode("a")[-1]), strict=True))
    return Edges(
        joins=frozenset(number for number, piece in pieces.items() if piece and piece[-1] in OPENING + " "),
        inside=frozenset(number for number, piece in pieces.items() if piece and _kind(piece[0]) == "word"),
    )


def forms_of(tokenizer: Tokenizer, match: Match) -> tuple[Form, ...]:
    """The tokens of each form that the vocabulary can write exactly."""
    found = []
    for form in match.forms:
        after_blank, joined = tokenizer.encode(f" {form}"), tokenizer.encode(form)
        anywhere = after_blank == joined or script_of(form[0]) in UNSPACED_SCRIPTS
        pairs = [(joined, None)] if anywhere else [(after_blank, False), (joined, True)]
        for ids, how in pairs:
            if ids and UNKNOWN not in ids and tokenizer.decode(ids).strip() == form:
                found.append(Form(tuple(ids), how))
    return tuple(dict.fromkeys(found))


def knows(tokenizer: Tokenizer, match: Match) -> bool:
    """Training has seen a form often: none of its words is cut into more than a few pieces."""
    return any(all(_is_known(tokenizer, word) for word in form.split()) for form in match.forms)


def _is_known(tokenizer: Tokenizer, word: str) -> bool:
    ids = tokenizer.encode(f" {word}")
    most = len(word) if script_of(word[0]) in UNSPACED_SCRIPTS else PIECES
    return UNKNOWN not in ids and len(ids) <= most


def attends(model: nn.Module) -> bool:
    """It looks at its source: there is attention to go by."""
    config = cast(Any, model).config
    return bool(config.score != "none")


@dataclass(frozen=True)
class Terminology:
    """A glossary for a translator.

    Soft: what the model knows is made more probable where attention rests on its source; what it does not know, or did
    not write all the same, takes the place of the word that looked at its source, while the model is fed its own. Hard:
    the search allows nothing else where the term belongs. A model without attention is searched softly, and hard where
    that did not help. A term that none of this could bring in is warned of; nothing fails.
    """

    glossary: Glossary
    mode: Mode

    def drafts(
        self,
        translator: Translator,
        texts: Sequence[str],
        sources: Sequence[Sequence[int]],
        asked: Asked,
        begun: list[Begun] | None,
    ) -> list[list[Draft]]:
        """As `Translator.drafts`, with the terms of each text."""
        matches = [self.glossary.find(text) for text in texts]
        if not any(matches):
            return translator.drafts(texts, sources, asked, begun)
        batch = Batch(translator, texts, sources, asked, matches)
        rows = list(range(len(texts)))
        known = [[*filter(batch.favours, own)] for own in matches]
        nothing: list[list[Match]] = [[] for _ in rows]
        found = batch.search(rows, known if self.mode == "soft" else nothing, hard=False, begun=begun)
        forced = batch.force(known, found) if self.mode == "hard" else []
        settled = batch.settle(rows, found, forced)
        last = [list(drafts) for drafts in settled]
        due = batch.force(matches, last)  # what could not be placed
        for row, drafts in zip(due, batch.settle(due, [last[row] for row in due], due), strict=True):
            if missing(drafts) < missing(settled[row]):
                settled[row] = drafts
        return settled

    def torn(self, text: str, parts: Sequence[str]) -> list[Placed]:
        """The terms of a text that are in none of the parts it is translated in."""
        here = Counter(match.source for part in parts for match in self.glossary.find(part))
        lost = Counter(match.source for match in self.glossary.find(text)) - here
        return [Placed(source, "", "missing") for source in lost.elements()]


def missing(drafts: Sequence[Draft]) -> int:
    """Terms that drafts lack."""
    return sum(term.how == "missing" for draft in drafts for term in draft.terms)


class Batch:
    """Sentences that are searched together, and their terms."""

    def __init__(
        self,
        translator: Translator,
        texts: Sequence[str],
        sources: Sequence[Sequence[int]],
        asked: Asked,
        matches: Sequence[Sequence[Match]],
    ) -> None:
        self.translator, self.texts, self.sources, self.asked = translator, texts, sources, asked
        self.matches = matches
        self.target = translator.sides.target
        self.looking = [model for model in translator.models if attends(model)]
        self.watches = len(self.looking) == len(translator.models)

    def favours(self, match: Match) -> bool:
        """A bias may help: the model knows the term, or there is nothing better."""
        return not self.looking or knows(self.target, match)

    def search(
        self,
        rows: Sequence[int],
        matches: Sequence[Sequence[Match]],
        *,
        hard: bool,
        begun: list[Begun] | None = None,
        own: Sequence[Sequence[frozenset[int]]] | None = None,
    ) -> list[list[Draft]]:
        """Drafts of these rows with these terms in the search; `own` are the tokens each is written instead of."""
        texts, sources = [self.texts[row] for row in rows], [self.sources[row] for row in rows]
        wants = [self._wants(*each) for each in zip(rows, matches, own or [[]] * len(rows), strict=True)]
        asked = self.asked
        if asked.prefixes is not None:
            asked = asked._replace(prefixes=[asked.prefixes[row] for row in rows])
        if any(wants):
            rule = Terms(
                wants,
                edges(self.target),
                END,
                self.translator.limits(sources),
                bonus=BONUS if self.watches else BLIND,
                hard=hard,
                watches=self.watches,
            )
            asked = asked._replace(rules=(*asked.rules, rule))
        return self.translator.drafts(texts, sources, asked, begun)

    def _wants(self, row: int, matches: Sequence[Match], own: Sequence[frozenset[int]]) -> list[Want]:
        seen = make_side(self.translator.sides.source, self.sources[row], self.texts[row])
        spans = _spans(seen.ids, seen.subwords) if seen.text == self.texts[row] else []
        found = []
        for number, match in enumerate(matches):
            forms = forms_of(self.target, match)
            tokens = tuple(token for token, span in enumerate(spans) if _meet(span, match[:2]))
            if forms:
                found.append(Want(forms, tokens, own[number] if own else frozenset()))
        return found

    def _seen(self, rows: Sequence[int], hypotheses: Sequence[Hypothesis]) -> list[tuple[Trace, Tensor]]:
        """What was looked at for hypotheses of these rows, over all models that look."""
        texts, sources = [self.texts[row] for row in rows], [self.sources[row] for row in rows]
        sides = self.translator.sides
        traces = [
            trace(cast(Generator, model), sources, hypotheses, sides, texts=texts, top=1) for model in self.looking
        ]
        return [
            (own[0], sum((_by_token(each) for each in own[1:]), _by_token(own[0])) / len(own))
            for own in zip(*traces, strict=True)
        ]

    def replaced(
        self, rows: Sequence[int], matches: Sequence[Sequence[Match]], drafts: Sequence[Draft]
    ) -> list[list[frozenset[int]]] | None:
        """For each term of these rows the first token of what the model wrote in its place."""
        if not self.looking:
            return None
        found = []
        pairs = zip(matches, self._seen(rows, [draft.hypothesis for draft in drafts]), strict=True)
        for wanted, (seen, weights) in pairs:
            _, words = place(seen, weights, seen.target.text, wanted)
            tokens = list(zip(seen.target.ids, _spans(seen.target.ids, seen.target.subwords), strict=True))
            firsts = [[n for n, span in tokens if word and _meet(span, word)][:1] for word in words]
            found.append([frozenset(numbers) for numbers in firsts])
        return found

    def force(self, matches: Sequence[Sequence[Match]], found: list[list[Draft]]) -> list[int]:
        """Where one of these terms is lacking search again, nothing else allowed where it belongs; those rows."""
        due = [row for row, own in enumerate(matches) if any(None in present(draft.text, own) for draft in found[row])]
        if due:
            wanted = [matches[row] for row in due]
            own = self.replaced(due, wanted, [found[row][0] for row in due])
            for row, drafts in zip(due, self.search(due, wanted, hard=True, own=own), strict=True):
                found[row] = drafts
        return due

    def settle(self, rows: Sequence[int], found: Sequence[Sequence[Draft]], forced: Sequence[int]) -> list[list[Draft]]:
        """The drafts of these rows with all terms that can be placed, and a warning for those that cannot."""
        lacking = [
            (place, number)
            for place, (row, drafts) in enumerate(zip(rows, found, strict=True))
            for number, draft in enumerate(drafts)
            if self.looking and None in present(draft.text, self.matches[row])
        ]
        hypotheses = [found[place][number].hypothesis for place, number in lacking]
        looked = self._seen([rows[place] for place, _ in lacking], hypotheses) if lacking else []
        seen = dict(zip(lacking, looked, strict=True))
        return [
            [
                self._settled(draft, self.matches[row], row in forced, seen.get((place, number)))
                for number, draft in enumerate(drafts)
            ]
            for place, (row, drafts) in enumerate(zip(rows, found, strict=True))
        ]

    def _settled(
        self, draft: Draft, matches: Sequence[Match], forced: bool, seen: tuple[Trace, Tensor] | None
    ) -> Draft:
        if not matches:
            return draft
        before, text = present(draft.text, matches), draft.text
        if seen is not None and seen[0].target.text == text:
            text, _ = place(*seen, text, matches)
        after = present(text, matches)
        terms, notes = list[Placed](), list[QualityWarning]()
        for match, first, last in zip(matches, before, after, strict=True):
            if last is None:
                notes.append(
                    QualityWarning("glossary", f"the term {match.source!r} could not be placed", [match.source])
                )
                terms.append(Placed(match.source, "", "missing"))
            else:
                how: How = "placed" if first is None else "forced" if forced else "written"
                terms.append(Placed(match.source, text[slice(*last)], how))
        return draft._replace(text=text, warnings=[*draft.warnings, *notes], terms=terms)


# What it costs.


class Report(NamedTuple):
    """How well terms come out, and what they cost."""

    sentences: int
    """Those with a term."""
    terms: int
    how: dict[str, int]
    """How many were written, forced, placed or are missing."""
    accuracy: float
    """Terms that stand in their translation."""
    bleu: float
    """Of the sentences with a term, with the glossary,"""
    bleu_without: float
    """and without."""
    milliseconds: float
    """A sentence with a term takes, with the glossary,"""
    milliseconds_without: float
    """and without."""

    def as_dict(self) -> dict[str, Any]:
        return self._asdict()


def tally(terms: Iterable[Placed]) -> dict[str, int]:
    """How many terms were written, forced, placed or are missing."""
    counts = Counter(term.how for term in terms)
    return {how: counts[how] for how in ("written", "forced", "placed", "missing")}


def report(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[Right],
    terms: Terminology,
    bleu: Callable[[Sequence[str], Sequence[Right]], float],
    **how: Any,
) -> Report:
    """Translate the sentences that have a term with and without the glossary; `how` is as for `translate`.

    What a reference is, one text or several, only `bleu` knows.
    """
    if len(sources) != len(references):
        raise DataError(f"there are {len(sources):,} sources and {len(references):,} references: line for line")
    pairs = [pair for pair in zip(sources, references, strict=True) if terms.glossary.find(pair[0])]
    if not pairs:
        raise DataError("no sentence has a term of the glossary: there is nothing to report")
    ours, theirs = [source for source, _ in pairs], [reference for _, reference in pairs]
    begun = time.perf_counter()
    plain = translator.translate(ours, **how)
    between = time.perf_counter()
    found = translator.translate(ours, terms=terms, **how)
    ended = time.perf_counter()
    placed = [term for result in found for term in result.terms]
    counts = tally(placed)
    return Report(
        len(pairs),
        len(placed),
        counts,
        1 - counts["missing"] / max(len(placed), 1),
        bleu([result.text for result in found], theirs),
        bleu([result.text for result in plain], theirs),
        1000 * (ended - between) / len(pairs),
        1000 * (between - begun) / len(pairs),
    )
