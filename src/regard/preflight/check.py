"""Preflight: the data report that says, before a run, whether a corpus is fit to train on, and how to mend it."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal
from unicodedata import normalize

import numpy as np

from regard.preflight.drift import Agreement, Stretch, featured
from regard.preflight.languages import Lines, learn_own, learn_sides, read_lines, third_language
from regard.preflight.measure import Ratios, Side, codes, lengths
from regard.preflight.remedies import EXPLAINS, KINDS, PARTIAL
from regard.text.files import Pair
from regard.text.overlap import NEAR, Digests, HeldOut, Repeats, digests, normalized, pair_digests
from regard.text.scripts import CONTROL, damage, damaged_part, decomposed, script

NUMBER = re.compile(r"\d[\d.,]*")

Verdict = Literal["fit", "care", "unfit"]
Severity = Literal["care", "unfit"]

CHUNK = 8192  # pairs looked at together
SAMPLE = 20_000  # pairs of train kept as text, to learn the languages from; a larger corpus is judged by them
HELD_OUT = 200_000  # pairs of valid and of test looked at, at most
SHOWN = 5  # examples of a finding
NAMED = 10_000  # lines of a finding that are named
SHORTENED = 160  # characters of an example
REMEMBERED = 100_000  # first pairs of train whose repeats can be shown
TOO_LONG_WORDS = 200  # hardly a sentence any more, and most of a batch
TOO_LONG_CHARACTERS = 1500
COPY_WORDS = 3  # a name or a title may well be the same in both languages
TELLING_CHARACTERS = 24  # of both sides: "Thank you." is in every text and leaks nothing
MANY_SCRIPTS = 0.2  # a script in this share of lines belongs to the side (Serbian has two)
SWAPPED_SPLIT = 0.5  # of a split's lines the wrong way round: not lines are swapped, the files are
GOES_ON = 256  # lines after which a drifted stretch counts as another one
BAND_MOVES = 5  # bins that the band of the length ratio may still move as more pairs come
WHOLE_SHIFT = 0.8  # of a split's lines moved alike: not lines were lost, one file begins elsewhere
MEDIAN_APART = 2.0  # times longer or shorter: the splits are not the same kind of text


@dataclass(frozen=True)
class Example:
    """A pair that shows a finding, shortened, and what to see in it."""

    where: str
    source: str
    target: str
    note: str = ""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with a split, how much of it there is, and how to mend it."""

    kind: str
    split: str
    severity: Severity
    count: int
    share: float
    title: str
    explanation: str
    fix: str
    examples: tuple[Example, ...]
    lines: dict[str, list[int]]  # by file, of the first of them
    lines_complete: bool = True  # whether these are all


@dataclass(frozen=True)
class Report:
    """The verdict on a corpus, the findings behind it, and what was counted."""

    verdict: Verdict
    findings: tuple[Finding, ...]
    statistics: dict[str, dict[str, object]]
    names: tuple[str, str]

    @property
    def reasons(self) -> list[str]:
        """Why the verdict is what it is, worst first."""
        return [finding.title for finding in self.findings]

    def as_dict(self) -> dict[str, object]:
        """The report as plain data, ready for JSON."""
        return {
            "verdict": self.verdict,
            "reasons": self.reasons,
            "findings": [
                {**vars(finding), "examples": [vars(example) for example in finding.examples]}
                for finding in self.findings
            ],
            "names": list(self.names),
            "statistics": self.statistics,
        }

    def to_json(self) -> str:
        """The report as one JSON object."""
        return json.dumps(self.as_dict(), ensure_ascii=False)


def inspect(
    train: Iterable[Pair],
    valid: Iterable[Pair] | None = None,
    test: Iterable[Pair] | None = None,
    *,
    names: tuple[str, str] = ("source", "target"),
) -> Report:
    """Read a corpus once and say whether it is fit to train on; `names` are the names of the two sides."""
    held = {
        name: list(itertools.islice(pairs, HELD_OUT))
        for name, pairs in (("valid", valid), ("test", test))
        if pairs is not None
    }
    agreement = Agreement()  # what belongs together in train does so in valid and test
    splits = {name: Split(name, agreement) for name in ("train", *held)}
    everything = [pair for pairs in held.values() for pair in pairs]
    leaks = Leaks(splits, everything, [name for name, pairs in held.items() for _ in pairs])
    for chunk in chunks(train):
        splits["train"].add(chunk)
        leaks.add(chunk)
    for name, pairs in held.items():
        for chunk in chunks(pairs):
            splits[name].add(chunk)
    leaks.close()
    for split in splits.values():
        split.close()
    judge_languages(splits)
    for name in held:
        compare(splits["train"], splits[name])
    findings = [finding for split in splits.values() for finding in split.findings(names)]
    findings = told_once(findings)
    findings.sort(key=lambda finding: (finding.severity != "unfit", -finding.share))
    verdict: Verdict = "fit" if not findings else "unfit" if findings[0].severity == "unfit" else "care"
    return Report(verdict, tuple(findings), {name: split.statistics() for name, split in splits.items()}, names)


@dataclass(frozen=True)
class Chunk:
    """Pairs looked at together, with their plain text and digests."""

    first: int
    pairs: list[Pair]
    sources: list[str]
    targets: list[str]
    source_digests: Digests
    target_digests: Digests


def chunks(pairs: Iterable[Pair]) -> Iterator[Chunk]:
    """The pairs in chunks."""
    stream, first = iter(pairs), 0
    while taken := list(itertools.islice(stream, CHUNK)):
        sources, targets = [normalized(pair.source) for pair in taken], [normalized(pair.target) for pair in taken]
        yield Chunk(first, taken, sources, targets, digests(sources), digests(targets))
        first += len(taken)


@dataclass
class Found:
    """How often something was seen, and a fair sample of where."""

    count: float = 0
    seen: int = 0
    examples: list[tuple[Pair, str]] = field(default_factory=list)
    lines: list[tuple[str, int]] = field(default_factory=list)
    told: tuple[str, str] = ("", "")  # what is to be added to the title, and the remedy where it is not the usual one

    def add(self, pair: Pair, note: str = "", *, weight: float = 1) -> None:
        """See it once more; which examples are kept depends on nothing but their order."""
        self.count += weight
        self.seen += 1
        if len(self.lines) < NAMED:
            self.lines.append((str(pair.origin.path), pair.origin.line))
        if len(self.examples) < SHOWN:
            self.examples.append((pair, note))
        elif (place := self.seen * 2654435761 % 2**32 * self.seen >> 32) < SHOWN:
            self.examples[place] = (pair, note)


class Split:
    """Everything that is counted in one split while it streams by."""

    def __init__(self, name: str, agreement: Agreement) -> None:
        self.name, self.agreement = name, agreement
        self.pairs = 0
        self.source, self.target = Side(), Side()
        self.ratios = Ratios()
        self.extremes: list[tuple[tuple[int, int, int], Pair]] = []  # by their place among the ratios
        self.found: dict[str, Found] = {}
        self.scripts: dict[tuple[str, str], Found] = {}
        self.stretches: list[Stretch] = []
        self.stretched: dict[int, Pair] = {}  # pairs of stretches, by place
        self.repeats = {"pair": Repeats(), "source": Repeats(), "target": Repeats()}
        self.first_seen: dict[int, Pair] = {}
        self.sample: list[Pair] = []
        self.random = np.random.default_rng(0)

    def note(self, kind: str, pair: Pair, note: str = "", *, weight: float = 1) -> None:
        """Count one pair under a kind of finding."""
        self.found.setdefault(kind, Found()).add(pair, note, weight=weight)

    def add(self, chunk: Chunk) -> None:
        """Look at a chunk of pairs."""
        self.pairs += len(chunk.pairs)
        scripts = zip(
            self.source.add([pair.source for pair in chunk.pairs], chunk.sources),
            self.target.add([pair.target for pair in chunk.pairs], chunk.targets),
            strict=True,
        )
        main = (self.source.main_script, self.target.main_script)
        for pair, source, target, written in zip(chunk.pairs, chunk.sources, chunk.targets, scripts, strict=True):
            self.look(pair, source, target, written, written == main)
        self.add_ratios(chunk)
        self.add_repeats(chunk)
        self.add_sample(chunk)
        drifted = self.agreement.look(
            featured(chunk.sources, unspaced=self.source.unspaced),
            featured(chunk.targets, unspaced=self.target.unspaced),
            first=chunk.first,
        )
        self.stretches += drifted
        for stretch in drifted:
            places = range(stretch.first, min(stretch.last, stretch.first + max(NAMED - len(self.stretched), 0)) + 1)
            self.stretched |= {place: chunk.pairs[place - chunk.first] for place in places}

    def look(self, pair: Pair, source: str, target: str, written: tuple[str, str], usual: bool) -> None:
        """What one pair shows by itself."""
        if not source or not target:
            self.note("empty", pair, "both sides" if source == target else "source" if not source else "target")
            return
        if harm := damage(pair.source) or damage(pair.target):
            part = damaged_part(pair.source) if damage(pair.source) == harm else damaged_part(pair.target)
            self.note(harm, pair, f"… {part} …")
        if sides := [name for name in ("source", "target") if decomposed(getattr(pair, name))]:
            self.note("normalisation", pair, " and ".join(sides))
        if source == target and written[0] and source.count(" ") + 1 >= COPY_WORDS:
            self.note("copies", pair)
        elif not usual and source != target:
            self.scripts.setdefault(written, Found()).add(pair)
        if is_long(source) or is_long(target):
            self.note("too-long", pair, f"{source.count(' ') + 1} and {target.count(' ') + 1} words")

    def add_ratios(self, chunk: Chunk) -> None:
        """Count the length ratios, and keep the pairs of unusual ones."""
        cells = self.ratios.add(lengths(chunk.sources), lengths(chunk.targets))
        unusual = np.flatnonzero(self.ratios.outside(slack=BAND_MOVES)[cells] & (cells[2] >= 0)).tolist()
        for place in unusual[: max(NAMED - len(self.extremes), 0)]:
            one, other, ratio = (int(values[place]) for values in cells)
            self.extremes.append(((one, other, ratio), chunk.pairs[place]))

    def add_repeats(self, chunk: Chunk) -> None:
        """Count what comes again."""
        digests_of_pairs = pair_digests(chunk.source_digests, chunk.target_digests)
        for kind, values in (
            ("pair", digests_of_pairs),
            ("source", chunk.source_digests),
            ("target", chunk.target_digests),
        ):
            self.repeats[kind].add(values)
        for place, value in enumerate(digests_of_pairs.tolist()):
            earlier = self.first_seen.get(value)
            if earlier is not None:
                self.note("duplicates", chunk.pairs[place], f"the same as line {earlier.origin.line:,}")
            elif len(self.first_seen) < REMEMBERED:
                self.first_seen[value] = chunk.pairs[place]

    def add_sample(self, chunk: Chunk) -> None:
        """Keep a fair sample of the pairs; all of them in valid and test."""
        room = SAMPLE if self.name == "train" else HELD_OUT
        straight = chunk.pairs[: max(room - len(self.sample), 0)]
        self.sample += straight
        rest = chunk.pairs[len(straight) :]
        places = self.random.integers(0, np.arange(len(rest)) + chunk.first + len(straight) + 1)
        for pair, place in zip(rest, places.tolist(), strict=True):
            if place < room:
                self.sample[place] = pair

    def close(self) -> None:
        """What can only be said when all was seen."""
        self.close_ratios()
        self.close_scripts()
        self.close_repeats()
        self.close_stretches()
        self.first_seen.clear()
        self.stretched.clear()

    def close_ratios(self) -> None:
        """Count the pairs out of the band that all pairs together give."""
        outside = self.ratios.outside(slack=0)
        count = int(self.ratios.counts[outside].sum())
        if not count:
            return
        found = self.found["length-ratio"] = Found()
        for cell, pair in self.extremes:
            if outside[cell]:
                found.add(pair, f"{len(pair.source):,} and {len(pair.target):,} characters")
        found.count = count

    def close_scripts(self) -> None:
        """Count lines in a script that is not their side's; a pair whose sides changed places is told elsewhere."""
        for written, found in self.scripts.items():
            if written == (self.target.main_script, self.source.main_script):
                continue
            strange = [
                name
                for name, side in zip(written, (self.source, self.target), strict=True)
                if not belongs(name, side, self.pairs)
            ]
            if strange:
                total = self.found.setdefault("wrong-script", Found())
                total.count += found.count
                total.lines += found.lines[: NAMED - len(total.lines)]
                total.examples += [(pair, " and ".join(strange)) for pair, _ in found.examples]

    def has_usual_scripts(self, pair: Pair) -> bool:
        """Whether each side is written in its script, or each in the other's."""
        source, target = script(pair.source), script(pair.target)
        if (source, target) == (self.target.main_script, self.source.main_script):
            return True
        return belongs(source, self.source, self.pairs) and belongs(target, self.target, self.pairs)

    def close_repeats(self) -> None:
        """Count repeated pairs exactly, and find a line that stands for a whole side."""
        again, _, _ = self.repeats["pair"].summary()
        if again:
            self.found.setdefault("duplicates", Found()).count = again
        else:
            self.found.pop("duplicates", None)
        for kind in ("source", "target"):
            _, share, top = self.repeats[kind].summary()
            constant = Found(count=round(share * self.pairs))
            which = [getattr(pair, kind) for pair in self.sample]
            for pair, value in zip(self.sample, digests([normalized(text) for text in which]).tolist(), strict=True):
                if value == top and len(constant.examples) < SHOWN:
                    constant.examples.append((pair, f"the {kind} is the same in {share:.0%} of pairs"))
            if constant.count > self.found.get("constant-side", Found()).count:
                self.found["constant-side"] = constant

    def close_stretches(self) -> None:
        """Join stretches that go on, and count their lines."""
        for stretch in joined(self.stretches):
            lines = stretch.last - stretch.first + 1
            pair = self.stretched[stretch.first]
            end = pair.origin.line + lines - 1
            place = told_shift(stretch.shift) if stretch.shift else "nowhere near"
            kind = "unrelated" if stretch.unrelated else "misaligned"
            self.note(kind, pair, f"from here to line {end:,} the target fits {place}", weight=lines)
            named = [self.stretched.get(place) for place in range(stretch.first + 1, stretch.last + 1)]
            self.found[kind].lines += [(str(one.origin.path), one.origin.line) for one in named if one]
            if stretch.shift and lines >= WHOLE_SHIFT * self.pairs:
                self.found["misaligned"].told = whole_shift(stretch.shift)

    def findings(self, names: tuple[str, str]) -> Iterator[Finding]:
        """What is more than ordinary text has of it."""
        self.found["too-few"] = Found(count=self.pairs)
        for kind, found in self.found.items():
            remedy = KINDS[kind]
            share = found.count / max(self.pairs, 1)
            severity = remedy.severity(round(found.count), share, split=self.name)
            if severity is None:
                continue
            text = {"count": f"{round(found.count):,}", "share": percent(share), "split": self.name}
            text |= {"source": names[0], "target": names[1], "near": f"{NEAR:.0%}", "named": f"{len(found.lines):,}"}
            complete = len(found.lines) == round(found.count)
            fix = remedy.fix if complete or "lines" not in remedy.fix else remedy.fix + PARTIAL
            yield Finding(
                kind=kind,
                split=self.name,
                severity=severity,
                count=round(found.count),
                share=round(share, 6),
                title=remedy.title.format(**text) + found.told[0],
                explanation=remedy.explanation.format(**text),
                fix=found.told[1] or fix.format(**text),
                examples=tuple(shown(pair, note) for pair, note in sorted(found.examples[:SHOWN], key=place_of)),
                lines=by_file(found.lines),
                lines_complete=complete,
            )

    def statistics(self) -> dict[str, object]:
        """What was counted, as plain data."""
        return {
            "pairs": self.pairs,
            "source": self.source.as_dict(),
            "target": self.target.as_dict(),
            "ratio": self.ratios.as_dict(),
            "counts": {kind: round(found.count) for kind, found in sorted(self.found.items()) if kind != "too-few"},
        }


class Leaks:
    """What train shares with valid and test."""

    def __init__(self, splits: dict[str, Split], pairs: list[Pair], split_of: list[str]) -> None:
        self.splits, self.pairs, self.split_of = splits, pairs, split_of
        self.index = HeldOut([normalized(pair.source) for pair in pairs], [normalized(pair.target) for pair in pairs])
        self.seen: dict[str, dict[int, Pair]] = {"pair": {}, "source": {}, "target": {}, "near": {}}

    def add(self, chunk: Chunk) -> None:
        """Look a chunk of train up."""
        if not self.pairs:
            return
        digests_of_pairs = pair_digests(chunk.source_digests, chunk.target_digests)
        for kind, values in (
            ("pair", digests_of_pairs),
            ("source", chunk.source_digests),
            ("target", chunk.target_digests),
        ):
            for place, held in self.index.exact(kind, values):
                for one in held:
                    self.seen[kind].setdefault(one, chunk.pairs[place])
        for place, one in self.index.near(chunk.sources, chunk.targets):
            self.seen["near"].setdefault(one, chunk.pairs[place])

    def close(self) -> None:
        """Count each held-out pair once, under the closest likeness it has in train."""
        told: set[int] = set()
        kinds = {"pair": "leakage", "source": "source-leakage", "target": "target-leakage", "near": "near-leakage"}
        for kind, name in kinds.items():
            for one, pair in sorted(self.seen[kind].items()):
                size = len(self.pairs[one].source) + len(self.pairs[one].target)
                if one not in told and size >= TELLING_CHARACTERS:
                    told.add(one)
                    like = "" if kind == "pair" else f": {clipped(pair.source)} | {clipped(pair.target)}"
                    self.splits[self.split_of[one]].note(name, self.pairs[one], f"in train at {where(pair)}{like}")


def judge_languages(splits: dict[str, Split]) -> None:
    """Note the pairs that are the other way round, or in a language that is not their side's."""
    train = splits["train"]
    clean = [pair for pair in train.sample if is_sound(pair) and train.has_usual_scripts(pair)]
    if not clean:
        return
    source, target = sides(clean)
    languages = learn_sides(source, target)
    own = (learn_own(source), learn_own(target))
    for split in splits.values():
        pairs = [pair for pair in split.sample if is_sound(pair) and split.has_usual_scripts(pair)]
        if not pairs:
            continue
        weight = split.pairs / len(split.sample)
        source, target = sides(pairs)
        strange_source, strange_target, swapped = languages.judge(source, target)
        if split is train:  # valid and test may be of another kind of text without being wrong
            strange_source |= own[0].foreign(source) | third_language(source)
            strange_target |= own[1].foreign(target) | third_language(target)
        kind = "swapped-split" if swapped.mean() > SWAPPED_SPLIT else "swapped"
        for place in np.flatnonzero(swapped).tolist():
            split.note(kind, pairs[place], weight=weight)
        for place in np.flatnonzero((strange_source | strange_target) & ~swapped).tolist():
            which = [name for name, bad in (("source", strange_source), ("target", strange_target)) if bad[place]]
            split.note("wrong-language", pairs[place], " and ".join(which), weight=weight)


def sides(pairs: Sequence[Pair]) -> tuple[Lines, Lines]:
    """The letters of both sides, each in one piece; numbers are of no language."""
    return (
        read_lines([NUMBER.sub("", normalized(normalize("NFC", pair.source))) for pair in pairs]),
        read_lines([NUMBER.sub("", normalized(normalize("NFC", pair.target))) for pair in pairs]),
    )


def compare(train: Split, held: Split) -> None:
    """Note what valid or test has that train has not."""
    alphabets = (train.source.alphabet, train.target.alphabet)
    scripts = (set(train.source.scripts), set(train.target.scripts))
    for pair in held.sample:
        if damage(pair.source) or damage(pair.target):
            continue
        unseen = [
            character
            for text, alphabet in zip((pair.source, pair.target), alphabets, strict=True)
            if not alphabet[codes([text])].all()
            for character in sorted(set(text))
            if not alphabet[ord(character)] and character.strip()
        ]
        if unseen:
            held.note("unseen-characters", pair, "never in train: " + " ".join(unseen[:8]))
    for side, known in zip((held.source, held.target), scripts, strict=True):
        for name in sorted(set(side.scripts) - known - {""}):
            examples = [
                pair for written, found in held.scripts.items() if name in written for pair, _ in found.examples
            ]
            new = held.found.setdefault("unseen-script", Found())
            new.count += side.scripts[name]
            new.examples += [(pair, name) for pair in examples]
    for name, usual, here in (
        ("source", train.source.typical(0.5), held.source.typical(0.5)),
        ("target", train.target.typical(0.5), held.target.typical(0.5)),
    ):
        if held.pairs and train.pairs and max(usual, here) > MEDIAN_APART * max(min(usual, here), 1):
            found = held.found.setdefault("lengths-differ", Found())
            found.count = held.pairs
            found.examples += [
                (pair, f"{name}: {here} here, {usual} in train, in the middle") for pair in held.sample[:2]
            ]


def told_once(findings: list[Finding]) -> list[Finding]:
    """The findings without those that another finding of the same split explains."""
    explained = {(other, finding.split) for finding in findings for other in EXPLAINS.get(finding.kind, ())}
    return [finding for finding in findings if (finding.kind, finding.split) not in explained]


def joined(stretches: list[Stretch]) -> list[Stretch]:
    """Stretches of one shift that go on after a short gap made one; of overlapping ones the longest."""
    runs: list[Stretch] = []
    for stretch in sorted(stretches, key=lambda stretch: (stretch.unrelated, stretch.shift, stretch.first)):
        alike = runs and (runs[-1].unrelated, runs[-1].shift) == (stretch.unrelated, stretch.shift)
        if alike and stretch.first <= runs[-1].last + GOES_ON:
            runs[-1] = replace(runs[-1], last=max(runs[-1].last, stretch.last))
        else:
            runs.append(stretch)
    kept: list[Stretch] = []
    for stretch in sorted(runs, key=lambda stretch: stretch.first - stretch.last):
        if all(stretch.last < other.first or stretch.first > other.last for other in kept):
            kept.append(stretch)
    return sorted(kept, key=lambda stretch: stretch.first)


def told_shift(shift: int) -> str:
    """A shift as people say it."""
    return f"{abs(shift)} line{'s' * (abs(shift) > 1)} {'later' if shift > 0 else 'earlier'}"


def whole_shift(shift: int) -> tuple[str, str]:
    """What is said when a whole file is shifted: how far, and how to put it back."""
    early, late = ("TARGET", "SOURCE") if shift > 0 else ("SOURCE", "TARGET")
    by = abs(shift)
    return (
        f": nearly all targets fit {told_shift(shift)}",
        f"Take the first {by} line{'s' * (by > 1)} off {early} (`tail -n +{by + 1} {early} > {early}.mended`) and as "
        f"many off the end of {late} (`head -n -{by} {late} > {late}.mended`), then check again.",
    )


def belongs(name: str, side: Side, pairs: int) -> bool:
    """Whether a script is one that the side is written in."""
    if name in ("", side.main_script) or side.scripts[name] >= MANY_SCRIPTS * pairs:
        return True
    return name == "Han" and side.main_script in ("Kana", "Hangul")


def is_sound(pair: Pair) -> bool:
    """Whether a pair can teach or show what its languages are: not empty, not damaged, not a copy."""
    return bool(
        pair.source.strip()
        and pair.target.strip()
        and normalized(pair.source) != normalized(pair.target)
        and damage(pair.source) in ("", "escapes")
        and damage(pair.target) in ("", "escapes")
    )


def is_long(text: str) -> bool:
    """Whether a line is too long to be a sentence."""
    return len(text) > TOO_LONG_CHARACTERS or (len(text) > TOO_LONG_WORDS and text.count(" ") >= TOO_LONG_WORDS)


def where(pair: Pair) -> str:
    """File and line, as editors read it."""
    return f"{pair.origin.path}:{pair.origin.line}"


def place_of(example: tuple[Pair, str]) -> tuple[str, int]:
    """What examples are ordered by."""
    return str(example[0].origin.path), example[0].origin.line


def clipped(text: str) -> str:
    """The text short enough to show, with what cannot be seen made visible."""
    text = CONTROL.sub(lambda match: f"‹U+{ord(match.group()):04X}›", text)
    return text if len(text) <= SHORTENED else text[: SHORTENED - 1] + "…"


def by_file(lines: list[tuple[str, int]]) -> dict[str, list[int]]:
    """The line numbers of each file, in order."""
    files: dict[str, list[int]] = {}
    for path, line in sorted(lines)[:NAMED]:
        files.setdefault(path, []).append(line)
    return files


def shown(pair: Pair, note: str) -> Example:
    """A pair as an example."""
    return Example(where(pair), clipped(pair.source), clipped(pair.target), clipped(note))


def percent(share: float) -> str:
    """A share as people say it."""
    return f"{share:.0%}" if share >= 0.1 else f"{share:.1%}" if share >= 0.001 else "under 0.1%"
