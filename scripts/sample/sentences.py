"""Random sentences: a meaning is drawn, and put into words.

``d.action(anna, "past")`` draws a verb and what goes with it: Anna, to read, the new book, at home.
"""

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

from sample import grammar, words
from sample.grammar import EMPTY, PRONOUNS, THE, THIS, WHO, A, Bilingual, Clause, Phrase, join
from sample.inflection import ACCUSATIVE, BE, CASES, DATIVE, Noun, determiner
from sample.words import CLASSES, FRAMES, PHRASES, TENSES, Frame

T = TypeVar("T")

_ANYBODY = list(PRONOUNS.values())
_SPEAKERS = ("I", "we")
_SAME = [(p, p) for p in PRONOUNS] + [_SPEAKERS, _SPEAKERS[::-1]]
_OWNERS = [p.possessive for p in _ANYBODY] + [(f"{n.en}'s", f"{n.en}s") for n in words.NAMES]
_KINDS = {"present": ["habit"], "past": ["habit", "event", "once"], "state": ["state"]}
_ADVERBS = ("when", "where", "why")
_PLACES = {"person": "home work town", "thing": "home spot"}
_RELATIVE = words.frames_of("read, write, buy, find, look for, see, repair, wash, lose")


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

    def phrase(self, noun: Noun, word: Bilingual, plural: float = 0.2, adj: float = 0.45) -> Phrase:
        """The noun, at times with an adjective that goes with it, at times in the plural."""
        adjective = self.pick(noun.adjectives) if noun.adjectives and self.chance(adj) else EMPTY
        is_plural = bool(noun.de_plural) and self.chance(plural)
        return grammar.noun_phrase(noun, word, adjective, plural=is_plural)

    def person(self, pronoun: float = 0.35, owner: Bilingual = EMPTY) -> Phrase:
        """I, Anna, the children, my nice uncle; or rather a relative of the owner."""
        if self.chance(pronoun):
            return self.pick(_ANYBODY)
        if self.chance(0.3):
            return self.pick(words.NAMES)
        if self.chance(0.55):
            return self.phrase(self.pick(CLASSES["person"]), self.pick((THE, THE, THIS)))
        owner = owner if owner[1] and self.chance(0.7) else self.pick(_OWNERS)
        return self.phrase(self.pick(CLASSES["relative"]), owner)

    def other_person(self, person: Phrase) -> Phrase:
        """Somebody else."""
        other = self.person(0.3, person.possessive)
        is_same = other.is_pronoun and (other.pronoun, person.pronoun) in _SAME
        return self.other_person(person) if is_same or other.en == person.en else other

    def thing(self, frame: Frame, noun: Noun, c: Clause) -> Phrase:
        """An object of the clause; the negation of "a hat" is "kein Hut"."""
        options = [A, A, A, EMPTY, THE, THE, THIS, *([] if c.negation else words.NUMBERS)]
        if noun not in CLASSES["building"]:
            options += [c.subject.possessive, self.pick(_OWNERS)]
        if c.tense == "present" and not c.modal:
            options = [A, EMPTY]
        if not noun.de_plural:
            options = [EMPTY]
        fixed = {"a": A, "the": THE, "own": c.subject.possessive}.get(frame.case)
        word = fixed or self.pick(options)
        plural = 0.0 if word == A else 1.0 if word == EMPTY or word in words.NUMBERS else 0.2
        if c.negation and word in (A, EMPTY):
            word = (word[0] or "any", "kein")
        return self.phrase(noun, word, plural)

    def action(
        self, subject: Phrase, told: str, frames: Sequence[Frame] = FRAMES, *, negated: bool = False
    ) -> Clause:
        """A clause in which the subject does something; ``told`` is a key of TENSES."""
        kinds = _KINDS.get(told, ["habit", "event"])
        frame = self.pick([frame for frame in frames if frame.kind in kinds])
        c = Clause(subject, frame.verb, *TENSES[told], "nicht" if negated else "")
        if frame.objects:
            c = self._with_objects(c, frame)
        if frame.complements:
            c = c._replace(complement=self.pick(frame.complements))
        if frame.manners and not negated and self.chance(0.35):
            c = c._replace(manner=self.pick(frame.manners))
        if frame.places and self.chance(0.45) and not (c.negation == "nicht" and c.object):
            c = c._replace(place=self.pick(frame.places))
        is_unclear = told == "past" and frame.verb.en_past == frame.verb.en  # they read
        is_timeless = told in ("progressive", "state") or (told == "present" and negated)
        if is_timeless or not (is_unclear or self.chance(0.5)):
            return c
        times = words.TIMES["future" if c.modal and c.tense == "present" else c.tense]
        return c._replace(time=self.pick(times))

    def _with_objects(self, c: Clause, frame: Frame) -> Clause:
        nouns = self.pick(frame.objects)
        o = self.thing(frame, self.pick(nouns), c) if nouns else self.other_person(c.subject)
        if frame.case == "dat":
            return c._replace(dative=o)
        if frame.case == "auf":
            return c._replace(complement=(o.en_object, f"auf {o.de[ACCUSATIVE]}"))
        if frame.case == "give":
            c = c._replace(dative=self.other_person(c.subject))
        negation = "kein" if o.de[ACCUSATIVE].startswith("kein") else c.negation
        return c._replace(object=o, negation=negation)


def _told_or_asked(d: Dice, c: Clause) -> Bilingual:
    """A statement, which may begin with the time, or a question that expects yes or no."""
    if d.chance(0.2) and c.subject.pronoun not in _SPEAKERS and not c.negation:
        return join(grammar.asked(c), end="?")
    if c.time[1] and d.chance(0.4):
        return join(grammar.main(c._replace(time=EMPTY), c.time))
    return join(grammar.main(c))


def statement(d: Dice) -> Bilingual:
    """Yesterday Anna read a book in the garden. Is she singing? She did not buy a hat."""
    told = d.pick(("present", "progressive", "past", "past", "state", *words.MODALS))
    return _told_or_asked(d, d.action(d.person(), told, negated=d.chance(0.25)))


def description(d: Dice) -> Bilingual:
    """This coat is very expensive. Is Anna's bag in the garden?"""
    name = d.pick([name for name, nouns in CLASSES.items() if nouns[0].adjectives])
    owner = [] if name in ("person", "building", "room") else [d.pick(_OWNERS)]
    options = owner if name == "relative" else [THE, THE, THIS, *owner]
    noun, negation = d.pick(CLASSES[name]), "nicht" if d.chance(0.25) else ""
    subject, tense = d.phrase(noun, d.pick(options), adj=0.0), d.pick(("present", "past"))
    c = Clause(subject, BE, tense, negation=negation)
    if name not in _PLACES or d.chance(0.5):
        return _told_or_asked(d, c._replace(complement=_quality(d, noun)))
    place = d.pick(PHRASES[d.pick(_PLACES[name].split())])
    return _told_or_asked(d, c._replace(place=place))


def _quality(d: Dice, noun: Noun) -> Bilingual:
    adj = d.pick(noun.adjectives)
    en, de = EMPTY if adj in words.COLOURS else d.pick((EMPTY, ("very", "sehr")))
    return f"{en} {adj[0]}", f"{de} {adj[1]}"


def question(d: Dice) -> Bilingual | None:
    """Who called Anna? What did he buy? Who did you help? When will she come back?"""
    told = d.pick(("progressive", "past", "past", "will", "can", "want to"))
    word = d.pick(("who", "who", "what", "what", *_ADVERBS))
    if word == "who" and d.chance(0.5):
        return join(grammar.main(d.action(WHO, told)), end="?")
    c = d.action(d.person(0.6), told)
    if c.subject.pronoun in _SPEAKERS:
        return None
    if word in _ADVERBS:
        rest = _without(word, c)
        return join(grammar.asked(rest, words.LINKS[word]), end="?") if rest else None
    o = c.dative or c.object
    if not o or (c.dative and c.object) or o.is_person != (word == "who"):
        return None
    de = WHO.de[DATIVE if c.dative else ACCUSATIVE] if o.is_person else "was"
    return join(grammar.asked(c._replace(dative=None, object=None), (word, de)), end="?")


def _without(word: str, c: Clause) -> Clause | None:
    """The clause without what the question word asks for, if that is there and remains clear."""
    if word == "when":
        return c._replace(time=EMPTY) if c.time[1] and c.verb.en != c.verb.en_past else None
    if word == "where":
        return c._replace(place=EMPTY) if c.place[1] else None
    return c


def reason(d: Dice) -> Bilingual:
    """Anna stayed in bed because she was tired. Although he is ill, he wants to work."""
    state, effects, prevented = d.pick(words.STATES)
    link = d.pick(("because", "because", "although", "if"))
    negated = link == "because" and d.chance(0.5)
    told = d.pick(("can", "could", "want to") if negated else ("past", "want to", "wanted to"))
    frames = prevented if negated or link == "although" else effects
    acts = d.action(d.person(), "will" if link == "if" else told, frames, negated=negated)
    acts = acts._replace(manner=EMPTY, place=EMPTY, time=EMPTY)
    feels = Clause(acts.subject, BE, acts.tense, complement=state)
    again = PRONOUNS[acts.subject.pronoun]
    if link != "because" and d.chance(0.5):
        en, de = grammar.sub(words.LINKS[link], feels)
        return join(grammar.main(acts._replace(subject=again), (f"{en},", f"{de},")))
    return join(grammar.main(acts), grammar.sub(words.LINKS[link], feels._replace(subject=again)))


def thought(d: Dice) -> Bilingual | None:
    """I hope that he will come back. Do you know whether Anna called? I do not know why ..."""
    thinker, told = d.person(0.6), d.pick(("past", "will", "can", "want to", "have to"))
    word = d.pick(("that", "that", "whether", *_ADVERBS))
    if not (c := _without(word, d.action(d.other_person(thinker), told))):
        return None
    content = grammar.sub(words.LINKS[word], c)
    thinks = Clause(thinker, d.pick(words.THINK) if word == "that" else words.THINK[0])
    if thinker.pronoun == "you":
        return join(grammar.asked(thinks), content, end="?")
    return join(grammar.main(thinks._replace(negation="nicht" * (word != "that"))), content)


def relative(d: Dice) -> Bilingual | None:
    """The man who is waiting at the station is very old. The bag that she lost is red."""
    lost = d.action(d.person(), "past", _RELATIVE)
    noun = lost.object.noun if lost.object and d.chance(0.6) else d.pick(CLASSES["person"])
    if not noun or (noun.is_person and noun not in CLASSES["person"]):
        return None
    one = d.phrase(noun, THE, adj=0.0)
    pronoun = tuple(determiner("d", one.gender, case) for case in CASES)
    if noun.is_person:
        who = one._replace(en="who", de=pronoun)
        clause = grammar.sub(EMPTY, d.action(who, d.pick(("progressive", "past", "will"))))
    else:
        clause = grammar.sub(("that", pronoun[ACCUSATIVE]), lost._replace(object=None))
    de = f"{one.de[0]} {clause[1]},"
    whole = one._replace(en=f"{one.en} {clause[0]}", de=(de, de, de))
    return join(grammar.main(Clause(whole, BE, complement=_quality(d, noun))))


def plan(d: Dice) -> Bilingual:
    """Anna is trying to open the window. He forgot to call his mother."""
    verb, subject = d.pick(words.PLANS), d.person()
    told = "progressive" if verb.en == "try" and d.chance(0.5) else "past"
    todo = d.action(subject, "will", [frame for frame in FRAMES if frame.objects])
    return join(grammar.main(Clause(subject, verb, told)), grammar.to_do(todo._replace(time=EMPTY)))


SHAPES: list[Callable[[Dice], Bilingual | None]] = [
    *(20 * [statement] + 6 * [description] + 7 * [question]),
    *(5 * [reason] + 6 * [thought] + 5 * [relative] + 3 * [plan]),
]
