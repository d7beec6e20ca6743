"""The built-in English–German sample corpus: a seeded grammar, so that everything runs offline.

A sentence starts as one meaning (a :class:`Clause`) and is realised twice, once by the rules of
each language. One meaning has one rendering, so that a small model can learn the mapping: "you" is
always "du", the English past is the German perfect (war, hatte and modals apart), and pronouns
stand for people or for a noun in the same sentence. The words are in ``lexicon.py``.
"""

import random
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple, TypeVar

from transformer_mt.data import lexicon

VERSION = 1
SIZES = {"train": 40_000, "valid": 500, "test": 1_000}

T = TypeVar("T")
Pair = tuple[str, str]
EMPTY: Pair = ("", "")

# ---------------------------------------------------------------- German and English morphology

# Tables and forms run over the cases: nominative, accusative, dative, genitive.
_STRONG = {
    "m": ("er", "en", "em", "es"),
    "f": ("e", "e", "er", "er"),
    "n": ("es", "es", "em", "es"),
    "p": ("e", "e", "en", "er"),
}
_DEFINITE = {
    "m": ("der", "den", "dem", "des"),
    "f": ("die", "die", "der", "der"),
    "n": ("das", "das", "dem", "des"),
    "p": ("die", "die", "den", "der"),
}
_RELATIVE = {**_DEFINITE, "p": ("die", "die", "denen", "deren")}
_EIN_WORDS = ("ein", "kein", "mein", "dein", "sein", "ihr", "unser")


def determiner(word: str, gender: str, case: int) -> str:
    """Decline ``der``, an ein-word, or a stem such as ``dies`` or ``viel``."""
    if word == "der":
        return _DEFINITE[gender][case]
    return word if _bare(word, gender, case) else word + _STRONG[gender][case]


def _bare(word: str, gender: str, case: int) -> bool:
    return word in _EIN_WORDS and (gender, case) in {("m", 0), ("n", 0), ("n", 1)}


def adjective(stem: str, word: str, gender: str, case: int) -> str:
    """Decline an adjective after a determiner; after "" or a number it is strong."""
    stem = "teur" if stem == "teuer" else stem
    weak = "e" if (case == 0 and gender != "p") or (case == 1 and gender in "fn") else "en"
    strong = "en" if case == 3 and gender in "mn" else _STRONG[gender][case]
    if word in ("der", "dies", "welch"):
        return stem + weak
    if word in _EIN_WORDS and not _bare(word, gender, case):
        return stem + weak
    return stem + strong


class Noun(NamedTuple):
    """One noun in both languages; ``n_declension`` marks der Student, den Studenten."""

    en: str
    en_plural: str
    de: str
    gender: str
    de_plural: str
    n_declension: bool

    def german(self, case: int, plural: bool) -> str:
        """The inflected German noun."""
        if plural or self.gender == "p":
            return self.de_plural + ("n" if case == 2 and self.de_plural[-1] not in "ns" else "")
        if self.n_declension and case:
            return self.de_plural
        if case == 3 and self.gender in "mn":
            syllables = len(re.findall("[aeiouäöüy]+", self.de.lower()))
            return self.de + ("es" if syllables == 1 else "s")
        return self.de


def english_s(word: str) -> str:
    """Add the -s of plural nouns and third persons."""
    if word.endswith(("s", "x", "ch", "sh", "o")) and word != "radio" and word != "zoo":
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


def article(following: str) -> str:
    """The English indefinite article before these words."""
    return "an" if following[0] in "aeiou" and not following.startswith("uni") else "a"


_IRREGULAR_THIRD = {"have": "has", "do": "does", "go": "goes", "be": "is"}
_DOUBLED = {"run", "swim", "put", "forget", "get", "plan", "travel"}


class Verb(NamedTuple):
    """One verb in both languages; ``present`` holds ich, du, er, wir/sie."""

    en: str
    en_past: str
    en_participle: str
    infinitive: str
    prefix: str
    present: tuple[str, ...]
    preterite: tuple[str, ...]
    participle: str
    auxiliary: str
    imperative: str

    @property
    def en_third(self) -> str:
        """Third person singular: "calls", "turns on"."""
        head, *rest = self.en.split()
        return " ".join([_IRREGULAR_THIRD.get(head) or english_s(head), *rest])

    @property
    def en_ing(self) -> str:
        """Present participle: "calling", "turning on"."""
        head, *rest = self.en.split()
        if head in _DOUBLED:
            head += head[-1]
        elif head.endswith("ie"):
            head = head[:-2] + "y"
        elif head.endswith("e") and head != "be" and not head.endswith("ee"):
            head = head[:-1]
        return " ".join([head + "ing", *rest])

    @property
    def zu(self) -> str:
        """Infinitive with zu: "zu lesen", "anzurufen"."""
        if self.prefix:
            return f"{self.prefix}zu{self.infinitive.removeprefix(self.prefix)}"
        return f"zu {self.infinitive}"


def _english_past(base: str) -> str:
    if base.endswith("e"):
        return base + "d"
    if base.endswith("y") and base[-2] not in "aeiou":
        return base[:-1] + "ied"
    return base + (base[-1] if base in _DOUBLED else "") + "ed"


def conjugate(infinitive: str, third: str = "") -> tuple[str, ...]:
    """German present for ich, du, er, wir; ``third`` is given where the stem vowel changes."""
    stem = infinitive[:-2] if infinitive.endswith("en") else infinitive[:-1]
    link = "e" if re.search(r"[td]$|([^lrhmnaeiouäöü]|ch)[mn]$", stem) else ""
    third = third or stem + link + "t"
    second = third[:-1] if third.endswith("t") else third
    du = second + ("t" if second[-1] in "sßz" else "st")
    return (stem + "e", du, third, infinitive)


@cache
def make_verb(english: str, german: str) -> Verb:
    """Read a verb from its two columns in the lexicon."""
    forms = english.split()
    head, *particle = forms[0].split("_")
    past, en_participle = forms[1:3] if len(forms) > 2 else [_english_past(head)] * 2
    parts = [*german.split(), "-", "-"][:3]
    prefix, _, infinitive = parts[0].rpartition("-")
    third = "" if parts[1] == "-" else parts[1]
    present = conjugate(infinitive, third)
    participle = parts[2].lstrip("*")
    if participle == "-":
        participle = "ge" + conjugate(infinitive)[2]
    imperative = present[0].removesuffix("e")
    if re.search(r"[td]$|([^lrhmnaeiouäöü]|ch)[mn]$|er$", imperative):
        imperative += "e"
    if third and not set("äö") & set(third):  # lies, gib, nimm; but schlaf
        imperative = third.removesuffix("t")
    return Verb(
        en=" ".join([head, *particle]),
        en_past=" ".join([past, *particle]),
        en_participle=" ".join([en_participle, *particle]),
        infinitive=prefix + infinitive,
        prefix=prefix,
        present=present,
        preterite=(),
        participle=prefix + participle,
        auxiliary="sein" if parts[2].startswith("*") else "haben",
        imperative=imperative,
    )


BE = make_verb("be was been", "sein ist *gewesen")._replace(
    present=("bin", "bist", "ist", "sind"), preterite=("war", "warst", "war", "waren")
)
HAVE = make_verb("have had had", "haben hat gehabt")._replace(
    present=("habe", "hast", "hat", "haben"), preterite=("hatte", "hattest", "hatte", "hatten")
)
KNOW = make_verb("know knew known", "wissen weiß gewusst")._replace(
    present=("weiß", "weißt", "weiß", "wissen")
)
# tense: English finite part (None: a lexical verb), what follows it, German finite forms
_MODALS: dict[str, tuple[str | None, str, tuple[str, ...]]] = {
    "future": ("will", "", ("werde", "wirst", "wird", "werden")),
    "can": ("can", "", ("kann", "kannst", "kann", "können")),
    "could": ("could", "", ("konnte", "konntest", "konnte", "konnten")),
    "should": ("should", "", ("sollte", "solltest", "sollte", "sollten")),
    "would like": ("would", "like to", ("möchte", "möchtest", "möchte", "möchten")),
    "must": (None, "have", ("muss", "musst", "muss", "müssen")),
    "had to": (None, "have", ("musste", "musstest", "musste", "mussten")),
    "want": (None, "want", ("will", "willst", "will", "wollen")),
    "wanted": (None, "want", ("wollte", "wolltest", "wollte", "wollten")),
    "may": (None, "be", ("darf", "darfst", "darf", "dürfen")),
}
_SEMI_MODAL = {
    "have": (HAVE, "to"),
    "want": (make_verb("want", "wollen will gewollt"), "to"),
    "be": (BE, "allowed to"),
}
_PAST_MODALS = ("could", "had to", "wanted")

# ---------------------------------------------------------------- phrases and clauses


class Phrase(NamedTuple):
    """A noun phrase or pronoun: English subject and object form, four German cases."""

    en: str
    en_object: str
    de: tuple[str, ...]
    person: int = 2
    gender: str = "m"
    definite: bool = True
    is_pronoun: bool = False
    anaphor: str = ""  # the pronoun that takes it up again: a key of PRONOUNS
    noun: str = ""

    @property
    def is_person(self) -> bool:
        """Whether it names a human being."""
        return bool(self.anaphor) or self.noun in ("boy", "girl", "child")

    @property
    def possessive(self) -> Pair:
        """What the subject's own things are introduced with."""
        return _POSSESSIVES[self.anaphor]


def _pronoun(key: str, en_object: str, de: str, person: int, gender: str = "m") -> Phrase:
    forms = (*de.split(), "")
    return Phrase(key, en_object, forms, person, gender, is_pronoun=True, anaphor=key)


PRONOUNS = {
    "I": _pronoun("I", "me", "ich mich mir", 0),
    "you": _pronoun("you", "you", "du dich dir", 1),
    "he": _pronoun("he", "him", "er ihn ihm", 2),
    "she": _pronoun("she", "her", "sie sie ihr", 2, "f"),
    "we": _pronoun("we", "us", "wir uns uns", 3, "p"),
    "they": _pronoun("they", "them", "sie sie ihnen", 3, "p"),
}
_POSSESSIVES: dict[str, Pair] = {
    "I": ("my", "mein"),
    "you": ("your", "dein"),
    "he": ("his", "sein"),
    "she": ("her", "ihr"),
    "we": ("our", "unser"),
    "they": ("their", "ihr"),
    "": ("the", "der"),
}
_IT = {
    "m": _pronoun("it", "it", "er ihn ihm", 2),
    "f": _pronoun("it", "it", "sie sie ihr", 2, "f"),
    "n": _pronoun("it", "it", "es es ihm", 2, "n"),
    "p": PRONOUNS["they"],
}
IT = _IT["n"]
WHO = Phrase("who", "who", ("wer", "wen", "wem", "wessen"), is_pronoun=True)


class Clause(NamedTuple):
    """One meaning; each language orders the parts by its own rules."""

    subject: Phrase
    verb: Verb
    tense: str = "present"
    negation: str = ""  # "", "nicht", or "kein" when the object already carries it
    reflexive: bool = False
    dative: Phrase | None = None
    accusative: Phrase | None = None
    complement: Pair = EMPTY
    manner: Pair = EMPTY
    place: Pair = EMPTY
    time: Pair = EMPTY
    frequency: Pair = EMPTY


def _english_verb(verb: Verb, tense: str, person: int, periphrastic: bool) -> Pair:
    if tense in _MODALS:
        finite, extra, _ = _MODALS[tense]
        if finite:
            return finite, f"{extra} {verb.en}"
        head, link = _SEMI_MODAL[extra]
        past = "past" if tense in _PAST_MODALS else "present"
        finite, rest = _english_verb(head, past, person, periphrastic)
        return finite, f"{rest} {link} {verb.en}"
    be = ("am", "are", "is", "are")[person]
    was = ("was", "were", "was", "were")[person]
    if tense == "progressive":
        return be, verb.en_ing
    if tense == "passive":
        return was, verb.en_participle
    if tense == "since":
        return ("has" if person == 2 else "have"), verb.en_participle
    if verb is BE:
        return (was if tense == "past" else be), ""
    if tense == "past":
        return ("did", verb.en) if periphrastic else ("", verb.en_past)
    if periphrastic:
        return ("does" if person == 2 else "do"), verb.en
    return "", verb.en_third if person == 2 else verb.en


def english(c: Clause, *, question: bool = False) -> str:
    """English order: subject, verb, objects, manner, place, time; with do-support where needed."""
    finite, rest = _english_verb(c.verb, c.tense, c.subject.person, question or bool(c.negation))
    negation = "not" if c.negation else ""
    head = [finite, c.subject.en] if question else [c.subject.en, finite]
    words = [*head, negation, c.frequency[0], rest, *_english_objects(c)]
    return " ".join(" ".join(words).split()).replace("can not", "cannot")


def _english_objects(c: Clause) -> list[str]:
    objects = [o.en_object for o in (c.dative, c.accusative) if o]
    return [*objects, c.complement[0], c.manner[0], c.place[0], c.time[0]]


def english_infinitive(c: Clause) -> str:
    """The bare infinitive with everything that follows it."""
    return " ".join(" ".join([c.verb.en, *_english_objects(c)]).split())


_REFLEXIVE = ("mich", "dich", "sich", "uns")


def _german_verb(c: Clause, final: bool) -> tuple[str, str]:
    person = c.subject.person
    verb = c.verb
    if c.tense in _MODALS:
        return _MODALS[c.tense][2][person], verb.infinitive
    if c.tense == "passive":
        return ("wurde", "wurdest", "wurde", "wurden")[person], verb.participle
    if c.tense == "past" and not verb.preterite:
        return (BE if verb.auxiliary == "sein" else HAVE).present[person], verb.participle
    finite = (verb.preterite if c.tense == "past" else verb.present)[person]
    return (verb.prefix + finite, "") if final else (finite, verb.prefix)


def _german_middle(c: Clause) -> list[str]:
    """Pronouns and datives, time, persons, manner and place, things; nicht follows the objects."""
    pronouns = [o.de[i] for i, o in ((1, c.accusative), (2, c.dative)) if o and o.is_pronoun]
    dative = c.dative.de[2] if c.dative and not c.dative.is_pronoun else ""
    accusative = c.accusative.de[1] if c.accusative and not c.accusative.is_pronoun else ""
    person, thing = (
        (accusative, "") if c.accusative and c.accusative.is_person else ("", accusative)
    )
    when = [c.frequency[1], c.time[1]]
    if c.negation == "nicht":
        how = ["nicht", c.manner[1], c.place[1]]
        return [*pronouns, dative, accusative, *when, *how, c.complement[1]]
    how = [c.place[1], c.manner[1]] if thing else [c.manner[1], c.place[1]]
    return [*pronouns, dative, *when, person, *how, thing, c.complement[1]]


def german(c: Clause, *, front: str = "", order: str = "second") -> str:
    """German order: the finite verb second (with ``front`` or the subject before it), first or
    final, the other verb forms at the end.
    """
    finite, rest = _german_verb(c, order == "final")
    subject = [c.subject.de[0]]
    reflexive = _german_reflexive(c) if c.reflexive else ""
    if order == "second" and not front:
        words = [*subject, finite, reflexive]
    else:
        inner = [reflexive, *subject] if not c.subject.is_pronoun else [*subject, reflexive]
        words = inner if order == "final" else [front, finite, *inner]
    words += [*_german_middle(c), rest]
    if order == "final":
        words.append(finite)
    return " ".join(" ".join(words).split())


def _german_reflexive(c: Clause) -> str:
    if c.subject.person == 3 and c.subject.de[0] != "wir":
        return "sich"
    return _REFLEXIVE[c.subject.person]


def german_infinitive(c: Clause) -> str:
    """The infinitive with zu, behind everything that belongs to it."""
    reflexive = _german_reflexive(c) if c.reflexive else ""
    return " ".join(" ".join([reflexive, *_german_middle(c), c.verb.zu]).split())


def main(c: Clause, front: Pair = EMPTY) -> Pair:
    """A main clause, with an adverbial in front if given."""
    return f"{front[0]} {english(c)}".strip(), german(c, front=front[1])


def sub(conjunction: Pair, c: Clause) -> Pair:
    """A subordinate clause behind its conjunction or question word."""
    return f"{conjunction[0]} {english(c)}", f"{conjunction[1]} {german(c, order='final')}"


def asked(c: Clause, word: Pair = EMPTY) -> Pair:
    """A question, behind its question word if given."""
    en = f"{word[0]} {english(c, question=True)}".strip()
    return en, german(c, front=word[1], order="second" if word[1] else "first")


@cache
def noun_phrase(
    noun: Noun, word: Pair = ("the", "der"), adj: Pair = EMPTY, *, plural: bool = False
) -> Phrase:
    """Determiner, adjective and noun; the English determiner "a" becomes "an" where it must."""
    plural = plural or noun.gender == "p"
    gender = "p" if plural else noun.gender
    rest = f"{adj[0]} {noun.en_plural if plural else noun.en}".strip()
    english_word = {"a": article(rest), "this": "these" if plural else "this"}.get(word[0], word[0])
    en = f"{english_word} {rest}".strip()
    is_number = word[0] in NUMBERS
    de = tuple(
        " ".join(
            (
                word[1] if is_number or not word[1] else determiner(word[1], gender, case),
                adjective(adj[1], "" if is_number else word[1], gender, case) if adj[1] else "",
                noun.german(case, plural),
            )
        ).strip()
        for case in range(4)
    )
    de = tuple(" ".join(form.split()) for form in de)
    definite = word[1] not in ("", "ein", "kein", "viel") and not is_number
    return Phrase(en, en, de, 3 if plural else 2, gender, definite, noun=noun.en)


# ---------------------------------------------------------------- the lexicon, parsed


def _pairs(text: str) -> list[Pair]:
    entries = (entry.strip().split("=") for entry in text.split(","))
    return [(en, de) for en, de in entries]


def _words(text: str) -> list[str]:
    return [word.replace("_", " ") for word in text.split()]


def _nouns() -> dict[str, Noun]:
    nouns = {}
    for entry in lexicon.NOUNS.split(","):
        english_forms, de, gender, de_plural = _words(entry)
        en, _, plural = english_forms.partition("/")
        nouns[en] = Noun(en, plural or english_s(en), de, gender[0], de_plural, gender == "mn")
    return nouns


NUMBERS = {w.split()[0]: w.split()[1] for w in lexicon.NUMBERS.split(",")}
NOUNS = _nouns()
ADJECTIVES = {a.split()[0]: tuple(a.split()[1:]) for a in lexicon.ADJECTIVES.split(",")}
CLASSES = {
    name: ([NOUNS[n] for n in _words(nouns)], [(a, ADJECTIVES[a][0]) for a in adjectives.split()])
    for name, (nouns, adjectives) in lexicon.CLASSES.items()
}
TIMES = {tense: _pairs(text) for tense, text in lexicon.TIMES.items()}
FREQUENCIES = _pairs(lexicon.FREQUENCIES)
COMPLEMENTS = {name: _pairs(text) for name, text in lexicon.COMPLEMENTS.items()}
MANNERS = {en: (en, de) for en, de in lexicon.MANNERS.items()}
CITIES = _pairs(lexicon.CITIES)
COUNTRIES = [(en.replace("_", " "), de.replace("_", " ")) for en, de in _pairs(lexicon.COUNTRIES)]
_CONTRACTIONS = {
    "in dem": "im",
    "an dem": "am",
    "zu dem": "zum",
    "zu der": "zur",
    "in das": "ins",
    "an das": "ans",
    "von dem": "vom",
    "bei dem": "beim",
}


def contract(text: str) -> str:
    """Merge preposition and article: in dem → im."""
    for long, short in _CONTRACTIONS.items():
        text = re.sub(rf"\b{long}\b", short, text)
    return text


def _places() -> tuple[dict[str, Pair], dict[str, Pair]]:
    where: dict[str, Pair] = {
        "at home": ("at home", "zu Hause"),
        "at school": ("at school", "in der Schule"),
    }
    to: dict[str, Pair] = {}
    for line in lexicon.PLACES.strip().splitlines():
        name, at, towards = (column.split() for column in line.split("|"))
        en = name[0].replace("_", " ")
        place = noun_phrase(NOUNS[en])
        preposition, _, case = towards[1].partition("+")
        where[en] = (f"{at[0]} the {en}", contract(f"{at[1]} {place.de[2]}"))
        to[en] = (
            f"{towards[0]} the {en}",
            contract(f"{preposition} {place.de[1 if case == 'a' else 2]}"),
        )
    return where, to


WHERE, TO = _places()
PLACE_GROUPS = {
    group: [WHERE[name] for name in _words(names)] for group, names in lexicon.PLACE_GROUPS.items()
}
COMPLEMENTS["destination"] = [TO[name] for name in _words(lexicon.DESTINATIONS)]


class Frame(NamedTuple):
    """A verb with what it takes: classes of objects, complements, places, manners."""

    verb: Verb
    government: str
    objects: list[Pair]
    complements: list[Pair]
    places: list[Pair]
    manners: list[Pair]
    flags: str


def _frames() -> dict[str, Frame]:
    frames = {}
    for line in lexicon.FRAMES.strip().splitlines():
        key, en, de, government, objects, complement, place, manners, flags = (
            column.strip() for column in line.split("|")
        )
        classes = [entry.strip().partition("+") for entry in objects.split(",") if entry.strip()]
        verb = HAVE if key == "have" else make_verb(en, de)
        if key == "like":
            verb = verb._replace(present=("mag", "magst", "mag", "mögen"))
        names = ["by train", "by bus", "by car"] if manners == "vehicles" else manners.split()
        frames[key] = Frame(
            verb,
            government,
            [(name, determiner) for name, _, determiner in classes],
            COMPLEMENTS.get(complement, []),
            PLACE_GROUPS.get(place, []),
            [MANNERS[name] for name in names],
            flags,
        )
    return frames


FRAMES = _frames()


def _states() -> list[tuple[Pair, list[Frame], list[Frame]]]:
    def frames(keys: str) -> list[Frame]:
        return [FRAMES[key.strip()] for key in keys.split(";") if key.strip()]

    rows = [line.split("|") for line in lexicon.STATES.strip().splitlines()]
    return [
        (_pairs(state)[0], frames(effects), frames(blocked)) for state, effects, blocked in rows
    ]


STATES = _states()


# ---------------------------------------------------------------- choosing meanings


class Dice:
    """Random choices from ``Random.random`` alone: the one method every Python keeps stable."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def chance(self, p: float) -> bool:
        """True with probability ``p``."""
        return self._random.random() < p

    def pick(self, options: Sequence[T]) -> T:
        """One of the options."""
        return options[int(self._random.random() * len(options))]


THE: Pair = ("the", "der")
A: Pair = ("a", "ein")


def name_phrase(name: str) -> Phrase:
    """A first name as a noun phrase."""
    anaphor, gender = ("he", "m") if name in lexicon.MALE_NAMES else ("she", "f")
    return Phrase(
        name, name, (name, name, name, name + "s"), gender=gender, anaphor=anaphor, noun=name
    )


def person_noun(noun: Noun, word: Pair, adj: Pair = EMPTY, plural: bool = False) -> Phrase:
    """A noun for a person, with the pronoun that takes it up."""
    phrase = noun_phrase(noun, word, adj, plural=plural)
    anaphor = {"m": "he", "f": "she", "n": "", "p": "they"}[phrase.gender]
    return phrase._replace(anaphor=anaphor)


def a_person(d: Dice, *, plural: bool | None = None) -> Phrase:
    """The old teacher, the children, ..."""
    nouns, adjectives = CLASSES["child" if d.chance(0.2) else "person"]
    plural = d.chance(0.25) if plural is None else plural
    adj = d.pick(adjectives) if d.chance(0.45) else EMPTY
    return person_noun(d.pick(nouns), THE, adj, plural)


def relative(d: Dice, owner: Pair) -> Phrase:
    """My brother, their grandparents, ..."""
    noun = d.pick(CLASSES["kin"][0])
    plural = d.chance(0.4) and noun.en in ("brother", "sister", "friend", "son", "daughter")
    return person_noun(noun, owner, EMPTY, plural)


OWNERS = [_POSSESSIVES[key] for key in ("I", "you", "he", "she", "we", "they", "I", "we")]


def asked_about(d: Dice) -> Phrase:
    """Someone one asks about: not oneself."""
    subject = a_subject(d, pronoun=0.6)
    return asked_about(d) if subject.en in ("I", "we") else subject


def a_subject(d: Dice, *, pronoun: float = 0.35, third: bool = False) -> Phrase:
    """Someone who acts; ``third`` leaves out pronouns and neuters, so that it can be taken up."""
    roll = d.chance
    if not third and roll(pronoun):
        return PRONOUNS[d.pick(tuple(PRONOUNS))]
    if roll(0.3):
        return name_phrase(d.pick(lexicon.MALE_NAMES + lexicon.FEMALE_NAMES))
    if roll(0.5):
        return relative(d, d.pick(OWNERS))
    phrase = a_person(d)
    return a_subject(d, third=True) if third and not phrase.anaphor else phrase


def a_someone(d: Dice, subject: Phrase, *, pronouns: bool = True) -> Phrase:
    """Someone other than the subject, as an object."""
    if pronouns and d.chance(0.25):
        others = {
            "I": ("you", "he", "she", "they"),
            "we": ("he", "she", "they"),
            "you": ("I", "he", "she", "we", "they"),
        }
        return PRONOUNS[d.pick(others.get(subject.anaphor, ("I", "you", "we")))]
    if d.chance(0.3):
        names = lexicon.MALE_NAMES + lexicon.FEMALE_NAMES
        return name_phrase(d.pick([name for name in names if name != subject.noun]))
    is_kin = any(noun.en == subject.noun for noun in CLASSES["kin"][0])
    if d.chance(0.5) and subject.anaphor and not is_kin:
        return relative(d, subject.possessive)
    phrase = a_person(d)
    return a_someone(d, subject) if phrase.noun == subject.noun else phrase


_SERVED = ("cup", "drinkable", "snack")
_OWNED = ("clothes", "vehicle", "useful", "furniture", "book", "pet", "luggage", "hanging", "lost")


def a_thing(
    d: Dice,
    name: str,
    word: str = "",
    owner: Pair = THE,
    *,
    negated: bool = False,
    habitual: bool = False,
) -> Phrase:
    """A noun phrase from a class; negated indefinites take kein."""
    nouns, adjectives = CLASSES[name]
    noun = d.pick(nouns)
    adj = d.pick(adjectives) if adjectives and d.chance(0.45) else EMPTY
    mass = noun.de_plural == "-"
    if word == "a":
        return noun_phrase(noun, ("a", "kein") if negated else A, adj)
    if word or (mass and name not in ("language", "music", "means") and d.chance(0.15)):
        return noun_phrase(noun, owner if word == "my" else THE, adj)
    if mass:
        return noun_phrase(noun, ("any", "kein") if negated else EMPTY, adj)
    if d.chance(0.45) or (negated and name in _SERVED):
        return noun_phrase(noun, ("a", "kein") if negated else A, adj)
    if d.chance(0.45) and name not in _SERVED and not habitual:
        return noun_phrase(noun, THE if d.chance(0.7) else ("this", "dies"), adj)
    if negated:
        return noun_phrase(noun, ("any", "kein"), adj, plural=True)
    if d.chance(0.3) and not habitual:
        number = d.pick(tuple(NUMBERS)[:4])
        return noun_phrase(noun, (number, NUMBERS[number]), adj, plural=True)
    return noun_phrase(noun, owner if owner is not THE and name in _OWNED else A, adj)


def an_object(
    d: Dice, frame: Frame, subject: Phrase, *, negated: bool = False, habitual: bool = False
) -> Phrase:
    """An object of one of the frame's classes."""
    name, word = d.pick(frame.objects)
    if name in ("people", "relatives"):
        return a_someone(d, subject, pronouns=name == "people")
    owner = subject.possessive if subject.anaphor and frame.verb.en != "buy" else THE
    word = word or ("the" if frame.government in _PREPOSITIONS else "")
    return a_thing(d, name, word, owner, negated=negated, habitual=habitual)


_PREPOSITIONS = ("auf", "an", "über")
_SPOKEN_FRAMES = [f for f in FRAMES.values() if "n" not in f.flags]
_AGENTIVE = [f for f in _SPOKEN_FRAMES if not set("st") & set(f.flags)]
_BY_TENSE = {
    "present": [f for f in _AGENTIVE if "h" in f.flags],
    "progressive": [f for f in _AGENTIVE if "g" not in f.flags],
    "past": [f for f in _SPOKEN_FRAMES if "s" not in f.flags],
    "stative": [f for f in _SPOKEN_FRAMES if "s" in f.flags],
}


def an_action(
    d: Dice,
    subject: Phrase,
    tense: str,
    *,
    negated: bool = False,
    frame: Frame | None = None,
    time: float = 0.65,
    often: bool = True,
) -> Clause:
    """A clause in which the subject does something that fits the tense."""
    frame = frame or d.pick(_BY_TENSE.get(tense, _AGENTIVE))
    if tense == "stative":
        tense, time, often = "present", 0.0, False
    c = Clause(subject=subject, verb=frame.verb, tense=tense, negation="nicht" if negated else "")
    if frame.objects:
        o = an_object(d, frame, subject, negated=negated, habitual=tense == "present")
        if frame.government == "dat":
            c = c._replace(dative=o)
        elif frame.government in _PREPOSITIONS:
            c = c._replace(complement=(o.en_object, f"{frame.government} {o.de[1]}"))
        else:
            c = c._replace(accusative=o)
            if negated and not o.definite:
                c = c._replace(negation="kein")
            if frame.government == "dat+acc":
                c = c._replace(dative=a_someone(d, subject))
    if frame.complements:
        c = c._replace(complement=d.pick(frame.complements))
    if tense == "past" and frame.verb.en_past == frame.verb.en:
        time = 1.0  # "they read" alone could be present
    manners = [m for m in frame.manners if m[0] != "together" or subject.person == 3]
    if manners and not negated and d.chance(0.35):
        c = c._replace(manner=d.pick(manners))
    elif frame.places and d.chance(0.55) and not (c.negation == "nicht" and frame.objects):
        c = c._replace(place=d.pick(frame.places))
    if tense == "present" and negated:
        return c
    if tense == "present" and often and d.chance(0.35):
        return c._replace(frequency=d.pick(FREQUENCIES))
    return c._replace(time=a_time(d, tense, frame)) if d.chance(time) else c


def a_time(d: Dice, tense: str, frame: Frame | None = None) -> Pair:
    """When it happens."""
    if (
        tense == "past"
        and frame
        and "l" in frame.flags
        and (frame.verb.en == "build" or d.chance(0.6))
    ):
        return d.pick(TIMES["long past"])
    if tense in _PAST_MODALS:
        tense = "past"
    return d.pick(TIMES.get(tense) or TIMES["modal"])


def fronted(d: Dice, c: Clause, p: float = 0.45) -> Pair:
    """A main clause, often with the time in front."""
    if c.time == EMPTY or c.time[1].endswith("!") or not d.chance(p):
        return main(c)
    return main(c._replace(time=EMPTY), c.time)


TENSES = ("present", "progressive", "past", "past", "future", "stative")
MODALS = ("can", "could", "should", "would like", "must", "had to", "want", "wanted", "may")

# ---------------------------------------------------------------- the shapes of sentences

Shape = Callable[[Dice], Pair]
SHAPES: list[tuple[int, Shape]] = []


def shape(weight: int) -> Callable[[Shape], Shape]:
    """Register a kind of sentence; the weight is its share."""

    def register(build: Shape) -> Shape:
        SHAPES.append((weight, build))
        return build

    return register


def join(*parts: Pair, end: str = ".") -> Pair:
    """Put the parts together as one sentence of each language."""
    sentences = []
    for side in (0, 1):
        text = " ".join(" ".join([part[side] for part in parts]).replace("!", "").split())
        while text != (text := text.replace(" ,", ",").replace(",,", ",")):
            pass
        text = text.rstrip(",") + end
        sentences.append(text[0].upper() + text[1:])
    return sentences[0], sentences[1]


COMMA: Pair = (",", ",")
DE_COMMA: Pair = ("", ",")


@shape(9)
def statement(d: Dice) -> Pair:
    """Yesterday Anna read a book in the garden."""
    return join(fronted(d, an_action(d, a_subject(d), d.pick(TENSES))))


@shape(6)
def modal_statement(d: Dice) -> Pair:
    """My brother has to work tomorrow."""
    return join(fronted(d, an_action(d, a_subject(d), d.pick(MODALS))))


@shape(6)
def negated_statement(d: Dice) -> Pair:
    """She did not buy a hat yesterday."""
    tense = d.pick((*TENSES, "can", "must", "want", "may", "could", "would like"))
    return join(fronted(d, an_action(d, a_subject(d), tense, negated=True)))


@shape(5)
def yes_no_question(d: Dice) -> Pair:
    """Are you reading a book right now?"""
    tense = d.pick((*TENSES, "can", "must", "want", "may"))
    return join(asked(an_action(d, asked_about(d), tense, often=False)), end="?")


@shape(4)
def adverb_question(d: Dice) -> Pair:
    """When did your sister go to the cinema?"""
    word = d.pick([("when", "wann"), ("where", "wo"), ("why", "warum"), ("how often", "wie oft")])
    tense = d.pick(("present", "past", "future", "can", "want"))
    if word[0] == "how often":
        tense = "present"
    frames = [f for f in _BY_TENSE.get(tense, _AGENTIVE) if word[0] != "where" or f.places]
    c = an_action(d, asked_about(d), tense, frame=d.pick(frames), often=False)
    if word[0] == "where":
        c = c._replace(place=EMPTY)
    elif word[0] != "why":
        c = c._replace(time=EMPTY)
    return join(asked(c, word), end="?")


@shape(2)
def who_question(d: Dice) -> Pair:
    """Who is working in the garden?"""
    tense = d.pick(("progressive", "past", "future", "can", "want"))
    return join(main(an_action(d, WHO, tense)), end="?")


@shape(3)
def object_question(d: Dice) -> Pair:
    """What did Anna buy yesterday? Who did you help?"""
    tense = d.pick(("progressive", "past", "future", "want", "must"))
    frames = [
        f
        for f in _BY_TENSE.get(tense, _AGENTIVE)
        if f.objects and not set(f.government) & set("ü+") and f.government not in _PREPOSITIONS
    ]
    c = an_action(d, asked_about(d), tense, frame=d.pick(frames))
    word = ("what", "was")
    if c.dative:
        word = ("who", "wem")
    elif c.accusative and c.accusative.is_person:
        word = ("who", "wen")
    return join(asked(c._replace(dative=None, accusative=None), word), end="?")


@shape(2)
def which_question(d: Dice) -> Pair:
    """Which book did you read? How many apples did she buy?"""
    tense = d.pick(("past", "future", "want", "must"))
    names = ("read", "buy food", "buy", "wash", "photograph", "write")
    frame = FRAMES[d.pick(names)]
    nouns = [n for n in CLASSES[d.pick(frame.objects)[0]][0] if n.de_plural != "-"]
    if not nouns:
        return which_question(d)
    noun = d.pick(nouns)
    c = an_action(d, asked_about(d), tense, frame=frame)._replace(accusative=None)
    if d.chance(0.5):
        phrase = noun_phrase(noun, ("which", "welch"))
        return join(asked(c, (phrase.en, phrase.de[1])), end="?")
    phrase = noun_phrase(noun, ("how many", ""), plural=True)
    return join(asked(c, (phrase.en, f"wie viele {phrase.de[1]}")), end="?")


@shape(2)
def imperative(d: Dice) -> Pair:
    """Please open the window. Do not open the window!"""
    frame = d.pick([f for f in _AGENTIVE if "i" in f.flags])
    negated = d.chance(0.3)
    c = an_action(d, PRONOUNS["you"], "can", frame=frame, negated=negated, time=0.3)
    en = english_infinitive(c)
    middle = [*_german_middle(c), c.verb.prefix]
    de = " ".join([c.verb.imperative, *middle])
    if negated:
        return join((f"do not {en}", de), end="!" if d.chance(0.5) else ".")
    return join((f"please {en}", f"bitte {de}")) if d.chance(0.6) else join((en, de), end="!")


@shape(1)
def suggestion(d: Dice) -> Pair:
    """Let us go to the park!"""
    frame = d.pick([f for f in _AGENTIVE if "i" in f.flags])
    c = an_action(d, PRONOUNS["we"], "can", frame=frame, time=0.5)
    return join(
        (f"let us {english_infinitive(c)}", german(c._replace(tense="present"), order="first")),
        end="!",
    )


def a_state(d: Dice, subject: Phrase, tense: str, state: Pair, negated: bool = False) -> Clause:
    """The subject is tired, was ill, ..."""
    return Clause(
        subject=subject, verb=BE, tense=tense, complement=state, negation="nicht" if negated else ""
    )


def _again(subject: Phrase) -> Phrase:
    return PRONOUNS[subject.anaphor]


@shape(8)
def state_and_effect(d: Dice) -> Pair:
    """Because, so, when, although: a state of a person and what follows from it."""
    state, effects, blocked = d.pick(STATES)
    subject = a_subject(d, pronoun=0.3, third=d.chance(0.6))
    if not subject.anaphor:
        return state_and_effect(d)
    again = _again(subject)
    kind = d.pick(("because", "because", "so", "when", "although", "cannot", "cannot"))
    past = d.chance(0.45)
    tense = "past" if past else "present"

    def effect(who: Phrase, frames: list[Frame], tense: str, negated: bool = False) -> Clause:
        return an_action(
            d, who, tense, negated=negated, frame=d.pick(frames), time=0.0, often=False
        )

    if kind == "cannot" or not effects:
        modal = d.pick(("could", "wanted") if past else ("can", "want"))
        first = effect(subject, blocked, modal, True)
        return join(
            main(first), DE_COMMA, sub(("because", "weil"), a_state(d, again, tense, state))
        )
    if kind == "although":
        conjunction = ("although", "obwohl")
        modal = d.pick(("wanted", "had to") if past else ("want", "must"))
        if d.chance(0.5):
            return join(
                main(effect(subject, blocked, modal)),
                DE_COMMA,
                sub(conjunction, a_state(d, again, tense, state)),
            )
        lead = sub(conjunction, a_state(d, subject, tense, state))
        clause = effect(again, blocked, modal)
        return join(lead, COMMA, (english(clause), german(clause, order="first")))
    if kind == "because":
        return join(
            main(effect(subject, effects, tense)),
            DE_COMMA,
            sub(("because", "weil"), a_state(d, again, tense, state)),
        )
    clause = effect(again, effects, tense)
    if kind == "so":
        return join(
            main(a_state(d, subject, tense, state)),
            COMMA,
            (f"so {english(clause)}", german(clause, front="deshalb")),
        )
    lead = sub(("when", "als" if past else "wenn"), a_state(d, subject, tense, state))
    return join(lead, COMMA, (english(clause), german(clause, order="first")))


@shape(5)
def that_clause(d: Dice) -> Pair:
    """I hope that he will come back soon."""
    thinker = a_subject(d, pronoun=0.6)
    if thinker.en == "you":
        return that_clause(d)
    verbs = [make_verb("think", "glauben"), make_verb("hope", "hoffen"), KNOW]
    if thinker.en not in ("I", "we"):
        verbs.append(make_verb("say", "sagen"))
    verb = d.pick(verbs)
    lead = main(Clause(subject=thinker, verb=verb))
    tenses = ("past", "future", "can") if verb.en == "hope" else ("past", "future", "must", "want")
    c = an_action(d, other_subject(d, thinker), d.pick(tenses))
    return join(lead, DE_COMMA, sub(("that", "dass"), c))


def other_subject(d: Dice, first: Phrase) -> Phrase:
    """A subject that cannot be mistaken for the first one."""
    phrase = a_subject(d)
    clash = phrase.noun and phrase.noun == first.noun
    third = first.person > 1 and phrase.is_pronoun and phrase.person > 1
    confusing = third and first.anaphor != phrase.anaphor
    return other_subject(d, first) if clash or confusing else phrase


@shape(5)
def indirect_question(d: Dice) -> Pair:
    """Do you know whether the train has arrived? I do not know where she works."""
    word = d.pick(
        (("whether", "ob"), ("whether", "ob"), ("when", "wann"), ("why", "warum"), ("where", "wo"))
    )
    tense = d.pick(("past", "future", "can", "want"))
    frames = [f for f in _BY_TENSE.get(tense, _AGENTIVE) if word[0] != "where" or f.places]
    thinker = PRONOUNS[d.pick(("I", "we", "you", "they", "he", "she"))]
    c = an_action(d, other_subject(d, thinker), tense, frame=d.pick(frames))
    if word[0] == "where":
        c = c._replace(place=EMPTY)
    elif word[0] == "when":
        c = c._replace(time=EMPTY)
    know = Clause(subject=thinker, verb=KNOW)
    if thinker.en == "you" or d.chance(0.2):
        return join(asked(know._replace(subject=PRONOUNS["you"])), DE_COMMA, sub(word, c), end="?")
    lead = main(know._replace(negation="nicht"))
    if d.chance(0.3):
        ask = make_verb("want_to_know", "wissen weiß gewusst")
        lead = (
            f"{english(Clause(subject=thinker, verb=ask))}",
            german(Clause(subject=thinker, verb=KNOW, tense="want")),
        )
    return join(lead, DE_COMMA, sub(word, c))


def _relative_pronoun(phrase: Phrase, case: int) -> str:
    return _RELATIVE[phrase.gender][case]


@shape(4)
def relative_subject(d: Dice) -> Pair:
    """The man who is waiting at the station is my uncle. I know a woman who ..."""
    person = a_person(d)
    pronoun = person._replace(en="who", de=(_relative_pronoun(person, 0),) * 4, is_pronoun=True)
    c = an_action(d, pronoun, d.pick(("progressive", "past", "future", "want")), time=0.4)
    adjectives = CLASSES["child" if person.noun in ("boy", "girl", "child") else "person"][1]
    inner: Pair = (english(c), f", {german(c, order='final')},")
    if d.chance(0.4) and person.gender != "p":
        noun = NOUNS[person.noun]
        indefinite = noun_phrase(noun, A, d.pick(adjectives) if d.chance(0.4) else EMPTY)
        know = Clause(
            subject=a_subject(d, pronoun=0.7), verb=FRAMES["know"].verb, accusative=indefinite
        )
        return join(main(know), inner)
    adj = d.pick([a for a in adjectives if a[0] not in person.en])
    be = be_form(person)
    return join((person.en, person.de[0]), inner, be, degree(d, adj, excess=False))


@shape(4)
def relative_object(d: Dice) -> Pair:
    """The book that Anna bought yesterday is very interesting."""
    frame = FRAMES[
        d.pick(
            (
                "read",
                "buy",
                "buy food",
                "find",
                "wash",
                "photograph",
                "look for",
                "sell",
                "repair",
                "paint",
            )
        )
    ]
    name, _ = d.pick([o for o in frame.objects if CLASSES[o[0]][1]])
    nouns, adjectives = CLASSES[name]
    noun = d.pick(nouns)
    thing = noun_phrase(noun, THE, plural=noun.de_plural != "-" and d.chance(0.2))
    c = an_action(d, a_subject(d), "past", frame=frame, time=0.6)
    relative_word = Phrase("that", "that", (_relative_pronoun(thing, 1),) * 4, is_pronoun=True)
    inner_en = english(c._replace(accusative=None))
    inner_de = german(c._replace(accusative=None), order="final")
    inner = (f"that {inner_en}", f", {relative_word.de[1]} {inner_de},")
    be = be_form(thing)
    return join((thing.en, thing.de[0]), inner, be, degree(d, d.pick(adjectives)))


@shape(4)
def infinitive_clause(d: Dice) -> Pair:
    """Anna tries to open the window. He forgot to call his mother."""
    en, de, tense = d.pick(
        (
            ("try", "versuchen - versucht", "progressive"),
            ("try", "versuchen - versucht", "past"),
            ("forget forgot forgotten", "vergessen vergisst vergessen", "past"),
            ("promise", "versprechen verspricht versprochen", "past"),
            ("begin began begun", "beginnen - begonnen", "past"),
            ("decide", "beschließen - beschlossen", "past"),
            ("plan planned planned", "planen", "present"),
        )
    )
    subject = a_subject(d)
    c = an_action(d, subject, "future", time=0.0)
    lead = Clause(subject=subject, verb=make_verb(en, de), tense=tense)
    if tense == "past" and d.chance(0.5):
        lead = lead._replace(time=a_time(d, "past"))
        first = main(lead._replace(time=EMPTY), lead.time)
    else:
        first = main(lead)
    return join(first, DE_COMMA, (f"to {english_infinitive(c)}", german_infinitive(c)))


@shape(3)
def purpose(d: Dice) -> Pair:
    """She is going to the city to buy a coat."""
    aims = {
        "city": "buy; meet",
        "supermarket": "buy food; do the shopping",
        "market": "buy food",
        "library": "read; learn",
        "restaurant": "eat; meet",
        "café": "drink; meet",
        "lake": "swim",
        "swimming pool": "swim",
        "park": "game; meet",
        "station": "meet",
        "airport": "meet",
        "garden": "work",
        "kitchen": "cook; bake; drink",
        "garage": "repair",
        "cinema": "watch",
        "university": "learn; meet",
    }
    place = d.pick(tuple(aims))
    subject = a_subject(d)
    frame = FRAMES[d.pick(aims[place].split("; "))]
    tense = d.pick(("progressive", "past", "future", "want"))
    go = Clause(
        subject=subject,
        verb=FRAMES["go"].verb,
        tense=tense,
        complement=TO[place],
        time=a_time(d, tense) if d.chance(0.5) else EMPTY,
    )
    aim = an_action(d, subject, "future", frame=frame, time=0.0)._replace(place=EMPTY)
    if place in ("lake", "swimming pool"):
        aim = aim._replace(complement=EMPTY)
    return join(fronted(d, go), (f"to {english_infinitive(aim)}", f", um {german_infinitive(aim)}"))


_PASTIMES = (
    *("game", "swim", "dance", "travel", "hike", "run", "work"),
    *("sleep", "instrument", "play with", "go", "listen to", "drink"),
)


@shape(3)
def like_to(d: Dice) -> Pair:
    """My sister likes to dance."""
    subject = a_subject(d)
    c = an_action(
        d, subject, "present", frame=FRAMES[d.pick(_PASTIMES)], time=0.0, often=False
    )._replace(manner=EMPTY, place=EMPTY)
    verb = c.verb._replace(en="like to " + c.verb.en)
    return join(main(c._replace(verb=verb, frequency=("", "gern"))))


@shape(5)
def two_clauses(d: Dice) -> Pair:
    """Anna is reading a book, and Paul is writing a letter."""
    tense = d.pick(("progressive", "past", "future"))
    scene = d.pick(
        (
            ("cook", "bake", "eat", "drink", "do the shopping", "tidy up", "clean"),
            (
                "read",
                "write",
                "listen to",
                "watch",
                "clean",
                "tidy up",
                "sleep",
                "draw",
                "paint",
                "call",
            ),
            ("swim", "run", "hike", "game", "play with", "go", "photograph"),
            ("buy", "buy food", "pay", "do the shopping", "wait for bus", "meet"),
            ("work", "learn", "read", "write", "help", "explain", "call"),
            ("repair", "wash", "plant", "feed", "build", "clean", "help", "work"),
        )
    )
    one, two = (FRAMES[key] for key in (d.pick(scene), d.pick(scene)))
    first = an_action(d, a_subject(d, third=True), tense, frame=one, time=0.3)
    second = an_action(d, a_subject(d, third=True), tense, frame=two, time=0.0)
    if first.verb.en == second.verb.en or first.subject.noun == second.subject.noun:
        return two_clauses(d)
    link = d.pick(((", and", "und"), (", but", ", aber")))
    return join(fronted(d, first), link, main(second))


@shape(3)
def if_clause(d: Dice) -> Pair:
    """If the weather is good tomorrow, we will go to the lake."""
    weather, keys = d.pick(
        (
            (("the weather is good", "das Wetter gut ist"), "go; swim; hike; game; work; run"),
            (
                ("it rains", "es regnet"),
                "stay; read; watch television; listen to; instrument; cook",
            ),
            (("it snows", "es schneit"), "stay; bake; read; drink; watch television"),
            (("the sun shines", "die Sonne scheint"), "swim; hike; go; run; photograph; plant"),
            (("it is cold", "es kalt ist"), "stay; drink; watch television; dress warmly"),
        )
    )
    c = an_action(
        d, a_subject(d), "future", frame=FRAMES[d.pick(keys.split("; "))], time=0.0
    )._replace(tense="future")
    when = d.pick((*TIMES["future"][:3], ("today", "heute"), EMPTY))
    head, _, tail = weather[1].partition(" ")
    if weather[1].startswith(("das", "die")):
        first, second, tail = weather[1].split(" ", 2)
        head = f"{first} {second}"
    lead = (f"if {weather[0]} {when[0]}", f"wenn {head} {when[1]} {tail}")
    if d.chance(0.6):
        return join(lead, COMMA, (english(c), german(c, order="first")))
    return join(main(c), DE_COMMA, lead)


def be_form(phrase: Phrase) -> Pair:
    """The present of be that agrees."""
    return ("is", "ist") if phrase.person == 2 else ("are", "sind")


_OWN_THINGS = ("unisex", "furniture", "vehicle", "useful", "home")
_THING_CLASSES = (
    *_OWN_THINGS,
    "clothes",
    "building",
    "text",
    "fruit",
    "film",
    "hard",
    "big vehicle",
)
_EXCESS = (
    "old",
    "small",
    "big",
    "expensive",
    "heavy",
    "long",
    "short",
    "boring",
    "warm",
    "hot",
    "difficult",
    "cold",
    "sad",
)


def degree(d: Dice, adj: Pair, *, excess: bool = True) -> Pair:
    """The adjective, perhaps with very, too or really where they make sense."""
    words = [EMPTY]
    if ADJECTIVES[adj[0]][1] != "-":
        words += [("very", "sehr"), ("really", "wirklich")]
    if excess and adj[0] in _EXCESS:
        words.append(("too", "zu"))
    word = d.pick(words)
    return f"{word[0]} {adj[0]}".strip(), f"{word[1]} {adj[1]}".strip()


def _thing_and_adjective(d: Dice) -> tuple[Phrase, Pair, str]:
    name = d.pick(_THING_CLASSES)
    noun = d.pick(CLASSES[name][0])
    adj = d.pick(CLASSES[name][1])
    word = d.pick((THE, THE, ("this", "dies"), *(OWNERS if name in _OWN_THINGS else ())))
    return noun_phrase(noun, word, plural=d.chance(0.2)), adj, name


@shape(3)
def quality(d: Dice) -> Pair:
    """This coat is too expensive. My books are not very old."""
    thing, adj, _ = _thing_and_adjective(d)
    how = degree(d, adj)
    c = Clause(subject=thing, verb=BE, tense=d.pick(("present", "past")), complement=how)
    if d.chance(0.15):
        return join(asked(c), end="?")
    negated = d.chance(0.4) and (how == adj or how[0].startswith("very"))
    return join(main(c._replace(negation="nicht" if negated else "")))


@shape(3)
def comparison(d: Dice) -> Pair:
    """The table is cheaper than the chair. The bridge is as old as the church."""
    name = d.pick((*_THING_CLASSES, "person", "animal"))
    nouns, adjectives = CLASSES[name]
    one, two = d.pick(nouns), d.pick(nouns)
    adj = d.pick(adjectives)
    comparative = ADJECTIVES[adj[0]][1]
    if one is two or comparative == "-":
        return comparison(d)
    word = d.pick((THE, THE, *(OWNERS if name in _OWN_THINGS else ())))
    left, right = noun_phrase(one, word), noun_phrase(two, THE)
    if word is THE and d.chance(0.3):
        left, right = (noun_phrase(n, THE, plural=True) for n in (one, two))
    if d.chance(0.4):
        negation = ("not", "nicht") if d.chance(0.5) else EMPTY
        how: Pair = (f"{negation[0]} as {adj[0]} as", f"{negation[1]} so {adj[1]} wie")
    else:
        how = (f"{english_comparative(adj[0])} than", f"{comparative} als")
    return join((left.en, left.de[0]), be_form(left), how, (right.en, right.de[0]))


def english_comparative(adj: str) -> str:
    """bigger, nicer, happier, more expensive."""
    if adj == "good":
        return "better"
    if adj.endswith("y") and len(adj) < 9:
        return adj[:-1] + "ier"
    if len(adj) > 6 or adj in ("modern", "famous", "polite"):
        return "more " + adj
    if adj in ("big", "hot", "sad"):
        return adj + adj[-1] + "er"
    return adj + ("r" if adj.endswith("e") else "er")


@shape(3)
def existence(d: Dice) -> Pair:
    """There are three old churches in the city."""
    places = {
        "city": "building",
        "village": "building; farm",
        "kitchen": "standing",
        "zoo": "wild",
        "garden": "plant",
        "park": "plant",
        "living room": "parlour",
    }
    place = d.pick(tuple(places))
    name = d.pick(places[place].split("; "))
    noun = d.pick(CLASSES[name][0])
    adj = d.pick(CLASSES[name][1]) if d.chance(0.5) else EMPTY
    room = place in ("kitchen", "living room")
    if d.chance(0.2) and not room:
        thing = noun_phrase(noun, ("many", "viel"), adj, plural=True)
    elif d.chance(0.35):
        number = d.pick(tuple(NUMBERS)[: 2 if room else None])
        thing = noun_phrase(noun, (number, NUMBERS[number]), adj, plural=True)
    elif d.chance(0.2):
        thing = noun_phrase(noun, ("no", "kein"), adj)
    else:
        thing = noun_phrase(noun, A, adj)
    en = f"there {be_form(thing)[0]} {thing.en} {WHERE[place][0]}"
    return join((en, f"{WHERE[place][1]} gibt es {thing.de[1]}"))


_SPOTS = (
    ("on", "auf"),
    ("next to", "neben"),
    ("under", "unter"),
    ("behind", "hinter"),
    ("in front of", "vor"),
)


def _spot(d: Dice, name: str, case: int) -> Pair:
    preposition = d.pick(_SPOTS[:3] if name == "lying" else (_SPOTS[:2] + _SPOTS[3:]))
    names = (
        "table chair desk bed sofa armchair"
        if preposition[0] in ("on", "under")
        else ("table chair desk bed sofa armchair cupboard door")
    )
    noun = NOUNS[d.pick(names.split())]
    word = d.pick((THE, THE, THE, ("my", "mein"), ("your", "dein")))
    if noun.en == "door":
        word = THE
    phrase = noun_phrase(noun, word)
    return f"{preposition[0]} {phrase.en}", f"{preposition[1]} {phrase.de[case]}"


@shape(3)
def position(d: Dice) -> Pair:
    """The keys are lying on the table."""
    name, en, de = d.pick((("lying", "lie", "liegen"), ("standing", "stand", "stehen")))
    nouns, adjectives = CLASSES[name]
    adj = d.pick(adjectives) if d.chance(0.4) else EMPTY
    word = d.pick((THE, THE, *OWNERS))
    thing = noun_phrase(d.pick(nouns), word, adj, plural=d.chance(0.25))
    c = Clause(
        subject=thing, verb=make_verb(en, de), tense="progressive", complement=_spot(d, name, 2)
    )
    if d.chance(0.25):
        return join(asked(c), end="?")
    return join(main(c._replace(negation="nicht" if d.chance(0.2) else "")))


@shape(3)
def putting(d: Dice) -> Pair:
    """She put the vase on the table."""
    name, verb = d.pick(
        (
            ("lying", make_verb("put put put", "legen")),
            ("standing", make_verb("put put put", "stellen")),
        )
    )
    tense = d.pick(("past", "past", "future", "must", "can", "should", "progressive"))
    subject = a_subject(d)
    thing = a_thing(d, name, d.pick(("the", "my")), subject.possessive if subject.anaphor else THE)
    c = Clause(
        subject=subject,
        verb=verb,
        tense=tense,
        accusative=thing,
        complement=_spot(d, name, 1),
        negation="nicht" if d.chance(0.15) else "",
    )
    return join(main(c))


def _clock(d: Dice, hours: Sequence[str]) -> Pair:
    number = d.pick(hours)
    if d.chance(0.3):
        names = ("one", *NUMBERS)
        index = names.index(number)
        previous = names[index - 1]
        return f"at half past {previous}", f"um halb {NUMBERS[number]}"
    return f"at {number} o'clock", f"um {NUMBERS[number]} Uhr"


@shape(4)
def timetable(d: Dice) -> Pair:
    """The train to Berlin leaves at seven o'clock. We get up at half past six."""
    en, de, subjects = d.pick(
        (
            ("leave left left", "ab-fahren fährt *gefahren", "train bus ship"),
            ("arrive", "an-kommen - *gekommen", "train bus ship plane"),
            ("begin began begun", "beginnen - begonnen", "film concert lesson party"),
            ("get_up got got", "auf-stehen - *gestanden", ""),
            ("get_up got got", "auf-stehen - *gestanden", ""),
            ("come back", "", ""),
        )
    )
    clock = _clock(d, tuple(NUMBERS)[3:8] if en.startswith("get") else tuple(NUMBERS))
    verb = FRAMES["come back"].verb if en.startswith("come") else make_verb(en, de)
    tense = d.pick(("present", "past", "future"))
    if not subjects:
        subject = a_subject(d)
        tense = d.pick((tense, "must", "would like", "had to", "want"))
    else:
        subject = noun_phrase(NOUNS[d.pick(subjects.split())])
        if verb.en in ("leave", "arrive") and subject.noun in ("train", "bus") and d.chance(0.6):
            city = d.pick(CITIES)
            way = ("to", "nach") if verb.en == "leave" else ("from", "aus")
            en_subject = f"{subject.en} {way[0]} {city[0]}"
            subject = subject._replace(
                en=en_subject, de=(f"{subject.de[0]} {way[1]} {city[1]}",) * 4
            )
    when = EMPTY
    if d.chance(0.6):
        when = d.pick(
            {"present": TIMES["present"][4:7], "past": TIMES["past"][:1] + TIMES["past"][2:7]}.get(
                tense, TIMES["modal"][:2]
            )
        )
    if tense == "had to":
        when = d.pick((EMPTY, TIMES["past"][0]))
    if when != EMPTY and d.chance(0.5):
        return join(main(Clause(subject=subject, verb=verb, tense=tense, time=clock), when))
    c = Clause(
        subject=subject,
        verb=verb,
        tense=tense,
        time=(f"{clock[0]} {when[0]}", f"{when[1]} {clock[1]}"),
    )
    if d.chance(0.2):
        return join(asked(c), end="?")
    if d.chance(0.2):
        thinker = PRONOUNS[d.pick(("I", "we", "you"))]
        know = main(Clause(subject=thinker, verb=KNOW))
        return join(know, DE_COMMA, sub(("that", "dass"), c))
    return join(main(c))


@shape(2)
def since(d: Dice) -> Pair:
    """She has worked in the hospital for three years."""
    frame = FRAMES[d.pick(("work", "learn"))]
    subject = a_subject(d)
    number = d.pick(tuple(NUMBERS))
    unit = d.pick((("years", "Jahren"), ("months", "Monaten"), ("weeks", "Wochen")))
    span = (f"for {number} {unit[0]}", f"seit {NUMBERS[number]} {unit[1]}")
    c = Clause(subject=subject, verb=frame.verb, tense="since", time=span)
    if d.chance(0.5):
        city = d.pick(CITIES)
        live = make_verb("live", "wohnen")
        c = c._replace(verb=live, complement=(f"in {city[0]}", f"in {city[1]}"))
    elif frame.objects:
        c = c._replace(accusative=an_object(d, frame, subject))
    else:
        c = c._replace(place=d.pick(frame.places))
    return join(main(c))


@shape(2)
def origin(d: Dice) -> Pair:
    """My aunt comes from Switzerland, but she lives in Vienna."""
    subject = a_subject(d)
    en, de = d.pick(COUNTRIES)
    come = Clause(
        subject=subject,
        verb=make_verb("come came come", "kommen - *gekommen"),
        complement=(f"from {en}", f"aus {de}"),
    )
    if d.chance(0.3) or not subject.anaphor:
        return join(asked(come), end="?") if d.chance(0.4) else join(main(come))
    city = d.pick(CITIES)
    live = Clause(
        subject=_again(subject),
        verb=make_verb(*d.pick((("live", "wohnen"), ("work", "arbeiten")))),
        complement=(f"in {city[0]}", f"in {city[1]}"),
    )
    return join(main(come), d.pick(((", but", ", aber"), (", and", "und"))), main(live))


@shape(2)
def belonging(d: Dice) -> Pair:
    """The red car belongs to my uncle. The soup tastes good to the children."""
    subject = a_thing(d, d.pick(("vehicle", "furniture", "useful", "clothes", "pet")), "the")
    person = a_someone(d, subject)
    verb = make_verb("belong_to", "gehören - gehört")
    c = Clause(subject=subject, verb=verb, dative=person)
    if d.chance(0.25):
        return join(asked(c), end="?")
    return join(main(c._replace(negation="nicht" if d.chance(0.25) else "")))


@shape(3)
def passive(d: Dice) -> Pair:
    """The bridge was built two years ago. The cake was baked by my grandmother."""
    frames = [f for f in _SPOKEN_FRAMES if "p" in f.flags]
    frame = d.pick(frames)
    classes = [name for name, _ in frame.objects if name != "people"]
    name = d.pick(classes)
    nouns, adjectives = CLASSES[name]
    noun = d.pick(nouns)
    adj = d.pick(adjectives) if adjectives and d.chance(0.4) else EMPTY
    thing = noun_phrase(noun, THE, adj, plural=noun.de_plural != "-" and d.chance(0.25))
    c = Clause(subject=thing, verb=frame.verb, tense="passive")
    if d.chance(0.6):
        agent = a_subject(d, third=True)
        c = c._replace(complement=(f"by {agent.en_object}", contract(f"von {agent.de[2]}")))
    if d.chance(0.6) or c.complement == EMPTY:
        c = c._replace(time=a_time(d, "past", frame))
    if d.chance(0.2) and c.complement == EMPTY:
        return join(main(c._replace(negation="nicht")))
    return join(fronted(d, c, 0.3))


@shape(3)
def genitive(d: Dice) -> Pair:
    """That is my brother's bicycle. The doctor's car is very fast."""
    name = d.pick(("vehicle", "unisex", "useful", "pet", "home", "furniture"))
    nouns, adjectives = CLASSES[name]
    noun, adj = d.pick(nouns), d.pick(adjectives)
    plural = d.chance(0.15)
    if d.chance(0.3):
        owner = d.pick([n for n in lexicon.FEMALE_NAMES + lexicon.MALE_NAMES if n[-1] not in "sx"])
        thing = noun_phrase(noun, EMPTY, plural=plural)
        phrase = (f"{owner}'s {thing.en}", f"{owner}s {noun.german(0, plural)}")
    else:
        person = relative(d, d.pick(OWNERS)) if d.chance(0.6) else a_person(d)
        mark = "'" if person.en.endswith("s") and person.person == 3 else "'s"
        thing = noun_phrase(noun, THE, plural=plural)
        phrase = (
            f"{person.en}{mark} {thing.en.removeprefix('the ')}",
            f"{thing.de[0]} {person.de[3]}",
        )
    if d.chance(0.4) and not plural:
        return join((f"that is {phrase[0]}", f"das ist {phrase[1]}"))
    return join(phrase, be_form(thing), degree(d, adj))


@shape(3)
def reflexive(d: Dice) -> Pair:
    """The children are looking forward to the holidays."""
    joys = [noun_phrase(n) for n in CLASSES["joy"][0]]
    topics = _pairs(
        "art=Kunst, music=Musik, history=Geschichte, sport=Sport, politics=Politik, "
        "old books=alte Bücher, modern art=moderne Kunst, animals=Tiere"
    )
    kind = d.pick(("joy", "topic", "memory"))
    tense = "present"
    if kind == "joy":
        verb = make_verb("look_forward", "freuen")
        joy = d.pick(joys)
        complement = (f"to {joy.en}", f"auf {joy.de[1]}")
        tense = "progressive"
    elif kind == "topic":
        topic = d.pick(topics)
        verb = make_verb("be interested", "interessieren - interessiert")
        complement = (f"in {topic[0]}", f"für {topic[1]}")
    else:
        verb = make_verb("remember", "erinnern - erinnert")
        thing = noun_phrase(d.pick(CLASSES["joy"][0] + CLASSES["person"][0]))
        complement = (thing.en, f"an {thing.de[1]}")
    subject = a_subject(d)
    c = Clause(
        subject=subject,
        verb=verb,
        tense=tense,
        reflexive=True,
        complement=complement,
        negation="nicht" if d.chance(0.2) else "",
    )
    if kind == "topic":
        c = c._replace(negation="", frequency=EMPTY)
        en = Clause(subject=subject, verb=BE, complement=(f"interested {complement[0]}", ""))
        if d.chance(0.3):
            return join((english(en, question=True), german(c, order="first")), end="?")
        return join((english(en), german(c)))
    if d.chance(0.25):
        return join(asked(c._replace(negation="")), end="?")
    if kind == "joy" and d.chance(0.3):
        return join((f"today {english(c)}", german(c, front="heute")))
    return join(main(c))


@shape(4)
def thing_taken_up(d: Dice) -> Pair:
    """I am buying the lamp because it is beautiful: the pronoun keeps the noun's gender."""
    key = d.pick(("buy", "buy", "read", "sell", "sell", "repair"))
    frame = FRAMES[key]
    name = d.pick([n for n, _ in frame.objects if CLASSES[n][1]])
    nouns, adjectives = CLASSES[name]
    plural = d.chance(0.15)
    word = THE if plural or d.chance(0.7) else ("this", "dies")
    thing = noun_phrase(d.pick(nouns), word, plural=plural)
    tense = d.pick(("past", "want", "would like"))
    c = Clause(subject=a_subject(d, pronoun=0.6), verb=frame.verb, tense=tense, accusative=thing)
    faults = [
        a
        for a in adjectives
        if a[0] in _EXCESS and a[0] != "warm" and not (key == "read" and a[0] in ("old", "short"))
    ]
    virtues = [a for a in adjectives if a not in faults and ADJECTIVES[a[0]][1] != "-"]
    refused = key in ("buy", "read") and (d.chance(0.4) or not virtues)
    if key == "repair":
        adj, words = ("old", "alt"), [EMPTY, ("very", "sehr"), ("so", "so")]
    elif refused or key == "sell":
        adj, words = d.pick(faults), [("too", "zu")]
    else:
        adj, words = d.pick(virtues), [EMPTY, ("very", "sehr"), ("so", "so")]
    very = d.pick(words)
    reason = Clause(
        subject=_IT[thing.gender],
        verb=BE,
        tense="past" if tense == "past" else "present",
        complement=(f"{very[0]} {adj[0]}", f"{very[1]} {adj[1]}"),
    )
    c = c._replace(negation="nicht" if refused else "")
    return join(main(c), DE_COMMA, sub(("because", "weil"), reason))


@shape(2)
def family(d: Dice) -> Pair:
    """My aunt has two small dogs and a black cat."""
    subject = a_subject(d)
    without = subject.noun in ("boy", "girl", "child", "parents", "grandparents", "son", "daughter")
    parts = []
    names = d.pick((("pet", "pet"), ("pet",), ("kin", "kin"), ("child",)))
    if without:
        names = ("pet", "pet")
    for name in names:
        nouns, adjectives = CLASSES[name]
        if name == "kin":
            nouns = [NOUNS[n] for n in ("brother", "sister", "son", "daughter")]
        elif name == "child":
            nouns = [NOUNS["child"]]
        noun = d.pick(nouns)
        adj = d.pick(adjectives) if adjectives and d.chance(0.5) else EMPTY
        number = d.pick(tuple(NUMBERS)[:4])
        word = A if d.chance(0.5) else (number, NUMBERS[number])
        parts.append(noun_phrase(noun, word, adj, plural=word is not A))
    if len({p.noun for p in parts}) < len(parts):
        return family(d)
    have = Clause(
        subject=subject, verb=HAVE, tense="past" if "pet" in names and d.chance(0.3) else "present"
    )
    last = (f"and {parts[1].en}", f"und {parts[1].de[1]}") if len(parts) > 1 else EMPTY
    have = have._replace(complement=(f"{parts[0].en} {last[0]}", f"{parts[0].de[1]} {last[1]}"))
    return join(asked(have), end="?") if d.chance(0.2) else join(main(have))


@shape(2)
def profession(d: Dice) -> Pair:
    """My uncle is a pilot. He would like to become a doctor."""
    jobs = CLASSES["profession"][0]
    noun = d.pick(jobs)
    subject = (
        PRONOUNS["he"]
        if d.chance(0.2)
        else (
            name_phrase(d.pick(lexicon.MALE_NAMES))
            if d.chance(0.5)
            else person_noun(
                NOUNS[d.pick(("father", "brother", "uncle", "son", "friend"))], d.pick(OWNERS)
            )
        )
    )
    en = noun_phrase(noun, A).en
    if d.chance(0.5):
        c = Clause(
            subject=subject, verb=BE, tense=d.pick(("present", "past")), complement=(en, noun.de)
        )
    else:
        c = Clause(
            subject=subject,
            verb=make_verb("become", "werden wird *geworden"),
            tense=d.pick(("want", "would like", "wanted")),
            complement=(en, noun.de),
        )
    return join(asked(c), end="?") if d.chance(0.25) else join(main(c))


@shape(2)
def numbers(d: Dice) -> Pair:
    """The lamp costs ten euros. My sister is twelve years old."""
    number = d.pick(tuple(NUMBERS))
    if d.chance(0.5):
        thing = noun_phrase(d.pick(CLASSES[d.pick(("gift", "book", "clothes"))][0]))
        c = Clause(
            subject=thing,
            verb=make_verb("cost cost cost", "kosten"),
            complement=(f"{number} euros", f"{NUMBERS[number]} Euro"),
        )
        return (
            join(asked(c._replace(complement=EMPTY), ("how much", "wie viel")), end="?")
            if d.chance(0.1)
            else join(main(c))
        )
    noun = NOUNS[d.pick(("brother", "sister", "son", "daughter"))]
    subject = person_noun(noun, d.pick(OWNERS)) if d.chance(0.6) else a_person(d, plural=False)
    if subject.noun not in ("boy", "girl", "child", "brother", "sister", "son", "daughter"):
        return numbers(d)
    c = Clause(
        subject=subject,
        verb=BE,
        tense=d.pick(("present", "past")),
        complement=(f"{number} years old", f"{NUMBERS[number]} Jahre alt"),
    )
    return join(asked(c), end="?") if d.chance(0.2) else join(main(c))


@shape(3)
def animals(d: Dice) -> Pair:
    """The small dog is sleeping under the table."""
    small = d.chance(0.6)
    noun = NOUNS[d.pick(("dog", "cat") if small else ("horse", "cow", "sheep"))]
    adj = d.pick(CLASSES["farm"][1]) if d.chance(0.5) else EMPTY
    animal = noun_phrase(noun, d.pick((THE, THE, *OWNERS)), adj, plural=d.chance(0.3))
    tense = d.pick(("progressive", "past", "future", "want"))
    c = Clause(subject=animal, verb=FRAMES["sleep"].verb, tense=tense)
    kind = d.pick(("sleep", "run", "drink", "play") if small else ("sleep", "run", "drink"))
    if kind == "sleep":
        c = c._replace(
            place=d.pick(
                (
                    WHERE["garden"],
                    ("under the tree", "unter dem Baum"),
                    ("behind the house", "hinter dem Haus"),
                    ("next to the tree", "neben dem Baum"),
                )
            )
        )
    elif kind == "run":
        c = c._replace(
            verb=FRAMES["run"].verb,
            complement=d.pick(
                (
                    ("through the garden", "durch den Garten"),
                    ("to the river", "zum Fluss"),
                    ("behind the tree", "hinter den Baum"),
                )
            ),
        )
    elif kind == "drink":
        what = "milk" if noun.en == "cat" and d.chance(0.5) else "water"
        c = c._replace(verb=FRAMES["drink"].verb, accusative=noun_phrase(NOUNS[what], EMPTY))
    else:
        c = c._replace(verb=FRAMES["game"].verb, place=d.pick((WHERE["garden"], WHERE["park"])))
    if d.chance(0.4):
        c = c._replace(time=a_time(d, tense))
    return join(asked(c), end="?") if d.chance(0.2) else join(fronted(d, c))


@shape(1)
def weather(d: Dice) -> Pair:
    """It rained the whole day yesterday. Tomorrow it will be cold."""
    kind = d.pick(("rain", "snow", "state"))
    tense = d.pick(("progressive", "past", "future"))
    city = d.pick(CITIES)
    place = (f"in {city[0]}", f"in {city[1]}") if d.chance(0.8) else WHERE["mountains"]
    verb = {"rain": make_verb("rain", "regnen"), "snow": make_verb("snow", "schneien")}.get(
        kind, BE
    )
    if kind == "state":
        tense = d.pick(("past", "future"))
    c = Clause(
        subject=IT,
        verb=verb,
        tense=tense,
        place=place,
        time=a_time(d, tense) if tense != "progressive" or d.chance(0.7) else EMPTY,
    )
    if kind == "state":
        c = c._replace(
            complement=d.pick(
                (
                    ("very cold", "sehr kalt"),
                    ("warm", "warm"),
                    ("too hot", "zu heiß"),
                    ("cold", "kalt"),
                )
            )
        )
    return join(asked(c), end="?") if d.chance(0.2) else join(fronted(d, c))


# ---------------------------------------------------------------- the corpus


def _tokens(pair: Pair) -> list[Pair]:
    sides = (("en", pair[0]), ("de", pair[1]))
    return [(side, word) for side, text in sides for word in text[:-1].replace(",", "").split()]


@cache
def _corpus() -> dict[str, list[Pair]]:
    d = Dice(20170612)
    shapes = [build for weight, build in SHAPES for _ in range(weight)]
    pairs: list[Pair] = []
    seen: tuple[set[str], set[str]] = (set(), set())
    held_out = SIZES["valid"] + SIZES["test"]
    while len(pairs) < SIZES["train"] + 2 * held_out:
        pair = d.pick(shapes)(d)
        if pair[0] in seen[0] or pair[1] in seen[1] or len(pair[0].split()) > 22:
            continue
        for texts, text in zip(seen, pair, strict=True):
            texts.add(text)
        pairs.append(pair)
    train, rest = pairs[: SIZES["train"]], pairs[SIZES["train"] :]
    known = {token for pair in train for token in _tokens(pair)}
    rest = [pair for pair in rest if known.issuperset(_tokens(pair))]
    return {
        "train": train,
        "valid": rest[: SIZES["valid"]],
        "test": rest[SIZES["valid"] : held_out],
    }


def sample_pairs(split: str) -> list[Pair]:
    """The ``train``, ``valid`` or ``test`` pairs, (English, German), the same on every machine."""
    return list(_corpus()[split])
