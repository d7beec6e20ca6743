"""Text normalisation, the same for training, validation sources and translation.

``none`` leaves every character as it is; ``nfc`` composes letters and accents; ``standard`` also
resolves HTML entities, writes quotes, dashes, ellipses and spaces in ASCII, and removes control
characters. ``standard`` does not use sacremoses' MosesPunctNormalizer, which rewrites numbers
(``1 000`` becomes ``1.000``), moves commas over quotes by language, and is not idempotent.

``moses`` is that normalizer, for models that were trained with it, such as those of OPUS-MT.
"""

import html
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from transformer_mt.config import DataConfig
from transformer_mt.config.languages import base_language

_PUNCTUATION = {
    '"': "“”„‟«»″＂〝〞",
    "'": "‘’‚‛‹›′´`＇",
    "-": "‐‑‒–―−",
    " - ": "—",  # usually written without spaces, unlike the others
    "...": "…",
    # Line and page breaks count as spaces. Joiners (200C, 200D) stay: Persian and Hindi need them.
    " ": "\t\n\v\f\r\x1c\x1d\x1e\x1f\u2028\u2029",
    "": "\xad\u061c\u180e\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068"
    "\u2069\ufeff" + "".join(map(chr, [*range(9), *range(14, 28), 127])),
}
ASCII = {character: ascii_ for ascii_, group in _PUNCTUATION.items() for character in group}
"""Quotes, dashes and other punctuation, spaces and marks, and their replacements in ASCII."""
# Windows-1252 read as Latin-1, as HTML interprets these codes, too: 0x92 is an apostrophe.
_C1 = {chr(c): bytes([c]).decode("cp1252", errors="ignore") for c in range(0x80, 0xA0)}
REPLACEMENTS = ASCII | {code: ASCII.get(char, char) for code, char in _C1.items()}
"""Characters that ``standard`` replaces, and their replacements."""

_TO_REPLACE = re.compile(f"[{re.escape(''.join(REPLACEMENTS))}]")
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_AMPERSANDS = re.compile(r"&(?:(?:amp|AMP|#38|#x26);)+")
QUOTE_SPACE = re.compile("(?<=«)[\xa0\u202f]|[\xa0\u202f](?=»)")
"""Spaces that ``standard`` removes: those within French quotes, « so »."""

# ASCII and Latin letters with single spaces, as most lines: nothing to normalise.
_PLAIN = re.compile("[!-%'-_a-~À-ÖØ-öø-ſ]+(?: [!-%'-_a-~À-ÖØ-öø-ſ]+)*")


@dataclass(frozen=True)
class Normalizer:
    """Normalisation (``data.normalization``) of lines in the languages of their tags."""

    data: DataConfig

    def languages(self, tag: str = "") -> tuple[str, str]:
        """Source and target language of lines with a tag, or with "" for none."""
        return self.data.tags.get(tag) or self.data.languages()

    def src(self, line: str, tag: str = "") -> str:
        """Normalises a source line, which is given without its tag."""
        return normalize(line, self.data.normalization, self.languages(tag)[0])

    def tgt(self, line: str, tag: str = "") -> str:
        """Normalises a target line; the tag is that of its source."""
        return normalize(line, self.data.normalization, self.languages(tag)[1])


def normalize(text: str, name: str, lang: str) -> str:
    """Normalises a text. All but ``moses`` are idempotent.

    Args:
        text: One line.
        name: ``none``, ``nfc``, ``standard`` or ``moses``.
        lang: Language of the text, which only Moses uses.
    """
    if name == "none":
        return text
    if name == "nfc":
        return unicodedata.normalize("NFC", text)
    if name == "moses":
        return _moses(lang)(text)
    # A pass can expose work for the next: &amp;lt; and &l\u200bt; become entities.
    while not (_PLAIN.fullmatch(text) and "''" not in text) and (new := _one_pass(text)) != text:
        text = new
    return text


def _one_pass(text: str) -> str:
    text = unicodedata.normalize("NFC", text)
    if "&" in text:
        text = _AMPERSANDS.sub("&amp;", text)  # else each pass would undo one of &amp;amp;amp;…
        text = _ENTITY.sub(lambda match: html.unescape(match[0]), text)
    if "«" in text or "»" in text:
        text = QUOTE_SPACE.sub("", text)
    text = _TO_REPLACE.sub(lambda match: REPLACEMENTS[match[0]], text)
    return " ".join(text.replace("''", '"').split())


@cache
def _moses(lang: str) -> Callable[[str], str]:
    """Moses' normalisation of punctuation, by sacremoses."""
    # Imported here: the import takes 0.3 s, and only this normalisation needs it.
    from sacremoses import MosesPunctNormalizer

    # sacremoses treats DE and de-AT as English.
    normalizer: Callable[[str], str] = MosesPunctNormalizer(base_language(lang)).normalize
    return normalizer
