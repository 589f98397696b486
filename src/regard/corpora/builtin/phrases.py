"""Phrases of the built-in corpus: noun phrases, verb groups and adjuncts, in English and French at once.

`n` is the number of English words that a rule must produce.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple, TypeVar

from regard.corpora.builtin import function_words as words
from regard.corpora.builtin import lexicon
from regard.corpora.builtin.function_words import DETERMINER_CHOICES, THIRD, THIRD_PLURAL, Determiner, VerbForm
from regard.corpora.builtin.lexicon import PERSONS, PLURAL, SINGULAR, Adjective, Noun, Verb, may_be_owned, nouns_of
from regard.corpora.builtin.morphology import Positions, Word, begins_with_vowel, indefinite_article

T = TypeVar("T")


class NounPhrase(NamedTuple):
    """A noun phrase: its French words, and the features that other words agree with."""

    french: list[Word]
    person: int
    gender: int
    number: int
    kind: str
    universal: bool = False  # each, every, all: not the subject of a negation

    @property
    def agreement(self) -> int:
        """The index of the adjectives and participles that agree with it."""
        return self.gender + 2 * self.number


class ObjectPronoun(NamedTuple):
    """An object pronoun, and the index of the participle that agrees with it."""

    english: str
    french: str
    agreement: int


class Derivation:
    """One sentence being derived: `random` decides between rules, `english` holds the English words so far."""

    def __init__(
        self, random: Callable[[], float], relative_clause: Callable[[Derivation, int, NounPhrase], list[Word]]
    ) -> None:
        self.random = random
        self.relative_clause = relative_clause  # passed in, because clauses consist of phrases
        self.english: list[str] = []
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

    # Words

    def say(self, text: str) -> Positions:
        """Append English words and return their positions."""
        start = len(self.english)
        if " " in text:
            self.english.extend(text.split())
            return tuple(range(start, len(self.english)))
        self.english.append(text)
        return (start,)

    def both(self, english: str, french: str) -> list[Word]:
        """Append English words; each French word translates all of them."""
        positions = self.say(english)
        return [(word, positions) for word in french.split()]

    def phrase(self, phrase: lexicon.Phrase) -> list[Word]:
        """Append a fixed expression."""
        english, french = phrase
        start = len(self.english)
        self.english.extend(english)
        return [(word, tuple([start + position for position in positions])) for word, positions in french]

    def comma(self) -> Word:
        """Append a comma in both languages."""
        self.english[-1] += ","
        return ",", ()

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
            return self.one_word_noun_phrase(kinds, role, negated)
        if n in (3, 4) and "institution" in kinds and self.chance(0.15):
            return self.institution(n)
        simple = negated or conjunct or role in ("of", "goal")
        if n >= 5 and self.chance(0.15 if n < 8 else 0.35) and not simple:
            return self.coordination(n, kinds, role)
        noun = self.unused_noun(nouns_of(kinds))
        modifiers = self.pick(modifier_lengths(n - 2, self.may_have_short_complement(noun)))
        complement, determiner_words = n - 2 - modifiers, 1
        if modifiers and role in ("subject", "object") and not negated and self.chance(0.06) and countable(noun):
            determiner_words, modifiers = 2, modifiers - 1
        followed = complement > 0
        determiner = self.determiner(noun, role, determiner_words, followed=followed)
        while negated and determiner.english[0] in words.NOT_NEGATED:
            determiner = self.determiner(noun, role, determiner_words, followed=followed)
        adjectives, very = self.adjectives(noun, modifiers)
        phrase = self.simple_noun_phrase(noun, determiner, adjectives, very, negated=negated, followed=followed)
        if complement:
            phrase.french.extend(self.complement(complement, noun, phrase, placed=role == "goal"))
        return self.mention(phrase)

    def one_word_noun_phrase(self, kinds: tuple[str, ...], role: str, negated: bool) -> NounPhrase:
        """A noun phrase of one English word: a pronoun, a name, a country or a bare noun."""
        draw = self.random()
        bare = role in ("habit", "object", "generic")
        if lexicon.has_person(kinds) and not (bare and draw > 0.85):
            if draw < 0.45 and role in ("subject", "habit"):
                pronoun = self.pick(words.SUBJECT_PRONOUNS)
                french = [(pronoun["french"], self.say(pronoun["english"]))]
                return NounPhrase(french, pronoun["person"], pronoun["gender"], pronoun["number"], "family")
            return self.person(lexicon.FIRST_NAMES)
        if "institution" in kinds and (not bare or draw < 0.5):
            return self.country()
        noun = self.pick(nouns_of(kinds))
        name = ("generic" if role in ("habit", "generic") else "bare") + ("" if countable(noun) else "_mass")
        determiner = words.DETERMINERS[name]
        number = determiner.number
        positions = self.say(noun.english[number])
        article = ("de",) if negated and determiner.negated else determiner.french[noun.gender]
        french = [*[(word, positions) for word in article], (noun.french[number], positions)]
        return self.mention(NounPhrase(french, third_person(number), noun.gender, number, noun.kind))

    def person(self, names: Sequence[lexicon.Name]) -> NounPhrase:
        """A person by their first name."""
        name = self.pick(names)
        return NounPhrase([(name.french, self.say(name.english))], THIRD, name.gender, SINGULAR, "family")

    def country(self) -> NounPhrase:
        """A country, which has an article in French."""
        country = self.pick(lexicon.COUNTRIES)
        positions = self.say(country.english)
        french = [("la" if country.gender else "le", positions), (country.french, positions)]
        return self.mention(NounPhrase(french, THIRD, country.gender, SINGULAR, "institution"))

    def city(self) -> Word:
        """A city."""
        city = self.pick(lexicon.CITIES)
        return city.french, self.say(city.english)

    def institution(self, n: int) -> NounPhrase:
        """An institution by its name."""
        phrase, gender, number = self.pick([name for name in lexicon.INSTITUTIONS if len(name.phrase[0]) == n])
        return self.mention(NounPhrase(self.phrase(phrase), third_person(number), gender, number, "institution"))

    def coordination(self, n: int, kinds: tuple[str, ...], role: str) -> NounPhrase:
        """Two or more noun phrases of the same kind: A and B, or A, B and C."""
        kind = self.pick(nouns_of(kinds)).kind
        sizes = self.split(n - 1, max(2, min(n // 3, 4, (n + 3) // 5)), 2)
        conjuncts = [self.noun_phrase(sizes[0], (kind,), role, conjunct=True)]
        french = list(conjuncts[0].french)
        for size in sizes[1:]:
            last = len(conjuncts) == len(sizes) - 1
            french.append(("et", self.say("and")) if last else self.comma())
            conjuncts.append(self.noun_phrase(size, (kind,), role, conjunct=True))
            french.extend(conjuncts[-1].french)
        gender = min(conjunct.gender for conjunct in conjuncts)  # feminine only if all are
        universal = any(conjunct.universal for conjunct in conjuncts)
        return self.mention(NounPhrase(french, THIRD_PLURAL, gender, PLURAL, kind, universal))

    def unused_noun(self, nouns: Sequence[Noun]) -> Noun:
        """One of the nouns, if possible one that the sentence does not have yet."""
        for _ in range(4):
            noun = self.pick(nouns)
            if noun.english not in self.used:
                break
        self.used.append(noun.english)
        return noun

    def determiner(self, noun: Noun, role: str, n: int, *, followed: bool) -> Determiner:
        """A determiner for the noun; no possessive if a complement follows."""
        if n == 2:
            return self.pick(DETERMINER_CHOICES["two_words"])
        if not countable(noun):
            mass = DETERMINER_CHOICES["mass" if followed else "mass_owned"]
            return self.pick(mass) if role in ("object", "oblique") else words.THE
        if role == "of":
            return words.THE if self.chance(0.8) else words.THE_PLURAL
        owned = "_owned" if may_be_owned(noun) and not followed else ""
        if role in ("goal", "generic"):
            return self.pick(DETERMINER_CHOICES["place" + owned])
        if self.chance(0.36):
            return self.pick(DETERMINER_CHOICES[("persons" if noun.kind in PERSONS else "plural") + owned])
        return self.pick(DETERMINER_CHOICES["singular" + owned])

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
        self,
        noun: Noun,
        determiner: Determiner,
        adjectives: list[Adjective],
        very: bool,
        *,
        negated: bool = False,
        followed: bool = False,
    ) -> NounPhrase:
        """Determiner, adjectives and noun, with the word order and agreement of each language.

        If a complement follows there is no possessor and no superlative: a relative clause after them would need a
        comma or the subjunctive.
        """
        number, gender = determiner.number, noun.gender
        index = gender + 2 * number
        english = determiner.english
        if determiner is words.A:
            english = (indefinite_article("very") if very else (adjectives[0] if adjectives else noun).article,)
        elif negated and determiner in words.SOME:
            english = ("any",)
        possessor: list[Word] = []
        if determiner is words.THE and self.chance(0.12) and may_be_owned(noun) and not (followed or self.depth):
            name = self.pick(lexicon.FIRST_NAMES)
            english = (name.english + "'s",)
            possessor = [("de", (len(self.english),)), (name.french, (len(self.english),))]
        start = len(self.english)
        self.english.extend(english)
        positions = tuple(range(start, start + len(english)))
        if len(adjectives) == 1 and determiner in (words.THE, words.THE_PLURAL) and not (possessor or followed):
            adjective = adjectives[0]
            gradable = adjective.english not in lexicon.NOT_GRADABLE
            if gradable and bool(adjective.superlative) is not very and self.chance(0.35):
                return self.superlative(noun, determiner, adjective, very, positions)
        before: list[Word] = []
        after: list[Word] = []
        if very:
            (before if adjectives[0].precedes else after).append(("très", self.say("very")))
        for adjective in adjectives:
            side = before if adjective.precedes else after
            side.append((attributive(adjective, index, noun), self.say(adjective.english)))
        head = (noun.french[number], self.say(noun.english[number]))
        if (negated and determiner.negated) or (determiner.before_adjective and before):
            article: tuple[str, ...] = ("de",)
        else:
            article = determiner.french[index + 4 * begins_with_vowel(before[0][0] if before else head[0])]
        if len(article) == len(positions):
            french: list[Word] = [(word, (i,)) for word, i in zip(article, positions, strict=True)]
        else:
            french = [(word, positions) for word in article]
        french += [*before, head, *after, *possessor]
        return NounPhrase(french, third_person(number), gender, number, noun.kind, english[0] in words.UNIVERSAL)

    def superlative(
        self, noun: Noun, determiner: Determiner, adjective: Adjective, most: bool, positions: Positions
    ) -> NounPhrase:
        """`the oldest bridge`: le plus vieux pont; `the most expensive car`: la voiture la plus chère."""
        number, gender = determiner.number, noun.gender
        index = gender + 2 * number
        degree = self.say("most") if most else ()
        position = self.say(adjective.english if most else adjective.superlative)
        head = (noun.french[number], self.say(noun.english[number]))
        article = (determiner.french[index][0], positions)
        irregular = words.IRREGULAR_COMPARATIVES.get(adjective.comparative)
        graded: list[Word] = [("plus", degree or position), (attributive(adjective, index, noun), position)]
        if irregular:
            graded = [(irregular[index], position)]
        french = [article, *graded, head] if adjective.precedes else [article, head, article, *graded]
        return NounPhrase(french, third_person(number), gender, number, noun.kind)

    def may_have_short_complement(self, noun: Noun) -> bool:
        """Whether a complement of two words can follow the noun: `of France`, `in Paris`, `who sleeps`."""
        name = noun.english[0]
        if lexicon.OF.get(name) in ("country", "city") or noun.kind == "event" or name in lexicon.SENT:
            return True
        return not self.depth and bool(lexicon.VERBS_BY_SUBJECT["intransitive", noun.kind])

    def complement(self, n: int, noun: Noun, head: NounPhrase, *, placed: bool = False) -> list[Word]:
        """Derive the complement of a noun: a prepositional phrase or a relative clause."""
        name, kind = noun.english[0], noun.kind
        of = lexicon.OF.get(name)
        if of in ("country", "city"):
            if n == 2:
                preposition = ("de", self.say("of"))
                french = self.country().french if of == "country" else [self.city()]
                bare = name in lexicon.BARE_COUNTRY and french[0][0] == "la"  # le roi de France, but du Portugal
                return [preposition, *(french[1:] if bare else french)]
        elif of and n >= 3 and self.chance(0.5):
            return [*self.both("of", "de"), *self.noun_phrase(n - 1, lexicon.kinds_of(of), "of").french]
        if n == 2 and name in lexicon.SENT:
            return [*self.both("from", "de"), *self.noun_phrase(1, ("family",), "oblique").french]
        if n == 2 and kind == "event":
            return self.place(2, formal=True)
        about = lexicon.ABOUT.get(name) or lexicon.ABOUT.get(kind)
        if about and n >= 3 and self.chance(0.6):
            preposition = ("sur", self.say(about))
            if about == "on" and n in (4, 5) and self.chance(0.3):
                return [preposition, *self.institution(n - 1).french]
            return [preposition, *self.noun_phrase(n - 1, ("issue", "topic"), "oblique").french]
        if 3 <= n < 7 and kind in lexicon.CONCRETE and not placed:
            indoors = kind in lexicon.INDOORS
            if self.depth or (indoors and n == 3) or self.chance(0.4):
                return self.place(n, verb="indoors" if indoors else "")
        return self.relative_clause(self, n, head)

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
        return self.pick(verb_forms(voice, self.frame, n if n < 6 else 6, conditions))

    def verb_group(
        self,
        verb: Verb,
        form: VerbForm,
        subject: NounPhrase,
        *,
        pronoun: ObjectPronoun | None = None,
        agreement: int = 0,
    ) -> list[Word]:
        """The verb with its auxiliary, negation, adverb and object pronoun; a participle has the agreement index."""
        auxiliary, negation, adverb = self.before_verb(form, subject.person)
        english_form = form.form if form.form != "present" else "third" if subject.person == THIRD else "base"
        main = self.say(getattr(verb, english_form))
        if verb.particle:
            main += self.say(verb.particle)
        french: list[Word] = [("ne", negation)] if negation else []
        if pronoun:
            french.append((pronoun.french, self.say(pronoun.english)))
            agreement = pronoun.agreement
        elif verb.reflexive:
            french.append((words.REFLEXIVE_PRONOUNS[subject.person], main))
        tense = "imperfect" if form.tense == "past" and verb.stative else form.tense
        participle: list[Word] = []
        if tense in words.COMPOUND_TENSES:
            helper = words.ETRE if verb.french.with_etre else words.AVOIR
            french.append((getattr(helper, words.COMPOUND_TENSES[tense])[subject.person], auxiliary or main))
            if verb.french.with_etre:
                agreement = subject.agreement
            participle = [(verb.french.participle[agreement], main)]
        else:
            french.append((getattr(verb.french, tense)[subject.person], auxiliary + main))
        french += [*after_finite_verb(form, negation, adverb), *participle]
        if verb.noun:
            french.append((verb.noun, main))
        return french

    def copula_group(self, form: VerbForm, subject: NounPhrase, verb: Verb | None = None) -> list[Word]:
        """The copula, or with a verb its passive."""
        auxiliary, negation, adverb = self.before_verb(form, subject.person)
        link = self.say(form.link) if form.link else ()
        french: list[Word] = [("ne", negation)] if negation else []
        participle: list[Word] = []
        if form.tense in words.COMPOUND_TENSES:
            french.append((getattr(words.AVOIR, words.COMPOUND_TENSES[form.tense])[subject.person], auxiliary))
            participle = [("été", link or auxiliary)]
        else:
            french.append((getattr(words.ETRE, form.tense)[subject.person], auxiliary + link))
        french += [*after_finite_verb(form, negation, adverb), *participle]
        if verb is not None:
            french.append((verb.french.participle[subject.agreement], self.say(verb.participle)))
        return french

    def before_verb(self, form: VerbForm, person: int) -> tuple[Positions, Positions, Positions]:
        """Append the English auxiliary, negation and adverb."""
        forms = words.AUXILIARIES.get(form.auxiliary)
        auxiliary = self.say(forms[person] if forms else form.auxiliary) if form.auxiliary else ()
        negation = self.say(form.negation) if form.negation else ()
        return auxiliary, negation, self.say(form.adverb) if form.adverb else ()

    # Adjuncts

    def adjuncts(
        self, n: int, verb: Verb | None, form: VerbForm | None, *, manner: bool = False, placed: bool = False
    ) -> list[Word]:
        """Adjuncts of manner, place and time."""
        first, others = self.separate_adjuncts(n, verb, form, manner=manner, placed=placed)
        return first + others

    def separate_adjuncts(
        self, n: int, verb: Verb | None, form: VerbForm | None, *, manner: bool = False, placed: bool = False
    ) -> tuple[list[Word], list[Word]]:
        """The adjunct of manner, which French has beside the verb, and those of place and time."""
        if not n:
            return [], []
        manners = lexicon.MANNERS_OF_VERB[verb.base] if manner and verb is not None else ()
        if form is not None and form.negation:
            manners = ()
        times = "any" if self.has_time or (self.depth and n > 1) else self.time_class(form)
        without_place = placed or (verb is not None and (verb.stative or verb.no_place))
        manner_words, place_words, time_words = self.pick(adjunct_lengths(n, times, bool(manners), not without_place))
        first = self.phrase(self.pick(manners)) if manner_words else []
        others: list[Word] = []
        if place_words:
            formal, base = (verb.formal, verb.base) if verb is not None else (False, "")
            others += self.place(place_words, formal=formal, verb=base)
        if time_words and times == "any":
            without_place = without_place or bool(place_words)
            others += self.expression(words.FILLERS_WITHOUT_PLACE if without_place else words.FILLERS, form)
        elif time_words:
            self.has_time = True
            others += self.time(time_words, times, form)
        return first, others

    def place(self, n: int, *, formal: bool = False, verb: str = "") -> list[Word]:
        """Where something happens; formal actions take place in cities and at events."""
        if n == 2:
            draw = self.random()
            if draw < 0.45:
                return [*self.both("in", "à"), self.city()]
            if draw < 0.8 or formal or verb not in words.FIXED_PLACE_VERBS:
                positions, country = self.say("in"), self.pick(lexicon.COUNTRIES)
                return [("en" if country.gender else "au", positions), (country.french, self.say(country.english))]
            return self.both(*self.pick(words.FIXED_PLACES))
        if formal:
            preposition = self.both(*self.pick(words.EVENT_PREPOSITIONS))
            return [*preposition, *self.noun_phrase(n - 1, ("event",), "oblique").french]
        english, french, kinds = self.pick(words.place_prepositions(verb, n > 4))
        preposition = self.both(english, french)
        return [*preposition, *self.noun_phrase(n - 1 - english.count(" "), kinds, "goal").french]

    def time_class(self, form: VerbForm | None) -> str:
        """Which expressions of time go with the clause and its verb form."""
        if form is not None and not form.dated:
            return "any"
        if self.frame in ("past", "while_past", "past_chain"):
            return "past"
        if self.frame in ("present", "present_chain"):
            return "habit" if form is None or form.habitual else "now"
        return "any" if self.frame == "reported" else "future"

    def time_length(self, most: int, form: VerbForm) -> int:
        """How many words at the end of a clause are for an expression of time."""
        times = self.time_class(form)
        if self.has_time or self.depth or times == "any":
            return 0
        return self.pick([0, 0, *[length for length in words.TIME_LENGTHS[times] if length <= most]])

    def time(self, n: int, times: str, form: VerbForm | None) -> list[Word]:
        """When something happens: a fixed expression, a distance from now, or a date."""
        if n == 1 or times in ("habit", "now") or (n == 2 and self.chance(0.6)):
            return self.expression(words.TIMES[times, n], form)
        past = times == "past"
        if n == 3 and self.chance(0.35):
            number, (english, french) = self.pick(words.DURATION_NUMBERS), self.pick(words.DURATION_UNITS)
            preposition = () if past else self.say("in")
            duration = [(lexicon.NUMBERS[number], self.say(number)), (french, self.say(english))]
            if not past:
                return [("dans", preposition), *duration]
            ago = self.say("ago")
            return [("il", ago), ("y", ago), ("a", ago), *duration]
        year = str(self.within(1950, 2024) if past else self.within(2030, 2059))
        if n == 2:
            return [*self.both("in", "en"), (year, self.say(year))]
        month = self.pick(tuple(lexicon.MONTHS))
        day = str(self.within(1, 28)) if n > 3 else ""
        date = [("le", self.say("on")), ("1er" if day == "1" else day, self.say(day))] if day else self.both("in", "en")
        return [*date, (lexicon.MONTHS[month], self.say(month)), (year, self.say(year))]

    def expression(self, options: Sequence[lexicon.Phrase], form: VerbForm | None) -> list[Word]:
        """A fixed expression that goes with the verb form: not `never every day`, nor `no longer again`."""
        phrase = self.pick(options)
        while form is not None and (form.negation or form.adverb) and phrase[0][0] in ("every", "again", "regularly"):
            phrase = self.pick(options)
        return self.phrase(phrase)


def countable(noun: Noun) -> bool:
    """Whether the noun has a plural."""
    return noun.kind not in lexicon.MASS


def third_person(number: int) -> int:
    """The third person, singular or plural."""
    return THIRD_PLURAL if number else THIRD


def attributive(adjective: Adjective, index: int, noun: Noun) -> str:
    """The French form of an adjective beside its noun: un beau jardin, un bel arbre."""
    before_vowel = adjective.precedes and index == 0 and begins_with_vowel(noun.french[0])
    return adjective.before_vowel if before_vowel else adjective.french[index]


def after_finite_verb(form: VerbForm, negation: Positions, adverb: Positions) -> list[Word]:
    """The French negation and adverb, which follow the finite verb."""
    french: list[Word] = [(words.NEGATIONS[form.negation], negation)] if negation else []
    return [*french, (words.ADVERBS[form.adverb], adverb)] if adverb else french


@cache
def modifier_lengths(n: int, short_complement: bool) -> tuple[int, ...]:
    """How many of n words may stand before the noun; a complement has at least three words, or two if it may."""
    complements = [n - before for before in range(min(n, 2) + 1)]
    return tuple(n - length for length in complements if length == 0 or length > 2 - short_complement)


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
