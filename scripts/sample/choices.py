"""Random meanings: who acts, on whom or what, and a sensible action.

``d.action(anna, "past")`` draws a verb frame and fills it: Anna, to read, the new book, at home.
"""

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

from sample import words
from sample.clauses import PAST_MODALS, Clause
from sample.phrases import (
    EMPTY,
    POSSESSIVES,
    PRONOUNS,
    THE,
    THIS,
    A,
    Bilingual,
    Phrase,
    noun_phrase,
    person_phrase,
)

T = TypeVar("T")
OWNERS = [*POSSESSIVES.values(), POSSESSIVES["I"], POSSESSIVES["we"]]
TENSES = ("present", "progressive", "past", "past", "future", "state")
MODALS = ("can", "could", "should", "would like", "must", "had to", "want", "wanted", "may")
_KIN = words.CLASSES["kin"].nouns
_SERVED = ("cup", "snack")
_OWNED = ("clothes", "vehicle", "useful", "furniture", "book", "pet", "luggage", "hanging", "lost")


def is_not_us(phrase: Phrase) -> bool:
    """Whether a question may be about this person: not about the speaker."""
    return phrase.role != "speaker"


def returns(phrase: Phrase) -> bool:
    """Whether a pronoun can refer back to the person."""
    return bool(phrase.anaphor)


class Dice:
    """Random choices, from single words to whole meanings."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # only its .random() is the same in every Python

    def chance(self, p: float) -> bool:
        """True with probability ``p``."""
        return self._random.random() < p

    def pick(self, options: Sequence[T]) -> T:
        """One of the options."""
        return options[int(self._random.random() * len(options))]

    # ------------------------------------------------------------ people

    def person(self) -> Phrase:
        """The old teacher, the children, ..."""
        name = "child" if self.chance(0.2) else "person"
        noun = self.pick(words.CLASSES[name].nouns)
        return person_phrase(noun, THE, self.adjective(name), plural=self.chance(0.25))

    def relative(self, owner: Bilingual) -> Phrase:
        """My brother, their grandparents, ..."""
        noun = self.pick(_KIN)
        plural = self.chance(0.4) and noun in words.CLASSES["young kin"].nouns
        return person_phrase(noun, owner, plural=plural)

    def _anyone(self, pronoun: float) -> Phrase:
        if self.chance(pronoun):
            return self.pick(list(PRONOUNS.values()))
        if self.chance(0.3):
            return self.pick(words.NAMES)
        return self.relative(self.pick(OWNERS)) if self.chance(0.5) else self.person()

    def subject(
        self, pronoun: float = 0.35, fits: Callable[[Phrase], bool] = lambda _: True
    ) -> Phrase:
        """A person who can perform the action."""
        while not fits(phrase := self._anyone(pronoun)):
            pass
        return phrase

    def other_subject(self, first: Phrase) -> Phrase:
        """A second subject; a pronoun in it refers to the first one unambiguously."""

        def fits(phrase: Phrase) -> bool:
            if phrase.is_pronoun and phrase.role == first.role == "other":
                return phrase.anaphor == first.anaphor
            return phrase.is_pronoun or phrase.noun != first.noun

        return self.subject(fits=fits)

    def person_object(self, subject: Phrase, *, pronouns: bool = True) -> Phrase:
        """Someone other than the subject."""
        if pronouns and self.chance(0.25):
            return self.pick([p for p in PRONOUNS.values() if p.role != subject.role])
        is_kin = subject.noun in [noun.en for noun in _KIN]
        if self.chance(0.3):
            person = self.pick(words.NAMES)
        elif self.chance(0.5) and returns(subject) and not is_kin:
            person = self.relative(subject.possessive)
        else:
            person = self.person()
        return self.person_object(subject) if person.noun == subject.noun else person

    # ------------------------------------------------------------ things

    def adjective(self, name: str) -> Bilingual:
        """An adjective for nouns of this class, or none."""
        adjectives = words.CLASSES[name].adjectives
        return self.pick(adjectives) if adjectives and self.chance(0.45) else EMPTY

    def thing(self, name: str, word: str, c: Clause) -> Phrase:
        """A noun phrase from a class, as an object of the clause; "no hat" takes kein."""
        noun, adj = self.pick(words.CLASSES[name].nouns), self.adjective(name)
        owner = c.subject.possessive if c.verb.en != "buy" else THE
        determiner, plural = A, False
        if word:
            determiner = {"a": A, "the": THE, "my": owner}[word]
        elif noun.is_mass:
            determiner = EMPTY
        elif name not in _SERVED and c.tense != "present" and self.chance(0.6):
            number = EMPTY if c.negation else self.pick(words.NUMBERS[:4])
            own = owner if name in _OWNED else THE
            determiner = self.pick((THE, THE, THE, own, THIS, number, number))
            plural = determiner is number
        if c.negation:
            determiner = {A: ("a", "kein"), EMPTY: ("any", "kein")}.get(determiner, determiner)
        return noun_phrase(noun, determiner, adj, plural=plural)

    # ------------------------------------------------------------ actions

    def action(
        self,
        subject: Phrase,
        tense: str,
        frames: Sequence[words.Frame] = (),
        *,
        negated: bool = False,
        time: float = 0.65,
    ) -> Clause:
        """A clause in which the subject does something that fits the tense."""
        frame = self.pick(frames or words.frames_for(tense))
        if tense == "state":
            tense, time = "present", 0.0
        negation = "nicht" if negated else ""
        c = Clause(subject, frame.verb, tense, negation, reflexive="r" in frame.flags)
        if frame.objects:
            c = self._with_objects(c, frame)
        if frame.complements:
            c = c._replace(complement=self.pick(frame.complements))
        manners = [m for m in frame.manners if m[0] != "together" or subject.person == 3]
        if manners and not negated and self.chance(0.35):
            c = c._replace(manner=self.pick(manners))
        elif frame.places and self.chance(0.55) and not (c.negation == "nicht" and frame.objects):
            c = c._replace(place=self.pick(frame.places))
        if tense == "past" and not frame.verb.past_shows:
            time = 1.0
        if not self.chance(time) or (tense == "present" and negated):
            return c
        if tense == "present" and self.chance(0.4):
            return c._replace(frequency=self.pick(words.FREQUENCIES))
        return c._replace(time=self.time(tense, frame))

    def _with_objects(self, c: Clause, frame: words.Frame) -> Clause:
        name, word = self.pick(frame.objects)
        if name in ("people", "relatives"):
            o = self.person_object(c.subject, pronouns=name == "people")
        else:
            o = self.thing(name, word, c)
        if frame.preposition:
            return c._replace(complement=(o.en_object, f"{frame.preposition} {o.de.accusative}"))
        if frame.government == "dat":
            return c._replace(dative=o)
        if frame.government == "dat+acc":
            c = c._replace(dative=self.person_object(c.subject))
        kein = c.negation and not o.definite
        return c._replace(accusative=o, negation="kein" if kein else c.negation)

    def time(self, tense: str, frame: words.Frame | None = None) -> Bilingual:
        """A time adverbial that fits the action."""
        if tense == "past" and frame and "l" in frame.flags:
            tense = "long past" if frame.verb.en == "build" or self.chance(0.6) else tense
        tense = "past" if tense in PAST_MODALS else tense
        return self.pick(words.TIMES.get(tense) or words.TIMES["modal"])
