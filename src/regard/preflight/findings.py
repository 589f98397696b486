"""Findings: for each kind the share of pairs from which it is reported, what it does to a model, and how to fix it."""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True)
class Kind:
    """The texts of one kind of finding, and the shares of pairs from which it is reported."""

    title: str
    explanation: str
    fix: str
    care: float
    unfit: float = 2.0  # never
    min_count: int = 3  # one odd line is no finding

    def severity(self, count: int, share: float) -> Severity | None:
        """The severity for this many pairs; None if ordinary text has as many."""
        if count < self.min_count or share < self.care:
            return None
        return "unfit" if share >= self.unfit else "care"


DROP = (
    "Leave these lines out on both sides: `regard check ... --json` names them (`lines`). With their numbers in LINES: "
    "`awk 'NR==FNR {{bad[$1]; next}} !(FNR in bad)' LINES FILE > FILE.clean`, once for each side."
)
AUTOMATIC = "`regard train` leaves them out and reports how many (`text.cleaning`). "
HOLD_OUT = (
    "Let `regard train SOURCE TARGET --out FOLDER` hold out a leak-free part (no `--valid`), or remove these pairs "
    "from {split}: `regard check ... --json` names their lines."
)
REPAIR = (
    '`python -c "import sys; from regard.text.scripts import repair; '
    'sys.stdout.writelines(repair(line.rstrip(chr(10))) + chr(10) for line in sys.stdin)" < FILE > FILE.mended`.'
)
INCOMPLETE = (
    " `lines` names {named} of the {count} (`lines_complete` is false): fix these and check again, until none is left."
)

# "care" starts above what well-kept corpora have (measured on Multi30k, Tatoeba, IWSLT and Hansards) and below what is
# known to hurt. "unfit" is for problems that make a score meaningless or that the model learns to imitate.
KINDS = {
    "leakage": Kind(
        "{count} pairs of {split} are also in train",
        "{share} of {split} can be memorised in training, so scores on it are too high.",
        HOLD_OUT,
        care=0.005,  # Multi30k: 0.1 % by chance
        unfit=0.1,  # a tenth of the set decides a score
    ),
    "source-leakage": Kind(
        "{count} {source} lines of {split} are also in train, with another translation",
        "The model has seen a translation of {share} of the {split} sources; scores on them are too high.",
        HOLD_OUT,
        care=0.02,  # short everyday sentences meet by chance: up to 0.1 % measured
        unfit=0.5,
    ),
    "target-leakage": Kind(
        "{count} {target} lines of {split} are also in train, for another source",
        "The model has learned to write {share} of the {split} targets word for word.",
        HOLD_OUT,
        care=0.02,
        unfit=0.5,
    ),
    "near-leakage": Kind(
        "{count} pairs of {split} are near-duplicates of pairs in train",
        "{share} of {split} differs from a train pair by a word or a comma (both sides share {near} of their character "
        "4-grams), so scores on it are too high.",
        HOLD_OUT,
        care=0.04,  # Tatoeba's everyday sentences: 2 %
    ),
    "duplicates": Kind(
        "{count} pairs of {split} are duplicates",
        "{share} of the pairs repeat an earlier one: the model sees them more often than the rest and overfits them.",
        AUTOMATIC + "To make the files smaller: `paste SOURCE TARGET | awk '!seen[$0]++' > unique.tsv`.",
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
    "lengths-differ": Kind(
        "{split} has sentences of another length than train",
        "The median length differs by more than a factor of two, so {split} measures what train does not teach.",
        "Take {split} from the same text as train: without `--valid`, `regard train` holds out a part of it.",
        care=0.5,
    ),
    "empty": Kind(
        "{count} pairs of {split} have an empty side",
        "{share} of the pairs are empty on one side or both; where one side is empty, lines may have shifted.",
        AUTOMATIC + "Look at the lines around them first: a file whose lines have shifted must be aligned again.",
        care=0.001,
        unfit=0.3,
    ),
    "unseen-characters": Kind(
        "{count} pairs of {split} have characters that train does not have",
        "{share} of {split} has characters the model cannot have learned.",
        "Write both splits the same way (quotes, case, accents, normalisation), or add text with these characters to "
        "train.",
        care=0.02,  # rare names bring rare letters
    ),
    "wrong-script": Kind(
        "{count} pairs of {split} are written in another script than train",
        "{share} of the pairs have a side whose letters do not belong to its language.",
        AUTOMATIC + DROP,
        care=0.003,
        unfit=0.3,
    ),
    "unreadable": Kind(
        "{count} lines of {split} cannot be read",
        "`regard train` stops at the first of them.",
        "Convert the file to UTF-8; the encoding named with a line is a guess: `iconv -f ENCODING -t UTF-8 FILE > "
        "FILE.utf8`. A few odd lines can be left out instead. " + DROP,
        care=0.0,
        unfit=0.0,
        min_count=1,
    ),
    "mojibake": Kind(
        "{count} pairs of {split} were read in the wrong encoding",
        "In {share} of the pairs UTF-8 was read as Latin-1 (Ã© for é): the model learns to write this.",
        "Read the original again as UTF-8 (a second `iconv` from Windows-1252 would do the damage again). If only the "
        "damaged file is left: " + REPAIR,
        care=0.001,
        unfit=0.1,
    ),
    "normalisation": Kind(
        "{count} pairs of {split} have decomposed accents",
        "In {share} of the pairs a side is in Unicode form NFD (e and ´ for é). It looks the same, but the model sees "
        "other words, and users type NFC.",
        'Write both files in NFC: `uconv -x any-nfc FILE > FILE.nfc`, or without it `python -c "import sys, '
        "unicodedata; sys.stdout.writelines(unicodedata.normalize('NFC', line) for line in sys.stdin)\" < FILE > "
        "FILE.nfc`.",
        care=0.005,
    ),
    "control-characters": Kind(
        "{count} pairs of {split} have control or replacement characters",
        "{share} of the pairs have characters that no sentence has: controls, private use, or U+FFFD for a lost one.",
        AUTOMATIC + "Read the original again in its true encoding (`iconv -f WINDOWS-1252 -t UTF-8 FILE`). If only the "
        "damaged file is left: " + REPAIR,
        care=0.001,
        unfit=0.1,
    ),
    "double-escapes": Kind(
        "{count} pairs of {split} were escaped twice",
        "In {share} of the pairs characters are written as `&amp;#39;`, `\\u00e9` or `%C3%A9`; the model learns this.",
        "Undo the escapes: " + REPAIR,
        care=0.001,
        unfit=0.3,
    ),
    "escapes": Kind(
        "{count} pairs of {split} have escaped characters such as &apos;",
        "{share} of the pairs were escaped by a tokenizer or a web page; what users type is not.",
        "Take the untokenised text if there is one, else undo the escapes on both sides: " + REPAIR,
        care=0.005,
    ),
    "swapped": Kind(
        "{count} pairs of {split} have source and target swapped",
        "In {share} of the pairs the {source} side reads like {target} and the other way round.",
        "Swap the sides of these lines back, or leave them out. " + DROP,
        care=0.003,
        unfit=0.2,
    ),
    "swapped-split": Kind(
        "{split} has its files in the wrong order",
        "The first file of {split} is in the language of train's second: scores on it mean nothing.",
        "Name the files of {split} in the other order: `--{split} TARGET SOURCE`.",
        care=0.0,
        unfit=0.0,
    ),
    "wrong-language": Kind(
        "{count} pairs of {split} have a side in the wrong language",
        "In {share} of the pairs a side reads like the other side's language, or like neither: perhaps it was not "
        "translated.",
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
        "{count} lines of {split} stand beside the wrong translation",
        "In {share} of {split} line N of one side does not belong to line N of the other: a line was lost or added.",
        "Where a span begins, insert the missing line or delete the extra one (`sed -i 'Nd' FILE`) and check again. "
        "Where no shift fits, delete the span from both files: `sed -i 'FIRST,LASTd' SOURCE TARGET`.",
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
    "constant-side": Kind(
        "{count} pairs of {split} have the same line on one side",
        "{share} of the pairs share one line: the model learns to write it for every input.",
        "Check that the right file was given and that its columns are complete.",
        care=0.1,
        unfit=0.5,
        min_count=10,
    ),
    "too-few": Kind(
        "only {count} pairs to train on",
        "A translator learns words it has seen several times; so few pairs can only be memorised.",
        "Add pairs: `regard data list` names public corpora.",
        care=0.0,
        min_count=0,
    ),
}
FEW_PAIRS, TOO_FEW_PAIRS = 1000, 50  # of train: "care" and "unfit"

# A problem is reported once: findings that follow from another one of the same split are left out.
EXPLAINS = {
    "unrelated": ("length-ratio", "misaligned", "too-long"),
    "constant-side": ("length-ratio", "misaligned", "duplicates", "wrong-language", "source-leakage", "target-leakage"),
    "swapped-split": ("wrong-language", "misaligned", "unseen-characters", "lengths-differ", "wrong-script"),
    "wrong-script": ("unseen-characters",),
    "empty": ("length-ratio",),
}
