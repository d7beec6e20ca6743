"""Word alignment of a translation with its source: from tokens to words, from parts to lines."""

import re
from bisect import bisect_right
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


def join_links(
    tokenizer: Tokenizer,
    sources: Sequence[Sequence[int]],
    links: Sequence[Sequence[Link] | None],
    space: str,
) -> list[Link]:
    """The alignment of a line from the token ids and the alignments of its parts.

    ``space`` is what joins the translations of the parts.
    """
    joined: list[Link] = []
    source_offset = 0
    for source, part_links in zip(sources, links, strict=True):
        assert part_links is not None
        (piece,) = tokenizer.pieces(source[(start := tokenizer.num_tags(source)) : start + 1])
        # A part may start within a word, and so may its translation.
        first = source_offset - (source_offset > 0 and not piece.startswith(WORD_START))
        continues = bool(joined) and not space
        target_offset = len(joined) - continues
        joined += [(first + s, target_offset + t) for s, t in part_links[continues:]]
        source_offset = first + source_word_ids(tokenizer, source)[-1] + 1
    return joined


def printed_links(
    tokenizer: Tokenizer, normalizer: Normalizer, line: str, links: Sequence[Link]
) -> list[Link]:
    """Links from the words of a source line, given links from the words that the model reads.

    Normalisation may make several words of one (``a—b``), or one of several.
    """
    tag, text = split_tag(line, tokenizer.tags)
    src = normalizer.of_tag(tag).src

    def read(text: str) -> list[str]:
        return WORD.findall(tokenizer.normalize(one_line(src(text))))

    words, words_read = WORD.findall(text), read(text)
    if words_read == words:
        return list(links)
    ends = list(accumulate(len(read(word)) for word in words))
    if ends[-1] != len(words_read):  # words are joined: count in what leads up to each
        beginnings = (" ".join(words[:end]) for end in range(1, len(words) + 1))
        ends = list(accumulate((len(read(beginning)) for beginning in beginnings), max))
    last = len(words) - 1
    return [(min(bisect_right(ends, source), last), target) for source, target in links]


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
