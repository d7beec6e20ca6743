"""Sentences of two clauses: reasons, conditions, thoughts, relative and infinitive clauses.

In the German half the comma, the place of the verb and the pronoun follow from how they are joined.
"""

from sample import words
from sample.choices import Dice, returns
from sample.clauses import Clause, asked, join, main, sub, to_do, verb_first
from sample.descriptions import EXCESS, degree
from sample.inflection import BE, KNOW, make_verb
from sample.one_clause import QUESTION_WORDS, Shape, action_without, time_first
from sample.phrases import (
    EMPTY,
    IT,
    PRONOUNS,
    THE,
    A,
    Bilingual,
    Phrase,
    noun_phrase,
)
from sample.words import CLASSES, COMPARATIVES, FRAMES, NOUNS

COMMA: Bilingual = (",", ",")
BECAUSE: Bilingual = ("because", "weil")
THAT: Bilingual = ("that", "dass")
AND: Bilingual = (", and", "und")
BUT: Bilingual = (", but", ", aber")


def two_people(d: Dice) -> Bilingual | None:
    """Anna is reading a book, and Paul is writing a letter."""
    tense, scene = d.pick(("progressive", "past", "future")), d.pick(words.SCENES)
    first, second = (d.action(d.subject(0.0), tense, scene, time=time) for time in (0.3, 0.0))
    if first.verb.en == second.verb.en or first.subject.noun == second.subject.noun:
        return None
    return join(time_first(d, first), d.pick((AND, BUT)), main(second))


# kind: conjunction, what happens in the present and in the past
_LINKS = {
    "because": (BECAUSE, "present", "past"),
    "cannot": (BECAUSE, "can", "could"),
    "does not want": (BECAUSE, "want", "wanted"),
    "when": (("when", "wenn"), "present", "past"),
    "although": (("although", "obwohl"), "want", "wanted"),
    "so": (("so", "deshalb"), "present", "past"),
}


def state_and_effect(d: Dice) -> Bilingual:
    """Anna went to bed because she was tired. Although he is ill, he wants to work."""
    state, effects, prevented = d.pick(words.STATES)
    subject = d.subject(fits=returns)
    is_past = d.chance(0.45)
    kind = d.pick(list(_LINKS) if effects else ["cannot", "does not want", "although"])
    link, present, past = _LINKS[kind]
    if kind == "when" and is_past:
        link = ("when", "als")

    def is_so(who: Phrase) -> Clause:
        return Clause(who, BE, "past" if is_past else "present", complement=state)

    def acts(who: Phrase) -> Clause:
        frames = effects if kind in ("because", "when", "so") else prevented
        negated = kind in ("cannot", "does not want")
        tense = past if is_past else present
        return d.action(who, tense, frames, negated=negated, time=0.0)._replace(manner=EMPTY)

    if kind == "so":
        return join(main(is_so(subject)), COMMA, main(acts(subject.again), link))
    if kind == "when" or (kind == "although" and d.chance(0.5)):
        return join(sub(link, is_so(subject)), COMMA, verb_first(acts(subject.again)))
    return join(main(acts(subject)), sub(link, is_so(subject.again)))


_DEALS = (
    *(("buy", "clothes"), ("buy", "furniture"), ("buy", "vehicle"), ("read", "book")),
    *(("sell", "furniture"), ("sell", "vehicle")),
)


def deal_and_reason(d: Dice) -> Bilingual:
    """Anna bought the lamp because it was cheap: the pronoun keeps the gender of die Lampe."""
    verb, name = d.pick(_DEALS)
    nouns, adjectives = CLASSES[name]
    is_fault = verb == "sell" or d.chance(0.4)
    fitting = [a for a in adjectives if a[0] in COMPARATIVES and (a[0] in EXCESS) == is_fault]
    adj = d.pick(fitting)
    word = ("too", "zu") if is_fault else d.pick((EMPTY, ("very", "sehr"), ("so", "so")))
    subject = d.subject(0.6)
    owner = subject.possessive if verb == "sell" else THE
    thing = noun_phrase(d.pick(nouns), owner, plural=d.chance(0.15))
    tense = d.pick(("past", "want", "would like"))
    negation = "nicht" if is_fault and verb != "sell" else ""
    c = Clause(subject, FRAMES[verb].verb, tense, negation, accusative=thing)
    how = (f"{word[0]} {adj[0]}", f"{word[1]} {adj[1]}")
    it_is = Clause(IT[thing.gender], BE, "past" if tense == "past" else "present", complement=how)
    return join(main(c), sub(BECAUSE, it_is))


_SKY = {
    "the weather is good": Clause(noun_phrase(NOUNS["weather"]), BE, complement=("good", "gut")),
    "it rains": Clause(IT["n"], make_verb("rain", "regnen")),
    "it snows": Clause(IT["n"], make_verb("snow", "schneien")),
    "the sun shines": Clause(noun_phrase(NOUNS["sun"]), make_verb("shine", "scheinen")),
    "it is cold": Clause(IT["n"], BE, complement=("cold", "kalt")),
}


def condition(d: Dice) -> Bilingual:
    """If the weather is good tomorrow, we will go to the lake."""
    weather, frames = d.pick(words.WEATHER)
    when = d.pick((*words.TIMES["future"][:3], ("today", "heute"), EMPTY))
    lead = sub(("if", "wenn"), _SKY[weather]._replace(time=when))
    c = d.action(d.subject(), "future", frames, time=0.0)
    return join(lead, COMMA, verb_first(c)) if d.chance(0.6) else join(main(c), lead)


_THINKING = [make_verb("think", "glauben"), make_verb("hope", "hoffen"), KNOW]
_SAY = make_verb("say", "sagen")


def thought(d: Dice) -> Bilingual:
    """I hope that he will come back soon."""
    thinker = d.subject(0.6, lambda person: person.role != "listener")
    verb = d.pick(_THINKING if thinker.role == "speaker" else [*_THINKING, _SAY])
    tense = d.pick(("past", "future", *(("can",) if verb.en == "hope" else ("must", "want"))))
    c = d.action(d.other_subject(thinker), tense)
    return join(main(Clause(thinker, verb)), sub(THAT, c))


def indirect_question(d: Dice) -> Bilingual:
    """Do you know whether Anna will come? I do not know where she works."""
    word = d.pick(("whether", "whether", "when", "why", "where"))
    thinker = d.pick(list(PRONOUNS.values()))
    tense = d.pick(("past", "future", "can", "want"))
    c = action_without(d, word, d.other_subject(thinker), tense)
    asked_for = sub((word, {"whether": "ob", **QUESTION_WORDS}[word]), c)
    if thinker.role == "listener":
        return join(asked(Clause(thinker, KNOW)), asked_for, end="?")
    if d.chance(0.3):
        return join(main(Clause(thinker, KNOW, "want")), asked_for)
    return join(main(Clause(thinker, KNOW, negation="nicht")), asked_for)


def person_who_acts(d: Dice) -> Bilingual:
    """The man who is waiting at the station is very old. I know a woman who ..."""
    person = d.person()
    who = person._replace(en="who", de=person.relative, is_pronoun=True)
    tense = d.pick(("progressive", "past", "future", "want"))
    acts = sub(EMPTY, d.action(who, tense, time=0.4))
    name = "child" if person.noun in ("boy", "girl", "child") else "person"
    if d.chance(0.4) and person.gender != "p":
        someone = noun_phrase(NOUNS[person.noun], A, d.adjective(name))
        knower = d.subject(0.7)
        return join(main(Clause(knower, FRAMES["know"].verb, accusative=someone)), acts)
    adj = d.pick([a for a in CLASSES[name].adjectives if a[0] not in person.en])
    whole = person.extended(f" {acts[0]}", f"{acts[1]},")
    return join(main(Clause(whole, BE, complement=degree(d, adj, excess=False))))


_DONE = ("read", "buy", "buy food", "find", "wash", "photograph", "look for", "repair", "paint")


def thing_acted_on(d: Dice) -> Bilingual:
    """The book that Anna bought yesterday is very interesting."""
    frame = FRAMES[d.pick(_DONE)]
    name = d.pick([name for name, _ in frame.objects if CLASSES[name].adjectives])
    noun = d.pick(CLASSES[name].nouns)
    thing = noun_phrase(noun, THE, plural=not noun.is_mass and d.chance(0.2))
    c = d.action(d.subject(), "past", [frame], time=0.6)
    done = sub(("that", thing.relative.accusative), c._replace(accusative=None))
    whole = thing.extended(f" {done[0]}", f"{done[1]},")
    how = degree(d, d.pick(CLASSES[name].adjectives))
    return join(main(Clause(whole, BE, complement=how)))


def plan(d: Dice) -> Bilingual:
    """Anna is trying to open the window. Yesterday he forgot to call his mother."""
    verb, tense = d.pick(words.PLANS)
    subject = d.subject()
    time = d.time("past") if tense == "past" and d.chance(0.5) else EMPTY
    lead = time_first(d, Clause(subject, verb, tense, time=time), 1.0)
    return join(lead, to_do(d.action(subject, "future", time=0.0)))


def purpose(d: Dice) -> Bilingual:
    """She is going to the city to buy a coat."""
    place, frames = d.pick(words.AIMS)
    subject = d.subject()
    tense = d.pick(("progressive", "past", "future", "want"))
    time = d.time(tense) if d.chance(0.5) else EMPTY
    go = Clause(subject, FRAMES["go"].verb, tense, complement=place, time=time)
    aim = d.action(subject, "future", frames, time=0.0)._replace(place=EMPTY)
    if aim.verb is FRAMES["swim"].verb:  # at the place named already
        aim = aim._replace(complement=EMPTY)
    return join(time_first(d, go), to_do(aim, um="um"))


SHAPES: dict[Shape, int] = {
    two_people: 6,
    state_and_effect: 8,
    deal_and_reason: 4,
    condition: 3,
    thought: 5,
    indirect_question: 5,
    person_who_acts: 4,
    thing_acted_on: 4,
    plan: 4,
    purpose: 3,
}
