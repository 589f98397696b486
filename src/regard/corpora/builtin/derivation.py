"""The state of a sentence that is being derived: random choices, the words so far, and what pronouns can refer to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from regard.corpora.builtin.lexicon import PERSONS, PLURAL, Phrase
from regard.corpora.builtin.morphology import Positions, Word

T = TypeVar("T")
THIRD, THIRD_PLURAL = 1, 4  # persons: I, he, we, you, they


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

    # Antecedents

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
