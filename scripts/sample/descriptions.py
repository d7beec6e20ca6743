"""Descriptive sentences: qualities, places, owners, times of day.

"The car is faster than the bus", "Anna's coat is new", "the train leaves at half past six".
"""

from sample import words
from sample.choices import OWNERS, Dice
from sample.clauses import Clause, join, main
from sample.inflection import BE, english_comparative, make_verb
from sample.one_clause import Shape, sentence
from sample.phrases import EMPTY, THAT, THE, THIS, A, Bilingual, Cases, noun_phrase
from sample.words import CLASSES, COMPARATIVES, NUMBERS, WHERE

_OWN_THINGS = ("unisex", "furniture", "vehicle", "useful", "home")
_THINGS = (*_OWN_THINGS, "clothes", "building", "text", "fruit", "film", "hard", "big vehicle")
# what there may be too much of
EXCESS = (
    *("old", "small", "big", "expensive", "heavy", "long", "short", "boring", "warm"),
    *("hot", "difficult", "cold"),
)


def degree(d: Dice, adj: Bilingual, *, excess: bool = True) -> Bilingual:
    """The adjective, perhaps with very, really or too where they make sense."""
    options = [EMPTY]
    if adj[0] in COMPARATIVES:
        options += [("very", "sehr"), ("really", "wirklich")]
    if excess and adj[0] in EXCESS:
        options.append(("too", "zu"))
    word = d.pick(options)
    return f"{word[0]} {adj[0]}", f"{word[1]} {adj[1]}"


def quality(d: Dice) -> Bilingual:
    """This coat is too expensive. My books were not very old."""
    name = d.pick(_THINGS)
    nouns, adjectives = CLASSES[name]
    word = d.pick((THE, THE, THIS, *(OWNERS if name in _OWN_THINGS else ())))
    thing = noun_phrase(d.pick(nouns), word, plural=d.chance(0.2))
    how = degree(d, d.pick(adjectives))
    return sentence(d, Clause(thing, BE, d.pick(("present", "past")), complement=how), deny=0.3)


def comparison(d: Dice) -> Bilingual | None:
    """The table is cheaper than the chair. My house is not as old as the church."""
    name = d.pick((*_THINGS, "person", "animal"))
    nouns, adjectives = CLASSES[name]
    one, two, (en, de) = d.pick(nouns), d.pick(nouns), d.pick(adjectives)
    if one is two or en not in COMPARATIVES:
        return None
    word = d.pick((THE, THE, *(OWNERS if name in _OWN_THINGS else ())))
    plural = word is THE and d.chance(0.3)
    left, right = noun_phrase(one, word, plural=plural), noun_phrase(two, plural=plural)
    equal = d.chance(0.4)
    how = (f"{english_comparative(en)} than", f"{COMPARATIVES[en]} als")
    if equal:
        how = (f"as {en} as", f"so {de} wie")
    complement = (f"{how[0]} {right.en}", f"{how[1]} {right.de.nominative}")
    return sentence(d, Clause(left, BE, complement=complement), deny=0.5 if equal else 0.0)


_INHABITED = (
    *(("city", "building"), ("village", "building"), ("village", "farm"), ("zoo", "wild")),
    *(("garden", "plant"), ("park", "plant"), ("kitchen", "standing"), ("living room", "parlour")),
)


def existence(d: Dice) -> Bilingual:
    """There are three old churches in the city."""
    place, name = d.pick(_INHABITED)
    is_room = place in ("kitchen", "living room")
    many = d.pick(NUMBERS[:2] if is_room else [*NUMBERS[:6], ("many", "viel")])
    word = d.pick((A, many, many, ("no", "kein")))
    noun, adj = d.pick(CLASSES[name].nouns), d.adjective(name)
    thing = noun_phrase(noun, word, adj, plural=word is many)
    en = f"there {'are' if word is many else 'is'} {thing.en} {WHERE[place][0]}"
    return join((en, f"{WHERE[place][1]} gibt es {thing.de.accusative}"))


_POSTURES = (("lying", make_verb("lie", "liegen")), ("standing", make_verb("stand", "stehen")))


def position(d: Dice) -> Bilingual:
    """The keys are lying on the table."""
    name, verb = d.pick(_POSTURES)
    noun, word, adj = d.pick(CLASSES[name].nouns), d.pick((THE, THE, *OWNERS)), d.adjective(name)
    thing = noun_phrase(noun, word, adj, plural=d.chance(0.25))
    spot = d.pick(words.COMPLEMENTS["on"])
    return sentence(d, Clause(thing, verb, "progressive", complement=spot), deny=0.2)


def possession(d: Dice) -> Bilingual | None:
    """My brother's bicycle is very fast. That is Anna's coat. The red car belongs to my uncle."""
    nouns, adjectives = CLASSES[d.pick(("vehicle", "unisex", "useful", "pet", "home", "furniture"))]
    thing = noun_phrase(d.pick(nouns), plural=d.chance(0.15))
    owner = d.person_object(thing)
    if d.chance(0.3):
        belong = make_verb("belong_to", "gehören - gehört")
        return sentence(d, Clause(thing, belong, dative=owner), deny=0.2)
    if owner.is_pronoun or (owner in words.NAMES and owner.en[-1] in "sx"):
        return None
    mark = "'" if owner.en.endswith("s") and owner.person == 3 else "'s"
    article, noun = thing.de.nominative.split(maxsplit=1)
    de = f"{article} {noun} {owner.de.genitive}"
    if owner in words.NAMES:
        de = f"{owner.de.genitive} {noun}"
    whole = (f"{owner.en}{mark} {thing.en.removeprefix('the ')}", de)
    if d.chance(0.4) and thing.person == 2:
        return sentence(d, Clause(THAT, BE, complement=whole), deny=0.2)
    subject = thing._replace(en=whole[0], de=Cases(de, "", ""))
    return sentence(d, Clause(subject, BE, complement=degree(d, d.pick(adjectives))))


_BECOME = make_verb("become", "werden wird *geworden")


def profession(d: Dice) -> Bilingual:
    """My uncle is a pilot. He would like to become a doctor."""
    man = d.subject(fits=lambda person: person.anaphor == "he")
    noun = d.pick(CLASSES["profession"].nouns)
    tense = d.pick(("present", "past", "want", "would like", "wanted"))
    verb = BE if tense in ("present", "past") else _BECOME
    return sentence(d, Clause(man, verb, tense, complement=(noun_phrase(noun, A).en, noun.de)))


def since(d: Dice) -> Bilingual:
    """She has worked in Berlin for three years."""
    city, number, unit = d.pick(words.CITIES), d.pick(NUMBERS), d.pick(words.SPANS)
    c = Clause(
        d.subject(),
        make_verb(*d.pick((("live", "wohnen"), ("work", "arbeiten")))),
        "since",
        place=(f"in {city[0]}", f"in {city[1]}"),
        time=(f"for {number[0]} {unit[0]}", f"seit {number[1]} {unit[1]}"),
    )
    return join(main(c))


def _clock(d: Dice, first: int, last: int) -> Bilingual:
    """The hour, or half an hour before it, as German counts."""
    hour = d.pick(range(first, last))
    (previous, _), (en, de) = NUMBERS[hour - 1], NUMBERS[hour]
    if d.chance(0.3):
        return f"at half past {previous}", f"um halb {de}"
    return f"at {en} o'clock", f"um {de} Uhr"


def timetable(d: Dice) -> Bilingual:
    """The train to Berlin leaves at seven o'clock. Tomorrow we have to get up at half past six."""
    verb, nouns = d.pick(words.TIMETABLE)
    subject = noun_phrase(d.pick(nouns)) if nouns else d.subject()
    if subject.noun in ("train", "bus") and d.chance(0.6):
        city = d.pick(words.CITIES)
        way = ("to", "nach") if verb.en == "leave" else ("from", "aus")
        subject = subject.extended(f" {way[0]} {city[0]}", f" {way[1]} {city[1]}")
    tense = d.pick(("present", "past", "future", *(() if nouns else ("must", "want"))))
    day = d.pick(words.DAYS.get(tense) or words.DAYS["modal"]) if d.chance(0.6) else EMPTY
    clock = _clock(d, *((3, 8) if verb.en == "get up" else (1, len(NUMBERS))))
    # the hour goes where a place goes: "at seven tomorrow", "morgen um sieben"
    return sentence(d, Clause(subject, verb, tense, place=clock, time=day))


SHAPES: dict[Shape, int] = {
    quality: 3,
    comparison: 4,
    existence: 3,
    position: 3,
    possession: 5,
    profession: 2,
    since: 2,
    timetable: 4,
}
