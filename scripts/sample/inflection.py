"""Word forms of both languages: determiners, adjectives, nouns and verbs.

``make_verb("call", "an-rufen - gerufen")`` knows called, rufst, angerufen, anzurufen.
"""

import re
from typing import NamedTuple

NOMINATIVE, ACCUSATIVE, DATIVE = CASES = range(3)

# Endings of the three cases, for m(asculine), f(eminine), n(euter), and p(lural) nouns.
_GENDERS = "mfnp"
_STRONG = ("er e es e", "en e es e", "em er em en")
_WEAK = ("e e e en", "en e e en", "en en en en")
_DEFINITE = ("er ie as ie", "en ie as ie", "em er em en")  # of d-: articles, relative pronouns
_INDEFINITE = ("- e - e", "en e - e", "em er em en")
_DETERMINERS = dict.fromkeys(["ein", "kein", "mein", "dein", "sein", "ihr", "unser"], _INDEFINITE)
_DETERMINERS |= {"d": _DEFINITE, "dies": _STRONG}


def _ending(table: tuple[str, ...], gender: str, case: int) -> str:
    return table[case].split()[_GENDERS.index(gender)].strip("-")


def determiner(stem: str, gender: str, case: int) -> str:
    """Declines an article or possessive; numbers and "Annas" stay as they are."""
    return stem + (_ending(_DETERMINERS[stem], gender, case) if stem in _DETERMINERS else "")


def adjective(stem: str, word: str, gender: str, case: int) -> str:
    """Declines an adjective: weak behind a determiner that has an ending, else strong."""
    has_ending = determiner(word, gender, case) != word
    stem = "teur" if stem == "teuer" else stem
    return stem + _ending(_WEAK if has_ending else _STRONG, gender, case)


class Noun(NamedTuple):
    """A noun in both languages, and the adjectives that make sense with it."""

    en: str
    en_plural: str
    de: str
    gender: str
    de_plural: str  # "" if there is none, as for milk
    is_weak: bool  # der Student, den Studenten
    is_person: bool
    adjectives: list[tuple[str, str]]

    def german(self, case: int, plural: bool) -> str:
        """The inflected German noun."""
        if plural:
            return self.de_plural + "n" * (case == DATIVE and self.de_plural[-1] not in "ns")
        return self.de_plural if self.is_weak and case != NOMINATIVE else self.de


def english_s(word: str) -> str:
    """Adds the -s of plural nouns and third persons."""
    if word.endswith(("s", "x", "ch", "sh", "go", "do", "to")):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


class Verb(NamedTuple):
    """A verb in both languages; German finite forms are those of ich, du, er and wir."""

    en: str
    en_third: str
    en_past: str
    en_ing: str
    prefix: str
    infinitive: str
    zu: str  # zu lesen, anzurufen
    present: tuple[str, ...]
    preterite: tuple[str, ...]  # empty: the past is the perfect
    participle: str
    auxiliary: str


_DOUBLED = ("run", "swim", "forget", "travel")
_THIRD = {"be": "is", "have": "has", **{m: m for m in ("can", "should", "will", "would")}}
_PRESENT = {"sein": "bin bist ist sind", "werden": "werde wirst wird werden"}


def _second(form: str) -> str:
    return form + ("t" if form[-1] in "sßz" else "st")


def _conjugate(infinitive: str, third: str) -> tuple[str, ...]:
    if infinitive in _PRESENT:
        return tuple(_PRESENT[infinitive].split())
    if third and third[-1] != "t":  # ich kann, er kann; ich konnte, er konnte
        return third, _second(third), third, infinitive
    stem = re.sub("e?n$", "", infinitive)
    e = "e" if re.search("[td]$|[^lrhmnaeiouäöü][mn]$", stem) else ""  # arbeitet, öffnet; lernt
    third = third or f"{stem}{e}t"
    return f"{stem}e", _second(third.removesuffix("t")), third, infinitive


def make_verb(english: str, german: str) -> Verb:
    """Reads a verb from its two columns in the lexicon, which explains them."""
    base, *past = english.split()
    head, _, particle = base.partition("_")
    third = _THIRD.get(head) or english_s(head)
    stem = re.sub("(?<!e)e$", "", head) + (head[-1] if head in _DOUBLED else "")
    regular = third[:-1] + "d" if third.endswith("ies") else f"{stem}ed"
    forms = (head, third, past[0] if past else regular, f"{stem}ing")
    en, en_third, en_past, en_ing = (f"{f} {particle}".replace("_", " ").strip() for f in forms)

    infinitive, third, participle, preterite = [*german.split(), "-", "-", "-"][:4]
    prefix, _, bare = infinitive.rpartition("-")
    return Verb(
        en, en_third, en_past, en_ing, prefix, prefix + bare,
        zu=f"{prefix}zu{bare}" if prefix else f"zu {bare}",
        present=_conjugate(bare, third.strip("-")),
        preterite=_conjugate(preterite.rstrip("e") + "en", preterite) if preterite != "-" else (),
        participle=prefix + (participle.strip("-*") or f"ge{_conjugate(bare, '')[2]}"),
        auxiliary="sein" if participle.startswith("*") else "haben",
    )  # fmt: skip


BE = make_verb("be was", "sein ist *gewesen war")
HAVE = make_verb("have had", "haben hat gehabt")
