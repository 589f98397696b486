"""Glossary: find terms in a source, and put them into its translation where the model attended to them.

T target tokens, S source tokens.

The model decodes as it does without a glossary, so that words it has never seen do not disturb it. Where its output
lacks a term, the term replaces the words that attended most to the term's source.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import regex
import torch
from torch import Tensor

from regard.errors import DataError, InputError
from regard.text.files import read_lines

MIN_ATTENTION = 0.05  # of a target word on a term's source, to be replaced by the term
SIMILAR_ATTENTION = 0.8  # of the best word's attention: words that attend as much are compared by length
NEIGHBOUR_ATTENTION = 0.5  # of a neighbour on a term's source, to be replaced together with the best word
WORD_ATTENTION = 0.25  # of a neighbour on one word of the term, to be replaced together with the best word
MAX_FUNCTION_WORD = 3  # maximum letters of an article or a preposition
PATTERN_SECONDS = 2  # timeout of a regular expression in one text
OPENING = "'’([{«“-/¿¡"  # after these a word begins without a space
BEFORE_CAPITALS = ".!?…:>" + OPENING  # after these a sentence may begin; > ends a tag

Status = Literal["written", "placed", "missing"]
Span = tuple[int, int]
Key = tuple[str, ...]


# Words.

# Letters with their marks, digits and underscores make a word; in scripts without spaces every letter is a word.
UNSPACED = r"[\p{L}&&[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]]"
LETTER = regex.compile(r"[\p{L}\p{M}\p{N}_]")
WORD = regex.compile(rf"[\p{{L}}\p{{M}}\p{{N}}_--{UNSPACED}]+|\S", regex.V1)


def word_spans(text: str) -> list[Span]:
    """Start and end of every word and punctuation mark; in scripts without spaces, of every character."""
    return [match.span() for match in WORD.finditer(text)]


def _key(text: str, *, ignore_case: bool) -> Key:
    return tuple(WORD.findall(text.casefold() if ignore_case else text))


def _overlap(a: Span, b: Span) -> bool:
    return a[0] < b[1] and b[0] < a[1]


def _capitalized(word: str) -> str:
    return word[:1].upper() + word[1:]


# Finding terms.


class Match(NamedTuple):
    """An occurrence of a term in a source."""

    start: int
    end: int
    source: str
    forms: tuple[str, ...]  # accepted in the target; the first is placed if the translation has none of them
    copied: bool  # whether the source text is copied unchanged


@dataclass(frozen=True)
class Glossary:
    """Terms of the source language with their forms in the target language, and words that are copied."""

    terms: Mapping[Key, tuple[str, ...]]
    patterns: tuple[regex.Pattern[str], ...]  # of text to copy; `regex`, unlike `re`, has a timeout
    copied: frozenset[Key]
    ignore_case: bool  # in terms; copied words always have to match in case

    @classmethod
    def make(
        cls, terms: Iterable[tuple[str, Sequence[str]]] = (), keep: Iterable[str] = (), *, ignore_case: bool = False
    ) -> Glossary:
        """Make a glossary of (source, forms) and of words to copy; words between slashes are regular expressions."""
        forms_of: dict[Key, tuple[str, ...]] = {}
        for source, forms in terms:
            key = _key(source, ignore_case=ignore_case)
            if not key or not forms or not all(form.strip() for form in forms):
                raise InputError(f"the term {source!r} must have a source and at least one target form")
            forms_of[key] = tuple(dict.fromkeys([*forms_of.get(key, ()), *(form.strip() for form in forms)]))
        patterns, words = [], []
        for word in keep:
            if len(word) > 2 and word[0] == word[-1] == "/":
                try:
                    patterns.append(regex.compile(word[1:-1]))
                except (regex.error, RecursionError) as error:
                    raise InputError(f"{word[:100]} is not a regular expression: {error}") from error
            else:
                words.append(_key(word, ignore_case=False))
        return cls(forms_of, tuple(patterns), frozenset(filter(None, words)), ignore_case)

    @classmethod
    def read(cls, glossary: Path | None, keep: Path | None, *, ignore_case: bool = False) -> Glossary:
        """Read a TSV of source terms and target forms, and a list of words to copy; `# ` begins a comment."""
        terms = []
        for line, where in _content_lines(glossary):
            source, *columns = line.split("\t")
            forms = [form.strip() for column in columns for form in column.split("|") if form.strip()]
            if not source.strip() or not forms:
                raise DataError(
                    f"{where}: {line[:40]!r} must be a source term, a tab and its target term; more forms after | or "
                    "more tabs"
                )
            terms.append((source.strip(), forms))
        return cls.make(terms, [line.strip() for line, _ in _content_lines(keep)], ignore_case=ignore_case)

    def find(self, text: str) -> list[Match]:
        """Find the terms in a text, in order; of overlapping terms, the longest."""
        spans, words = word_spans(text), WORD.findall(text)
        candidates: list[tuple[Span, tuple[str, ...] | None]] = []  # the forms of a term; None: copied
        for pattern in self.patterns:
            try:
                occurrences = [match.span() for match in pattern.finditer(text, timeout=PATTERN_SECONDS) if match[0]]
            except (TimeoutError, MemoryError) as error:  # MemoryError: endless recursion, as in (?R)
                where = f"it took more than {PATTERN_SECONDS} seconds or all memory in {text[:40]!r}"
                raise InputError(f"the regular expression /{pattern.pattern}/ is too slow: {where}") from error
            for occurrence in occurrences:
                touched = [span for span in spans if _overlap(span, occurrence)]
                if touched:
                    candidates.append(((touched[0][0], touched[-1][1]), None))
        for length in self._lengths:
            for first in range(len(words) - length + 1):
                key, span = tuple(words[first : first + length]), (spans[first][0], spans[first + length - 1][1])
                if key in self.copied:
                    candidates.append((span, None))
                forms = self.terms.get(tuple(map(str.casefold, key)) if self.ignore_case else key)
                if not forms and (first == 0 or words[first - 1][0] in BEFORE_CAPITALS):  # a capital of a sentence
                    forms = self.terms.get((key[0][:1].lower() + key[0][1:], *key[1:]))
                if forms:
                    candidates.append((span, forms))
        matches: list[Match] = []
        for (start, end), forms in sorted(candidates, key=lambda term: (term[0][0] - term[0][1], term[0][0])):
            if not any(_overlap((start, end), match[:2]) for match in matches):
                source = text[start:end]
                matches.append(Match(start, end, source, forms or (source,), copied=forms is None))
        return sorted(matches)

    @functools.cached_property
    def _lengths(self) -> set[int]:
        """The lengths of all entries in words."""
        return {len(key) for key in (*self.terms, *self.copied)}


def _content_lines(path: Path | None) -> Iterator[tuple[str, str]]:
    """The lines of a file that are neither empty nor a comment, with their location."""
    for line, origin in read_lines(path) if path is not None else ():
        if line.strip() and not line.startswith("# "):
            yield line, str(origin)


# Placing terms.


class Term(NamedTuple):
    """A term of the source and its status in the translation."""

    source: str  # the text in the source
    form: str  # the text in the translation; empty if the term is missing
    status: Status  # written by the model, placed by replacing a word of the model, or missing


class TokenAttention(NamedTuple):
    """The attention of target tokens to source tokens, and the character spans of the tokens."""

    weights: Tensor  # (T, S)
    source: Sequence[Span]
    target: Sequence[Span]


def token_spans(subwords: Sequence[str], special: Sequence[bool]) -> list[Span]:
    """The character span of each token, without the space before it; (0, 0) for special tokens."""
    spans, end = [], 0
    for subword, is_special in zip(subwords, special, strict=True):
        if is_special:
            spans.append((0, 0))
            continue
        start, end = end + len(subword) - len(subword.lstrip()), end + len(subword)
        spans.append((start, end))
    return spans


def find_forms(text: str, matches: Sequence[Match]) -> list[Span | None]:
    """The span of each term's form in a translation, or None; spans do not overlap."""
    spans = word_spans(text)
    starts, ends = {start for start, _ in spans}, {end for _, end in spans}
    form_spans: list[Span | None] = [None] * len(matches)
    for number in sorted(range(len(matches)), key=lambda number: -max(map(len, matches[number].forms))):
        match = matches[number]
        forms = [*match.forms] if match.copied else [*match.forms, *map(_capitalized, match.forms)]
        for form in sorted(dict.fromkeys(forms), key=len, reverse=True):
            first = 0
            while form_spans[number] is None and (start := text.find(form, first)) >= 0:
                first, end = start + 1, start + len(form)
                free = not any(span and _overlap((start, end), span) for span in form_spans)
                allowed = form in match.forms or start == (spans[0][0] if spans else 0)  # a sentence begins here
                if free and allowed and start in starts and end in ends:
                    form_spans[number] = start, end
    return form_spans


def place_terms(text: str, matches: Sequence[Match], attention: TokenAttention | None) -> tuple[str, list[Term]]:
    """Replace the words that attended to missing terms by these terms; return the translation and all terms."""
    written = find_forms(text, matches)
    if attention is not None and None in written:
        text = _replace(text, matches, written, attention)
    terms = []
    for match, before, span in zip(matches, written, find_forms(text, matches), strict=True):
        if span is None:
            terms.append(Term(match.source, "", "missing"))
        else:
            terms.append(Term(match.source, text[slice(*span)], "placed" if before is None else "written"))
    return text, terms


def _replace(text: str, matches: Sequence[Match], written: Sequence[Span | None], attention: TokenAttention) -> str:
    spans = [span for span in word_spans(text) if LETTER.match(text, span[0])]
    if not spans:
        return text
    tokens = _membership(spans, attention.target)
    by_word = tokens / tokens.sum(1, keepdim=True).clamp(min=1) @ attention.weights.float()  # (target words, S)
    used = {number for number, span in enumerate(spans) for other in written if other and _overlap(span, other)}
    missing = []  # terms, each with its attention (target words, words of the term)
    for match, other in zip(matches, written, strict=True):
        if other is None:
            words = [(match.start + start, match.start + end) for start, end in word_spans(match.source)]
            tokens = _membership(words, attention.source)
            tokens /= tokens.sum(0).clamp(min=1)  # a token of two words counts half for each
            missing.append((match, by_word @ tokens.T))
    replaced: list[tuple[Span, Match]] = []
    for match, weights in sorted(missing, key=lambda term: -float(term[1].amax())):
        chosen = _choose_words(weights.tolist(), used, [text[slice(*span)] for span in spans])
        if chosen:
            used |= set(chosen)
            replaced.append(((spans[chosen[0]][0], spans[chosen[-1]][1]), match))
    for (start, end), match in sorted(replaced, reverse=True):
        begins = text[start].isupper() and not text[:start].strip() and not match.copied
        text = text[:start] + (_capitalized(match.forms[0]) if begins else match.forms[0]) + text[end:]
    return text


def _membership(words: Sequence[Span], tokens: Sequence[Span]) -> Tensor:
    """(words, tokens): 1 where a token is part of a word."""
    return torch.tensor([[float(_overlap(token, word)) for token in tokens] for word in words]).view(-1, len(tokens))


def _choose_words(weights: Sequence[Sequence[float]], used: set[int], words: Sequence[str]) -> list[int]:
    """The adjacent target words that a term replaces: those with most attention on it.

    An article attends to its noun, sometimes as much as the noun itself does: of words with similar attention the
    longer one is replaced, and short neighbours are kept.
    """
    total = {number: sum(row) for number, row in enumerate(weights) if number not in used}
    highest = max(total.values(), default=0.0)
    if highest < MIN_ATTENTION:
        return []
    similar = [number for number in total if total[number] >= SIMILAR_ATTENTION * highest]
    is_content = [len(word) > MAX_FUNCTION_WORD or regex.match(UNSPACED, word, regex.V1) for word in words]
    best = max(similar, key=lambda number: (len(words[number]), total[number]))
    neighbours = {number for number in similar if total[number] >= NEIGHBOUR_ATTENTION and is_content[number]}
    for column in zip(*weights, strict=True) if len(weights[best]) > 1 else ():  # the words of a term of several words
        strongest = max(total, key=column.__getitem__)
        neighbours |= {strongest} if column[strongest] >= WORD_ATTENTION else set()
    first = last = best
    for number in sorted(neighbours, key=lambda number: abs(number - best)):
        low, high = min(first, number), max(last, number)
        if first - 2 <= number <= last + 2 and used.isdisjoint(range(low, high)):  # over at most one other word
            first, last = low, high
    return list(range(first, last + 1))
