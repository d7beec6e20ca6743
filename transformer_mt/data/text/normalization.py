"""Normalisation of text: the same for training, for validation sources and in translation.

``none`` leaves every character as it is; ``nfc`` composes letters and accents; ``standard`` also
resolves HTML entities, writes quotes, dashes, ellipses and spaces in ASCII, and removes control
characters. Sacremoses' MosesPunctNormalizer has no part in it: it rewrites numbers (``1 000``
becomes ``1.000``) and moves commas over quotes, by language, and a second pass changes the text
again.

``moses_lowercase`` is the preparation of published Multi30k scores (its authors'
``task1-tokenize.sh``): lower case, Moses' punctuation and tokens. It loses the case of letters.
"""

import html
import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

from transformer_mt.config import DataConfig
from transformer_mt.data.text.languages import base_language

_PUNCTUATION = {
    '"': "“”„‟«»″＂〝〞",
    "'": "‘’‚‛‹›′´`＇",
    "-": "‐‑‒–―−",
    " - ": "—",  # written without spaces, where the others have them
    "...": "…",
    # Line and page ends count as spaces. Joiners (200C, 200D) stay: Persian and Hindi need them.
    " ": "\t\n\v\f\r\x1c\x1d\x1e\x1f\u2028\u2029",
    "": "\xad\u061c\u180e\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068"
    "\u2069\ufeff" + "".join(map(chr, [*range(9), *range(14, 28), 127])),
}
_ASCII = {character: ascii_ for ascii_, group in _PUNCTUATION.items() for character in group}
# Windows-1252 read as Latin-1, as HTML too understands these codes; 0x92 is an apostrophe.
_C1 = {chr(c): bytes([c]).decode("cp1252", errors="ignore") for c in range(0x80, 0xA0)}
_REPLACED = _ASCII | {control: _ASCII.get(meant, meant) for control, meant in _C1.items()}

_TO_REPLACE = re.compile(f"[{re.escape(''.join(_REPLACED))}]")
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_QUOTE_SPACE = re.compile("(?<=«)[\xa0\u202f]|[\xa0\u202f](?=»)")  # French: « so »

# ASCII and Latin letters with single spaces: nothing to do, as for most lines.
_PLAIN = re.compile("[!-%'-_a-~À-ÖØ-öø-ſ]+(?: [!-%'-_a-~À-ÖØ-öø-ſ]+)*")


@dataclass(frozen=True)
class Normalizer:
    """``data.normalization`` of one pair of languages."""

    name: str
    src_lang: str
    tgt_lang: str

    @classmethod
    def of(cls, data: DataConfig) -> "Normalizer":
        """The one that a configuration names."""
        return cls(data.normalization, data.src_lang, data.tgt_lang)

    @property
    def keeps_words(self) -> bool:
        """Whether the words of a line are still those of the line."""
        return self.name != "moses_lowercase"

    def src(self, line: str) -> str:
        """A source line as the model reads it."""
        return normalize(line, self.name, self.src_lang)

    def tgt(self, line: str) -> str:
        """A target line as the model learns to write it."""
        return normalize(line, self.name, self.tgt_lang)

    def restore(self, line: str) -> str:
        """What the model wrote as text for people: Moses' tokens are joined again."""
        if self.keeps_words:
            return line
        return _Moses.of(self.tgt_lang).detokenize(line)


def normalize(text: str, name: str, lang: str) -> str:
    """The text normalised by ``data.normalization``; but for Moses, a second time changes nothing.

    Args:
        text: One line, or several.
        name: ``none``, ``nfc``, ``standard`` or ``moses_lowercase``.
        lang: Its language; Moses goes by it.
    """
    if name == "none":
        return text
    if name == "nfc":
        return unicodedata.normalize("NFC", text)
    if "\n" in text:  # the number of lines never changes
        return "\n".join(normalize(line, name, lang) for line in text.split("\n"))
    if name == "moses_lowercase":
        return _Moses.of(lang).tokenize(text)
    # One step can make work for another: &amp;lt; or &l\u200bt; is an entity only afterwards.
    while not (_PLAIN.fullmatch(text) and "''" not in text) and (new := _once(text)) != text:
        text = new
    return text


def _once(text: str) -> str:
    text = unicodedata.normalize("NFC", text)
    if "&" in text:
        text = _ENTITY.sub(lambda match: html.unescape(match[0]), text)
    if "«" in text or "»" in text:
        text = _QUOTE_SPACE.sub("", text)
    text = _TO_REPLACE.sub(lambda match: _REPLACED[match[0]], text)
    return " ".join(text.replace("''", '"').split())


class _Moses:
    """The Moses scripts for one language, by sacremoses."""

    def __init__(self, lang: str):
        # Imported here because it costs 0.3 s and only one normalisation needs it.
        from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer

        lang = base_language(lang)  # it knows de only, and takes DE or de-AT for English
        self._punctuation = MosesPunctNormalizer(lang)
        self._tokenizer, self._detokenizer = MosesTokenizer(lang), MosesDetokenizer(lang)

    @classmethod
    @lru_cache
    def of(cls, lang: str) -> "_Moses":
        """The one of a language; making it takes a while."""
        return cls(lang)

    def tokenize(self, line: str) -> str:
        line = self._punctuation.normalize(line.lower())
        # Unescaped: & is no &amp; to the vocabulary. The tokens are the same.
        tokens: str = self._tokenizer.tokenize(line, return_str=True, escape=False)
        return tokens

    def detokenize(self, line: str) -> str:
        text: str = self._detokenizer.detokenize(line.split(" "), unescape=False)
        return text
