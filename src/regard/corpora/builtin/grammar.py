"""Grammar of the built-in corpus: derives English and French sentences and their word alignment at once.

English is derived from left to right, so that the index of a word is its position; each French word carries the
positions of the English words it translates. Gender, tense and agreement of the French follow from the English alone.
`d` is the sentence being derived, `n` the number of English words that a rule should produce; it may miss it by a few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from regard.corpora.builtin import function_words as words
from regard.corpora.builtin import lexicon
from regard.corpora.builtin.function_words import DETERMINER_CHOICES, PATTERN_WORDS, Determiner, VerbForm
from regard.corpora.builtin.lexicon import PERSONS, PLURAL, SINGULAR, Adjective, Noun, Phrase, Verb, nouns_of
from regard.corpora.builtin.morphology import Positions, Word, begins_with_vowel, indefinite_article

T = TypeVar("T")
THIRD, THIRD_PLURAL = 1, 4  # persons: I, he, we, you, they
ObjectPronoun = tuple[str, str, int]  # English, French, and the index of the participle that agrees with it
AGREEING = ("passive", "copula")  # patterns in which a participle or adjective agrees with the subject
REPORTED_FRAMES = {"past": "reported", "perfect": "reported", "while_past": "reported", "when_future": "future"}
TIME_CLASSES = {"present": "now", "future": "future", "when_future": "future", "reported": ""}  # of others: past
RELATIVE_FRAMES = {"future": "present", "when_future": "present", "present": "present"}  # of others: past


class NounPhrase(NamedTuple):
    """The features of a noun phrase that other words agree with."""

    person: int
    gender: int
    number: int
    kind: str

    @property
    def agreement(self) -> int:
        """The index of the adjectives and participles that agree with it."""
        return self.gender + 2 * self.number


class Derivation:
    """One sentence being derived: `random` decides between rules; the words so far are in `english` and `french`."""

    def __init__(self, random: Callable[[], float]) -> None:
        self.random = random
        self.english: list[str] = []
        self.french: list[Word] = []
        self.used: list[str] = []  # nouns and adjectives
        self.antecedents: tuple[list[NounPhrase], list[NounPhrase]] = ([], [])  # of `it` and of `they`
        self.frame = "past"
        self.relative = False  # in a relative clause

    def pick(self, options: Sequence[T]) -> T:
        """One of the options, all equally likely."""
        return options[int(self.random() * len(options))]

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.random() < probability

    def within(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        return low + int(self.random() * (high - low + 1)) if high > low else low

    @contextmanager
    def in_frame(self, frame: str) -> Iterator[None]:
        """Derive a clause in another time frame."""
        outer, self.frame = self.frame, frame
        yield
        self.frame = outer

    def say(self, text: str) -> Positions:
        """Append English words and return their positions."""
        start = len(self.english)
        self.english.extend(text.split())
        return tuple(range(start, len(self.english)))

    def add(self, french: str, positions: Positions) -> None:
        """Append French words that translate the English words at these positions."""
        self.french.append((french, positions))

    def both(self, english: str, french: str) -> None:
        """Append English words, and French words that each translate all of them."""
        self.add(french, self.say(english))

    def phrase(self, phrase: Phrase) -> None:
        """Append a fixed expression."""
        english, french = phrase
        start = len(self.english)
        self.english.extend(english)
        self.french += [(word, tuple([start + i for i in positions])) for word, positions in french]

    def comma(self) -> None:
        """Append a comma in both languages."""
        self.english[-1] += ","
        self.add(",", ())

    def mention(self, phrase: NounPhrase) -> NounPhrase:
        """Remember a noun phrase as a possible antecedent of `it` or `they`."""
        if phrase.number == PLURAL or phrase.kind not in PERSONS:
            self.antecedents[phrase.number].append(phrase)
        return phrase

    def antecedent(self, number: int, kinds: tuple[str, ...]) -> NounPhrase | None:
        """The last possible antecedent, if it is of one of the kinds and all possible ones have the same gender."""
        phrases = self.antecedents[number]
        clear = len({phrase.gender for phrase in phrases}) == 1
        return phrases[-1] if clear and phrases[-1].kind in kinds else None


# Sentences and clauses


def sentence(random: Callable[[], float], n: int) -> Derivation:
    """A sentence of about n English words: one clause, or several joined by conjunctions."""
    d = Derivation(random)
    frame = d.frame = d.pick(words.FRAMES)
    clauses = max(1, round(n / d.pick((8, 10, 12, 15))))
    if clauses == 1:
        if frame == "past" and d.chance(0.25):
            d.frame = "perfect"
        clause(d, n)
        return d
    conjunction = None
    if d.chance(0.25):
        clauses -= 1
        subordinate(d, n // (clauses + 1), d.pick(words.OPENING[frame]))
        d.comma()
    share = (n - len(d.english)) // clauses
    clause(d, share if clauses == 1 else d.within(share * 3 // 4, share * 5 // 4))
    for left in range(clauses - 1, 0, -1):  # a subordinate clause is followed by a main clause
        subordinating = conjunction and not conjunction.get("comma")
        conjunction = d.pick(words.COORDINATING if subordinating else words.JOINING[frame])
        if "comma" in conjunction:
            d.comma()
        share = (n - len(d.english)) // left
        subordinate(d, share if left == 1 else d.within(share * 3 // 4, share * 5 // 4), conjunction)
    return d


def subordinate(d: Derivation, n: int, conjunction: dict[str, Any]) -> None:
    """A conjunction and a clause."""
    end = len(d.english) + n
    d.both(conjunction["english"], conjunction["french"])
    with d.in_frame(conjunction["clauses"][d.frame]):
        clause(d, end - len(d.english))


def clause(d: Derivation, n: int, patterns: Sequence[str] = words.PATTERNS) -> None:
    """A subject and a predicate."""
    end = len(d.english) + n
    pattern = d.pick([pattern for pattern in patterns if PATTERN_WORDS[pattern] < n] or ("intransitive",))
    verb = d.pick(lexicon.VERBS[pattern])
    room = n - PATTERN_WORDS[pattern]
    if pattern in AGREEING and room > 4 and lexicon.attributed(verb.subjects) and d.chance(0.5):
        subject = attributed_subject(d, d.within(5, min(room, 8)), verb.subjects)
    else:
        subject = subject_of(d, d.within(1, min(room, 9 if d.chance(0.25) else 4)), verb.subjects)
    predicate(d, end - len(d.english), subject, verb)


def subject_of(d: Derivation, n: int, kinds: tuple[str, ...]) -> NounPhrase:
    """A subject; `it` and `they` only if their antecedent determines the French gender."""
    if n <= 2 and not d.relative and d.chance(0.5):
        if it := d.antecedent(SINGULAR, kinds):
            d.both("it", "elle" if it.gender else "il")
            return it
        if they := d.antecedent(PLURAL, kinds):
            d.both("they", "elles" if they.gender else "ils")
            return they
    if n == 1 and "family" in kinds and d.chance(0.45):
        pronoun = d.pick(words.SUBJECT_PRONOUNS)
        d.both(pronoun["english"], pronoun["french"])
        return NounPhrase(pronoun["person"], pronoun["gender"], pronoun["number"], "family")
    return noun_phrase(d, n, kinds, "subject")


# Predicates


def predicate(d: Derivation, n: int, subject: NounPhrase, verb: Verb) -> None:
    """A verb with its objects and adjuncts."""
    end = len(d.english) + n
    form = verb_form(d, n, verb)
    pronoun = object_pronoun(d, verb, subject) if verb.pattern == "transitive" and d.chance(0.15) else None
    verb_group(d, verb, form, subject, pronoun)
    left, placed, negated = end - len(d.english), False, bool(form.negation)
    if verb.preposition:
        d.add(verb.preposition, (len(d.english) - 1,))
    if verb.pattern == "copula":
        placed = subject.kind in lexicon.CONCRETE and left > 2 and d.chance(0.25)
        if placed:
            place(d, min(left, 6), "indoors" if subject.kind in lexicon.INDOORS else "")
        else:
            adjectives_after_verb(d, left, subject, form)
    elif verb.pattern == "transitive" and not pronoun:
        size = left if left < 4 or d.chance(0.4) else d.within(2, left - 1)
        role = "goal" if verb.preposition else "object"
        noun_phrase(d, size, verb.objects, role, negated=negated and role == "object")
    elif verb.pattern == "ditransitive":
        noun_phrase(d, d.within(2, left // 2), verb.objects, "object", negated=negated)
        d.both("to", "à")
        left = end - len(d.english)
        noun_phrase(d, left if left < 4 or d.chance(0.5) else d.within(1, 4), ("family", "profession"), "goal")
    elif verb.pattern == "passive" and left > 2 and d.chance(0.6):
        d.both("by", "par")
        noun_phrase(d, left - 1 if d.chance(0.4) else d.within(1, min(left - 1, 6)), verb.objects, "oblique")
    elif verb.pattern == "motion":
        d.both(*(("from", "de") if verb.base != "go" and d.chance(0.5) else ("to", "à")))
        if left < 3:
            d.both(*d.pick(lexicon.CITIES))
        else:
            noun_phrase(d, d.within(2, min(left - 1, 6)), ("building",), "of")
        placed = True
    elif verb.pattern == "locative":
        place(d, left if left < 4 or d.chance(0.4) else d.within(2, min(left, 7)), verb.base)
        placed = True
    if verb.pattern == "reporting":
        d.both("that", "que")
        frame = d.pick(("present", "past", "future")) if d.frame == "present" else REPORTED_FRAMES.get(d.frame, d.frame)
        with d.in_frame(frame):
            clause(d, left - 1, ("intransitive", "transitive", "copula", "passive"))
    else:
        adjuncts(d, end - len(d.english), verb, form, placed=placed)


def object_pronoun(d: Derivation, verb: Verb, subject: NounPhrase) -> ObjectPronoun | None:
    """An object pronoun for the verb, if one is possible; `it` and `them` only with a clear antecedent."""
    if verb.preposition or d.relative:
        return None
    it, them = d.antecedent(SINGULAR, verb.objects), d.antecedent(PLURAL, verb.objects)
    if it and subject.kind != it.kind:
        return "it", "la" if it.gender else "le", it.gender
    if them and subject.number == SINGULAR:
        return "them", "les", them.agreement
    pronoun = d.pick(words.OBJECT_PRONOUNS)
    if "family" not in verb.objects or pronoun["person"] == subject.person != THIRD:  # it would be reflexive
        return None
    return pronoun["english"], pronoun["french"], pronoun["gender"] + 2 * pronoun["number"]


def adjectives_after_verb(d: Derivation, n: int, subject: NounPhrase, form: VerbForm) -> None:
    """`old`, `very old`, `old and famous`, after a copula."""
    for number in range(2 if n > 2 and d.chance(0.5) else 1):
        if number:
            d.both("and", "et")
        intensified = n > 1 and d.chance(0.5)
        if intensified:
            d.both(*d.pick(words.INTENSIFIERS[: 2 if form.negation else 3]))
        chosen = adjective(d, (lexicon.GRADABLE if intensified else lexicon.PREDICATIVE)[subject.kind])
        d.both(chosen.english, chosen.french[subject.agreement])


# Verb groups


def verb_form(d: Derivation, n: int, verb: Verb) -> VerbForm:
    """A form of the verb in the time frame of the clause, in at most max(n, 1) English words if there is one."""
    excluded = {"gerund"} if "stative" in verb.traits else set()
    if verb.base == verb.past and d.frame in ("past", "present"):  # `they read` would be ambiguous
        excluded |= {"past", "present"}
    affirmative = verb.pattern == "reporting"  # a negated opinion would need the subjunctive: `ne pense pas que`
    forms = [
        form
        for form in words.VERB_FORMS[verb.pattern if verb.pattern in AGREEING else "active"][d.frame]
        if form.form not in excluded and not (affirmative and form.negation)
    ]
    room = max(n, 1)
    return d.pick([form for form in forms if form.length <= room] or forms)


def verb_group(
    d: Derivation, verb: Verb, form: VerbForm, subject: NounPhrase, pronoun: ObjectPronoun | None = None
) -> None:
    """A verb with its auxiliary, negation, adverb and object pronoun."""
    forms = words.AUXILIARIES.get(form.auxiliary)
    auxiliary = d.say(forms[subject.person] if forms else form.auxiliary)
    negation, adverb = d.say(form.negation), d.say(form.adverb)
    tense, french = form.tense, words.ETRE
    if verb.pattern not in AGREEING:
        name = form.form if form.form != "present" else "third" if subject.person == THIRD else "base"
        main, french = d.say(getattr(verb, name) + verb.particle), verb.french
        if tense == "past" and "stative" in verb.traits:
            tense = "imperfect"
    else:
        main = d.say(form.link)
    clitic: list[Word] = []
    if pronoun and pronoun[0]:
        clitic = [(pronoun[1], d.say(pronoun[0]))]
    elif verb.reflexive:
        clitic = [(words.REFLEXIVE_PRONOUNS[subject.person], main)]
    helper = words.ETRE if french.with_etre else words.AVOIR
    after: list[Word] = []  # after the finite verb
    if form.modal:
        finite = getattr(form.modal, tense)[subject.person], auxiliary
        after = [(french.infinitive, main)]
    elif tense in words.COMPOUND_TENSES:
        finite = getattr(helper, words.COMPOUND_TENSES[tense])[subject.person], auxiliary or main
        agreement = subject.agreement if french.with_etre else pronoun[2] if pronoun else 0
        after = [(french.participle[agreement], main or auxiliary)]
    else:
        finite = getattr(french, tense)[subject.person], auxiliary + main
    d.french += [("ne", negation)] if negation else []
    d.french += [finite] if form.modal else [*clitic, finite]
    if negation:
        d.add(words.NEGATIONS[form.negation], negation)
    if adverb:
        d.add(words.ADVERBS[form.adverb], adverb)
    d.french += [*clitic, *after] if form.modal else after
    if verb.pattern == "passive":
        d.add(verb.french.participle[subject.agreement], d.say(verb.participle))
    elif verb.noun:
        d.add(verb.noun, main)


# Adjuncts


def adjuncts(d: Derivation, n: int, verb: Verb, form: VerbForm, *, placed: bool = False) -> None:
    """A place and a time, if the verb takes them."""
    times = TIME_CLASSES.get(d.frame, "past") if form.dated and not d.relative else ""
    if times == "now" and form.habitual:
        times = "habit"
    time_words = 0
    if times and n > 0:
        time_words = n if n == 1 else d.within(0, min(n, 4))
    if n - time_words > 1 and not placed and not {"stative", "no_place"} & set(verb.traits):
        place(d, min(n - time_words, 7), verb.base, formal="formal" in verb.traits)
    elif times:
        time_words = n
    if time_words > 0:
        time(d, time_words, times)


def place(d: Derivation, n: int, verb: str = "", *, formal: bool = False) -> None:
    """Add a place; formal actions take place in cities and countries and at events."""
    if n <= 2:
        if d.chance(0.5):
            d.both("in", "à")
            d.both(*d.pick(lexicon.CITIES))
        else:
            d.phrase(d.pick(lexicon.IN_COUNTRIES).phrase)
    elif formal:
        d.both(*d.pick(words.EVENT_PREPOSITIONS))
        noun_phrase(d, n - 1, ("event",), "oblique")
    else:
        english, french, kinds = d.pick(words.place_prepositions(verb))
        d.both(english, french)
        noun_phrase(d, n - 1, kinds, "goal")


def time(d: Derivation, n: int, times: str) -> None:
    """Add an expression of time: a fixed one or a date."""
    if n == 1 or times in ("habit", "now") or d.chance(0.4):
        return d.phrase(d.pick([phrase for phrase in words.TIMES[times] if len(phrase[0]) <= n]))
    year = str(d.within(1950, 2024) if times == "past" else d.within(2030, 2059))
    if n > 3:
        day = str(d.within(1, 28))
        d.both("on", "le")
        d.both(day, "1er" if day == "1" else day)
    else:
        d.both("in", "en")
    if n > 2:
        d.both(*d.pick(tuple(lexicon.MONTHS.items())))
    return d.both(year, year)


# Noun phrases


def noun_phrase(d: Derivation, n: int, kinds: tuple[str, ...], role: str, *, negated: bool = False) -> NounPhrase:
    """A noun phrase of one of the kinds; its role is subject, object, oblique, goal or of."""
    if n <= 1 and "family" in kinds:
        return name(d, lexicon.FIRST_NAMES)
    if "institution" in kinds and (n <= 1 or (2 < n < 6 and d.chance(0.15))):
        return name(d, lexicon.COUNTRIES if n <= 1 else lexicon.INSTITUTIONS)
    if n >= 5 and role in ("subject", "object", "oblique") and not negated and d.chance(0.15 if n < 8 else 0.35):
        return coordination(d, n, kinds)
    noun = unused(d, nouns_of(kinds))
    modifiers = d.within(0, max(0, min(2, n - 2)))
    if n - 2 - modifiers < 2:
        modifiers = max(0, min(2, n - 2))
    followed = n - 2 - modifiers > 1
    chosen = determiner(d, noun, role, owned=noun.ownable and not followed)
    phrase = simple_noun_phrase(d, noun, chosen, modifiers, negated=negated, owned=noun.ownable and not followed)
    if followed:
        complement(d, n - 2 - modifiers, noun, phrase, placed=role == "goal")
    return d.mention(phrase)


def attributed_subject(d: Derivation, n: int, kinds: tuple[str, ...]) -> NounPhrase:
    """A subject of at least 5 words with an attribute, whose noun the predicate must not agree with."""
    noun = unused(d, lexicon.attributed(kinds))
    modifiers = d.within(0, min(2, n - 5))
    phrase = simple_noun_phrase(d, noun, determiner(d, noun, "subject", owned=False), modifiers)
    of, about = lexicon.OF.get(noun.english[0]), lexicon.about(noun)
    if of and (not about or d.chance(0.3)):
        of_attribute(d, n - 2 - modifiers, noun, of)
    else:
        about_attribute(d, n - 2 - modifiers, about)
    return d.mention(phrase)


def unused(d: Derivation, nouns: Sequence[Noun]) -> Noun:
    """One of the nouns, if possible not one of the most recent ones."""
    recent = d.used[-8:]
    noun = d.pick([noun for noun in nouns if noun.english[0] not in recent] or nouns)
    d.used.append(noun.english[0])
    return noun


def name(d: Derivation, names: Sequence[lexicon.Name]) -> NounPhrase:
    """A person, country or institution by its name."""
    phrase, gender, number, kind = d.pick(names)
    d.phrase(phrase)
    return d.mention(NounPhrase(THIRD_PLURAL if number else THIRD, gender, number, kind))


def coordination(d: Derivation, n: int, kinds: tuple[str, ...]) -> NounPhrase:
    """Two or three noun phrases of the same kind: A and B, or A, B and C."""
    kind = d.pick(nouns_of(kinds)).kind
    count = 3 if n > 9 and d.chance(0.5) else 2
    end, feminine = len(d.english) + n, True
    for left in range(count, 0, -1):
        if left == 1:
            d.both("and", "et")
        elif left < count:
            d.comma()
        feminine &= bool(noun_phrase(d, min((end - len(d.english)) // left, 4), (kind,), "conjunct").gender)
    return d.mention(NounPhrase(THIRD_PLURAL, int(feminine), PLURAL, kind))  # feminine only if all are


def determiner(d: Derivation, noun: Noun, role: str, *, owned: bool) -> Determiner:
    """A determiner for the noun, which may be a possessive if it is owned."""
    if not noun.countable:
        return d.pick(DETERMINER_CHOICES["mass"]) if role in ("object", "oblique") else words.THE
    if role == "of":
        return words.THE if d.chance(0.8) else words.THE_PLURAL
    if role == "goal":
        return d.pick(DETERMINER_CHOICES["place"])
    return d.pick(DETERMINER_CHOICES[("plural" if d.chance(0.36) else "singular") + ("_owned" if owned else "")])


def adjectives_of(d: Derivation, noun: Noun, n: int) -> tuple[list[Adjective], bool]:
    """Adjectives for a noun in n English words, and whether the first has `very`."""
    before, after = lexicon.ADJECTIVES_BEFORE[noun.kind], lexicon.ADJECTIVES_AFTER[noun.kind]
    if n == 0:
        return [], False
    if n == 1:
        return [adjective(d, before if before and d.chance(0.35) else after or before)], False
    if not before or d.chance(0.3):
        return [adjective(d, lexicon.GRADABLE[noun.kind])], True
    return [adjective(d, before), adjective(d, after)], False


def adjective(d: Derivation, options: Sequence[Adjective]) -> Adjective:
    """An adjective that does not repeat or contradict the most recent nouns and adjectives, if there is one."""
    for recent in (d.used[-8:], d.used[-1:]):
        fitting = [a for a in options if lexicon.CONTRADICTIONS[a.english].isdisjoint(recent)]
        if fitting:
            break
    chosen = d.pick(fitting or options)
    d.used.append(chosen.english)
    return chosen


def simple_noun_phrase(
    d: Derivation, noun: Noun, chosen: Determiner, modifiers: int, *, negated: bool = False, owned: bool = False
) -> NounPhrase:
    """Determiner, adjectives and noun, with the word order and agreement of each language."""
    adjectives, very = adjectives_of(d, noun, modifiers)
    number = chosen.number
    index = noun.gender + 2 * number
    english, possessor = chosen.english, ""
    if chosen is words.A:
        english = indefinite_article("very" if very else adjectives[0].english if adjectives else noun.english[0])
    elif negated and chosen in words.SOME:
        english = "any"
    elif chosen is words.THE and owned and d.chance(0.12):
        owner = d.pick(lexicon.FIRST_NAMES).phrase[0][0]
        english, possessor = owner + "'s", f"de {owner}"
    positions = d.say(english)
    before: list[Word] = []
    after: list[Word] = []
    for item in adjectives:
        side = before if item.precedes else after
        if very:
            side.append(("très", d.say("very")))
        form = item.french[index]
        if item.precedes and index == 0 and begins_with_vowel(noun.french[0]):  # un bel arbre
            form = item.before_vowel
        side.append((form, d.say(item.english)))
    head = (noun.french[number], d.say(noun.english[number]))
    if (negated and chosen.negated) or (chosen.before_adjective and before):
        article: tuple[str, ...] = ("de",)
    else:
        article = chosen.french[index + 4 * begins_with_vowel((before or [head])[0][0])]
    d.french += [(word, positions) for word in article]
    d.french += [*before, head, *after, *([(possessor, positions)] if possessor else [])]
    return NounPhrase(THIRD_PLURAL if number else THIRD, noun.gender, number, noun.kind)


def complement(d: Derivation, n: int, noun: Noun, head: NounPhrase, *, placed: bool = False) -> None:
    """The complement of a noun: a prepositional phrase or a relative clause."""
    english, kind = noun.english[0], noun.kind
    of, about = lexicon.OF.get(english), lexicon.about(noun)
    if of and (n < 4 or d.chance(0.5)):
        of_attribute(d, n, noun, of)
    elif about and n > 2 and d.chance(0.6):
        about_attribute(d, n, about)
    elif n == 2 and english in lexicon.SENT:
        d.both("from", "de")
        name(d, lexicon.FIRST_NAMES)
    elif n == 2 and kind == "event":
        place(d, 2)
    elif kind in lexicon.CONCRETE and not placed and n > 2 and (d.relative or d.chance(0.4)):
        place(d, min(n, 6), "indoors" if kind in lexicon.INDOORS else "")
    elif not d.relative:
        relative_clause(d, n, head)


def of_attribute(d: Derivation, n: int, noun: Noun, of: str) -> None:
    """`of` and a city, a country or a noun of the kinds that go with the noun."""
    d.both("of", "de")
    if of == "city":
        d.both(*d.pick(lexicon.CITIES))
    elif of == "country":  # le roi de France, but du Portugal
        name(d, lexicon.BARE_COUNTRIES if noun.english[0] in lexicon.BEFORE_BARE_COUNTRY else lexicon.COUNTRIES)
    else:
        noun_phrase(d, max(2, n - 1), lexicon.kinds_of(of), "of")


def about_attribute(d: Derivation, n: int, preposition: str) -> None:
    """`on` or `about` and an institution, issue or topic."""
    d.both(preposition, "sur")
    if preposition == "on" and d.chance(0.3):
        name(d, lexicon.INSTITUTIONS)
    else:
        noun_phrase(d, n - 1, ("issue", "topic"), "oblique")


# Relative clauses


def relative_clause(d: Derivation, n: int, head: NounPhrase) -> None:
    """A relative clause after its head."""
    d.relative = True
    with d.in_frame(RELATIVE_FRAMES.get(d.frame, "past")):
        if n > 3 and lexicon.verbs_with_object(head.kind) and d.chance(0.3):
            object_relative(d, n, head)
        elif n > 3 and head.kind in lexicon.PLACES and d.chance(0.3):
            d.both("where", "où")
            clause(d, n - 1, ("intransitive", "transitive"))
        else:
            d.both("who" if head.kind in PERSONS else "that", "qui")
            patterns = [
                pattern
                for pattern in ("intransitive", "transitive", "passive", "copula")
                if PATTERN_WORDS[pattern] < n and lexicon.verbs_of(pattern, head.kind)
            ]
            predicate(d, n - 1, head, d.pick(lexicon.verbs_of(d.pick(patterns or ["copula"]), head.kind)))
    d.relative = False


def object_relative(d: Derivation, n: int, head: NounPhrase) -> None:
    """`that the teacher bought`: the head is the object, and a participle agrees with it."""
    end = len(d.english) + n
    verb = d.pick(lexicon.verbs_with_object(head.kind))
    d.both("that", "dont" if verb.preposition == "de" else "que")
    subject = subject_of(d, d.within(1, max(1, min(4, n - 3))), verb.subjects)
    form = verb_form(d, end - len(d.english) - len(verb.particle.split()), verb)
    verb_group(d, verb, form, subject, ("", "", head.agreement))
    adjuncts(d, end - len(d.english), verb, form)
