"""Word alignment of a translation with its source, from the decoder's cross-attention."""

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from transformer_mt.data.subwords.tokenizer import BOS, EOS, Tokenizer
from transformer_mt.decode.engines.engine import Engine, TokenPair
from transformer_mt.decode.translation import Link
from transformer_mt.model.attention_maps import cross_attention_maps
from transformer_mt.model.transformer import Transformer

WORD_START = "▁"
"""First character of a piece that starts a word."""


def soft_alignment(model: Transformer, pairs: Sequence[TokenPair]) -> list[Tensor]:
    """The attention of each target token to each source token, [T, S]; rows sum to at most 1.

    It is the cross-attention of the last layer but one, averaged over its heads, at the step that
    predicts the target token, which Garg et al. 2019 ("Jointly Learning to Align and Translate with
    Transformer Models") find best. On a small model of ours it agreed with IBM Model 1 on 7 of 10
    words; other layers agreed less often, and the step that reads the token, which Chen et al. 2020
    prefer, rarely. Attention to the end symbol of the source is left out.
    """
    maps = cross_attention_maps(
        model,
        max(len(model.decoder) - 2, 0),
        [[*source, EOS] for source, _ in pairs],
        [[BOS, *target] for _, target in pairs],
    )
    return [weights.mean(0)[:-1, :-1] for weights in maps]


def word_alignment(
    weights: Tensor, source_words: Sequence[int], target_words: Sequence[int]
) -> list[Link]:
    """Links each target word, in order, to the source word that its tokens attend to most.

    Args:
        weights: [T, S], attention between tokens.
        source_words: Index of the word that each source token belongs to; S values.
        target_words: Index of the word that each target token belongs to; T values.
    """
    if not source_words or not target_words:
        return []
    table = weights.new_zeros(max(target_words) + 1, max(source_words) + 1)
    for word, row in zip(target_words, weights, strict=True):
        table[word].index_add_(0, torch.tensor(source_words), row)
    return [(best, word) for word, best in enumerate(table.argmax(1).tolist())]


def align_words(
    engine: Engine, tokenizer: Tokenizer, lines: Sequence[Sequence[TokenPair]]
) -> list[list[Link]]:
    """One link for each word of each line's translation; a line is given as its parts."""
    pairs = [pair for parts in lines for pair in parts]
    words = [
        (source_word_ids(tokenizer.pieces(source)), target_word_ids(tokenizer, target))
        for source, target in pairs
    ]
    links = iter(engine.align(pairs, words))
    return [_join(tokenizer, parts, [next(links) for _ in parts]) for parts in lines]


def _join(
    tokenizer: Tokenizer, parts: Sequence[TokenPair], links: Sequence[list[Link]]
) -> list[Link]:
    """The alignment of a line from those of its parts."""
    joined: list[Link] = []
    source_offset = target_offset = 0
    for (source, _), part_links in zip(parts, links, strict=True):
        pieces = tokenizer.pieces(source)
        # A part may start within a word; translations of parts are joined by a space.
        first = source_offset - (source_offset > 0 and not pieces[0].startswith(WORD_START))
        joined += [(first + s, target_offset + t) for s, t in part_links]
        source_offset = first + source_word_ids(pieces)[-1] + 1
        target_offset += len(part_links)
    return joined


def source_word_ids(pieces: Sequence[str]) -> list[int]:
    """The index of the word that each piece of an encoded line belongs to.

    It is found from the pieces, not the decoded text, where an unknown character would be a word.
    """
    starts = (i == 0 or piece.startswith(WORD_START) for i, piece in enumerate(pieces))
    return [count - 1 for count in accumulate(starts)]


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
