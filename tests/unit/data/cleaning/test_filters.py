"""Each filter on handmade pairs, on both sides of its threshold."""

import sys
from typing import Any

import pytest
from support.errors import input_error

from transformer_mt.config import CleaningConfig
from transformer_mt.data.cleaning import filters
from transformer_mt.data.cleaning.filters import SideFilter

GOOD = [
    ("He said, no, no, no!", "Er sagte: „Nein, nein, nein!“"),
    ("It costs €1,000,000 (≈ £860,000).", "Es kostet 1 000 000 € (≈ 860.000 £)."),
    ("AT&T, R&D and Q&A; that's all.", "AT&T, F&E und Fragen & Antworten; das ist alles."),
    ("Write to <jane@example.org> if x < y and y > z.", "An <jane@example.org>, wenn x < y."),
    ("Mr. Müller's café naïvely opened at 10.30.", "Herrn Müllers Café öffnete um 10.30 Uhr."),
    ("The Rindfleischetikettierungsgesetz is long.", "Rindfleischetikettierungsgesetz ist lang."),
    ("She lives in Москва.", "Sie lebt in Москва."),
    ("Hi.", "Hallo."),
    ("I am.", "Ich bin es."),
    ("That that is, is.", "Dass das das ist, das ist das Gute."),
    ("1,234 °C", "1.234 Grad Celsius"),
]


def made(make: Any, lang: str = "en", **settings: Any) -> SideFilter:
    """The filter of these settings and this language."""
    test: SideFilter = make(CleaningConfig(**settings), lang)
    return test


def standard(lang: str) -> dict[str, SideFilter]:
    """The filters of one side with the thresholds of ``cleaning=standard``."""
    return {
        "garbled": filters.garbled,
        "markup": filters.markup,
        "repetitive": filters.repetitive,
        "word length": made(filters.word_length, lang),
        "script": made(filters.wrong_script, lang, min_script_share=0.5),
    }


@pytest.mark.parametrize("name", standard("en"))
def test_good_pairs_stay(name: str) -> None:
    for lang in ("en", "de"):
        drops = standard(lang)[name]
        assert [text for pair in GOOD for text in pair if drops(text)] == []
    assert [pair for pair in GOOD if filters.identical(*pair)] == []
    assert [pair for pair in GOOD if filters.digit_mismatch(*pair)] == []


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("garbled", "a bell\x07 rings", True),
        ("garbled", "lost \ufffd letters", True),
        ("garbled", "a bullet \uf0b7 of a symbol font", True),
        ("garbled", "it\x92s Windows-1252", True),
        ("garbled", "fÃ¼r mich", True),  # "für".encode().decode("cp1252")
        ("garbled", "â€œquotedâ€\x9d", True),
        ("garbled", "20 Â°C", True),
        ("garbled", "IRMÃO, MAÇÃ, AMANHÃ E Â", False),  # Portuguese capitals
        ("garbled", "a\ttab, a\xa0no-break space, a smile 😀, क्‍ष", False),
        ("markup", "a <b>bold</b> word", True),
        ("markup", 'see <a href="x.html">here', True),
        ("markup", "< p > tokenised < / p >", True),
        ("markup", "escaped &lt;br /&gt; too", True),
        ("markup", "<!-- unseen -->", True),
        ("markup", "no&nbsp;break", True),
        ("markup", "it&#8217;s", True),
        ("markup", "it &apos;s &quot; Moses &quot; &amp; &#91; co &#93; &#124; a &lt; b", False),
        ("markup", "copy <file> to <b@example.org>", False),
        ("markup", "if a < b and c > d; Q&A; R&D, I <3 you", False),
        ("word length", "a bc", False),
        ("word length", "a b", True),
        ("word length", "a" * 20, False),
        ("word length", "a" * 21, True),
        ("word length", "a" * 37 + " bbb", False),
        ("repetitive", "Chapter " + "." * 9, False),
        ("repetitive", "Chapter " + "." * 10 + " 12", True),
        ("repetitive", "中" * 10, True),
        ("repetitive", ". " * 20, False),
    ],
)
def test_filters_of_one_side(name: str, text: str, expected: bool) -> None:
    assert standard("en")[name](text) is expected


@pytest.mark.parametrize(
    ("src", "tgt", "expected"),
    [
        ("The same.", "  THE SAME !", True),
        ("- " * 40 + "the same", "The same", True),
        (" „Straße“, 5-A!\t", "STRASSE 5A", True),
        ("Été", "Ete", False),
        ("", "...", True),
        ("x" * 40 + " a", "x" * 40 + " b", False),
        ("Version 1", "Version 2", False),
        ("की", "का", False),  # only the vowel signs differ
    ],
)
def test_identical(src: str, tgt: str, expected: bool) -> None:
    assert filters.identical(src, tgt) is expected
    assert filters.identical(tgt, src) is expected


@pytest.mark.parametrize(
    ("src", "tgt", "expected"),
    [
        ("It costs $1,234.50.", "Es kostet 1.234,50 $.", False),
        ("10,000 or 10000", "10 000 oder 10\xa0000", False),
        ("1,234,567", "1'234'567", False),
        ("12,34,567 rupees", "1,234,567 Rupien", False),  # of India
        ("0.125 and 3.14", "3,14 und 0,125", False),
        ("May 3, 2012, at 08:30", "am 3. Mai 2012 um 8.30 Uhr", False),
        ("in 2012 300 people", "2012 waren es 300", False),  # not one number
        ("٣٫١٤ و ١٢٬٣٤٥", "3.14 and 12,345", False),
        ("from %s to %s", "nach %2$s von %1$s", False),
        ("I paid 100$.", "Ich habe 200$ bezahlt.", True),
        ("5 km² in ½ h", "5 Quadratkilometer in 30 min", True),
        ("12 of 12", "12", True),
        ("a 7", "b 7" + 5000 * "7", True),
        ("at 9 pm", "um 21 Uhr", True),
        ("Five men", "5 Männer", True),
    ],
)
def test_digit_mismatch(src: str, tgt: str, expected: bool) -> None:
    assert filters.digit_mismatch(src, tgt) is expected
    assert filters.digit_mismatch(tgt, src) is expected


def test_repetition_is_of_words_or_phrases_in_a_row() -> None:
    drops = filters.repetitive
    for phrase in ("ha", "ha ho", "one two , three"):
        assert not drops(f"so {' '.join([phrase] * 3)} done")
        assert drops(f"so {' '.join([phrase] * 4)} done")
    assert not drops("ha ha ha ho ho .")
    for text in (
        "he came , he saw , he won , he left , he slept",
        "one two three four five " * 5,  # longer than a phrase
        "so so so sos",
        "great ! ! ! ! !",  # tokenised punctuation
        "* * * * Hotel - - - -",
    ):
        assert not drops(text)
    assert drops("great ! ! ! ! ! so so so so")


def test_words_of_a_language_without_spaces_have_any_length() -> None:
    assert not made(filters.word_length, "zh-Hans")("a" * 21)


@pytest.mark.parametrize(
    ("lang", "text", "expected"),
    [
        ("en", "abc где", False),  # half
        ("en", "abc где и", True),
        ("en", "où ça Łódź ﬁn", False),
        ("en", "12 µm², ½ № 3 – 5 €", False),  # no letters of a script
        ("ru", "это iPhone", False),  # a Latin word counts as one letter
        ("uk", "Good morning, my friends", True),
        ("sr", "оvo je ово", False),
        ("ja", "東京でラーメンを食べました。", False),
        ("zh_Hans", "東京でラーメンを食べました。", True),
        ("zh_Hans", "更新 .git/shallow 的引用", False),  # two Latin words
        ("zh_Hans", "LyX BLOCKS 档", True),
        ("ko", "안녕하세요 漢字", False),
        ("ko", "MATROSKA 값", False),
        ("ja-Latn", "konnichiwa", False),
        ("sr-Latn", "ово je ово", True),
        ("en-x-test", "где", True),  # not a script
        ("ar", "مـــرحبا", False),  # with letters that scripts share
        ("tlh", "где", False),  # not in the table
    ],
)
def test_script(lang: str, text: str, expected: bool) -> None:
    assert made(filters.wrong_script, lang, min_script_share=0.5)(text) is expected


@pytest.mark.parametrize(("share", "letters"), [(0.9, 10), (0.6, 5)])
def test_a_share_of_the_script_at_the_threshold_is_enough(share: float, letters: int) -> None:
    foreign = letters - round(share * letters)
    drops = made(filters.wrong_script, min_script_share=share)
    assert not drops("a" * (letters - foreign) + "я" * foreign)
    assert drops("a" * (letters - foreign - 1) + "я" * (foreign + 1))


def test_languages_have_other_names_in_the_identifier() -> None:
    for lang in ("tl", "fil-PH"):
        drops = made(filters.wrong_language, lang, min_language_probability=0.5)
        assert not drops("Magandang umaga sa inyong lahat, kumusta na kayo ngayon?")
        assert drops("Good morning everybody, how are you doing today?")


def test_a_hash_is_the_same_everywhere() -> None:
    """From coreutils: printf 'Grüße\\nHello' | b2sum -l 64, read as a little-endian number."""
    expected = int.from_bytes(bytes.fromhex("db3be99471541c0f"), "little")
    assert filters.hash_text("Grüße\nHello") == expected


def test_missing_language_identifier(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("py3langid", "py3langid.langid"):
        monkeypatch.setitem(sys.modules, module, None)
    filters._identifier.cache_clear()
    with input_error(r"needs py3langid: pip install py3langid"):
        made(filters.wrong_language, min_language_probability=0.01)


ENGLISH = "The committee will meet again next week to discuss the new proposal in detail."
GERMAN = "Der Ausschuss wird nächste Woche erneut zusammentreten, um den Vorschlag zu beraten."
FRENCH = "Le comité se réunira de nouveau la semaine prochaine pour examiner la proposition."


def test_language() -> None:
    def drops(lang: str, text: str) -> bool:
        return made(filters.wrong_language, lang, min_language_probability=0.01)(text)

    assert [drops("en", text) for text in (ENGLISH, GERMAN, FRENCH)] == [False, True, True]
    assert [drops("de-AT", text) for text in (ENGLISH, GERMAN, FRENCH)] == [True, False, True]
    assert not drops("en", "Bonjour à tous.")  # too short to tell
    assert not drops("en", "« 1 234 567 890 1 234 567 890 »")
    assert made(filters.wrong_language, "nb", min_language_probability=0.0)(FRENCH) is False
    with input_error("does not know 'tlh'"):
        drops("tlh", FRENCH)
