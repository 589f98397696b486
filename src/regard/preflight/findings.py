"""Findings: for each kind of problem, from which share of pairs it is reported, its effect on a model, and its fix."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, NamedTuple


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
    severity: Literal["care", "unfit"]
    count: int
    share: float
    title: str
    explanation: str
    fix: str
    examples: tuple[Example, ...]
    lines: dict[str, list[int]]  # line numbers by file of the affected pairs, up to a limit
    lines_complete: bool = True  # whether `lines` has all of them
    commands: tuple[str, ...] = ()  # shell commands that fix it, with the names of the files


TO_DROP = "sed 'LINES' FILE > FILE.clean"
TO_REPAIR = (
    'python -c "import sys; from regard.text.scripts import repair; '
    'sys.stdout.writelines(repair(line.rstrip(chr(10))) + chr(10) for line in sys.stdin)" < FILE > FILE.fixed'
)
DROP = "Leave these lines out on both sides; `--json` lists them. "
AUTOMATIC = "`regard train` leaves them out and reports how many (`text.cleaning`). "
HOLD_OUT = "Let `regard train` hold out a leak-free part (no `--valid`), or leave these lines out of {split}. "
REPAIR = "Get the original text again and read it in its actual encoding. If only the damaged file is left, repair it. "
INCOMPLETE = " Only {named} of the {count} lines are known: fix these and check again, until none is left."
MAX_RANGES = 20  # of line numbers in one command; a longer command is left out


@dataclass(frozen=True)
class Kind:
    """The texts of one kind of finding, and the shares of pairs from which it is reported.

    In commands SOURCE and TARGET stand for the files of the split, FILE for each of them in turn.
    """

    title: str
    explanation: str
    fix: str
    care: float = 0.0
    unfit: float = 2.0  # never
    min_count: int = 3  # one odd line is no finding
    commands: tuple[str, ...] = (TO_DROP,)


# "care" starts above what well-kept corpora have (measured on Multi30k, Tatoeba, IWSLT and Hansards) and below what is
# known to hurt. "unfit" is for problems that make a score meaningless or that the model learns to imitate.
KINDS = {
    "leakage": Kind(
        "{count} pairs of {split} are also in train",
        "{share} of {split} can be memorised in training, so scores are too high. Case and punctuation are ignored.",
        HOLD_OUT,
        care=0.005,  # Multi30k: 0.1 % by chance
        unfit=0.1,  # a tenth of the set decides a score
    ),
    "source-leakage": Kind(
        "{count} {source} lines of {split} are also in train, with another translation",
        "The model has seen a translation of {share} of the {split} sources; scores on them are too high.",
        HOLD_OUT,
        care=0.02,  # short everyday sentences coincide: up to 0.1 % measured
        unfit=0.5,
    ),
    "target-leakage": Kind(
        "{count} {target} lines of {split} are also in train, for another source",
        "The model has learned to write {share} of the {split} targets word for word.",
        HOLD_OUT,
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
        care=0.003,
        unfit=0.3,
    ),
    "unreadable": Kind(
        "{lines} of {split} cannot be read",
        "`regard train` stops at the first of them.",
        "Convert it (`iconv -f ENCODING -t UTF-8 FILE > FILE.utf8`; the named encoding is a guess) or drop lines.",
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
        "If nearly all lines are swapped, give the files in the other order. Otherwise swap or leave out these lines.",
        care=0.003,
        unfit=0.2,
    ),
    "wrong-language": Kind(
        "{count} pairs of {split} have a side in the wrong language",
        "In {share} of the pairs a side reads like the other language or a third one: perhaps it was not translated.",
        DROP,
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
        "Where a span begins, insert the missing line or delete the extra one. If no shift fits, leave the span out.",
        unfit=0.1,
        min_count=24,
    ),
    "unrelated": Kind(
        "source and target of {split} are unrelated",
        "In {share} of {split} words and lengths of line N agree no better than those of other lines.",
        "Get the files again from their origin: they do not belong together, or one was sorted or shuffled alone.",
        commands=(),
        unfit=0.05,
        min_count=24,
    ),
    "too-few": Kind(
        "only {pairs} to train on",
        "A translator learns words it has seen several times; so few pairs can only be memorised.",
        "Add pairs; `regard data list` names public corpora.",
        commands=(),
        min_count=0,
    ),
}
FEW_PAIRS, TOO_FEW_PAIRS = 1000, 50  # of train: "care" and "unfit"

# If the first finding is unfit, the others follow from it and are left out.
EXPLAINS = {
    "unrelated": ("length-ratio", "misaligned", "too-long"),
    "swapped": ("wrong-language", "misaligned", "wrong-script"),
}


def percent(share: float) -> str:
    """A share in percent."""
    return f"{share:.0%}" if share >= 0.1 else f"{share:.1%}" if share >= 0.001 else "under 0.1%"


def fill_commands(commands: Sequence[str], files: tuple[str, str], lines: Sequence[int]) -> Iterator[str]:
    """Fill in the names of the two files and the sorted line numbers; FILE repeats a command for both files."""
    ranges = []  # of sed: 3, 7, 8, 9 become `3d` and `7,9d`
    for _, run in groupby(enumerate(lines), lambda entry: entry[1] - entry[0]):
        numbers = [line for _, line in run]
        ranges.append(f"{numbers[0]}d" if len(numbers) == 1 else f"{numbers[0]},{numbers[-1]}d")
    source, target = map(shlex.quote, files)
    for command in commands:
        if "LINES" in command and len(ranges) > MAX_RANGES:
            continue
        for file in (source, target) if "FILE" in command else ("",):
            words = {"LINES": ";".join(ranges), "SOURCE": source, "TARGET": target, "FILE": file}
            yield re.sub("|".join(words), lambda match: words[match[0]], command)  # noqa: B023
