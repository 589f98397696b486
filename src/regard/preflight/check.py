"""Check: read a corpus once and report whether it is fit to train on, and how to fix it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

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
)
from regard.preflight.held_out import NEAR, HeldOut
from regard.preflight.languages import learn_sides, read_trigrams, third_language
from regard.preflight.measure import Ratios, Side, code_points
from regard.preflight.misalignment import AlignmentModel, extract_features, join_spans
from regard.preflight.report import Report, percent
from regard.results import counted
from regard.text import cleaning
from regard.text.cleaning import Digests, Scripts, digests, normalized, pair_digests
from regard.text.files import SUFFIXES, Origin, Pair, UnreadableLine, language_of
from regard.text.scripts import CONTROL, damage, damaged_part, decomposed, script

CHUNK_SIZE = 8192  # pairs processed together
SAMPLE_SIZE = 20_000  # pairs of train from which languages are learned
MAX_HELD_OUT = 200_000  # pairs of valid and of test that are read
MAX_EXAMPLES = 5  # of a finding
MAX_LINES = 10_000  # of a finding that are named
MAX_CHARACTERS = 160  # of an example
MIN_LEAK_CHARACTERS = 24  # of both sides: "Thank you." is in every text and leaks nothing
SWAPPED_SPLIT = 0.5  # share of swapped pairs from which the files of a split are swapped, not its lines
WHOLE_SHIFT = 0.8  # share of lines with one shift from which a whole file is shifted
MEDIAN_FACTOR = 2.0  # between the median lengths of train and valid or test

RULES = cleaning.Cleaning.from_config(TextConfig())
KIND_OF_RULE = {
    "empty": "empty",
    "long": "too-long",
    "copy": "copies",
    "script": "wrong-script",
    "duplicate": "duplicates",
}  # control characters are found among other damage
LEAKAGE_KINDS = {"pair": "leakage", "source": "source-leakage", "target": "target-leakage", "near": "near-leakage"}

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

    `languages` and `fields` name the two sides of a file that holds both; `format` is needed if the name of a file
    does not show it.
    """
    skipped: Counter[str] = Counter()
    unreadable: dict[str, list[UnreadableLine]] = {"train": [], "valid": [], "test": []}

    def pairs(split: str, files: Files) -> Iterator[Pair]:
        one, other = files if isinstance(files, tuple) else (files, None)
        known = format if other is None or files == (source, target) or format == "text" else None
        options: dict[str, Any] = {"format": known, "languages": languages, "fields": fields, "skipped": skipped}
        return read_pairs(one, other, **options, unreadable=unreadable[split])

    train = pairs("train", (source, target))
    held_out = [None if files is None else pairs(name, files) for name, files in (("valid", valid), ("test", test))]
    splits = {"train": (source, target), "valid": valid, "test": test}
    plain = {name: files for name, files in splits.items() if isinstance(files, tuple) and all(map(is_plain, files))}
    report = check_pairs(
        train,
        *held_out,
        names=languages or ("source", "target"),
        skipped=skipped,
        unreadable=unreadable,
        files={name: (str(one), str(other)) for name, (one, other) in plain.items()},
    )
    return replace(report, languages=languages or (language_of(source), language_of(target)))


def is_plain(path: str | Path | None) -> bool:
    """Whether a file can be read by sed and awk."""
    return path is not None and Path(path).is_file() and Path(path).suffix not in SUFFIXES


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
    """Check pairs, which are read once; `names` are those of the two sides.

    `unreadable` has the lines of each split that could not be read, after the pairs have been read. `files` are the
    plain text files of a split, which commands name.
    """
    held_out = {
        name: list(islice(pairs, MAX_HELD_OUT))
        for name, pairs in (("valid", valid), ("test", test))
        if pairs is not None
    }
    model = AlignmentModel()  # learned from train, used for valid and test too
    splits = {name: Split(name, model) for name in ("train", *held_out)}
    leakage = Leakage(held_out)
    usual_scripts: Scripts = ((), ())
    for chunk in chunks(train):
        if not splits["train"].pairs:
            usual_scripts = cleaning.usual_scripts(chunk.columns)
        splits["train"].add(chunk, usual_scripts)
        leakage.add(chunk)
    first_scripts, usual_scripts = usual_scripts, splits["train"].usual_scripts
    if any(set(usual) - set(first) for first, usual in zip(first_scripts, usual_scripts, strict=True) if first):
        splits["train"].tallies.pop("wrong-script", None)  # that of the first chunk is not the only usual script
    for name, pairs in held_out.items():
        for chunk in chunks(pairs):
            splits[name].add(chunk, usual_scripts)
    leakage.report(splits)
    for name, split in splits.items():
        for origin, error in (unreadable or {}).get(name, ()):
            split.pairs += 1
            split.tally("unreadable", Pair("", "", origin), note=str(error).removeprefix(f"{origin}: "))
    for split in splits.values():
        split.find_constant_sides()
    find_wrong_languages(splits)
    for name in held_out:
        compare(splits["train"], splits[name])
    files = dict.fromkeys(splits, ("SOURCE", "TARGET")) if files is None else files
    findings = [finding for split in splits.values() for finding in split.findings(names, files)]
    explained = {(kind, finding.split) for finding in findings for kind in EXPLAINS.get(finding.kind, ())}
    findings = [finding for finding in findings if (finding.kind, finding.split) not in explained]
    findings.sort(key=lambda finding: (finding.severity != "unfit", -finding.share))
    statistics = {name: split.statistics() for name, split in splits.items()}
    return Report(findings[0].severity if findings else "fit", findings, statistics, names, skipped or Counter())


class Chunk(NamedTuple):
    """Pairs processed together, with their normalized texts and digests."""

    pairs: list[Pair]
    columns: tuple[list[str], list[str]]
    normalized: tuple[list[str], list[str]]
    digests: tuple[Digests, Digests]


def chunks(pairs: Iterable[Pair]) -> Iterator[Chunk]:
    """The pairs in chunks."""
    stream = iter(pairs)
    while chunk := list(islice(stream, CHUNK_SIZE)):
        columns = [pair.source for pair in chunk], [pair.target for pair in chunk]
        sources, targets = ([normalized(text) for text in column] for column in columns)
        yield Chunk(chunk, columns, (sources, targets), (digests(sources), digests(targets)))


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
        self.source, self.target = Side(), Side()
        self.ratios = Ratios()
        self.tallies: defaultdict[str, Tally] = defaultdict(Tally, {"length-ratio": Tally()})
        self.shifts: Counter[int] = Counter()  # misaligned lines
        self.seen = cleaning.DigestSet()
        self.sample: list[Pair] = []  # of pairs that no rule leaves out
        self.sampled_from = 0
        self.random = np.random.default_rng(0)

    def tally(self, kind: str, *pairs: Pair, note: str = "", weight: float = 1) -> None:
        """Count pairs with one problem; a sampled pair stands for `weight` pairs, and the first is an example."""
        tally = self.tallies[kind]
        tally.count += weight * len(pairs)
        tally.lines += [pair.origin for pair in pairs[: MAX_LINES - len(tally.lines)]]
        if len(tally.examples) < MAX_EXAMPLES:
            tally.examples.append((pairs[0], note))

    @property
    def usual_scripts(self) -> Scripts:
        """The scripts that are common in the pairs so far."""
        return tuple(cleaning.frequent_scripts(side.scripts) for side in (self.source, self.target))

    def add(self, chunk: Chunk, usual_scripts: Scripts) -> None:
        """Count a chunk of pairs."""
        first_chunk = not self.pairs
        self.pairs += len(chunk.pairs)
        sides = list(zip((self.source, self.target), chunk.columns, chunk.normalized, strict=True))
        bins = self.ratios.add(*(side.add(column, lines) for side, column, lines in sides))
        low, _, high = self.ratios.usual()
        for index in np.flatnonzero((bins >= 0) & ((bins < low) | (bins > high))).tolist():
            pair = chunk.pairs[index]
            note = f"{len(pair.source):,} and {len(pair.target):,} characters"
            self.tally("length-ratio", pair, note=note)
        self._apply_rules(chunk, usual_scripts)
        features = [extract_features(lines, unspaced=side.unspaced) for side, _, lines in sides]
        for span in join_spans(self.model.find(*features, continued=not first_chunk)):
            pairs = chunk.pairs[span.first : span.last + 1]
            fits = shift_phrase(span.shift) if span.shift else "no nearby line"
            note = f"from here to line {pairs[-1].origin.line:,} the target fits {fits}"
            self.tally("unrelated" if span.unrelated else "misaligned", *pairs, note=note)
            self.shifts[span.shift] += len(pairs)

    def _apply_rules(self, chunk: Chunk, usual_scripts: Scripts) -> None:
        """Apply the cleaning rules of `regard train`, look for damaged text, and sample the sound pairs."""
        reasons = cleaning.judge_texts(cleaning.Chunk(chunk.columns, chunk.digests, usual_scripts), RULES)
        reasons = cleaning.find_duplicates(reasons, chunk.digests, RULES, self.seen)
        names = ("", *cleaning.RULES)
        sound = []
        for pair, number in zip(chunk.pairs, reasons.tolist(), strict=True):
            rule = names[number]
            kind, note = KIND_OF_RULE.get(rule, ""), ""
            if rule == "empty":
                note = " and ".join(name for name in ("source", "target") if not getattr(pair, name).strip())
            elif rule == "long":
                note = f"{len(pair.source.split()):,} and {len(pair.target.split()):,} words"
            elif rule == "script":
                scripts = script(pair.source), script(pair.target)
                if scripts == cleaning.main_scripts(usual_scripts)[::-1]:
                    kind = "swapped"
                else:
                    usual = {"", *chain(*usual_scripts)}
                    note = " and ".join(dict.fromkeys(name for name in scripts if name not in usual))
            if kind:
                self.tally(kind, pair, note=note)
            if rule == "empty":
                continue
            if damaged := damage(pair.source) or damage(pair.target):
                part = damaged_part(pair.source) if damage(pair.source) == damaged else damaged_part(pair.target)
                self.tally(damaged, pair, note=f"… {part} …")
            if sides := [name for name in ("source", "target") if decomposed(getattr(pair, name))]:
                self.tally("normalisation", pair, note=" and ".join(sides))
            if rule in ("", "duplicate") and damaged in ("", "escapes"):
                sound.append(pair)
        self._add_to_sample(sound)

    def _add_to_sample(self, pairs: list[Pair]) -> None:
        """Reservoir sampling; all pairs of valid and test are kept."""
        size = SAMPLE_SIZE if self.name == "train" else MAX_HELD_OUT
        start = size - len(self.sample)
        self.sample += pairs[:start]
        rest = pairs[start:]
        slots = self.random.integers(0, np.arange(len(rest)) + self.sampled_from + start + 1)
        for pair, slot in zip(rest, slots.tolist(), strict=True):
            if slot < size:
                self.sample[slot] = pair
        self.sampled_from += len(pairs)

    def find_constant_sides(self) -> None:
        """Tally the most frequent line of the sample."""
        for side in ("source", "target"):
            texts = [normalized(getattr(pair, side)) for pair in self.sample]
            for text, count in Counter(texts).most_common(1):
                share = count / len(texts)
                if share * self.pairs > self.tallies["constant-side"].count:
                    same = [pair for pair, other in zip(self.sample, texts, strict=True) if other == text]
                    note = f"the {side} is the same in {share:.0%} of pairs"
                    examples = [(pair, note) for pair in same[:MAX_EXAMPLES]]
                    self.tallies["constant-side"] = Tally(share * self.pairs, examples)

    def findings(self, names: tuple[str, str], files: Mapping[str, tuple[str, str]]) -> Iterator[Finding]:
        """The kinds of problems that are more frequent than in ordinary text."""
        if self.name == "train" and self.pairs < FEW_PAIRS:
            self.tallies["too-few"] = Tally(self.pairs)
        if self.name != "train" and self.tallies.get("swapped", Tally()).count > SWAPPED_SPLIT * self.pairs:
            self.tallies["swapped-split"] = self.tallies.pop("swapped")
        for name, tally in self.tallies.items():
            kind, count, share = KINDS[name], round(tally.count), tally.count / max(self.pairs, 1)
            severity = kind.severity(count, share)
            if severity is None:
                continue
            if name == "too-few" and count < TOO_FEW_PAIRS:
                severity = "unfit"
            complete = len(tally.lines) == count
            title, commands = kind.title, kind.commands
            fix = kind.fix + (INCOMPLETE if not complete and "lines" in kind.fix else "")
            shift, shifted = next(iter(self.shifts.most_common(1)), (0, 0))
            if name == "misaligned" and shift and shifted >= WHOLE_SHIFT * self.pairs:
                title += f": nearly all targets fit {shift_phrase(shift)}"
                fix, commands = shift_fix(shift)
            text = {"count": f"{count:,}", "share": percent(share), "split": self.name, "near": f"{NEAR:.0%}"}
            text |= {"source": names[0], "target": names[1], "named": f"{len(tally.lines):,}"}
            text |= {"lines": counted(count, "line"), "pairs": counted(count, "pair")}
            lines: dict[str, list[int]] = {}
            for origin in sorted(tally.lines):
                lines.setdefault(str(origin.path), []).append(origin.line)
            yield Finding(
                kind=name,
                split=self.name,
                severity=severity,
                count=count,
                share=round(share, 6),
                title=title.format(**text),
                explanation=kind.explanation.format(**text),
                fix=fix.format(**text),
                examples=tuple(
                    Example(str(pair.origin), shorten(pair.source), shorten(pair.target), shorten(note))
                    for pair, note in sorted(tally.examples, key=lambda example: example[0].origin)
                ),
                lines=lines,
                lines_complete=complete,
                commands=tuple(
                    fill_commands(
                        commands, files, sorted(origin.line for origin in tally.lines), kind=name, split=self.name
                    )
                ),
            )

    def statistics(self) -> dict[str, object]:
        """The counts as plain values."""
        counts = {kind: round(tally.count) for kind, tally in sorted(self.tallies.items()) if kind != "too-few"}
        return {
            "pairs": self.pairs,
            "source": self.source.to_dict(),
            "target": self.target.to_dict(),
            "ratio": self.ratios.to_dict(),
            "counts": counts,
        }


class Leakage:
    """Pairs of valid and test that are also in train."""

    def __init__(self, held_out: dict[str, list[Pair]]) -> None:
        self.held_out = [(name, pair) for name, pairs in held_out.items() for pair in pairs]
        self.index = HeldOut(
            [normalized(pair.source) for _, pair in self.held_out],
            [normalized(pair.target) for _, pair in self.held_out],
        )
        self.matches: dict[str, dict[int, Pair]] = {kind: {} for kind in LEAKAGE_KINDS}

    def add(self, chunk: Chunk) -> None:
        """Look up a chunk of train."""
        if not self.held_out:
            return
        for kind, values in zip(LEAKAGE_KINDS, (pair_digests(*chunk.digests), *chunk.digests), strict=False):
            for index, held_out in self.index.exact(kind, values):
                for i in held_out:
                    self.matches[kind].setdefault(i, chunk.pairs[index])
        for index, i in self.index.near(*chunk.normalized):
            self.matches["near"].setdefault(i, chunk.pairs[index])

    def report(self, splits: dict[str, Split]) -> None:
        """Tally each pair of valid and test once, under the closest match it has in train."""
        reported: set[int] = set()
        for match, kind in LEAKAGE_KINDS.items():
            for i, other in sorted(self.matches[match].items()):
                split, pair = self.held_out[i]
                if i not in reported and len(pair.source) + len(pair.target) >= MIN_LEAK_CHARACTERS:
                    reported.add(i)
                    texts = "" if match == "pair" else f": {shorten(other.source)} | {shorten(other.target)}"
                    splits[split].tally(kind, pair, note=f"in train at {other.origin}{texts}")


def find_wrong_languages(splits: dict[str, Split]) -> None:
    """Tally the sampled pairs that are swapped, or have a side in the wrong language."""
    train = splits["train"]
    if not train.sample:
        return
    sides = [[getattr(pair, side) for pair in train.sample] for side in ("source", "target")]
    model = learn_sides(*map(read_trigrams, sides))
    for split in splits.values():
        if not split.sample:
            continue
        source = read_trigrams([pair.source for pair in split.sample])
        target = read_trigrams([pair.target for pair in split.sample])
        wrong_source, wrong_target, swapped = model.judge(source, target)
        if split is train:  # valid and test may be of another domain
            wrong_source, wrong_target = wrong_source | third_language(source), wrong_target | third_language(target)
        weight = split.sampled_from / len(split.sample)
        for i in np.flatnonzero(swapped).tolist():
            split.tally("swapped", split.sample[i], weight=weight)
        for i in np.flatnonzero((wrong_source | wrong_target) & ~swapped).tolist():
            wrong = [name for name, mask in (("source", wrong_source), ("target", wrong_target)) if mask[i]]
            split.tally("wrong-language", split.sample[i], note=" and ".join(wrong), weight=weight)


def compare(train: Split, held_out: Split) -> None:
    """Tally how valid or test differs from train: unseen characters, other lengths."""
    for pair in held_out.sample:
        unseen = [
            character
            for text, side in ((pair.source, train.source), (pair.target, train.target))
            if not side.alphabet[code_points(text)].all()
            for character in sorted(set(text))
            if not side.alphabet[ord(character)] and character.strip()
        ]
        if unseen:
            held_out.tally("unseen-characters", pair, note="not in train: " + " ".join(unseen[:8]))
    for name in ("source", "target"):
        usual, here = (getattr(split, name).quantile(0.5) for split in (train, held_out))
        if held_out.pairs and train.pairs and max(usual, here) > MEDIAN_FACTOR * max(min(usual, here), 1):
            note = f"{name}: median length {here} here, {usual} in train"
            held_out.tallies["lengths-differ"] = Tally(held_out.pairs, [(pair, note) for pair in held_out.sample[:2]])


def shift_phrase(shift: int) -> str:
    """`2 lines later`."""
    return f"{counted(abs(shift), 'line')} {'later' if shift > 0 else 'earlier'}"


def shift_fix(shift: int) -> tuple[str, tuple[str, ...]]:
    """How to undo the shift of a whole file, and the commands for it."""
    early, late = ("TARGET", "SOURCE") if shift > 0 else ("SOURCE", "TARGET")
    lines = counted(abs(shift), "line")
    return f"Delete the first {lines} of one side and the last {lines} of the other, then check again.", (
        f"tail -n +{abs(shift) + 1} {early} > {early}.mended",
        f"head -n -{abs(shift)} {late} > {late}.mended",
    )


def shorten(text: str) -> str:
    """A text short enough to show, with its control characters visible."""
    text = CONTROL.sub(lambda match: f"‹U+{ord(match.group()):04X}›", text)
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…"
