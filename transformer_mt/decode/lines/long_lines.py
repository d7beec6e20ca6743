"""Lines that are longer than the model's input, translated in parts."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from transformer_mt.config.languages import TITLE
from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.decode.lines.alignment import WORD_START

_FULL_STOP = re.compile("[.!?…؟।]+[\"'”’»)\\]]*$")
_FULL_STOP_CJK = re.compile("[。！？]+[」』”）]*$")
"""Ends a sentence also where no space follows."""


def split_long(ids: list[int], max_tokens: int, tokenizer: Tokenizer) -> list[list[int]]:
    """Splits a line of more than ``max_tokens`` into its sentences.

    A model trained on sentences would translate only the first ones of a longer part. A sentence
    that is too long itself is split into parts of at most ``max_tokens``, between words if
    possible.
    """
    pieces = tokenizer.pieces(ids)
    words = [i for i, piece in enumerate(pieces) if i and piece.startswith(WORD_START)]
    texts = [tokenizer.decode(ids[i:j]) for i, j in pairwise([0, *words, len(ids)])]
    parts, start = [], 0
    for end in [*_sentence_starts(pieces, words, texts), len(ids)]:
        while end - start > max_tokens:
            fitting = words[bisect_right(words, start) : bisect_right(words, start + max_tokens)]
            cut = fitting[-1] if fitting else start + max_tokens
            parts.append(ids[start:cut])
            start = cut
        parts.append(ids[start:end])
        start = end
    return parts


def _sentence_starts(
    pieces: Sequence[str], words: Sequence[int], texts: Sequence[str]
) -> list[int]:
    """The pieces at which a sentence starts, but for the first one.

    ``words`` are the pieces at which words start, except the first word; ``texts`` are all words.
    """
    starts = [i for i, piece in enumerate(pieces[:-1], 1) if _FULL_STOP_CJK.search(piece)]
    for i, (word, following) in zip(words, pairwise(texts), strict=True):
        is_end = _FULL_STOP.search(word.strip()) and not TITLE.fullmatch(word.strip())
        if is_end and not following.strip()[:1].islower():
            starts.append(i)
    return sorted(starts)
