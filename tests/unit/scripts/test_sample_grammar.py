"""The grammar of the built-in sample, against forms and rules that are typed by hand here."""

import re
from collections import Counter

import pytest
from sample import corpus
from sample.grammar import EMPTY, PRONOUNS, Clause, asked, english, german, join, main, sub, to_do
from sample.grammar import noun_phrase as phrase
from sample.words import FRAMES, NOUNS, PLANS, TENSES
from support.sample import sample_pairs

PAIRS = {split: sample_pairs(split) for split in corpus.SIZES}  # the shipped text
TRAIN = PAIRS["train"]
VERBS = {verb.infinitive: verb for verb in (*(frame.verb for frame in FRAMES), *PLANS)}

# Masculine, feminine, neuter and plural in the nominative, accusative and dative.
PARADIGMS = {
    "d": """der gute Hut | die gute Uhr | das gute Buch | die guten Bücher
        den guten Hut | die gute Uhr | das gute Buch | die guten Bücher
        dem guten Hut | der guten Uhr | dem guten Buch | den guten Büchern""",
    "unser": """unser guter Hut | unsere gute Uhr | unser gutes Buch | unsere guten Bücher
        unseren guten Hut | unsere gute Uhr | unser gutes Buch | unsere guten Bücher
        unserem guten Hut | unserer guten Uhr | unserem guten Buch | unseren guten Büchern""",
    "": """guter Hut | gute Uhr | gutes Buch | gute Bücher
        guten Hut | gute Uhr | gutes Buch | gute Bücher
        gutem Hut | guter Uhr | gutem Buch | guten Büchern""",
}


@pytest.mark.parametrize("word", PARADIGMS)
def test_noun_phrases_decline_as_in_a_grammar_book(word: str) -> None:
    nouns = (("hat", False), ("clock", False), ("book", False), ("book", True))
    phrases = [phrase(NOUNS[en], ("", word), ("good", "gut"), plural=p) for en, p in nouns]
    for case, row in enumerate(PARADIGMS[word].splitlines()):
        assert [phrase.de[case] for phrase in phrases] == [c.strip() for c in row.split("|")]


def test_irregular_nouns_and_adjectives() -> None:
    assert phrase(NOUNS["student"]).de == ("der Student", "den Studenten", "dem Studenten")
    datives = [phrase(NOUNS[en], plural=True).de[2] for en in ("brother", "car", "boy", "children")]
    assert datives == ["den Brüdern", "den Autos", "den Jungen", "den Kindern"]
    hat = phrase(NOUNS["hat"], ("a", "ein"), ("expensive", "teuer"))
    assert hat.de == ("ein teurer Hut", "einen teuren Hut", "einem teuren Hut")
    plurals = [NOUNS[n].en_plural for n in ("man", "children", "tomato", "knife", "church", "key")]
    assert plurals == ["men", "children", "tomatoes", "knives", "churches", "keys"]


GERMAN = """
    lese liest liest lesen, gelesen, zu lesen; esse isst isst essen, gegessen, zu essen;
    rufe rufst ruft rufen, angerufen, anzurufen; öffne öffnest öffnet öffnen, geöffnet, zu öffnen;
    lade lädst lädt laden, eingeladen, einzuladen; mag magst mag mögen, gemocht, zu mögen;
    räume räumst räumt räumen, aufgeräumt, aufzuräumen;
    füttere fütterst füttert füttern, gefüttert, zu füttern;
    arbeite arbeitest arbeitet arbeiten, gearbeitet, zu arbeiten;
    repariere reparierst repariert reparieren, repariert, zu reparieren;
    schließe schließt schließt schließen, geschlossen, zu schließen
"""
ENGLISH = """
    carry carries carried carrying; write writes wrote writing; run runs ran running;
    travel travels travelled travelling; go goes went going; try tries tried trying;
    tidy up tidies up tidied up tidying up
"""
MODAL = """
    will: werde wirst wird werden; should: sollte solltest sollte sollten;
    can: kann kannst kann können; could: konnte konntest konnte konnten;
    have to: muss musst muss müssen; had to: musste musstest musste mussten;
    want to: will willst will wollen; would like to: möchte möchtest möchte möchten
"""


def test_verb_forms() -> None:
    verbs = {verb.zu: verb for verb in VERBS.values()}
    for present, participle, zu in (row.strip().split(", ") for row in GERMAN.split(";")):
        assert (" ".join(verbs[zu].present), verbs[zu].participle) == (present, participle)
    english_forms = {" ".join(verb[:4]) for verb in VERBS.values()}
    assert english_forms >= {row.strip() for row in ENGLISH.split(";")}
    with_sein = {name for name, verb in VERBS.items() if verb.auxiliary == "sein"}
    assert with_sein == {"gehen", "fahren", "laufen", "schwimmen", "bleiben", "zurückkommen"}
    for told, forms in (row.split(":") for row in MODAL.split(";")):
        tense, modal = TENSES[told.strip()]
        assert " ".join(modal.preterite if tense == "past" else modal.present) == forms.strip()


def test_word_order() -> None:
    brother, yesterday = phrase(NOUNS["brother"], ("her", "ihr")), ("yesterday", "gestern")
    c = Clause(PRONOUNS["she"], VERBS["anrufen"], "past", time=yesterday)
    c = c._replace(negation="nicht", object=brother)
    assert english(c) == "she did not call her brother yesterday"
    assert german(c, order="final") == "sie ihren Bruder gestern nicht angerufen hat"
    c = c._replace(negation="", time=EMPTY)
    assert main(c, yesterday)[1] == "gestern hat sie ihren Bruder angerufen"
    c = c._replace(tense="present")
    assert join(asked(c), end="?") == ("Does she call her brother?", "Ruft sie ihren Bruder an?")
    assert sub(("if", "wenn"), c)[1] == ", wenn sie ihren Bruder anruft"
    assert german(c._replace(modal=TENSES["can"][1])) == "sie kann ihren Bruder anrufen"
    assert to_do(c) == ("to call her brother", ", ihren Bruder anzurufen")
    far, by_train = ("to Berlin", "nach Berlin"), ("by train", "mit dem Zug")
    c = Clause(PRONOUNS["I"], VERBS["fahren"], "past", None, "", None, None, far, by_train)
    assert german(c, front="gestern") == "gestern bin ich mit dem Zug nach Berlin gefahren"
    assert english(c) == "I travelled to Berlin by train"


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
