"""The small words of the built-in corpus: determiners, auxiliaries, pronouns, prepositions, and what they go with."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from regard.corpora.builtin.lexicon import (
    ALL_ADJECTIVES,
    ALL_NOUNS,
    ALL_VERBS,
    DAYS,
    FEMININE,
    GROUPS,
    MASCULINE,
    MONTHS,
    NUMBERS,
    PLURAL,
    SEASONS,
    SINGULAR,
    UNCOUNTED,
    Noun,
    Verb,
    conjugate,
)

PAST, PRESENT, FUTURE, REPORTED, WHEN_FUTURE, WHILE_PAST, CHAIN_PAST, CHAIN_PRESENT = range(8)
JE, IL, NOUS, VOUS, ILS = range(5)


class Determiner(NamedTuple):
    """A determiner; `french` is indexed by gender + 2 · number + 4 · (before a vowel)."""

    english: tuple[str, ...]
    french: tuple[tuple[str, ...], ...]
    number: int
    negated: bool  # becomes `de` under negation
    thinned: bool  # becomes `de` before an adjective


class Plan(NamedTuple):
    """How a verb is said: English auxiliary, negation, adverb and form; French tense."""

    auxiliary: str
    negation: str
    adverb: str
    form: str
    tense: str
    length: int
    habitual: bool
    dated: bool  # goes with a date: not the perfect


def determiner(
    english: str, masculine: str, feminine: str = "", *, before_vowel: str = "", number: int = SINGULAR, marks: str = ""
) -> Determiner:
    """A row of the table of determiners; `before_vowel` gives both genders' forms before a vowel."""
    forms = [tuple(masculine.split()), tuple((feminine or masculine).split())]
    vowels = [tuple(form.split()) for form in before_vowel.split("/")] if before_vowel else forms
    table = (*forms, *forms, *vowels, *vowels)
    return Determiner(tuple(english.split()), table, number, "n" in marks, "t" in marks)


THE = determiner("the", "le", "la")
THE_MANY = determiner("the", "les", number=PLURAL)
A = determiner("a", "un", "une", marks="n")
SOME = determiner("some", "des", number=PLURAL, marks="nt")
SOME_MASS = determiner("some", "de le", "de la", marks="n")
BARE = determiner("", "des", number=PLURAL, marks="nt")
BARE_MASS = determiner("", "de le", "de la", marks="n")
GENERIC = determiner("", "les", number=PLURAL)
GENERIC_MASS = determiner("", "le", "la")
THIS = determiner("this", "ce", "cette", before_vowel="cet/cette")
OWN = (
    determiner("my", "mon", "ma", before_vowel="mon/mon"),
    determiner("his", "son", "sa", before_vowel="son/son"),
    determiner("her", "son", "sa", before_vowel="son/son"),
    determiner("our", "notre"),
    determiner("your", "votre"),
    determiner("their", "leur"),
)
OWN_MANY = (
    determiner("my", "mes", number=PLURAL),
    determiner("his", "ses", number=PLURAL),
    determiner("her", "ses", number=PLURAL),
    determiner("our", "nos", number=PLURAL),
    determiner("your", "vos", number=PLURAL),
    determiner("their", "leurs", number=PLURAL),
)
EVERY = (determiner("every", "chaque"), determiner("each", "chaque"))
DIGITS = ("13", "14", "18", "25", "35", "80", "100", "250", "600")
COUNTED = (
    *(determiner(english, french, number=PLURAL) for english, french in NUMBERS.items()),
    *(determiner(digits, digits, number=PLURAL) for digits in DIGITS),
)
AMOUNTS = (
    determiner("many", "beaucoup de", number=PLURAL),
    determiner("several", "plusieurs", number=PLURAL),
    determiner("most", "la plupart de les", number=PLURAL),
    determiner("these", "ces", number=PLURAL),
)
DEFINITE = (THE, THE_MANY)
# How often a determiner stands in its row is how often it is drawn.
ONE = (THE,) * 26 + (A,) * 14 + (THIS,) * 4 + EVERY
ONE_OWN = ONE + OWN * 2
MANY = (THE_MANY,) * 56 + (SOME,) * 20 + AMOUNTS * 5 + COUNTED
MANY_OWN = MANY + OWN_MANY * 4
FOLK = (THE_MANY,) * 28 + (SOME,) * 12 + AMOUNTS * 3 + COUNTED[:9]
FOLK_OWN = FOLK + OWN_MANY * 2
MASS = (THE,) * 4 + (SOME_MASS,) * 5
MASS_OWN = MASS + OWN[:3]
SETTING = (THE,) * 16 + (A,) * 6 + (THIS,) * 2 + (THE_MANY,) * 2
SETTING_OWN = SETTING + OWN
TWO_WORDS = (
    determiner("all the", "tous les", "toutes les", number=PLURAL),
    determiner("a few", "quelques", number=PLURAL),
)

TOTAL = frozenset(("each", "every", "all"))  # as subjects they are not denied: who is it that did not come?
UNDENIED = frozenset(("each", "every", "several", "most"))  # nor these as objects

NEGATIONS = {"not": "pas", "never": "jamais", "no longer": "plus"}
ADVERBS = {
    "often": "souvent",
    "always": "toujours",
    "sometimes": "parfois",
    "rarely": "rarement",
    "still": "encore",
    "already": "déjà",
    "also": "aussi",
}
MANNERS = {
    "slowly": "lentement",
    "quickly": "rapidement",
    "quietly": "silencieusement",
    "carefully": "soigneusement",
    "patiently": "patiemment",
    "calmly": "calmement",
}


def plan(row: str) -> tuple[Plan, int]:
    """A row `auxiliary | negation | adverb | form | tense | weight | marks` of the table of plans."""
    auxiliary, negation, adverb, form, tense, weight, marks = (cell.strip() for cell in row.split("|"))
    length = len(f"{auxiliary} {negation} {adverb} {form}".split())
    return Plan(auxiliary, negation, adverb, form, tense, length, "h" in marks, "p" not in marks), int(weight)


# Marks: h habitual, p not with a date. The tense `past` is an imparfait for stative verbs and else a passé composé.
PLAN_ROWS = {
    PAST: """
        | | | past | past | 40 | ; did | not | | base | past | 6 | ; | never | | past | past | 4 | p
        have | | | participle | perfect | 6 | p; have | never | | participle | perfect | 2 | p
        have | | already | participle | perfect | 3 | p; had | | | participle | pluperfect | 4 |
        be_past | | | gerund | imperfect | 9 | ; used to | | | base | imperfect | 3 | p
        | | often | past | past | 2 | p""",
    PRESENT: """
        | | | present | present | 30 | h; do | not | | base | present | 6 | h; | never | | present | present | 3 | h
        | no longer | | present | present | 3 | h; be | | | gerund | present | 8 | ; be | not | | gerund | present | 2 |
        | | often | present | present | 3 | h; | | always | present | present | 2 | h
        | | rarely | present | present | 2 | h
        | | sometimes | present | present | 2 | h; | | still | present | present | 2 | h
        | | also | present | present | 1 | h""",
    FUTURE: """
        will | | | base | future | 30 | ; will | not | | base | future | 5 | ; will | never | | base | future | 3 | p
        will | no longer | | base | future | 2 | p; will | | also | base | future | 1 |""",
    REPORTED: """
        had | | | participle | pluperfect | 10 | ; would | | | base | conditional | 10 |
        be_past | | | gerund | imperfect | 6 | ; had | not | | participle | pluperfect | 3 |
        would | not | | base | conditional | 3 | ; had | never | | participle | pluperfect | 2 | p""",
    WHEN_FUTURE: "| | | present | future | 10 | h",
    WHILE_PAST: "be_past | | | gerund | imperfect | 10 | ; be_past | not | | gerund | imperfect | 2 |",
    CHAIN_PAST: "| | | past | past | 1 |",
    CHAIN_PRESENT: "| | | present | present | 1 | h",
}
# With these, `be`, `been` or `being` follows the auxiliary, its negation and its adverb.
LINKS = {"will": "be", "would": "be", "have": "been", "had": "been", "be_being": "being"}
PASSIVE_ROWS = {
    PAST: """
        be_past | | | participle | past | 20 | ; be_past | not | | participle | past | 4 |
        have | | | participle | perfect | 4 | p; be_past | never | | participle | past | 2 | p
        had | | | participle | pluperfect | 2 | ; have | not | | participle | perfect | 1 | p""",
    PRESENT: "be | | | participle | present | 8 | h; be | not | | participle | present | 2 | h",
    FUTURE: "will | | | participle | future | 10 | ; will | not | | participle | future | 3 |",
    REPORTED: "had | | | participle | pluperfect | 4 | ; would | | | participle | conditional | 4 |",
    WHEN_FUTURE: "be | | | participle | future | 8 | h",
    WHILE_PAST: "be_being | | | participle | imperfect | 8 |",
}
COPULA_ROWS = {
    PAST: """
        be_past | | | | imperfect | 20 | ; be_past | not | | | imperfect | 4 |
        be_past | no longer | | | imperfect | 2 | p
        be_past | | often | | imperfect | 1 | p; be_past | | always | | imperfect | 1 | p""",
    PRESENT: """
        be | | | | present | 20 | h; be | not | | | present | 4 | h; be | no longer | | | present | 2 | h
        be | | often | | present | 1 | h; be | | always | | present | 2 | h; be | | still | | present | 2 | h""",
    FUTURE: "will | | | | future | 10 | ; will | not | | | future | 3 | ; will | never | | | future | 1 | p",
    REPORTED: "be_past | | | | imperfect | 6 | ; would | | | | conditional | 4 | ; had | | | | pluperfect | 2 |",
    WHEN_FUTURE: "be | | | | future | 8 | h",
    WHILE_PAST: "be_past | | | | imperfect | 8 |",
}


def read_plans(rows: dict[int, str], *, linked: bool) -> dict[int, list[tuple[Plan, int]]]:
    """The plans of a table with their weights, by frame."""
    table = {}
    for frame, text in rows.items():
        plans = [plan(row) for line in text.strip().splitlines() for row in line.split(";")]
        extra = [int(linked and one.auxiliary in LINKS) for one, _ in plans]
        table[frame] = [(one._replace(length=one.length + e), w) for (one, w), e in zip(plans, extra, strict=True)]
    return table


ACTIVE = read_plans(PLAN_ROWS, linked=False)
# A denied opinion would ask for the subjunctive: `ne pense pas que`.
AFFIRMED = {frame: [(one, weight) for one, weight in plans if not one.negation] for frame, plans in ACTIVE.items()}
PASSIVE = read_plans(PASSIVE_ROWS, linked=True)
COPULA = read_plans(COPULA_ROWS, linked=True)

PERSONS = GROUPS["person"]
PLACES = GROUPS["place"]
OWNED = (*GROUPS["wares"], "text", "animal", "family", "building", "room")
AUXILIARIES = {  # by person: I, he, we, you, they
    "be": ("am", "is", "are", "are", "are"),
    "be_past": ("was", "was", "were", "were", "were"),
    "be_being": ("was", "was", "were", "were", "were"),
    "have": ("have", "has", "have", "have", "have"),
    "do": ("do", "does", "do", "do", "do"),
}
SUBJECTS = (
    ("I", "je", JE, MASCULINE, SINGULAR),
    ("he", "il", IL, MASCULINE, SINGULAR),
    ("she", "elle", IL, FEMININE, SINGULAR),
    ("we", "nous", NOUS, MASCULINE, PLURAL),
    ("you", "vous", VOUS, MASCULINE, PLURAL),
)
# English, French as direct and as indirect object, what a participle after it agrees with, person.
OBJECTS = (
    ("me", "me", "me", 0, JE),
    ("him", "le", "lui", 0, IL),
    ("her", "la", "lui", 1, IL),
    ("us", "nous", "nous", 2, NOUS),
    ("you", "vous", "vous", 2, VOUS),
)
REFLEXIVES = ("me", "se", "nous", "vous", "se")
ETRE, AVOIR = conjugate("être"), conjugate("avoir")
HELPERS = {"past": "present", "perfect": "present", "pluperfect": "imperfect"}

# Prepositions of place with the kinds they go with.
PREPOSITIONS = (
    *(("in", "dans", ("building", "room", "outdoors")),) * 5,
    ("in", "dans", ("water",)),
    *(("on", "sur", ("surface",)),) * 2,
    ("near", "près de", ("building", "outdoors", "water", "surface", "height")),
    ("behind", "derrière", ("building", "height")),
    ("in front of", "devant", ("building",)),
    ("next to", "à côté de", ("building", "water")),
    ("opposite", "en face de", ("building",)),
)
FIXED_PLACES = (("at home", "à la maison"), ("at school", "à la école"))
# Where some things are done; others anywhere.
SETTINGS = {
    "swim": ("water",), "grow": ("outdoors",), "travel": ("outdoors",), "walk": ("outdoors", "surface"),
    "run": ("outdoors", "surface"), "work": ("building", "room", "outdoors"), "sleep": ("building", "room"),
    "play": ("outdoors", "surface", "room"), "plant": ("outdoors",), "wake": ("room", "building"), "fly": ("outdoors",),
    "stop": ("surface", "building"), "wear": ("building", "outdoors"), "catch": ("outdoors",),
    "fall": ("surface", "outdoors"), "indoors": ("building", "room"),
}  # fmt: skip
NOWHERE = frozenset(("leave", "enter", "visit", "cross", "discover"))  # these tell the place themselves
HOMELY = ("work", "stay", "rest", "play", "wait", "study", "read", "eat", "sing", "dance", "write", "cry")
UNOWNED = ("man", "woman", "boy", "girl", "hero", "king", "queen")


@cache
def settings(base: str, long: bool) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """The prepositions, with the kinds they lead to, for where a verb's action takes place."""
    allowed = SETTINGS.get(base, KINDS)
    found = []
    for english, french, kinds in PREPOSITIONS:
        fitting = tuple(kind for kind in kinds if kind in allowed)
        inside = english == "in" and kinds == ("water",)
        if fitting and (long or " " not in english) and (inside == (base == "swim")):
            found.append((english, french, fitting))
    return tuple(found)


EVENT_PREPOSITIONS = (("during", "pendant"), ("after", "après"), ("before", "avant"))
# What the `of` after a noun leads to: kinds, or the name of a country or a city.
OF = {
    "king": "country", "queen": "country", "president": "country", "ambassador": "country", "flag": "country",
    "mayor": "city", "director": "institution building", "door": "building room vehicle", "window": "building room",
    "key": "building room vehicle opening", "roof": "building", "wall": "building", "garden": "building",
    "kitchen": "building", "courtyard": "building", "price": "wares", "result": "event task", "cause": "event",
    "street": "city", "bridge": "city", "tower": "building", "story": "family", "budget": "institution",
    "government": "country", "parliament": "country", "army": "country", "embassy": "country",
    "decision": "institution", "report": "institution", "programme": "institution",
}  # fmt: skip
CROWNS = frozenset(("king", "queen", "ambassador", "embassy"))  # le roi de France, but le drapeau de la France
ABOUT = {
    "text": "about",
    "legal": "on",
    "conference": "on",
    "meeting": "on",
    "debate": "on",
    "law": "on",
    "decision": "on",
}
SENT = ("letter", "message", "note", "report")


def nouns_of(kinds: tuple[str, ...]) -> tuple[Noun, ...]:
    """The nouns of these kinds, found once."""
    found = NOUN_POOLS.get(kinds)
    if found is None:
        found = NOUN_POOLS[kinds] = tuple(noun for noun in ALL_NOUNS if noun.kind in kinds)
    return found


NOUN_POOLS: dict[tuple[str, ...], tuple[Noun, ...]] = {}
KINDS = tuple(dict.fromkeys(noun.kind for noun in ALL_NOUNS))
ADJECTIVES_BEFORE = {k: tuple(a for a in ALL_ADJECTIVES if a.precedes and k in a.kinds) for k in KINDS}
ADJECTIVES_AFTER = {k: tuple(a for a in ALL_ADJECTIVES if not a.precedes and k in a.kinds) for k in KINDS}
ADJECTIVES = {k: ADJECTIVES_BEFORE[k] + ADJECTIVES_AFTER[k] for k in KINDS}
PATTERNS = ("alone", "stay", "motion", "object", "giving", "saying", "willing")
VERBS = {pattern: tuple(verb for verb in ALL_VERBS if verb.pattern == pattern) for pattern in PATTERNS}
PASSIVE_VERBS = """
    write build repair paint translate publish accept reject approve examine support criticize propose announce prepare
    organize cancel adopt lead create protect improve plant sign destroy describe respect discover appoint find
"""
VERBS["passive"] = tuple(verb for verb in VERBS["object"] if verb.base in PASSIVE_VERBS.split())
VERBS_FOR = {(p, k): tuple(v for v in VERBS[p] if k in v.subjects) for p in PATTERNS for k in KINDS}
VERBS_ON = {k: tuple(v for v in VERBS["object"] if k in v.objects and v.before in ("", "de")) for k in KINDS}
for kind in KINDS:
    VERBS_FOR["passive", kind] = tuple(verb for verb in VERBS["passive"] if kind in verb.objects)


@cache
def personal(kinds: tuple[str, ...]) -> bool:
    """Whether a person can be of one of these kinds."""
    return any(kind in PERSONS for kind in kinds)


def countable(noun: Noun) -> bool:
    """Whether the noun has a plural."""
    return noun.kind not in UNCOUNTED


def splits(rest: int, two: bool) -> tuple[int, ...]:
    """How many of `rest` words may go before the noun; a complement has three words or, where it can, two."""
    after = [rest - before for before in range(min(rest, 2) + 1)]
    return tuple(rest - c for c in after if c == 0 or c > 2 or (c == 2 and two))


SPLITS = {(rest, two): splits(rest, two) for rest in range(80) for two in (False, True)}
UNGRADED_WORDS = """
    annual national European economic political social legal international municipal local central foreign private rural
    public official real red blue green white black yellow grey brown purple magnificent delicious complete necessary
    confidential historic new wild sick ridiculous exotic empty luxurious excellent
"""
COLOURS = frozenset(("red", "blue", "green", "white", "black", "yellow", "grey", "brown", "purple"))
UNGRADED = frozenset(UNGRADED_WORDS.split())
OPPOSITES = """
    good/bad big/small old/young old/new old/recent old/modern new/historic modern/historic recent/historic
    long/brief happy/sad happy/worried happy/tired sad/cheerful worried/cheerful easy/difficult easy/complex
    easy/tiring clear/complex hot/cold hot/fresh clean/dirty heavy/light interesting/boring public/private
    useful/useless necessary/useless important/useless precious/useless good/useless quiet/noisy calm/nervous
    calm/worried lazy/active lazy/serious lazy/ambitious sweet/bitter local/international local/national
    national/international foreign/local foreign/national solid/fragile delicious/bad tasty/bad fresh/bad
    delicious/bitter dark/sunny dark/bright dangerous/peaceful dangerous/quiet dangerous/calm shy/brave fair/bad
    wise/bad public/confidential beautiful/ridiculous pretty/ridiculous elegant/ridiculous wise/ridiculous
    good/ridiculous bad/interesting good/boring strong/sick distant/visible surprising/boring impressive/boring
    impressive/ridiculous pretty/beautiful beautiful/magnificent pretty/magnificent tasty/delicious
    excellent/delicious excellent/tasty excellent/good excellent/bad excellent/boring excellent/useless
    happy/cheerful dirty/white luxurious/ridiculous wild/shy quiet/peaceful
"""
CLASHES = {a.english: {a.english} for a in ALL_ADJECTIVES}
for one, other in (pair.split("/") for pair in OPPOSITES.split()):
    CLASHES[one].add(other)
    CLASHES[other].add(one)
for colour in COLOURS:
    CLASHES[colour] |= COLOURS
BARRED = frozenset({  # set phrases: a `vieille fille` is a spinster
    ("old", "girl"), ("old", "boy"), ("old", "child"), ("old", "baby"), ("public", "house"), ("foreign", "ministry"),
})  # fmt: skip
MOODS = frozenset(("happy", "sad", "tired", "sick", "nervous", "worried", "calm", "jealous", "cheerful", "patient"))
INDOORS = ("thing", "clothes", "instrument", "furniture", "food", "fruit", "dish", "drink")
CONCRETE = (
    *PERSONS,
    "animal",
    "bird",
    "building",
    "plant",
    "furniture",
    "opening",
    "water",
    "vehicle",
    "surface",
    *INDOORS,
)
RELATIONAL_WORDS = """
    annual national European economic political social legal international municipal local central foreign private rural
    public official real confidential recent historic
"""
RELATIONAL = frozenset(RELATIONAL_WORDS.split())
PREDICATIVE = {k: tuple(a for a in ADJECTIVES[k] if a.english not in RELATIONAL) for k in KINDS}
PAIRED = {
    k: tuple(a for a in ADJECTIVES_BEFORE[k] if a.english not in ("good", "bad", "real", "pretty")) for k in KINDS
}
GRADED = {k: tuple(a for a in ADJECTIVES[k] if a.english not in UNGRADED) for k in KINDS}
RELATIVE_FRAMES = {
    PAST: PAST,
    PRESENT: PRESENT,
    FUTURE: PRESENT,
    REPORTED: PAST,
    WHEN_FUTURE: PRESENT,
    WHILE_PAST: PAST,
    CHAIN_PAST: PAST,
    CHAIN_PRESENT: PRESENT,
}

Phrase = tuple[tuple[str, ...], tuple[tuple[str, tuple[int, ...]], ...]]


def phrase(english: str, french: str) -> Phrase:
    """A fixed expression: `<1>` names a word's English word; else as many words pair off, and others all link."""
    said, words = english.split(), []
    for place, word in enumerate(french.split()):
        text, _, named = word.rstrip(">").partition("<")
        every = (place,) if len(said) == len(french.split()) else tuple(range(len(said)))
        words.append((text, (int(named),) if named else every))
    return tuple(said), tuple(words)


TIMES = {
    ("past", 1): (phrase("yesterday", "hier"), phrase("recently", "récemment"), phrase("later", "plus tard")),
    ("past", 2): (
        phrase("last week", "la semaine<1> dernière<0>"),
        phrase("last month", "le mois<1> dernier<0>"),
        phrase("last year", "la année<1> dernière<0>"),
        phrase("this morning", "ce matin"),
        phrase("yesterday evening", "hier soir"),
        *(phrase(f"on {english}", french) for english, french in DAYS.items()),
        *(phrase(f"in {english}", f"en {french}") for english, french in MONTHS.items()),
    ),
    ("habit", 1): (
        phrase("today", "aujourd'hui"),
        phrase("regularly", "régulièrement"),
        phrase("nowadays", "de nos jours"),
    ),
    ("habit", 2): (
        phrase("every day", "chaque jour"),
        phrase("every week", "chaque semaine"),
        phrase("every year", "chaque année"),
        phrase("at night", "la nuit"),
        *(phrase(f"on {english}s", f"le {french}") for english, french in DAYS.items()),
        *(
            phrase(f"in {english}", f"{'au' if english == 'spring' else 'en'} {french}")
            for english, french in SEASONS.items()
        ),
    ),
    ("habit", 3): (
        phrase("in the morning", "le matin"),
        phrase("in the evening", "le soir"),
        phrase("in the afternoon", "le après-midi"),
    ),
    ("now", 1): (phrase("now", "maintenant"), phrase("today", "aujourd'hui"), phrase("currently", "actuellement")),
    ("now", 2): (
        phrase("this morning", "ce matin"),
        phrase("this week", "cette semaine"),
        phrase("this evening", "ce soir"),
    ),
    ("future", 1): (phrase("tomorrow", "demain"), phrase("soon", "bientôt"), phrase("later", "plus tard")),
    ("future", 2): (
        phrase("next week", "la semaine<1> prochaine<0>"),
        phrase("next month", "le mois<1> prochain<0>"),
        phrase("next year", "la année<1> prochaine<0>"),
        *(phrase(f"on {english}", french) for english, french in DAYS.items()),
        *(phrase(f"in {english}", f"en {french}") for english, french in MONTHS.items()),
    ),
}
TIME_LENGTHS = {"past": (1, 2, 3, 4), "habit": (1, 2, 3), "now": (1, 2), "future": (1, 2, 3, 4), "any": (1,)}
UNITS = (("days", "jours"), ("weeks", "semaines"), ("months", "mois"), ("years", "ans"))
SMALL_NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "ten", "twelve")
MONTH_NAMES = tuple(MONTHS)
MANNER_VERBS = {
    "slowly": "walk swim read write eat grow drink work",
    "quickly": "walk run swim work grow leave disappear read write repair clean build wake travel finish",
    "quietly": "walk wait sing cry work leave rest sleep study",
    "carefully": "work read study examine translate paint repair clean draw prepare choose open close",
    "patiently": "wait work study explain",
    "calmly": "wait sleep rest work swim walk",
}
MANNER_OF = {
    verb.base: tuple(
        phrase(english, MANNERS[english]) for english, verbs in MANNER_VERBS.items() if verb.base in verbs.split()
    )
    for verb in ALL_VERBS
}
SETTLED = (phrase("again", "de nouveau"), phrase("anyway", "quand même"))  # where the place is told
FILLERS = (
    *SETTLED,
    phrase("here", "ici"),
    phrase("there", "là-bas"),
    phrase("elsewhere", "ailleurs"),
    phrase("instead", "à la place"),
)


@cache
def adjunct_shares(n: int, times: str, manner: bool, place: bool) -> tuple[tuple[int, int, int], ...]:
    """Every way to share n words between how, where and when."""
    found = [
        (how, n - how - when, when)
        for how in ((0, 1) if manner else (0,))
        for when in (0, *TIME_LENGTHS[times])
        if n - how - when in (0, *range(2, n + 1))
    ]
    good = [
        shares for shares in found if shares[1] < 8 and (times != "any" or not shares[2]) and (place or not shares[1])
    ]
    return tuple(good or found)


RELATIVE_PATTERNS: dict[tuple[str, int], tuple[str, ...]] = {}
# What happens once is no way to tell one person from another in the present: not `the man who dies`.
ONCE = "die fall arrive leave disappear resign wake get stop begin end hesitate"
VERBS_HABITUAL = {k: tuple(v for v in VERBS_FOR["alone", k] if v.base not in ONCE.split()) for k in KINDS}
UNWILLED = "die fall disappear hesitate"
VERBS_WILLED = {
    (p, k): tuple(v for v in found if v.base not in UNWILLED.split()) for (p, k), found in VERBS_FOR.items()
}
for kind in KINDS:
    for room in range(6):
        found = [
            p for p, least in (("alone", 1), ("object", 3), ("passive", 2)) if room >= least and VERBS_FOR[p, kind]
        ] * 4
        if room >= 2:
            found.append("copula")
        RELATIVE_PATTERNS[kind, room] = tuple(found)

IRREGULAR_COMPARATIVES = {
    "better": ("meilleur", "meilleure", "meilleurs", "meilleures"),
    "worse": ("pire", "pire", "pires", "pires"),
}
DEGREES = (("more", "plus"), ("less", "moins"), ("as", "aussi"))
LIVING = GROUPS["living"]
PATTERN_DRAWS = (
    *("alone",) * 4, *("object",) * 13, *("copula",) * 5, *("passive",) * 5, *("stay",) * 2, *("motion",) * 2,
    *("giving",) * 3, *("saying",) * 2, *("willing",) * 2, *("modal",) * 2, "there", "office",
)  # fmt: skip
# The fewest words a pattern takes after its subject, with a verb of one word.
LEAST = {
    "alone": 1, "object": 2, "copula": 2, "passive": 2, "stay": 3, "motion": 3, "giving": 5, "saying": 6, "willing": 2,
    "modal": 2, "there": 5, "office": 3,
}  # fmt: skip
CLAUSE_KINDS = {"copula": KINDS, "modal": ("family", "profession"), "there": ("family",), "office": ("family",)}
INTENSITIES = (("very", "très"), ("too", "trop"), ("rather", "plutôt"))
FOUND = ("furniture", "thing", "animal", "bird", "plant", "vehicle", "profession", "text")
EXISTING = (A,) * 6 + (SOME,) * 3 + AMOUNTS[:2] + COUNTED[:3]
EXISTENCE = {
    PAST: ("imperfect", "was", "were"),
    PRESENT: ("present", "is", "are"),
    FUTURE: ("future", "will be", "will be"),
}
CAN, MUST = conjugate("pouvoir"), conjugate("devoir")
MODALS = {  # by frame, and whether there is room for `not`
    (PRESENT, False): (("can", CAN.present, False), ("must", MUST.present, False), ("cannot", CAN.present, True)),
    (PAST, False): (("could", CAN.imperfect, False),),
    (PAST, True): (("could", CAN.imperfect, False), ("could", CAN.imperfect, True)),
}
MODALS[PRESENT, True] = (*MODALS[PRESENT, False], ("must", MUST.present, True))
CHAINS = {PAST: CHAIN_PAST, PRESENT: CHAIN_PRESENT, FUTURE: FUTURE}
UNDATED = Plan("", "", "", "base", "", 1, False, False)
DENIED = UNDATED._replace(negation="not")
COPULA_VERB = ALL_VERBS[0]._replace(stative=True)  # stands for the copula where adjuncts ask for a verb
SLEEP = next(verb for verb in ALL_VERBS if verb.base == "sleep")


def extra(verb: Verb) -> int:
    """The words a verb takes beyond its shortest form: its particle, and what tells `read` from `read`."""
    return len(verb.particle.split()) + 2 * (verb.base == verb.past)


class Connector(NamedTuple):
    """A conjunction, and the frame of the clause it opens, by the frame of the sentence."""

    english: str
    french: str
    comma: bool
    frames: dict[int, int]


SAME = {PAST: PAST, PRESENT: PRESENT, FUTURE: FUTURE}
CONNECTORS = (
    *(Connector("and", "et", True, SAME),) * 3,
    *(Connector("but", "mais", True, SAME),) * 2,
    *(Connector("because", "parce que", False, SAME),) * 2,
    Connector("so", "donc", True, SAME),
    Connector("whereas", "alors que", True, SAME),
    Connector("when", "quand", False, {PAST: PAST, PRESENT: PRESENT, FUTURE: WHEN_FUTURE}),
    Connector("while", "pendant que", False, {PAST: WHILE_PAST, PRESENT: PRESENT}),
    Connector("as soon as", "dès que", False, {FUTURE: WHEN_FUTURE}),
    Connector("if", "si", False, {PRESENT: PRESENT, FUTURE: PRESENT}),
    Connector("since", "puisque", False, SAME),
)
COORDINATING = tuple(connector for connector in CONNECTORS if connector.comma)
JOINING = {frame: tuple(c for c in CONNECTORS if frame in c.frames) for frame in (PAST, PRESENT, FUTURE)}
OPENING = {
    frame: tuple(
        c for c in CONNECTORS if frame in c.frames and c.english in ("when", "while", "if", "as soon as", "since")
    )
    for frame in (PAST, PRESENT, FUTURE)
}
ELIDED = {
    "le": "l'", "la": "l'", "de": "d'", "que": "qu'", "ne": "n'", "je": "j'", "se": "s'", "me": "m'",
    "puisque": "puisqu'",
}  # fmt: skip
CONTRACTED = {("de", "le"): "du", ("de", "les"): "des", ("à", "le"): "au", ("à", "les"): "aux"}
ELIDING = frozenset(("il", "elle", "ils", "elles", "on", "un", "une", "en"))  # only before these does `puisque` elide
LEANING = frozenset((*ELIDED, "à", "si"))
