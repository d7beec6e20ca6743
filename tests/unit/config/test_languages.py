"""Language codes of two and three letters, with scripts and regions, mean the same language."""

import pytest

from transformer_mt.config.languages import (
    _ENGLISH,
    _SCRIPTS,
    _TWO_LETTERS,
    UNSPACED,
    base_language,
    foreign_letter,
    is_variant,
    language_name,
)


def test_base_language() -> None:
    languages = {
        "de": "de",
        "pt-BR": "pt",
        "ZH_Hans": "zh",
        "zho": "zh",
        "jpn_Jpan": "ja",
        "deu_Latn": "de",
        "qaa": "qaa",
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


def test_every_language_has_its_long_code_and_a_name() -> None:
    assert set(_TWO_LETTERS.values()) | {"yue"} >= UNSPACED
    codes = {code for codes in _SCRIPTS.values() for code in codes.split() if len(code) == 2}
    assert set(_TWO_LETTERS.values()) >= codes
    assert {*_TWO_LETTERS.values(), *codes} <= _ENGLISH.keys()
    assert all(len(long) == 3 and len(short) == 2 for long, short in _TWO_LETTERS.items())


def test_letters_of_other_scripts() -> None:
    pattern = foreign_letter("rus_Cyrl")
    assert pattern is not None
    assert pattern.findall("да, Yes") == ["Y", "e", "s"]
    assert foreign_letter("qaa") is None
