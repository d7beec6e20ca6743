"""Filters of the training data: functions that decide whether to drop a pair.

Most filters look at one side of a pair, which is dropped if either side is bad. Corpora have
millions of pairs, so every filter first makes the test that decides most of them.
The thresholds, and their sources, are in ``configs/cleaning``.

To add a filter: its setting in ``CleaningConfig``, its function, and its entry in ``FILTERS``.
"""

import hashlib
import html
import re
import unicodedata
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from functools import cache
from operator import eq
from typing import Any

import regex

from transformer_mt.config import CleaningConfig
from transformer_mt.config.languages import SHORT_WORDS, foreign_letter, macro_language
from transformer_mt.data.text.lines import is_blank
from transformer_mt.errors import InputError, requiring

SideFilter = Callable[[str], bool]
"""Whether to drop a pair, given the text of one of its sides."""

PairFilter = Callable[[str, str], bool]
"""Whether to drop a pair, given the text of both sides."""

MAX_PHRASE_WORDS = 4
"""Maximum number of words in a repeated phrase that ``repetitive`` finds."""

MAX_CHARACTER_REPEATS = 9
"""Drops dotted lines and rulers; "1000000000" is the longest number kept."""

MAX_WORD_REPEATS = 3
"""Maximum of OpusFilter's RepetitionFilter, in a row."""

MIN_WORD_LENGTH, MAX_WORD_LENGTH = 1.5, 20
"""OpusFilter's AverageWordLengthFilter has 2 to 20; on tokenised text, 2 drops "No ."."""

MIN_LETTERS_TO_IDENTIFY = 20
"""Minimum number of letters of a side whose language is identified; with fewer it is a guess."""


_LETTER = regex.compile(r"\p{L}")  # of any script
# Control, replacement and private-use characters, and non-characters.
_BROKEN = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x9f\ufffd\ue000-\uf8ff\ufdd0-\ufdef\ufffe\uffff]")
_TWICE_ENCODED = re.compile("Ã[¡-¿ƒ„–œŸ]|Â[¡-¿]|â€")  # UTF-8 read as Windows-1252: Ã¼ for ü


def garbled(text: str) -> bool:
    """Whether a text has characters that are not text, or was read in a wrong encoding."""
    if _BROKEN.search(text):
        return True
    suspect = not text.isascii() and ("Ã" in text or "Â" in text or "â€" in text)
    return suspect and bool(_TWICE_ENCODED.search(text))


# Known elements only: <name@example.org> and <file> are text. Tokenisers insert spaces.
_TAG = re.compile(
    r"""<\s?/?\s?(?:a|b|big|blockquote|body|br|center|code|div|em|embed|font|form|h[1-6r]|head|html
    |i|iframe|img|input|li|link|meta|object|ol|option|p|param|pre|s|script|select|small|span|strike
    |strong|style|sub|sup|table|tbody|td|th|title|tr|tt|u|ul)(?:\s[^<>]*=[^<>]*)?\s?/?\s?>
    |<\s?a\s+href|<!--""",
    re.IGNORECASE | re.VERBOSE,
)
# The eight escapes of the Moses tokeniser are not markup: data.normalization=standard resolves
# them. The text that they escape may still be a tag.
_ENTITY = re.compile(
    r"&(?!(?:amp|lt|gt|quot|apos|#124|#91|#93);)(?:#[0-9]+|#[xX][0-9a-fA-F]+|[A-Za-z][A-Za-z0-9]+);"
)


def markup(text: str) -> bool:
    """Whether a text has HTML tags or entities."""
    if "&" in text:
        if _ENTITY.search(text):
            return True
        text = html.unescape(text)
    return "<" in text and bool(_TAG.search(text))


class _LettersAndDigits(dict[int, int | None]):
    """Table of ``str.translate`` that deletes all but letters, marks and digits."""

    def __missing__(self, code: int) -> int | None:
        return self.setdefault(code, code if unicodedata.category(chr(code))[0] in "LMN" else None)


_LETTERS_AND_DIGITS = _LettersAndDigits()


def fold(text: str) -> str:
    """The text without case, spaces and punctuation, to find near-identical sentences."""
    return text.casefold().translate(_LETTERS_AND_DIGITS)


def identical(src: str, tgt: str) -> bool:
    """Whether both sides are the same up to case, spaces and punctuation."""
    starts = fold(src[:32]), fold(tgt[:32])  # enough to decide most pairs
    longer, shorter = max(starts, key=len), min(starts, key=len)
    return longer.startswith(shorter) and fold(src) == fold(tgt)


_RUN = re.compile(r"(\S)" + r"\1" * MAX_CHARACTER_REPEATS)  # faster than \1{limit}


def repetitive(text: str) -> bool:
    """Whether a character, a word or a phrase occurs too often in a row.

    That is more than ``MAX_CHARACTER_REPEATS`` or ``MAX_WORD_REPEATS`` times. A phrase has up to
    ``MAX_PHRASE_WORDS``. Punctuation alone does not count as a word: tokenised text has "! ! ! !".
    """
    if _RUN.search(text):
        return True
    limit, words = MAX_WORD_REPEATS, text.split()
    repetitions = len(words) - len(set(words))  # limit repetitions of n words: n * limit
    for n in range(1, min(MAX_PHRASE_WORDS, repetitions // limit) + 1):
        # In a repeated phrase of n words, each word equals the n-th before it.
        equal, run = bytes(map(eq, words, words[n:])), b"\1" * (n * limit)
        at = equal.find(run)
        while at >= 0:
            if any(map(str.isalnum, "".join(words[at : at + n]))):
                return True
            at = equal.find(run, at + 1)
    return False


_DIGIT = re.compile(r"\d")  # of any script
# Thousands: 1,234 or 1.234 or 1 234 or 1'234, and 12,34,567 of India; not 2012 300.
_GROUPED = re.compile(
    r"(?<!\d)\d{1,3}(?:[.,'’٬ \xa0\u2009\u202f]\d{2,3})*[.,'’٬ \xa0\u2009\u202f]\d{3}(?!\d)"
)


def numbers(text: str) -> list[str]:
    """Runs of digits of a text, sorted, without leading zeros and separators of thousands.

    A decimal point or comma separates two runs: 1,234.5 and 1.234,5 both are ``["1234", "5"]``.
    Placeholders such as %1$s do not count, because translations may reorder them.
    """
    if not _DIGIT.search(text):
        return []
    text = _GROUPED.sub(lambda match: re.sub(r"\D", "", match[0]), text)
    if not text.isascii():
        text = _DIGIT.sub(lambda match: str(unicodedata.digit(match[0])), text)
    return sorted(run.lstrip("0") for run in re.findall(r"%\d+\$|(\d+)", text) if run)


def digit_mismatch(src: str, tgt: str) -> bool:
    """Whether the numbers that are written in digits differ.

    A number that one side spells out is a difference, and so are 9 pm and 21 Uhr.
    """
    return numbers(src) != numbers(tgt)


def word_length(_config: CleaningConfig, lang: str) -> SideFilter:
    """The mean length of the words, in characters, is out of bounds.

    Languages in which a word may be a single letter are not checked.
    """

    def drop(text: str) -> bool:
        words = text.split()
        length = len("".join(words))
        return not MIN_WORD_LENGTH * len(words) <= length <= MAX_WORD_LENGTH * len(words)

    return (lambda _: False) if macro_language(lang) in SHORT_WORDS else drop


def wrong_script(config: CleaningConfig, lang: str) -> SideFilter:
    """Less than ``min_script_share`` of the letters are in the language's script.

    Languages of unknown script and texts without letters are not checked. A Latin word, perhaps the
    name of a product, counts as one letter in other scripts.
    """
    foreign, share = foreign_letter(lang), config.min_script_share or 0.0

    def drop(text: str) -> bool:
        if foreign is None or not foreign.search(text):
            return False
        found = foreign.findall(text)
        own = len(_LETTER.findall(text)) - len("".join(found))
        return own < share * (own + len(found))

    return drop


def wrong_language(config: CleaningConfig, lang: str) -> SideFilter:
    """The text is in the language with a probability below ``min_language_probability``.

    Texts with fewer than ``MIN_LETTERS_TO_IDENTIFY`` letters are not checked.
    """
    identifier, probability = _identifier(), config.min_language_probability or 0.0
    code = macro_language(lang)
    names = {name for name in identifier.nb_classes if macro_language(name) == code}
    if not names:
        raise InputError(
            f"data.cleaning.min_language_probability: py3langid does not know {lang!r}: "
            "set it to null"
        )

    def drop(text: str) -> bool:
        if min(len(text), len(_LETTER.findall(text))) < MIN_LETTERS_TO_IDENTIFY:
            return False
        best, _ = identifier.classify(text)  # decides most texts, faster than a ranking
        if best in names:
            return False
        return bool(sum(p for name, p in identifier.rank(text) if name in names) < probability)

    return drop


@cache
def _identifier() -> Any:
    with requiring("py3langid", "data.cleaning.min_language_probability"):
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def hash_text(text: str) -> int:
    r"""64-bit hash of a text, the same in every process and on every machine.

    Duplicates are found by the hash of the exact text, ``src + "\n" + tgt`` for a pair: "Come!"
    and "Come?" have different translations. Held-out sentences are found by the hash of
    ``fold(text)``, because a different comma does not make a test sentence unseen.
    """
    # 100 million texts have a false duplicate with probability 0.03%.
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def overlaps(pair: Iterable[str], held_out: Container[int]) -> bool:
    """Whether a side of a pair is held out, by the hash of its folded text."""
    return any(hash_text(fold(side)) in held_out for side in pair)


@dataclass(frozen=True)
class Filter:
    """Registration of a filter.

    A filter tests one ``side`` or the text of ``both``. Those without such a test compare hashes
    with the validation and test set, encoded lengths (``check_lengths``), or hashes with
    earlier pairs (``find_first``).
    """

    name: str
    """Name in reports and in ``cleaning.json``."""
    setting: str = ""
    """Setting of ``CleaningConfig`` that turns the filter on; without one it is always on."""
    side: Callable[[CleaningConfig, str], SideFilter] | None = None
    """Makes the test of the normalised text of a side, given its language."""
    both: PairFilter | None = None
    """The test of the normalised text of both sides."""

    def describe(self, config: CleaningConfig) -> str:
        """The setting of an active filter, as ``min_script_share=0.5``."""
        value = not self.setting or getattr(config, self.setting)
        return self.setting if value is True else f"{self.setting}={value}"


SET_ASIDE = "set_aside"
"""Name of the filter of pairs that have a side of the validation or test set."""

DUPLICATE = "duplicate"
"""Name of the filter of pairs that equal an earlier one."""

FILTERS = (
    Filter("empty", side=lambda *_: is_blank),
    Filter("garbled", "drop_garbled", side=lambda *_: garbled),
    Filter("markup", "drop_markup", side=lambda *_: markup),
    Filter("repetitive", "drop_repetitive", side=lambda *_: repetitive),
    Filter("word_length", "drop_odd_words", side=word_length),
    Filter("script", "min_script_share", side=wrong_script),
    Filter("identical", "drop_identical", both=identical),
    Filter("digit_mismatch", "drop_digit_mismatch", both=digit_mismatch),
    Filter("language", "min_language_probability", side=wrong_language),
    Filter(SET_ASIDE, "drop_held_out"),
    Filter("length", "max_tokens"),
    Filter("length_ratio", "max_ratio"),
    Filter(DUPLICATE, "deduplicate"),
)
"""All filters, in the order in which pairs meet them. A pair counts for the first that drops it."""


def active_filters(config: CleaningConfig) -> list[Filter]:
    """The filters that a configuration turns on, in order."""
    return [f for f in FILTERS if not f.setting or getattr(config, f.setting)]
