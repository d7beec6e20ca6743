"""Word alignment of a translation with its source: from tokens to words, from parts to lines."""

from collections.abc import Sequence
from itertools import accumulate

from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.decode.engines.engine import Engine, Link, TokenPair

WORD_START = "▁"
"""First character of a piece that starts a word."""


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


def source_word_ids(tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
    """The index of the word that each piece of an encoded line belongs to; -1: the line's tag.

    It is found from the pieces, not the decoded text, where an unknown character would be a word.
    """
    tags = tokenizer.num_tags(ids)
    pieces = tokenizer.pieces(ids[tags:])
    starts = (i == 0 or piece.startswith(WORD_START) for i, piece in enumerate(pieces))
    return [-1] * tags + [count - 1 for count in accumulate(starts)]


def target_word_ids(tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
    """The index of the word, in the decoded text, that each token of a translation belongs to.

    It is found from the text, not the pieces: a model may produce a space and then a piece that
    starts a word. A space belongs to the word after it. Empty if the text has no word.
    """
    # Number of words from each token on.
    remaining = [len(text.split()) for text in tokenizer.decode([ids[i:] for i in range(len(ids))])]
    if not remaining or not (total := remaining[0]):
        return []
    return [min(max(total - count, 0), total - 1) for count in remaining]
