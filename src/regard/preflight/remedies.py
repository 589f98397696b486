"""Remedies: for each kind of finding, from where on it matters, what it does to a model, and the step that mends it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Remedy:
    """What is said about one kind of finding, and the shares of pairs from which it is said."""

    title: str
    explanation: str
    fix: str
    care: float  # share of pairs
    unfit: float = 2.0  # never, unless told
    least: int = 3  # pairs: one odd line is no finding
    counts: bool = False  # care and unfit are numbers of pairs, and fewer is worse

    def severity(self, count: int, share: float, *, split: str) -> Literal["care", "unfit"] | None:
        """How serious this much of it is; None: ordinary."""
        if self.counts:
            if split != "train":
                return None
            return "unfit" if count < self.unfit else "care" if count < self.care else None
        if count < self.least or share < self.care:
            return None
        return "unfit" if share >= self.unfit else "care"


DROP = (
    "Leave these lines out on both sides: `regard check ... --json` names them (`lines`). With their numbers in LINES: "
    "`awk 'NR==FNR {{bad[$1]; next}} !(FNR in bad)' LINES FILE > FILE.clean`, once for each side."
)
BY_ITSELF = "`regard train` leaves them out by itself and says how many (`text.cleaning`). "
UNIQUE = "To make the files smaller: `paste SOURCE TARGET | awk '!seen[$0]++' > once.tsv`."
HOLD_OUT = (
    "Let `regard train SOURCE TARGET --out FOLDER` hold out a leak-free part by itself (no `--valid`), "
    "or take these pairs "
    "out of {split}: `regard check ... --json` names their lines."
)
MEND = (
    '`python -c "import sys; from regard.text.scripts import repair; '
    'sys.stdout.writelines(repair(line.rstrip(chr(10))) + chr(10) for line in sys.stdin)" < FILE > FILE.mended`.'
)
PARTIAL = (
    " `lines` names {named} of the {count} (`lines_complete` is false): mend these and check again, until none is left."
)
READ_AS_UTF8 = (
    "Read the original again as UTF-8, which it is (a second `iconv` from Windows-1252 would do the damage again). "
    "If only the damaged file is left: " + MEND
)
COMPOSE = (
    "Write both files the same way: `uconv -x any-nfc FILE > FILE.nfc`, or without it "
    "`python -c \"import sys, unicodedata; sys.stdout.writelines(unicodedata.normalize('NFC', line) "
    'for line in sys.stdin)" < FILE > FILE.nfc`.'
)
DECODE = (
    "Read the original again in its true encoding (`iconv -f WINDOWS-1252 -t UTF-8 FILE`). "
    "If only the damaged file is left: " + MEND
)

# Thresholds lie above what well-kept corpora have (Multi30k, Tatoeba, IWSLT and Hansards were measured) and below what
# is known to hurt. "unfit" is for what makes a score meaningless or a model learn the fault itself.
KINDS = {
    "leakage": Remedy(
        "{count} pairs of {split} are also in train",
        "{share} of {split} can be learned by heart, so scores on it promise more than the model can do.",
        HOLD_OUT,
        care=0.005,  # Multi30k: 0.1 % by chance
        unfit=0.1,  # a tenth of the set decides a score by itself
    ),
    "source-leakage": Remedy(
        "{count} {source} lines of {split} are also in train, with another translation",
        "The model has seen {share} of the {split} sources with an answer; scores on them are too good.",
        HOLD_OUT,
        care=0.02,  # short everyday sentences meet by chance: up to 0.1 % measured
        unfit=0.5,
    ),
    "target-leakage": Remedy(
        "{count} {target} lines of {split} are also in train, for another source",
        "The model has learned to write {share} of the {split} targets word for word.",
        HOLD_OUT,
        care=0.02,
        unfit=0.5,
    ),
    "near-leakage": Remedy(
        "{count} pairs of {split} are almost in train",
        "{share} of {split} differs from a train pair by a word or a comma (on both sides {near} of all "
        "four-letter pieces "
        "are the same), so scores on it are too good.",
        HOLD_OUT,
        care=0.04,  # Tatoeba's everyday sentences: 2 %
    ),
    "duplicates": Remedy(
        "{count} pairs of {split} repeat an earlier one",
        "{share} of the pairs are repeats: the model sees them more often than the rest and leans towards them.",
        BY_ITSELF + UNIQUE,
        care=0.03,  # a few greetings and headings repeat in any text
        unfit=0.8,  # hardly anything is left to learn from
    ),
    "length-ratio": Remedy(
        "{count} pairs of {split} have lengths that do not fit each other",
        "In {share} of the pairs one side is far longer than its partner says: cut off, padded, or not a translation.",
        "`regard train` leaves the worst out by itself (`text.max_length_ratio`). " + DROP,
        care=0.01,  # free translations: up to 0.4 % in Hansards
        unfit=0.3,
    ),
    "too-long": Remedy(
        "{count} pairs of {split} are far too long",
        "{share} of the pairs are longer than a sentence (200 words or 1,500 characters) and cost memory for little.",
        BY_ITSELF + "To keep what they say, split the text into sentences before aligning it.",
        care=0.005,
    ),
    "lengths-differ": Remedy(
        "{split} has sentences of another length than train",
        "The middle length differs by more than a factor of two, so {split} measures what train does not teach.",
        "Draw {split} from the same text as train: without `--valid`, `regard train` holds out a part of its own.",
        care=0.5,
    ),
    "empty": Remedy(
        "{count} pairs of {split} have an empty side",
        "{share} of the pairs have nothing on one side or both; where one side is empty, lines may have slipped.",
        BY_ITSELF + "Look at the lines around them first: a file that slipped must be aligned again.",
        care=0.001,
        unfit=0.3,
    ),
    "unseen-characters": Remedy(
        "{count} pairs of {split} have characters that train never shows",
        "{share} of {split} holds characters the model cannot have learned, so it will spell them badly or not at all.",
        "Write both splits the same way (quotes, case, accents, normalisation), or add text with these "
        "characters to train.",
        care=0.02,  # rare names bring rare letters
    ),
    "unseen-script": Remedy(
        "{count} lines of {split} are in a script that train never shows",
        "{share} of {split} is written in letters that the model never learned.",
        "Check that {split} is the right file; else leave these lines out or add such text to train.",
        care=0.005,
        unfit=0.5,
    ),
    "wrong-script": Remedy(
        "{count} pairs of {split} are written in another script than the rest",
        "{share} of the pairs have a side whose letters do not belong to its language.",
        BY_ITSELF + DROP,
        care=0.003,
        unfit=0.3,
    ),
    "mojibake": Remedy(
        "{count} pairs of {split} were read in the wrong encoding",
        "In {share} of the pairs UTF-8 was read as Latin-1 (Ã© for é): the model learns to write the damage.",
        READ_AS_UTF8,
        care=0.001,
        unfit=0.1,
    ),
    "normalisation": Remedy(
        "{count} pairs of {split} write accented letters in two pieces",
        "In {share} of the pairs a side is decomposed (NFD: e and ´ for é). It looks the same, but is other words to "
        "the model, and not what users type.",
        COMPOSE,
        care=0.005,
    ),
    "control-characters": Remedy(
        "{count} pairs of {split} hold control or lost characters",
        "{share} of the pairs have characters that no sentence has: controls, private ones, or U+FFFD for a lost one.",
        BY_ITSELF + DECODE,
        care=0.001,
        unfit=0.1,
    ),
    "double-escapes": Remedy(
        "{count} pairs of {split} were escaped twice",
        "In {share} of the pairs signs are written as `&amp;#39;`, `\\u00e9` or `%C3%A9`; the model will do so too.",
        "Undo the escapes: " + MEND,
        care=0.001,
        unfit=0.3,
    ),
    "escapes": Remedy(
        "{count} pairs of {split} hold escaped signs such as &apos;",
        "{share} of the pairs were escaped by a tokenizer or a web page; what users type is not.",
        "Take the untokenised text if there is one, else undo the escapes on both sides: " + MEND,
        care=0.005,
    ),
    "swapped": Remedy(
        "{count} pairs of {split} have their sides swapped",
        "In {share} of the pairs the {source} side reads like {target} and the other way round.",
        "Swap the sides of these lines back, or do without them. " + DROP,
        care=0.003,
        unfit=0.2,
    ),
    "swapped-split": Remedy(
        "{split} is the other way round",
        "The first file of {split} is in the language of train's second: whatever is measured on it means nothing.",
        "Name the files of {split} in the other order: `--{split} TARGET SOURCE`.",
        care=0.0,
        unfit=0.0,
    ),
    "wrong-language": Remedy(
        "{count} pairs of {split} have a side in the wrong language",
        "In {share} of the pairs a side reads like the other side's language, or like neither: not "
        "translated, perhaps.",
        DROP,
        care=0.01,  # names and quotations: up to 0.5 % in Hansards
        unfit=0.3,
    ),
    "copies": Remedy(
        "{count} pairs of {split} are copies instead of translations",
        "In {share} of the pairs both sides are the same: the model learns to copy.",
        BY_ITSELF + "Ask where they come from: often a translator's tool fills gaps with the source.",
        care=0.01,
        unfit=0.3,
    ),
    "misaligned": Remedy(
        "{count} lines of {split} stand beside the wrong translation",
        "In {share} of {split} line N of one side does not belong to line N of the other: a line was lost or added.",
        "Where a stretch begins, put the missing line in or take the extra one out (`sed -i 'Nd' FILE`) and "
        "check again. "
        "Where nothing fits, leave the stretch out of both files: `sed -i 'FIRST,LASTd' SOURCE TARGET`.",
        care=0.0,
        unfit=0.1,
        least=24,
    ),
    "unrelated": Remedy(
        "the sides of {split} have nothing to do with each other",
        "In {share} of {split} ({count} lines) words, lengths and numbers of line N agree no better than those of "
        "lines far apart: there is nothing to translate.",
        "Check that the two files belong together and that neither was sorted or shuffled by itself; take them again "
        "from where they come from.",
        care=0.0,
        unfit=0.05,
        least=24,
    ),
    "constant-side": Remedy(
        "the same line stands in {count} pairs of {split}",
        "{share} of the pairs have one and the same line on a side: the model learns to say it whatever comes in.",
        "Check that the right file was given and that its columns are whole.",
        care=0.1,
        unfit=0.5,
        least=10,
    ),
    "too-few": Remedy(
        "only {count} pairs to train on",
        "A translator learns words it has met a few times; with so few pairs it can only learn these by heart.",
        "Add pairs: `regard data list` names public corpora.",
        care=1000,
        unfit=50,
        counts=True,
    ),
}

# A fault is told once: what follows from it in the same split is left out.
EXPLAINS = {
    "unrelated": ("length-ratio", "misaligned", "too-long"),
    "constant-side": ("length-ratio", "misaligned", "duplicates", "wrong-language", "source-leakage", "target-leakage"),
    "swapped-split": (
        "wrong-language",
        "misaligned",
        "unseen-characters",
        "lengths-differ",
        "unseen-script",
        "wrong-script",
    ),
    "unseen-script": ("unseen-characters",),
    "empty": ("length-ratio",),
}
