"""Sentences of a line, and parts of a sentence that is longer than the model's input."""

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate, pairwise

import regex
from sentencex import segment

from transformer_mt.config.languages import ORDINAL_STOPS, base_language
from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.decode.lines.alignment import WORD_START

_EMOJI = "\u200d\u20e3\u2600-\u27bf\u2b00-\u2bff\ufe0f\U0001f000-\U0001faff"

_BOUNDARY = regex.compile(
    r"""(?: (?<! (?<!\w) (?: \p{Lu} | (\p{L}{1,2}\.)+\p{L}{1,2}  # not of J. Smith, U.S., d.h.
                          | Mr | Mrs | Ms | Mme | Dr | Prof | St | Ft | Hr | Fr | Nr | Sr | Jr )) \.
          | \.{2,} | [!?…؟।۔]+ )
        [\p{Pf}\p{Pi}\p{Pe}"']* (?: \s* [EMOJI] )* \s+
        (?= \p{P}* \s? (?: [\p{Lu}\p{Lt}\p{Lo}] | \d (?<! (?: (?<!\w)\p{L}{1,3} | \d ) \. \W* \d )))
      | [。！？]+ [\p{Pf}\p{Pe}]* (?=.)""".replace("EMOJI", _EMOJI),
    regex.VERBOSE | regex.DOTALL,
)
"""Where a sentence may end, and what follows could start another one."""

_EDGES = regex.compile(
    r"""\s* (?: (?: [-–—*•·‣◦●○▪►>\#]+ | \(?(?:\d{1,3}|[a-z])\) ) \s+ | [EMOJI]+ \s* )*
        ((?>.*[^EMOJI\s])?) .*""".replace("EMOJI", _EMOJI),
    regex.VERBOSE | regex.DOTALL,
)
"""A sentence, after marks of list items and emoji, and before emoji."""

_SPACE = re.compile(r"\s")
"""White space; sentencex 1.0.32 panics at a full stop after one that is not a plain space."""


def segments(text: str, language: str) -> Iterator[tuple[int, int, bool]]:
    """Start and end of each sentence of a text and, with False, of what is copied around them.

    These are marks of list items and emoji, which models that rarely saw any mistranslate.
    """
    for start, end in pairwise([*sentence_starts(text, language), len(text)]):
        match = _EDGES.fullmatch(text, start, end)
        bounds = (start, *match.span(1), end)
        for (first, last), is_text in zip(pairwise(bounds), (False, True, False), strict=True):
            if text[first:last].strip():
                yield first, last, is_text


def sentence_starts(text: str, language: str) -> list[int]:
    """Positions at which the sentences of a text start; the first is 0.

    It takes both: sentencex knows abbreviations, ``_BOUNDARY`` numbers and words in lower case.
    """
    found = list(_BOUNDARY.finditer(text))
    if found and base_language(language) in ORDINAL_STOPS:
        found = [match for match in found if not text[match.start() - 1 : match.start()].isdigit()]
    if not found:
        return [0]
    sentences = segment(base_language(language), _SPACE.sub(" ", text))
    ends = set(accumulate(map(len, sentences)))
    places = [match.span() for match in found]
    return [0, *(end for start, end in places if not ends.isdisjoint(range(start + 1, end + 1)))]


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
