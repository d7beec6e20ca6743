"""Language codes of two and three letters, with scripts and regions, mean the same language."""

import pytest

from transformer_mt.config.languages import base_language, foreign_letter, is_variant, language_name


def test_base_language() -> None:
    languages = {
        "de": "de",
        "pt-BR": "pt",
        "ZH_Hans": "zh",
        "zho": "zh",
        "jpn_Jpan": "ja",
        "deu_Latn": "de",
        "qaa": "qaa",
        "und": "und",
        "english": "english",
        "yue_Hant": "yue",  # has no code of two letters
    }
    assert {code: base_language(code) for code in languages} == languages


@pytest.mark.parametrize(
    ("code", "lang", "expected"),
    [
        ("de", "de", True),
        ("deu-AT", "de-AT", True),
        ("de-AT-1996", "deu_at", True),
        ("zh-Hans-CN", "zho_Hans", True),
        ("de", "de-AT", False),
        ("de-AT", "de-A", False),
        ("den", "de", False),
    ],
)
def test_variants_of_a_language(code: str, lang: str, expected: bool) -> None:
    assert is_variant(code, lang) is expected


def test_english_names() -> None:
    names = {"de": "German", "deu": "German", "pt_BR": "Portuguese (BR)", "xx-YY": "xx-YY"}
    names["zho_Hans"] = "Chinese (Hans)"
    assert {code: language_name(code) for code in names} == names


def test_letters_of_other_scripts() -> None:
    pattern = foreign_letter("rus_Cyrl")
    assert pattern is not None
    assert pattern.findall("да, Yes") == ["Y", "e", "s"]
    text = "Aя漢ひ한ع"
    for lang, foreign in (
        ("sr", "漢ひ한ع"),
        ("jpn", "Aя한ع"),
        ("ko_KR", "Aяひع"),
        ("zh", "Aяひ한ع"),
    ):
        pattern = foreign_letter(lang)
        assert pattern is not None
        assert "".join(pattern.findall(text)) == foreign
    assert foreign_letter("qaa") is None
    assert foreign_letter("mul") is None
