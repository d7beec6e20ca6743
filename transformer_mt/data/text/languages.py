"""Languages and the scripts that they are written in."""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import regex

UNSPACED = {"bo", "dz", "ja", "km", "lo", "my", "th", "yue", "zh"}
"""Languages that put no spaces between words."""

_SCRIPTS = {  # Unicode script(s) → languages written in it
    "Latin": "af ast br bs ca ceb cs cy da de en eo es et eu fi fil fo fr fy ga gd gl ha hr ht hu "
    "id ig is it jv la lb lg ln lt lv mg ms mt nb nl nn no ns oc om pl pt qu ro rw sk sl so sq ss "
    "su sv sw tl tn tr ts vi wa wo xh yo zu",
    "Cyrillic": "be bg ce cv ky mk mn os ru sah tg tt uk",
    "Cyrillic Latin": "az kk sr uz",
    "Arabic": "ar fa ps sd ug ur",
    "Armenian": "hy",
    "Bengali": "as bn",
    "Devanagari": "hi mr ne sa",
    "Ethiopic": "am ti",
    "Georgian": "ka",
    "Greek": "el",
    "Gujarati": "gu",
    "Gurmukhi": "pa",
    "Han": "yue zh",
    "Han Hangul": "ko",
    "Han Hiragana Katakana": "ja",
    "Hebrew": "he yi",
    "Kannada": "kn",
    "Khmer": "km",
    "Lao": "lo",
    "Malayalam": "ml",
    "Myanmar": "my",
    "Oriya": "or",
    "Sinhala": "si",
    "Tamil": "ta",
    "Telugu": "te",
    "Thai": "th",
}


def base_language(lang: str) -> str:
    """Language code without script and region: ``pt`` for ``pt-BR``, ``zh`` for ``zh_Hans``."""
    return re.split("[-_]", lang.lower())[0]


def foreign_letter(lang: str) -> "regex.Pattern[str] | None":
    """Pattern of a letter that is not in the language's script, or None if that is unknown."""
    import regex  # takes a tenth of a second, and only cleaning needs it

    for scripts, languages in _SCRIPTS.items():
        if base_language(lang) in languages.split():
            # Script extensions (scx) include letters that scripts share, as the ー of ラーメン.
            own = "".join(rf"\p{{scx={script}}}" for script in scripts.split())
            return regex.compile(rf"[^\P{{L}}{own}]")
    return None
