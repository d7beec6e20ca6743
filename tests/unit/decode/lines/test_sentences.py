"""Sentences of lines; long ones are cut between words."""

from itertools import chain, pairwise

import pytest

from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.decode.lines.sentences import segments, sentence_starts, split_long

SENTENCES = {
    "en": [
        ["Dr. Smith paid $3.50.", "He left at 5 p.m. on Jan. 3rd!", "Really?", "Yes."],
        ['He said: "The dog sleeps."', "A fox jumps.", "Wait … what?", "- Red."],
        ["The U.S. President met J. R. R. Fox at St. Paul.", "It was 2010.", "It rained."],
        ["See http://a.b/c?q=Now.Then there.", "Write to a@b.com.", "Thanks."],
        ["Who am I?", "Vitamin C!", "Give it to me.", "I climb mt. Fuji.", "Am I late, or am I?"],
        ['("Who?"', '"Me?"', "He did.\u200b", "Really?)", "Bye."],
        ["Use e.g. Python.", "A list of 1.6 million etc. follows.", "20 came."],
        ["Plan B\xa0.", "Next one.", "A page\u2028of one.", "Another. \x0b", "Yes."],
        ["No space.Here?None. and a word in lower case. follows"],
        [""],
        ["  . "],
    ],
    "de": [
        ["Das ist z. B. ein Satz.", "Am 3. Oktober kam Dr. Müller.", "„Nein.“", "Er ging."],
        ["Ich bin 30!", "Und du?", "Wie geht's?", "Mir geht's.", "Es ist 8:30.", "Um 1990.", "Ja."],
        ["Seit dem 19. und 20. Jahrhundert kostet er ca. 5 Euro.", "„Ja!“, sagte er, d.h. Ja."],
    ],
    "fr": [
        ["Voir l'art. 5 du code.", "M. Dupont et Mme. Curie sont là.", "Quoi ?"],
        ["« Bonjour. »", "Il partit.", "« Oui\xa0?\u202f»", "Puis : « Non ! »"],
    ],
    "es": [["¿Qué?", "¡No!", "El Sr. Pérez llegó.", "Creo que no.", "Vamos."]],
    "nl": [["Geef het aan me.", "Dhr. Jansen komt."]],
    "ru": [["Это т.е. Москва.", "Он идёт."]],
    "ja": [["日本語。", "「はい。」", "それ！？", "ﾊｲ｡", "「そうです。」"]],
    "zh_Hans": [["你好。", "我是人。", "你好吗?", "我很好！", "“走吧！”！", "“不存在。”"]],
    "ko": [["나는 학생이다.", "그는 간다."]],
    "hi": [["यह है।", "वह है।"]],
    "hy": [["Բարեւ։", "Ինչպես ես։"]],
    "ka": [["გამარჯობა.", "როგორ ხარ?", "კარგად.", "ი. ჭავჭავაძე."]],
    "km": [["សួស្តី។", "អរគុណ។"]],
    "ar": [["هل هذا؟", "عنده ٥.", "د. أحمد.", "نعم."]],
    "und": [["One.", "Two!", "Three"]],
}


@pytest.mark.parametrize("language", SENTENCES)
def test_sentences(language: str) -> None:
    for sentences in SENTENCES[language]:
        text = ("" if language in ("ja", "zh_Hans") else " ").join(sentences)
        bounds = pairwise([*sentence_starts(text, language), len(text)])
        assert [text[start:end].strip() for start, end in bounds] == [s.strip() for s in sentences]


@pytest.mark.parametrize(
    ("text", "translated"),
    [
        ("I love you 😀", ["I love you"]),
        ("👍🏽 Great! 😀 He came. 👨\u200d👩\u200d👧❤\ufe0f", ["Great!", "He came."]),
        ("- Yes! 2) Certainly! (a) ok.", ["Yes!", "Certainly! (a) ok."]),
        ("4. Go 😀 I love :) 5 :-D I <3 it :)", ["Go", "I love :) 5", "I <3 it"]),
        ("Step 5️⃣ and 7️⃣ ❤️", ["Step 5️⃣ and 7️⃣"]),
        ("  • > ## Title ✅Done", ["Title ✅Done"]),
        ("✅Done! C# costs -5 €, or 20 °C.", ["Done!", "C# costs -5 €, or 20 °C."]),
        ("😀", []),
        ("- ", []),
        (" \t", []),
    ],
)
def test_marks_of_list_items_and_emoji_are_copied(text: str, translated: list[str]) -> None:
    spans = list(segments(text, "en", marks=True))
    assert [text[start:end].strip() for start, end, is_text in spans if is_text] == translated
    whole = list(segments(text, "en", marks=False))
    assert all(is_text for _, _, is_text in whole)
    for parts in (spans, whole):
        assert "".join("".join(text[i:j] for i, j, _ in parts).split()) == "".join(text.split())


def parts_of(tokenizer: Tokenizer, line: str, max_tokens: int) -> list[str]:
    ids = tokenizer.encode(line)
    parts = split_long(ids, max_tokens, tokenizer)
    assert [*chain(*parts)] == ids
    assert all(0 < len(part) <= max_tokens for part in parts)
    return list(map(tokenizer.decode, parts))


def test_a_long_sentence_is_cut_between_words(tokenizer: Tokenizer) -> None:
    long = " ".join(["quick brown fox jumps"] * 9).capitalize() + "."
    parts = parts_of(tokenizer, long, 20)
    assert " ".join(parts) == long
    assert all(set(part.split()) <= set(long.split()) for part in parts)
    assert parts_of(tokenizer, "", 20) == []
    assert "".join(parts_of(tokenizer, "abc" * 9999, 60)) == "abc" * 9999
