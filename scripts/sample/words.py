"""The tables of ``lexicon.py``, read into nouns, verbs with what they go with, and phrases."""

from typing import NamedTuple

from sample import lexicon
from sample.grammar import PRONOUNS, Bilingual, pairs
from sample.inflection import Noun, Verb, english_s, make_verb


def _rows(table: str) -> list[list[str]]:
    return [[c.strip() for c in line.split("|")] for line in table.strip().splitlines()]


COLOURS = pairs(lexicon.COLOURS)
_ADJECTIVES = dict(pairs(lexicon.ADJECTIVES))


def _class(name: str, adjectives: str, nouns: str) -> list[Noun]:
    known = [(adj, _ADJECTIVES[adj]) for adj in adjectives.split() if adj != "colour"]
    known += COLOURS if "colour" in adjectives else []
    members = []
    for english, de, gender, de_plural in (entry.split() for entry in nouns.split(",")):
        en, _, en_plural = english.partition("/")
        en_plural = en if gender == "p" else en_plural or english_s(en)
        is_person, is_weak = name in ("person", "relative"), gender == "mw"
        de_plural = de_plural.strip("-")
        members.append(Noun(en, en_plural, de, gender[0], de_plural, is_weak, is_person, known))
    return members


CLASSES: dict[str, list[Noun]] = {}
for _name, *_columns in _rows(lexicon.NOUNS):
    CLASSES.setdefault(_name, []).extend(_class(_name, *_columns))
NOUNS = {noun.en: noun for members in CLASSES.values() for noun in members}
PHRASES = {name: pairs(text) for name, text in lexicon.PHRASES.items()}
TIMES = {tense: pairs(text) for tense, text in lexicon.TIMES.items()}
NUMBERS = pairs(lexicon.NUMBERS)
LINKS = {pair[0]: pair for pair in pairs(f"{lexicon.ADVERBS}, {lexicon.LINKS}")}
MANNERS = dict(pairs(lexicon.MANNERS))
NAMES = [
    PRONOUNS[pronoun]._replace(en=name, en_object=name, de=(name,) * 3, is_pronoun=False)
    for pronoun, names in lexicon.NAMES.items()
    for name in names.split()
]
# What a clause may be told in: the tense of its finite verb, and its modal verb.
TENSES: dict[str, tuple[str, Verb | None]] = {"state": ("present", None)}
TENSES |= {tense: (tense, None) for tense in ("present", "progressive", "past")}
_MODALS = [make_verb(*row) for row in _rows(lexicon.MODALS)]
TENSES |= {verb.en: ("present", verb) for verb in _MODALS}  # can, have to, ...
TENSES |= {verb.en_past: ("past", verb) for verb in _MODALS if verb.preterite}  # could, had to, ...
MODALS = [told for told, (_, modal) in TENSES.items() if modal]


class Frame(NamedTuple):
    """A verb and what makes sense with it."""

    verb: Verb
    kind: str  # habit, event, once or state
    case: str  # of the object; or its determiner
    objects: list[list[Noun]]  # classes of nouns; an empty one stands for people
    complements: list[Bilingual]
    places: list[Bilingual]
    manners: list[Bilingual]


def _frame(kind: str, english: str, german: str, *columns: str) -> Frame:
    fields = {name: words for name, *words in (column.split() for column in columns)}
    case = next((name for name in fields if name not in ("to", "at", "how")), "")
    objects = [CLASSES.get(w) or [NOUNS[w]] if w != "people" else [] for w in fields.get(case, [])]
    to, at = ([p for name in fields.get(key, []) for p in PHRASES[name]] for key in ("to", "at"))
    manners = [(m, MANNERS[m]) for m in (m.replace("_", " ") for m in fields.get("how", []))]
    return Frame(make_verb(english, german), kind, case, objects, to, at, manners)


FRAMES = [_frame(kind, *row) for kind, table in lexicon.VERBS.items() for row in _rows(table)]


def frames_of(names: str) -> list[Frame]:
    """The frames of some English verbs."""
    return [frame for frame in FRAMES if frame.verb.en in names.split(", ")]


STATES = [(pairs(s)[0], frames_of(yes), frames_of(no)) for s, yes, no in _rows(lexicon.STATES)]
THINK, PLANS = ([make_verb(*row) for row in _rows(t)] for t in (lexicon.THINK, lexicon.PLANS))
