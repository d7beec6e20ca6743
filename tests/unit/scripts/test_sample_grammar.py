"""The grammar of the built-in sample, against forms and rules that are typed by hand here."""

import re
from collections import Counter

import pytest
from sample import corpus
from sample.words import FRAMES, PLANS, TENSES
from support.sample import sample_pairs

PAIRS = {split: sample_pairs(split) for split in corpus.SIZES}  # the shipped text
TRAIN = PAIRS["train"]
VERBS = {verb.infinitive: verb for verb in (*(frame.verb for frame in FRAMES), *PLANS)}


def test_sizes_lengths_and_disjoint_splits() -> None:
    assert {s: len(pairs) for s, pairs in PAIRS.items()} == corpus.SIZES
    for side in (0, 1):
        texts = [pair[side] for pairs in PAIRS.values() for pair in pairs]
        assert len(set(texts)) == len(texts)
        words = {s: set(re.findall(r"[\w'-]+", " ".join(p[side] for p in PAIRS[s]))) for s in PAIRS}
        assert 500 < len(words["train"]) < 1_500
        assert words["valid"] | words["test"] <= words["train"]
    is_text = re.compile(r"[A-ZÄÖÜ][\wé']*([ -]|, |[\w'])*\w[.?]").fullmatch
    assert all(is_text(en) and is_text(de) and en[-1] == de[-1] for en, de in TRAIN)
    assert {4, 8, 12, 16} <= {len(en.split()) for en, _ in TRAIN} <= {*range(4, 17)}


# Determiners, and endings of the adjective behind them, that a noun may have: typed by hand.
AGREEMENT = {
    "Hut": "der e, dieser e, ein er, kein er, mein er, den en, diesen en, einen en, keinen en, "
    "meinen en, dem en, diesem en, einem en, meinem en",
    "Lampe": "die e, diese e, eine e, keine e, meine e, der en, dieser en, einer en, meiner en",
    "Auto": "das e, dieses e, ein es, kein es, mein es, dem en, diesem en, einem en, meinem en",
    "Bücher": "die en, diese en, keine en, meine en, zwei e, drei e, vier e, fünf e",
}
DETERMINERS = {row.split()[0] for rows in AGREEMENT.values() for row in rows.split(", ")}


@pytest.mark.parametrize("noun", AGREEMENT)
def test_determiners_and_adjectives_agree_in_the_corpus(noun: str) -> None:
    text = " ".join(re.sub(r"\b([ds]ein|unser)(e[mnr]?)?\b", r"mein\2", de) for _, de in TRAIN)
    adjectives = "neu|alt|klein|groß|schön|billig|teur|langweilig|interessant|schnell|rot|blau"
    found = re.findall(rf"(?<!,) (\w+) (?:{adjectives})(e\w?) {noun}\b", text)
    used = {f"{word} {ending}" for word, ending in found if word in DETERMINERS}
    assert len(used) > 2
    assert used <= set(AGREEMENT[noun].split(", "))


def test_subordinate_clauses_follow_a_comma_and_end_with_their_finite_verb() -> None:
    infinitives = tuple(f" {verb.zu}" for verb in VERBS.values())
    finite = {*re.findall(r"\w+", "bin bist ist sind habe hast hat haben war warst waren")}
    finite |= {verb.prefix + form for verb in VERBS.values() for form in verb.present}
    finite |= {form for _, m in TENSES.values() if m for form in (*m.present, *m.preterite)}
    found = Counter[str]()
    words = "weil|dass|ob|obwohl|wenn|wann|wo|warum|der|den|die|das"
    for word, clause in re.findall(rf", ({words}) ([^,.?]+)", "\n".join(de for _, de in TRAIN)):
        if not clause.endswith(infinitives):  # an infinitive clause that begins with an article
            assert clause.split()[-1] in finite, clause
            found[word] += 1
    assert all(found[word] > 100 for word in words.split("|"))
    assert not [de for _, de in TRAIN if re.search(r"[^,] (weil|dass|ob|obwohl|wenn)\b", de)]


def test_perfect_is_with_sein_or_haben() -> None:
    motion = re.compile(r"\b\w*ge(gangen|fahren|laufen|schwommen|blieben|kommen)\b")
    other = re.compile(r"\b\w*ge(kauft|sehen|lesen|rufen|räumt|macht|schrieben|holfen)\b")
    for pattern, auxiliary in ((motion, "bin|bist|ist|sind"), (other, "habe|hast|hat|haben")):
        told = [de for _, de in TRAIN if pattern.search(de)]
        assert len(told) > 500
        assert not [de for de in told if not re.search(rf"\b({auxiliary})\b", de, re.I)]


def test_one_german_form_for_each_english_one() -> None:
    forms = "|".join(verb.en_ing.split()[0] for verb in VERBS.values())
    progressive = re.compile(rf"\b([Aa]m|[Aa]re|[Ii]s)\b[^,]* ({forms})\b")
    past = re.compile(r"\b(did|was|were|yesterday|this morning|ago|last week|on \w+day)\b", re.I)
    for en, de in TRAIN:
        assert "gelesen" not in de or past.search(en), en  # "they read" alone is the present
        assert ("gerade" in de) == bool(progressive.search(en)), (en, de)
        assert len(re.findall(r"not\b", en)) == len(re.findall(r"\b(?:nicht|kein\w*)\b", de)), en


def test_articles_persons_and_contractions() -> None:
    en, de = ("\n".join(pair[side] for pair in TRAIN) for side in (0, 1))
    assert not re.search(r"\b[Aa] [aeiou]|\b[Aa]n [^aeiou]|^These \w+ (is|was)", en, re.M)
    assert not re.search(r"\b(He|She) (do|have|are|were|want)\b|\bThey (is|was|has)\b", en)
    assert not re.search(r"\b(in dem|an dem|zu dem|zu der|in das|von dem)\b", de)


def test_the_shipped_text_is_what_the_grammar_generates() -> None:
    assert {split: corpus.sample_pairs(split) for split in corpus.SIZES} == PAIRS
