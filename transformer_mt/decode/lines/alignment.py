"""Word alignment of a translation with its source: from tokens to words."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from transformer_mt.data.subwords.tokenizer import Tokenizer, one_line
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.decode.engine import Engine
from transformer_mt.protocols import WORD

WORD_START = "▁"
"""First character of a piece that starts a word."""


Link = tuple[int, int]
"""A source word and a word of the translation, each counted from 0."""


def align_words(
    engine: Engine, tokenizer: Tokenizer, pairs: Sequence[tuple[list[int], list[int]]]
) -> list[list[Link]]:
    """One link for each word of each translation; ``pairs`` of sources and these, as token ids."""
    return [
        word_links(weights, source_word_ids(tokenizer, src), target_word_ids(tokenizer.tgt, tgt))
        for (src, tgt), weights in zip(pairs, engine.align(pairs), strict=True)
    ]


def word_links(
    weights: NDArray[np.float32], source_words: Sequence[int], target_words: Sequence[int]
) -> list[Link]:
    """Links each target word, in order, to the source word that its tokens belong to most.

    Args:
        weights: [T, S], between tokens (``Engine.align``).
        source_words: Index of the word that each source token belongs to, -1 for none; S values.
        target_words: Index of the word that each target token belongs to; T values.
    """
    if not source_words or not target_words:
        return []
    words = np.array(source_words)
    in_word = words >= 0
    table = np.zeros((max(target_words) + 1, max(source_words) + 1), weights.dtype)
    for word, row in zip(target_words, weights, strict=True):
        np.add.at(table[word], words[in_word], row[in_word])
    return [(best, word) for word, best in enumerate(table.argmax(1).tolist())]


def same_words(tokenizer: Tokenizer, normalizer: Normalizer, text: str, tag: str) -> bool:
    """Whether the words of a source text are those that the model reads.

    Normalisation may make several words of one (``a—b``), or one of several.
    """
    read = tokenizer.normalize(one_line(normalizer.src(text, tag)))
    return len(WORD.findall(read)) == len(WORD.findall(text))


def word_indices(text: str, positions: Sequence[int]) -> list[int]:
    """The index of the word at each position of a text, or after it."""
    ends = [match.end() for match in WORD.finditer(text)]
    return [bisect_right(ends, position) for position in positions]


def source_word_ids(tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
    """The index of the word that each piece of an encoded line belongs to; -1: the line's tag.

    It is found from the pieces, not the decoded text, where an unknown character would be a word.
    """
    tags = tokenizer.num_tags(ids)
    pieces = tokenizer.pieces(ids[tags:])
    starts = (i == 0 or piece.startswith(WORD_START) for i, piece in enumerate(pieces))
    return [-1] * tags + [count - 1 for count in accumulate(starts)]


def target_word_ids(tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
    """The index of the word, in the printed text, that each token of a translation belongs to.

    It is found from the text, not the pieces: a model may produce a space and then a piece that
    starts a word. A space belongs to the word after it. Empty if the text has no word.
    """
    texts = (tokenizer.decode(ids[i:]) for i in range(len(ids)))
    remaining = [len(WORD.findall(one_line(text).strip())) for text in texts]  # from each token on
    if not remaining or not (total := remaining[0]):
        return []
    return [min(max(total - count, 0), total - 1) for count in remaining]
