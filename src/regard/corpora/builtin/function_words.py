"""Function words of the built-in corpus: determiners, tenses, prepositions, times and conjunctions."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from regard.corpora.builtin import FUNCTION_WORDS as WORDS
from regard.corpora.builtin.lexicon import DAYS, MONTHS, NUMBERS, PLURAL, SINGULAR, Phrase, kinds_of, phrase
from regard.corpora.builtin.morphology import Conjugation, conjugate


class Determiner(NamedTuple):
    """A determiner. `french` is indexed by gender + 2 · number + 4 · (before a vowel)."""

    english: str
    french: tuple[tuple[str, ...], ...]
    number: int
    negated: bool  # becomes `de` under negation
    before_adjective: bool  # becomes `de` before an adjective


class VerbForm(NamedTuple):
    """The English form of a verb with the words around it, and its French modal and tense."""

    auxiliary: str
    negation: str
    adverb: str
    link: str  # be, been, being
    form: str
    modal: Conjugation | None
    tense: str
    length: int  # English words
    habitual: bool
    dated: bool  # a date may follow


# Determiners


def _determiner(name: str, entry: dict[str, Any], number: int) -> Determiner:
    masculine, _, feminine = entry["french"].partition("/")
    forms = [tuple(masculine.split()), tuple((feminine or masculine).split())]
    vowel = [(form,) for form in entry["before_vowel"].split("/")] if "before_vowel" in entry else forms
    french = (*forms, *forms, *vowel, *vowel)
    return Determiner(entry.get("english", name), french, number, "negated" in entry, "before_adjective" in entry)


def _choice(text: str) -> tuple[Determiner, ...]:
    """The determiners of a choice such as `26*the 14*a numbers`."""
    determiners: tuple[Determiner, ...] = ()
    for item in text.split():
        count, _, name = item.rpartition("*")
        if name in WORDS["determiner_choices"]:
            options = _choice(WORDS["determiner_choices"][name])
        else:
            options = (DETERMINERS.get(name) or _determiner(name, {"french": NUMBERS.get(name, name)}, PLURAL),)
        determiners += options * int(count or 1)
    return determiners


DETERMINERS = {
    name: _determiner(name, entry, number)
    for number, group in ((SINGULAR, "singular"), (PLURAL, "plural"))
    for name, entry in WORDS["determiners"][group].items()
}
THE, THE_PLURAL, A = DETERMINERS["the"], DETERMINERS["the_plural"], DETERMINERS["a"]
SOME = (DETERMINERS["some"], DETERMINERS["some_mass"])
DETERMINER_CHOICES = {name: _choice(text) for name, text in WORDS["determiner_choices"].items()}

# Verbs

NEGATIONS: dict[str, str] = WORDS["negations"]
ADVERBS: dict[str, str] = WORDS["adverbs"]
AUXILIARIES = {name: forms.split() for name, forms in WORDS["auxiliaries"].items()}
ETRE, AVOIR = conjugate("être"), conjugate("avoir")
COMPOUND_TENSES = {"past": "present", "perfect": "present", "pluperfect": "imperfect"}  # tense of their auxiliary


def _verb_form(english: str, entry: str) -> list[VerbForm]:
    """A verb form, repeated by its weight, from a line such as `"did not BASE" = "past, 6"`."""
    french, weight, *traits = entry.split(", ")
    modal, _, tense = french.rpartition(" ")
    rest, parts = f" {english} ", []
    for options in (NEGATIONS, ADVERBS, ("be", "been", "being"), ("BASE", "PRESENT", "PAST", "PARTICIPLE", "GERUND")):
        part = next((option for option in options if f" {option} " in rest), "")
        rest = rest.replace(f" {part} ", " ") if part else rest
        parts.append(part.lower())
    negation, adverb, link, form = parts
    conjugated, flags = conjugate(modal) if modal else None, ("habitual" in traits, "undated" not in traits)
    row = VerbForm(rest.strip(), negation, adverb, link, form, conjugated, tense, len(english.split()), *flags)
    return [row] * int(weight)


VERB_FORMS = {
    voice: {frame: [form for line in rows.items() for form in _verb_form(*line)] for frame, rows in frames.items()}
    for voice, frames in WORDS["verb_forms"].items()
}

# Pronouns

SUBJECT_PRONOUNS: list[dict[str, Any]] = WORDS["pronouns"]["subject"]
OBJECT_PRONOUNS: list[dict[str, Any]] = WORDS["pronouns"]["object"]
REFLEXIVE_PRONOUNS = WORDS["pronouns"]["reflexive"].split()
INTENSIFIERS = tuple(WORDS["intensifiers"].items())

# Places

EVENT_PREPOSITIONS = tuple(WORDS["places"]["event_prepositions"].items())


@cache
def place_prepositions(verb: str) -> list[tuple[str, str, tuple[str, ...]]]:
    """Prepositions for the place of a verb's action, with the kinds of places."""
    prepositions = []
    for entry in WORDS["places"]["prepositions"]:
        kinds = kinds_of(entry["kinds"])
        of_verb = kinds_of(WORDS["places"]["of_verb"].get(verb, entry["kinds"]))
        fitting = tuple(kind for kind in kinds if kind in of_verb)
        in_water = entry["english"] == "in" and kinds == ("water",)
        if fitting and in_water == (verb == "swim"):
            prepositions += [(entry["english"], entry["french"], fitting)] * entry["weight"]
    return prepositions


# Times

TIMES: dict[str, list[Phrase]] = {}  # by class
for times, expressions in WORDS["times"].items():
    for english, french in expressions.items():
        name, table = next((pair for pair in (("DAY", DAYS), ("MONTH", MONTHS)) if pair[0] in english), ("", {"": ""}))
        TIMES.setdefault(times, []).extend(
            phrase(english.replace(name, word), french.replace(name, table[word])) for word in table
        )

# Patterns of clauses and conjunctions

PATTERN_WORDS = {name: entry["words"] for name, entry in WORDS["patterns"].items()}  # the fewest after the subject
PATTERNS = tuple(name for name, entry in WORDS["patterns"].items() for _ in range(entry["weight"]))
FRAMES = ("past", "past", "past", "present", "present", "future")  # time frames of a sentence
CONJUNCTIONS: list[dict[str, Any]] = [
    {"english": english, "clauses": {frame: frame for frame in FRAMES}, **entry}
    for english, entry in WORDS["conjunctions"].items()
    for _ in range(entry.get("weight", 1))
]
COORDINATING = [conjunction for conjunction in CONJUNCTIONS if "comma" in conjunction]
JOINING = {frame: [c for c in CONJUNCTIONS if frame in c["clauses"]] for frame in FRAMES}
OPENING = {frame: [c for c in JOINING[frame] if "opens" in c] for frame in FRAMES}
