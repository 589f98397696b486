"""The built-in corpus: an English-French synchronous grammar that derives both sides and their word alignment at once.

English is said left to right, so that the number of a word is its place; each French word carries the numbers of the
English words it comes from. Every rule is given the number of English words it must say, so that lengths are exact.
What the French needs (gender, tense, agreement) is decided by the English sentence alone: translation is a function.
"""

from __future__ import annotations

import hashlib
import random
from bisect import bisect
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import NamedTuple

from regard.corpora.builtin import function_words as tables
from regard.corpora.builtin.function_words import (
    FUTURE,
    IL,
    ILS,
    PAST,
    PERSONS,
    PRESENT,
    REPORTED,
    WHILE_PAST,
    Plan,
    nouns_of,
    personal,
)
from regard.corpora.builtin.lexicon import NAMES, SINGULAR, Verb, opens_with_vowel
from regard.corpora.builtin.phrases import Derivation, Nominal, Word
from regard.errors import ConfigError


class Pair(NamedTuple):
    """A sentence, its translation, and the links (source word, target word) between them, from 0."""

    source: str
    target: str
    alignment: tuple[tuple[int, int], ...]


def relative(derivation: Derivation, n: int, head: Nominal) -> list[Word]:
    """A relative clause of exactly n words about what was just said."""
    frame, derivation.frame = derivation.frame, tables.RELATIVE_FRAMES[derivation.frame]
    derivation.depth += 1
    kind = head.kind
    draw = derivation.random()
    person = kind in PERSONS
    if n >= 4 and draw < (0.3 if person else 0.5) and tables.VERBS_ON[kind]:
        words = object_relative(derivation, n, head)
    elif n >= 4 and draw < 0.7 and kind in tables.PLACES:
        words = [*derivation.both("where", "où"), *clause(derivation, n - 1, ("alone", "object"))]
    elif n >= 4 and draw < 0.4 and person:
        owned = derivation.pick(nouns_of(("family",)))
        ids = derivation.say("whose")
        said = (owned.french[0], derivation.say(owned.english[0]))
        nominal = Nominal([], IL, owned.gender, SINGULAR, "family")
        words = [("dont", ids), ("la" if owned.gender else "le", ids), said]
        words += predicate(derivation, n - 2, nominal, derivation.pick(("copula", "alone")))
    else:
        words = derivation.both("who" if person else "that", "qui")
        pattern = derivation.pick(tables.RELATIVE_PATTERNS[kind, n - 1 if n < 6 else 5])
        words += predicate(derivation, n - 1, head, pattern)
    derivation.depth -= 1
    derivation.frame = frame
    return words


def object_relative(derivation: Derivation, n: int, head: Nominal) -> list[Word]:
    """`that the teacher bought`: the head is the object, and a participle agrees with it."""
    verb = derivation.pick(tables.VERBS_ON[head.kind])
    for _ in range(4):  # one discovers a star, but not somewhere
        if n > 5 and verb.base in tables.NOWHERE:
            verb = derivation.pick(tables.VERBS_ON[head.kind])
    while n < 4 + tables.extra(verb):
        verb = derivation.pick(tables.VERBS_ON[head.kind])
    ids = derivation.say("that")
    most = n - 2 - tables.extra(verb)
    subject = say_subject(derivation, derivation.within(1, max(1, min(4, most))), verb.subjects)
    left = n - (len(derivation.english) - ids[0])
    plan = derivation.plan(tables.ACTIVE, left - len(verb.particle.split()), subject, verb=verb)
    words = derivation.verb_group(verb, plan, subject, agreement=head.gender + 2 * head.number)
    relative = "dont" if verb.before == "de" else "que"
    rest = n - (len(derivation.english) - ids[0])
    return [(relative, ids), *subject.french, *words, *derivation.adjuncts(rest, verb, plan)]


def say_subject(derivation: Derivation, n: int, kinds: tuple[str, ...], *, habit: bool = False) -> Nominal:
    """A subject of exactly n words; `it` and `they` only where what was said before fixes their gender."""
    if n > 1:
        return derivation.noun_phrase(n, kinds, "subject")
    thing, group = derivation.thing, derivation.group
    if not derivation.depth and derivation.chance(0.5):
        if thing and derivation.things_agree and thing.kind in kinds:
            return thing._replace(french=[("elle" if thing.gender else "il", derivation.say("it"))])
        if group and derivation.groups_agree and group.kind in kinds:
            return group._replace(french=[("elles" if group.gender else "ils", derivation.say("they"))], person=ILS)
    return derivation.single(kinds, "habit" if habit else "subject", False)


def object_pronoun(derivation: Derivation, verb: Verb, subject: Nominal) -> tuple[str, str, int] | None:
    """An object pronoun the verb can take here: English, French, and what a participle agrees with."""
    thing, group = derivation.thing, derivation.group
    if verb.before not in ("", "à") or derivation.depth:
        return None
    dative = verb.before == "à"
    if not dative and thing and derivation.things_agree and thing.kind in verb.objects and subject.kind != thing.kind:
        return "it", "la" if thing.gender else "le", thing.gender
    if not dative and group and derivation.groups_agree and group.kind in verb.objects and subject.number == SINGULAR:
        return "them", "les", group.gender + 2
    if not personal(verb.objects):
        return None
    english, direct, indirect, agreement, person = derivation.pick(tables.OBJECTS)
    if person == subject.person and person != IL:
        return None
    return english, indirect if dative else direct, 0 if dative else agreement


def verb_for(derivation: Derivation, n: int, subject: Nominal, pattern: str) -> Verb | None:
    """A verb that says something of the subject in n words, if one is found."""
    options = tables.VERBS_FOR[pattern, subject.kind]
    if pattern == "alone" and (derivation.depth or derivation.frame == PRESENT):
        options = tables.VERBS_HABITUAL[subject.kind] or (options if n == 1 else ())
    least = (2 if pattern == "object" else 1) + slowness(derivation)
    for _ in range(8):
        verb = derivation.pick(options) if options else None
        if verb is None or pattern == "passive" or least + tables.extra(verb) <= n <= most_words(verb):
            return verb
    return None if n > 1 else tables.SLEEP


def predicate(
    derivation: Derivation, n: int, subject: Nominal, pattern: str, verb: Verb | None = None, *, habit: bool = False
) -> list[Word]:
    """What is said of the subject, in exactly n words."""
    if pattern == "copula":
        return quality(derivation, n, subject, habit=habit)
    if verb is None:
        verb = verb_for(derivation, n, subject, pattern)
        if verb is None:
            return quality(derivation, n, subject, habit=habit)
    if pattern == "passive":
        return passive(derivation, n, subject, verb)
    room = n - len(verb.particle.split())
    if pattern == "object":
        return with_object(derivation, n, room, subject, verb, habit)
    least = {"stay": 2, "motion": 2, "giving": 4, "saying": 4, "willing": 1}.get(pattern, 0)
    opinion = pattern == "saying" and verb.stative
    table = tables.AFFIRMED if opinion else tables.ACTIVE
    plan = derivation.plan(table, room - least, subject, verb=verb, habitual=habit)
    rest = room - plan.length
    if pattern == "alone":
        living = subject.kind in tables.LIVING
        return derivation.verb_group(verb, plan, subject) + derivation.adjuncts(rest, verb, plan, manner=living)
    if pattern == "stay":
        words = derivation.verb_group(verb, plan, subject)
        when = derivation.spare(rest - 2, plan)
        words += derivation.place(rest - when, formal=False, base=verb.base)
        return words + derivation.adjuncts(when, verb, plan, placed=True)
    if pattern == "motion":
        return derivation.verb_group(verb, plan, subject) + way(derivation, rest, verb, plan)
    if pattern == "saying":
        words = derivation.verb_group(verb, plan, subject)
        words.append(("que", derivation.say("that")))
        frame = derivation.frame
        derivation.frame = {PAST: REPORTED, PRESENT: derivation.pick((PRESENT, PAST, FUTURE))}.get(frame, frame)
        words += clause(derivation, rest - 1, ("alone", "object", "copula", "passive"))
        derivation.frame = frame
        return words
    if pattern == "willing":
        words = derivation.verb_group(verb, plan, subject)
        if verb.before:
            words.append((verb.before, (len(derivation.english) - 1,)))
        return words + infinitive(derivation, rest, subject, denied=bool(plan.negation))
    return gift(derivation, rest, verb, plan, subject)


def most_words(verb: Verb) -> int:
    """The most words said with the verb: one leaves at some time, but not somewhere."""
    return 3 if verb.base == "leave" else 80


def slowness(derivation: Derivation) -> int:
    """One where the shortest verb takes two words: `will sing`."""
    return int(derivation.frame in (FUTURE, REPORTED, WHILE_PAST))


def with_object(derivation: Derivation, n: int, room: int, subject: Nominal, verb: Verb, habit: bool) -> list[Word]:
    """A verb with its object, and perhaps how, where and when."""
    plan = derivation.plan(tables.ACTIVE, room - 1, subject, verb=verb, habitual=habit)
    rest = room - plan.length
    if rest == 1 or derivation.chance(0.15):
        pronoun = object_pronoun(derivation, verb, subject)
        if pronoun:
            words = derivation.verb_group(verb, plan, subject, pronoun=pronoun)
            return words + derivation.adjuncts(rest - 1, verb, plan)
    words = derivation.verb_group(verb, plan, subject)
    if verb.stative or verb.base in tables.NOWHERE:
        size = rest - derivation.spare(rest - 2, plan)
    else:
        size = rest if rest < 4 or derivation.chance(0.4) else derivation.within(2, rest - 1)
    if rest - size == 1 and derivation.timed:
        size = rest
    role = "generic" if verb.generic else "goal" if verb.before and rest > 1 else "object"
    before = [(verb.before, (len(derivation.english) - 1,))] if verb.before else []
    negated = bool(plan.negation) and not verb.before and not verb.generic
    thing = derivation.noun_phrase(size, verb.objects, role, negated=negated).french
    manner = subject.kind in PERSONS and not verb.stative
    how, adjuncts = derivation.circumstances(rest - size, verb, plan, manner=manner)
    return words + how + before + thing + adjuncts


def passive(derivation: Derivation, n: int, subject: Nominal, verb: Verb) -> list[Word]:
    """A passive, perhaps with who did it."""
    plan = derivation.plan(tables.PASSIVE, n, subject)
    words = derivation.being(plan, subject, verb)
    rest = n - plan.length
    if rest >= 3 and derivation.chance(0.7):
        agent = rest if rest < 5 or derivation.chance(0.4) else derivation.within(3, rest - 1)
        agent = min(agent, 9)
        words.append(("par", derivation.say("by")))
        words += derivation.noun_phrase(agent - 1, verb.subjects, "oblique").french
        rest -= agent
    return words + derivation.adjuncts(rest, verb, plan)


def quality(derivation: Derivation, n: int, subject: Nominal, *, habit: bool = False) -> list[Word]:
    """`is old`, `was very old`, `is older than the bridge`: the copula and an adjective, in exactly n words."""
    start = len(derivation.english)
    plan = derivation.plan(tables.COPULA, n - 1, subject, habitual=habit)
    words = derivation.being(plan, subject)
    rest = n - plan.length
    adjective = derivation.adjective((tables.PREDICATIVE if rest == 1 else tables.GRADED)[subject.kind])
    index = subject.gender + 2 * subject.number
    form = adjective.french[index]
    compared = 1 if subject.kind in PERSONS else 2
    longer = derivation.chance(0.5) or rest > 5
    if rest >= 2 + compared and adjective.comparative and longer and plan.negation != "no longer":  # not `plus plus`
        degree = derivation.say(adjective.comparative)
        better = tables.IRREGULAR_COMPARATIVES.get(adjective.comparative)
        words += [(better[index], degree)] if better else [("plus", degree), (form, degree)]
        words.append(("que", derivation.say("than")))
        return words + derivation.noun_phrase(rest - 2, (subject.kind,), "oblique").french
    if rest >= 3 + compared and longer:
        more = not adjective.comparative and plan.negation != "no longer"
        english, french = derivation.pick(tables.DEGREES if more else tables.DEGREES[1:])
        words += [(french, derivation.say(english)), (form, derivation.say(adjective.english))]
        words.append(("que", derivation.say("as" if english == "as" else "than")))
        return words + derivation.noun_phrase(rest - 3, (subject.kind,), "oblique").french
    intensities = tables.INTENSITIES[: 2 if plan.negation else 3]
    timeless = derivation.timed or derivation.depth or not plan.dated or adjective.english not in tables.MOODS
    if rest in (2, 4) or (rest == 5 and timeless):
        words += derivation.both(*derivation.pick(intensities))
    words.append((form, derivation.say(adjective.english)))
    if rest > 2 and (timeless or derivation.chance(0.3)):
        words.append(("et", derivation.say("and")))
        if rest == 5 and timeless:
            words += derivation.both(*derivation.pick(intensities))
        other = derivation.adjective(tables.GRADED[subject.kind])
        words.append((other.french[index], derivation.say(other.english)))
    left = n - (len(derivation.english) - start)
    return words + derivation.adjuncts(left, tables.COPULA_VERB, plan)


def office(derivation: Derivation, n: int) -> list[Word]:
    """`Marie is a doctor`, `Paul was a good teacher`: French gives a bare profession no article."""
    noun = derivation.pick(nouns_of(("profession",)))
    name = derivation.pick([name for name in NAMES if name.gender == noun.gender])
    subject = Nominal([(name.french[0][0], derivation.say(name.english[0]))], IL, name.gender, SINGULAR, "family")
    plan = derivation.plan(tables.COPULA, n - 3, subject)
    words = subject.french + derivation.being(plan, subject)
    rest = n - 1 - plan.length
    if rest == 2 or (rest in (4, 5) and derivation.chance(0.4) and plan.dated):
        article = derivation.say(noun.article)
        words.append((noun.french[0], article + derivation.say(noun.english[0])))
        return words + derivation.adjuncts(rest - 2, tables.COPULA_VERB, plan)
    modifiers = derivation.pick(tables.SPLITS[rest - 2, not derivation.depth])
    adjectives, very = derivation.describe(noun, modifiers)
    nominal = derivation.core(noun, tables.A, adjectives, very, False)
    words += nominal.french
    return words + (
        derivation.complement(rest - 2 - modifiers, noun, nominal, placed=True) if rest - 2 > modifiers else []
    )


def existence(derivation: Derivation, n: int) -> list[Word]:
    """`There is a cat in the garden`."""
    tense, singular, plural = tables.EXISTENCE[derivation.frame]
    there = derivation.say("there")
    noun = derivation.pick(nouns_of(tables.FOUND))
    determiner = derivation.pick(tables.EXISTING)
    being = derivation.say(plural if determiner.number else singular)
    rest = n - 1 - len(being)
    modifiers = derivation.within(0, 1 if rest > 5 or rest == 3 else 0)
    adjectives, very = derivation.describe(noun, modifiers)
    words: list[Word] = [("il", there), ("y", there), (getattr(tables.AVOIR, tense)[IL], being)]
    words += derivation.mention(derivation.core(noun, determiner, adjectives, very, False)).french
    rest -= 2 + modifiers
    return words + (derivation.place(rest, formal=False) if rest > 1 else derivation.adjuncts(rest, None, None))


def modal(derivation: Derivation, n: int, subject: Nominal) -> list[Word]:
    """`can sing`, `must not leave`: a modal verb and an infinitive, in exactly n words."""
    modals = tables.MODALS[derivation.frame, n > 3]
    english, french, negated = derivation.pick([one for one in modals if not (one[2] and subject.total)])
    ids = derivation.say(english)
    refused = derivation.say("not") if negated and english != "cannot" else ids
    words: list[Word] = [("ne", refused)] if negated else []
    words.append((french[subject.person], ids))
    if negated:
        words.append(("pas", refused))
    return words + infinitive(derivation, n - 1 - (refused is not ids), subject, denied=negated)


def way(derivation: Derivation, n: int, verb: Verb, plan: Plan) -> list[Word]:
    """Where someone goes to or comes from, and perhaps when: à l'hôtel, but dans un hôtel."""
    away = verb.base != "go" and derivation.chance(0.5)
    ids = derivation.say("from" if away else "to")
    when = derivation.spare(n - 2, plan)
    if n - when == 2:
        if derivation.chance(0.6):
            words = [("de" if away else "à", ids), derivation.city()]
        else:
            article, country = derivation.country().french
            if article[0] == "le":
                words = [("de" if away else "à", ids), article, country]
            else:
                words = [("de" if away else "en", ids), country]
    else:
        kinds = ("building", "outdoors") if away else ("building",)
        goal = derivation.noun_phrase(n - when - 1, kinds, "goal").french
        inside = derivation.english[ids[0] + 1] in ("a", "an")
        words = [("de" if away else "dans" if inside else "à", ids), *goal]
    return words + derivation.adjuncts(when, tables.COPULA_VERB, plan, placed=True)


def gift(derivation: Derivation, n: int, verb: Verb, plan: Plan, subject: Nominal) -> list[Word]:
    """`gives the book to Marie` or `gives her the book`."""
    negated = bool(plan.negation)
    if derivation.chance(0.35):
        english, _, indirect, _, person = derivation.pick(tables.OBJECTS)
        if (person != subject.person or person == IL) and verb.base not in ("explain",):
            words = derivation.verb_group(verb, plan, subject, pronoun=(english, indirect, 0))
            size = n - 1 if n < 6 or derivation.chance(0.5) else derivation.within(2, n - 2)
            words += derivation.noun_phrase(min(size, 8), verb.objects, "object", negated=negated).french
            return words + derivation.adjuncts(n - 1 - min(size, 8), verb, plan)
    words = derivation.verb_group(verb, plan, subject)
    size = derivation.within(2, min(n - 2, 6))
    words += derivation.noun_phrase(size, verb.objects, "object", negated=negated).french
    rest = n - size
    receiver = min(rest, 7) if rest < 4 or derivation.chance(0.5) else derivation.within(2, min(rest - 1, 7))
    words.append(("à", derivation.say("to")))
    words += derivation.noun_phrase(receiver - 1, ("family", "profession"), "goal").french
    return words + derivation.adjuncts(rest - receiver, verb, plan)


def infinitive(derivation: Derivation, n: int, subject: Nominal, *, denied: bool) -> list[Word]:
    """An infinitive with what belongs to it, in exactly n words."""
    kind = subject.kind if subject.kind in ("family", "profession") else "profession"
    verb = derivation.pick(tables.VERBS_WILLED["object" if n >= 3 and derivation.chance(0.75) else "alone", kind])
    while (
        not len(verb.particle.split()) < n <= most_words(verb)
        or verb.stative
        or (verb.pattern == "object" and n < 3 + len(verb.particle))
    ):
        verb = derivation.pick(tables.VERBS_WILLED["alone", kind])
    main = derivation.say(verb.base)
    if verb.particle:
        main += derivation.say(verb.particle)
    words: list[Word] = [(tables.REFLEXIVES[subject.person], main)] if verb.reflexive else []
    words.append((verb.french.infinitive, main))
    rest = n - len(main)
    if verb.pattern == "object":
        if verb.before:
            words.append((verb.before, main[-1:]))
        size = min(rest if rest < 4 or derivation.chance(0.5) else derivation.within(2, rest - 1), 9)
        words += derivation.noun_phrase(size, verb.objects, "object").french
        rest -= size
    plan = tables.DENIED if denied else tables.UNDATED
    return words + derivation.adjuncts(rest, verb, plan, manner=verb.pattern == "alone")


def fits(frame: int, pattern: str, verb: Verb | None) -> bool:
    """Whether the frame has a way to say the verb: nobody `was knowing`, and reports hold no reports."""
    if pattern in ("saying", "there") and frame not in (PAST, PRESENT, FUTURE):
        return False
    if (pattern == "modal" and frame not in (PAST, PRESENT)) or (pattern == "office" and frame == WHILE_PAST):
        return False
    return not (frame == WHILE_PAST and verb is not None and verb.stative)


def clause(derivation: Derivation, n: int, patterns: tuple[str, ...] = tables.PATTERN_DRAWS) -> list[Word]:
    """A clause of exactly n words."""
    slow, frame = slowness(derivation), derivation.frame
    for _ in range(60):
        pattern = derivation.pick(patterns)
        verb = derivation.pick(tables.VERBS[pattern]) if pattern in tables.VERBS else None
        kinds = (
            tables.CLAUSE_KINDS[pattern] if verb is None else verb.objects if pattern == "passive" else verb.subjects
        )
        habit = frame == PRESENT and derivation.chance(0.25)
        first = 1 if habit or personal(kinds) or "institution" in kinds else 2
        if pattern == "copula" and n > 3 and derivation.chance(0.6):
            first = 2
        rest = tables.LEAST[pattern] + slow + (tables.extra(verb) if verb and pattern != "passive" else 0)
        short = first + rest <= n and (verb is None or n <= first + most_words(verb))
        if (
            short
            and fits(frame, pattern, verb)
            and not (derivation.opened and (pattern == "office" or (verb and verb.stative)))
        ):
            break
    else:
        pattern, verb, kinds, rest, first, habit = "alone", tables.SLEEP, ("family",), 1 + slow, 1, False
    if pattern == "there":
        return existence(derivation, n)
    if pattern == "office":
        return office(derivation, n)
    most = 9 if derivation.chance(0.15) else 2 + n // 5
    size = derivation.within(first, max(first, min(n - rest, most)))
    subject = say_subject(derivation, size, kinds, habit=habit)
    left, habit = n - size, habit and size == 1
    if pattern == "modal":
        return subject.french + modal(derivation, left, subject)
    chain = tables.CHAINS.get(frame)
    if chain and verb and pattern == "object" and left >= rest + 7 and plain(verb) and derivation.chance(0.4):
        return subject.french + chained(derivation, left, subject, verb, chain)
    return subject.french + predicate(derivation, left, subject, pattern, verb, habit=habit)


def plain(verb: Verb) -> bool:
    """Whether the verb's simple past is a passé composé that shows."""
    return not verb.stative and verb.base != verb.past


def chained(derivation: Derivation, n: int, subject: Nominal, verb: Verb, chain: int) -> list[Word]:
    """Two things the subject does: `bought a cow and sold it`."""
    frame, derivation.frame = derivation.frame, chain
    options = [other for other in tables.VERBS_FOR["object", subject.kind] if plain(other) and other is not verb]
    other = derivation.pick(options or [verb])
    least = 3 + tables.extra(other) + slowness(derivation)
    first = derivation.within(3 + tables.extra(verb) + slowness(derivation), n - 1 - least)
    words = predicate(derivation, first, subject, "object", verb)
    words.append(("et", derivation.say("and")))
    words += predicate(derivation, n - 1 - first, subject, "object", other)
    derivation.frame = frame
    return words


def sentence(derivation: Derivation, n: int) -> list[Word]:
    """A sentence of exactly n words: one clause, or several joined."""
    frame = derivation.frame = derivation.pick(
        (PAST, PAST, PAST, PRESENT, PRESENT, FUTURE) if n > 2 else (PAST, PRESENT)
    )
    words: list[Word] = []
    if n >= 7 and derivation.chance(0.12):
        size = min(derivation.within(2, 3 if frame == PRESENT else 4), n - 5)
        words += [*derivation.time(size, derivation.times(None), None), derivation.comma()]
        derivation.timed = derivation.opened = True
        n -= size
    count = 1 if n < 9 else max(1 + (n > 17), round(n / derivation.pick((8, 10, 12, 15))))
    opening = derivation.pick(tables.OPENING[frame]) if count > 1 and not words and derivation.chance(0.25) else None
    joining: list[tables.Connector] = []
    while len(joining) < count - 1 - (opening is not None):  # a subordinate clause is followed by a main one
        connector = derivation.pick(tables.COORDINATING if joining and not joining[-1].comma else tables.JOINING[frame])
        if not joining or connector is not joining[-1]:
            joining.append(connector)
    derivation.told = frame == PAST and any(one.english in ("when", "while") for one in (opening, *joining) if one)
    used = sum(one.english.count(" ") + 1 for one in joining) + (opening.english.count(" ") + 1 if opening else 0)
    sizes = derivation.shares(n - used, count, min(n, 4))
    if opening:
        words += derivation.both(opening.english, opening.french)
        derivation.frame = opening.frames[frame]
        words += [*clause(derivation, sizes.pop()), derivation.comma()]
        derivation.frame = frame
        derivation.opened = False
    words += clause(derivation, sizes.pop())
    for one in joining:
        derivation.opened = False
        derivation.timed &= frame != PRESENT
        if one.comma:
            words.append(derivation.comma())
        words += derivation.both(one.english, one.french)
        derivation.frame = one.frames[frame]
        words += clause(derivation, sizes.pop())
        derivation.frame = frame
    return words


def realise(words: list[Word]) -> list[Word]:
    """French words as written: elided, contracted, with their commas."""
    written: list[Word] = []
    comma = ""
    for text, ids in reversed(words):
        if text == ",":
            comma = ","
            continue
        if text in tables.LEANING and written and not comma:
            following, later = written[-1]
            if text == "de" and following == "des":  # de + des is de, and may elide in its turn
                written.pop()
                ids += later
                following, later = written[-1]
            joined = tables.CONTRACTED.get((text, following))
            if joined:
                written[-1] = (joined, ids + later)
                continue
            if text == "si":
                if following in ("il", "ils"):
                    written[-1] = ("s'" + following, ids + later)
                    continue
            elif text == "puisque" and following not in tables.ELIDING:
                pass
            elif text in tables.ELIDED and opens_with_vowel(following):
                written[-1] = (tables.ELIDED[text] + following, ids + later)
                continue
        if " " in text:
            parts = text.split()
            written.append((parts[-1] + comma, ids))
            written.extend([(part, ids) for part in reversed(parts[:-1])])
        else:
            written.append((text + comma, ids))
        comma = ""
    written.reverse()
    return written


def derive(random: Callable[[], float], length: int) -> tuple[list[str], list[Word]]:
    """The English words, this many, and the French ones that these random numbers lead to."""
    derivation = Derivation(random, relative)
    words = sentence(derivation, length)
    assert len(derivation.english) == length, (length, derivation.english)
    return derivation.english, words


def punctuated(words: list[str]) -> str:
    """Words as a sentence, with its capital and full stop."""
    text = " ".join(words)
    return text[0].upper() + text[1:] + "."


def written(english: list[str], words: list[Word]) -> Pair:
    """Both sides as text, and the links between their words."""
    french = realise(words)
    links = sorted({(i, j) for j, (_, ids) in enumerate(french) for i in ids})
    return Pair(punctuated(english), punctuated([text for text, _ in french]), tuple(links))


PARTS = ("train", "valid", "test")
PART_BOUNDS = (230, 243)  # of one byte of a sentence's digest: 90, 5 and 5 in a hundred
TRIES = 60  # so often an unseen sentence of a length is sought before another length is drawn
DRY = 10  # so often in a row a length may fail before it is given up


def part_of(digest: bytes) -> str:
    """The one part that a sentence belongs to."""
    return PARTS[bisect(PART_BOUNDS, digest[8])]


def natural(length: int) -> float:
    """How frequent a length is in ordinary text: most of all 10 to 12 words, with a long tail."""
    rise = length**3 / (length**3 + 700)
    return rise * (0.86 ** max(0, length - 11) + 0.02 * 0.97**length)


def length_weights(shortest: int, longest: int, lengths: str | Mapping[int, float]) -> dict[int, float]:
    """The weight of each length asked for; what cannot be asked for is told."""
    if not 2 <= shortest <= longest <= 80:
        raise ConfigError(f"shortest ({shortest}) and longest ({longest}) must be in order and from 2 to 80 words")
    span = range(shortest, longest + 1)
    if isinstance(lengths, str):
        if lengths == "natural":
            return {length: natural(length) for length in span}
        if lengths == "uniform":
            return dict.fromkeys(span, 1.0)
        raise ConfigError(f"lengths ({lengths!r}) must be 'natural', 'uniform' or a mapping of lengths to weights")
    outside = [length for length in lengths if length not in span]
    if outside:
        raise ConfigError(f"lengths has a weight for {outside[0]}; lengths go from {shortest} to {longest} here")
    weights = {length: float(lengths[length]) for length in sorted(lengths) if lengths[length]}
    if not weights or not all(0 < weight < float("inf") for weight in weights.values()):
        raise ConfigError(f"lengths ({dict(lengths)}) must give positive weights, and at least one")
    return weights


def sentences(
    size: int,
    *,
    seed: int = 1,
    part: str = "train",
    shortest: int = 2,
    longest: int = 80,
    lengths: str | Mapping[int, float] = "natural",
) -> Iterator[Pair]:
    """`size` sentence pairs, the same for the same arguments, none twice, and none that another part could hold.

    Fewer come only when the lengths asked for hold fewer sentences.
    """
    if size < 0:
        raise ConfigError(f"size ({size}) must be 0 or more")
    if part not in PARTS:
        raise ConfigError(f"part ({part!r}) must be one of {', '.join(PARTS)}")
    return drawn(size, random.Random(f"{seed}/{part}"), part, length_weights(shortest, longest, lengths))


def drawn(size: int, source: random.Random, part: str, weights: dict[int, float]) -> Iterator[Pair]:
    """Unseen sentences of one part; a length that keeps failing to give one is given up."""
    draw = source.random
    seen: set[bytes] = set()
    names, totals = list(weights), list(accumulate(weights.values()))
    dry = dict.fromkeys(names, 0)
    while len(seen) < size and names:
        length = names[min(bisect(totals, draw() * totals[-1]), len(names) - 1)]
        for _ in range(TRIES):
            english, french = derive(draw, length)
            digest = hashlib.sha256(punctuated(english).encode()).digest()
            if part_of(digest) == part and digest[:8] not in seen:
                seen.add(digest[:8])
                dry[length] = 0
                yield written(english, french)  # only now: most drafts belong to another part
                break
        else:
            dry[length] += 1
            if dry[length] == DRY:
                names.remove(length)
                totals = list(accumulate(weights[name] for name in names))
