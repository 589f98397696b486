"""Translate documents in place, and lines of text, with every tag and placeholder kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.documents.formats import DOCUMENTS, format_of
from regard.documents.inline import Extracted, Piece, extract_tags, has_tags, insert_tags, join_pieces, split_tags
from regard.documents.languages import Languages
from regard.documents.outcome import Entry, Gap, Outcome
from regard.errors import DataError, InputError
from regard.folders import atomic_file
from regard.text.files import display_name, one_line, open_text, uncompressed_name
from regard.text.ordering import READ_AHEAD_CHARACTERS, READ_AHEAD_TEXTS, read_ahead
from regard.text.sentences import text_problem

if TYPE_CHECKING:
    from regard.translation.translator import Result


Translate = Callable[..., "Sequence[Result]"]
"""`Translator.translate`; it is called with `align=True` for texts with tags."""


def translate_file(
    path: str | Path,
    out: Path,
    translate: Translate,
    *,
    languages: Languages | None = None,
    everything: bool = False,
    force: bool = False,
    progress: Callable[[str, int, int | None], None] = lambda name, done, total: None,
) -> Outcome:
    """Write a TMX, XLIFF or PO file with its missing translations filled in; the rest is unchanged.

    `everything` also replaces existing translations. `progress` is called with the bytes done and in total.
    """
    kind, name = format_of(path), display_name(path)
    if kind not in DOCUMENTS:
        raise InputError(f"{name} is not a document: {', '.join(DOCUMENTS)} are translated in place")
    if uncompressed_name(out) != out.name:
        raise InputError(f"{out}: documents are written uncompressed; choose the name {uncompressed_name(out)}")
    outcome = Outcome()
    with open_text(path) as stream, atomic_file(out, force=force) as file:
        if not stream.peek(1):  # type: ignore[attr-defined]
            raise DataError(f"{name} is empty: there is nothing to translate")
        total = None if uncompressed_name(path) != Path(path).name or str(path) == "-" else os.path.getsize(path)
        encoding, entries = DOCUMENTS[kind](stream, name, languages)
        bytes_read = 0
        progress(name, bytes_read, total)
        while window := list(islice(entries, READ_AHEAD_TEXTS)):
            parts = [part if isinstance(part, str) else _find_gap(part, everything, outcome) for part in window]
            segments = [segment for part in parts if isinstance(part, Gap) for segment in part.segments]
            translations = iter(translate_pieces(segments, translate, outcome))
            for part in parts:
                text = part if isinstance(part, str) else part.write([next(translations) for _ in part.segments])
                file.write(text.encode(encoding, "xmlcharrefreplace"))
            raw = "".join(part if isinstance(part, str) else part.raw for part in window)
            bytes_read += len(raw.encode(encoding, "replace"))
            progress(name, bytes_read, total)
    return outcome


def _find_gap(entry: Entry, everything: bool, outcome: Outcome) -> str | Gap:
    """The gap of an entry that needs a translation, or its text as it is."""
    if entry.not_filled:
        outcome.skipped[entry.not_filled] += 1
    elif not everything and all(translation for _, translation in entry.pairs):
        outcome.kept += 1
    elif problem := text_problem("".join(source for source, _ in entry.pairs)):
        outcome.skipped["unreadable"] += 1
        outcome.fail(entry.origin.line, problem)
    else:
        outcome.translated += 1
        return entry.gap(everything)
    return entry.raw


def translate_pieces(texts: Sequence[Sequence[Piece]], translate: Translate, outcome: Outcome) -> list[list[Piece]]:
    """Translate texts with tags; texts without words stay as they are."""
    translations = [list(pieces) for pieces in texts]
    extracted = {number: text for number, pieces in enumerate(texts) if (text := extract_tags(pieces)).has_words}
    lines = [one_line(text.text) for text in extracted.values()]
    results = _translate(lines, [bool(text.tags) for text in extracted.values()], translate)
    for (number, text), line, result in zip(extracted.items(), lines, results, strict=True):
        outcome.count_terms(line, result.terms)
        outcome.unaligned += bool(text.tags) and result.alignment is None
        translations[number] = insert_tags(text, result.text.strip(), result.alignment)
    return translations


def _translate(texts: Sequence[str], tagged: Sequence[bool], translate: Translate, **options: Any) -> list[Result]:
    """Translate texts; only those with tags are aligned, because that costs a second pass."""
    aligned = dict.fromkeys(text for text, is_tagged in zip(texts, tagged, strict=True) if is_tagged)
    plain = dict.fromkeys(text for text in texts if text not in aligned)
    results = dict(zip(plain, translate([*plain], **options), strict=True)) if plain else {}
    if aligned:
        results |= zip(aligned, translate([*aligned], **{**options, "align": True}), strict=True)
    return [results[text] for text in texts]


def translate_lines(
    translate: Translate,
    texts: Iterable[str],
    *,
    model_tags: Collection[str],
    outcome: Outcome,
    always: bool,
    lines: int = READ_AHEAD_TEXTS,
    **options: Any,
) -> Iterator[Result]:
    """Translate lines as they stream by, with tags and placeholders kept; alignments count the words without them.

    Lines without tags are translated as they are; so are those with only entities and addresses, unless `always`.
    """
    for window in read_ahead(texts, lines, READ_AHEAD_CHARACTERS):
        extracted = []
        for text in window:
            pieces = [] if text_problem(text) else split_tags(text, model_tags)
            tagged = has_tags(pieces, plain_too=always)
            extracted.append(extract_tags(pieces) if tagged else Extracted(text, [], "", ""))
        plain = [bare.text if bare.has_words or not bare.tags else "" for bare in extracted]
        results = _translate(plain, [bool(bare.tags) and bare.has_words for bare in extracted], translate, **options)
        for text, bare, result in zip(window, extracted, results, strict=True):
            if not bare.tags:
                yield result
            elif not bare.has_words:
                yield result._replace(text=text)
            else:
                outcome.unaligned += result.alignment is None
                yield _with_tags(bare, result, model_tags)


def _with_tags(bare: Extracted, result: Result, model_tags: Collection[str]) -> Result:
    """Insert the tags of a text into its translation and the alternatives."""
    before = sum(bare.text.startswith(tag) for tag in model_tags)  # a word that alignments do not count
    links = result.alignment and [(source + before, target) for source, target in result.alignment]
    alternatives = [
        other._replace(text=join_pieces(insert_tags(bare, other.text, None))) for other in result.alternatives
    ]
    return result._replace(text=join_pieces(insert_tags(bare, result.text.strip(), links)), alternatives=alternatives)
