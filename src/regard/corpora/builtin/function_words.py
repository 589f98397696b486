"""Function words of the built-in corpus: determiners, tenses, modals, prepositions, times and conjunctions."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from regard.corpora.builtin import FUNCTION_WORDS as WORDS
from regard.corpora.builtin.lexicon import DAYS, KINDS, MONTHS, NUMBERS, PLURAL, SINGULAR, Phrase, kinds_of, phrase
from regard.corpora.builtin.morphology import conjugate

THIRD, THIRD_PLURAL = 1, 4  # persons: I, he, we, you, they


class Determiner(NamedTuple):
    """A determiner. `french` is indexed by gender + 2 · number + 4 · (before a vowel)."""

    english: tuple[str, ...]
    french: tuple[tuple[str, ...], ...]
    number: int
    negated: bool  # becomes `de` under negation
    before_adjective: bool  # becomes `de` before an adjective


class VerbForm(NamedTuple):
    """The English form of a verb with the words around it, and its French tense."""

    voice: str  # active, passive or copula
    auxiliary: str
    negation: str
    adverb: str
    link: str  # be, been, being
    form: str
    tense: str
    length: int  # English words
    habitual: bool
    dated: bool  # a date may follow


class Conjunction(NamedTuple):
    """A conjunction, with the time frame of its clause by that of the sentence."""

    english: str
    french: str
    comma: bool
    opens: bool
    frames: dict[str, str]


# Determiners


def _determiner(name: str, entry: dict[str, str], number: int) -> Determiner:
    masculine, _, feminine = entry["french"].partition("/")
    forms = [tuple(masculine.split()), tuple((feminine or masculine).split())]
    vowel = [(form,) for form in entry["before_vowel"].split("/")] if "before_vowel" in entry else forms
    english, french = tuple(entry.get("english", name).split()), (*forms, *forms, *vowel, *vowel)
    return Determiner(english, french, number, "negated" in entry, "before_adjective" in entry)


def _choice(text: str) -> tuple[Determiner, ...]:
    """The determiners of a choice such as `26*the 14*a possessive`."""
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
UNIVERSAL = frozenset(WORDS["determiner_classes"]["universal"].split())
NOT_NEGATED = frozenset(WORDS["determiner_classes"]["not_negated"].split())

# Verbs

NEGATIONS: dict[str, str] = WORDS["negations"]
ADVERBS: dict[str, str] = WORDS["adverbs"]
AUXILIARIES = {name: forms.split() for name, forms in WORDS["auxiliaries"].items()}
ETRE, AVOIR = conjugate("être"), conjugate("avoir")
COMPOUND_TENSES = {"past": "present", "perfect": "present", "pluperfect": "imperfect"}  # tense of their auxiliary


def _verb_form(voice: str, english: str, entry: str) -> list[VerbForm]:
    """A verb form, repeated by its weight, from a line such as `"did not BASE" = "past, 6"`."""
    tense, weight, *traits = entry.split(", ")
    rest, parts = f" {english} ", []
    for options in (NEGATIONS, ADVERBS, ("be", "been", "being"), ("BASE", "PRESENT", "PAST", "PARTICIPLE", "GERUND")):
        part = next((option for option in options if f" {option} " in rest), "")
        rest = rest.replace(f" {part} ", " ") if part else rest
        parts.append(part.lower())
    negation, adverb, link, form = parts
    length, habitual, dated = len(english.split()), "habitual" in traits, "undated" not in traits
    return [VerbForm(voice, rest.strip(), negation, adverb, link, form, tense, length, habitual, dated)] * int(weight)


VERB_FORMS = {
    voice: {frame: [form for row in rows.items() for form in _verb_form(voice, *row)] for frame, rows in frames.items()}
    for voice, frames in WORDS["verb_forms"].items()
}
# A negated opinion would need the subjunctive: `ne pense pas que`.
VERB_FORMS["affirmative"] = {
    frame: [form for form in forms if not form.negation] for frame, forms in VERB_FORMS["active"].items()
}
INFINITIVE = VerbForm("active", "", "", "", "", "base", "", 1, False, False)
ANY_FORM = INFINITIVE._replace(habitual=True, dated=True)  # where the verb does not matter
NEGATED_INFINITIVE = INFINITIVE._replace(negation="not")


MODALS: dict[str, list[tuple[str, tuple[str, ...]]]] = {}  # English, and French by person
for frame, modals in WORDS["modals"].items():
    rows = [(english, *entry.split(", ")) for english, entry in modals.items()]
    MODALS[frame] = [(english, getattr(conjugate(infinitive), tense)) for english, infinitive, tense in rows]
THERE_IS = {frame: entry.split(", ") for frame, entry in WORDS["existential"].items()}

# Pronouns and degrees

SUBJECT_PRONOUNS: list[dict[str, Any]] = WORDS["pronouns"]["subject"]
OBJECT_PRONOUNS: list[dict[str, Any]] = WORDS["pronouns"]["object"]
REFLEXIVE_PRONOUNS = WORDS["pronouns"]["reflexive"].split()
INTENSIFIERS = tuple(WORDS["intensifiers"].items())
DEGREES = tuple(WORDS["degrees"].items())
IRREGULAR_COMPARATIVES = {name: forms.split() for name, forms in WORDS["irregular_comparatives"].items()}

# Places

EVENT_PREPOSITIONS = tuple(WORDS["places"]["event_prepositions"].items())
FIXED_PLACES = tuple(WORDS["places"]["fixed"].items())
FIXED_PLACE_VERBS = frozenset(WORDS["places"]["fixed_verbs"].split())


@cache
def place_prepositions(verb: str, long: bool) -> list[tuple[str, str, tuple[str, ...]]]:
    """Prepositions for the place of a verb's action, with the kinds of places; of several words only if `long`."""
    of_verb = WORDS["places"]["of_verb"].get(verb)
    kinds_of_verb = kinds_of(of_verb) if of_verb else KINDS
    prepositions = []
    for entry in WORDS["places"]["prepositions"]:
        english, kinds = entry["english"], kinds_of(entry["kinds"])
        fitting = tuple(kind for kind in kinds if kind in kinds_of_verb)
        in_water = english == "in" and kinds == ("water",)
        if fitting and (long or " " not in english) and in_water == (verb == "swim"):
            prepositions += [(english, entry["french"], fitting)] * entry["weight"]
    return prepositions


# Times

TIMES: dict[tuple[str, int], list[Phrase]] = {}  # by class and number of English words
for times, expressions in WORDS["times"].items():
    for english, french in expressions.items():
        name, table = next((pair for pair in (("DAY", DAYS), ("MONTH", MONTHS)) if pair[0] in english), ("", {"": ""}))
        TIMES.setdefault((times, len(english.split())), []).extend(
            phrase(english.replace(name, word), french.replace(name, table[word])) for word in table
        )
TIME_LENGTHS = {"past": (1, 2, 3, 4), "habit": (1, 2, 3), "now": (1, 2), "future": (1, 2, 3, 4), "any": (1,)}
FILLERS_WITHOUT_PLACE = [phrase(*row) for row in WORDS["fillers"]["without_place"].items()]
FILLERS = [*FILLERS_WITHOUT_PLACE, *(phrase(*row) for row in WORDS["fillers"]["with_place"].items())]
DURATION_NUMBERS = WORDS["durations"]["numbers"].split()
DURATION_UNITS = tuple(WORDS["durations"]["units"].items())

# Patterns of clauses and conjunctions

PATTERNS: dict[str, dict[str, Any]] = WORDS["patterns"]
FRAMES = ("past", "present", "future")  # time frames of a sentence
CONJUNCTIONS = []
for english, entry in WORDS["conjunctions"].items():
    frames = entry.get("clauses", {frame: frame for frame in FRAMES})
    conjunction = Conjunction(english, entry["french"], "comma" in entry, "opens" in entry, frames)
    CONJUNCTIONS += [conjunction] * entry.get("weight", 1)
COORDINATING = [conjunction for conjunction in CONJUNCTIONS if conjunction.comma]
JOINING = {frame: [c for c in CONJUNCTIONS if frame in c.frames] for frame in FRAMES}
OPENING = {frame: [c for c in JOINING[frame] if c.opens] for frame in FRAMES}
