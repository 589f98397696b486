"""Phrases of the built-in corpus: noun phrases, verb groups and adjuncts, in English and French at once.

`n` is the number of English words that a rule must produce.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple, TypeVar

from regard.corpora.builtin import function_words as words
from regard.corpora.builtin import lexicon
from regard.corpora.builtin.function_words import DETERMINER_CHOICES, THIRD, THIRD_PLURAL, Determiner, VerbForm
from regard.corpora.builtin.lexicon import PERSONS, PLURAL, Adjective, Noun, Verb, nouns_of
from regard.corpora.builtin.morphology import Positions, Word, begins_with_vowel, indefinite_article

T = TypeVar("T")
ObjectPronoun = tuple[str, str, int]  # English, French, and the index of the participle that agrees with it


class NounPhrase(NamedTuple):
    """The features of a noun phrase that other words agree with."""

    person: int
    gender: int
    number: int
    kind: str
    universal: bool = False  # each, every, all: not the subject of a negation

    @property
    def agreement(self) -> int:
        """The index of the adjectives and participles that agree with it."""
        return self.gender + 2 * self.number


class Derivation:
    """One sentence being derived: `random` decides between rules; the words so far are in `english` and `french`."""

    def __init__(
        self, random: Callable[[], float], relative_clause: Callable[[Derivation, int, NounPhrase], None]
    ) -> None:
        self.random = random
        self.relative_clause = relative_clause  # passed in, because clauses consist of phrases
        self.english: list[str] = []
        self.french: list[Word] = []
        self.used: list[str | tuple[str, str]] = []  # nouns and adjectives
        self.frame = "past"
        self.has_time = False  # the sentence has an expression of time
        self.opens_with_time = False
        self.narrative = False  # a past `when` or `while` excludes the present perfect
        self.depth = 0  # of relative clauses
        self.singular: NounPhrase | None = None  # antecedent of `it`
        self.plural: NounPhrase | None = None  # antecedent of `they`
        self.singular_clear = self.plural_clear = True  # all possible antecedents have the same gender

    # Choices

    def pick(self, options: Sequence[T]) -> T:
        """One of the options, all equally likely."""
        return options[int(self.random() * len(options))]

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.random() < probability

    def within(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        return low + int(self.random() * (high - low + 1)) if high > low else low

    def split(self, total: int, parts: int, smallest: int) -> list[int]:
        """The total as a sum of this many numbers, none below the smallest."""
        sizes = [smallest] * parts
        for _ in range(total - smallest * parts):
            sizes[int(self.random() * parts)] += 1
        return sizes

    @contextmanager
    def in_frame(self, frame: str) -> Iterator[None]:
        """Derive a clause in another time frame."""
        outer, self.frame = self.frame, frame
        yield
        self.frame = outer

    # Words

    def say(self, text: str) -> Positions:
        """Append English words and return their positions."""
        start = len(self.english)
        if " " in text:
            self.english.extend(text.split())
            return tuple(range(start, len(self.english)))
        self.english.append(text)
        return (start,)

    def add(self, french: str, positions: Positions, at: int | None = None) -> None:
        """Append French words, or insert them, that translate the English words at these positions."""
        if at is None:
            self.french.append((french, positions))
        else:
            self.french.insert(at, (french, positions))

    def both(self, english: str, french: str) -> None:
        """Append English words, and French words that each translate all of them."""
        self.add(french, self.say(english))

    def phrase(self, phrase: lexicon.Phrase, at: int | None = None) -> None:
        """Append a fixed expression; its French may be inserted."""
        english, french = phrase
        start, at = len(self.english), len(self.french) if at is None else at
        self.english.extend(english)
        self.french[at:at] = [(word, tuple([start + i for i in positions])) for word, positions in french]

    def comma(self) -> None:
        """Append a comma in both languages."""
        self.english[-1] += ","
        self.add(",", ())

    # Noun phrases

    def mention(self, phrase: NounPhrase) -> NounPhrase:
        """Remember a noun phrase as a possible antecedent of pronouns."""
        if phrase.number == PLURAL:
            self.plural_clear &= self.plural is None or self.plural.gender == phrase.gender
            self.plural = phrase
        elif phrase.kind not in PERSONS:
            self.singular_clear &= self.singular is None or self.singular.gender == phrase.gender
            self.singular = phrase
        return phrase

    def noun_phrase(
        self, n: int, kinds: tuple[str, ...], role: str, *, negated: bool = False, conjunct: bool = False
    ) -> NounPhrase:
        """A noun phrase of one of the kinds."""
        if n == 1:
            return self.one_word_noun_phrase(kinds, role, negated=negated)
        if n in (3, 4) and "institution" in kinds and self.chance(0.15):
            return self.name(lexicon.INSTITUTIONS[n])
        simple = negated or conjunct or role in ("of", "goal")
        if n >= 5 and self.chance(0.15 if n < 8 else 0.35) and not simple:
            return self.coordination(n, kinds, role)
        for _ in range(4):
            noun = self.pick(nouns_of(kinds))
            if noun.english not in self.used:
                break
        self.used.append(noun.english)
        modifiers = self.pick(modifier_lengths(n - 2, self.may_have_short_complement(noun)))
        complement, determiner_words = n - 2 - modifiers, 1
        if modifiers and role in ("subject", "object") and not negated and self.chance(0.06) and noun.countable:
            determiner_words, modifiers = 2, modifiers - 1
        followed = complement > 0
        determiner = self.determiner(noun, role, determiner_words, followed=followed)
        while negated and determiner.english[0] in words.NOT_NEGATED:
            determiner = self.determiner(noun, role, determiner_words, followed=followed)
        phrase = self.simple_noun_phrase(noun, determiner, modifiers, negated=negated, followed=followed)
        if followed:
            self.complement(complement, noun, phrase, placed=role == "goal")
        return self.mention(phrase)

    def one_word_noun_phrase(self, kinds: tuple[str, ...], role: str, *, negated: bool = False) -> NounPhrase:
        """A noun phrase of one English word: a pronoun, a name, a country or a bare noun."""
        draw = self.random()
        bare = role in ("habit", "object", "generic")
        if lexicon.has_person(kinds) and not (bare and draw > 0.85):
            if draw < 0.45 and role in ("subject", "habit"):
                pronoun = self.pick(words.SUBJECT_PRONOUNS)
                self.both(pronoun["english"], pronoun["french"])
                return NounPhrase(pronoun["person"], pronoun["gender"], pronoun["number"], "family")
            return self.name(lexicon.FIRST_NAMES)
        if "institution" in kinds and (not bare or draw < 0.5):
            return self.name(lexicon.COUNTRIES)
        noun = self.pick(nouns_of(kinds))
        name = ("generic" if role in ("habit", "generic") else "bare") + ("" if noun.countable else "_mass")
        determiner = words.DETERMINERS[name]
        positions = self.say(noun.english[determiner.number])
        for word in ("de",) if negated and determiner.negated else determiner.french[noun.gender]:
            self.add(word, positions)
        self.add(noun.french[determiner.number], positions)
        return self.mention(third_person(noun.gender, determiner.number, noun.kind))

    def name(self, names: Sequence[lexicon.Name]) -> NounPhrase:
        """A person, country or institution by its name."""
        phrase, gender, number, kind = self.pick(names)
        self.phrase(phrase)
        return self.mention(third_person(gender, number, kind))

    def coordination(self, n: int, kinds: tuple[str, ...], role: str) -> NounPhrase:
        """Two or more noun phrases of the same kind: A and B, or A, B and C."""
        kind = self.pick(nouns_of(kinds)).kind
        sizes = self.split(n - 1, max(2, min(n // 3, 4, (n + 3) // 5)), 2)
        conjuncts: list[NounPhrase] = []
        for size in sizes:
            if len(conjuncts) == len(sizes) - 1:
                self.both("and", "et")
            elif conjuncts:
                self.comma()
            conjuncts.append(self.noun_phrase(size, (kind,), role, conjunct=True))
        gender = min(conjunct.gender for conjunct in conjuncts)  # feminine only if all are
        universal = any(conjunct.universal for conjunct in conjuncts)
        return self.mention(NounPhrase(THIRD_PLURAL, gender, PLURAL, kind, universal))

    def determiner(self, noun: Noun, role: str, n: int, *, followed: bool) -> Determiner:
        """A determiner for the noun; no possessive if a complement follows."""
        if n == 2:
            return self.pick(DETERMINER_CHOICES["two_words"])
        if not noun.countable:
            mass = DETERMINER_CHOICES["mass" if followed else "mass_owned"]
            return self.pick(mass) if role in ("object", "oblique") else words.THE
        if role == "of":
            return words.THE if self.chance(0.8) else words.THE_PLURAL
        if role in ("goal", "generic"):
            choice = "place"
        elif self.chance(0.36):
            choice = "persons" if noun.kind in PERSONS else "plural"
        else:
            choice = "singular"
        return self.pick(DETERMINER_CHOICES[choice + ("_owned" if noun.ownable and not followed else "")])

    def adjectives(self, noun: Noun, n: int) -> tuple[list[Adjective], bool]:
        """Adjectives for a noun, and whether the first has `very`."""
        kind, name = noun.kind, noun.english[0]
        if not n:
            return [], False
        if n == 1:
            side = (lexicon.ADJECTIVES_BEFORE if self.chance(0.35) else lexicon.ADJECTIVES_AFTER)[kind]
            exhausted = all(self.contradicts(adjective, 8) for adjective in side)
            return [self.adjective(lexicon.ADJECTIVES[kind] if exhausted else side, name)], False
        if all(self.contradicts(adjective, 8) for adjective in lexicon.FIRST_OF_TWO[kind]) or self.chance(0.3):
            return [self.adjective(lexicon.GRADABLE[kind], name)], True
        first = self.adjective(lexicon.FIRST_OF_TWO[kind], name)
        return [first, self.adjective(lexicon.ADJECTIVES_AFTER[kind], name)], False

    def adjective(self, options: Sequence[Adjective], noun: str = "") -> Adjective:
        """An adjective that does not repeat or contradict what the sentence has said, or at least not recently."""
        for _ in range(12):
            adjective = self.pick(options)
            contradictions = lexicon.CONTRADICTIONS[adjective.english]
            if contradictions.isdisjoint(self.used) and (adjective.english, noun) not in lexicon.SET_PHRASES:
                break
        else:
            allowed = [a for a in options if (a.english, noun) not in lexicon.SET_PHRASES]
            for recent in (8, 3, 1):
                fitting = [a for a in allowed if not self.contradicts(a, recent)]
                if fitting:
                    break
            adjective = self.pick(fitting or [a for a in allowed if a.english not in self.used[-8:]] or allowed)
        self.used.append(adjective.english)
        return adjective

    def contradicts(self, adjective: Adjective, recent: int) -> bool:
        """Whether an adjective repeats or contradicts one of the most recent nouns and adjectives."""
        return not lexicon.CONTRADICTIONS[adjective.english].isdisjoint(self.used[-recent:])

    def simple_noun_phrase(
        self, noun: Noun, determiner: Determiner, modifiers: int, *, negated: bool = False, followed: bool = False
    ) -> NounPhrase:
        """Determiner, adjectives and noun, with the word order and agreement of each language.

        If a complement follows there is no possessor and no superlative: a relative clause after them would need a
        comma or the subjunctive.
        """
        adjectives, very = self.adjectives(noun, modifiers)
        number = determiner.number
        index = noun.gender + 2 * number
        english, possessor, superlative = determiner.english, "", False
        if determiner is words.A:
            following = "very" if very else adjectives[0].english if adjectives else noun.english[0]
            english = (indefinite_article(following),)
        elif negated and determiner in words.SOME:
            english = ("any",)
        if determiner is words.THE and self.chance(0.12) and noun.ownable and not (followed or self.depth):
            owner = self.pick(lexicon.FIRST_NAMES).phrase[0][0]
            english, possessor = (owner + "'s",), f"de {owner}"
        positions = self.say(" ".join(english))
        if len(adjectives) == 1 and determiner in (words.THE, words.THE_PLURAL) and not (possessor or followed):
            gradable = adjectives[0].english not in lexicon.NOT_GRADABLE
            superlative = gradable and bool(adjectives[0].superlative) is not very and self.chance(0.35)
        before: list[Word] = []
        after: list[Word] = []
        for adjective in adjectives:
            side = before if adjective.precedes else after
            form = attributive(adjective, index, noun)
            if superlative:  # le plus vieux pont, la voiture la plus chère
                if not adjective.precedes:
                    side.append((determiner.french[index][0], positions))
                degree = self.say("most") if very else ()
                position = self.say(adjective.english if very else adjective.superlative)
                irregular = words.IRREGULAR_COMPARATIVES.get(adjective.comparative)
                side += (
                    [(irregular[index], position)] if irregular else [("plus", degree or position), (form, position)]
                )
                continue
            if very:
                side.append(("très", self.say("very")))
            side.append((form, self.say(adjective.english)))
        head = (noun.french[number], self.say(noun.english[number]))
        if (negated and determiner.negated) or (determiner.before_adjective and before):
            article: tuple[str, ...] = ("de",)
        else:
            article = determiner.french[index + 4 * begins_with_vowel(before[0][0] if before else head[0])]
        pair_off = len(article) == len(positions)
        self.french += [(word, positions[i : i + 1] if pair_off else positions) for i, word in enumerate(article)]
        self.french += [*before, head, *after, *([(possessor, positions)] if possessor else [])]
        return third_person(noun.gender, number, noun.kind, english[0] in words.UNIVERSAL)

    def may_have_short_complement(self, noun: Noun) -> bool:
        """Whether a complement of two words can follow the noun: `of France`, `in Paris`, `who sleeps`."""
        name = noun.english[0]
        if lexicon.OF.get(name) in ("country", "city") or noun.kind == "event" or name in lexicon.SENT:
            return True
        return not self.depth and bool(lexicon.VERBS_BY_SUBJECT["intransitive", noun.kind])

    def complement(self, n: int, noun: Noun, head: NounPhrase, *, placed: bool = False) -> None:
        """The complement of a noun: a prepositional phrase or a relative clause."""
        name, kind = noun.english[0], noun.kind
        of = lexicon.OF.get(name)
        if of in ("country", "city"):
            if n == 2:
                self.both("of", "de")
                if of == "city":
                    self.both(*self.pick(lexicon.CITIES))
                else:  # le roi de France, but du Portugal
                    self.name(lexicon.BARE_COUNTRIES if name in lexicon.BEFORE_BARE_COUNTRY else lexicon.COUNTRIES)
                return None
        elif of and n >= 3 and self.chance(0.5):
            self.both("of", "de")
            self.noun_phrase(n - 1, lexicon.kinds_of(of), "of")
            return None
        if n == 2 and name in lexicon.SENT:
            self.both("from", "de")
            self.noun_phrase(1, ("family",), "oblique")
            return None
        if n == 2 and kind == "event":
            return self.place(2, formal=True)
        about = lexicon.ABOUT.get(name) or lexicon.ABOUT.get(kind)
        if about and n >= 3 and self.chance(0.6):
            self.both(about, "sur")
            if about == "on" and n in (4, 5) and self.chance(0.3):
                self.name(lexicon.INSTITUTIONS[n - 1])
            else:
                self.noun_phrase(n - 1, ("issue", "topic"), "oblique")
            return None
        if 3 <= n < 7 and kind in lexicon.CONCRETE and not placed:
            indoors = kind in lexicon.INDOORS
            if self.depth or (indoors and n == 3) or self.chance(0.4):
                return self.place(n, verb="indoors" if indoors else "")
        self.relative_clause(self, n, head)
        return None

    # Verb groups

    def verb_form(
        self, voice: str, n: int, subject: NounPhrase, *, verb: Verb | None = None, habitual: bool = False
    ) -> VerbForm:
        """A form of the verb in at most n English words that fits its subject and the time frame of the clause."""
        stative = verb is not None and verb.stative
        ambiguous = verb is not None and verb.base == verb.past and self.frame in ("past", "present")  # `they read`
        dated = self.opens_with_time and not self.depth
        habitual = habitual or (dated and self.frame == "present")
        conditions = (stative, ambiguous, habitual, dated, subject.universal, self.narrative)
        return self.pick(verb_forms(voice, self.frame, min(n, 6), conditions))

    def verb_group(
        self, verb: Verb | None, form: VerbForm, subject: NounPhrase, pronoun: ObjectPronoun = ("", "", 0)
    ) -> None:
        """A verb, or without one the copula, with its auxiliary, negation, adverb and object pronoun."""
        forms = words.AUXILIARIES.get(form.auxiliary)
        auxiliary = self.say(forms[subject.person] if forms else form.auxiliary) if form.auxiliary else ()
        negation = self.say(form.negation) if form.negation else ()
        adverb = self.say(form.adverb) if form.adverb else ()
        if negation:
            self.add("ne", negation)
        tense = form.tense
        if verb is None or form.voice == "passive":
            main, french = self.say(form.link) if form.link else (), words.ETRE
        else:
            english_form = form.form if form.form != "present" else "third" if subject.person == THIRD else "base"
            main, french = self.say(getattr(verb, english_form) + verb.particle), verb.french
            if pronoun[0]:
                self.both(*pronoun[:2])
            elif verb.reflexive:
                self.add(words.REFLEXIVE_PRONOUNS[subject.person], main)
            if tense == "past" and verb.stative:
                tense = "imperfect"
        helper, helper_tense = words.ETRE if french.with_etre else words.AVOIR, words.COMPOUND_TENSES.get(tense)
        if helper_tense:
            self.add(getattr(helper, helper_tense)[subject.person], auxiliary or main)
        else:
            self.add(getattr(french, tense)[subject.person], auxiliary + main)
        if negation:
            self.add(words.NEGATIONS[form.negation], negation)
        if adverb:
            self.add(words.ADVERBS[form.adverb], adverb)
        if helper_tense:
            self.add(french.participle[subject.agreement if french.with_etre else pronoun[2]], main or auxiliary)
        if verb is not None and form.voice == "passive":
            self.add(verb.french.participle[subject.agreement], self.say(verb.participle))
        elif verb is not None and verb.noun:
            self.add(verb.noun, main)

    # Adjuncts

    def adjuncts(
        self, n: int, verb: Verb, form: VerbForm, *, manner_at: int | None = None, placed: bool = False
    ) -> None:
        """Adjuncts of manner, place and time; French has that of manner at `manner_at`, beside the verb."""
        if not n:
            return
        manners = () if manner_at is None or form.negation else lexicon.MANNERS_OF_VERB[verb.base]
        times = "any" if self.has_time or (self.depth and n > 1) else self.time_class(form)
        without_place = placed or verb.stative or "no_place" in verb.traits
        manner_words, place_words, time_words = self.pick(adjunct_lengths(n, times, bool(manners), not without_place))
        if manner_words:
            self.phrase(self.pick(manners), manner_at)
        if place_words:
            self.place(place_words, formal="formal" in verb.traits, verb=verb.base)
        if time_words and times == "any":
            self.expression(words.FILLERS_WITHOUT_PLACE if without_place or place_words else words.FILLERS, form)
        elif time_words:
            self.has_time = True
            self.time(time_words, times, form)

    def place(self, n: int, *, formal: bool = False, verb: str = "") -> None:
        """Add a place; formal actions take place in cities and at events."""
        if n == 2:
            draw = self.random()
            if draw < 0.45:
                self.both("in", "à")
                self.both(*self.pick(lexicon.CITIES))
            elif draw < 0.8 or formal or verb not in words.FIXED_PLACE_VERBS:
                self.phrase(self.pick(lexicon.IN_COUNTRIES))
            else:
                self.both(*self.pick(words.FIXED_PLACES))
        elif formal:
            self.both(*self.pick(words.EVENT_PREPOSITIONS))
            self.noun_phrase(n - 1, ("event",), "oblique")
        else:
            english, french, kinds = self.pick(words.place_prepositions(verb, n > 4))
            self.both(english, french)
            self.noun_phrase(n - 1 - english.count(" "), kinds, "goal")

    def time_class(self, form: VerbForm) -> str:
        """The class of the expressions of time that go with the clause and its verb form."""
        if not form.dated:
            return "any"
        if self.frame in ("past", "while_past", "past_chain"):
            return "past"
        if self.frame in ("present", "present_chain"):
            return "habit" if form.habitual else "now"
        return "any" if self.frame == "reported" else "future"

    def time_length(self, most: int, form: VerbForm) -> int:
        """The number of words at the end of a clause for an expression of time; 0 for none."""
        times = self.time_class(form)
        if self.has_time or self.depth or times == "any":
            return 0
        return self.pick([0, 0, *[length for length in words.TIME_LENGTHS[times] if length <= most]])

    def time(self, n: int, times: str, form: VerbForm) -> None:
        """Add an expression of time: a fixed one, a distance from now, or a date."""
        if n == 1 or times in ("habit", "now") or (n == 2 and self.chance(0.6)):
            return self.expression(words.TIMES[times, n], form)
        past = times == "past"
        if n == 3 and self.chance(0.35):
            number, unit = self.pick(words.DURATION_NUMBERS), self.pick(words.DURATION_UNITS)
            if not past:
                self.both("in", "dans")
            start = len(self.french)
            self.both(number, lexicon.NUMBERS[number])
            self.both(*unit)
            if past:
                self.add("il y a", self.say("ago"), at=start)
            return None
        year = str(self.within(1950, 2024) if past else self.within(2030, 2059))
        month = self.pick(tuple(lexicon.MONTHS)) if n > 2 else ""
        if n > 3:
            day = str(self.within(1, 28))
            self.both("on", "le")
            self.both(day, "1er" if day == "1" else day)
        else:
            self.both("in", "en")
        if month:
            self.both(month, lexicon.MONTHS[month])
        self.both(year, year)
        return None

    def expression(self, options: Sequence[lexicon.Phrase], form: VerbForm) -> None:
        """A fixed expression that goes with the verb form: not `never every day`, nor `no longer again`."""
        phrase = self.pick(options)
        while (form.negation or form.adverb) and phrase[0][0] in ("every", "again", "regularly"):
            phrase = self.pick(options)
        self.phrase(phrase)


def third_person(gender: int, number: int, kind: str, universal: bool = False) -> NounPhrase:
    """The features of a noun phrase with a noun."""
    return NounPhrase(THIRD_PLURAL if number else THIRD, gender, number, kind, universal)


def attributive(adjective: Adjective, index: int, noun: Noun) -> str:
    """The French form of an adjective beside its noun: un beau jardin, un bel arbre."""
    before_vowel = adjective.precedes and index == 0 and begins_with_vowel(noun.french[0])
    return adjective.before_vowel if before_vowel else adjective.french[index]


@cache
def modifier_lengths(n: int, short_complement: bool) -> tuple[int, ...]:
    """The numbers of words, of n, that may stand before the noun; a complement of the rest has at least three words, or
    two with `short_complement`."""
    return tuple(before for before in range(min(n, 2) + 1) if before == n or n - before > 2 - short_complement)


@cache
def adjunct_lengths(n: int, times: str, manner: bool, place: bool) -> tuple[tuple[int, int, int], ...]:
    """The ways to divide n words between manner, place and time."""
    divisions = [
        (manner_words, n - manner_words - time_words, time_words)
        for manner_words in ((0, 1) if manner else (0,))
        for time_words in (0, *words.TIME_LENGTHS[times])
        if n - manner_words - time_words in (0, *range(2, n + 1))
    ]
    good = [
        division
        for division in divisions
        if division[1] < 8 and (times != "any" or not division[2]) and (place or not division[1])
    ]
    return tuple(good or divisions)


@cache
def verb_forms(voice: str, frame: str, length: int, conditions: tuple[bool, ...]) -> tuple[VerbForm, ...]:
    """The verb forms of at most `length` words that fit the conditions of `Derivation.verb_form`."""
    stative, ambiguous, habitual, dated, universal, narrative = conditions
    fitting = [
        form
        for form in words.VERB_FORMS[voice][frame]
        if form.length <= length
        and not (stative and (form.form == "gerund" or form.tense == "perfect"))
        and not (ambiguous and form.form in ("past", "present"))
        and not (universal and form.negation)
        and not (narrative and form.tense == "perfect")
    ]
    best = [
        form
        for form in fitting
        if (form.habitual or not habitual)
        and not (dated and (not form.dated or form.adverb or form.negation in ("never", "no longer")))
    ]
    return tuple(best or fitting)
