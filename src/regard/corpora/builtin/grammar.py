"""Grammar of the built-in corpus: derives English and French sentences and their word alignment at once.

English is derived from left to right, so that the index of a word is its position; each French word carries the
positions of the English words it translates. Gender, tense and agreement of the French follow from the English alone.
`d` is the sentence being derived, `n` the number of English words that a rule must produce.
"""

from __future__ import annotations

from collections.abc import Callable

from regard.corpora.builtin import function_words as words
from regard.corpora.builtin import lexicon
from regard.corpora.builtin.function_words import THIRD, VerbForm
from regard.corpora.builtin.lexicon import COPULA, KINDS, PERSONS, SINGULAR, VERBS_BY_SUBJECT, Verb, nouns_of
from regard.corpora.builtin.morphology import Word, indefinite_article
from regard.corpora.builtin.phrases import Derivation, NounPhrase, ObjectPronoun, modifier_lengths

PATTERN_CHOICE = tuple(name for name, pattern in words.PATTERNS.items() for _ in range(pattern["weight"]))
CHAIN_FRAMES = {"past": "past_chain", "present": "present_chain", "future": "future"}


def derive(random: Callable[[], float], length: int) -> tuple[list[str], list[Word]]:
    """English words, as many as `length`, and French words before elision and contraction."""
    d = Derivation(random, relative_clause)
    sentence(d, length)
    assert len(d.english) == length, (length, d.english)
    return d.english, d.french


# Sentences and clauses


def sentence(d: Derivation, n: int) -> None:
    """A sentence: one clause, or several joined by conjunctions."""
    frame = d.frame = d.pick(("past", "past", "past", "present", "present", "future") if n > 2 else ("past", "present"))
    if n >= 7 and d.chance(0.12):
        length = min(d.within(2, 3 if frame == "present" else 4), n - 5)
        d.time(length, d.time_class(words.ANY_FORM), words.ANY_FORM)
        d.comma()
        d.has_time = d.opens_with_time = True
        n -= length
    count = 1 if n < 9 else max(1 + (n > 17), round(n / d.pick((8, 10, 12, 15))))
    opening = d.pick(words.OPENING[frame]) if count > 1 and not d.has_time and d.chance(0.25) else None
    joining: list[words.Conjunction] = []
    while len(joining) < count - 1 - (opening is not None):  # a subordinate clause is followed by a main clause
        conjunction = d.pick(words.COORDINATING if joining and not joining[-1].comma else words.JOINING[frame])
        if not joining or conjunction.english != joining[-1].english:
            joining.append(conjunction)
    conjunctions = [opening, *joining] if opening else joining
    d.narrative = frame == "past" and any(conjunction.english in ("when", "while") for conjunction in conjunctions)
    conjunction_words = sum(len(conjunction.english.split()) for conjunction in conjunctions)
    sizes = d.split(n - conjunction_words, count, min(n, 4))
    if opening:
        subordinate(d, sizes.pop(), opening)
        d.comma()
        d.opens_with_time = False
    clause(d, sizes.pop())
    for conjunction in joining:
        d.opens_with_time = False
        d.has_time &= frame != "present"
        if conjunction.comma:
            d.comma()
        subordinate(d, sizes.pop(), conjunction)


def subordinate(d: Derivation, n: int, conjunction: words.Conjunction) -> None:
    """A conjunction, and after it a clause of n words."""
    d.both(conjunction.english, conjunction.french)
    with d.in_frame(conjunction.frames[d.frame]):
        clause(d, n)


def clause(d: Derivation, n: int, patterns: tuple[str, ...] = PATTERN_CHOICE) -> None:
    """A clause: subject and predicate."""
    auxiliary = auxiliary_words(d)
    for _ in range(60):
        pattern = d.pick(patterns)
        verb = d.pick(lexicon.VERBS[pattern]) if pattern in lexicon.VERBS else None
        if verb is None:
            kinds = tuple(words.PATTERNS[pattern].get("subjects", KINDS))
        else:
            kinds = verb.objects if pattern == "passive" else verb.subjects
        habit = d.frame == "present" and d.chance(0.25)
        shortest_subject = 1 if habit or lexicon.has_person(kinds) or "institution" in kinds else 2
        if pattern == "copula" and n > 3 and d.chance(0.6):
            shortest_subject = 2
        rest = words.PATTERNS[pattern]["words"] + auxiliary + (verb.extra_words if verb and pattern != "passive" else 0)
        longest = shortest_subject + (verb.most_words if verb else n)
        if shortest_subject + rest <= n <= longest and fits(d, pattern, verb):
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
    left = n - size
    if pattern == "modal":
        return modal(d, left, subject)
    chained = pattern == "transitive" and verb and d.frame in CHAIN_FRAMES and left >= rest + 7 and verb.distinct_past
    if verb and chained and d.chance(0.4):
        return verb_chain(d, left, subject, verb)
    return predicate(d, left, subject, pattern, verb, habit=habit and size == 1)


def fits(d: Derivation, pattern: str, verb: Verb | None) -> bool:
    """Whether the pattern and its verb go with the time frame."""
    stative = pattern == "profession" or (verb is not None and verb.stative)
    if d.opens_with_time and stative:
        return False
    if "frames" in words.PATTERNS[pattern]:
        return d.frame in words.PATTERNS[pattern]["frames"]
    return d.frame != "while_past" or not stative


def auxiliary_words(d: Derivation) -> int:
    """1 if even the shortest verb form of the time frame has an auxiliary: `will sing`."""
    return int(d.frame in ("future", "reported", "while_past"))


def subject_of(d: Derivation, n: int, kinds: tuple[str, ...], *, habit: bool = False) -> NounPhrase:
    """A subject; `it` and `they` only if their antecedent determines the French gender."""
    if n > 1:
        return d.noun_phrase(n, kinds, "subject")
    if not d.depth and d.chance(0.5):
        if d.singular and d.singular_clear and d.singular.kind in kinds:
            d.both("it", "elle" if d.singular.gender else "il")
            return d.singular
        if d.plural and d.plural_clear and d.plural.kind in kinds:
            d.both("they", "elles" if d.plural.gender else "ils")
            return d.plural
    return d.one_word_noun_phrase(kinds, "habit" if habit else "subject")


def verb_chain(d: Derivation, n: int, subject: NounPhrase, verb: Verb) -> None:
    """Two predicates of one subject: `bought a cow and sold it`."""
    others = [v for v in VERBS_BY_SUBJECT["transitive", subject.kind] if v.distinct_past and v is not verb]
    other = d.pick(others or [verb])
    with d.in_frame(CHAIN_FRAMES[d.frame]):
        shortest = 3 + auxiliary_words(d)
        first = d.within(shortest + verb.extra_words, n - 1 - shortest - other.extra_words)
        predicate(d, first, subject, "transitive", verb)
        d.both("and", "et")
        predicate(d, n - 1 - first, subject, "transitive", other)


# Predicates


def predicate(
    d: Derivation, n: int, subject: NounPhrase, pattern: str, verb: Verb | None = None, *, habit: bool = False
) -> None:
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
    form = d.verb_form(voice, n - words.PATTERNS[pattern].get("after_verb", 0), subject, verb=verb, habitual=habit)
    rest = n - form.length
    if pattern == "ditransitive":
        return ditransitive(d, rest, verb, form, subject)
    d.verb_group(verb, form, subject)
    if pattern == "intransitive":
        d.adjuncts(rest, verb, form, manner_at=len(d.french) if subject.kind in lexicon.LIVING else None)
    elif pattern == "locative":
        time = d.time_length(rest - 2, form)
        d.place(rest - time, verb=verb.base)
        d.adjuncts(time, verb, form, placed=True)
    elif pattern == "motion":
        direction(d, rest, verb, form)
    elif pattern == "reporting":
        reported_clause(d, rest)
    else:
        if verb.preposition:
            d.add(verb.preposition, (len(d.english) - 1,))
        infinitive(d, rest, subject, negated=bool(form.negation))
    return None


def verb_for(d: Derivation, n: int, subject: NounPhrase, pattern: str) -> Verb | None:
    """A verb for the subject, if one is found that takes n words."""
    options = VERBS_BY_SUBJECT[pattern, subject.kind]
    if pattern == "intransitive" and (d.depth or d.frame == "present"):
        options = lexicon.HABITUAL_VERBS[subject.kind] or (options if n == 1 else ())
    least = (2 if pattern == "transitive" else 1) + auxiliary_words(d)
    for _ in range(8):
        verb = d.pick(options) if options else None
        if verb is None or pattern == "passive" or least + verb.extra_words <= n <= verb.most_words:
            return verb
    return None if n > 1 else lexicon.SLEEP


def transitive(d: Derivation, n: int, subject: NounPhrase, verb: Verb, *, habit: bool) -> None:
    """A verb with its object, and perhaps adjuncts; n does not count the particle."""
    form = d.verb_form("active", n - 1, subject, verb=verb, habitual=habit)
    rest = n - form.length
    if rest == 1 or d.chance(0.15):
        pronoun = object_pronoun(d, verb, subject)
        if pronoun:
            d.verb_group(verb, form, subject, pronoun)
            return d.adjuncts(rest - 1, verb, form)
    d.verb_group(verb, form, subject)
    if verb.stative or "no_place" in verb.traits:
        size = rest - d.time_length(rest - 2, form)
    else:
        size = rest if rest < 4 or d.chance(0.4) else d.within(2, rest - 1)
    if rest - size == 1 and d.has_time:
        size = rest
    generic, manner_at = (
        "generic" in verb.traits,
        len(d.french) if subject.kind in PERSONS and not verb.stative else None,
    )
    role = "generic" if generic else "goal" if verb.preposition and rest > 1 else "object"
    if verb.preposition:
        d.add(verb.preposition, (len(d.english) - 1,))
    d.noun_phrase(size, verb.objects, role, negated=bool(form.negation) and not verb.preposition and not generic)
    return d.adjuncts(rest - size, verb, form, manner_at=manner_at)


def object_pronoun(d: Derivation, verb: Verb, subject: NounPhrase) -> ObjectPronoun | None:
    """An object pronoun for the verb, if one is possible; `it` and `them` only with a clear antecedent."""
    if verb.preposition not in ("", "à") or d.depth:
        return None
    indirect = verb.preposition == "à"
    it, them = d.singular, d.plural
    if not indirect and it and d.singular_clear and it.kind in verb.objects and subject.kind != it.kind:
        return "it", "la" if it.gender else "le", it.gender
    if not indirect and them and d.plural_clear and them.kind in verb.objects and subject.number == SINGULAR:
        return "them", "les", them.gender + 2
    return personal_object(d, subject, indirect=indirect) if lexicon.has_person(verb.objects) else None


def personal_object(d: Derivation, subject: NounPhrase, *, indirect: bool) -> ObjectPronoun | None:
    """me, him, her, us or you, unless it would be reflexive. A participle agrees with a direct object."""
    pronoun = d.pick(words.OBJECT_PRONOUNS)
    if pronoun["person"] == subject.person != THIRD:
        return None
    if indirect:
        return pronoun["english"], pronoun["indirect"], 0
    return pronoun["english"], pronoun["direct"], pronoun["gender"] + 2 * pronoun["number"]


def ditransitive(d: Derivation, n: int, verb: Verb, form: VerbForm, subject: NounPhrase) -> None:
    """`gives the book to Marie` or `gives her the book`."""
    negated = bool(form.negation)
    pronoun = personal_object(d, subject, indirect=True) if d.chance(0.35) else None
    if pronoun and verb.base != "explain":
        d.verb_group(verb, form, subject, pronoun)
        size = min(n - 1 if n < 6 or d.chance(0.5) else d.within(2, n - 2), 8)
        d.noun_phrase(size, verb.objects, "object", negated=negated)
        return d.adjuncts(n - 1 - size, verb, form)
    d.verb_group(verb, form, subject)
    size = d.within(2, min(n - 2, 6))
    d.noun_phrase(size, verb.objects, "object", negated=negated)
    rest = n - size
    recipient = min(rest, 7) if rest < 4 or d.chance(0.5) else d.within(2, min(rest - 1, 7))
    d.both("to", "à")
    d.noun_phrase(recipient - 1, ("family", "profession"), "goal")
    return d.adjuncts(rest - recipient, verb, form)


def passive(d: Derivation, n: int, subject: NounPhrase, verb: Verb) -> None:
    """A passive, perhaps with its agent."""
    form = d.verb_form("passive", n, subject)
    d.verb_group(verb, form, subject)
    rest = n - form.length
    if rest >= 3 and d.chance(0.7):
        agent = min(rest if rest < 5 or d.chance(0.4) else d.within(3, rest - 1), 9)
        d.both("by", "par")
        d.noun_phrase(agent - 1, verb.subjects, "oblique")
        rest -= agent
    d.adjuncts(rest, verb, form)


def direction(d: Derivation, n: int, verb: Verb, form: VerbForm) -> None:
    """Where the subject goes to or comes from, and perhaps when: à l'hôtel, but dans un hôtel."""
    away = verb.base != "go" and d.chance(0.5)
    positions, start = d.say("from" if away else "to"), len(d.french)
    time = d.time_length(n - 2, form)
    preposition = "à"
    if n - time > 2:
        d.noun_phrase(n - time - 1, ("building", "outdoors") if away else ("building",), "goal")
        if d.english[positions[0] + 1] in ("a", "an"):
            preposition = "dans"
    elif d.chance(0.6):
        d.both(*d.pick(lexicon.CITIES))
    elif d.name(lexicon.BARE_COUNTRIES).gender:
        preposition = "en"
    d.add("de" if away else preposition, positions, at=start)
    d.adjuncts(time, COPULA, form, placed=True)


def reported_clause(d: Derivation, n: int) -> None:
    """`that` and a clause."""
    d.both("that", "que")
    frames = {"past": "reported", "present": d.pick(("present", "past", "future"))}
    with d.in_frame(frames.get(d.frame, d.frame)):
        clause(d, n - 1, ("intransitive", "transitive", "copula", "passive"))


def modal(d: Derivation, n: int, subject: NounPhrase) -> None:
    """`can sing`, `must not leave`: a modal verb and an infinitive."""
    modals = [modal for modal in words.MODALS[d.frame] if not (subject.universal and modal[0].endswith("not"))]
    english, forms = d.pick([modal for modal in modals if n > 3 or " " not in modal[0]])
    positions = d.say(english)
    negated = english.endswith("not")  # `cannot` is one word
    if negated:
        d.add("ne", positions[-1:])
    d.add(forms[subject.person], positions[:1])
    if negated:
        d.add("pas", positions[-1:])
    infinitive(d, n - len(positions), subject, negated=negated)


def infinitive(d: Derivation, n: int, subject: NounPhrase, *, negated: bool) -> None:
    """An infinitive with its object and adjuncts."""
    kind = subject.kind if subject.kind in ("family", "profession") else "profession"
    verb = d.pick(lexicon.VOLUNTARY_VERBS["transitive" if n >= 3 and d.chance(0.75) else "intransitive", kind])
    while (
        not len(verb.particle.split()) < n <= verb.most_words
        or verb.stative
        or (verb.pattern == "transitive" and n < 3 + len(verb.particle.strip()))
    ):
        verb = d.pick(lexicon.VOLUNTARY_VERBS["intransitive", kind])
    positions = d.say(verb.base + verb.particle)
    if verb.reflexive:
        d.add(words.REFLEXIVE_PRONOUNS[subject.person], positions)
    d.add(verb.french.infinitive, positions)
    rest = n - len(positions)
    if verb.pattern == "transitive":
        if verb.preposition:
            d.add(verb.preposition, positions[-1:])
        size = min(rest if rest < 4 or d.chance(0.5) else d.within(2, rest - 1), 9)
        d.noun_phrase(size, verb.objects, "object")
        rest -= size
    form = words.NEGATED_INFINITIVE if negated else words.INFINITIVE
    d.adjuncts(rest, verb, form, manner_at=len(d.french) if verb.pattern == "intransitive" else None)


def copula(d: Derivation, n: int, subject: NounPhrase, *, habit: bool = False) -> None:
    """`is old`, `was very old`, `is older than the bridge`: the copula and an adjective."""
    end = len(d.english) + n
    form = d.verb_form("copula", n - 1, subject, habitual=habit)
    d.verb_group(None, form, subject)
    rest = n - form.length
    adjective = d.adjective((lexicon.PREDICATIVE if rest == 1 else lexicon.GRADABLE)[subject.kind])
    if compared(d, rest, subject, adjective, form):
        return
    intensifiers = words.INTENSIFIERS[: 2 if form.negation else 3]
    timeless = d.has_time or d.depth or not form.dated or adjective.english not in lexicon.MOODS
    both_intensified = rest == 5 and timeless
    if rest in (2, 4) or both_intensified:
        d.both(*d.pick(intensifiers))
    d.both(adjective.english, adjective.french[subject.agreement])
    if rest > 2 and (timeless or d.chance(0.3)):
        d.both("and", "et")
        if both_intensified:
            d.both(*d.pick(intensifiers))
        other = d.adjective(lexicon.GRADABLE[subject.kind])
        d.both(other.english, other.french[subject.agreement])
    d.adjuncts(end - len(d.english), COPULA, form)


def compared(d: Derivation, n: int, subject: NounPhrase, adjective: lexicon.Adjective, form: VerbForm) -> bool:
    """`older than the bridge`, `less famous than Marie`; False if the adjective is not compared."""
    french = adjective.french[subject.agreement]
    no_longer = form.negation == "no longer"  # ne ... plus plus
    shortest = 1 if subject.kind in PERSONS else 2
    if not (d.chance(0.5) or n > 5):
        return False
    if n >= 2 + shortest and adjective.comparative and not no_longer:
        irregular = words.IRREGULAR_COMPARATIVES.get(adjective.comparative)
        d.both(adjective.comparative, irregular[subject.agreement] if irregular else f"plus {french}")
        d.both("than", "que")
        d.noun_phrase(n - 2, (subject.kind,), "oblique")
        return True
    if n >= 3 + shortest:
        more = not adjective.comparative and not no_longer
        degree = d.pick(words.DEGREES if more else words.DEGREES[1:])
        d.both(*degree)
        d.both(adjective.english, french)
        d.both("as" if degree[0] == "as" else "than", "que")
        d.noun_phrase(n - 3, (subject.kind,), "oblique")
        return True
    return False


def profession(d: Derivation, n: int) -> None:
    """`Marie is a doctor`, `Paul was a good teacher`; a bare profession has no article in French."""
    noun = d.pick(nouns_of(("profession",)))
    subject = d.name([name for name in lexicon.FIRST_NAMES if name.gender == noun.gender])
    form = d.verb_form("copula", n - 3, subject)
    d.verb_group(None, form, subject)
    rest = n - 3 - form.length
    if rest == 0 or (rest in (2, 3) and d.chance(0.4) and form.dated):
        d.both(f"{indefinite_article(noun.english[0])} {noun.english[0]}", noun.french[0])
        return d.adjuncts(rest, COPULA, form)
    modifiers = d.pick(modifier_lengths(rest, not d.depth))
    phrase = d.simple_noun_phrase(noun, words.A, modifiers)
    if rest > modifiers:
        d.complement(rest - modifiers, noun, phrase, placed=True)
    return None


def existential(d: Derivation, n: int) -> None:
    """`There is a cat in the garden`."""
    singular, plural, tense = words.THERE_IS[d.frame]
    d.both("there", "il y")
    noun = d.pick(nouns_of(lexicon.EXISTENTIAL))
    determiner = d.pick(words.DETERMINER_CHOICES["existential"])
    verb = d.say(plural if determiner.number else singular)
    d.add(getattr(words.AVOIR, tense)[THIRD], verb)
    rest = n - 1 - len(verb)
    modifiers = d.within(0, 1 if rest > 5 or rest == 3 else 0)
    d.mention(d.simple_noun_phrase(noun, determiner, modifiers))
    rest -= 2 + modifiers
    return d.place(rest) if rest > 1 else d.adjuncts(rest, lexicon.SLEEP, words.ANY_FORM)


# Relative clauses


def relative_clause(d: Derivation, n: int, head: NounPhrase) -> None:
    """A relative clause after its head."""
    d.depth += 1
    with d.in_frame("past" if d.frame in ("past", "reported", "while_past", "past_chain") else "present"):
        draw = d.random()
        person = head.kind in PERSONS
        if n >= 4 and draw < (0.3 if person else 0.5) and lexicon.VERBS_BY_OBJECT[head.kind]:
            object_relative(d, n, head)
        elif n >= 4 and draw < 0.7 and head.kind in lexicon.PLACES:
            d.both("where", "où")
            clause(d, n - 1, ("intransitive", "transitive"))
        elif n >= 4 and draw < 0.4 and person:
            noun = d.pick(nouns_of(("family",)))
            d.both("whose", "dont la" if noun.gender else "dont le")
            d.both(noun.english[0], noun.french[0])
            subject = NounPhrase(THIRD, noun.gender, SINGULAR, "family")
            predicate(d, n - 2, subject, d.pick(("copula", "intransitive")))
        else:
            d.both("who" if person else "that", "qui")
            shortest = (("intransitive", 1), ("transitive", 3), ("passive", 2))
            patterns = [pattern for pattern, m in shortest if n > m and VERBS_BY_SUBJECT[pattern, head.kind]] * 4
            predicate(d, n - 1, head, d.pick([*patterns, "copula"] if n > 2 else patterns))
    d.depth -= 1


def object_relative(d: Derivation, n: int, head: NounPhrase) -> None:
    """`that the teacher bought`: the head is the object, and a participle agrees with it."""
    options = lexicon.VERBS_BY_OBJECT[head.kind]
    verb = d.pick(options)
    for _ in range(4):
        if n > 5 and "no_place" in verb.traits:  # there will be room for a place
            verb = d.pick(options)
    while n < 4 + verb.extra_words:
        verb = d.pick(options)
    end = len(d.english) + n
    d.both("that", "dont" if verb.preposition == "de" else "que")
    subject = subject_of(d, d.within(1, max(1, min(4, n - 2 - verb.extra_words))), verb.subjects)
    form = d.verb_form("active", end - len(d.english) - len(verb.particle.split()), subject, verb=verb)
    d.verb_group(verb, form, subject, ("", "", head.agreement))
    d.adjuncts(end - len(d.english), verb, form)
