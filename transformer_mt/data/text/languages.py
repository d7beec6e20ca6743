"""The letters that languages are written in."""

import re

UNSPACED = {"bo", "dz", "ja", "km", "lo", "my", "th", "yue", "zh"}
"""Languages that put no spaces between words."""

# Ranges of blocks: they are asked of letters only, so what else lies in a block does no harm.
_SCRIPTS = {
    "arabic": "\u0600-\u06ff\u0750-\u077f\u0870-\u08ff\ufb50-\ufdff\ufe70-\ufeff",
    "armenian": "\u0530-\u058f\ufb13-\ufb17",
    "bengali": "\u0980-\u09ff",
    "cyrillic": "\u0400-\u052f\u1c80-\u1c8f\u2de0-\u2dff\ua640-\ua69f",
    "devanagari": "\u0900-\u097f\ua8e0-\ua8ff",
    "ethiopic": "\u1200-\u139f\u2d80-\u2ddf\uab01-\uab2f",
    "georgian": "\u10a0-\u10ff\u1c90-\u1cbf\u2d00-\u2d2f",
    "greek": "\u0370-\u03ff\u1f00-\u1fff",
    "gujarati": "\u0a80-\u0aff",
    "gurmukhi": "\u0a00-\u0a7f",
    "han": "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f",
    "hangul": "\u1100-\u11ff\u3130-\u318f\ua960-\ua97f\uac00-\ud7ff",
    "hebrew": "\u0590-\u05ff\ufb1d-\ufb4f",
    "kana": "\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f",
    "kannada": "\u0c80-\u0cff",
    "khmer": "\u1780-\u17ff",
    "lao": "\u0e80-\u0eff",
    "latin": "A-Za-z\xaa\xba\xc0-\xd6\xd8-\xf6\xf8-\u02af\u1d00-\u1d25\u1d6b-\u1d77\u1d79-\u1d9a"
    "\u1e00-\u1eff\u2c60-\u2c7f\ua722-\ua787\ua78b-\ua7ff\ufb00-\ufb06\uff21-\uff3a\uff41-\uff5a",
    "malayalam": "\u0d00-\u0d7f",
    "myanmar": "\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f",
    "oriya": "\u0b00-\u0b7f",
    "sinhala": "\u0d80-\u0dff",
    "tamil": "\u0b80-\u0bff",
    "telugu": "\u0c00-\u0c7f",
    "thai": "\u0e00-\u0e7f",
}
_LANGUAGES = {  # script(s) → languages written in it
    "latin": "af ast br bs ca ceb cs cy da de en eo es et eu fi fil fo fr fy ga gd gl ha hr ht hu "
    "id ig is it jv la lb lg ln lt lv mg ms mt nb nl nn no ns oc om pl pt qu ro rw sk sl so sq ss "
    "su sv sw tl tn tr ts vi wa wo xh yo zu",
    "cyrillic": "be bg ce cv ky mk mn os ru sah tg tt uk",
    "cyrillic latin": "az kk sr uz",
    "arabic": "ar fa ps sd ug ur",
    "armenian": "hy",
    "bengali": "as bn",
    "devanagari": "hi mr ne sa",
    "ethiopic": "am ti",
    "georgian": "ka",
    "greek": "el",
    "gujarati": "gu",
    "gurmukhi": "pa",
    "han": "yue zh",
    "han hangul": "ko",
    "han kana": "ja",
    "hebrew": "he yi",
    "kannada": "kn",
    "khmer": "km",
    "lao": "lo",
    "malayalam": "ml",
    "myanmar": "my",
    "oriya": "or",
    "sinhala": "si",
    "tamil": "ta",
    "telugu": "te",
    "thai": "th",
}
# Python calls letters also what is a number: ², ½, Ⅳ, ①.
_NO_LETTERS = r"\W\d_²³¹¼-¾\u2070-\u209f\u2150-\u218f\u2460-\u24ff"

LETTER = re.compile(f"[^{_NO_LETTERS}]")
"""A letter of any script."""


def base_language(lang: str) -> str:
    """``pt`` of ``pt-BR``, ``zh`` of ``zh_Hans``."""
    return re.split("[-_]", lang.lower())[0]


def foreign_letter(lang: str) -> re.Pattern[str] | None:
    """What finds letters that are not of the language's script; None if its script is unknown."""
    for scripts, languages in _LANGUAGES.items():
        if base_language(lang) in languages.split():
            own = "".join(_SCRIPTS[script] for script in scripts.split())
            return re.compile(f"[^{_NO_LETTERS}{own}]")
    return None
