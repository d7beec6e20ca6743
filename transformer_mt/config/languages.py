"""Languages and the scripts that they are written in, by their codes (BCP 47)."""

import re

import langcodes
import regex
from langcodes.data_dicts import LIKELY_SUBTAGS
from langcodes.registry_parser import parse_registry

UNSPACED = {"bo", "dz", "ja", "km", "lo", "my", "th", "yue", "zh"}
"""Languages that put no spaces between words."""

SHORT_WORDS = UNSPACED | {"ko"}
"""Languages in which a word may be a single letter."""

CAPITAL_NOUNS = {"de", "gsw", "lb", "mul", "nds", "und"}
"""Languages in which nouns have a capital, or that may be one of them."""

ORDINAL_STOPS = {"cs", "da", "de", "et", "fi", "hr", "hu", "is", "lv", "nb", "no", "pl", "sk", "sl"}
"""Languages that write ordinal numbers with a full stop, which ends no sentence."""

_LATIN_OR_CYRILLIC = {"az", "kk", "sr", "uz"}
"""Languages that are written in both scripts."""

_SCRIPTS = {"Hans": "Hani", "Hant": "Hani", "Jpan": "Hani Hira Kana", "Kore": "Hani Hang"}
"""Combined codes of ISO 15924, and the scripts of their characters."""

_NAMED_SCRIPTS = {"Hans", "Hant", "Arab", "Armn", "Beng", "Cyrl", "Deva", "Geor", "Grek", "Guru"}
_NAMED_SCRIPTS |= {"Adlm", "Hebr", "Java", "Latn", "Mong", "Mtei", "Sund", "Tfng"}
"""Scripts that a language code may name, for languages that are written in several."""


def base_language(lang: str) -> str:
    """Language code without script and region, of two letters if there is one.

    ``pt`` for ``pt-BR``, ``zh`` for ``zh_Hans``, ``zho`` and ``cmn_Hant``.
    """
    code = re.split("[-_]", lang.lower())[0]
    if not langcodes.tag_is_valid(code):
        return code
    return langcodes.get(code).prefer_macrolanguage().language or code


def macro_language(lang: str) -> str:
    """``base_language``, but ``no`` for ``nb``: files of Norwegian mix these codes."""
    base = base_language(lang)
    return "no" if base == "nb" else base


def language_name(lang: str) -> str:
    """English name of a language, with its script or region: ``Portuguese (BR)`` for ``pt_BR``.

    A code without a known name stays as it is.
    """
    _, *variant = re.split("[-_]", lang)
    base = base_language(lang)
    for entry in parse_registry():  # of IANA, which langcodes has; the names of CLDR are 13 MB
        if entry.get("Subtag") == base and entry["Type"] == "language":
            name = re.sub(r" \(.*", "", entry["Description"][0])
            return name + f" ({', '.join(variant)})" * bool(variant)
    return lang


def may_be_same_language(code: str, lang: str) -> bool:
    """Whether two codes may name one language: ``und`` and ``mul`` stand for any."""
    codes = {macro_language(code), macro_language(lang)}
    return len(codes) == 1 or not codes.isdisjoint(("und", "mul"))


def word_separator(lang: str) -> str:
    """What a language puts between words: a space, or nothing."""
    return "" if base_language(lang) in UNSPACED else " "


def is_variant(code: str, lang: str) -> bool:
    """Whether a code names a language or a variant of it (basic filtering of RFC 4647).

    ``de``, ``de-AT`` and ``deu_DE`` are variants of ``de``; ``de`` is not one of ``de-AT``.
    """
    normalized, wanted = (
        "-".join([macro_language(name), *re.split("[-_]", name.lower())[1:], ""])
        for name in (code, lang)
    )
    return normalized.startswith(wanted)


def foreign_letter(lang: str) -> regex.Pattern[str] | None:
    """Pattern of a letter that is not in the language's script, or None if that is unknown.

    A code may name the script: ``sr-Latn``. Latin words, such as names of products, are found as a
    whole in other scripts.
    """
    base = base_language(lang)
    if base not in LIKELY_SUBTAGS:
        return None
    given = _NAMED_SCRIPTS.intersection(map(str.title, re.split("[-_]", lang)[1:]))
    script = next(iter(given), langcodes.get(LIKELY_SUBTAGS[base]).script or "")
    is_either = base in _LATIN_OR_CYRILLIC and not given
    scripts = "Latn Cyrl" if is_either else _SCRIPTS.get(script, script)
    # Script extensions (scx) include letters that scripts share, as the ー of ラーメン.
    own = "".join(rf"\p{{scx={name}}}" for name in scripts.split())
    words = r"\p{Latn}+|" * ("Latn" not in scripts)
    return regex.compile(rf"{words}[^\P{{L}}{own}]")
