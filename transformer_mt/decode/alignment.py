"""Which source word a word of the translation comes from, read off the attention."""

from collections.abc import Sequence

import torch
from torch import Tensor

from transformer_mt.data.tokenizer import BOS, EOS, Tokenizer
from transformer_mt.model.attention_maps import attention_maps
from transformer_mt.model.transformer import Transformer

WORD = "▁"
"""Begins a piece that begins a word."""

Link = tuple[int, int]
"""A source word and the word of the translation, each counted from 0."""


def soft_alignment(model: Transformer, source: Sequence[int], target: Sequence[int]) -> Tensor:
    """How much each target token looks at each source token: [T, S], rows sum to 1 at most.

    That is the attention to the source of the last layer but one, the mean of its heads, in the
    step that says the target token: what Garg et al. 2019 ("Jointly Learning to Align and Translate
    with Transformer Models") find best. On a small model of ours it agreed with IBM Model 1 on 7
    words of 10; other layers agreed less often, and the step that reads the token seldom (Chen et
    al. 2020 find it better). What goes to the end symbol of the source is left out.

    Args:
        model: The model.
        source: S token ids, without special symbols.
        target: T token ids, likewise.
    """
    maps = attention_maps(model, [*source, EOS], [BOS, *target]).cross
    return maps[max(len(maps) - 2, 0)].mean(0)[:-1, :-1]


def word_alignment(weights: Tensor, source: Sequence[str], target: Sequence[str]) -> list[Link]:
    """For each target word the source word that its pieces look at most.

    Args:
        weights: [T, S], of pieces.
        source: S pieces; one that begins a word begins with ``▁``.
        target: T pieces, likewise.

    Returns:
        One link for each target word, in their order.
    """
    if not source or not target:
        return []
    of_source, of_target = _words(source), _words(target)
    table = weights.new_zeros(of_target[-1] + 1, of_source[-1] + 1)
    for word, row in zip(of_target, weights, strict=True):
        table[word].index_add_(0, torch.tensor(of_source), row)
    return [(best, word) for word, best in enumerate(table.argmax(1).tolist())]


def align_parts(
    model: Transformer, tokenizer: Tokenizer, parts: Sequence[tuple[list[int], list[int]]]
) -> list[Link]:
    """The links of a line that was translated in parts, each a source and a target."""
    links: list[Link] = []
    before_source = before_target = 0
    for source, target in parts:
        pieces, said = tokenizer.pieces(source), tokenizer.pieces(target)
        # A part may begin within a word; translations of parts are joined by a space.
        first = before_source - (before_source > 0 and not pieces[0].startswith(WORD))
        found = word_alignment(soft_alignment(model, source, target), pieces, said)
        links += [(first + s, before_target + t) for s, t in found]
        before_source = first + _words(pieces)[-1] + 1
        before_target += _words(said)[-1] + 1 if said else 0
    return links


def _words(pieces: Sequence[str]) -> list[int]:
    """The number of the word that each piece belongs to."""
    words, number = [], 0
    for i, piece in enumerate(pieces):
        number += i > 0 and piece.startswith(WORD)
        words.append(number)
    return words
