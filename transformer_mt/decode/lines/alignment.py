"""Word alignment of a translation with its source: from tokens to words."""

import re
from collections.abc import Sequence
from itertools import accumulate

from transformer_mt.data.subwords.tokenizer import Tokenizer, one_line
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.data.text.tags import split_tag
from transformer_mt.decode.engine import Engine, Link, TokenPair

WORD_START = "▁"
"""First character of a piece that starts a word."""

SPACES = " \t\n\f\r"
"""White space as HTML defines it: what separates words, and may be collapsed. No-break spaces and
the like belong to a word, as in the pieces of a vocabulary."""
WORD = re.compile(f"[^{SPACES}]+")
"""A word, wherever words are counted, in the source as in the translation."""


def align_words(
    engine: Engine, tokenizer: Tokenizer, pairs: Sequence[TokenPair]
) -> list[list[Link]]:
    """One link for each word of each translation."""
    words = [
        (source_word_ids(tokenizer, source), target_word_ids(tokenizer.tgt, target))
        for source, target in pairs
    ]
    return engine.align(pairs, words)


def same_words(tokenizer: Tokenizer, normalizer: Normalizer, line: str) -> bool:
    """Whether the words of a source line are those that the model reads.

    Normalisation may make several words of one (``a—b``), or one of several.
    """
    tag, text = split_tag(line, tokenizer.tags)
    read = tokenizer.normalize(one_line(normalizer.of_tag(tag).src(text)))
    return len(WORD.findall(read)) == len(WORD.findall(text))


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
    texts = tokenizer.decode([ids[i:] for i in range(len(ids))])
    remaining = [len(WORD.findall(one_line(text).strip())) for text in texts]  # from each token on
    if not remaining or not (total := remaining[0]):
        return []
    return [min(max(total - count, 0), total - 1) for count in remaining]
