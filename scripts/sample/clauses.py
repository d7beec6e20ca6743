"""Clauses: a meaning, realised by the rules of each language.

``Clause(she, call, "past", accusative=her brother, time=yesterday)`` is "she called her brother
yesterday" and "sie hat gestern ihren Bruder angerufen", or "... angerufen hat" behind weil.
"""

import re
from typing import NamedTuple

from sample.inflection import BE, HAVE, Verb, make_verb
from sample.phrases import EMPTY, Bilingual, Phrase


class Clause(NamedTuple):
    """One meaning; each language orders the parts by its own rules."""

    subject: Phrase
    verb: Verb
    tense: str = "present"
    negation: str = ""  # "", "nicht", or "kein" when the object already carries it
    reflexive: bool = False
    dative: Phrase | None = None
    accusative: Phrase | None = None
    complement: Bilingual = EMPTY
    manner: Bilingual = EMPTY
    place: Bilingual = EMPTY
    time: Bilingual = EMPTY
    frequency: Bilingual = EMPTY


# tense: English finite part ("": an ordinary verb), what follows it, German finite forms
_MODALS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "future": ("will", "", ("werde", "wirst", "wird", "werden")),
    "can": ("can", "", ("kann", "kannst", "kann", "können")),
    "could": ("could", "", ("konnte", "konntest", "konnte", "konnten")),
    "should": ("should", "", ("sollte", "solltest", "sollte", "sollten")),
    "would like": ("would", "like to", ("möchte", "möchtest", "möchte", "möchten")),
    "must": ("", "have to", ("muss", "musst", "muss", "müssen")),
    "had to": ("", "have to", ("musste", "musstest", "musste", "mussten")),
    "want": ("", "want to", ("will", "willst", "will", "wollen")),
    "wanted": ("", "want to", ("wollte", "wolltest", "wollte", "wollten")),
    "may": ("", "be allowed to", ("darf", "darfst", "darf", "dürfen")),
}
PAST_MODALS = ("could", "had to", "wanted")
_SEMI_MODALS = {"have": HAVE, "want": make_verb("want", "wollen"), "be": BE}
_PASSIVE = ("wurde", "wurdest", "wurde", "wurden")
_REFLEXIVE = ("mich", "dich", "sich", "uns")


def _text(*words: str) -> str:
    return " ".join(" ".join(words).split())


# ---------------------------------------------------------------- English


def _english_verb(verb: Verb, tense: str, person: int, periphrastic: bool) -> Bilingual:
    """The finite form, which precedes the subject in questions, and the rest of the verb."""
    be = ("am", "are", "is", "are")[person]
    was = ("was", "were", "was", "were")[person]
    if tense in _MODALS:
        finite, extra, _ = _MODALS[tense]
        if finite:
            return finite, f"{extra} {verb.en}"
        head, _, link = extra.partition(" ")
        past = "past" if tense in PAST_MODALS else "present"
        finite, rest = _english_verb(_SEMI_MODALS[head], past, person, periphrastic)
        return finite, f"{rest} {link} {verb.en}"
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


def _english_objects(c: Clause) -> list[str]:
    objects = [o.en_object for o in (c.dative, c.accusative) if o]
    return [*objects, c.complement[0], c.manner[0], c.place[0], c.time[0]]


def english(c: Clause, *, question: bool = False) -> str:
    """English order: subject, verb, objects, manner, place, time; with do-support where needed."""
    finite, rest = _english_verb(c.verb, c.tense, c.subject.person, question or bool(c.negation))
    head = [finite, c.subject.en] if question else [c.subject.en, finite]
    words = [*head, "not" if c.negation else "", c.frequency[0], rest, *_english_objects(c)]
    return _text(*words).replace("can not", "cannot")


# ---------------------------------------------------------------- German


def _german_verb(c: Clause, final: bool) -> Bilingual:
    """The finite form and the end of the clause: infinitive, participle or prefix."""
    person, verb = c.subject.person, c.verb
    if c.tense in _MODALS:
        return _MODALS[c.tense][2][person], verb.infinitive
    if c.tense == "passive":
        return _PASSIVE[person], verb.participle
    if c.tense == "past" and not verb.preterite:
        return (BE if verb.auxiliary == "sein" else HAVE).present[person], verb.participle
    past = verb.preterite if c.tense == "past" else None
    finite = (past or verb.present)[person]
    return (verb.prefix + finite, "") if final else (finite, verb.prefix)


def _german_reflexive(c: Clause) -> str:
    if not c.reflexive:
        return ""
    return "sich" if c.subject.role == "other" else _REFLEXIVE[c.subject.person]


def _german_middle(c: Clause) -> list[str]:
    """Pronouns and datives, time, persons, manner and place, things; nicht follows the objects."""
    acc, dat = c.accusative, c.dative
    pronouns = [acc.de.accusative] if acc and acc.is_pronoun else []
    pronouns += [dat.de.dative] if dat and dat.is_pronoun else []
    dative = dat.de.dative if dat and not dat.is_pronoun else ""
    noun = acc.de.accusative if acc and not acc.is_pronoun else ""
    when = [c.frequency[1], c.time[1]]
    if c.negation == "nicht":
        how = ["nicht", c.manner[1], c.place[1]]
        return [*pronouns, dative, noun, *when, *how, c.complement[1]]
    if acc and not acc.is_person:
        return [*pronouns, dative, *when, c.place[1], c.manner[1], noun, c.complement[1]]
    return [*pronouns, dative, *when, noun, c.manner[1], c.place[1], c.complement[1]]


def german(c: Clause, *, front: str = "", order: str = "second") -> str:
    """German order: the finite verb second (with ``front`` or the subject before it), first or
    final, the other verb forms at the end.
    """
    finite, rest = _german_verb(c, order == "final")
    subject, reflexive = c.subject.de.nominative, _german_reflexive(c)
    inner = [subject, reflexive] if c.subject.is_pronoun else [reflexive, subject]
    if order == "final":
        return _text(*inner, *_german_middle(c), rest, finite)
    head = [subject, finite, reflexive]
    if front or order == "first":
        head = [front, finite, *inner]
    return _text(*head, *_german_middle(c), rest)


# ---------------------------------------------------------------- both


def main(c: Clause, front: Bilingual = EMPTY) -> Bilingual:
    """A main clause, with an adverbial or "so" in front if given."""
    return _text(front[0], english(c)), german(c, front=front[1])


def asked(c: Clause, word: Bilingual = EMPTY) -> Bilingual:
    """A question, behind its question word if given."""
    en = _text(word[0], english(c, question=True))
    return en, german(c, front=word[1], order="second" if word[1] else "first")


def verb_first(c: Clause) -> Bilingual:
    """A main clause as it stands behind a subordinate one."""
    return english(c), german(c, order="first")


def sub(word: Bilingual, c: Clause) -> Bilingual:
    """A subordinate clause behind its conjunction or question word."""
    return f"{word[0]} {english(c)}", f", {word[1]} {german(c, order='final')}"


def _english_infinitive(c: Clause) -> str:
    return _text(c.verb.en, *_english_objects(c))


def to_do(c: Clause, um: str = "") -> Bilingual:
    """An infinitive clause: "to call Anna", "Anna anzurufen"."""
    german_infinitive = _text(um, _german_reflexive(c), *_german_middle(c), c.verb.zu)
    return f"to {_english_infinitive(c)}", f", {german_infinitive}"


def command(c: Clause) -> Bilingual:
    """An imperative: "call Anna", "ruf Anna an"."""
    en = f"{'do not' if c.negation else ''} {_english_infinitive(c)}"
    return en, _text(c.verb.imperative, *_german_middle(c), c.verb.prefix)


def let_us(c: Clause) -> Bilingual:
    """A suggestion: "let us go", "gehen wir"."""
    return f"let us {_english_infinitive(c)}", german(c._replace(tense="present"), order="first")


_CONTRACTIONS = {
    "in dem": "im",
    "an dem": "am",
    "zu dem": "zum",
    "zu der": "zur",
    "in das": "ins",
    "von dem": "vom",
}


def join(*parts: Bilingual, end: str = ".") -> Bilingual:
    """Put the parts together as one sentence of each language."""
    en, de = (" ".join(part[side] for part in parts) for side in (0, 1))
    de = re.sub(rf"\b({'|'.join(_CONTRACTIONS)})\b", lambda match: _CONTRACTIONS[match[0]], de)
    return _finish(en, end), _finish(de, end)


def _finish(text: str, end: str) -> str:
    """One space between words, one comma between clauses, a capital and the full stop."""
    text = re.sub(r"( *,)+ *", ", ", _text(text)).strip(", ")
    return text[0].upper() + text[1:] + end
