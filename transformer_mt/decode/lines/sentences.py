"""Sentences of a line, and parts of a sentence that is longer than the model's input."""

from bisect import bisect_right
from collections.abc import Iterator
from functools import cache
from itertools import pairwise

import regex

from transformer_mt.config.languages import ORDINAL_STOPS, base_language
from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.decode.lines.alignment import WORD_START

_JOINERS = "\u200d\u20e3\ufe0f"
_EMOJI = f"{_JOINERS}\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff"

_EMOTICON = regex.compile(r"(?<!\S)(?:[:;=]['’]?-?[)(DPpOo3/|\]\[*]+|<3+|\^_?\^|[xX]D+)(?!\S)")
_BOUNDARY = regex.compile(
    r"""(?: (?<! (?<!\w) (?: [\p{Lu}\p{Georgian}\p{Arabic}\p{Hebrew}](?<!\d)  # not J. Smith,
                          | (\p{L}{1,2}\.){1,4}\p{L}{1,2}  # U.S., d.h.
                          | (?i: M(?:rs?|s|me) | Dr | Prof | Sept | [SFM]t | [HFNSJ]r)))(?P<stop>\.)
          | (?<!\.) \.{2,}+ | (?<![!?…؟।۔։።။។]) [!?…؟।۔։።။។]++ )
        (?: [\p{Pf}\p{Pi}\p{Pe}\p{Cf}"'] | \s»(?!\S) )*+ (?: \s* [EMOJI] )*+ \s++
        (?= \p{P}* \s? (?: [\p{Lu}\p{Lt}\p{Lo}\p{Georgian}]
                          | \d (?<! (?: (?<!\w)\p{L}{1,3} | \d ) \. \W* \d )))
      | (?<![EMOJI\s]) (?: \s* [EMOJI]++ )++ \s++ (?= \p{P}* \p{Lu} )
      | (?: (?<![。！？｡]) [。！？｡]++ | (?<=HAN_OR_KANA)[!?]++(?=HAN_OR_KANA) )
        [\p{Pf}\p{Pe}]*+ (?=[^、，。！？；：])
    """.replace("EMOJI", _EMOJI).replace("HAN_OR_KANA", r"[\p{Han}\p{Hiragana}\p{Katakana}ー]"),
    regex.VERBOSE | regex.DOTALL,
)
"""Where a sentence may end, and what follows could start another one."""

_EDGES = regex.compile(
    r"""\s* (?: (?: [-–—*•·‣◦●○▪►>\#]+ | \(?(?:\d{1,3}|[a-z])\) | \d{1,2}\. ) \s+ | [EMOJI]+ \s* )*
        ((?>.*[^EMOJI\s][JOINERS]*)?) .*""".replace("EMOJI", _EMOJI).replace("JOINERS", _JOINERS),
    regex.VERBOSE | regex.DOTALL,
)
"""A sentence, after marks of list items and emoji, and before emoji."""

_WORD = regex.compile(r"""(?:[^\s\p{Ps}\p{Pi}"']|(?<=\w)'(?=\w))*+$""")
"""The last word of a sentence."""
_ORDINAL = regex.compile(r"(?:.*[^\w.,:])?\d{1,2}")
"""A word that a full stop may make an ordinal number: not 1990, 3,50 or 8:30."""


def segments(text: str, language: str, *, marks: bool) -> Iterator[tuple[int, int, bool]]:
    """Start and end of each sentence of a text and, with False, of what is copied around them.

    These are marks of list items and emoji, which models that rarely saw any mistranslate. Without
    ``marks`` they are parts of the sentences.
    """
    with_emoji = _emoji_for_emoticons(text)
    for start, end in pairwise([*sentence_starts(text, language), len(text)]):
        sentence = _EDGES.fullmatch(with_emoji, start, end).span(1) if marks else (start, end)
        bounds = (start, *sentence, end)
        for (first, last), is_text in zip(pairwise(bounds), (False, True, False), strict=True):
            if text[first:last].strip():
                yield first, last, is_text


def sentence_starts(text: str, language: str) -> list[int]:
    """Positions at which the sentences of a text start; the first is 0."""
    starts = [0]
    for match in _BOUNDARY.finditer(_emoji_for_emoticons(text)):
        if match["stop"]:
            base = base_language(language)
            word = _WORD.findall(text, max(0, match.start() - 20), match.start())[0]
            is_ordinal = base in ORDINAL_STOPS and _ORDINAL.fullmatch(word)
            if is_ordinal or word in _abbreviations(base):
                continue
        starts.append(match.end())
    return starts


def _emoji_for_emoticons(text: str) -> str:
    """The text with each character of an emoticon, such as ``:)``, replaced by an emoji."""
    return _EMOTICON.sub(lambda match: "😀" * len(match[0]), text)


@cache
def _abbreviations(language: str) -> frozenset[str]:
    """Abbreviations after which no sentence ends; the English ones for languages without a list."""
    from sacremoses.corpus import NonbreakingPrefixes  # takes 0.3 s, and few lines need it

    # Entries marked #NUMERIC_ONLY# matter before numbers only, which ``_BOUNDARY`` handles.
    words = [word for word in NonbreakingPrefixes().words(language) if "#" not in word]
    return frozenset([*words, *map(str.capitalize, words)])


def split_long(ids: list[int], max_tokens: int, tokenizer: Tokenizer) -> list[list[int]]:
    """Splits a sentence into parts of at most ``max_tokens``, between words if possible."""
    if len(ids) <= max_tokens:
        return [ids] if ids else []
    pieces = tokenizer.pieces(ids)
    words = [i for i, piece in enumerate(pieces) if i and piece.startswith(WORD_START)]
    parts, start = [], 0
    while len(ids) - start > max_tokens:
        fitting = words[bisect_right(words, start) : bisect_right(words, start + max_tokens)]
        end = fitting[-1] if fitting else start + max_tokens
        parts.append(ids[start:end])
        start = end
    return [*parts, ids[start:]]
