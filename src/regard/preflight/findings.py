"""Findings: for each kind of problem, from which share of pairs it is reported, its effect on a model, and its fix."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, NamedTuple

Severity = Literal["care", "unfit"]


class Example(NamedTuple):
    """A pair that shows a finding, shortened, with a note on what to look at."""

    where: str
    source: str
    target: str
    note: str = ""


@dataclass(frozen=True)
class Finding:
    """A problem of one split: its kind, how many pairs have it, and how to fix it."""

    kind: str
    split: str
    severity: Severity
    count: int
    share: float
    title: str
    explanation: str
    fix: str
    examples: tuple[Example, ...]
    lines: dict[str, list[int]]
    """Line numbers by file of the affected pairs, up to a limit."""
    lines_complete: bool = True
    """Whether `lines` has all of them."""
    commands: tuple[str, ...] = ()
    """Shell commands that fix it, with the names of the files."""


@dataclass(frozen=True)
class Kind:
    """The texts of one kind of finding, and the shares of pairs from which it is reported."""

    title: str
    explanation: str
    fix: str
    care: float
    unfit: float = 2.0  # never
    min_count: int = 3  # one odd line is no finding
    commands: tuple[str, ...] = ()
    """Shell commands for the fix. SOURCE and TARGET stand for the files of the split, FILE for each of them in turn."""

    def severity(self, count: int, share: float) -> Severity | None:
        """The severity for this many pairs; None if ordinary text has as many."""
        if count < self.min_count or share < self.care:
            return None
        return "unfit" if share >= self.unfit else "care"


DROP = "Leave these lines out on both sides. "
AUTOMATIC = "`regard train` leaves them out and reports how many (`text.cleaning`). "
HOLD_OUT = "Let `regard train` hold out a leak-free part (no `--valid`), or leave these lines out of {split}. "
REPAIR = "Get the original text again and read it in its actual encoding. If only the damaged file is left, repair it. "
TO_DROP = "sed 'LINES' FILE > FILE.clean"
TO_LIST = (
    'regard check ALL --json | python -c "import json, sys; print(*(line for x in json.load(sys.stdin)'
    "['findings'] if (x['kind'], x['split']) == ('KIND', 'SPLIT') for lines in x['lines'].values() for line in lines),"
    " sep='\\n')\" > KIND.lines"
)
TO_DROP_MANY = "awk 'NR==FNR {bad[$1]; next} !(FNR in bad)' KIND.lines FILE > FILE.clean"
TO_REPAIR = (
    'python -c "import sys; from regard.text.scripts import repair; '
    'sys.stdout.writelines(repair(line.rstrip(chr(10))) + chr(10) for line in sys.stdin)" < FILE > FILE.fixed'
)
TO_NORMALISE = (
    "python -c \"import sys, unicodedata; sys.stdout.writelines(unicodedata.normalize('NFC', line) for line in "
    'sys.stdin)" < FILE > FILE.nfc'
)
MAX_RANGES = 20  # of line numbers in one command
INCOMPLETE = (
    " `lines` names {named} of the {count} (`lines_complete` is false): fix these and check again, until none is left."
)

# "care" starts above what well-kept corpora have (measured on Multi30k, Tatoeba, IWSLT and Hansards) and below what is
# known to hurt. "unfit" is for problems that make a score meaningless or that the model learns to imitate.
KINDS = {
    "leakage": Kind(
        "{count} pairs of {split} are also in train",
        "{share} of {split} can be memorised in training, so scores on it are too high. Case, spaces and punctuation "
        "are ignored.",
        HOLD_OUT,
        commands=(TO_DROP,),
        care=0.005,  # Multi30k: 0.1 % by chance
        unfit=0.1,  # a tenth of the set decides a score
    ),
    "source-leakage": Kind(
        "{count} {source} lines of {split} are also in train, with another translation",
        "The model has seen a translation of {share} of the {split} sources; scores on them are too high.",
        HOLD_OUT,
        commands=(TO_DROP,),
        care=0.02,  # short everyday sentences coincide: up to 0.1 % measured
        unfit=0.5,
    ),
    "target-leakage": Kind(
        "{count} {target} lines of {split} are also in train, for another source",
        "The model has learned to write {share} of the {split} targets word for word.",
        HOLD_OUT,
        commands=(TO_DROP,),
        care=0.02,
        unfit=0.5,
    ),
    "duplicates": Kind(
        "{count} pairs of {split} are duplicates",
        "{share} of the pairs repeat an earlier one: the model sees them more often than the rest and overfits them.",
        AUTOMATIC + "This makes the files smaller:",
        commands=("paste SOURCE TARGET | awk '!seen[$0]++' > unique.tsv",),
        care=0.03,  # a few greetings and headings repeat in any text
        unfit=0.8,  # hardly anything is left to learn from
    ),
    "length-ratio": Kind(
        "{count} pairs of {split} have an unusual length ratio",
        "In {share} of the pairs one side is far too long for the other: cut off, padded, or not a translation.",
        "`regard train` leaves the worst out (`text.max_length_ratio`). " + DROP,
        commands=(TO_DROP,),
        care=0.01,  # free translations: up to 0.4 % in Hansards
        unfit=0.3,
    ),
    "too-long": Kind(
        "{count} pairs of {split} are far too long",
        "{share} of the pairs have a side longer than `text.max_length` and cost much memory.",
        AUTOMATIC + "To keep their content, split the text into sentences before aligning it.",
        care=0.005,
    ),
    "empty": Kind(
        "{count} pairs of {split} have an empty side",
        "{share} of the pairs are empty on one side or both; where one side is empty, lines may have shifted.",
        AUTOMATIC + "Look at the lines around them first: a file whose lines have shifted must be aligned again.",
        care=0.001,
        unfit=0.3,
    ),
    "wrong-script": Kind(
        "{count} pairs of {split} are written in another script than train",
        "{share} of the pairs have a side whose letters do not belong to its language.",
        AUTOMATIC + DROP,
        commands=(TO_DROP,),
        care=0.003,
        unfit=0.3,
    ),
    "unreadable": Kind(
        "{lines} of {split} cannot be read",
        "`regard train` stops at the first of them.",
        "Convert the file to UTF-8; the encoding named with a line is a guess: `iconv -f ENCODING -t UTF-8 FILE > "
        "FILE.utf8`. A few odd lines can be left out on both sides instead.",
        commands=(TO_DROP,),
        care=0.0,
        unfit=0.0,
        min_count=1,
    ),
    "mojibake": Kind(
        "{count} pairs of {split} were read in the wrong encoding",
        "In {share} of the pairs UTF-8 was read as Latin-1 (Ã© for é): the model learns to write this.",
        REPAIR + "A second `iconv` from Windows-1252 would do the damage again.",
        commands=(TO_REPAIR,),
        care=0.001,
        unfit=0.1,
    ),
    "normalisation": Kind(
        "{count} pairs of {split} have decomposed accents",
        "In {share} of the pairs a side is in Unicode form NFD (e and ´ for é). It looks the same, but the model sees "
        "other words, and users type NFC.",
        "Convert both files to Unicode form NFC, with `uconv -x any-nfc` or with Python:",
        commands=(TO_NORMALISE,),
        care=0.005,
    ),
    "control-characters": Kind(
        "{count} pairs of {split} have control or replacement characters",
        "{share} of the pairs have characters that no sentence has: controls, private use, or U+FFFD for a lost one.",
        AUTOMATIC + REPAIR,
        commands=(TO_REPAIR,),
        care=0.001,
        unfit=0.1,
    ),
    "escapes": Kind(
        "{count} pairs of {split} have escaped characters such as &apos; or \\u00e9",
        "{share} of the pairs were escaped by a tokenizer or a web page; what users type is not.",
        "Use the text from before it was escaped, or undo the escapes on both sides:",
        commands=(TO_REPAIR,),
        care=0.005,
    ),
    "swapped": Kind(
        "{count} pairs of {split} have source and target swapped",
        "In {share} of the pairs the {source} side reads like {target} and the other way round.",
        "If nearly all lines are swapped, give the files in the other order. Otherwise swap the sides of these lines "
        "or leave them out on both sides.",
        commands=(TO_DROP,),
        care=0.003,
        unfit=0.2,
    ),
    "wrong-language": Kind(
        "{count} pairs of {split} have a side in the wrong language",
        "In {share} of the pairs a side reads like the other side's language, or like neither: perhaps it was not "
        "translated.",
        DROP,
        commands=(TO_DROP,),
        care=0.01,  # names and quotations: up to 0.5 % in Hansards
        unfit=0.3,
    ),
    "copies": Kind(
        "{count} pairs of {split} are copies instead of translations",
        "In {share} of the pairs both sides are the same: the model learns to copy.",
        AUTOMATIC + "Find out where they come from: translation tools often fill gaps with the source.",
        care=0.01,
        unfit=0.3,
    ),
    "misaligned": Kind(
        "{count} lines of {split} are misaligned",
        "In {share} of {split} line N of one side does not belong to line N of the other: a line was lost or added.",
        "Where a span begins, insert the missing line or delete the extra one, and check again. Where no shift fits, "
        "leave the lines of the span out on both sides.",
        commands=("paste SOURCE TARGET | sed -n 'AROUND'", TO_DROP),
        care=0.0,
        unfit=0.1,
        min_count=24,
    ),
    "unrelated": Kind(
        "source and target of {split} are unrelated",
        "In {share} of {split} ({count} lines) words and lengths of line N agree no better than those of other lines: "
        "there is nothing to learn.",
        "Check that the two files belong together and that neither was sorted or shuffled alone; get them again from "
        "their origin.",
        care=0.0,
        unfit=0.05,
        min_count=24,
    ),
    "too-few": Kind(
        "only {pairs} to train on",
        "A translator learns words it has seen several times; so few pairs can only be memorised.",
        "Add pairs. Public corpora are listed by:",
        commands=("regard data list",),
        care=0.0,
        min_count=0,
    ),
}
FEW_PAIRS, TOO_FEW_PAIRS = 1000, 50  # of train: "care" and "unfit"

# If the first finding is unfit, the others follow from it and are left out.
EXPLAINS = {
    "unrelated": ("length-ratio", "misaligned", "too-long"),
    "swapped": ("wrong-language", "misaligned", "wrong-script"),
}


def fill_commands(
    commands: Sequence[str], files: Mapping[str, tuple[str, str]], lines: Sequence[int], *, kind: str, split: str
) -> Iterator[str]:
    """Fill in the names of the files and the line numbers; a command with FILE is repeated for both files.

    `files` are the two files of each split; for a split without files there are no commands.
    """
    if split not in files:
        return
    ranges = list(_ranges(lines))
    if len(ranges) > MAX_RANGES:
        commands = [part for x in commands for part in ((TO_LIST, TO_DROP_MANY) if x == TO_DROP else (x,))]
    quoted = {name: [shlex.quote(file) for file in pair] for name, pair in files.items()}
    splits = " ".join(" ".join([f"--{name}"] * (name != "train") + pair) for name, pair in quoted.items())
    around = f"{max(lines[0] - 2, 1)},{lines[0] + 3}p" if lines else ""
    words = {"LINES": ";".join(f"{part}d" for part in ranges), "AROUND": around, "KIND": kind, "SPLIT": split}
    words |= {"SOURCE": quoted[split][0], "TARGET": quoted[split][1], "ALL": splits}
    for command in commands:
        for file in quoted[split] if "FILE" in command else [""]:
            values = {**words, "FILE": file}
            yield re.sub(r"\b[A-Z]+\b", lambda match: values.get(match[0], match[0]), command)  # noqa: B023


def _ranges(lines: Sequence[int]) -> Iterator[str]:
    """Line numbers as ranges of sed: 3, 7, 8, 9 become `3` and `7,9`."""
    for _, run in groupby(enumerate(sorted(lines)), lambda entry: entry[1] - entry[0]):
        numbers = [line for _, line in run]
        yield f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]},{numbers[-1]}"
