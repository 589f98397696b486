"""Phrases of the built-in corpus: noun phrases, verbs, places and times, said in English and French at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from regard.corpora.builtin import function_words as tables
from regard.corpora.builtin.function_words import (
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
from regard.corpora.builtin.lexicon import (
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
Ids = tuple[int, ...]
Word = tuple[str, Ids]  # a French word and the English words it comes from


class Nominal(NamedTuple):
    """A subject or an object as said: its French words, and what others must agree with."""

    french: list[Word]
    person: int
    gender: int
    number: int
    kind: str
    total: bool = False  # of each or all of them


PLAN_POOLS: dict[tuple[int, int, int, bool, bool, bool, bool, bool, bool], tuple[Plan, ...]] = {}


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
        self.told = False  # whether a `when` makes it a story, without the perfect
        self.depth = 0
        self.thing: Nominal | None = None  # what `it` would mean
        self.group: Nominal | None = None  # what `they` would mean
        self.things_agree = self.groups_agree = True  # else `it` or `they` would not tell its gender

    def pick(self, options: Sequence[T]) -> T:
        """One of the options, all alike."""
        return options[int(self.random() * len(options))]

    def fresh(self, nouns: Sequence[Noun]) -> Noun:
        """One of the nouns, one not yet said in this sentence if it is found soon."""
        for _ in range(4):
            noun = self.pick(nouns)
            if noun.english not in self.used:
                break
        self.used.append(noun.english)
        return noun

    def adjective(self, options: Sequence[Adjective], noun: str = "") -> Adjective:
        """One of the adjectives that neither repeats nor contradicts what was said, at least what was said just now."""
        used: Sequence[str | tuple[str, str]] = self.used
        for _ in range(12):
            found = self.pick(options)
            if tables.CLASHES[found.english].isdisjoint(used) and (found.english, noun) not in tables.BARRED:
                break
        else:
            allowed = [a for a in options if (a.english, noun) not in tables.BARRED]
            good = self.unsaid(allowed, 8) or self.unsaid(allowed, 3) or self.unsaid(allowed, 1)
            found = self.pick(good or [a for a in allowed if a.english not in used[-8:]] or allowed)
        self.used.append(found.english)
        return found

    def unsaid(self, options: Sequence[Adjective], lately: int) -> list[Adjective]:
        """The adjectives that go with the last words remembered."""
        used = self.used[-lately:]
        return [option for option in options if tables.CLASHES[option.english].isdisjoint(used)]

    def chance(self, probability: float) -> bool:
        """Whether something that rare happens."""
        return self.random() < probability

    def within(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
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

    def phrase(self, phrase: tables.Phrase) -> list[Word]:
        """Say a fixed expression."""
        english, french = phrase
        start = len(self.english)
        self.english.extend(english)
        return [(word, tuple([start + place for place in places])) for word, places in french]

    def comma(self) -> Word:
        """A comma on both sides."""
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
                english, french, person, gender, number = self.pick(tables.SUBJECTS)
                return Nominal([(french, self.say(english))], person, gender, number, "family")
            name = self.pick(NAMES)
            return Nominal([(name.french[0][0], self.say(name.english[0]))], IL, name.gender, SINGULAR, "family")
        if "institution" in kinds and (not bare or draw < 0.5):
            return self.country()
        noun = self.pick(nouns_of(kinds))
        mass = not countable(noun)
        number = SINGULAR if mass else PLURAL
        if role in ("habit", "generic"):
            determiner = tables.GENERIC_MASS if mass else tables.GENERIC
        else:
            determiner = tables.BARE_MASS if mass else tables.BARE
        ids = self.say(noun.english[number])
        article = ("de",) if negated and determiner.negated else determiner.french[noun.gender]
        words = [*[(word, ids) for word in article], (noun.french[number], ids)]
        return self.mention(Nominal(words, ILS if number else IL, noun.gender, number, noun.kind))

    def country(self) -> Nominal:
        """A country with the article French gives it."""
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

    def determine(self, noun: Noun, role: str, words: int, *, followed: bool) -> Determiner:
        """A determiner of one or two words that goes with the noun in its role, and with what follows it."""
        if words == 2:
            return self.pick(tables.TWO_WORDS)
        if noun.kind in UNCOUNTED:
            mass = tables.MASS if followed else tables.MASS_OWN
            return self.pick(mass) if role in ("object", "oblique") else tables.THE
        if role == "of":
            return tables.THE if self.chance(0.8) else tables.THE_MANY
        owned = may_be_owned(noun) and not followed
        if role in ("goal", "generic"):
            return self.pick(tables.SETTING_OWN if owned else tables.SETTING)
        if self.chance(0.36):
            if noun.kind in PERSONS:
                return self.pick(tables.FOLK_OWN if owned else tables.FOLK)
            return self.pick(tables.MANY_OWN if owned else tables.MANY)
        return self.pick(tables.ONE_OWN if owned else tables.ONE)

    def core(
        self,
        noun: Noun,
        determiner: Determiner,
        adjectives: list[Adjective],
        very: bool,
        negated: bool,
        *,
        followed: bool = False,
    ) -> Nominal:
        """Determiner, adjectives and noun, each in its language's order and form.

        Where a complement follows, nothing is said to be Marie's or the best: a relative clause would ask for a comma
        or for the subjunctive.
        """
        number, gender = determiner.number, noun.gender
        index = gender + 2 * number
        english = determiner.english
        if determiner is tables.A:
            english = (indefinite("very"),) if very else ((adjectives[0] if adjectives else noun).article,)
        elif negated and determiner in (tables.SOME, tables.SOME_MASS):
            english = ("any",)
        owner: tuple[Word, ...] = ()
        if determiner is tables.THE and self.chance(0.12) and may_be_owned(noun) and not (followed or self.depth):
            name = self.pick(NAMES)
            english = (name.english[0] + "'s",)
            owner = (("de", (len(self.english),)), (name.french[0][0], (len(self.english),)))
        start = len(self.english)
        self.english.extend(english)
        ids = tuple(range(start, start + len(english)))
        extreme = len(adjectives) == 1 and determiner in tables.DEFINITE and not (owner or followed)
        if extreme and self.extreme(adjectives[0], very):
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
        return Nominal(words, ILS if number else IL, gender, number, noun.kind, english[0] in tables.TOTAL)

    def extreme(self, adjective: Adjective, very: bool) -> bool:
        """Whether to say an adjective as a superlative: in one word where it has one, else in two."""
        graded = adjective.english not in tables.UNGRADED
        return graded and bool(adjective.superlative) is not very and self.chance(0.35)

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
        best = tables.IRREGULAR_COMPARATIVES.get(adjective.comparative)
        high: list[Word] = [(best[index], said)] if best else [("plus", most or said), (form, said)]
        words = [(article, ids), *high, head] if adjective.precedes else [(article, ids), head, (article, ids), *high]
        return Nominal(words, ILS if number else IL, gender, number, noun.kind)

    def noun_phrase(
        self, n: int, kinds: tuple[str, ...], role: str, *, negated: bool = False, joined: bool = False
    ) -> Nominal:
        """A noun phrase of exactly n English words."""
        if n == 1:
            return self.single(kinds, role, negated)
        if n in (3, 4) and "institution" in kinds and self.chance(0.15):
            return self.body(n)
        apart = negated or joined or role in ("of", "goal")
        if n >= 5 and self.chance(0.15 if n < 8 else 0.35) and not apart:
            return self.coordination(n, kinds, role)
        noun = self.fresh(nouns_of(kinds))
        rest = n - 2
        modifiers = self.pick(tables.SPLITS[rest, self.can_complement(noun)])
        complement = rest - modifiers
        words = 1
        if modifiers and role in ("subject", "object") and not negated and self.chance(0.06) and countable(noun):
            words, modifiers = 2, modifiers - 1
        followed = complement > 0
        determiner = self.determine(noun, role, words, followed=followed)
        while negated and determiner.english[0] in tables.UNDENIED:
            determiner = self.determine(noun, role, words, followed=followed)
        adjectives, very = self.describe(noun, modifiers)
        nominal = self.core(noun, determiner, adjectives, very, negated, followed=followed)
        if complement:
            nominal.french.extend(self.complement(complement, noun, nominal, placed=role == "goal"))
        return self.mention(nominal)

    def describe(self, noun: Noun, words: int) -> tuple[list[Adjective], bool]:
        """Adjectives for a noun in this many words, and whether the first is `very` so."""
        kind, name = noun.kind, noun.english[0]
        if not words:
            return [], False
        if words == 1:
            side = tables.ADJECTIVES_BEFORE if self.chance(0.35) else tables.ADJECTIVES_AFTER
            options = side[kind] if self.unsaid(side[kind], 8) else tables.ADJECTIVES[kind]
            return [self.adjective(options, name)], False
        if not self.unsaid(tables.PAIRED[kind], 8) or self.chance(0.3):
            return [self.adjective(tables.GRADED[kind], name)], True
        first = self.adjective(tables.PAIRED[kind], name)
        return [first, self.adjective(tables.ADJECTIVES_AFTER[kind], name)], False

    def coordination(self, n: int, kinds: tuple[str, ...], role: str) -> Nominal:
        """Two noun phrases of a kind joined by `and`, or three or more in a list."""
        kind = (self.pick(nouns_of(kinds)).kind,)
        parts = self.shares(n - 1, max(2, min(n // 3, 4, (n + 3) // 5)), 2)
        nominals = [self.noun_phrase(parts[0], kind, role, joined=True)]
        words = list(nominals[0].french)
        for place, part in enumerate(parts[1:], start=2):
            if place == len(parts):
                words.append(("et", self.say("and")))
            else:
                words.append(self.comma())
            nominals.append(self.noun_phrase(part, kind, role, joined=True))
            words.extend(nominals[-1].french)
        gender = min(nominal.gender for nominal in nominals)
        return self.mention(Nominal(words, ILS, gender, PLURAL, kind[0], any(one.total for one in nominals)))

    def shares(self, total: int, parts: int, least: int) -> list[int]:
        """The total cut into this many parts of at least so much each, at random but not far apart."""
        sizes = [least] * parts
        for _ in range(total - least * parts):
            sizes[int(self.random() * parts)] += 1
        return sizes

    def can_complement(self, noun: Noun) -> bool:
        """Whether a complement of only two words can follow the noun: `of France`, `in Paris`, `who sleeps`."""
        if (
            tables.OF.get(noun.english[0]) in ("country", "city")
            or noun.kind == "event"
            or noun.english[0] in tables.SENT
        ):
            return True
        return not self.depth and bool(tables.VERBS_FOR["alone", noun.kind])

    def complement(self, n: int, noun: Noun, head: Nominal, *, placed: bool = False) -> list[Word]:
        """What follows a noun, in exactly n words."""
        name, kind = noun.english[0], noun.kind
        of = tables.OF.get(name)
        if of in ("country", "city"):
            if n == 2:
                preposition = ("de", self.say("of"))
                named = self.country().french if of == "country" else [self.city()]
                bare = name in tables.CROWNS and named[0][0] == "la"  # le roi de France, but du Portugal
                return [preposition, *(named[1:] if bare else named)]
        elif of and n >= 3 and self.chance(0.5):
            return [*self.both("of", "de"), *self.noun_phrase(n - 1, kinds_of(of), "of").french]
        if n == 2 and name in tables.SENT:
            return [*self.both("from", "de"), *self.noun_phrase(1, ("family",), "oblique").french]
        if n == 2 and kind == "event":
            return self.place(2, formal=True)
        about = tables.ABOUT.get(name) or tables.ABOUT.get(kind)
        if about and n >= 3 and self.chance(0.6):
            preposition = ("sur", self.say(about))
            if about == "on" and n in (4, 5) and self.chance(0.3):
                return [preposition, *self.body(n - 1).french]
            return [preposition, *self.noun_phrase(n - 1, ("issue", "topic"), "oblique").french]
        if 3 <= n < 7 and kind in tables.CONCRETE and not placed:
            inside = kind in tables.INDOORS
            if self.depth or (inside and n == 3) or self.chance(0.4):
                return self.place(n, formal=False, base="indoors" if inside else "")
        return self.relate(self, n, head)

    def city(self) -> Word:
        """A city."""
        city = self.pick(CITIES)
        return city.french[0][0], self.say(city.english[0])

    def place(self, n: int, *, formal: bool, base: str = "") -> list[Word]:
        """Where, in exactly n words; formal things happen in cities and at events."""
        if n == 2:
            draw = self.random()
            if draw < 0.45:
                return [*self.both("in", "à"), self.city()]
            if draw < 0.8 or formal or base not in tables.HOMELY:
                ids, country = self.say("in"), self.pick(COUNTRIES)
                said = self.say(country.english[0])
                return [("en" if country.gender else "au", ids), (country.french[0][0], said)]
            return self.both(*self.pick(tables.FIXED_PLACES))
        if formal:
            preposition, words = self.both(*self.pick(tables.EVENT_PREPOSITIONS)), n - 1
            return [*preposition, *self.noun_phrase(words, ("event",), "oblique").french]
        english, french, kinds = self.pick(tables.settings(base, n > 4))
        words = n - 1 - english.count(" ")
        return [*self.both(english, french), *self.noun_phrase(words, kinds, "goal").french]

    def plan(
        self,
        table: dict[int, list[tuple[Plan, int]]],
        room: int,
        subject: Nominal,
        *,
        verb: Verb | None = None,
        habitual: bool = False,
    ) -> Plan:
        """A way to say a verb of the subject now, in at most `room` words."""
        stative = verb is not None and verb.stative
        invariant = verb is not None and verb.base == verb.past and self.frame in (PAST, PRESENT)  # `they read`
        dated = self.opened and not self.depth
        habitual = habitual or (dated and self.frame == PRESENT)
        total, told = subject.total, self.told
        key = (id(table), self.frame, room if room < 6 else 6, stative, invariant, habitual, dated, total, told)
        found = PLAN_POOLS.get(key)
        if found is None:
            fitting = [
                (plan, weight)
                for plan, weight in table[self.frame]
                if plan.length <= room
                and not (stative and (plan.form == "gerund" or plan.tense == "perfect"))
                and not (invariant and plan.form in ("past", "present"))
                and not (total and plan.negation)
                and not (told and plan.tense == "perfect")
            ]
            best = [
                (plan, weight)
                for plan, weight in fitting
                if (plan.habitual or not habitual)
                and not (dated and (not plan.dated or plan.adverb or plan.negation in ("never", "no longer")))
            ]
            found = PLAN_POOLS[key] = tuple(plan for plan, weight in best or fitting for _ in range(weight))
        return self.pick(found)

    def helper(self, plan: Plan, person: int) -> Ids:
        """Say the English auxiliary, if there is one."""
        forms = tables.AUXILIARIES.get(plan.auxiliary)
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
            words.append((tables.REFLEXIVES[person], main))
        tense = plan.tense
        if tense == "past" and verb.stative:
            tense = "imperfect"
        if tense in tables.HELPERS:
            auxiliary = tables.ETRE if french.with_etre else tables.AVOIR
            finite = (getattr(auxiliary, tables.HELPERS[tense])[person], helper or main)
            if french.with_etre:
                agreement = subject.gender + 2 * subject.number
            last: list[Word] = [(french.participle[agreement], main)]
        else:
            finite, last = (getattr(french, tense)[person], helper + main), []
        words.append(finite)
        if negation:
            words.append((tables.NEGATIONS[plan.negation], negation))
        if adverb:
            words.append((tables.ADVERBS[plan.adverb], adverb))
        words += last
        if verb.tail:
            words.append((verb.tail, main))
        return words

    def being(self, plan: Plan, subject: Nominal, verb: Verb | None = None) -> list[Word]:
        """A passive, or without a verb the copula."""
        person = subject.person
        helper = self.helper(plan, person)
        negation = self.say(plan.negation) if plan.negation else ()
        adverb = self.say(plan.adverb) if plan.adverb else ()
        link = self.say(tables.LINKS[plan.auxiliary]) if plan.auxiliary in tables.LINKS else ()
        words: list[Word] = [("ne", negation)] if negation else []
        compound = plan.tense in tables.HELPERS
        if compound:
            words.append((getattr(tables.AVOIR, tables.HELPERS[plan.tense])[person], helper))
        else:
            words.append((getattr(tables.ETRE, plan.tense)[person], helper + link))
        if negation:
            words.append((tables.NEGATIONS[plan.negation], negation))
        if adverb:
            words.append((tables.ADVERBS[plan.adverb], adverb))
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

    def expression(self, options: Sequence[tables.Phrase], plan: Plan | None) -> list[Word]:
        """A fixed expression that goes with the plan: not `never every day`, nor `no longer again`."""
        phrase = self.pick(options)
        while plan is not None and (plan.negation or plan.adverb) and phrase[0][0] in ("every", "again", "regularly"):
            phrase = self.pick(options)
        return self.phrase(phrase)

    def time(self, n: int, times: str, plan: Plan | None) -> list[Word]:
        """When, in exactly n words."""
        if n == 1 or times in ("habit", "now") or (n == 2 and self.chance(0.6)):
            return self.expression(tables.TIMES[times, n], plan)
        past = times == "past"
        if n == 3 and self.chance(0.35):
            number = self.pick(tables.SMALL_NUMBERS)
            unit = self.pick(tables.UNITS)
            if past:
                count, unit_ids, ago = self.say(number), self.say(unit[0]), self.say("ago")
                return [("il", ago), ("y", ago), ("a", ago), (NUMBERS[number], count), (unit[1], unit_ids)]
            inside, count = self.say("in"), self.say(number)
            return [("dans", inside), (NUMBERS[number], count), (unit[1], self.say(unit[0]))]
        year = str(self.within(1950, 2024) if past else self.within(2030, 2059))
        if n == 2:
            return [*self.both("in", "en"), (year, self.say(year))]
        month = self.pick(tables.MONTH_NAMES)
        if n == 3:
            inside, said = self.say("in"), self.say(month)
            return [("en", inside), (MONTHS[month], said), (year, self.say(year))]
        day = str(self.within(1, 28))
        on, numbered, said = self.say("on"), self.say(day), self.say(month)
        return [("le", on), ("1er" if day == "1" else day, numbered), (MONTHS[month], said), (year, self.say(year))]

    def spare(self, most: int, plan: Plan) -> int:
        """How many words at the end of a clause, up to this many, may tell when."""
        times = self.times(plan)
        if self.timed or self.depth or times == "any":
            return 0
        return self.pick([0, 0, *[length for length in tables.TIME_LENGTHS[times] if length <= most]])

    def adjuncts(
        self, n: int, verb: Verb | None, plan: Plan | None, *, manner: bool = False, placed: bool = False
    ) -> list[Word]:
        """How, where and when, in exactly n words together."""
        how, rest = self.circumstances(n, verb, plan, manner=manner, placed=placed)
        return how + rest

    def circumstances(
        self, n: int, verb: Verb | None, plan: Plan | None, *, manner: bool = False, placed: bool = False
    ) -> tuple[list[Word], list[Word]]:
        """How, which French says beside the verb, and where and when, in exactly n words together."""
        if not n:
            return [], []
        manner = manner and verb is not None and bool(tables.MANNER_OF[verb.base])
        if plan is not None and plan.negation:
            manner = False
        times = "any" if self.timed or (self.depth and n > 1) else self.times(plan)
        settled = placed or (verb is not None and (verb.stative or verb.base in tables.NOWHERE))
        how, where, when = self.pick(tables.adjunct_shares(n, times, manner, not settled))
        first: list[Word] = []
        words: list[Word] = []
        if how:
            assert verb is not None
            first = self.phrase(self.pick(tables.MANNER_OF[verb.base]))
        if where:
            formal, base = (verb.formal, verb.base) if verb is not None else (False, "")
            words += self.place(where, formal=formal, base=base)
        if when and times == "any":
            words += self.expression(tables.SETTLED if settled or where else tables.FILLERS, plan)
        elif when:
            self.timed = True
            words += self.time(when, times, plan)
        return first, words


def may_be_owned(noun: Noun) -> bool:
    """Whether the noun takes a possessor; a man or a queen would become a spouse or a card."""
    return noun.kind in tables.OWNED and noun.english[0] not in tables.UNOWNED
