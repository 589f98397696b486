"""Grammar of the built-in corpus: derives English and French sentences and their word alignment at once.

English is derived from left to right, so that the index of a word is its position; each French word carries the
positions of the English words it translates. Gender, tense and agreement of the French follow from the English alone.
`d` is the sentence being derived, `n` the number of English words that a rule must produce.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from regard.corpora.builtin import function_words as words
from regard.corpora.builtin import lexicon
from regard.corpora.builtin.function_words import THIRD, THIRD_PLURAL, VerbForm
from regard.corpora.builtin.lexicon import COPULA, KINDS, PERSONS, SINGULAR, VERBS_BY_SUBJECT, Verb, nouns_of
from regard.corpora.builtin.morphology import Word
from regard.corpora.builtin.phrases import Derivation, NounPhrase, ObjectPronoun, modifier_lengths

# Patterns of a clause: how often each is drawn, and the fewest words after the subject.
PATTERNS = {
    "intransitive": (4, 1),
    "transitive": (13, 2),
    "copula": (5, 2),
    "passive": (5, 2),
    "locative": (2, 3),
    "motion": (2, 3),
    "ditransitive": (3, 5),
    "reporting": (2, 6),
    "control": (2, 2),
    "modal": (2, 2),
    "existential": (1, 5),
    "profession": (1, 3),
}
PATTERN_CHOICE = tuple(pattern for pattern, (weight, _) in PATTERNS.items() for _ in range(weight))
SUBJECTS_OF_PATTERN = {
    "copula": KINDS,
    "modal": ("family", "profession"),
    "existential": ("family",),
    "profession": ("family",),
}
WORDS_AFTER_VERB = {"locative": 2, "motion": 2, "ditransitive": 4, "reporting": 4, "control": 1}
CHAIN_FRAMES = {"past": "past_chain", "present": "present_chain", "future": "future"}
LONGEST_SENTENCE = 80


def derive(random: Callable[[], float], length: int) -> tuple[list[str], list[Word]]:
    """English words, as many as `length`, and French words before elision and contraction."""
    d = Derivation(random, relative_clause)
    french = sentence(d, length)
    assert len(d.english) == length, (length, d.english)
    return d.english, french


# Sentences and clauses


def sentence(d: Derivation, n: int) -> list[Word]:
    """A sentence: one clause, or several joined by conjunctions."""
    frame = d.frame = d.pick(("past", "past", "past", "present", "present", "future") if n > 2 else ("past", "present"))
    french: list[Word] = []
    if n >= 7 and d.chance(0.12):
        length = min(d.within(2, 3 if frame == "present" else 4), n - 5)
        french += [*d.time(length, d.time_class(None), None), d.comma()]
        d.has_time = d.opens_with_time = True
        n -= length
    count = 1 if n < 9 else max(1 + (n > 17), round(n / d.pick((8, 10, 12, 15))))
    opening = d.pick(words.OPENING[frame]) if count > 1 and not french and d.chance(0.25) else None
    joining: list[words.Conjunction] = []
    while len(joining) < count - 1 - (opening is not None):  # a subordinate clause is followed by a main clause
        options = words.COORDINATING if joining and not joining[-1].comma else words.JOINING[frame]
        conjunction = d.pick(options)
        if not joining or conjunction.english != joining[-1].english:
            joining.append(conjunction)
    conjunctions = [opening, *joining] if opening else joining
    d.narrative = frame == "past" and any(conjunction.english in ("when", "while") for conjunction in conjunctions)
    conjunction_words = sum(len(conjunction.english.split()) for conjunction in conjunctions)
    sizes = d.split(n - conjunction_words, count, min(n, 4))
    if opening:
        french += [*subordinate(d, sizes.pop(), opening, frame), d.comma()]
        d.opens_with_time = False
    french += clause(d, sizes.pop())
    for conjunction in joining:
        d.opens_with_time = False
        d.has_time &= frame != "present"
        if conjunction.comma:
            french.append(d.comma())
        french += subordinate(d, sizes.pop(), conjunction, frame)
    return french


def subordinate(d: Derivation, n: int, conjunction: words.Conjunction, frame: str) -> list[Word]:
    """A conjunction, and after it a clause of n words."""
    french = d.both(conjunction.english, conjunction.french)
    d.frame = conjunction.frames[frame]
    french += clause(d, n)
    d.frame = frame
    return french


def clause(d: Derivation, n: int, patterns: tuple[str, ...] = PATTERN_CHOICE) -> list[Word]:
    """A clause: subject and predicate."""
    auxiliary, frame = auxiliary_words(d), d.frame
    for _ in range(60):
        pattern = d.pick(patterns)
        verb = d.pick(lexicon.VERBS[pattern]) if pattern in lexicon.VERBS else None
        if verb is None:
            kinds = SUBJECTS_OF_PATTERN[pattern]
        else:
            kinds = verb.objects if pattern == "passive" else verb.subjects
        habit = frame == "present" and d.chance(0.25)
        shortest_subject = 1 if habit or lexicon.has_person(kinds) or "institution" in kinds else 2
        if pattern == "copula" and n > 3 and d.chance(0.6):
            shortest_subject = 2
        rest = PATTERNS[pattern][1] + auxiliary + (verb.extra_words if verb and pattern != "passive" else 0)
        longest = shortest_subject + (most_words(verb) if verb else n)
        if shortest_subject + rest <= n <= longest and pattern_fits(d, pattern, verb):
            break
    else:
        pattern, verb, kinds, rest = "intransitive", lexicon.SLEEP, ("family",), 1 + auxiliary
        shortest_subject, habit = 1, False
    if pattern == "existential":
        return existential(d, n)
    if pattern == "profession":
        return profession(d, n)
    most = 9 if d.chance(0.15) else 2 + n // 5
    size = d.within(shortest_subject, max(shortest_subject, min(n - rest, most)))
    subject = subject_of(d, size, kinds, habit=habit)
    left, habit = n - size, habit and size == 1
    if pattern == "modal":
        return subject.french + modal(d, left, subject)
    chained = pattern == "transitive" and verb and frame in CHAIN_FRAMES and left >= rest + 7 and distinct_past(verb)
    if verb and chained and d.chance(0.4):
        return subject.french + verb_chain(d, left, subject, verb)
    return subject.french + predicate(d, left, subject, pattern, verb, habit=habit)


def pattern_fits(d: Derivation, pattern: str, verb: Verb | None) -> bool:
    """Whether the time frame has a form for the verb: not `was knowing`, and no report in a report."""
    stative = verb is not None and verb.stative
    if d.opens_with_time and (pattern == "profession" or stative):
        return False
    if pattern in ("reporting", "existential"):
        return d.frame in ("past", "present", "future")
    if pattern == "modal":
        return d.frame in ("past", "present")
    return d.frame != "while_past" or not (pattern == "profession" or stative)


def auxiliary_words(d: Derivation) -> int:
    """1 if even the shortest verb form of the time frame has an auxiliary: `will sing`."""
    return int(d.frame in ("future", "reported", "while_past"))


def most_words(verb: Verb) -> int:
    """The most words a predicate with the verb may have: `leave` takes a time, but no place."""
    return 3 if verb.base == "leave" else LONGEST_SENTENCE


def distinct_past(verb: Verb) -> bool:
    """Whether the simple past differs from the base and is a passé composé in French."""
    return not verb.stative and verb.base != verb.past


def subject_of(d: Derivation, n: int, kinds: tuple[str, ...], *, habit: bool = False) -> NounPhrase:
    """A subject; `it` and `they` only if their antecedent determines the French gender."""
    if n > 1:
        return d.noun_phrase(n, kinds, "subject")
    if not d.depth and d.chance(0.5):
        if d.singular and d.singular_clear and d.singular.kind in kinds:
            return d.singular._replace(french=[("elle" if d.singular.gender else "il", d.say("it"))])
        if d.plural and d.plural_clear and d.plural.kind in kinds:
            pronoun = ("elles" if d.plural.gender else "ils", d.say("they"))
            return d.plural._replace(french=[pronoun], person=THIRD_PLURAL)
    return d.one_word_noun_phrase(kinds, "habit" if habit else "subject", False)


def verb_chain(d: Derivation, n: int, subject: NounPhrase, verb: Verb) -> list[Word]:
    """Two predicates of one subject: `bought a cow and sold it`."""
    frame, d.frame = d.frame, CHAIN_FRAMES[d.frame]
    others = [v for v in VERBS_BY_SUBJECT["transitive", subject.kind] if distinct_past(v) and v is not verb]
    other = d.pick(others or [verb])
    shortest = 3 + auxiliary_words(d)
    first = d.within(shortest + verb.extra_words, n - 1 - shortest - other.extra_words)
    french = predicate(d, first, subject, "transitive", verb)
    french.append(("et", d.say("and")))
    french += predicate(d, n - 1 - first, subject, "transitive", other)
    d.frame = frame
    return french


# Predicates


def predicate(
    d: Derivation, n: int, subject: NounPhrase, pattern: str, verb: Verb | None = None, *, habit: bool = False
) -> list[Word]:
    """The verb with its objects and adjuncts, or a copula."""
    if verb is None and pattern != "copula":
        verb = verb_for(d, n, subject, pattern)
    if verb is None:
        return copula(d, n, subject, habit=habit)
    if pattern == "passive":
        return passive(d, n, subject, verb)
    n -= len(verb.particle.split())
    if pattern == "transitive":
        return transitive(d, n, subject, verb, habit=habit)
    voice = "affirmative" if pattern == "reporting" and verb.stative else "active"
    form = d.verb_form(voice, n - WORDS_AFTER_VERB.get(pattern, 0), subject, verb=verb, habitual=habit)
    rest = n - form.length
    if pattern == "ditransitive":
        return ditransitive(d, rest, verb, form, subject)
    french = d.verb_group(verb, form, subject)
    if pattern == "intransitive":
        return french + d.adjuncts(rest, verb, form, manner=subject.kind in lexicon.LIVING)
    if pattern == "locative":
        time = d.time_length(rest - 2, form)
        french += d.place(rest - time, verb=verb.base)
        return french + d.adjuncts(time, verb, form, placed=True)
    if pattern == "motion":
        return french + direction(d, rest, verb, form)
    if pattern == "reporting":
        return french + reported_clause(d, rest)
    if verb.preposition:
        french.append((verb.preposition, (len(d.english) - 1,)))
    return french + infinitive(d, rest, subject, negated=bool(form.negation))


def verb_for(d: Derivation, n: int, subject: NounPhrase, pattern: str) -> Verb | None:
    """A verb for the subject, if one is found that takes n words."""
    options = VERBS_BY_SUBJECT[pattern, subject.kind]
    if pattern == "intransitive" and (d.depth or d.frame == "present"):
        options = lexicon.HABITUAL_VERBS[subject.kind] or (options if n == 1 else ())
    least = (2 if pattern == "transitive" else 1) + auxiliary_words(d)
    for _ in range(8):
        verb = d.pick(options) if options else None
        if verb is None or pattern == "passive" or least + verb.extra_words <= n <= most_words(verb):
            return verb
    return None if n > 1 else lexicon.SLEEP


def transitive(d: Derivation, n: int, subject: NounPhrase, verb: Verb, *, habit: bool) -> list[Word]:
    """A verb with its object, and perhaps adjuncts; n does not count the particle."""
    form = d.verb_form("active", n - 1, subject, verb=verb, habitual=habit)
    rest = n - form.length
    if rest == 1 or d.chance(0.15):
        pronoun = object_pronoun(d, verb, subject)
        if pronoun:
            return d.verb_group(verb, form, subject, pronoun=pronoun) + d.adjuncts(rest - 1, verb, form)
    group = d.verb_group(verb, form, subject)
    if verb.stative or verb.no_place:
        size = rest - d.time_length(rest - 2, form)
    else:
        size = rest if rest < 4 or d.chance(0.4) else d.within(2, rest - 1)
    if rest - size == 1 and d.has_time:
        size = rest
    role = "generic" if verb.generic else "goal" if verb.preposition and rest > 1 else "object"
    preposition = [(verb.preposition, (len(d.english) - 1,))] if verb.preposition else []
    negated = bool(form.negation) and not verb.preposition and not verb.generic
    noun_phrase = d.noun_phrase(size, verb.objects, role, negated=negated).french
    manner, others = d.separate_adjuncts(rest - size, verb, form, manner=subject.kind in PERSONS and not verb.stative)
    return group + manner + preposition + noun_phrase + others


def object_pronoun(d: Derivation, verb: Verb, subject: NounPhrase) -> ObjectPronoun | None:
    """An object pronoun for the verb, if one is possible; `it` and `them` only with a clear antecedent."""
    if verb.preposition not in ("", "à") or d.depth:
        return None
    indirect = verb.preposition == "à"
    it, them = d.singular, d.plural
    if not indirect and it and d.singular_clear and it.kind in verb.objects and subject.kind != it.kind:
        return ObjectPronoun("it", "la" if it.gender else "le", it.gender)
    if not indirect and them and d.plural_clear and them.kind in verb.objects and subject.number == SINGULAR:
        return ObjectPronoun("them", "les", them.gender + 2)
    return personal_object(d, subject, indirect=indirect) if lexicon.has_person(verb.objects) else None


def personal_object(d: Derivation, subject: NounPhrase, *, indirect: bool) -> ObjectPronoun | None:
    """me, him, her, us or you, unless it would be reflexive. A participle agrees with a direct object."""
    pronoun = d.pick(words.OBJECT_PRONOUNS)
    if pronoun["person"] == subject.person and pronoun["person"] != THIRD:
        return None
    if indirect:
        return ObjectPronoun(pronoun["english"], pronoun["indirect"], 0)
    return ObjectPronoun(pronoun["english"], pronoun["direct"], pronoun["gender"] + 2 * pronoun["number"])


def ditransitive(d: Derivation, n: int, verb: Verb, form: VerbForm, subject: NounPhrase) -> list[Word]:
    """`gives the book to Marie` or `gives her the book`."""
    negated = bool(form.negation)
    if d.chance(0.35):
        pronoun = personal_object(d, subject, indirect=True)
        if pronoun and verb.base != "explain":
            french = d.verb_group(verb, form, subject, pronoun=pronoun)
            size = min(n - 1 if n < 6 or d.chance(0.5) else d.within(2, n - 2), 8)
            french += d.noun_phrase(size, verb.objects, "object", negated=negated).french
            return french + d.adjuncts(n - 1 - size, verb, form)
    french = d.verb_group(verb, form, subject)
    size = d.within(2, min(n - 2, 6))
    french += d.noun_phrase(size, verb.objects, "object", negated=negated).french
    rest = n - size
    recipient = min(rest, 7) if rest < 4 or d.chance(0.5) else d.within(2, min(rest - 1, 7))
    french.append(("à", d.say("to")))
    french += d.noun_phrase(recipient - 1, ("family", "profession"), "goal").french
    return french + d.adjuncts(rest - recipient, verb, form)


def passive(d: Derivation, n: int, subject: NounPhrase, verb: Verb) -> list[Word]:
    """A passive, perhaps with its agent."""
    form = d.verb_form("passive", n, subject)
    french = d.copula_group(form, subject, verb)
    rest = n - form.length
    if rest >= 3 and d.chance(0.7):
        agent = min(rest if rest < 5 or d.chance(0.4) else d.within(3, rest - 1), 9)
        french.append(("par", d.say("by")))
        french += d.noun_phrase(agent - 1, verb.subjects, "oblique").french
        rest -= agent
    return french + d.adjuncts(rest, verb, form)


def direction(d: Derivation, n: int, verb: Verb, form: VerbForm) -> list[Word]:
    """Where the subject goes to or comes from, and perhaps when: à l'hôtel, but dans un hôtel."""
    away = verb.base != "go" and d.chance(0.5)
    positions = d.say("from" if away else "to")
    time = d.time_length(n - 2, form)
    if n - time == 2:
        if d.chance(0.6):
            goal = [d.city()]
            preposition = "à"
        else:
            goal = d.country().french
            preposition = "à" if goal[0][0] == "le" else "en"
            goal = goal if preposition == "à" else goal[1:]
    else:
        goal = d.noun_phrase(n - time - 1, ("building", "outdoors") if away else ("building",), "goal").french
        preposition = "dans" if d.english[positions[0] + 1] in ("a", "an") else "à"
    french = [("de" if away else preposition, positions), *goal]
    return french + d.adjuncts(time, COPULA, form, placed=True)


def reported_clause(d: Derivation, n: int) -> list[Word]:
    """`that` and a clause."""
    that = ("que", d.say("that"))
    frame = d.frame
    d.frame = {"past": "reported", "present": d.pick(("present", "past", "future"))}.get(frame, frame)
    french = clause(d, n - 1, ("intransitive", "transitive", "copula", "passive"))
    d.frame = frame
    return [that, *french]


def modal(d: Derivation, n: int, subject: NounPhrase) -> list[Word]:
    """`can sing`, `must not leave`: a modal verb and an infinitive."""
    modals = [verb for verb in words.MODALS[d.frame] if not (verb.negated and subject.universal)]
    verb = d.pick([verb for verb in modals if n > 3 or not verb.negation])
    positions = d.say(verb.english)
    negation = d.say(verb.negation) if verb.negation else positions
    french: list[Word] = [(verb.french[subject.person], positions)]
    if verb.negated:
        french = [("ne", negation), *french, ("pas", negation)]
    return french + infinitive(d, n - 1 - bool(verb.negation), subject, negated=verb.negated)


def infinitive(d: Derivation, n: int, subject: NounPhrase, *, negated: bool) -> list[Word]:
    """An infinitive with its object and adjuncts."""
    kind = subject.kind if subject.kind in ("family", "profession") else "profession"
    verb = d.pick(lexicon.VOLUNTARY_VERBS["transitive" if n >= 3 and d.chance(0.75) else "intransitive", kind])
    while (
        not len(verb.particle.split()) < n <= most_words(verb)
        or verb.stative
        or (verb.pattern == "transitive" and n < 3 + len(verb.particle))
    ):
        verb = d.pick(lexicon.VOLUNTARY_VERBS["intransitive", kind])
    positions = d.say(f"{verb.base} {verb.particle}".strip())
    french: list[Word] = [(words.REFLEXIVE_PRONOUNS[subject.person], positions)] if verb.reflexive else []
    french.append((verb.french.infinitive, positions))
    rest = n - len(positions)
    if verb.pattern == "transitive":
        if verb.preposition:
            french.append((verb.preposition, positions[-1:]))
        size = min(rest if rest < 4 or d.chance(0.5) else d.within(2, rest - 1), 9)
        french += d.noun_phrase(size, verb.objects, "object").french
        rest -= size
    form = words.NEGATED_INFINITIVE if negated else words.INFINITIVE
    return french + d.adjuncts(rest, verb, form, manner=verb.pattern == "intransitive")


def copula(d: Derivation, n: int, subject: NounPhrase, *, habit: bool = False) -> list[Word]:
    """`is old`, `was very old`, `is older than the bridge`: the copula and an adjective."""
    start = len(d.english)
    form = d.verb_form("copula", n - 1, subject, habitual=habit)
    french = d.copula_group(form, subject)
    rest = n - form.length
    adjective = d.adjective((lexicon.PREDICATIVE if rest == 1 else lexicon.GRADABLE)[subject.kind])
    comparison = compared(d, rest, subject, adjective, form)
    if comparison:
        return french + comparison
    intensifiers = words.INTENSIFIERS[: 2 if form.negation else 3]
    timeless = d.has_time or d.depth or not form.dated or adjective.english not in lexicon.MOODS
    both_intensified = rest == 5 and timeless
    if rest in (2, 4) or both_intensified:
        french += d.both(*d.pick(intensifiers))
    french.append((adjective.french[subject.agreement], d.say(adjective.english)))
    if rest > 2 and (timeless or d.chance(0.3)):
        french.append(("et", d.say("and")))
        if both_intensified:
            french += d.both(*d.pick(intensifiers))
        other = d.adjective(lexicon.GRADABLE[subject.kind])
        french.append((other.french[subject.agreement], d.say(other.english)))
    return french + d.adjuncts(n - (len(d.english) - start), COPULA, form)


def compared(d: Derivation, n: int, subject: NounPhrase, adjective: lexicon.Adjective, form: VerbForm) -> list[Word]:
    """`older than the bridge`, `less famous than Marie`; empty if the adjective is not compared."""
    adjective_form = adjective.french[subject.agreement]
    no_longer = form.negation == "no longer"  # ne ... plus plus
    shortest = 1 if subject.kind in PERSONS else 2
    if not (d.chance(0.5) or n > 5):
        return []
    if n >= 2 + shortest and adjective.comparative and not no_longer:
        positions = d.say(adjective.comparative)
        irregular = words.IRREGULAR_COMPARATIVES.get(adjective.comparative)
        french = [("plus", positions), (adjective_form, positions)]
        if irregular:
            french = [(irregular[subject.agreement], positions)]
        than = ("que", d.say("than"))
        return [*french, than, *d.noun_phrase(n - 2, (subject.kind,), "oblique").french]
    if n >= 3 + shortest:
        more = not adjective.comparative and not no_longer
        english, degree = d.pick(words.DEGREES if more else words.DEGREES[1:])
        french = [(degree, d.say(english)), (adjective_form, d.say(adjective.english))]
        than = ("que", d.say("as" if english == "as" else "than"))
        return [*french, than, *d.noun_phrase(n - 3, (subject.kind,), "oblique").french]
    return []


def profession(d: Derivation, n: int) -> list[Word]:
    """`Marie is a doctor`, `Paul was a good teacher`; a bare profession has no article in French."""
    noun = d.pick(nouns_of(("profession",)))
    subject = d.person([name for name in lexicon.FIRST_NAMES if name.gender == noun.gender])
    form = d.verb_form("copula", n - 3, subject)
    french = subject.french + d.copula_group(form, subject)
    rest = n - 1 - form.length
    if rest == 2 or (rest in (4, 5) and d.chance(0.4) and form.dated):
        french.append((noun.french[0], d.say(f"{noun.article} {noun.english[0]}")))
        return french + d.adjuncts(rest - 2, COPULA, form)
    modifiers = d.pick(modifier_lengths(rest - 2, not d.depth))
    phrase = d.simple_noun_phrase(noun, words.A, *d.adjectives(noun, modifiers))
    french += phrase.french
    return french + (d.complement(rest - 2 - modifiers, noun, phrase, placed=True) if rest - 2 > modifiers else [])


def existential(d: Derivation, n: int) -> list[Word]:
    """`There is a cat in the garden`."""
    singular, plural, tense = words.THERE_IS[d.frame]
    there = d.say("there")
    noun = d.pick(nouns_of(lexicon.EXISTENTIAL))
    determiner = d.pick(words.DETERMINER_CHOICES["existential"])
    verb = d.say(plural if determiner.number else singular)
    rest = n - 1 - len(verb)
    modifiers = d.within(0, 1 if rest > 5 or rest == 3 else 0)
    french: list[Word] = [("il", there), ("y", there), (getattr(words.AVOIR, tense)[THIRD], verb)]
    french += d.mention(d.simple_noun_phrase(noun, determiner, *d.adjectives(noun, modifiers))).french
    rest -= 2 + modifiers
    return french + (d.place(rest) if rest > 1 else d.adjuncts(rest, None, None))


# Relative clauses


def relative_clause(d: Derivation, n: int, head: NounPhrase) -> list[Word]:
    """A relative clause after its head."""
    frame = d.frame
    d.frame = "past" if frame in ("past", "reported", "while_past", "past_chain") else "present"
    d.depth += 1
    draw = d.random()
    person = head.kind in PERSONS
    if n >= 4 and draw < (0.3 if person else 0.5) and lexicon.VERBS_BY_OBJECT[head.kind]:
        french = object_relative(d, n, head)
    elif n >= 4 and draw < 0.7 and head.kind in lexicon.PLACES:
        french = [*d.both("where", "où"), *clause(d, n - 1, ("intransitive", "transitive"))]
    elif n >= 4 and draw < 0.4 and person:
        french = possessive_relative(d, n)
    else:
        french = d.both("who" if person else "that", "qui")
        french += predicate(d, n - 1, head, d.pick(subject_relative_patterns(head.kind, min(n - 1, 3))))
    d.depth -= 1
    d.frame = frame
    return french


@cache
def subject_relative_patterns(kind: str, n: int) -> list[str]:
    """Patterns of a relative clause whose subject is its head."""
    shortest = (("intransitive", 1), ("transitive", 3), ("passive", 2))
    patterns = [pattern for pattern, length in shortest if n >= length and VERBS_BY_SUBJECT[pattern, kind]] * 4
    return [*patterns, "copula"] if n >= 2 else patterns


def object_relative(d: Derivation, n: int, head: NounPhrase) -> list[Word]:
    """`that the teacher bought`: the head is the object, and a participle agrees with it."""
    options = lexicon.VERBS_BY_OBJECT[head.kind]
    verb = d.pick(options)
    for _ in range(4):
        if n > 5 and verb.no_place:  # there will be room for a place
            verb = d.pick(options)
    while n < 4 + verb.extra_words:
        verb = d.pick(options)
    that = d.say("that")
    end = that[0] + n
    subject = subject_of(d, d.within(1, max(1, min(4, n - 2 - verb.extra_words))), verb.subjects)
    form = d.verb_form("active", end - len(d.english) - len(verb.particle.split()), subject, verb=verb)
    french = [("dont" if verb.preposition == "de" else "que", that), *subject.french]
    french += d.verb_group(verb, form, subject, agreement=head.agreement)
    return french + d.adjuncts(end - len(d.english), verb, form)


def possessive_relative(d: Derivation, n: int) -> list[Word]:
    """`whose sister sings`."""
    noun = d.pick(nouns_of(("family",)))
    whose = d.say("whose")
    french = [("dont", whose), ("la" if noun.gender else "le", whose), (noun.french[0], d.say(noun.english[0]))]
    subject = NounPhrase([], THIRD, noun.gender, SINGULAR, "family")
    return french + predicate(d, n - 2, subject, d.pick(("copula", "intransitive")))
