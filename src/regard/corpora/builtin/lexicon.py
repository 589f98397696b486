"""Lexicon of the built-in corpus: nouns, adjectives, verbs and names with their forms, and which go together."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from regard.corpora.builtin import LEXICON
from regard.corpora.builtin.morphology import (
    Conjugation,
    Positions,
    conjugate,
    english_plural,
    english_verb,
    french_forms,
    french_plural,
)
from regard.errors import DataError, did_you_mean

LONGEST_SENTENCE = 80  # English words
SINGULAR, PLURAL = 0, 1
GENDERS = {"m": 0, "f": 1, "masculine": 0, "feminine": 1}

Phrase = tuple[tuple[str, ...], tuple[tuple[str, Positions], ...]]


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
    comparative: str
    superlative: str
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
    extra_words: int  # beyond the shortest form: the particle, and an auxiliary that tells `read` from `read`
    most_words: int  # of a predicate with the verb: `leave` takes a time, but no place
    french: Conjugation
    noun: str  # `besoin` in `avoir besoin de`
    preposition: str  # `de` in `parler de`
    reflexive: bool
    pattern: str
    subjects: tuple[str, ...]
    objects: tuple[str, ...]
    traits: tuple[str, ...]
    stative: bool

    @property
    def distinct_past(self) -> bool:
        """Whether the simple past differs from the base and is a passé composé in French."""
        return not self.stative and self.base != self.past


class Name(NamedTuple):
    """The name of a person, country or institution, with its article if it has one."""

    phrase: Phrase
    gender: int
    number: int
    kind: str


# Kinds of nouns


@cache
def kinds_of(names: str) -> tuple[str, ...]:
    """The kinds of nouns that a list of kinds and groups stands for, each once."""
    kinds = dict.fromkeys(kind for name in names.split() for kind in LEXICON["groups"].get(name, name).split())
    for kind in kinds:
        if kind not in LEXICON["nouns"]:
            known = [*LEXICON["groups"], *LEXICON["nouns"]]
            raise DataError(f"The word lists have no kind of noun {kind}.{did_you_mean(kind, known)}")
    return tuple(kinds)


KINDS: tuple[str, ...] = tuple(LEXICON["nouns"])
PERSONS, PLACES, LIVING = kinds_of("person"), kinds_of("place"), kinds_of("living")
MASS, OWNED, INDOORS, CONCRETE, EXISTENTIAL = (
    kinds_of(LEXICON["kinds"][name]) for name in ("mass", "owned", "indoors", "concrete", "existential")
)
UNOWNED, BEFORE_BARE_COUNTRY, SENT = (
    frozenset(LEXICON["noun_classes"][name].split()) for name in ("unowned", "bare_country", "sent")
)
OF: dict[str, str] = LEXICON["of"]
ABOUT: dict[str, str] = LEXICON["about"]


@cache
def has_person(kinds: tuple[str, ...]) -> bool:
    """Whether persons are among the kinds."""
    return not set(kinds).isdisjoint(PERSONS)


# Reading


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
        english=(english, english_plural(english)),
        french=(french, plural[0] if plural else french_plural(french)),
        gender=GENDERS[gender],
        kind=kind,
        countable=kind not in MASS,
        ownable=kind in OWNED and english not in UNOWNED,
    )


def _adjective(place: str, english: str, entry: dict[str, str]) -> Adjective:
    french = entry["french"].split()
    comparative, superlative = entry["degrees"].split() if "degrees" in entry else ("", "")
    before_vowel = french[2] if len(french) > 2 else french[0]
    forms, kinds = french_forms(*french[:2]), kinds_of(entry["kinds"])
    return Adjective(english, comparative, superlative, forms, before_vowel, place == "before_noun", kinds)


def _verb(pattern: str, english: str, entry: dict[str, str]) -> Verb:
    base, *particle = english.split()
    forms = english_verb(base, entry.get("past", "").split())
    french = entry["french"].replace("s'", "se ").split()
    reflexive = french[0] == "se"
    infinitive, *after = french[reflexive:]
    traits = tuple(entry.get("traits", "").split())
    return Verb(
        base,
        *forms,
        particle=english.removeprefix(base),
        extra_words=len(particle) + 2 * (base == forms[1]),
        most_words=3 if pattern == "intransitive" and "no_place" in traits else LONGEST_SENTENCE,
        french=conjugate(infinitive, with_etre=reflexive or "être" in traits),
        noun=after[0] if len(after) > 1 else "",
        preposition=after[-1] if after else "",
        reflexive=reflexive,
        pattern=pattern,
        subjects=kinds_of(entry["subjects"]),
        objects=kinds_of(entry.get("objects", "")),
        traits=traits,
        stative="stative" in traits,
    )


ALL_NOUNS = tuple(_noun(kind, *entry) for kind, nouns in LEXICON["nouns"].items() for entry in nouns.items())
ALL_ADJECTIVES = tuple(
    _adjective(place, *entry) for place, adjectives in LEXICON["adjectives"].items() for entry in adjectives.items()
)
ALL_VERBS = tuple(_verb(pattern, *entry) for pattern, verbs in LEXICON["verbs"].items() for entry in verbs.items())
MONTHS: dict[str, str] = LEXICON["months"]
DAYS: dict[str, str] = LEXICON["days"]
NUMBERS: dict[str, str] = LEXICON["numbers"]
MANNER_ADVERBS: dict[str, dict[str, str]] = LEXICON["manner_adverbs"]

# Names

CITIES = tuple(LEXICON["cities"].items())
FIRST_NAMES = tuple(
    Name(phrase(name, name), GENDERS[gender], SINGULAR, "family")
    for gender, names in LEXICON["first_names"].items()
    for name in names.split()
)
COUNTRIES, BARE_COUNTRIES = (
    tuple(
        Name(phrase(english, articles[gender] + french), GENDERS[gender], SINGULAR, "institution")
        for gender, countries in LEXICON["countries"].items()
        for english, french in countries.items()
    )
    for articles in ({"feminine": "la ", "masculine": "le "}, {"feminine": "", "masculine": "le "})
)
IN_COUNTRIES = tuple(
    phrase(f"in {english}", f"{'en' if gender == 'feminine' else 'au'} {french}")
    for gender, countries in LEXICON["countries"].items()
    for english, french in countries.items()
)
INSTITUTIONS: dict[int, list[Name]] = {}  # by the number of English words
for english, entry in LEXICON["institutions"].items():
    french, gender = entry.split(", ")
    number = PLURAL if french.startswith("les ") else SINGULAR
    name = Name(phrase(english, french), GENDERS[gender], number, "institution")
    INSTITUTIONS.setdefault(len(english.split()), []).append(name)

# Nouns and adjectives by kind


@cache
def nouns_of(kinds: tuple[str, ...]) -> tuple[Noun, ...]:
    """The nouns of some kinds."""
    return tuple(noun for noun in ALL_NOUNS if noun.kind in kinds)


def _adjectives(accept: Callable[[Adjective], bool]) -> dict[str, tuple[Adjective, ...]]:
    return {kind: tuple(a for a in ALL_ADJECTIVES if kind in a.kinds and accept(a)) for kind in KINDS}


NOT_GRADABLE, RELATIONAL, SINGLE, MOODS, COLOURS = (
    frozenset(LEXICON["adjective_classes"][name].split())
    for name in ("not_gradable", "relational", "single", "mood", "colour")
)
SET_PHRASES = frozenset(tuple(pair.split("/")) for pair in LEXICON["adjective_classes"]["set_phrases"].split())
ADJECTIVES = _adjectives(lambda adjective: True)
ADJECTIVES_BEFORE = _adjectives(lambda adjective: adjective.precedes)
ADJECTIVES_AFTER = _adjectives(lambda adjective: not adjective.precedes)
FIRST_OF_TWO = _adjectives(lambda adjective: adjective.precedes and adjective.english not in SINGLE)
PREDICATIVE = _adjectives(lambda adjective: adjective.english not in RELATIONAL)
GRADABLE = _adjectives(lambda adjective: adjective.english not in NOT_GRADABLE)
CONTRADICTIONS = {a.english: {a.english} | (COLOURS if a.english in COLOURS else set()) for a in ALL_ADJECTIVES}
for first, second in (pair.split("/") for pair in LEXICON["adjective_classes"]["contradictory"].split()):
    CONTRADICTIONS[first].add(second)
    CONTRADICTIONS[second].add(first)

# Verbs by pattern and by the kind of their subject

VERBS = {pattern: tuple(v for v in ALL_VERBS if v.pattern == pattern) for pattern in LEXICON["verbs"]}
VERBS_BY_SUBJECT = {(p, kind): tuple(v for v in VERBS[p] if kind in v.subjects) for p in VERBS for kind in KINDS}
VOLUNTARY_VERBS = {
    key: tuple(v for v in verbs if "involuntary" not in v.traits) for key, verbs in VERBS_BY_SUBJECT.items()
}
VERBS["passive"] = tuple(verb for verb in VERBS["transitive"] if "passive" in verb.traits)
VERBS_BY_SUBJECT |= {("passive", kind): tuple(v for v in VERBS["passive"] if kind in v.objects) for kind in KINDS}
HABITUAL_VERBS = {
    kind: tuple(v for v in VERBS_BY_SUBJECT["intransitive", kind] if "punctual" not in v.traits) for kind in KINDS
}
# `that the teacher bought`, `dont le professeur parle`: verbs whose object may become a relative pronoun.
VERBS_BY_OBJECT = {
    kind: tuple(v for v in VERBS["transitive"] if kind in v.objects and v.preposition in ("", "de")) for kind in KINDS
}
MANNERS_OF_VERB = {
    verb.base: [phrase(name, a["french"]) for name, a in MANNER_ADVERBS.items() if verb.base in a["verbs"].split()]
    for verb in ALL_VERBS
}
SLEEP = next(verb for verb in ALL_VERBS if verb.base == "sleep")
COPULA = ALL_VERBS[0]._replace(stative=True)  # adjuncts of a copula are those of a stative verb
