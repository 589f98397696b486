"""Lexicon of the built-in corpus: nouns, adjectives, verbs and names with their forms, and which go together."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from regard.corpora.builtin import LEXICON
from regard.corpora.builtin import morphology as forms
from regard.corpora.builtin.morphology import Conjugation, Positions

SINGULAR, PLURAL = 0, 1
GENDERS = {"m": 0, "f": 1, "masculine": 0, "feminine": 1}

Phrase = tuple[tuple[str, ...], tuple[tuple[str, Positions], ...]]
"""English words, and French words with the positions of the English words they translate."""


class Noun(NamedTuple):
    """A noun: English and French forms by number, gender, and the semantic kind that decides what it goes with."""

    english: tuple[str, str]
    french: tuple[str, str]
    gender: int
    kind: str
    countable: bool
    ownable: bool  # may have a possessor


class Adjective(NamedTuple):
    """An adjective. `french` is indexed by gender + 2 · number; `before_vowel` is bel, vieil, nouvel."""

    english: str
    french: tuple[str, str, str, str]
    before_vowel: str
    precedes: bool  # stands before its noun in French
    kinds: tuple[str, ...]


class Verb(NamedTuple):
    """A verb: English forms, French conjugation, and the kinds of nouns it takes; traits as in lexicon.toml."""

    base: str
    third: str
    past: str
    participle: str
    gerund: str
    particle: str  # ` for` in `wait for`
    french: Conjugation
    noun: str  # `besoin` in `avoir besoin de`
    preposition: str  # `de` in `parler de`
    reflexive: bool
    pattern: str
    subjects: tuple[str, ...]
    objects: tuple[str, ...]
    traits: tuple[str, ...]


class Name(NamedTuple):
    """The name of a person, country or institution, with its article if it has one."""

    phrase: Phrase
    gender: int
    number: int
    kind: str


@cache
def kinds_of(names: str) -> tuple[str, ...]:
    """The kinds of nouns that a list of kinds and groups stands for, each once."""
    kinds = dict.fromkeys(kind for name in names.split() for kind in LEXICON["groups"].get(name, name).split())
    assert kinds.keys() <= LEXICON["nouns"].keys(), f"there are no nouns of one of the kinds {names}"
    return tuple(kinds)


PERSONS, PLACES = kinds_of("person"), kinds_of("place")
MASS, OWNED, INDOORS, CONCRETE = (kinds_of(LEXICON["kinds"][name]) for name in ("mass", "owned", "indoors", "concrete"))
UNOWNED, BEFORE_BARE_COUNTRY, SENT = (
    LEXICON["noun_classes"][name].split() for name in ("unowned", "bare_country", "sent")
)
OF: dict[str, str] = LEXICON["of"]
ABOUT: dict[str, str] = LEXICON["about"]
MONTHS: dict[str, str] = LEXICON["months"]
DAYS: dict[str, str] = LEXICON["days"]
NUMBERS: dict[str, str] = LEXICON["numbers"]


def phrase(english: str, french: str) -> Phrase:
    """A fixed expression, with the positions of the English words that each French word translates."""
    english_words, french_words = english.split(), []
    pair_off = len(english_words) == len(french.split())
    for position, marked in enumerate(french.split()):
        word, _, positions = marked.rstrip(">").partition("<")
        default = (position,) if pair_off else tuple(range(len(english_words)))
        french_words.append((word, tuple(map(int, positions.split("+"))) if positions else default))
    return tuple(english_words), tuple(french_words)


def _noun(kind: str, english: str, entry: str) -> Noun:
    french, gender, *plural = entry.split(", ")
    return Noun(
        english=(english, forms.english_plural(english)),
        french=(french, plural[0] if plural else forms.french_plural(french)),
        gender=GENDERS[gender],
        kind=kind,
        countable=kind not in MASS,
        ownable=kind in OWNED and english not in UNOWNED,
    )


def _adjective(place: str, english: str, entry: dict[str, str]) -> Adjective:
    masculine, *others = entry["french"].split()
    french, before_vowel = forms.french_forms(masculine, *others[:1]), others[1] if others[1:] else masculine
    return Adjective(english, french, before_vowel, place == "before_noun", kinds_of(entry["kinds"]))


def _verb(pattern: str, english: str, entry: dict[str, str]) -> Verb:
    base = english.split()[0]
    french = entry["french"].replace("s'", "se ").split()
    reflexive = french[0] == "se"
    infinitive, *after = french[reflexive:]
    traits = tuple(entry.get("traits", "").split())
    return Verb(
        base,
        *forms.english_verb(base, entry.get("past", "").split()),
        particle=english.removeprefix(base),
        french=forms.conjugate(infinitive, with_etre=reflexive or "être" in traits),
        noun=after[0] if len(after) > 1 else "",
        preposition=after[-1] if after else "",
        reflexive=reflexive,
        pattern=pattern,
        subjects=kinds_of(entry["subjects"]),
        objects=kinds_of(entry.get("objects", "")),
        traits=traits,
    )


ALL_NOUNS = tuple(_noun(kind, *entry) for kind, nouns in LEXICON["nouns"].items() for entry in nouns.items())
ALL_ADJECTIVES = tuple(
    _adjective(place, *entry) for place, adjectives in LEXICON["adjectives"].items() for entry in adjectives.items()
)
ALL_VERBS = tuple(_verb(pattern, *entry) for pattern, verbs in LEXICON["verbs"].items() for entry in verbs.items())

# Names


def _countries(feminine: str, masculine: str, english: str = "") -> list[Name]:
    """The countries, after an article or preposition that depends on their gender."""
    return [
        Name(phrase(english + name, f"{before} {french}"), GENDERS[gender], SINGULAR, "institution")
        for gender, before in (("feminine", feminine), ("masculine", masculine))
        for name, french in LEXICON["countries"][gender].items()
    ]


COUNTRIES, BARE_COUNTRIES, IN_COUNTRIES = _countries("la", "le"), _countries("", "le"), _countries("en", "au", "in ")
CITIES = tuple(LEXICON["cities"].items())
FIRST_NAMES = [
    Name(phrase(name, name), GENDERS[gender], SINGULAR, "family")
    for gender, names in LEXICON["first_names"].items()
    for name in names.split()
]
INSTITUTIONS = [
    Name(phrase(english, french), GENDERS[gender], int(french.startswith("les ")), "institution")
    for english, entry in LEXICON["institutions"].items()
    for french, gender in [entry.split(", ")]
]

# Words by what they go with


@cache
def nouns_of(kinds: tuple[str, ...]) -> tuple[Noun, ...]:
    """The nouns of some kinds."""
    return tuple(noun for noun in ALL_NOUNS if noun.kind in kinds)


def about(noun: Noun) -> str:
    """The preposition before what the noun is about; "" if it is about nothing."""
    return ABOUT.get(noun.english[0]) or ABOUT.get(noun.kind, "")


@cache
def attributed(kinds: tuple[str, ...]) -> tuple[Noun, ...]:
    """The nouns of some kinds that can have an attribute after `of`, `on` or `about`."""
    return tuple(noun for noun in nouns_of(kinds) if noun.english[0] in OF or about(noun))


@cache
def verbs_of(pattern: str, subject: str) -> tuple[Verb, ...]:
    """The verbs of a pattern that go with a subject of this kind."""
    return tuple(verb for verb in VERBS[pattern] if subject in verb.subjects)


@cache
def verbs_with_object(kind: str) -> tuple[Verb, ...]:
    """The verbs whose object may become a relative pronoun: `that the teacher bought`, `dont le professeur parle`."""
    return tuple(v for v in VERBS["transitive"] if kind in v.objects and v.preposition in ("", "de"))


def _adjectives(accept: Callable[[Adjective], bool]) -> dict[str, tuple[Adjective, ...]]:
    """By the kind of a noun, the adjectives that go with it."""
    return {kind: tuple(a for a in ALL_ADJECTIVES if kind in a.kinds and accept(a)) for kind in LEXICON["nouns"]}


NOT_GRADABLE, RELATIONAL, COLOURS = (
    LEXICON["adjective_classes"][name].split() for name in ("not_gradable", "relational", "colour")
)
ADJECTIVES_BEFORE = _adjectives(lambda adjective: adjective.precedes)
ADJECTIVES_AFTER = _adjectives(lambda adjective: not adjective.precedes)
PREDICATIVE = _adjectives(lambda adjective: adjective.english not in RELATIONAL)
GRADABLE = _adjectives(lambda adjective: adjective.english not in NOT_GRADABLE)
CONTRADICTIONS = {a.english: {a.english, *(COLOURS if a.english in COLOURS else ())} for a in ALL_ADJECTIVES}
for first, second in (pair.split("/") for pair in LEXICON["adjective_classes"]["contradictory"].split()):
    CONTRADICTIONS[first].add(second)
    CONTRADICTIONS.setdefault(second, set()).add(first)

VERBS = {pattern: tuple(v for v in ALL_VERBS if v.pattern == pattern) for pattern in LEXICON["verbs"]}
VERBS["passive"] = tuple(
    verb._replace(pattern="passive", subjects=verb.objects, objects=verb.subjects)
    for verb in VERBS["transitive"]
    if "passive" in verb.traits
)
