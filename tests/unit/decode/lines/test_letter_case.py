"""Lines in capitals, title case or lower case are translated in their usual case."""

from dataclasses import replace

import pytest
from support.models import make_translator, random_lines, random_model
from support.tokenizers import small_tokenizer

from transformer_mt.config import DecodeConfig
from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.decode.lines.letter_case import usual_case


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A vocabulary of whole words. Its text has Übermut with a capital wherever it stands."""
    text = [text.replace("übermut", "Übermut") for text in random_lines(200, 9)]
    return small_tokenizer(tmp_path_factory.mktemp("words") / "m", text, vocab_size=390)


@pytest.mark.parametrize(
    ("line", "usual"),
    [
        ("THE QUICK FOX SLEEPS.", "The quick fox sleeps."),
        ("A DOG JUMPS! OVER ÜBERMUT: 3,5", "A dog jumps! Over Übermut: 3,5"),
        ("“THE FOX’S BARN”", "“The fox’s barn”"),
        ("THE DOG", "The dog"),
        ("JUMPS", "jumps"),
        ("Jumps", "jumps"),
        # Unknown words and abbreviations stay in titles, and short words may be in lower case.
        ("The Quick Fox Sleeps! Over a Barn", "The quick fox sleeps! Over a barn"),
        ("Fox Over Foxbarn: Red USA’s Barns", "Fox over Foxbarn: red USA’s Barns"),
        ("Red OVer Fox Barn", "Red OVer fox barn"),
        # In lower case, words get a capital if it is usual, but not in addresses.
        ("a fox jumps. the dog! http://fox. a", "a fox jumps. The dog! http://fox. A"),
        ("a fox and übermut", "a fox and Übermut"),
        ("A fox. the dog! at 3 p.m. or so...  a", "A fox. The dog! At 3 p.m. or so...  a"),
        ("%übermut {übermut} übermut@übermut.de übermut.py übermut= http://übermut", None),
        # Words in capitals between others: known ones of three letters or more, no abbreviations.
        ("A DOG sleeps. QUICK red USA BBVA.", "A dog sleeps. Quick red USA BBVA."),
        ("over the BARN, ÜBERMUT SLEEPS", "over the barn, Übermut sleeps"),
        # Not titles: a name or a greeting, a sentence.
        ("Red Dog", None),
        ("The Dog sleeps Over a Fox", None),
        # Not text in capitals: mixed case, abbreviations, no letters, no case.
        ("The USA sleeps.", None),
        ("USA", None),
        ("A B C", None),
        ("I", None),
        ("3,5 – 7", None),
        ("犬が FOX 寝ている。", None),
        ("", None),
    ],
)
def test_words_are_written_as_the_vocabulary_knows_them(
    words: Tokenizer, line: str, usual: str | None
) -> None:
    assert usual_case(line, words, "en") == (line if usual is None else usual)


@pytest.mark.parametrize("lang", ["de", "de-AT", "deu", "mul"])
def test_languages_that_capitalise_nouns_have_no_title_case(words: Tokenizer, lang: str) -> None:
    assert usual_case("The Quick Fox Sleeps", words, lang) == "The Quick Fox Sleeps"
    assert usual_case("Fox", words, lang) == "Fox"
    assert usual_case("THE FOX SLEEPS", words, lang) == "The fox sleeps"
    assert usual_case("fox and übermut", words, lang) == "fox and Übermut"


def test_translations_are_those_of_the_usual_case(tokenizer: Tokenizer) -> None:
    translator = make_translator(random_model(), tokenizer, DecodeConfig(max_extra_tokens=3))
    line = "The quick fox sleeps over a barn"
    expected = translator.translate_nbest([line, "Red dog"], 3)
    capitals, other = translator.translate_nbest([line.upper(), "Red dog"], 3)
    assert capitals == [replace(each, text=each.text.upper()) for each in expected[0]]
    assert other == expected[1]
    # Of the words in lower case, "b" alone is one piece.
    (usual,), (title,) = (translator.translate([text]) for text in ("Ox Ox b", "Ox Ox B"))
    assert title == usual[:1].upper() + usual[1:]
    # The translation starts with the prefix as it was given.
    for source in (line.upper(), line):
        ((best, *_),) = translator.translate_nbest([source], 1, prefixes=["the dog"])
        assert best.text.startswith("the dog")
