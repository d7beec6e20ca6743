"""Sentences of one clause in which somebody does something: statements, questions, commands.

Each function draws a meaning and puts it into words, or gives None where the dice do not fit.
"""

from collections.abc import Callable

from sample import words
from sample.choices import MODALS, TENSES, Dice, is_not_us, returns
from sample.clauses import Clause, asked, command, join, let_us, main
from sample.phrases import EMPTY, PRONOUNS, THE, WHO, Bilingual, Phrase, noun_phrase

Shape = Callable[[Dice], Bilingual | None]


def time_first(d: Dice, c: Clause, p: float = 0.4) -> Bilingual:
    """A main clause that at times begins with the time."""
    if c.time[0] in ("", "right now") or not d.chance(p):
        return main(c)
    return main(c._replace(time=EMPTY), c.time)


def sentence(d: Dice, c: Clause, *, deny: float = 0.0) -> Bilingual:
    """The clause as a statement, or at times as a question or denied."""
    if d.chance(0.2) and is_not_us(c.subject) and not c.negation:
        return join(asked(c), end="?")
    if d.chance(deny):
        c = c._replace(negation="nicht")
    return join(time_first(d, c))


def statement(d: Dice) -> Bilingual:
    """Yesterday Anna read a book in the garden. Are you reading a book? She did not buy a hat."""
    tense = d.pick(TENSES if d.chance(0.6) else MODALS)
    return sentence(d, d.action(d.subject(), tense, negated=d.chance(0.25)))


def passive(d: Dice) -> Bilingual:
    """The bridge was built two years ago. The cake was baked by my grandmother."""
    frame = d.pick(words.flagged("p"))
    name = d.pick([name for name, _ in frame.objects if name != "people"])
    noun = d.pick(words.CLASSES[name].nouns)
    plural = not noun.is_mass and d.chance(0.25)
    c = Clause(noun_phrase(noun, THE, d.adjective(name), plural=plural), frame.verb, "passive")
    if d.chance(0.6):
        agent = d.subject(pronoun=0.0, fits=returns)
        c = c._replace(complement=(f"by {agent.en}", f"von {agent.de.dative}"))
    if d.chance(0.6) or c.complement == EMPTY:
        c = c._replace(time=d.time("past", frame))
    return sentence(d, c)


def like_to(d: Dice) -> Bilingual:
    """My sister likes to dance."""
    c = d.action(d.subject(), "present", words.PASTIMES, time=0.0)
    verb = c.verb._replace(en=f"like to {c.verb.en}")
    c = c._replace(verb=verb, frequency=("", "gern"), manner=EMPTY, place=EMPTY)
    return sentence(d, c)


# ---------------------------------------------------------------- questions

QUESTION_WORDS = {"when": "wann", "where": "wo", "why": "warum", "how often": "wie oft"}


def action_without(d: Dice, word: str, subject: Phrase, tense: str) -> Clause:
    """An action without what the question word asks for."""
    frames = [f for f in words.frames_for(tense) if f.verb.past_shows]
    if word == "where":
        frames = [f for f in frames if f.places]
    c = d.action(subject, tense, frames)._replace(frequency=EMPTY, manner=EMPTY)
    if word == "where":
        return c._replace(place=EMPTY)
    return c._replace(time=EMPTY) if word in ("when", "how often") else c


def question_with_adverb(d: Dice) -> Bilingual:
    """When did your sister go to the cinema?"""
    word = d.pick(list(QUESTION_WORDS))
    tense = d.pick(("present", "past", "future", "can", "want"))
    tense = "present" if word == "how often" else tense
    c = action_without(d, word, d.subject(0.6, is_not_us), tense)
    return join(asked(c, (word, QUESTION_WORDS[word])), end="?")


def question_for_subject(d: Dice) -> Bilingual:
    """Who is working in the garden?"""
    tense = d.pick(("progressive", "past", "future", "can", "want"))
    return join(main(d.action(WHO, tense)), end="?")


def question_for_object(d: Dice) -> Bilingual | None:
    """What did Anna buy yesterday? Who did you help? Which hat did she buy?"""
    c = d.action(d.subject(0.6, is_not_us), d.pick(("progressive", "past", "future", "want")))
    asked_for = c.dative or c.accusative
    if not asked_for or (c.dative and c.accusative) or c.complement != EMPTY:
        return None
    word = ("what", "was")
    if asked_for.is_person:
        word = ("who", WHO.de.dative if c.dative else WHO.de.accusative)
    elif d.chance(0.4) and not (noun := words.NOUNS[asked_for.noun]).is_mass:
        which, plural = d.pick(((("which", "welch"), False), (("how many", "wie viel"), True)))
        phrase = noun_phrase(noun, which, plural=plural)
        word = (phrase.en, phrase.de.accusative)
    return join(asked(c._replace(dative=None, accusative=None), word), end="?")


# ---------------------------------------------------------------- commands


def imperative(d: Dice) -> Bilingual:
    """Please open the window. Do not open the window! Let us go to the park!"""
    frames = words.flagged("i")
    if d.chance(0.3):
        return join(let_us(d.action(PRONOUNS["we"], "can", frames)), end="!")
    negated = d.chance(0.3)
    c = d.action(PRONOUNS["you"], "can", frames, negated=negated, time=0.3)
    if not negated and d.chance(0.6):
        return join(("please", "bitte"), command(c))
    return join(command(c), end="!")


SHAPES: dict[Shape, int] = {
    statement: 26,
    passive: 3,
    like_to: 3,
    question_with_adverb: 5,
    question_for_subject: 2,
    question_for_object: 7,
    imperative: 4,
}
