"""Word forms of both languages: the endings of articles, adjectives, nouns and verbs.

``make_verb("call", "an-rufen - gerufen")`` knows called, calling, rufst, angerufen, anzurufen.
"""

import re
from functools import cache
from typing import NamedTuple

NOMINATIVE, ACCUSATIVE, DATIVE, GENITIVE = CASES = range(4)

# The four cases of each gender, "p" being the plural.
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
_EIN_WORDS = ("ein", "kein", "mein", "dein", "sein", "ihr", "unser")
_DER_WORDS = ("der", "dies", "welch")
_STRONG_STEMS = ("viel", "wie viel")


def _bare(word: str, gender: str, case: int) -> bool:
    endingless = (gender, case) in {("m", NOMINATIVE), ("n", NOMINATIVE), ("n", ACCUSATIVE)}
    return word in _EIN_WORDS and endingless


def determiner(word: str, gender: str, case: int) -> str:
    """Decline an article, a possessive or a stem such as ``dies``; numbers stay as they are."""
    if word == "der":
        return _DEFINITE[gender][case]
    declined = word in (*_DER_WORDS, *_EIN_WORDS, *_STRONG_STEMS)
    return word + _STRONG[gender][case] if declined and not _bare(word, gender, case) else word


def adjective(stem: str, word: str, gender: str, case: int) -> str:
    """Decline an adjective: weak behind a determiner with an ending, else strong."""
    stem = "teur" if stem == "teuer" else stem
    if word in (*_DER_WORDS, *_EIN_WORDS) and not _bare(word, gender, case):
        weak_e = (case == NOMINATIVE and gender != "p") or (case == ACCUSATIVE and gender in "fn")
        return stem + ("e" if weak_e else "en")
    return stem + ("en" if case == GENITIVE and gender in "mn" else _STRONG[gender][case])


class Noun(NamedTuple):
    """One noun in both languages; ``n_declension`` marks der Student, den Studenten."""

    en: str
    en_plural: str
    de: str
    gender: str
    de_plural: str
    n_declension: bool

    @property
    def is_mass(self) -> bool:
        """Whether it cannot be counted: milk, money."""
        return self.de_plural == "-"

    def german(self, case: int, plural: bool) -> str:
        """The inflected German noun."""
        if plural or self.gender == "p":
            return self.de_plural + "n" * (case == DATIVE and self.de_plural[-1] not in "ns")
        if self.n_declension and case != NOMINATIVE:
            return self.de_plural
        if case == GENITIVE and self.gender in "mn":
            syllables = len(re.findall("[aeiouäöüy]+", self.de.lower()))
            return self.de + ("es" if syllables == 1 else "s")
        return self.de


# ---------------------------------------------------------------- English endings


def english_s(word: str) -> str:
    """Add the -s of plural nouns and third persons."""
    if word.endswith(("s", "x", "ch", "sh")):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


def article(following: str) -> str:
    """The English indefinite article before these words."""
    return "an" if following[0] in "aeiou" and not following.startswith("uni") else "a"


def english_comparative(adj: str) -> str:
    """Compare an adjective: bigger, nicer, funnier, more expensive."""
    if adj == "good":
        return "better"
    if adj.endswith("y") and len(adj) < 9:
        return adj[:-1] + "ier"
    if len(adj) > 6 or adj in ("modern", "famous", "polite"):
        return "more " + adj
    return adj + (adj[-1] if adj in ("big", "hot") else "") + ("r" if adj[-1] == "e" else "er")


_DOUBLED = ("run", "swim", "put", "forget", "get", "travel")
_IRREGULAR_THIRD = {"have": "has", "do": "does", "go": "goes"}


def _english_past(base: str) -> str:
    if base.endswith("e"):
        return base + "d"
    if base.endswith("y") and base[-2] not in "aeiou":
        return base[:-1] + "ied"
    return base + (base[-1] if base in _DOUBLED else "") + "ed"


# ---------------------------------------------------------------- verbs

# For ich, du, er, wir/sie; a verb with a preterite uses it instead of the perfect.
_IRREGULAR_PRESENT = {
    "sein": ("bin", "bist", "ist", "sind"),
    "haben": ("habe", "hast", "hat", "haben"),
    "wissen": ("weiß", "weißt", "weiß", "wissen"),
    "mögen": ("mag", "magst", "mag", "mögen"),
}
_PRETERITE = {
    "sein": ("war", "warst", "war", "waren"),
    "haben": ("hatte", "hattest", "hatte", "hatten"),
}


class Verb(NamedTuple):
    """One verb in both languages; ``present`` and ``preterite`` hold ich, du, er, wir/sie."""

    en: str
    en_past: str
    en_participle: str
    infinitive: str
    prefix: str
    present: tuple[str, ...]
    preterite: tuple[str, ...] | None
    participle: str
    auxiliary: str
    imperative: str

    @property
    def past_shows(self) -> bool:
        """Whether the English past differs: "they put" alone could be present, too."""
        return self.en_past != self.en

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
        elif head.endswith("e") and not head.endswith("ee"):
            head = head[:-1]
        return " ".join([head + "ing", *rest])

    @property
    def zu(self) -> str:
        """Infinitive with zu: "zu lesen", "anzurufen"."""
        if self.prefix:
            return f"{self.prefix}zu{self.infinitive.removeprefix(self.prefix)}"
        return f"zu {self.infinitive}"


_NEEDS_E = r"[td]$|([^lrhmnaeiouäöü]|ch)[mn]$"  # arbeit-et, öffn-et, but lern-t


def _conjugate(infinitive: str, third: str) -> tuple[str, ...]:
    stem = infinitive[:-2] if infinitive.endswith("en") else infinitive[:-1]
    third = third or stem + ("et" if re.search(_NEEDS_E, stem) else "t")
    second = third.removesuffix("t")
    return stem + "e", second + ("t" if second[-1] in "sßz" else "st"), third, infinitive


@cache
def make_verb(english: str, german: str) -> Verb:
    """Read a verb from its two columns in the lexicon, whose notation ``usage.py`` explains."""
    base, *irregular = english.split()
    head, *particle = base.split("_")
    past, en_participle = irregular or [_english_past(head)] * 2
    infinitive, third, participle = [*german.split(), "-", "-"][:3]
    prefix, _, infinitive = infinitive.rpartition("-")
    third = third.strip("-")
    present = _IRREGULAR_PRESENT.get(infinitive) or _conjugate(infinitive, third)
    imperative = present[0].removesuffix("e")
    if re.search(_NEEDS_E + "|er$", imperative):
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
        preterite=_PRETERITE.get(infinitive),
        participle=prefix + (participle.strip("-*") or "ge" + _conjugate(infinitive, "")[2]),
        auxiliary="sein" if participle.startswith("*") else "haben",
        imperative=imperative,
    )


BE = make_verb("be was been", "sein ist *gewesen")
HAVE = make_verb("have had had", "haben hat gehabt")
KNOW = make_verb("know knew known", "wissen weiß gewusst")
