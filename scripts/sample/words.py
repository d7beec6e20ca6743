"""The tables of ``lexicon.py`` and ``usage.py``, read into nouns, verb frames, places and times.

``FRAMES["pick up"]`` holds the verb, the classes of its objects and where and how one does it.
"""

from collections.abc import Iterator
from typing import NamedTuple

from sample import lexicon, usage
from sample.inflection import Noun, Verb, english_s, make_verb
from sample.phrases import Bilingual, name_phrase, noun_phrase


def _pairs(text: str) -> list[Bilingual]:
    entries = (entry.strip().split("=") for entry in text.split(","))
    return [(en, de) for en, de in entries]


def _words(text: str) -> list[str]:
    return [word.replace("_", " ") for word in text.split()]


def _list(text: str, separator: str = ";") -> list[str]:
    return [entry.strip() for entry in text.split(separator) if entry.strip()]


def _rows(table: str, separator: str) -> Iterator[list[str]]:
    for line in table.strip().splitlines():
        yield [column.strip() for column in line.split(separator)]


def _noun(entry: str) -> Noun:
    english, de, gender, de_plural = _words(entry)
    en, _, plural = english.partition("/")
    return Noun(en, plural or english_s(en), de, gender[0], de_plural, gender == "mn")


class WordClass(NamedTuple):
    """Nouns of one kind and the adjectives that go with all of them."""

    nouns: list[Noun]
    adjectives: list[Bilingual]


def _word_class(entry: str) -> WordClass:
    nouns, _, adjectives = entry.partition("|")
    return WordClass(
        [NOUNS[noun] for noun in _words(nouns)], [(a, ADJECTIVES[a]) for a in adjectives.split()]
    )


NOUNS = {noun.en: noun for noun in map(_noun, lexicon.NOUNS.split(","))}
_ADJECTIVES = [entry.split() for entry in lexicon.ADJECTIVES.split(",")]
ADJECTIVES = {en: stem for en, stem, _ in _ADJECTIVES}
COMPARATIVES = {en: comparative for en, _, comparative in _ADJECTIVES if comparative != "-"}
CLASSES = {name: WordClass([noun], []) for name, noun in NOUNS.items()}  # a noun is a class, too
CLASSES |= {name: _word_class(entry) for name, entry in _rows(lexicon.CLASSES, ":")}
NAMES = [name_phrase(name, "he") for name in lexicon.MALE_NAMES.split()]
NAMES += [name_phrase(name, "she") for name in lexicon.FEMALE_NAMES.split()]
NUMBERS = _pairs(lexicon.NUMBERS)
CITIES = _pairs(lexicon.CITIES)
TIMES = {tense: _pairs(text) for tense, text in lexicon.TIMES.items()}
DAYS = {tense: _pairs(text) for tense, text in lexicon.DAYS.items()}
SPANS = _pairs(lexicon.SPANS)
FREQUENCIES = _pairs(lexicon.FREQUENCIES)
MANNERS = dict(_pairs(lexicon.MANNERS))
COMPLEMENTS = {name: _pairs(text) for name, text in lexicon.COMPLEMENTS.items()}


# ---------------------------------------------------------------- places


def _at(noun: str, en: str, de: str, case: str) -> Bilingual:
    phrase = noun_phrase(NOUNS[noun])
    return f"{en} {phrase.en}", f"{de} {getattr(phrase.de, case)}"


def _places() -> tuple[dict[str, Bilingual], dict[str, Bilingual]]:
    where = {"at home": ("at home", "zu Hause"), "at school": ("at school", "in der Schule")}
    to = {}
    for entry in lexicon.PLACES.split(","):
        noun, en, de, en_to, de_to, case = _words(entry)
        where[noun] = _at(noun, en, de, "dative")
        to[noun] = _at(noun, en_to, de_to, case)
    return where, to


WHERE, TO = _places()
PLACE_GROUPS = {name: _words(places) for name, places in _rows(lexicon.PLACE_GROUPS, ":")}
_SPOTS = [_words(spot) for spot in lexicon.SPOTS.split(",")]
COMPLEMENTS |= {
    "destination": [TO[name] for name in PLACE_GROUPS["destination"]],
    "on": [_at(noun, en, de, "dative") for noun, en, de in _SPOTS],
    "onto": [_at(noun, en, de, "accusative") for noun, en, de in _SPOTS],
}

# ---------------------------------------------------------------- verbs


class Frame(NamedTuple):
    """A verb with its arguments: classes of objects, complements, places, manners."""

    verb: Verb
    government: str
    objects: list[Bilingual]  # class, determiner
    complements: list[Bilingual]
    places: list[Bilingual]
    manners: list[Bilingual]
    flags: str

    @property
    def preposition(self) -> str:
        """The German preposition before the object, if there is one."""
        return "" if self.government in ("dat", "dat+acc") else self.government


def _frame(columns: list[str]) -> Frame:
    english, german, government, objects, complement, place, manners, flags = columns
    classes = [entry.partition("+") for entry in _list(objects, ",")]
    return Frame(
        make_verb(english, german),
        government,
        [(name, determiner) for name, _, determiner in classes],
        COMPLEMENTS.get(complement, []),
        [WHERE[name] for name in PLACE_GROUPS.get(place) or _words(place)],
        [(name, MANNERS[name]) for name in _words(manners)],
        flags,
    )


def _frames(keys: str) -> list[Frame]:
    return [FRAMES[key] for key in _list(keys)]


FRAMES = {key: _frame(columns) for key, *columns in _rows(usage.FRAMES, "|")}
STATES = [
    (_pairs(state)[0], _frames(effects), _frames(prevented))
    for state, effects, prevented in _rows(usage.STATES, "|")
]
PASTIMES = _frames(usage.PASTIMES)
SCENES = [_frames(keys) for (keys,) in _rows(usage.SCENES, "|")]
AIMS = [(TO[place], _frames(keys)) for place, keys in _rows(usage.AIMS, ":")]
WEATHER = [(weather, _frames(keys)) for weather, keys in _rows(usage.WEATHER, ":")]
PLANS = [(make_verb(english, german), tense) for english, german, tense in _rows(usage.PLANS, "|")]
TIMETABLE = [
    (make_verb(english, german), [NOUNS[noun] for noun in nouns.split()])
    for english, german, nouns in _rows(usage.TIMETABLE, "|")
]


def flagged(flags: str = "", without: str = "") -> list[Frame]:
    """The frames with all of these flags and none of the others."""
    frames = [frame for frame in FRAMES.values() if not {"n", *without} & set(frame.flags)]
    return [frame for frame in frames if set(flags) <= set(frame.flags)]


_AGENTIVE = flagged(without="st")
_BY_TENSE = {
    "present": flagged("h"),
    "progressive": flagged(without="stg"),
    "past": flagged(without="s"),
    "state": flagged("s"),
}


def frames_for(tense: str) -> list[Frame]:
    """The verb frames that are possible in a tense."""
    return _BY_TENSE.get(tense, _AGENTIVE)
