"""Phrases of the built-in corpus: noun phrases, verbs, places and times, said in English and French at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from regard.text import function_words as small
from regard.text.function_words import (
    CHAIN_PAST,
    CHAIN_PRESENT,
    IL,
    ILS,
    PAST,
    PERSONS,
    PRESENT,
    REPORTED,
    WHILE_PAST,
    Determiner,
    Plan,
    countable,
    nouns_of,
    personal,
)
from regard.text.lexicon import (
    BODIES,
    CITIES,
    COUNTRIES,
    MONTHS,
    NAMES,
    NUMBERS,
    PLURAL,
    SINGULAR,
    UNCOUNTED,
    Adjective,
    Noun,
    Verb,
    indefinite,
    kinds_of,
    opens_with_vowel,
)

T = TypeVar("T")
W = TypeVar("W", Noun, Adjective)
Ids = tuple[int, ...]
Word = tuple[str, Ids]  # a French word and the English words it comes from


class Nominal(NamedTuple):
    """small.A subject or an object as said: its French words, and what others must agree with."""

    french: list[Word]
    person: int
    gender: int
    number: int
    kind: str


PLAN_POOLS: dict[tuple[int, int, int, bool, bool, bool, bool], tuple[Plan, ...]] = {}


class Derivation:
    """One sentence in the making: `random` decides, `english` is what has been said so far."""

    def __init__(self, random: Callable[[], float], relate: Callable[[Derivation, int, Nominal], list[Word]]) -> None:
        self.random = random
        self.relate = relate  # the rule for relative clauses, which are made of phrases in their turn
        self.english: list[str] = []
        self.used: list[str | tuple[str, str]] = []
        self.frame = PAST
        self.timed = False  # whether the sentence has told its time
        self.opened = False  # whether the clause began with its time
        self.depth = 0
        self.thing: Nominal | None = None  # what `it` would mean
        self.group: Nominal | None = None  # what `they` would mean
        self.things_agree = self.groups_agree = True  # else `it` or `they` would not tell its gender

    def pick(self, options: Sequence[T]) -> T:
        """One of the options, all alike."""
        return options[int(self.random() * len(options))]

    def fresh(self, options: Sequence[W]) -> W:
        """One of the options, one not yet said in this sentence if it is found soon."""
        for _ in range(4):
            option = self.pick(options)
            if option.english not in self.used:
                break
        self.used.append(option.english)
        return option

    def chance(self, probability: float) -> bool:
        """Whether something that rare happens."""
        return self.random() < probability

    def within(self, low: int, high: int) -> int:
        """small.A whole number from low to high, both included."""
        return low + int(self.random() * (high - low + 1)) if high > low else low

    def say(self, words: str) -> Ids:
        """Say English words; their places."""
        english = self.english
        start = len(english)
        if " " in words:
            english.extend(words.split())
            return tuple(range(start, len(english)))
        english.append(words)
        return (start,)

    def both(self, english: str, french: str) -> list[Word]:
        """Say English words whose French words come from all of them."""
        ids = self.say(english)
        return [(word, ids) for word in french.split()]

    def phrase(self, phrase: small.Phrase) -> list[Word]:
        """Say a fixed expression."""
        english, french = phrase
        start = len(self.english)
        self.english.extend(english)
        return [(word, tuple([start + place for place in places])) for word, places in french]

    def comma(self) -> Word:
        """small.A comma on both sides."""
        self.english[-1] += ","
        return ",", ()

    def mention(self, nominal: Nominal) -> Nominal:
        """Remember what later pronouns may stand for."""
        if nominal.number == PLURAL:
            self.groups_agree &= self.group is None or self.group.gender == nominal.gender
            self.group = nominal
        elif nominal.kind not in PERSONS:
            self.things_agree &= self.thing is None or self.thing.gender == nominal.gender
            self.thing = nominal
        return nominal

    def single(self, kinds: tuple[str, ...], role: str, negated: bool) -> Nominal:
        """A noun phrase of one English word: a pronoun, a name, a country, or a noun without article."""
        draw = self.random()
        bare = role in ("habit", "object", "generic")
        if personal(kinds) and not (bare and draw > 0.85):
            if draw < 0.45 and role in ("subject", "habit"):
                english, french, person, gender, number = self.pick(small.SUBJECTS)
                return Nominal([(french, self.say(english))], person, gender, number, "family")
            name = self.pick(NAMES)
            return Nominal([(name.french[0][0], self.say(name.english[0]))], IL, name.gender, SINGULAR, "family")
        if "institution" in kinds and (not bare or draw < 0.5):
            return self.country()
        noun = self.pick(nouns_of(kinds))
        mass = not countable(noun)
        number = SINGULAR if mass else PLURAL
        if role in ("habit", "generic"):
            determiner = small.GENERIC_MASS if mass else small.GENERIC
        else:
            determiner = small.BARE_MASS if mass else small.BARE
        ids = self.say(noun.english[number])
        article = ("de",) if negated and determiner.negated else determiner.french[noun.gender]
        words = [*[(word, ids) for word in article], (noun.french[number], ids)]
        return self.mention(Nominal(words, ILS if number else IL, noun.gender, number, noun.kind))

    def country(self) -> Nominal:
        """small.A country with the article French gives it."""
        country = self.pick(COUNTRIES)
        ids = self.say(country.english[0])
        words = [("la" if country.gender else "le", ids), (country.french[0][0], ids)]
        return self.mention(Nominal(words, IL, country.gender, SINGULAR, "institution"))

    def body(self, length: int) -> Nominal:
        """An institution's proper name of this many words."""
        body = self.pick([body for body in BODIES if len(body.english) == length])
        start = len(self.english)
        self.english.extend(body.english)
        words = [(word, tuple(start + place for place in places)) for word, places in body.french]
        person = ILS if body.number else IL
        return self.mention(Nominal(words, person, body.gender, body.number, "institution"))

    def determine(self, noun: Noun, role: str, words: int) -> Determiner:
        """small.A determiner of one or two words that goes with the noun in its role."""
        if words == 2:
            return self.pick(small.TWO_WORDS)
        if noun.kind in UNCOUNTED:
            return self.pick(small.MASS) if role in ("object", "oblique") else small.THE
        if role == "of":
            return small.THE if self.chance(0.8) else small.THE_MANY
        owned = noun.kind in small.OWNED and noun.english[0] not in small.UNOWNED
        if role == "goal":
            return self.pick(small.SETTING_OWN if owned else small.SETTING)
        if role == "generic":
            return self.pick(small.SETTING_OWN)
        if self.chance(0.36):
            if noun.kind in PERSONS:
                return self.pick(small.FOLK_OWN if owned else small.FOLK)
            return self.pick(small.MANY_OWN if owned else small.MANY)
        return self.pick(small.ONE_OWN if owned else small.ONE)

    def core(
        self, noun: Noun, determiner: Determiner, adjectives: list[Adjective], very: bool, negated: bool
    ) -> Nominal:
        """Determiner, adjectives and noun, each in its language's order and form."""
        number, gender = determiner.number, noun.gender
        index = gender + 2 * number
        english = determiner.english
        if determiner is small.A:
            english = (indefinite("very"),) if very else ((adjectives[0] if adjectives else noun).article,)
        owner: tuple[Word, ...] = ()
        if determiner is small.THE and self.chance(0.12) and noun.kind in small.OWNED and not self.depth:
            name = self.pick(NAMES)
            english = (name.english[0] + "'s",)
            owner = (("de", (len(self.english),)), (name.french[0][0], (len(self.english),)))
        start = len(self.english)
        self.english.extend(english)
        ids = tuple(range(start, start + len(english)))
        if len(adjectives) == 1 and determiner in small.DEFINITE and not owner and self.extreme(adjectives[0], very):
            return self.superlative(noun, determiner, adjectives[0], very, ids)
        degree: list[Word] = [("très", self.say("very"))] if very else []
        before: list[Word] = []
        after: list[Word] = []
        for place, adjective in enumerate(adjectives):
            said = self.say(adjective.english)
            side = before if adjective.precedes else after
            if place == 0:
                side.extend(degree)
            side.append((adjective.french[index], said))
            if adjective.precedes and index == 0 and opens_with_vowel(noun.french[0]):
                side[-1] = (adjective.before_vowel, said)
        head = (noun.french[number], self.say(noun.english[number]))
        following = before[0][0] if before else head[0]
        if (negated and determiner.negated) or (determiner.thinned and before):
            article: tuple[str, ...] = ("de",)
        else:
            article = determiner.french[index + 4 * opens_with_vowel(following)]
        if len(article) == len(ids):
            words: list[Word] = [(word, (i,)) for word, i in zip(article, ids, strict=True)]
        else:
            words = [(word, ids) for word in article]
        words += [*before, head, *after, *owner]
        return Nominal(words, ILS if number else IL, gender, number, noun.kind)

    def extreme(self, adjective: Adjective, very: bool) -> bool:
        """Whether to say an adjective as a superlative: in one word where it has one, else in two."""
        graded = adjective.english not in small.UNGRADED
        return graded and bool(adjective.superlative) is not very and self.chance(0.25)

    def superlative(self, noun: Noun, determiner: Determiner, adjective: Adjective, very: bool, ids: Ids) -> Nominal:
        """`the oldest bridge`: le plus vieux pont; `the most expensive car`: la voiture la plus chère."""
        number, gender = determiner.number, noun.gender
        index = gender + 2 * number
        most = self.say("most") if very else ()
        said = self.say(adjective.english if very else adjective.superlative)
        head = (noun.french[number], self.say(noun.english[number]))
        article = determiner.french[index][0]
        form = adjective.french[index]
        if adjective.precedes and index == 0 and opens_with_vowel(head[0]):
            form = adjective.before_vowel
        best = small.IRREGULAR_COMPARATIVES.get(adjective.comparative)
        high: list[Word] = [(best[index], said)] if best else [("plus", most or said), (form, said)]
        words = [(article, ids), *high, head] if adjective.precedes else [(article, ids), head, (article, ids), *high]
        return Nominal(words, ILS if number else IL, gender, number, noun.kind)

    def noun_phrase(self, n: int, kinds: tuple[str, ...], role: str, *, negated: bool = False) -> Nominal:
        """small.A noun phrase of exactly n English words."""
        if n == 1:
            return self.single(kinds, role, negated)
        if n in (3, 4) and "institution" in kinds and self.chance(0.15):
            return self.body(n)
        if n >= 5 and self.chance(0.15 if n < 8 else 0.35) and not negated and role not in ("of", "goal"):
            return self.coordination(n, kinds, role)
        noun = self.fresh(nouns_of(kinds))
        rest = n - 2
        modifiers = self.pick(small.SPLITS[rest, self.can_complement(noun)])
        complement = rest - modifiers
        words = 1
        if modifiers and role in ("subject", "object") and not negated and self.chance(0.06) and countable(noun):
            words, modifiers = 2, modifiers - 1
        determiner = self.determine(noun, role, words)
        adjectives, very = self.describe(noun, modifiers)
        nominal = self.core(noun, determiner, adjectives, very, negated)
        if complement:
            nominal.french.extend(self.complement(complement, noun, nominal, placed=role == "goal"))
        return self.mention(nominal)

    def describe(self, noun: Noun, words: int) -> tuple[list[Adjective], bool]:
        """Adjectives for a noun in this many words, and whether the first is `very` so."""
        kind = noun.kind
        if not words:
            return [], False
        if words == 1:
            side = small.ADJECTIVES_BEFORE if self.chance(0.35) else small.ADJECTIVES_AFTER
            return [self.fresh(side[kind])], False
        if not small.PAIRED[kind] or self.chance(0.3):
            return [self.fresh(small.GRADED[kind])], True
        return [self.fresh(small.PAIRED[kind]), self.fresh(small.ADJECTIVES_AFTER[kind])], False

    def coordination(self, n: int, kinds: tuple[str, ...], role: str) -> Nominal:
        """Two noun phrases of a kind joined by `and`, or three or more in a list."""
        kind = (self.pick(nouns_of(kinds)).kind,)
        parts = self.shares(n - 1, max(2, min(n // 3, 4, (n + 3) // 5)), 2)
        nominals = [self.noun_phrase(parts[0], kind, role)]
        words = list(nominals[0].french)
        for place, part in enumerate(parts[1:], start=2):
            if place == len(parts):
                words.append(("et", self.say("and")))
            else:
                words.append(self.comma())
            nominals.append(self.noun_phrase(part, kind, role))
            words.extend(nominals[-1].french)
        gender = min(nominal.gender for nominal in nominals)
        return self.mention(Nominal(words, ILS, gender, PLURAL, kind[0]))

    def shares(self, total: int, parts: int, least: int) -> list[int]:
        """The total cut into this many parts of at least so much each, at random but not far apart."""
        sizes = [least] * parts
        for _ in range(total - least * parts):
            sizes[int(self.random() * parts)] += 1
        return sizes

    def can_complement(self, noun: Noun) -> bool:
        """Whether a complement of only two words can follow the noun: `of France`, `in Paris`, `who sleeps`."""
        if (
            small.OF.get(noun.english[0]) in ("country", "city")
            or noun.kind == "event"
            or noun.english[0] in small.SENT
        ):
            return True
        return not self.depth and bool(small.VERBS_FOR["alone", noun.kind])

    def complement(self, n: int, noun: Noun, head: Nominal, *, placed: bool = False) -> list[Word]:
        """What follows a noun, in exactly n words."""
        name, kind = noun.english[0], noun.kind
        of = small.OF.get(name)
        if of in ("country", "city"):
            if n == 2:
                preposition = ("de", self.say("of"))
                named = self.country().french if of == "country" else [self.city()]
                return [preposition, *(named[1:] if named[0][0] == "la" else named)]  # le roi de France, du Portugal
        elif of and n >= 3 and self.chance(0.5):
            return [*self.both("of", "de"), *self.noun_phrase(n - 1, kinds_of(of), "of").french]
        if n == 2 and name in small.SENT:
            return [*self.both("from", "de"), *self.noun_phrase(1, ("family",), "oblique").french]
        if n == 2 and kind == "event":
            return self.place(2, formal=True)
        about = small.ABOUT.get(name) or small.ABOUT.get(kind)
        if about and n >= 3 and self.chance(0.6):
            preposition = ("sur", self.say(about))
            if about == "on" and n in (4, 5) and self.chance(0.3):
                return [preposition, *self.body(n - 1).french]
            return [preposition, *self.noun_phrase(n - 1, ("issue", "topic"), "oblique").french]
        concrete = kind in small.CONCRETE
        if n >= 3 and concrete and not placed and (self.depth or self.chance(0.3)) and n < 7:
            return self.place(n, formal=False)
        return self.relate(self, n, head)

    def city(self) -> Word:
        """small.A city."""
        city = self.pick(CITIES)
        return city.french[0][0], self.say(city.english[0])

    def place(self, n: int, *, formal: bool, base: str = "") -> list[Word]:
        """Where, in exactly n words; formal things happen in cities and at events."""
        if n == 2:
            draw = self.random()
            if draw < 0.45:
                return [*self.both("in", "à"), self.city()]
            if draw < 0.8 or formal or base not in small.HOMELY:
                ids, country = self.say("in"), self.pick(COUNTRIES)
                said = self.say(country.english[0])
                return [("en" if country.gender else "au", ids), (country.french[0][0], said)]
            return self.both(*self.pick(small.FIXED_PLACES))
        if formal:
            preposition, words = self.both(*self.pick(small.EVENT_PREPOSITIONS)), n - 1
            return [*preposition, *self.noun_phrase(words, ("event",), "oblique").french]
        english, french, kinds = self.pick(small.settings(base, n > 4))
        words = n - 1 - english.count(" ")
        return [*self.both(english, french), *self.noun_phrase(words, kinds, "goal").french]

    def plan(
        self, table: dict[int, list[tuple[Plan, int]]], room: int, *, verb: Verb | None = None, habitual: bool = False
    ) -> Plan:
        """small.A way to say a verb now, in at most `room` words."""
        stative = verb is not None and verb.stative
        invariant = verb is not None and verb.base == verb.past and self.frame in (PAST, PRESENT)
        dated = self.opened and not self.depth
        habitual = habitual or (dated and self.frame == PRESENT)
        key = (id(table), self.frame, room if room < 6 else 6, stative, invariant, habitual, dated)
        found = PLAN_POOLS.get(key)
        if found is None:
            fitting = [
                (plan, weight)
                for plan, weight in table[self.frame]
                if plan.length <= room
                and not (stative and (plan.form == "gerund" or plan.tense == "perfect"))
                and not (invariant and plan.form in ("past", "present"))
                and (plan.habitual or not habitual)
                and (plan.dated or not dated)
            ]
            found = tuple(plan for plan, weight in fitting for _ in range(weight))
            PLAN_POOLS[key] = found
        return self.pick(found)

    def helper(self, plan: Plan, person: int) -> Ids:
        """Say the English auxiliary, if there is one."""
        forms = small.AUXILIARIES.get(plan.auxiliary)
        return self.say(forms[person] if forms else plan.auxiliary) if plan.auxiliary else ()

    def verb_group(
        self,
        verb: Verb,
        plan: Plan,
        subject: Nominal,
        *,
        pronoun: tuple[str, str, int] | None = None,
        agreement: int = 0,
    ) -> list[Word]:
        """The verb with its auxiliaries, negation, adverb and object pronoun, in both orders."""
        person = subject.person
        helper = self.helper(plan, person)
        negation = self.say(plan.negation) if plan.negation else ()
        adverb = self.say(plan.adverb) if plan.adverb else ()
        form = plan.form if plan.form != "present" else "third" if person == IL else "base"
        main = self.say(getattr(verb, form))
        if verb.particle:
            main += self.say(verb.particle)
        french = verb.french
        words: list[Word] = [("ne", negation)] if negation else []
        if pronoun:
            words.append((pronoun[1], self.say(pronoun[0])))
            agreement = pronoun[2]
        elif verb.reflexive:
            words.append((small.REFLEXIVES[person], main))
        tense = plan.tense
        if tense == "past" and verb.stative:
            tense = "imperfect"
        if tense in small.HELPERS:
            auxiliary = small.ETRE if french.with_etre else small.AVOIR
            finite = (getattr(auxiliary, small.HELPERS[tense])[person], helper or main)
            if french.with_etre:
                agreement = subject.gender + 2 * subject.number
            last: list[Word] = [(french.participle[agreement], main)]
        else:
            finite, last = (getattr(french, tense)[person], helper + main), []
        words.append(finite)
        if negation:
            words.append((small.NEGATIONS[plan.negation], negation))
        if adverb:
            words.append((small.ADVERBS[plan.adverb], adverb))
        words += last
        if verb.tail:
            words.append((verb.tail, main))
        return words

    def being(self, plan: Plan, subject: Nominal, verb: Verb | None = None) -> list[Word]:
        """small.A passive, or without a verb the copula."""
        person = subject.person
        helper = self.helper(plan, person)
        negation = self.say(plan.negation) if plan.negation else ()
        adverb = self.say(plan.adverb) if plan.adverb else ()
        link = self.say(small.LINKS[plan.auxiliary]) if plan.auxiliary in small.LINKS else ()
        words: list[Word] = [("ne", negation)] if negation else []
        compound = plan.tense in small.HELPERS
        if compound:
            words.append((getattr(small.AVOIR, small.HELPERS[plan.tense])[person], helper))
        else:
            words.append((getattr(small.ETRE, plan.tense)[person], helper + link))
        if negation:
            words.append((small.NEGATIONS[plan.negation], negation))
        if adverb:
            words.append((small.ADVERBS[plan.adverb], adverb))
        if compound:
            words.append(("été", link or helper))
        if verb is not None:
            words.append((verb.french.participle[subject.gender + 2 * subject.number], self.say(verb.participle)))
        return words

    def times(self, plan: Plan | None) -> str:
        """Which expressions of time go with the frame and the plan."""
        if plan is not None and not plan.dated:
            return "any"
        if self.frame in (PAST, WHILE_PAST, CHAIN_PAST):
            return "past"
        if self.frame in (PRESENT, CHAIN_PRESENT):
            return "habit" if plan is None or plan.habitual else "now"
        return "any" if self.frame == REPORTED else "future"

    def time(self, n: int, times: str) -> list[Word]:
        """When, in exactly n words."""
        if times == "any":
            return self.phrase(self.pick(small.FILLERS))
        if n == 1 or times in ("habit", "now") or (n == 2 and self.chance(0.6)):
            return self.phrase(self.pick(small.TIMES[times, n]))
        past = times == "past"
        if n == 3 and self.chance(0.35):
            number = self.pick(small.SMALL_NUMBERS)
            unit = self.pick(small.UNITS)
            if past:
                count, unit_ids, ago = self.say(number), self.say(unit[0]), self.say("ago")
                return [("il", ago), ("y", ago), ("a", ago), (NUMBERS[number], count), (unit[1], unit_ids)]
            inside, count = self.say("in"), self.say(number)
            return [("dans", inside), (NUMBERS[number], count), (unit[1], self.say(unit[0]))]
        year = str(self.within(1950, 2024) if past else self.within(2030, 2059))
        if n == 2:
            return [*self.both("in", "en"), (year, self.say(year))]
        month = self.pick(small.MONTH_NAMES)
        if n == 3:
            inside, said = self.say("in"), self.say(month)
            return [("en", inside), (MONTHS[month], said), (year, self.say(year))]
        day = str(self.within(1, 28))
        on, numbered, said = self.say("on"), self.say(day), self.say(month)
        return [("le", on), ("1er" if day == "1" else day, numbered), (MONTHS[month], said), (year, self.say(year))]

    def adjuncts(self, n: int, verb: Verb | None, plan: Plan | None, *, manner: bool = False) -> list[Word]:
        """How, where and when, in exactly n words together."""
        if not n:
            return []
        manner = manner and verb is not None and bool(small.MANNER_OF[verb.base])
        if plan is not None and plan.negation:
            manner = False
        times = "any" if self.timed or (self.depth and n > 1) else self.times(plan)
        how, where, when = self.pick(
            small.adjunct_shares(n, times, manner, verb is None or not (verb.stative or verb.base == "leave"))
        )
        words: list[Word] = []
        if how:
            assert verb is not None
            words += self.phrase(self.pick(small.MANNER_OF[verb.base]))
        if where:
            formal, base = (verb.formal, verb.base) if verb is not None else (False, "")
            words += self.place(where, formal=formal, base=base)
        if when:
            self.timed = True
            words += self.time(when, times)
        return words
