"""Function words of the built-in corpus: determiners, tenses, modals, prepositions, times and conjunctions."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from regard.corpora.builtin.lexicon import DAYS, KINDS, MONTHS, NUMBERS, PLURAL, SINGULAR, Phrase, kinds_of, phrase
from regard.corpora.builtin.morphology import conjugate
from regard.corpora.builtin.words import FUNCTION_WORDS as WORDS

THIRD, THIRD_PLURAL = 1, 4  # persons: I, he, we, you, they


class Determiner(NamedTuple):
    """A determiner. `french` is indexed by gender + 2 · number + 4 · (before a vowel)."""

    english: tuple[str, ...]
    french: tuple[tuple[str, ...], ...]
    number: int
    negated: bool  # becomes `de` under negation
    before_adjective: bool  # becomes `de` before an adjective


class VerbForm(NamedTuple):
    """How a verb is said: the words around it and its form in English, and its tense in French."""

    auxiliary: str
    negation: str
    adverb: str
    link: str  # be, been, being
    form: str
    tense: str
    length: int  # English words
    habitual: bool
    dated: bool  # a date may follow


class Modal(NamedTuple):
    """A modal verb."""

    english: str
    negation: str  # `not` as a word of its own
    negated: bool
    french: tuple[str, ...]  # by person


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
    english = tuple(entry.get("english", name).split())
    return Determiner(
        english, (*forms, *forms, *vowel, *vowel), number, "negated" in entry, "before_adjective" in entry
    )


def _choice(text: str) -> tuple[Determiner, ...]:
    """The determiners of a choice such as `26*the 14*a possessive`."""
    determiners: tuple[Determiner, ...] = ()
    for item in text.split():
        count, _, name = item.rpartition("*")
        if name in WORDS["determiner_choices"]:
            determiners += _choice(WORDS["determiner_choices"][name]) * int(count or 1)
        else:
            known = DETERMINERS.get(name) or _determiner(name, {"french": NUMBERS.get(name, name)}, PLURAL)
            determiners += (known,) * int(count or 1)
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


def _verb_form(english: str, entry: str) -> list[VerbForm]:
    """A verb form, repeated by its weight, from a line such as `"did not BASE" = "past, 6"`."""
    tense, weight, *traits = entry.split(", ")
    rest, parts = f" {english} ", []
    for options in (NEGATIONS, ADVERBS, ("be", "been", "being"), ("BASE", "PRESENT", "PAST", "PARTICIPLE", "GERUND")):
        part = next((option for option in options if f" {option} " in rest), "")
        rest = rest.replace(f" {part} ", " ") if part else rest
        parts.append(part)
    negation, adverb, link, form = parts
    length, habitual, dated = len(english.split()), "habitual" in traits, "undated" not in traits
    return [VerbForm(rest.strip(), negation, adverb, link, form.lower(), tense, length, habitual, dated)] * int(weight)


VERB_FORMS = {
    voice: {frame: [form for row in forms.items() for form in _verb_form(*row)] for frame, forms in frames.items()}
    for voice, frames in WORDS["verb_forms"].items()
}
# A negated opinion would need the subjunctive: `ne pense pas que`.
VERB_FORMS["affirmative"] = {
    frame: [form for form in forms if not form.negation] for frame, forms in VERB_FORMS["active"].items()
}
INFINITIVE = VerbForm("", "", "", "", "base", "", 1, False, False)
NEGATED_INFINITIVE = INFINITIVE._replace(negation="not")


def _modal(english: str, entry: str) -> Modal:
    infinitive, tense = entry.split(", ")
    verb, _, negation = english.partition(" ")
    return Modal(verb, negation, english.endswith("not"), getattr(conjugate(infinitive), tense))


MODALS = {frame: tuple(_modal(*row) for row in modals.items()) for frame, modals in WORDS["modals"].items()}
THERE_IS = {frame: tuple(entry.split(", ")) for frame, entry in WORDS["existential"].items()}

# Pronouns and degrees

SUBJECT_PRONOUNS: list[dict[str, Any]] = WORDS["pronouns"]["subject"]
OBJECT_PRONOUNS: list[dict[str, Any]] = WORDS["pronouns"]["object"]
REFLEXIVE_PRONOUNS = WORDS["pronouns"]["reflexive"].split()
INTENSIFIERS = tuple(WORDS["intensifiers"].items())
DEGREES = tuple(WORDS["degrees"].items())
IRREGULAR_COMPARATIVES = {name: forms.split() for name, forms in WORDS["irregular_comparatives"].items()}

# Places

PREPOSITIONS = tuple(
    (entry["english"], entry["french"], kinds_of(entry["kinds"]))
    for entry in WORDS["places"]["prepositions"]
    for _ in range(entry["weight"])
)
EVENT_PREPOSITIONS = tuple(WORDS["places"]["event_prepositions"].items())
FIXED_PLACES = tuple(WORDS["places"]["fixed"].items())
FIXED_PLACE_VERBS = frozenset(WORDS["places"]["fixed_verbs"].split())
PLACES_OF_VERB = {verb: kinds_of(kinds) for verb, kinds in WORDS["places"]["of_verb"].items()}


@cache
def place_prepositions(verb: str, long: bool) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """Prepositions for the place of a verb's action, with the kinds of places; of several words only if `long`."""
    kinds_of_verb = PLACES_OF_VERB.get(verb, KINDS)
    prepositions = []
    for english, french, kinds in PREPOSITIONS:
        fitting = tuple(kind for kind in kinds if kind in kinds_of_verb)
        in_water = english == "in" and kinds == ("water",)
        if fitting and (long or " " not in english) and in_water == (verb == "swim"):
            prepositions.append((english, french, fitting))
    return tuple(prepositions)


# Times


def _times(english: str, french: str) -> list[Phrase]:
    """The expression, for each day or month if it has one."""
    for name, table in (("DAY", DAYS), ("MONTH", MONTHS)):
        if name in english:
            return [phrase(english.replace(name, word), french.replace(name, table[word])) for word in table]
    return [phrase(english, french)]


TIMES: dict[tuple[str, int], tuple[Phrase, ...]] = {}
for tense, expressions in WORDS["times"].items():
    for english, french in expressions.items():
        TIMES[tense, len(english.split())] = (*TIMES.get((tense, len(english.split())), ()), *_times(english, french))
TIME_LENGTHS = {"past": (1, 2, 3, 4), "habit": (1, 2, 3), "now": (1, 2), "future": (1, 2, 3, 4), "any": (1,)}
FILLERS_WITHOUT_PLACE = tuple(phrase(*row) for row in WORDS["fillers"]["without_place"].items())
FILLERS = (*FILLERS_WITHOUT_PLACE, *(phrase(*row) for row in WORDS["fillers"]["with_place"].items()))
DURATION_NUMBERS = tuple(WORDS["durations"]["numbers"].split())
DURATION_UNITS = tuple(WORDS["durations"]["units"].items())

# Conjunctions

FRAMES = ("past", "present", "future")  # time frames of a sentence
CONJUNCTIONS = tuple(
    Conjunction(
        english,
        entry["french"],
        entry.get("comma", False),
        entry.get("opens", False),
        entry.get("clauses", {frame: frame for frame in FRAMES}),
    )
    for english, entry in WORDS["conjunctions"].items()
    for _ in range(entry.get("weight", 1))
)
COORDINATING = tuple(conjunction for conjunction in CONJUNCTIONS if conjunction.comma)
JOINING = {frame: tuple(c for c in CONJUNCTIONS if frame in c.frames) for frame in FRAMES}
OPENING = {frame: tuple(c for c in JOINING[frame] if c.opens) for frame in FRAMES}
