"""Check: read a corpus once and report whether it is fit to train on, and how to fix it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import regex

from regard.config import TextConfig
from regard.documents.formats import read_pairs
from regard.preflight.findings import (
    EXPLAINS,
    FEW_PAIRS,
    INCOMPLETE,
    KINDS,
    TOO_FEW_PAIRS,
    Example,
    Finding,
    fill_commands,
    percent,
)
from regard.preflight.languages import learn_sides, read_trigrams, third_language
from regard.preflight.measure import Ratios, Side
from regard.preflight.misalignment import AlignmentModel, extract_features
from regard.preflight.report import Report
from regard.results import counted
from regard.text import cleaning
from regard.text.cleaning import Chunk, Digests, Scripts, digests, pair_digests
from regard.text.files import SUFFIXES, Origin, Pair, UnreadableLine, language_of
from regard.text.scripts import CONTROL, damage

CHUNK_SIZE = 8192  # pairs processed together
SAMPLE_SIZE = 20_000  # pairs of a split from which languages are learned and judged
MAX_HELD_OUT = 200_000  # pairs of valid and of test that are read
MAX_EXAMPLES = 5  # shown for each finding
MAX_LINES = 10_000  # line numbers listed for each finding
MAX_CHARACTERS = 160  # of an example
MIN_LEAK_CHARACTERS = 24  # of both sides: "Thank you." is in every text and leaks nothing
PUNCTUATION = regex.compile(r"[\p{P}\p{S}\s]+")

RULES = cleaning.Cleaning.from_config(TextConfig())
KIND_OF_RULE = {
    "empty": "empty",
    "long": "too-long",
    "copy": "copies",
    "script": "wrong-script",
    "duplicate": "duplicates",
}  # control characters are found among other damage

Files = str | Path | tuple[str | Path, str | Path | None]
"""Two parallel files, or one file that holds both sides."""


def check(
    source: str | Path,
    target: str | Path | None = None,
    *,
    valid: Files | None = None,
    test: Files | None = None,
    languages: tuple[str, str] | None = None,
    fields: tuple[str, str] | None = None,
    format: str | None = None,  # noqa: A002 - the word of the field
) -> Report:
    """Report whether a corpus is fit to train on: a verdict, the findings behind it, and how to fix them.

    `languages` and `fields` select the two sides of a file that holds both; `format` is needed if the suffix of a file
    does not show it.
    """
    skipped: Counter[str] = Counter()
    pairs: dict[str, Iterator[Pair]] = {}
    unreadable: dict[str, list[UnreadableLine]] = {}
    plain: dict[str, tuple[str, str]] = {}  # files that sed and awk can read
    for split, files in (("train", (source, target)), ("valid", valid), ("test", test)):
        if files is None:
            continue
        one, other = files if isinstance(files, tuple) else (files, None)
        known = format if other is None or split == "train" or format == "text" else None
        unreadable[split] = []
        options: dict[str, Any] = {"languages": languages, "fields": fields, "skipped": skipped}
        pairs[split] = read_pairs(one, other, format=known, unreadable=unreadable[split], **options)
        if other is not None and all(Path(x).is_file() and Path(x).suffix not in SUFFIXES for x in (one, other)):
            plain[split] = str(one), str(other)
    names = languages or (language_of(source), language_of(target))
    names = names if all(names) else ("source", "target")
    return check_pairs(**pairs, names=names, skipped=skipped, unreadable=unreadable, files=plain)


def check_pairs(
    train: Iterable[Pair],
    valid: Iterable[Pair] | None = None,
    test: Iterable[Pair] | None = None,
    *,
    names: tuple[str, str] = ("source", "target"),
    skipped: Counter[str] | None = None,
    unreadable: Mapping[str, Sequence[UnreadableLine]] | None = None,
    files: Mapping[str, tuple[str, str]] | None = None,
) -> Report:
    """Check pairs in one pass; `names` are the names of the two sides in the report.

    `unreadable` receives the lines of each split that cannot be read while the pairs are read. `files` are the plain
    text files of each split, for the commands of the findings.
    """
    held_out = {
        name: list(islice(pairs, MAX_HELD_OUT))
        for name, pairs in (("valid", valid), ("test", test))
        if pairs is not None
    }
    model = AlignmentModel()  # learned from train, used for valid and test too
    splits = {name: Split(name, model) for name in ("train", *held_out)}
    train_split, index = splits["train"], HeldOut(held_out)
    first_scripts: Scripts = ()
    for pairs, columns in chunks(train):
        first_scripts = first_scripts or cleaning.usual_scripts(columns)
        train_split.add(pairs, Chunk.of(columns, first_scripts))
        index.look_up(pairs)
    usual_scripts = tuple(cleaning.frequent_scripts(side.scripts) for side in train_split.sides)
    if any(set(usual) - set(first) for first, usual in zip(first_scripts, usual_scripts, strict=False) if first):
        train_split.tallies.pop("wrong-script", None)  # the first chunk did not have all usual scripts
    for name, all_pairs in held_out.items():
        for pairs, columns in chunks(all_pairs):
            splits[name].add(pairs, Chunk.of(columns, usual_scripts))
    for name, kind, pair, other in index.leaks():
        texts = "" if kind == "leakage" else f": {shorten(other.source)} | {shorten(other.target)}"
        splits[name].tally(kind, pair, note=f"in train at {other.origin}{texts}")
    for name, split in splits.items():
        for origin, error in (unreadable or {}).get(name, ()):
            split.pairs += 1
            split.tally("unreadable", Pair("", "", origin), note=str(error).removeprefix(f"{origin}: "))
    if train_split.pairs < FEW_PAIRS:
        train_split.tallies["too-few"] = Tally(train_split.pairs)
    find_wrong_languages(splits)
    findings = [
        finding for split in splits.values() for finding in split.findings(names, (files or {}).get(split.name))
    ]
    unfit = [finding for finding in findings if finding.severity == "unfit"]
    explained = {(kind, finding.split) for finding in unfit for kind in EXPLAINS.get(finding.kind, ())}
    findings = [finding for finding in findings if (finding.kind, finding.split) not in explained]
    findings.sort(key=lambda finding: (finding.severity != "unfit", -finding.share))
    statistics = {name: split.statistics() for name, split in splits.items()}
    return Report(findings[0].severity if findings else "fit", findings, statistics, names, skipped or Counter())


def chunks(pairs: Iterable[Pair]) -> Iterator[tuple[list[Pair], cleaning.Columns]]:
    """The pairs in chunks, and their texts."""
    stream = iter(pairs)
    while chunk := list(islice(stream, CHUNK_SIZE)):
        yield chunk, ([pair.source for pair in chunk], [pair.target for pair in chunk])


class HeldOut:
    """An index of the validation and test pairs by their hashes, to look up training pairs in."""

    def __init__(self, held_out: Mapping[str, Sequence[Pair]]) -> None:
        self.pairs = [
            (split, pair)
            for split, pairs in held_out.items()
            for pair in pairs
            if len(pair.source) + len(pair.target) >= MIN_LEAK_CHARACTERS
        ]
        self.digests = leak_digests([pair for _, pair in self.pairs])
        self.matches: dict[str, dict[int, Pair]] = {kind: {} for kind in self.digests}
        """By kind and digest, the first training pair that has it."""

    def look_up(self, pairs: Sequence[Pair]) -> None:
        """Look up training pairs, and remember the first match of each kind."""
        for kind, values in leak_digests(pairs).items() if self.pairs else ():
            for index in np.flatnonzero(np.isin(values, self.digests[kind])).tolist():
                self.matches[kind].setdefault(int(values[index]), pairs[index])

    def leaks(self) -> Iterator[tuple[str, str, Pair, Pair]]:
        """Yield (split, kind, held-out pair, training pair) for the closest match of each held-out pair."""
        for index, (split, pair) in enumerate(self.pairs):
            for kind, matches in self.matches.items():
                if match := matches.get(int(self.digests[kind][index])):
                    yield split, kind, pair, match
                    break


def leak_digests(pairs: Sequence[Pair]) -> dict[str, Digests]:
    """The digests of the pairs by kind of leakage, the closest first; case, spaces and punctuation are ignored."""
    source, target = (
        digests([PUNCTUATION.sub("", getattr(pair, side).casefold()) for pair in pairs])
        for side in ("source", "target")
    )
    return {"leakage": pair_digests(source, target), "source-leakage": source, "target-leakage": target}


@dataclass
class Tally:
    """The number of pairs with a problem, and the first of them."""

    count: float = 0
    examples: list[tuple[Pair, str]] = field(default_factory=list)
    lines: list[Origin] = field(default_factory=list)


class Split:
    """The counts of one split, updated chunk by chunk."""

    def __init__(self, name: str, model: AlignmentModel) -> None:
        self.name, self.model = name, model
        self.pairs = 0
        self.sides = Side(), Side()
        self.ratios = Ratios()
        self.tallies: defaultdict[str, Tally] = defaultdict(Tally)
        self.seen = cleaning.DigestSet()
        self.sample: list[Pair] = []  # of pairs that no rule leaves out
        self.sampled_from = 0
        self.random = Random(0)

    def tally(self, kind: str, *pairs: Pair, note: str = "", weight: float = 1) -> None:
        """Count pairs that have a problem, keeping the first as an example; a sampled pair counts `weight` times."""
        tally = self.tallies[kind]
        tally.count += weight * len(pairs)
        tally.lines += [pair.origin for pair in pairs[: MAX_LINES - len(tally.lines)]]
        if len(tally.examples) < MAX_EXAMPLES:
            tally.examples.append((pairs[0], note))

    def add(self, pairs: Sequence[Pair], chunk: Chunk) -> None:
        """Count a chunk of pairs."""
        self.pairs += len(pairs)
        sides = list(zip(self.sides, chunk.normalized, chunk.scripts, strict=True))
        lengths = [side.add(lines, scripts) for side, lines, scripts in sides]
        for index in np.flatnonzero(self.ratios.unusual(*lengths)).tolist():
            pair = pairs[index]
            self.tally("length-ratio", pair, note=f"{len(pair.source):,} and {len(pair.target):,} characters")
        self._apply_rules(pairs, chunk)
        features = [extract_features(lines, unspaced=side.unspaced) for side, lines, _ in sides]
        for span in self.model.find(*features):
            lines = pairs[span.first : span.last + 1]
            shift = f"{counted(abs(span.shift), 'line')} {'later' if span.shift > 0 else 'earlier'}"
            where = f"the matching target is {shift}" if span.shift else "no nearby target matches"
            note = f"from here to line {lines[-1].origin.line:,} {where}"
            self.tally("unrelated" if span.unrelated else "misaligned", *lines, note=note)

    def _apply_rules(self, pairs: Sequence[Pair], chunk: Chunk) -> None:
        """Apply the cleaning rules of `regard train`, look for damaged text, and sample the sound pairs."""
        reasons = cleaning.find_duplicates(cleaning.judge_texts(chunk, RULES), chunk.digests, RULES, self.seen)
        names = ("", *cleaning.RULES)
        for pair, number, scripts in zip(pairs, reasons.tolist(), zip(*chunk.scripts, strict=True), strict=True):
            rule = names[number]
            kind, note = KIND_OF_RULE.get(rule, ""), ""
            if rule == "long":
                note = f"{len(pair.source.split()):,} and {len(pair.target.split()):,} words"
            elif rule == "script":
                swapped = scripts == cleaning.main_scripts(chunk.usual)[::-1]
                kind, note = ("swapped", "") if swapped else (kind, " and ".join(scripts))
            if kind:
                self.tally(kind, pair, note=note)
            if rule == "empty":
                continue
            problem, part = next(filter(any, map(damage, pair[:2])), ("", ""))
            if problem:
                self.tally(problem, pair, note=f"… {part} …")
            if rule in ("", "duplicate") and problem in ("", "escapes"):
                self.sampled_from += 1  # reservoir sampling
                if len(self.sample) < SAMPLE_SIZE:
                    self.sample.append(pair)
                elif (place := self.random.randrange(self.sampled_from)) < SAMPLE_SIZE:
                    self.sample[place] = pair

    def findings(self, names: tuple[str, str], files: tuple[str, str] | None) -> Iterator[Finding]:
        """The problems that are more frequent than in ordinary text."""
        for name, tally in self.tallies.items():
            kind, count, share = KINDS[name], round(tally.count), tally.count / max(self.pairs, 1)
            if count < kind.min_count or share < kind.care:
                continue
            complete = len(tally.lines) == count
            text = {"count": f"{count:,}", "share": percent(share), "split": self.name}
            text |= {"source": names[0], "target": names[1], "named": f"{len(tally.lines):,}"}
            text |= {"lines": counted(count, "line"), "pairs": counted(count, "pair")}
            lines: dict[str, list[int]] = {}
            for origin in sorted(tally.lines):
                lines.setdefault(str(origin.path), []).append(origin.line)
            yield Finding(
                kind=name,
                split=self.name,
                severity="unfit" if share >= kind.unfit or (name == "too-few" and count < TOO_FEW_PAIRS) else "care",
                count=count,
                share=round(share, 6),
                title=kind.title.format(**text),
                explanation=kind.explanation.format(**text),
                fix=(kind.fix + INCOMPLETE * (not complete and bool(tally.lines))).format(**text),
                examples=tuple(
                    Example(str(pair.origin), shorten(pair.source), shorten(pair.target), shorten(note))
                    for pair, note in sorted(tally.examples, key=lambda example: example[0].origin)
                ),
                lines=lines,
                lines_complete=complete,
                commands=tuple(fill_commands(kind.commands, files, next(iter(lines.values()), []))) if files else (),
            )

    def statistics(self) -> dict[str, object]:
        """The counts as plain values."""
        source, target = (side.to_dict() for side in self.sides)
        counts = {kind: round(tally.count) for kind, tally in sorted(self.tallies.items()) if kind != "too-few"}
        return {
            "pairs": self.pairs,
            "source": source,
            "target": target,
            "ratio": self.ratios.to_dict(),
            "counts": counts,
        }


def find_wrong_languages(splits: dict[str, Split]) -> None:
    """Count the sampled pairs that are swapped or have a side in the wrong language."""
    if not splits["train"].sample:
        return
    trigrams = {
        name: [read_trigrams([getattr(pair, side) for pair in split.sample]) for side in ("source", "target")]
        for name, split in splits.items()
        if split.sample
    }
    model = learn_sides(*trigrams["train"])
    for name, sides in trigrams.items():
        split = splits[name]
        wrong_source, wrong_target, swapped = model.judge(*sides)
        if name == "train":  # valid and test may be of another domain
            wrong_source, wrong_target = (
                wrong_source | third_language(sides[0]),
                wrong_target | third_language(sides[1]),
            )
        weight = split.sampled_from / len(split.sample)
        for i in np.flatnonzero(swapped).tolist():
            split.tally("swapped", split.sample[i], weight=weight)
        for i in np.flatnonzero((wrong_source | wrong_target) & ~swapped).tolist():
            wrong = [side for side, mask in (("source", wrong_source), ("target", wrong_target)) if mask[i]]
            split.tally("wrong-language", split.sample[i], note=" and ".join(wrong), weight=weight)


def shorten(text: str) -> str:
    """Cut a text to MAX_CHARACTERS, with its control characters made visible."""
    text = CONTROL.sub(lambda match: f"‹U+{ord(match.group()):04X}›", text)
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…"
