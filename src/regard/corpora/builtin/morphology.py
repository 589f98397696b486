"""Morphology of the built-in corpus: English and French inflection, and elision and contraction in French."""

from __future__ import annotations

import re
from typing import NamedTuple

from regard.corpora.builtin import LEXICON

Positions = tuple[int, ...]
Word = tuple[str, Positions]  # a French word and the positions of the English words it translates

ENGLISH_PLURALS: dict[str, str] = LEXICON["english_plurals"]
DOUBLING = frozenset(LEXICON["english_doubling"]["verbs"].split())
ASPIRATED = tuple(LEXICON["aspirated"]["words"].split())
FRENCH_VERBS: dict[str, str] = LEXICON["french_verbs"]
VOWELS_AND_H = frozenset("aeiouyâàéèêëîïôûœAEIOUYÂÀÉÈÊËÎÏÔÛŒhH")

IMPERFECT_ENDINGS = ("ais", "ait", "ions", "iez", "aient")
FUTURE_ENDINGS = ("ai", "a", "ons", "ez", "ont")

ELIDED = {word: word[:-1] + "'" for word in ("le", "la", "de", "que", "ne", "je", "se", "me", "si")}
CONTRACTED = {("de", "le"): "du", ("de", "les"): "des", ("à", "le"): "au", ("à", "les"): "aux"}
CLITICS = frozenset((*ELIDED, "à"))


class Conjugation(NamedTuple):
    """A French verb. Finite forms are indexed by person (je, il, nous, vous, ils), participles like adjectives."""

    infinitive: str
    present: tuple[str, ...]
    imperfect: tuple[str, ...]
    future: tuple[str, ...]
    conditional: tuple[str, ...]
    participle: tuple[str, str, str, str]
    with_etre: bool


# English


def indefinite_article(word: str) -> str:
    """`a` or `an`, by the first sound of an English word."""
    vowel = word[0] in "aeiouAEIOU" and not word.startswith(("uni", "use", "Eur", "one"))
    return "an" if vowel or word.startswith(("honest", "hour")) else "a"


def english_plural(word: str) -> str:
    """The plural of an English noun; the third person singular of an English verb is formed alike."""
    if word in ENGLISH_PLURALS:
        return ENGLISH_PLURALS[word]
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


def english_verb(base: str, irregular: list[str]) -> tuple[str, str, str, str]:
    """Third person, simple past, past participle and gerund; `irregular` has the past and perhaps the participle."""
    stem = base + base[-1] if base in DOUBLING else base
    if irregular:
        past, participle = irregular[0], irregular[-1]
    elif base.endswith("y") and base[-2] not in "aeiou":
        past = participle = base[:-1] + "ied"
    else:
        past = participle = base + "d" if base.endswith("e") else stem + "ed"
    without_e = base[:-1] if base.endswith("e") and base[-2] != "e" else stem
    gerund = "dying" if base == "die" else without_e + "ing"
    return english_plural(base), past, participle, gerund


# French


def french_plural(word: str) -> str:
    """The regular plural of a French noun or masculine adjective."""
    if word.endswith("al"):
        return word[:-1] + "ux"
    return word if word[-1] in "sxz" else word + ("x" if word.endswith(("eau", "jeu")) else "s")


def french_forms(masculine: str, feminine: str = "") -> tuple[str, str, str, str]:
    """Forms of an adjective or participle: masculine, feminine, then their plurals."""
    if not feminine:
        ending = masculine[:-1] + "se" if masculine.endswith("eux") else masculine + "e"
        feminine = masculine if masculine.endswith("e") else ending
    return masculine, feminine, french_plural(masculine), feminine + "s"


def begins_with_vowel(word: str) -> bool:
    """Whether the word before a French word is elided: l'accord, l'homme, but le haricot."""
    return word[0] in VOWELS_AND_H and not word.startswith(ASPIRATED)


def conjugate(infinitive: str, *, with_etre: bool = False) -> Conjugation:
    """The forms of a French verb that the grammar uses, after the longest model that its infinitive ends in."""
    model = max((model for model in FRENCH_VERBS if infinitive.endswith(model)), key=len)
    stem = infinitive.removesuffix(model)
    finite, participle, future, *irregular = FRENCH_VERBS[model].split(", ")
    present = tuple(stem + form for form in finite.split())
    past = stem + irregular[0] if irregular else present[2].removesuffix("ons")
    before_i = re.sub("ge$", "g", past).replace("ç", "c")  # mangeais, but mangions
    return Conjugation(
        infinitive,
        present,
        imperfect=tuple((before_i if e[0] == "i" else past) + e for e in IMPERFECT_ENDINGS),
        future=tuple(stem + future + e for e in FUTURE_ENDINGS),
        conditional=tuple(stem + future + e for e in IMPERFECT_ENDINGS),
        participle=french_forms(stem + participle),
        with_etre=with_etre,
    )


def elide_and_contract(words: list[Word]) -> list[Word]:
    """French words as they are written: elided, contracted, with commas attached to the word before."""
    single = [(word, positions) for text, positions in words for word in text.split()]
    written: list[Word] = []  # from the last word to the first: what happens to a word depends on the next one
    comma = ""
    for word, positions in reversed(single):
        if word == ",":
            comma = ","
            continue
        if word in CLITICS and written and not comma:
            if word == "de" and written[-1][0] == "des":  # de + des is de, which may be elided
                positions += written.pop()[1]
            following, following_positions = written[-1]
            elides = following in ("il", "ils") if word == "si" else word in ELIDED and begins_with_vowel(following)
            joined = ELIDED[word] + following if elides else CONTRACTED.get((word, following))
            if joined:
                written[-1] = (joined, positions + following_positions)
                continue
        written.append((word + comma, positions))
        comma = ""
    return written[::-1]
