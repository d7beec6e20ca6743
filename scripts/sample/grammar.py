"""Phrases and clauses: a meaning, and how each language puts it into words.

``Clause(she, call, "past", object=her brother, time=yesterday)`` is "she called her brother
yesterday" and "sie hat gestern ihren Bruder angerufen", or "... angerufen hat" behind weil.
"""

import re
from typing import NamedTuple

from sample import lexicon
from sample.inflection import ACCUSATIVE, BE, CASES, DATIVE, HAVE, Noun, Verb, adjective, determiner

Bilingual = tuple[str, str]  # English and German

EMPTY: Bilingual = ("", "")
THE: Bilingual = ("the", "d")
THIS: Bilingual = ("this", "dies")
A: Bilingual = ("a", "ein")


class Phrase(NamedTuple):
    """A noun phrase, name or pronoun."""

    en: str
    en_object: str
    de: tuple[str, ...]  # in the three cases
    person: int  # the row of verb tables: I, you, he/she/it, we/they
    possessive: Bilingual
    pronoun: str  # the English pronoun of this person
    is_pronoun: bool = False
    noun: Noun | None = None
    gender: str = "m"

    @property
    def is_person(self) -> bool:
        """Whether this is a human being."""
        return not self.noun or self.noun.is_person


def _pronoun(row: str) -> Phrase:
    (en, en_object, en_own), (*de, de_own), (person,) = (words.split() for words in row.split("|"))
    return Phrase(en, en_object, tuple(de), int(person), (en_own, de_own), en, is_pronoun=True)


PRONOUNS = {p.pronoun: p for p in map(_pronoun, lexicon.PRONOUNS.strip().splitlines())}
WHO = Phrase("who", "who", ("wer", "wen", "wem"), 2, THE, "who", is_pronoun=True)


def noun_phrase(
    noun: Noun, word: Bilingual = THE, adj: Bilingual = EMPTY, *, plural: bool = False
) -> Phrase:
    """Determiner, adjective and noun: an old dog, ein alter Hund, einen alten Hund, ..."""
    plural = plural or noun.gender == "p"
    gender = "p" if plural else noun.gender
    english = "these" if plural and word == THIS else word[0]
    en = _text(english, adj[0], noun.en_plural if plural else noun.en)
    de = tuple(
        _text(
            determiner(word[1], gender, case),
            adjective(adj[1], word[1], gender, case) if adj[1] else "",
            noun.german(case, plural),
        )
        for case in CASES
    )
    like = PRONOUNS[{"f": "she", "p": "they"}.get(gender, "he")]
    return like._replace(en=en, en_object=en, de=de, is_pronoun=False, noun=noun, gender=gender)


def pairs(text: str) -> list[Bilingual]:
    """The entries of a list of English=German."""
    entries = (entry.strip().replace("_", " ").split("=") for entry in text.split(","))
    return [(en, de) for en, de in entries]


def _text(*words: str) -> str:
    return " ".join(" ".join(words).split())


class Clause(NamedTuple):
    """One meaning; each language orders the parts by its own rules."""

    subject: Phrase
    verb: Verb
    tense: str = "present"  # or progressive or past
    modal: Verb | None = None
    negation: str = ""  # "nicht", or "kein" if the object carries it
    dative: Phrase | None = None
    object: Phrase | None = None
    complement: Bilingual = EMPTY
    manner: Bilingual = EMPTY
    place: Bilingual = EMPTY
    time: Bilingual = EMPTY


def _english_verb(c: Clause, inverted: bool) -> Bilingual:
    """The finite form, which precedes the subject in questions, and the rest of the verb."""
    head, is_past, is_third = c.modal or c.verb, c.tense == "past", c.subject.person == 2
    rest = c.verb.en if c.modal else ""
    if head is BE or c.tense == "progressive":
        forms = "was were was were" if is_past else "am are is are"
        return forms.split()[c.subject.person], "" if head is BE else c.verb.en_ing
    finite = head.en_past if is_past else head.en_third if is_third else head.en
    first, _, more = finite.partition(" ")
    if first in ("will", "can", "could", "should", "would"):
        return first, f"{more} {rest}"
    if inverted or c.negation:
        return "did" if is_past else "does" if is_third else "do", f"{head.en} {rest}"
    return "", f"{finite} {rest}"


def _english_end(c: Clause) -> str:
    objects = [o.en_object for o in (c.dative, c.object) if o]
    return _text(*objects, c.complement[0], c.manner[0], c.place[0], c.time[0])


def english(c: Clause, *, question: bool = False) -> str:
    """English order: subject, verb, objects, manner, place, time; with do-support where needed."""
    finite, rest = _english_verb(c, question)
    head = [finite, c.subject.en] if question else [c.subject.en, finite]
    negation = "not" if c.negation else ""
    return _text(*head, negation, rest, _english_end(c)).replace("can not", "cannot")


def _german_verb(c: Clause) -> tuple[str, str, str]:
    """A separable prefix, the finite form, and the infinitive or participle at the end."""
    person, head = c.subject.person, c.modal or c.verb
    if c.tense == "past" and not head.preterite:
        auxiliary = BE if c.verb.auxiliary == "sein" else HAVE
        return "", auxiliary.present[person], c.verb.participle
    finite = (head.preterite if c.tense == "past" else head.present)[person]
    return ("", finite, c.verb.infinitive) if c.modal else (c.verb.prefix, finite, "")


def _german_middle(c: Clause) -> str:
    """Pronouns, time, persons, manner and place, things; nicht follows time and objects."""
    nouns = [(c.dative, DATIVE), (c.object, ACCUSATIVE)]
    pronouns = [o.de[case] for o, case in reversed(nouns) if o and o.is_pronoun]
    people = [o.de[case] for o, case in nouns if o and not o.is_pronoun and o.is_person]
    things = [o.de[case] for o, case in nouns if o and not o.is_pronoun and not o.is_person]
    time = "gerade" if c.tense == "progressive" else c.time[1]
    how = [c.manner[1], c.place[1]]
    if c.negation == "nicht":
        return _text(*pronouns, *people, *things, time, "nicht", *how, c.complement[1])
    return _text(*pronouns, time, *people, *how, *things, c.complement[1])


def german(c: Clause, *, front: str = "", order: str = "second") -> str:
    """German order: the finite verb first, second or final, the other verb forms at the end."""
    prefix, finite, end = _german_verb(c)
    subject, middle = c.subject.de[0], _german_middle(c)
    if order == "final":
        return _text(subject, middle, end, prefix + finite)
    head = [front, finite, subject] if front or order == "first" else [subject, finite]
    return _text(*head, middle, end, prefix)


def main(c: Clause, front: Bilingual = EMPTY) -> Bilingual:
    """A main clause, behind an adverbial or a subordinate clause if given."""
    return f"{front[0]} {english(c)}", german(c, front=front[1])


def asked(c: Clause, word: Bilingual = EMPTY) -> Bilingual:
    """A question, behind its question word if given."""
    en = f"{word[0]} {english(c, question=True)}"
    return en, german(c, front=word[1], order="second" if word[1] else "first")


def sub(word: Bilingual, c: Clause) -> Bilingual:
    """A subordinate clause behind its conjunction, question word or relative pronoun."""
    return f"{word[0]} {english(c)}", f", {word[1]} {german(c, order='final')}"


def to_do(c: Clause) -> Bilingual:
    """An infinitive clause: "to call Anna", "Anna anzurufen"."""
    return f"to {c.verb.en} {_english_end(c)}", f", {_german_middle(c)} {c.verb.zu}"


def join(*parts: Bilingual, end: str = ".") -> Bilingual:
    """Puts the parts together as one sentence of each language."""
    en, de = (_text(*(part[side] for part in parts)) for side in (0, 1))
    en, de = (re.sub(r"( *,)+ *", ", ", text).strip(", ") for text in (en, de))
    en = re.sub(r"\ba (?=[aeiou])", "an ", en)
    return en[0].upper() + en[1:] + end, de[0].upper() + de[1:] + end
