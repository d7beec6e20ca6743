"""Language codes of two and three letters, with scripts and regions, mean the same language."""

import pytest

from transformer_mt.data.text.languages import _TWO_LETTERS, UNSPACED, base_language, foreign_letter


@pytest.mark.parametrize(
    ("code", "language"),
    [
        ("de", "de"),
        ("pt-BR", "pt"),
        ("ZH_Hans", "zh"),
        ("zho", "zh"),
        ("cmn_Hant", "zh"),
        ("jpn_Jpan", "ja"),
        ("kor-KR", "ko"),
        ("deu_Latn", "de"),
        ("yue_Hant", "yue"),  # has no code of two letters
        ("xx", "xx"),
        ("qaa", "qaa"),
    ],
)
def test_base_language(code: str, language: str) -> None:
    assert base_language(code) == language


def test_every_language_without_spaces_has_its_long_code() -> None:
    assert set(_TWO_LETTERS.values()) | {"yue"} >= UNSPACED
    assert all(len(long) == 3 and len(short) == 2 for long, short in _TWO_LETTERS.items())


def test_letters_of_other_scripts() -> None:
    pattern = foreign_letter("rus_Cyrl")
    assert pattern is not None
    assert pattern.findall("да, Yes") == ["Y", "e", "s"]
    assert foreign_letter("qaa") is None
