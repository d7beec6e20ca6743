"""Filters of sentence pairs by their text: each says whether to drop a pair.

Corpora have millions of pairs, so every filter first asks what settles most of them at once. The
thresholds, and where they come from, are in ``configs/cleaning``.
"""

import html
import re
import unicodedata
from collections.abc import Callable
from functools import cache
from operator import eq
from typing import Any

from transformer_mt.data.text.languages import LETTER, UNSPACED, base_language, foreign_letter
from transformer_mt.data.text.lines import is_blank
from transformer_mt.errors import InputError

TextFilter = Callable[[str, str], bool]
"""Of (src, tgt): whether to drop the pair."""

LONGEST_PHRASE = 4
"""Most words in a phrase that ``repeated_words`` finds said again and again."""

JUDGED_LETTERS = 20
"""Fewest letters of a side whose language is judged: below, an identifier mostly guesses."""


def empty(src: str, tgt: str) -> bool:
    """A side has no text."""
    return is_blank(src) or is_blank(tgt)


# Control, replacement and private characters, non-characters, lone surrogates.
_BROKEN = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x9f\ufffd\ue000-\uf8ff\ufdd0-\ufdef\ufffe\uffff\ud800-\udfff]"
)
_TWICE_ENCODED = re.compile("Ã[¡-¿ƒ„–œŸ]|Â[¡-¿]|â€")  # UTF-8 read as Windows-1252: Ã¼ for ü


def garbled(src: str, tgt: str) -> bool:
    """A side has characters that are no text, or text in a wrong encoding."""
    return _is_garbled(src) or _is_garbled(tgt)


def _is_garbled(text: str) -> bool:
    if _BROKEN.search(text):
        return True
    suspect = not text.isascii() and ("Ã" in text or "Â" in text or "â€" in text)
    return suspect and bool(_TWICE_ENCODED.search(text))


# Known elements only, as <name@example.org> and <file> are text; tokenisers put in spaces.
_TAG = re.compile(
    r"""<\s?/?\s?(?:a|b|big|blockquote|body|br|center|code|div|em|embed|font|form|h[1-6r]|head|html
    |i|iframe|img|input|li|link|meta|object|ol|option|p|param|pre|s|script|select|small|span|strike
    |strong|style|sub|sup|table|tbody|td|th|title|tr|tt|u|ul)(?:\s[^<>]*=[^<>]*)?\s?/?\s?>
    |<\s?a\s+href|<!--""",
    re.IGNORECASE | re.VERBOSE,
)
# The eight escapes of the Moses tokeniser are no markup but its spelling of a character, which
# data.normalization=standard undoes; what they spell may be a tag all the same.
_ENTITY = re.compile(
    r"&(?!(?:amp|lt|gt|quot|apos|#124|#91|#93);)(?:#[0-9]+|#[xX][0-9a-fA-F]+|[A-Za-z][A-Za-z0-9]+);"
)


def markup(src: str, tgt: str) -> bool:
    """A side has HTML tags or entities."""
    return _has_markup(src) or _has_markup(tgt)


def _has_markup(text: str) -> bool:
    if "&" in text:
        if _ENTITY.search(text):
            return True
        text = html.unescape(text)
    return "<" in text and bool(_TAG.search(text))


class _Folding(dict[int, int | None]):
    """Code of a character → itself, or nothing for spaces, punctuation and symbols."""

    def __missing__(self, code: int) -> int | None:
        kept = unicodedata.category(chr(code))[0] in "LMN"
        return self.setdefault(code, code if kept else None)


_FOLDING = _Folding()


def fold(text: str) -> str:
    """The text without case, spaces and punctuation, to find what is the same in substance."""
    return text.casefold().translate(_FOLDING)


def identical(src: str, tgt: str) -> bool:
    """Both sides are the same up to case, spaces and punctuation."""
    starts = fold(src[:32]), fold(tgt[:32])  # of most pairs they tell
    longer, shorter = max(starts, key=len), min(starts, key=len)
    return longer.startswith(shorter) and fold(src) == fold(tgt)


def repeated_characters(limit: int) -> TextFilter:
    """A character stands more than ``limit`` times in a row."""
    run = re.compile(r"(\S)" + r"\1" * limit)  # twice as fast as \1{limit}
    return lambda src, tgt: bool(run.search(src) or run.search(tgt))


def repeated_words(limit: int) -> TextFilter:
    """A word, or a phrase of up to four, stands more than ``limit`` times in a row.

    Punctuation alone does not count: tokenised text has "! ! ! !".
    """

    def repeats(text: str) -> bool:
        words = text.split()
        again = len(words) - len(set(words))  # n words, said limit times more, are n * limit
        for n in range(1, min(LONGEST_PHRASE, again // limit) + 1):
            # A phrase of n words said again is n words that each equal the n-th before them.
            equal, run = bytes(map(eq, words, words[n:])), b"\1" * (n * limit)
            at = equal.find(run)
            while at >= 0:
                if any(map(str.isalnum, "".join(words[at : at + n]))):
                    return True
                at = equal.find(run, at + 1)
        return False

    return lambda src, tgt: repeats(src) or repeats(tgt)


def word_length(
    shortest: float | None, longest: float | None, src_lang: str, tgt_lang: str
) -> TextFilter:
    """The mean length of a side's words, in characters, is out of bounds."""
    low, high = shortest or 0.0, longest or float("inf")
    judged = [base_language(lang) not in UNSPACED for lang in (src_lang, tgt_lang)]

    def drop(src: str, tgt: str) -> bool:
        for text, judge in zip((src, tgt), judged, strict=True):
            if judge:
                words = text.split()
                if not low * len(words) <= len("".join(words)) <= high * len(words):
                    return True
        return False

    return drop


def wrong_script(share: float, src_lang: str, tgt_lang: str) -> TextFilter:
    """Less than ``share`` of a side's letters are of its language's script.

    A language that the table does not know, or a side without letters, is not judged.
    """
    foreign = [foreign_letter(lang) for lang in (src_lang, tgt_lang)]

    def drop(src: str, tgt: str) -> bool:
        for text, pattern in zip((src, tgt), foreign, strict=True):
            if pattern and pattern.search(text):
                letters = len(LETTER.findall(text))
                if letters - len(pattern.findall(text)) < share * letters:
                    return True
        return False

    return drop


def wrong_language(probability: float, src_lang: str, tgt_lang: str) -> TextFilter:
    """A side is, with less than ``probability``, of its language, as py3langid sees it.

    Sides with few letters are not judged.

    Raises:
        InputError: The package is missing, or does not know a language.
    """
    identifier = _identifier()
    codes = []
    for lang in (src_lang, tgt_lang):
        code = base_language(lang)
        codes.append("no" if code == "nb" else code)
        if codes[-1] not in identifier.nb_classes:
            raise InputError(
                f"data.cleaning.min_language_probability: py3langid does not know {lang!r}: set it "
                "to null"
            )

    def drop(src: str, tgt: str) -> bool:
        for text, code in zip((src, tgt), codes, strict=True):
            if len(text) < JUDGED_LETTERS or len(LETTER.findall(text)) < JUDGED_LETTERS:
                continue
            # Most often its language is the likeliest, and that settles it sooner.
            best, _ = identifier.classify(text)
            if best != code and dict(identifier.rank(text))[code] < probability:
                return True
        return False

    return drop


@cache
def _identifier() -> Any:
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        raise InputError(
            "data.cleaning.min_language_probability needs py3langid: "
            "pip install 'transformer-mt[langid]'"
        ) from None
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
