"""Language codes of two and three letters, with scripts and regions, mean the same language."""

import pytest
from support.errors import input_error

from transformer_mt.config.checks import require_language
from transformer_mt.config.languages import base_language, is_variant
from transformer_mt.conversion.marian_import import _language


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


def test_codes_of_countries_and_names_are_no_language_codes() -> None:
    for code in ("cs", "ja", "uk", "de-CH", "pt_BR", "zh_Hans", "sr-Latn", "deu", "und", "mul"):
        require_language("tgt_lang", code)
    assert [_language(code, "und") for code in ("jap", "ROMANCE", "deu")] == ["und", "und", "deu"]
    for code in ("cz", "jp", "ua", "gr", "dk", "cn", "english", "False", "", "de-", "../de"):
        with input_error(f"tgt_lang='{code}' is not a language code"):
            require_language("tgt_lang", code)
