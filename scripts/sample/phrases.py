"""Noun phrases and pronouns in all their forms.

``noun_phrase(NOUNS["dog"], A, ("old", "alt"))``: an old dog, ein alter Hund, einen alten Hund, ...
"""

from functools import cache
from typing import NamedTuple

from sample.inflection import CASES, Noun, adjective, article, determiner

Bilingual = tuple[str, str]
"""A text in English and in German."""

EMPTY: Bilingual = ("", "")
THE: Bilingual = ("the", "der")
THIS: Bilingual = ("this", "dies")
A: Bilingual = ("a", "ein")


class Cases(NamedTuple):
    """The German forms; pronouns leave out the genitive."""

    nominative: str
    accusative: str
    dative: str
    genitive: str = ""


class Phrase(NamedTuple):
    """A noun phrase or pronoun: English subject and object form, four German cases."""

    en: str
    en_object: str
    de: Cases
    person: int = 2  # row of the verb tables: I, you, he/she/it, we/they
    gender: str = "m"
    definite: bool = True
    is_pronoun: bool = False
    anaphor: str = ""  # the pronoun that refers back to it: a key of PRONOUNS
    noun: str = ""

    @property
    def is_person(self) -> bool:
        """Whether it names a human being."""
        return bool(self.anaphor) or self.noun in ("girl", "child")

    @property
    def again(self) -> "Phrase":
        """The pronoun for a person named before."""
        return PRONOUNS[self.anaphor]

    @property
    def possessive(self) -> Bilingual:
        """The possessive determiner of the person."""
        return POSSESSIVES.get(self.anaphor, THE)

    @property
    def role(self) -> str:
        """The speaker, the listener, or others; nobody of the same role is both subject and
        pronoun object.
        """
        return {"I": "speaker", "we": "speaker", "you": "listener"}.get(self.anaphor, "other")

    @property
    def relative(self) -> Cases:
        """The relative pronoun, as the subject and the object of its clause."""
        nominative, accusative, *_ = (determiner("der", self.gender, case) for case in CASES)
        return Cases(nominative, accusative, "")

    def extended(self, en: str, de: str) -> "Phrase":
        """The subject with an attribute behind it: "the train" + " to Paris"."""
        return self._replace(en=self.en + en, de=Cases(*[self.de.nominative + de] * 4))


def _pronoun(key: str, en_object: str, de: str, person: int, gender: str = "m") -> Phrase:
    forms = Cases(*de.split())
    return Phrase(key, en_object, forms, person, gender, is_pronoun=True, anaphor=key)


PRONOUNS = {
    "I": _pronoun("I", "me", "ich mich mir", 0),
    "you": _pronoun("you", "you", "du dich dir", 1),
    "he": _pronoun("he", "him", "er ihn ihm", 2),
    "she": _pronoun("she", "her", "sie sie ihr", 2, "f"),
    "we": _pronoun("we", "us", "wir uns uns", 3, "p"),
    "they": _pronoun("they", "them", "sie sie ihnen", 3, "p"),
}
POSSESSIVES: dict[str, Bilingual] = {
    "I": ("my", "mein"),
    "you": ("your", "dein"),
    "he": ("his", "sein"),
    "she": ("her", "ihr"),
    "we": ("our", "unser"),
    "they": ("their", "ihr"),
}
# "it" keeps the gender of the noun it stands for
IT = {
    "m": _pronoun("it", "it", "er ihn ihm", 2),
    "f": _pronoun("it", "it", "sie sie ihr", 2, "f"),
    "n": _pronoun("it", "it", "es es ihm", 2, "n"),
    "p": PRONOUNS["they"],
}
WHO = Phrase("who", "who", Cases("wer", "wen", "wem"), is_pronoun=True)
THAT = Phrase("that", "that", Cases("das", "das", "dem"), is_pronoun=True)


@cache
def noun_phrase(
    noun: Noun, word: Bilingual = THE, adj: Bilingual = EMPTY, *, plural: bool = False
) -> Phrase:
    """Determiner, adjective and noun; the English determiner "a" becomes "an" where it must."""
    plural = plural or noun.gender == "p"
    gender = "p" if plural else noun.gender
    rest = f"{adj[0]} {noun.en_plural if plural else noun.en}".strip()
    english_word = {"a": article(rest), "this": "these" if plural else "this"}.get(word[0], word[0])
    en = f"{english_word} {rest}".strip()
    forms = [
        (
            determiner(word[1], gender, case),
            adjective(adj[1], word[1], gender, case) if adj[1] else "",
            noun.german(case, plural),
        )
        for case in CASES
    ]
    de = Cases(*(" ".join(filter(None, words)) for words in forms))
    definite = word in (THE, THIS, *POSSESSIVES.values())
    return Phrase(en, en, de, 3 if plural else 2, gender, definite, noun=noun.en)


def person_phrase(
    noun: Noun, word: Bilingual, adj: Bilingual = EMPTY, *, plural: bool = False
) -> Phrase:
    """A noun phrase for a person; no pronoun refers back to das Mädchen or das Kind."""
    phrase = noun_phrase(noun, word, adj, plural=plural)
    anaphor = {"m": "he", "f": "she", "n": "", "p": "they"}[phrase.gender]
    return phrase._replace(anaphor=anaphor)


def name_phrase(name: str, pronoun: str) -> Phrase:
    """A first name and the pronoun that refers back to it."""
    forms = Cases(name, name, name, name + "s")
    return Phrase(name, name, forms, anaphor=pronoun, noun=name)
