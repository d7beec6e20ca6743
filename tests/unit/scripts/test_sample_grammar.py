import re
from collections import Counter
from collections.abc import Callable

import pytest
from sample import corpus
from sample.clauses import (
    Clause,
    asked,
    english,
    german,
    join,
    main,
    sub,
    to_do,
)
from sample.phrases import EMPTY, PRONOUNS, Bilingual, noun_phrase
from sample.words import FRAMES, NOUNS

SPLITS = ("train", "valid", "test")

# One row per case, one column per gender (masculine, feminine, neuter, plural), typed by hand.
PARADIGMS = {
    "der": """
        der gute Mann | die gute Frau | das gute Kind | die guten Kinder
        den guten Mann | die gute Frau | das gute Kind | die guten Kinder
        dem guten Mann | der guten Frau | dem guten Kind | den guten Kindern
        des guten Mannes | der guten Frau | des guten Kindes | der guten Kinder
    """,
    "dies": """
        dieser gute Mann | diese gute Frau | dieses gute Kind | diese guten Kinder
        diesen guten Mann | diese gute Frau | dieses gute Kind | diese guten Kinder
        diesem guten Mann | dieser guten Frau | diesem guten Kind | diesen guten Kindern
        dieses guten Mannes | dieser guten Frau | dieses guten Kindes | dieser guten Kinder
    """,
    "kein": """
        kein guter Mann | keine gute Frau | kein gutes Kind | keine guten Kinder
        keinen guten Mann | keine gute Frau | kein gutes Kind | keine guten Kinder
        keinem guten Mann | keiner guten Frau | keinem guten Kind | keinen guten Kindern
        keines guten Mannes | keiner guten Frau | keines guten Kindes | keiner guten Kinder
    """,
    "unser": """
        unser guter Mann | unsere gute Frau | unser gutes Kind | unsere guten Kinder
        unseren guten Mann | unsere gute Frau | unser gutes Kind | unsere guten Kinder
        unserem guten Mann | unserer guten Frau | unserem guten Kind | unseren guten Kindern
        unseres guten Mannes | unserer guten Frau | unseres guten Kindes | unserer guten Kinder
    """,
    "": """
        guter Mann | gute Frau | gutes Kind | gute Kinder
        guten Mann | gute Frau | gutes Kind | gute Kinder
        gutem Mann | guter Frau | gutem Kind | guten Kindern
        guten Mannes | guter Frau | guten Kindes | guter Kinder
    """,
}


@pytest.mark.parametrize("word", PARADIGMS)
def test_noun_phrases_decline_as_in_a_grammar_book(word: str) -> None:
    nouns = [(NOUNS["man"], False), (NOUNS["woman"], False), (NOUNS["child"], False)]
    nouns.append((NOUNS["child"], True))
    phrases = [noun_phrase(n, ("x", word), ("good", "gut"), plural=p) for n, p in nouns]
    for case, row in enumerate(PARADIGMS[word].strip().splitlines()):
        assert [phrase.de[case] for phrase in phrases] == [c.strip() for c in row.split("|")]


@pytest.mark.parametrize(
    ("word", "forms"),
    [
        ("a", "ein teurer Hut, einen teuren Hut, einem teuren Hut, eines teuren Hutes"),
        ("two", "zwei teure Hüte, zwei teure Hüte, zwei teuren Hüten, zwei teurer Hüte"),
    ],
)
def test_ein_and_numbers_with_an_irregular_stem(word: str, forms: str) -> None:
    german = {"a": "ein", "two": "zwei"}[word]
    phrase = noun_phrase(NOUNS["hat"], (word, german), ("expensive", "teuer"), plural=word == "two")
    assert ", ".join(phrase.de) == forms


@pytest.mark.parametrize(
    ("noun", "plural", "forms"),
    [
        ("student", False, "Student Studenten Studenten Studenten"),
        ("boy", False, "Junge Jungen Jungen Jungen"),
        ("neighbour", False, "Nachbar Nachbarn Nachbarn Nachbarn"),
        ("bear", False, "Bär Bären Bären Bären"),
        ("brother", False, "Bruder Bruder Bruder Bruders"),
        ("brother", True, "Brüder Brüder Brüdern Brüder"),
        ("car", True, "Autos Autos Autos Autos"),
        ("teacher", True, "Lehrer Lehrer Lehrern Lehrer"),
        ("apple", True, "Äpfel Äpfel Äpfeln Äpfel"),
        ("girl", True, "Mädchen Mädchen Mädchen Mädchen"),
        ("daughter", True, "Töchter Töchter Töchtern Töchter"),
        ("parents", True, "Eltern Eltern Eltern Eltern"),
    ],
)
def test_nouns(noun: str, plural: bool, forms: str) -> None:
    assert " ".join(NOUNS[noun].german(case, plural) for case in range(4)) == forms


@pytest.mark.parametrize(
    ("key", "present", "participle", "zu", "imperative"),
    [
        ("read", "lese liest liest lesen", "gelesen", "zu lesen", "lies"),
        ("call", "rufe rufst ruft rufen", "angerufen", "anzurufen", "ruf"),
        ("invite", "lade lädst lädt laden", "eingeladen", "einzuladen", "lade"),
        ("tidy up", "räume räumst räumt räumen", "aufgeräumt", "aufzuräumen", "räum"),
        ("answer", "antworte antwortest antwortet antworten", "geantwortet", "zu antworten",
         "antworte"),
        ("open", "öffne öffnest öffnet öffnen", "geöffnet", "zu öffnen", "öffne"),
        ("draw", "zeichne zeichnest zeichnet zeichnen", "gezeichnet", "zu zeichnen", "zeichne"),
        ("feed", "füttere fütterst füttert füttern", "gefüttert", "zu füttern", "füttere"),
        ("repair", "repariere reparierst repariert reparieren", "repariert", "zu reparieren",
         "repariere"),
        ("close", "schließe schließt schließt schließen", "geschlossen", "zu schließen",
         "schließ"),
        ("eat", "esse isst isst essen", "gegessen", "zu essen", "iss"),
        ("help", "helfe hilfst hilft helfen", "geholfen", "zu helfen", "hilf"),
        ("wash", "wasche wäschst wäscht waschen", "gewaschen", "zu waschen", "wasch"),
        ("run", "laufe läufst läuft laufen", "gelaufen", "zu laufen", "lauf"),
        ("travel", "reise reist reist reisen", "gereist", "zu reisen", "reis"),
        ("visit", "besuche besuchst besucht besuchen", "besucht", "zu besuchen", "besuch"),
    ],
)  # fmt: skip
def test_german_verbs(key: str, present: str, participle: str, zu: str, imperative: str) -> None:
    verb = FRAMES[key].verb
    assert " ".join(verb.present) == present
    assert (verb.participle, verb.zu, verb.imperative) == (participle, zu, imperative)


def test_verbs_of_motion_and_change_take_sein() -> None:
    with_sein = {f.verb.infinitive for f in FRAMES.values() if f.verb.auxiliary == "sein"}
    expected = "gehen fliegen reisen laufen wandern schwimmen bleiben kommen ankommen"
    assert with_sein == {*expected.split(), "zurückkommen", "mitkommen"}


@pytest.mark.parametrize(
    ("key", "forms"),
    [
        ("carry", "carries carried carried carrying"),
        ("write", "writes wrote written writing"),
        ("run", "runs ran run running"),
        ("watch", "watches watched watched watching"),
        ("travel", "travels travelled travelled travelling"),
        ("turn off", "turns off turned off turned off turning off"),
        ("go", "goes went gone going"),
        ("tidy up", "tidies up tidied up tidied up tidying up"),
    ],
)
def test_english_verbs(key: str, forms: str) -> None:
    v = FRAMES[key].verb
    assert f"{v.en_third} {v.en_past} {v.en_participle} {v.en_ing}" == forms


@pytest.mark.parametrize(
    ("noun", "plural"),
    [
        ("child", "children"),
        ("city", "cities"),
        ("boy", "boys"),
        ("photo", "photos"),
        ("potato", "potatoes"),
        ("bus", "buses"),
        ("beach", "beaches"),
        ("scarf", "scarves"),
        ("cup of tea", "cups of tea"),
    ],
)
def test_english_plurals(noun: str, plural: str) -> None:
    assert NOUNS[noun].en_plural == plural


def test_word_order() -> None:
    clause = Clause(
        subject=PRONOUNS["she"],
        verb=FRAMES["call"].verb,
        tense="past",
        negation="nicht",
        accusative=noun_phrase(NOUNS["brother"], ("her", "ihr")),
        time=("yesterday", "gestern"),
    )
    assert english(clause) == "she did not call her brother yesterday"
    assert german(clause) == "sie hat ihren Bruder gestern nicht angerufen"
    assert german(clause, order="final") == "sie ihren Bruder gestern nicht angerufen hat"
    assert german(clause, front="deshalb").startswith("deshalb hat sie ihren Bruder")
    present = clause._replace(tense="present", negation="", time=EMPTY)
    assert german(present) == "sie ruft ihren Bruder an"
    assert german(present, order="final") == "sie ihren Bruder anruft"
    assert german(present._replace(tense="must")) == "sie muss ihren Bruder anrufen"
    assert english(present, question=True) == "does she call her brother"
    assert to_do(present) == ("to call her brother", ", ihren Bruder anzurufen")


@pytest.mark.parametrize(
    ("parts", "end", "en", "de"),
    [
        (lambda c: [main(c)], ".", "They look forward to the trip.",
         "Sie freuen sich auf die Reise."),
        (lambda c: [asked(c)], "?", "Do they look forward to the trip?",
         "Freuen sie sich auf die Reise?"),
        (lambda c: [("I hope", "ich hoffe"), sub(("that", "dass"), c)], ".",
         "I hope that they look forward to the trip.",
         "Ich hoffe, dass sie sich auf die Reise freuen."),
        (lambda c: [sub(("if", "wenn"), c), (", go", ", geh zu dem Arzt")], "!",
         "If they look forward to the trip, go!",
         "Wenn sie sich auf die Reise freuen, geh zum Arzt!"),
    ],
)  # fmt: skip
def test_clauses_are_joined_with_their_commas_and_reflexives(
    parts: Callable[[Clause], list[Bilingual]], end: str, en: str, de: str
) -> None:
    trip = ("to the trip", "auf die Reise")
    verb = FRAMES["look forward to"].verb._replace(en="look forward")
    clause = Clause(PRONOUNS["they"], verb, reflexive=True, complement=trip)
    assert join(*parts(clause), end=end) == (en, de)


def test_sizes_and_disjoint_splits() -> None:
    pairs = {split: corpus.sample_pairs(split) for split in SPLITS}
    assert {s: len(p) for s, p in pairs.items()} == {"train": 40_000, "valid": 500, "test": 1_000}
    everything = [pair for split in SPLITS for pair in pairs[split]]
    for side in (0, 1):
        assert len({pair[side] for pair in everything}) == len(everything)


def test_every_held_out_word_occurs_in_train() -> None:
    def words(split: str, side: int) -> Counter[str]:
        return Counter(
            re.findall(r"[\w'-]+", " ".join(p[side] for p in corpus.sample_pairs(split)))
        )

    for side in (0, 1):
        train = words("train", side)
        assert 500 < len(train) < 2_500
        for split in ("valid", "test"):
            assert not set(words(split, side)) - set(train)


def test_text_is_clean_and_of_textbook_length() -> None:
    pattern = re.compile(
        r"[A-ZÄÖÜ][A-Za-zÄÖÜäöüßé']*([ -]|, |[A-Za-zÄÖÜäöüßé'])*[a-zA-Zäöüßé][.?!]"
    )
    for split in SPLITS:
        for pair in corpus.sample_pairs(split):
            for text in pair:
                assert pattern.fullmatch(text), text
                assert "  " not in text, text
                assert " ," not in text, text
            assert pair[0][-1] == pair[1][-1], pair
    lengths = sorted(len(en.split()) for en, _ in corpus.sample_pairs("train"))
    assert lengths[0] >= 2
    assert lengths[-1] <= 22
    assert 7 <= lengths[len(lengths) // 2] <= 11
    assert lengths[len(lengths) * 95 // 100] >= 13


# Every finite form a subordinate clause may end with, typed by hand where the forms are few.
FINITE = """
bin bist ist sind war warst waren habe hast hat haben hatte hattest hatten werde wirst wird
werden wurde wurden kann kannst können konnte konntest konnten muss musst müssen musste musstest
mussten will willst wollen wollte wolltest wollten darf darfst dürfen möchte möchtest möchten
sollte solltest sollten regnet schneit scheint abfährt aufstehe aufstehst aufsteht aufstehen
beginnt wohnt ankommt zurückkomme zurückkommst zurückkommt zurückkommen
"""


_SUBORDINATE = re.compile(r"\b(weil|dass|ob|obwohl|wenn|als|warum) ([^,.?!]+)[,.?!]", re.I)


def test_subordinate_clauses_end_with_their_finite_verb() -> None:
    lexical = set(FINITE.split())
    lexical |= {f.verb.prefix + form for f in FRAMES.values() for form in f.verb.present}
    found = Counter[str]()
    for _, de in corpus.sample_pairs("train"):
        for match in _SUBORDINATE.finditer(de):
            conjunction = match[1].lower()
            if match[1] in ("als", "Warum"):
                continue  # a comparison; a direct question
            assert match[2].split()[-1] in lexical, de
            found[conjunction] += 1
    assert all(found[word] > 100 for word in ("weil", "dass", "ob", "obwohl", "wenn", "als"))


def test_a_comma_stands_before_every_subordinating_conjunction() -> None:
    for _, de in corpus.sample_pairs("train"):
        assert not re.search(r"[^,] (weil|dass|ob|obwohl|wenn)\b", de), de


def test_prepositions_govern_their_case_and_contract() -> None:
    text = "\n".join(de for _, de in corpus.sample_pairs("train"))
    assert not re.search(r"\b(in dem|an dem|zu dem|zu der|in das|von dem)\b", text)
    own = "(mein|dein|sein|ihr|unser)"
    assert not re.search(rf"\b(mit|von|aus|seit|zu) (die|das|eine?|{own}e?)\b", text)
    assert not re.search(rf"\b(durch|für) (der|dem|einem|{own}(em|er))\b", text)
    assert len(re.findall(r"\b(im|am|zum|zur|ins|vom)\b", text)) > 5_000


def test_english_articles_agree_with_the_sound() -> None:
    text = " ".join(en for en, _ in corpus.sample_pairs("train")).lower()
    assert not re.search(r"\ba [aeio]|\ban (?!hour)[^aeiou]", text)
    assert not re.search(r"\bthis \w+s (are|were)\b", text)


@pytest.mark.parametrize("split", ["validation", "Train", ""])
def test_an_unknown_split_is_rejected_with_the_known_ones(split: str) -> None:
    with pytest.raises(ValueError, match="train, valid or test"):
        corpus.sample_pairs(split)


def test_they_put_is_never_left_between_present_and_past() -> None:
    past = re.compile(r"yesterday|this morning|on (Mon|Tues|Wednes|Thurs|Satur)day\b|ago|last week")
    statement = re.compile(r"(They|.+ (that|whether|when|where|why) they) put ")
    told = [en for en, _ in corpus.sample_pairs("train") if statement.match(en)]
    assert told
    assert not [en for en in told if not past.search(en)]


def test_callers_cannot_change_the_corpus() -> None:
    first = corpus.sample_pairs("valid")
    first.clear()
    assert len(corpus.sample_pairs("valid")) == 500


@pytest.mark.parametrize("split", SPLITS)
def test_the_shipped_text_is_what_the_grammar_generates(split: str) -> None:
    from support.sample import sample_pairs

    assert sample_pairs(split) == corpus.sample_pairs(split)
