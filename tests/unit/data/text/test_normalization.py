"""Normalisation: what it changes, what it keeps, and that it is idempotent."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer_mt.data.text.normalization import normalize

ENTITIES = ["&amp;", "&lt;", "lt;", "&", ";", "#", "&#38;", "&#10;", "&NewLine;", "&#x27;"]
ENTITIES += ["&a\x00mp;", "&l\u200bt;"]
SIGNS = ["'", "''", "`", "«", "»", "…", "—", "–", "‐", "e", "x", "1", "\u0301", "é", "\u037e"]
SIGNS += ["\u1fef", "\u2126", "\x92", "\x00", "\ufeff", "\u200b"]
BLANKS = ["\n", "\r", "\t", "\x85", "\u2028", " ", "  ", "\xa0", "\u202f"]
PIECES = st.sampled_from([*ENTITIES, *SIGNS, *BLANKS])
TEXTS = st.lists(PIECES | st.text(max_size=3), max_size=12).map("".join)


@given(TEXTS, st.sampled_from(["none", "nfc", "standard"]))
def test_normalisation_is_idempotent(text: str, name: str) -> None:
    once = normalize(text, name, "en")
    assert normalize(once, name, "en") == once
    if name == "none":
        assert once == text
    elif name == "nfc":
        assert once == unicodedata.normalize("NFC", text)
    else:
        assert unicodedata.is_normalized("NFC", once)
        assert once == " ".join(once.split())
        assert not [c for c in once if unicodedata.category(c) in ("Cc", "Zl", "Zp")]
        assert set(once).isdisjoint("“”„‘’‚«»‹›–—…\xa0\u200b\ufeff\xad")


@given(st.text(alphabet="abcXYZ019 .,:!?()-+*/%$#@éüßñÅø一二αβяд", max_size=40))
def test_plain_text_stays(text: str) -> None:
    tidy = " ".join(unicodedata.normalize("NFC", text).split())
    assert normalize(tidy, "standard", "en") == tidy


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("„Ja“, sagte er – »so« ist’s …", '"Ja", sagte er - "so" ist\'s ...'),
        ("«\xa0Oui\xa0» ou «\u202fnon\u202f»", '"Oui" ou "non"'),
        ("word—word, 1990–1995", "word - word, 1990-1995"),
        ("don&apos;t &quot;stop&quot; &amp;amp; go", 'don\'t "stop" & go'),
        ("x &" + "amp;" * 100_000 + "lt;", "x <"),  # in linear time
        ("A&#66;&#x43; &eacute;t&eacute; &lt;b&gt;", "ABC été <b>"),
        ("  no\xa0break\u2009thin\u3000wide\ttab ", "no break thin wide tab"),
        ("it\x92s \x93Windows\x94\x85", 'it\'s "Windows"...'),
        ("soft\xadly zero\u200bwidth \u202ebidi\u202c bell\x07", "softly zerowidth bidi bell"),
        ("``TeX'' e\u0301te\u0301", '"TeX" été'),
        # Left alone: no entities without a semicolon, joiners, other scripts' punctuation.
        ("?a=1&copy=2&lt=3 AT&T R&D;", "?a=1&copy=2&lt=3 AT&T R&D;"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("你好，世界！「真的」", "你好，世界！「真的」"),
        ("lost \ufffd letter ½ € x² ﬁ Ａ", "lost \ufffd letter ½ € x² ﬁ Ａ"),
        ("\u200b \xa0", ""),
    ],
)
def test_standard(text: str, expected: str) -> None:
    assert normalize(text, "standard", "en") == expected


@pytest.mark.parametrize("code", ["FR", "fr-CA", "fr_CA"])
def test_moses_ignores_case_and_region_of_the_language_code(code: str) -> None:
    text = "1\xa0000 fois"
    assert normalize(text, "moses", code) == normalize(text, "moses", "fr")
    assert normalize(text, "moses", code) != normalize(text, "moses", "en")
