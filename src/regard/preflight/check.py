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
from numpy.typing import NDArray

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
from regard.preflight.misalignment import AlignmentModel, extract_features
from regard.preflight.report import Report
from regard.results import counted
from regard.text import cleaning
from regard.text.cleaning import Chunk, DigestSet, Scripts, digests, pair_digests
from regard.text.files import SUFFIXES, Origin, Pair, Unreadable, language_of
from regard.text.scripts import CONTROL, UNSPACED_SCRIPTS, damage

CHUNK_SIZE = 8192  # pairs processed together
SAMPLE_SIZE = 20_000  # pairs of a split from which languages are learned and judged
MAX_HELD_OUT = 200_000  # pairs of valid and of test that are read
MAX_EXAMPLES = 5  # shown for each finding
MAX_LINES = 10_000  # line numbers listed for each finding
MAX_CHARACTERS = 160  # of an example
MIN_LEAK_CHARACTERS = 24  # of both sides: "Thank you." is in every text and leaks nothing
SIDES = ("source", "target")
PUNCTUATION = regex.compile(r"[\p{P}\p{S}\s]+")

RATIO_SMOOTHING = 3  # characters added to both lengths: "Yes." and "Oui, bien sûr." differ by chance
# A ratio is unusual if it is more robust deviations from the median than MAX_DEVIATIONS and also off by MIN_FACTOR. The
# first rule alone would report pairs of very literal corpora, the second alone pairs of free translations.
MAX_DEVIATIONS = 5.0
MIN_DEVIATION = 0.05  # of the natural logarithm of a ratio
MIN_FACTOR = 2.2
MIN_PAIRS = 1000  # a chunk with fewer pairs is judged by the range of the chunk before it

RULES = cleaning.Cleaning.from_config(TextConfig())
RULE_NAMES = ("", *cleaning.RULES)  # by number
KIND_OF_RULE = {  # control characters are found among other damage
    "empty": "empty",
    "long": "too-long",
    "copy": "copies",
    "script": "wrong-script",
    "duplicate": "duplicates",
}

Integers = NDArray[np.int64]
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
    unreadable: dict[str, Unreadable] = {}
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
    unreadable: Mapping[str, Unreadable] | None = None,
    files: Mapping[str, tuple[str, str]] | None = None,
) -> Report:
    """Check pairs in one pass; `names` are the names of the two sides in the report.

    `unreadable` receives the lines of each split that cannot be read while the pairs are read. `files` are the plain
    text files of each split, for the commands of the findings.
    """
    parts = {name: pairs for name, pairs in (("valid", valid), ("test", test)) if pairs is not None}
    held_out = {name: list(islice(pairs, MAX_HELD_OUT)) for name, pairs in parts.items()}
    model = AlignmentModel()  # learned from train, used for valid and test too
    splits = {name: Split(name, model) for name in ("train", *held_out)}
    train_split, leaks = splits["train"], Leaks(held_out)
    for pairs in chunks(train):
        train_split.add(pairs)
        leaks.look_up(pairs)
    usual = tuple(cleaning.frequent_scripts(side.scripts) for side in train_split.sides)
    if any(set(final) - set(first) for first, final in zip(train_split.usual, usual, strict=False) if first):
        train_split.tallies.pop("wrong-script", None)  # the first chunk did not have all usual scripts
    for name, all_pairs in held_out.items():
        splits[name].usual = usual
        for pairs in chunks(all_pairs):
            splits[name].add(pairs)
    for name, kind, pair, other in leaks:
        texts = "" if kind == "leakage" else f": {shorten(other.source)} | {shorten(other.target)}"
        splits[name].tally(kind, pair, note=f"in train at {other.origin}{texts}")
    for name, split in splits.items():
        for origin, error in (unreadable or {}).get(name, ()):
            split.pairs += 1
            split.tally("unreadable", Pair("", "", origin), note=str(error).removeprefix(f"{origin}: "))
    if train_split.pairs < FEW_PAIRS:
        train_split.tallies["too-few"] = Tally(train_split.pairs)
    find_wrong_languages(splits)
    files = files or {}
    findings = [finding for split in splits.values() for finding in split.findings(names, files.get(split.name))]
    unfit = [finding for finding in findings if finding.severity == "unfit"]
    explained = {(kind, finding.split) for finding in unfit for kind in EXPLAINS.get(finding.kind, ())}
    findings = [finding for finding in findings if (finding.kind, finding.split) not in explained]
    findings.sort(key=lambda finding: (finding.severity != "unfit", -finding.share))
    statistics = {name: split.statistics() for name, split in splits.items()}
    return Report(findings[0].severity if findings else "fit", findings, statistics, names, skipped or Counter())


def chunks(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    """The pairs in lists of `CHUNK_SIZE`."""
    stream = iter(pairs)
    while chunk := list(islice(stream, CHUNK_SIZE)):
        yield chunk


def find_wrong_languages(splits: dict[str, Split]) -> None:
    """Count the sampled pairs that are swapped or have a side in the wrong language."""
    if not splits["train"].sample:
        return
    trigrams = {
        name: [read_trigrams([getattr(pair, side) for pair in split.sample]) for side in SIDES]
        for name, split in splits.items()
        if split.sample
    }
    model = learn_sides(*trigrams["train"])
    for name, sides in trigrams.items():
        split = splits[name]
        *wrong, swapped = model.judge(*sides)
        if name == "train":  # valid and test may be of another domain
            wrong = [mask | third_language(side) for mask, side in zip(wrong, sides, strict=True)]
        weight = split.sampled_from / len(split.sample)
        for pair, is_swapped, *is_wrong in zip(split.sample, swapped, *wrong, strict=True):
            if is_swapped:
                split.tally("swapped", pair, weight=weight)
            elif any(is_wrong):
                note = " and ".join(side for side, flag in zip(SIDES, is_wrong, strict=True) if flag)
                split.tally("wrong-language", pair, note=note, weight=weight)


def shorten(text: str) -> str:
    """Cut a text to MAX_CHARACTERS, with its control characters made visible."""
    text = CONTROL.sub(lambda match: f"‹U+{ord(match.group()):04X}›", text)
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…"


# Leakage


class Leaks:
    """Held-out pairs that are also in train: pass all training pairs to `look_up`, then iterate over the matches."""

    def __init__(self, held_out: Mapping[str, Sequence[Pair]]) -> None:
        self.held_out = [
            (split, pair)
            for split, pairs in held_out.items()
            for pair in pairs
            if len(pair.source) + len(pair.target) >= MIN_LEAK_CHARACTERS
        ]
        self.digests = leak_digests([pair for _, pair in self.held_out])
        self.matches: dict[str, dict[int, Pair | None]] = {
            kind: dict.fromkeys(values) for kind, values in self.digests.items()
        }

    def look_up(self, pairs: Sequence[Pair]) -> None:
        """Look for training pairs among the held-out ones."""
        for kind, values in leak_digests(pairs).items() if self.held_out else ():
            matches = self.matches[kind]
            for value, pair in zip(values, pairs, strict=True):
                if value in matches:
                    matches[value] = matches[value] or pair

    def __iter__(self) -> Iterator[tuple[str, str, Pair, Pair]]:
        """Yield (split, kind, held-out pair, training pair) for the closest match of each held-out pair."""
        for index, (split, pair) in enumerate(self.held_out):
            for kind, values in self.digests.items():
                if match := self.matches[kind][values[index]]:
                    yield split, kind, pair, match
                    break


def leak_digests(pairs: Sequence[Pair]) -> dict[str, list[int]]:
    """The digests of the pairs by kind of leakage, the closest first; case, spaces and punctuation are ignored."""
    source, target = (
        digests([PUNCTUATION.sub("", getattr(pair, side).casefold()) for pair in pairs]) for side in SIDES
    )
    values = {"leakage": pair_digests(source, target), "source-leakage": source, "target-leakage": target}
    return {kind: array.tolist() for kind, array in values.items()}


# Counts of one split


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
        self.usual: Scripts = ()  # the usual scripts of each side, by default those of the first chunk
        self.ratio_median, self.ratio_reach = 0.0, float(np.log(MIN_FACTOR))  # logarithms of target / source length
        self.tallies: defaultdict[str, Tally] = defaultdict(Tally)
        self.seen = DigestSet()
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

    def add(self, pairs: Sequence[Pair]) -> None:
        """Count a chunk of pairs."""
        self.pairs += len(pairs)
        columns = [pair.source for pair in pairs], [pair.target for pair in pairs]
        self.usual = self.usual or cleaning.usual_scripts(columns)
        chunk = Chunk.of(columns, self.usual)
        sides = list(zip(self.sides, chunk.normalized, chunk.scripts, strict=True))
        lengths = [side.add(lines, scripts) for side, lines, scripts in sides]
        for index in np.flatnonzero(self._unusual_ratios(*lengths)).tolist():
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

    def _unusual_ratios(self, source: Integers, target: Integers) -> NDArray[np.bool_]:
        """Which pairs of a chunk have an unusual length ratio; pairs with an empty side have none."""
        full = (source > 0) & (target > 0)
        ratios = np.log((target + RATIO_SMOOTHING) / (source + RATIO_SMOOTHING))
        if full.any() and (full.sum() >= MIN_PAIRS or not self.ratio_median):
            self.ratio_median = float(np.median(ratios[full]))
            deviation = 1.4826 * float(np.median(np.abs(ratios[full] - self.ratio_median)))
            self.ratio_reach = max(MAX_DEVIATIONS * max(deviation, MIN_DEVIATION), float(np.log(MIN_FACTOR)))
        return full & (np.abs(ratios - self.ratio_median) > self.ratio_reach)

    def _apply_rules(self, pairs: Sequence[Pair], chunk: Chunk) -> None:
        """Apply the cleaning rules of `regard train`, look for damaged text, and sample the sound pairs."""
        reasons = cleaning.find_duplicates(cleaning.judge_texts(chunk, RULES), chunk.digests, RULES, self.seen)
        for pair, number, scripts in zip(pairs, reasons.tolist(), zip(*chunk.scripts, strict=True), strict=True):
            rule = RULE_NAMES[number]
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
            values = {"source": names[0], "target": names[1], "split": self.name, "share": percent(share)}
            values |= {"lines": counted(count, "line"), "pairs": counted(count, "pair")}
            values |= {"count": f"{count:,}", "named": f"{len(tally.lines):,}"}
            lines: dict[str, list[int]] = {}
            for origin in sorted(tally.lines):
                lines.setdefault(origin.path, []).append(origin.line)
            first = next(iter(lines.values()), [])
            is_unfit = share >= kind.unfit or (name == "too-few" and count < TOO_FEW_PAIRS)
            yield Finding(
                kind=name,
                split=self.name,
                severity="unfit" if is_unfit else "care",
                count=count,
                share=round(share, 6),
                title=kind.title.format(**values),
                explanation=kind.explanation.format(**values),
                fix=(kind.fix + INCOMPLETE * (0 < len(tally.lines) < count)).format(**values),
                examples=tuple(
                    Example(str(pair.origin), shorten(pair.source), shorten(pair.target), shorten(note))
                    for pair, note in sorted(tally.examples, key=lambda example: example[0].origin)
                ),
                lines=lines,
                lines_complete=len(tally.lines) == count,
                commands=tuple(fill_commands(kind.commands, files, first)) if files else (),
            )

    def statistics(self) -> dict[str, object]:
        """The counts as plain values."""
        source, target = (side.to_dict() for side in self.sides)
        median, reach = self.ratio_median, self.ratio_reach
        ratio = {"median": median, "low": median - reach, "high": median + reach}
        return {
            "pairs": self.pairs,
            "source": source,
            "target": target,
            "ratio": {name: round(float(np.exp(value)), 3) for name, value in ratio.items()},
            "counts": {kind: round(tally.count) for kind, tally in sorted(self.tallies.items()) if kind != "too-few"},
        }


class Side:
    """The words, lengths and scripts of one side of a split."""

    def __init__(self) -> None:
        self.words = self.characters = 0
        self.vocabulary = DigestSet()
        self.lengths: Counter[int] = Counter()  # how many lines have each length, in words or in characters
        self.scripts: Counter[str] = Counter()
        self.unspaced = False  # no spaces between words, so that lengths are counted in characters

    def add(self, lines: Sequence[str], scripts: Sequence[str]) -> Integers:
        """Count a chunk of normalized lines; return their lengths in characters."""
        words = [line.count(" ") + 1 if line else 0 for line in lines]
        characters = list(map(len, lines))
        if not self.characters:
            main = cleaning.frequent_scripts(Counter(scripts))[:1]
            self.unspaced = bool({*main} & {*UNSPACED_SCRIPTS}) and sum(words) < sum(characters) / 8
        self.words += sum(words)
        self.characters += sum(characters)
        self.lengths.update(characters if self.unspaced else words)
        self.scripts.update(scripts)
        self.vocabulary.add(digests(list(set(" ".join(lines).split()))))
        return np.array(characters, np.int64)

    def to_dict(self) -> dict[str, Any]:
        """The counts as plain values."""
        lengths, counts = zip(*sorted(self.lengths.items()) or [(0, 0)], strict=True)
        total = np.cumsum(counts)
        median, most = (lengths[int(np.searchsorted(total, share * total[-1]))] for share in (0.5, 0.95))
        unit = "characters" if self.unspaced else "words"
        return {
            "words": self.words,
            "characters": self.characters,
            "vocabulary": len(self.vocabulary),
            "scripts": {name or "no letters": count for name, count in self.scripts.most_common()},
            "lengths": {"unit": unit, "median": median, "most": most, "longest": lengths[-1]},
        }
